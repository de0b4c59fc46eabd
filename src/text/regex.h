/* Regular expressions of tokenizers, in Oniguruma's syntax, which tokenizer.json is written in. A
 * backtracking matcher of our own, for three reasons: characters have the properties of one version
 * of Unicode everywhere, every step is counted, so that a text has a budget, and Oniguruma's classes
 * within classes and their intersections (&&) are what they are there. What is not supported is
 * refused by its name: a pattern is either run as meant or named in an error.
 *
 * Supported: literals, ., classes, \d \h \s \w \p{...} and their opposites, \n \t ..., \xHH
 * \x{H...} \uHHHH, ^ $ \A \z \Z \b \B, groups, (?>), (?=) (?!) (?<=) (?<!), (?i) (?m), backward
 * references, \K, and greedy, lazy and possessive repetition. A compiled one is read-only and
 * shared by threads. */
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
// expression; ERR_UNSUPPORTED: it uses what the sentence names.
MUST_USE enum status regex_compile(struct regex **out, const char *source, const char *what,
                                   struct err *err);
void regex_destroy(struct regex *regex); // NULL is fine

// What a search works with; all-zero is empty, reusable.
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

// The first match that begins at or after `from` <= len. Lookbehind sees the text before `from`.
// The text is valid UTF-8 and `from` at a character. ERR_INVALID: the budget is spent.
MUST_USE enum status regex_search(const struct regex *regex, const char *text, size_t len,
                                  size_t from, struct regex_scratch *scratch, struct effort *effort,
                                  struct regex_match *match, struct err *err);

#endif
