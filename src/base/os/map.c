#include "base/os/map.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

// The smallest power of two that keeps `count` entries at a load of at most 3/4; 0 on overflow.
static size_t table_capacity(size_t count) {
    if (count > SIZE_MAX / 64) return 0;
    size_t capacity = 16;
    while (capacity / 4 * 3 < count) capacity *= 2;
    return capacity;
}

static struct strmap_entry *strmap_find(const struct strmap *map, const char *key, size_t len,
                                        uint64_t hash) {
    size_t mask = map->capacity - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        struct strmap_entry *e = &map->entries[i];
        if (!e->key) return e;
        if (e->hash == hash && e->len == len && memcmp(e->key, key, len) == 0) return e;
    }
}

enum status strmap_reserve(struct strmap *map, size_t count, struct err *err) {
    size_t capacity = table_capacity(count);
    if (!capacity) return err_nomem(err, "hash map");
    if (capacity <= map->capacity) return OK;
    struct strmap grown = {.capacity = capacity, .count = map->count};
    grown.entries = calloc(capacity, sizeof *grown.entries);
    if (!grown.entries) return err_nomem(err, "hash map");
    for (size_t i = 0; i < map->capacity; i++) {
        const struct strmap_entry *e = &map->entries[i];
        if (e->key) *strmap_find(&grown, e->key, e->len, e->hash) = *e;
    }
    free(map->entries);
    *map = grown;
    return OK;
}

enum status strmap_put(struct strmap *map, const char *key, size_t len, uint32_t value,
                       bool *existed, struct err *err) {
    CHECK(len <= UINT32_MAX, "len=%zu", len);
    enum status status = strmap_reserve(map, map->count + 1, err);
    if (status) return status;
    uint64_t hash = XXH3_64bits(key, len);
    struct strmap_entry *e = strmap_find(map, key, len, hash);
    if (existed) *existed = e->key != NULL;
    if (!e->key) map->count++;
    *e = (struct strmap_entry){.key = key, .len = (uint32_t)len, .value = value, .hash = hash};
    return OK;
}

bool strmap_get(const struct strmap *map, const char *key, size_t len, uint32_t *value) {
    if (!map->capacity) return false;
    const struct strmap_entry *e = strmap_find(map, key, len, XXH3_64bits(key, len));
    if (!e->key) return false;
    *value = e->value;
    return true;
}

void strmap_fini(struct strmap *map) {
    free(map->entries);
    *map = (struct strmap){0};
}

enum status u64map_init(struct u64map *map, size_t count, struct err *err) {
    *map = (struct u64map){.capacity = table_capacity(count)};
    if (!map->capacity) return err_nomem(err, "hash map");
    map->entries = calloc(map->capacity, sizeof *map->entries);
    if (!map->entries) {
        map->capacity = 0;
        return err_nomem(err, "hash map");
    }
    return OK;
}

static size_t u64map_slot(const struct u64map *map, uint64_t key) {
    size_t mask = map->capacity - 1;
    size_t i = (size_t)key & mask;
    while (map->entries[i].used && map->entries[i].key != key) i = (i + 1) & mask;
    return i;
}

size_t u64map_bytes(size_t count) {
    return table_capacity(count) * sizeof(struct u64map_entry);
}

void u64map_put(struct u64map *map, uint64_t key, uint32_t value) {
    size_t i = u64map_slot(map, key);
    if (!map->entries[i].used) {
        map->count++;
        CHECK(map->count <= map->capacity / 4 * 3, "count=%zu capacity=%zu", map->count,
              map->capacity);
    }
    map->entries[i] = (struct u64map_entry){.key = key, .value = value, .used = 1};
}

bool u64map_get(const struct u64map *map, uint64_t key, uint32_t *value) {
    if (!map->capacity) return false;
    const struct u64map_entry *e = &map->entries[u64map_slot(map, key)];
    if (!e->used) return false;
    *value = e->value;
    return true;
}

bool u64map_remove(struct u64map *map, uint64_t key) {
    if (!map->capacity) return false;
    size_t mask = map->capacity - 1;
    size_t hole = u64map_slot(map, key);
    if (!map->entries[hole].used) return false;
    // Close the gap: an entry may move into the hole when its home is not between hole and itself.
    for (size_t i = (hole + 1) & mask; map->entries[i].used; i = (i + 1) & mask) {
        size_t home = (size_t)map->entries[i].key & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->entries[hole] = map->entries[i];
            hole = i;
        }
    }
    map->entries[hole] = (struct u64map_entry){0};
    map->count--;
    return true;
}

void u64map_fini(struct u64map *map) {
    free(map->entries);
    *map = (struct u64map){0};
}
