/* The patterns that cut a text into words. The published ones (GPT-2's, and the one that cl100k,
 * Llama 3 and Qwen share) have scanners written by hand, which take linear time. Any other regular
 * expression is run by regex.h. A pattern is read-only, so threads may share it; the memory of a
 * match is in `struct pattern_scratch`. */
#ifndef TEXT_TOKENIZER_PATTERN_H
#define TEXT_TOKENIZER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "text/effort.h"
#include "text/regex/regex.h"

enum pattern_kind {
    PATTERN_LITERAL,
    PATTERN_GPT2,
    PATTERN_CL100K,
    PATTERN_FLAGGED, // one character with certain flags
    PATTERN_WORD, // \w+|[^\w\s]+
    PATTERN_REGEX,
};

struct pattern {
    enum pattern_kind kind;
    const uint8_t *flags; // [UNICODE_END], borrowed
    size_t max_digits; // PATTERN_CL100K: most digits of one word
    char *literal; // [literal_len]
    size_t literal_len;
    unsigned wanted; // PATTERN_FLAGGED: UNICODE_LETTER, ... of unicode.h
    struct regex *regex; // of PATTERN_REGEX
};

struct pattern_scratch {
    struct effort *effort; // of the running encode
    struct regex_scratch regex;
};
void pattern_scratch_fini(struct pattern_scratch *scratch);

// `what` names the source in errors; `regex` is a NUL-terminated Oniguruma expression.
MUST_USE enum status pattern_init_regex(struct pattern *pattern, const uint8_t *flags,
                                        const char *regex, const char *what, struct err *err);
MUST_USE enum status pattern_init_literal(struct pattern *pattern, const char *literal,
                                          struct err *err);
void pattern_init_gpt2(struct pattern *pattern, const uint8_t *flags);
void pattern_init_flagged(struct pattern *pattern, const uint8_t *flags, unsigned wanted);
void pattern_init_word(struct pattern *pattern, const uint8_t *flags);
void pattern_fini(struct pattern *pattern); // all-zero is fine

// True: every byte of every text is part of a match. pattern_scan then returns the length of the
// match that begins at `text` < end; `end` is where the text ends.
static inline bool pattern_is_scanned(const struct pattern *pattern) {
    return pattern->kind == PATTERN_GPT2 || pattern->kind == PATTERN_CL100K;
}
size_t pattern_scan(const struct pattern *pattern, const unsigned char *text,
                    const unsigned char *end);

// Walks over the matches in `text`, as Oniguruma's find_iter does. Start with from = 0 and last_end
// = SIZE_MAX.
struct pattern_cursor {
    const char *text; // [len], valid UTF-8
    size_t len;
    size_t from; // where the search continues
    size_t last_end; // end of the last match; SIZE_MAX before the first
    size_t start, end; // the match
};
// The next match, or *found = false.
MUST_USE enum status pattern_next(const struct pattern *pattern, struct pattern_cursor *cursor,
                                  struct pattern_scratch *scratch, bool *found, struct err *err);

#endif
