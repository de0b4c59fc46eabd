/* How kernels of several ranks hand values to each other: by words in each other's memory.
 *
 * Nobody waits for ever for a rank that is lost. A long wait looks at has_failed, a word of host
 * memory. If it is set, the wait ends and sets a word in this rank's own memory, which ends all its
 * later waits. The results are then not used.
 *
 * Looks at host memory are rare, because each goes over the bus and every waiting warp looks. When
 * they began after 0.1 ms, a sum of 64 KB in bench_rank_sums took 83 us, one of 32 KB 3.3 us: 0.4
 * to 0.65 us for each waiting warp. */
#pragma once

#include "backend/cuda/handover.cuh"
#include "backend/cuda/kernels.h"

namespace {

// Unsuccessful polls between two looks at this rank's word, and between two at has_failed (some 10
// ms).
constexpr uint32_t NEAR_POLLS = 128, FAR_POLLS = 128 * NEAR_POLLS;

// Whether the wait must end. Call it after each unsuccessful poll; `polls` is its number.
__device__ __forceinline__ bool is_lost(const cuda_ranks &r, uint32_t polls) {
    if (polls % NEAR_POLLS) return false;
    auto near = reinterpret_cast<volatile uint32_t *>(r.memory[r.rank] + r.lost_at);
    if (*near) return true;
    if (polls % FAR_POLLS || !*static_cast<const volatile uint32_t *>(r.has_failed)) return false;
    *near = 1;
    return true;
}

// A value that goes from one rank to another without a fence: 4 bytes of it and the 4 bytes of a
// number are stored and loaded as one access. So a reader that sees the expected number has the
// value. (The idea is NCCL's LL protocol.)
__device__ __forceinline__ void send_value(uint64_t *to, uint32_t value, uint32_t number) {
    uint64_t word = static_cast<uint64_t>(number) << 32 | value;
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

// Waits for a value with this number. 0 once a rank is lost.
__device__ __forceinline__ uint32_t take_value(const cuda_ranks &r, const uint64_t *from,
                                               uint32_t number, uint32_t writer) {
    wait_watch watch;
    for (uint32_t polls = 1;; polls++) {
        uint64_t word;
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
        if (word >> 32 == number) return static_cast<uint32_t>(word);
        if (is_lost(r, polls)) return 0;
        watch.turn("a value of rank", static_cast<int>(writer), number, word >> 32);
    }
}

} // namespace
