/* The KV groups of a model, as far as blocks go (backend.h, struct step): what window the layers of
 * each group see, and how many blocks a sequence needs for that.
 *
 * A block belongs to one group at a time. All groups take theirs from the same cache, so memory
 * goes to the group that needs it. */
#ifndef ENGINE_SCHEDULE_BLOCK_GROUPS_H
#define ENGINE_SCHEDULE_BLOCK_GROUPS_H

#include <stdint.h>

enum { BLOCK_GROUPS_MAX = 8 };

struct block_groups {
    uint32_t num_groups;
    uint32_t windows[BLOCK_GROUPS_MAX]; // tokens that a query sees, itself included; 0: all
};

// The first entry of a block table of `group` that is read by a query at `position` or a later one.
static inline uint32_t block_groups_first(const struct block_groups *groups, uint32_t group,
                                          uint32_t block_size, uint32_t position) {
    uint32_t window = groups->windows[group];
    return window && position >= window ? (position + 1 - window) / block_size : 0;
}

// Most blocks that a sequence holds in `group` when its table has `num_entries` entries. Those
// before `first` are not read, and each step has at most `max_query` of its tokens.
static inline uint32_t block_groups_need(const struct block_groups *groups, uint32_t group,
                                         uint32_t block_size, uint32_t num_entries, uint32_t first,
                                         uint32_t max_query) {
    uint32_t window = groups->windows[group];
    if (!window) return num_entries;
    // The tokens that a step reads and writes, of which the first is anywhere in its block.
    uint64_t num_tokens = (uint64_t)window - 1 + max_query;
    uint64_t most = (num_tokens + block_size - 2) / block_size + 1;
    uint32_t left = num_entries > first ? num_entries - first : 0;
    return left < most ? left : (uint32_t)most;
}

// The same over all groups, for any sequence with so many entries.
static inline uint64_t block_groups_most(const struct block_groups *groups, uint32_t block_size,
                                         uint32_t num_entries, uint32_t max_query) {
    uint64_t sum = 0;
    for (uint32_t g = 0; g < groups->num_groups; g++) {
        sum += block_groups_need(groups, g, block_size, num_entries, 0, max_query);
    }
    return sum;
}

#endif
