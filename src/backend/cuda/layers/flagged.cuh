/* Values that blocks of one kernel pass to each other without a barrier. Each 16 bytes hold 8 bytes
 * of values and the tick of the write, and are stored and loaded as one access. So a reader that
 * sees the expected tick has the values. The tick has 64 bits and never wraps. This takes one trip
 * through the L2 instead of a fence, a counter and a load. The idea is NCCL's LL protocol.
 *
 * A reader waits for ever for a value that nobody stores (rule 12 of handover.cuh). */
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

// Records an unsuccessful poll of a value that unit `number` should store with this tick.
__device__ __forceinline__ void flagged_turn(wait_watch &watch, const flagged &v, uint64_t tick,
                                             int number) {
    if (v.tick == tick) return;
    check_rule(v.tick < tick, 12, tick, v.tick);
    watch.turn("a split of unit", number, tick, v.tick);
}

// Loads COUNT values, `step` entries apart, until all have the tick. Values from index `limit` on
// are ignored. Value i is stored by unit number + i * units.
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
