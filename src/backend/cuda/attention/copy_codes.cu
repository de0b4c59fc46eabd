/* A layer's keys and values of the step's prompts, from 8-bit codes (attention/kv_codes.cuh) to
 * bf16:
 *
 *   copy = bf16(code * scale)
 *
 * attention/prefill_sm90.cu reads each position once for every 64 queries and two heads, and its
 * warps convert codes more slowly than the others multiply. So codes of longer prompts are
 * converted once, to the very numbers that its warps make. attention/plan.cu deals out the copy's
 * blocks of 128 positions, and attention.c decides when a copy pays.
 *
 * Positions before all windows become 0: their blocks in the cache may be gone. Those behind a
 * sequence's end are left as they are.
 *
 * Bytes: 3 x positions x kv heads x head_dim x 2. Launch: a block per 128 positions of a kv head,
 * for keys and for values. A warp has 16 positions, a lane 8 codes at a time. H200: 16,384
 * positions of 8 heads of 128 take 30 us, 3.4 TB/s. */
#include "backend/cuda/attention/kv_codes.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = CUDA_KV_COPY_BLOCK / 16;

struct copy_params {
    const char *keys, *values; // of the layer
    uint4 *key_copy, *value_copy;
    const int4 *list;
    const int32_t *counts, *block_tables;
    int num_kv_heads, block_size;
    pair_bits bits;
};

template <int D> __global__ void __launch_bounds__(WARPS * 32) copy_codes_kernel(copy_params p) {
    constexpr int CHUNKS = D / 8, TURNS = 16 * CHUNKS / 32; // chunks of a row of bf16
    let_next_start();
    wait_for_earlier();
    if (static_cast<int>(blockIdx.x) >= of_step(p.counts)[4]) return;
    int4 place = of_step(p.list)[blockIdx.x]; // in the tables, first position, context, first seen
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, kv_head = blockIdx.y;
    int position = place.y + warp * 16;
    if (position >= place.z) return;
    size_t row = ((size_t)blockIdx.x * p.num_kv_heads + kv_head) * CUDA_KV_COPY_BLOCK + warp * 16;
    uint4 *to = of_step(blockIdx.z ? p.value_copy : p.key_copy) + row * CHUNKS;
    if (position + 16 <= place.w) {
#pragma unroll
        for (int t = 0; t < TURNS; t++) to[t * 32 + lane] = make_uint4(0, 0, 0, 0);
        return;
    }
    int block = of_step(p.block_tables)[place.x + position / p.block_size];
    int tile =
        (block * p.num_kv_heads + kv_head) * (p.block_size / 16) + position % p.block_size / 16;
    const char *from =
        of_step(blockIdx.z ? p.values : p.keys) + (size_t)tile * KV_TILE_BYTES<D, true>;
    uint32_t scale = reinterpret_cast<const uint32_t *>(from + KV_SCALES_AT<D>)[lane % 16];
    uint2 codes[TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        codes[t] = reinterpret_cast<const uint2 *>(from)[t * 32 + lane];
    }
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int r = (t * 32 + lane) / CHUNKS, half = (t * 32 + lane) % CHUNKS; // of 16 codes
        uint32_t pair = scale_pair(__shfl_sync(FULL_WARP, scale, r));
        uint2 a = decoded_codes(p.bits, codes[t].x, pair);
        uint2 b = decoded_codes(p.bits, codes[t].y, pair);
        int chunk = swizzle_codes<D>(r, half / 2) * 2 + half % 2;
        to[r * CHUNKS + (chunk ^ (r & 7))] = make_uint4(a.x, a.y, b.x, b.y);
    }
}

} // namespace

extern "C" void cuda_attention_copy_codes_launch(const struct attention_args *args,
                                                 const struct cuda_kv_view *kv,
                                                 const struct cuda_kv_view *copy,
                                                 const struct cuda_attention_plan *plan,
                                                 const struct cuda_device_info *info,
                                                 cudaStream_t stream) {
    copy_params p = {};
    p.keys = static_cast<const char *>(kv->keys);
    p.values = static_cast<const char *>(kv->values);
    p.key_copy = static_cast<uint4 *>(copy->keys);
    p.value_copy = static_cast<uint4 *>(copy->values);
    p.list = reinterpret_cast<const int4 *>(plan->copies);
    p.counts = plan->counts;
    p.block_tables = step_tables(args->step, args->kv_group);
    p.num_kv_heads = static_cast<int>(kv->num_kv_heads);
    p.block_size = static_cast<int>(kv->block_size);
    p.bits = kv_codec_of(kv->dtype).bits;
    dim3 grid(plan->num_copies, kv->num_kv_heads, 2);
    auto kernel = kv->head_dim == 64 ? copy_codes_kernel<64> : copy_codes_kernel<128>;
    launch_dependent(kernel, grid, WARPS * 32, 0, info, stream, p);
}
