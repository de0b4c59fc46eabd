/* Packing of codes into the order of linear/packed.h while weights are loaded, and the way back to
 * bf16 [out][in]. A thread packs or unpacks the 16 bytes of one lane. Bytes: each input and each
 * output once. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/linear/packed.cuh"
#include "backend/cuda/linear/quad.cuh"

namespace {

constexpr int THREADS = 256;

// The 16 bytes of a thread: its output, and its lane's first input.
struct place {
    size_t number; // of the 16 bytes
    uint32_t row, column;
    int lane;
};
__device__ __forceinline__ bool place_of(place &p, uint32_t out, uint32_t in, uint32_t step) {
    p.number = (size_t)blockIdx.x * THREADS + threadIdx.x;
    p.lane = p.number % 32;
    size_t warp = p.number / 32;
    uint32_t steps = in / step, tile = warp / steps;
    p.row = tile * CUDA_PACKED_TILE + p.lane / 4;
    p.column = warp % steps * step + p.lane % 4 * 2;
    return p.row < out;
}

// Bits of a code on the device.
__host__ __device__ constexpr uint32_t kept_bits(weight_code code) {
    return code == WEIGHT_CODE_INT4 || code == WEIGHT_CODE_ODD || code == WEIGHT_CODE_E2M1 ? 4 : 8;
}

// The levels of iq4, iq3 and iq2.
__device__ __forceinline__ uint32_t level_of(uint8_t c, weight_code code) {
    uint64_t low = 0xf6eaddcfbfad9881, high = 0x7159453526190d01;
    if (code == WEIGHT_CODE_IQ3) low = 0x3e342c241c140c04, high = 0xc2ccd4dce4ecf4fc;
    if (code == WEIGHT_CODE_IQ2) low = 0x2b1908, high = 0xd5e7f8;
    return (c < 8 ? low : high) >> c % 8 * 8 & 255;
}

__device__ __forceinline__ uint32_t pack_word(const uint8_t *c, weight_code code) {
    if (code == WEIGHT_CODE_E4M3) return pack_e4m3(c[0], c[1], c[8], c[9]);
    if (code == WEIGHT_CODE_INT8) return pack_int8(c[0], c[1], c[8], c[9]);
    if (kept_bits(code) == 8) {
        return pack_int8(level_of(c[0], code), level_of(c[1], code), level_of(c[8], code),
                         level_of(c[9], code));
    }
    return code == WEIGHT_CODE_E2M1 ? pack_e2m1(c) : pack_u4(c);
}

__global__ void __launch_bounds__(THREADS)
    pack_kernel(uint4 *codes, const uint8_t *raw, uint32_t out, uint32_t in, weight_code code) {
    place p;
    uint32_t bits = kept_bits(code);
    if (!place_of(p, out, in, bits == 8 ? 64 : 128)) return;
    const uint8_t *from = raw + (size_t)p.row * in + p.column;
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; w++) words[w] = pack_word(from + w * (bits == 8 ? 16 : 32), code);
    codes[p.number] = make_uint4(words[0], words[1], words[2], words[3]);
}

// The scale and the offset of a weight's group.
template <typename K>
__device__ __forceinline__ group_factors factors_at(const packed_scales &s, uint32_t row,
                                                    uint32_t column) {
    if constexpr (K::GROUP == 0) return {s.rows[row], -0.0f, 0};
    size_t span = (size_t)(row / CUDA_PACKED_TILE) * s.spans + column / K::SPAN;
    if (s.is_shared) return factors_of<K>(s.words[span], 0);
    if constexpr (K::EXPONENTS) {
        return factors_of_exponent(s.words[span * CUDA_PACKED_TILE + row % CUDA_PACKED_TILE],
                                   static_cast<int>(column % K::SPAN / K::GROUP));
    }
    size_t at = (span * CUDA_PACKED_TILE + row % CUDA_PACKED_TILE) * K::WORDS;
    if constexpr (K::GROUP) at += column % K::SPAN / K::GROUP * K::PER_GROUP;
    return factors_of<K>(s.words[at], K::OFFSETS ? s.words[at + 1] : 0);
}

// Writes what a lane's 16 bytes stand for to its places in row `to` of bf16.
template <typename K>
__device__ __forceinline__ void unpack_lane(__nv_bfloat16 *to, const uint4 *codes,
                                            const packed_scales &s, const place &p) {
    uint4 own = codes[p.number];
#pragma unroll
    for (int i = 0; i < K::MULTIPLIES; i++) {
        uint32_t column = p.column + i * 16, first, second;
        group_factors f = factors_at<K>(s, p.row, column);
        value_pairs<K>(own, i, f.zeros, first, second);
        auto *words_to = reinterpret_cast<uint32_t *>(to + column);
        words_to[0] = weight_pair<K>(first, f);
        words_to[4] = weight_pair<K>(second, f);
    }
}

template <typename K>
__global__ void __launch_bounds__(THREADS)
    unpack_kernel(__nv_bfloat16 *weight, const uint4 *codes, packed_scales s, uint32_t out,
                  uint32_t in) {
    place p;
    if (!place_of(p, out, in, K::STEP)) return;
    unpack_lane<K>(weight + (size_t)p.row * in, codes, s, p);
}

// Codes of e4m3 as bytes [out][in]. The lanes of an output exchange words, so that each stores 16
// inputs.
__global__ void __launch_bounds__(THREADS)
    plain_kernel(uint4 *to, const uint4 *codes, uint32_t out, uint32_t in) {
    place p;
    bool is_there = place_of(p, out, in, 64);
    uint4 own = is_there ? codes[p.number] : make_uint4(0, 0, 0, 0);
    uint32_t words[4] = {own.x, own.y, own.z, own.w}, low[4], high[4];
    transpose_quad(words, p.lane);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t first, second;
        unpack_e4m3(words[i], first, second);
        low[i] = codes_of_e4m3(first), high[i] = codes_of_e4m3(second);
    }
    if (!is_there) return;
    to[(size_t)p.row * (in / 16) + p.column / 64 * 4 + p.lane % 4] =
        make_uint4(low[0] | low[1] << 16, low[2] | low[3] << 16, high[0] | high[1] << 16,
                   high[2] | high[3] << 16);
}

// As rows/embed.cu. A block per token.
template <typename K>
__global__ void __launch_bounds__(THREADS)
    embed_kernel(__nv_bfloat16 *out, const __grid_constant__ cuda_linear_view v, packed_scales s,
                 const int32_t *tokens, const sample_result *previous, int vocab_start) {
    let_next_start(); // rule 6: an ordinary launch
    int token = tokens[blockIdx.x];
    if (token < 0 && previous) token = previous[-1 - token].token_id;
    int row = token - vocab_start;
    bool is_here = row >= 0 && row < static_cast<int>(v.out);
    uint32_t steps = v.in / K::STEP;
    __nv_bfloat16 *to = out + (size_t)blockIdx.x * v.in;
    for (uint32_t i = threadIdx.x; is_here && i < steps * 4; i += THREADS) {
        place p;
        p.row = row, p.lane = row % CUDA_PACKED_TILE * 4 + i % 4;
        p.column = i / 4 * K::STEP + i % 4 * 2;
        p.number = ((size_t)(row / CUDA_PACKED_TILE) * steps + i / 4) * 32 + p.lane;
        unpack_lane<K>(to, static_cast<const uint4 *>(v.weight), s, p);
    }
    for (uint32_t i = threadIdx.x; !is_here && i < v.in / 8; i += THREADS) {
        reinterpret_cast<uint4 *>(to)[i] = make_uint4(0, 0, 0, 0);
    }
}

unsigned blocks_for(uint32_t out, uint32_t in, weight_code code) {
    size_t threads = (size_t)out * in * kept_bits(code) / 8 / 16;
    return static_cast<unsigned>((threads + THREADS - 1) / THREADS);
}

} // namespace

extern "C" void cuda_packed_pack_launch(void *codes, const uint8_t *raw, uint32_t out, uint32_t in,
                                        enum weight_code code, cudaStream_t stream) {
    pack_kernel<<<blocks_for(out, in, code), THREADS, 0, stream>>>(static_cast<uint4 *>(codes), raw,
                                                                   out, in, code);
}

extern "C" void cuda_packed_unpack_launch(void *weight, const struct cuda_linear_view *view,
                                          cudaStream_t stream) {
    const cuda_linear_view &v = *view;
    with_kind(v, [&](auto kind) {
        unpack_kernel<decltype(kind)><<<blocks_for(v.out, v.in, v.code), THREADS, 0, stream>>>(
            static_cast<__nv_bfloat16 *>(weight), static_cast<const uint4 *>(v.weight),
            packed_scales_of(v), v.out, v.in);
    });
}

extern "C" void cuda_packed_plain_launch(void *to, const struct cuda_linear_view *view,
                                         cudaStream_t stream) {
    const cuda_linear_view &v = *view;
    plain_kernel<<<blocks_for(v.out, v.in, v.code), THREADS, 0, stream>>>(
        static_cast<uint4 *>(to), static_cast<const uint4 *>(v.weight), v.out, v.in);
}

extern "C" void cuda_packed_embed_launch(const struct embed_args *args,
                                         const struct cuda_linear_view *table,
                                         cudaStream_t stream) {
    with_kind(*table, [&](auto kind) {
        embed_kernel<decltype(kind)><<<args->step->num_tokens, THREADS, 0, stream>>>(
            static_cast<__nv_bfloat16 *>(args->out), *table, packed_scales_of(*table),
            args->step->tokens, args->step->previous, args->vocab_start);
    });
}
