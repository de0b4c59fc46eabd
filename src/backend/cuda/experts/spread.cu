/* Copies each token's row of x to the rows of its experts: gathered[position[t][k]] = x[t]. So the
 * rows of an expert are neighbours, and boxes of a tensor map bring them.
 *
 * Bytes: num_tokens x (top_k + 1) x hidden x 2. A row is read once: to gather rows one by one would
 * read it top_k times. Launch: a block per token, 16 bytes per thread; it starts early. The next
 * kernel starts when experts/sort.cu has ended: it may read the items before its own wait (rule 3
 * of handover.cuh). */
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS = 256;

struct spread_params {
    const uint4 *x; // [num_tokens][vectors]
    const int32_t *position; // [num_tokens][top_k]
    uint4 *out; // [rows][vectors]
    int top_k, vectors;
};

__global__ void __launch_bounds__(THREADS) spread_kernel(spread_params p) {
    wait_for_earlier();
    let_next_start();
    const int32_t *position = of_step(p.position) + (size_t)blockIdx.x * p.top_k;
    for (int i = threadIdx.x; i < p.vectors; i += THREADS) {
        uint4 v = of_step(p.x)[(size_t)blockIdx.x * p.vectors + i];
#pragma unroll 8
        for (int slot = 0; slot < p.top_k; slot++) {
            of_step(p.out)[(size_t)position[slot] * p.vectors + i] = v;
        }
    }
}

} // namespace

extern "C" void cuda_experts_spread_launch(const struct experts_args *args,
                                           const struct cuda_experts_view *view,
                                           const struct cuda_experts_scratch *scratch,
                                           const struct cuda_device_info *info,
                                           cudaStream_t stream) {
    spread_params p = {};
    p.x = static_cast<const uint4 *>(args->x);
    p.position = scratch->position;
    p.out = static_cast<uint4 *>(scratch->gathered);
    p.top_k = static_cast<int>(args->top_k);
    p.vectors = static_cast<int>(view->shape.hidden / 8);
    launch_dependent(spread_kernel, dim3(args->num_tokens), THREADS, 0, info, stream, p);
}
