#include "support/alloc_hook.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// Shared libraries must find these definitions, in a program whose symbols are hidden by default.
#define EXPORTED __attribute__((visibility("default")))

// glibc's allocator under the names it keeps for programs that replace malloc.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *p);

static atomic_size_t num_allocations;
static _Thread_local size_t num_thread_allocations;
static atomic_long num_live; // blocks and mapped pages
static atomic_size_t num_until_failure; // 1: the next allocation fails; 0: disarmed
static atomic_bool fail_all_after;
static atomic_bool has_failed;

// Counts one allocation; true if it must fail.
static bool begin_allocation(void) {
    atomic_fetch_add(&num_allocations, 1);
    num_thread_allocations++;
    size_t left = atomic_load(&num_until_failure);
    while (left > 1) {
        if (atomic_compare_exchange_weak(&num_until_failure, &left, left - 1)) return false;
    }
    if (left == 0) return false;
    if (!atomic_load(&fail_all_after)) atomic_store(&num_until_failure, 0);
    atomic_store(&has_failed, true);
    errno = ENOMEM;
    return true;
}

static void *count_live(void *p) {
    if (p) atomic_fetch_add(&num_live, 1);
    return p;
}

EXPORTED void *malloc(size_t size) {
    return begin_allocation() ? NULL : count_live(__libc_malloc(size));
}

EXPORTED void *calloc(size_t count, size_t size) {
    return begin_allocation() ? NULL : count_live(__libc_calloc(count, size));
}

EXPORTED void *realloc(void *p, size_t size) {
    if (begin_allocation()) return NULL;
    void *grown = __libc_realloc(p, size);
    if (p && !grown && size == 0) atomic_fetch_sub(&num_live, 1); // freed
    if (!p) count_live(grown);
    return grown;
}

EXPORTED void *memalign(size_t alignment, size_t size) {
    return begin_allocation() ? NULL : count_live(__libc_memalign(alignment, size));
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size) {
    return begin_allocation() ? NULL : count_live(__libc_memalign(alignment, size));
}

EXPORTED int posix_memalign(void **out, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
    if (begin_allocation()) return ENOMEM;
    void *p = count_live(__libc_memalign(alignment, size));
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

EXPORTED void free(void *p) {
    if (p) atomic_fetch_sub(&num_live, 1);
    __libc_free(p);
}

// Mappings are counted in pages, because one may be unmapped in parts (ends trimmed for alignment).
static long pages_of(size_t length) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (long)((length + page - 1) / page);
}

EXPORTED void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    if (begin_allocation()) return MAP_FAILED;
    long result = syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    if (result == -1) return MAP_FAILED;
    // A fixed mapping replaces part of another one, and is unmapped with it.
    if (!(flags & MAP_FIXED)) atomic_fetch_add(&num_live, pages_of(length));
    return (void *)(uintptr_t)result;
}

EXPORTED void *mmap64(void *address, size_t length, int protection, int flags, int fd,
                      off_t offset) {
    return mmap(address, length, protection, flags, fd, offset);
}

EXPORTED int munmap(void *address, size_t length) {
    int result = (int)syscall(SYS_munmap, address, length);
    if (result == 0) atomic_fetch_sub(&num_live, pages_of(length));
    return result;
}

void alloc_hook_reset(void) {
    alloc_hook_disarm();
    atomic_store(&num_allocations, 0);
    num_thread_allocations = 0;
}

size_t alloc_hook_count(void) {
    return atomic_load(&num_allocations);
}

size_t alloc_hook_count_thread(void) {
    return num_thread_allocations;
}

long alloc_hook_live(void) {
    return atomic_load(&num_live);
}

void alloc_hook_fail_at(size_t n, bool all_after) {
    atomic_store(&has_failed, false);
    atomic_store(&fail_all_after, all_after);
    atomic_store(&num_until_failure, n);
}

void alloc_hook_disarm(void) {
    atomic_store(&num_until_failure, 0);
    atomic_store(&fail_all_after, false);
}

bool alloc_hook_has_failed(void) {
    return atomic_load(&has_failed);
}
