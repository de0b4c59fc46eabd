/* The CPU's `sample` op: from rows of logits to tokens and log-probabilities. backend.h says what
 * is applied, and in which order. One pass for greedy, two for temperature, no sorting for top_k
 * and top_p.
 *
 * A row is processed in chunks of fixed size, by one thread or by many. The chunks' results are
 * combined in order, with explicit lanes and no fused multiply-adds. So tokens and
 * log-probabilities have the same bits for any number of threads, any other rows, and any
 * instruction set.
 *
 * Any logits are accepted: NaN counts as -inf, +inf as the largest float, and a row without any
 * logit above -inf gives token -1. */
#ifndef BACKEND_CPU_SAMPLE_H
#define BACKEND_CPU_SAMPLE_H

#include "backend/backend.h"

// The functions of struct backend_sampler. If num_top is larger than the vocabulary, the last
// top_id are -1 with log-probability -inf.
void cpu_sample(struct backend *backend, const struct sample_args *args);
size_t cpu_sample_scratch_floats(const struct backend *backend, uint32_t vocab_size,
                                 uint32_t num_rows);

enum status cpu_counts_create(struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                              uint32_t max_ids, struct token_counts **out, struct err *err);
void cpu_counts_destroy(struct backend *backend, struct token_counts *counts);
size_t cpu_counts_bytes(const struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                        uint32_t max_ids);
void cpu_counts_begin(struct backend *backend, struct token_counts *counts, uint32_t slot,
                      const int32_t *ids, uint32_t num_prompt, uint32_t num_ids);

#endif
