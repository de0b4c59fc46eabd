/* CPU ranks of one host. All of them have mapped the memory of the parts of sums and of the logits,
 * so each rank reads the others' data in place. */
#ifndef COMM_SHM_COMM_H
#define COMM_SHM_COMM_H

#include "comm/barrier.h"
#include "comm/comm.h"

// Sizes of the memory that a group shares.
struct shm_comm_shape {
    uint32_t world_size;
    size_t partial_bytes; // of one rank's part of a sum: [max_num_tokens][hidden] activations
    size_t max_num_logits; // rows
    // First token of each rank's slice. The last entry is the vocabulary's size.
    uint32_t vocab_start[COMM_RANKS_MAX + 1];
};

// Bytes of shared memory for each rank.
size_t shm_comm_rank_bytes(const struct shm_comm_shape *shape);
// `memory` [world_size][shm_comm_rank_bytes], 64-byte aligned, and the all-zero `barrier` are
// mapped by all ranks and borrowed for the comm's life.
MUST_USE enum status shm_comm_create(struct comm **out, const struct shm_comm_shape *shape,
                                     uint32_t rank, struct barrier *barrier, void *memory,
                                     struct err *err);

#endif
