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
            float weight = exp2_fast(__ldcg(&piece[j * step + D]) - max);
            sum += weight * __ldcg(&piece[j * step + D + 1]);
            value += weight * __ldcg(&piece[j * step + dim]);
        }
        out[query * D + dim] = __float2bfloat16(__fdividef(value, sum));
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
            out[query * D + dim] = __float2bfloat16(__fdividef(mine.value, mine.sum));
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

// By all threads: the row of the new token's position, at hand before its heads are there.
template <int D>
__device__ __forceinline__ void stage_rope(const decode_params &p, const decode_unit &u,
                                           float *rope) {
    if (!p.prepares) return;
    const float *row = p.rope + (size_t)u.position * D;
    for (int d = threadIdx.x; d < D; d += blockDim.x) rope[d] = row[d];
}

// What a unit's warps have of the step, in shared memory: queries as the matrix instruction wants
// them, 8 rows whose 16-byte chunks of one column lie in 8 different banks; the new token's key and
// value.
template <int D> struct __align__(16) unit_heads {
    static constexpr int STRIDE = D + 8;
    __nv_bfloat16 queries[GROUP * STRIDE], fresh[2][D];

    // By all warps, a head each: norm and rotation where the step has them done here.
    template <int WARPS>
    __device__ __forceinline__ void prepare(const decode_params &p, const decode_unit &u,
                                            const float *rope, int warp, int lane) {
        const __nv_bfloat16 *heads = p.qkv + (size_t)u.token * p.qkv_stride;
        int num_tasks = u.num_queries + (u.has_new ? 2 : 0);
        for (int task = warp; task < num_tasks; task += WARPS) {
            int other = task - u.num_queries; // 0: key, 1: value
            int head =
                other < 0 ? u.first_head + task : p.num_heads + other * p.num_kv_heads + u.kv_head;
            head_share<D> one;
            one.load(heads + (size_t)head * D, lane);
            if (p.prepares && other < 1) {
                one.prepare(other < 0 ? p.q_norm : p.k_norm, p.eps, rope, lane);
            }
            one.store(other < 0 ? queries + task * STRIDE : fresh[other], lane);
            if (other >= 0 && u.writes_cache) keep(p, u, one, other, lane);
        }
    }

    // In the cache.
    __device__ __forceinline__ void keep(const decode_params &p, const decode_unit &u,
                                         const head_share<D> &one, int is_value, int lane) const {
        int block, place;
        split_position(u.slot, p.block_size, &block, &place);
        size_t at = ((size_t)block * p.num_kv_heads + u.kv_head) * p.block_size + place;
        one.store_swizzled((is_value ? p.values : p.keys) + at * D, place, lane);
    }

    __device__ __forceinline__ void load_queries(uint32_t(&q)[D / 16][2], int lane) const {
        uint32_t from = shared_address(queries) + lane % 8 * STRIDE * 2 + lane / 8 * 16;
#pragma unroll
        for (int k = 0; k < D / 16; k += 2) {
            uint32_t r[4];
            load_matrix4(r, from + k * 32);
            q[k][0] = r[0], q[k][1] = r[1], q[k + 1][0] = r[2], q[k + 1][1] = r[3];
        }
    }

    // The new token's key and value into row `row` of a tile.
    __device__ __forceinline__ void patch(uint32_t tile, int row, int lane) const {
        constexpr int CHUNKS = D / 8;
#pragma unroll
        for (int c = lane; c < 2 * CHUNKS; c += 32) {
            uint32_t to = tile + (c / CHUNKS * TILE + row) * D * 2;
            store_shared16(to + swizzle<D>(row, c % CHUNKS) * 16,
                           load_shared16(shared_address(fresh) + c * 16));
        }
        tile_stores_done();
    }
};

// This warp's tiles of an item.
template <int D, int WARPS>
__device__ __forceinline__ void take_tiles(const decode_params &p, const decode_unit &u,
                                           const unit_heads<D> &heads,
                                           tile_stream<D, WARPS> &stream, accumulator<D> &acc) {
    int warp = stream.warp, lane = stream.lane;
    int count = tiles_of<WARPS>(u.length, warp);
    bool is_mine = u.has_new && (u.length - 1) / TILE % WARPS == warp;
    uint32_t q[D / 16][2];
    heads.load_queries(q, lane);
    for (int i = 0; i < count; i++) {
        uint32_t tile = stream.oldest();
        int valid = u.length - (warp + i * WARPS) * TILE;
        if (is_mine && i + 1 == count) heads.patch(tile, valid - 1, lane);
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
    __shared__ uint64_t barriers[WARPS * CUDA_DECODE_STAGES_MAX];
    if (!p.starts_early) wait_for_earlier();
    let_next_start();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int ring_bytes = p.stages * tile_stream<D, WARPS>::TILE_BYTES;
    tile_stream<D, WARPS> stream(p, shared_address(memory) + warp * ring_bytes,
                                 shared_address(barriers + warp * CUDA_DECODE_STAGES_MAX), warp,
                                 lane);
    float *rope = reinterpret_cast<float *>(memory + WARPS * ring_bytes); // [D]
    auto &heads = *reinterpret_cast<unit_heads<D> *>(rope + D);
    static_assert(sizeof heads == CUDA_DECODE_HEADS_BYTES(D), "decode_shape.c");
    // Of many sequences two blocks share a multiprocessor, and one place has to do for both.
    constexpr bool SHARES_PLACE = WARPS == CUDA_DECODE_WARPS;
    meeting m = {SHARES_PLACE ? rope + D : reinterpret_cast<float *>(&heads + 1), maxes, sums};
    work_place place = work_start();
    if (!place.next(p, stream.num_units)) return;
    decode_unit u = unit_at(p, place);
    stage_rope<D>(p, u, rope);
    prefetch_floats(p.q_norm, D, threadIdx.x);
    prefetch_floats(p.k_norm, D, threadIdx.x);
    __syncthreads();
    if (p.starts_early) wait_for_earlier();
    for (;;) {
        heads.template prepare<WARPS>(p, u, rope, warp, lane);
        __syncthreads();
        accumulator<D> acc = {};
        acc.max[0] = acc.max[1] = -1e30f; // finite: a warp without tiles weighs nothing, not NaN
        take_tiles<D, WARPS>(p, u, heads, stream, acc);
        if (SHARES_PLACE) __syncthreads();
        join_warps<D>(acc, m.values, m.maxes, m.sums, u.num_queries, warp, lane);
        __syncthreads();
        finish_unit<D, WARPS>(p, u, m);
        if (!place.next(p, stream.num_units)) break;
        u = unit_at(p, place);
        stage_rope<D>(p, u, rope);
        __syncthreads(); // rope is there, and what the last item left has been read
    }
}

template <int D, int WARPS>
void launch_warps(const decode_params &p, const cuda_decode_shape &shape,
                  const cuda_device_info *info, cudaStream_t stream) {
    // The kernel's own arrays: they fill lines up, since what follows begins with one. Of 8 warps one
    // block runs, which may have all but the arrays; of 4 two, and the device keeps 1,024 of each.
    constexpr int ARRAYS = 2 * WARPS * GROUP * sizeof(float) + sizeof(int) +
                           WARPS * CUDA_DECODE_STAGES_MAX * sizeof(uint64_t);
    constexpr int LINES = (ARRAYS + 127) / 128 * 128;
    static_assert(LINES + (WARPS == CUDA_DECODE_FEW_WARPS ? 0 : 1024) <= CUDA_DECODE_RESERVED_BYTES,
                  "too little");
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
        if (shape.warps == CUDA_DECODE_FEW_WARPS) {
            return launch_warps<D, CUDA_DECODE_FEW_WARPS>(p, shape, info, stream);
        }
    }
    launch_warps<D, CUDA_DECODE_WARPS>(p, shape, info, stream);
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
