/* cuBLASLt's algorithms that compete for a product (gemm/gemm_trial.h): those that its heuristic
 * proposes; and for some hundred rows by a large matrix the same tiles with other clusters and
 * options too. The heuristic does not propose these, and some are faster by up to a fifth. Each is
 * a kernel to load and to time, so a first start does it only where it is worth a millisecond. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_CANDIDATES_H
#define BACKEND_CUDA_LINEAR_GEMM_CANDIDATES_H

#include "backend/cuda/gemm/gemm_trial.h"

enum {
    GEMM_PROPOSALS_MAX = 8, // the heuristic has no more
    GEMM_CANDIDATES_MAX = 25 * GEMM_PROPOSALS_MAX,
};

// Fills in up to `max` algorithms, without repetition, the heuristic's in its order first. Returns
// how many. All need at most GEMM_WORKSPACE_BYTES.
int gemm_candidates(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                    cublasLtMatmulAlgo_t *algos, int max);

#endif
