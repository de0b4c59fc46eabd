/* How attention/prefill_sm90.cu reads a cache of 8-bit codes (attention/kv_codes.cuh): warps load
 * the codes of 16 positions, and write them as bf16, times their scales, to a tile in shared
 * memory, as tensor maps copy it from a cache of bf16. */
#pragma once

#include "backend/cuda/attention/prefill_items.cuh"

namespace {

constexpr int CODE_SHARERS = 2; // warps that write a tile

// 16 positions of a kv head in a warp's registers.
template <int D> struct code_group {
    static constexpr int CHUNKS = D / 32; // of 16 codes; a lane has every 32nd
    uint4 codes[CHUNKS];
    uint32_t scale; // of position lane % 16
    bool is_there;

    static __device__ __forceinline__ const char *place(const char *part, int tile) {
        return part + (size_t)max(tile, 0) * KV_TILE_BYTES<D, true>;
    }
    static __device__ __forceinline__ uint4 load_codes(const char *from, int j, int lane) {
        return reinterpret_cast<const uint4 *>(from)[j * 32 + lane];
    }
    static __device__ __forceinline__ uint32_t load_scale(const char *from, int lane) {
        return reinterpret_cast<const uint32_t *>(from + KV_SCALES_AT<D>)[lane % 16];
    }
    __device__ __forceinline__ void load(const char *part, int tile, int lane) {
        is_there = tile >= 0;
        if (!is_there) return;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) codes[j] = load_codes(place(part, tile), j, lane);
        scale = load_scale(place(part, tile), lane);
    }

    // Writes the positions as bf16 to rows [first, first + 16) of a tile, and loads those of
    // cache tile `next`, if it is not -1, into the same registers.
    __device__ __forceinline__ void convert(const pair_bits &bits, uint32_t tile, int first,
                                            const char *part, int next, int lane) {
        const char *from = place(part, next);
        uint32_t scale_after = next >= 0 ? load_scale(from, lane) : 0;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            if (is_there) store(bits, tile, first, j, lane);
            if (next >= 0) codes[j] = load_codes(from, j, lane);
        }
        scale = scale_after;
        is_there = next >= 0;
    }
    __device__ __forceinline__ void store(const pair_bits &bits, uint32_t tile, int first, int j,
                                          int lane) const {
        int row = (j * 32 + lane) / (D / 16), at = (j * 32 + lane) % (D / 16);
        uint32_t pair = scale_pair(__shfl_sync(FULL_WARP, scale, row));
        uint2 a = decoded_codes(bits, codes[j].x, pair);
        uint2 b = decoded_codes(bits, codes[j].y, pair);
        uint2 c = decoded_codes(bits, codes[j].z, pair);
        uint2 d = decoded_codes(bits, codes[j].w, pair);
        uint4 low = make_uint4(a.x, a.y, b.x, b.y), high = make_uint4(c.x, c.y, d.x, d.y);
        int chunk = swizzle_codes<D>(row, at) * 2; // of 8 bf16
        uint32_t to = tile + chunk / 8 * TILE_HALF + (first + row) * HALF_BYTES;
        // Lanes of the second half begin with the second chunk: else their banks were the same.
        int second = chunk / 8;
        store_shared16(to + ((chunk % 8 + second) ^ (row & 7)) * 16, second ? high : low);
        store_shared16(to + ((chunk % 8 + 1 - second) ^ (row & 7)) * 16, second ? low : high);
    }
};

// The cache tile of this lane's 16 positions of the tile that begins at `first`. -1: none.
template <bool WINDOWED>
__device__ __forceinline__ int code_tile(const prefill_params &p, const item &w, int first,
                                         int lane) {
    int position = first + lane * 16;
    if (first < 0 || lane >= KV / 16 || position >= w.num_positions) return -1;
    if constexpr (WINDOWED) {
        if (position + 16 <= first_seen_of<WINDOWED>(p, w)) return -1;
    }
    int block = p.block_tables[w.table + position / p.block_size];
    return (block * p.num_kv_heads + w.kv_head) * (p.block_size / 16) +
           position % p.block_size / 16;
}

// Writes every second 16 positions of the item's tiles of K or of V, from the last tile to the
// first. The next 16 positions load meanwhile.
template <int D, bool WINDOWED, int STAGES>
__device__ void convert_tiles(const prefill_params &p, const char *part, const item &w,
                              uint32_t shared, uint32_t full, uint32_t empty,
                              ring_place<STAGES> &at, int number, int lane) {
    constexpr int TILE_BYTES = D * 2 / HALF_BYTES * TILE_HALF;
    constexpr int TURNS = KV / 16 / CODE_SHARERS;
    int first = (w.num_positions - 1) / KV * KV, low = first_seen_of<WINDOWED>(p, w) / KV * KV;
    int tile = code_tile<WINDOWED>(p, w, first, lane);
    code_group<D> now = {};
    now.load(part, __shfl_sync(FULL_WARP, tile, number), lane);
    for (; first >= low; first -= KV, at.advance()) {
        int tile_after = code_tile<WINDOWED>(p, w, first - KV, lane);
        barrier_wait(empty + at.stage * 8, at.parity ^ 1, "a free place for a tile,", at.stage);
#pragma unroll 1
        for (int i = 0; i < TURNS; i++) {
            int group = i * CODE_SHARERS + number;
            int next = i + 1 < TURNS ? __shfl_sync(FULL_WARP, tile, group + CODE_SHARERS)
                                     : __shfl_sync(FULL_WARP, tile_after, number);
            if (i + 1 == TURNS && first == low) next = -1;
            now.convert(p.bits, shared + at.stage * TILE_BYTES, group * 16, part, next, lane);
        }
        tile = tile_after;
        shared_stores_done();
        release(full + at.stage * 8);
    }
}

} // namespace
