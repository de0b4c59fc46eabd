/* Which KV blocks changed since the observer last looked: each block once, with what happened to
 * it. The block manager adds, the step observer reads and clears. */
#ifndef ENGINE_BLOCK_CHANGES_H
#define ENGINE_BLOCK_CHANGES_H

#include <stdint.h>

#include "base/err.h"

enum { // the values of enum nvllm_block_change, which says what each means
    BLOCK_TAKEN = 1 << 0,
    BLOCK_HIT = 1 << 1,
    BLOCK_SHARED = 1 << 2,
    BLOCK_CACHED = 1 << 3,
    BLOCK_LEFT = 1 << 4,
    BLOCK_LISTED = 1 << 7, // it is in ids; not a value of nvllm_block_change
};

struct block_changes {
    uint32_t num_blocks;
    uint32_t *ids; // [num_blocks], the first num_ids are valid
    uint32_t num_ids;
    uint8_t *flags; // [num_blocks] a sum of the above; 0: not in ids
    uint32_t num_taken; // blocks that were free and were taken
    uint32_t num_freed; // blocks that became free
};

MUST_USE enum status block_changes_init(struct block_changes *changes, uint32_t num_blocks,
                                        struct err *err);
void block_changes_fini(struct block_changes *changes); // all-zero is fine
void block_changes_clear(struct block_changes *changes);

// `change`: what happened to the block; 0 only lists it.
static inline void block_changes_add(struct block_changes *changes, uint32_t id, uint8_t change) {
    if (!changes->flags[id]) changes->ids[changes->num_ids++] = id;
    changes->flags[id] |= (uint8_t)(change | BLOCK_LISTED);
}

#endif
