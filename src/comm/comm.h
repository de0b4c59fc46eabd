/* Communication between the ranks of a tensor-parallel group in a forward pass.
 *
 * A rank holds a slice of every matrix (model/decoder.h). Ranks exchange two kinds of data:
 * - Sums. Each rank writes its part to the memory of comm_partial. comm_reduce_add adds the parts
 * of all ranks, in the order of their numbers, to the residual. So every rank and every run gets
 * the same bits.
 * - Logits. Each rank writes the logits of its slice of the vocabulary to the memory of
 * comm_logits. The rank that samples a row gathers it.
 *
 * All ranks make the same calls in the same order. The others would wait forever for a rank that is
 * gone, so whoever notices it calls meeting_fail. From then on every call returns at once,
 * comm_is_alive is false, and results must not be used.
 *
 * One thread at a time uses a comm. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

enum { COMM_RANKS_MAX = 64 };

struct comm;

struct comm_ops {
    void *(*partial)(struct comm *comm);
    void (*reduce_add)(struct comm *comm, struct backend *backend, void *residual, size_t count,
                       bool is_first);
    float *(*logits)(struct comm *comm);
    void (*gather_logits)(struct comm *comm, struct backend *backend, uint32_t row, float *out);
    void (*barrier)(struct comm *comm);
    bool (*has_failed)(const struct comm *comm);
};

// First member of each kind's own struct.
struct comm {
    uint32_t rank, world_size;
    const struct comm_ops *ops; // NULL: the group of one
};

// A group of one rank. It has no memory, and comm_barrier does nothing.
struct comm comm_single(void);

// Memory for this rank's part of the next sum: dev [max_num_tokens][hidden], activation type. It
// changes with each sum, so call it once for each.
void *comm_partial(struct comm *comm);
// residual[i] += the sum over ranks of part[i], i < count; is_first: residual[i] = that sum.
void comm_reduce_add(struct comm *comm, struct backend *backend, void *residual, size_t count,
                     bool is_first);
// Memory for this rank's logits: dev [max_num_seqs][vocabulary of this rank].
float *comm_logits(struct comm *comm);
// Copies row `row` of all ranks' logits, side by side, to out [vocabulary]. Call it after a
// barrier.
void comm_gather_logits(struct comm *comm, struct backend *backend, uint32_t row, float *out);
// Returns when all ranks have called it. All then see what each of them wrote before.
void comm_barrier(struct comm *comm);
// False once the group has failed.
bool comm_is_alive(const struct comm *comm);

#endif
