/* The budget of one encode. Time is counted in steps of about a nanosecond. Patterns have a budget
 * that grows with the text, so that no pattern and text take more than linear time. All other work
 * is linear anyway. Normalizers have a budget of bytes, because memory grows with the text that
 * they make. Every EFFORT_ASK steps the caller's interrupt is asked. */
#ifndef TEXT_EFFORT_H
#define TEXT_EFFORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/thread/interrupt.h"

enum {
    EFFORT_ASK = 1 << 22, // steps: about 4 milliseconds
    EFFORT_PATTERN_MIN = 1 << 27, // steps that patterns may take on any text
    EFFORT_PATTERN_PER_BYTE = 256, // more steps for each byte of the text
    EFFORT_NORMALIZED_MIN = 1 << 24, // bytes that normalizers may make of any text
    EFFORT_NORMALIZED_PER_BYTE = 16, // more bytes for each byte of the text
};

struct effort {
    const struct interrupt *interrupt; // NULL: none
    uint64_t unasked; // steps since the interrupt was asked
    uint64_t pattern_left; // steps that patterns may still take
    uint64_t normalized_left; // bytes that normalizers may still make
};

void effort_begin(struct effort *effort, size_t len, const struct interrupt *interrupt);

// Asks the interrupt now. Called by effort_spend; call that instead.
MUST_USE enum status effort_ask(struct effort *effort, struct err *err);

// Call after `steps` of any work. ERR_INTERRUPTED once the caller wants the encode to end.
MUST_USE static inline enum status effort_spend(struct effort *effort, uint64_t steps,
                                                struct err *err) {
    effort->unasked += steps;
    return LIKELY(effort->unasked < EFFORT_ASK) ? OK : effort_ask(effort, err);
}

// Call after `steps` of a pattern. Also ERR_INVALID once the budget is spent.
MUST_USE enum status effort_spend_on_pattern(struct effort *effort, uint64_t steps,
                                             struct err *err);

// Call before a normalizer makes a text of `len` bytes. ERR_INVALID where the budget does not allow
// it.
MUST_USE enum status effort_check_normalized(const struct effort *effort, size_t len,
                                             struct err *err);

#endif
