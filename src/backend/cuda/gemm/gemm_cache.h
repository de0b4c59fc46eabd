/* Cache of the fastest way for each linear layer's shape, in memory and in a file. So only a
 * machine's first start times them.
 *
 * The file is text. The first line names GPU and library, then there is a line per shape. A file of
 * another GPU or library is ignored, and so is a line that is not valid: those shapes are timed
 * again. Several processes may write at the same time: each replaces the whole file by rename. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_CACHE_H
#define BACKEND_CUDA_LINEAR_GEMM_CACHE_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/kernel_table.h"
#include "base/err.h"

struct gemm_cache;

struct gemm_key {
    uint32_t rows; // upper end of the bucket (gemm_bucket)
    uint32_t out, in;
    uint32_t out_is_float, has_bias; // 0 or 1
    uint32_t is_gated; // 0; or 1 + the activation
};

struct gemm_way {
    uint32_t kind; // KERNEL_CUBLAS, KERNEL_BATCH or KERNEL_GATED of kernel_table.h
    uint32_t split; // KERNEL_BATCH: blocks that divide the inputs
    uint32_t has_algo; // 0 or 1; KERNEL_CUBLAS with 0: cuBLASLt chooses
    cublasLtMatmulAlgo_t algo;
};

bool gemm_key_equal(const struct gemm_key *a, const struct gemm_key *b);

// `path` NULL: memory only. An unreadable file is not an error.
MUST_USE enum status gemm_cache_open(struct gemm_cache **out, const char *path,
                                     const char *device_name, size_t library_version,
                                     struct err *err);
// NULL is fine; writes the file if there are new entries
void gemm_cache_close(struct gemm_cache *cache);

// Writes the file if there are new entries; takes entries from it that are not known yet.
void gemm_cache_write(struct gemm_cache *cache);
void gemm_cache_read(struct gemm_cache *cache);

bool gemm_cache_get(const struct gemm_cache *cache, const struct gemm_key *key,
                    struct gemm_way *way);
// Entry number `index`, in the order in which they came. False: there are no more.
bool gemm_cache_at(const struct gemm_cache *cache, uint32_t index, struct gemm_key *key,
                   struct gemm_way *way);
// Does nothing if the key is already known or the cache is full.
void gemm_cache_put(struct gemm_cache *cache, const struct gemm_key *key,
                    const struct gemm_way *way);

#endif
