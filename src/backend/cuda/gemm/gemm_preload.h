/* Loads cuBLASLt's kernels on a thread of its own. A kernel is loaded when it is first launched,
 * which takes 2 ms and more; Qwen3-0.6B has some 60 of them. They are loaded while the weights are
 * copied, and those of the most rows while the engine already answers. A step that needs one before
 * loads it itself. The driver loads one at a time, so meanwhile the thread pauses.
 *
 * Nothing is computed: the thread records the products of the cache file for the model's shapes,
 * makes each recording executable, for which the driver loads its kernels, and destroys it. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_PRELOAD_H
#define BACKEND_CUDA_LINEAR_GEMM_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuda_gemm;
struct gemm_key;
struct gemm_preload;

// Says that the model has a matrix [out][in]. *preload is NULL at first; the first call makes it
// and starts the thread. If that fails nothing is loaded ahead.
void gemm_preload_shape(struct gemm_preload **preload, struct cuda_gemm *gemm, uint32_t out,
                        uint32_t in);
// Whether the thread loads the kernel of this entry of the cache, or has loaded it. In all
// functions from here on NULL is fine: nothing is loaded ahead.
bool gemm_preload_has(const struct gemm_preload *preload, const struct gemm_key *key);
// Before a product of this entry is launched: pauses the thread if it has not loaded the kernel.
void gemm_preload_need(struct gemm_preload *preload, const struct gemm_key *key);
// Most bytes of device memory that kernels still to be loaded take.
size_t gemm_preload_later_bytes(const struct gemm_preload *preload);
// Returns when all are loaded.
void gemm_preload_wait(struct gemm_preload *preload);
// Leaves out what is not loaded yet.
void gemm_preload_destroy(struct gemm_preload *preload);

#endif
