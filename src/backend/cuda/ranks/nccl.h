/* A rank's NCCL communicator. */
#ifndef BACKEND_CUDA_RANKS_NCCL_H
#define BACKEND_CUDA_RANKS_NCCL_H

#include <stdatomic.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/ranks/nccl_library.h"

struct nccl {
    struct nccl_library library;
    _Atomic(struct nccl_communicator *) communicator; // NULL: not connected, or ended
    atomic_uint num_calls; // under way, which use the communicator
};

MUST_USE enum status nccl_open(struct nccl *nccl, struct err *err);
// A new group's id, of rank 0.
MUST_USE enum status nccl_make_id(struct nccl *nccl, struct nccl_id *id, struct err *err);
// By all ranks, each on its current device. ERR_DEVICE once *has_failed is not 0: then a thread may
// be left behind that waits for the other ranks.
MUST_USE enum status nccl_connect(struct nccl *nccl, const struct nccl_id *id, uint32_t rank,
                                  uint32_t world_size, const atomic_uint *has_failed,
                                  struct err *err);
void nccl_close(struct nccl *nccl); // all-zero is fine
// Ends what waits for other ranks, for good. Any thread may call it.
void nccl_stop_waiting(struct nccl *nccl);

// In place: the sum over ranks of bf16 [count].
void nccl_sum(struct nccl *nccl, struct cuda_backend *cuda, void *values, size_t count);
// to [world_size][count] float: `from` [count] of every rank.
void nccl_gather(struct nccl *nccl, struct cuda_backend *cuda, const float *from, float *to,
                 size_t count);

#endif
