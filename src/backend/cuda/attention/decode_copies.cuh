/* Copies the tiles of decode attention to shared memory. Each warp copies every n-th tile of the
 * block's items, item after item, through its own ring. A tile is contiguous in the cache, so it
 * takes two bulk copies, one for keys and one for values; before sm_90, cp.async. The copies
 * continue into the next item while the results of the last one are joined, so memory stays
 * busy. */
#pragma once

#include "backend/cuda/attention/decode_heads.cuh"
#include "backend/cuda/attention/window.cuh"
#include "backend/cuda/hopper.cuh"

#include <nv/target>

namespace {

constexpr int WARPS = CUDA_DECODE_WARPS;

struct decode_params : heads_params {
    const int32_t *block_tables;
    __nv_bfloat16 *out;
    const cuda_decode_item *items;
    const cuda_decode_span *spans;
    const int32_t *counts;
    const int4 *splits;
    int32_t *arrived; // [max_seqs][num_heads], all 0 between launches
    float *partial;
    bool has_prefixes; // some sequences share prefixes: splits has them too
    int groups, units_per_span, num_units; // groups of attention/decode_shape.h; units of all spans
    int stages; // tiles in flight per warp
    float scale; // times log2(e)
    // The plan and the cache are complete before the previous kernel has ended: rule 5.
    bool starts_early;
    // For kernels with EXTRAS.
    seen_window window;
    float cap; // of the scores, times log2(e); 0: none
    const float *sinks; // [num_heads] or NULL
};

// A block's position in its work. A unit is a span for one kv head and group of queries; a span is
// a list of items.
struct work_place {
    int unit, item, end; // end: one past the span's last item
    int kv_head, first_query; // of the unit; first_query: its first query among the kv head's
    int4 range; // of the item: row of the block tables, start, stop, split

    // Moves to the next item. Must not be called again after it returned false.
    __device__ __forceinline__ bool next(const decode_params &p) {
        if (++item < end) {
            range = reinterpret_cast<const int4 *>(p.items)[item * 2];
            return true;
        }
        unit += gridDim.x;
        if (unit >= p.num_units) return false;
        int span = unit / p.units_per_span, part = unit - span * p.units_per_span;
        range = reinterpret_cast<const int4 *>(p.spans)[span * 2];
        int4 items = reinterpret_cast<const int4 *>(p.spans)[span * 2 + 1];
        item = items.x, end = items.y;
        kv_head = part / p.groups;
        first_query = (part - kv_head * p.groups) * GROUP;
        return item < end;
    }
};

// The position before a block's first item.
__device__ __forceinline__ work_place work_start() {
    work_place place = {};
    place.unit = static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x);
    return place;
}

// How many of an item's tiles are this warp's: every WARPS-th tile of its `length` positions.
__device__ __forceinline__ int tiles_of(int length, int warp) {
    int num_tiles = (length + TILE - 1) / TILE;
    return num_tiles > warp ? (num_tiles - warp + WARPS - 1) / WARPS : 0;
}

// An item, as one warp's queue sees it.
struct queue_item {
    int4 range; // row of the block tables, start, stop, split
    int kv_head;
    int count; // this warp's tiles; -1: no more items
    int blocks; // cache blocks of the warp's next 32 tiles, one per lane
};

template <int D, bool CODES> struct tile_queue {
    static constexpr int PART_BYTES = KV_TILE_BYTES<D, CODES>,
                         TILE_BYTES = 2 * PART_BYTES; // keys, values
    const decode_params &p;
    uint32_t ring; // shared: [stages][TILE_BYTES]
    uint32_t barriers; // shared: mbarriers [stages], sm_90 and later
    int table_stride, warp, lane;
    queue_item now, next; // now: the item whose tiles are being copied; next: the one after it
    work_place after; // the item after `next`, being loaded
    bool has_after;
    int index; // number of this warp's next tile in the item
    // newest: ring place of the next tile, which is also the oldest tile's; lap: laps of the ring.
    int newest, lap;

    __device__ __forceinline__ tile_queue(const decode_params &params, uint32_t ring_address,
                                          uint32_t barrier_address, int warp_index, int lane_index)
        : p(params), ring(ring_address), barriers(barrier_address), table_stride(p.counts[1]),
          warp(warp_index), lane(lane_index), now(), next(), after(work_start()), has_after(false),
          index(0), newest(0), lap(0) {
        NV_IF_TARGET(NV_PROVIDES_SM_90, (if (lane < p.stages) barrier_init(barriers + lane * 8, 1);
                                         barrier_init_done(); __syncwarp();))
        has_after = after.next(p);
        advance();
        advance();
        for (int i = 0; i < p.stages; i++) issue();
    }

    // Moves to the next item. The item after it is loaded early, because a chain of dependent loads
    // takes longer than a short item.
    __device__ __forceinline__ void advance() {
        now = next;
        index = 0;
        next.range = after.range;
        next.kv_head = after.kv_head;
        next.count = has_after ? tiles_of(next.range.z - next.range.y, warp) : -1;
        if (next.count > 0) next.blocks = blocks_from(next.range, 0);
        has_after = has_after && after.next(p);
    }
    // Cache blocks of this warp's tiles in an item, from number `first` on.
    __device__ __forceinline__ int blocks_from(const int4 &range, int first) const {
        const int32_t *table = p.block_tables + (size_t)range.x * table_stride;
        return blocks_ahead<WARPS>(table, range.y, range.z, warp + first * WARPS, p.block_size,
                                   lane);
    }

    // Copies the next tile, if there is one.
    __device__ __forceinline__ void issue() {
        while (index == now.count) advance();
        if (now.count >= 0) copy_next();
        if (++newest == p.stages) newest = 0, lap++;
        NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90, (), (copy_commit();))
    }

    __device__ __forceinline__ void copy_next() {
        const int4 &range = now.range;
        if (index && index % 32 == 0) now.blocks = blocks_from(range, index);
        int block = __shfl_sync(FULL_WARP, now.blocks, index % 32);
        int ignored, offset;
        split_position(range.y + (warp + index * WARPS) * TILE, p.block_size, &ignored, &offset);
        uint32_t row = now.kv_head * p.block_size + offset; // in the block
        size_t first = block_start(block, p.block_chunks) +
                       (CODES ? (size_t)(row / TILE) * (PART_BYTES / 2) : (size_t)row * D);
        copy(ring + newest * TILE_BYTES, p.keys + first, p.values + first);
        index++;
    }

    // The copies are marked evict-first in the L2, so that they do not displace what the step's
    // next kernels read.
    __device__ __forceinline__ void copy(uint32_t to, const __nv_bfloat16 *keys,
                                         const __nv_bfloat16 *values) const {
        NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                          (if (lane) return; uint32_t barrier = barriers + newest * 8;
                           barrier_expect(barrier, TILE_BYTES);
                           uint64_t policy = evict_first_policy();
                           copy_bulk(to, keys, PART_BYTES, barrier, policy);
                           copy_bulk(to + PART_BYTES, values, PART_BYTES, barrier, policy);),
                          (copy_tile<D, CODES>(to, keys, values, lane);))
    }

    // Waits for the oldest tile and returns its address. issue() then refills its place.
    __device__ __forceinline__ uint32_t oldest() const {
        NV_IF_ELSE_TARGET(
            NV_PROVIDES_SM_90,
            (barrier_wait(barriers + newest * 8, (lap & 1) ^ 1, "tile in place", newest);),
            (if (p.stages == 4) copy_wait<3>(); if (p.stages == 3) copy_wait<2>();
             if (p.stages == 2) copy_wait<1>(); if (p.stages == 1) copy_wait<0>(); __syncwarp();))
        return ring + newest * TILE_BYTES;
    }
};

} // namespace
