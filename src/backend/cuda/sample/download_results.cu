/* Copies a step's results to pinned host memory, as copy.cu does. A row without log-probabilities
 * has 8 bytes that the host reads, of 168.
 *
 * Launch: a warp for each row, 8 warps a block. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

constexpr int WARPS = 8, WORDS = sizeof(sample_result) / 4, SHORT_WORDS = 2;
static_assert(offsetof(sample_result, top_id) == SHORT_WORDS * 4, "token_id and logprob");

__global__ void __launch_bounds__(WARPS * 32)
    download_results_kernel(uint32_t *host, const uint32_t *results, const sample_row *rows,
                            uint32_t num_rows) {
    uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= num_rows) return;
    int words = rows[row].num_top < 0 ? SHORT_WORDS : WORDS;
    size_t first = (size_t)row * WORDS;
    for (int i = threadIdx.x % 32; i < words; i += 32) host[first + i] = results[first + i];
}

} // namespace

extern "C" void cuda_download_results_launch(struct sample_result *host,
                                             const struct sample_result *results,
                                             const struct sample_row *rows, uint32_t num_rows,
                                             cudaStream_t stream) {
    download_results_kernel<<<(num_rows + WARPS - 1) / WARPS, WARPS * 32, 0, stream>>>(
        reinterpret_cast<uint32_t *>(host), reinterpret_cast<const uint32_t *>(results), rows,
        num_rows);
}
