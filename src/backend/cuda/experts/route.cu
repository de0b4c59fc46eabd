/* Routing: softmax over a token's logits, then the top_k largest probabilities, best first, ties to
 * the smaller id. With a bias the scores are sigmoids instead, ranked by score + bias. Optionally
 * the chosen scores are divided by their sum. Factors come last: one for all, one for each expert.
 *
 * Bytes: num_tokens x num_experts x 4, which is little. The time is the chain of top_k choices.
 * Launch: a warp per token, its probabilities in shared memory; it starts early. Each lane keeps
 * the best of its own experts. So a choice is a reduction over the warp, and then only the lane
 * that lost its best searches again. A row with a NaN, +inf or only -inf has only NaN
 * probabilities, as on the CPU. They rank as equal, so the ids are 0, 1, ... and distinct. Of
 * sigmoids only a NaN does that. */
#include <float.h>
#include <limits.h>

#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 4;
constexpr float TAKEN = -1.0f; // marks a chosen expert; below any score

struct route_params {
    const float *logits, *bias, *scales; // bias: NULL for softmax; scales: or NULL
    int32_t *ids;
    float *weights;
    int num_tokens, num_experts, top_k;
    bool normalize;
    float factor;
};

struct choice {
    float rank; // -inf: the lane has no expert left
    int id;
};

__device__ __forceinline__ bool is_better(choice a, choice b) {
    return a.rank > b.rank || (a.rank == b.rank && a.id < b.id);
}

// A lane's experts are lane, lane + 32, ...
__device__ __forceinline__ choice best_of_lane(const float *scores, const float *bias, int count,
                                               int lane) {
    choice best = {-INFINITY, count};
    for (int i = lane; i < count; i += 32) {
        if (scores[i] == TAKEN) continue;
        // A bias that is no number or -inf ranks last, not as if its expert were taken.
        choice next = {bias ? fmaxf(scores[i] + bias[i], -FLT_MAX) : scores[i], i};
        if (is_better(next, best)) best = next;
    }
    return best;
}

// The id of the best of all lanes. Keys are in the order of the ranks.
__device__ __forceinline__ int best_of_warp(choice mine) {
    uint32_t bits = __float_as_uint(mine.rank);
    uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000u;
    uint32_t best = __reduce_max_sync(FULL_WARP, key);
    return __reduce_min_sync(FULL_WARP, key == best ? mine.id : INT_MAX);
}

// Fills `scores` with the experts' scores. Returns whether they are numbers; if not, all are 0.
__device__ __forceinline__ bool score(const float *logits, bool is_sigmoid, float *scores,
                                      int count, int lane) {
    float largest = -INFINITY, sum = 0.0f;
    for (int i = lane; i < count; i += 32) largest = fmaxf(largest, logits[i]);
    largest = warp_max(largest);
    for (int i = lane; i < count; i += 32) {
        scores[i] = is_sigmoid ? 1.0f / (1.0f + expf(-logits[i])) : expf(logits[i] - largest);
        sum += scores[i];
    }
    sum = warp_sum(sum);
    bool is_number = sum == sum;
    float divisor = is_sigmoid ? 1.0f : sum;
    for (int i = lane; i < count; i += 32) scores[i] = is_number ? scores[i] / divisor : 0.0f;
    return is_number;
}

__global__ void __launch_bounds__(WARPS * 32) route_kernel(route_params p) {
    extern __shared__ float memory[]; // [WARPS][num_experts]
    let_next_start();
    wait_for_earlier();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int token = blockIdx.x * WARPS + warp;
    if (token >= p.num_tokens) return;
    float *scores = memory + warp * p.num_experts; // each lane accesses only its own experts
    int32_t *ids = of_step(p.ids) + (size_t)token * p.top_k;
    float *weights = of_step(p.weights) + (size_t)token * p.top_k;
    const float *logits = of_step(p.logits) + (size_t)token * p.num_experts;
    bool is_number = score(logits, p.bias != nullptr, scores, p.num_experts, lane);
    const float *bias = is_number ? p.bias : nullptr;
    choice mine = best_of_lane(scores, bias, p.num_experts, lane);
    float sum = 0.0f;
    for (int slot = 0; slot < p.top_k; slot++) {
        int best = best_of_warp(mine), owner = best % 32;
        float weight = lane == owner ? scores[best] : 0.0f;
        weight = is_number ? __shfl_sync(FULL_WARP, weight, owner) : NAN;
        sum += weight;
        if (owner != lane) continue;
        ids[slot] = best;
        weights[slot] = weight;
        scores[best] = TAKEN;
        mine = best_of_lane(scores, bias, p.num_experts, lane);
    }
    __syncwarp(); // makes the other lanes' ids and weights visible
    float divisor = p.normalize ? fmaxf(sum, 1e-20f) : 1.0f; // all chosen sigmoids may be 0
    for (int slot = lane; slot < p.top_k; slot += 32) {
        float scale = p.scales ? p.scales[ids[slot]] : 1.0f;
        weights[slot] = weights[slot] / divisor * p.factor * scale;
    }
}

} // namespace

extern "C" void cuda_route_launch(const struct route_args *args,
                                  const struct cuda_device_info *info, cudaStream_t stream) {
    route_params p = {};
    p.logits = args->logits;
    p.bias = args->bias;
    p.scales = args->scales;
    p.ids = args->ids;
    p.weights = args->weights;
    p.num_tokens = static_cast<int>(args->num_tokens);
    p.num_experts = static_cast<int>(args->num_experts);
    p.top_k = static_cast<int>(args->top_k);
    p.normalize = args->normalize;
    p.factor = args->factor;
    unsigned blocks = (args->num_tokens + WARPS - 1) / WARPS;
    size_t bytes = WARPS * args->num_experts * sizeof(float);
    launch_dependent(route_kernel, dim3(blocks), WARPS * 32, bytes, info, stream, p);
}
