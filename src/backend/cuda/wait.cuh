/* Polling loops on an mbarrier or on a word in memory. Every such loop of a kernel goes through a
 * wait_watch.
 *
 * Without it, a kernel that waits for something that never comes would spin for ever and say
 * nothing. In a build with NANOVLLM_CUDA_CHECKS, a wait of TELL_NS prints the kernel's file, the
 * block, warp and lane, the awaited thing, the wanted value and the value it sees. After TRAP_NS it
 * stops the kernel, and the device fails. The time between lets all stuck threads print, so the
 * lines show who waited for whom. In other builds a wait_watch compiles to nothing: the machine
 * code is that of the bare loop.
 *
 * Hardware waits have no such bound: bar.sync, barrier.cluster, griddepcontrol.wait, setmaxnreg,
 * cp.async.wait_group. A thread stuck there waits for threads that are stuck in a polling loop. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

namespace {

constexpr bool CHECKED = CUDA_CHECKS; // set by CMake's NANOVLLM_CUDA_CHECKS

// long enough for a time-sliced device
constexpr uint64_t TELL_NS = 5000000000, TRAP_NS = 7000000000;

__device__ __forceinline__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// Prints a line about this thread; `verb` says what it does. The lowest active lane prints for the
// others.
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

// The state of one wait.
struct wait_watch {
    uint64_t started = 0; // 0: not polled yet
    bool has_told = false;

    // Called after each unsuccessful poll. `what` and `number` name the awaited thing.
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
