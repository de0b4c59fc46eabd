/* The invariants of block_manager.h and of the tables that hold its blocks, checked from outside by
 * counting everything again. */
#ifndef ENGINE_BLOCK_CHECKS_H
#define ENGINE_BLOCK_CHECKS_H

#include <stddef.h>

#include "engine/schedule/block_manager.h"

// seqs: [num_seqs] all sequences that may hold blocks; NULL entries are skipped.
// NULL, or which invariant does not hold.
const char *block_checks_run(const struct block_manager *manager, struct sequence *const *seqs,
                             size_t num_seqs);

#endif
