/* The work between the qkv projection and attention, in one pass: RMS norm of every q and k head if
 * the model has one, before or behind the rotary embedding (attention/head_lanes.cuh), q stored
 * back in place, k and v stored into the paged cache at slot_mapping. Where the cache has them
 * (reads_kv), a row has q alone. In steps of decodes alone, and in steps with drafts that have few
 * rows, attention itself does this.
 *
 * Bytes: 2 x num_tokens x (num_heads + 2 num_kv_heads) x head_dim x 2. Launch: a block per token. A
 * lane holds 8 elements of each half of a head, and loads two heads at a time. */
#include "backend/cuda/attention/head_lanes.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int TURNS = 2; // heads that a lane loads at a time
constexpr int WARPS_MAX = 32;

struct prepare_params {
    __nv_bfloat16 *qkv, *keys, *values;
    const float *q_norm, *k_norm, *rope, *q_rope;
    const int32_t *positions, *slot_mapping;
    int num_heads, num_kv_heads, row_heads, num_tokens, block_size;
    uint32_t block_chunks; // as in cuda_kv_view
    float eps;
    bool has_norm_after_rope;
    kv_codec codec; // for kernels with CODES
};

template <int D>
__device__ __nv_bfloat16 *cache_row(const prepare_params &p, __nv_bfloat16 *cache, int slot,
                                    int kv_head) {
    int block = slot / p.block_size, position = slot % p.block_size;
    return of_step(cache) + block_start(block, p.block_chunks) +
           (size_t)(kv_head * p.block_size + position) * D;
}

// Stores q back to qkv, k and v to the cache.
template <int D>
__device__ __forceinline__ void store(const prepare_params &p, const half_pair<D> &h,
                                      __nv_bfloat16 *row, int head, int slot, int chunk) {
    if (head < p.num_heads) return h.store(row, chunk);
    if (slot < 0) return;
    int kv_head = head - p.num_heads;
    bool is_value = kv_head >= p.num_kv_heads;
    row = cache_row<D>(p, is_value ? p.values : p.keys, slot,
                       is_value ? kv_head - p.num_kv_heads : kv_head);
    h.store_swizzled(row, slot % p.block_size, chunk);
}

template <int D>
__device__ __forceinline__ void store_codes(const prepare_params &p, const half_codes<D> &codes,
                                            int head, int slot, int chunk) {
    if (slot < 0) return;
    int kv_head = head - p.num_heads;
    bool is_value = kv_head >= p.num_kv_heads;
    if (is_value) kv_head -= p.num_kv_heads;
    codes.store(code_row_of<D>(of_step(is_value ? p.values : p.keys), slot, p.block_size,
                               p.block_chunks, kv_head),
                chunk);
}

template <int D, bool CODES>
__global__ void __launch_bounds__(WARPS_MAX * 32) prepare_kernel(prepare_params p) {
    using shape = head_lanes<D>;
    let_next_start();
    wait_for_earlier();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int token = blockIdx.x, chunk = lane % shape::WIDTH, heads = p.row_heads;
    int slot = of_step(p.slot_mapping)[token];
    size_t angles = (size_t)of_step(p.positions)[token] * D;
    for (int start = warp * shape::HEADS; start < heads; start += TURNS * warps * shape::HEADS) {
        half_pair<D> h[TURNS] = {};
        __nv_bfloat16 *row[TURNS];
        int head[TURNS];
        bool has_work[TURNS];
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            head[t] = start + t * warps * shape::HEADS + lane / shape::WIDTH;
            has_work[t] = head[t] < heads && chunk < shape::LANES;
            row[t] = of_step(p.qkv) + ((size_t)token * heads + head[t]) * D;
            if (has_work[t]) h[t].load(row[t], chunk);
        }
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            half_pair<D> turned = h[t];
            bool is_query = head[t] < p.num_heads;
            normalize_and_rotate(turned, is_query ? p.q_norm : p.k_norm, p.eps,
                                 (is_query ? p.q_rope : p.rope) + angles, chunk,
                                 p.has_norm_after_rope);
            if (head[t] < p.num_heads + p.num_kv_heads) h[t] = turned;
            int end = start + (t * warps + 1) * shape::HEADS; // of the warp's heads of this turn
            if (CODES && end > p.num_heads) {
                half_codes<D> codes(p.codec, h[t]);
                if (has_work[t] && !is_query) {
                    store_codes<D>(p, codes, head[t], slot, chunk);
                    continue;
                }
            }
            if (has_work[t]) store<D>(p, h[t], row[t], head[t], slot, chunk);
        }
    }
}

// Uses as many warps as handle all heads in one pass.
template <int D>
void launch(const prepare_params &p, bool has_codes, const cuda_device_info *info,
            cudaStream_t stream) {
    int per_warp = head_lanes<D>::HEADS * TURNS, warps = (p.row_heads + per_warp - 1) / per_warp;
    auto kernel = prepare_kernel<D, false>;
    if constexpr (D % 32 == 0) { // the heads of caches of codes: kernel_table.c
        if (has_codes) kernel = prepare_kernel<D, true>;
    }
    launch_dependent(kernel, dim3(static_cast<unsigned>(p.num_tokens)),
                     static_cast<unsigned>((warps < WARPS_MAX ? warps : WARPS_MAX) * 32), 0, info,
                     stream, p);
}

} // namespace

extern "C" void cuda_attention_prepare_launch(const struct attention_args *args,
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
    p.q_rope = attention_q_rope(args);
    p.positions = args->step->positions;
    p.slot_mapping = step_slots(args->step, args->kv_group);
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.row_heads = static_cast<int>(attention_row_heads(args));
    p.num_tokens = static_cast<int>(args->step->num_tokens);
    p.block_size = static_cast<int>(kv->block_size);
    p.block_chunks = kv->block_chunks;
    p.eps = args->eps;
    p.has_norm_after_rope = args->has_norm_after_rope;
    p.codec = kv_codec_of(kv->dtype);
    bool has_codes = cuda_kv_has_codes(kv->dtype);
    switch (args->head_dim) {
    case 32:
        return launch<32>(p, has_codes, info, stream);
    case 64:
        return launch<64>(p, has_codes, info, stream);
    case 80:
        return launch<80>(p, has_codes, info, stream);
    case 96:
        return launch<96>(p, has_codes, info, stream);
    case 128:
        return launch<128>(p, has_codes, info, stream);
    case 160:
        return launch<160>(p, has_codes, info, stream);
    case 256:
        return launch<256>(p, has_codes, info, stream);
    default:
        return launch<512>(p, has_codes, info, stream);
    }
}
