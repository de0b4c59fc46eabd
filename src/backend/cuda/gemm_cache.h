/* Which algorithm was the fastest for which product, in memory and in a file, so that only a
 * machine's first start times them.
 *
 * The file is text: a line that names GPU and library, then a line per shape. A file of another GPU or
 * library, or a line that is not understood, is as good as none: the shape is timed again. Several
 * processes may write at once: each replaces the file whole, by rename. */
#ifndef BACKEND_CUDA_GEMM_CACHE_H
#define BACKEND_CUDA_GEMM_CACHE_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct gemm_cache;

struct gemm_key {
    uint32_t rows; // of the bucket
    uint32_t out, in;
    uint32_t out_is_float, has_bias; // 0 or 1
};

// `path` NULL: memory only. A file that cannot be read is no error.
MUST_USE enum status gemm_cache_open(struct gemm_cache **out, const char *path,
                                     const char *device_name, size_t library_version,
                                     struct err *err);
void gemm_cache_close(struct gemm_cache *cache); // NULL is fine; writes the file if it grew

bool gemm_cache_get(const struct gemm_cache *cache, const struct gemm_key *key,
                    cublasLtMatmulAlgo_t *algo);
// When there is no more room or memory the choice is forgotten.
void gemm_cache_put(struct gemm_cache *cache, const struct gemm_key *key,
                    const cublasLtMatmulAlgo_t *algo);

#endif
