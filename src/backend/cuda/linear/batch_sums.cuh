/* What linear/batch_sm90.cu and linear/packed_batch_sm90.cu share: which outputs and inputs a block
 * has, and how the blocks of a cluster join their sums and write the result with the work that
 * follows a linear.
 *
 * A block has 128 outputs. If the linear is gated, half of them are gates and half are their ups.
 * The blocks of a cluster divide the inputs. Each sums up some of the rows, reading the others'
 * partial sums from their shared memory, always in the same order. */
#pragma once

#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear/ring_sm90.cuh"

namespace {

constexpr int OUTPUTS = LEFT_ROWS;
// Floats per row of sums; the padding lets a quad's stores hit different banks.
constexpr int PITCH = OUTPUTS + 4;
constexpr int GROUP_BARRIER = 1;

enum batch_kind { PLAIN, GATED, ADDED, FLOATS };

struct batch_params {
    ring_params ring;
    int split; // blocks of a cluster
    enum activation activation; // GATED
    batch_kind kind; // ADDED: the result is added to ring.out; FLOATS: ring.out is float
};

// A block's work: its first row and column of `out`, the first weight row of the second half of its
// outputs, and its range of steps.
struct batch_share {
    int row, column, second, begin, end;
};

__device__ __forceinline__ batch_share share_of(const batch_params &p) {
    batch_share s = {};
    int number = blockIdx.x / p.split, rank = blockIdx.x % p.split;
    bool is_gated = p.kind == GATED;
    s.column = number * (is_gated ? OUTPUTS / 2 : OUTPUTS);
    s.second = s.column + (is_gated ? p.ring.columns : OUTPUTS / 2);
    s.begin = p.ring.num_steps * rank / p.split;
    s.end = p.ring.num_steps * (rank + 1) / p.split;
    return s;
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
    int rows = min(p.rows - s.row, CUDA_BATCH_ROWS);
    int first = rows * rank / b.split, end = rows * (rank + 1) / b.split;
#pragma unroll 2
    for (int i = threadIdx.x; i < (end - first) * per_row; i += COMPUTING) {
        int row = first + i / per_row, local = i % per_row * 8, column = s.column + local;
        if (column >= p.columns) continue;
        uint32_t from = sums + (row * PITCH + local) * 4;
        size_t at = (size_t)(s.row + row) * p.columns + column;
        float v[8];
        load_sums(v, from, b.split);
        if (p.bias) add8(v, p.bias + column);
        if (is_gated) {
            float up[8];
            load_sums(up, from + OUTPUTS / 2 * 4, b.split);
            if (p.bias) add8(up, p.bias + p.columns + column);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = activated(b.activation, v[j], up[j]);
        }
        if (b.kind == FLOATS) {
            auto *to = reinterpret_cast<float4 *>(reinterpret_cast<float *>(of_step(p.out)) + at);
            to[0] = make_float4(v[0], v[1], v[2], v[3]);
            to[1] = make_float4(v[4], v[5], v[6], v[7]);
            continue;
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

} // namespace
