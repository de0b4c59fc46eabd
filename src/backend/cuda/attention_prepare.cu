/* Between the qkv projection and attention, in one pass: RMS norm of every q and k head where the
 * family has it, rotary embedding in half-split form (Su et al. 2021; dims d and d + head_dim / 2
 * turn together), q back in place, k and v into the paged cache at slot_mapping.
 * Bytes: 2 x num_tokens x (num_heads + 2 num_kv_heads) x head_dim x 2. Launch: a warp per head. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 4;

struct prepare_params {
    __nv_bfloat16 *qkv, *keys, *values;
    const float *q_norm, *k_norm, *rope;
    const int32_t *positions, *slot_mapping;
    int num_heads, num_kv_heads, num_tokens, block_size;
    float eps;
};

template <int D>
__device__ __nv_bfloat16 *cache_row(const prepare_params &p, __nv_bfloat16 *cache, int slot,
                                    int kv_head) {
    int block = slot / p.block_size, position = slot % p.block_size;
    return cache + (((size_t)block * p.num_kv_heads + kv_head) * p.block_size + position) * D;
}

// Each lane has elements next to each other, W of them, from the first half of the head and the same
// from the second half: they turn together.
template <int D> struct lane_share {
    static constexpr int W = D >= 256 ? 4 : D >= 128 ? 2 : 1;
    static constexpr int LANES = D / 2 / W; // D = 96: 48 lanes of work for 32, in two turns
    static constexpr int TURNS = (LANES + 31) / 32;
};

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

// Element d of position p in its row of the cache; W of them stay together, within 8.
template <int D> __device__ __forceinline__ int cache_element(int p, int d) {
    return swizzle<D>(p, d / 8) * 8 + d % 8;
}

template <int D> __global__ void __launch_bounds__(WARPS * 32) prepare_kernel(prepare_params p) {
    constexpr int W = lane_share<D>::W, TURNS = lane_share<D>::TURNS;
    let_next_start();
    wait_for_earlier();
    int lane = threadIdx.x % 32, token = blockIdx.x;
    int head = blockIdx.y * WARPS + threadIdx.x / 32;
    int heads = p.num_heads + 2 * p.num_kv_heads;
    if (head >= heads) return;
    __nv_bfloat16 *row = p.qkv + ((size_t)token * heads + head) * D;
    elements<W> low[TURNS], high[TURNS];
    float sum = 0;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int d = (t * 32 + lane) * W;
        if (d >= D / 2) break;
        low[t] = load_bf16<W>(row + d);
        high[t] = load_bf16<W>(row + d + D / 2);
#pragma unroll
        for (int i = 0; i < W; i++) {
            sum += low[t].v[i] * low[t].v[i] + high[t].v[i] * high[t].v[i];
        }
    }
    int slot = p.slot_mapping[token], place = slot % p.block_size;
    bool is_query = head < p.num_heads, is_value = head >= p.num_heads + p.num_kv_heads;
    if (!is_query && slot < 0) return;
    const float *norm = is_query ? p.q_norm : p.k_norm;
    if (is_value) norm = nullptr;
    float scale = norm ? rsqrtf(warp_sum(sum) / D + p.eps) : 1.0f;
    const float *rope = p.rope + (size_t)p.positions[token] * D;
    __nv_bfloat16 *to = row;
    if (is_value) {
        to = cache_row<D>(p, p.values, slot, head - p.num_heads - p.num_kv_heads);
    } else if (!is_query) {
        to = cache_row<D>(p, p.keys, slot, head - p.num_heads);
    }
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int d = (t * 32 + lane) * W, e = d + D / 2;
        if (d >= D / 2) break;
#pragma unroll
        for (int i = 0; i < W; i++) {
            if (is_value) break;
            float a = low[t].v[i], b = high[t].v[i];
            if (norm) a *= scale * norm[d + i], b *= scale * norm[e + i];
            float c = rope[d + i], s = rope[e + i];
            low[t].v[i] = a * c - b * s;
            high[t].v[i] = b * c + a * s;
        }
        store_bf16<W>(to + (is_query ? d : cache_element<D>(place, d)), low[t]);
        store_bf16<W>(to + (is_query ? e : cache_element<D>(place, e)), high[t]);
    }
}

} // namespace

extern "C" void cuda_attention_prepare_launch(const struct attention_prepare_args *args,
                                              const struct cuda_kv_view *kv,
                                              const struct cuda_device_info *info,
                                              cudaStream_t stream) {
    prepare_params p = {};
    p.qkv = static_cast<__nv_bfloat16 *>(args->qkv);
    p.keys = static_cast<__nv_bfloat16 *>(kv->keys);
    p.values = static_cast<__nv_bfloat16 *>(kv->values);
    p.q_norm = args->q_norm;
    p.k_norm = args->k_norm;
    p.rope = args->rope;
    p.positions = args->positions;
    p.slot_mapping = args->slot_mapping;
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.num_tokens = static_cast<int>(args->num_tokens);
    p.block_size = static_cast<int>(kv->block_size);
    p.eps = args->eps;
    unsigned heads = args->num_heads + 2 * args->num_kv_heads;
    dim3 grid(args->num_tokens, (heads + WARPS - 1) / WARPS);
    switch (args->head_dim) {
    case 32:
        launch_dependent(prepare_kernel<32>, grid, WARPS * 32, 0, info, stream, p);
        break;
    case 64:
        launch_dependent(prepare_kernel<64>, grid, WARPS * 32, 0, info, stream, p);
        break;
    case 96:
        launch_dependent(prepare_kernel<96>, grid, WARPS * 32, 0, info, stream, p);
        break;
    case 128:
        launch_dependent(prepare_kernel<128>, grid, WARPS * 32, 0, info, stream, p);
        break;
    default:
        launch_dependent(prepare_kernel<256>, grid, WARPS * 32, 0, info, stream, p);
        break;
    }
}
