/* Work on strings that filters and methods share. Every function pays for what it reads and writes.
 * `is_markup` marks what comes out; nothing here escapes by itself but str_escape. */
#ifndef JINJA_STR_OPS_H
#define JINJA_STR_OPS_H

#include "base/utf8.h"
#include "jinja/src/run.h"

// The code point at byte `at`, which is moved behind it.
static inline uint32_t str_next(const struct string *string, size_t *at) {
    size_t size;
    uint32_t c = utf8_decode((const unsigned char *)string->data + *at, &size);
    *at += size;
    return c;
}
// The code point that ends before byte `at` > 0, which is moved to its start.
uint32_t str_previous(const struct string *string, size_t *at);

// Pays for searching or moving bytes, and for looking at each character.
MUST_USE enum status str_pay_bytes(struct run *run, size_t num_bytes);
MUST_USE enum status str_pay_chars(struct run *run, size_t num_bytes);

// A string over bytes that live as long as the run.
MUST_USE enum status str_borrow(struct run *run, const char *data, size_t len, bool is_markup,
                                struct value *out);
// Bytes [start, end) of `string`, sharing its memory, marked as it is.
MUST_USE enum status str_part(struct run *run, const struct string *string, size_t start,
                              size_t end, struct value *out);
// text_finish with a mark.
MUST_USE enum status str_finish(struct run *run, struct text *text, bool is_markup,
                                struct value *out);
// str(value) without a mark: str(Markup) is a plain string.
MUST_USE enum status str_plain(struct run *run, struct value value, const struct string **out);
MUST_USE enum status str_append_char(struct run *run, struct text *text, uint32_t c);
// `count` times `unit`; count <= 0: nothing.
MUST_USE enum status str_append_repeated(struct run *run, struct text *text,
                                         const struct string *unit, int64_t count);
// & < > ' " as HTML writes them.
MUST_USE enum status str_escape(struct run *run, struct text *text, const struct string *string);

enum str_case { STR_LOWER, STR_UPPER, STR_TITLE, STR_CAPITALIZE, STR_SWAP, STR_FOLD };
MUST_USE enum status str_append_case(struct run *run, struct text *text,
                                     const struct string *string, enum str_case mapping);
MUST_USE enum status str_case_map(struct run *run, const struct string *string,
                                  enum str_case mapping, struct value *out);

enum { STR_LEFT = 1, STR_RIGHT = 2 };
// Without the characters of `chars` (NULL: white space) at the sides wanted.
MUST_USE enum status str_strip(struct run *run, const struct string *string,
                               const struct string *chars, int sides, struct value *out);

enum str_align { STR_ALIGN_LEFT, STR_ALIGN_RIGHT, STR_ALIGN_CENTER };
// At least `width` characters, filled up with `fill`, one character.
MUST_USE enum status str_pad(struct run *run, const struct string *string, int64_t width,
                             const struct string *fill, enum str_align align, struct value *out);

// The first `count` occurrences (negative: all) of `old` replaced. is_markup: of the result.
MUST_USE enum status str_replace(struct run *run, const struct string *string,
                                 const struct string *old, const struct string *new, int64_t count,
                                 bool is_markup, struct value *out);
// Byte offsets of the first and last occurrence in [start, end); SIZE_MAX: none.
MUST_USE enum status str_find(struct run *run, const struct string *string, size_t start,
                              size_t end, const struct string *needle, size_t *out);
MUST_USE enum status str_rfind(struct run *run, const struct string *string, size_t start,
                               size_t end, const struct string *needle, size_t *out);

// str.splitlines.
MUST_USE enum status str_lines(struct run *run, const struct string *string, bool keep_ends,
                               struct list **out);
// The items, each str(item) or escape(item) for a Markup separator, joined.
MUST_USE enum status str_join(struct run *run, const struct string *separator,
                              const struct list *items, struct value *out);

#endif
