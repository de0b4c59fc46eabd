/* Linear layers of up to 128 rows on sm_90, for decode batches: y = x W^T + b by wgmma
 * (hopper.cuh). The SwiGLU product of the two halves or the addition to the residual is included.
 * cuBLASLt is the alternative; gemm/gemm_trial.c times both for each shape.
 *
 * Algorithm: weights are the left operand and rows of x the right one (linear/ring_sm90.cuh). So
 * each weight, which is most of the data, goes to one block once. A block multiplies 128 outputs by
 * all rows of x. If there are too few outputs for all multiprocessors, the blocks of a cluster
 * divide the inputs. Each block then sums up some of the rows, reading the others' partial sums
 * from their shared memory, always in the same order. The copies of the first weights start before
 * the previous kernel has ended. If the linear is gated, half of a block's outputs are gates and
 * half are their ups.
 *
 * A row's result depends on the batch size only through the choice of the fastest kernel.
 *
 * Layout: the ring; afterwards the sums [rows][PITCH] use the same memory.
 *
 * Launch: outputs / 128 clusters of 1 to 8 blocks. Bytes: weights once; x once per cluster. */
#include "backend/cuda/linear/batch_sums.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

// ROWS: rows of x, rounded up.
template <int ROWS> using batch_ring = ring<ROWS, 1>;

template <typename R>
__device__ __forceinline__ void copy_weights(const ring_params &p, const R &ring,
                                             const batch_share &s, int stage, int step) {
    uint32_t to = ring.stages + stage * R::STAGE_BYTES, full = ring.full + stage * 8;
    barrier_expect(full, R::STAGE_BYTES);
    uint64_t policy = evict_first_policy();
    copy_box(to, &p.weight, step * INPUTS, s.column, full, policy);
    copy_box(to + LEFT_BYTES / 2, &p.weight, step * INPUTS, s.second, full, policy);
}

template <typename R>
__device__ __forceinline__ void copy_rows(const ring_params &p, const R &ring, int stage,
                                          int step) {
    copy_box(ring.stages + stage * R::STAGE_BYTES + LEFT_BYTES, of_step(&p.x), step * INPUTS, 0,
             ring.full + stage * 8);
}

// Run by one thread. Weights are constant, so it fills the whole ring with them before it waits
// (rule 1).
template <typename R>
__device__ void copy_all(const ring_params &p, const R &ring, const batch_share &s) {
    int ahead = min(s.end - s.begin, R::STAGES);
    for (int i = 0; i < ahead; i++) copy_weights(p, ring, s, i, s.begin + i);
    wait_for_earlier();
    for (int i = 0; i < ahead; i++) copy_rows(p, ring, i, s.begin + i);
    typename R::place at = {0, 0};
    for (int step = s.begin + ahead; step < s.end; step++, at.advance()) {
        barrier_wait(ring.empty + at.stage * 8, at.parity, "a free stage,", at.stage);
        copy_weights(p, ring, s, at.stage, step);
        copy_rows(p, ring, at.stage, step);
    }
}

template <typename R>
__device__ __forceinline__ void run_block(const batch_params &p, char *memory) {
    const R ring(*reinterpret_cast<typename R::memory *>(memory));
    batch_share s = share_of(p);
    if (threadIdx.x == COMPUTING) ring.init(p.ring);
    __syncthreads();
    let_next_start();
    auto copy = [&](int warp) {
        if (threadIdx.x == COMPUTING) copy_all(p.ring, ring, s);
        __syncwarp();
        if (p.split > 1) cluster_sync(warp);
    };
    auto multiply = [&](int warp) {
        typename R::sums c;
        typename R::place at = {};
        ring.multiply(c, at, s.end - s.begin, warp / 4);
        named_wait(GROUP_BARRIER, COMPUTING); // all have read the ring
        write_sums(c, reinterpret_cast<float *>(memory), warp / 4);
        wait_for_earlier(); // rule 2; returns at once by now
        named_wait(GROUP_BARRIER, COMPUTING);
        if (p.split > 1) cluster_sync(warp);
        finish(p, s, ring.stages);
    };
    run_groups(copy, multiply);
    // No block exits while others still read its sums (rule 14).
    if (p.split > 1) cluster_arrive_relaxed();
    if (p.split > 1) cluster_wait();
}

template <typename R>
__global__ void __launch_bounds__(THREADS, 1) batch_kernel(const __grid_constant__ batch_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block<R>(p, memory);))
}

template <typename R>
bool launch(const cuda_linear_task *args, uint32_t split, const cuda_device_info *info,
            cudaStream_t stream) {
    static_assert(R::WIDTH * PITCH * 4 <= R::STAGES * R::STAGE_BYTES, "the sums fit");
    batch_params p = {ring_params_of(args, R::WIDTH, OUTPUTS / 2, info), static_cast<int>(split),
                      args->activation,
                      args->is_gated   ? GATED
                      : args->is_added ? ADDED
                                       : PLAIN};
    int per_cluster = args->is_gated ? OUTPUTS / 2 : OUTPUTS;
    return launch_ring<R>(batch_kernel<R>, p, (p.ring.columns + per_cluster - 1) / per_cluster,
                          p.split, info, stream);
}

} // namespace

extern "C" bool cuda_linear_batch_launch(const struct cuda_linear_task *args, uint32_t split,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    if (args->rows <= 32) return launch<batch_ring<32>>(args, split, info, stream);
    if (args->rows <= 64) return launch<batch_ring<64>>(args, split, info, stream);
    if (args->rows <= 96) return launch<batch_ring<96>>(args, split, info, stream);
    return launch<batch_ring<CUDA_BATCH_ROWS>>(args, split, info, stream);
}
