/* Decode attention over the paged cache: one query token per sequence, softmax(scale q K^T) V.
 *
 * Formula as FlashDecoding (Dao et al. 2023): positions are cut into pieces, each with its own running
 * maximum and sum (online softmax), pieces of one sequence are joined at the end. The queries of a
 * kv head's group are the 8 columns of the matrix instruction, positions its 16 rows: S^T = K Q^T,
 * then O^T = V^T P^T, so that a group of 1 to 8 costs the same and nothing but the group is padded.
 *
 * Launch: one block of 4 warps, or of 8 where there are few sequences, per work unit (item of the
 * plan x kv head), a fixed number of blocks that take every n-th unit, so that a captured graph serves any lengths. Each warp streams tiles
 * of 16 positions through a ring of its own in shared memory by cp.async; no warp waits for
 * another until the piece is done. The last block of a split sequence joins its pieces in order. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int TILE = 16, GROUP = 8;

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

template <int HEAD_DIM> struct accumulator {
    float o[HEAD_DIM / 16]
           [4]; // [dims][queries]: rows lane / 4 and + 8, columns lane % 4 * 2 and + 1
    float max[2], sum[2]; // of this lane's two queries; sum over this lane's positions only
};

// The blocks of this warp's next 32 tiles, one per lane.
template <int WARPS>
__device__ __forceinline__ int blocks_ahead(const int32_t *table, int start, int stop, int first,
                                            int block_size, int lane) {
    int position = start + (first + lane * WARPS) * TILE;
    return position < stop ? table[position / block_size] : 0;
}

template <int HEAD_DIM>
__device__ __forceinline__ void copy_tile(uint32_t shared, const __nv_bfloat16 *keys,
                                          const __nv_bfloat16 *values, int lane) {
    constexpr int CHUNKS = TILE * HEAD_DIM / 8; // a tile is contiguous in the cache
#pragma unroll
    for (int c = lane; c < CHUNKS; c += 32) {
        copy16_async(shared + c * 16, keys + c * 8);
        copy16_async(shared + (CHUNKS + c) * 16, values + c * 8);
    }
}

// Positions that hold nothing yet weigh 0, but 0 times another request's NaN would be NaN.
template <int HEAD_DIM> __device__ void zero_values(uint32_t shared, int valid, int lane) {
    constexpr int ROW_WORDS = HEAD_DIM / 2;
    uint32_t values = shared + TILE * HEAD_DIM * 2;
    for (int i = valid * ROW_WORDS + lane; i < TILE * ROW_WORDS; i += 32) {
        store_shared(values + i * 4, 0);
    }
    __syncwarp();
}

// One tile: scores, new maximum, weights, weighted values.
template <int HEAD_DIM>
__device__ __forceinline__ void take_tile(accumulator<HEAD_DIM> &acc,
                                          const uint32_t (&q)[HEAD_DIM / 16][2], uint32_t shared,
                                          int valid, float scale, int lane) {
    constexpr int ROW_BYTES = HEAD_DIM * 2;
    float s[4] = {0, 0, 0, 0};
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
        int row = lane % 16;
        uint32_t a[4];
        load_matrix4(a, shared + row * ROW_BYTES + swizzle<HEAD_DIM>(row, k * 2 + lane / 16) * 16);
        multiply(s, a, q[k][0], q[k][1]);
    }
    bool low = lane / 4 < valid, high = lane / 4 + 8 < valid;
    s[0] = low ? s[0] * scale : -INFINITY;
    s[1] = low ? s[1] * scale : -INFINITY;
    s[2] = high ? s[2] * scale : -INFINITY;
    s[3] = high ? s[3] * scale : -INFINITY;
    float p[4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float m = fmaxf(s[i], s[i + 2]);
        for (int offset = 4; offset < 32; offset <<= 1) {
            m = fmaxf(m, __shfl_xor_sync(FULL_WARP, m, offset));
        }
        m = fmaxf(m, acc.max[i]); // finite: the first position of a tile is valid
        float alpha = exp2f(acc.max[i] - m);
        acc.max[i] = m;
        p[i] = exp2f(s[i] - m);
        p[i + 2] = exp2f(s[i + 2] - m);
        acc.sum[i] = acc.sum[i] * alpha + p[i] + p[i + 2];
#pragma unroll
        for (int d = 0; d < HEAD_DIM / 16; d++) {
            acc.o[d][i] *= alpha;
            acc.o[d][i + 2] *= alpha;
        }
    }
    uint32_t b0 = transpose_matrix(pack_bf16(p[0], p[1]));
    uint32_t b1 = transpose_matrix(pack_bf16(p[2], p[3]));
    uint32_t values = shared + TILE * ROW_BYTES;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) {
        int row = (lane / 16) * 8 + lane % 8;
        uint32_t a[4];
        load_matrix4_transposed(a, values + row * ROW_BYTES +
                                       swizzle<HEAD_DIM>(row, d * 2 + (lane / 8) % 2) * 16);
        multiply(acc.o[d], a, b0, b1);
    }
}

// This warp's tiles of positions [start, stop).
template <int HEAD_DIM, int WARPS>
__device__ void run_warp(accumulator<HEAD_DIM> &acc, const uint32_t (&q)[HEAD_DIM / 16][2],
                         const decode_params &p, const int32_t *table, int kv_head, int start,
                         int stop, uint32_t ring, int warp, int lane) {
    constexpr int TILE_BYTES = 2 * TILE * HEAD_DIM * 2;
    int num_tiles = (stop - start + TILE - 1) / TILE;
    int mine = num_tiles > warp ? (num_tiles - warp + WARPS - 1) / WARPS : 0;
    int blocks = 0;
    auto issue = [&](int i) {
        if (i % 32 == 0) {
            blocks = blocks_ahead<WARPS>(table, start, stop, warp + i * WARPS, p.block_size, lane);
        }
        int block = __shfl_sync(FULL_WARP, blocks, i % 32);
        if (i < mine) {
            int position = start + (warp + i * WARPS) * TILE;
            size_t row =
                ((size_t)block * p.num_kv_heads + kv_head) * p.block_size + position % p.block_size;
            copy_tile<HEAD_DIM>(ring + i % p.stages * TILE_BYTES, p.keys + row * HEAD_DIM,
                                p.values + row * HEAD_DIM, lane);
        }
        copy_commit();
    };
    for (int i = 0; i < p.stages - 1; i++) issue(i);
    for (int i = 0; i < mine; i++) {
        issue(i + p.stages - 1);
        if (p.stages == 4) copy_wait<3>();
        if (p.stages == 3) copy_wait<2>();
        if (p.stages == 2) copy_wait<1>();
        __syncwarp();
        int first = start + (warp + i * WARPS) * TILE;
        if (stop - first < TILE) {
            zero_values<HEAD_DIM>(ring + i % p.stages * TILE_BYTES, stop - first, lane);
        }
        take_tile<HEAD_DIM>(acc, q, ring + i % p.stages * TILE_BYTES, stop - first, p.scale, lane);
        __syncwarp();
    }
    copy_wait<0>();
}

// Joins the four warps' results: out[query][dim] unnormalised, with max and sum, in shared memory.
template <int HEAD_DIM>
__device__ void join_warps(accumulator<HEAD_DIM> &acc, float *shared, float *maxes, float *sums,
                           int warp, int lane) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        for (int offset = 4; offset < 32; offset <<= 1) {
            acc.sum[i] += __shfl_xor_sync(FULL_WARP, acc.sum[i], offset);
        }
        if (lane < 4) {
            maxes[warp * GROUP + lane * 2 + i] = acc.max[i];
            sums[warp * GROUP + lane * 2 + i] = acc.sum[i];
        }
    }
    float *mine = shared + warp * GROUP * HEAD_DIM;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) {
        int dim = d * 16 + lane / 4, query = lane % 4 * 2;
        mine[query * HEAD_DIM + dim] = acc.o[d][0];
        mine[(query + 1) * HEAD_DIM + dim] = acc.o[d][1];
        mine[query * HEAD_DIM + dim + 8] = acc.o[d][2];
        mine[(query + 1) * HEAD_DIM + dim + 8] = acc.o[d][3];
    }
}

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
#pragma unroll
        for (int k = 0; k < HEAD_DIM / 16; k++) {
            const uint32_t *row =
                reinterpret_cast<const uint32_t *>(query + lane / 4 * HEAD_DIM + k * 16) + lane % 4;
            q[k][0] = lane / 4 < num_queries ? row[0] : 0;
            q[k][1] = lane / 4 < num_queries ? row[4] : 0;
        }
        accumulator<HEAD_DIM> acc = {};
        acc.max[0] = acc.max[1] = -1e30f; // finite: a warp without tiles weighs nothing, not NaN
        const int32_t *table = p.block_tables + (size_t)work.x * p.counts[2];
        run_warp<HEAD_DIM, WARPS>(acc, q, p, table, kv_head, work.y, work.z, ring, warp, lane);
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
