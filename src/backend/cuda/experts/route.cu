/* Routing: softmax over a token's logits, then the top_k largest probabilities, best first, ties to
 * the smaller id. Optionally they are divided by their sum.
 *
 * Bytes: num_tokens x num_experts x 4, which is little. The time is the chain of top_k choices.
 * Launch: a warp per token, its probabilities in shared memory. Each lane keeps the best of its own
 * experts. So a choice is one reduction over the warp, and then only the lane that lost its best
 * searches again. A row with a NaN, +inf or only -inf has only NaN probabilities, as on the CPU.
 * They rank as equal, so the ids are 0, 1, ... and distinct. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

constexpr int WARPS = 4;
constexpr float TAKEN = -1.0f; // marks a chosen expert; below any probability

struct route_params {
    const float *logits;
    int32_t *ids;
    float *weights;
    int num_tokens, num_experts, top_k;
    bool normalize;
};

struct choice {
    float value; // TAKEN: the lane has no expert left
    int id;
};

__device__ __forceinline__ bool is_better(choice a, choice b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// A lane's experts are lane, lane + 32, ...
__device__ __forceinline__ choice best_of_lane(const float *values, int count, int lane) {
    choice best = {TAKEN, count};
    for (int i = lane; i < count; i += 32) {
        choice next = {values[i], i};
        if (is_better(next, best)) best = next;
    }
    return best;
}

__device__ __forceinline__ choice best_of_warp(choice best) {
    for (int offset = 16; offset; offset >>= 1) {
        choice other = {__shfl_xor_sync(FULL_WARP, best.value, offset),
                        __shfl_xor_sync(FULL_WARP, best.id, offset)};
        if (is_better(other, best)) best = other;
    }
    return best;
}

// Fills `values` with the values to rank. Returns whether the probabilities are numbers; if not,
// all values are 0.
__device__ __forceinline__ bool softmax(const float *logits, float *values, int count, int lane) {
    float largest = -INFINITY, sum = 0.0f;
    for (int i = lane; i < count; i += 32) largest = fmaxf(largest, logits[i]);
    largest = warp_max(largest);
    for (int i = lane; i < count; i += 32) {
        values[i] = expf(logits[i] - largest);
        sum += values[i];
    }
    sum = warp_sum(sum);
    bool is_number = sum == sum;
    for (int i = lane; i < count; i += 32) values[i] = is_number ? values[i] / sum : 0.0f;
    return is_number;
}

__global__ void __launch_bounds__(WARPS * 32) route_kernel(route_params p) {
    extern __shared__ float memory[]; // [WARPS][num_experts]
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int token = blockIdx.x * WARPS + warp;
    if (token >= p.num_tokens) return;
    float *values = memory + warp * p.num_experts; // each lane accesses only its own experts
    int32_t *ids = p.ids + (size_t)token * p.top_k;
    float *weights = p.weights + (size_t)token * p.top_k;
    bool is_number = softmax(p.logits + (size_t)token * p.num_experts, values, p.num_experts, lane);
    choice mine = best_of_lane(values, p.num_experts, lane);
    float sum = 0.0f;
    for (int slot = 0; slot < p.top_k; slot++) {
        choice best = best_of_warp(mine);
        float weight = is_number ? best.value : NAN;
        sum += weight;
        if (best.id % 32 != lane) continue;
        ids[slot] = best.id;
        weights[slot] = weight;
        values[best.id] = TAKEN;
        mine = best_of_lane(values, p.num_experts, lane);
    }
    if (!p.normalize) return;
    __syncwarp(); // makes the other lanes' weights visible
    for (int slot = lane; slot < p.top_k; slot += 32) weights[slot] /= sum;
}

} // namespace

extern "C" void cuda_route_launch(const struct route_args *args, cudaStream_t stream) {
    route_params p = {};
    p.logits = args->logits;
    p.ids = args->ids;
    p.weights = args->weights;
    p.num_tokens = static_cast<int>(args->num_tokens);
    p.num_experts = static_cast<int>(args->num_experts);
    p.top_k = static_cast<int>(args->top_k);
    p.normalize = args->normalize;
    unsigned blocks = (args->num_tokens + WARPS - 1) / WARPS;
    size_t bytes = WARPS * args->num_experts * sizeof(float);
    route_kernel<<<blocks, WARPS * 32, bytes, stream>>>(p);
}
