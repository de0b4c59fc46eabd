#include "base/os/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

// The mapping starts at a multiple of the huge page. Otherwise the kernel could not use huge pages
// for its first and last parts.
void *pages_map(size_t front, size_t bytes) {
    size_t reserved = front + bytes + HUGE_PAGE;
    char *start = mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t past = ((uintptr_t)start + front) & (HUGE_PAGE - 1);
    size_t before = past ? HUGE_PAGE - past : 0;
    char *base = start + before + front;
    if (before) munmap(start, before);
    if (HUGE_PAGE > before) munmap(base + bytes, HUGE_PAGE - before);
    madvise(base, bytes, MADV_HUGEPAGE); // where the system refuses: slower, not wrong
    return base;
}

void pages_unmap(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

void pages_populate(void *memory, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = ((uintptr_t)memory + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)memory + bytes) / page * page;
#ifdef MADV_POPULATE_WRITE
    if (start < end) madvise((void *)start, end - start, MADV_POPULATE_WRITE);
#else
    (void)start, (void)end;
#endif
}
