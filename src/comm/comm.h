/* Communication between the ranks of a tensor-parallel group in a forward pass.
 *
 * A rank holds a slice of every matrix (model/decoder.h). Ranks exchange two kinds of data:
 * - Sums. Each rank writes its part to the memory of comm_partial. comm_reduce_add adds the parts
 * of all ranks, in the order of their numbers, to the residual. So every rank and every run gets
 * the same bits.
 * - Logits. Each rank writes the logits of its slice of the vocabulary to the memory of
 * comm_logits. On CPUs the rank that samples a row gathers it. Devices sample together
 * (comm_collective).
 *
 * Calls on a device's comm only enqueue, like its ops. All ranks make the same calls in the same
 * order. The others would wait forever for a rank that is gone, so whoever notices it calls
 * barrier_fail and comm_stop_waiting. From then on nothing waits, comm_is_alive is false, and
 * results must not be used.
 *
 * One thread at a time uses a comm. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

enum { COMM_RANKS_MAX = COLLECTIVE_RANKS_MAX };

struct comm;

// NULL where it says so, else required.
struct comm_ops {
    void (*destroy)(struct comm *comm); // NULL: nothing to free
    enum status (*connect)(struct comm *comm, struct err *err); // NULL: nothing to do
    void (*stop_waiting)(struct comm *comm); // NULL: nothing to do
    struct collective *(*collective)(struct comm *comm); // NULL: the ranks have no devices
    void *(*partial)(struct comm *comm);
    // Only ranks with devices (collective) also do the norm of args.
    void (*reduce_add)(struct comm *comm, struct backend *backend,
                       const struct reduce_add_args *args);
    float *(*logits)(struct comm *comm);
    void (*gather_logits)(struct comm *comm, struct backend *backend, uint32_t row, float *out);
    // NULL: a barrier, and gather_logits of the own rows.
    void (*gather_rows)(struct comm *comm, struct backend *backend, const uint32_t *owners,
                        uint32_t num_rows, float *out);
    // NULL: a barrier, for the results are in memory that the ranks share.
    void (*share_results)(struct comm *comm, const uint32_t *owners, uint32_t num_rows,
                          void *results, size_t size);
    void (*barrier)(struct comm *comm);
    uint64_t (*minimum)(struct comm *comm, uint64_t value); // NULL: not for this kind
    bool (*has_failed)(const struct comm *comm);
};

// First member of each kind's own struct.
struct comm {
    uint32_t rank, world_size;
    const struct comm_ops *ops; // NULL: the group of one
};

// A group of one rank. It has no memory, and comm_barrier does nothing.
struct comm comm_single(void);

// NULL is fine.
void comm_destroy(struct comm *comm);
// By all ranks, once they have loaded and before their first step.
MUST_USE enum status comm_connect(struct comm *comm, struct err *err);
// After barrier_fail: makes devices that wait for others end. Any thread may call it.
void comm_stop_waiting(struct comm *comm);
// What a device's sampler needs to sample rows that are cut among the ranks; NULL on CPUs.
struct collective *comm_collective(struct comm *comm);
// Memory for this rank's part of the next sum: dev [max_num_tokens][hidden], activation type. It
// changes with each sum, so call it once for each.
void *comm_partial(struct comm *comm);
// Adds the sum over ranks of their parts to the residual, and norms it where args has a norm.
void comm_reduce_add(struct comm *comm, struct backend *backend,
                     const struct reduce_add_args *args);
// Memory for this rank's logits: dev [max_num_seqs][vocabulary of this rank].
float *comm_logits(struct comm *comm);
// Copies row `row` of all ranks' logits, side by side, to out [vocabulary] on the host. Call it
// after a barrier.
void comm_gather_logits(struct comm *comm, struct backend *backend, uint32_t row, float *out);
// Gathers the logits of the rows that this rank owns, one after the other, to out [own rows]
// [vocab_size]. owners [num_rows]: the same on all ranks, which all call it.
void comm_gather_rows(struct comm *comm, struct backend *backend, const uint32_t *owners,
                      uint32_t num_rows, uint32_t vocab_size, float *out);
// Gives all ranks the results [num_rows] of `size` bytes that each row's owner has written there.
// All ranks call it.
void comm_share_results(struct comm *comm, const uint32_t *owners, uint32_t num_rows, void *results,
                        size_t size);
// Returns when all ranks have called it. All then see what each of them wrote before.
void comm_barrier(struct comm *comm);
// The smallest of all ranks' values, when all have called it. On the host: it waits for no device.
uint64_t comm_minimum(struct comm *comm, uint64_t value);
// False once the group has failed.
bool comm_is_alive(const struct comm *comm);

#endif
