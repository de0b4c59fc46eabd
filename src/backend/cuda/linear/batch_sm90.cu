/* Linear layers of up to 128 rows on sm_90, for decode batches: y = x W^T + b by wgmma
 * (hopper.cuh). The SwiGLU product of the two halves or the addition to the residual is included.
 * cuBLASLt is the alternative; linear/gemm_trial.c times both for each shape.
 *
 * Algorithm: outputs are the products' rows and rows of x their columns. So each weight, which is
 * most of the data, goes to one block once. A block multiplies 128 outputs by all rows of x, 64
 * inputs at a time, from a ring in shared memory that one thread fills. If there are too few
 * outputs for all multiprocessors, the blocks of a cluster divide the inputs. Each block then sums
 * up some of the rows, reading the others' partial sums from their shared memory, always in the
 * same order. The copies of the first weights start before the previous kernel has ended. If the
 * linear is gated, half of a block's outputs are gates and half are their ups.
 *
 * A row's result depends on the batch size only through the choice of the fastest kernel.
 *
 * Layout: ring [stages]{[outputs][128 bytes], [rows][128 bytes]}, swizzled as in hopper.cuh.
 * Afterwards the sums [rows][PITCH] use the same memory.
 *
 * Launch: outputs / 128 clusters of 1 to 8 blocks. Bytes: weights once; x once per cluster. */
#include <nv/target>

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_map.cuh"
#include "backend/cuda/wgmma_products.cuh"

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int GROUPS = 2, GROUP_THREADS = 128; // warpgroups that multiply
constexpr int COMPUTING = GROUPS * GROUP_THREADS, THREADS = COMPUTING + GROUP_THREADS;
constexpr int GROUP_OUTPUTS = 64, OUTPUTS = GROUPS * GROUP_OUTPUTS;
constexpr int INPUTS = 64, INPUTS_BYTES = INPUTS * 2; // per stage: one swizzle width
constexpr int WEIGHT_BYTES = OUTPUTS * INPUTS_BYTES; // per stage
constexpr int COPY_REGISTERS = 40, COMPUTE_REGISTERS = 232; // per thread; the launch gives each 168
// Floats per row of sums; the padding lets a quad's stores hit different banks.
constexpr int PITCH = OUTPUTS + 4;
constexpr int SHARED_MAX = 227 * 1024, STAGES_MAX = 8;
constexpr int GROUP_BARRIER = 1;

enum batch_kind { PLAIN, GATED, ADDED };

struct batch_params {
    CUtensorMap x, weight; // [rows][in], [out][in]
    const __nv_bfloat16 *bias; // [out] or NULL
    __nv_bfloat16 *out; // [rows][columns]; ADDED: the result is added to it
    int rows, columns; // of out
    int num_steps; // steps of INPUTS inputs
    int split; // blocks of a cluster
    batch_kind kind;
};

// ROWS: rows of x, rounded up.
template <int ROWS_> struct batch_shape {
    static constexpr int ROWS = ROWS_;
    static constexpr int STAGE_BYTES = WEIGHT_BYTES + ROWS * INPUTS_BYTES;
    static constexpr int FIT = (SHARED_MAX - 1024) / STAGE_BYTES;
    static constexpr int STAGES = FIT < STAGES_MAX ? FIT : STAGES_MAX;
    static constexpr int RING_BYTES = STAGES * STAGE_BYTES;
    static_assert(ROWS * PITCH * 4 <= RING_BYTES, "room for the sums");
};

template <typename S> struct batch_shared {
    char ring[S::RING_BYTES];
    uint64_t full[S::STAGES], empty[S::STAGES];
};

struct batch_addresses {
    uint32_t ring, full, empty;
};

// A block's work: its first column of `out`, the first weight row of the second half of its
// outputs, and its range of steps.
struct batch_share {
    int column, second, begin, end;
};

template <typename S> __device__ __forceinline__ batch_share share_of(const batch_params &p) {
    batch_share s;
    int number = blockIdx.x / p.split, rank = blockIdx.x % p.split;
    bool is_gated = p.kind == GATED;
    s.column = number * (is_gated ? OUTPUTS / 2 : OUTPUTS);
    s.second = s.column + (is_gated ? p.columns : OUTPUTS / 2);
    s.begin = p.num_steps * rank / p.split;
    s.end = p.num_steps * (rank + 1) / p.split;
    return s;
}

template <typename S>
__device__ __forceinline__ void copy_weights(const batch_params &p, const batch_addresses &m,
                                             const batch_share &s, int stage, int step) {
    uint32_t to = m.ring + stage * S::STAGE_BYTES, full = m.full + stage * 8;
    barrier_expect(full, S::STAGE_BYTES);
    uint64_t policy = evict_first_policy();
    copy_box(to, &p.weight, step * INPUTS, s.column, full, policy);
    copy_box(to + WEIGHT_BYTES / 2, &p.weight, step * INPUTS, s.second, full, policy);
}

template <typename S>
__device__ __forceinline__ void copy_rows(const batch_params &p, const batch_addresses &m,
                                          int stage, int step) {
    copy_box(m.ring + stage * S::STAGE_BYTES + WEIGHT_BYTES, of_step(&p.x), step * INPUTS, 0,
             m.full + stage * 8);
}

// Run by one thread. Weights are constant, so it fills the whole ring with them before it waits
// (rule 1).
template <typename S>
__device__ void copy_all(const batch_params &p, const batch_addresses &m, const batch_share &s) {
    int ahead = min(s.end - s.begin, S::STAGES);
    for (int i = 0; i < ahead; i++) copy_weights<S>(p, m, s, i, s.begin + i);
    wait_for_earlier();
    for (int i = 0; i < ahead; i++) copy_rows<S>(p, m, i, s.begin + i);
    ring_place<S::STAGES> at = {0, 0};
    for (int step = s.begin + ahead; step < s.end; step++, at.advance()) {
        barrier_wait(m.empty + at.stage * 8, at.parity, "a free stage,", at.stage);
        copy_weights<S>(p, m, s, at.stage, step);
        copy_rows<S>(p, m, at.stage, step);
    }
}

template <typename S>
__device__ __forceinline__ void multiply_all(float (&c)[S::ROWS / 8][4], const batch_addresses &m,
                                             const batch_share &s, int group) {
    ring_place<S::STAGES> at = {};
    uint32_t before = 0;
    for (int step = s.begin; step < s.end; step++) {
        uint32_t stage = m.ring + at.stage * S::STAGE_BYTES;
        uint64_t a = operand(stage + group * GROUP_OUTPUTS * INPUTS_BYTES, 0);
        uint64_t b = operand(stage + WEIGHT_BYTES, 0);
        barrier_wait(m.full + at.stage * 8, at.parity, "weights and x of stage", at.stage);
        products_begin();
#pragma unroll
        for (int i = 0; i < INPUTS / 16; i++) {
            multiply_shared(c, a + i * 2, b + i * 2, step > s.begin || i > 0);
        }
        products_commit();
        products_wait<1>();
        if (step > s.begin && threadIdx.x % 32 == 0) barrier_arrive(before);
        before = m.empty + at.stage * 8;
        at.advance();
    }
    products_wait<0>();
    hold(c);
}

// Writes the accumulators to sums[row][output].
template <typename S>
__device__ __forceinline__ void write_sums(const float (&c)[S::ROWS / 8][4], float *sums,
                                           int group) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    float *to = sums + group * GROUP_OUTPUTS + warp * 16 + lane / 4 + lane % 4 * 2 * PITCH;
#pragma unroll
    for (int j = 0; j < S::ROWS / 8; j++) {
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
template <typename S>
__device__ __forceinline__ void finish(const batch_params &p, const batch_share &s, uint32_t sums) {
    bool is_gated = p.kind == GATED;
    int rank = blockIdx.x % p.split, per_row = (is_gated ? OUTPUTS / 2 : OUTPUTS) / 8;
    int first = p.rows * rank / p.split, end = p.rows * (rank + 1) / p.split;
#pragma unroll 2
    for (int i = threadIdx.x; i < (end - first) * per_row; i += COMPUTING) {
        int row = first + i / per_row, local = i % per_row * 8, column = s.column + local;
        if (column >= p.columns) continue;
        uint32_t from = sums + (row * PITCH + local) * 4;
        size_t at = (size_t)row * p.columns + column;
        float v[8];
        load_sums(v, from, p.split);
        if (p.bias) add8(v, p.bias + column);
        if (is_gated) {
            float up[8];
            load_sums(up, from + OUTPUTS / 2 * 4, p.split);
            if (p.bias) add8(up, p.bias + p.columns + column);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = silu(v[j]) * up[j];
        }
        if (p.kind == ADDED) add8(v, of_step(p.out) + at);
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

template <typename S>
__device__ __forceinline__ void run_block(const batch_params &p, char *memory) {
    auto shared = reinterpret_cast<batch_shared<S> *>(memory);
    batch_addresses m = {shared_address(shared->ring), shared_address(shared->full),
                         shared_address(shared->empty)};
    batch_share s = share_of<S>(p);
    if (threadIdx.x == COMPUTING) {
        prefetch_map(&p.x);
        prefetch_map(&p.weight);
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(m.full + i * 8, 1);
            barrier_init(m.empty + i * 8, COMPUTING / 32);
        }
        barrier_init_done();
    }
    __syncthreads();
    let_next_start();
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0);
    if (warp / 4 == GROUPS) {
        give_registers<COPY_REGISTERS>();
        if (threadIdx.x == COMPUTING) copy_all<S>(p, m, s);
        __syncwarp();
        if (p.split > 1) cluster_sync(warp);
    } else {
        take_registers<COMPUTE_REGISTERS>();
        float c[S::ROWS / 8][4];
        multiply_all<S>(c, m, s, warp / 4);
        named_wait(GROUP_BARRIER, COMPUTING); // all have read the ring
        write_sums<S>(c, reinterpret_cast<float *>(shared->ring), warp / 4);
        wait_for_earlier(); // rule 2; returns at once by now
        named_wait(GROUP_BARRIER, COMPUTING);
        if (p.split > 1) cluster_sync(warp);
        finish<S>(p, s, m.ring);
    }
    // No block exits while others still read its sums (rule 14).
    if (p.split > 1) cluster_arrive_relaxed();
    if (p.split > 1) cluster_wait();
}

template <typename S>
__global__ void __launch_bounds__(THREADS, 1) batch_kernel(const __grid_constant__ batch_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block<S>(p, memory);))
}

template <typename S>
bool launch(batch_params p, const cuda_linear_task *args, const cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int BYTES = sizeof(batch_shared<S>);
    int per_cluster = p.kind == GATED ? OUTPUTS / 2 : OUTPUTS;
    p.x =
        tensor_map(args->x, args->rows, args->linear.in, S::ROWS, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.weight = tensor_map(args->linear.weight, args->linear.out, args->linear.in, OUTPUTS / 2,
                          CU_TENSOR_MAP_SWIZZLE_128B, info);
    cudaFuncSetAttribute(batch_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    return try_launch_clusters(batch_kernel<S>, (p.columns + per_cluster - 1) / per_cluster,
                               p.split, THREADS, BYTES, stream, p);
}

} // namespace

extern "C" bool cuda_linear_batch_takes(const struct cuda_linear_task *args, uint32_t split,
                                        const struct cuda_device_info *info) {
    uint32_t columns = args->is_gated ? args->linear.out / 2 : args->linear.out;
    bool is_split = split > 1 && split <= CUDA_BATCH_SPLIT_MAX;
    bool has_inputs = split == 1 || (is_split && split * INPUTS <= args->linear.in);
    return info->encode_tensor_map && info->shared_bytes_max >= SHARED_MAX && has_inputs &&
           !args->out_is_float && !(args->is_gated && args->is_added) && columns % 8 == 0 &&
           args->linear.in % 8 == 0 && args->rows <= CUDA_BATCH_ROWS;
}

extern "C" bool cuda_linear_batch_launch(const struct cuda_linear_task *args, uint32_t split,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    batch_params p = {};
    p.bias = static_cast<const __nv_bfloat16 *>(args->linear.bias);
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.rows = static_cast<int>(args->rows);
    p.columns = static_cast<int>(args->is_gated ? args->linear.out / 2 : args->linear.out);
    p.num_steps = static_cast<int>((args->linear.in + INPUTS - 1) / INPUTS);
    p.split = static_cast<int>(split);
    p.kind = args->is_gated ? GATED : args->is_added ? ADDED : PLAIN;
    if (p.rows <= 32) return launch<batch_shape<32>>(p, args, info, stream);
    if (p.rows <= 64) return launch<batch_shape<64>>(p, args, info, stream);
    if (p.rows <= 96) return launch<batch_shape<96>>(p, args, info, stream);
    return launch<batch_shape<CUDA_BATCH_ROWS>>(p, args, info, stream);
}
