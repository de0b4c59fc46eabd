/* What came with Hopper: barriers in shared memory (mbarrier) that tell when a copy is there and
 * when its place is free, copies of boxes of a tensor (TMA), and, of sm_90a alone, matrix products
 * of a warpgroup (wgmma) and registers handed from one to another. Only to be reached from code
 * that NV_IF_TARGET guards.
 *
 * A product runs beside the threads: its registers are nobody's from products_begin until
 * products_wait, and hold() keeps the compiler from moving what uses them across that. Where it
 * cannot follow them (ptxas -v tells: C7510 to C7515) it waits after each product, which is right
 * but slow. */
#pragma once

#include <cuda.h>

#include "backend/cuda/device.cuh"
#include "backend/cuda/wait.cuh"

namespace {

// Barriers in shared memory count arrivals and copied bytes; a phase ends when both are complete.
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
// What was initialised is so for copies too (rule 7 of handover.cuh).
__device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and `bytes` are to be copied as well (rule 8).
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
// Whether the phase of that parity has ended.
__device__ __forceinline__ bool barrier_test(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}
// As its 64 bits are: arrivals and bytes that are missing, the phase in the highest.
__device__ __forceinline__ uint64_t barrier_state(uint32_t barrier) {
    uint64_t state;
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
    return state;
}
// One more time that the phase had not ended.
__device__ __forceinline__ void barrier_turn(wait_watch &watch, uint32_t barrier, uint32_t parity,
                                             const char *what, int number) {
    if constexpr (CHECKED) watch.turn(what, number, parity, barrier_state(barrier));
}
// Until the phase of that parity has ended; the one before the first counts as ended, with parity
// 1. `what`, the number-th of its kind, is what the phase brings.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity, const char *what,
                                             int number = 0) {
    uint32_t done;
    wait_watch watch;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (!done) barrier_turn(watch, barrier, parity, what, number);
    } while (!done);
}

// A place of a ring of such barriers, and how often it was passed, modulo 2.
template <int STAGES> struct ring_place {
    int stage;
    uint32_t parity;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// What is read once a step should not drive from the L2 what is read again.
__device__ __forceinline__ uint64_t evict_first_policy() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// Bytes in whole multiples of 16, from and to such addresses.
__device__ __forceinline__ void copy_bulk(uint32_t shared, const void *global, uint32_t bytes,
                                          uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void copy_bulk(uint32_t shared, const void *global, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], %4;" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

// From now on each thread of the warpgroup has N registers; taking waits until others gave.
template <int N> __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// The box of the map's shape at (column, row), row after row.
__device__ __forceinline__ void copy_box(uint32_t shared, const CUtensorMap *map, int column,
                                         int row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t shared, const CUtensorMap *map, int column,
                                         int row, uint32_t barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
                 : "memory");
}
// The same to every block of the cluster whose bit is set, at the same place, told to the barrier
// at the same place.
__device__ __forceinline__ void copy_box_to_all(uint32_t shared, const CUtensorMap *map, int column,
                                                int row, uint32_t barrier, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
                 : "memory");
}
// What this thread stored to shared memory is there for products and copies (rule 10).
__device__ __forceinline__ void shared_stores_done() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// An operand in shared memory: rows of 128 bytes, 16-byte chunks swizzled by the row's number
// modulo 8, from a multiple of 1,024 bytes on. What lies 8 rows further is 1,024 bytes further.
// Where rows are the product's inner dimension (values), columns 64 and up lie `halves` bytes
// further.
__device__ __forceinline__ uint64_t operand(uint32_t shared, uint32_t halves) {
    constexpr uint64_t SWIZZLE_128 = 1, ROWS_8 = 1024;
    return SWIZZLE_128 << 62 | ROWS_8 >> 4 << 32 | static_cast<uint64_t>(halves >> 4) << 16 |
           shared >> 4;
}

// Between the last access to registers of a product and its begin.
__device__ __forceinline__ void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ __forceinline__ void products_wait() { // all but the newest N groups
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void hold(float (&c)[N][4]) {
#pragma unroll
    for (int i = 0; i < N * 4; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}

// Eight registers of an accumulator: c[i] and c[i + 1].
#define C8(i)                                                                                      \
    "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]), "+f"(c[i + 1][0]),                 \
        "+f"(c[i + 1][1]), "+f"(c[i + 1][2]), "+f"(c[i + 1][3])

// c[64][8 S] += a[64][16] b[16][8 S]: a in registers, as in multiply(); b in shared memory.
template <int S>
__device__ __forceinline__ void multiply_add(float (&c)[S][4], const uint32_t (&a)[4], uint64_t b) {
    static_assert(S == 8 || S == 16, "shape");
    if constexpr (S == 8) {
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
            : C8(0), C8(2), C8(4), C8(6)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    } else {
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
            "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
            : C8(0), C8(2), C8(4), C8(6), C8(8), C8(10), C8(12), C8(14)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
}
#undef C8

} // namespace
