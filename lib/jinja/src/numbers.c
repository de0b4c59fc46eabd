// Conversions between the number types.
#include "jinja/src/numbers.h"

#include <math.h>

bool number_of(struct value value, double *out) {
    if (value.type == VALUE_BOOL)
        *out = value.boolean;
    else if (value.type == VALUE_INT)
        *out = (double)value.integer;
    else if (value.type == VALUE_FLOAT)
        *out = value.number;
    else
        return false;
    return true;
}

enum status number_truncate(struct run *run, double number, int64_t *out) {
    if (isnan(number)) return run_fail(run, "cannot convert float NaN to integer");
    if (isinf(number)) return run_fail(run, "cannot convert float infinity to integer");
    // 2^63 as a double; -2^63 itself fits.
    if (number >= 9223372036854775808.0 || number < -9223372036854775808.0)
        return run_fail(run, "integer result is too large");
    *out = (int64_t)number;
    return OK;
}
