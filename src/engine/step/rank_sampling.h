/* Sampling shared out among CPU ranks. Each takes some rows, gathers their logits and writes their
 * results to memory that all ranks read. So a row is sampled once, by the code of a single rank. */
#ifndef ENGINE_STEP_RANK_SAMPLING_H
#define ENGINE_STEP_RANK_SAMPLING_H

#include "comm/comm.h"

struct rank_sampling {
    struct comm *comm; // NULL: the runner is alone, and samples by itself
    uint32_t vocab_size;
    float *logits; // [max_rows][vocab_size]: of this rank's rows
    struct sample_row *rows; // [max_rows]
    struct sample_result *results; // [max_rows]
    uint32_t *owners; // [max_rows]: the rank that samples each row of the step
};

// Bytes that init allocates.
size_t rank_sampling_bytes(uint32_t max_rows, uint32_t vocab_size);
// `max_rows`: the most rows of a step.
MUST_USE enum status rank_sampling_init(struct rank_sampling *sampling, struct comm *comm,
                                        uint32_t max_rows, uint32_t vocab_size, struct err *err);
void rank_sampling_fini(struct rank_sampling *sampling); // all-zero is fine
// Does what backend_sampler's sample does, shared out among all ranks. args->results is memory that
// ranks share, and args->logits is not read. All results are written when it returns.
void rank_sampling_run(struct rank_sampling *sampling, struct backend *backend,
                       const struct sample_args *args);
// After rank_sampling_run: the logits [num_rows][vocab_size] of its rows, on rank 0; NULL on the
// others. All ranks call it.
const float *rank_sampling_gather(struct rank_sampling *sampling, struct backend *backend,
                                  uint32_t num_rows);
// Whether this rank samples the rows with this slot of the token counts. A sequence keeps its slot,
// so one rank samples all its tokens and has its counts.
bool rank_sampling_has_slot(const struct comm *comm, uint32_t slot);

#endif
