/* A warp's online softmax over tiles of 16 cached positions on tensor cores, for one query token
 * per sequence. All decode attention kernels share it. The matrix instruction's 8 columns are the
 * queries of a kv head's group, its 16 rows are positions: S^T = K Q^T, then O^T = V^T P^T. So a
 * group of 1 to 8 queries costs the same, and nothing else is padded. A tile has the cache's layout
 * (kernels.h): 16 rows of K, then 16 of V.
 *
 * CODES, here and in the kernels: the cache has 8-bit codes (attention/kv_codes.cuh). A word of
 * codes has even and odd dimensions apart, so queries and results have their dimensions in another
 * order within 16: query_words() and join_values() know it. */
#pragma once

#include "backend/cuda/attention/decode_shape.h"
#include "backend/cuda/attention/kv_codes.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/hopper.cuh"

#include <nv/target>

namespace {

constexpr int TILE = CUDA_DECODE_TILE, GROUP = CUDA_DECODE_GROUP;

template <int HEAD_DIM> struct accumulator {
    float o[HEAD_DIM / 16]
           [4]; // [dims][queries]: rows lane / 4 and + 8, columns lane % 4 * 2 and + 1
    float max[2], sum[2]; // of this lane's two queries; sum over this lane's positions only
};

// The block of a position and the place in it. Avoids the division if block_size is a power of two.
__device__ __forceinline__ void split_position(int position, int block_size, int *block,
                                               int *place) {
    if ((block_size & (block_size - 1)) == 0) {
        *block = position >> (31 - __clz(block_size));
        *place = position & (block_size - 1);
        return;
    }
    *block = position / block_size;
    *place = position % block_size;
}

// Cache blocks of this warp's next 32 tiles, one per lane.
template <int WARPS>
__device__ __forceinline__ int blocks_ahead(const int32_t *table, int start, int stop, int first,
                                            int block_size, int lane) {
    int position = start + (first + lane * WARPS) * TILE;
    int block, place;
    split_position(position, block_size, &block, &place);
    return position < stop ? table[block] : 0;
}

template <int HEAD_DIM, bool CODES = false>
__device__ __forceinline__ void copy_tile(uint32_t shared, const __nv_bfloat16 *keys,
                                          const __nv_bfloat16 *values, int lane) {
    // A tile is contiguous in the cache.
    constexpr int CHUNKS = KV_TILE_BYTES<HEAD_DIM, CODES> / 16;
#pragma unroll
    for (int c = lane; c < CHUNKS; c += 32) {
        copy16_async(shared + c * 16, keys + c * 8);
        copy16_async(shared + (CHUNKS + c) * 16, values + c * 8);
    }
}

// Makes a warp's stores to a tile visible to all its lanes and to later copies.
__device__ __forceinline__ void tile_stores_done() {
    NV_IF_TARGET(NV_PROVIDES_SM_90, (shared_stores_done();))
    __syncwarp();
}

// Zeroes the values of positions from `valid` on. Their weight is 0, but the memory may hold
// another request's NaN, and 0 times NaN is NaN.
template <int HEAD_DIM> __device__ void zero_values(uint32_t values, int valid, int lane) {
    constexpr int CHUNKS = HEAD_DIM / 8; // of a row
    for (int i = valid * CHUNKS + lane; i < TILE * CHUNKS; i += 32) {
        store_shared16(values + i * 16, make_uint4(0, 0, 0, 0));
    }
    tile_stores_done();
}

// Byte offset of chunk 2 k + half in a tile's row. It is written so that a constant k gives
// constant offsets: the compiler then keeps no addresses in registers.
template <int HEAD_DIM> __device__ __forceinline__ uint32_t chunk_offset(int row, int k, int half) {
    // Of swizzle(), in chunks.
    constexpr int PERIOD = HEAD_DIM % 64 == 0 ? 8 : HEAD_DIM % 32 == 0 ? 4 : 2;
    return swizzle<HEAD_DIM>(row, k * 2 % PERIOD + half) * 16 + k * 2 / PERIOD * PERIOD * 16;
}

// K Q^T of a tile: this lane's scores of positions lane / 4 and + 8, queries lane % 4 * 2 and + 1.
// Positions from `valid` on get -infinity.
template <int HEAD_DIM>
__device__ __forceinline__ void tile_scores(float (&scores)[4],
                                            const uint32_t (&q)[HEAD_DIM / 16][2], uint32_t keys,
                                            int valid, float scale, int lane) {
    constexpr int ROW_BYTES = HEAD_DIM * 2, CHAINS = 2;
    float s[CHAINS][4] = {}; // independent sums
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
        int row = lane % 16;
        uint32_t a[4];
        load_matrix4(a, keys + row * ROW_BYTES + chunk_offset<HEAD_DIM>(row, k, lane / 16));
        multiply(s[k % CHAINS], a, q[k][0], q[k][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = s[0][i] + s[1][i];
        scores[i] = lane / 4 + i / 2 * 8 < valid ? sum * scale : -INFINITY;
    }
}

// The products of two words of each of a matrix's halves: 16 rows of keys, or 16 dimensions.
__device__ __forceinline__ void multiply_codes(float (&c)[4], const pair_bits &bits, uint32_t low,
                                               uint32_t high, const uint32_t (&b)[2]) {
    uint32_t a[4];
    unpack_pairs(bits, low, a[0], a[2]);
    unpack_pairs(bits, high, a[1], a[3]);
    multiply(c, a, b[0], b[1]);
}

// tile_scores of codes. `q` is times CODE_SHIFT, in the order of query_words().
template <int HEAD_DIM>
__device__ __forceinline__ void code_scores(float (&scores)[4],
                                            const uint32_t (&q)[HEAD_DIM / 16][2], uint32_t keys,
                                            int valid, float scale, const pair_bits &bits,
                                            int lane) {
    float s[2][4] = {}; // independent sums
    int row = lane % 16;
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 32; k++) {
        uint32_t a[4];
        load_matrix4(a, keys + row * HEAD_DIM + code_offset<HEAD_DIM>(row, k, lane / 16));
        multiply_codes(s[0], bits, a[0], a[1], q[k * 2]);
        multiply_codes(s[1], bits, a[2], a[3], q[k * 2 + 1]);
    }
    uint32_t scales = keys + KV_SCALES_AT<HEAD_DIM> + lane / 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float factor = __uint_as_float(load_shared(scales + i / 2 * 32)) * scale;
        float sum = s[0][i] + s[1][i];
        scores[i] = lane / 4 + i / 2 * 8 < valid ? sum * factor : -INFINITY;
    }
}

// With EXTRAS: caps the scores (`cap` times log2(e); 0: no cap), and hides the tile's first `skip`
// positions, which are before the window.
template <bool EXTRAS>
__device__ __forceinline__ void adjust_scores(float (&s)[4], int skip, int valid, float cap,
                                              int lane) {
    if constexpr (EXTRAS) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = lane / 4 + i / 2 * 8;
            if (cap != 0 && row < valid) s[i] = cap * tanhf(s[i] / cap);
            if (row < skip) s[i] = -INFINITY;
        }
    }
}

// Replaces scores by weights, with a new maximum.
template <int HEAD_DIM>
__device__ __forceinline__ void weigh(accumulator<HEAD_DIM> &acc, const float (&s)[4],
                                      float (&p)[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float m = fmaxf(s[i], s[i + 2]);
        for (int offset = 4; offset < 32; offset <<= 1) {
            m = fmaxf(m, __shfl_xor_sync(FULL_WARP, m, offset));
        }
        m = fmaxf(m, acc.max[i]); // finite: some position of a tile is valid
        float alpha = exp2_fast(acc.max[i] - m);
        acc.max[i] = m;
        p[i] = exp2_fast(s[i] - m);
        p[i + 2] = exp2_fast(s[i + 2] - m);
        acc.sum[i] = acc.sum[i] * alpha + p[i] + p[i + 2];
#pragma unroll
        for (int d = 0; d < HEAD_DIM / 16; d++) {
            acc.o[d][i] *= alpha;
            acc.o[d][i + 2] *= alpha;
        }
    }
}

// Adds a tile with these scores to the accumulator: new maximum, weights, weighted values.
template <int HEAD_DIM>
__device__ __forceinline__ void take_scores(accumulator<HEAD_DIM> &acc, const float (&s)[4],
                                            uint32_t values, int lane) {
    constexpr int ROW_BYTES = HEAD_DIM * 2;
    float p[4];
    weigh<HEAD_DIM>(acc, s, p);
    uint32_t b0 = transpose_matrix(pack_bf16(p[0], p[1]));
    uint32_t b1 = transpose_matrix(pack_bf16(p[2], p[3]));
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) {
        int row = (lane / 16) * 8 + lane % 8;
        uint32_t a[4];
        load_matrix4_transposed(a, values + row * ROW_BYTES +
                                       chunk_offset<HEAD_DIM>(row, d, lane / 8 % 2));
        multiply(acc.o[d], a, b0, b1);
    }
}

// The same with values in codes, of which the first `valid` count. The results are less CODE_SHIFT.
template <int HEAD_DIM>
__device__ __forceinline__ void take_code_scores(accumulator<HEAD_DIM> &acc, const float (&s)[4],
                                                 uint32_t values, int valid, const pair_bits &bits,
                                                 int lane) {
    float p[4];
    weigh<HEAD_DIM>(acc, s, p);
    uint32_t scales = values + KV_SCALES_AT<HEAD_DIM> + lane / 4 * 4, b[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        // A scale that nobody has written may be NaN, and 0 times NaN is NaN. Codes are finite.
        bool is_valid = lane / 4 + i * 8 < valid;
        float factor = is_valid ? __uint_as_float(load_shared(scales + i * 32)) : 0;
        b[i] = transpose_matrix(pack_bf16(p[i * 2] * factor, p[i * 2 + 1] * factor));
    }
    int row = lane % 16;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 32; d++) {
        uint32_t a[4];
        load_matrix4_transposed(a,
                                values + row * HEAD_DIM + code_offset<HEAD_DIM>(row, d, lane / 16));
        // Even dimensions are the product's first 8 rows: words and pairs change places.
        uint32_t of[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            unpack_pairs(bits, a[i * 2], of[i][0], of[i][1]);
            unpack_pairs(bits, a[i * 2 + 1], of[i][2], of[i][3]);
            multiply(acc.o[d * 2 + i], of[i], b[0], b[1]);
        }
    }
}

template <int HEAD_DIM, bool EXTRAS = false>
__device__ __forceinline__ void take_tile(accumulator<HEAD_DIM> &acc,
                                          const uint32_t (&q)[HEAD_DIM / 16][2], uint32_t shared,
                                          int valid, float scale, int lane, int skip = 0,
                                          float cap = 0) {
    float s[4];
    tile_scores<HEAD_DIM>(s, q, shared, valid, scale, lane);
    adjust_scores<EXTRAS>(s, skip, valid, cap, lane);
    take_scores<HEAD_DIM>(acc, s, shared + TILE * HEAD_DIM * 2, lane);
}

template <int HEAD_DIM, bool EXTRAS>
__device__ __forceinline__ void take_code_tile(accumulator<HEAD_DIM> &acc,
                                               const uint32_t (&q)[HEAD_DIM / 16][2],
                                               uint32_t shared, int valid, float scale,
                                               const pair_bits &bits, int lane, int skip,
                                               float cap) {
    float s[4];
    code_scores<HEAD_DIM>(s, q, shared, valid, scale, bits, lane);
    adjust_scores<EXTRAS>(s, skip, valid, cap, lane);
    take_code_scores<HEAD_DIM>(acc, s, shared + KV_TILE_BYTES<HEAD_DIM, true>, valid, bits, lane);
}

// Loads this lane's part of the queries [num_queries][HEAD_DIM] in the matrix instruction's layout.
template <int HEAD_DIM>
__device__ __forceinline__ void load_queries(uint32_t (&q)[HEAD_DIM / 16][2],
                                             const __nv_bfloat16 *queries, int num_queries,
                                             int lane) {
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
        const uint32_t *row =
            reinterpret_cast<const uint32_t *>(queries + lane / 4 * HEAD_DIM + k * 16) + lane % 4;
        q[k][0] = lane / 4 < num_queries ? row[0] : 0;
        q[k][1] = lane / 4 < num_queries ? row[4] : 0;
    }
}

// Writes a warp's maxima and sums to [warp][GROUP] in shared memory, for joining with the other
// warps.
template <int HEAD_DIM>
__device__ __forceinline__ void join_weights(accumulator<HEAD_DIM> &acc, float *maxes, float *sums,
                                             int warp, int lane) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        for (int offset = 4; offset < 32; offset <<= 1) {
            acc.sum[i] += __shfl_xor_sync(FULL_WARP, acc.sum[i], offset);
        }
        if (lane < 4) {
            maxes[warp * GROUP + lane * 2 + i] = acc.max[i];
            sums[warp * GROUP + lane * 2 + i] = acc.sum[i];
        }
    }
}

// Writes the warp's unnormalised values of the queries [first, first + count) to
// [warp][count][dim].
template <int HEAD_DIM, bool CODES = false>
__device__ __forceinline__ void join_values(const accumulator<HEAD_DIM> &acc, float *shared,
                                            int first, int count, int warp, int lane) {
    constexpr int APART = CODES ? 1 : 8; // dimensions between this lane's two of 16
    constexpr float FACTOR = CODES ? CODE_SHIFT : 1;
    float *mine = shared + warp * count * HEAD_DIM;
    int query = lane % 4 * 2 - first;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) {
        int dim = d * 16 + lane / 4 * (CODES ? 2 : 1);
        if (query >= 0 && query < count) {
            mine[query * HEAD_DIM + dim] = acc.o[d][0] * FACTOR;
            mine[query * HEAD_DIM + dim + APART] = acc.o[d][2] * FACTOR;
        }
        if (query + 1 >= 0 && query + 1 < count) {
            mine[(query + 1) * HEAD_DIM + dim] = acc.o[d][1] * FACTOR;
            mine[(query + 1) * HEAD_DIM + dim + APART] = acc.o[d][3] * FACTOR;
        }
    }
}

template <int HEAD_DIM, bool CODES = false>
__device__ void join_warps(accumulator<HEAD_DIM> &acc, float *shared, float *maxes, float *sums,
                           int num_queries, int warp, int lane) {
    join_weights<HEAD_DIM>(acc, maxes, sums, warp, lane);
    join_values<HEAD_DIM, CODES>(acc, shared, 0, num_queries, warp, lane);
}

// The relative weights of a block's warps for one query.
template <int WARPS> struct warp_weights {
    float max, sum, of[WARPS];

    __device__ __forceinline__ warp_weights(const float *maxes, const float *sums, int query) {
        max = maxes[query], sum = 0;
#pragma unroll
        for (int w = 1; w < WARPS; w++) max = fmaxf(max, maxes[w * GROUP + query]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            of[w] = exp2_fast(maxes[w * GROUP + query] - max);
            sum += of[w] * sums[w * GROUP + query];
        }
    }
};

// The weighted sum of some positions' values, with their maximum score and the sum of their
// weights.
struct weighed {
    float max, sum, value;
};

// Joins the results of a block's warps for one query and dimension.
template <int HEAD_DIM, int WARPS>
__device__ __forceinline__ weighed join_block(const float *shared, const float *maxes,
                                              const float *sums, int num_queries, int query,
                                              int dim) {
    warp_weights<WARPS> weights(maxes, sums, query);
    weighed r = {weights.max, weights.sum, 0};
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        r.value += weights.of[w] * shared[(w * num_queries + query) * HEAD_DIM + dim];
    }
    return r;
}

} // namespace
