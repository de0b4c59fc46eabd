/* Character properties as ranges; the data is generated. unicode_flags_create spreads it into one
 * byte per character. */
#ifndef TEXT_UNICODE_TABLE_H
#define TEXT_UNICODE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct unicode_range {
    uint32_t first, last; // code points, inclusive
    uint8_t flags; // UNICODE_LETTER, ... of unicode.h
};

extern const struct unicode_range unicode_ranges[]; // [unicode_num_ranges], ascending
extern const size_t unicode_num_ranges;

#endif
