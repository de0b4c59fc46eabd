/* Linears of many rows on sm_90 whose weights are packed (linear/packed.h): y = x W^T + b, with
 * the SwiGLU product of both halves or the addition to the residual, as in linear/batch_sm90.cu.
 *
 * Algorithm: a block multiplies 128 outputs by up to 128 rows of x, as in
 * linear/packed_products_sm90.cuh. Rows of x come to the ring by TMA. If there are too few outputs
 * for all multiprocessors, the blocks of a cluster divide the inputs (linear/batch_sums.cuh).
 *
 * Layout: the ring of x; afterwards the sums use it.
 *
 * Launch: a cluster of 1 to 8 blocks for 128 outputs and 128 rows; clusters with the same outputs
 * follow each other, so their codes come from the L2. */
#include "backend/cuda/linear/packed_products_sm90.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

struct packed_batch_params {
    batch_params batch; // ring.weight and ring.num_steps are not used
    packed_weights weights;
    int row_tiles;
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
    s.begin = p.weights.blocks * rank / b.split;
    s.end = p.weights.blocks * (rank + 1) / b.split;
    return s;
}

// Run by one thread.
template <typename R>
__device__ void copy_x(const packed_batch_params &p, const R &ring, const batch_share &s) {
    wait_for_earlier();
    typename R::place at = {0, 1}; // an empty ring counts as read
    for (int step = s.begin * 2; step < s.end * 2; step++) {
        ring.copy(at, &p.batch.ring.x, step * INPUTS, s.row);
    }
}

template <typename K, typename R>
__device__ __forceinline__ void run_block(const packed_batch_params &p, char *memory) {
    const R ring(*reinterpret_cast<typename R::memory *>(memory));
    const batch_share s = share_of(p);
    if (threadIdx.x == COMPUTING) ring.init(&p.batch.ring.x);
    __syncthreads();
    let_next_start();
    auto copy = [&](int warp) {
        if (threadIdx.x == COMPUTING) copy_x(p, ring, s);
        __syncwarp();
        if (p.batch.split > 1) cluster_sync(warp);
    };
    auto multiply = [&](int warp) {
        float sums[R::WIDTH / 8][4] = {};
        int lane = threadIdx.x % 32;
        int row = (warp / 4 ? s.second : s.column) + warp % 4 * OUTPUTS_OF_WARP;
        packed_products<K, R> products = {};
        typename R::place at = {0, 0};
        products.begin(p.weights, row, s.begin, s.end, lane);
        products.multiply(sums, p.weights, ring, at, s.begin, s.end, lane);
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
    p.batch.activation = task->activation;
    p.batch.kind = task->is_gated       ? GATED
                   : task->is_added     ? ADDED
                   : task->out_is_float ? FLOATS
                                        : PLAIN;
    p.weights = packed_weights_of(task->linear);
    p.row_tiles = row_tiles_of(task);
    return launch_ring<R>(packed_batch_kernel<K, R>, p, clusters_of(task, p.row_tiles),
                          p.batch.split, info, stream);
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
