#include "engine/schedule/block_manager.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/os/pages.h"

enum status block_manager_init(struct block_manager *manager, uint32_t num_blocks,
                               uint32_t block_size, bool enable_prefix_caching, uint64_t hash_seed,
                               struct err *err) {
    *manager = (struct block_manager){
        .num_blocks = num_blocks,
        .block_size = block_size,
        .enable_prefix_caching = enable_prefix_caching,
        .hash_seed = hash_seed,
        .free_head = BLOCK_NONE,
        .free_tail = BLOCK_NONE,
    };
    enum status status = OK;
    if (num_blocks == 0 || num_blocks == BLOCK_NONE || block_size == 0) {
        status = err_set(err, ERR_INVALID, "a KV cache of %u blocks of %u tokens cannot be managed",
                         num_blocks, block_size);
        goto fail;
    }
    manager->blocks = calloc(num_blocks, sizeof *manager->blocks);
    if (!manager->blocks) {
        status = err_nomem(err, "KV block table");
        goto fail;
    }
    if (enable_prefix_caching) {
        // calloc checks the product.
        manager->tokens = calloc(num_blocks, block_size * sizeof *manager->tokens);
        if (!manager->tokens) {
            status = err_nomem(err, "tokens of cached KV blocks");
            goto fail;
        }
        pages_populate(manager->tokens, (size_t)num_blocks * block_size * sizeof *manager->tokens);
        status = u64map_init(&manager->published, num_blocks, err);
        if (status) goto fail;
        pages_populate(manager->published.entries,
                       manager->published.capacity * sizeof *manager->published.entries);
    }
    for (uint32_t id = 0; id < num_blocks; id++) {
        manager->blocks[id].parent = BLOCK_NONE;
        manager->blocks[id].prev = id ? id - 1 : BLOCK_NONE;
        manager->blocks[id].next = id + 1 < num_blocks ? id + 1 : BLOCK_NONE;
    }
    manager->free_head = 0;
    manager->free_tail = num_blocks - 1;
    manager->num_free = num_blocks;
    return OK;

fail:
    block_manager_fini(manager);
    return status;
}

void block_manager_fini(struct block_manager *manager) {
    u64map_fini(&manager->published);
    free(manager->tokens);
    free(manager->blocks);
    *manager = (struct block_manager){0};
}

void block_manager_observe(struct block_manager *manager, struct block_changes *changes) {
    manager->changes = changes;
    for (uint32_t id = 0; changes && id < manager->num_blocks; id++) {
        const struct block *block = &manager->blocks[id];
        if (block->ref_count || block->serial) block_changes_add(changes, id, 0);
    }
}

static void free_list_insert(struct block_manager *manager, uint32_t id, uint32_t prev,
                             uint32_t next) {
    struct block *blocks = manager->blocks;
    blocks[id].prev = prev;
    blocks[id].next = next;
    *(prev == BLOCK_NONE ? &manager->free_head : &blocks[prev].next) = id;
    *(next == BLOCK_NONE ? &manager->free_tail : &blocks[next].prev) = id;
    manager->num_free++;
    manager->num_free_cached += blocks[id].serial != 0;
}

static void free_list_remove(struct block_manager *manager, uint32_t id) {
    struct block *blocks = manager->blocks;
    uint32_t prev = blocks[id].prev, next = blocks[id].next;
    *(prev == BLOCK_NONE ? &manager->free_head : &blocks[prev].next) = next;
    *(next == BLOCK_NONE ? &manager->free_tail : &blocks[next].prev) = prev;
    blocks[id].prev = blocks[id].next = BLOCK_NONE;
    manager->num_free--;
    manager->num_free_cached -= blocks[id].serial != 0;
    uint32_t num_used = manager->num_blocks - manager->num_free;
    if (num_used > manager->stats.num_used_peak) manager->stats.num_used_peak = num_used;
}

static void block_unpublish(struct block_manager *manager, uint32_t id) {
    struct block *block = &manager->blocks[id];
    CHECK(block->num_children == 0, "block %u has %u published children", id, block->num_children);
    bool was_mapped = u64map_remove(&manager->published, block->hash);
    CHECK(was_mapped, "block %u is not in the map", id);
    if (block->parent != BLOCK_NONE) manager->blocks[block->parent].num_children--;
    block->parent = BLOCK_NONE;
    block->serial = 0;
    manager->stats.num_evicted++;
}

static uint32_t block_allocate(struct block_manager *manager) {
    uint32_t id = manager->free_head;
    CHECK(id != BLOCK_NONE && manager->blocks[id].ref_count == 0, "block %u", id);
    free_list_remove(manager, id);
    if (manager->blocks[id].serial) block_unpublish(manager, id);
    manager->blocks[id].ref_count = 1;
    if (manager->changes) {
        block_changes_add(manager->changes, id, BLOCK_TAKEN);
        manager->changes->num_taken++;
    }
    return id;
}

// `why`: BLOCK_HIT or BLOCK_SHARED.
static void block_hold(struct block_manager *manager, uint32_t id, uint8_t why) {
    bool was_free = manager->blocks[id].ref_count == 0;
    if (was_free) free_list_remove(manager, id);
    manager->blocks[id].ref_count++;
    if (manager->changes) {
        block_changes_add(manager->changes, id, why);
        manager->changes->num_taken += was_free;
    }
}

// A freed block that is not published goes to the front of the free list: it is used before any
// cached one.
static void block_drop(struct block_manager *manager, uint32_t id) {
    struct block *block = &manager->blocks[id];
    CHECK(block->ref_count > 0, "block %u is free already", id);
    block->ref_count--;
    if (manager->changes) {
        block_changes_add(manager->changes, id, BLOCK_LEFT);
        manager->changes->num_freed += block->ref_count == 0;
    }
    if (block->ref_count > 0) return;
    if (block->serial) {
        free_list_insert(manager, id, manager->free_tail, BLOCK_NONE);
    } else {
        free_list_insert(manager, id, BLOCK_NONE, manager->free_head);
    }
}

uint64_t block_manager_hash(struct block_manager *manager, struct sequence *seq, uint32_t index) {
    size_t block_size = manager->block_size;
    CHECK((index + (size_t)1) * block_size <= sequence_num_known(seq), "block %u of %u tokens",
          index, sequence_num_known(seq));
    for (; seq->num_hashes <= index; seq->num_hashes++) {
        uint32_t i = seq->num_hashes;
        uint64_t before =
            i ? seq->block_hashes[i - 1]
              : XXH3_64bits_withSeed(&seq->cache_salt, sizeof seq->cache_salt, manager->hash_seed);
        seq->block_hashes[i] = XXH3_64bits_withSeed(seq->token_ids + i * block_size,
                                                    block_size * sizeof *seq->token_ids, before);
        manager->stats.num_hashed++;
    }
    return seq->block_hashes[index];
}

// Whether published block `id` is the index-th block of the sequence, whose blocks before that are
// block_table[0, index) and published. Exact: see the head of block_manager.h.
static bool block_is_same(const struct block_manager *manager, const struct sequence *seq,
                          uint32_t index, uint32_t id) {
    const struct block *block = &manager->blocks[id];
    uint32_t parent = index ? seq->block_table[index - 1] : BLOCK_NONE;
    if (block->parent != parent) return false;
    if (parent == BLOCK_NONE && block->salt != seq->cache_salt) return false;
    size_t block_size = manager->block_size;
    return memcmp(manager->tokens + id * block_size, seq->token_ids + index * block_size,
                  block_size * sizeof *seq->token_ids) == 0;
}

// Full blocks that a match may cover: at least one token stays to be computed.
static uint32_t num_matchable(const struct block_manager *manager, const struct sequence *seq) {
    return (seq->num_tokens - 1) / manager->block_size;
}

static void match_origin(const struct block_manager *manager, struct sequence *seq) {
    const struct sequence *origin = seq->origin;
    seq->num_matched = 0;
    if (!origin) return;
    uint32_t computed = origin->num_computed_tokens, prompt = origin->num_prompt_tokens;
    uint32_t end = (computed < prompt ? computed : prompt) / manager->block_size;
    uint32_t most = num_matchable(manager, seq);
    seq->num_matched = end < most ? end : most;
    memcpy(seq->block_table, origin->block_table, seq->num_matched * sizeof *seq->block_table);
}

void block_manager_match(struct block_manager *manager, struct sequence *seq) {
    CHECK(seq->num_blocks == 0, "sequence %" PRIu64 " holds blocks", seq->id);
    if (!manager->enable_prefix_caching) {
        match_origin(manager, seq);
        return;
    }
    if (seq->skips_cache) {
        seq->num_matched = 0;
        return;
    }
    uint32_t n = seq->num_matched;
    // Parents stay in the cache as long as their children: if the last block is still there, all
    // are.
    if (n && manager->blocks[seq->block_table[n - 1]].serial != seq->match_serial) n = 0;
    for (uint32_t end = num_matchable(manager, seq); n < end; n++) {
        uint32_t id;
        if (!u64map_get(&manager->published, block_manager_hash(manager, seq, n), &id)) break;
        if (!block_is_same(manager, seq, n, id)) break;
        seq->block_table[n] = id;
        seq->match_serial = manager->blocks[id].serial;
    }
    seq->num_matched = n;
}

bool block_manager_first_miss(struct block_manager *manager, struct sequence *seq, uint64_t *hash) {
    if (!manager->enable_prefix_caching) return false;
    if (seq->num_matched >= num_matchable(manager, seq)) return false;
    *hash = block_manager_hash(manager, seq, seq->num_matched);
    return true;
}

uint32_t block_manager_num_taken(const struct block_manager *manager, const struct sequence *seq,
                                 uint32_t num_blocks) {
    // ref_count never grows along a chain, so held blocks come first. Find where they end.
    uint32_t low = 0, high = seq->num_matched;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (manager->blocks[seq->block_table[middle]].ref_count > 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return num_blocks - low;
}

void block_manager_admit(struct block_manager *manager, struct sequence *seq) {
    CHECK(seq->num_blocks == 0, "sequence %" PRIu64 " holds blocks", seq->id);
    for (uint32_t i = 0; i < seq->num_matched; i++)
        block_hold(manager, seq->block_table[i], BLOCK_HIT);
    manager->stats.num_hits += seq->num_matched;
    seq->num_blocks = seq->num_matched;
    seq->num_published = manager->enable_prefix_caching ? seq->num_matched : 0;
    seq->num_computed_tokens = seq->num_matched * manager->block_size;
    seq->num_matched = 0;
}

bool block_manager_grow(struct block_manager *manager, struct sequence *seq, uint32_t num_tokens) {
    uint32_t num_blocks = block_manager_blocks_for(manager, num_tokens);
    CHECK(num_blocks <= seq->num_blocks_max, "%u blocks, at most %u", num_blocks,
          seq->num_blocks_max);
    if (num_blocks <= seq->num_blocks) return true;
    if (num_blocks - seq->num_blocks > manager->num_free) return false;
    while (seq->num_blocks < num_blocks) {
        seq->block_table[seq->num_blocks++] = block_allocate(manager);
    }
    return true;
}

void block_manager_publish(struct block_manager *manager, struct sequence *seq) {
    if (!manager->enable_prefix_caching) return;
    uint32_t end = seq->num_computed_tokens / manager->block_size;
    for (uint32_t i = seq->num_published; i < end; i++) {
        uint64_t hash = block_manager_hash(manager, seq, i);
        uint32_t id = seq->block_table[i], cached;
        if (u64map_get(&manager->published, hash, &cached)) {
            if (!block_is_same(manager, seq, i, cached)) {
                // Without this block its successors could not be found either. The next step tries
                // again: the other block may be evicted by then.
                manager->stats.num_collisions++;
                return;
            }
            block_hold(manager, cached, BLOCK_SHARED);
            block_drop(manager, id);
            seq->block_table[i] = cached;
            if (seq->num_sent > i) seq->num_sent = i;
            manager->stats.num_duplicates++;
        } else {
            struct block *block = &manager->blocks[id];
            block->serial = ++manager->stats.num_published;
            block->hash = hash;
            block->salt = seq->cache_salt;
            block->parent = i ? seq->block_table[i - 1] : BLOCK_NONE;
            if (i) manager->blocks[block->parent].num_children++;
            size_t block_size = manager->block_size;
            memcpy(manager->tokens + id * block_size, seq->token_ids + i * block_size,
                   block_size * sizeof *seq->token_ids);
            u64map_put(&manager->published, hash, id);
            if (manager->changes) block_changes_add(manager->changes, id, BLOCK_CACHED);
        }
        seq->num_published = i + 1;
    }
}

void block_manager_release(struct block_manager *manager, struct sequence *seq) {
    while (seq->num_blocks > 0) block_drop(manager, seq->block_table[--seq->num_blocks]);
    seq->num_sent = 0;
    seq->num_published = 0;
    seq->num_matched = 0;
    seq->num_computed_tokens = 0;
    seq->is_prefilled = false;
}
