#include "backend/cuda/gemm/gemm_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "backend/cuda/kernels.h"
#include "base/os/file.h"
#include "base/os/map.h"

enum { ENTRIES_MAX = 4096, ALGO_BYTES = sizeof(cublasLtMatmulAlgo_t), LINE_BYTES = 512 };

struct gemm_entry {
    struct gemm_key key;
    struct gemm_way way;
};

struct gemm_cache {
    struct gemm_entry *entries; // [ENTRIES_MAX]
    uint32_t num_entries;
    struct u64map index; // hash of the key -> index of the entry
    bool has_grown;
    char path[FILE_PATH_MAX]; // empty: memory only
    char title[256]; // the file's first line
};

bool gemm_key_equal(const struct gemm_key *a, const struct gemm_key *b) {
    return memcmp(a, b, sizeof *a) == 0; // there is no padding
}

static uint64_t hash_of(const struct gemm_key *key) {
    return XXH3_64bits(key, sizeof *key);
}

bool gemm_cache_get(const struct gemm_cache *cache, const struct gemm_key *key,
                    struct gemm_way *way) {
    uint32_t i;
    if (!u64map_get(&cache->index, hash_of(key), &i)) return false;
    if (!gemm_key_equal(&cache->entries[i].key, key)) return false;
    *way = cache->entries[i].way;
    return true;
}

bool gemm_cache_at(const struct gemm_cache *cache, uint32_t index, struct gemm_key *key,
                   struct gemm_way *way) {
    if (index >= cache->num_entries) return false;
    *key = cache->entries[index].key;
    *way = cache->entries[index].way;
    return true;
}

void gemm_cache_put(struct gemm_cache *cache, const struct gemm_key *key,
                    const struct gemm_way *way) {
    struct gemm_way known;
    if (cache->num_entries == ENTRIES_MAX || gemm_cache_get(cache, key, &known)) return;
    cache->entries[cache->num_entries] = (struct gemm_entry){*key, *way};
    u64map_put(&cache->index, hash_of(key), cache->num_entries++);
    cache->has_grown = true;
}

static bool read_number(const char **at, uint32_t *out) {
    char *end;
    unsigned long number = strtoul(*at, &end, 10);
    if (end == *at || *end != ' ' || number > UINT32_MAX) return false;
    *at = end + 1;
    *out = (uint32_t)number;
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// A line has the numbers of key and way, the algorithm's bytes in hex, and a hash of all of these.
// cuBLASLt does not check an algorithm: a damaged one would end the process.
enum { NUMBERS = 9, HASH_DIGITS = 16 };

static void format_hash(const char *text, size_t len, char hash[HASH_DIGITS + 1]) {
    snprintf(hash, HASH_DIGITS + 1, "%016llx", (unsigned long long)XXH3_64bits(text, len));
}

static void numbers_of(struct gemm_entry *e, uint32_t *numbers[NUMBERS]) {
    struct gemm_key *k = &e->key;
    struct gemm_way *w = &e->way;
    uint32_t *const all[NUMBERS] = {&k->rows,         &k->out,      &k->in,
                                    &k->out_is_float, &k->has_bias, &k->is_gated,
                                    &w->kind,         &w->split,    &w->has_algo};
    memcpy(numbers, all, sizeof all);
}

// A way read from a file will be launched, so it must be one that can be chosen.
static bool is_way(const struct gemm_way *way) {
    if (way->kind == KERNEL_BATCH) return way->split >= 1 && way->split <= CUDA_BATCH_SPLIT_MAX;
    return way->kind == KERNEL_GATED || (way->kind == KERNEL_CUBLAS && way->has_algo == 1);
}

// False: the line is not valid.
static bool parse_line(const char *line, struct gemm_entry *entry) {
    unsigned char bytes[ALGO_BYTES];
    uint32_t *numbers[NUMBERS];
    const char *at = line;
    numbers_of(entry, numbers);
    for (int i = 0; i < NUMBERS; i++) {
        if (!read_number(&at, numbers[i])) return false;
    }
    for (size_t i = 0; i < ALGO_BYTES; i++, at += 2) {
        int high = hex_digit(at[0]), low = high < 0 ? -1 : hex_digit(at[1]);
        if (low < 0) return false;
        bytes[i] = (unsigned char)(high * 16 + low);
    }
    memcpy(&entry->way.algo, bytes, sizeof entry->way.algo);
    char hash[HASH_DIGITS + 1];
    format_hash(line, (size_t)(at - line), hash);
    bool is_whole = at[0] == ' ' && strncmp(at + 1, hash, HASH_DIGITS) == 0;
    return is_whole && strcmp(at + 1 + HASH_DIGITS, "\n") == 0 && is_way(&entry->way);
}

void gemm_cache_read(struct gemm_cache *cache) {
    FILE *file = cache->path[0] ? fopen(cache->path, "re") : NULL;
    if (!file) return;
    char line[LINE_BYTES];
    bool had_grown = cache->has_grown;
    bool ours = fgets(line, sizeof line, file) && strcmp(line, cache->title) == 0;
    struct gemm_entry entry;
    while (ours && fgets(line, sizeof line, file)) {
        if (parse_line(line, &entry)) gemm_cache_put(cache, &entry.key, &entry.way);
    }
    fclose(file);
    cache->has_grown = had_grown;
}

static void format_line(char line[LINE_BYTES], struct gemm_entry *entry) {
    unsigned char bytes[ALGO_BYTES];
    uint32_t *numbers[NUMBERS];
    char hash[HASH_DIGITS + 1];
    size_t len = 0;
    memcpy(bytes, &entry->way.algo, sizeof bytes);
    numbers_of(entry, numbers);
    for (int i = 0; i < NUMBERS; i++) {
        len += (size_t)snprintf(line + len, LINE_BYTES - len, "%u ", *numbers[i]);
    }
    for (size_t i = 0; i < ALGO_BYTES; i++) {
        len += (size_t)snprintf(line + len, LINE_BYTES - len, "%02x", bytes[i]);
    }
    format_hash(line, len, hash);
    snprintf(line + len, LINE_BYTES - len, " %s\n", hash);
}

static bool write_entries(struct gemm_cache *cache, FILE *file) {
    bool good = fputs(cache->title, file) >= 0;
    char line[LINE_BYTES];
    for (uint32_t i = 0; i < cache->num_entries; i++) {
        format_line(line, &cache->entries[i]);
        good = good && fputs(line, file) >= 0;
    }
    return good;
}

// Ignores failures: without the file the next start only takes longer.
static void write_file(struct gemm_cache *cache) {
    if (file_make_folders(cache->path, NULL)) return;
    char temporary[FILE_PATH_MAX + 8];
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", cache->path);
    int fd = mkstemp(temporary);
    if (fd < 0) return;
    FILE *file = fdopen(fd, "w");
    bool good = file && write_entries(cache, file);
    if (file) {
        good = fclose(file) == 0 && good;
    } else {
        close(fd);
    }
    if (!good || rename(temporary, cache->path) != 0) unlink(temporary);
}

void gemm_cache_write(struct gemm_cache *cache) {
    if (cache->has_grown && cache->path[0]) write_file(cache);
    cache->has_grown = false;
}

enum status gemm_cache_open(struct gemm_cache **out, const char *path, const char *device_name,
                            size_t library_version, struct err *err) {
    *out = NULL;
    struct gemm_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return err_nomem(err, "matrix product cache");
    cache->entries = calloc(ENTRIES_MAX, sizeof *cache->entries);
    enum status status = cache->entries ? u64map_init(&cache->index, ENTRIES_MAX, err)
                                        : err_nomem(err, "matrix product cache");
    if (status) {
        gemm_cache_close(cache);
        return status;
    }
    if (path) snprintf(cache->path, sizeof cache->path, "%s", path);
    // Increase the number when our kernels, the ways that compete or the lines change.
    snprintf(cache->title, sizeof cache->title, "nanovllm gemm 6: %s, cublasLt %zu\n", device_name,
             library_version);
    gemm_cache_read(cache);
    *out = cache;
    return OK;
}

void gemm_cache_close(struct gemm_cache *cache) {
    if (!cache) return;
    gemm_cache_write(cache);
    u64map_fini(&cache->index);
    free(cache->entries);
    free(cache);
}
