/* Attention of decodes over a prefix that they share (backend/shared_prefix.h), for sm_90, head_dim
 * 64 and 128. K and V of the prefix are read once for all its sequences, instead of once for each
 * (cascade attention, FlashInfer, 2024).
 *
 * The queries of all the sequences' heads that have a kv head are the rows of products with its K
 * and V: wgmma and TMA copies, as in attention/prefill_sm90.cu, without a mask. A row is a sequence
 * and a head; so 64 rows are 32 sequences of 2 heads each, or 8 of 8.
 *
 * An item is 128 rows by some tiles of the prefix (attention/decode_shape.c). What it finds is one
 * more split of each of its sequences: it goes to `partial`. attention/decode.cu, which runs behind
 * it, goes on from there with the rest of each sequence.
 *
 * Launch: one block for each item. Two warpgroups compute, 64 rows each, and two warps of the third
 * one copy, one K and one V. */
#include <nv/target>

#include "backend/cuda/attention/decode_shape.h"
#include "backend/cuda/attention/prefill_rows.cuh"
#include "backend/cuda/handover.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_map.cuh"

namespace {

constexpr int GROUPS = 2, GROUP_THREADS = 128; // warpgroups that compute
constexpr int THREADS = (GROUPS + 1) * GROUP_THREADS;
static_assert(GROUPS * ROWS == CUDA_SHARED_ROWS && KV == CUDA_SHARED_TILE, "items");

struct shared_params {
    CUtensorMap keys, values; // rows: positions of all blocks and kv heads
    const __nv_bfloat16 *qkv;
    const int32_t *block_tables, *table_row, *query_start, *seqs;
    const int4 *splits;
    float *partial;
    shared_prefix prefixes[SHARED_PREFIXES_MAX];
    int num_heads, num_kv_heads, block_size, table_stride, qkv_stride;
    int item_tiles, box_rows; // box_rows: positions of one copy
    float scale; // times log2(e)
};

struct shared_item {
    const int32_t *seqs; // of the prefix
    int first_row, num_rows; // of the sequences' heads; num_rows: of the prefix
    int kv_head, split;
    int start, stop; // positions
};

__device__ __forceinline__ shared_item item_of(const shared_params &p, int index) {
    int group = p.num_heads / p.num_kv_heads, number = 0;
    shared_item w = {};
    while (true) {
        const shared_prefix &prefix = p.prefixes[number++];
        int tiles = (prefix.num_positions + KV - 1) / KV;
        int splits = (tiles + p.item_tiles - 1) / p.item_tiles;
        w.num_rows = prefix.num_seqs * group;
        int parts = (w.num_rows + GROUPS * ROWS - 1) / (GROUPS * ROWS);
        int items = parts * splits * p.num_kv_heads;
        if (index >= items) {
            index -= items;
            continue;
        }
        w.seqs = of_step(p.seqs) + prefix.first;
        w.first_row = index % parts * GROUPS * ROWS;
        w.split = index / parts % splits;
        w.kv_head = index / parts / splits;
        w.start = w.split * p.item_tiles * KV;
        w.stop = min(w.start + p.item_tiles * KV, static_cast<int>(prefix.num_positions));
        return w;
    }
}

template <int D> struct shared_block {
    static constexpr int HALVES = D * 2 / HALF_BYTES;
    static constexpr int QUERY_BYTES = HALVES * QUERY_HALF, TILE_BYTES = HALVES * TILE_HALF;
    static constexpr int STAGES = 3;
    static constexpr int KEYS_AT = GROUPS * QUERY_BYTES, VALUES_AT = KEYS_AT + STAGES * TILE_BYTES,
                         BARRIERS_AT = VALUES_AT + STAGES * TILE_BYTES;
    enum { COPY_REGISTERS = 40, COMPUTE_REGISTERS = 232 }; // per thread; the launch gives each 168
    enum { GROUP_BARRIER = 1 };

    // Full: the copy is complete. Empty: all readers are done.
    struct barriers {
        uint64_t keys_full[STAGES], keys_empty[STAGES], values_full[STAGES], values_empty[STAGES];
    };
    static constexpr int SHARED_BYTES = BARRIERS_AT + sizeof(barriers);

    // Addresses in shared memory.
    struct places {
        uint32_t queries; // [GROUPS][HALVES][ROWS][HALF_BYTES]
        uint32_t keys, values; // [STAGES][HALVES][KV][HALF_BYTES]
        uint32_t keys_full, keys_empty, values_full, values_empty;
    };

    static __device__ __forceinline__ places places_of(char *memory) {
        auto b = reinterpret_cast<barriers *>(memory + BARRIERS_AT);
        uint32_t first = shared_address(memory);
        return {first,
                first + KEYS_AT,
                first + VALUES_AT,
                shared_address(b->keys_full),
                shared_address(b->keys_empty),
                shared_address(b->values_full),
                shared_address(b->values_empty)};
    }

    static __device__ __forceinline__ void init(const places &m) {
        constexpr int COMPUTING = GROUPS * GROUP_THREADS / 32;
        for (int i = 0; i < STAGES; i++) {
            barrier_init(m.keys_full + i * 8, 1);
            barrier_init(m.keys_empty + i * 8, COMPUTING);
            barrier_init(m.values_full + i * 8, 1);
            barrier_init(m.values_empty + i * 8, COMPUTING);
        }
        barrier_init_done();
    }

    // Copies the item's tiles of K or of V. Boxes past its positions get its first ones instead:
    // their weight is 0, but what memory holds may be NaN, and 0 times NaN is NaN.
    static __device__ void copy_tiles(const shared_params &p, const CUtensorMap *map,
                                      const shared_item &w, uint32_t shared, uint32_t full,
                                      uint32_t empty, int lane) {
        const int32_t *table =
            of_step(p.block_tables) + (size_t)of_step(p.table_row)[w.seqs[0]] * p.table_stride;
        ring_place<STAGES> at = {};
        int in_tile = lane / HALVES * p.box_rows, half = lane % HALVES;
        uint32_t to = shared + half * TILE_HALF + in_tile * HALF_BYTES;
        for (int first = w.start; first < w.stop; first += KV, at.advance()) {
            int position = first + in_tile < w.stop ? first + in_tile : w.start;
            int row = 0;
            if (in_tile < KV) {
                int block = table[position / p.block_size];
                row = (block * p.num_kv_heads + w.kv_head) * p.block_size + position % p.block_size;
            }
            barrier_wait(empty + at.stage * 8, at.parity ^ 1, "a free place for a tile,", at.stage);
            if (lane == 0) barrier_expect(full + at.stage * 8, TILE_BYTES);
            __syncwarp();
            if (in_tile < KV) {
                copy_box(to + at.stage * TILE_BYTES, map, half * (HALF_BYTES / 2), row,
                         full + at.stage * 8);
            }
        }
    }

    // The sequence of a row, and its head.
    static __device__ __forceinline__ int seq_of(const shared_params &p, const shared_item &w,
                                                 int row, int *head) {
        int group = p.num_heads / p.num_kv_heads, number = row / group;
        *head = w.kv_head * group + row - number * group;
        return w.seqs[number];
    }

    // Copies a warpgroup's queries to shared memory, swizzled as wgmma wants them.
    static __device__ void load_queries(const shared_params &p, const shared_item &w,
                                        uint32_t queries, int first_row) {
        constexpr int CHUNKS = D / 8, TURNS = ROWS * CHUNKS / GROUP_THREADS; // of 16 bytes
        uint4 chunk[TURNS];
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            int number = i * GROUP_THREADS + threadIdx.x % GROUP_THREADS;
            int row = first_row + number / CHUNKS, c = number % CHUNKS, head;
            chunk[i] = make_uint4(0, 0, 0, 0);
            if (row >= w.num_rows) continue;
            int seq = seq_of(p, w, row, &head);
            const __nv_bfloat16 *from =
                of_step(p.qkv) + (size_t)of_step(p.query_start)[seq] * p.qkv_stride + head * D;
            chunk[i] = reinterpret_cast<const uint4 *>(from)[c];
        }
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            int number = i * GROUP_THREADS + threadIdx.x % GROUP_THREADS;
            int row = number / CHUNKS, c = number % CHUNKS;
            store_shared16(queries + c / 8 * QUERY_HALF + row * HALF_BYTES + (c % 8 ^ row % 8) * 16,
                           chunk[i]);
        }
        shared_stores_done();
        named_wait(GROUP_BARRIER + threadIdx.x / GROUP_THREADS, GROUP_THREADS);
    }

    using state = row_state<D>;

    // Positions from `valid` on do not count.
    static __device__ __forceinline__ void cut(state &w, int valid) {
        int limit = valid - threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < KV / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (n * 8 + i % 2 >= limit) w.s[n][i] = -INFINITY;
            }
        }
    }

    // Writes the results as a split of each row's sequence: values, maximum, sum.
    static __device__ void write_split(const shared_params &p, const shared_item &w, state &found,
                                       int first_row) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = found.sum[r];
            sum += __shfl_xor_sync(FULL_WARP, sum, 1);
            sum += __shfl_xor_sync(FULL_WARP, sum, 2);
            int row = first_row + warp * 16 + lane / 4 + r * 8, head;
            if (row >= w.num_rows) continue;
            int4 splits = of_step(p.splits)[seq_of(p, w, row, &head)];
            int slot = splits.z + w.split;
            float *to = of_step(p.partial) + ((size_t)slot * p.num_heads + head) * (D + 2);
#pragma unroll
            for (int d = 0; d < D / 8; d++) {
                *reinterpret_cast<float2 *>(to + d * 8 + lane % 4 * 2) =
                    make_float2(found.o[d][r * 2], found.o[d][r * 2 + 1]);
            }
            if (lane % 4 == 0) {
                *reinterpret_cast<float2 *>(to + D) = make_float2(found.max[r] * p.scale, sum);
            }
        }
    }

    // A tile's scores run together with the product of the weights and values of the tile before
    // it, and its softmax overlaps the latter.
    static __device__ void compute(const shared_params &p, const shared_item &w, const places &m,
                                   int group) {
        int first_row = w.first_row + group * ROWS, first = w.start;
        uint32_t queries = m.queries + group * QUERY_BYTES;
        load_queries(p, w, queries, first_row);
        ring_place<STAGES> keys = {}, values = {};
        state s = {};
        s.max[0] = s.max[1] = -1e30f;
        barrier_wait(m.keys_full, 0, "keys in place", 0);
        products_begin();
        scores(s, queries, m.keys);
        products_wait<0>();
        hold(s.s);
        release(m.keys_empty);
        keys.advance();
        if (w.stop - first < KV) cut(s, w.stop - first);
        softmax<KV>(s, p.scale);
        pack<KV>(s);
        for (first += KV; first < w.stop; first += KV) {
            barrier_wait(m.keys_full + keys.stage * 8, keys.parity, "keys in place", keys.stage);
            products_begin();
            scores(s, queries, m.keys + keys.stage * TILE_BYTES);
            barrier_wait(m.values_full + values.stage * 8, values.parity, "values in place",
                         values.stage);
            add_values<KV>(s, m.values + values.stage * TILE_BYTES);
            products_wait<1>();
            hold(s.s);
            release(m.keys_empty + keys.stage * 8);
            keys.advance();
            if (w.stop - first < KV) cut(s, w.stop - first);
            softmax<KV>(s, p.scale);
            hold(s.s);
            products_wait<0>();
            hold(s.o);
            release(m.values_empty + values.stage * 8);
            values.advance();
            rescale(s);
            pack<KV>(s);
        }
        barrier_wait(m.values_full + values.stage * 8, values.parity, "values in place",
                     values.stage);
        products_begin();
        add_values<KV>(s, m.values + values.stage * TILE_BYTES);
        products_wait<0>();
        hold(s.o);
        write_split(p, w, s, first_row);
    }

    static __device__ __forceinline__ void release(uint32_t barrier) { // rule 9
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
    }

    static __device__ __forceinline__ void run(const shared_params &p, char *memory) {
        places m = places_of(memory);
        if (threadIdx.x == 0) init(m);
        if (threadIdx.x == THREADS - 1) {
            prefetch_map(&p.keys);
            prefetch_map(&p.values);
        }
        __syncthreads();
        wait_for_earlier();
        let_next_start();
        shared_item w = item_of(p, blockIdx.x);
        // Tells the compiler that the value is uniform across the warp.
        int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
        if (warp / 4 == GROUPS) {
            give_registers<COPY_REGISTERS>();
            if (warp % 4 == 0) {
                copy_tiles(p, &p.keys, w, m.keys, m.keys_full, m.keys_empty, lane);
            }
            if (warp % 4 == 1) {
                copy_tiles(p, &p.values, w, m.values, m.values_full, m.values_empty, lane);
            }
        } else {
            take_registers<COMPUTE_REGISTERS>();
            compute(p, w, m, warp / 4);
        }
    }
};

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
    shared_sm90_kernel(const __grid_constant__ shared_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (extern __shared__ __align__(1024) char memory[];
                                         shared_block<D>::run(p, memory);))
}

template <int D>
void launch(const shared_params &p, uint32_t num_items, const cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int BYTES = shared_block<D>::SHARED_BYTES;
    allow_shared_bytes(shared_sm90_kernel<D>, BYTES, info);
    launch_dependent(shared_sm90_kernel<D>, dim3(num_items), THREADS, BYTES, info, stream, p);
}

} // namespace

extern "C" void cuda_attention_shared_launch(const struct attention_args *args,
                                             const struct cuda_kv_view *kv,
                                             const struct cuda_attention_plan *plan,
                                             const struct cuda_device_info *info,
                                             cudaStream_t stream) {
    const step *s = args->step;
    shared_params p = {};
    uint64_t positions = (uint64_t)kv->num_blocks * kv->num_kv_heads * kv->block_size;
    // A box lies in one cache block and in one tile.
    uint32_t box_rows = 16;
    while (box_rows < KV && kv->block_size % (box_rows * 2) == 0) box_rows *= 2;
    p.keys =
        tensor_map(kv->keys, positions, kv->head_dim, box_rows, CU_TENSOR_MAP_SWIZZLE_NONE, info);
    p.values =
        tensor_map(kv->values, positions, kv->head_dim, box_rows, CU_TENSOR_MAP_SWIZZLE_NONE, info);
    p.qkv = static_cast<const __nv_bfloat16 *>(args->qkv);
    p.block_tables = step_tables(s, args->kv_group);
    p.table_row = s->table_row;
    p.query_start = s->query_start;
    p.seqs = s->shared.seqs;
    p.splits = reinterpret_cast<const int4 *>(plan->splits);
    p.partial = plan->partial;
    for (uint32_t i = 0; i < s->shared.num; i++) p.prefixes[i] = s->shared.list[i];
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.block_size = static_cast<int>(kv->block_size);
    p.table_stride = static_cast<int>(s->table_stride);
    p.qkv_stride = static_cast<int>(attention_row_heads(args) * args->head_dim);
    p.item_tiles = static_cast<int>(plan->shared_tiles);
    p.box_rows = static_cast<int>(box_rows);
    p.scale = args->scale * LOG2E;
    uint32_t items =
        cuda_shared_items(&s->shared, args->num_heads, args->num_kv_heads, plan->shared_tiles);
    if (args->head_dim == 64) return launch<64>(p, items, info, stream);
    launch<128>(p, items, info, stream);
}
