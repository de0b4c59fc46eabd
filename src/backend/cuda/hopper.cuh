/* Instructions that came with Hopper, sm_90: mbarriers in shared memory, bulk copies, and copies of
 * tensor boxes (TMA). Of sm_90a alone: warpgroup matrix products (wgmma) and moving registers
 * between warpgroups. Call them only from code guarded by NV_IF_TARGET.
 *
 * A wgmma product runs asynchronously. From products_begin to products_wait no code may touch its
 * registers. hold() keeps the compiler from moving such code across. If the compiler cannot prove
 * this, it waits after each product: correct but slow. ptxas -v then reports C7510 to C7515. */
#pragma once

#include <cuda.h>

#include "backend/cuda/device.cuh"
#include "backend/cuda/wait.cuh"

namespace {

// An mbarrier counts arrivals and copied bytes. A phase ends when both counts are complete.
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
// Makes initialised mbarriers visible to copies (rule 7 of handover.cuh).
__device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and adds `bytes` to what the phase waits for (rule 8).
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
// Whether the phase with this parity has ended. Does not wait.
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
// The barrier's 64 bits, for messages: missing arrivals and bytes, and the phase in the top bits.
__device__ __forceinline__ uint64_t barrier_state(uint32_t barrier) {
    uint64_t state;
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
    return state;
}
// Records one more unsuccessful poll of the barrier.
__device__ __forceinline__ void barrier_turn(wait_watch &watch, uint32_t barrier, uint32_t parity,
                                             const char *what, int number) {
    if constexpr (CHECKED) watch.turn(what, number, parity, barrier_state(barrier));
}
// Waits until the phase with this parity has ended. A new barrier counts as if a phase with parity
// 1 had ended. `what` and `number` name what the phase brings, for messages.
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

// A position in a ring of such barriers, and the parity of the current lap.
template <int STAGES> struct ring_place {
    int stage;
    uint32_t parity;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// L2 policy for data that is read once a step: it is evicted first, so that data read again stays.
__device__ __forceinline__ uint64_t evict_first_policy() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// Bulk copy. The size and both addresses must be multiples of 16 bytes.
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

// Changes the number of registers per thread of this warpgroup to N. take_registers waits until
// others have given enough.
template <int N> __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Copies the box at (column, row). Its shape is in the map. It arrives row by row, without gaps.
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
// The same with a map of four dimensions, of which the first and the third begin at 0.
__device__ __forceinline__ void copy_lines(uint32_t shared, const CUtensorMap *map, int row,
                                           int line, uint32_t barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(shared),
                 "l"(map), "r"(0), "r"(row), "r"(line), "r"(barrier), "l"(policy)
                 : "memory");
}
// The same with a map of five dimensions; two of the coordinates are 0.
__device__ __forceinline__ void copy_gated_box(uint32_t shared, const CUtensorMap *map, int column,
                                               int group, int expert, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %3, %4, %5}], [%6];" ::"r"(shared),
                 "l"(map), "r"(column), "r"(0), "r"(group), "r"(expert), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void copy_gated_box(uint32_t shared, const CUtensorMap *map, int column,
                                               int group, int expert, uint32_t barrier,
                                               uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %3, %4, %5}], [%6], %7;" ::"r"(shared),
                 "l"(map), "r"(column), "r"(0), "r"(group), "r"(expert), "r"(barrier), "l"(policy)
                 : "memory");
}
// Multicast: copies the box to every block of the cluster whose bit is set in `blocks`, at the same
// shared address, and signals the barrier at the same address there.
__device__ __forceinline__ void copy_box_to_all(uint32_t shared, const CUtensorMap *map, int column,
                                                int row, uint32_t barrier, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
                 : "memory");
}
// Makes this thread's stores to shared memory visible to wgmma and to bulk copies (rule 10).
__device__ __forceinline__ void shared_stores_done() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Descriptor of a wgmma operand in shared memory: rows of 128 bytes, whose 16-byte chunks are
// swizzled by the row number modulo 8. It starts at a multiple of 1,024 bytes, and 8 rows take
// 1,024 bytes. If rows are the product's inner dimension (values), columns from 64 on are `halves`
// bytes further.
__device__ __forceinline__ uint64_t operand(uint32_t shared, uint32_t halves) {
    constexpr uint64_t SWIZZLE_128 = 1, ROWS_8 = 1024;
    return SWIZZLE_128 << 62 | ROWS_8 >> 4 << 32 | static_cast<uint64_t>(halves >> 4) << 16 |
           shared >> 4;
}

// Goes between the last access to a product's registers and the product.
__device__ __forceinline__ void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// waits for all but the newest N groups
template <int N> __device__ __forceinline__ void products_wait() {
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
