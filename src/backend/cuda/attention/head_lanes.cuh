/* RMS norm and rotary embedding of q and k heads, between the qkv projection and attention. The
 * rotation is half-split (Su et al. 2021): dims d and d + D / 2 rotate together. A lane holds 8
 * elements of each half of a head, so a warp holds several heads. It rounds as
 * attention/head_share.cuh and layers/all_layers.cu do. */
#pragma once

#include "backend/cuda/attention/kv_codes.cuh"
#include "backend/cuda/device.cuh"

namespace {

template <int D> struct head_lanes {
    static constexpr int LANES = D / 16; // lanes with work, per head
    // LANES rounded up to a power of two.
    static constexpr int WIDTH = LANES == 10 ? 16 : LANES == 5 || LANES == 6 ? 8 : LANES;
    static constexpr int HEADS = 32 / WIDTH; // heads per warp
};

// 8 elements of each half of a head: chunks `chunk` and `chunk` + D / 16 of its row.
template <int D> struct half_pair {
    uint4 low, high;

    __device__ __forceinline__ void load(const __nv_bfloat16 *row, int chunk) {
        low = reinterpret_cast<const uint4 *>(row)[chunk];
        high = reinterpret_cast<const uint4 *>(row)[chunk + D / 16];
    }
    __device__ __forceinline__ void store(__nv_bfloat16 *row, int chunk) const {
        reinterpret_cast<uint4 *>(row)[chunk] = low;
        reinterpret_cast<uint4 *>(row)[chunk + D / 16] = high;
    }
    // Stores into a row of the KV cache, whose chunks are swizzled by the position.
    __device__ __forceinline__ void store_swizzled(__nv_bfloat16 *row, int position,
                                                   int chunk) const {
        reinterpret_cast<uint4 *>(row)[swizzle<D>(position, chunk)] = low;
        reinterpret_cast<uint4 *>(row)[swizzle<D>(position, chunk + D / 16)] = high;
    }
};

// The same 16 elements as codes. Made by all lanes of a warp; lanes without work hold zeros.
template <int D> struct half_codes {
    uint2 low, high;
    float scale;

    __device__ __forceinline__ half_codes(const kv_codec &codec, const half_pair<D> &h) {
        uint32_t bits = 0;
        const uint32_t words[8] = {h.low.x,  h.low.y,  h.low.z,  h.low.w,
                                   h.high.x, h.high.y, h.high.z, h.high.w};
#pragma unroll
        for (int i = 0; i < 8; i++) bits = max(bits, largest_bits(words[i]));
#pragma unroll
        for (int offset = head_lanes<D>::WIDTH / 2; offset; offset >>= 1) {
            bits = max(bits, __shfl_xor_sync(FULL_WARP, bits, offset));
        }
        head_scale of_head(codec, bits);
        low = code_chunk(codec, h.low, of_head.inverse);
        high = code_chunk(codec, h.high, of_head.inverse);
        scale = of_head.stored;
    }
    __device__ __forceinline__ void store(const code_row &row, int chunk) const {
        int first = chunk * 8, second = first + D / 2;
        *reinterpret_cast<uint2 *>(row.codes + swizzle_codes<D>(row.position, first / 16) * 16 +
                                   first % 16) = low;
        *reinterpret_cast<uint2 *>(row.codes + swizzle_codes<D>(row.position, second / 16) * 16 +
                                   second % 16) = high;
        if (chunk == 0) *row.scale = scale;
    }
};

// Called by all lanes of a warp. Lanes without work hold zeros and read the first chunk's
// constants. `norm`: weights [D] or NULL. `rope`: the position's row [2][D / 2], cosines, then
// sines. The rotation makes the sum of a pair's squares c^2 + s^2 times as large, which is not 1
// with a factor such as yarn's. A norm behind it takes that into its sum.
template <int D>
__device__ __forceinline__ void normalize_and_rotate(half_pair<D> &h, const float *norm, float eps,
                                                     const float *rope, int chunk,
                                                     bool is_norm_last = false) {
    int first = chunk < head_lanes<D>::LANES ? chunk * 8 : 0;
    float sum = 0, low[8], high[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        low[i] = bf16_element(h.low, i), high[i] = bf16_element(h.high, i);
        float squares = low[i] * low[i] + high[i] * high[i];
        if (is_norm_last) {
            float c = rope[first + i], s = rope[first + i + D / 2];
            squares *= c * c + s * s;
        }
        sum += squares;
    }
#pragma unroll
    for (int offset = head_lanes<D>::WIDTH / 2; offset; offset >>= 1) {
        sum += __shfl_xor_sync(FULL_WARP, sum, offset);
    }
    float scale = norm ? rsqrtf(sum / D + eps) : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float a = low[i], b = high[i];
        float weight_a = norm ? scale * norm[first + i] : 1.0f;
        float weight_b = norm ? scale * norm[first + i + D / 2] : 1.0f;
        if (norm && !is_norm_last) a *= weight_a, b *= weight_b;
        float c = rope[first + i], s = rope[first + i + D / 2];
        low[i] = a * c - b * s;
        high[i] = b * c + a * s;
        if (norm && is_norm_last) low[i] *= weight_a, high[i] *= weight_b;
    }
    h.low = pack_bf16(low);
    h.high = pack_bf16(high);
}

} // namespace
