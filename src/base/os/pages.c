#include "base/os/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

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
