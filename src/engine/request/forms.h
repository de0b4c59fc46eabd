/* The forms that requests want their answers to have (structured_outputs), compiled. A request with
 * the same text as an earlier one shares its automaton, and so the masks that were made for it, or
 * is refused as that was.
 *
 * The vocabulary is prepared when the first form is wanted. Any thread; a lock guards the list, and
 * compiling runs outside of it. */
#ifndef ENGINE_FORMS_H
#define ENGINE_FORMS_H

#include <pthread.h>

#include "base/err.h"
#include "engine/step/form_stats.h"
#include "structured/automaton/automaton.h"
#include "text/tokenizer/tokenizer.h"

enum {
    FORMS_KEPT = 64, // compiled ones; the one that was not asked for longest goes first
    FORMS_BYTES_MAX = 256 << 20, // of them all, unless it is a single one
    FORMS_BLANK_BYTES_MAX = 4, // of a token of white space alone
    FORMS_REFUSALS = 64, // remembered with their sentence, so that they take no time again
    FORMS_REFUSAL_BYTES_MAX = 4 << 20, // of their texts
};

struct forms_options {
    const struct tokenizer *tokenizer; // borrowed
    uint32_t vocab_size;
    const int32_t *ending; // [num_ending] borrowed: tokens that end a text
    uint32_t num_ending;
};

struct forms {
    bool is_ready;
    pthread_mutex_t lock;
    struct forms_options options;
    struct vocabulary *vocabulary; // NULL: none was wanted yet
    int32_t *blanks; // [num_blanks] tokens of white space alone
    uint32_t num_blanks;
    struct form {
        char *text; // [len] of structured_outputs
        size_t len;
        struct automaton *automaton; // held
        uint64_t last_use;
    } kept[FORMS_KEPT];
    struct form_refusal {
        char *text; // [len]
        size_t len;
        struct err err;
        uint64_t last_use;
    } refused[FORMS_REFUSALS];
    size_t refusal_bytes;
    uint64_t num_uses;
    struct form_stats stats;
};

MUST_USE enum status forms_init(struct forms *forms, const struct forms_options *options,
                                struct err *err);
void forms_fini(struct forms *forms); // all-zero is fine

// The automaton of `text` [len], a JSON object as structured/read/outputs.h reads it; the caller
// releases it.
MUST_USE enum status forms_get(struct forms *forms, const char *text, size_t len,
                               struct automaton **out, struct err *err);

#endif
