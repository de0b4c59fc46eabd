/* The attention phase of layers/all_layers.cu. A unit is a split of a sequence for one kv head. The
 * block that attends to a unit also prepares its heads (norm, rotation, cache). Copies of cached
 * tiles start before qkv is complete. The new token's key and value are used from shared memory.
 * The block with a sequence's last split joins all splits, in order. */
#pragma once

#include "backend/cuda/layers/block.cuh"

namespace {

// Shortest split in positions: a tile for every warp. If there are many units anyway, longer splits
// cost less than joining them.
constexpr int SPLIT_MIN = 128, SPLIT_OF_MANY = 512;

// Cuts the sequences into splits so that every block has a unit.
template <int D> __device__ void cut_sequences(const cuda_decode_layers &a, block_shared<D> &s) {
    int rows = static_cast<int>(a.rows), total = 0;
    for (int r = 0; r < rows; r++) total += s.length[r];
    int split = (total * static_cast<int>(a.num_kv_heads) + gridDim.x - 1) / gridDim.x;
    bool is_many = a.rows * a.num_kv_heads * 4 > gridDim.x;
    s.split_length = max((split + TILE - 1) / TILE * TILE, is_many ? SPLIT_OF_MANY : SPLIT_MIN);
    s.first_item[0] = 0;
    for (int r = 0; r < rows; r++) {
        s.first_item[r + 1] = s.first_item[r] + (s.length[r] + s.split_length - 1) / s.split_length;
    }
}

template <int D> __device__ __forceinline__ int num_units(const worker<D> &w) {
    return w.s.first_item[w.a.rows] * static_cast<int>(w.a.num_kv_heads);
}

template <int D> __device__ __forceinline__ attention_unit unit_of(const worker<D> &w, int number) {
    attention_unit u = {};
    int kv_heads = static_cast<int>(w.a.num_kv_heads), item = number / kv_heads;
    u.number = number;
    u.kv_head = number % kv_heads;
    while (w.s.first_item[u.row + 1] <= item) u.row++;
    int cached = w.s.length[u.row] - 1;
    u.start = (item - w.s.first_item[u.row]) * w.s.split_length;
    u.has_new = u.start + w.s.split_length > cached;
    u.stop = u.has_new ? cached : u.start + w.s.split_length;
    return u;
}

// One head in a warp's registers, 4 columns per lane.
template <int D> struct lane_head {
    static constexpr int LANES = D / 4, HALF = LANES / 2;
    float v[4];

    __device__ __forceinline__ void load(const __nv_bfloat16 *from, int lane) {
        uint2 pairs = {};
        if (lane < LANES) pairs = __ldcg(reinterpret_cast<const uint2 *>(from) + lane);
        v[0] = bf16_low(pairs.x), v[1] = bf16_high(pairs.x);
        v[2] = bf16_low(pairs.y), v[3] = bf16_high(pairs.y);
    }

    __device__ __forceinline__ void normalize(const float *norm, float eps, int lane) {
        float sum = warp_sum(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + v[3] * v[3]);
        float scale = rsqrtf(sum / D + eps);
        if (lane >= LANES) return;
        float4 n = reinterpret_cast<const float4 *>(norm)[lane];
        v[0] *= scale * n.x, v[1] *= scale * n.y, v[2] *= scale * n.z, v[3] *= scale * n.w;
    }

    // Columns d and d + D / 2 rotate together. `rope` is the position's row: cosines, then sines.
    __device__ __forceinline__ void rotate(const float *rope, int lane) {
        int pair = lane % HALF;
        float4 c = reinterpret_cast<const float4 *>(rope)[pair];
        float4 s = reinterpret_cast<const float4 *>(rope)[HALF + pair];
        const float cosines[4] = {c.x, c.y, c.z, c.w}, sines[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float other = __shfl_xor_sync(FULL_WARP, v[i], HALF);
            v[i] = v[i] * cosines[i] + (lane & HALF ? other : -other) * sines[i];
        }
    }

    __device__ __forceinline__ void store(__nv_bfloat16 *to, int lane) const {
        if (lane >= LANES) return;
        *reinterpret_cast<uint2 *>(to) = make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
    }
};

// Prepares the q heads of a group. If the unit has the new token, also its key and value.
template <int D>
__device__ void prepare(const worker<D> &w, const cuda_decode_layer &l, const attention_unit &u,
                        __nv_bfloat16 *keys, __nv_bfloat16 *values) {
    const cuda_decode_layers &a = w.a;
    int num_heads = static_cast<int>(a.num_heads), kv_heads = static_cast<int>(a.num_kv_heads);
    int group = num_heads / kv_heads;
    const __nv_bfloat16 *qkv =
        static_cast<const __nv_bfloat16 *>(a.qkv) + (size_t)u.row * (num_heads + 2 * kv_heads) * D;
    const float *rope = w.s.rope[u.row];
    int slot = w.s.slot[u.row], block_size = static_cast<int>(a.block_size);
    int block, place;
    split_position(slot, block_size, &block, &place);
    for (int t = w.warp; t < group + (u.has_new ? 2 : 0); t += WARPS) {
        bool is_value = t == group + 1, is_key = t == group;
        int h = is_value ? num_heads + kv_heads + u.kv_head
                         : (is_key ? num_heads + u.kv_head : u.kv_head * group + t);
        lane_head<D> x;
        x.load(qkv + h * D, w.lane);
        const float *norm = is_key ? l.k_norm : l.q_norm;
        if (!is_value) {
            if (norm) x.normalize(norm, a.eps, w.lane);
            x.rotate(rope, w.lane);
        }
        if (t < group) {
            x.store(w.s.queries + t * D + w.lane * 4, w.lane);
            continue;
        }
        x.store(w.s.fresh + (is_value ? TILE * D : 0) + w.lane * 4, w.lane);
        if (slot < 0) continue;
        size_t row = ((size_t)block * kv_heads + u.kv_head) * block_size + place;
        int at = swizzle<D>(place, w.lane / 2) * 8 + w.lane % 2 * 4;
        x.store((is_value ? values : keys) + row * D + at, w.lane);
    }
    computing_sync();
}

__device__ __forceinline__ void add(weighed &to, float max, float sum, float value) {
    float m = fmaxf(to.max, max);
    float mine = exp2f(to.max - m), others = exp2f(max - m);
    to.sum = to.sum * mine + sum * others;
    to.value = to.value * mine + value * others;
    to.max = m;
}

// Joins the warps' results of a unit. If the unit has the sequence's last split, it also joins the
// other splits and writes the result. Otherwise it sends its own to the block that does.
template <int D>
__device__ void finish_unit(const worker<D> &w, const attention_unit &u, const float *joined,
                            int num_queries) {
    constexpr int SPLIT_CHUNKS = D / 2 + 1; // D / 2 entries of two values, one of maximum and sum
    const cuda_decode_layers &a = w.a;
    uint4 *splits = static_cast<uint4 *>(a.splits);
    int kv_heads = static_cast<int>(a.num_kv_heads), step = kv_heads * GROUP * SPLIT_CHUNKS;
    int num_before = w.s.first_item[u.row + 1] - w.s.first_item[u.row] - 1;
    int first_unit = w.s.first_item[u.row] * kv_heads + u.kv_head;
    __nv_bfloat16 *out = static_cast<__nv_bfloat16 *>(a.attended) +
                         ((size_t)u.row * a.num_heads + u.kv_head * num_queries) * D;
    for (int i = w.thread; i < num_queries * D; i += COMPUTING) {
        int query = i / D, dim = i % D;
        weighed mine =
            join_block<D, WARPS>(joined, w.s.maxes, w.s.weights, num_queries, query, dim);
        if (!u.has_new) {
            uint4 *split = splits + ((size_t)u.number * GROUP + query) * SPLIT_CHUNKS;
            float next = __shfl_down_sync(FULL_WARP, mine.value, 1);
            if (dim % 2 == 0) {
                flagged_store(split + dim / 2,
                              {__float_as_uint(mine.value), __float_as_uint(next), w.tick});
            }
            if (dim == 0) {
                flagged_store(split + D / 2,
                              {__float_as_uint(mine.max), __float_as_uint(mine.sum), w.tick});
            }
            continue;
        }
        weighed all = {-INFINITY, 0, 0};
        const uint4 *split = splits + ((size_t)first_unit * GROUP + query) * SPLIT_CHUNKS;
        for (int j = 0; j < num_before; j += 4, split += 4 * step) {
            flagged values[4], sums[4];
            // Rule 12: splits come from lower units, and blocks take units in ascending order.
            int unit = first_unit + j * kv_heads;
            flagged_wait(values, split + dim / 2, step, num_before - j, w.tick, unit, kv_heads);
            flagged_wait(sums, split + D / 2, step, num_before - j, w.tick, unit, kv_heads);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (j + k >= num_before) break;
                uint32_t value = dim % 2 ? values[k].high : values[k].low;
                add(all, __uint_as_float(sums[k].low), __uint_as_float(sums[k].high),
                    __uint_as_float(value));
            }
        }
        add(all, mine.max, mine.sum, mine.value);
        out[i] = __float2bfloat16(all.value / all.sum);
    }
}

// The cached positions [start, stop) of one kv head.
struct kv_range {
    const __nv_bfloat16 *keys, *values; // of the layer
    const int32_t *table; // blocks of the sequence
    int kv_head, num_kv_heads, block_size;
    int start, stop;
};

// A warp's walk over its tiles of a range through its own ring. It takes every WARPS-th tile.
template <int HEAD_DIM, int WARPS> struct tile_walk {
    static constexpr int TILE_BYTES = 2 * TILE * HEAD_DIM * 2;
    kv_range range;
    uint32_t ring; // shared: [stages][TILE_BYTES]
    int stages; // 1 to 4
    int warp, lane;
    // mine: this warp's tiles; blocks: cache blocks of its next 32 tiles, one per lane.
    int mine, blocks;
    int next; // next place in the ring

    // Issues the copies of the first tiles.
    __device__ __forceinline__ void start() {
        int num_tiles = (range.stop - range.start + TILE - 1) / TILE;
        mine = num_tiles > warp ? (num_tiles - warp + WARPS - 1) / WARPS : 0;
        blocks = next = 0;
        for (int i = 0; i < stages; i++) issue(i);
    }

    __device__ __forceinline__ void issue(int i) {
        if (i % 32 == 0) {
            blocks = blocks_ahead<WARPS>(range.table, range.start, range.stop, warp + i * WARPS,
                                         range.block_size, lane);
        }
        int block = __shfl_sync(FULL_WARP, blocks, i % 32);
        if (i < mine) {
            int position = range.start + (warp + i * WARPS) * TILE;
            int ignored, place;
            split_position(position, range.block_size, &ignored, &place);
            size_t row =
                ((size_t)block * range.num_kv_heads + range.kv_head) * range.block_size + place;
            copy_tile<HEAD_DIM>(ring + next * TILE_BYTES, range.keys + row * HEAD_DIM,
                                range.values + row * HEAD_DIM, lane);
        }
        if (++next == stages) next = 0;
        copy_commit();
    }

    // Call after start(). Adds all of this warp's tiles to `acc`.
    __device__ __forceinline__ void finish(accumulator<HEAD_DIM> &acc,
                                           const uint32_t (&q)[HEAD_DIM / 16][2], float scale) {
        for (int i = 0; i < mine; i++) {
            if (stages == 4) copy_wait<3>();
            if (stages == 3) copy_wait<2>();
            if (stages == 2) copy_wait<1>();
            if (stages == 1) copy_wait<0>();
            __syncwarp();
            uint32_t tile = ring + next * TILE_BYTES; // the oldest tile; issue() refills its place
            int valid = range.stop - range.start - (warp + i * WARPS) * TILE;
            if (valid < TILE) zero_values<HEAD_DIM>(tile + TILE_BYTES / 2, valid, lane);
            take_tile<HEAD_DIM>(acc, q, tile, valid, scale, lane);
            __syncwarp();
            issue(i + stages);
        }
        copy_wait<0>();
    }
};

// Issues the copies of the first cached tiles, then waits for qkv.
template <int D> __device__ void attend(const worker<D> &w, int layer) {
    const cuda_decode_layers &a = w.a;
    const cuda_decode_layer &l = w.layers[layer];
    int kv_heads = static_cast<int>(a.num_kv_heads),
        group = static_cast<int>(a.num_heads) / kv_heads;
    char *part = a.kv + 2 * a.kv_part_bytes * layer;
    auto keys = reinterpret_cast<__nv_bfloat16 *>(part);
    auto values = reinterpret_cast<__nv_bfloat16 *>(part + a.kv_part_bytes);
    auto joined = static_cast<float *>(__cvta_shared_to_generic(w.region));
    bool has_waited = false;
    for (int number = blockIdx.x; number < num_units(w); number += gridDim.x) {
        // A block's first unit is the same in every layer.
        attention_unit u = number == static_cast<int>(blockIdx.x) ? w.s.unit : unit_of(w, number);
        tile_walk<D, WARPS> walk = {};
        walk.range = {
            keys,      values,   a.block_tables + (size_t)w.s.table_row[u.row] * a.table_stride,
            u.kv_head, kv_heads, static_cast<int>(a.block_size),
            u.start,   u.stop};
        walk.ring = w.region + w.warp * w.kv_stages * walk.TILE_BYTES;
        walk.stages = w.kv_stages, walk.warp = w.warp, walk.lane = w.lane;
        walk.start();
        prefetch_floats(l.q_norm, D, w.thread);
        prefetch_floats(l.k_norm, D, w.thread);
        if (!has_waited) wait_for_blocks(w);
        has_waited = true;
        prepare(w, l, u, keys, values);
        uint32_t q[D / 16][2];
        load_queries<D>(q, w.s.queries, group, w.lane);
        accumulator<D> acc = {};
        acc.max[0] = acc.max[1] = -1e30f; // finite: a warp without tiles weighs nothing, not NaN
        float scale = a.scale * LOG2E;
        walk.finish(acc, q, scale);
        if (u.has_new && w.warp == WARPS - 1) { // the warp with the fewest tiles
            take_tile<D>(acc, q, shared_address(w.s.fresh), 1, scale, w.lane);
        }
        computing_sync(); // the joined results overwrite the tiles
        join_warps<D>(acc, joined, w.s.maxes, w.s.weights, group, w.warp, w.lane);
        computing_sync();
        finish_unit(w, u, joined, group);
        computing_sync();
    }
    if (!has_waited) wait_for_blocks(w);
}

} // namespace
