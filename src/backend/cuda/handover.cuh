/* How kernels hand results to each other, and how blocks and warps do within a kernel. The rules
 * are numbered; code that relies on one cites its number. "checked" means: a build with
 * NANOVLLM_CUDA_CHECKS detects a violation, prints it and stops the kernel.
 *
 * Between kernels, with programmatic dependent launch (sm_90 and later; earlier devices run one
 * kernel after the other):
 *
 *   1. A kernel launched by launch_dependent or launch_clusters may start before earlier kernels
 *      have ended. Until its wait_for_earlier() it reads only memory that no step writes
 *      (parameters, weights, biases, norms, the rotary table), and it writes nothing to memory. A
 *      kernel does its independent work first, loading weights above all.
 *   2. A thread waits itself before it reads or writes memory that other kernels of the step write
 *      or read. A wait by another thread of its block is not enough. The same holds for copies that
 *      the thread issues. (checked: such pointers go through of_step())
 *   3. let_next_start() only allows the next kernel's blocks to start. It does not publish results.
 *      It may come before the kernel's own wait, except where rule 5 forbids it. If it comes behind
 *      that wait in all blocks, the next kernel may read before its own wait what kernels before
 *      this one wrote: down of experts/few_tokens.cu reads the routing.
 *   4. Every block that has work waits in at least one thread. So a kernel ends only after all
 *      earlier ones, and a wait for the previous kernel is a wait for all of them. In a step of
 *      padding alone, attention/decode_cluster.cu and recurrent/gated_delta.cu may have no waiting
 *      thread. Nobody reads the results of such a step. (checked through rule 2)
 *   5. In a step where all attention prepares its tokens itself (decodes alone or with drafts,
 *      without shared prefixes), every attention but the step's first reads these before its wait:
 *      the work lists or lengths and slots, the block tables, its layer's cache. This is safe for
 *      three reasons. The step's first attention calls let_next_start() only after its own wait,
 *      so all later kernels start after everything before it. In such a step, only the layer's own
 *      attention writes the layer's cache, and no block uses what another one writes there. By
 *      rule 6, a step's lists and lengths are written only after the previous step has finished
 *      reading. (checked: attention/attention.c starts none early until one attention of the step
 *      has waited, behind its work lists)
 *      A decode of a gated delta net (recurrent/gated_delta.cu) likewise reads lengths, slots and
 *      its layer's states before its wait. It starts behind the step's embedding, so by rule 6
 *      after the step before, and in its step no other kernel writes the layer's states.
 *   6. An ordinary launch starts when everything before it in the stream has ended, and needs no
 *      wait. The copy of a step's arrays to the device, the embedding and the work lists are
 *      ordinary launches.
 *
 * Within a kernel:
 *
 *   7. One thread initialises an mbarrier and calls barrier_init_done(). Then all its users pass a
 *      barrier of the warp, the block or the cluster.
 *   8. The bytes that an mbarrier's phase waits for are announced (barrier_expect) before they are
 *      copied. The copying thread does this itself, or another thread does and a barrier between
 *      the two follows.
 *   9. One lane arrives at an mbarrier for its whole warp, after __syncwarp. So all lanes have
 *      finished reading.
 *  10. After threads store to shared memory, they call shared_stores_done() and pass a barrier.
 *      Only then may wgmma or bulk copies read that memory, or copies overwrite it.
 *  11. Grid barrier (layers/block.cuh, experts/packed_few_tokens.cu), in cooperative launches: a
 *      block's threads pass a barrier, then one thread arrives with release. One thread waits with
 *      acquire, then the threads pass a barrier. After that, other blocks' earlier stores are read
 *      past the L1. The counter is 0 between launches. (checked)
 *  12. A thread waits for a flagged value (layers/flagged.cuh) only if some block of the same
 *      launch is certain to store it without first waiting for the reader. The next value goes to
 *      the same place only after all readers have read this one. (checked: a later value in its
 *      place)
 *  13. Where the last of several blocks continues alone: each block's threads store, fence and pass
 *      a barrier, and then one thread counts. The last block's threads pass a barrier and fence,
 *      and then load past the L1. The counter is 0 between launches. (checked)
 *  14. A block leaves its cluster only when no other block reads or writes its shared memory any
 *      more. */
#pragma once

#include <cuda_runtime.h>

#include <nv/target>

#include "backend/cuda/wait.cuh"

namespace {

// Prints which rule this thread broke and the values that show it, then stops the kernel.
__device__ __forceinline__ void check_rule(bool holds, int rule, uint64_t wanted, uint64_t seen) {
    if constexpr (CHECKED) {
        if (holds) return;
        complain(__BASE_FILE__, "breaks", "rule", rule, wanted, seen);
        __trap();
    }
}

// For rule 2: per warp a mask of the lanes that have waited. The upper half is the low 32 bits of
// the launch's number. A word with another number is left over from an earlier launch.
__device__ __forceinline__ unsigned long long *waited_word() {
    __shared__ unsigned long long words[32];
    return &words[threadIdx.x / 32];
}
__device__ __forceinline__ uint32_t launch_number() {
    uint64_t number;
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(number));
    return static_cast<uint32_t>(number);
}
__device__ __forceinline__ void note_waited() {
    unsigned long long *word = waited_word(), old = *word, seen;
    unsigned long long launch = static_cast<unsigned long long>(launch_number()) << 32;
    do {
        seen = old;
        unsigned long long others = seen >> 32 == launch >> 32 ? seen : launch;
        old = atomicCAS(word, seen, others | 1ull << threadIdx.x % 32);
    } while (old != seen);
}

// Waits until all earlier kernels have ended and their writes are visible to this thread.
__device__ __forceinline__ void wait_for_earlier() {
    NV_IF_TARGET(NV_PROVIDES_SM_90, (cudaGridDependencySynchronize();))
    if constexpr (CHECKED) note_waited();
}

// The next kernel's blocks may start once every block of this kernel has called this or ended.
__device__ __forceinline__ void let_next_start() {
    NV_IF_TARGET(NV_PROVIDES_SM_90, (cudaTriggerProgrammaticLaunchCompletion();))
}

// Wraps every access to memory that other kernels of a step write or read (rule 2).
template <typename T> __device__ __forceinline__ T *of_step(T *p) {
    if constexpr (CHECKED) {
        unsigned long long word = *const_cast<volatile unsigned long long *>(waited_word());
        check_rule(word >> 32 == launch_number() && word >> threadIdx.x % 32 & 1, 2,
                   1ull << threadIdx.x % 32, word);
    }
    return p;
}

} // namespace
