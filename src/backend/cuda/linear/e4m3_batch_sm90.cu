/* Linears of e4m3 weights by up to 128 rounded rows of x (linear/e4m3.h) on sm_90, for decode
 * batches: y = x W^T + b, or added to the residual. Codes are multiplied by codes, by wgmma.
 *
 * Algorithm: that of linear/batch_sm90.cu, with codes in place of bf16: a step of the ring has 128
 * inputs. The products of a step are summed apart and added in float32, times both scales where
 * blocks of 128 inputs have scales: tensor cores add e4m3 with some 14 bits. Scales of whole rows
 * and outputs multiply the finished sums. The scales of x come to the ring with its codes.
 *
 * Layout: the ring, then [STAGES][ROWS] scales of x; afterwards the sums use the ring's memory.
 *
 * Launch: outputs / 128 clusters. Two blocks divide the inputs where all clusters of two run at
 * once. Bytes: weights once; x once per cluster. */
#include "backend/cuda/linear/batch_sums.cuh"
#include "backend/cuda/linear/e4m3.h"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

struct codes_params {
    batch_params batch;
    // Of weights: dev [out], or [ceil(out / 128)][weight_stride]. Of x: [rows], or
    // [steps][x_stride].
    const float *weight_scales, *x_scales;
    int weight_stride, x_stride; // 0: scales of outputs and rows
    uint32_t scales_bytes; // of x, of a step
};

__device__ __forceinline__ float2 load_float2(uint32_t shared) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(shared)
                 : "memory");
    return v;
}

constexpr int SCALES_BYTES = STAGES_MAX * CUDA_E4M3_BATCH_ROWS * 4;

// ROWS: rows of x, rounded up.
template <int ROWS> using codes_ring = ring<ROWS, 1, 1024 + SCALES_BYTES>;
template <typename R> struct codes_memory {
    typename R::memory ring;
    float scales[R::STAGES][R::WIDTH];
};

// HAS_BLOCKS: blocks of weights and groups of inputs have scales.
template <typename R, bool HAS_BLOCKS> struct codes_block {
    const codes_params &p;
    const R ring;
    const uint32_t scales; // shared: of x
    const batch_share s;

    __device__ __forceinline__ codes_block(const codes_params &params, codes_memory<R> &m)
        : p(params), ring(m.ring), scales(shared_address(m.scales)), s(share_of(params.batch)) {
    }

    __device__ __forceinline__ void copy_weights(int stage, int step) const {
        uint32_t to = ring.stages + stage * R::STAGE_BYTES, full = ring.full + stage * 8;
        barrier_expect(full, R::STAGE_BYTES + p.scales_bytes);
        uint64_t policy = evict_first_policy();
        copy_box(to, &p.batch.ring.weight, step * INPUTS, s.column, full, policy);
        copy_box(to + LEFT_BYTES / 2, &p.batch.ring.weight, step * INPUTS, s.second, full, policy);
    }
    __device__ __forceinline__ void copy_rows(int stage, int step) const {
        uint32_t full = ring.full + stage * 8;
        copy_box(ring.stages + stage * R::STAGE_BYTES + LEFT_BYTES, of_step(&p.batch.ring.x),
                 step * INPUTS, 0, full);
        if (!HAS_BLOCKS) return;
        copy_bulk(scales + stage * R::WIDTH * 4, of_step(p.x_scales) + (size_t)step * p.x_stride,
                  p.scales_bytes, full);
    }
    // Run by one thread. Weights are constant, so it fills the whole ring with them before it waits
    // (rule 1).
    __device__ void copy() const {
        int ahead = min(s.end - s.begin, R::STAGES);
        for (int i = 0; i < ahead; i++) copy_weights(i, s.begin + i);
        wait_for_earlier();
        for (int i = 0; i < ahead; i++) copy_rows(i, s.begin + i);
        typename R::place at = {0, 0};
        for (int step = s.begin + ahead; step < s.end; step++, at.advance()) {
            barrier_wait(ring.empty + at.stage * 8, at.parity, "a free stage,", at.stage);
            copy_weights(at.stage, step);
            copy_rows(at.stage, step);
        }
    }

    // Adds the products of a step, times the scales of its inputs, and releases its stage.
    __device__ __forceinline__ void add(typename R::sums &sums, const typename R::sums &part,
                                        int stage, int step) const {
        static_assert(OUTPUTS == CUDA_PACKED_BLOCK, "a block has one scale a step");
        const float *of_blocks = p.weight_scales + (size_t)(s.column / OUTPUTS) * p.weight_stride;
        float weight = HAS_BLOCKS ? __ldg(of_blocks + step) : 1;
        uint32_t from = scales + (stage * R::WIDTH + threadIdx.x % 4 * 2) * 4;
        float2 factors[R::WIDTH / 8];
#pragma unroll
        for (int j = 0; HAS_BLOCKS && j < R::WIDTH / 8; j++) {
            factors[j] = load_float2(from + j * 32);
        }
        ring.release(ring.empty + stage * 8);
#pragma unroll
        for (int j = 0; j < R::WIDTH / 8; j++) {
            float first = HAS_BLOCKS ? factors[j].x * weight : 1;
            float second = HAS_BLOCKS ? factors[j].y * weight : 1;
            sums[j][0] = fmaf(part[j][0], first, sums[j][0]);
            sums[j][1] = fmaf(part[j][1], second, sums[j][1]);
            sums[j][2] = fmaf(part[j][2], first, sums[j][2]);
            sums[j][3] = fmaf(part[j][3], second, sums[j][3]);
        }
    }

    // Starts the products of a stage. `group`: of the block's two, which has 64 of its outputs.
    __device__ __forceinline__ void start(typename R::sums &part, const typename R::place &at,
                                          int group) const {
        uint32_t stage = ring.stages + at.stage * R::STAGE_BYTES;
        uint64_t a = operand(stage + group * GROUP_ROWS * INPUTS_BYTES, 0);
        uint64_t b = operand(stage + LEFT_BYTES, 0);
        barrier_wait(ring.full + at.stage * 8, at.parity, "codes of stage", at.stage);
        products_begin();
#pragma unroll
        for (int i = 0; i < INPUTS_BYTES / 32; i++) {
            multiply_codes(part, a + i * 2, b + i * 2, i > 0);
        }
        products_commit();
    }

    // The products of a step run while those of the one before are added.
    __device__ __forceinline__ void multiply(typename R::sums &sums, int group) const {
        typename R::place at = {};
        typename R::sums even, odd;
        int step = s.begin;
        start(even, at, group);
        for (; step + 2 < s.end; step += 2) {
            advance(odd, even, sums, at, group, step);
            advance(even, odd, sums, at, group, step + 1);
        }
        if (step + 1 < s.end) {
            advance(odd, even, sums, at, group, step);
            products_wait<0>();
            hold(odd);
            add(sums, odd, at.stage, step + 1);
        } else {
            products_wait<0>();
            hold(even);
            add(sums, even, at.stage, step);
        }
    }
    // Starts the products of the next step, and adds those of `step`, which is at `at`.
    __device__ __forceinline__ void advance(typename R::sums &next, typename R::sums &part,
                                            typename R::sums &sums, typename R::place &at,
                                            int group, int step) const {
        int stage = at.stage;
        at.advance();
        start(next, at, group);
        products_wait<1>();
        hold(part);
        add(sums, part, stage, step);
    }

    // Scales of outputs and rows. Behind the wait for earlier kernels.
    __device__ __forceinline__ void scale(typename R::sums &sums, int warp) const {
        if (HAS_BLOCKS) return;
        int lane = threadIdx.x % 32, last = p.batch.ring.columns - 1;
        int output = (warp / 4 ? s.second : s.column) + warp % 4 * 16 + lane / 4;
        float low = __ldg(p.weight_scales + min(output, last));
        float high = __ldg(p.weight_scales + min(output + 8, last));
        const float *x = of_step(p.x_scales);
#pragma unroll
        for (int j = 0; j < R::WIDTH / 8; j++) {
            int row = j * 8 + lane % 4 * 2;
            float first = row < p.batch.ring.rows ? x[row] : 0;
            float second = row + 1 < p.batch.ring.rows ? x[row + 1] : 0;
            sums[j][0] *= low * first, sums[j][1] *= low * second;
            sums[j][2] *= high * first, sums[j][3] *= high * second;
        }
    }
};

template <typename R, bool HAS_BLOCKS>
__device__ __forceinline__ void run_block(const codes_params &p, codes_memory<R> &memory) {
    const codes_block<R, HAS_BLOCKS> block(p, memory);
    bool is_split = p.batch.split > 1;
    if (threadIdx.x == COMPUTING) block.ring.init(p.batch.ring);
    __syncthreads();
    let_next_start();
    auto copy = [&](int warp) {
        if (threadIdx.x == COMPUTING) block.copy();
        __syncwarp();
        if (is_split) cluster_sync(warp);
    };
    auto multiply = [&](int warp) {
        typename R::sums sums = {};
        block.multiply(sums, warp / 4);
        wait_for_earlier(); // rule 2; returns at once by now
        block.scale(sums, warp);
        named_wait(GROUP_BARRIER, COMPUTING); // all have read the ring
        write_sums(sums, reinterpret_cast<float *>(memory.ring.stages), warp / 4);
        named_wait(GROUP_BARRIER, COMPUTING);
        if (is_split) cluster_sync(warp);
        finish(p.batch, block.s, block.ring.stages);
    };
    run_groups(copy, multiply);
    // No block exits while others still read its sums (rule 14).
    if (is_split) cluster_arrive_relaxed();
    if (is_split) cluster_wait();
}

template <typename R, bool HAS_BLOCKS>
__global__ void __launch_bounds__(THREADS, 1)
    e4m3_batch_kernel(const __grid_constant__ codes_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[];
                  run_block<R, HAS_BLOCKS>(p, *reinterpret_cast<codes_memory<R> *>(memory));))
}

// Tensor maps have pairs of codes as one element.
cuda_linear_task pairs_of(const cuda_linear_task *task, const cuda_rounded_rows *x, void *out) {
    cuda_linear_task pairs = *task;
    pairs.linear.weight = task->linear.plain;
    pairs.linear.in = task->linear.in / 2;
    pairs.x = x->codes;
    pairs.out = out;
    pairs.is_gated = false;
    return pairs;
}

int clusters_of(const cuda_linear_task *task) {
    return static_cast<int>((task->linear.out + OUTPUTS - 1) / OUTPUTS);
}

// More blocks a cluster were slower for every shape that was timed (doc/log-cuda.md).
uint32_t choose_split(const cuda_linear_task *task, const cuda_device_info *info) {
    bool can_split = task->linear.in >= 2 * CUDA_PACKED_BLOCK;
    return can_split && 2 * clusters_of(task) <= info->num_sms ? 2 : 1;
}

template <typename R>
bool launch(const cuda_linear_task *task, const cuda_rounded_rows *x, void *out, uint32_t split,
            const cuda_device_info *info, cudaStream_t stream) {
    static_assert(R::WIDTH * PITCH * 4 <= R::STAGES * R::STAGE_BYTES, "the sums fit");
    static_assert(sizeof(codes_memory<R>) <= SHARED_MAX, "of a block");
    const cuda_linear_task pairs = pairs_of(task, x, out);
    const cuda_linear_view &v = task->linear;
    codes_params p = {};
    p.batch.ring = ring_params_of(&pairs, R::WIDTH, OUTPUTS / 2, info);
    p.batch.split = static_cast<int>(split);
    p.batch.kind = task->is_added ? ADDED : PLAIN;
    p.weight_scales = static_cast<const float *>(v.group ? v.block_scales : v.scales);
    p.x_scales = x->scales;
    p.weight_stride = v.group ? static_cast<int>((v.in / v.group + 3) / 4 * 4) : 0;
    p.x_stride = static_cast<int>(x->scales_stride);
    p.scales_bytes = x->scales_stride * sizeof(float);
    auto kernel = v.group ? e4m3_batch_kernel<R, true> : e4m3_batch_kernel<R, false>;
    constexpr int BYTES = sizeof(codes_memory<R>);
    return try_launch_clusters(kernel, clusters_of(task), p.batch.split, THREADS, BYTES, info,
                               stream, p);
}

} // namespace

extern "C" bool cuda_e4m3_batch_launch(const struct cuda_linear_task *task,
                                       const struct cuda_rounded_rows *x, void *out, uint32_t split,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    if (!split) split = choose_split(task, info);
    if (task->rows <= 32) return launch<codes_ring<32>>(task, x, out, split, info, stream);
    if (task->rows <= 64) return launch<codes_ring<64>>(task, x, out, split, info, stream);
    if (task->rows <= 96) return launch<codes_ring<96>>(task, x, out, split, info, stream);
    return launch<codes_ring<CUDA_E4M3_BATCH_ROWS>>(task, x, out, split, info, stream);
}
