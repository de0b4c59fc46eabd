/* Prepares the heads of one new token in a block's shared memory, between the qkv projection and
 * decode attention. In a step of decodes alone this does attention_prepare's work: q and k are
 * normalised and rotated, and the new key and value go into their tile and into the cache. That
 * saves a kernel, and the copies of cached tiles run while the qkv projection still computes.
 * Either all warps do it, one head each, or one warp does it for the others. */
#pragma once

#include "backend/cuda/attention/decode_tile.cuh"
#include "backend/cuda/attention/head_lanes.cuh"
#include "backend/cuda/attention/head_share.cuh"
#include "backend/cuda/handover.cuh"

namespace {

struct heads_params {
    const __nv_bfloat16 *qkv;
    __nv_bfloat16 *keys, *values; // of the layer
    int num_heads, num_kv_heads, block_size, qkv_stride;
    uint32_t block_chunks; // as in cuda_kv_view
    // True: this kernel does what attention_prepare would do. False: attention_prepare has already
    // done it, and q, k and v are ready.
    bool prepares;
    const float *q_norm, *k_norm, *rope;
    float eps;
    kv_codec codec; // for kernels with CODES
};

inline void fill_heads_params(heads_params &p, const attention_args *args, const cuda_kv_view *kv,
                              bool prepares) {
    p.qkv = static_cast<const __nv_bfloat16 *>(args->qkv);
    p.keys = static_cast<__nv_bfloat16 *>(kv->keys);
    p.values = static_cast<__nv_bfloat16 *>(kv->values);
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.block_size = static_cast<int>(kv->block_size);
    p.block_chunks = kv->block_chunks;
    p.qkv_stride = static_cast<int>(attention_row_heads(args) * args->head_dim);
    p.prepares = prepares;
    p.q_norm = args->q_norm;
    p.k_norm = args->k_norm;
    p.rope = args->rope;
    p.eps = args->eps;
    p.codec = kv_codec_of(kv->dtype);
}

// A group of queries of one kv head and one token.
struct heads_unit {
    int token, position, slot;
    int kv_head, first_head, num_queries;
    bool has_new; // the step is prepared here, and the unit's positions include the new token
    bool writes_cache; // has_new, and of the groups of this kv head this one writes the cache

    // Heads to prepare: the queries, then the new token's key and value.
    __device__ __forceinline__ int num_tasks() const {
        return num_queries + (has_new ? 2 : 0);
    }
};

// The row [D] of one of those heads in qkv.
template <int D>
__device__ __forceinline__ const __nv_bfloat16 *head_of(const heads_params &p, const heads_unit &u,
                                                        int task) {
    int other = task - u.num_queries;
    int head = other < 0 ? u.first_head + task : p.num_heads + other * p.num_kv_heads + u.kv_head;
    return p.qkv + (size_t)u.token * p.qkv_stride + (size_t)head * D;
}

// Copies the position's row of the rotary table before the heads arrive. Called by all threads.
template <int D>
__device__ __forceinline__ void stage_rope(const heads_params &p, const heads_unit &u,
                                           float *rope) {
    if (!p.prepares) return;
    const float *row = p.rope + (size_t)u.position * D;
    for (int d = threadIdx.x; d < D; d += blockDim.x) rope[d] = row[d];
}

// The prepared heads of a unit, in shared memory. Query rows are padded so that the matrix
// instruction's loads of one column hit 8 different banks. `fresh` is the new token's key and
// value; with CODES each is D codes and the scale behind them.
template <int D, bool CODES> struct __align__(16) unit_heads {
    static constexpr int STRIDE = D + 8;
    __nv_bfloat16 queries[GROUP * STRIDE], fresh[2][D];

    // Called by all warps, one head each. Normalises and rotates if p.prepares.
    template <int WARPS>
    __device__ __forceinline__ void prepare(const heads_params &p, const heads_unit &u,
                                            const float *rope, int warp, int lane) {
        for (int task = warp; task < u.num_tasks(); task += WARPS) {
            int other = task - u.num_queries; // 0: key, 1: value
            head_share<D> one;
            one.load(of_step(head_of<D>(p, u, task)), lane);
            if (p.prepares && other < 1) {
                one.prepare(other < 0 ? p.q_norm : p.k_norm, p.eps, rope, lane);
            }
            if constexpr (CODES) {
                if (other >= 0) {
                    head_scale scale(p.codec, one.largest(lane));
                    one.store_codes(p.codec, scale, fresh_row(other), lane);
                    if (!u.writes_cache) continue;
                    one.store_codes(p.codec, scale, cache_codes(p, u, other), lane);
                    continue;
                }
            }
            one.store(other < 0 ? queries + task * STRIDE : fresh[other], lane);
            if (other < 0 || !u.writes_cache) continue;
            one.store_swizzled(cache_row(p, u, other), place_in_block(p, u), lane);
        }
    }

    // The same by one warp, several heads at a time.
    __device__ __forceinline__ void prepare_alone(const heads_params &p, const heads_unit &u,
                                                  const float *rope, int lane) {
        using shape = head_lanes<D>;
        constexpr int TURNS = 2;
        int chunk = lane % shape::WIDTH, num_tasks = u.num_tasks();
        for (int start = 0; start < num_tasks; start += TURNS * shape::HEADS) {
            half_pair<D> h[TURNS] = {};
            int task[TURNS];
            bool has_work[TURNS];
#pragma unroll
            for (int t = 0; t < TURNS; t++) {
                task[t] = start + t * shape::HEADS + lane / shape::WIDTH;
                has_work[t] = task[t] < num_tasks && chunk < shape::LANES;
                if (has_work[t]) h[t].load(of_step(head_of<D>(p, u, task[t])), chunk);
            }
#pragma unroll
            for (int t = 0; t < TURNS; t++) {
                int other = task[t] - u.num_queries;
                half_pair<D> turned = h[t];
                if (p.prepares) {
                    const float *norm = other < 0 ? p.q_norm : p.k_norm;
                    normalize_and_rotate(turned, norm, p.eps, rope, chunk);
                    if (other < 1) h[t] = turned;
                }
                // Whether the warp has the new key or value among these heads.
                int first = start + t * shape::HEADS;
                if (CODES && first < num_tasks && first + shape::HEADS > u.num_queries) {
                    half_codes<D> codes(p.codec, h[t]);
                    if (has_work[t] && other >= 0) {
                        codes.store(fresh_row(other), chunk);
                        if (u.writes_cache) codes.store(cache_codes(p, u, other), chunk);
                        continue;
                    }
                }
                if (!has_work[t]) continue;
                h[t].store(other < 0 ? queries + task[t] * STRIDE : fresh[other], chunk);
                if (other < 0 || !u.writes_cache) continue;
                h[t].store_swizzled(cache_row(p, u, other), place_in_block(p, u), chunk);
            }
        }
    }

    // The new token's position within its cache block.
    static __device__ __forceinline__ int place_in_block(const heads_params &p,
                                                         const heads_unit &u) {
        int block, place;
        split_position(u.slot, p.block_size, &block, &place);
        return place;
    }
    static __device__ __forceinline__ __nv_bfloat16 *cache_row(const heads_params &p,
                                                               const heads_unit &u, int is_value) {
        int block, place;
        split_position(u.slot, p.block_size, &block, &place);
        uint32_t row = u.kv_head * p.block_size + place; // in the block
        return of_step(is_value ? p.values : p.keys) + block_start(block, p.block_chunks) +
               (size_t)row * D;
    }

    static __device__ __forceinline__ code_row cache_codes(const heads_params &p,
                                                           const heads_unit &u, int is_value) {
        return code_row_of<D>(of_step(is_value ? p.values : p.keys), u.slot, p.block_size,
                              p.block_chunks, u.kv_head);
    }
    __device__ __forceinline__ code_row fresh_row(int is_value) {
        char *at = reinterpret_cast<char *>(fresh[is_value]);
        return {at, reinterpret_cast<float *>(at + D), 0};
    }

    // With CODES: the queries times CODE_SHIFT, for pairs of even and of odd dimensions.
    __device__ __forceinline__ void load_queries_for_codes(uint32_t(&q)[D / 16][2], int lane)
        const {
        const __nv_bfloat162 shift = __float2bfloat162_rn(CODE_SHIFT);
        const uint2 *row = reinterpret_cast<const uint2 *>(queries + lane / 4 * STRIDE) + lane % 4;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            uint2 four = row[k * 4];
            const uint32_t pairs[2] = {__byte_perm(four.x, four.y, 0x5410),
                                       __byte_perm(four.x, four.y, 0x7632)};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                __nv_bfloat162 shifted =
                    __hmul2(reinterpret_cast<const __nv_bfloat162 &>(pairs[i]), shift);
                q[k][i] = reinterpret_cast<const uint32_t &>(shifted);
            }
        }
    }

    __device__ __forceinline__ void load_queries(uint32_t(&q)[D / 16][2], int lane) const {
        if constexpr (CODES) return load_queries_for_codes(q, lane);
        uint32_t from = shared_address(queries) + lane % 8 * STRIDE * 2 + lane / 8 * 16;
#pragma unroll
        for (int k = 0; k < D / 16; k += 2) {
            uint32_t r[4];
            load_matrix4(r,
                         from + k * 32); // of an odd number: the last one's second half is unused
            q[k][0] = r[0], q[k][1] = r[1];
            if (k + 1 < D / 16) q[k + 1][0] = r[2], q[k + 1][1] = r[3];
        }
    }

    // Copies the new token's key or value into row `row` of a tile's keys or values.
    __device__ __forceinline__ void patch(uint32_t tile, int is_value, int row, int lane) const {
        if constexpr (CODES) {
            patch_codes(tile, is_value, row, lane);
        } else {
            uint32_t from = shared_address(fresh[is_value]), to = tile + row * D * 2;
#pragma unroll
            for (int first = 0; first < D / 8; first += 32) {
                int c = first + lane;
                if (c >= D / 8) break;
                store_shared16(to + swizzle<D>(row, c) * 16, load_shared16(from + c * 16));
            }
        }
        tile_stores_done();
    }
    __device__ __forceinline__ void patch_codes(uint32_t tile, int is_value, int row, int lane)
        const {
        uint32_t from = shared_address(fresh[is_value]);
        if (lane < D / 16) {
            store_shared16(tile + row * D + swizzle_codes<D>(row, lane) * 16,
                           load_shared16(from + lane * 16));
        }
        if (lane == 0) {
            store_shared(tile + KV_SCALES_AT<D> + row * 4, load_shared(from + D));
        }
    }
};

} // namespace
