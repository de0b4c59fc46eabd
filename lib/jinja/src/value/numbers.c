// Conversions between the number types.
#include "jinja/src/value/numbers.h"

#include <math.h>

bool jinja_number_of(struct jinja_value value, double *out) {
    if (value.type == JINJA_BOOL)
        *out = value.boolean;
    else if (value.type == JINJA_INT)
        *out = (double)value.integer;
    else if (value.type == JINJA_FLOAT)
        *out = value.number;
    else
        return false;
    return true;
}

enum status jinja_number_truncate(struct jinja_run *run, double number, int64_t *out) {
    if (isnan(number)) return jinja_run_fail(run, "cannot convert float NaN to integer");
    if (isinf(number)) return jinja_run_fail(run, "cannot convert float infinity to integer");
    // 2^63 as a double; -2^63 itself fits.
    if (number >= 9223372036854775808.0 || number < -9223372036854775808.0)
        return jinja_run_fail(run, "integer result is too large");
    *out = (int64_t)number;
    return OK;
}
