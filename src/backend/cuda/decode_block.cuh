/* What the parts of the kernel of decode_layers.cu share: its parameters, a block's shared memory, and
 * how blocks hand each other rows of activations. */
#pragma once

#include "backend/cuda/attention_tile.cuh"
#include "backend/cuda/flagged.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/weight_ring.cuh"

namespace {

constexpr int WARPS = 8; // that compute
constexpr int COMPUTING = WARPS * 32, THREADS = COMPUTING + COPYING * 32;
constexpr int TEAMS = WARPS / SHARERS; // that take every other slot
constexpr int ROWS_MAX = CUDA_SMALL_ROWS;
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

// Of a block, besides layer table, region and ring.
template <int D> struct block_shared {
    uint64_t full[SLOTS_MAX], empty[SLOTS_MAX];
    float sums[SUMS_MAX]; // [slots of a group][SHARERS][rows][8]
    float squares[ROWS_MAX][WARPS], scale[ROWS_MAX];
    __nv_bfloat16 residual[RESIDUALS_MAX]; // this block's outputs of the stream, [units][rows][8]
    float maxes[WARPS * GROUP], weights[WARPS * GROUP]; // of attention's warps
    int length[ROWS_MAX], first_item[ROWS_MAX + 1]; // items: pieces of sequences
    int piece;
    product_share shares[4];
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
    uint64_t tick; // of the layer: what it hands over carries it; after the second sum, one more
    int thread, warp, lane;
};

__device__ __forceinline__ void computing_sync() {
    asm volatile("bar.sync 1, %0;" ::"n"(COMPUTING) : "memory");
}

// What is constant can be fetched while others work.
__device__ __forceinline__ void prefetch_floats(const float *values, int count, int thread) {
    if (!values || thread * 32 >= count) return;
    asm volatile("prefetch.global.L1 [%0];" ::"l"(values + thread * 32));
}

// Where 4 columns of a row of handed-over activations are.
__device__ __forceinline__ uint4 *handed(void *rows, int row, int columns, int column) {
    return static_cast<uint4 *>(rows) + ((size_t)row * columns + column) / 4;
}

// Lanes 4 n to 4 n + 3 have consecutive values; the first of them writes. By whole warps.
__device__ __forceinline__ void hand_over(uint4 *to, float value, bool is_valid, uint64_t tick) {
    float next = __shfl_down_sync(FULL_WARP, value, 1);
    uint32_t pair = pack_bf16(value, next);
    uint32_t after = __shfl_down_sync(FULL_WARP, pair, 2);
    if (is_valid && threadIdx.x % 4 == 0) flagged_store(to, {pair, after, tick});
}

} // namespace
