/* Numbers as text for both kinds of formatting, % and format(): the digits first, signs and padding
 * by whoever asked. */
#ifndef JINJA_FORMAT_NUMBER_H
#define JINJA_FORMAT_NUMBER_H

#include "jinja/src/run/run.h"

// The digits of a magnitude in a base of 2, 8, 10 or 16; `out` is [64], returns their number.
size_t jinja_format_digits(uint64_t magnitude, unsigned base, bool upper, char *out);

// chr(c): the bytes of a character to `out` [4], their number to *len.
MUST_USE enum status jinja_format_character(struct jinja_run *run, int64_t c, char *out,
                                            size_t *len);

struct jinja_float_style {
    char type; // one of e E f F g G; 'r': as repr; 'd': as g but with ".0" where there is no point
    int64_t precision; // at least 0; of r without meaning
    bool keeps_point; // '#': a point always, and g's zeros
};
// |number| appended: "1.50", "1e+16", "inf", "nan".
MUST_USE enum status jinja_format_float(struct jinja_run *run, double number,
                                        const struct jinja_float_style *style,
                                        struct jinja_text *text);

#endif
