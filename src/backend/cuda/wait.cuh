/* Waiting by asking again and again, for an mbarrier or for a word in memory: every such loop of a
 * kernel goes through a wait_watch.
 *
 * A kernel that waits for what never comes would spin for ever and say nothing. In a build with
 * NANOVLLM_CUDA_CHECKS a wait that lasts TELL_NS prints its kernel's file, its block, warp and lane,
 * what it waits for, what it wants and what it sees. After TRAP_NS it stops the kernel, and the
 * device fails. In between all that are stuck have printed, so the lines say who waited for whom.
 * In other builds a watch is nothing: the machine code is that of the bare loop.
 *
 * Waits of the hardware have no bound: bar.sync, barrier.cluster, griddepcontrol.wait, setmaxnreg,
 * cp.async.wait_group. Who is stuck there waits for threads that are stuck here. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

namespace {

constexpr bool CHECKED = CUDA_CHECKS; // CMake's NANOVLLM_CUDA_CHECKS

constexpr uint64_t TELL_NS = 5000000000, TRAP_NS = 7000000000; // of a time-sliced device too

__device__ __forceinline__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// A line about this thread, `verb` being what it does. The lowest of the lanes that run this prints
// for all of them.
__device__ __forceinline__ void complain(const char *path, const char *verb, const char *what,
                                         int number, uint64_t wanted, uint64_t seen) {
    unsigned lane = threadIdx.x % 32;
    if (__activemask() & ((1u << lane) - 1)) return;
    const char *file = path;
    for (const char *c = path; *c; c++) {
        if (*c == '/') file = c + 1;
    }
    printf("nanovllm: %s: block %u, warp %u, lane %u %s %s %d: wants 0x%llx, sees 0x%llx\n", file,
           blockIdx.x, threadIdx.x / 32, lane, verb, what, number,
           static_cast<unsigned long long>(wanted), static_cast<unsigned long long>(seen));
}

// Of one wait.
struct wait_watch {
    uint64_t started = 0; // 0: nobody has asked yet
    bool has_told = false;

    // What is waited for is not there yet: number `number` of several, told as `what`.
    __device__ __forceinline__ void turn(const char *what, int number, uint64_t wanted,
                                         uint64_t seen) {
        if constexpr (CHECKED) {
            uint64_t now = now_ns();
            if (!started) started = now;
            if (now - started < TELL_NS) return;
            if (!has_told) complain(__BASE_FILE__, "waits for", what, number, wanted, seen);
            has_told = true;
            if (now - started > TRAP_NS) __trap();
        }
    }
};

} // namespace
