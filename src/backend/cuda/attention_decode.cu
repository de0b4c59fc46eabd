/* Decode attention over the paged cache: one query token per sequence, softmax(scale q K^T) V.
 *
 * Formula as FlashDecoding (Dao et al. 2023): positions are cut into pieces, each with its own
 * running maximum and sum (online softmax), pieces of one sequence are joined at the end.
 * attention_tile.cuh has what a warp does, decode_stream.cuh how its tiles come.
 *
 * Where a step has nothing but decodes, q and the new token's k are normalised and rotated here, in
 * registers, and the new token's row takes the place of what its tile has there: a kernel less, and
 * what is cached is on its way while the projection in front still runs.
 *
 * Launch: a fixed number of blocks of 4 warps, or of 8 where there are few sequences, that take
 * every n-th unit of the plan (attention_plan.cu), so that a captured graph serves any lengths. The
 * last block of a sequence in pieces joins them in order. */
#include "backend/cuda/decode_stream.cuh"
#include "backend/cuda/head_share.cuh"
#include "backend/cuda/launch.cuh"

namespace {

// Where the warps of a block meet.
struct meeting {
    float *values; // shared: [WARPS][queries of the unit][D]
    float *maxes, *sums; // shared: [WARPS][GROUP]
};

// What a block works on: one item for one group of queries.
struct decode_unit {
    int seq, length, piece; // of the item
    int token, position, slot;
    int kv_head, first_head, num_queries;
    bool has_new; // of a step that is prepared here: the new token is among its positions
    bool writes_cache; // and this is the one unit of its kv head that keeps it
};

__device__ __forceinline__ decode_unit unit_at(const decode_params &p, const work_place &place) {
    decode_unit u = {};
    int group = p.num_heads / p.num_kv_heads, first = place.first_query(p);
    int4 range = load_range(p, place.item), token = load_token(p, place.item);
    u.seq = range.x, u.length = range.z - range.y, u.piece = range.w;
    u.token = token.x, u.position = token.y, u.slot = token.z;
    u.kv_head = place.kv_head(p);
    u.first_head = u.kv_head * group + first;
    u.num_queries = min(group - first, GROUP);
    u.has_new = p.prepares && token.w;
    u.writes_cache = u.has_new && first == 0 && u.slot >= 0;
    return u;
}

// The pieces of one sequence and group of queries, in order; run by the block that came last.
template <int D>
__device__ void join_pieces(const decode_params &p, const decode_unit &u, __nv_bfloat16 *out) {
    int first = p.splits[u.seq * 2], count = p.splits[u.seq * 2 + 1];
    constexpr int STRIDE = D + 2;
    for (int i = threadIdx.x; i < u.num_queries * D; i += blockDim.x) {
        int query = i / D, dim = i % D;
        const float *piece =
            p.partial + ((size_t)first * p.num_heads + u.first_head + query) * STRIDE;
        size_t step = (size_t)p.num_heads * STRIDE;
        float max = -INFINITY;
        for (int j = 0; j < count; j++) max = fmaxf(max, __ldcg(&piece[j * step + D]));
        float sum = 0, value = 0;
        for (int j = 0; j < count; j++) {
            float weight = exp2f(__ldcg(&piece[j * step + D]) - max);
            sum += weight * __ldcg(&piece[j * step + D + 1]);
            value += weight * __ldcg(&piece[j * step + dim]);
        }
        out[query * D + dim] = __float2bfloat16(value / sum);
    }
}

template <int D, int WARPS>
__device__ void finish_unit(const decode_params &p, const decode_unit &u, const meeting &m) {
    int slot = u.piece;
    __nv_bfloat16 *out = p.out + ((size_t)u.token * p.num_heads + u.first_head) * D;
    for (int i = threadIdx.x; i < u.num_queries * D; i += blockDim.x) {
        int query = i / D, dim = i % D;
        weighed mine = join_block<D, WARPS>(m.values, m.maxes, m.sums, u.num_queries, query, dim);
        if (slot < 0) {
            out[query * D + dim] = __float2bfloat16(mine.value / mine.sum);
            continue;
        }
        float *piece = p.partial + ((size_t)slot * p.num_heads + u.first_head + query) * (D + 2);
        piece[dim] = mine.value;
        if (dim == 0) {
            piece[D] = mine.max;
            piece[D + 1] = mine.sum;
        }
    }
    if (slot < 0) return;
    __shared__ int is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int *counter = &p.arrived[(size_t)u.seq * p.num_heads + u.first_head];
        is_last = atomicAdd(counter, 1) == p.splits[u.seq * 2 + 1] - 1;
        if (is_last) *counter = 0; // ready for the next layer
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    join_pieces<D>(p, u, out);
}

// The new token's key and value, of the warp that has the tile which they belong to.
template <int D> struct new_row {
    head_share<D> key, value;

    __device__ __forceinline__ void load(const decode_params &p, const decode_unit &u, int lane) {
        const __nv_bfloat16 *row =
            p.qkv + (size_t)u.token * p.qkv_stride + (size_t)(p.num_heads + u.kv_head) * D;
        key.load(row, lane);
        value.load(row + (size_t)p.num_kv_heads * D, lane);
    }

    // Into row `row` of a tile in shared memory, and into the cache.
    __device__ __forceinline__ void store(const decode_params &p, const decode_unit &u,
                                          uint32_t tile, int row, int lane) const {
        auto keys = static_cast<__nv_bfloat16 *>(__cvta_shared_to_generic(tile));
        key.store_swizzled(keys + row * D, row, lane);
        value.store_swizzled(keys + (TILE + row) * D, row, lane);
        __syncwarp();
        if (!u.writes_cache) return;
        int block, place;
        split_position(u.slot, p.block_size, &block, &place);
        size_t at = ((size_t)block * p.num_kv_heads + u.kv_head) * p.block_size + place;
        key.store_swizzled(p.keys + at * D, place, lane);
        value.store_swizzled(p.values + at * D, place, lane);
    }
};

// Norm and rotation of the queries as load_queries leaves them: a lane has both elements that turn
// together, and three others have the rest of its query.
template <int D>
__device__ __forceinline__ void prepare_queries(const decode_params &p, uint32_t (&q)[D / 16][2],
                                                const float *rope, int lane) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum += bf16_low(q[k][h]) * bf16_low(q[k][h]) + bf16_high(q[k][h]) * bf16_high(q[k][h]);
        }
    }
    sum += __shfl_xor_sync(FULL_WARP, sum, 1);
    sum += __shfl_xor_sync(FULL_WARP, sum, 2);
    float scale = rsqrtf(sum / D + p.eps);
#pragma unroll
    for (int k = 0; k < D / 32; k++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int d = k * 16 + h * 8 + lane % 4 * 2, e = d + D / 2;
            uint32_t &low = q[k][h], &high = q[k + D / 32][h];
            float2 a = {bf16_low(low), bf16_high(low)}, b = {bf16_low(high), bf16_high(high)};
            if (p.q_norm) {
                float2 m = *reinterpret_cast<const float2 *>(p.q_norm + d);
                float2 n = *reinterpret_cast<const float2 *>(p.q_norm + e);
                a = {a.x * (scale * m.x), a.y * (scale * m.y)};
                b = {b.x * (scale * n.x), b.y * (scale * n.y)};
            }
            float2 c = *reinterpret_cast<const float2 *>(rope + d);
            float2 s = *reinterpret_cast<const float2 *>(rope + e);
            low = pack_bf16(a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y);
            high = pack_bf16(b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y);
        }
    }
}

// By all threads: the row of the new token's position, at hand before its heads are there.
template <int D>
__device__ __forceinline__ void stage_rope(const decode_params &p, const decode_unit &u,
                                           float *rope) {
    if (!p.prepares) return;
    const float *row = p.rope + (size_t)u.position * D;
    for (int d = threadIdx.x; d < D; d += blockDim.x) rope[d] = row[d];
}

// This warp's tiles of an item.
template <int D, int WARPS>
__device__ __forceinline__ void take_tiles(const decode_params &p, const decode_unit &u,
                                           const float *rope, tile_stream<D, WARPS> &stream,
                                           accumulator<D> &acc) {
    int warp = stream.warp, lane = stream.lane;
    int count = tiles_of<WARPS>(u.length, warp);
    const __nv_bfloat16 *queries =
        p.qkv + (size_t)u.token * p.qkv_stride + (size_t)u.first_head * D;
    bool is_mine = u.has_new && (u.length - 1) / TILE % WARPS == warp;
    uint32_t q[D / 16][2];
    new_row<D> fresh = {};
    load_queries<D>(q, queries, u.num_queries, lane);
    if (is_mine) fresh.load(p, u, lane);
    if (p.prepares) prepare_queries<D>(p, q, rope, lane);
    if (is_mine) fresh.key.prepare(p.k_norm, p.eps, rope, lane);
    for (int i = 0; i < count; i++) {
        uint32_t tile = stream.oldest();
        int valid = u.length - (warp + i * WARPS) * TILE;
        if (is_mine && i + 1 == count) fresh.store(p, u, tile, valid - 1, lane);
        if (valid < TILE) zero_values<D>(tile, valid, lane);
        take_tile<D>(acc, q, tile, valid, p.scale, lane);
        __syncwarp();
        stream.issue();
    }
}

template <int D, int WARPS>
__global__ void __launch_bounds__(WARPS * 32) decode_kernel(decode_params p) {
    extern __shared__ __align__(128) char memory[];
    __shared__ float maxes[WARPS * GROUP], sums[WARPS * GROUP];
    if (!p.starts_early) wait_for_earlier();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int ring_bytes = p.stages * tile_stream<D, WARPS>::TILE_BYTES;
    tile_stream<D, WARPS> stream(p, shared_address(memory) + warp * ring_bytes, warp, lane);
    float *rope = reinterpret_cast<float *>(memory + WARPS * ring_bytes); // [D]
    meeting m = {rope + D, maxes, sums};
    work_place place = work_start();
    bool has_unit = place.next(p, stream.num_units);
    decode_unit u = {};
    if (has_unit) {
        u = unit_at(p, place);
        stage_rope<D>(p, u, rope);
    }
    prefetch_floats(p.q_norm, D, threadIdx.x);
    prefetch_floats(p.k_norm, D, threadIdx.x);
    if (p.starts_early) wait_for_earlier();
    // Not before the wait: the next layer's attention reads plan and cache before its own.
    let_next_start();
    while (has_unit) {
        __syncthreads(); // rope is there, and what the last item left has been read
        accumulator<D> acc = {};
        acc.max[0] = acc.max[1] = -1e30f; // finite: a warp without tiles weighs nothing, not NaN
        take_tiles<D, WARPS>(p, u, rope, stream, acc);
        join_warps<D>(acc, m.values, m.maxes, m.sums, u.num_queries, warp, lane);
        __syncthreads();
        finish_unit<D, WARPS>(p, u, m);
        has_unit = place.next(p, stream.num_units);
        if (!has_unit) break;
        u = unit_at(p, place);
        stage_rope<D>(p, u, rope);
    }
    copy_wait<0>();
}

template <int D, int WARPS>
void launch_warps(const decode_params &p, const cuda_decode_shape &shape,
                  const cuda_device_info *info, cudaStream_t stream) {
    // The kernel's own arrays: they fill lines up, since what follows begins with one. Of 8 warps one
    // block runs, which may have all but the arrays; of 4 two, and the device keeps 1,024 of each.
    constexpr int ARRAYS = 2 * WARPS * GROUP * sizeof(float) + sizeof(int);
    constexpr int LINES = (ARRAYS + 127) / 128 * 128;
    static_assert(LINES + (WARPS == 8 ? 0 : 1024) <= CUDA_DECODE_RESERVED_BYTES, "too little");
    auto kernel = decode_kernel<D, WARPS>;
    // Always as much: it is the process's and not the launch's, and two engines may launch at once.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         info->shared_bytes_max - CUDA_DECODE_RESERVED_BYTES);
    launch_dependent(kernel, dim3(shape.num_blocks), WARPS * 32, shape.shared_bytes, info, stream,
                     p);
}

template <int D>
void launch(const decode_params &p, const cuda_decode_shape &shape, const cuda_device_info *info,
            cudaStream_t stream) {
    if constexpr (D <= 128) {
        if (shape.warps == 8) return launch_warps<D, 8>(p, shape, info, stream);
    }
    launch_warps<D, 4>(p, shape, info, stream);
}

decode_params params_of(const attention_args *args, const cuda_kv_view *kv,
                        const cuda_attention_plan *plan, const cuda_decode_shape &shape) {
    decode_params p = {};
    p.qkv = static_cast<const __nv_bfloat16 *>(args->qkv);
    p.keys = static_cast<__nv_bfloat16 *>(kv->keys);
    p.values = static_cast<__nv_bfloat16 *>(kv->values);
    p.block_tables = args->block_tables;
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.items = reinterpret_cast<const cuda_decode_item *>(plan->items);
    p.spans = plan->spans;
    p.counts = plan->counts;
    p.splits = plan->splits;
    p.arrived = plan->arrived;
    p.partial = plan->partial;
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.block_size = static_cast<int>(kv->block_size);
    p.qkv_stride = static_cast<int>((args->num_heads + 2 * args->num_kv_heads) * args->head_dim);
    p.groups = shape.groups;
    p.units_per_span = shape.units_per_span;
    p.is_aligned = shape.is_aligned;
    p.stages = shape.stages;
    p.scale = args->scale * LOG2E;
    if (const attention_prepare_args *prepare = args->prepare) {
        p.prepares = true;
        p.q_norm = prepare->q_norm;
        p.k_norm = prepare->k_norm;
        p.rope = prepare->rope;
        p.eps = prepare->eps;
        p.starts_early = plan->is_settled;
    }
    return p;
}

} // namespace

extern "C" void cuda_attention_decode_launch(const struct attention_args *args,
                                             const struct cuda_kv_view *kv,
                                             const struct cuda_attention_plan *plan,
                                             const struct cuda_device_info *info,
                                             cudaStream_t stream) {
    cuda_decode_shape shape = cuda_decode_shape_of(info, args->num_seqs, args->num_heads,
                                                   args->num_kv_heads, args->head_dim);
    decode_params p = params_of(args, kv, plan, shape);
    switch (args->head_dim) {
    case 32:
        return launch<32>(p, shape, info, stream);
    case 64:
        return launch<64>(p, shape, info, stream);
    case 96:
        return launch<96>(p, shape, info, stream);
    case 128:
        return launch<128>(p, shape, info, stream);
    default:
        return launch<256>(p, shape, info, stream);
    }
}
