/* Packing of codes into the order of linear/packed.h while weights are loaded, and the way back to
 * bf16 [out][in]. A thread packs or unpacks the 16 bytes of one lane. Bytes: each input and each
 * output once. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/linear/packed.cuh"

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

__global__ void __launch_bounds__(THREADS)
    pack_kernel(uint4 *codes, const uint8_t *raw, uint32_t out, uint32_t in, uint32_t bits) {
    place p;
    if (!place_of(p, out, in, bits == 8 ? 64 : 128)) return;
    const uint8_t *from = raw + (size_t)p.row * in + p.column;
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const uint8_t *c = from + w * (bits == 8 ? 16 : 32);
        words[w] = bits == 8 ? pack_e4m3(c[0], c[1], c[8], c[9]) : pack_u4(c);
    }
    codes[p.number] = make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ uint32_t scaled(uint32_t pair, float offset, float scale) {
    return pack_bf16((bf16_low(pair) - offset) * scale, (bf16_high(pair) - offset) * scale);
}

// The scale of an output and a block of 128 inputs; `offset` is what a code is less.
__device__ __forceinline__ float scale_of(const cuda_linear_view &v, uint32_t row, uint32_t column,
                                          float *offset) {
    *offset = 0;
    uint32_t tile = row / CUDA_PACKED_TILE, block = column / CUDA_PACKED_BLOCK;
    size_t at = (size_t)tile * (v.in / CUDA_PACKED_BLOCK) + block;
    if (v.bits == 8) {
        const auto *scales = static_cast<const float *>(v.scales);
        if (!v.group) return scales[row];
        return scales[v.shares_scales ? at : at * CUDA_PACKED_TILE + row % CUDA_PACKED_TILE];
    }
    uint32_t per_block = CUDA_PACKED_BLOCK / v.group;
    uint32_t group = column % CUDA_PACKED_BLOCK / v.group;
    size_t number = (at * CUDA_PACKED_TILE + row % CUDA_PACKED_TILE) * per_block + group;
    uint32_t word = static_cast<const uint32_t *>(v.scales)[number];
    *offset = group_zero(word);
    return group_scale(word);
}

// Writes what a lane's 16 bytes stand for to its places in row `to` of bf16.
__device__ __forceinline__ void unpack_lane(__nv_bfloat16 *to, const cuda_linear_view &v,
                                            const place &p) {
    uint4 codes = static_cast<const uint4 *>(v.weight)[p.number];
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    float offset;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t column = p.column + w * (v.bits == 8 ? 16 : 32), pairs[4];
        float scale = scale_of(v, p.row, column, &offset);
        auto *words_to = reinterpret_cast<uint32_t *>(to + column);
        if (v.bits == 8) {
            unpack_e4m3(words[w], pairs[0], pairs[1]);
            // 2^120 by itself: a scale times 2^120 may be infinite.
            for (int i = 0; i < 2; i++) {
                words_to[i * 4] = pack_bf16(bf16_low(pairs[i]) * E4M3_SCALE * scale,
                                            bf16_high(pairs[i]) * E4M3_SCALE * scale);
            }
        } else {
            unpack_u4(words[w], pairs);
            for (int i = 0; i < 4; i++) words_to[i * 4] = scaled(pairs[i], offset, scale);
        }
    }
}

__global__ void __launch_bounds__(THREADS)
    unpack_kernel(__nv_bfloat16 *weight, const __grid_constant__ cuda_linear_view v) {
    place p;
    if (!place_of(p, v.out, v.in, v.bits == 8 ? 64 : 128)) return;
    unpack_lane(weight + (size_t)p.row * v.in, v, p);
}

// As rows/embed.cu. A block per token.
__global__ void __launch_bounds__(THREADS)
    embed_kernel(__nv_bfloat16 *out, const __grid_constant__ cuda_linear_view v,
                 const int32_t *tokens, const sample_result *previous, int vocab_start) {
    let_next_start(); // rule 6: an ordinary launch
    int token = tokens[blockIdx.x];
    if (token < 0 && previous) token = previous[-1 - token].token_id;
    int row = token - vocab_start;
    bool is_here = row >= 0 && row < static_cast<int>(v.out);
    uint32_t step = v.bits == 8 ? 64 : 128, steps = v.in / step;
    __nv_bfloat16 *to = out + (size_t)blockIdx.x * v.in;
    for (uint32_t i = threadIdx.x; is_here && i < steps * 4; i += THREADS) {
        place p;
        p.row = row, p.lane = row % CUDA_PACKED_TILE * 4 + i % 4;
        p.column = i / 4 * step + i % 4 * 2;
        p.number = ((size_t)(row / CUDA_PACKED_TILE) * steps + i / 4) * 32 + p.lane;
        unpack_lane(to, v, p);
    }
    for (uint32_t i = threadIdx.x; !is_here && i < v.in / 8; i += THREADS) {
        reinterpret_cast<uint4 *>(to)[i] = make_uint4(0, 0, 0, 0);
    }
}

unsigned blocks_for(uint32_t out, uint32_t in, uint32_t bits) {
    size_t threads = (size_t)out * in * bits / 8 / 16;
    return static_cast<unsigned>((threads + THREADS - 1) / THREADS);
}

} // namespace

extern "C" void cuda_packed_pack_launch(void *codes, const uint8_t *raw, uint32_t out, uint32_t in,
                                        uint32_t bits, cudaStream_t stream) {
    pack_kernel<<<blocks_for(out, in, bits), THREADS, 0, stream>>>(static_cast<uint4 *>(codes), raw,
                                                                   out, in, bits);
}

extern "C" void cuda_packed_unpack_launch(void *weight, const struct cuda_linear_view *view,
                                          cudaStream_t stream) {
    unpack_kernel<<<blocks_for(view->out, view->in, view->bits), THREADS, 0, stream>>>(
        static_cast<__nv_bfloat16 *>(weight), *view);
}

extern "C" void cuda_packed_embed_launch(const struct embed_args *args,
                                         const struct cuda_linear_view *table,
                                         cudaStream_t stream) {
    embed_kernel<<<args->step->num_tokens, THREADS, 0, stream>>>(
        static_cast<__nv_bfloat16 *>(args->out), *table, args->step->tokens, args->step->previous,
        args->vocab_start);
}
