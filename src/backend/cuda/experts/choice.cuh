/* A warp chooses a token's experts from its logits: what experts/route.cu and
 * experts/norm_route.cu have in common.
 *
 * A lane has successive experts in registers, with keys whose order as integers is that of the
 * ranks. A choice is the largest key of the warp. Of equal ones the lowest lane has the smallest
 * expert, so a vote finds it. A row with a NaN, +inf or only -inf has only NaN probabilities, as on
 * the CPU. They rank as equal, so the ids are 0, 1, ... and distinct. Of sigmoids only a NaN does
 * that. */
#pragma once

#include <float.h>

#include "backend/cuda/device.cuh"

namespace {

struct choice_params {
    const float *bias, *scales; // [num_experts] or NULL
    int num_experts, top_k;
    int num_groups, top_groups, group_best; // num_groups: 0, or at most 32
    bool is_sigmoid, normalize;
    float factor;
};

inline choice_params choice_params_of(const route_args *args) {
    choice_params p = {};
    p.bias = args->bias;
    p.scales = args->scales;
    p.num_experts = static_cast<int>(args->num_experts);
    p.top_k = static_cast<int>(args->top_k);
    p.num_groups = static_cast<int>(args->num_groups);
    p.top_groups = static_cast<int>(args->top_groups);
    p.group_best = static_cast<int>(args->group_best);
    p.is_sigmoid = args->is_sigmoid;
    p.normalize = args->normalize;
    p.factor = args->factor;
    return p;
}

// Integers in the order of numbers; 0 is below all of them.
__device__ __forceinline__ uint32_t ordered(float v) {
    uint32_t bits = __float_as_uint(v);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float number_of(uint32_t key) {
    if (!key) return -INFINITY;
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

// Expert number i of a lane is lane * PER_LANE + i; some perhaps lie past the last one.
template <int PER_LANE> struct expert_choice {
    float score[PER_LANE], bias[PER_LANE];
    uint32_t key[PER_LANE]; // 0: chosen before, or none

    // Biases are constant: called before the wait for the kernel in front.
    __device__ __forceinline__ void load_bias(const choice_params &p, int lane) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            int expert = lane * PER_LANE + i;
            bias[i] = p.bias && expert < p.num_experts ? p.bias[expert] : 0.0f;
        }
    }

    // Fills in scores and keys. Returns whether the scores are numbers; if not, all are 0.
    __device__ __forceinline__ bool find_scores(const choice_params &p, const float *logits,
                                                int lane) {
        float logit[PER_LANE], largest = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            int expert = lane * PER_LANE + i;
            logit[i] = expert < p.num_experts ? logits[expert] : -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) largest = fmaxf(largest, logit[i]);
        if (!p.is_sigmoid) largest = warp_max(largest);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            bool is_there = lane * PER_LANE + i < p.num_experts;
            float v = p.is_sigmoid ? 1.0f / (1.0f + expf(-logit[i])) : expf(logit[i] - largest);
            score[i] = is_there ? v : 0.0f;
            sum += score[i];
        }
        sum = warp_sum(sum);
        bool is_number = sum == sum;
        float scale = p.is_sigmoid ? 1.0f : 1.0f / sum;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            bool is_there = lane * PER_LANE + i < p.num_experts;
            score[i] = is_number ? score[i] * scale : 0.0f;
            float rank = score[i];
            // A bias that is no number or -inf ranks last, not as if its expert were taken.
            if (p.bias && is_number) rank = fmaxf(rank + bias[i], -FLT_MAX);
            key[i] = is_there ? ordered(rank) : 0;
        }
        return is_number;
    }

    // Takes away the experts of all but the best groups, of which lane g knows how good group g is.
    __device__ __forceinline__ void drop_groups(const choice_params &p, int lane) {
        int size = p.num_experts / p.num_groups, better = 0;
        float own = 0.0f;
        for (int g = 0; g < p.num_groups; g++) {
            float best = -INFINITY, second = -INFINITY;
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                if ((lane * PER_LANE + i) / size != g) continue;
                float rank = number_of(key[i]);
                second = fmaxf(second, fminf(best, rank));
                best = fmaxf(best, rank);
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
            int expert = lane * PER_LANE + i;
            bool is_kept = expert < p.num_experts && kept >> expert / size & 1;
            if (!is_kept) key[i] = 0;
        }
    }

    // Chooses the best expert that is left, whose id and score all lanes get.
    __device__ __forceinline__ void take_best(int lane, int &id, float &value) {
        uint32_t own = key[0];
#pragma unroll
        for (int i = 1; i < PER_LANE; i++) own = max(own, key[i]);
        uint32_t largest = __reduce_max_sync(FULL_WARP, own);
        uint32_t equal = __ballot_sync(FULL_WARP, own == largest);
        int winner = __ffs(equal) - 1, number = 0;
        float own_score = score[0];
#pragma unroll
        for (int i = PER_LANE - 1; i >= 0; i--) {
            if (key[i] == largest) number = i, own_score = score[i]; // of equal ones the first
        }
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            if (lane == winner && number == i) key[i] = 0;
        }
        id = __shfl_sync(FULL_WARP, lane * PER_LANE + number, winner);
        value = __shfl_sync(FULL_WARP, own_score, winner);
    }
};

// Chooses a token's experts, best first, and writes their ids and weights [top_k].
template <int PER_LANE>
__device__ __forceinline__ void choose_experts(expert_choice<PER_LANE> &all, const choice_params &p,
                                               const float *logits, int32_t *ids, float *weights,
                                               int lane) {
    bool is_number = all.find_scores(p, logits, lane);
    if (p.num_groups) all.drop_groups(p, lane);
    float sum = 0.0f, weight = 0.0f; // weight and id: of slot `lane` of the last 32 slots
    int id = 0;
    for (int slot = 0; slot < p.top_k; slot++) {
        if (slot && slot % 32 == 0) ids[slot - 32 + lane] = id, weights[slot - 32 + lane] = weight;
        int chosen;
        float value;
        all.take_best(lane, chosen, value);
        if (!is_number) value = NAN;
        sum += value;
        if (lane == slot % 32) id = chosen, weight = value;
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
