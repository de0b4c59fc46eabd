/* One warpgroup's 64 query rows in attention/prefill_sm90.cu and attention/shared_sm90.cu: scores
 * of a tile of positions, their softmax, the weighted sum of values. Only Q, K and V are in shared
 * memory. The scores are the first product's accumulator; rounded to bf16 they are the second
 * product's left operand.
 *
 * A tile of K or V is [head_dim / 64][KV][HALF_BYTES]; queries are [head_dim /
 * 64][ROWS][HALF_BYTES]. All are swizzled (hopper.cuh). */
#pragma once

#include "backend/cuda/attention/window.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/wgmma_products.cuh"

namespace {

// ROWS: query rows of a warpgroup. KV: positions of a tile. HALF_BYTES: width of one swizzled row.
constexpr int ROWS = CUDA_PREFILL_TILE, KV = 128, HALF_BYTES = 128;
constexpr int QUERY_HALF = ROWS * HALF_BYTES, TILE_HALF = KV * HALF_BYTES;

template <int D> struct row_state {
    float o[D / 8][4];
    float s[KV / 8][4]; // scores, then weights
    uint32_t weights[KV / 16][4]; // bf16: left operand of the second product
    float max[2], sum[2], alpha[2]; // of rows lane / 4 and + 8 of the warp's 16
};

template <int D>
__device__ __forceinline__ void scores(row_state<D> &w, uint32_t queries, uint32_t keys) {
    uint64_t a = operand(queries, QUERY_HALF), b = operand(keys, TILE_HALF);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        multiply_shared(w.s, a + (k / 4 * QUERY_HALF + k % 4 * 32) / 16,
                        b + (k / 4 * TILE_HALF + k % 4 * 32) / 16, k > 0);
    }
    products_commit();
}

// N, here and below: only the tile's first N positions are used.
template <int N, int D>
__device__ __forceinline__ void add_values(row_state<D> &w, uint32_t values) {
    uint64_t b = operand(values, TILE_HALF);
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        multiply_add(w.o, w.weights[k], b + k * 16 * HALF_BYTES / 16);
    }
    products_commit();
}

// Row r of the warpgroup sees the first `visible` + r positions of this tile.
template <int N, int D> __device__ __forceinline__ void mask(row_state<D> &w, int visible) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int limit = visible + warp * 16 + lane / 4 - lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (n * 8 + i % 2 >= limit + i / 2 * 8) w.s[n][i] = -INFINITY;
        }
    }
}

// Hides the tile's positions, from `first` on, that a row does not see. Row r of the warpgroup is
// the query at position + r.
template <int N, int D>
__device__ __forceinline__ void hide(row_state<D> &w, const seen_window &window, int position,
                                     int first) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int row = position + warp * 16 + lane / 4, column = first + lane % 4 * 2;
    int limit[2] = {window.first_seen(row) - column, window.first_seen(row + 8) - column};
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (n * 8 + i % 2 < limit[i / 2]) w.s[n][i] = -INFINITY;
        }
    }
}

// Updates maxima and sums and replaces scores by weights. alpha: factor for the results so far.
template <int N, int D> __device__ __forceinline__ void softmax(row_state<D> &w, float scale) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float max = w.max[r];
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            max = fmaxf(max, fmaxf(w.s[n][r * 2], w.s[n][r * 2 + 1]));
        }
        max = fmaxf(max, __shfl_xor_sync(FULL_WARP, max, 1));
        max = fmaxf(max, __shfl_xor_sync(FULL_WARP, max, 2));
        w.alpha[r] = exp2_fast((w.max[r] - max) * scale);
        w.max[r] = max;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float base = w.max[r] * scale, sum[2] = {};
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                w.s[n][r * 2 + i] = exp2_fast(fmaf(w.s[n][r * 2 + i], scale, -base));
                sum[i] += w.s[n][r * 2 + i];
            }
        }
        w.sum[r] = fmaf(w.sum[r], w.alpha[r], sum[0] + sum[1]);
    }
}

// Clears the weights past N: what an earlier item left there may be NaN.
template <int N, int D> __device__ __forceinline__ void pack(row_state<D> &w) {
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        w.weights[n / 2][n % 2 * 2] = pack_bf16(w.s[n][0], w.s[n][1]);
        w.weights[n / 2][n % 2 * 2 + 1] = pack_bf16(w.s[n][2], w.s[n][3]);
    }
#pragma unroll
    for (int n = N / 16; n < KV / 16; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) w.weights[n][i] = 0;
    }
}

template <int D> __device__ __forceinline__ void rescale(row_state<D> &w) {
#pragma unroll
    for (int i = 0; i < D / 2; i++) w.o[i / 4][i % 4] *= w.alpha[i / 2 % 2];
}

// Transposes among four neighbouring lanes. Each lane has one word of four chunks; afterwards lane
// l has all of chunk l.
__device__ __forceinline__ uint4 chunk_of_lane(const uint32_t (&word)[4], int lane) {
    bool high = lane & 2, odd = lane & 1;
    uint32_t x = __shfl_xor_sync(FULL_WARP, high ? word[0] : word[2], 2);
    uint32_t y = __shfl_xor_sync(FULL_WARP, high ? word[1] : word[3], 2);
    uint32_t even0 = high ? x : word[0], odd0 = high ? y : word[1];
    uint32_t even1 = high ? word[2] : x, odd1 = high ? word[3] : y;
    x = __shfl_xor_sync(FULL_WARP, odd ? even0 : odd0, 1);
    y = __shfl_xor_sync(FULL_WARP, odd ? even1 : odd1, 1);
    return odd ? make_uint4(x, odd0, y, odd1) : make_uint4(even0, x, even1, y);
}

// Writes the results. A token's head_dim elements start at `out`; the next token is `stride`
// elements further.
template <int D>
__device__ __forceinline__ void write(const row_state<D> &w, __nv_bfloat16 *out, int stride,
                                      int num_tokens) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = w.sum[r];
        sum += __shfl_xor_sync(FULL_WARP, sum, 1);
        sum += __shfl_xor_sync(FULL_WARP, sum, 2);
        float inverse = __fdividef(1.0f, sum);
        int t = warp * 16 + lane / 4 + r * 8;
        uint4 *to = reinterpret_cast<uint4 *>(out + (size_t)t * stride);
#pragma unroll
        for (int d = 0; d < D / 8; d += 4) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                word[i] = pack_bf16(w.o[d + i][r * 2] * inverse, w.o[d + i][r * 2 + 1] * inverse);
            }
            uint4 chunk = chunk_of_lane(word, lane);
            if (t < num_tokens) to[d + lane % 4] = chunk;
        }
    }
}

// Starts an item whose first query is at `position`: turns the scores of its last tile, from
// `first` on, which is processed first, into weights.
template <int N, bool WINDOWED, int D>
__device__ __forceinline__ void begin(row_state<D> &w, int position, int first,
                                      const seen_window &window, float scale) {
#pragma unroll
    for (int i = 0; i < D / 2; i++) w.o[i / 4][i % 4] = 0;
    w.max[0] = w.max[1] = -1e30f;
    w.sum[0] = w.sum[1] = 0;
    if (position + 1 - first < N) mask<N>(w, position + 1 - first);
    if constexpr (WINDOWED) {
        if (window.first_seen(position + ROWS - 1) > first) hide<N>(w, window, position, first);
    }
    softmax<N>(w, scale);
    pack<N>(w);
}

} // namespace
