/* Which sequence holds which KV block, and the prefix cache: which blocks can be shared. It knows
 * only numbers; the memory is the backend's. Pure: no I/O and no clock, and only init allocates.
 *
 * Free blocks are one doubly linked list through the array of blocks, least recently used first. A
 * block is published once it is full and its KV is computed. Its key is a chain hash: a hash of its
 * tokens and of the hash of the block before it. A published block that is freed can still be found
 * until it is allocated again.
 *
 * A hit is exact, not probable. The hash only finds a candidate. Then its tokens are compared, and
 * its parent must be the very block that was matched just before. A first block must have the same
 * salt. This rests on one invariant: as long as a block is published, so is its parent. Two rules
 * keep it:
 * - A table that holds a published block holds its parent too. When a sequence publishes a block
 *   whose content is cached already, it gives its own block back and shares the cached one. So
 *   ref_count never grows along a chain.
 * - A sequence frees its blocks last to first. So a child is always before its parent in the free
 *   list and is evicted first. Evicting a block with children left is a broken CHECK.
 *
 * Without prefix caching no block is published. Then only the outputs of one request share blocks:
 * the full blocks of its prompt. */
#ifndef ENGINE_BLOCK_MANAGER_H
#define ENGINE_BLOCK_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/os/map.h"
#include "engine/schedule/block_changes.h"
#include "engine/schedule/sequence.h"

#define BLOCK_NONE UINT32_MAX

struct block {
    uint32_t ref_count; // block tables that hold it; 0: it is in the free list
    uint32_t prev, next; // in the free list, BLOCK_NONE at its ends
    uint32_t parent; // published: the block before it in its chain; BLOCK_NONE: it is the first
    uint32_t num_children; // published blocks whose parent this is
    uint64_t serial; // number of its publication, from 1; 0: not published
    uint64_t hash; // published: its key in the map
    uint64_t salt; // published: of its chain
};

struct block_manager_stats {
    uint64_t num_hashed; // block hashes computed
    uint64_t num_hits; // cached blocks that admissions took
    uint64_t num_published; // also the newest serial
    uint64_t num_evicted; // published blocks that were allocated again
    uint64_t num_duplicates; // blocks given back because their content was cached already
    uint64_t num_collisions; // publications put off because other content has the same hash
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
    uint32_t num_free_cached; // free blocks that are published
    struct block_changes *changes; // borrowed; NULL: nobody observes
    struct block_manager_stats stats;
};

// num_blocks and block_size >= 1, else ERR_INVALID. On failure *manager is all-zero.
MUST_USE enum status block_manager_init(struct block_manager *manager, uint32_t num_blocks,
                                        uint32_t block_size, bool enable_prefix_caching,
                                        uint64_t hash_seed, struct err *err);
void block_manager_fini(struct block_manager *manager); // all-zero is fine
// From now on changes are noted in `changes`, beginning with every block that is held or published.
// NULL: nowhere.
void block_manager_observe(struct block_manager *manager, struct block_changes *changes);

// Blocks that num_tokens tokens need.
static inline uint32_t block_manager_blocks_for(const struct block_manager *manager,
                                                uint32_t num_tokens) {
    return num_tokens / manager->block_size + (num_tokens % manager->block_size != 0);
}

// Chain hash of the sequence's index-th block. All ids of its tokens must be known. Computed once.
// nano-vllm: compute_hash.
uint64_t block_manager_hash(struct block_manager *manager, struct sequence *seq, uint32_t index);

// Before admission: looks for the longest cached prefix and writes it to seq->block_table and
// seq->num_matched, without holding it. Never matches all tokens, because the last one's logits
// must be computed. Without caching, the prefix is what the sequence's origin has computed of the
// prompt; admit must follow before the origin releases it. A repeated call looks only for what is
// new. nano-vllm: can_allocate, with block_manager_num_taken.
void block_manager_match(struct block_manager *manager, struct sequence *seq);
// After match: the hash of the first block that could be cached and is not. False: there is none.
bool block_manager_first_miss(struct block_manager *manager, struct sequence *seq, uint64_t *hash);
// After match: free blocks that the sequence takes to have num_blocks >= num_matched blocks. These
// are new ones, and matched ones that nobody holds.
uint32_t block_manager_num_taken(const struct block_manager *manager, const struct sequence *seq,
                                 uint32_t num_blocks);
// Takes the matched blocks; their tokens count as computed. nano-vllm: allocate, with
// block_manager_grow.
void block_manager_admit(struct block_manager *manager, struct sequence *seq);

// Allocates blocks until the table has room for num_tokens tokens. False: too few are free, and
// none was allocated. nano-vllm: can_append, may_append.
MUST_USE bool block_manager_grow(struct block_manager *manager, struct sequence *seq,
                                 uint32_t num_tokens);
// Publishes the full, computed blocks that are not published yet. nano-vllm: hash_blocks.
void block_manager_publish(struct block_manager *manager, struct sequence *seq);
// Gives all blocks back: none of the tokens is computed any more. nano-vllm: deallocate.
void block_manager_release(struct block_manager *manager, struct sequence *seq);

#endif
