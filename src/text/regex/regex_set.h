/* Sets of characters. While a class of a regular expression is parsed, a set is a list of ranges
 * (regex_ranges). For matching it becomes a bitmap in pages (regex_set): two lookups per character.
 * Properties are those of unicode_table.h. */
#ifndef TEXT_REGEX_SET_H
#define TEXT_REGEX_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/unicode/unicode.h"

struct regex_range {
    uint32_t first, last; // code points, inclusive
};

// In any order until regex_ranges_settle. All-zero is empty.
struct regex_ranges {
    struct regex_range *data; // [len]
    size_t len, capacity;
};
void regex_ranges_fini(struct regex_ranges *ranges);

MUST_USE enum status regex_ranges_add(struct regex_ranges *ranges, uint32_t first, uint32_t last,
                                      struct err *err);
MUST_USE enum status regex_ranges_add_all(struct regex_ranges *ranges,
                                          const struct regex_ranges *other, struct err *err);
// Adds the characters of a general category ("Lu", "L") or a script ("Han", "Hani"). Case, "_", "-"
// and spaces in `name` [len] do not matter. *known = false: no property has this name.
MUST_USE enum status regex_ranges_add_property(struct regex_ranges *ranges, const char *name,
                                               size_t len, bool *known, struct err *err);
// Adds the characters of Oniguruma's \d, \h, \s or \w.
MUST_USE enum status regex_ranges_add_escape(struct regex_ranges *ranges, char letter,
                                             struct err *err);

// Sorts the ranges and joins those that touch. The functions below need settled ranges and keep
// them settled.
void regex_ranges_settle(struct regex_ranges *ranges);
MUST_USE enum status regex_ranges_negate(struct regex_ranges *ranges, struct err *err);
MUST_USE enum status regex_ranges_intersect(struct regex_ranges *ranges,
                                            const struct regex_ranges *other, struct err *err);
bool regex_ranges_equal(const struct regex_ranges *a, const struct regex_ranges *b);
bool regex_ranges_have(const struct regex_ranges *ranges, uint32_t c);

struct regex_set {
    uint64_t ascii[2]; // bit c
    uint16_t page_of[UNICODE_END >> 8]; // index into pages
    uint64_t (*pages)[4]; // [num_pages], bit c & 255
    size_t num_pages;
};

MUST_USE enum status regex_set_init(struct regex_set *set, const struct regex_ranges *ranges,
                                    struct err *err);
void regex_set_fini(struct regex_set *set); // all-zero is fine

static inline bool regex_set_has(const struct regex_set *set, uint32_t c) {
    if (c < 0x80) return set->ascii[c >> 6] >> (c & 63) & 1;
    return set->pages[set->page_of[c >> 8]][(c & 255) >> 6] >> (c & 63) & 1;
}

#endif
