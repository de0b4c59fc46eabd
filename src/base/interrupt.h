/* How a caller ends a call that may take seconds. The caller gives a question; the work asks it now
 * and then on the thread that it runs on, and returns ERR_INTERRUPTED once the answer is yes. The
 * work decides how often it asks: once in some milliseconds, for the question may cost
 * microseconds. */
#ifndef BASE_INTERRUPT_H
#define BASE_INTERRUPT_H

#include "base/err.h"

struct interrupt {
    int (*is_wanted)(void *user_data); // not 0: the work is to end; NULL: never
    void *user_data;
};

// Asks. `interrupt` may be NULL: never.
MUST_USE enum status interrupt_check(const struct interrupt *interrupt, struct err *err);

#endif
