/* Work on strings that filters and methods share. Every function pays for what it reads and writes.
 * `is_markup` marks what comes out; nothing here escapes by itself but jinja_str_escape. */
#ifndef JINJA_STR_OPS_H
#define JINJA_STR_OPS_H

#include "base/text/utf8.h"
#include "jinja/src/run/run.h"

// Returns the code point at byte `at`, and moves `at` behind it.
static inline uint32_t jinja_str_next(const struct jinja_string *string, size_t *at) {
    size_t size;
    uint32_t c = utf8_decode((const unsigned char *)string->data + *at, &size);
    *at += size;
    return c;
}
// Returns the code point that ends before byte `at` > 0, and moves `at` to its start.
uint32_t jinja_str_previous(const struct jinja_string *string, size_t *at);

// Pays for searching or moving bytes, and for looking at each character.
MUST_USE enum status jinja_str_pay_bytes(struct jinja_run *run, size_t num_bytes);
MUST_USE enum status jinja_str_pay_chars(struct jinja_run *run, size_t num_bytes);

// A string over bytes that live as long as the run.
MUST_USE enum status jinja_str_borrow(struct jinja_run *run, const char *data, size_t len,
                                      bool is_markup, struct jinja_value *out);
// Bytes [start, end) of `string`, sharing its memory, marked as it is.
MUST_USE enum status jinja_str_part(struct jinja_run *run, const struct jinja_string *string,
                                    size_t start, size_t end, struct jinja_value *out);
// jinja_text_finish with a mark.
MUST_USE enum status jinja_str_finish(struct jinja_run *run, struct jinja_text *text,
                                      bool is_markup, struct jinja_value *out);
// str(value) without a mark: str(Markup) is a plain string.
MUST_USE enum status jinja_str_plain(struct jinja_run *run, struct jinja_value value,
                                     const struct jinja_string **out);
MUST_USE enum status jinja_str_append_char(struct jinja_run *run, struct jinja_text *text,
                                           uint32_t c);
// `count` times `unit`; count <= 0: nothing.
MUST_USE enum status jinja_str_append_repeated(struct jinja_run *run, struct jinja_text *text,
                                               const struct jinja_string *unit, int64_t count);
// & < > ' " as HTML writes them.
MUST_USE enum status jinja_str_escape(struct jinja_run *run, struct jinja_text *text,
                                      const struct jinja_string *string);

enum jinja_str_case {
    JINJA_STR_LOWER,
    JINJA_STR_UPPER,
    JINJA_STR_TITLE,
    JINJA_STR_CAPITALIZE,
    JINJA_STR_SWAP,
    JINJA_STR_FOLD
};
MUST_USE enum status jinja_str_append_case(struct jinja_run *run, struct jinja_text *text,
                                           const struct jinja_string *string,
                                           enum jinja_str_case mapping);
MUST_USE enum status jinja_str_case_map(struct jinja_run *run, const struct jinja_string *string,
                                        enum jinja_str_case mapping, struct jinja_value *out);

enum { JINJA_STR_LEFT = 1, JINJA_STR_RIGHT = 2 };
// Without the characters of `chars` (NULL: white space) at the sides wanted.
MUST_USE enum status jinja_str_strip(struct jinja_run *run, const struct jinja_string *string,
                                     const struct jinja_string *chars, int sides,
                                     struct jinja_value *out);

enum jinja_str_align { JINJA_STR_ALIGN_LEFT, JINJA_STR_ALIGN_RIGHT, JINJA_STR_ALIGN_CENTER };
// At least `width` characters, filled up with `fill`, one character.
MUST_USE enum status jinja_str_pad(struct jinja_run *run, const struct jinja_string *string,
                                   int64_t width, const struct jinja_string *fill,
                                   enum jinja_str_align align, struct jinja_value *out);

// The first `count` occurrences (negative: all) of `old` replaced. is_markup: of the result.
MUST_USE enum status jinja_str_replace(struct jinja_run *run, const struct jinja_string *string,
                                       const struct jinja_string *old,
                                       const struct jinja_string *new, int64_t count,
                                       bool is_markup, struct jinja_value *out);
// Byte offsets of the first and last occurrence in [start, end); SIZE_MAX: none.
MUST_USE enum status jinja_str_find(struct jinja_run *run, const struct jinja_string *string,
                                    size_t start, size_t end, const struct jinja_string *needle,
                                    size_t *out);
MUST_USE enum status jinja_str_rfind(struct jinja_run *run, const struct jinja_string *string,
                                     size_t start, size_t end, const struct jinja_string *needle,
                                     size_t *out);

// str.splitlines.
MUST_USE enum status jinja_str_lines(struct jinja_run *run, const struct jinja_string *string,
                                     bool keep_ends, struct jinja_list **out);
// The items, each str(item) or escape(item) for a Markup separator, joined.
MUST_USE enum status jinja_str_join(struct jinja_run *run, const struct jinja_string *separator,
                                    const struct jinja_list *items, struct jinja_value *out);

#endif
