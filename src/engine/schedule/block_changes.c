#include "engine/schedule/block_changes.h"

#include <stdlib.h>

enum status block_changes_init(struct block_changes *changes, uint32_t num_blocks,
                               struct err *err) {
    *changes = (struct block_changes){.num_blocks = num_blocks};
    changes->ids = calloc(num_blocks, sizeof *changes->ids);
    changes->flags = calloc(num_blocks, sizeof *changes->flags);
    if (changes->ids && changes->flags) return OK;
    block_changes_fini(changes);
    return err_nomem(err, "observer");
}

void block_changes_fini(struct block_changes *changes) {
    free(changes->ids);
    free(changes->flags);
    *changes = (struct block_changes){0};
}

void block_changes_clear(struct block_changes *changes) {
    for (uint32_t i = 0; i < changes->num_ids; i++) changes->flags[changes->ids[i]] = 0;
    changes->num_ids = 0;
    changes->num_taken = changes->num_freed = 0;
}
