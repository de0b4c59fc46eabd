#include "engine/schedule/block_checks.h"

#include <stdlib.h>
#include <string.h>

struct tally {
    uint32_t *num_holders; // [num_blocks] table entries with the block
    uint32_t *free_rank; // [num_blocks] from 1 in the free list; 0: not in it
    uint32_t *num_references; // [num_prefixes]
};

static bool is_published(const struct block *block) {
    return block->prefix != PREFIX_NONE;
}

// A held entry. `prefix`: of its tokens, if they are a known one; else PREFIX_NONE.
static const char *check_entry(const struct block_manager *manager, const struct sequence *seq,
                               uint32_t group, uint32_t i, uint32_t prefix, struct tally *tally) {
    uint32_t id = sequence_table(seq, group)[i];
    if (id >= manager->num_blocks) return "a table holds no block of the cache";
    const struct block *block = &manager->blocks[id];
    tally->num_holders[id]++;
    if (prefix == PREFIX_NONE) {
        if (is_published(block)) return "a table holds a published block as its own";
        bool may_be_shared = !manager->enable_prefix_caching &&
                             (i + 1) * manager->block_size <= seq->num_prompt_tokens;
        if (block->ref_count != 1 && !may_be_shared) return "a block not published is shared";
        return NULL;
    }
    if (block->prefix != prefix) return "a block is not published as its table says";
    if (block->group != group) return "a table holds another group's block";
    return NULL;
}

static const char *check_table(const struct block_manager *manager, const struct sequence *seq,
                               uint32_t group, struct tally *tally) {
    const uint32_t *table = sequence_table(seq, group);
    uint32_t first = seq->first_blocks[group];
    uint32_t read =
        block_groups_first(&manager->groups, group, manager->block_size, seq->num_computed_tokens);
    if (first > read) return "a block was given back that is still read";
    for (uint32_t i = 0; i < first; i++) {
        if (table[i] != BLOCK_NONE) return "a table has an entry before its first block";
    }
    for (uint32_t i = first; i < seq->num_blocks; i++) {
        for (uint32_t j = first; j < i; j++) {
            if (table[i] == table[j]) return "a table holds a block twice";
        }
    }
    uint32_t prefix = seq->num_published ? seq->prefix : PREFIX_NONE;
    const char *fault = NULL;
    for (uint32_t i = seq->num_blocks; i-- > 0 && !fault;) {
        bool is_known = i < seq->num_published;
        if (i >= first) {
            fault = check_entry(manager, seq, group, i, is_known ? prefix : PREFIX_NONE, tally);
        }
        if (is_known) prefix = manager->prefixes[prefix].parent;
    }
    return fault;
}

// The prefix of a sequence that holds blocks is that of its tokens.
static const char *check_prefix(const struct block_manager *manager, const struct sequence *seq,
                                struct tally *tally) {
    size_t block_size = manager->block_size;
    if (seq->num_published > seq->num_blocks) return "more blocks are published than held";
    if (seq->num_published * block_size > seq->num_computed_tokens) {
        return "a block is published whose tokens are not all computed";
    }
    if (!seq->num_published) return NULL;
    tally->num_references[seq->prefix]++;
    for (uint32_t i = seq->num_published, id = seq->prefix; i-- > 0;) {
        const struct prefix *prefix = &manager->prefixes[id];
        if (!prefix->serial) return "a sequence refers to an unused prefix";
        if (memcmp(manager->tokens + id * block_size, seq->token_ids + i * block_size,
                   block_size * sizeof(int32_t)) != 0) {
            return "a sequence refers to a prefix of other tokens";
        }
        if (prefix->salt != seq->cache_salt) return "a sequence refers to another salt's prefix";
        id = prefix->parent;
        if ((id == PREFIX_NONE) != (i == 0)) return "a prefix has another length";
    }
    return NULL;
}

static const char *check_sequence(const struct block_manager *manager, const struct sequence *seq,
                                  struct tally *tally) {
    if (seq->num_blocks > seq->num_blocks_max) return "a table is longer than its capacity";
    const char *fault = seq->num_blocks ? check_prefix(manager, seq, tally) : NULL;
    for (uint32_t g = 0; g < manager->groups.num_groups && !fault; g++) {
        fault = check_table(manager, seq, g, tally);
    }
    return fault;
}

static const char *check_free_list(const struct block_manager *manager, struct tally *tally) {
    uint32_t rank = 0, num_cached = 0, prev = BLOCK_NONE;
    for (uint32_t id = manager->free_head; id != BLOCK_NONE; id = manager->blocks[id].next) {
        if (id >= manager->num_blocks || tally->free_rank[id]) return "the free list is not a list";
        if (manager->blocks[id].prev != prev) return "the free list's links do not agree";
        tally->free_rank[id] = ++rank;
        num_cached += is_published(&manager->blocks[id]);
        prev = id;
    }
    if (manager->free_tail != prev) return "the free list's tail is not its end";
    if (manager->num_free != rank) return "num_free is not the free list's length";
    if (manager->num_free_cached != num_cached) return "num_free_cached is another number";
    return NULL;
}

static const char *check_block(const struct block_manager *manager, uint32_t id,
                               struct tally *tally) {
    const struct block *block = &manager->blocks[id];
    if (block->ref_count != tally->num_holders[id]) return "a ref count is not the holders' number";
    if ((block->ref_count == 0) != (tally->free_rank[id] != 0)) {
        return "a block is free and used, or neither";
    }
    if (!is_published(block)) return NULL;
    const uint32_t *of_prefix =
        manager->prefix_blocks + (size_t)block->prefix * manager->groups.num_groups;
    if (of_prefix[block->group] != id) return "a prefix does not lead to its block";
    tally->num_references[block->prefix]++;
    uint32_t parent = manager->prefixes[block->prefix].parent;
    if (manager->groups.windows[block->group] || parent == PREFIX_NONE) return NULL;
    // Without a window a block is of no use without those before it.
    uint32_t before =
        manager->prefix_blocks[(size_t)parent * manager->groups.num_groups + block->group];
    if (before == BLOCK_NONE) return "a published block's parent is not published";
    if (manager->blocks[before].ref_count < block->ref_count) {
        return "a block has more holders than its parent";
    }
    if (!manager->blocks[before].ref_count && tally->free_rank[before] < tally->free_rank[id]) {
        return "a block is evicted after its parent";
    }
    return NULL;
}

static bool has_whole_blocks(const struct block_manager *manager, uint32_t prefix) {
    const uint32_t *ids = manager->prefix_blocks + (size_t)prefix * manager->groups.num_groups;
    for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
        if (!manager->groups.windows[g] && ids[g] == BLOCK_NONE) return false;
    }
    return true;
}

static const char *check_prefixes(const struct block_manager *manager, struct tally *tally) {
    uint32_t num_used = 0, num_unused = 0, found;
    for (uint32_t id = 0; id < manager->num_prefixes; id++) {
        const struct prefix *prefix = &manager->prefixes[id];
        if (!prefix->serial) continue;
        num_used++;
        if (!u64map_get(&manager->published, prefix->hash, &found) || found != id) {
            return "the map does not lead to a prefix";
        }
        if (prefix->parent == PREFIX_NONE) continue;
        if (!manager->prefixes[prefix->parent].serial) return "a prefix's parent is unused";
        if (!has_whole_blocks(manager, prefix->parent)) return "a prefix's parent lacks a block";
        tally->num_references[prefix->parent]++;
    }
    for (uint32_t id = 0; id < manager->num_prefixes; id++) {
        const struct prefix *prefix = &manager->prefixes[id];
        if (prefix->serial && prefix->ref_count != tally->num_references[id]) {
            return "a prefix's count of references is wrong";
        }
        if (prefix->serial && !prefix->ref_count) return "nobody refers to a prefix";
    }
    for (uint32_t id = manager->unused_prefix; id != PREFIX_NONE;) {
        if (++num_unused > manager->num_prefixes) return "the list of unused prefixes has no end";
        if (manager->prefixes[id].serial) return "a used prefix is in the list of unused ones";
        id = manager->prefixes[id].parent;
    }
    if (num_used + num_unused != manager->num_prefixes) return "a prefix was lost";
    if (manager->published.count != num_used) return "the map has entries without a prefix";
    return NULL;
}

static const char *check_all(const struct block_manager *manager, struct sequence *const *seqs,
                             size_t num_seqs, struct tally *tally) {
    const char *fault = check_free_list(manager, tally);
    for (size_t i = 0; i < num_seqs && !fault; i++) {
        if (seqs[i]) fault = check_sequence(manager, seqs[i], tally);
    }
    for (uint32_t id = 0; id < manager->num_blocks && !fault; id++) {
        fault = check_block(manager, id, tally);
    }
    return fault ? fault : check_prefixes(manager, tally);
}

const char *block_checks_run(const struct block_manager *manager, struct sequence *const *seqs,
                             size_t num_seqs) {
    size_t num_blocks = manager->num_blocks;
    uint32_t *counts = calloc(2 * num_blocks + manager->num_prefixes, sizeof *counts);
    if (!counts) return "no memory for the check";
    struct tally tally = {
        .num_holders = counts,
        .free_rank = counts + num_blocks,
        .num_references = counts + 2 * num_blocks,
    };
    const char *fault = check_all(manager, seqs, num_seqs, &tally);
    free(counts);
    return fault;
}
