#include "comm/meeting.h"

#include "base/os/cpu.h"

double meeting_spin_seconds(uint32_t world_size) {
    // Longer than ranks usually wait for each other, too short for a person to notice. Where ranks
    // share a core, a rank that spins keeps the awaited rank from running.
    return world_size <= (uint32_t)cpu_count() ? 200e-6 : 0;
}

void meeting_wait(struct meeting *meeting, uint32_t world_size, double spin_seconds) {
    unsigned seen = bell_count(&meeting->over);
    if (atomic_load(&meeting->has_failed)) return;
    if (atomic_fetch_add(&meeting->num_arrived, 1) + 1 == world_size) {
        atomic_store(&meeting->num_arrived, 0);
        bell_ring(&meeting->over);
    } else {
        bell_wait(&meeting->over, seen, spin_seconds);
    }
}

uint64_t meeting_minimum(struct meeting *meeting, uint32_t rank, uint32_t world_size,
                         double spin_seconds, uint64_t value) {
    meeting->values[rank] = value;
    meeting_wait(meeting, world_size, spin_seconds);
    for (uint32_t r = 0; r < world_size; r++) {
        if (meeting->values[r] < value) value = meeting->values[r];
    }
    meeting_wait(meeting, world_size, spin_seconds); // all have read
    return value;
}

void meeting_fail(struct meeting *meeting) {
    atomic_store(&meeting->has_failed, 1);
    bell_ring(&meeting->over);
}
