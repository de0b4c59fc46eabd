/* Numbers as text for both kinds of formatting, % and format(): the digits first, signs and padding
 * by whoever asked. */
#ifndef TEXT_TEMPLATE_FORMAT_NUMBER_H
#define TEXT_TEMPLATE_FORMAT_NUMBER_H

#include "text/template/run.h"

// The digits of a magnitude in a base of 2, 8, 10 or 16; `out` is [64], returns their number.
size_t format_digits(uint64_t magnitude, unsigned base, bool upper, char *out);

struct float_style {
    char type; // one of e E f F g G; 'r': as repr; 'd': as g but with ".0" where there is no point
    int64_t precision; // at least 0; of r without meaning
    bool keeps_point; // '#': a point always, and g's zeros
};
// |number| appended: "1.50", "1e+16", "inf", "nan".
MUST_USE enum status format_float(struct run *run, double number, const struct float_style *style,
                                  struct text *text);

#endif
