/* Linear layers of up to 128 rows on sm_90, for decode batches: y = x W^T + b by wgmma
 * (hopper.cuh). The SwiGLU product of the two halves or the addition to the residual is included.
 * cuBLASLt is the alternative; linear/gemm_trial.c times both for each shape.
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
#include "backend/cuda/linear/ring_sm90.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int OUTPUTS = LEFT_ROWS;
// Floats per row of sums; the padding lets a quad's stores hit different banks.
constexpr int PITCH = OUTPUTS + 4;
constexpr int GROUP_BARRIER = 1;

enum batch_kind { PLAIN, GATED, ADDED };

struct batch_params {
    ring_params ring;
    int split; // blocks of a cluster
    batch_kind kind; // ADDED: the result is added to ring.out
};

// ROWS: rows of x, rounded up.
template <int ROWS> using batch_ring = ring<ROWS, 1>;

// A block's work: its first column of `out`, the first weight row of the second half of its
// outputs, and its range of steps.
struct batch_share {
    int column, second, begin, end;
};

__device__ __forceinline__ batch_share share_of(const batch_params &p) {
    batch_share s;
    int number = blockIdx.x / p.split, rank = blockIdx.x % p.split;
    bool is_gated = p.kind == GATED;
    s.column = number * (is_gated ? OUTPUTS / 2 : OUTPUTS);
    s.second = s.column + (is_gated ? p.ring.columns : OUTPUTS / 2);
    s.begin = p.ring.num_steps * rank / p.split;
    s.end = p.ring.num_steps * (rank + 1) / p.split;
    return s;
}

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

// Writes the accumulators to sums[row][output].
template <int N>
__device__ __forceinline__ void write_sums(const float (&c)[N][4], float *sums, int group) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    float *to = sums + group * GROUP_ROWS + warp * 16 + lane / 4 + lane % 4 * 2 * PITCH;
#pragma unroll
    for (int j = 0; j < N; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) to[(j * 8 + i % 2) * PITCH + i / 2 * 8] = c[j][i];
    }
}

__device__ __forceinline__ float4 load_float4(uint32_t shared) {
    uint4 v = load_shared16(shared);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                       __uint_as_float(v.w));
}
__device__ __forceinline__ float4 load_float4_at(uint32_t mapped) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(mapped));
    return v;
}

__device__ __forceinline__ void add_float4s(float (&v)[8], float4 a, float4 b) {
    v[0] += a.x, v[1] += a.y, v[2] += a.z, v[3] += a.w;
    v[4] += b.x, v[5] += b.y, v[6] += b.z, v[7] += b.w;
}

// Adds eight sums of all blocks of the cluster, by ascending rank. All loads are issued first.
__device__ __forceinline__ void load_sums(float (&v)[8], uint32_t sums, int split) {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = 0;
    if (split == 1) return add_float4s(v, load_float4(sums), load_float4(sums + 16));
    float4 parts[CUDA_BATCH_SPLIT_MAX][2];
#pragma unroll
    for (int rank = 0; rank < CUDA_BATCH_SPLIT_MAX; rank++) {
        if (rank >= split) break;
        uint32_t from = at_rank(sums, rank);
        parts[rank][0] = load_float4_at(from);
        parts[rank][1] = load_float4_at(from + 16);
    }
#pragma unroll
    for (int rank = 0; rank < CUDA_BATCH_SPLIT_MAX; rank++) {
        if (rank >= split) break;
        add_float4s(v, parts[rank][0], parts[rank][1]);
    }
}

__device__ __forceinline__ void add8(float (&v)[8], const __nv_bfloat16 *addends) {
    uint4 a = *reinterpret_cast<const uint4 *>(addends);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] += bf16_element(a, i);
}

// Writes this block's part of the rows. A thread takes eight columns at a time.
__device__ __forceinline__ void finish(const batch_params &b, const batch_share &s, uint32_t sums) {
    const ring_params &p = b.ring;
    bool is_gated = b.kind == GATED;
    int rank = blockIdx.x % b.split, per_row = (is_gated ? OUTPUTS / 2 : OUTPUTS) / 8;
    int first = p.rows * rank / b.split, end = p.rows * (rank + 1) / b.split;
#pragma unroll 2
    for (int i = threadIdx.x; i < (end - first) * per_row; i += COMPUTING) {
        int row = first + i / per_row, local = i % per_row * 8, column = s.column + local;
        if (column >= p.columns) continue;
        uint32_t from = sums + (row * PITCH + local) * 4;
        size_t at = (size_t)row * p.columns + column;
        float v[8];
        load_sums(v, from, b.split);
        if (p.bias) add8(v, p.bias + column);
        if (is_gated) {
            float up[8];
            load_sums(up, from + OUTPUTS / 2 * 4, b.split);
            if (p.bias) add8(up, p.bias + p.columns + column);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = silu(v[j]) * up[j];
        }
        if (b.kind == ADDED) add8(v, of_step(p.out) + at);
        *reinterpret_cast<uint4 *>(of_step(p.out) + at) = pack_bf16(v);
    }
}

// Barrier of the cluster. The computing threads have passed a barrier before, so one warp's release
// publishes what all of them stored to shared memory.
__device__ __forceinline__ void cluster_sync(int warp) {
    if (warp == 0) {
        cluster_arrive();
    } else {
        cluster_arrive_relaxed();
    }
    cluster_wait();
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
    static_assert(R::WIDTH * PITCH * 4 <= R::STAGES * R::STAGE_BYTES, "room for the sums");
    batch_params p = {ring_params_of(args, R::WIDTH, OUTPUTS / 2, info), static_cast<int>(split),
                      args->is_gated   ? GATED
                      : args->is_added ? ADDED
                                       : PLAIN};
    int per_cluster = args->is_gated ? OUTPUTS / 2 : OUTPUTS;
    return launch_ring<R>(batch_kernel<R>, p, (p.ring.columns + per_cluster - 1) / per_cluster,
                          p.split, stream);
}

} // namespace

extern "C" bool cuda_linear_batch_launch(const struct cuda_linear_task *args, uint32_t split,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    if (args->rows <= 32) return launch<batch_ring<32>>(args, split, info, stream);
    if (args->rows <= 64) return launch<batch_ring<64>>(args, split, info, stream);
    if (args->rows <= 96) return launch<batch_ring<96>>(args, split, info, stream);
    return launch<batch_ring<CUDA_BATCH_ROWS>>(args, split, info, stream);
}
