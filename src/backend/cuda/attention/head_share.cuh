/* RMS norm and rotary embedding of one head spread over a warp, between the qkv projection and
 * attention. The rotation is half-split (Su et al. 2021): dims d and d + D / 2 rotate together. A
 * lane holds W adjacent elements of the first half and the same W of the second. It rounds as
 * attention/head_lanes.cuh does, since either of them may prepare a token. */
#pragma once

#include "backend/cuda/attention/kv_codes.cuh"
#include "backend/cuda/device.cuh"

namespace {

template <int W> struct elements { float v[W]; };

template <int W> __device__ __forceinline__ elements<W> load_bf16(const __nv_bfloat16 *from) {
    elements<W> e;
    if constexpr (W == 1) {
        e.v[0] = __bfloat162float(*from);
    } else {
#pragma unroll
        for (int i = 0; i < W / 2; i++) {
            uint32_t pair = reinterpret_cast<const uint32_t *>(from)[i];
            e.v[i * 2] = bf16_low(pair);
            e.v[i * 2 + 1] = bf16_high(pair);
        }
    }
    return e;
}

template <int W>
__device__ __forceinline__ void store_bf16(__nv_bfloat16 *to, const elements<W> &e) {
    if constexpr (W == 1) {
        *to = __float2bfloat16(e.v[0]);
    } else {
#pragma unroll
        for (int i = 0; i < W / 2; i++) {
            reinterpret_cast<uint32_t *>(to)[i] = pack_bf16(e.v[i * 2], e.v[i * 2 + 1]);
        }
    }
}

template <int D> struct head_share {
    static constexpr int W = D >= 256 ? 4 : D >= 128 ? 2 : 1;
    static constexpr int LANES = D / 2 / W; // D = 96: 48 lanes' work on 32 lanes, in two turns
    static constexpr int TURNS = (LANES + 31) / 32;
    elements<W> low[TURNS], high[TURNS];

    // This lane's first element in a turn. D / 2 or more: this lane has none.
    static __device__ __forceinline__ int first(int turn, int lane) {
        return (turn * 32 + lane) * W;
    }

    __device__ __forceinline__ void load(const __nv_bfloat16 *row, int lane) {
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int d = first(t, lane);
            if (d >= D / 2) break;
            low[t] = load_bf16<W>(row + d);
            high[t] = load_bf16<W>(row + d + D / 2);
        }
    }

    // Called by the whole warp. `norm`: weights [D] or NULL. `rope`: the position's row.
    __device__ __forceinline__ void prepare(const float *norm, float eps, const float *rope,
                                            int lane) {
        float sum = 0;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (first(t, lane) >= D / 2) break;
#pragma unroll
            for (int i = 0; i < W; i++) {
                sum += low[t].v[i] * low[t].v[i] + high[t].v[i] * high[t].v[i];
            }
        }
        float scale = norm ? rsqrtf(warp_sum(sum) / D + eps) : 1.0f;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int d = first(t, lane), e = d + D / 2;
            if (d >= D / 2) break;
#pragma unroll
            for (int i = 0; i < W; i++) {
                float a = low[t].v[i], b = high[t].v[i];
                if (norm) a *= scale * norm[d + i], b *= scale * norm[e + i];
                float c = rope[d + i], s = rope[e + i];
                low[t].v[i] = a * c - b * s;
                high[t].v[i] = b * c + a * s;
            }
        }
    }

    __device__ __forceinline__ void store(__nv_bfloat16 *row, int lane) const {
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int d = first(t, lane);
            if (d >= D / 2) break;
            store_bf16<W>(row + d, low[t]);
            store_bf16<W>(row + d + D / 2, high[t]);
        }
    }

    // Stores into a row of the KV cache or of a tile. Chunks of 8 elements are swizzled by the
    // position.
    __device__ __forceinline__ void store_swizzled(__nv_bfloat16 *row, int position,
                                                   int lane) const {
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int d = first(t, lane), e = d + D / 2;
            if (d >= D / 2) break;
            store_bf16<W>(row + swizzle<D>(position, d / 8) * 8 + d % 8, low[t]);
            store_bf16<W>(row + swizzle<D>(position, e / 8) * 8 + e % 8, high[t]);
        }
    }

    // The bits of the head's largest magnitude, rounded to bf16. Called by the whole warp.
    __device__ __forceinline__ uint32_t largest(int lane) const {
        uint32_t bits = 0;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (first(t, lane) >= D / 2) break;
#pragma unroll
            for (int i = 0; i < W; i++) {
                bits = max(bits, largest_bits(pack_bf16(low[t].v[i], high[t].v[i])));
            }
        }
#pragma unroll
        for (int offset = 16; offset; offset >>= 1) {
            bits = max(bits, __shfl_xor_sync(FULL_WARP, bits, offset));
        }
        return bits;
    }

    // Called by the whole warp: an even dimension and the next one share 16 bits.
    __device__ __forceinline__ void store_codes(const kv_codec &codec, const head_scale &scale,
                                                const code_row &row, int lane) const {
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int d = first(t, lane);
            bool has_work = d < D / 2;
            store_halves(codec, scale, row, has_work, d, low[t], lane);
            store_halves(codec, scale, row, has_work, d + D / 2, high[t], lane);
        }
        if (lane == 0) *row.scale = scale.stored;
    }
    static __device__ __forceinline__ void store_halves(const kv_codec &codec,
                                                        const head_scale &scale,
                                                        const code_row &row, bool has_work, int d,
                                                        const elements<W> &e, int lane) {
        char *to = row.codes + swizzle_codes<D>(row.position, d / 16) * 16 + d % 16;
        if constexpr (W == 1) {
            float mine = has_work ? rounded(e.v[0]) * scale.inverse : 0;
            float other = __shfl_xor_sync(FULL_WARP, mine, 1);
            if (!has_work || lane % 2) return;
            *reinterpret_cast<uint16_t *>(to) =
                static_cast<uint16_t>(code_word(codec, code_pair(codec, mine, other)));
        } else {
            if (!has_work) return;
#pragma unroll
            for (int i = 0; i < W; i += 2) {
                reinterpret_cast<uint16_t *>(to)[i / 2] = static_cast<uint16_t>(
                    code_word(codec, code_pair(codec, rounded(e.v[i]) * scale.inverse,
                                               rounded(e.v[i + 1]) * scale.inverse)));
            }
        }
    }
    static __device__ __forceinline__ float rounded(float v) {
        return __bfloat162float(__float2bfloat16(v));
    }
};

} // namespace
