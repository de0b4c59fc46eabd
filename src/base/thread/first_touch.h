/* The first touch of new memory by several threads. The kernel clears a huge page when a thread
 * first writes to it. If others write to it meanwhile, each of them clears a page of its own and
 * throws it away. Here each page is cleared by one thread. Threads that need it clear other pages
 * meanwhile. */
#ifndef BASE_FIRST_TOUCH_H
#define BASE_FIRST_TOUCH_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/err.h"

enum { FIRST_TOUCH_PAGE = 2 << 20 };

struct first_touch {
    char *memory;
    size_t bytes;
    size_t num_pages; // that the memory lies on
    atomic_size_t next; // the first page that no thread has taken
    atomic_uint *touched; // [num_pages]
};

// For zeroed memory that nothing was written to. All-zero is valid for first_touch_fini.
MUST_USE enum status first_touch_init(struct first_touch *touch, void *memory, size_t bytes,
                                      struct err *err);
void first_touch_fini(struct first_touch *touch);

// A thread calls this before it writes to bytes begin .. end - 1. Returns when their pages are
// there.
void first_touch_range(struct first_touch *touch, size_t begin, size_t end);

#endif
