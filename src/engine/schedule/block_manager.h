/* Which sequence holds which KV block, and the prefix cache: which blocks can be shared. It knows
 * only numbers; the memory is the backend's. Pure: no I/O and no clock, and only init allocates.
 *
 * A sequence has a block table for each KV group (block_groups.h), all of the same length. Entry i
 * of each is for the same tokens. In a group with a window, entries that no later query reads are
 * given back as the sequence goes on.
 *
 * Free blocks are one doubly linked list through the array of blocks, least recently used first. A
 * block is published once it is full and its KV is computed. A published block that is freed can
 * still be found until it is allocated again.
 *
 * The cache knows prefixes. A prefix is the tokens of a sequence's first k full blocks. It keeps
 * the tokens of the k-th block alone, and has the prefix of k - 1 blocks as its parent. For each
 * group it has the published block with the KV of these tokens, or none. Its key is a chain hash: a
 * hash of its last tokens and of its parent's hash.
 *
 * A hit is exact, not probable. The hash only finds a candidate. Then its tokens are compared, and
 * its parent must be the very prefix that was matched just before. A first one must have the same
 * salt. So a prefix lives as long as a longer one, a block or a sequence refers to it, also when
 * all its own blocks are gone.
 *
 * A hit must give each group what the next query reads: all blocks without a window, else those
 * within the window before the hit's end. In groups without a window these invariants hold:
 * - A table that holds a published block holds those of its parents too. When a sequence publishes
 *   a block whose content is cached already, it gives its own block back and shares the cached one.
 *   So ref_count never grows along a chain.
 * - A sequence frees its blocks last to first. So a block is always before its parent's in the free
 *   list and is evicted first. As long as a prefix lives, its parents have all their blocks.
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
#include "engine/schedule/block_groups.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/snapshots.h"

#define PREFIX_NONE UINT32_MAX

struct block {
    uint32_t ref_count; // block tables that hold it; 0: it is in the free list
    uint32_t prev, next; // in the free list, BLOCK_NONE at its ends
    uint32_t prefix; // published: whose last tokens' KV it has; else PREFIX_NONE
    uint32_t group; // published: its KV group
};

struct prefix {
    uint32_t parent; // PREFIX_NONE: it is one block long. Of an unused one: the next unused
    uint32_t ref_count; // prefixes, blocks and sequences that refer to it
    uint64_t serial; // number of its creation, from 1; 0: unused
    uint64_t hash; // its key in the map
    uint64_t salt; // of its chain
    uint32_t snapshot; // of the states at its end, or SNAPSHOT_NONE
};

struct block_manager_stats {
    uint64_t num_hashed; // block hashes computed
    uint64_t num_noted; // prefixes whose blocks were written to tables of sequences that wait
    uint64_t num_hits; // cached blocks that admissions took
    uint64_t num_published; // blocks
    uint64_t num_evicted; // published blocks that were allocated again
    uint64_t num_duplicates; // blocks given back because their content was cached already
    uint64_t num_collisions; // publications put off because other content has the same hash
    uint64_t num_unknown; // publications put off because no prefix was unused
    uint32_t num_used_peak; // blocks
};

struct block_manager {
    uint32_t num_blocks;
    uint32_t block_size; // tokens
    bool enable_prefix_caching;
    uint64_t hash_seed;
    struct block_groups groups;
    bool has_windows;
    struct block *blocks; // [num_blocks]
    // Without caching NULL:
    struct prefix *prefixes; // [num_prefixes]
    uint32_t *prefix_blocks; // [num_prefixes][num_groups] block ids; BLOCK_NONE: none
    int32_t *tokens; // [num_prefixes][block_size], the last of each
    uint32_t num_prefixes;
    uint32_t unused_prefix; // a list by their `parent`
    uint64_t last_serial;
    struct u64map published; // chain hash -> prefix
    uint32_t free_head, free_tail;
    uint32_t num_free;
    uint32_t num_free_cached; // free blocks that are published
    // Of a model with recurrent layers, which has one group without a window. Then a hit needs one.
    struct snapshots snapshots;
    struct block_changes *changes; // borrowed; NULL: nobody observes
    struct block_manager_stats stats;
};

// num_blocks, block_size and num_groups >= 1, else ERR_INVALID. On failure *manager is all-zero.
MUST_USE enum status block_manager_init(struct block_manager *manager, uint32_t num_blocks,
                                        uint32_t block_size, const struct block_groups *groups,
                                        bool enable_prefix_caching, uint64_t hash_seed,
                                        struct err *err);
// What block_manager_init allocates.
size_t block_manager_bytes(uint32_t num_blocks, uint32_t block_size,
                           const struct block_groups *groups, bool enable_prefix_caching);
void block_manager_fini(struct block_manager *manager); // all-zero is fine
// For a model with recurrent layers, before the first sequence: from now on a hit needs a snapshot.
MUST_USE enum status block_manager_init_snapshots(struct block_manager *manager,
                                                  uint32_t num_snapshots, struct err *err);
// From now on changes are noted in `changes`, beginning with every block that is held or published.
// NULL: nowhere.
void block_manager_observe(struct block_manager *manager, struct block_changes *changes);

// Entries of a block table that num_tokens tokens need.
static inline uint32_t block_manager_blocks_for(const struct block_manager *manager,
                                                uint32_t num_tokens) {
    return num_tokens / manager->block_size + (num_tokens % manager->block_size != 0);
}

// Chain hash of the sequence's index-th block. All ids of its tokens must be known. Computed once.
// nano-vllm: compute_hash.
uint64_t block_manager_hash(struct block_manager *manager, struct sequence *seq, uint32_t index);

// Before admission: looks for the longest cached prefix that serves every group, and writes its
// blocks to the sequence's tables and its length to seq->num_matched, without holding it. Never
// matches all tokens, because the last one's logits must be computed. Without caching, the prefix
// is what the sequence's origin has computed of the prompt; admit must follow before the origin
// releases it. A repeated call looks only for what is new. nano-vllm: can_allocate, with
// block_manager_num_taken.
void block_manager_match(struct block_manager *manager, struct sequence *seq);
// After match: the hash of the first block that could be cached and is not. False: there is none.
bool block_manager_first_miss(struct block_manager *manager, struct sequence *seq, uint64_t *hash);
// After match: free blocks that the sequence takes to have num_entries >= num_matched entries in
// its tables, if each step has at most max_query of its tokens. These are new ones, and matched
// ones that nobody holds.
uint32_t block_manager_num_taken(const struct block_manager *manager, const struct sequence *seq,
                                 uint32_t num_entries, uint32_t max_query);
// After admission: the same, but without the blocks that the sequence holds already.
uint32_t block_manager_num_missing(const struct block_manager *manager, const struct sequence *seq,
                                   uint32_t num_entries, uint32_t max_query);
// Takes the matched blocks; their tokens count as computed. nano-vllm: allocate, with
// block_manager_grow.
void block_manager_admit(struct block_manager *manager, struct sequence *seq);

// Allocates blocks until the tables hold num_tokens tokens. False: too few are free, and
// none was allocated. nano-vllm: can_append, may_append.
MUST_USE bool block_manager_grow(struct block_manager *manager, struct sequence *seq,
                                 uint32_t num_tokens);
// Publishes the full, computed blocks that are not published yet. nano-vllm: hash_blocks.
void block_manager_publish(struct block_manager *manager, struct sequence *seq);
// Gives back the blocks that no query at `position` or a later one reads.
void block_manager_slide(struct block_manager *manager, struct sequence *seq, uint32_t position);
// Gives all blocks back: none of the tokens is computed any more. nano-vllm: deallocate.
void block_manager_release(struct block_manager *manager, struct sequence *seq);

#endif
