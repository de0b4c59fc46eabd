/* The test program's own malloc and mmap: glibc's allocator behind counters, with a trigger that
 * makes a chosen allocation fail. Link it (CMake's alloc_test) only into tests that need it: it
 * replaces malloc for the whole process, shared libraries included, so it excludes sanitizers and
 * valgrind.
 *
 * Counted, and made to fail: malloc, calloc, realloc, posix_memalign, aligned_alloc and memalign
 * from any thread, and mmap when called from outside glibc (our mappings). Not counted: glibc's own
 * mappings (thread stacks; a large malloc counts as malloc), sbrk, and device memory. operator new
 * counts only where it calls malloc. */
#ifndef SUPPORT_ALLOC_HOOK_H
#define SUPPORT_ALLOC_HOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// Zeroes both counts and disarms the trigger.
void alloc_hook_reset(void);
// Allocations since the reset, including failed ones: of all threads, and of the calling thread.
size_t alloc_hook_count(void);
size_t alloc_hook_count_thread(void);
// malloc'ed blocks plus mapped pages that are alive now. Only differences of it mean something.
long alloc_hook_live(void);

// Makes the n-th allocation from now (1: the next one) fail, and with `all_after` every later one
// too, until alloc_hook_disarm or _reset.
void alloc_hook_fail_at(size_t n, bool all_after);
void alloc_hook_disarm(void);
bool alloc_hook_has_failed(void); // whether an allocation has failed since fail_at

// A piece of work that allocates: it makes something, uses it, destroys it, and returns its status.
typedef enum status (*alloc_sweep_fn)(void *context, struct err *err);

struct alloc_sweep {
    alloc_sweep_fn work;
    void *context;
    // 0: every allocation fails in turn. Else the gap between failing allocations grows by 1 every
    // `stride` allocations: for work of thousands of allocations that differ little.
    size_t stride;
    // The work may succeed although an allocation failed, by leaving out an optimisation. If false,
    // its status must be ERR_NOMEM whenever an allocation failed.
    bool may_survive;
};

// Runs the work with one allocation failing, then with that one and all later ones failing, for
// each allocation in turn. Ends when the work makes fewer allocations than that. Fails the cmocka
// test if the work hides a failure or leaves anything allocated. Returns how many allocations the
// work makes.
size_t alloc_sweep_run(const struct alloc_sweep *sweep);

#endif
