#include "base/thread/interrupt.h"

#include <stddef.h>

enum status interrupt_check(const struct interrupt *interrupt, struct err *err) {
    if (!interrupt || !interrupt->is_wanted || !interrupt->is_wanted(interrupt->user_data)) {
        return OK;
    }
    return err_set(err, ERR_INTERRUPTED, "interrupted by the caller");
}
