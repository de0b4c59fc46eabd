/* Linears of many rows on sm_90 whose weights are packed (linear/packed.h): y = x W^T + b, with
 * the SwiGLU product of both halves or the addition to the residual, as in linear/batch_sm90.cu.
 *
 * Algorithm: a block multiplies 128 outputs by up to 128 rows of x. Each warp loads the codes of
 * its own 16 outputs to registers and converts them to bf16 there. They are wgmma's left operand,
 * which takes it from registers. Rows of x come to a ring in shared memory by TMA and are the right
 * operand. The products of a group of 64 inputs or more are summed apart. They are multiplied by
 * the group's scale in float32 and added, so a weight is never rounded. Weights of smaller groups
 * are rounded to bf16, as linear/packed.cu writes them: to scale the sums of each would take more
 * instructions. If there are too few outputs for all multiprocessors, the blocks of a cluster
 * divide the inputs (linear/batch_sums.cuh).
 *
 * Layout: a ring of [WIDTH rows][64 inputs], swizzled as in hopper.cuh; afterwards the sums use it.
 *
 * Launch: a cluster of 1 to 8 blocks for 128 outputs and 128 rows; clusters with the same outputs
 * follow each other, so their codes come from the L2. */
#include "backend/cuda/linear/batch_sums.cuh"
#include "backend/cuda/linear/packed.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int BLOCK = CUDA_PACKED_BLOCK, X_STAGES = 8;
constexpr int MULTIPLIES = BLOCK / 16; // matrix instructions for a block of inputs
constexpr int UNIT_MULTIPLIES = INPUTS / 16; // for a unit of inputs: those of a stage of x
constexpr int OUTPUTS_OF_WARP = 16;

struct packed_batch_params {
    batch_params batch; // ring.weight and ring.num_steps are not used
    const uint4 *codes;
    packed_scales scales;
    int tiles, blocks; // blocks of inputs
    int row_tiles;
};

// WIDTH: rows of x, rounded up.
template <int WIDTH_> struct x_ring {
    static constexpr int WIDTH = WIDTH_, STAGES = X_STAGES, STAGE_BYTES = WIDTH * INPUTS_BYTES;
    using place = ring_place<STAGES>;
    struct memory {
        char stages[STAGES][STAGE_BYTES];
        uint64_t full[STAGES], empty[STAGES];
    };
    uint32_t stages, full, empty; // shared addresses

    __device__ __forceinline__ explicit x_ring(const memory &m)
        : stages(shared_address(m.stages)), full(shared_address(m.full)),
          empty(shared_address(m.empty)) {
    }
    // Run by one thread (rule 7).
    __device__ __forceinline__ void init(const ring_params &p) const {
        prefetch_map(&p.x);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, COMPUTING / 32);
        }
        barrier_init_done();
    }
};

__device__ __forceinline__ batch_share share_of(const packed_batch_params &p) {
    const batch_params &b = p.batch;
    batch_share s = {};
    int cluster = blockIdx.x / b.split, rank = blockIdx.x % b.split;
    int number = cluster / p.row_tiles;
    bool is_gated = b.kind == GATED;
    s.row = cluster % p.row_tiles * CUDA_BATCH_ROWS;
    s.column = number * (is_gated ? OUTPUTS / 2 : OUTPUTS);
    s.second = s.column + (is_gated ? b.ring.columns : OUTPUTS / 2);
    s.begin = p.blocks * rank / b.split;
    s.end = p.blocks * (rank + 1) / b.split;
    return s;
}

// Run by one thread.
template <typename R>
__device__ void copy_x(const packed_batch_params &p, const R &ring, const batch_share &s) {
    wait_for_earlier();
    typename R::place at = {0, 1}; // an empty ring counts as read
    for (int step = s.begin * 2; step < s.end * 2; step++, at.advance()) {
        barrier_wait(ring.empty + at.stage * 8, at.parity, "a free stage,", at.stage);
        barrier_expect(ring.full + at.stage * 8, R::STAGE_BYTES);
        copy_box(ring.stages + at.stage * R::STAGE_BYTES, of_step(&p.batch.ring.x), step * INPUTS,
                 s.row, ring.full + at.stage * 8);
    }
}

// What a lane loads for 128 inputs: of its warp's first tile and of its second.
template <typename K> struct block_loads {
    static constexpr int STEPS = BLOCK / K::STEP, SPANS = BLOCK / K::SPAN;
    // Weights of small groups are rounded to bf16. Otherwise the sums of SCALED groups are scaled.
    static constexpr bool IS_ROUNDED = K::GROUP && K::GROUP <= CUDA_PACKED_MINIMA_GROUP;
    static constexpr int SCALED = K::GROUP && !IS_ROUNDED ? BLOCK / K::GROUP : 0;
    uint4 codes[2][STEPS];
    uint32_t scales[2][SPANS][K::LANE_WORDS];
};

template <typename K>
__device__ __forceinline__ void load_block(block_loads<K> &to, const packed_batch_params &p,
                                           const int (&tiles)[2], int block, int lane) {
    using loads = block_loads<K>;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        size_t at = static_cast<size_t>(tiles[half] * p.blocks + block) * loads::STEPS * 32 + lane;
#pragma unroll
        for (int i = 0; i < loads::STEPS; i++) to.codes[half][i] = __ldg(p.codes + at + i * 32);
#pragma unroll
        for (int i = 0; i < loads::SPANS; i++) {
            load_scales<K>(to.scales[half][i], p.scales, tiles[half], block * loads::SPANS + i,
                           lane);
        }
    }
}

// Converts the codes of unit 0 or 1 of the 128 inputs to the left operands of its matrix
// instructions. They are the codes' values, exact, or the rounded weights.
template <typename K>
__device__ __forceinline__ void convert_unit(uint32_t (&a)[UNIT_MULTIPLIES][4],
                                             const block_loads<K> &loads, int unit, int lane) {
    constexpr int PER_GROUP = K::GROUP ? K::GROUP / 16 : MULTIPLIES, PER_SPAN = K::SPAN / 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        group_factors f = {};
#pragma unroll
        for (int i = 0; i < UNIT_MULTIPLIES; i++) {
            int number = unit * UNIT_MULTIPLIES + i;
            if (K::GROUP && (i == 0 || number % PER_GROUP == 0)) {
                f = factors_in<K>(loads.scales[half][number / PER_SPAN],
                                  number % PER_SPAN / PER_GROUP, lane);
            }
            value_pairs<K>(loads.codes[half][number / K::MULTIPLIES], number % K::MULTIPLIES,
                           f.zeros, a[i][half], a[i][half + 2]);
            if (block_loads<K>::IS_ROUNDED) {
                a[i][half] = weight_pair(a[i][half], f);
                a[i][half + 2] = weight_pair(a[i][half + 2], f);
            }
        }
    }
}

// Products of units in turn. One is in flight while the next is converted.
template <typename R> struct unit_products {
    const R &ring;
    typename R::place at;
    uint32_t before; // barrier of the stage that the unit in flight reads; 0: none is in flight

    __device__ __forceinline__ void release() const {
        __syncwarp();
        if (before && threadIdx.x % 32 == 0) barrier_arrive(before); // rule 9
    }
    // Afterwards the operands of the unit before may be overwritten.
    __device__ __forceinline__ void issue(float (&to)[R::WIDTH / 8][4],
                                          const uint32_t (&a)[UNIT_MULTIPLIES][4], bool adds) {
        uint32_t stage = ring.stages + at.stage * R::STAGE_BYTES;
        barrier_wait(ring.full + at.stage * 8, at.parity, "x of stage", at.stage);
        products_begin();
#pragma unroll
        for (int i = 0; i < UNIT_MULTIPLIES; i++) {
            multiply_registers(to, a[i], operand(stage, 0) + i * 2, adds || i > 0);
        }
        products_commit();
        products_wait<1>();
        release();
        before = ring.empty + at.stage * 8;
        at.advance();
    }
    __device__ __forceinline__ void finish(float (&to)[R::WIDTH / 8][4]) {
        products_wait<0>();
        hold(to);
        release();
        before = 0;
    }
};

template <int N>
__device__ __forceinline__ void add_scaled(float (&sums)[N][4], const float (&part)[N][4],
                                           float low, float high) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        sums[j][0] = fmaf(part[j][0], low, sums[j][0]);
        sums[j][1] = fmaf(part[j][1], low, sums[j][1]);
        sums[j][2] = fmaf(part[j][2], high, sums[j][2]);
        sums[j][3] = fmaf(part[j][3], high, sums[j][3]);
    }
}

template <typename K, typename R>
__device__ __forceinline__ void multiply_share(float (&sums)[R::WIDTH / 8][4],
                                               const packed_batch_params &p, const R &ring,
                                               const batch_share &s, int warp) {
    constexpr int AHEAD = R::WIDTH > 64 ? (K::BITS == 8 ? 2 : 3) : 4;
    constexpr int SCALED = block_loads<K>::SCALED;
    // Weights that are rounded take longer to convert. To convert both units first is faster then:
    // by 11 % with 16 rows.
    constexpr bool OVERLAPS = !block_loads<K>::IS_ROUNDED;
    int lane = threadIdx.x % 32;
    int row = (warp / 4 ? s.second : s.column) + warp % 4 * OUTPUTS_OF_WARP;
    // Missing tiles are multiplied, but their results are not used.
    const int tiles[2] = {min(row / CUDA_PACKED_TILE, p.tiles - 1),
                          min(row / CUDA_PACKED_TILE + 1, p.tiles - 1)};
    block_loads<K> loads[AHEAD] = {};
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        if (s.begin + i < s.end) load_block<K>(loads[i], p, tiles, s.begin + i, lane);
    }
    uint32_t a[2][UNIT_MULTIPLIES][4]; // of units that take turns
    if (OVERLAPS) convert_unit<K>(a[0], loads[0], 0, lane);
    unit_products<R> products = {ring, {0, 0}, 0};
    for (int block = s.begin; block < s.end; block += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (block + i >= s.end) break;
            float part[R::WIDTH / 8][4], scales[2][2] = {}; // scales: of groups and halves
            float(&to)[R::WIDTH / 8][4] = SCALED ? part : sums;
#pragma unroll
            for (int g = 0; g < 2 * SCALED; g++) {
                scales[g / 2][g % 2] = factors_in<K>(loads[i].scales[g % 2][0], g / 2, lane).scale;
            }
            if (!OVERLAPS) convert_unit<K>(a[0], loads[i], 0, lane);
            if (!OVERLAPS) convert_unit<K>(a[1], loads[i], 1, lane);
            products.issue(to, a[0], !SCALED && block + i > s.begin);
            if (OVERLAPS) convert_unit<K>(a[1], loads[i], 1, lane);
            int next = block + i + AHEAD;
            if (next < s.end) load_block<K>(loads[i], p, tiles, next, lane);
            if (SCALED == 2) {
                products.finish(part);
                add_scaled(sums, part, scales[0][0], scales[0][1]);
            }
            products.issue(to, a[1], SCALED != 2);
            if (OVERLAPS && block + i + 1 < s.end) {
                convert_unit<K>(a[0], loads[(i + 1) % AHEAD], 0, lane);
            }
            if (!OVERLAPS) products.finish(to);
            if (SCALED) {
                products.finish(part);
                add_scaled(sums, part, scales[SCALED == 2][0], scales[SCALED == 2][1]);
            }
        }
    }
    if (!SCALED) products.finish(sums);
    if (K::GROUP == 0) {
        int low = tiles[0] * CUDA_PACKED_TILE + lane / 4;
        float low_scale = p.scales.rows[low];
        float high_scale = p.scales.rows[tiles[1] * CUDA_PACKED_TILE + lane / 4];
#pragma unroll
        for (int j = 0; j < R::WIDTH / 8; j++) {
            sums[j][0] *= low_scale, sums[j][1] *= low_scale;
            sums[j][2] *= high_scale, sums[j][3] *= high_scale;
        }
    }
}

template <typename K, typename R>
__device__ __forceinline__ void run_block(const packed_batch_params &p, char *memory) {
    const R ring(*reinterpret_cast<typename R::memory *>(memory));
    const batch_share s = share_of(p);
    if (threadIdx.x == COMPUTING) ring.init(p.batch.ring);
    __syncthreads();
    let_next_start();
    auto copy = [&](int warp) {
        if (threadIdx.x == COMPUTING) copy_x(p, ring, s);
        __syncwarp();
        if (p.batch.split > 1) cluster_sync(warp);
    };
    auto multiply = [&](int warp) {
        float sums[R::WIDTH / 8][4] = {};
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
__global__ void __launch_bounds__(THREADS, 1)
    packed_batch_kernel(const __grid_constant__ packed_batch_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block<K, R>(p, memory);))
}

ring_params x_params_of(const cuda_linear_task *task, uint32_t width,
                        const cuda_device_info *info) {
    ring_params p = {};
    p.x = tensor_map(task->x, task->rows, task->linear.in, width, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.bias = static_cast<const __nv_bfloat16 *>(task->linear.bias);
    p.out = static_cast<__nv_bfloat16 *>(task->out);
    p.rows = static_cast<int>(task->rows);
    p.columns = static_cast<int>(task->is_gated ? task->linear.out / 2 : task->linear.out);
    return p;
}

int clusters_of(const cuda_linear_task *task, int row_tiles) {
    uint32_t columns = task->is_gated ? task->linear.out / 2 : task->linear.out;
    uint32_t per_cluster = task->is_gated ? OUTPUTS / 2 : OUTPUTS;
    return static_cast<int>((columns + per_cluster - 1) / per_cluster) * row_tiles;
}

int row_tiles_of(const cuda_linear_task *task) {
    return static_cast<int>((task->rows + CUDA_BATCH_ROWS - 1) / CUDA_BATCH_ROWS);
}

template <typename K, int WIDTH>
bool launch(const cuda_linear_task *task, uint32_t split, const cuda_device_info *info,
            cudaStream_t stream) {
    using R = x_ring<WIDTH>;
    static_assert(WIDTH * PITCH * 4 <= R::STAGES * R::STAGE_BYTES, "the sums fit");
    packed_batch_params p = {};
    p.batch.ring = x_params_of(task, WIDTH, info);
    p.batch.split = static_cast<int>(split);
    p.batch.kind = task->is_gated       ? GATED
                   : task->is_added     ? ADDED
                   : task->out_is_float ? FLOATS
                                        : PLAIN;
    p.codes = static_cast<const uint4 *>(task->linear.weight);
    p.scales = packed_scales_of(task->linear);
    p.tiles = static_cast<int>(task->linear.out / CUDA_PACKED_TILE);
    p.blocks = static_cast<int>(task->linear.in / BLOCK);
    p.row_tiles = row_tiles_of(task);
    return launch_ring<R>(packed_batch_kernel<K, R>, p, clusters_of(task, p.row_tiles),
                          p.batch.split, stream);
}

template <typename K>
bool launch_kind(const cuda_linear_task *task, uint32_t split, const cuda_device_info *info,
                 cudaStream_t stream) {
    if (task->rows <= 32) return launch<K, 32>(task, split, info, stream);
    if (task->rows <= 64) return launch<K, 64>(task, split, info, stream);
    return launch<K, CUDA_BATCH_ROWS>(task, split, info, stream);
}

// The most blocks that still run at the same time.
uint32_t choose_split(const cuda_linear_task *task, const cuda_device_info *info) {
    int clusters = clusters_of(task, row_tiles_of(task));
    uint32_t split = 1;
    while (split < CUDA_BATCH_SPLIT_MAX &&
           clusters * static_cast<int>(split) * 2 <= info->num_sms &&
           split * 2 <= task->linear.in / BLOCK) {
        split *= 2;
    }
    return split;
}

} // namespace

extern "C" bool cuda_packed_batch_launch(const struct cuda_linear_task *task, uint32_t split,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    if (!split) split = choose_split(task, info);
    return with_kind(task->linear, [&](auto kind) {
        return launch_kind<decltype(kind)>(task, split, info, stream);
    });
}
