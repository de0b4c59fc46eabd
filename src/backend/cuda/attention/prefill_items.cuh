/* What attention/prefill_sm90.cu is launched with, and the items that its blocks take. */
#pragma once

#include "backend/cuda/attention/kv_codes.cuh"
#include "backend/cuda/attention/prefill_rows.cuh"
#include "backend/cuda/handover.cuh"

namespace {

constexpr int GROUPS = 2, GROUP_THREADS = 128; // warpgroups that compute
constexpr int THREADS = (GROUPS + 1) * GROUP_THREADS;
constexpr int QUERY_STAGES = 2; // items whose queries are in shared memory

struct prefill_params {
    CUtensorMap queries; // rows: tokens; columns: those of qkv
    CUtensorMap keys, values; // rows: positions of all blocks and kv heads
    const int32_t *block_tables; // NULL: a sequence's blocks lie one behind the other
    __nv_bfloat16 *out;
    const int4 *tiles;
    int32_t *counts;
    int max_tiles, num_heads, num_kv_heads, block_size;
    int heads, box_rows; // heads of an item; positions of one copy
    float scale; // times log2(e)
    seen_window window; // only for kernels that are WINDOWED
    // For kernels with CODES.
    const char *key_codes, *value_codes; // of the layer
    pair_bits bits;
};

// A warpgroup's part of an item. No positions: there are no more items.
struct share {
    int position; // <= 64, may be negative; rows past them are computed but never written
    int num_tokens; // of it; rows past them are computed, never written. May be negative
    int out_row; // of out [num_tokens * num_heads][head_dim]
    int num_positions; // visible to the item's last query
};

// A tile of the plan for some heads. No positions: there are no more items.
struct alignas(16) item {
    int token, position, num_tokens, num_positions; // position: of its first query
    int first_head, kv_head,
        table; // table: where its sequence's row begins in block_tables, or its blocks
};

// One arrival per warp: the whole warp has finished reading (rule 9).
__device__ __forceinline__ void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

// The tile of the plan, for heads from `first_head` on.
__device__ __forceinline__ item item_of(const prefill_params &p, const int4 &tile, int first_head) {
    item w = {};
    w.token = tile.y;
    w.position = tile.z;
    w.num_tokens = tile.w;
    w.num_positions = tile.z + tile.w;
    w.first_head = first_head;
    w.kv_head = w.first_head / (p.num_heads / p.num_kv_heads);
    w.table = tile.x * p.counts[3];
    return w;
}

// The first position that the item's first query sees.
template <bool WINDOWED>
__device__ __forceinline__ int first_seen_of(const prefill_params &p, const item &w) {
    return WINDOWED ? p.window.first_seen(w.position) : 0;
}

} // namespace
