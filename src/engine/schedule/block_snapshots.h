/* What the prefix cache of a model with recurrent layers adds to blocks: snapshots of the states.
 * A hit needs the blocks of a prefix and the states at its end. */
#ifndef ENGINE_BLOCK_SNAPSHOTS_H
#define ENGINE_BLOCK_SNAPSHOTS_H

#include "engine/schedule/block_manager.h"

// Of a sequence that is matched for `num` entries: the longest part of them with a snapshot.
uint32_t block_snapshots_match(const struct block_manager *manager, const struct sequence *seq,
                               uint32_t num);
// After admission: the slot whose states the sequence goes on from. SNAPSHOT_NONE: it begins with
// its first token.
uint32_t block_snapshots_of(struct block_manager *manager, const struct sequence *seq);
// A slot for the step to write; what it held is forgotten. SNAPSHOT_NONE: there is none.
uint32_t block_snapshots_take(struct block_manager *manager);
// The step has written it, after the sequence's first num_tokens tokens, whose blocks were
// published. `seq` is NULL where it has ended.
void block_snapshots_keep(struct block_manager *manager, const struct sequence *seq,
                          uint32_t num_tokens, uint32_t slot);

#endif
