/* What one encode may spend and has spent. Time is counted in steps of about a nanosecond: patterns
 * have a budget that grows with the text, so that no pattern and no text can make the time grow
 * faster than the text; other work is linear by itself. Memory grows with the text that normalizers
 * make: it has a budget too. Whatever works asks the caller's interrupt once in EFFORT_ASK steps.
 */
#ifndef TEXT_EFFORT_H
#define TEXT_EFFORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/interrupt.h"

enum {
    EFFORT_ASK = 1 << 22, // some milliseconds
    EFFORT_PATTERN_MIN = 1 << 27, // what patterns may spend on the shortest text
    EFFORT_PATTERN_PER_BYTE = 256, // and on each of its bytes
    EFFORT_NORMALIZED_MIN = 1 << 24, // bytes that normalizers may make of the shortest text
    EFFORT_NORMALIZED_PER_BYTE = 16, // and of each of its bytes
};

struct effort {
    const struct interrupt *interrupt; // NULL: none
    uint64_t unasked; // steps since the interrupt was asked
    uint64_t pattern_left; // steps that patterns may still take
    uint64_t normalized_left; // bytes that normalizers may still make
};

void effort_begin(struct effort *effort, size_t len, const struct interrupt *interrupt);

// Asks now; use effort_spend.
MUST_USE enum status effort_ask(struct effort *effort, struct err *err);

// After `steps` of any work: ERR_INTERRUPTED once the caller wants an end.
MUST_USE static inline enum status effort_spend(struct effort *effort, uint64_t steps,
                                                struct err *err) {
    effort->unasked += steps;
    return LIKELY(effort->unasked < EFFORT_ASK) ? OK : effort_ask(effort, err);
}

// After `steps` of a pattern: also ERR_INVALID once the budget is spent.
MUST_USE enum status effort_spend_on_pattern(struct effort *effort, uint64_t steps,
                                             struct err *err);

// Before a normalizer's result has `len` bytes: ERR_INVALID where that is more than is left.
MUST_USE enum status effort_check_normalized(const struct effort *effort, size_t len,
                                             struct err *err);

#endif
