/* Character properties as ranges. The data is generated, all from one version of Unicode
 * (unicode.h). unicode_flags_create expands the first table to one byte per character. regex_set.c
 * makes the character classes of regular expressions from the other tables. */
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

struct unicode_category_range {
    uint32_t first, last; // code points, inclusive
    char name[3]; // "Lu"
};

// [unicode_num_categories], ascending; characters in no range are Cn or Cs
extern const struct unicode_category_range unicode_categories[];
extern const size_t unicode_num_categories;

struct unicode_script_range {
    uint32_t first, last; // code points, inclusive
    uint16_t script; // index into unicode_script_names
};
struct unicode_script_name {
    const char *code, *name; // "Cans", "Canadian_Aboriginal"
};

extern const struct unicode_script_range unicode_scripts[]; // [unicode_num_scripts], ascending
extern const size_t unicode_num_scripts;
extern const struct unicode_script_name unicode_script_names[]; // [unicode_num_script_names]
extern const size_t unicode_num_script_names;

#endif
