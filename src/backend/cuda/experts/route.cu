/* Routing: softmax over a token's logits, or their sigmoids, then the top_k largest scores, best
 * first, ties to the smaller id. With a bias they are ranked by score + bias. With groups only
 * experts of the best ones can be chosen. Optionally the chosen scores are divided by their sum.
 * Factors come last: one for all, one for each expert.
 *
 * Bytes: num_tokens x num_experts x 4, which is little. The time is the chain of top_k choices.
 * Launch: a warp per token; it starts early, and what is constant is loaded before the wait. Each
 * lane has the ranks of its own experts in registers, and keeps the best of them. So a choice is a
 * reduction over the warp. A row with a NaN, +inf or only -inf has only NaN probabilities, as on
 * the CPU. They rank as equal, so the ids are 0, 1, ... and distinct. Of sigmoids only a NaN does
 * that. */
#include <float.h>
#include <limits.h>

#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 4;

struct route_params {
    const float *logits, *bias, *scales; // bias, scales: or NULL
    int32_t *ids;
    float *weights;
    int num_tokens, num_experts, top_k;
    int num_groups, top_groups, group_best; // num_groups: 0, or at most 32
    bool is_sigmoid, normalize;
    float factor;
};

struct choice {
    float rank; // -inf: the lane has no expert left
    int number; // of the lane's experts
};

__device__ __forceinline__ uint32_t ordered(float v) {
    uint32_t bits = __float_as_uint(v);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Expert number i of a lane is i * 32 + lane. PER_LANE: so many, some perhaps past the last one.
template <int PER_LANE> struct lane_experts {
    float score[PER_LANE], rank[PER_LANE]; // -inf: chosen before, or none

    __device__ __forceinline__ choice best() const {
        choice best = {-INFINITY, 0};
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            if (rank[i] > best.rank) best = {rank[i], i}; // of equal ones the first
        }
        return best;
    }
    __device__ __forceinline__ void take(int number) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) rank[i] = i == number ? -INFINITY : rank[i];
    }
    __device__ __forceinline__ float score_of(int number) const {
        float value = score[0];
#pragma unroll
        for (int i = 1; i < PER_LANE; i++) value = i == number ? score[i] : value;
        return value;
    }
};

// Fills in scores and ranks. Returns whether the scores are numbers; if not, all are 0.
template <int PER_LANE>
__device__ __forceinline__ bool score(lane_experts<PER_LANE> &mine, const route_params &p,
                                      const float *logits, const float (&bias)[PER_LANE],
                                      int lane) {
    float logit[PER_LANE], largest = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        int expert = i * 32 + lane;
        logit[i] = expert < p.num_experts ? logits[expert] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) largest = fmaxf(largest, logit[i]);
    if (!p.is_sigmoid) largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        bool is_there = i * 32 + lane < p.num_experts;
        float v = p.is_sigmoid ? 1.0f / (1.0f + expf(-logit[i])) : expf(logit[i] - largest);
        mine.score[i] = is_there ? v : 0.0f;
        sum += mine.score[i];
    }
    sum = warp_sum(sum);
    bool is_number = sum == sum;
    float factor = p.is_sigmoid ? 1.0f : 1.0f / sum;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        bool is_there = i * 32 + lane < p.num_experts;
        mine.score[i] = is_number ? mine.score[i] * factor : 0.0f;
        float rank = mine.score[i];
        // A bias that is no number or -inf ranks last, not as if its expert were taken.
        if (p.bias && is_number) rank = fmaxf(rank + bias[i], -FLT_MAX);
        mine.rank[i] = is_there ? rank : -INFINITY;
    }
    return is_number;
}

// Takes away the experts of all but the best groups, of which lane g knows how good group g is.
template <int PER_LANE>
__device__ __forceinline__ void drop_groups(lane_experts<PER_LANE> &mine, const route_params &p,
                                            int lane) {
    int size = p.num_experts / p.num_groups, better = 0;
    float own = 0.0f;
    for (int g = 0; g < p.num_groups; g++) {
        float best = -INFINITY, second = -INFINITY;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            if ((i * 32 + lane) / size != g) continue;
            second = fmaxf(second, fminf(best, mine.rank[i]));
            best = fmaxf(best, mine.rank[i]);
        }
        for (int offset = 16; offset; offset >>= 1) {
            float other = __shfl_xor_sync(FULL_WARP, best, offset);
            second = fmaxf(second, __shfl_xor_sync(FULL_WARP, second, offset));
            second = fmaxf(second, fminf(best, other));
            best = fmaxf(best, other);
        }
        if (lane == g) own = p.group_best == 2 ? best + second : best;
    }
    for (int g = 0; g < p.num_groups; g++) {
        float other = __shfl_sync(FULL_WARP, own, g);
        better += g < lane ? !(other < own) : other > own;
    }
    unsigned kept = __ballot_sync(FULL_WARP, lane < p.num_groups && better < p.top_groups);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        int expert = i * 32 + lane;
        bool is_kept = expert < p.num_experts && kept >> expert / size & 1;
        if (!is_kept) mine.rank[i] = -INFINITY;
    }
}

template <int PER_LANE> __global__ void __launch_bounds__(WARPS * 32) route_kernel(route_params p) {
    let_next_start();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int token = blockIdx.x * WARPS + warp;
    float bias[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        bias[i] = p.bias && i * 32 + lane < p.num_experts ? p.bias[i * 32 + lane] : 0.0f;
    }
    prefetch_floats(p.scales, p.num_experts, lane);
    wait_for_earlier();
    if (token >= p.num_tokens) return;
    int32_t *ids = of_step(p.ids) + (size_t)token * p.top_k;
    float *weights = of_step(p.weights) + (size_t)token * p.top_k;
    lane_experts<PER_LANE> mine;
    bool is_number = score(mine, p, of_step(p.logits) + (size_t)token * p.num_experts, bias, lane);
    if (p.num_groups) drop_groups(mine, p, lane);
    float sum = 0.0f, weight = 0.0f; // weight and id: of slot `lane` of the last 32 slots
    int id = 0;
    for (int slot = 0; slot < p.top_k; slot++) {
        if (slot && slot % 32 == 0) ids[slot - 32 + lane] = id, weights[slot - 32 + lane] = weight;
        choice best = mine.best();
        uint32_t key = ordered(best.rank), largest = __reduce_max_sync(FULL_WARP, key);
        int chosen =
            __reduce_min_sync(FULL_WARP, key == largest ? best.number * 32 + lane : INT_MAX);
        float value = __shfl_sync(FULL_WARP, mine.score_of(chosen / 32), chosen % 32);
        if (!is_number) value = NAN;
        sum += value;
        if (lane == slot % 32) id = chosen, weight = value;
        if (lane == chosen % 32) mine.take(chosen / 32);
    }
    float divisor = p.normalize ? fmaxf(sum, 1e-20f) : 1.0f; // all chosen sigmoids may be 0
    int last = (p.top_k - 1) / 32 * 32; // the first slot of those in registers
    for (int slot = lane; slot < p.top_k; slot += 32) {
        // This lane has stored those of earlier slots.
        int own = slot < last ? ids[slot] : id;
        float value = slot < last ? weights[slot] : weight;
        ids[slot] = own;
        weights[slot] = value / divisor * p.factor * (p.scales ? p.scales[own] : 1.0f);
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
    p.num_groups = static_cast<int>(args->num_groups);
    p.top_groups = static_cast<int>(args->top_groups);
    p.group_best = static_cast<int>(args->group_best);
    p.is_sigmoid = args->is_sigmoid;
    p.normalize = args->normalize;
    p.factor = args->factor;
    unsigned blocks = (args->num_tokens + WARPS - 1) / WARPS;
    auto kernel = route_kernel<CUDA_EXPERTS_MAX / 32>;
    if (args->num_experts <= 512) kernel = route_kernel<16>;
    if (args->num_experts <= 256) kernel = route_kernel<8>;
    if (args->num_experts <= 128) kernel = route_kernel<4>;
    launch_dependent(kernel, dim3(blocks), WARPS * 32, 0, info, stream, p);
}
