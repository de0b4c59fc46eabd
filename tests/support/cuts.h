/* Where a text that comes in three pieces is cut: what reads it must not care. */
#ifndef SUPPORT_CUTS_H
#define SUPPORT_CUTS_H

#include <stddef.h>
#include <stdlib.h>

enum { CUTS_NEAR = 12, CUTS_APART = 17 }; // bytes

// The second cut after `second`, the first being at `first`; len + 1 after the last, which is at
// len. Two cuts as near as the ends of a <tool_call> are all tried, of the others some;
// NANOVLLM_TEST_ALL=1 tries all.
static inline size_t cuts_next(size_t first, size_t second, size_t len) {
    if (second - first < CUTS_NEAR || second >= len || getenv("NANOVLLM_TEST_ALL")) {
        return second + 1;
    }
    return second + CUTS_APART < len ? second + CUTS_APART : len;
}

#endif
