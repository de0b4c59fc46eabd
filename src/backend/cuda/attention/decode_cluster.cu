/* Decode attention for steps of few sequences (sm_90 and later). It computes what
 * attention/decode.cu does, for steps where sequences x kv heads are too few to occupy all
 * multiprocessors.
 *
 * A cluster of up to 8 blocks takes one sequence and one group of queries, and the blocks take its
 * tiles in turn. Each block joins some dimensions of the result: the others push their parts into
 * its shared memory (st.async). This needs no plan, and no partial result goes through memory.
 *
 * Each warp copies its first tiles before the previous kernel has ended: one tile between the
 * kernels of linear/few_rows_sm90.cu, whose weights need the shared memory, and of heads of 256;
 * else two. A place is refilled as soon as its keys or values have been read.
 *
 * In steps with drafts, sequences may be tokens of one, and the cache does not have all of those
 * yet. A cluster then makes a tile of its own token and those before it (new_tokens).
 *
 * Launch: clusters = sequences x kv heads x groups of queries. A cluster has 8 blocks of 8 warps,
 * or as many blocks as let all clusters run at once. A cache of codes takes no more registers or
 * shared memory, so the same numbers of clusters run at once. */
#include "backend/cuda/attention/decode_heads.cuh"
#include "backend/cuda/attention/window.cuh"
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, CLUSTER_MAX = CUDA_DECODE_CLUSTER_MAX;
constexpr int COMPACT_DIM_MAX = CUDA_DECODE_CLUSTER_DIM_MAX, HEAD_DIM_MAX = 256;

// Tiles of a warp that are on their way at once.
template <int D, bool COMPACT> constexpr int STAGES_OF = COMPACT || D > COMPACT_DIM_MAX ? 1 : 2;

struct cluster_params : heads_params {
    const int32_t *block_tables, *table_row, *query_start, *context_len, *slot_mapping;
    uint32_t table_stride;
    __nv_bfloat16 *out;
    int groups; // of up to GROUP queries that share a kv head
    float scale; // times log2(e)
    bool starts_early; // the cache is complete before the previous kernel has ended: rule 5
    seen_window window; // only for kernels that are WINDOWED
    const float *sinks; // [num_heads] or NULL; not for compact_kernel
};

// A cluster's work: one sequence and one group of queries.
struct cluster_unit : heads_unit {
    int length;
    uint32_t table; // where the sequence's block table begins
    int num_tiled; // positions in tiles of the cache: all, or those before new_tokens

    __device__ __forceinline__ int num_tiles() const {
        return (num_tiled + TILE - 1) / TILE;
    }
};

template <int D, int STAGES, bool CODES> struct __align__(128) cluster_shared {
    char tiles[WARPS][STAGES][2][KV_TILE_BYTES<D, CODES>]; // keys, values
    unit_heads<D, CODES> heads;
    float rope[D];
    float maxes[WARPS * GROUP], sums[WARPS * GROUP];
    cluster_unit unit; // kept here while tiles are taken, where registers are few
    alignas(8) float found[CLUSTER_MAX][GROUP][2]; // from each block of the cluster: maximum, sum
    uint64_t copied[WARPS][STAGES][2], pushed;
    // [WARPS][queries][D] of this block's warps, or new_tokens until all tiles are taken; at
    // pushed_at(): [queries][D] pushed by the cluster
    alignas(16) float values[];
};

// Where the cluster's part of `values` begins, in floats: it comes while new_tokens is still read.
template <int D, bool CODES, bool DRAFTS> __host__ __device__ constexpr int pushed_at(int queries) {
    int of_warps = WARPS * queries * D;
    int tile = DRAFTS ? 2 * KV_TILE_BYTES<D, CODES> / static_cast<int>(sizeof(float)) : 0;
    return of_warps > tile ? of_warps : tile;
}

template <int D, int STAGES, bool CODES, bool DRAFTS> constexpr int shared_bytes_of(int queries) {
    int values = pushed_at<D, CODES, DRAFTS>(queries) + queries * D;
    return sizeof(cluster_shared<D, STAGES, CODES>) + values * sizeof(float);
}

// How many sequences before `seq` are earlier tokens of the same one, STEP_SPLIT_MAX - 1 at most:
// they share its block table.
__device__ __forceinline__ int tokens_before(const cluster_params &p, int seq, int lane) {
    int other = seq - 1 - lane;
    bool is_same = other >= 0 && p.table_row[other] == p.table_row[seq];
    return __ffs(~__ballot_sync(FULL_WARP, is_same && lane < STEP_SPLIT_MAX - 1)) - 1;
}

template <bool DRAFTS>
__device__ __forceinline__ cluster_unit unit_of(const cluster_params &p, int number, int lane) {
    cluster_unit u = {};
    int group = p.num_heads / p.num_kv_heads, per_seq = p.num_kv_heads * p.groups;
    int first = number % p.groups * GROUP;
    int seq = number / per_seq;
    u.table = p.table_row[seq] * p.table_stride;
    u.kv_head = number % per_seq / p.groups;
    u.first_head = u.kv_head * group + first;
    u.num_queries = min(group - first, GROUP);
    u.token = p.query_start[seq];
    u.length = p.context_len[seq];
    u.position = u.length - 1;
    u.num_tiled = DRAFTS ? u.position - tokens_before(p, seq, lane) : u.length;
    u.slot = p.prepares ? p.slot_mapping[u.token] : -1;
    u.has_new = p.prepares;
    u.writes_cache = p.prepares && first == 0 && u.slot >= 0;
    return u;
}

// The first position that the query sees.
template <bool WINDOWED>
__device__ __forceinline__ int first_seen(const cluster_params &p, const cluster_unit &u) {
    return WINDOWED ? p.window.first_seen(u.position) : 0;
}

// The tile of a unit's token and of those before it that are new too, in the memory that is for the
// block's results later. Other clusters of this launch write these tokens to the cache.
template <int D, bool CODES> struct new_tokens {
    static constexpr int PART_BYTES = KV_TILE_BYTES<D, CODES>;
    char *tile; // keys, then values

    // Called by all warps. Those come first that unit_heads::prepare leaves without work.
    __device__ __forceinline__ void prepare(const cluster_params &p, const cluster_unit &u,
                                            int warp, int lane) const {
        using shape = head_lanes<D>;
        int num = u.length - u.num_tiled, chunk = lane % shape::WIDTH;
        int start = (warp + WARPS - u.num_tasks() % WARPS) % WARPS * shape::HEADS;
        for (; start < 2 * num; start += WARPS * shape::HEADS) {
            int task = start + lane / shape::WIDTH, row = min(task / 2, num - 1);
            int is_value = task % 2, before = num - 1 - row;
            bool has_work = task < 2 * num && chunk < shape::LANES;
            heads_unit token = u;
            token.token -= before;
            half_pair<D> h = {}, turned;
            if (has_work) h.load(of_step(head_of<D>(p, token, u.num_queries + is_value)), chunk);
            turned = h;
            normalize_and_rotate(turned, p.k_norm, p.eps,
                                 p.rope + (size_t)(u.position - before) * D, chunk);
            if (!is_value) h = turned;
            store(p, h, row, is_value, chunk, has_work);
        }
    }
    __device__ __forceinline__ void store(const cluster_params &p, const half_pair<D> &h, int row,
                                          int is_value, int chunk, bool has_work) const {
        char *part = tile + is_value * PART_BYTES;
        if constexpr (CODES) {
            half_codes<D> codes(p.codec, h);
            float *scales = reinterpret_cast<float *>(part + KV_SCALES_AT<D>);
            if (has_work) codes.store({part + row * D, scales + row, row}, chunk);
        } else {
            __nv_bfloat16 *rows = reinterpret_cast<__nv_bfloat16 *>(part);
            if (has_work) h.store_swizzled(rows + row * D, row, chunk);
        }
    }
    // Adds them to a warp's results.
    template <bool WINDOWED>
    __device__ __forceinline__ void take(const cluster_params &p, const cluster_unit &u,
                                         accumulator<D> &acc, const uint32_t (&q)[D / 16][2],
                                         int lane) const {
        int num = u.length - u.num_tiled;
        int skip = first_seen<WINDOWED>(p, u) - u.num_tiled;
        uint32_t at = shared_address(tile);
        if constexpr (CODES) {
            take_code_tile<D, WINDOWED>(acc, q, at, num, p.scale, p.codec.bits, lane, skip, 0);
        } else {
            zero_values<D>(at + PART_BYTES, num, lane);
            take_tile<D, WINDOWED>(acc, q, at, num, p.scale, lane, skip);
        }
    }
};

// This warp's tiles of those that the query sees: (i * WARPS + warp) * c.size + c.rank for i = 0,
// 1, ...
template <int D, int STAGES, bool WINDOWED, bool CODES, bool DRAFTS> struct cluster_tiles {
    static constexpr uint32_t PART_BYTES = KV_TILE_BYTES<D, CODES>;
    const cluster_params &p;
    const cluster_unit &u;
    const cluster_place &c;
    cluster_shared<D, STAGES, CODES> &s;
    int warp, lane, count;
    int blocks; // cache blocks of the next 32 tiles, one per lane
    uint32_t row; // row in the cache of the tile that find() found last, in tiles

    __device__ __forceinline__ cluster_tiles(const cluster_params &params, const cluster_unit &unit,
                                             const cluster_place &place,
                                             cluster_shared<D, STAGES, CODES> &shared,
                                             int warp_index, int lane_index)
        : p(params), u(unit), c(place), s(shared), warp(warp_index), lane(lane_index), count(0),
          blocks(0), row(0) {
        int stride = WARPS * c.size;
        // tile() counts from the sequence's start.
        count = max(u.num_tiles() - tile(0) + stride - 1, 0) / stride;
        if (lane < 2 * STAGES) barrier_init(barrier_of(lane / 2, lane % 2), 1);
        barrier_init_done();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < STAGES; i++) {
            find(i);
            copy(i, 0);
            copy(i, 1);
        }
    }
    __device__ __forceinline__ int tile(int i) const {
        return (i * WARPS + warp) * c.size + c.rank + first_seen<WINDOWED>(p, u) / TILE;
    }
    __device__ __forceinline__ uint32_t place_of(int i, int part) const {
        return shared_address(s.tiles[warp][i % STAGES][part]);
    }
    __device__ __forceinline__ uint32_t barrier_of(int i, int part) const {
        return shared_address(&s.copied[warp][i % STAGES][part]);
    }

    // Looks up where tile i lies in the cache.
    __device__ __forceinline__ void find(int i) {
        if (i >= count) return;
        int block, offset;
        if (i % 32 == 0) {
            split_position(tile(min(i + lane, count - 1)) * TILE, p.block_size, &block, &offset);
            blocks = p.block_tables[u.table + block];
        }
        split_position(tile(i) * TILE, p.block_size, &block, &offset);
        block = __shfl_sync(FULL_WARP, blocks, i % 32);
        row = (block * p.num_kv_heads + u.kv_head) * (p.block_size / TILE) + offset / TILE;
    }
    // Copies the keys (part 0) or values (part 1) of tile i, which find() found last.
    __device__ __forceinline__ void copy(int i, int part) const {
        if (i >= count || lane) return;
        barrier_expect(barrier_of(i, part), PART_BYTES);
        copy_bulk(place_of(i, part), (part ? p.values : p.keys) + (size_t)row * (PART_BYTES / 2),
                  PART_BYTES, barrier_of(i, part), evict_first_policy());
    }

    __device__ __forceinline__ void take_all(accumulator<D> &acc) {
        uint32_t q[D / 16][2];
        s.heads.load_queries(q, lane);
        for (int i = 0; i < count; i++) {
            int valid = u.num_tiled - tile(i) * TILE;
            bool is_new = valid <= TILE && u.has_new && !DRAFTS;
            uint32_t keys = place_of(i, 0), values = place_of(i, 1), parity = i / STAGES % 2;
            barrier_wait(barrier_of(i, 0), parity, "keys of tile", i);
            if (is_new) s.heads.patch(keys, 0, valid - 1, lane);
            float scores[4];
            if constexpr (CODES) {
                code_scores<D>(scores, q, keys, valid, p.scale, p.codec.bits, lane);
            } else {
                tile_scores<D>(scores, q, keys, valid, p.scale, lane);
            }
            adjust_scores<WINDOWED>(scores, first_seen<WINDOWED>(p, u) - tile(i) * TILE, valid, 0,
                                    lane);
            __syncwarp();
            find(i + STAGES);
            copy(i + STAGES, 0);
            barrier_wait(barrier_of(i, 1), parity, "values of tile", i);
            if (is_new) s.heads.patch(values, 1, valid - 1, lane);
            if constexpr (CODES) {
                take_code_scores<D>(acc, scores, values, valid, p.codec.bits, lane);
            } else {
                if (valid < TILE) zero_values<D>(values, valid, lane);
                take_scores<D>(acc, scores, values, lane);
            }
            __syncwarp();
            copy(i + STAGES, 1);
        }
        if constexpr (DRAFTS) {
            new_tokens<D, CODES> tokens = {reinterpret_cast<char *>(s.values)};
            if (warp == 0 && s.unit.has_new) {
                tokens.template take<WINDOWED>(p, s.unit, acc, q, lane);
            }
        }
    }
};

// The weight of a head's sink beside weights that are relative to `max`.
template <bool COMPACT>
__device__ __forceinline__ float sink_weight(const cluster_params &p, int head, float max) {
    if constexpr (COMPACT) return 0; // compact_kernel has no registers for it
    return p.sinks ? exp2_fast(p.sinks[head] * LOG2E - max) : 0;
}

// Writes the result of a cluster of one block.
template <int D, bool COMPACT, bool CODES>
__device__ void write_found(const cluster_params &p, const cluster_unit &u,
                            const cluster_shared<D, STAGES_OF<D, COMPACT>, CODES> &s) {
    __nv_bfloat16 *out = of_step(p.out) + ((size_t)u.token * p.num_heads + u.first_head) * D;
    for (int i = threadIdx.x; i < u.num_queries * D; i += THREADS) {
        weighed mine = join_block<D, WARPS>(s.values, s.maxes, s.sums, u.num_queries, i / D, i % D);
        float sum = mine.sum + sink_weight<COMPACT>(p, u.first_head + i / D, mine.max);
        out[i] = __float2bfloat16(__fdividef(mine.value, sum));
    }
}

// Sends this block's results to the blocks that join them. Each block joins D / size dimensions.
template <int D, int STAGES, bool CODES, bool DRAFTS>
__device__ void push_found(const cluster_unit &u, const cluster_place &c,
                           cluster_shared<D, STAGES, CODES> &s) {
    int dims = D / c.size, num_values = u.num_queries * D;
    // [size][queries][dims]
    uint32_t pushed = shared_address(s.values + pushed_at<D, CODES, DRAFTS>(u.num_queries));
    uint32_t barrier = shared_address(&s.pushed);
    for (int i = threadIdx.x; i < num_values; i += THREADS) {
        int query = i / D, dim = i % D, to = dim * c.size / D;
        weighed mine = join_block<D, WARPS>(s.values, s.maxes, s.sums, u.num_queries, query, dim);
        int at = (c.rank * u.num_queries + query) * dims + dim - to * dims;
        push(at_rank(pushed + at * 4, to), at_rank(barrier, to), mine.value);
        if (dim >= c.size) continue;
        push(at_rank(shared_address(s.found[c.rank][query]), dim), at_rank(barrier, dim), mine.max,
             mine.sum);
    }
}

template <int D, bool COMPACT, bool CODES, bool DRAFTS>
__device__ void join_found(const cluster_params &p, const cluster_unit &u, const cluster_place &c,
                           const cluster_shared<D, STAGES_OF<D, COMPACT>, CODES> &s) {
    int dims = D / c.size, share = u.num_queries * dims;
    const float *pushed = s.values + pushed_at<D, CODES, DRAFTS>(u.num_queries);
    __nv_bfloat16 *out = of_step(p.out) + ((size_t)u.token * p.num_heads + u.first_head) * D;
    for (int i = threadIdx.x; i < share; i += THREADS) {
        int query = i / dims;
        float max = -INFINITY, sum = 0, value = 0, values[CLUSTER_MAX];
        float2 found[CLUSTER_MAX];
        // Issues all loads before using any.
#pragma unroll
        for (int r = 0; r < CLUSTER_MAX; r++) {
            int rank = r < c.size ? r : 0;
            found[r] = *reinterpret_cast<const float2 *>(s.found[rank][query]);
            values[r] = pushed[rank * share + i];
            max = fmaxf(max, found[r].x);
        }
#pragma unroll
        for (int r = 0; r < CLUSTER_MAX; r++) {
            float weight = r < c.size ? exp2_fast(found[r].x - max) : 0;
            sum += weight * found[r].y;
            value += weight * values[r];
        }
        sum += sink_weight<COMPACT>(p, u.first_head + query, max);
        out[query * D + c.rank * dims + i - query * dims] =
            __float2bfloat16(__fdividef(value, sum));
    }
}

template <int D, bool COMPACT, bool WINDOWED, bool CODES, bool DRAFTS>
__device__ void run_block(const cluster_params &p,
                          cluster_shared<D, STAGES_OF<D, COMPACT>, CODES> &s) {
    constexpr int STAGES = STAGES_OF<D, COMPACT>;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    cluster_place c = this_place();
    cluster_unit u = unit_of<DRAFTS>(p, blockIdx.x / c.size, lane);
    if (!u.length) return; // padding: all blocks of the cluster return (rule 4)
    // The block with the last tile has the new token. With drafts new_tokens is the last tile.
    int last_tile = DRAFTS ? u.num_tiles() : u.num_tiles() - 1;
    int first_tile = first_seen<WINDOWED>(p, u) / TILE;
    bool has_last = max(last_tile - first_tile, 0) % c.size == c.rank;
    u.has_new &= has_last;
    u.writes_cache &= has_last;
    cluster_tiles<D, STAGES, WINDOWED, CODES, DRAFTS> tiles(p, u, c, s, warp, lane);
    if (threadIdx.x == 0 && c.size > 1) {
        int values = u.num_queries * (D / c.size + 2);
        barrier_init(shared_address(&s.pushed), 1);
        barrier_init_done();
        barrier_expect(shared_address(&s.pushed), c.size * values * sizeof(float));
    }
    stage_rope<D>(p, u, s.rope);
    prefetch_floats(p.q_norm, D, threadIdx.x);
    prefetch_floats(p.k_norm, D, threadIdx.x);
    __syncthreads();
    if (c.size > 1) cluster_arrive();
    if (p.starts_early) wait_for_earlier(); // rule 5
    if (threadIdx.x == 0) s.unit = u;
    s.heads.template prepare<WARPS>(p, u, s.rope, warp, lane);
    if constexpr (DRAFTS) {
        new_tokens<D, CODES> tokens = {reinterpret_cast<char *>(s.values)};
        if (u.has_new) tokens.prepare(p, u, warp, lane);
    }
    __syncthreads();
    accumulator<D> acc = {};
    acc.max[0] = acc.max[1] = -1e30f; // finite: a warp without tiles weighs nothing, not NaN
    tiles.take_all(acc);
    u = s.unit;
    if constexpr (DRAFTS) __syncthreads(); // results take the memory of new_tokens
    join_warps<D, CODES>(acc, s.values, s.maxes, s.sums, u.num_queries, warp, lane);
    __syncthreads();
    if (c.size == 1) return write_found<D, COMPACT, CODES>(p, u, s);
    cluster_wait(); // the other blocks' barriers are initialised
    push_found<D, STAGES, CODES, DRAFTS>(u, c, s);
    barrier_wait(shared_address(&s.pushed), 0, "what the cluster found");
    join_found<D, COMPACT, CODES, DRAFTS>(p, u, c, s);
}

template <int D, bool COMPACT, bool WINDOWED, bool CODES, bool DRAFTS>
__device__ __forceinline__ void cluster_body(const cluster_params &p) {
    using shared = cluster_shared<D, STAGES_OF<D, COMPACT>, CODES>;
    extern __shared__ __align__(128) char memory[];
    NV_IF_TARGET(
        NV_PROVIDES_SM_90,
        (if (!p.starts_early) wait_for_earlier(); let_next_start(); // rule 5
         run_block<D, COMPACT, WINDOWED, CODES, DRAFTS>(p, *reinterpret_cast<shared *>(memory));))
}
template <int D, bool WINDOWED, bool CODES, bool DRAFTS>
__global__ void __launch_bounds__(THREADS, D > COMPACT_DIM_MAX ? 1 : 2)
    cluster_kernel(cluster_params p) {
    cluster_body<D, false, WINDOWED, CODES, DRAFTS>(p);
}
// For steps where linear/few_rows_sm90.cu runs the linears. Registers and shared memory leave room
// for two of its blocks per multiprocessor, for matrices as small as Qwen3-0.6B's.
template <int D, bool WINDOWED, bool CODES, bool DRAFTS>
__global__ void __maxnreg__(96) compact_kernel(cluster_params p) {
    cluster_body<D, true, WINDOWED, CODES, DRAFTS>(p);
}

template <int D, bool COMPACT, bool CODES, bool DRAFTS>
void launch_kind(const cluster_params &p, int clusters, int size, const cuda_device_info *info,
                 cudaStream_t stream) {
    constexpr int STAGES = STAGES_OF<D, COMPACT>;
    int group = p.num_heads / p.num_kv_heads, queries = group < GROUP ? group : GROUP;
    void (*kernel)(cluster_params);
    if constexpr (COMPACT) {
        kernel = p.window.size ? compact_kernel<D, true, CODES, DRAFTS>
                               : compact_kernel<D, false, CODES, DRAFTS>;
        prefer_shared_memory(kernel, info);
    } else {
        kernel = p.window.size ? cluster_kernel<D, true, CODES, DRAFTS>
                               : cluster_kernel<D, false, CODES, DRAFTS>;
    }
    allow_shared_bytes(kernel, shared_bytes_of<D, STAGES, CODES, DRAFTS>(GROUP), info);
    launch_clusters(kernel, clusters, size, THREADS,
                    shared_bytes_of<D, STAGES, CODES, DRAFTS>(queries), info, stream, p);
}

// How to launch, beside the parameters.
struct cluster_choice {
    int clusters, size;
    bool is_compact;
};

template <int D, bool CODES, bool DRAFTS>
void launch(const cluster_params &p, const cluster_choice &choice, const cuda_device_info *info,
            cudaStream_t stream) {
    if constexpr (D <= COMPACT_DIM_MAX) {
        if (choice.is_compact) {
            return launch_kind<D, true, CODES, DRAFTS>(p, choice.clusters, choice.size, info,
                                                       stream);
        }
    }
    launch_kind<D, false, CODES, DRAFTS>(p, choice.clusters, choice.size, info, stream);
}

template <bool CODES, bool DRAFTS>
void launch_for(uint32_t head_dim, const cluster_params &p, const cluster_choice &choice,
                const cuda_device_info *info, cudaStream_t stream) {
    switch (head_dim) {
    case 32:
        return launch<32, CODES, DRAFTS>(p, choice, info, stream);
    case 64:
        return launch<64, CODES, DRAFTS>(p, choice, info, stream);
    case 96:
        return launch<96, CODES, DRAFTS>(p, choice, info, stream);
    case 128:
        return launch<128, CODES, DRAFTS>(p, choice, info, stream);
    default:
        return launch<256, CODES, DRAFTS>(p, choice, info, stream);
    }
}

cluster_params params_of(const attention_args *args, const cuda_kv_view *kv,
                         const cuda_attention_choice *choice) {
    const step *s = args->step;
    cluster_params p = {};
    fill_heads_params(p, args, kv, choice->prepares);
    p.block_tables = step_tables(s, args->kv_group);
    p.query_start = s->query_start;
    p.context_len = s->context_len;
    p.slot_mapping = step_slots(s, args->kv_group);
    p.table_row = s->table_row;
    p.table_stride = s->table_stride;
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.groups = cuda_decode_groups(args->num_heads, args->num_kv_heads);
    p.scale = args->scale * LOG2E;
    p.starts_early = choice->starts_early;
    p.window = window_of(args);
    p.sinks = args->sinks;
    return p;
}

} // namespace

extern "C" void cuda_attention_max_clusters(struct cuda_device_info *info) {
    int bytes = shared_bytes_of<HEAD_DIM_MAX, STAGES_OF<HEAD_DIM_MAX, false>, false, false>(GROUP);
    if (info->major < 9 || bytes + 1024 > info->shared_bytes_max) return;
    // If the device refuses the memory, it refuses each of the sizes.
    (void)cudaFuncSetAttribute(cluster_kernel<HEAD_DIM_MAX, false, false, false>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    for (int i = 0; 1 << i <= CLUSTER_MAX; i++) {
        cudaLaunchAttribute attribute = cluster_attribute(1 << i);
        cudaLaunchConfig_t config =
            launch_config(dim3(1 << i), THREADS, bytes, nullptr, &attribute, 1);
        int clusters = 0;
        cudaError_t error = cudaOccupancyMaxActiveClusters(
            &clusters, cluster_kernel<HEAD_DIM_MAX, false, false, false>, &config);
        info->max_clusters[i] = error == cudaSuccess ? clusters : 0;
    }
    (void)cudaGetLastError(); // clears the error of a size that the device refuses
}

extern "C" void cuda_attention_cluster_launch(const struct attention_args *args,
                                              const struct cuda_kv_view *kv,
                                              const struct cuda_attention_choice *choice,
                                              const struct cuda_device_info *info,
                                              cudaStream_t stream) {
    cluster_params p = params_of(args, kv, choice);
    cluster_choice launched = {};
    launched.clusters = static_cast<int>(args->step->num_seqs) * p.num_kv_heads * p.groups;
    launched.size = choice->cluster_size;
    launched.is_compact = choice->is_compact;
    bool has_codes = cuda_kv_has_codes(kv->dtype);
    bool has_drafts = choice->prepares && args->step->max_query_len > 1;
    auto launch = has_codes ? launch_for<true, false> : launch_for<false, false>;
    if (has_drafts) launch = has_codes ? launch_for<true, true> : launch_for<false, true>;
    launch(args->head_dim, p, launched, info, stream);
}
