/* Where a text that comes in three pieces is cut: what reads it must not care. */
#ifndef SUPPORT_CUTS_H
#define SUPPORT_CUTS_H

#include <stddef.h>
#include <stdlib.h>

enum { CUTS_NEAR = 12, CUTS_APART = 17 }; // bytes

// The second cut after `second`, where the first is at `first`. The last is at len, and len + 1 is
// returned after it. All second cuts within CUTS_NEAR bytes of the first are tried. Of the others
// one in CUTS_APART is, at distances that differ from one first cut to the next, so that every
// distance is tried somewhere. NANOVLLM_TEST_ALL=1 tries all.
static inline size_t cuts_next(size_t first, size_t second, size_t len) {
    if (second - first < CUTS_NEAR || second >= len || getenv("NANOVLLM_TEST_ALL")) {
        return second + 1;
    }
    size_t next = second + (second == first + CUTS_NEAR ? 1 + first % CUTS_APART : CUTS_APART);
    return next < len ? next : len;
}

#endif
