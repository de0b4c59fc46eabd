#include "text/regex/regex_set.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode/unicode_table.h"

void regex_ranges_fini(struct regex_ranges *ranges) {
    free(ranges->data);
    *ranges = (struct regex_ranges){0};
}

static int compare_ranges(const void *a, const void *b) {
    const struct regex_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void regex_ranges_settle(struct regex_ranges *ranges) {
    if (ranges->len < 2) return;
    qsort(ranges->data, ranges->len, sizeof *ranges->data, compare_ranges);
    size_t n = 1;
    for (size_t i = 1; i < ranges->len; i++) {
        struct regex_range *last = &ranges->data[n - 1], next = ranges->data[i];
        if (next.first > last->last + 1) {
            ranges->data[n++] = next;
        } else if (next.last > last->last) {
            last->last = next.last;
        }
    }
    ranges->len = n;
}

// Reserves one more. A full list is settled first, so that repeated ranges take no memory.
static enum status reserve_one(struct regex_ranges *ranges, struct err *err) {
    if (ranges->len < ranges->capacity) return OK;
    regex_ranges_settle(ranges);
    if (ranges->len < ranges->capacity / 2) return OK;
    size_t capacity = ranges->capacity ? ranges->capacity * 2 : 16;
    struct regex_range *data = realloc(ranges->data, capacity * sizeof *data);
    if (!data) return err_nomem(err, "character class");
    ranges->data = data;
    ranges->capacity = capacity;
    return OK;
}

enum status regex_ranges_add(struct regex_ranges *ranges, uint32_t first, uint32_t last,
                             struct err *err) {
    enum status status = reserve_one(ranges, err);
    if (!status) ranges->data[ranges->len++] = (struct regex_range){first, last};
    return status;
}

enum status regex_ranges_add_all(struct regex_ranges *ranges, const struct regex_ranges *other,
                                 struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < other->len && !status; i++) {
        status = regex_ranges_add(ranges, other->data[i].first, other->data[i].last, err);
    }
    return status;
}

enum status regex_ranges_negate(struct regex_ranges *ranges, struct err *err) {
    regex_ranges_settle(ranges);
    struct regex_ranges out = {0};
    uint32_t next = 0;
    enum status status = OK;
    for (size_t i = 0; i < ranges->len && !status; i++) {
        const struct regex_range *range = &ranges->data[i];
        if (range->first > next) status = regex_ranges_add(&out, next, range->first - 1, err);
        next = range->last + 1;
    }
    if (!status && next < UNICODE_END) status = regex_ranges_add(&out, next, UNICODE_END - 1, err);
    regex_ranges_fini(status ? &out : ranges);
    if (!status) *ranges = out;
    return status;
}

enum status regex_ranges_intersect(struct regex_ranges *ranges, const struct regex_ranges *other,
                                   struct err *err) {
    struct regex_ranges out = {0};
    enum status status = OK;
    for (size_t i = 0, k = 0; i < ranges->len && k < other->len && !status;) {
        struct regex_range a = ranges->data[i], b = other->data[k];
        uint32_t first = a.first > b.first ? a.first : b.first;
        uint32_t last = a.last < b.last ? a.last : b.last;
        if (first <= last) status = regex_ranges_add(&out, first, last, err);
        if (a.last < b.last) {
            i++;
        } else {
            k++;
        }
    }
    regex_ranges_fini(status ? &out : ranges);
    if (!status) *ranges = out;
    return status;
}

bool regex_ranges_equal(const struct regex_ranges *a, const struct regex_ranges *b) {
    if (a->len != b->len) return false;
    for (size_t i = 0; i < a->len; i++) {
        if (a->data[i].first != b->data[i].first || a->data[i].last != b->data[i].last) {
            return false;
        }
    }
    return true;
}

bool regex_ranges_have(const struct regex_ranges *ranges, uint32_t c) {
    for (size_t i = 0; i < ranges->len && ranges->data[i].first <= c; i++) {
        if (c <= ranges->data[i].last) return true;
    }
    return false;
}

// A property's name in lower case, without "_", "-" and spaces.
struct property_name {
    char text[32]; // [len]; longer names are cut, which no property's name is
    size_t len;
};

static struct property_name property_name(const char *name, size_t len) {
    struct property_name out = {0};
    for (size_t i = 0; i < len && out.len < sizeof out.text; i++) {
        if (strchr("_- ", name[i])) continue;
        out.text[out.len++] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] | 0x20 : name[i]);
    }
    return out;
}

static bool name_is(const struct property_name *name, const char *other) {
    struct property_name plain = property_name(other, strlen(other));
    return name->len == plain.len && memcmp(name->text, plain.text, plain.len) == 0;
}

// Whether a category such as "Lu" is meant by the name: "Lu" itself, "L", or "LC" for cased
// letters.
static bool category_has(const char *category, const struct property_name *name) {
    const char *text = name->text;
    if (text[0] != (category[0] | 0x20)) return false;
    if (name->len == 1) return true;
    if (name->len != 2) return false;
    bool is_cased = text[0] == 'l' && text[1] == 'c' && strchr("ult", category[1]);
    return text[1] == category[1] || is_cased;
}

static enum status add_category(struct regex_ranges *ranges, const struct property_name *name,
                                bool *known, struct err *err) {
    bool unassigned = name_is(name, "C") || name_is(name, "Cn");
    *known = unassigned;
    struct regex_ranges assigned = {0};
    enum status status = OK;
    for (size_t i = 0; i < unicode_num_categories && !status; i++) {
        const struct unicode_category_range *range = &unicode_categories[i];
        if (category_has(range->name, name)) {
            status = regex_ranges_add(ranges, range->first, range->last, err);
            *known = true;
        }
        if (unassigned && !status) {
            status = regex_ranges_add(&assigned, range->first, range->last, err);
        }
    }
    if (unassigned && !status) status = regex_ranges_negate(&assigned, err);
    if (unassigned && !status) status = regex_ranges_add_all(ranges, &assigned, err);
    regex_ranges_fini(&assigned);
    return status;
}

enum status regex_ranges_add_property(struct regex_ranges *ranges, const char *text, size_t len,
                                      bool *known, struct err *err) {
    struct property_name name = property_name(text, len);
    enum status status = add_category(ranges, &name, known, err);
    for (size_t i = 0; i < unicode_num_script_names && !*known && !status; i++) {
        const struct unicode_script_name *script = &unicode_script_names[i];
        if (!name_is(&name, script->code) && !name_is(&name, script->name)) continue;
        *known = true;
        for (size_t k = 0; k < unicode_num_scripts && !status; k++) {
            const struct unicode_script_range *range = &unicode_scripts[k];
            if (range->script != i) continue;
            status = regex_ranges_add(ranges, range->first, range->last, err);
        }
    }
    return status;
}

enum status regex_ranges_add_escape(struct regex_ranges *ranges, char letter, struct err *err) {
    static const char *const word_categories[] = {"L", "M", "Nd", "Nl", "Pc"};
    // Digits and letters of other categories that Oniguruma has in \w.
    static const struct regex_range others[] = {
        {0xb2, 0xb3},       {0xb9, 0xb9},       {0xbc, 0xbe},      {0x24b6, 0x24e9},
        {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
    static const struct regex_range hexadecimal[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    static const struct regex_range spaces[] = {
        {0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
        {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
    bool known;
    if (letter == 'd') return regex_ranges_add_property(ranges, "Nd", 2, &known, err);
    const struct regex_range *list = letter == 's' ? spaces : letter == 'h' ? hexadecimal : others;
    size_t len = letter == 's'   ? ARRAY_LEN(spaces)
                 : letter == 'h' ? ARRAY_LEN(hexadecimal)
                                 : ARRAY_LEN(others);
    enum status status = OK;
    for (size_t i = 0; i < len && !status; i++) {
        status = regex_ranges_add(ranges, list[i].first, list[i].last, err);
    }
    for (size_t i = 0; letter == 'w' && i < ARRAY_LEN(word_categories) && !status; i++) {
        const char *name = word_categories[i];
        status = regex_ranges_add_property(ranges, name, strlen(name), &known, err);
    }
    return status;
}

// Sets the bits of one page. *next is the first range that may reach into it; it only moves
// forward.
static void fill_page(const struct regex_ranges *ranges, size_t *next, uint32_t page,
                      uint64_t bits[4]) {
    uint32_t begin = page << 8, end = begin + 255;
    memset(bits, 0, 4 * sizeof *bits);
    while (*next < ranges->len && ranges->data[*next].last < begin) ++*next;
    for (size_t i = *next; i < ranges->len && ranges->data[i].first <= end; i++) {
        uint32_t first = ranges->data[i].first > begin ? ranges->data[i].first : begin;
        uint32_t last = ranges->data[i].last < end ? ranges->data[i].last : end;
        for (uint32_t c = first; c <= last; c++) {
            bits[(c & 255) >> 6] |= (uint64_t)1 << (c & 63);
        }
    }
}

// Most pages are all ones or all zeros: equal pages are stored once.
enum status regex_set_init(struct regex_set *set, const struct regex_ranges *ranges,
                           struct err *err) {
    *set = (struct regex_set){0};
    size_t capacity = 0, next = 0;
    for (uint32_t page = 0; page < ARRAY_LEN(set->page_of); page++) {
        uint64_t bits[4];
        fill_page(ranges, &next, page, bits);
        size_t i = set->num_pages; // search from the newest: equal pages are often neighbours
        while (i > 0 && memcmp(set->pages[i - 1], bits, sizeof bits) != 0) i--;
        if (i == 0) {
            if (set->num_pages == capacity) {
                capacity = capacity ? capacity * 2 : 16;
                uint64_t(*pages)[4] = realloc(set->pages, capacity * sizeof *pages);
                if (!pages) {
                    regex_set_fini(set);
                    return err_nomem(err, "character class");
                }
                set->pages = pages;
            }
            memcpy(set->pages[set->num_pages++], bits, sizeof bits);
            i = set->num_pages;
        }
        set->page_of[page] = (uint16_t)(i - 1);
    }
    memcpy(set->ascii, set->pages[set->page_of[0]], sizeof set->ascii);
    return OK;
}

void regex_set_fini(struct regex_set *set) {
    free(set->pages);
    *set = (struct regex_set){0};
}
