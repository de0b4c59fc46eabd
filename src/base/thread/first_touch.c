#include "base/thread/first_touch.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/thread/futex.h"

#define SPIN_SECONDS 200e-6 // clearing a page takes 0.1 to 0.5 ms

static size_t page_of(const struct first_touch *touch, size_t at) {
    uintptr_t first = (uintptr_t)touch->memory / FIRST_TOUCH_PAGE;
    return (size_t)(((uintptr_t)touch->memory + at) / FIRST_TOUCH_PAGE - first);
}

enum status first_touch_init(struct first_touch *touch, void *memory, size_t bytes,
                             struct err *err) {
    *touch = (struct first_touch){.memory = memory, .bytes = bytes};
    if (bytes == 0) return OK;
    touch->num_pages = page_of(touch, bytes - 1) + 1;
    touch->touched = calloc(touch->num_pages, sizeof *touch->touched);
    return touch->touched ? OK : err_nomem(err, "list of pages");
}

void first_touch_fini(struct first_touch *touch) {
    free(touch->touched);
}

// Clears the next page that no thread has taken. False: there is none.
static bool touch_next(struct first_touch *touch) {
    if (atomic_load_explicit(&touch->next, memory_order_relaxed) >= touch->num_pages) return false;
    size_t page = atomic_fetch_add_explicit(&touch->next, 1, memory_order_relaxed);
    if (page >= touch->num_pages) return false;
    size_t before = (uintptr_t)touch->memory % FIRST_TOUCH_PAGE; // of the first page
    *(volatile char *)(touch->memory + (page ? page * FIRST_TOUCH_PAGE - before : 0)) = 0;
    atomic_store_explicit(&touch->touched[page], 1, memory_order_release);
    futex_wake(&touch->touched[page], UINT32_MAX >> 1, FUTEX_IN_PROCESS);
    return true;
}

void first_touch_range(struct first_touch *touch, size_t begin, size_t end) {
    if (begin >= end) return;
    size_t last = page_of(touch, end - 1);
    for (size_t page = page_of(touch, begin); page <= last; page++) {
        atomic_uint *touched = &touch->touched[page];
        while (!atomic_load_explicit(touched, memory_order_acquire) && touch_next(touch)) continue;
        while (!futex_spin(touched, 0, SPIN_SECONDS)) {
            // Without a deadline: the thread that took this page only has to touch it.
            futex_wait(touched, 0, -1, FUTEX_IN_PROCESS);
        }
    }
}
