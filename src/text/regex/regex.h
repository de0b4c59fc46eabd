/* Regular expressions of tokenizers, in Oniguruma's syntax, which tokenizer.json uses. The
 * backtracking matcher is our own, for three reasons. Characters have the properties of one version
 * of Unicode on every machine. Every step is counted, so that a text has a budget. Nested classes
 * and their intersections (&&) mean what they mean in Oniguruma. A construct that is not supported
 * is refused by name: a pattern either runs as meant or is an error.
 *
 * Supported: literals, ., classes, \d \h \s \w \p{...} and their opposites, \n \t ..., \xHH
 * \x{H...} \uHHHH, ^ $ \A \z \Z \b \B, groups, (?>), (?=) (?!) (?<=) (?<!), (?i) (?m), backward
 * references, \K, and greedy, lazy and possessive repetition. A compiled expression is read-only,
 * so threads may share it. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/effort.h"

struct regex;

enum { REGEX_SOURCE_MAX = 1 << 14 }; // bytes of an expression

// `source` is NUL-terminated UTF-8; `what` names the file in errors. ERR_FORMAT: it is no regular
// expression. ERR_UNSUPPORTED: it uses a construct that the message names.
MUST_USE enum status regex_compile(struct regex **out, const char *source, const char *what,
                                   struct err *err);
void regex_destroy(struct regex *regex); // NULL is fine

// Memory of a search, reusable by the next one. All-zero is empty.
struct regex_scratch {
    struct regex_frame *frames; // [capacity]
    size_t num_frames, capacity;
    size_t *registers; // [num_registers]
    size_t num_registers;
};
void regex_scratch_fini(struct regex_scratch *scratch);

struct regex_match {
    bool found;
    size_t start, end; // bytes of the text
};

// Finds the first match that begins at or after `from` <= len. Lookbehind sees the text before
// `from`. The text is valid UTF-8, and a character begins at `from`. ERR_INVALID: the budget is
// spent.
MUST_USE enum status regex_search(const struct regex *regex, const char *text, size_t len,
                                  size_t from, struct regex_scratch *scratch, struct effort *effort,
                                  struct regex_match *match, struct err *err);

#endif
