/* The data behind chars.c. */
#ifndef JINJA_CHARS_TABLE_H
#define JINJA_CHARS_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct char_range {
    uint32_t first, last; // inclusive
};

struct char_special {
    uint32_t code_point;
    uint32_t upper[3], title[3]; // zero-terminated unless full
};

// Each ascending.
extern const struct char_range chars_other_lower[], chars_other_upper[];
extern const size_t chars_other_lower_len, chars_other_upper_len;
extern const struct char_special chars_special[];
extern const size_t chars_special_len;

#endif
