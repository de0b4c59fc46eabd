/* One row of logits for sampling. A warp loads a tile of 512 at a time, applies penalties, biases
 * and masks, and cleans the values.
 *
 * Tokens are ordered by keys: the best logit has the smallest key, and ids break ties. All keys of
 * a row are distinct, so a set of best tokens is given by its largest key, the end key.
 *
 * A row is whole or cut into slices, which lie on several GPUs. A tile lies in one slice. The last
 * tiles of a slice may be short or empty; the ids of the next slice then begin in the next tile.
 *
 * Weights, exp((logit - max) / temperature), are summed as integers. So sums have the same bits in
 * any order and for any number of blocks. */
#pragma once

#include <float.h>
#include <limits.h>

#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

// Weights in units of 2^-44; the sum of fewer than 2^20 tokens fits.
using mass64 = unsigned long long;

constexpr int TILE = 512, LANE_VALUES = TILE / 32; // a lane has four groups of four consecutive ids
constexpr int TILE_WORDS = TILE / 32; // words of a tile's bit mask
constexpr float MASS_ONE = 0x1p44f;
constexpr float WEIGHT_MIN = 2e-38f; // smaller weights count as 0, as on the CPU

// The scan's result for a tile. Sums are relative to the tile's maximum.
struct alignas(16) tile_part {
    float max, sum; // of the adjusted logits; sum uses the row's temperature
    float raw_max, raw_sum; // of the logits of log-probabilities, with temperature 1
};

// A count's top bit is set if the prompt has the token. The other bits count how often it was
// generated. The CPU does the same.
constexpr uint32_t COUNT_PROMPT = 0x80000000u, COUNT_MASK = 0x7fffffffu;

struct row_view {
    const float *logits; // [vocab_size] raw; of a row that is whole
    const cuda_logit_slices *slices; // or NULL: the row is whole
    int row, slice_tiles; // with slices: which row, tiles of a slice
    const uint32_t *counts; // [vocab_size] of the row's sequence, or NULL: no penalties
    const uint32_t *mask; // [ceil(vocab_size / 32)] allowed tokens, or NULL: all
    const uint32_t *patch_bits; // [num_tiles][TILE_WORDS] ids with a bias, or NULL
    const float *patches; // [vocab_size] final logits of those ids
    float repetition, presence, frequency; // penalties; used with counts
    const float *tile_max; // [num_tiles], 4 floats apart
    int vocab_size, num_tiles, id_bits;
    bool vectors; // rows are 16-byte aligned
    float max; // of the row; must be > -inf where weights are used
    float scale; // log2(e) / temperature
    float weight_min; // smaller weights are dropped
};

// Maps NaN to -inf, +inf to the largest float, -0 to +0.
__device__ __forceinline__ float clean(float logit) {
    return fminf(fmaxf(logit, -INFINITY), FLT_MAX) + 0.0f;
}

// Maps larger floats to smaller integers. It is its own inverse.
__device__ __forceinline__ uint32_t descending(uint32_t bits) {
    return bits ^ (0x7fffffffu & ~(0u - (bits >> 31)));
}
__device__ __forceinline__ uint64_t key_of(const row_view &v, float logit, int id) {
    return static_cast<uint64_t>(descending(__float_as_uint(logit))) << v.id_bits | id;
}
__device__ __forceinline__ float key_logit(const row_view &v, uint64_t key) {
    return __uint_as_float(descending(static_cast<uint32_t>(key >> v.id_bits)));
}
__device__ __forceinline__ int key_id(const row_view &v, uint64_t key) {
    return static_cast<int>(key & ((1ull << v.id_bits) - 1));
}
// The end key of all tokens whose logit is at least `logit`.
__device__ __forceinline__ uint64_t last_key(const row_view &v, float logit) {
    return key_of(v, logit, static_cast<int>((1ull << v.id_bits) - 1));
}

__device__ __forceinline__ mass64 mass_of(const row_view &v, float logit) {
    float weight = exp2_fast((logit - v.max) * v.scale);
    return weight >= v.weight_min ? __float2ull_rz(weight * MASS_ONE) : 0;
}

// Where a tile's logits are: ids first .. end - 1, at logits[id].
struct tile_place {
    const float *logits;
    int first, end;
};

__device__ __forceinline__ tile_place place_in_slice(const row_view &v, int slice, int tile) {
    int start = v.slices->start[slice], end = v.slices->start[slice + 1];
    const float *logits = v.slices->logits[slice] + (size_t)v.row * (end - start) - start;
    return {logits, start + tile * TILE, end};
}
__device__ __forceinline__ tile_place place_of(const row_view &v, int tile) {
    if (!v.slices) return {v.logits, tile * TILE, v.vocab_size};
    return place_in_slice(v, tile / v.slice_tiles, tile % v.slice_tiles);
}

__device__ __forceinline__ float raw_logit(const row_view &v, int id) {
    if (!v.slices) return v.logits[id];
    int slice = 0;
    while (id >= v.slices->start[slice + 1]) slice++;
    return place_in_slice(v, slice, 0).logits[id];
}

// The id of this lane's value i in the tile whose first id is `first`.
__device__ __forceinline__ int value_id(int first, int i) {
    return first + i / 4 * 128 + static_cast<int>(threadIdx.x % 32) * 4 + i % 4;
}

// Uses no fused multiply-adds, so that the bits are the CPU's.
__device__ __forceinline__ float penalize(const row_view &v, uint32_t count, float logit) {
    if (count) logit = logit > 0 ? __fdiv_rn(logit, v.repetition) : __fmul_rn(logit, v.repetition);
    uint32_t times = count & COUNT_MASK;
    if (times) {
        float by_count = __fmul_rn(v.frequency, static_cast<float>(times));
        logit = __fsub_rn(logit, __fadd_rn(v.presence, by_count));
    }
    return logit;
}

// Loads raw logits, not cleaned.
__device__ __forceinline__ void load_values(const row_view &v, const tile_place &place,
                                            float (&x)[LANE_VALUES]) {
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i += 4) {
        int id = value_id(place.first, i);
        if (v.vectors && id < place.end) { // which is a multiple of 4
            float4 four = *reinterpret_cast<const float4 *>(place.logits + id);
            x[i] = four.x;
            x[i + 1] = four.y;
            x[i + 2] = four.z;
            x[i + 3] = four.w;
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                x[i + c] = id + c < place.end ? place.logits[id + c] : -INFINITY;
            }
        }
    }
}

__device__ __forceinline__ void clean_all(float (&x)[LANE_VALUES]) {
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++) x[i] = clean(x[i]);
}

__device__ __forceinline__ void load_raw(const row_view &v, const tile_place &place,
                                         float (&x)[LANE_VALUES]) {
    load_values(v, place, x);
    clean_all(x);
}

// Loads the counts of four ids at once.
__device__ __forceinline__ void apply_counts(const row_view &v, int first,
                                             float (&x)[LANE_VALUES]) {
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i += 4) {
        int id = value_id(first, i);
        uint4 four = {};
        if (v.vectors && id < v.vocab_size) {
            four = __ldcg(reinterpret_cast<const uint4 *>(v.counts + id));
        } else {
            if (id < v.vocab_size) four.x = __ldcg(v.counts + id);
            if (id + 1 < v.vocab_size) four.y = __ldcg(v.counts + id + 1);
            if (id + 2 < v.vocab_size) four.z = __ldcg(v.counts + id + 2);
            if (id + 3 < v.vocab_size) four.w = __ldcg(v.counts + id + 3);
        }
        if (!(four.x | four.y | four.z | four.w)) continue;
        x[i] = penalize(v, four.x, x[i]);
        x[i + 1] = penalize(v, four.y, x[i + 1]);
        x[i + 2] = penalize(v, four.z, x[i + 2]);
        x[i + 3] = penalize(v, four.w, x[i + 3]);
    }
}

// A lane's four consecutive ids are four bits of one word: slices begin at multiples of 4.
__device__ __forceinline__ void apply_mask(const row_view &v, int first, float (&x)[LANE_VALUES]) {
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i += 4) {
        int id = value_id(first, i);
        if (id >= v.vocab_size) continue;
        uint32_t allowed = v.mask[id / 32] >> (id % 32);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (!(allowed >> c & 1)) x[i + c] = -INFINITY;
        }
    }
}

// Whether a mask allows any token of the tile. Called by a whole warp.
__device__ __forceinline__ bool allows_any(const row_view &v, int first) {
    uint32_t allowed = 0;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i += 4) {
        int id = value_id(first, i);
        if (id < v.vocab_size) allowed |= v.mask[id / 32] >> (id % 32) & 0xf;
    }
    return __any_sync(FULL_WARP, allowed);
}

// bits: [TILE_WORDS] of this tile.
__device__ __forceinline__ void apply_patches(const row_view &v, const uint32_t *bits, int first,
                                              float (&x)[LANE_VALUES]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++) {
        uint32_t word = bits[i / 4 * 4 + lane / 8];
        if (word >> (lane % 8 * 4 + i % 4) & 1) x[i] = v.patches[value_id(first, i)];
    }
}

// Applies the row's changes to raw values of a tile. patch_bits: of this tile, or NULL.
__device__ __forceinline__ void adjust_values(const row_view &v, const uint32_t *patch_bits,
                                              int first, float (&x)[LANE_VALUES]) {
    if (v.counts) apply_counts(v, first, x);
    clean_all(x);
    if (patch_bits) apply_patches(v, patch_bits, first, x);
    if (v.mask) apply_mask(v, first, x);
}

// Returns the tile's place. Values from its end on are -inf or belong to no token.
__device__ __forceinline__ tile_place load_tile(const row_view &v, int tile,
                                                float (&x)[LANE_VALUES]) {
    const tile_place place = place_of(v, tile);
    load_values(v, place, x);
    adjust_values(v, v.patch_bits ? v.patch_bits + tile * TILE_WORDS : nullptr, place.first, x);
    return place;
}

__device__ __forceinline__ float tile_max(const row_view &v, int tile) {
    return v.tile_max[tile * 4];
}

__device__ __forceinline__ mass64 warp_sum(mass64 value) {
    for (int offset = 16; offset; offset >>= 1) {
        value += __shfl_xor_sync(FULL_WARP, value, offset);
    }
    return value;
}

// Inclusive prefix sum over the warp's lanes.
__device__ __forceinline__ mass64 warp_scan(mass64 value) {
    int lane = threadIdx.x % 32;
    for (int offset = 1; offset < 32; offset <<= 1) {
        mass64 other = __shfl_up_sync(FULL_WARP, value, offset);
        if (lane >= offset) value += other;
    }
    return value;
}

// The first id of the tile whose logit is at least `logit`. Called by a whole warp.
__device__ int first_at_least(const row_view &v, int tile, float logit) {
    float x[LANE_VALUES];
    const tile_place place = load_tile(v, tile, x);
    int first = INT_MAX;
#pragma unroll
    for (int i = LANE_VALUES - 1; i >= 0; i--) {
        int id = value_id(place.first, i);
        if (x[i] >= logit && id < place.end) first = id;
    }
    return __reduce_min_sync(FULL_WARP, first);
}

} // namespace
