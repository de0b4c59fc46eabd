/* Numbers as the library's parts ask for them. */
#ifndef TEXT_TEMPLATE_NUMBERS_H
#define TEXT_TEMPLATE_NUMBERS_H

#include "text/template/run.h"

// bool, int and float as a double; false: no number.
bool number_of(struct value value, double *out);
// int(number); what 64 bits do not hold, infinity and NaN are errors.
MUST_USE enum status number_truncate(struct run *run, double number, int64_t *out);

#endif
