// Classes and case mappings of characters: utf8proc's data and the tables of chars_table.c.
#include "jinja/src/value/chars.h"

#include <utf8proc.h>

#include "jinja/src/value/chars_table.h"

static bool in_ranges(const struct jinja_char_range *ranges, size_t num_ranges, uint32_t c) {
    size_t low = 0, high = num_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < num_ranges && c >= ranges[low].first;
}

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}

bool jinja_char_is_space(uint32_t c) {
    if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool jinja_char_is_line_end(uint32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

bool jinja_char_is_lower(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z';
    return category(c) == UTF8PROC_CATEGORY_LL ||
           in_ranges(jinja_chars_other_lower, jinja_chars_other_lower_len, c);
}

bool jinja_char_is_upper(uint32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z';
    return category(c) == UTF8PROC_CATEGORY_LU ||
           in_ranges(jinja_chars_other_upper, jinja_chars_other_upper_len, c);
}

bool jinja_char_is_title(uint32_t c) {
    return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT;
}

bool jinja_char_is_cased(uint32_t c) {
    return jinja_char_is_lower(c) || jinja_char_is_upper(c) || jinja_char_is_title(c);
}

bool jinja_char_is_case_ignorable(uint32_t c) {
    // Word_Break MidLetter, MidNumLet and Single_Quote; then categories.
    static const uint16_t marks[] = {0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,
                                     0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                     0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (c == marks[i]) return true;
    }
    switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

static bool is_alpha(uint32_t c) {
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    utf8proc_category_t cat = category(c);
    return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool jinja_char_is_decimal(uint32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool jinja_char_is_digit(uint32_t c) {
    return jinja_char_is_decimal(c) ||
           (c >= 0x80 && in_ranges(jinja_chars_digit, jinja_chars_digit_len, c));
}

bool jinja_char_is_alnum(uint32_t c) {
    if (c < 0x80) return is_alpha(c) || jinja_char_is_decimal(c);
    utf8proc_category_t cat = category(c);
    return is_alpha(c) || (cat >= UTF8PROC_CATEGORY_ND && cat <= UTF8PROC_CATEGORY_NO);
}

bool jinja_char_is_printable(uint32_t c) {
    if (c < 0x80) return c >= 0x20 && c < 0x7f;
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool jinja_char_is_identifier(uint32_t c, bool is_first) {
    if (c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL) return true;
    if (is_first) return false;
    switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

static const struct jinja_char_special *special(uint32_t c) {
    if (c < 0x80) return NULL;
    size_t low = 0, high = jinja_chars_special_len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (jinja_chars_special[middle].code_point < c)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < jinja_chars_special_len && jinja_chars_special[low].code_point == c;
    return found ? &jinja_chars_special[low] : NULL;
}

static size_t copy_mapping(const uint32_t mapping[3], uint32_t out[JINJA_CHAR_CASE_MAX]) {
    size_t len = 0;
    while (len < 3 && mapping[len]) {
        out[len] = mapping[len];
        len++;
    }
    return len;
}

size_t jinja_char_to_upper(uint32_t c, uint32_t out[JINJA_CHAR_CASE_MAX]) {
    const struct jinja_char_special *found = special(c);
    if (found) return copy_mapping(found->upper, out);
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
    return 1;
}

size_t jinja_char_to_lower(uint32_t c, uint32_t out[JINJA_CHAR_CASE_MAX]) {
    if (c == 0x130) { // the only one: a capital I with a dot
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

size_t jinja_char_to_title(uint32_t c, uint32_t out[JINJA_CHAR_CASE_MAX]) {
    const struct jinja_char_special *found = special(c);
    if (found) return copy_mapping(found->title, out);
    out[0] = (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
    return 1;
}

size_t jinja_char_to_folded(uint32_t c, uint32_t out[JINJA_CHAR_CASE_MAX]) {
    utf8proc_int32_t folded[JINJA_CHAR_CASE_MAX];
    int last_boundclass = 0;
    utf8proc_ssize_t len = utf8proc_decompose_char((utf8proc_int32_t)c, folded, JINJA_CHAR_CASE_MAX,
                                                   UTF8PROC_CASEFOLD, &last_boundclass);
    if (len < 1 || len > JINJA_CHAR_CASE_MAX) {
        out[0] = c;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < len; i++) out[i] = (uint32_t)folded[i];
    return (size_t)len;
}
