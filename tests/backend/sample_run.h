// Runs the sample op of a CPU backend, with guards around everything that it may write.
#ifndef BACKEND_SAMPLE_RUN_H
#define BACKEND_SAMPLE_RUN_H

#include <stdint.h>

#include "backend/backend.h"

// Temperatures, top_k, top_p and min_p in all their combinations; other fields are 0.
enum { SAMPLE_NUM_RULES = 16 };
extern const struct sample_row sample_rules[SAMPLE_NUM_RULES];

// NULL, having said why, where this processor has no such instruction set.
struct backend *sample_open_backend(const char *isa, int threads);

// What changes logits; all-zero: nothing.
struct sample_extras {
    const struct sample_bias *biases;
    const uint32_t *masks; // as in sample_args
    struct token_counts *counts;
};

// extras: NULL is nothing. results: [num_rows]. Fails the running test where a guard is broken.
void sample_run(struct backend *backend, const float *logits, uint32_t vocab_size,
                const struct sample_row *rows, uint32_t num_rows,
                const struct sample_extras *extras, struct sample_result *results);

struct token_counts *sample_counts_create(struct backend *backend, uint32_t num_slots,
                                          uint32_t vocab_size); // of at most 64 ids a sequence
void sample_counts_destroy(struct backend *backend, struct token_counts *counts);
void sample_counts_begin(struct backend *backend, struct token_counts *counts, uint32_t slot,
                         const int32_t *ids, uint32_t num_prompt, uint32_t num_ids);

// A generator of the test's own, so that its numbers are the same everywhere.
void sample_random_seed(uint64_t seed);
double sample_random_uniform(void); // from 0 to 1
float *sample_random_logits(uint32_t rows, uint32_t vocab_size, float spread); // to be freed

#endif
