/* Finds decodes that share a prefix: rows whose block tables begin with the same physical blocks
 * (backend/shared_prefix.h). Prefix caching and requests with several outputs make such tables.
 * Rows are looked up by the block that ends the shortest prefix worth sharing, and then compared
 * block by block. So a step without shared prefixes costs one look-up a row. Where many rows begin
 * alike but share too little, the search ends early and may miss a prefix. */
#ifndef ENGINE_STEP_SHARED_PREFIXES_H
#define ENGINE_STEP_SHARED_PREFIXES_H

#include <stdbool.h>

#include "backend/shared_prefix.h"
#include "base/err.h"

// A prefix is shared only if all of these hold. Positions saved: those of the prefix times all its
// rows but one.
struct shared_prefix_limits {
    uint32_t min_rows, min_positions, min_saved;
};

struct shared_prefix_row {
    const uint32_t *blocks; // [num_blocks], borrowed: the row's leading blocks that may be shared
    uint32_t num_blocks;
    uint32_t seq; // its number in the step
};

struct shared_prefix_finder {
    struct shared_prefix_limits limits;
    struct shared_prefix_row *rows; // [max_rows]
    uint32_t num_rows, max_rows;
    uint32_t *heads; // [num_heads, a power of two]: of the lists of rows; row + 1, 0: empty
    uint32_t *next; // [max_rows], likewise
    uint32_t num_heads;
    bool *is_done; // [max_rows]: has a prefix, or can have none
    struct common_row {
        uint32_t row, num_blocks; // in common with the row that is compared
    } * common; // [max_rows], the most blocks first
    // What was found last.
    uint32_t num_prefixes, num_seqs;
    struct shared_prefix prefixes[SHARED_PREFIXES_MAX];
    uint32_t *seqs; // [max_rows]: as shared_prefixes.seqs
};

MUST_USE enum status shared_prefix_finder_init(struct shared_prefix_finder *finder,
                                               uint32_t max_rows, struct err *err);
void shared_prefix_finder_fini(struct shared_prefix_finder *finder); // all-zero is fine
// Finds the prefixes of rows[num_rows], which the caller has set. A prefix is as long as saves the
// most positions; rows that leave it earlier are not of it.
void shared_prefix_finder_find(struct shared_prefix_finder *finder, uint32_t block_size);

#endif
