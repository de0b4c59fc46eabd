/* The GPUs of a tensor-parallel group, for the CUDA backend's own files (backend.h has the
 * contract). There are two kinds. Up to CUDA_RANKS_MAX ranks whose GPUs all reach each other's
 * memory use kernels of ours (ranks/reduce.cu): each rank has one allocation that the others open
 * by CUDA IPC. Others use NCCL. */
#ifndef BACKEND_CUDA_RANKS_COLLECTIVE_H
#define BACKEND_CUDA_RANKS_COLLECTIVE_H

#include "backend/cuda/cuda_backend.h"

extern const struct backend_collective cuda_collective;

// For kernels that reach the other ranks' memory by themselves; NULL: no kernel can. Complete once
// the ranks are connected.
const struct cuda_ranks *cuda_collective_ranks(const struct collective *collective);
// Where the logits of `num_rows` rows are, to be scanned. Ranks that do not reach each other's
// memory gather them first.
void cuda_collective_slices(struct cuda_backend *cuda, struct collective *collective,
                            uint32_t num_rows, struct cuda_logit_slices *out);
void cuda_collective_barrier(struct backend *backend, struct collective *collective);

#endif
