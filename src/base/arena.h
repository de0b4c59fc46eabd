/* A bump allocator: many small allocations with one lifetime, freed together.
 * All-zero is a valid empty arena. Memory comes in chunks of at least 64 KiB. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/compiler.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; // newest first
};

// `size` bytes, 16-byte aligned, uninitialised; NULL when memory is out. size 0 gives a valid
// pointer.
MUST_USE void *arena_alloc(struct arena *arena, size_t size);
// A NUL-terminated copy of `len` bytes; NULL when memory is out.
MUST_USE char *arena_strndup(struct arena *arena, const char *str, size_t len);
void arena_fini(struct arena *arena);

#endif
