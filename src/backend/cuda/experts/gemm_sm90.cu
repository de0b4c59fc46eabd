/* Grouped matrix products of a mixture of experts on sm_90 with bf16 weights and many rows for each
 * expert: what experts/gemm.cu computes, by wgmma.
 *
 * A tile of work is an item of experts/sort.cu (up to 256 rows of an expert) and 256 of its weight
 * rows: 128 gates and their ups, or 256 outputs. It belongs to the two blocks of a cluster. Each
 * has 128 of the rows, which are the left operand, and copies half of the weights to both
 * (linear/ring_sm90.cuh). Rows of x are sorted by expert, so that boxes of a tensor map bring them.
 * A box may have rows of the next expert. They are multiplied and not stored. A warpgroup without
 * rows of the item multiplies nothing.
 *
 * Clusters are persistent and take tiles in turn, so the ring fills for the next tile while results
 * are written. A row's result does not depend on the other rows.
 *
 * Launch: a block per multiprocessor, in pairs.
 *
 * Bytes: an expert's weights once for 256 rows, all but the first time from the L2. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear/quad.cuh"
#include "backend/cuda/linear/ring_sm90.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int HALF = 128, WEIGHT_ROWS = 2 * HALF; // of a tile
constexpr int CLUSTER = 2; // blocks with the same weights; each copies a half of them
static_assert(CLUSTER * LEFT_ROWS == CUDA_EXPERTS_TILE_SM90, "the rows of a tile");

using grouped_ring = ring<WEIGHT_ROWS, CLUSTER>;

struct grouped_params {
    // x: [rows][inputs], sorted by expert; weight: [num_experts * weight_rows][inputs]; bias:
    // [num_experts][weight_rows] or NULL
    ring_params ring;
    const int4 *items; // expert, first row, number of rows
    const int32_t *num_items;
    int weight_rows; // of an expert: columns, or 2 x columns for gate and up
    int column_tiles; // per item
    bool is_gated;
    enum activation activation;
};

// What a cluster multiplies.
struct grouped_tile {
    int4 item;
    int column; // first of the result
    int weights; // the first row of weights
    int second; // of the other half's, from the first one on
};
__device__ __forceinline__ grouped_tile tile_of(const grouped_params &p, int number) {
    grouped_tile t = {};
    t.item = of_step(p.items)[number / p.column_tiles];
    t.column = number % p.column_tiles * (p.is_gated ? HALF : WEIGHT_ROWS);
    t.weights = t.item.x * p.weight_rows + t.column;
    t.second = p.is_gated ? p.ring.columns : HALF;
    return t;
}

// Run by one thread of the block. Copies its own rows, and its half of the weights to both blocks.
__device__ void copy_tiles(const grouped_params &p, const grouped_ring &ring, int rank,
                           int num_tiles) {
    grouped_ring::place at = {0, 1}; // an empty ring counts as read
    int step = gridDim.x / CLUSTER;
    for (int number = blockIdx.x / CLUSTER; number < num_tiles; number += step) {
        grouped_tile t = tile_of(p, number);
        for (int k = 0; k < p.ring.num_steps; k++, at.advance()) {
            uint32_t full = ring.full + at.stage * 8;
            uint32_t stage = ring.stages + at.stage * grouped_ring::STAGE_BYTES;
            barrier_wait(ring.empty + at.stage * 8, at.parity, "both blocks to read stage",
                         at.stage);
            barrier_expect(full, grouped_ring::STAGE_BYTES);
            copy_box(stage, of_step(&p.ring.x), k * INPUTS, t.item.y + rank * LEFT_ROWS, full);
            copy_box_to_all(stage + LEFT_BYTES + rank * HALF * INPUTS_BYTES, &p.ring.weight,
                            k * INPUTS, t.weights + rank * t.second, full, (1 << CLUSTER) - 1);
        }
    }
}

// Waits for the stages of a tile and releases them.
__device__ __forceinline__ void skip_tile(const grouped_ring &ring, grouped_ring::place &at,
                                          int num_steps) {
    for (int k = 0; k < num_steps; k++, at.advance()) {
        barrier_wait(ring.full + at.stage * 8, at.parity, "weights and x of stage", at.stage);
        ring.release(ring.empty + at.stage * 8);
    }
}

// Of columns column .. + 7 of one half; past the last column nothing.
__device__ __forceinline__ void add_bias(float (&c)[4], const grouped_params &p, int expert,
                                         int half, int column, int lane) {
    int at = column + lane % 4 * 2;
    if (at >= p.ring.columns) return;
    const __nv_bfloat16 *bias =
        p.ring.bias + (size_t)expert * p.weight_rows + half * p.ring.columns;
    uint32_t pair = *reinterpret_cast<const uint32_t *>(bias + at);
    c[0] += bf16_low(pair), c[1] += bf16_high(pair);
    c[2] += bf16_low(pair), c[3] += bf16_high(pair);
}

// Writes this quad's rows `row` and + 8 of the item: `values` has 8 columns as pairs, of four
// neighbouring blocks of columns.
__device__ __forceinline__ void write_blocks(const grouped_params &p, const grouped_tile &t,
                                             const uint32_t (&values)[2][4], int row, int column,
                                             int lane) {
#pragma unroll
    for (int half = 0; half < 2; half++, row += 8) {
        uint32_t v[4] = {values[half][0], values[half][1], values[half][2], values[half][3]};
        transpose_quad(v, lane);
        int at = column + lane % 4 * 8;
        if (row >= t.item.z || at >= p.ring.columns) continue;
        auto *to = of_step(p.ring.out) + (size_t)(t.item.y + row) * p.ring.columns + at;
        *reinterpret_cast<uint4 *>(to) = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

// c[b] has the first half's columns 8 b to 8 b + 7, c[b + HALF / 8] the second half's.
__device__ __forceinline__ void write_tile(grouped_ring::sums &c, const grouped_params &p,
                                           const grouped_tile &t, int row, int lane) {
    constexpr int BLOCKS = HALF / 8;
#pragma unroll
    for (int b = 0; b < 2 * BLOCKS && p.ring.bias; b++) {
        int half = p.is_gated ? b / BLOCKS : 0, local = p.is_gated ? b % BLOCKS : b;
        add_bias(c[b], p, t.item.x, half, t.column + local * 8, lane);
    }
    if (p.is_gated) {
#pragma unroll
        for (int b = 0; b < BLOCKS; b += 4) {
            uint32_t values[2][4];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float(&gate)[4] = c[b + i % 4], (&up)[4] = c[b + i % 4 + BLOCKS];
                int at = i / 4 * 2;
                values[i / 4][i % 4] = pack_bf16(activated(p.activation, gate[at], up[at]),
                                                 activated(p.activation, gate[at + 1], up[at + 1]));
            }
            write_blocks(p, t, values, row, t.column + b * 8, lane);
        }
        return;
    }
#pragma unroll
    for (int b = 0; b < 2 * BLOCKS; b += 4) {
        uint32_t values[2][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            values[i / 4][i % 4] = pack_bf16(c[b + i % 4][i / 4 * 2], c[b + i % 4][i / 4 * 2 + 1]);
        }
        write_blocks(p, t, values, row, t.column + b * 8, lane);
    }
}

__device__ void multiply_tiles(const grouped_params &p, const grouped_ring &ring, int rank,
                               int group, int num_tiles) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, step = gridDim.x / CLUSTER;
    grouped_ring::place at = {};
    for (int number = blockIdx.x / CLUSTER; number < num_tiles; number += step) {
        grouped_tile t = tile_of(p, number);
        int first = rank * LEFT_ROWS + group * GROUP_ROWS; // of the item
        if (first >= t.item.z) {
            skip_tile(ring, at, p.ring.num_steps);
            continue;
        }
        grouped_ring::sums c;
        ring.multiply(c, at, p.ring.num_steps, group);
        write_tile(c, p, t, first + warp * 16 + lane / 4, lane);
    }
}

__device__ __forceinline__ void run_block(const grouped_params &p, char *memory) {
    const grouped_ring ring(*reinterpret_cast<grouped_ring::memory *>(memory));
    if (threadIdx.x == COMPUTING) ring.init(p.ring);
    cluster_arrive();
    cluster_wait();
    let_next_start();
    wait_for_earlier();
    int rank = this_place().rank, num_tiles = *of_step(p.num_items) * p.column_tiles;
    auto copy = [&](int) {
        if (threadIdx.x == COMPUTING) copy_tiles(p, ring, rank, num_tiles);
        __syncwarp();
    };
    auto multiply = [&](int warp) { multiply_tiles(p, ring, rank, warp / 4, num_tiles); };
    run_groups(copy, multiply);
    // No block exits while the other still writes to its shared memory (rule 14).
    cluster_arrive();
    cluster_wait();
}

__global__ void __launch_bounds__(THREADS, 1)
    grouped_kernel(const __grid_constant__ grouped_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block(p, memory);))
}

// What a launch multiplies, on the host.
struct grouped_task {
    const cuda_linear_view *weights;
    const void *x;
    uint32_t rows, items;
};

bool launch_task(grouped_params p, const grouped_task &task, const cuda_device_info *info,
                 cudaStream_t stream) {
    const cuda_linear_view &v = *task.weights;
    int per_tile = p.is_gated ? HALF : WEIGHT_ROWS;
    p.ring.x = tensor_map(task.x, task.rows, v.in, LEFT_ROWS, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.ring.weight = tensor_map(v.weight, v.out, v.in, HALF, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.ring.bias = static_cast<const __nv_bfloat16 *>(v.bias);
    p.column_tiles = (p.ring.columns + per_tile - 1) / per_tile;
    p.ring.num_steps = static_cast<int>((v.in + INPUTS - 1) / INPUTS);
    uint64_t tiles = (uint64_t)task.items * static_cast<unsigned>(p.column_tiles);
    int clusters = info->num_sms / CLUSTER;
    if (tiles < static_cast<unsigned>(clusters)) clusters = static_cast<int>(tiles);
    return launch_ring<grouped_ring>(grouped_kernel, p, clusters, CLUSTER, stream);
}

} // namespace

extern "C" bool cuda_experts_gemm_sm90_launch(const struct experts_args *args,
                                              const struct cuda_experts_view *view,
                                              const struct cuda_experts_scratch *scratch,
                                              const struct cuda_device_info *info,
                                              cudaStream_t stream) {
    uint32_t rows = args->num_tokens * args->top_k, experts = view->shape.num_experts;
    // At most one tile per expert is not full.
    uint32_t items = rows / CUDA_EXPERTS_TILE_SM90 + (rows < experts ? rows : experts);
    grouped_params p = {};
    p.items = reinterpret_cast<const int4 *>(scratch->items);
    p.num_items = scratch->num_items;
    p.activation = view->activation;
    p.is_gated = true;
    p.ring.columns = static_cast<int>(view->shape.intermediate);
    p.weight_rows = 2 * p.ring.columns;
    p.ring.out = static_cast<__nv_bfloat16 *>(scratch->activated);
    if (!launch_task(p, {&view->gate_up, scratch->gathered, rows, items}, info, stream)) {
        return false;
    }
    p.is_gated = false;
    p.ring.columns = static_cast<int>(view->shape.hidden);
    p.weight_rows = p.ring.columns;
    p.ring.out = static_cast<__nv_bfloat16 *>(scratch->down);
    return launch_task(p, {&view->down, scratch->activated, rows, items}, info, stream);
}
