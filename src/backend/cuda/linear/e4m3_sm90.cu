/* Linears on sm_90 of e4m3 weights by rows of x that linear/round_rows.cu has rounded to e4m3, with
 * the work that follows: SiLU of one half times the other, or the addition to the residual.
 *
 * Algorithm: a block multiplies 128 outputs by WIDTH rows of x, each warpgroup 64 of the outputs.
 * Weights are the left operand of wgmma and rows of x the right one. The tensor cores add with few
 * bits (about 14), so the products of 128 inputs are summed apart, and then added in float32, times
 * the scales of the weights' and of the rows' group. If there are too few outputs for all
 * multiprocessors, the blocks of a cluster divide the inputs (linear/batch_sums.cuh).
 *
 * Layout: a ring of {weights [16 tiles][2 steps][512 bytes], x [WIDTH][128 bytes]} and of the rows'
 * scales [WIDTH]. Weights are as in linear/packed.h, x is swizzled as in hopper.cuh. Afterwards the
 * sums use the ring.
 *
 * Launch: a cluster of 1 to 8 blocks for 128 outputs and WIDTH rows. Clusters with the same outputs
 * follow each other, so their codes come from the L2. */
#include "backend/cuda/linear/batch_sums.cuh"
#include "backend/cuda/linear/e4m3.h"
#include "backend/cuda/linear/packed.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int BLOCK = CUDA_PACKED_BLOCK, MULTIPLIES = BLOCK / 32;
constexpr int TILE_BYTES = BLOCK * CUDA_PACKED_TILE, STEP_BYTES = CUDA_PACKED_STEP_BYTES;
constexpr int GROUP_BYTES = GROUP_ROWS / CUDA_PACKED_TILE * TILE_BYTES; // of a warpgroup's weights
constexpr int WEIGHT_BYTES = GROUPS * GROUP_BYTES;
constexpr int TILE_WORDS = TILE_BYTES / 4;

struct e4m3_params {
    batch_params batch; // the ring's maps: bytes of x, words of the weights' tiles
    packed_scales scales;
    const float *x_scales; // [blocks][x_stride] or [rows]
    int x_stride, tiles, blocks, row_tiles;
};

template <int WIDTH_> struct code_ring {
    static constexpr int WIDTH = WIDTH_;
    static constexpr int STAGE_BYTES = WEIGHT_BYTES + WIDTH * BLOCK;
    static constexpr int FIT = (SHARED_MAX - 1024) / (STAGE_BYTES + WIDTH * 4);
    static constexpr int STAGES = FIT < STAGES_MAX ? FIT : STAGES_MAX;
    using place = ring_place<STAGES>;
    using sums = float[WIDTH / 8][4]; // of a warpgroup's thread
    struct memory {
        char stages[STAGES][STAGE_BYTES];
        float x_scales[STAGES][WIDTH];
        uint64_t full[STAGES], empty[STAGES];
    };
    uint32_t stages, x_scales, full, empty; // shared addresses

    __device__ __forceinline__ explicit code_ring(const memory &m)
        : stages(shared_address(m.stages)), x_scales(shared_address(m.x_scales)),
          full(shared_address(m.full)), empty(shared_address(m.empty)) {
    }
    // Run by one thread (rule 7).
    __device__ __forceinline__ void init(const ring_params &p) const {
        prefetch_map(&p.x);
        prefetch_map(&p.weight);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, COMPUTING / 32);
        }
        barrier_init_done();
    }
};

template <int WIDTH> __device__ __forceinline__ batch_share share_of(const e4m3_params &p) {
    const batch_params &b = p.batch;
    batch_share s = {};
    int cluster = blockIdx.x / b.split, rank = blockIdx.x % b.split;
    int number = cluster / p.row_tiles;
    bool is_gated = b.kind == GATED;
    s.row = cluster % p.row_tiles * WIDTH;
    s.column = number * (is_gated ? OUTPUTS / 2 : OUTPUTS);
    s.second = s.column + (is_gated ? b.ring.columns : OUTPUTS / 2);
    s.begin = p.blocks * rank / b.split;
    s.end = p.blocks * (rank + 1) / b.split;
    return s;
}

// Run by one thread. Weights come before the wait for earlier kernels, x after it (rule 1).
template <bool GROUPED, typename R>
__device__ void copy_stages(const e4m3_params &p, const R &ring, const batch_share &s) {
    constexpr int BYTES = R::STAGE_BYTES + (GROUPED ? R::WIDTH * 4 : 0);
    auto copy_weights = [&](int block, int stage) {
        uint32_t to = ring.stages + stage * R::STAGE_BYTES, full = ring.full + stage * 8;
        barrier_expect(full, BYTES);
        copy_box(to, &p.batch.ring.weight, block * TILE_WORDS, s.column / CUDA_PACKED_TILE, full);
        copy_box(to + GROUP_BYTES, &p.batch.ring.weight, block * TILE_WORDS,
                 s.second / CUDA_PACKED_TILE, full);
    };
    auto copy_x = [&](int block, int stage) {
        uint32_t to = ring.stages + stage * R::STAGE_BYTES, full = ring.full + stage * 8;
        copy_box(to + WEIGHT_BYTES, of_step(&p.batch.ring.x), block * BLOCK, s.row, full);
        if (!GROUPED) return;
        copy_bulk(ring.x_scales + stage * R::WIDTH * 4,
                  of_step(p.x_scales) + (size_t)block * p.x_stride + s.row, R::WIDTH * 4, full);
    };
    int early = min(s.end - s.begin, R::STAGES);
    for (int i = 0; i < early; i++) copy_weights(s.begin + i, i);
    wait_for_earlier();
    for (int i = 0; i < early; i++) copy_x(s.begin + i, i);
    typename R::place at = {0, 0};
    for (int block = s.begin + early; block < s.end; block++, at.advance()) {
        barrier_wait(ring.empty + at.stage * 8, at.parity, "a free stage,", at.stage);
        copy_weights(block, at.stage);
        copy_x(block, at.stage);
    }
}

__device__ __forceinline__ float2 load_pair(uint32_t shared) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(shared)
                 : "memory");
    return v;
}

// sums += part, times the scales: low and high of this thread's two outputs, those at `x_scales` of
// its rows of x.
template <bool GROUPED, int N>
__device__ __forceinline__ void add_part(float (&sums)[N][4], const float (&part)[N][4], float low,
                                         float high, uint32_t x_scales) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (!GROUPED) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums[j][i] += part[j][i];
            continue;
        }
        float2 x = load_pair(x_scales + j * 32);
        sums[j][0] = fmaf(part[j][0], low * x.x, sums[j][0]);
        sums[j][1] = fmaf(part[j][1], low * x.y, sums[j][1]);
        sums[j][2] = fmaf(part[j][2], high * x.x, sums[j][2]);
        sums[j][3] = fmaf(part[j][3], high * x.y, sums[j][3]);
    }
}

// The scales of this thread's two outputs in a group of inputs, as loaded and as numbers.
template <typename K> struct output_scales {
    uint32_t words[2][K::LANE_WORDS];

    __device__ __forceinline__ void load(const e4m3_params &p, const int (&tiles)[2], int block,
                                         int lane) {
        load_scales<K>(words[0], p.scales, tiles[0], block, lane);
        load_scales<K>(words[1], p.scales, tiles[1], block, lane);
    }
    __device__ __forceinline__ float of(int half) const {
        return __uint_as_float(words[half][0]);
    }
};

template <typename K, typename R>
__device__ __forceinline__ void multiply_share(typename R::sums &sums, const e4m3_params &p,
                                               const R &ring, const batch_share &s, int warp) {
    int lane = threadIdx.x % 32, group = warp / 4;
    int tile = ((group ? s.second : s.column) + warp % 4 * 16) / CUDA_PACKED_TILE;
    // Missing tiles are multiplied, but their results are not used.
    const int tiles[2] = {min(tile, p.tiles - 1), min(tile + 1, p.tiles - 1)};
    output_scales<K> scales, next = {};
    next.load(p, tiles, s.begin, lane);
    typename R::place at = {};
    for (int block = s.begin; block < s.end; block++, at.advance()) {
        scales = next;
        if (block + 1 < s.end) next.load(p, tiles, block + 1, lane);
        uint32_t stage = ring.stages + at.stage * R::STAGE_BYTES;
        uint64_t a = operand_of_64(stage + group * GROUP_BYTES, TILE_BYTES);
        uint64_t b = operand(stage + WEIGHT_BYTES, 0);
        typename R::sums part;
        barrier_wait(ring.full + at.stage * 8, at.parity, "codes of stage", at.stage);
        products_begin();
#pragma unroll
        for (int i = 0; i < MULTIPLIES; i++) {
            multiply_e4m3(part, a + (i / 2 * STEP_BYTES + i % 2 * 32) / 16, b + i * 2, i > 0);
        }
        products_commit();
        products_wait<0>();
        hold(part);
        add_part<K::GROUP != 0>(sums, part, scales.of(0), scales.of(1),
                                ring.x_scales + (at.stage * R::WIDTH + lane % 4 * 2) * 4);
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.empty + at.stage * 8); // rule 9
    }
    if (K::GROUP) return;
    float low = p.scales.rows[tiles[0] * CUDA_PACKED_TILE + lane / 4];
    float high = p.scales.rows[tiles[1] * CUDA_PACKED_TILE + lane / 4];
    wait_for_earlier(); // rule 2; returns at once by now
    const float *x_scales = of_step(p.x_scales) + s.row + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < R::WIDTH / 8; j++) {
        float2 x = *reinterpret_cast<const float2 *>(x_scales + j * 8);
        sums[j][0] *= low * x.x, sums[j][1] *= low * x.y;
        sums[j][2] *= high * x.x, sums[j][3] *= high * x.y;
    }
}

template <typename K, typename R>
__device__ __forceinline__ void run_block(const e4m3_params &p, char *memory) {
    const R ring(*reinterpret_cast<typename R::memory *>(memory));
    const batch_share s = share_of<R::WIDTH>(p);
    if (threadIdx.x == COMPUTING) ring.init(p.batch.ring);
    __syncthreads();
    let_next_start();
    auto copy = [&](int warp) {
        if (threadIdx.x == COMPUTING) copy_stages<K::GROUP != 0>(p, ring, s);
        __syncwarp();
        if (p.batch.split > 1) cluster_sync(warp);
    };
    auto multiply = [&](int warp) {
        typename R::sums sums = {};
        multiply_share<K>(sums, p, ring, s, warp);
        named_wait(GROUP_BARRIER, COMPUTING); // all have read the ring
        write_sums(sums, reinterpret_cast<float *>(memory), warp / 4);
        wait_for_earlier(); // rule 2; returns at once by now
        named_wait(GROUP_BARRIER, COMPUTING);
        if (p.batch.split > 1) cluster_sync(warp);
        finish(p.batch, s, ring.stages);
    };
    run_groups(copy, multiply);
    // No block exits while others still read its sums (rule 14).
    if (p.batch.split > 1) cluster_arrive_relaxed();
    if (p.batch.split > 1) cluster_wait();
}

template <typename K, typename R>
__global__ void __launch_bounds__(THREADS, 1) e4m3_kernel(const __grid_constant__ e4m3_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block<K, R>(p, memory);))
}

// For the same rows.
int clusters_of(const cuda_linear_task *task) {
    uint32_t columns = task->is_gated ? task->linear.out / 2 : task->linear.out;
    uint32_t per_cluster = task->is_gated ? OUTPUTS / 2 : OUTPUTS;
    return static_cast<int>((columns + per_cluster - 1) / per_cluster);
}

ring_params codes_params_of(const cuda_linear_task *task, const cuda_rounded_rows *x,
                            uint32_t width, const cuda_device_info *info) {
    const cuda_linear_view &v = task->linear;
    ring_params p = {};
    p.x = tensor_map_of(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, x->codes, task->rows, v.in, width, BLOCK,
                        CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.weight = tensor_map_of(CU_TENSOR_MAP_DATA_TYPE_UINT32, 4, v.weight, v.out / CUDA_PACKED_TILE,
                             (uint64_t)v.in * CUDA_PACKED_TILE / 4, GROUP_ROWS / CUDA_PACKED_TILE,
                             TILE_WORDS, CU_TENSOR_MAP_SWIZZLE_NONE, info);
    p.bias = static_cast<const __nv_bfloat16 *>(v.bias);
    p.out = static_cast<__nv_bfloat16 *>(task->out);
    p.rows = static_cast<int>(task->rows);
    p.columns = static_cast<int>(task->is_gated ? v.out / 2 : v.out);
    return p;
}

template <typename K, int WIDTH>
bool launch(const cuda_linear_task *task, const cuda_rounded_rows *x, const cuda_e4m3_blocks &b,
            const cuda_device_info *info, cudaStream_t stream) {
    using R = code_ring<WIDTH>;
    static_assert(WIDTH * PITCH * 4 <= R::STAGES * R::STAGE_BYTES, "the sums fit");
    e4m3_params p = {};
    p.batch.ring = codes_params_of(task, x, WIDTH, info);
    p.batch.split = static_cast<int>(b.split);
    p.batch.kind = task->is_gated       ? GATED
                   : task->is_added     ? ADDED
                   : task->out_is_float ? FLOATS
                                        : PLAIN;
    p.scales = packed_scales_of(task->linear);
    p.x_scales = x->scales;
    p.x_stride = static_cast<int>(x->scales_stride);
    p.tiles = static_cast<int>(task->linear.out / CUDA_PACKED_TILE);
    p.blocks = static_cast<int>(task->linear.in / BLOCK);
    p.row_tiles = static_cast<int>((task->rows + WIDTH - 1) / WIDTH);
    return launch_ring<R>(e4m3_kernel<K, R>, p, clusters_of(task) * p.row_tiles, p.batch.split,
                          stream);
}

template <typename K>
bool launch_kind(const cuda_linear_task *task, const cuda_rounded_rows *x,
                 const cuda_e4m3_blocks &b, const cuda_device_info *info, cudaStream_t stream) {
    if (b.width == 32) return launch<K, 32>(task, x, b, info, stream);
    if (b.width == 64) return launch<K, 64>(task, x, b, info, stream);
    return launch<K, CUDA_E4M3_ROWS>(task, x, b, info, stream);
}

} // namespace

extern "C" bool cuda_e4m3_launch(const struct cuda_linear_task *task,
                                 const struct cuda_rounded_rows *x,
                                 const struct cuda_e4m3_blocks *blocks,
                                 const struct cuda_device_info *info, cudaStream_t stream) {
    using grouped = packed_kind<WEIGHT_CODE_E4M3, CUDA_PACKED_BLOCK, false>;
    using by_row = packed_kind<WEIGHT_CODE_E4M3, 0, false>;
    return task->linear.group ? launch_kind<grouped>(task, x, *blocks, info, stream)
                              : launch_kind<by_row>(task, x, *blocks, info, stream);
}
