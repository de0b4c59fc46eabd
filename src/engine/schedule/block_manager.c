#include "engine/schedule/block_manager.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/os/pages.h"
#include "engine/schedule/block_snapshots.h"

// Where every group has a window, a sequence's prefix can be much longer than what it holds.
enum { PREFIXES_PER_BLOCK = 16 };

static bool has_whole_group(const struct block_groups *groups) {
    for (uint32_t g = 0; g < groups->num_groups; g++) {
        if (!groups->windows[g]) return true;
    }
    return false;
}

static bool has_windows(const struct block_groups *groups) {
    for (uint32_t g = 0; g < groups->num_groups; g++) {
        if (groups->windows[g]) return true;
    }
    return false;
}

static size_t count_prefixes(const struct block_groups *groups, uint32_t num_blocks) {
    size_t num = num_blocks;
    if (!has_whole_group(groups)) num *= PREFIXES_PER_BLOCK;
    return num < PREFIX_NONE ? num : PREFIX_NONE - 1;
}

size_t block_manager_bytes(uint32_t num_blocks, uint32_t block_size,
                           const struct block_groups *groups, bool enable_prefix_caching) {
    size_t blocks_bytes = num_blocks * sizeof(struct block);
    if (!enable_prefix_caching) return blocks_bytes;
    size_t num = count_prefixes(groups, num_blocks);
    size_t each = sizeof(struct prefix) + groups->num_groups * sizeof(uint32_t) +
                  block_size * sizeof(int32_t);
    return blocks_bytes + num * each + u64map_bytes(num);
}

static enum status init_prefixes(struct block_manager *manager, struct err *err) {
    size_t block_size = manager->block_size;
    size_t num = count_prefixes(&manager->groups, manager->num_blocks);
    manager->num_prefixes = (uint32_t)num;
    manager->prefixes = calloc(num, sizeof *manager->prefixes);
    // calloc checks the products.
    manager->prefix_blocks =
        calloc(num, manager->groups.num_groups * sizeof *manager->prefix_blocks);
    manager->tokens = calloc(num, block_size * sizeof *manager->tokens);
    if (!manager->prefixes || !manager->prefix_blocks || !manager->tokens) {
        return err_nomem(err, "tokens of cached KV blocks");
    }
    pages_populate(manager->tokens, num * block_size * sizeof *manager->tokens);
    enum status status = u64map_init(&manager->published, num, err);
    if (status) return status;
    pages_populate(manager->published.entries,
                   manager->published.capacity * sizeof *manager->published.entries);
    for (uint32_t id = 0; id < num; id++) {
        manager->prefixes[id].parent = id + 1 < num ? id + 1 : PREFIX_NONE;
    }
    manager->unused_prefix = 0;
    return OK;
}

enum status block_manager_init(struct block_manager *manager, uint32_t num_blocks,
                               uint32_t block_size, const struct block_groups *groups,
                               bool enable_prefix_caching, uint64_t hash_seed, struct err *err) {
    *manager = (struct block_manager){
        .num_blocks = num_blocks,
        .block_size = block_size,
        .enable_prefix_caching = enable_prefix_caching,
        .hash_seed = hash_seed,
        .groups = *groups,
        .has_windows = has_windows(groups),
        .free_head = BLOCK_NONE,
        .free_tail = BLOCK_NONE,
        .unused_prefix = PREFIX_NONE,
    };
    enum status status = OK;
    CHECK(groups->num_groups <= BLOCK_GROUPS_MAX, "num_groups=%u", groups->num_groups);
    if (num_blocks == 0 || num_blocks == BLOCK_NONE || block_size == 0 || !groups->num_groups) {
        status = err_set(err, ERR_INVALID,
                         "a KV cache of %u blocks of %u tokens for %u groups of layers cannot be "
                         "managed",
                         num_blocks, block_size, groups->num_groups);
        goto fail;
    }
    manager->blocks = calloc(num_blocks, sizeof *manager->blocks);
    if (!manager->blocks) {
        status = err_nomem(err, "KV block table");
        goto fail;
    }
    if (enable_prefix_caching && (status = init_prefixes(manager, err))) goto fail;
    for (uint32_t id = 0; id < num_blocks; id++) {
        manager->blocks[id].prefix = PREFIX_NONE;
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

enum status block_manager_init_snapshots(struct block_manager *manager, uint32_t num_snapshots,
                                         struct err *err) {
    CHECK(manager->groups.num_groups == 1 && !manager->has_windows, "windows beside states");
    return snapshots_init(&manager->snapshots, num_snapshots, err);
}

void block_manager_fini(struct block_manager *manager) {
    snapshots_fini(&manager->snapshots);
    u64map_fini(&manager->published);
    free(manager->tokens);
    free(manager->prefix_blocks);
    free(manager->prefixes);
    free(manager->blocks);
    *manager = (struct block_manager){0};
}

void block_manager_observe(struct block_manager *manager, struct block_changes *changes) {
    manager->changes = changes;
    for (uint32_t id = 0; changes && id < manager->num_blocks; id++) {
        const struct block *block = &manager->blocks[id];
        bool is_published = block->prefix != PREFIX_NONE;
        if (block->ref_count || is_published) block_changes_add(changes, id, 0);
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
    manager->num_free_cached += blocks[id].prefix != PREFIX_NONE;
}

static void free_list_remove(struct block_manager *manager, uint32_t id) {
    struct block *blocks = manager->blocks;
    uint32_t prev = blocks[id].prev, next = blocks[id].next;
    *(prev == BLOCK_NONE ? &manager->free_head : &blocks[prev].next) = next;
    *(next == BLOCK_NONE ? &manager->free_tail : &blocks[next].prev) = prev;
    blocks[id].prev = blocks[id].next = BLOCK_NONE;
    manager->num_free--;
    manager->num_free_cached -= blocks[id].prefix != PREFIX_NONE;
    uint32_t num_used = manager->num_blocks - manager->num_free;
    if (num_used > manager->stats.num_used_peak) manager->stats.num_used_peak = num_used;
}

static uint32_t *blocks_of(const struct block_manager *manager, uint32_t prefix) {
    return manager->prefix_blocks + (size_t)prefix * manager->groups.num_groups;
}

// The caller refers to the new prefix. PREFIX_NONE: none is unused.
static uint32_t prefix_create(struct block_manager *manager, const struct sequence *seq,
                              uint32_t index, uint64_t hash) {
    uint32_t id = manager->unused_prefix;
    if (id == PREFIX_NONE) return id;
    struct prefix *prefix = &manager->prefixes[id];
    manager->unused_prefix = prefix->parent;
    *prefix = (struct prefix){.parent = index ? seq->prefix : PREFIX_NONE,
                              .ref_count = 1,
                              .serial = ++manager->last_serial,
                              .hash = hash,
                              .salt = seq->cache_salt,
                              .snapshot = SNAPSHOT_NONE};
    if (index) manager->prefixes[prefix->parent].ref_count++;
    for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
        blocks_of(manager, id)[g] = BLOCK_NONE;
    }
    size_t block_size = manager->block_size;
    memcpy(manager->tokens + id * block_size, seq->token_ids + index * block_size,
           block_size * sizeof *seq->token_ids);
    u64map_put(&manager->published, hash, id);
    return id;
}

// A reference ends. The prefix, and then those before it, are forgotten when it was the last one.
static void prefix_drop(struct block_manager *manager, uint32_t id) {
    while (id != PREFIX_NONE) {
        struct prefix *prefix = &manager->prefixes[id];
        CHECK(prefix->ref_count > 0, "prefix %u has no references", id);
        if (--prefix->ref_count > 0) return;
        bool was_mapped = u64map_remove(&manager->published, prefix->hash);
        CHECK(was_mapped, "prefix %u is not in the map", id);
        if (prefix->snapshot != SNAPSHOT_NONE) {
            snapshots_free(&manager->snapshots, prefix->snapshot);
        }
        uint32_t parent = prefix->parent;
        prefix->serial = 0;
        prefix->parent = manager->unused_prefix;
        manager->unused_prefix = id;
        id = parent;
    }
}

static void block_unpublish(struct block_manager *manager, uint32_t id) {
    struct block *block = &manager->blocks[id];
    blocks_of(manager, block->prefix)[block->group] = BLOCK_NONE;
    prefix_drop(manager, block->prefix);
    block->prefix = PREFIX_NONE;
    manager->stats.num_evicted++;
}

static uint32_t block_allocate(struct block_manager *manager) {
    uint32_t id = manager->free_head;
    CHECK(id != BLOCK_NONE && manager->blocks[id].ref_count == 0, "block %u", id);
    free_list_remove(manager, id);
    if (manager->blocks[id].prefix != PREFIX_NONE) block_unpublish(manager, id);
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
    if (block->prefix != PREFIX_NONE) {
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

// Whether prefix `id` is the sequence's first index + 1 blocks, of which the first `index` are
// seq->prefix. Exact: see the head of block_manager.h.
static bool prefix_is_same(const struct block_manager *manager, const struct sequence *seq,
                           uint32_t index, uint32_t id) {
    const struct prefix *prefix = &manager->prefixes[id];
    uint32_t parent = index ? seq->prefix : PREFIX_NONE;
    if (prefix->parent != parent) return false;
    if (parent == PREFIX_NONE && prefix->salt != seq->cache_salt) return false;
    size_t block_size = manager->block_size;
    return memcmp(manager->tokens + id * block_size, seq->token_ids + index * block_size,
                  block_size * sizeof *seq->token_ids) == 0;
}

// Full blocks that a match may cover: at least one token stays to be computed.
static uint32_t num_matchable(const struct block_manager *manager, const struct sequence *seq) {
    return (seq->num_tokens - 1) / manager->block_size;
}

static uint32_t first_read(const struct block_manager *manager, uint32_t group,
                           uint32_t num_computed) {
    return block_groups_first(&manager->groups, group, manager->block_size, num_computed);
}

static void note_blocks(struct block_manager *manager, struct sequence *seq, uint32_t index,
                        uint32_t prefix) {
    for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
        sequence_table(seq, g)[index] = blocks_of(manager, prefix)[g];
    }
    manager->stats.num_noted++;
}

// While a sequence is matched again, some entries of its block tables are still those of its last
// match. Entries from `fresh` on are what the cache has now. An earlier entry of a group with a
// window is read anew (freshen) before it is looked at. Without a window it cannot have changed:
// its prefix is a parent of one that has lived since the last match, so it has lived too. A walk of
// NULL: all entries are fresh.
struct match_walk {
    struct block_manager *manager;
    uint32_t fresh;
    uint32_t prefix; // of the first `fresh` blocks
};

static void freshen(struct match_walk *walk, struct sequence *seq, uint32_t index) {
    while (walk->fresh > index) {
        note_blocks(walk->manager, seq, --walk->fresh, walk->prefix);
        walk->prefix = walk->manager->prefixes[walk->prefix].parent;
    }
}

static uint32_t fresh_entry(struct match_walk *walk, struct sequence *seq, uint32_t group,
                            uint32_t index) {
    if (walk) freshen(walk, seq, index);
    return sequence_table(seq, group)[index];
}

// The longest hit of at most `end` entries that has all that a group reads.
static uint32_t hit_of_group(const struct block_manager *manager, struct sequence *seq,
                             uint32_t group, uint32_t end, struct match_walk *walk) {
    if (!manager->groups.windows[group]) { // blocks are evicted from the end on
        while (end > 0 && fresh_entry(walk, seq, group, end - 1) == BLOCK_NONE) end--;
        return end;
    }
    for (uint32_t i = end; end > 0;) {
        uint32_t first = first_read(manager, group, end * manager->block_size);
        while (i > first && fresh_entry(walk, seq, group, i - 1) != BLOCK_NONE) i--;
        if (i <= first) break;
        end = i = i - 1; // each longer hit reads the entry that lacks its block
    }
    return end;
}

// The longest hit that serves every group.
static uint32_t hit_of_all(const struct block_manager *manager, struct sequence *seq, uint32_t end,
                           struct match_walk *walk) {
    for (uint32_t before = end + 1; end < before;) {
        before = end;
        for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
            end = hit_of_group(manager, seq, g, end, walk);
        }
    }
    return end;
}

static void match_origin(const struct block_manager *manager, struct sequence *seq) {
    const struct sequence *origin = seq->origin;
    seq->num_matched = 0;
    if (!origin) return;
    uint32_t computed = origin->num_computed_tokens, prompt = origin->num_prompt_tokens;
    uint32_t end = (computed < prompt ? computed : prompt) / manager->block_size;
    uint32_t most = num_matchable(manager, seq);
    if (end > most) end = most;
    for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
        memcpy(sequence_table(seq, g), sequence_table(origin, g), end * sizeof *seq->block_table);
    }
    seq->num_matched = hit_of_all(manager, seq, end, NULL);
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
    uint32_t n = seq->num_published;
    // A prefix lives as long as a longer one: if the longest is still there, all are.
    if (n && manager->prefixes[seq->prefix].serial != seq->match_serial) n = 0;
    struct match_walk walk = {manager, n, seq->prefix};
    for (uint32_t end = num_matchable(manager, seq); n < end; n++) {
        uint32_t id;
        if (!u64map_get(&manager->published, block_manager_hash(manager, seq, n), &id)) break;
        if (!prefix_is_same(manager, seq, n, id)) break;
        seq->prefix = id;
        seq->match_serial = manager->prefixes[id].serial;
        note_blocks(manager, seq, n, id);
    }
    seq->num_published = seq->num_matched = n;
    if (manager->snapshots.num_slots) seq->num_matched = block_snapshots_match(manager, seq, n);
    // In one group without a window a prefix has its block as long as it lives.
    if (manager->groups.num_groups == 1 && !manager->has_windows) return;
    if (walk.fresh) freshen(&walk, seq, walk.fresh - 1); // no parent: it may have got a block
    seq->num_matched = hit_of_all(manager, seq, n, &walk);
}

bool block_manager_first_miss(struct block_manager *manager, struct sequence *seq, uint64_t *hash) {
    if (!manager->enable_prefix_caching) return false;
    if (seq->num_matched >= num_matchable(manager, seq)) return false;
    *hash = block_manager_hash(manager, seq, seq->num_matched);
    return true;
}

// Of the matched blocks of a group from `first` on, those that someone holds.
static uint32_t num_held(const struct block_manager *manager, const struct sequence *seq,
                         uint32_t group, uint32_t first) {
    const uint32_t *table = sequence_table(seq, group);
    if (manager->groups.windows[group]) {
        uint32_t num = 0;
        for (uint32_t i = first; i < seq->num_matched; i++) {
            num += manager->blocks[table[i]].ref_count > 0;
        }
        return num;
    }
    // ref_count never grows along a chain, so held blocks come first. Find where they end.
    uint32_t low = 0, high = seq->num_matched;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (manager->blocks[table[middle]].ref_count > 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t block_manager_num_taken(const struct block_manager *manager, const struct sequence *seq,
                                 uint32_t num_entries, uint32_t max_query) {
    uint32_t num = 0;
    for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
        uint32_t first = first_read(manager, g, seq->num_matched * manager->block_size);
        num += block_groups_need(&manager->groups, g, manager->block_size, num_entries, first,
                                 max_query);
        num -= num_held(manager, seq, g, first);
    }
    return num;
}

uint32_t block_manager_num_missing(const struct block_manager *manager, const struct sequence *seq,
                                   uint32_t num_entries, uint32_t max_query) {
    uint32_t num = 0;
    for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
        uint32_t need = block_groups_need(&manager->groups, g, manager->block_size, num_entries,
                                          seq->first_blocks[g], max_query);
        uint32_t held = seq->num_blocks - seq->first_blocks[g];
        if (need > held) num += need - held;
    }
    return num;
}

// Holds the matched blocks of a group that are read.
static void admit_group(struct block_manager *manager, struct sequence *seq, uint32_t group) {
    uint32_t *table = sequence_table(seq, group);
    uint32_t first = first_read(manager, group, seq->num_computed_tokens);
    for (uint32_t i = 0; i < first; i++) table[i] = BLOCK_NONE;
    for (uint32_t i = first; i < seq->num_matched; i++) block_hold(manager, table[i], BLOCK_HIT);
    seq->first_blocks[group] = first;
    manager->stats.num_hits += seq->num_matched - first;
}

void block_manager_admit(struct block_manager *manager, struct sequence *seq) {
    CHECK(seq->num_blocks == 0, "sequence %" PRIu64 " holds blocks", seq->id);
    seq->num_computed_tokens = seq->num_matched * manager->block_size;
    for (uint32_t g = 0; g < manager->groups.num_groups; g++) admit_group(manager, seq, g);
    seq->num_blocks = seq->num_matched;
    if (manager->enable_prefix_caching) {
        for (; seq->num_published > seq->num_matched; seq->num_published--) {
            seq->prefix = manager->prefixes[seq->prefix].parent;
        }
        if (seq->num_published) manager->prefixes[seq->prefix].ref_count++;
    }
    seq->num_matched = 0;
}

bool block_manager_grow(struct block_manager *manager, struct sequence *seq, uint32_t num_tokens) {
    uint32_t num_entries = block_manager_blocks_for(manager, num_tokens);
    uint32_t num_groups = manager->groups.num_groups;
    CHECK(num_entries <= seq->num_blocks_max, "%u blocks, at most %u", num_entries,
          seq->num_blocks_max);
    if (num_entries <= seq->num_blocks) return true;
    if ((uint64_t)(num_entries - seq->num_blocks) * num_groups > manager->num_free) return false;
    for (; seq->num_blocks < num_entries; seq->num_blocks++) {
        for (uint32_t g = 0; g < num_groups; g++) {
            sequence_table(seq, g)[seq->num_blocks] = block_allocate(manager);
        }
    }
    return true;
}

// Publishes entry `index` of a group, whose tokens are the last of `prefix`.
static void publish_block(struct block_manager *manager, struct sequence *seq, uint32_t group,
                          uint32_t index, uint32_t prefix) {
    uint32_t *entry = &sequence_table(seq, group)[index];
    uint32_t *cached = &blocks_of(manager, prefix)[group];
    // Publication was put off (block_manager_publish), and meanwhile the window has passed the
    // block.
    if (*entry == BLOCK_NONE) return;
    if (*cached != BLOCK_NONE) {
        block_hold(manager, *cached, BLOCK_SHARED);
        block_drop(manager, *entry);
        *entry = *cached;
        if (seq->num_sent > index) seq->num_sent = index;
        manager->stats.num_duplicates++;
        return;
    }
    *cached = *entry;
    manager->blocks[*entry].prefix = prefix;
    manager->blocks[*entry].group = group;
    manager->prefixes[prefix].ref_count++;
    manager->stats.num_published++;
    if (manager->changes) block_changes_add(manager->changes, *entry, BLOCK_CACHED);
}

void block_manager_publish(struct block_manager *manager, struct sequence *seq) {
    if (!manager->enable_prefix_caching) return;
    uint32_t end = seq->num_computed_tokens / manager->block_size;
    for (uint32_t i = seq->num_published; i < end; i++) {
        uint64_t hash = block_manager_hash(manager, seq, i);
        uint32_t id;
        // On a return here publication is put off: other content has this hash, or no prefix is
        // unused. Later blocks could not be found without this one. The next step tries again.
        if (!u64map_get(&manager->published, hash, &id)) {
            id = prefix_create(manager, seq, i, hash);
            manager->stats.num_unknown += id == PREFIX_NONE;
            if (id == PREFIX_NONE) return;
        } else if (prefix_is_same(manager, seq, i, id)) {
            manager->prefixes[id].ref_count++;
        } else {
            manager->stats.num_collisions++;
            return;
        }
        if (i) prefix_drop(manager, seq->prefix); // its reference is the longer prefix's now
        seq->prefix = id;
        seq->num_published = i + 1;
        for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
            publish_block(manager, seq, g, i, id);
        }
    }
}

void block_manager_slide(struct block_manager *manager, struct sequence *seq, uint32_t position) {
    for (uint32_t g = 0; g < manager->groups.num_groups; g++) {
        uint32_t *table = sequence_table(seq, g);
        uint32_t first = first_read(manager, g, position);
        for (uint32_t i = first; i-- > seq->first_blocks[g];) {
            block_drop(manager, table[i]);
            table[i] = BLOCK_NONE;
        }
        if (first > seq->first_blocks[g]) seq->first_blocks[g] = first;
    }
}

void block_manager_release(struct block_manager *manager, struct sequence *seq) {
    uint32_t num_groups = manager->groups.num_groups;
    bool is_admitted = seq->num_blocks > 0; // else it refers to no prefix: it only knows one
    if (is_admitted && seq->num_published) prefix_drop(manager, seq->prefix);
    while (seq->num_blocks > 0) {
        uint32_t i = --seq->num_blocks;
        for (uint32_t g = num_groups; g-- > 0;) {
            if (i >= seq->first_blocks[g]) block_drop(manager, sequence_table(seq, g)[i]);
        }
    }
    memset(seq->first_blocks, 0, num_groups * sizeof *seq->first_blocks);
    seq->num_sent = 0;
    seq->num_published = 0;
    seq->num_matched = 0;
    seq->num_computed_tokens = 0;
    seq->is_prefilled = false;
}
