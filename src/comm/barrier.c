#include "comm/barrier.h"

#include "base/os/cpu.h"

double barrier_spin_seconds(uint32_t world_size) {
    // Longer than ranks usually wait for each other, too short for a person to notice. Where ranks
    // share a core, a rank that spins keeps the awaited rank from running.
    return world_size <= (uint32_t)cpu_count() ? 200e-6 : 0;
}

void barrier_wait(struct barrier *barrier, uint32_t world_size, double spin_seconds) {
    unsigned seen = wakeup_count(&barrier->over);
    if (atomic_load(&barrier->has_failed)) return;
    if (atomic_fetch_add(&barrier->num_arrived, 1) + 1 == world_size) {
        atomic_store(&barrier->num_arrived, 0);
        wakeup_signal(&barrier->over);
    } else {
        wakeup_wait(&barrier->over, seen, spin_seconds);
    }
}

uint64_t barrier_minimum(struct barrier *barrier, uint32_t rank, uint32_t world_size,
                         double spin_seconds, uint64_t value) {
    barrier->values[rank] = value;
    barrier_wait(barrier, world_size, spin_seconds);
    for (uint32_t r = 0; r < world_size; r++) {
        if (barrier->values[r] < value) value = barrier->values[r];
    }
    barrier_wait(barrier, world_size, spin_seconds); // all have read
    return value;
}

void barrier_fail(struct barrier *barrier) {
    atomic_store(&barrier->has_failed, 1);
    wakeup_signal(&barrier->over);
}
