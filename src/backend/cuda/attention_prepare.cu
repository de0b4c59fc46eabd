/* Between the qkv projection and attention, in one pass: RMS norm of every q and k head where the
 * family has it, rotary embedding (head_share.cuh), q back in place, k and v into the paged cache
 * at slot_mapping. Where all tokens are decodes, attention does it (attention_decode.cu).
 * Bytes: 2 x num_tokens x (num_heads + 2 num_kv_heads) x head_dim x 2. Launch: a warp per head. */
#include "backend/cuda/head_share.cuh"
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

template <int D> __global__ void __launch_bounds__(WARPS * 32) prepare_kernel(prepare_params p) {
    let_next_start();
    wait_for_earlier();
    int lane = threadIdx.x % 32, token = blockIdx.x;
    int head = blockIdx.y * WARPS + threadIdx.x / 32;
    int heads = p.num_heads + 2 * p.num_kv_heads;
    if (head >= heads) return;
    __nv_bfloat16 *row = p.qkv + ((size_t)token * heads + head) * D;
    int slot = p.slot_mapping[token], place = slot % p.block_size;
    bool is_query = head < p.num_heads, is_value = head >= p.num_heads + p.num_kv_heads;
    if (!is_query && slot < 0) return;
    head_share<D> share;
    share.load(row, lane);
    if (!is_value) {
        share.prepare(is_query ? p.q_norm : p.k_norm, p.eps,
                      p.rope + (size_t)p.positions[token] * D, lane);
    }
    if (is_query) {
        share.store(row, lane);
    } else if (is_value) {
        int kv_head = head - p.num_heads - p.num_kv_heads;
        share.store_swizzled(cache_row<D>(p, p.values, slot, kv_head), place, lane);
    } else {
        share.store_swizzled(cache_row<D>(p, p.keys, slot, head - p.num_heads), place, lane);
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
