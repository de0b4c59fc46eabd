/* Prefill attention for sm_90, head_dim 64 and 128: softmax(scale Q K^T) V. It computes what
 * attention/prefill.cu does, with wgmma products and TMA copies (hopper.cuh).
 *
 * The algorithm is FlashAttention-3 (Shah et al. 2024). Two warpgroups compute, 64 query rows each
 * (attention/prefill_rows.cuh). They walk K and V in tiles of 128 positions, from the last tile to
 * the first, so only the first steps need a mask. A tile's score product runs together with the
 * value product of the tile before it, and its softmax overlaps the latter. The two warpgroups
 * alternate: one uses the tensor cores while the other does its softmax.
 *
 * The third warpgroup copies ahead: one warp queries and keys, one warp values. One of its threads
 * takes items off a counter. So blocks are persistent, and the tensor cores do not stop between
 * items: the next item's first scores are computed while the last results are written.
 *
 * Kernels that are WINDOWED skip the tiles before the windows of all the item's queries, and of the
 * first tile the boxes before them: those blocks may be gone. What such a box leaves of an earlier
 * tile is hidden by the mask, and zeroed where it is values.
 *
 * With CODES the cache has 8-bit codes (attention/kv_codes.cuh). All four copying warps then load
 * codes and write them as bf16, times their scales, to the same tiles: two warps keys, two values,
 * 16 positions at a time. The first of them also takes the items. Longer prompts are read from a
 * copy in bf16 (attention/copy_codes.cu), which has no block tables.
 *
 * Layout: the cache's rows are stored with the swizzle that wgmma wants (kernels.h). A tile is
 * [head_dim / 64][128 positions][128 bytes], copied box by box, because the cache's blocks are
 * scattered.
 *
 * Launch: one block per multiprocessor. An item is 64 query tokens by two heads of a group, or 128
 * by one head if groups are odd. A sequence's items that see the most positions come first.
 *
 * H200, heads of 128: 16 sequences of 1,024 tokens take 139 us, 494 TFLOP/s of the visible half; 4
 * of 4,096 reach 631 TFLOP/s, one of 16,384 reaches 659. The card multiplies 790. */
#include <nv/target>

#include "backend/cuda/attention/prefill_codes.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_map.cuh"

namespace {

template <int D, bool WINDOWED, bool CODES> struct prefill {
    // Per thread; the launch gives each 168.
    enum { COPY_REGISTERS = CODES ? 88 : 40, COMPUTE_REGISTERS = CODES ? 208 : 232 };
    enum {
        SHARERS = CODES ? 2 : 1,
        COPYING = CODES ? 3 : 2
    }; // warps: of a tile; that are told items
    enum { TURN_BARRIER = 1, GROUP_BARRIER = TURN_BARRIER + GROUPS };
    static constexpr int HALVES = D * 2 / HALF_BYTES;
    static constexpr int QUERY_BYTES = HALVES * QUERY_HALF, TILE_BYTES = HALVES * TILE_HALF;
    // A tile's values are used one step after its keys, so their place is free half a step later.
    static constexpr int KEY_STAGES = D == 64 ? 4 : 2, VALUE_STAGES = D == 64 ? 4 : 3;
    static constexpr int VALUES_AT = QUERY_STAGES * GROUPS * QUERY_BYTES + KEY_STAGES * TILE_BYTES;
    static constexpr int BARRIERS_AT = VALUES_AT + VALUE_STAGES * TILE_BYTES;

    // Full: the copy is complete. Empty: all readers are done.
    struct barriers {
        item next;
        share shares[QUERY_STAGES][GROUPS];
        uint64_t next_full, next_empty;
        uint64_t queries_full[QUERY_STAGES][GROUPS], queries_empty[QUERY_STAGES][GROUPS];
        uint64_t keys_full[KEY_STAGES], keys_empty[KEY_STAGES];
        uint64_t values_full[VALUE_STAGES], values_empty[VALUE_STAGES];
        int first_seen[QUERY_STAGES]; // of the items, if WINDOWED
    };
    static constexpr int SHARED_BYTES = BARRIERS_AT + sizeof(barriers);

    // Addresses in shared memory.
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
        constexpr int COMPUTING = GROUPS * GROUP_THREADS / 32;
        barrier_init(m.next_full, 1);
        barrier_init(m.next_empty, COPYING);
        for (int i = 0; i < QUERY_STAGES * GROUPS; i++) {
            barrier_init(m.queries_full + i * 8, 1);
            barrier_init(m.queries_empty + i * 8, COMPUTING / GROUPS);
        }
        for (int i = 0; i < KEY_STAGES; i++) {
            barrier_init(m.keys_full + i * 8, SHARERS);
            barrier_init(m.keys_empty + i * 8, COMPUTING);
        }
        for (int i = 0; i < VALUE_STAGES; i++) {
            barrier_init(m.values_full + i * 8, SHARERS);
            barrier_init(m.values_empty + i * 8, COMPUTING);
        }
        barrier_init_done();
    }

    // Run by the one thread that takes items off the counter. It counts every item that is begun.
    // Whoever takes the last number resets the counter for the next launch.
    static __device__ void schedule(const prefill_params &p, const places &m) {
        int pairs = p.num_heads / p.heads, num_items = of_step(p.counts)[0] * pairs;
        uint32_t parity = 0;
        for (int index = blockIdx.x;; parity ^= 1) {
            item w = {};
            barrier_wait(m.next_empty, parity ^ 1, "the next item to be taken");
            // Sequence, token, position, number of queries. Loaded before `index` is known to be
            // valid.
            int4 tile = p.tiles[min(index / pairs, p.max_tiles - 1)];
            int number = 0;
            if (index < num_items) {
                number = atomicAdd(&p.counts[2], 1);
                w = item_of(p, tile, index % pairs * p.heads);
            }
            m.b->next = w;
            barrier_arrive(m.next_full);
            if (index >= num_items) break;
            if (number == num_items - 1) p.counts[2] = 0;
            index = number + static_cast<int>(gridDim.x);
        }
    }

    // The cache row where this lane's box of the tile begins. -1: no box for this lane.
    static __device__ int box_row(const prefill_params &p, const item &w, int first, int lane) {
        int in_tile = lane / HALVES * p.box_rows, position = first + in_tile;
        if (first < 0 || in_tile >= KV || position >= w.num_positions) return -1;
        if constexpr (WINDOWED) {
            if (position + p.box_rows <= first_seen_of<WINDOWED>(p, w)) return -1;
        }
        int block = w.table + position / p.block_size;
        if (p.block_tables) block = p.block_tables[block];
        return (block * p.num_kv_heads + w.kv_head) * p.block_size + position % p.block_size;
    }

    // Copies the item's tiles of K or of V, from the last to the first. Boxes past its positions
    // are skipped. Before the final tile it arrives at `last_begins`, if that is not 0.
    template <int STAGES>
    static __device__ void copy_tiles(const prefill_params &p, const CUtensorMap *map,
                                      const item &w, uint32_t shared, uint32_t full, uint32_t empty,
                                      ring_place<STAGES> &at, uint32_t last_begins, int lane) {
        int first = (w.num_positions - 1) / KV * KV, half = lane % HALVES;
        int seen = first_seen_of<WINDOWED>(p, w), low = seen / KV * KV; // low: the final tile
        uint32_t to = shared + half * TILE_HALF + lane / HALVES * p.box_rows * HALF_BYTES;
        int row = box_row(p, w, first, lane);
        for (; first >= low; first -= KV, at.advance()) {
            int row_after = box_row(p, w, first - KV, lane); // loads while this tile waits
            int boxes = (min(w.num_positions - first, KV) + p.box_rows - 1) / p.box_rows;
            if constexpr (WINDOWED) boxes -= max(seen - first, 0) / p.box_rows;
            if (first == low && last_begins) release(last_begins);
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

    // Copies each warpgroup's queries and its part of the item.
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
                if constexpr (WINDOWED) {
                    if (g == 0) m.b->first_seen[at.stage] = first_seen_of<WINDOWED>(p, w);
                }
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

    // One warp copies queries and keys, another values. This one asks for the next item only when
    // it reaches the keys of the current item's final tile: taken earlier, the item could not go to
    // an idle block.
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

    // The first of the warps with keys publishes the items and copies the queries.
    static __device__ void convert_keys(const prefill_params &p, const places &m, int number,
                                        int lane) {
        ring_place<QUERY_STAGES> queries = {};
        ring_place<KEY_STAGES> keys = {};
        int pairs = p.num_heads / p.heads, num_items = of_step(p.counts)[0] * pairs;
        int index = blockIdx.x, begun = -1;
        for (uint32_t parity = 0;; parity ^= 1) {
            if (number == 0 && lane == 0) {
                barrier_wait(m.next_empty, parity ^ 1, "the next item to be taken");
                item w = {};
                if (index < num_items) {
                    begun = atomicAdd(&p.counts[2], 1); // counts the items begun
                    w = item_of(p, p.tiles[index / pairs], index % pairs * p.heads);
                }
                m.b->next = w;
                barrier_arrive(m.next_full);
            }
            barrier_wait(m.next_full, parity, "the next item");
            item w = m.b->next;
            if (number == 0) {
                copy_queries(p, m, w, queries, lane);
                queries.advance();
            } else {
                release(m.next_empty);
            }
            if (!w.num_positions) return;
            convert_tiles<D, WINDOWED>(p, of_step(p.key_codes), w, m.keys, m.keys_full,
                                       m.keys_empty, keys, number, lane);
            // Whoever has begun the last item resets the counter for the next launch.
            if (number == 0 && lane == 0 && begun == num_items - 1) p.counts[2] = 0;
            index = begun + static_cast<int>(gridDim.x);
        }
    }

    static __device__ void convert_values(const prefill_params &p, const places &m, int number,
                                          int lane) {
        ring_place<VALUE_STAGES> values = {};
        for (uint32_t parity = 0;; parity ^= 1) {
            barrier_wait(m.next_full, parity, "the next item");
            item w = m.b->next;
            release(m.next_empty);
            if (!w.num_positions) return;
            convert_tiles<D, WINDOWED>(p, of_step(p.value_codes), w, m.values, m.values_full,
                                       m.values_empty, values, number, lane);
        }
    }

    using state = row_state<D>;

    // Zeroes the value rows from `valid` to `end`. Their weight is 0, but the memory may hold
    // another request's NaN, and 0 times NaN is NaN.
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

    // Whether the item's last tile has at most 64 visible positions.
    static __device__ __forceinline__ bool is_half(const share &q) {
        return q.num_positions > 0 && (q.num_positions - 1) % KV < KV / 2;
    }

    // A warpgroup's position in all rings.
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
        // Of the item whose queries are in place.
        __device__ __forceinline__ int first_seen() const {
            return WINDOWED ? m.b->first_seen[at.stage] : 0;
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
        // After an item's last keys this also releases its queries.
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

    // One tile, from position `first` on, whose keys have arrived. Its scores run together with the
    // product of the previous N weights and their values. Its softmax overlaps the latter.
    template <int N>
    static __device__ __forceinline__ void step(state &w, reader &r, const share &q, int first,
                                                int low, const prefill_params &p) {
        r.wait_turn();
        products_begin();
        scores(w, r.queries(), r.key_tile());
        r.wait_values();
        add_values<N>(w, r.value_tile());
        r.pass_turn();
        products_wait<1>();
        hold(w.s);
        r.release_keys(first == low);
        if (q.position + 1 - first < KV) mask<KV>(w, q.position + 1 - first);
        if constexpr (WINDOWED) {
            if (p.window.first_seen(q.position + ROWS - 1) > first) {
                hide<KV>(w, p.window, q.position, first);
            }
        }
        softmax<KV>(w, p.scale);
        hold(w.s);
        // The branch also keeps the compiler from moving the softmax behind the next wait.
        if (first > low) r.wait_keys();
        products_wait<0>();
        hold(w.o);
        r.release_values();
        rescale(w);
        pack<KV>(w);
    }

    // With the item's last product in flight: starts the next item's first scores, then writes the
    // results.
    static __device__ __forceinline__ void finish(const prefill_params &p, state &w, reader &r,
                                                  const share &q, bool is_end) {
        scores(w, r.queries(), r.key_tile());
        products_wait<1>();
        hold(w.o);
        r.release_values();
        write(w, of_step(p.out) + (size_t)q.out_row * D, p.num_heads * D, q.num_tokens);
        if (!is_end) r.wait_keys(); // already there; the branch serves as in step()
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
            int seen = r.first_seen(), low = seen / KV * KV;
            r.release_keys(first == low);
            if (is_half(q)) {
                begin<KV / 2, WINDOWED>(w, q.position, first, p.window, p.scale);
            } else {
                begin<KV, WINDOWED>(w, q.position, first, p.window, p.scale);
            }
            // If the last tile is half full, step() multiplies only that half.
            int end = first > low && is_half(q) ? KV / 2 : KV;
            if (q.num_positions - first < end) {
                r.wait_values();
                zero_values(r.value_tile(), q.num_positions - first, end, group);
            }
            if (first > low) r.wait_keys();
            if (first > low && is_half(q)) {
                first -= KV;
                step<KV / 2>(w, r, q, first, low, p);
            }
            while (first > low) {
                first -= KV;
                step<KV>(w, r, q, first, low, p);
            }
            r.wait_values();
            if constexpr (WINDOWED) {
                int gone = (seen - low) / p.box_rows * p.box_rows;
                if (gone) zero_values(r.value_tile(), 0, gone, group);
            }
            r.wait_turn();
            products_begin();
            add_values<KV>(w, r.value_tile());
            r.pass_turn();
            r.at.advance();
            share next = r.take();
            bool is_end = !next.num_positions;
            if (!is_end) r.wait_keys();
            // After the last item these scores are garbage, which nobody reads.
            finish(p, w, r, q, is_end);
            if (is_end) break;
            q = next;
        }
        if (group == 0) r.wait_turn(); // takes the other warpgroup's last pass_turn()
    }

    static __device__ __forceinline__ void run(const prefill_params &p, char *memory) {
        places m = places_of(memory);
        if (threadIdx.x == 0) init(m);
        if (threadIdx.x == THREADS - 1) {
            prefetch_map(&p.queries);
            if (!CODES) prefetch_map(&p.keys);
            if (!CODES) prefetch_map(&p.values);
        }
        __syncthreads();
        wait_for_earlier();
        // Tells the compiler that the value is uniform across the warp.
        int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
        if (warp / 4 == GROUPS) {
            give_registers<COPY_REGISTERS>();
            if constexpr (CODES) {
                if (warp % 2 == 0) convert_keys(p, m, warp % 4 / 2, lane);
                if (warp % 2 == 1) convert_values(p, m, warp % 4 / 2, lane);
            } else {
                if (warp % 4 == 0) copy_keys(p, m, lane);
                if (warp % 4 == 1) copy_values(p, m, lane);
                if (warp % 4 == 2 && lane == 0) schedule(p, m);
            }
        } else {
            take_registers<COMPUTE_REGISTERS>();
            compute(p, m, warp / 4);
        }
    }
};

template <int D, bool WINDOWED, bool CODES>
__global__ void __launch_bounds__(THREADS, 1)
    prefill_sm90_kernel(const __grid_constant__ prefill_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (extern __shared__ __align__(1024) char memory[];
                                         prefill<D, WINDOWED, CODES>::run(p, memory);))
}

template <int D, bool CODES>
void launch(const prefill_params &p, int num_items, const cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int BYTES = prefill<D, false, CODES>::SHARED_BYTES;
    static_assert(BYTES == prefill<D, true, CODES>::SHARED_BYTES, "one launch for both");
    auto kernel =
        p.window.size ? prefill_sm90_kernel<D, true, CODES> : prefill_sm90_kernel<D, false, CODES>;
    allow_shared_bytes(kernel, BYTES, info);
    int blocks = num_items < info->num_sms ? num_items : info->num_sms;
    launch_dependent(kernel, dim3(static_cast<unsigned>(blocks)), THREADS, BYTES, info, stream, p);
}

} // namespace

extern "C" void cuda_attention_prefill_sm90_launch(const struct attention_args *args,
                                                   const struct cuda_kv_view *kv,
                                                   const struct cuda_attention_plan *plan,
                                                   const struct cuda_device_info *info,
                                                   cudaStream_t stream) {
    prefill_params p = {};
    uint64_t positions = (uint64_t)kv->num_blocks * kv->num_kv_heads * kv->block_size;
    auto columns = static_cast<uint32_t>(attention_row_heads(args)) * args->head_dim;
    bool has_codes = cuda_kv_has_codes(kv->dtype);
    // A box lies in one cache block and in one tile.
    uint32_t box_rows = 16;
    while (!has_codes && box_rows < KV && kv->block_size % (box_rows * 2) == 0) box_rows *= 2;
    p.queries = tensor_map(args->qkv, args->step->num_tokens, columns, ROWS,
                           CU_TENSOR_MAP_SWIZZLE_128B, info);
    if (has_codes) {
        p.key_codes = static_cast<const char *>(kv->keys);
        p.value_codes = static_cast<const char *>(kv->values);
        p.bits = kv_codec_of(kv->dtype).bits;
    } else {
        p.keys = tensor_map(kv->keys, positions, kv->head_dim, box_rows, CU_TENSOR_MAP_SWIZZLE_NONE,
                            info);
        p.values = tensor_map(kv->values, positions, kv->head_dim, box_rows,
                              CU_TENSOR_MAP_SWIZZLE_NONE, info);
    }
    if (!plan->num_copies) p.block_tables = step_tables(args->step, args->kv_group);
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.tiles = reinterpret_cast<const int4 *>(plan->tiles);
    p.counts = plan->counts;
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.block_size = static_cast<int>(kv->block_size);
    p.heads = GROUPS * ROWS / static_cast<int>(plan->tile_tokens);
    p.box_rows = static_cast<int>(box_rows);
    p.scale = args->scale * LOG2E;
    p.window = window_of(args);
    // At most one tile of each sequence is not full.
    uint32_t tiles = args->step->num_tokens / plan->tile_tokens + args->step->num_seqs;
    p.max_tiles = static_cast<int>(tiles);
    int items = static_cast<int>(tiles * args->num_heads) / p.heads;
    if (args->head_dim == 64) {
        return has_codes ? launch<64, true>(p, items, info, stream)
                         : launch<64, false>(p, items, info, stream);
    }
    return has_codes ? launch<128, true>(p, items, info, stream)
                     : launch<128, false>(p, items, info, stream);
}
