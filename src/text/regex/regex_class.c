/* Classes of characters and escapes. In Oniguruma a class may contain classes, && binds weaker than
 * the union on its two sides, and ^ negates the whole class. */
#include <string.h>

#include "base/text/c_locale.h"
#include "text/regex/regex_parts.h"
#include "text/unicode/unicode_table.h"

enum status regex_refuse(const struct regex_parser *parser, const char *detail, size_t len) {
    return err_set(parser->err, ERR_UNSUPPORTED,
                   "%s: the pattern %.160s uses \"%.*s\", which is not supported", parser->what,
                   parser->source, (int)(len < 40 ? len : 40), detail);
}

enum status regex_wrong(const struct regex_parser *parser, const char *why) {
    return err_set(parser->err, ERR_FORMAT, "%s: the pattern %.160s is not valid: %s", parser->what,
                   parser->source, why);
}

// \p{...} at the 'p'.
static enum status parse_property(struct regex_parser *parser, struct regex_ranges *out,
                                  bool *negated) {
    const char *begin = parser->p, *name = begin + 1;
    *negated = *begin == 'P';
    if (*name != '{') return regex_refuse(parser, begin, 1);
    name++;
    if (*name == '^') {
        *negated = !*negated;
        name++;
    }
    size_t len = strcspn(name, "}");
    if (name[len] != '}') return regex_wrong(parser, "a property's name has no end");
    bool known;
    enum status status = regex_ranges_add_property(out, name, len, &known, parser->err);
    if (status) return status;
    parser->p = name + len + 1;
    return known ? OK : regex_refuse(parser, begin, (size_t)(parser->p - begin));
}

enum status regex_parse_set_escape(struct regex_parser *parser, struct regex_ranges *out,
                                   bool *is_set) {
    char c = *parser->p;
    *is_set = c && strchr("dhswpDHSWP", c);
    if (!*is_set) return OK;
    struct regex_ranges ranges = {0};
    bool negated = (c >= 'A' && c <= 'Z');
    enum status status;
    if (c == 'p' || c == 'P') {
        status = parse_property(parser, &ranges, &negated);
    } else {
        status = regex_ranges_add_escape(&ranges, (char)(c | 0x20), parser->err);
        parser->p++;
    }
    if (!status && negated) status = regex_ranges_negate(&ranges, parser->err);
    if (!status) status = regex_ranges_add_all(out, &ranges, parser->err);
    regex_ranges_fini(&ranges);
    return status;
}

// \xHH, \x{H...} and \uHHHH at the 'x' or 'u'.
static enum status parse_code_point(struct regex_parser *parser, uint32_t *c) {
    const char *p = parser->p;
    bool braces = p[0] == 'x' && p[1] == '{';
    const char *digits = p + (braces ? 2 : 1);
    size_t len = strspn(digits, "0123456789abcdefABCDEF");
    size_t want = p[0] == 'u' ? 4 : 2;
    if (!braces && len > want) len = want;
    if (braces ? len == 0 || len > 6 || digits[len] != '}' : len != want) {
        return regex_refuse(parser, p, 1);
    }
    *c = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char digit = (unsigned char)digits[i];
        *c = *c * 16 +
             (uint32_t)(c_locale_is_digit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    // In Oniguruma \x80 and above is a byte of UTF-8, not a character.
    if (!braces && want == 2 && *c > 0x7f) return regex_refuse(parser, p, 3);
    if (*c >= UNICODE_END || (*c >= 0xd800 && *c < 0xe000)) {
        return regex_wrong(parser, "a code point that is not a character");
    }
    parser->p = digits + len + (braces ? 1 : 0);
    return OK;
}

enum status regex_parse_char_escape(struct regex_parser *parser, uint32_t *c) {
    static const char letters[] = "vnrtfae", values[] = "\v\n\r\t\f\a\x1b";
    char letter = *parser->p;
    if (letter == 'x' || letter == 'u') return parse_code_point(parser, c);
    const char *at = letter ? strchr(letters, letter) : NULL;
    // An escaped punctuation sign stands for itself.
    if (!letter || (!at && c_locale_is_alnum(letter))) {
        return regex_refuse(parser, parser->p - 1, letter ? 2 : 1);
    }
    size_t size = 1;
    *c = at ? (unsigned char)values[at - letters]
            : utf8_decode((const unsigned char *)parser->p, &size);
    parser->p += size;
    return OK;
}

// Whether a character of the range may match other text under (?i). There is no table of cases
// here, so this is true for every category that has such characters, or parts of their case forms
// ("a" and U+02BE).
static bool may_have_cases(const struct regex_range *range) {
    static const char *const categories[] = {"Lu", "Ll", "Lt", "Lm", "Mn", "Mc", "Me", "Nl", "So"};
    for (size_t i = 0; i < unicode_num_categories; i++) {
        const struct unicode_category_range *category = &unicode_categories[i];
        if (category->first > range->last) break;
        if (category->last < range->first || category->last < 0x80) continue;
        for (size_t k = 0; k < ARRAY_LEN(categories); k++) {
            if (strcmp(category->name, categories[k]) == 0) return true;
        }
    }
    return false;
}

enum status regex_fold(const struct regex_parser *parser, struct regex_ranges *ranges) {
    enum { LONG_S = 0x17f, KELVIN = 0x212a };
    static const char refused[] = "a letter beyond ASCII under (?i)";
    regex_ranges_settle(ranges);
    for (size_t i = 0; i < ranges->len; i++) {
        if (may_have_cases(&ranges->data[i])) {
            return regex_refuse(parser, refused, sizeof refused - 1);
        }
    }
    struct regex_ranges others = {0};
    enum status status = OK;
    for (uint32_t small = 'a'; small <= 'z' && !status; small++) {
        uint32_t capital = small - ('a' - 'A');
        if (!regex_ranges_have(ranges, small) && !regex_ranges_have(ranges, capital)) continue;
        status = regex_ranges_add(&others, small, small, parser->err);
        if (!status) status = regex_ranges_add(&others, capital, capital, parser->err);
        uint32_t third = small == 's' ? LONG_S : small == 'k' ? KELVIN : small;
        if (!status) status = regex_ranges_add(&others, third, third, parser->err);
    }
    if (!status) status = regex_ranges_add_all(ranges, &others, parser->err);
    regex_ranges_settle(ranges);
    regex_ranges_fini(&others);
    return status;
}

// One character of a class, or the beginning of a range.
static enum status parse_class_char(struct regex_parser *parser, uint32_t *c) {
    if (*parser->p != '\\') {
        size_t size;
        *c = utf8_decode((const unsigned char *)parser->p, &size);
        parser->p += size;
        return OK;
    }
    parser->p++;
    if (*parser->p == 'b') { // in a class \b is a backspace
        parser->p++;
        *c = '\b';
        return OK;
    }
    return regex_parse_char_escape(parser, c);
}

// "a" or "a-z"; a "-" before the closing bracket or && stands for itself.
static enum status parse_class_range(struct regex_parser *parser, struct regex_ranges *out) {
    uint32_t first = 0;
    enum status status = parse_class_char(parser, &first);
    if (status) return status;
    uint32_t last = first;
    bool is_range = parser->p[0] == '-' && parser->p[1] && parser->p[1] != ']' &&
                    !(parser->p[1] == '&' && parser->p[2] == '&');
    if (is_range) {
        parser->p++;
        bool is_set = parser->p[0] == '[' ||
                      (parser->p[0] == '\\' && parser->p[1] && strchr("dhswpDHSWP", parser->p[1]));
        if (is_set) return regex_wrong(parser, "a range that ends in a class");
        status = parse_class_char(parser, &last);
        if (status) return status;
        if (last < first) return regex_wrong(parser, "a range from a higher to a lower character");
    }
    return regex_ranges_add(out, first, last, parser->err);
}

// One operand of &&, or the whole class: up to && or the closing bracket.
static enum status parse_class_part(struct regex_parser *parser, struct regex_ranges *out) {
    enum status status = OK;
    while (!status && *parser->p != ']' && !(parser->p[0] == '&' && parser->p[1] == '&')) {
        const char *p = parser->p;
        bool is_set = false;
        if (*p == '\0') return regex_wrong(parser, "a \"[\" without its \"]\"");
        if (*p == '[' && p[1] == ':') return regex_refuse(parser, p, strcspn(p, "]") + 1);
        if (*p == '[') {
            struct regex_ranges inner = {0};
            status = regex_parse_class(parser, &inner);
            if (!status) status = regex_ranges_add_all(out, &inner, parser->err);
            regex_ranges_fini(&inner);
            continue;
        }
        if (*p == '\\') {
            parser->p++;
            status = regex_parse_set_escape(parser, out, &is_set);
            if (!is_set) parser->p = p;
            if (is_set && !status && parser->p[0] == '-' && parser->p[1] != ']') {
                return regex_wrong(parser, "a range that begins with a class");
            }
        }
        if (!is_set) status = parse_class_range(parser, out);
    }
    return status;
}

enum status regex_parse_class(struct regex_parser *parser, struct regex_ranges *out) {
    if (++parser->depth > REGEX_DEPTH_MAX) return regex_refuse(parser, "[[[...", 6);
    parser->p++;
    bool negated = *parser->p == '^';
    if (negated) parser->p++;
    if (*parser->p == ']') return regex_refuse(parser, "[]", 2);
    struct regex_ranges part = {0};
    enum status status = parse_class_part(parser, out);
    if (!status && parser->ignore_case) status = regex_fold(parser, out);
    regex_ranges_settle(out);
    while (!status && *parser->p == '&') {
        parser->p += 2;
        regex_ranges_fini(&part);
        status = parse_class_part(parser, &part);
        if (!status && parser->ignore_case) status = regex_fold(parser, &part);
        regex_ranges_settle(&part);
        if (!status) status = regex_ranges_intersect(out, &part, parser->err);
    }
    regex_ranges_fini(&part);
    if (status) return status;
    parser->p++;
    parser->depth--;
    return negated ? regex_ranges_negate(out, parser->err) : OK;
}
