/* Which way was the fastest for which linear, in memory and in a file, so that only a
 * machine's first start times them.
 *
 * The file is text: a line that names GPU and library, then a line per shape. A file of another GPU
 * or library, or a line that is not understood, is as good as none: the shape is timed again.
 * Several processes may write at once: each replaces the file whole, by rename. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_CACHE_H
#define BACKEND_CUDA_LINEAR_GEMM_CACHE_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct gemm_cache;

struct gemm_key {
    uint32_t rows; // of the bucket
    uint32_t out, in;
    uint32_t out_is_float, has_bias, is_gated; // 0 or 1
};

// GEMM_CUBLAS: an algorithm of cuBLASLt's. GEMM_BATCH, GEMM_GATED: the kernels of those names.
enum gemm_kind { GEMM_CUBLAS, GEMM_BATCH, GEMM_GATED };

struct gemm_way {
    uint32_t kind; // enum gemm_kind
    uint32_t split; // GEMM_BATCH: blocks that share the inputs
    uint32_t has_algo; // 0 or 1; GEMM_CUBLAS without one: as the library likes
    cublasLtMatmulAlgo_t algo;
};

// `path` NULL: memory only. A file that cannot be read is no error.
MUST_USE enum status gemm_cache_open(struct gemm_cache **out, const char *path,
                                     const char *device_name, size_t library_version,
                                     struct err *err);
void gemm_cache_close(struct gemm_cache *cache); // NULL is fine; writes the file if it grew

bool gemm_cache_get(const struct gemm_cache *cache, const struct gemm_key *key,
                    struct gemm_way *way);
// When there is no more room or memory the choice is forgotten.
void gemm_cache_put(struct gemm_cache *cache, const struct gemm_key *key,
                    const struct gemm_way *way);

#endif
