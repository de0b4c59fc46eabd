/* Gated linear layer of many rows on sm_90: out = silu(x G^T) * (x U^T), where W is G's rows, then
 * U's (SwiGLU, Shazeer 2020), by wgmma (hopper.cuh). cuBLASLt would have to write both halves to
 * memory before the gating. gemm/gemm_trial.c times both for each shape.
 *
 * Algorithm: a tile is 128 rows of x by 128 outputs of each half. Rows of x are the left operand,
 * outputs the right one (linear/ring_sm90.cuh). The two blocks of a cluster have the same outputs:
 * one copies G's rows to both, the other U's. Blocks are persistent and take tiles in turn, so the
 * ring fills for the next tile while results are written.
 *
 * A row's result does not depend on the other rows.
 *
 * Launch: a block per multiprocessor, in pairs. The tiles that run at the same time cover about
 * 2,048 rows by 2,048 outputs of both halves, which fit in the L2.
 *
 * Bytes: weights once per 2,048 rows, x once, out once; flops 2 x rows x in x out. */
#include "backend/cuda/linear/quad.cuh"
#include "backend/cuda/linear/ring_sm90.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

// Of a tile: columns of out, outputs of both halves.
constexpr int COLUMNS = 128, OUTPUTS = 2 * COLUMNS;
constexpr int CLUSTER = 2; // blocks with the same columns; each copies the weights of one half
constexpr int LINES = 8; // lines of tiles in a band; a line is two blocks high

using gated_ring = ring<OUTPUTS, CLUSTER>;

struct gated_params {
    ring_params ring;
    int num_lines, num_stripes; // tiles: lines of two blocks' rows, stripes of one tile's columns
};

// A cluster's tile: its first row and column of `out`.
struct tile_place {
    int row, column;
};

// Tiles are numbered so that consecutive ones share rows or weights.
__device__ __forceinline__ tile_place place_of(const gated_params &p, int number) {
    int per_band = LINES * p.num_stripes, band = number / per_band, in_band = number % per_band;
    int lines = min(p.num_lines - band * LINES, LINES);
    return {(band * LINES + in_band % lines) * CLUSTER * LEFT_ROWS, in_band / lines * COLUMNS};
}

// Run by one thread of the block. Copies its own rows, and its half of the weights to both blocks.
__device__ void copy_tiles(const gated_params &p, const gated_ring &ring, int rank) {
    gated_ring::place at = {0, 1}; // an empty ring counts as read
    int num_tiles = p.num_lines * p.num_stripes, step = gridDim.x / CLUSTER;
    for (int number = blockIdx.x / CLUSTER; number < num_tiles; number += step) {
        tile_place place = place_of(p, number);
        int row = place.row + rank * LEFT_ROWS;
        int output = place.column + rank * p.ring.columns;
        for (int k = 0; k < p.ring.num_steps; k++, at.advance()) {
            uint32_t full = ring.full + at.stage * 8;
            uint32_t stage = ring.stages + at.stage * gated_ring::STAGE_BYTES;
            barrier_wait(ring.empty + at.stage * 8, at.parity, "both blocks to read stage",
                         at.stage);
            barrier_expect(full, gated_ring::STAGE_BYTES);
            copy_box(stage, of_step(&p.ring.x), k * INPUTS, row, full);
            copy_box_to_all(stage + LEFT_BYTES + rank * COLUMNS * INPUTS_BYTES, &p.ring.weight,
                            k * INPUTS, output, full, (1 << CLUSTER) - 1);
        }
    }
}

// c[b] has the first half's columns 8 b to 8 b + 7, c[b + COLUMNS / 8] the second half's.
__device__ __forceinline__ void add_bias(gated_ring::sums &c, const ring_params &p, int column,
                                         int lane) {
#pragma unroll
    for (int b = 0; b < OUTPUTS / 8; b++) {
        int half = b / (COLUMNS / 8), at = column + b % (COLUMNS / 8) * 8 + lane % 4 * 2;
        if (at >= p.columns) continue;
        uint32_t pair = *reinterpret_cast<const uint32_t *>(p.bias + half * p.columns + at);
        c[b][0] += bf16_low(pair), c[b][1] += bf16_high(pair);
        c[b][2] += bf16_low(pair), c[b][3] += bf16_high(pair);
    }
}

// Writes rows `row` and + 8 of this quad. A quad writes 64 contiguous bytes at a time.
__device__ __forceinline__ void write_tile(const gated_ring::sums &c, const ring_params &p, int row,
                                           int column, int lane) {
    constexpr int BLOCKS = COLUMNS / 8;
#pragma unroll
    for (int half = 0; half < 2; half++, row += 8) {
        __nv_bfloat16 *out = of_step(p.out) + (size_t)row * p.columns;
#pragma unroll
        for (int b = 0; b < BLOCKS; b += 4) {
            uint32_t v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float(&gates)[4] = c[b + i], (&ups)[4] = c[b + i + BLOCKS];
                v[i] = pack_bf16(silu(gates[half * 2]) * ups[half * 2],
                                 silu(gates[half * 2 + 1]) * ups[half * 2 + 1]);
            }
            transpose_quad(v, lane);
            int at = column + (b + lane % 4) * 8;
            if (row >= p.rows || at >= p.columns) continue;
            *reinterpret_cast<uint4 *>(out + at) = make_uint4(v[0], v[1], v[2], v[3]);
        }
    }
}

__device__ void multiply_tiles(const gated_params &p, const gated_ring &ring, int rank, int group) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int num_tiles = p.num_lines * p.num_stripes, step = gridDim.x / CLUSTER;
    gated_ring::place at = {};
    for (int number = blockIdx.x / CLUSTER; number < num_tiles; number += step) {
        tile_place place = place_of(p, number);
        gated_ring::sums c;
        ring.multiply(c, at, p.ring.num_steps, group);
        if (p.ring.bias) add_bias(c, p.ring, place.column, lane);
        write_tile(c, p.ring,
                   place.row + rank * LEFT_ROWS + group * GROUP_ROWS + warp * 16 + lane / 4,
                   place.column, lane);
    }
}

__device__ __forceinline__ void run_block(const gated_params &p, char *memory) {
    const gated_ring ring(*reinterpret_cast<gated_ring::memory *>(memory));
    if (threadIdx.x == COMPUTING) ring.init(p.ring);
    cluster_arrive();
    cluster_wait();
    let_next_start();
    wait_for_earlier();
    int rank = this_place().rank;
    auto copy = [&](int) {
        if (threadIdx.x == COMPUTING) copy_tiles(p, ring, rank);
        __syncwarp();
    };
    auto multiply = [&](int warp) { multiply_tiles(p, ring, rank, warp / 4); };
    run_groups(copy, multiply);
    // No block exits while the other still writes to its shared memory (rule 14).
    cluster_arrive();
    cluster_wait();
}

__global__ void __launch_bounds__(THREADS, 1) gated_kernel(const __grid_constant__ gated_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block(p, memory);))
}

} // namespace

extern "C" bool cuda_linear_gated_launch(const struct cuda_linear_task *args,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    gated_params p = {};
    p.ring = ring_params_of(args, LEFT_ROWS, COLUMNS, info);
    p.num_lines = (p.ring.rows + CLUSTER * LEFT_ROWS - 1) / (CLUSTER * LEFT_ROWS);
    p.num_stripes = (p.ring.columns + COLUMNS - 1) / COLUMNS;
    int clusters = info->num_sms / CLUSTER, tiles = p.num_lines * p.num_stripes;
    return launch_ring<gated_ring>(gated_kernel, p, tiles < clusters ? tiles : clusters, CLUSTER,
                                   info, stream);
}
