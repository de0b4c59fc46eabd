/* Gated linear layer of many rows on sm_90: out = silu(x G^T) * (x U^T), where W is G's rows, then
 * U's (SwiGLU, Shazeer 2020), by wgmma (hopper.cuh). cuBLASLt would have to write both halves to
 * memory before the gating. linear/gemm_trial.c times both for each shape.
 *
 * Algorithm: a tile is 128 rows of x by 128 outputs of each half. Two warpgroups multiply 64 rows
 * each, 64 inputs at a time, from a ring in shared memory. One thread of a third warpgroup copies
 * ahead. The two blocks of a cluster have the same outputs: one copies G's rows to both, the other
 * U's. Blocks are persistent and take tiles in turn, so the ring fills for the next tile while
 * results are written.
 *
 * A row's result does not depend on the other rows.
 *
 * Layout: [STAGES]{[128 rows][128 bytes], [2][128 outputs][128 bytes]}, swizzled as in hopper.cuh.
 *
 * Launch: a block per multiprocessor, in pairs. The tiles that run at the same time cover about
 * 2,048 rows by 2,048 outputs of both halves, which fit in the L2.
 *
 * Bytes: weights once per 2,048 rows, x once, out once; flops 2 x rows x in x out. */
#include <nv/target>

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_map.cuh"
#include "backend/cuda/wgmma_products.cuh"

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int GROUPS = 2, GROUP_THREADS = 128; // warpgroups that multiply
constexpr int THREADS = (GROUPS + 1) * GROUP_THREADS;
constexpr int GROUP_ROWS = 64, ROWS = GROUPS * GROUP_ROWS;
// Of a tile: columns of out, outputs of both halves.
constexpr int COLUMNS = 128, OUTPUTS = 2 * COLUMNS;
constexpr int CLUSTER = 2; // blocks with the same columns; each copies the weights of one half
constexpr int INPUTS = 64, INPUTS_BYTES = INPUTS * 2; // per stage: one swizzle width
constexpr int STAGES = 4;
constexpr int X_BYTES = ROWS * INPUTS_BYTES, WEIGHT_BYTES = OUTPUTS * INPUTS_BYTES;
constexpr int STAGE_BYTES = X_BYTES + WEIGHT_BYTES;
constexpr int COPY_REGISTERS = 40, COMPUTE_REGISTERS = 232; // per thread; the launch gives each 168
constexpr int LINES = 8; // lines of tiles in a band; a line is two blocks high

struct gated_params {
    CUtensorMap x, weight; // [rows][in], [out][in]
    const __nv_bfloat16 *bias; // [out] or NULL
    __nv_bfloat16 *out; // [rows][columns]
    int rows, columns; // of out
    int num_steps; // steps of INPUTS inputs
    int num_lines, num_stripes; // tiles: lines of two blocks' rows, stripes of one tile's columns
};

struct gated_shared {
    char stages[STAGES][STAGE_BYTES];
    uint64_t full[STAGES], empty[STAGES];
};

// A cluster's tile: its first row and column of `out`.
struct tile_place {
    int row, column;
};

// Tiles are numbered so that consecutive ones share rows or weights.
__device__ __forceinline__ tile_place place_of(const gated_params &p, int number) {
    int per_band = LINES * p.num_stripes, band = number / per_band, in_band = number % per_band;
    int lines = min(p.num_lines - band * LINES, LINES);
    return {(band * LINES + in_band % lines) * CLUSTER * ROWS, in_band / lines * COLUMNS};
}

struct gated_addresses {
    uint32_t stages, full, empty;
};

// Run by one thread of the block. Copies its own rows, and its half of the weights to both blocks.
__device__ void copy_tiles(const gated_params &p, const gated_addresses &m, int rank) {
    ring_place<STAGES> at = {0, 1}; // an empty ring counts as read
    int num_tiles = p.num_lines * p.num_stripes, step = gridDim.x / CLUSTER;
    for (int number = blockIdx.x / CLUSTER; number < num_tiles; number += step) {
        tile_place place = place_of(p, number);
        int row = place.row + rank * ROWS;
        int output = place.column + rank * p.columns;
        for (int k = 0; k < p.num_steps; k++, at.advance()) {
            uint32_t full = m.full + at.stage * 8, stage = m.stages + at.stage * STAGE_BYTES;
            barrier_wait(m.empty + at.stage * 8, at.parity, "both blocks to read stage", at.stage);
            barrier_expect(full, STAGE_BYTES);
            copy_box(stage, of_step(&p.x), k * INPUTS, row, full);
            copy_box_to_all(stage + X_BYTES + rank * COLUMNS * INPUTS_BYTES, &p.weight, k * INPUTS,
                            output, full, (1 << CLUSTER) - 1);
        }
    }
}

// Signals both blocks, which both write to this stage, that this warp has read it.
__device__ __forceinline__ void release(uint32_t empty) {
    __syncwarp();
    int lane = threadIdx.x % 32;
    if (lane < CLUSTER) barrier_arrive_at(at_rank(empty, lane));
}

// c[outputs / 8][..]: products of this warpgroup's 64 rows over all inputs.
__device__ __forceinline__ void multiply_tile(float (&c)[OUTPUTS / 8][4], const gated_params &p,
                                              const gated_addresses &m, ring_place<STAGES> &at,
                                              int group) {
    uint32_t before = 0;
    for (int k = 0; k < p.num_steps; k++) {
        uint32_t stage = m.stages + at.stage * STAGE_BYTES;
        uint64_t a = operand(stage + group * GROUP_ROWS * INPUTS_BYTES, 0);
        uint64_t b = operand(stage + X_BYTES, 0);
        barrier_wait(m.full + at.stage * 8, at.parity, "weights and x of stage", at.stage);
        products_begin();
#pragma unroll
        for (int i = 0; i < INPUTS / 16; i++) {
            multiply_shared(c, a + i * 2, b + i * 2, k > 0 || i > 0);
        }
        products_commit();
        products_wait<1>();
        if (k > 0) release(before);
        before = m.empty + at.stage * 8;
        at.advance();
    }
    products_wait<0>();
    hold(c);
    release(before);
}

// Transposes 4 x 4 words in a quad of lanes: word w of lane q and word q of lane w are exchanged.
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4], int lane) {
    uint32_t r0 = __shfl_xor_sync(FULL_WARP, lane & 1 ? v[0] : v[1], 1);
    uint32_t r1 = __shfl_xor_sync(FULL_WARP, lane & 1 ? v[2] : v[3], 1);
    if (lane & 1) {
        v[0] = r0, v[2] = r1;
    } else {
        v[1] = r0, v[3] = r1;
    }
    r0 = __shfl_xor_sync(FULL_WARP, lane & 2 ? v[0] : v[2], 2);
    r1 = __shfl_xor_sync(FULL_WARP, lane & 2 ? v[1] : v[3], 2);
    if (lane & 2) {
        v[0] = r0, v[1] = r1;
    } else {
        v[2] = r0, v[3] = r1;
    }
}

// c[b] has the first half's columns 8 b to 8 b + 7, c[b + COLUMNS / 8] the second half's.
__device__ __forceinline__ void add_bias(float (&c)[OUTPUTS / 8][4], const gated_params &p,
                                         int column, int lane) {
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
__device__ __forceinline__ void write_tile(const float (&c)[OUTPUTS / 8][4], const gated_params &p,
                                           int row, int column, int lane) {
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

__device__ void multiply_tiles(const gated_params &p, const gated_addresses &m, int rank,
                               int group) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int num_tiles = p.num_lines * p.num_stripes, step = gridDim.x / CLUSTER;
    ring_place<STAGES> at = {};
    for (int number = blockIdx.x / CLUSTER; number < num_tiles; number += step) {
        tile_place place = place_of(p, number);
        float c[OUTPUTS / 8][4];
        multiply_tile(c, p, m, at, group);
        if (p.bias) add_bias(c, p, place.column, lane);
        write_tile(c, p, place.row + rank * ROWS + group * GROUP_ROWS + warp * 16 + lane / 4,
                   place.column, lane);
    }
}

__device__ __forceinline__ void run_block(const gated_params &p, char *memory) {
    auto shared = reinterpret_cast<gated_shared *>(memory);
    gated_addresses m = {shared_address(shared->stages), shared_address(shared->full),
                         shared_address(shared->empty)};
    if (threadIdx.x == 0) {
        prefetch_map(&p.x);
        prefetch_map(&p.weight);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(m.full + i * 8, 1);
            barrier_init(m.empty + i * 8, CLUSTER * GROUPS * GROUP_THREADS / 32);
        }
        barrier_init_done();
    }
    cluster_arrive();
    cluster_wait();
    let_next_start();
    wait_for_earlier();
    int rank = this_place().rank;
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0);
    if (warp / 4 == GROUPS) {
        give_registers<COPY_REGISTERS>();
        if (threadIdx.x == GROUPS * GROUP_THREADS) copy_tiles(p, m, rank);
        __syncwarp();
    } else {
        take_registers<COMPUTE_REGISTERS>();
        multiply_tiles(p, m, rank, warp / 4);
    }
    // No block exits while the other still writes to its shared memory (rule 14).
    cluster_arrive();
    cluster_wait();
}

__global__ void __launch_bounds__(THREADS, 1) gated_kernel(const __grid_constant__ gated_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block(p, memory);))
}

} // namespace

extern "C" bool cuda_linear_gated_takes(const struct cuda_linear_task *args,
                                        const struct cuda_device_info *info) {
    return info->encode_tensor_map && args->is_gated && !args->is_added &&
           args->linear.out % 16 == 0 && args->linear.in % 8 == 0;
}

extern "C" bool cuda_linear_gated_launch(const struct cuda_linear_task *args,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    constexpr int BYTES = sizeof(gated_shared);
    gated_params p = {};
    uint32_t in = args->linear.in;
    p.x = tensor_map(args->x, args->rows, in, ROWS, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.weight = tensor_map(args->linear.weight, args->linear.out, in, COLUMNS,
                          CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.bias = static_cast<const __nv_bfloat16 *>(args->linear.bias);
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.rows = static_cast<int>(args->rows);
    p.columns = static_cast<int>(args->linear.out / 2);
    p.num_steps = static_cast<int>((in + INPUTS - 1) / INPUTS);
    p.num_lines = (p.rows + CLUSTER * ROWS - 1) / (CLUSTER * ROWS);
    p.num_stripes = (p.columns + COLUMNS - 1) / COLUMNS;
    int clusters = info->num_sms / CLUSTER, tiles = p.num_lines * p.num_stripes;
    cudaFuncSetAttribute(gated_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    return try_launch_clusters(gated_kernel, tiles < clusters ? tiles : clusters, CLUSTER, THREADS,
                               BYTES, stream, p);
}
