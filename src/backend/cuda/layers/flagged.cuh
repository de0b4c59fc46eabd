/* Values that blocks of one kernel hand each other without a barrier: each 16 bytes of memory
 * carry 8 bytes of values and the tick at which they were written (64 bits: it never comes round),
 * and are read and written as one access, so a reader that finds its tick has the values. One way
 * through the L2 instead of a fence, a counter and a load (the idea of NCCL's LL protocol).
 *
 * A value that nobody stores is waited for for ever (rule 12 of handover.cuh). */
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/handover.cuh"

namespace {

struct flagged {
    uint32_t low, high; // values
    uint64_t tick;
};

__device__ __forceinline__ void flagged_store(uint4 *to, const flagged &v) {
    uint64_t values = v.low | static_cast<uint64_t>(v.high) << 32;
    asm volatile("{\n .reg .b128 all;\n"
                 " mov.b128 all, {%1, %2};\n"
                 " st.relaxed.gpu.global.b128 [%0], all;\n}" ::"l"(to),
                 "l"(values), "l"(v.tick)
                 : "memory");
}

__device__ __forceinline__ flagged flagged_load(const uint4 *from) {
    uint64_t values, tick;
    asm volatile("{\n .reg .b128 all;\n"
                 " ld.relaxed.gpu.global.b128 all, [%2];\n"
                 " mov.b128 {%0, %1}, all;\n}"
                 : "=l"(values), "=l"(tick)
                 : "l"(from)
                 : "memory");
    return {static_cast<uint32_t>(values), static_cast<uint32_t>(values >> 32), tick};
}

// Unit number `number` was to hand over what has not come with the tick.
__device__ __forceinline__ void flagged_turn(wait_watch &watch, const flagged &v, uint64_t tick,
                                             int number) {
    if (v.tick == tick) return;
    check_rule(v.tick < tick, 12, tick, v.tick);
    watch.turn("a piece of unit", number, tick, v.tick);
}

// Waits until all of COUNT, `step` apart, are of the tick; those from `limit` on are not looked at.
// They are of unit `number` and those each `units` further.
template <int COUNT>
__device__ __forceinline__ void flagged_wait(flagged (&v)[COUNT], const uint4 *from, int step,
                                             int limit, uint64_t tick, int number, int units) {
    bool is_there;
    wait_watch watch;
    do {
        is_there = true;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (i < limit) v[i] = flagged_load(from + i * step);
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (i < limit && v[i].tick != tick) is_there = false;
        }
        if constexpr (CHECKED) {
            for (int i = 0; i < COUNT && i < limit; i++) {
                flagged_turn(watch, v[i], tick, number + i * units);
            }
        }
    } while (!is_there);
}

} // namespace
