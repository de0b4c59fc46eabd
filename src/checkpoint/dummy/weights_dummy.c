/* The pattern's length is a prime number of pages, so that rows whose length is a power of two
 * seldom have equal content. */
#include "checkpoint/dummy/weights_dummy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/text/c_locale.h"

enum { PATTERN_PAGES = 257, OFFSET_ALIGN = 64 };

// A range of addresses, filled with the pattern.
struct region {
    struct region *next; // older, smaller
    unsigned char *base;
    size_t size; // bytes, a multiple of pattern_bytes
};

struct vector {
    uint16_t *data; // [count] in the arena
    uint64_t count;
};

struct weights_dummy {
    int fd; // memory file that holds the pattern
    size_t pattern_bytes;
    struct region *regions; // largest first
    struct arena arena; // vectors
    struct vector ones, zeros;
};

static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// The sum of four uniform integers is close to a normal distribution, and the same on every
// machine.
static void fill_pattern(uint16_t *out, size_t count) {
    const float mean = 4 * 32767.5f;
    const float scale = 0.02f / 37837.23f; // the sum's standard deviation is 65536 / sqrt(3)
    uint64_t state = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = splitmix64(&state);
        uint32_t sum = 0;
        for (int k = 0; k < 4; k++) sum += (uint32_t)(bits >> (16 * k)) & 0xffffu;
        out[i] = f32_to_bf16(((float)sum - mean) * scale);
    }
}

static enum status create_pattern(struct weights_dummy *dummy, struct err *err) {
    dummy->fd = memfd_create("dummy weights", MFD_CLOEXEC);
    if (dummy->fd < 0 || ftruncate(dummy->fd, (off_t)dummy->pattern_bytes) != 0) {
        return err_set(err, ERR_IO, "cannot make a memory file for dummy weights: %s",
                       c_locale_strerror(errno));
    }
    void *pattern =
        mmap(NULL, dummy->pattern_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dummy->fd, 0);
    if (pattern == MAP_FAILED) return err_nomem(err, "dummy weights");
    fill_pattern(pattern, dummy->pattern_bytes / sizeof(uint16_t));
    munmap(pattern, dummy->pattern_bytes);
    return OK;
}

enum status weights_dummy_create(struct weights_dummy **out, struct err *err) {
    *out = NULL;
    struct weights_dummy *dummy = calloc(1, sizeof *dummy);
    if (!dummy) return err_nomem(err, "dummy weights");
    dummy->fd = -1;
    dummy->pattern_bytes = PATTERN_PAGES * (size_t)sysconf(_SC_PAGESIZE);
    enum status status = create_pattern(dummy, err);
    if (status) {
        weights_dummy_destroy(dummy);
        return status;
    }
    *out = dummy;
    return OK;
}

void weights_dummy_destroy(struct weights_dummy *dummy) {
    if (!dummy) return;
    while (dummy->regions) {
        struct region *region = dummy->regions;
        dummy->regions = region->next;
        if (region->base) munmap(region->base, region->size);
        free(region);
    }
    arena_fini(&dummy->arena);
    if (dummy->fd >= 0) close(dummy->fd);
    free(dummy);
}

// Maps a region of `size` bytes and puts it first. Each copy of the pattern is one kernel mapping.
static enum status add_region(struct weights_dummy *dummy, size_t size, struct err *err) {
    struct region *region = calloc(1, sizeof *region);
    if (!region) return err_nomem(err, "dummy weights");
    region->next = dummy->regions;
    dummy->regions = region;
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) goto fail;
    region->base = base;
    region->size = size;
    for (size_t at = 0; at < size; at += dummy->pattern_bytes) {
        void *part = mmap(region->base + at, dummy->pattern_bytes, PROT_READ,
                          MAP_SHARED | MAP_FIXED, dummy->fd, 0);
        if (part == MAP_FAILED) goto fail;
    }
    return OK;
fail:
    dummy->regions = region->next;
    if (region->base) munmap(region->base, region->size);
    free(region);
    return err_set(err, ERR_NOMEM, "out of memory: cannot map %zu bytes of dummy weights", size);
}

enum status weights_dummy_matrix(struct weights_dummy *dummy, const char *name, uint64_t count,
                                 const void **data, struct err *err) {
    size_t pattern = dummy->pattern_bytes;
    if (count > SIZE_MAX / 8 - pattern) return err_nomem(err, "dummy weights");
    // One pattern longer than the matrix, because a matrix may begin anywhere in the first pattern.
    size_t need = ((size_t)count * sizeof(uint16_t) + pattern - 1) / pattern * pattern + pattern;
    size_t largest = dummy->regions ? dummy->regions->size : 0;
    if (!dummy->regions || need > largest) {
        // Doubling keeps the sum of all regions small when sizes grow slowly.
        enum status status = add_region(dummy, need > 2 * largest ? need : 2 * largest, err);
        if (status) return status;
    }
    uint64_t hash = XXH3_64bits(name, strlen(name));
    size_t offset = (size_t)(hash % (pattern / OFFSET_ALIGN)) * OFFSET_ALIGN;
    *data = dummy->regions->base + offset;
    return OK;
}

enum status weights_dummy_vector(struct weights_dummy *dummy, bool ones, uint64_t count,
                                 const void **data, struct err *err) {
    struct vector *vector = ones ? &dummy->ones : &dummy->zeros;
    if (vector->count < count || !vector->data) {
        if (count > SIZE_MAX / 4) return err_nomem(err, "dummy weights");
        uint16_t *grown = arena_alloc(&dummy->arena, (size_t)count * sizeof *grown);
        if (!grown) return err_nomem(err, "dummy weights");
        uint16_t value = f32_to_bf16(ones ? 1.0f : 0.0f);
        for (size_t i = 0; i < count; i++) grown[i] = value;
        *vector = (struct vector){.data = grown, .count = count};
    }
    *data = vector->data;
    return OK;
}
