/* Device helpers that all kernels share: bf16 pairs, asynchronous copies, matrix instructions, warp
 * reductions. All of them need only sm_80. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "backend/backend.h"

namespace {

constexpr unsigned FULL_WARP = 0xffffffffu;
constexpr float LOG2E = 1.4426950408889634f;

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void store_shared(uint32_t address, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}
__device__ __forceinline__ uint4 load_shared16(uint32_t address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}
__device__ __forceinline__ void store_shared16(uint32_t address, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

// Prefetches a line of 128 bytes into the L1.
__device__ __forceinline__ void prefetch_line(const void *line) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(line));
}
// Prefetches constants, such as norm weights, while other data is still on its way. Each thread
// fetches one line.
__device__ __forceinline__ void prefetch_floats(const float *values, int count, int thread) {
    if (values && thread * 32 < count) prefetch_line(values + thread * 32);
}

// Copies 16 bytes from global to shared memory, bypassing the L1.
__device__ __forceinline__ void copy16_async(uint32_t shared, const void *global) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global)
                 : "memory");
}
__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void copy_wait() { // waits for all but the newest N groups
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Loads four 8x8 matrices of bf16. Lane l passes the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrix4(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void load_matrix4_transposed(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
// Transposes an 8x8 matrix that is spread over the warp.
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t r) {
    uint32_t out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(r));
    return out;
}
// c[16][8] += a[16][16] b[16][8].
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t rounded_to_tf32(float v) {
    uint32_t out;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(v));
    return out;
}
// c[16][8] += a[16][8] b[8][8] in TF32. A lane has of a: [row][k], [row + 8][k], [row][k + 4],
// [row + 8][k + 4] with row = lane / 4 and k = lane % 4; of b: [k][row], [k + 4][row].
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const float (&a)[4], float b0,
                                              float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(rounded_to_tf32(a[0])), "r"(rounded_to_tf32(a[1])), "r"(rounded_to_tf32(a[2])),
          "r"(rounded_to_tf32(a[3])), "r"(rounded_to_tf32(b0)), "r"(rounded_to_tf32(b1)));
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}
__device__ __forceinline__ float bf16_low(uint32_t pair) {
    return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float bf16_high(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

// Element i of 8 bf16. i must be known at compile time.
__device__ __forceinline__ float bf16_element(const uint4 &v, int i) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    return i % 2 ? bf16_high(words[i / 2]) : bf16_low(words[i / 2]);
}
__device__ __forceinline__ uint4 pack_bf16(const float (&v)[8]) {
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                      pack_bf16(v[6], v[7]));
}

// error within 2 ulp; results below 2^-126 are 0
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// v / (1 + exp(-v)), accurate to a few ulp. An IEEE division would take a dozen instructions.
__device__ __forceinline__ float silu(float v) {
    return __fdividef(v, 1.0f + __expf(-v));
}

// ACTIVATION_CLAMPED_SILU of backend.h.
__device__ __forceinline__ float clamped_silu_mul(float gate, float up) {
    gate = fminf(gate, CLAMPED_SILU_LIMIT);
    up = fminf(fmaxf(up, -CLAMPED_SILU_LIMIT), CLAMPED_SILU_LIMIT);
    return __fdividef(gate, 1.0f + __expf(-CLAMPED_SILU_ALPHA * gate)) * (up + 1.0f);
}

__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset; offset >>= 1) v += __shfl_xor_sync(FULL_WARP, v, offset);
    return v;
}
__device__ __forceinline__ float warp_max(float v) {
    for (int offset = 16; offset; offset >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, offset));
    return v;
}

// Named barriers for some of a block's warps. `threads` is the number of all that wait or arrive.
// The id must be a compile-time constant; otherwise the compiler reserves all 16 barriers of the
// multiprocessor.
__device__ __forceinline__ void named_wait(int id, int threads) {
    asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Where chunk c (16 bytes) of position p is stored within its row of the KV cache (kernels.h). The
// same column of 8 rows falls into 8 different banks.
template <int HEAD_DIM> __device__ __forceinline__ int swizzle(int p, int c) {
    return HEAD_DIM % 64 == 0 ? c ^ (p & 7) : c ^ ((p >> 1) & 3);
}
// Rows of 80 elements have 10 chunks, which change places in pairs.
template <> __device__ __forceinline__ int swizzle<80>(int p, int c) {
    return c ^ (p >> 2 & 1);
}

} // namespace
