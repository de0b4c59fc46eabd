#include "engine/schedule/block_snapshots.h"

#include "base/check.h"

uint32_t block_snapshots_match(const struct block_manager *manager, const struct sequence *seq,
                               uint32_t num) {
    for (uint32_t id = seq->prefix; num > 0; num--) {
        const struct prefix *prefix = &manager->prefixes[id];
        if (prefix->snapshot != SNAPSHOT_NONE) break;
        id = prefix->parent;
    }
    return num;
}

uint32_t block_snapshots_of(struct block_manager *manager, const struct sequence *seq) {
    if (!manager->snapshots.num_slots || !seq->num_computed_tokens) return SNAPSHOT_NONE;
    uint32_t slot = manager->prefixes[seq->prefix].snapshot;
    CHECK(slot != SNAPSHOT_NONE, "a hit of %u tokens without states", seq->num_computed_tokens);
    snapshots_use(&manager->snapshots, slot);
    return slot;
}

uint32_t block_snapshots_take(struct block_manager *manager) {
    uint32_t prefix, slot = snapshots_take(&manager->snapshots, &prefix);
    if (prefix != PREFIX_NONE) manager->prefixes[prefix].snapshot = SNAPSHOT_NONE;
    return slot;
}

void block_snapshots_keep(struct block_manager *manager, const struct sequence *seq,
                          uint32_t num_tokens, uint32_t slot) {
    uint32_t num_blocks = num_tokens / manager->block_size;
    // If publication was put off, no prefix can hold the snapshot.
    if (!seq || seq->num_published < num_blocks) {
        snapshots_free(&manager->snapshots, slot);
        return;
    }
    uint32_t id = seq->prefix;
    for (uint32_t n = seq->num_published; n > num_blocks; n--) id = manager->prefixes[id].parent;
    if (manager->prefixes[id].snapshot != SNAPSHOT_NONE) { // another sequence was as fast
        snapshots_free(&manager->snapshots, slot);
        return;
    }
    manager->prefixes[id].snapshot = slot;
    manager->snapshots.slots[slot].prefix = id;
}
