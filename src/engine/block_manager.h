/* Who holds which KV block, and which blocks hold the KV of a prefix that may come again. Numbers
 * only: the memory is the backend's. Pure, allocates only in init.
 *
 * Free blocks are one doubly linked list through the array of blocks, least recently used first; a
 * freed block that is published stays findable until it is allocated again. A block is published
 * once its KV is computed and it is full: hash -> block, where the hash is chained over all blocks
 * before it.
 *
 * A hit is exact, not probable. The hash only finds the candidate; then its tokens are compared and
 * its parent must be the very block that was matched just before (a first block: the same salt).
 * This works because of one invariant: a published block's parent is published, for as long as it
 * is itself.
 *   - A table that holds a published block holds its parent: when a sequence publishes a block
 * whose content is cached already, it gives its own copy back and shares the cached one. So refs
 * never grow along a chain.
 * Without caching no block is published; then only full blocks of a prompt are shared, by sequences
 * of one origin.
 *   - A sequence frees its blocks last to first. So a child is always before its parent in the free
 * list and is evicted first; evicting a block that has children left is a CHECK. */
#ifndef ENGINE_BLOCK_MANAGER_H
#define ENGINE_BLOCK_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "engine/block_changes.h"
#include "engine/sequence.h"

#define BLOCK_NONE UINT32_MAX

struct block {
    uint32_t ref_count; // tables that hold it; 0: it is in the free list
    uint32_t prev, next; // in the free list, BLOCK_NONE at its ends
    uint32_t parent; // published: the block before it in its chain; BLOCK_NONE: it is the first
    uint32_t num_children; // published blocks whose parent this is
    uint64_t serial; // number of its publication, from 1; 0: not published
    uint64_t hash; // published: its key in the map
    uint64_t salt; // published: of its chain
};

struct block_manager_stats {
    uint64_t num_hashed; // block hashes computed
    uint64_t num_hits; // blocks that admissions found cached
    uint64_t num_published; // also the newest serial
    uint64_t num_evicted; // published blocks that were allocated again
    uint64_t num_duplicates; // blocks given back for the cached block of the same content
    uint64_t num_collisions; // publications put off: other content with the same hash is cached
    uint32_t num_used_peak; // blocks
};

struct block_manager {
    uint32_t num_blocks;
    uint32_t block_size; // tokens
    bool enable_prefix_caching;
    uint64_t hash_seed;
    struct block *blocks; // [num_blocks]
    int32_t *tokens; // [num_blocks][block_size], of published blocks; NULL without caching
    struct u64map published; // chain hash -> block id
    uint32_t free_head, free_tail;
    uint32_t num_free;
    uint32_t num_free_cached; // of the free ones: published, so that they can be found again
    struct block_changes *changes; // borrowed; NULL: nobody wants to know them
    struct block_manager_stats stats;
};

// num_blocks and block_size >= 1, else ERR_INVALID. On failure *manager is all-zero.
MUST_USE enum status block_manager_init(struct block_manager *manager, uint32_t num_blocks,
                                        uint32_t block_size, bool enable_prefix_caching,
                                        uint64_t hash_seed, struct err *err);
void block_manager_fini(struct block_manager *manager); // all-zero is fine
// From now on changes go to `changes`, which begin with every block that is held or published. NULL:
// to nobody.
void block_manager_observe(struct block_manager *manager, struct block_changes *changes);

// Blocks that num_tokens tokens fill or begin.
static inline uint32_t block_manager_blocks_for(const struct block_manager *manager,
                                                uint32_t num_tokens) {
    return num_tokens / manager->block_size + (num_tokens % manager->block_size != 0);
}

// Chain hash of the sequence's index-th block, all of whose tokens must be known. Computed once.
// nano-vllm: compute_hash.
uint64_t block_manager_hash(struct block_manager *manager, struct sequence *seq, uint32_t index);

// Before admission, without holding anything:
// Looks for the longest cached prefix of the known tokens, never all of them: the last token's
// logits have to be computed. Without caching, looks for the full blocks of the prompt that the
// sequence's origin has computed; it must be admitted before the origin lets go of them. Result in
// seq->num_matched. Repeating it costs only what is new.
// nano-vllm: can_allocate, with block_manager_num_taken.
void block_manager_match(struct block_manager *manager, struct sequence *seq);
// The first block that could be cached and is not; false: all that could be are. After match.
bool block_manager_first_miss(struct block_manager *manager, struct sequence *seq, uint64_t *hash);
// Free blocks that it takes to give the sequence num_blocks blocks in all: new ones, and matched
// ones that nobody holds. After match; num_blocks >= num_matched.
uint32_t block_manager_num_taken(const struct block_manager *manager, const struct sequence *seq,
                                 uint32_t num_blocks);
// Holds the matched blocks; their tokens count as computed. nano-vllm: allocate, with
// block_manager_grow.
void block_manager_admit(struct block_manager *manager, struct sequence *seq);

// Allocates until the table has room for num_tokens tokens; all or, when too few are free, nothing
// (false). nano-vllm: can_append, may_append.
MUST_USE bool block_manager_grow(struct block_manager *manager, struct sequence *seq,
                                 uint32_t num_tokens);
// Publishes the full blocks among the computed tokens that are not yet. nano-vllm: hash_blocks.
void block_manager_publish(struct block_manager *manager, struct sequence *seq);
// Gives all blocks back; nothing is computed any more. nano-vllm: deallocate.
void block_manager_release(struct block_manager *manager, struct sequence *seq);

#endif
