// Runs the sample op of a CPU backend, with guard bytes around everything that it may write.
#ifndef BACKEND_SAMPLE_RUN_H
#define BACKEND_SAMPLE_RUN_H

#include <stdint.h>

#include "backend/backend.h"

// Temperatures, top_k, top_p and min_p in all their combinations; other fields are 0.
enum { SAMPLE_NUM_RULES = 16 };
extern const struct sample_row sample_rules[SAMPLE_NUM_RULES];

// If this processor lacks the instruction set, prints that and returns NULL.
struct backend *sample_open_backend(const char *isa, int threads);

// The inputs of the op that change logits; all-zero: none.
struct sample_extras {
    const struct sample_bias *biases;
    const uint32_t *masks; // as in sample_args
    struct token_counts *counts;
};

// extras: may be NULL. results: [num_rows]. Fails the running test if a guard byte has changed.
void sample_run(struct backend *backend, const float *logits, uint32_t vocab_size,
                const struct sample_row *rows, uint32_t num_rows,
                const struct sample_extras *extras, struct sample_result *results);

struct token_counts *sample_counts_create(struct backend *backend, uint32_t num_slots,
                                          uint32_t vocab_size); // for sequences of at most 64 ids
void sample_counts_destroy(struct backend *backend, struct token_counts *counts);
void sample_counts_begin(struct backend *backend, struct token_counts *counts, uint32_t slot,
                         const int32_t *ids, uint32_t num_prompt, uint32_t num_ids);

// Random numbers of the test's own, so that they are the same everywhere.
void sample_random_seed(uint64_t seed);
double sample_random_uniform(void); // from 0 to 1
float *sample_random_logits(uint32_t rows, uint32_t vocab_size, float spread); // to be freed

#endif
