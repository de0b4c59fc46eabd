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

// The first of D / 2 pairs of this lane is pair `lane`, then every 32nd.
template <int D> constexpr int PAIRS = (D / 2 + 31) / 32;

template <int D>
__device__ void write_cache(__nv_bfloat16 *row, int position, const float (&low)[PAIRS<D>],
                            const float (&high)[PAIRS<D>], int lane) {
    for (int i = 0; i < PAIRS<D>; i++) {
        int d = lane + i * 32, e = d + D / 2;
        if (d >= D / 2) break;
        row[swizzle<D>(position, d / 8) * 8 + d % 8] = __float2bfloat16(low[i]);
        row[swizzle<D>(position, e / 8) * 8 + e % 8] = __float2bfloat16(high[i]);
    }
}

template <int D> __global__ void __launch_bounds__(WARPS * 32) prepare_kernel(prepare_params p) {
    let_next_start();
    wait_for_earlier();
    int lane = threadIdx.x % 32, token = blockIdx.x;
    int head = blockIdx.y * WARPS + threadIdx.x / 32;
    int heads = p.num_heads + 2 * p.num_kv_heads;
    if (head >= heads) return;
    __nv_bfloat16 *row = p.qkv + ((size_t)token * heads + head) * D;
    float low[PAIRS<D>], high[PAIRS<D>], sum = 0;
#pragma unroll
    for (int i = 0; i < PAIRS<D>; i++) {
        int d = lane + i * 32;
        bool inside = d < D / 2;
        low[i] = inside ? __bfloat162float(row[d]) : 0.0f;
        high[i] = inside ? __bfloat162float(row[d + D / 2]) : 0.0f;
        sum += low[i] * low[i] + high[i] * high[i];
    }
    int slot = p.slot_mapping[token];
    bool is_query = head < p.num_heads, is_value = head >= p.num_heads + p.num_kv_heads;
    if (is_value) {
        if (slot < 0) return;
        int kv_head = head - p.num_heads - p.num_kv_heads;
        return write_cache<D>(cache_row<D>(p, p.values, slot, kv_head), slot % p.block_size, low,
                              high, lane);
    }
    const float *norm = is_query ? p.q_norm : p.k_norm;
    if (norm) {
        float scale = rsqrtf(warp_sum(sum) / D + p.eps);
#pragma unroll
        for (int i = 0; i < PAIRS<D>; i++) {
            int d = lane + i * 32;
            if (d >= D / 2) break;
            low[i] *= scale * norm[d];
            high[i] *= scale * norm[d + D / 2];
        }
    }
    const float *rope = p.rope + (size_t)p.positions[token] * D;
#pragma unroll
    for (int i = 0; i < PAIRS<D>; i++) {
        int d = lane + i * 32;
        if (d >= D / 2) break;
        float c = rope[d], s = rope[d + D / 2], a = low[i], b = high[i];
        low[i] = a * c - b * s;
        high[i] = b * c + a * s;
        if (!is_query) continue;
        row[d] = __float2bfloat16(low[i]);
        row[d + D / 2] = __float2bfloat16(high[i]);
    }
    if (is_query || slot < 0) return;
    write_cache<D>(cache_row<D>(p, p.keys, slot, head - p.num_heads), slot % p.block_size, low,
                   high, lane);
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
