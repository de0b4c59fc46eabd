/* Hash maps with open addressing (linear probing, load <= 3/4).
 *
 * strmap: byte strings (borrowed, must outlive the map) -> uint32_t; never shrinks, no removal.
 * u64map: uint64_t -> uint32_t with removal (backward-shift deletion); created with a fixed
 * capacity, so that inserting never allocates. Keys should be well mixed already (they are hashes).
 * All-zero is a valid empty map; lookups in it find nothing. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct strmap_entry {
    const char *key; // NULL: empty
    uint32_t len;
    uint32_t value;
    uint64_t hash;
};

struct strmap {
    struct strmap_entry *entries; // [capacity]
    size_t capacity; // a power of two, or 0
    size_t count;
};

MUST_USE enum status strmap_reserve(struct strmap *map, size_t count, struct err *err);
// Inserts or overwrites. `*existed` (may be NULL) tells which.
MUST_USE enum status strmap_put(struct strmap *map, const char *key, size_t len, uint32_t value,
                                bool *existed, struct err *err);
bool strmap_get(const struct strmap *map, const char *key, size_t len, uint32_t *value);
void strmap_fini(struct strmap *map);

struct u64map_entry {
    uint64_t key;
    uint32_t value;
    uint32_t used;
};

struct u64map {
    struct u64map_entry *entries; // [capacity]
    size_t capacity; // a power of two, or 0
    size_t count;
};

// Capacity for `count` entries; a put beyond that is a broken invariant.
MUST_USE enum status u64map_init(struct u64map *map, size_t count, struct err *err);
size_t u64map_bytes(size_t count); // what u64map_init allocates
void u64map_put(struct u64map *map, uint64_t key, uint32_t value); // inserts or overwrites
bool u64map_get(const struct u64map *map, uint64_t key, uint32_t *value);
bool u64map_remove(struct u64map *map, uint64_t key); // false: it was not there
void u64map_fini(struct u64map *map);

#endif
