/* Counts the tokens of a sequence that gets a slot. Prompt ids set one bit, generated ids are
 * counted. Launch: one thread per id, after the row was cleared. Bytes: 4 x vocab_size written, 4 x
 * num_ids read. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/sample/row.cuh"

namespace {

__global__ void count_kernel(uint32_t *row, const int32_t *ids, int num_prompt, int num_ids) {
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= num_ids) return;
    if (i < num_prompt) {
        atomicOr(&row[ids[i]], COUNT_PROMPT);
    } else {
        atomicAdd(&row[ids[i]], 1u);
    }
}

} // namespace

extern "C" void cuda_count_tokens_launch(uint32_t *row, const int32_t *ids, uint32_t num_prompt,
                                         uint32_t num_ids, cudaStream_t stream) {
    constexpr uint32_t THREADS = 256;
    if (!num_ids) return;
    count_kernel<<<(num_ids + THREADS - 1) / THREADS, THREADS, 0, stream>>>(
        row, ids, static_cast<int>(num_prompt), static_cast<int>(num_ids));
}
