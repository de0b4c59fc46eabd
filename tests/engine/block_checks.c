#include "engine/block_checks.h"

#include <stdlib.h>
#include <string.h>

struct tally {
    uint32_t *num_holders; // [num_blocks] tables that hold the block
    uint32_t *num_children; // [num_blocks] published blocks that name it as parent
    uint32_t *free_rank; // [num_blocks] from 1 in the free list; 0: not in it
};

static const char *check_table(const struct block_manager *manager, const struct sequence *seq,
                               struct tally *tally) {
    size_t block_size = manager->block_size;
    if (seq->num_blocks > seq->num_blocks_max) return "a table is longer than its room";
    if (seq->num_published > seq->num_blocks) return "more blocks are published than held";
    if (seq->num_published * block_size > seq->num_computed_tokens) {
        return "a block is published whose tokens are not all computed";
    }
    for (uint32_t i = 0; i < seq->num_blocks; i++) {
        uint32_t id = seq->block_table[i];
        if (id >= manager->num_blocks) return "a table holds no block of the cache";
        for (uint32_t j = 0; j < i; j++) {
            if (seq->block_table[j] == id) return "a table holds a block twice";
        }
        const struct block *block = &manager->blocks[id];
        tally->num_holders[id]++;
        if (i >= seq->num_published) {
            if (block->serial) return "a table holds a published block as its own";
            bool may_be_shared =
                !manager->enable_prefix_caching && (i + 1) * block_size <= seq->num_prompt_tokens;
            if (block->ref_count != 1 && !may_be_shared) {
                return "a block that is not published is shared";
            }
            continue;
        }
        if (!block->serial) return "a block is not published that its table says is";
        if (block->parent != (i ? seq->block_table[i - 1] : BLOCK_NONE)) {
            return "a published block follows another one than its parent";
        }
        if (i == 0 && block->salt != seq->cache_salt) return "a table holds another salt's block";
        if (memcmp(manager->tokens + id * block_size, seq->token_ids + i * block_size,
                   block_size * sizeof(int32_t)) != 0) {
            return "a table holds a block of other tokens";
        }
    }
    return NULL;
}

static const char *check_free_list(const struct block_manager *manager, struct tally *tally) {
    uint32_t rank = 0, num_cached = 0, prev = BLOCK_NONE;
    for (uint32_t id = manager->free_head; id != BLOCK_NONE; id = manager->blocks[id].next) {
        if (id >= manager->num_blocks || tally->free_rank[id]) return "the free list is not a list";
        if (manager->blocks[id].prev != prev) return "the free list's links do not agree";
        tally->free_rank[id] = ++rank;
        num_cached += manager->blocks[id].serial != 0;
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
    if (!block->serial) return block->num_children ? "a block not published has children" : NULL;
    uint32_t found;
    if (!u64map_get(&manager->published, block->hash, &found) || found != id) {
        return "the map does not lead to a published block";
    }
    if (block->parent == BLOCK_NONE) return NULL;
    const struct block *parent = &manager->blocks[block->parent];
    tally->num_children[block->parent]++;
    if (!parent->serial) return "a published block's parent is not published";
    if (parent->ref_count < block->ref_count) return "a block has more holders than its parent";
    if (parent->ref_count == 0 && tally->free_rank[block->parent] < tally->free_rank[id]) {
        return "a block is evicted after its parent";
    }
    return NULL;
}

static const char *check_all(const struct block_manager *manager, struct sequence *const *seqs,
                             size_t num_seqs, struct tally *tally) {
    const char *fault = check_free_list(manager, tally);
    for (size_t i = 0; i < num_seqs && !fault; i++) {
        if (seqs[i]) fault = check_table(manager, seqs[i], tally);
    }
    size_t num_published = 0;
    for (uint32_t id = 0; id < manager->num_blocks && !fault; id++) {
        num_published += manager->blocks[id].serial != 0;
        fault = check_block(manager, id, tally);
    }
    for (uint32_t id = 0; id < manager->num_blocks && !fault; id++) {
        if (manager->blocks[id].num_children != tally->num_children[id]) {
            fault = "a block's count of children is wrong";
        }
    }
    if (!fault && manager->published.count != num_published) {
        fault = "the map has entries without a published block";
    }
    return fault;
}

const char *block_checks_run(const struct block_manager *manager, struct sequence *const *seqs,
                             size_t num_seqs) {
    uint32_t *counts = calloc(manager->num_blocks, 3 * sizeof *counts);
    if (!counts) return "no memory for the check";
    struct tally tally = {
        .num_holders = counts,
        .num_children = counts + manager->num_blocks,
        .free_rank = counts + 2 * (size_t)manager->num_blocks,
    };
    const char *fault = check_all(manager, seqs, num_seqs, &tally);
    free(counts);
    return fault;
}
