/* How kernels hand over to each other, and blocks and warps within one. The rules have numbers, which
 * the code refers to where it rests on them. "checked": a build with NANOVLLM_CUDA_CHECKS finds out
 * when the rule is broken, says so and stops the kernel.
 *
 * Between kernels (programmatic dependent launch, sm_90 and later; earlier devices run one kernel
 * after the other):
 *
 *  1. A kernel launched by launch_dependent or launch_clusters may begin before those in front have
 *     ended. Until its wait_for_earlier() it reads only what no step writes (its parameters,
 *     weights, biases, norms, the rotary table) and writes nothing to memory. What needs no wait is
 *     done first, loading weights above all.
 *  2. A thread that reads or writes what other kernels of a step write or read has waited itself.
 *     That another thread of its block has is not enough. So is a copy that it issues. (checked:
 *     such pointers go through of_step())
 *  3. let_next_start() only says that the next kernel's blocks may come. It hands nothing over, and
 *     may stand before the kernel's own wait, but for rule 5.
 *  4. A block that has anything to do waits in at least one thread. So a kernel has ended only when
 *     all before it have, and who waits for the kernel in front waits for all. A step of padding
 *     alone may be without a waiting thread in attention_few.cu. Nobody reads what such a step
 *     computes. (checked by way of rule 2)
 *  5. In a step of decodes alone, every attention but the step's first reads the work lists or
 *     lengths and slots, block tables and its layer's cache before its wait. That is sound because
 *     the step's first attention lets the next kernel start only after its own wait, so all later
 *     ones begin after what went before it; because in such a step nothing but a layer's attention
 *     writes its cache; and because of rule 6, by which no step's lists or lengths are written
 *     while the step before still reads. (checked: cuda_attention.c lets none start early before
 *     one of the step has waited)
 *  6. An ordinary launch begins when all before it in the stream have ended, and needs no wait. So
 *     are the copy of a step's arrays to the device, the embedding and the work lists launched.
 *
 * Within a kernel:
 *
 *  7. An mbarrier is initialised by one thread, then barrier_init_done(), then a barrier among all
 *     that use it: of the warp, the block or the cluster.
 *  8. The bytes that a phase of an mbarrier waits for are told (barrier_expect) before they are
 *     copied, by the thread that copies or before a barrier with it.
 *  9. One lane arrives at an mbarrier for its warp only after __syncwarp: all lanes have read then.
 * 10. What threads stored to shared memory is read by products and bulk copies, or written over by
 *     copies, only after shared_stores_done() and a barrier.
 * 11. Where all blocks meet (decode_block.cuh) a block's threads pass a barrier, and then one
 *     arrives with release. One waits with acquire, and then the threads pass a barrier. What
 *     others stored before is then read past the L1. The counter is 0 between launches. (checked)
 * 12. A flagged value (flagged.cuh) is waited for only if some block of the same launch is certain
 *     to store it, without waiting for the reader first. Nobody stores the next one to its place
 *     before all have read it. (checked: a later value in its place)
 * 13. Where the last of several blocks goes on alone, a block's threads store, fence and pass a
 *     barrier, and then one counts; those of the last pass a barrier and fence before they load,
 *     past the L1. The counter is 0 between launches. (checked)
 * 14. A block leaves its cluster only when no other reads or writes its shared memory any more. */
#pragma once

#include <cuda_runtime.h>

#include <nv/target>

#include "backend/cuda/wait.cuh"

namespace {

// Says which rule this thread found broken, and by what.
__device__ __forceinline__ void check_rule(bool holds, int rule, uint64_t wanted, uint64_t seen) {
    if constexpr (CHECKED) {
        if (holds) return;
        complain(__BASE_FILE__, "breaks", "rule", rule, wanted, seen);
        __trap();
    }
}

// Rule 2's: of each warp the lanes that have waited, below the lower half of the launch's number,
// without which a word is of another launch.
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

// Until what earlier kernels did is there, for this thread.
__device__ __forceinline__ void wait_for_earlier() {
    NV_IF_TARGET(NV_PROVIDES_SM_90, (cudaGridDependencySynchronize();))
    if constexpr (CHECKED) note_waited();
}

// The next kernel's blocks may come as soon as all of this one's have called this, or ended.
__device__ __forceinline__ void let_next_start() {
    NV_IF_TARGET(NV_PROVIDES_SM_90, (cudaTriggerProgrammaticLaunchCompletion();))
}

// Where it is read or written: a pointer to what other kernels of a step write or read (rule 2).
template <typename T> __device__ __forceinline__ T *of_step(T *p) {
    if constexpr (CHECKED) {
        unsigned long long word = *const_cast<volatile unsigned long long *>(waited_word());
        check_rule(word >> 32 == launch_number() && word >> threadIdx.x % 32 & 1, 2,
                   1ull << threadIdx.x % 32, word);
    }
    return p;
}

} // namespace
