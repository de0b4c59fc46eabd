/* Decode attention over the paged cache: one query token per sequence, softmax(scale q K^T) V.
 *
 * Formula as FlashDecoding (Dao et al. 2023): positions are cut into pieces, each with its own
 * running maximum and sum (online softmax), pieces of one sequence are joined at the end.
 * attention_tile.cuh has what a warp does.
 *
 * Launch: one block of 4 warps, or of 8 where there are few sequences, per work unit (item of the
 * plan x kv head), a fixed number of blocks that take every n-th unit, so that a captured graph
 * serves any lengths. Each warp streams tiles of 16 positions through a ring of its own in shared
 * memory by cp.async; no warp waits for another until the piece is done. The last block of a split
 * sequence joins its pieces in order. */
#include "backend/cuda/attention_tile.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

struct decode_params {
    const __nv_bfloat16 *qkv;
    const __nv_bfloat16 *keys, *values;
    const int32_t *query_start, *block_tables;
    __nv_bfloat16 *out;
    const int32_t *items, *counts;
    int32_t *splits;
    int32_t *arrived; // [max_seqs][num_kv_heads], all 0 between launches
    float *partial;
    int num_heads, num_kv_heads, block_size, qkv_stride, stages;
    float scale; // times log2(e)
};

// The pieces of one sequence and kv head, in order; run by the block that came last.
template <int HEAD_DIM>
__device__ void join_pieces(const decode_params &p, int seq, int kv_head, int first_head,
                            int num_queries, __nv_bfloat16 *out) {
    int first = p.splits[seq * 2], count = p.splits[seq * 2 + 1];
    constexpr int STRIDE = HEAD_DIM + 2;
    for (int i = threadIdx.x; i < num_queries * HEAD_DIM; i += blockDim.x) {
        int query = i / HEAD_DIM, dim = i % HEAD_DIM;
        const float *piece =
            p.partial + ((size_t)first * p.num_heads + first_head + query) * STRIDE;
        size_t step = (size_t)p.num_heads * STRIDE;
        float max = -INFINITY;
        for (int j = 0; j < count; j++) max = fmaxf(max, __ldcg(&piece[j * step + HEAD_DIM]));
        float sum = 0, value = 0;
        for (int j = 0; j < count; j++) {
            float weight = exp2f(__ldcg(&piece[j * step + HEAD_DIM]) - max);
            sum += weight * __ldcg(&piece[j * step + HEAD_DIM + 1]);
            value += weight * __ldcg(&piece[j * step + dim]);
        }
        out[query * HEAD_DIM + dim] = __float2bfloat16(value / sum);
    }
}

template <int HEAD_DIM, int WARPS>
__device__ void finish_unit(const decode_params &p, const float *shared, const float *maxes,
                            const float *sums, int seq, int slot, int kv_head, int first_head,
                            int num_queries, __nv_bfloat16 *out) {
    for (int i = threadIdx.x; i < num_queries * HEAD_DIM; i += blockDim.x) {
        int query = i / HEAD_DIM, dim = i % HEAD_DIM;
        float max = maxes[query];
        for (int w = 1; w < WARPS; w++) max = fmaxf(max, maxes[w * GROUP + query]);
        float sum = 0, value = 0;
        for (int w = 0; w < WARPS; w++) {
            float weight = exp2f(maxes[w * GROUP + query] - max);
            sum += weight * sums[w * GROUP + query];
            value += weight * shared[(w * GROUP + query) * HEAD_DIM + dim];
        }
        if (slot < 0) {
            out[query * HEAD_DIM + dim] = __float2bfloat16(value / sum);
            continue;
        }
        float *piece =
            p.partial + ((size_t)slot * p.num_heads + first_head + query) * (HEAD_DIM + 2);
        piece[dim] = value;
        if (dim == 0) {
            piece[HEAD_DIM] = max;
            piece[HEAD_DIM + 1] = sum;
        }
    }
    if (slot < 0) return;
    __shared__ int is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int *counter = &p.arrived[(size_t)seq * p.num_heads + first_head];
        is_last = atomicAdd(counter, 1) == p.splits[seq * 2 + 1] - 1;
        if (is_last) *counter = 0; // ready for the next layer
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    join_pieces<HEAD_DIM>(p, seq, kv_head, first_head, num_queries, out);
}

template <int HEAD_DIM, int WARPS>
__global__ void __launch_bounds__(WARPS * 32) decode_kernel(decode_params p) {
    let_next_start();
    wait_for_earlier();
    extern __shared__ __align__(128) char memory[];
    __shared__ float maxes[WARPS * GROUP], sums[WARPS * GROUP];
    constexpr int TILE_BYTES = 2 * TILE * HEAD_DIM * 2;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t ring = shared_address(memory) + warp * p.stages * TILE_BYTES;
    int group = p.num_heads / p.num_kv_heads;
    int groups = (group + GROUP - 1) / GROUP; // more than 8 queries go in several units
    int num_units = p.counts[0] * p.num_kv_heads * groups;
    for (int unit = blockIdx.x; unit < num_units; unit += gridDim.x) {
        int item = unit / (p.num_kv_heads * groups), rest = unit % (p.num_kv_heads * groups);
        int kv_head = rest / groups, first = rest % groups * GROUP;
        int num_queries = min(group - first, GROUP), first_head = kv_head * group + first;
        int4 work = reinterpret_cast<const int4 *>(p.items)[item]; // sequence, start, stop, slot
        int token = p.query_start[work.x];
        const __nv_bfloat16 *query = p.qkv + (size_t)token * p.qkv_stride + first_head * HEAD_DIM;
        uint32_t q[HEAD_DIM / 16][2];
        load_queries<HEAD_DIM>(q, query, num_queries, lane);
        accumulator<HEAD_DIM> acc = {};
        acc.max[0] = acc.max[1] = -1e30f; // finite: a warp without tiles weighs nothing, not NaN
        tile_walk<HEAD_DIM, WARPS> walk = {};
        walk.range = {p.keys,  p.values,       p.block_tables + (size_t)work.x * p.counts[2],
                      kv_head, p.num_kv_heads, p.block_size,
                      work.y,  work.z};
        walk.ring = ring, walk.stages = p.stages, walk.warp = warp, walk.lane = lane;
        walk.start();
        walk.finish(acc, q, p.scale);
        __syncthreads(); // the ring becomes the place where the warps meet
        float *shared = reinterpret_cast<float *>(memory);
        join_warps<HEAD_DIM>(acc, shared, maxes, sums, warp, lane);
        __syncthreads();
        __nv_bfloat16 *out = p.out + ((size_t)token * p.num_heads + first_head) * HEAD_DIM;
        finish_unit<HEAD_DIM, WARPS>(p, shared, maxes, sums, work.x, work.w, kv_head, first_head,
                                     num_queries, out);
        __syncthreads();
    }
}

template <int HEAD_DIM, int WARPS>
void launch_warps(decode_params p, const cuda_device_info *info, cudaStream_t stream) {
    constexpr int TILE_BYTES = 2 * TILE * HEAD_DIM * 2;
    constexpr int BLOCKS = 8 / WARPS; // that are to run on a multiprocessor at once
    int stages = 4;
    while (stages > 2 && BLOCKS * stages * WARPS * TILE_BYTES > info->shared_bytes_max) stages--;
    int bytes = stages * WARPS * TILE_BYTES;
    int joined = WARPS * GROUP * HEAD_DIM * static_cast<int>(sizeof(float));
    if (bytes < joined) bytes = joined;
    p.stages = stages;
    auto kernel = decode_kernel<HEAD_DIM, WARPS>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int blocks_per_sm = 1;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, kernel, WARPS * 32,
                                                  static_cast<size_t>(bytes));
    int blocks = info->num_sms * (blocks_per_sm > 0 ? blocks_per_sm : 1);
    launch_dependent(kernel, dim3(blocks), WARPS * 32, bytes, info, stream, p);
}

template <int HEAD_DIM>
void launch(const decode_params &p, bool is_few, const cuda_device_info *info,
            cudaStream_t stream) {
    // A block for every sequence and head at once: more warps each, and nothing to be joined later.
    if (is_few && 2 * 8 * 2 * TILE * HEAD_DIM * 2 <= info->shared_bytes_max) {
        launch_warps<HEAD_DIM, 8>(p, info, stream);
    } else {
        launch_warps<HEAD_DIM, 4>(p, info, stream);
    }
}

} // namespace

extern "C" void cuda_attention_decode_launch(const struct attention_args *args,
                                             const struct cuda_kv_view *kv,
                                             const struct cuda_attention_plan *plan,
                                             const struct cuda_device_info *info,
                                             cudaStream_t stream) {
    decode_params p = {};
    p.qkv = static_cast<const __nv_bfloat16 *>(args->qkv);
    p.keys = static_cast<const __nv_bfloat16 *>(kv->keys);
    p.values = static_cast<const __nv_bfloat16 *>(kv->values);
    p.query_start = args->query_start;
    p.block_tables = args->block_tables;
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.items = plan->items;
    p.counts = plan->counts;
    p.splits = plan->splits;
    p.arrived = plan->arrived;
    p.partial = plan->partial;
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.block_size = static_cast<int>(kv->block_size);
    p.qkv_stride = static_cast<int>((args->num_heads + 2 * args->num_kv_heads) * args->head_dim);
    p.scale = args->scale * LOG2E;
    bool is_few = cuda_attention_is_few(info, args->num_seqs, args->num_kv_heads);
    switch (args->head_dim) {
    case 32:
        return launch<32>(p, is_few, info, stream);
    case 64:
        return launch<64>(p, is_few, info, stream);
    case 96:
        return launch<96>(p, is_few, info, stream);
    case 128:
        return launch<128>(p, is_few, info, stream);
    default:
        return launch<256>(p, is_few, info, stream);
    }
}
