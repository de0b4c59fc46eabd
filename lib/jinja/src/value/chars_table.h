/* The data behind chars.c. */
#ifndef JINJA_CHARS_TABLE_H
#define JINJA_CHARS_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct jinja_char_range {
    uint32_t first, last; // inclusive
};

struct jinja_char_special {
    uint32_t code_point;
    uint32_t upper[3], title[3]; // zero-terminated unless full
};

// Each ascending.
extern const struct jinja_char_range jinja_chars_other_lower[], jinja_chars_other_upper[];
extern const struct jinja_char_range jinja_chars_digit[];
extern const size_t jinja_chars_digit_len;
extern const size_t jinja_chars_other_lower_len, jinja_chars_other_upper_len;
extern const struct jinja_char_special jinja_chars_special[];
extern const size_t jinja_chars_special_len;

#endif
