#include "engine/schedule/snapshots.h"

#include <stdlib.h>

enum status snapshots_init(struct snapshots *snapshots, uint32_t num_slots, struct err *err) {
    *snapshots = (struct snapshots){.num_slots = num_slots, .step = 1};
    if (!num_slots) return OK;
    snapshots->slots = calloc(num_slots, sizeof *snapshots->slots);
    if (!snapshots->slots) return err_nomem(err, "snapshots of states");
    for (uint32_t i = 0; i < num_slots; i++) snapshots->slots[i].prefix = UINT32_MAX;
    return OK;
}

void snapshots_fini(struct snapshots *snapshots) {
    free(snapshots->slots);
    *snapshots = (struct snapshots){0};
}

void snapshots_begin_step(struct snapshots *snapshots) {
    snapshots->step++;
}

// Free slots come before those that are known.
static uint64_t age_of(const struct snapshot *slot) {
    return slot->prefix == UINT32_MAX ? 0 : slot->used;
}

uint32_t snapshots_take(struct snapshots *snapshots, uint32_t *prefix) {
    uint32_t best = SNAPSHOT_NONE;
    for (uint32_t i = 0; i < snapshots->num_slots; i++) {
        const struct snapshot *slot = &snapshots->slots[i];
        if (slot->used == snapshots->step) continue;
        if (best == SNAPSHOT_NONE || age_of(slot) < age_of(&snapshots->slots[best])) best = i;
    }
    *prefix = UINT32_MAX;
    if (best == SNAPSHOT_NONE) return best;
    *prefix = snapshots->slots[best].prefix;
    snapshots->slots[best] = (struct snapshot){UINT32_MAX, snapshots->step};
    return best;
}

void snapshots_use(struct snapshots *snapshots, uint32_t slot) {
    snapshots->slots[slot].used = snapshots->step;
}

void snapshots_free(struct snapshots *snapshots, uint32_t slot) {
    snapshots->slots[slot].prefix = UINT32_MAX;
}
