/* What the parts of the kernel of layers/all_layers.cu share: its parameters, a block's shared memory,
 * and how blocks meet. */
#pragma once

#include "backend/cuda/attention/decode_tile.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/layers/flagged.cuh"
#include "backend/cuda/layers/weight_ring.cuh"

namespace {

constexpr int WARPS = 8; // that compute
constexpr int COMPUTING = WARPS * 32, THREADS = COMPUTING + COPYING * 32;
constexpr int TEAMS = WARPS / SHARERS; // that take every other slot
constexpr int ROWS_MAX = CUDA_DECODE_ROWS;
constexpr int SUMS_MAX = 3072; // floats of partial sums
constexpr int RESIDUALS_MAX = 1024;

struct layers_params {
    cuda_decode_layers a;
    int num_slots, region_bytes; // of the ring; of x or of attention's tiles
    int kv_stages; // attention's tiles on their way, per warp
};

// A block's part of a product, the same in every layer.
struct product_share {
    int units, group; // of this block; that are added up together
};

// A piece of a sequence and a kv head, that a block attends to.
struct attention_unit {
    int number, row, kv_head;
    int start, stop; // cached positions
    bool has_new; // also the new token's
};

// Of a block, besides layer table, region and ring.
template <int D> struct block_shared {
    uint64_t full[SLOTS_MAX], empty[SLOTS_MAX];
    float sums[SUMS_MAX]; // [slots of a group][SHARERS][rows][8]
    float squares[ROWS_MAX][WARPS], scale[ROWS_MAX];
    __nv_bfloat16 residual[RESIDUALS_MAX]; // this block's part of the residual, [units][rows][8]
    float maxes[WARPS * GROUP], weights[WARPS * GROUP]; // of attention's warps
    int length[ROWS_MAX], first_item[ROWS_MAX + 1]; // items: pieces of sequences
    int slot[ROWS_MAX]; // of the cache, for the rows' tokens
    alignas(16) float rope[ROWS_MAX][D]; // of the rows' positions
    int piece;
    product_share shares[4];
    attention_unit unit; // the first of the block
    alignas(128) __nv_bfloat16 queries[GROUP * D];
    alignas(128) __nv_bfloat16 fresh[2 * TILE * D]; // a tile of the new token alone; else 0
};

// One of the computing threads, and what it works with.
template <int D> struct worker {
    const cuda_decode_layers &a;
    block_shared<D> &s;
    const cuda_decode_layer *layers; // shared
    uint32_t region; // shared
    ring_view ring;
    int kv_stages;
    int slot; // of the ring, counted since the start
    uint32_t meetings; // of all blocks, so far
    uint64_t tick; // of the layer: pieces of attention carry it
    int thread, warp, lane;
};

__device__ __forceinline__ void computing_sync() {
    named_wait(1, COMPUTING);
}

// All blocks meet between phases: what is stored before arriving is seen after waiting, past the
// L1 (rule 11).
template <int D> __device__ __forceinline__ void arrive(worker<D> &w) {
    computing_sync();
    w.meetings++;
    if (w.thread) return;
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(w.a.arrived) : "memory");
}
// Nobody arrives for the next meeting but one before this block has.
__device__ __forceinline__ void check_meeting(wait_watch &watch, uint32_t meeting,
                                              uint32_t arrived) {
    uint32_t wanted = meeting * gridDim.x;
    check_rule(arrived < wanted + gridDim.x, 11, wanted, arrived);
    if (arrived < wanted) watch.turn("all blocks at meeting", meeting, wanted, arrived);
}
template <int D> __device__ __forceinline__ void wait_for_blocks(const worker<D> &w) {
    if (w.thread == 0) {
        uint32_t arrived = 0;
        wait_watch watch;
        while (arrived < w.meetings * gridDim.x) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(arrived)
                         : "l"(w.a.arrived)
                         : "memory");
            if constexpr (CHECKED) check_meeting(watch, w.meetings, arrived);
        }
    }
    computing_sync();
}

} // namespace
