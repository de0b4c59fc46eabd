#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

void pages_populate(void *memory, size_t bytes) {
    uintptr_t start = ((uintptr_t)memory + PAGE - 1) / PAGE * PAGE;
    uintptr_t end = ((uintptr_t)memory + bytes) / PAGE * PAGE;
#ifdef MADV_POPULATE_WRITE
    if (start < end) madvise((void *)start, end - start, MADV_POPULATE_WRITE);
#else
    (void)start, (void)end;
#endif
}
