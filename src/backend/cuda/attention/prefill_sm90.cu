/* Prefill attention for sm_90, head_dim 64 and 128: what attention/prefill.cu computes, with
 * Hopper's products of a warpgroup and copies of boxes (hopper.cuh). softmax(scale Q K^T) V.
 *
 * Algorithm: FlashAttention-3 (Shah et al. 2024). Two warpgroups compute, each 64 rows of queries
 * (attention/prefill_rows.cuh): they walk K and V in tiles of 128 positions, from the last to the
 * first, so that masks come first. A tile's scores are multiplied beside the weights of the one
 * before it times its values, its softmax is done beside the latter, and the warpgroups take turns:
 * while one does its softmax the other has the tensor cores. Warps of a third copy ahead of them,
 * one queries and keys, one values, and one thread takes items off a counter, so that a block stays
 * and its tensor cores do not stop between items: the first scores of the next are computed while
 * results are written.
 *
 * Layout: rows of the cache are swizzled in memory as products want them in shared memory
 * (kernels.h), so a tile is [head_dim / 64][128 positions][128 bytes], copied box by box as blocks
 * lie.
 * Launch: one block per multiprocessor. An item is 64 query tokens by two heads of a group, or 128
 * by one head where groups are odd; of a sequence those that see the most positions first.
 *
 * H200, heads of 128: 16 sequences of 1,024 tokens 139 us, 494 TFLOP/s of the visible half; 4 of
 * 4,096 631 TFLOP/s; one of 16,384 659. The card multiplies 790. */
#include <nv/target>

#include "backend/cuda/attention/prefill_rows.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_map.cuh"

namespace {

constexpr int GROUPS = 2, GROUP_THREADS = 128; // warpgroups that compute
constexpr int THREADS = (GROUPS + 1) * GROUP_THREADS;
constexpr int QUERY_STAGES = 2; // items whose queries are there

struct prefill_params {
    CUtensorMap queries; // rows: tokens, columns: those of qkv
    CUtensorMap keys, values; // rows: positions of all blocks and kv heads
    const int32_t *block_tables;
    __nv_bfloat16 *out;
    const int4 *tiles;
    int32_t *counts;
    int max_tiles, num_heads, num_kv_heads, block_size;
    int heads, box_rows; // heads of an item; positions that one copy brings
    float scale; // times log2(e)
};

// What a warpgroup has to know of an item; an item without positions is the end.
struct share {
    int position; // of its first query
    int num_tokens; // of it; rows past them are computed, never written. May be negative
    int out_row; // of out [num_tokens * num_heads][head_dim]
    int num_positions; // that the item's last query sees
};

// A tile of the plan for some heads; one without positions is the end.
struct alignas(16) item {
    int token, position, num_tokens, num_positions; // of its first query
    int first_head, kv_head, table; // where in block_tables its sequence's begins
};

template <int D> struct prefill {
    enum { COPY_REGISTERS = 40, COMPUTE_REGISTERS = 232 }; // of a thread; 168 at first
    enum { TURN_BARRIER = 1, GROUP_BARRIER = TURN_BARRIER + GROUPS };
    static constexpr int HALVES = D * 2 / HALF_BYTES;
    static constexpr int QUERY_BYTES = HALVES * QUERY_HALF, TILE_BYTES = HALVES * TILE_HALF;
    // Values of a tile are used when the next one's keys are, and free half a tile's time later.
    static constexpr int KEY_STAGES = D == 64 ? 4 : 2, VALUE_STAGES = D == 64 ? 4 : 3;
    static constexpr int VALUES_AT = QUERY_STAGES * GROUPS * QUERY_BYTES + KEY_STAGES * TILE_BYTES;
    static constexpr int BARRIERS_AT = VALUES_AT + VALUE_STAGES * TILE_BYTES;

    // Full: copied; empty: read by all that read it.
    struct barriers {
        item next;
        share shares[QUERY_STAGES][GROUPS];
        uint64_t next_full, next_empty;
        uint64_t queries_full[QUERY_STAGES][GROUPS], queries_empty[QUERY_STAGES][GROUPS];
        uint64_t keys_full[KEY_STAGES], keys_empty[KEY_STAGES];
        uint64_t values_full[VALUE_STAGES], values_empty[VALUE_STAGES];
    };
    static constexpr int SHARED_BYTES = BARRIERS_AT + sizeof(barriers);

    // Shared memory, by address.
    struct places {
        barriers *b;
        uint32_t queries; // [QUERY_STAGES][GROUPS][HALVES][ROWS][HALF_BYTES]
        uint32_t keys, values; // [KEY_STAGES or VALUE_STAGES][HALVES][KV][HALF_BYTES]
        uint32_t next_full, next_empty, queries_full, queries_empty;
        uint32_t keys_full, keys_empty, values_full, values_empty;
    };

    static __device__ __forceinline__ places places_of(char *memory) {
        places m;
        m.b = reinterpret_cast<barriers *>(memory + BARRIERS_AT);
        m.queries = shared_address(memory);
        m.keys = m.queries + QUERY_STAGES * GROUPS * QUERY_BYTES;
        m.values = m.queries + VALUES_AT;
        m.next_full = shared_address(&m.b->next_full);
        m.next_empty = shared_address(&m.b->next_empty);
        m.queries_full = shared_address(m.b->queries_full);
        m.queries_empty = shared_address(m.b->queries_empty);
        m.keys_full = shared_address(m.b->keys_full);
        m.keys_empty = shared_address(m.b->keys_empty);
        m.values_full = shared_address(m.b->values_full);
        m.values_empty = shared_address(m.b->values_empty);
        return m;
    }

    static __device__ __forceinline__ void init(const places &m) {
        constexpr int COMPUTING = GROUPS * GROUP_THREADS / 32, COPYING = 2;
        barrier_init(m.next_full, 1);
        barrier_init(m.next_empty, COPYING);
        for (int i = 0; i < QUERY_STAGES * GROUPS; i++) {
            barrier_init(m.queries_full + i * 8, 1);
            barrier_init(m.queries_empty + i * 8, COMPUTING / GROUPS);
        }
        for (int i = 0; i < KEY_STAGES; i++) {
            barrier_init(m.keys_full + i * 8, 1);
            barrier_init(m.keys_empty + i * 8, COMPUTING);
        }
        for (int i = 0; i < VALUE_STAGES; i++) {
            barrier_init(m.values_full + i * 8, 1);
            barrier_init(m.values_empty + i * 8, COMPUTING);
        }
        barrier_init_done();
    }

    // One arrival per warp: what it waited for and read is free (rule 9).
    static __device__ __forceinline__ void release(uint32_t barrier) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
    }

    // The thread that takes items off the counter. Each that is begun takes a number, so the last
    // number is known: whoever gets it leaves the counter as the next launch wants it.
    static __device__ void schedule(const prefill_params &p, const places &m) {
        int pairs = p.num_heads / p.heads, num_items = of_step(p.counts)[0] * pairs;
        uint32_t parity = 0;
        for (int index = blockIdx.x;; parity ^= 1) {
            item w = {};
            barrier_wait(m.next_empty, parity ^ 1, "the next item to be taken");
            // Sequence, token, position, number of queries. Read before it is known to be one.
            int4 tile = p.tiles[min(index / pairs, p.max_tiles - 1)];
            int number = 0;
            if (index < num_items) {
                number = atomicAdd(&p.counts[2], 1);
                w.token = tile.y;
                w.position = tile.z;
                w.num_tokens = tile.w;
                w.num_positions = tile.z + tile.w;
                w.first_head = index % pairs * p.heads;
                w.kv_head = w.first_head / (p.num_heads / p.num_kv_heads);
                w.table = tile.x * p.counts[1];
            }
            m.b->next = w;
            barrier_arrive(m.next_full);
            if (index >= num_items) break;
            if (number == num_items - 1) p.counts[2] = 0;
            index = number + static_cast<int>(gridDim.x);
        }
    }

    // The row of the cache where this lane's box of the tile begins; -1: it has none.
    static __device__ int box_row(const prefill_params &p, const item &w, int first, int lane) {
        int in_tile = lane / HALVES * p.box_rows, position = first + in_tile;
        if (first < 0 || in_tile >= KV || position >= w.num_positions) return -1;
        int block = p.block_tables[w.table + position / p.block_size];
        return (block * p.num_kv_heads + w.kv_head) * p.block_size + position % p.block_size;
    }

    // The item's tiles of K or of V, from the last on; boxes wholly past its positions are left
    // out. `last_begins` (or 0) is released when the last to be copied is next.
    template <int STAGES>
    static __device__ void copy_tiles(const prefill_params &p, const CUtensorMap *map,
                                      const item &w, uint32_t shared, uint32_t full, uint32_t empty,
                                      ring_place<STAGES> &at, uint32_t last_begins, int lane) {
        int first = (w.num_positions - 1) / KV * KV, half = lane % HALVES;
        uint32_t to = shared + half * TILE_HALF + lane / HALVES * p.box_rows * HALF_BYTES;
        int row = box_row(p, w, first, lane);
        for (; first >= 0; first -= KV, at.advance()) {
            int row_after = box_row(p, w, first - KV, lane); // comes while this one waits
            int boxes = (min(w.num_positions - first, KV) + p.box_rows - 1) / p.box_rows;
            if (first == 0 && last_begins) release(last_begins);
            barrier_wait(empty + at.stage * 8, at.parity ^ 1, "a free place for a tile,", at.stage);
            if (lane == 0) barrier_expect(full + at.stage * 8, boxes * p.box_rows * D * 2);
            __syncwarp();
            if (row >= 0) {
                copy_box(to + at.stage * TILE_BYTES, of_step(map), half * (HALF_BYTES / 2), row,
                         full + at.stage * 8);
            }
            row = row_after;
        }
    }

    // Each warpgroup's queries and what it has to know of them.
    static __device__ void copy_queries(const prefill_params &p, const places &m, const item &w,
                                        const ring_place<QUERY_STAGES> &at, int lane) {
        for (int g = 0; g < GROUPS; g++) {
            int skipped = p.heads == 1 ? g * ROWS : 0, head = w.first_head + (p.heads == 1 ? 0 : g);
            int slot = at.stage * GROUPS + g;
            uint32_t full = m.queries_full + slot * 8;
            barrier_wait(m.queries_empty + slot * 8, at.parity ^ 1, "a free place for queries,",
                         slot);
            if (lane == 0) {
                m.b->shares[at.stage][g] = {w.position + skipped, min(w.num_tokens - skipped, ROWS),
                                            (w.token + skipped) * p.num_heads + head,
                                            w.num_positions};
                if (w.num_positions) {
                    barrier_expect(full, QUERY_BYTES);
                } else {
                    barrier_arrive(full);
                }
            }
            __syncwarp();
            if (w.num_positions && lane < HALVES) {
                copy_box(m.queries + slot * QUERY_BYTES + lane * QUERY_HALF, of_step(&p.queries),
                         head * D + lane * (HALF_BYTES / 2), w.token + skipped, full);
            }
        }
    }

    // One warp copies queries and keys, one values. The next item is asked for when the keys of the
    // last tile are: an item that is taken early is one that no idle block can take.
    static __device__ void copy_keys(const prefill_params &p, const places &m, int lane) {
        ring_place<QUERY_STAGES> queries = {};
        ring_place<KEY_STAGES> keys = {};
        for (uint32_t parity = 0;; parity ^= 1) {
            barrier_wait(m.next_full, parity, "the next item");
            item w = m.b->next;
            copy_queries(p, m, w, queries, lane);
            queries.advance();
            if (!w.num_positions) return;
            copy_tiles(p, &p.keys, w, m.keys, m.keys_full, m.keys_empty, keys, m.next_empty, lane);
        }
    }

    static __device__ void copy_values(const prefill_params &p, const places &m, int lane) {
        ring_place<VALUE_STAGES> values = {};
        for (uint32_t parity = 0;; parity ^= 1) {
            barrier_wait(m.next_full, parity, "the next item");
            item w = m.b->next;
            release(m.next_empty);
            if (!w.num_positions) return;
            copy_tiles(p, &p.values, w, m.values, m.values_full, m.values_empty, values, 0, lane);
        }
    }

    using state = row_state<D>;

    // The rows from `valid` to `end`: positions past the last weigh 0, but 0 times another
    // request's NaN would be NaN.
    static __device__ __forceinline__ void zero_values(uint32_t values, int valid, int end,
                                                       int group) {
        for (int h = 0; h < HALVES; h++) {
            for (int i = valid * HALF_BYTES + threadIdx.x % GROUP_THREADS * 16;
                 i < end * HALF_BYTES; i += GROUP_THREADS * 16) {
                asm volatile(
                    "st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + h * TILE_HALF + i),
                    "r"(0)
                    : "memory");
            }
        }
        shared_stores_done();
        named_wait(GROUP_BARRIER + group, GROUP_THREADS);
    }

    // Of the item's last tile no more than the first 64 positions are seen at all.
    static __device__ __forceinline__ bool is_half(const share &q) {
        return q.num_positions > 0 && (q.num_positions - 1) % KV < KV / 2;
    }

    // Where a warpgroup is in all its rings.
    struct reader {
        places m;
        int group;
        ring_place<QUERY_STAGES> at;
        ring_place<KEY_STAGES> keys;
        ring_place<VALUE_STAGES> values;

        __device__ __forceinline__ int slot() const {
            return at.stage * GROUPS + group;
        }
        __device__ __forceinline__ uint32_t queries() const {
            return m.queries + slot() * QUERY_BYTES;
        }
        __device__ __forceinline__ uint32_t key_tile() const {
            return m.keys + keys.stage * TILE_BYTES;
        }
        __device__ __forceinline__ uint32_t value_tile() const {
            return m.values + values.stage * TILE_BYTES;
        }
        __device__ __forceinline__ share take() const {
            barrier_wait(m.queries_full + slot() * 8, at.parity, "queries in place", slot());
            return m.b->shares[at.stage][group];
        }
        __device__ __forceinline__ void wait_keys() const {
            barrier_wait(m.keys_full + keys.stage * 8, keys.parity, "keys in place", keys.stage);
        }
        __device__ __forceinline__ void wait_values() const {
            barrier_wait(m.values_full + values.stage * 8, values.parity, "values in place",
                         values.stage);
        }
        __device__ __forceinline__ void wait_turn() const {
            named_wait(TURN_BARRIER + group, GROUPS * GROUP_THREADS);
        }
        __device__ __forceinline__ void pass_turn() const {
            named_arrive(TURN_BARRIER + (group ^ 1), GROUPS * GROUP_THREADS);
        }
        // The queries too after the item's last keys.
        __device__ __forceinline__ void release_keys(bool is_last) {
            release(m.keys_empty + keys.stage * 8);
            if (is_last) release(m.queries_empty + slot() * 8);
            keys.advance();
        }
        __device__ __forceinline__ void release_values() {
            release(m.values_empty + values.stage * 8);
            values.advance();
        }
    };

    // The tile of positions from `first` on, whose keys are there: its scores beside the product of
    // the last weights, N of them, with their values; its softmax beside the latter.
    template <int N>
    static __device__ __forceinline__ void step(state &w, reader &r, const share &q, int first,
                                                float scale) {
        r.wait_turn();
        products_begin();
        scores(w, r.queries(), r.key_tile());
        r.wait_values();
        add_values<N>(w, r.value_tile());
        r.pass_turn();
        products_wait<1>();
        hold(w.s);
        r.release_keys(first == 0);
        if (q.position + 1 - first < KV) mask<KV>(w, q.position + 1 - first);
        softmax<KV>(w, scale);
        hold(w.s);
        // Besides what it is for, this keeps the compiler from putting the softmax behind the next
        // wait, which it does where no branch is between.
        if (first > 0) r.wait_keys();
        products_wait<0>();
        hold(w.o);
        r.release_values();
        rescale(w);
        pack<KV>(w);
    }

    // The item's last product is under way: begins the next one's first, and writes.
    static __device__ __forceinline__ void finish(const prefill_params &p, state &w, reader &r,
                                                  const share &q, bool is_end) {
        scores(w, r.queries(), r.key_tile());
        products_wait<1>();
        hold(w.o);
        r.release_values();
        write(w, of_step(p.out) + (size_t)q.out_row * D, p.num_heads * D, q.num_tokens);
        if (!is_end) r.wait_keys(); // they are there: a branch, as in step
        products_wait<0>();
        hold(w.s);
    }

    static __device__ void compute(const prefill_params &p, const places &m, int group) {
        reader r = {m, group, {}, {}, {}};
        share q = r.take();
        if (!q.num_positions) return;
        state w = {};
        if (group == 1) r.pass_turn();
        r.wait_keys();
        products_begin();
        scores(w, r.queries(), r.key_tile());
        products_wait<0>();
        hold(w.s);
        while (true) {
            int first = (q.num_positions - 1) / KV * KV;
            r.release_keys(first == 0);
            if (is_half(q)) {
                begin<KV / 2>(w, q.position + 1 - first, p.scale);
            } else {
                begin<KV>(w, q.position + 1 - first, p.scale);
            }
            // Of half a tile step() multiplies no more than the half.
            int end = first > 0 && is_half(q) ? KV / 2 : KV;
            if (q.num_positions - first < end) {
                r.wait_values();
                zero_values(r.value_tile(), q.num_positions - first, end, group);
            }
            if (first > 0) r.wait_keys();
            if (first > 0 && is_half(q)) {
                first -= KV;
                step<KV / 2>(w, r, q, first, p.scale);
            }
            while (first > 0) {
                first -= KV;
                step<KV>(w, r, q, first, p.scale);
            }
            r.wait_values();
            r.wait_turn();
            products_begin();
            add_values<KV>(w, r.value_tile());
            r.pass_turn();
            r.at.advance();
            share next = r.take();
            bool is_end = !next.num_positions;
            if (!is_end) r.wait_keys();
            // At the end these are scores of nothing, which nobody looks at.
            finish(p, w, r, q, is_end);
            if (is_end) break;
            q = next;
        }
        if (group == 0) r.wait_turn(); // the other's last
    }

    static __device__ __forceinline__ void run(const prefill_params &p, char *memory) {
        places m = places_of(memory);
        if (threadIdx.x == 0) init(m);
        if (threadIdx.x == THREADS - 1) {
            prefetch_map(&p.queries);
            prefetch_map(&p.keys);
            prefetch_map(&p.values);
        }
        __syncthreads();
        wait_for_earlier();
        // The same for all of a warp, and the compiler is to know it.
        int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
        if (warp / 4 == GROUPS) {
            give_registers<COPY_REGISTERS>();
            if (warp % 4 == 0) copy_keys(p, m, lane);
            if (warp % 4 == 1) copy_values(p, m, lane);
            if (warp % 4 == 2 && lane == 0) schedule(p, m);
        } else {
            take_registers<COMPUTE_REGISTERS>();
            compute(p, m, warp / 4);
        }
    }
};

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
    prefill_sm90_kernel(const __grid_constant__ prefill_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; prefill<D>::run(p, memory);))
}

template <int D>
void launch(const prefill_params &p, int num_items, const cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int BYTES = prefill<D>::SHARED_BYTES;
    cudaFuncSetAttribute(prefill_sm90_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         BYTES);
    int blocks = num_items < info->num_sms ? num_items : info->num_sms;
    launch_dependent(prefill_sm90_kernel<D>, dim3(static_cast<unsigned>(blocks)), THREADS, BYTES,
                     info, stream, p);
}

} // namespace

extern "C" void cuda_attention_prefill_sm90_launch(const struct attention_args *args,
                                                   const struct cuda_kv_view *kv,
                                                   const struct cuda_attention_plan *plan,
                                                   const struct cuda_device_info *info,
                                                   cudaStream_t stream) {
    prefill_params p = {};
    uint64_t positions = (uint64_t)kv->num_blocks * kv->num_kv_heads * kv->block_size;
    uint32_t columns = (args->num_heads + 2 * args->num_kv_heads) * args->head_dim;
    // A box lies in one block and in one tile.
    uint32_t box_rows = 16;
    while (box_rows < KV && kv->block_size % (box_rows * 2) == 0) box_rows *= 2;
    p.queries = tensor_map(args->qkv, args->step->num_tokens, columns, ROWS,
                           CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.keys =
        tensor_map(kv->keys, positions, kv->head_dim, box_rows, CU_TENSOR_MAP_SWIZZLE_NONE, info);
    p.values =
        tensor_map(kv->values, positions, kv->head_dim, box_rows, CU_TENSOR_MAP_SWIZZLE_NONE, info);
    p.block_tables = args->step->block_tables;
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.tiles = reinterpret_cast<const int4 *>(plan->tiles);
    p.counts = plan->counts;
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.block_size = static_cast<int>(kv->block_size);
    p.heads = GROUPS * ROWS / static_cast<int>(plan->tile_tokens);
    p.box_rows = static_cast<int>(box_rows);
    p.scale = args->scale * LOG2E;
    // Every sequence's tiles, at most one of them not full.
    uint32_t tiles = args->step->num_tokens / plan->tile_tokens + args->step->num_seqs;
    p.max_tiles = static_cast<int>(tiles);
    int items = static_cast<int>(tiles * args->num_heads) / p.heads;
    if (args->head_dim == 64) return launch<64>(p, items, info, stream);
    return launch<128>(p, items, info, stream);
}
