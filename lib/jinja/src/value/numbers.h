/* Numbers as the library's parts ask for them. */
#ifndef JINJA_NUMBERS_H
#define JINJA_NUMBERS_H

#include "jinja/src/run/run.h"

// bool, int and float as a double; false: no number.
bool jinja_number_of(struct jinja_value value, double *out);
// int(number); what 64 bits do not hold, infinity and NaN are errors.
MUST_USE enum status jinja_number_truncate(struct jinja_run *run, double number, int64_t *out);

#endif
