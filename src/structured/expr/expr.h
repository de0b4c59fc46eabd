/* Expressions: regular sets of byte strings, as trees whose equal parts are stored once.
 *
 * Terminals of a grammar are expressions. Besides the usual operators there are intersection and
 * complement, and repetition with a counter: {0,100000} is one node and is never unrolled. Nothing
 * is compiled ahead. What may follow a byte is again an expression (the derivative), made when it
 * is asked for and remembered.
 *
 * An expression is a uint32_t, valid while its `struct exprs` lives. Every constructor simplifies:
 * equal ids mean equal sets, but not the other way round.
 *
 * Errors are sticky. A constructor that runs out of a limit or of memory keeps the sentence in the
 * exprs and returns EXPR_NOTHING, and so does each later one. So a builder checks exprs_status()
 * (or compiles the grammar, which does) once, at its end. */
#ifndef STRUCTURED_EXPR_H
#define STRUCTURED_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    EXPR_NOTHING = 0, // no string at all
    EXPR_EPSILON = 1, // the empty string
    EXPR_ANYTHING = 2, // every string of bytes, also one that is not UTF-8
};
static const uint32_t EXPR_FOREVER = UINT32_MAX; // a repetition without an upper bound

struct exprs;

// 0 in a field: its default.
struct expr_limits {
    size_t bytes_max; // memory of all expressions, default 64 MiB
    uint64_t steps_max; // nodes that the constructors and one later question look at, default 20 M
};

// Allocates. `limits` may be NULL.
// What is left of steps_max.
uint64_t exprs_steps_left(const struct exprs *exprs);
MUST_USE enum status exprs_create(struct exprs **out, const struct expr_limits *limits,
                                  struct err *err);
void exprs_destroy(struct exprs *exprs); // NULL is fine
// OK, or the first error of a constructor, with its sentence.
MUST_USE enum status exprs_status(const struct exprs *exprs, struct err *err);
// Makes the builder's own error sticky like those of constructors; the first one stays. Returns
// EXPR_NOTHING.
uint32_t exprs_fail(struct exprs *exprs, enum status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

// ---- bytes and characters ----

// One byte b with bit b % 64 of bytes[b / 64].
uint32_t expr_byte_set(struct exprs *exprs, const uint64_t bytes[4]);
uint32_t expr_byte_range(struct exprs *exprs, unsigned char first, unsigned char last);
uint32_t expr_literal(struct exprs *exprs, const void *bytes, size_t len);
uint32_t expr_string(struct exprs *exprs, const char *str); // NUL-terminated
// The concatenation with `tail`, in one pass: a literal behind which something is known is not made
// twice.
uint32_t expr_literal_before(struct exprs *exprs, const void *bytes, size_t len, uint32_t tail);
// The UTF-8 of one character from first to last <= U+10FFFF, without the surrogates.
uint32_t expr_char_range(struct exprs *exprs, uint32_t first, uint32_t last);
struct expr_char_range {
    uint32_t first, last;
};
uint32_t expr_char_set(struct exprs *exprs, const struct expr_char_range *ranges,
                       size_t num_ranges);
uint32_t expr_any_char(struct exprs *exprs); // one character of UTF-8
uint32_t expr_any_text(struct exprs *exprs); // any number of them
// A token that the tokenizer calls special, such as <tool_call> or [TOOL_CALLS]. Its text alone,
// spelled by other tokens, does not match it, and no other expression but EXPR_ANYTHING (and a
// complement) matches such a token. Other tokens may have a name as well (vocabulary.h): this
// expression matches only the token, and others match its text.
uint32_t expr_special_token(struct exprs *exprs, const char *name, size_t len);

// ---- operators ----

uint32_t expr_concat(struct exprs *exprs, uint32_t a, uint32_t b);
uint32_t expr_concat_all(struct exprs *exprs, const uint32_t *list, size_t len); // none: EPSILON
uint32_t expr_alt(struct exprs *exprs, uint32_t a, uint32_t b);
uint32_t expr_alt_all(struct exprs *exprs, const uint32_t *list, size_t len); // none: NOTHING
uint32_t expr_and(struct exprs *exprs, uint32_t a, uint32_t b);
uint32_t expr_and_all(struct exprs *exprs, const uint32_t *list, size_t len); // none: ANYTHING
// `e` min to max times, max >= min or EXPR_FOREVER.
uint32_t expr_repeat(struct exprs *exprs, uint32_t e, uint32_t min, uint32_t max);
uint32_t expr_optional(struct exprs *exprs, uint32_t e);
// All byte strings that are not of `e`, also those that are not UTF-8. Mostly expr_minus is meant:
// expr_minus(expr_any_text(), e).
uint32_t expr_not(struct exprs *exprs, uint32_t e);
uint32_t expr_minus(struct exprs *exprs, uint32_t a, uint32_t b); // those of a that are not of b

struct expr_text {
    const char *bytes;
    size_t len;
};
// One of the texts, with common beginnings stored once: for enums and keys, also thousands of them.
uint32_t expr_one_of(struct exprs *exprs, const struct expr_text *texts, size_t num_texts);
// The shortest texts that end in `mark` (len > 0): text in which `mark` occurs once, at its end.
uint32_t expr_until(struct exprs *exprs, const char *mark, size_t len);
// Text, maybe empty, in which none of the marks occurs.
uint32_t expr_text_without(struct exprs *exprs, const struct expr_text *marks, size_t num_marks);

// The inside of a JSON string, without its quotes, that stands for a text of `e`, which is a set of
// texts in UTF-8. Every spelling that JSON allows matches: the character itself, \n, \u000a, and
// surrogate pairs. Works for all operators: the length of a text counts its characters, not its
// escapes.
uint32_t expr_json_content(struct exprs *exprs, uint32_t e);
// The one spelling that programs mostly write, without quotes: the character itself, \" \\ \b \f \n
// \r \t, and \u00XX for other control characters. `text` is UTF-8.
uint32_t expr_json_literal(struct exprs *exprs, const char *text, size_t len);
uint32_t expr_json_literal_before(struct exprs *exprs, const char *text, size_t len, uint32_t tail);

// ---- questions ----

// Whether the empty string is one of `e`.
bool expr_is_nullable(const struct exprs *exprs, uint32_t e);
// Whether `e` has no string. Exact; ERR_CAPACITY when that takes more than the limits allow. Two
// expressions are disjoint where their expr_and has none; a is part of b where expr_minus(a, b) has
// none.
MUST_USE enum status expr_is_nothing(struct exprs *exprs, uint32_t e, bool *nothing,
                                     struct err *err);
// Whether `text` is one of `e`. For tests and for checking values while a schema is read.
MUST_USE enum status expr_matches(struct exprs *exprs, uint32_t e, const void *text, size_t len,
                                  bool *matches, struct err *err);

#endif
