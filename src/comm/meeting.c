#include "comm/meeting.h"

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

void meeting_fail(struct meeting *meeting) {
    atomic_store(&meeting->has_failed, 1);
    bell_ring(&meeting->over);
}
