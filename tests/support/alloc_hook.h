/* The test program's own allocator entry points: glibc's allocator behind counters and a trigger
 * that makes a chosen allocation fail. Link it (CMake's alloc_test) only into the tests that need
 * it: it replaces malloc for the whole process, shared libraries included, so it excludes
 * sanitizers and valgrind.
 *
 * Counted and failed: malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign, from any
 * thread, and mmap of anonymous memory or files when called from outside glibc (our
 * mappings). Not covered: what glibc maps for itself (thread stacks, large malloc blocks count
 * as malloc), operator new's callers only through malloc, sbrk, and device memory. */
#ifndef SUPPORT_ALLOC_HOOK_H
#define SUPPORT_ALLOC_HOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// Zeroes both counts and disarms the trigger.
void alloc_hook_reset(void);
// Allocations since the reset, failed ones too: of all threads, and of the calling thread.
size_t alloc_hook_count(void);
size_t alloc_hook_count_thread(void);
// malloc'ed blocks and mapped pages that are alive now. Differences mean something, the value does
// not.
long alloc_hook_live(void);

// Makes the n-th allocation from now (1: the next one) fail, and with `all_after` every later one
// too, until alloc_hook_disarm or _reset.
void alloc_hook_fail_at(size_t n, bool all_after);
void alloc_hook_disarm(void);
bool alloc_hook_has_failed(void); // an allocation failed since fail_at

// A piece of work that allocates: it makes something, uses it, destroys it, and returns its status.
typedef enum status (*alloc_sweep_fn)(void *context, struct err *err);

struct alloc_sweep {
    alloc_sweep_fn work;
    void *context;
    // 0: every allocation fails in turn. Else the distance grows by 1 in `stride` allocations: for
    // work of thousands of allocations that differ little.
    size_t stride;
    // A failed allocation may also be survived: an optimisation that is left out. Without it the
    // status must be ERR_NOMEM whenever an allocation failed.
    bool may_survive;
};

// Runs the work with one allocation failing, then with that one and all later ones, for each
// allocation in turn, until the work gets through untouched. Fails the cmocka test when a failure
// is swallowed or leaves anything allocated. Returns how many allocations the work makes.
size_t alloc_sweep_run(const struct alloc_sweep *sweep);

#endif
