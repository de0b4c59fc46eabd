/* CPU ranks of one host. All of them have mapped the memory of the parts of sums and of the logits,
 * so each rank reads the others' data in place. */
#ifndef COMM_SHM_COMM_H
#define COMM_SHM_COMM_H

#include "comm/comm.h"
#include "comm/meeting.h"

// Sizes of the memory that a group shares.
struct shm_comm_shape {
    uint32_t world_size;
    size_t partial_bytes; // of one sum: [max_num_tokens][hidden] activations
    size_t max_num_logits; // rows
    uint32_t vocab_start[COMM_RANKS_MAX + 1]; // of each rank's slice; the last: the vocabulary
};

struct shm_comm {
    struct comm base;
    struct shm_comm_shape shape;
    struct meeting *meeting;
    // Each rank has two, used in turn: fast ranks write one while slow ranks still read the other.
    char *partial[2][COMM_RANKS_MAX];
    float *logits[COMM_RANKS_MAX]; // [max_num_logits][the rank's slice]
    uint32_t turn;
    double spin_seconds;
};

// Bytes of shared memory for each rank.
size_t shm_comm_rank_bytes(const struct shm_comm_shape *shape);
// `memory` [world_size][shm_comm_rank_bytes], 64-byte aligned, and the all-zero `meeting` are
// mapped by all ranks and borrowed for the comm's life. There is nothing to free.
void shm_comm_init(struct shm_comm *comm, const struct shm_comm_shape *shape, uint32_t rank,
                   struct meeting *meeting, void *memory);

#endif
