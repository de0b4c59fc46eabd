/* Shared by the parts of the kernel in layers/all_layers.cu: its parameters, a block's shared
 * memory, and the grid barrier. */
#pragma once

#include "backend/cuda/attention/decode_tile.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/layers/flagged.cuh"
#include "backend/cuda/layers/weight_ring.cuh"

namespace {

constexpr int WARPS = 8; // warps that compute
constexpr int COMPUTING = WARPS * 32, THREADS = COMPUTING + COPYING * 32;
constexpr int TEAMS = WARPS / SHARERS; // teams of SHARERS warps; each takes every TEAMS-th slot
constexpr int ROWS_MAX = CUDA_DECODE_ROWS;
constexpr int SUMS_MAX = 3072; // floats of partial sums
constexpr int RESIDUALS_MAX = 1024;

struct layers_params {
    cuda_decode_layers a;
    // num_slots: of the ring; region_bytes: of the region, which holds x or attention's tiles
    int num_slots, region_bytes;
    int kv_stages; // attention tiles in flight per warp
};

// A block's part of a product. It is the same in every layer.
struct product_share {
    int units, group; // units: this block's; group: how many are summed up together
};

// A split of a sequence for one kv head. One block attends to it.
struct attention_unit {
    int number, row, kv_head;
    int start, stop; // cached positions
    bool has_new; // also attends to the new token
};

// A block's static part of the shared memory. The layer table, the region and the ring follow it.
template <int D> struct block_shared {
    uint64_t full[SLOTS_MAX], empty[SLOTS_MAX];
    float sums[SUMS_MAX]; // [slots of a group][SHARERS][rows][8]
    float squares[ROWS_MAX][WARPS], scale[ROWS_MAX];
    __nv_bfloat16 residual[RESIDUALS_MAX]; // this block's part of the residual, [units][rows][8]
    float maxes[WARPS * GROUP], weights[WARPS * GROUP]; // of the computing warps, in attention
    int table_row[ROWS_MAX]; // loaded once: in each layer it would delay the blocks' addresses
    int length[ROWS_MAX], first_item[ROWS_MAX + 1]; // items are splits of sequences
    int slot[ROWS_MAX]; // cache slots of the rows' tokens
    alignas(16) float rope[ROWS_MAX][D]; // at the rows' positions
    int split_length;
    product_share shares[4];
    attention_unit unit; // the block's first unit
    alignas(128) __nv_bfloat16 queries[GROUP * D];
    // A tile with only the new token. The rest stays 0.
    alignas(128) __nv_bfloat16 fresh[2 * TILE * D];
};

// A computing thread and the data it works with.
template <int D> struct worker {
    const cuda_decode_layers &a;
    block_shared<D> &s;
    const cuda_decode_layer *layers; // shared
    uint32_t region; // shared
    ring_view ring;
    int kv_stages;
    int slot; // next slot of the ring, counted since the kernel's start
    uint32_t grid_barriers; // arrived at so far
    uint64_t tick; // of the layer; tags its flagged values
    int thread, warp, lane;
};

__device__ __forceinline__ void computing_sync() {
    named_wait(1, COMPUTING);
}

// The grid barrier between phases. Stores before arrive() are visible after wait_for_blocks(), to
// loads past the L1 (rule 11).
template <int D> __device__ __forceinline__ void arrive(worker<D> &w) {
    computing_sync();
    w.grid_barriers++;
    if (w.thread) return;
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(w.a.arrived) : "memory");
}
// While this block waits, others may arrive for the next barrier, but never all gridDim.x of them.
__device__ __forceinline__ void check_grid_barrier(wait_watch &watch, uint32_t number,
                                                   uint32_t arrived) {
    uint32_t wanted = number * gridDim.x;
    check_rule(arrived < wanted + gridDim.x, 11, wanted, arrived);
    if (arrived < wanted) watch.turn("all blocks at grid barrier", number, wanted, arrived);
}
template <int D> __device__ __forceinline__ void wait_for_blocks(const worker<D> &w) {
    if (w.thread == 0) {
        uint32_t arrived = 0;
        wait_watch watch;
        while (arrived < w.grid_barriers * gridDim.x) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(arrived)
                         : "l"(w.a.arrived)
                         : "memory");
            if constexpr (CHECKED) check_grid_barrier(watch, w.grid_barriers, arrived);
        }
    }
    computing_sync();
}

} // namespace
