/* Slots for states of recurrent layers after a prefix, so that the prefix cache serves models with
 * such layers. A slot is free, taken by a step that writes it, or known by a prefix
 * (block_manager.h).
 * Pure: no I/O and no clock, and only init allocates.
 *
 * In a step one slot is read by sequences or written by one, never both: what was used in this step
 * is not taken again before the next one. */
#ifndef ENGINE_SNAPSHOTS_H
#define ENGINE_SNAPSHOTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SNAPSHOT_NONE UINT32_MAX

struct snapshot {
    uint32_t prefix; // that knows it, or UINT32_MAX
    uint64_t used; // number of the step that used it last
};

struct snapshots {
    uint32_t num_slots;
    struct snapshot *slots; // [num_slots]
    uint64_t step;
};

MUST_USE enum status snapshots_init(struct snapshots *snapshots, uint32_t num_slots,
                                    struct err *err);
void snapshots_fini(struct snapshots *snapshots); // all-zero is fine
void snapshots_begin_step(struct snapshots *snapshots);
// The slot to write next: a free one or, of the known ones, the least recently used. The prefix
// that knew it is in *prefix, else UINT32_MAX. SNAPSHOT_NONE: this step has used all.
uint32_t snapshots_take(struct snapshots *snapshots, uint32_t *prefix);
void snapshots_use(struct snapshots *snapshots, uint32_t slot); // this step reads it
void snapshots_free(struct snapshots *snapshots, uint32_t slot); // no prefix knows it any more

#endif
