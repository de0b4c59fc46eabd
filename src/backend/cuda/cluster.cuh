/* Thread block clusters (sm_90 and later) and access to the shared memory of the cluster's other
 * blocks. Call these only from code guarded by NV_IF_TARGET. */
#pragma once

#include "backend/cuda/device.cuh"

namespace {

// This block's rank in its cluster, and the cluster's size.
struct cluster_place {
    int rank, size;
};
__device__ __forceinline__ cluster_place this_place() {
    cluster_place c;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(c.rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(c.size));
    return c;
}
__device__ __forceinline__ uint32_t at_rank(uint32_t address, int rank) {
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}
// Arrives at a barrier in any block of the cluster; `mapped` comes from at_rank.
__device__ __forceinline__ void barrier_arrive_at(uint32_t mapped) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mapped) : "memory");
}
// Stores to another block's shared memory (st.async). The bytes count at that block's barrier.
__device__ __forceinline__ void push(uint32_t to, uint32_t barrier, float value) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
        "r"(__float_as_uint(value)), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void push(uint32_t to, uint32_t barrier, float a, float b) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::
            "r"(to),
        "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// Arrives without publishing this thread's writes.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

} // namespace
