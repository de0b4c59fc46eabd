/* Decode attention over the paged cache: softmax(scale q K^T) V for one query token per sequence.
 *
 * The algorithm is FlashDecoding (Dao et al. 2023): positions are cut into splits, and each split
 * has its own running maximum and sum (online softmax). The splits of a sequence are joined at the
 * end. attention/decode_tile.cuh is a warp's work on a tile, attention/decode_copies.cuh copies the
 * tiles. A separate warp of the block prepares q, k and v (attention/decode_units.cuh,
 * attention/decode_heads.cuh). attention/decode_cluster.cu runs instead in steps of few sequences.
 *
 * Kernels with EXTRAS also take a window, a cap of the scores and sinks. A sink is one more score,
 * without a value: it is added to the sum when a query's result is complete.
 *
 * Launch: a fixed number of blocks, so that a captured graph serves any lengths. A block has 4
 * warps that attend and the one that prepares. It takes every n-th unit of the plan
 * (attention/plan.cu). If a sequence is in splits, the last of its blocks to finish joins them, in
 * order. A sequence with a shared prefix has its rest here; where a block's warps join their
 * results they join the splits that attention/shared_sm90.cu left, too. */
#include "backend/cuda/attention/decode_units.cuh"

namespace {

// Where a block's warps join their results in shared memory, a few queries at a time.
constexpr int JOINED = CUDA_DECODE_JOINED;
struct join_space {
    float *values; // shared: [WARPS][JOINED or fewer queries][D]
    float *maxes, *sums; // shared: [WARPS][GROUP]
};

__device__ __forceinline__ void attending_sync() { // barrier of the attending warps
    named_wait(ATTENDING_BARRIER, ATTENDING);
}

// 1 / the sum of a query's weights, which are relative to `max`; with its head's sink.
template <bool EXTRAS>
__device__ __forceinline__ float inverse_sum(const decode_params &p, int head, float max,
                                             float sum) {
    if constexpr (EXTRAS) {
        if (p.sinks) sum += exp2_fast(p.sinks[head] * LOG2E - max);
    }
    return __fdividef(1, sum);
}

// Joins the splits of one sequence and group of queries. The block that finished last runs it, with
// a query for each warp at a time: its splits' weights are in the lanes, and a lane has some pairs
// of dimensions. So many loads are on their way at once: with few sequences of wide heads, the
// results of splits are a large part of all bytes.
template <int D, bool EXTRAS>
__device__ void join_splits(const decode_params &p, const decode_unit &u, __nv_bfloat16 *out) {
    constexpr int STRIDE = D + 2, PAIRS = (D / 2 + 31) / 32; // of a lane
    int first = p.splits[u.seq].x, count = p.splits[u.seq].y;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t step = (size_t)p.num_heads * STRIDE;
    for (int query = warp; query < u.num_queries; query += WARPS) {
        const float *split =
            of_step(p.partial) + ((size_t)first * p.num_heads + u.first_head + query) * STRIDE;
        float max = -INFINITY, sum = 0;
        for (int j = lane; j < count; j += 32) max = fmaxf(max, __ldcg(&split[j * step + D]));
        max = warp_max(max);
        float2 values[PAIRS] = {};
        for (int from = 0; from < count; from += 32) {
            int number = min(count - from, 32);
            float weight = 0;
            if (lane < number) {
                const float2 *ends =
                    reinterpret_cast<const float2 *>(&split[(from + lane) * step + D]);
                float2 end = __ldcg(ends); // maximum, sum
                weight = exp2_fast(end.x - max);
                sum += weight * end.y;
            }
#pragma unroll 4
            for (int j = 0; j < number; j++) {
                float factor = __shfl_sync(FULL_WARP, weight, j);
                auto pairs = reinterpret_cast<const float2 *>(&split[(from + j) * step]);
#pragma unroll
                for (int i = 0; i < PAIRS; i++) {
                    if (i * 32 + lane >= D / 2) break;
                    float2 pair = __ldcg(&pairs[i * 32 + lane]);
                    values[i].x += factor * pair.x, values[i].y += factor * pair.y;
                }
            }
        }
        float inverse = inverse_sum<EXTRAS>(p, u.first_head + query, max, warp_sum(sum));
        auto to = reinterpret_cast<uint32_t *>(out + query * D);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (i * 32 + lane >= D / 2) break;
            to[i * 32 + lane] = pack_bf16(values[i].x * inverse, values[i].y * inverse);
        }
    }
}

// Adds the splits of the unit's prefix to what the block found for four dimensions of a query.
template <int D>
__device__ __forceinline__ void add_prefix(const decode_params &p, const plain_unit &u, int query,
                                           int dim, warp_weights<WARPS> &found, float (&v)[4]) {
    constexpr int STRIDE = D + 2;
    size_t step = (size_t)p.num_heads * STRIDE;
    const float *split = of_step(p.partial) + u.first_prefix_split() * step +
                         (size_t)(u.first_head + query) * STRIDE;
#pragma unroll 4
    for (int j = 0; j < u.num_prefix_splits(); j++, split += step) {
        float2 end = *reinterpret_cast<const float2 *>(split + D); // maximum, sum
        auto pairs = reinterpret_cast<const float2 *>(split + dim);
        float2 low = pairs[0], high = pairs[1];
        float max = fmaxf(found.max, end.x);
        float factor = exp2_fast(found.max - max), weight = exp2_fast(end.x - max);
        found.max = max;
        found.sum = found.sum * factor + weight * end.y;
        v[0] = v[0] * factor + weight * low.x, v[1] = v[1] * factor + weight * low.y;
        v[2] = v[2] * factor + weight * high.x, v[3] = v[3] * factor + weight * high.y;
    }
}

// Joins the warps' results for the queries [first, first + count). Writes them to `out`, or to
// `partial` if the sequence is in splits.
template <int D, bool EXTRAS, bool CODES>
__device__ __forceinline__ void write_found(const decode_params &p,
                                            const typename unit_of<EXTRAS>::type &u,
                                            const join_space &m, __nv_bfloat16 *out, int first,
                                            int count) {
    for (int i = threadIdx.x; i < count * D / 4; i += ATTENDING) {
        int query = i * 4 / D, dim = i * 4 % D;
        warp_weights<WARPS> weights(m.maxes + first, m.sums + first, query);
        float v[4] = {};
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float4 found =
                *reinterpret_cast<const float4 *>(m.values + (w * count + query) * D + dim);
            v[0] += weights.of[w] * found.x, v[1] += weights.of[w] * found.y;
            v[2] += weights.of[w] * found.z, v[3] += weights.of[w] * found.w;
        }
        query += first;
        if constexpr (!EXTRAS && !CODES) add_prefix<D>(p, u, query, dim, weights, v);
        if (u.split < 0) {
            float scale = inverse_sum<EXTRAS>(p, u.first_head + query, weights.max, weights.sum);
            *reinterpret_cast<uint2 *>(out + query * D + dim) = make_uint2(
                pack_bf16(v[0] * scale, v[1] * scale), pack_bf16(v[2] * scale, v[3] * scale));
            continue;
        }
        float *split =
            of_step(p.partial) + ((size_t)u.split * p.num_heads + u.first_head + query) * (D + 2);
#pragma unroll
        for (int j = 0; j < 4; j++) split[dim + j] = v[j];
        if (dim == 0) {
            split[D] = weights.max;
            split[D + 1] = weights.sum;
        }
    }
}

// Whether this block finished the last split of the sequence, so that all others are in memory
// (rule 13).
__device__ bool is_last_split(const decode_params &p, const decode_unit &u) {
    __shared__ int is_last;
    __threadfence();
    attending_sync();
    if (threadIdx.x == 0) {
        int *counter = &p.arrived[(size_t)u.seq * p.num_heads + u.first_head];
        int before = atomicAdd(counter, 1), count = p.splits[u.seq].y;
        check_rule(before < count, 13, count, before);
        is_last = before == count - 1;
        if (is_last) *counter = 0; // ready for the next layer
    }
    attending_sync();
    if (!is_last) return false;
    __threadfence();
    return true;
}

template <int D, bool EXTRAS, bool CODES>
__device__ void finish_unit(const decode_params &p, const typename unit_of<EXTRAS>::type &u,
                            accumulator<D> &acc, const join_space &m) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __nv_bfloat16 *out = of_step(p.out) + ((size_t)u.token * p.num_heads + u.first_head) * D;
    join_weights<D>(acc, m.maxes, m.sums, warp, lane);
    for (int first = 0; first < u.num_queries; first += JOINED) {
        int count = min(u.num_queries - first, JOINED);
        if (first) attending_sync(); // the previous queries' results have been read
        join_values<D, CODES>(acc, m.values, first, count, warp, lane);
        attending_sync();
        write_found<D, EXTRAS, CODES>(p, u, m, out, first, count);
    }
    if (u.split >= 0 && is_last_split(p, u)) join_splits<D, EXTRAS>(p, u, out);
}

// This warp's tiles of a unit.
template <int D, bool EXTRAS, bool CODES, bool INTEGERS>
__device__ __forceinline__ void take_tiles(const decode_params &p,
                                           const typename unit_of<EXTRAS>::type &u,
                                           const unit_heads<D, CODES> &heads,
                                           tile_queue<D, CODES> &queue, accumulator<D> &acc) {
    int warp = queue.warp, lane = queue.lane;
    int count = tiles_of(u.length, warp);
    bool is_mine = u.has_new && (u.length - 1) / TILE % WARPS == warp;
    uint32_t q[D / 16][2];
    heads.load_queries(q, lane);
    for (int i = 0; i < count; i++) {
        uint32_t tile = queue.oldest();
        int valid = u.length - (warp + i * WARPS) * TILE;
        uint32_t values = tile + tile_queue<D, CODES>::PART_BYTES;
        if (is_mine && i + 1 == count) {
            heads.patch(tile, 0, valid - 1, lane);
            heads.patch(values, 1, valid - 1, lane);
        }
        int skip = 0;
        if constexpr (EXTRAS) skip = u.skip - (warp + i * WARPS) * TILE;
        if constexpr (CODES) {
            constexpr pair_bits BITS = INTEGERS ? integer_bits() : e4m3_bits();
            take_code_tile<D, EXTRAS>(acc, q, tile, valid, p.scale, BITS, lane, skip,
                                      EXTRAS ? p.cap : 0);
        } else {
            if (valid < TILE) zero_values<D>(values, valid, lane);
            take_tile<D, EXTRAS>(acc, q, tile, valid, p.scale, lane, skip, EXTRAS ? p.cap : 0);
        }
        __syncwarp();
        queue.issue();
    }
}

// INTEGERS: of codes. That constants are known makes fewer instructions of their conversion.
template <int D, bool EXTRAS, bool CODES, bool INTEGERS>
__device__ __forceinline__ void attend(const decode_params &p, unit_slot<D, EXTRAS, CODES> *slots,
                                       tile_queue<D, CODES> &queue, const join_space &m) {
    if (p.starts_early) wait_for_earlier(); // rule 5
    for (int i = 0;; i++) {
        int number = i % UNITS_AHEAD;
        unit_slot<D, EXTRAS, CODES> &slot = slots[number];
        slot_wait(FULL_BARRIER, number); // also: all warps have read the last unit's joined results
        auto u = slot.unit;
        if (!u.is_there) return;
        accumulator<D> acc = {};
        acc.max[0] = acc.max[1] = -1e30f; // finite: a warp without tiles weighs nothing, not NaN
        take_tiles<D, EXTRAS, CODES, INTEGERS>(p, u, slot.heads, queue, acc);
        slot_arrive(EMPTY_BARRIER, number);
        finish_unit<D, EXTRAS, CODES>(p, u, acc, m);
    }
}

template <int D, bool EXTRAS, bool CODES>
__global__ void __launch_bounds__(ALL_THREADS, D > 256 ? 1 : 2) decode_kernel(decode_params p) {
    extern __shared__ __align__(128) char memory[]; // rings, unit slots, joined values
    __shared__ float maxes[WARPS * GROUP], sums[WARPS * GROUP];
    __shared__ uint64_t barriers[WARPS * CUDA_DECODE_STAGES_MAX];
    if (!p.starts_early) wait_for_earlier();
    let_next_start(); // rule 5: a step's first attention has waited by now
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int ring_bytes = p.stages * tile_queue<D, CODES>::TILE_BYTES;
    auto slots = reinterpret_cast<unit_slot<D, EXTRAS, CODES> *>(memory + WARPS * ring_bytes);
    static_assert(sizeof *slots == CUDA_DECODE_UNIT_BYTES(D), "attention/decode_shape.c");
    if (warp == WARPS) return prepare_units<D, EXTRAS, CODES>(p, slots, lane);
    tile_queue<D, CODES> queue(p, shared_address(memory) + warp * ring_bytes,
                               shared_address(barriers + warp * CUDA_DECODE_STAGES_MAX), warp,
                               lane);
    join_space m = {reinterpret_cast<float *>(slots + UNITS_AHEAD), maxes, sums};
    if (CODES && has_integers(p.codec)) {
        attend<D, EXTRAS, CODES, CODES>(p, slots, queue, m);
    } else {
        attend<D, EXTRAS, CODES, false>(p, slots, queue, m);
    }
}

template <int D, bool CODES>
void launch(const decode_params &p, const cuda_decode_shape &shape, const cuda_device_info *info,
            cudaStream_t stream) {
    // The kernel's static arrays, rounded up to lines, because the dynamic memory begins with a
    // line. The device keeps another 1,024 bytes per block.
    constexpr int ARRAYS = 2 * WARPS * GROUP * sizeof(float) + sizeof(int) +
                           WARPS * CUDA_DECODE_STAGES_MAX * sizeof(uint64_t);
    constexpr int LINES = (ARRAYS + 127) / 128 * 128;
    static_assert(LINES + 1024 <= CUDA_DECODE_RESERVED_BYTES, "too little");
    bool has_extras = p.window.size || p.cap != 0 || p.sinks;
    auto kernel = has_extras ? decode_kernel<D, true, CODES> : decode_kernel<D, false, CODES>;
    allow_shared_bytes(kernel, info->shared_bytes_max - CUDA_DECODE_RESERVED_BYTES, info);
    launch_dependent(kernel, dim3(shape.num_blocks), ALL_THREADS, shape.shared_bytes, info, stream,
                     p);
}

decode_params params_of(const attention_args *args, const cuda_kv_view *kv,
                        const cuda_attention_plan *plan, const cuda_attention_choice *choice,
                        const cuda_decode_shape &shape) {
    decode_params p = {};
    fill_heads_params(p, args, kv, choice->prepares);
    p.block_tables = step_tables(args->step, args->kv_group);
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.items = reinterpret_cast<const cuda_decode_item *>(plan->items);
    p.spans = reinterpret_cast<const cuda_decode_span *>(plan->spans);
    p.counts = plan->counts;
    p.splits = reinterpret_cast<const int4 *>(plan->splits);
    p.arrived = plan->arrived;
    p.partial = plan->partial;
    p.has_prefixes = plan->shared_tiles > 0;
    p.groups = shape.groups;
    p.units_per_span = shape.units_per_span;
    p.num_units = shape.num_spans * shape.units_per_span;
    p.stages = shape.stages;
    p.scale = args->scale * LOG2E;
    p.starts_early = choice->starts_early;
    p.window = window_of(args);
    p.cap = args->softcap * LOG2E;
    p.sinks = args->sinks;
    return p;
}

template <bool CODES>
void launch_for(uint32_t head_dim, const decode_params &p, const cuda_decode_shape &shape,
                const cuda_device_info *info, cudaStream_t stream) {
    switch (head_dim) {
    case 32:
        return launch<32, CODES>(p, shape, info, stream);
    case 64:
        return launch<64, CODES>(p, shape, info, stream);
    case 80:
        if constexpr (!CODES) return launch<80, false>(p, shape, info, stream);
        return; // no kernel: kernel_table.c
    case 96:
        return launch<96, CODES>(p, shape, info, stream);
    case 128:
        return launch<128, CODES>(p, shape, info, stream);
    case 160:
        return launch<160, CODES>(p, shape, info, stream);
    case 256:
        return launch<256, CODES>(p, shape, info, stream);
    default:
        return launch<512, CODES>(p, shape, info, stream);
    }
}

} // namespace

extern "C" void cuda_attention_decode_launch(const struct attention_args *args,
                                             const struct cuda_kv_view *kv,
                                             const struct cuda_attention_plan *plan,
                                             const struct cuda_attention_choice *choice,
                                             const struct cuda_device_info *info,
                                             cudaStream_t stream) {
    cuda_decode_shape shape =
        cuda_decode_shape_of(info, args->num_heads, args->num_kv_heads, args->head_dim, kv->dtype);
    decode_params p = params_of(args, kv, plan, choice, shape);
    if (cuda_kv_has_codes(kv->dtype)) {
        launch_for<true>(args->head_dim, p, shape, info, stream);
    } else {
        launch_for<false>(args->head_dim, p, shape, info, stream);
    }
}
