/* The ranks of a tensor-parallel group, and the places in a forward pass where they meet.
 *
 * A rank holds a slice of every matrix (model/decoder.h). Two things need the others:
 * - A sum. Each rank writes its part to comm_partial's memory; comm_reduce_add adds the parts of all
 *   ranks, in the order of their numbers, to the residual. So every rank gets the same bits, and
 *   every run does.
 * - Logits. Each rank writes those of its slice of the vocabulary to comm_logits's memory. Whoever
 *   samples a row gathers it.
 *
 * All ranks make the same calls in the same order. A rank that is gone would leave the others
 * waiting: whoever notices calls comm_fail, after which every call returns at once and comm_check
 * says so. What was computed since then is not to be used.
 *
 * One thread at a time uses a comm; comm_fail may be called by any. */
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

// The group of one. It has no memory of its own and nobody to meet.
struct comm comm_single(void);

// dev [max_num_tokens][hidden], activation type: where this rank's part of the next sum belongs.
// Another piece of memory each time: ask once for each sum.
void *comm_partial(struct comm *comm);
// residual[i] += the sum over ranks of part[i], i < count; is_first: residual[i] = that sum.
void comm_reduce_add(struct comm *comm, struct backend *backend, void *residual, size_t count,
                     bool is_first);
// dev [max_num_seqs][vocabulary of this rank]: where this rank's logits belong.
float *comm_logits(struct comm *comm);
// After a barrier: row `row` of all ranks' logits, side by side, to out [vocabulary].
void comm_gather_logits(struct comm *comm, struct backend *backend, uint32_t row, float *out);
// Returns when all ranks have called it: what each wrote before is there for all.
void comm_barrier(struct comm *comm);
// False once the group has failed.
bool comm_is_alive(const struct comm *comm);

#endif
