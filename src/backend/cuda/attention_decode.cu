/* Decode attention over the paged cache: one query token per sequence, softmax(scale q K^T) V.
 *
 * Formula as FlashDecoding (Dao et al. 2023): positions are cut into pieces, each with its own
 * running maximum and sum (online softmax), pieces of one sequence are joined at the end.
 * attention_tile.cuh has what a warp does, decode_stream.cuh how its tiles come.
 *
 * decode_heads.cuh prepares q, k and v. Steps of few sequences are attention_few.cu's.
 *
 * Launch: a fixed number of blocks of 4 warps that take every n-th unit of the plan
 * (attention_plan.cu), so that a captured graph serves any lengths. The last block of a sequence in
 * pieces joins them in order. */
#include "backend/cuda/decode_stream.cuh"
#include "backend/cuda/launch.cuh"

namespace {

// Where the warps of a block meet.
struct meeting {
    float *values; // shared: [WARPS][queries of the unit][D]
    float *maxes, *sums; // shared: [WARPS][GROUP]
};

// What a block works on: one item for one group of queries.
struct decode_unit : heads_unit {
    int seq, length, piece; // of the item
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

template <int D>
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

// This warp's tiles of an item.
template <int D>
__device__ __forceinline__ void take_tiles(const decode_params &p, const decode_unit &u,
                                           const unit_heads<D> &heads, tile_stream<D> &stream,
                                           accumulator<D> &acc) {
    int warp = stream.warp, lane = stream.lane;
    int count = tiles_of(u.length, warp);
    bool is_mine = u.has_new && (u.length - 1) / TILE % WARPS == warp;
    uint32_t q[D / 16][2];
    heads.load_queries(q, lane);
    for (int i = 0; i < count; i++) {
        uint32_t tile = stream.oldest();
        int valid = u.length - (warp + i * WARPS) * TILE;
        uint32_t values = tile + tile_stream<D>::PART_BYTES;
        if (is_mine && i + 1 == count) {
            heads.patch(tile, 0, valid - 1, lane);
            heads.patch(values, 1, valid - 1, lane);
        }
        if (valid < TILE) zero_values<D>(values, valid, lane);
        take_tile<D>(acc, q, tile, valid, p.scale, lane);
        __syncwarp();
        stream.issue();
    }
}

template <int D> __global__ void __launch_bounds__(WARPS * 32) decode_kernel(decode_params p) {
    extern __shared__ __align__(128) char memory[];
    __shared__ float maxes[WARPS * GROUP], sums[WARPS * GROUP];
    __shared__ uint64_t barriers[WARPS * CUDA_DECODE_STAGES_MAX];
    if (!p.starts_early) wait_for_earlier();
    let_next_start();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int ring_bytes = p.stages * tile_stream<D>::TILE_BYTES;
    tile_stream<D> stream(p, shared_address(memory) + warp * ring_bytes,
                          shared_address(barriers + warp * CUDA_DECODE_STAGES_MAX), warp, lane);
    float *rope = reinterpret_cast<float *>(memory + WARPS * ring_bytes); // [D]
    auto &heads = *reinterpret_cast<unit_heads<D> *>(rope + D);
    static_assert(sizeof heads == CUDA_DECODE_HEADS_BYTES(D), "decode_shape.c");
    // Where the warps meet when the heads have been read: two blocks share a multiprocessor, and
    // one place has to do for both.
    meeting m = {rope + D, maxes, sums};
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
        take_tiles<D>(p, u, heads, stream, acc);
        __syncthreads();
        join_warps<D>(acc, m.values, m.maxes, m.sums, u.num_queries, warp, lane);
        __syncthreads();
        finish_unit<D>(p, u, m);
        if (!place.next(p, stream.num_units)) break;
        u = unit_at(p, place);
        stage_rope<D>(p, u, rope);
        __syncthreads(); // rope is there, and what the last item left has been read
    }
}

template <int D>
void launch(const decode_params &p, const cuda_decode_shape &shape, const cuda_device_info *info,
            cudaStream_t stream) {
    // The kernel's own arrays: they fill lines up, since what follows begins with one. The device
    // keeps 1,024 of each block.
    constexpr int ARRAYS = 2 * WARPS * GROUP * sizeof(float) + sizeof(int) +
                           WARPS * CUDA_DECODE_STAGES_MAX * sizeof(uint64_t);
    constexpr int LINES = (ARRAYS + 127) / 128 * 128;
    static_assert(LINES + 1024 <= CUDA_DECODE_RESERVED_BYTES, "too little");
    auto kernel = decode_kernel<D>;
    // Always as much: it is the process's and not the launch's, and two engines may launch at once.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         info->shared_bytes_max - CUDA_DECODE_RESERVED_BYTES);
    launch_dependent(kernel, dim3(shape.num_blocks), WARPS * 32, shape.shared_bytes, info, stream,
                     p);
}

decode_params params_of(const attention_args *args, const cuda_kv_view *kv,
                        const cuda_attention_plan *plan, const cuda_decode_shape &shape) {
    decode_params p = {};
    fill_heads_params(p, args, kv);
    p.block_tables = args->block_tables;
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.items = reinterpret_cast<const cuda_decode_item *>(plan->items);
    p.spans = plan->spans;
    p.counts = plan->counts;
    p.splits = plan->splits;
    p.arrived = plan->arrived;
    p.partial = plan->partial;
    p.groups = shape.groups;
    p.units_per_span = shape.units_per_span;
    p.stages = shape.stages;
    p.scale = args->scale * LOG2E;
    p.starts_early = args->prepare && plan->is_settled;
    return p;
}

} // namespace

extern "C" void cuda_attention_decode_launch(const struct attention_args *args,
                                             const struct cuda_kv_view *kv,
                                             const struct cuda_attention_plan *plan,
                                             const struct cuda_device_info *info,
                                             cudaStream_t stream) {
    if (cuda_attention_few_launch(args, kv, plan, info, stream)) return;
    cuda_decode_shape shape =
        cuda_decode_shape_of(info, args->num_heads, args->num_kv_heads, args->head_dim);
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
