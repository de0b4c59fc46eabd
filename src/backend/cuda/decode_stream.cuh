/* The tiles of decode attention on their way: each warp of a block streams every n-th tile of the
 * block's items, one item behind the other, through a ring of its own in shared memory: by two bulk
 * copies, since 16 positions are one piece of the cache, and before sm_90 by cp.async. Copies go on
 * into the next item while results of the last are joined, so memory does not rest between them. */
#pragma once

#include "backend/cuda/decode_heads.cuh"
#include "backend/cuda/hopper.cuh"

#include <nv/target>

namespace {

constexpr int WARPS = CUDA_DECODE_WARPS;

struct decode_params : heads_params {
    const int32_t *block_tables;
    __nv_bfloat16 *out;
    const cuda_decode_item *items;
    const int32_t *spans, *counts, *splits;
    int32_t *arrived; // [max_seqs][num_heads], all 0 between launches
    float *partial;
    int groups, units_per_span; // of decode_shape.h
    int stages; // tiles on their way, per warp
    float scale; // times log2(e)
    bool starts_early; // plan and cache are there before the kernel in front has ended
};

// Where a block is in its work: spans for one kv head and group of queries, items of a span.
struct work_place {
    int unit, item, stop; // stop: the end of the span

    __device__ __forceinline__ bool next(const decode_params &p, int num_units) {
        if (++item < stop) return true;
        unit += gridDim.x;
        if (unit >= num_units) return false;
        int span = unit / p.units_per_span; // spans are not empty
        item = p.spans[span];
        stop = p.spans[span + 1];
        return true;
    }
    __device__ __forceinline__ int kv_head(const decode_params &p) const {
        return unit % p.units_per_span / p.groups;
    }
    // The first of the kv head's queries that are this unit's.
    __device__ __forceinline__ int first_query(const decode_params &p) const {
        return unit % p.units_per_span % p.groups * GROUP;
    }
};

// The place before a block's first item.
__device__ __forceinline__ work_place work_start() {
    return {static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x), 0, 0};
}

// The two halves of an item are loaded as they are needed.
__device__ __forceinline__ int4 load_range(const decode_params &p, int item) {
    return reinterpret_cast<const int4 *>(p.items)[item * 2];
}
__device__ __forceinline__ int4 load_token(const decode_params &p, int item) {
    return reinterpret_cast<const int4 *>(p.items)[item * 2 + 1];
}

// Positions [start, stop) are `length`; every WARPS-th tile of them is this warp's.
__device__ __forceinline__ int tiles_of(int length, int warp) {
    int num_tiles = (length + TILE - 1) / TILE;
    return num_tiles > warp ? (num_tiles - warp + WARPS - 1) / WARPS : 0;
}

template <int D> struct tile_stream {
    static constexpr int PART_BYTES = TILE * D * 2, TILE_BYTES = 2 * PART_BYTES; // keys, values
    const decode_params &p;
    uint32_t ring; // shared: [stages][TILE_BYTES]
    uint32_t barriers; // shared: mbarriers [stages], sm_90 and later
    int num_units, table_stride, warp, lane;
    work_place place; // the item of which tiles are issued
    bool is_done;
    int4 range; // of the item: sequence, start, stop
    int kv_head;
    int index, count; // the next tile of this warp's in the item, and how many there are
    int blocks; // of the item's next 32 tiles of this warp, one per lane
    int newest, lap; // place in the ring for the next tile, and so that of the oldest

    __device__ __forceinline__ tile_stream(const decode_params &params, uint32_t ring_address,
                                           uint32_t barrier_address, int warp_index, int lane_index)
        : p(params), ring(ring_address), barriers(barrier_address), num_units(0), table_stride(0),
          warp(warp_index), lane(lane_index), place(work_start()), is_done(false), range(),
          kv_head(0), index(0), count(0), blocks(0), newest(0), lap(0) {
        NV_IF_TARGET(NV_PROVIDES_SM_90, (if (lane < p.stages) barrier_init(barriers + lane * 8, 1);
                                         barrier_init_done(); __syncwarp();))
        int4 counts = *reinterpret_cast<const int4 *>(p.counts);
        num_units = counts.x * p.units_per_span;
        table_stride = counts.z;
        for (int i = 0; i < p.stages; i++) issue();
    }

    // The next tile, if there is one.
    __device__ __forceinline__ void issue() {
        while (!is_done && index == count) {
            is_done = !place.next(p, num_units);
            if (is_done) break;
            range = load_range(p, place.item);
            kv_head = place.kv_head(p);
            index = 0;
            count = tiles_of(range.z - range.y, warp);
        }
        if (!is_done) copy_next();
        if (++newest == p.stages) newest = 0, lap++;
        NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90, (), (copy_commit();))
    }

    __device__ __forceinline__ void copy_next() {
        if (index % 32 == 0) {
            const int32_t *table = p.block_tables + (size_t)range.x * table_stride;
            blocks = blocks_ahead<WARPS>(table, range.y, range.z, warp + index * WARPS,
                                         p.block_size, lane);
        }
        int block = __shfl_sync(FULL_WARP, blocks, index % 32);
        int ignored, offset;
        split_position(range.y + (warp + index * WARPS) * TILE, p.block_size, &ignored, &offset);
        size_t row = ((size_t)block * p.num_kv_heads + kv_head) * p.block_size + offset;
        copy(ring + newest * TILE_BYTES, p.keys + row * D, p.values + row * D);
        index++;
    }

    __device__ __forceinline__ void copy(uint32_t to, const __nv_bfloat16 *keys,
                                         const __nv_bfloat16 *values) const {
        NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                          (if (lane) return; uint32_t barrier = barriers + newest * 8;
                           barrier_expect(barrier, TILE_BYTES);
                           copy_bulk(to, keys, PART_BYTES, barrier);
                           copy_bulk(to + PART_BYTES, values, PART_BYTES, barrier);),
                          (copy_tile<D>(to, keys, values, lane);))
    }

    // Waits for the oldest tile; issue() fills its place again.
    __device__ __forceinline__ uint32_t oldest() const {
        NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90, (barrier_wait(barriers + newest * 8, (lap & 1) ^ 1);),
                          (if (p.stages == 4) copy_wait<3>(); if (p.stages == 3) copy_wait<2>();
                           if (p.stages == 2) copy_wait<1>(); if (p.stages == 1) copy_wait<0>();
                           __syncwarp();))
        return ring + newest * TILE_BYTES;
    }
};

} // namespace
