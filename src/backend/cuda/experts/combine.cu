/* Adds up a token's experts: out[t] = sum over slots k of weights[t][k] * down[position[t][k]],
 * slots ascending, in float32. So the bits do not depend on the other tokens.
 *
 * Bytes: num_tokens x (top_k + 1) x hidden x 2. Launch: a thread per 8 columns of a token, tokens
 * along y; it starts early. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS = 128;

struct combine_params {
    const uint4 *down; // [rows][vectors]
    const int32_t *position; // [num_tokens][top_k]
    const float *weights; // [num_tokens][top_k]
    uint4 *out; // [num_tokens][vectors]
    int num_tokens, top_k, vectors;
};

__device__ __forceinline__ void add_scaled(float (&sums)[8], float weight, uint4 row) {
    const uint32_t pairs[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sums[2 * i] = fmaf(weight, bf16_low(pairs[i]), sums[2 * i]);
        sums[2 * i + 1] = fmaf(weight, bf16_high(pairs[i]), sums[2 * i + 1]);
    }
}

__global__ void __launch_bounds__(THREADS) combine_kernel(combine_params p) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    let_next_start();
    wait_for_earlier();
    if (i >= p.vectors) return;
    for (int token = blockIdx.y; token < p.num_tokens; token += gridDim.y) {
        const int32_t *position = of_step(p.position) + (size_t)token * p.top_k;
        const float *weights = of_step(p.weights) + (size_t)token * p.top_k;
        float sums[8] = {};
#pragma unroll 8
        for (int slot = 0; slot < p.top_k; slot++) {
            add_scaled(sums, weights[slot],
                       __ldcs(&of_step(p.down)[(size_t)position[slot] * p.vectors + i]));
        }
        of_step(p.out)[(size_t)token * p.vectors + i] =
            make_uint4(pack_bf16(sums[0], sums[1]), pack_bf16(sums[2], sums[3]),
                       pack_bf16(sums[4], sums[5]), pack_bf16(sums[6], sums[7]));
    }
}

} // namespace

extern "C" void cuda_experts_combine_launch(const struct experts_args *args,
                                            const struct cuda_experts_view *view,
                                            const struct cuda_experts_scratch *scratch,
                                            const struct cuda_device_info *info,
                                            cudaStream_t stream) {
    combine_params p = {};
    p.down = static_cast<const uint4 *>(scratch->down);
    p.position = scratch->position;
    p.weights = args->weights;
    p.out = static_cast<uint4 *>(args->out);
    p.num_tokens = static_cast<int>(args->num_tokens);
    p.top_k = static_cast<int>(args->top_k);
    p.vectors = static_cast<int>(view->shape.hidden / 8);
    dim3 grid(static_cast<unsigned>((p.vectors + THREADS - 1) / THREADS),
              args->num_tokens < 65535 ? args->num_tokens : 65535);
    launch_dependent(combine_kernel, grid, THREADS, 0, info, stream, p);
}
