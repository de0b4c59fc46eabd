#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used; // bytes of `data` handed out
    size_t capacity; // bytes of `data`
    alignas(16) unsigned char data[];
};

void *arena_alloc(struct arena *arena, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size_t rounded = (size + 15) & ~(size_t)15;
    struct arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->capacity - chunk->used < rounded) {
        size_t capacity = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
        chunk = malloc(sizeof *chunk + capacity);
        if (!chunk) return NULL;
        *chunk = (struct arena_chunk){.next = arena->chunks, .capacity = capacity};
        arena->chunks = chunk;
    }
    void *p = chunk->data + chunk->used;
    chunk->used += rounded;
    return p;
}

char *arena_strndup(struct arena *arena, const char *str, size_t len) {
    char *copy = len < SIZE_MAX ? arena_alloc(arena, len + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, str, len);
    copy[len] = '\0';
    return copy;
}

void arena_fini(struct arena *arena) {
    if (!arena) return;
    struct arena_chunk *chunk = arena->chunks;
    while (chunk) {
        struct arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    arena->chunks = NULL;
}
