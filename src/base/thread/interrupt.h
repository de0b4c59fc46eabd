/* How a caller ends a call that may take seconds. The caller passes a question. The call asks it
 * now and then on its own thread, and returns ERR_INTERRUPTED once the answer is yes. It asks every
 * few milliseconds, because the question may cost microseconds. */
#ifndef BASE_INTERRUPT_H
#define BASE_INTERRUPT_H

#include "base/err.h"

struct interrupt {
    int (*is_wanted)(void *user_data); // returns nonzero to end the call; NULL: never
    void *user_data;
};

// Asks: ERR_INTERRUPTED or OK. `interrupt` may be NULL: always OK.
MUST_USE enum status interrupt_check(const struct interrupt *interrupt, struct err *err);

#endif
