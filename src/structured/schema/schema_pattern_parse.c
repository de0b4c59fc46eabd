/* The syntax of ECMA-262 expressions, with what browsers also allow: a "{" or "]" that stands for
 * itself, a "-" beside a class. */
#include <string.h>

#include "base/text/c_locale.h"
#include "base/text/utf8.h"
#include "structured/schema/schema_pattern.h"
#include "text/regex/regex_set.h"

enum { GROUP_DEPTH_MAX = 100, COUNT_MAX = 1000000 };

static struct pattern_node *parse_choice(struct pattern *pattern);

static struct pattern_node *wrong(struct pattern *pattern, const char *what) {
    if (!pattern->status) {
        pattern->status = err_set(pattern->err, ERR_FORMAT, "%s at byte %zu of an expression", what,
                                  (size_t)(pattern->p - pattern->text));
    }
    return NULL;
}

static struct pattern_node *refuse(struct pattern *pattern, const char *what) {
    if (!pattern->status) {
        pattern->status = err_set(pattern->err, ERR_UNSUPPORTED, "%s in an expression", what);
    }
    return NULL;
}

static struct pattern_node *node_make(struct pattern *pattern, enum pattern_kind kind) {
    struct pattern_node *node = arena_alloc(&pattern->arena, sizeof *node);
    if (!node) {
        if (!pattern->status) pattern->status = err_nomem(pattern->err, "expression");
        return NULL;
    }
    *node = (struct pattern_node){.kind = kind};
    return node;
}

static bool at(const struct pattern *pattern, const char *text) {
    size_t len = strlen(text);
    return (size_t)(pattern->end - pattern->p) >= len && memcmp(pattern->p, text, len) == 0;
}

static char peek(const struct pattern *pattern, size_t ahead) {
    return (size_t)(pattern->end - pattern->p) > ahead ? pattern->p[ahead] : '\0';
}

static uint32_t next_char(struct pattern *pattern) {
    size_t size;
    uint32_t c = utf8_decode((const unsigned char *)pattern->p, &size);
    pattern->p += size;
    return c;
}

// ---- sets ----

static void add_range(struct pattern *pattern, struct regex_ranges *ranges, uint32_t first,
                      uint32_t last) {
    enum status status = regex_ranges_add(ranges, first, last, pattern->err);
    if (status && !pattern->status) pattern->status = status;
}

// \d, \s and \w, and their opposites.
static void add_class(struct pattern *pattern, struct regex_ranges *ranges, char letter) {
    static const struct regex_range spaces[] = {
        {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    static const struct regex_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct regex_range numbers[] = {{'0', '9'}};
    const struct regex_range *list = numbers;
    size_t len = 1;
    char lower = (char)(letter | 0x20);
    if (lower == 's') list = spaces, len = ARRAY_LEN(spaces);
    if (lower == 'w') list = words, len = ARRAY_LEN(words);
    struct regex_ranges part = {0};
    for (size_t i = 0; i < len; i++) add_range(pattern, &part, list[i].first, list[i].last);
    enum status status = OK;
    if (lower != letter) status = regex_ranges_negate(&part, pattern->err);
    if (!status) status = regex_ranges_add_all(ranges, &part, pattern->err);
    if (status && !pattern->status) pattern->status = status;
    regex_ranges_fini(&part);
}

// The short name of a general category, or the name itself.
static const char *short_category(const char *name, size_t *len) {
    static const struct {
        const char *name, *short_name;
    } categories[] = {
        {"Letter", "L"},
        {"Cased_Letter", "LC"},
        {"Uppercase_Letter", "Lu"},
        {"Lowercase_Letter", "Ll"},
        {"Titlecase_Letter", "Lt"},
        {"Modifier_Letter", "Lm"},
        {"Other_Letter", "Lo"},
        {"Mark", "M"},
        {"Combining_Mark", "M"},
        {"Nonspacing_Mark", "Mn"},
        {"Spacing_Mark", "Mc"},
        {"Enclosing_Mark", "Me"},
        {"Number", "N"},
        {"Decimal_Number", "Nd"},
        {"digit", "Nd"},
        {"Letter_Number", "Nl"},
        {"Other_Number", "No"},
        {"Punctuation", "P"},
        {"punct", "P"},
        {"Connector_Punctuation", "Pc"},
        {"Dash_Punctuation", "Pd"},
        {"Open_Punctuation", "Ps"},
        {"Close_Punctuation", "Pe"},
        {"Initial_Punctuation", "Pi"},
        {"Final_Punctuation", "Pf"},
        {"Other_Punctuation", "Po"},
        {"Symbol", "S"},
        {"Math_Symbol", "Sm"},
        {"Currency_Symbol", "Sc"},
        {"Modifier_Symbol", "Sk"},
        {"Other_Symbol", "So"},
        {"Separator", "Z"},
        {"Space_Separator", "Zs"},
        {"Line_Separator", "Zl"},
        {"Paragraph_Separator", "Zp"},
        {"Other", "C"},
        {"Control", "Cc"},
        {"cntrl", "Cc"},
        {"Format", "Cf"},
        {"Private_Use", "Co"},
        {"Unassigned", "Cn"},
    };
    for (size_t i = 0; i < ARRAY_LEN(categories); i++) {
        const char *long_name = categories[i].name;
        if (strlen(long_name) != *len || memcmp(name, long_name, *len) != 0) continue;
        *len = strlen(categories[i].short_name);
        return categories[i].short_name;
    }
    return name;
}

// \p{L}, \p{Lu}, \p{Letter}, \p{Script=Greek}; `p` is behind the letter.
static void add_property(struct pattern *pattern, struct regex_ranges *ranges, bool negated) {
    const char *end =
        at(pattern, "{") ? memchr(pattern->p, '}', (size_t)(pattern->end - pattern->p)) : NULL;
    if (!end) {
        wrong(pattern, "\\p without {name}");
        return;
    }
    const char *name = pattern->p + 1;
    static const char *const prefixes[] = {"Script=", "sc=", "General_Category=", "gc="};
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        size_t len = strlen(prefixes[i]);
        if ((size_t)(end - name) > len && memcmp(name, prefixes[i], len) == 0) name += len;
    }
    struct regex_ranges part = {0};
    bool known = false;
    size_t len = (size_t)(end - name);
    name = short_category(name, &len);
    enum status status = regex_ranges_add_property(&part, name, len, &known, pattern->err);
    if (!known && !status) refuse(pattern, "an unknown \\p{...}");
    regex_ranges_settle(&part);
    if (!status && negated) status = regex_ranges_negate(&part, pattern->err);
    if (!status) status = regex_ranges_add_all(ranges, &part, pattern->err);
    if (status && !pattern->status) pattern->status = status;
    regex_ranges_fini(&part);
    pattern->p = end + 1;
}

static int hex_digit(char c) {
    if (c_locale_is_digit(c)) return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// `count` hexadecimal digits. False, at the old place: there are fewer.
static bool read_hex(struct pattern *pattern, size_t count, uint32_t *value) {
    *value = 0;
    for (size_t i = 0; i < count; i++) {
        int digit = hex_digit(peek(pattern, i));
        if (digit < 0) return false;
        *value = *value * 16 + (uint32_t)digit;
    }
    pattern->p += count;
    return true;
}

// Behind \u: XXXX, a surrogate pair, or {X...}.
static uint32_t read_unicode(struct pattern *pattern) {
    uint32_t c, low;
    if (at(pattern, "{")) {
        size_t len = 1;
        while (hex_digit(peek(pattern, len)) >= 0 && len < 8) len++;
        pattern->p++;
        bool found = len > 1 && peek(pattern, len - 1) == '}' && read_hex(pattern, len - 1, &c);
        if (!found || c > 0x10ffff) {
            wrong(pattern, "\\u{...} without a character");
            return 0;
        }
        pattern->p++;
        return c;
    }
    if (!read_hex(pattern, 4, &c)) {
        wrong(pattern, "\\u without four digits");
        return 0;
    }
    if (c >= 0xd800 && c < 0xdc00 && at(pattern, "\\u")) {
        const char *before = pattern->p;
        pattern->p += 2;
        if (read_hex(pattern, 4, &low) && low >= 0xdc00 && low < 0xe000) {
            return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
        pattern->p = before;
    }
    return c;
}

// Behind a backslash, an escape of one character.
static uint32_t read_escape(struct pattern *pattern) {
    static const char letters[] = "tnvfr0", codes[] = "\t\n\v\f\r";
    if (pattern->p == pattern->end) {
        wrong(pattern, "a lone backslash");
        return 0;
    }
    char c = *pattern->p;
    const char *letter = strchr(letters, c);
    uint32_t value;
    if (letter && c) {
        pattern->p++;
        if (c == '0' && c_locale_is_digit(peek(pattern, 0))) wrong(pattern, "an octal escape");
        return (unsigned char)codes[letter - letters];
    }
    if (c == 'x') {
        pattern->p++;
        if (!read_hex(pattern, 2, &value)) wrong(pattern, "\\x without two digits");
        return value;
    }
    if (c == 'u') {
        pattern->p++;
        return read_unicode(pattern);
    }
    if (c == 'c' && c_locale_is_alpha(peek(pattern, 1))) {
        value = (uint32_t)pattern->p[1] & 31;
        pattern->p += 2;
        return value;
    }
    if (c_locale_is_digit(c)) {
        refuse(pattern, "a backward reference");
        return 0;
    }
    // An unknown letter may mean something in another language.
    if (c_locale_is_alpha(c)) {
        refuse(pattern, "an escape that is not of ECMA-262");
        return 0;
    }
    return next_char(pattern);
}

// An escape of several characters. False, at the old place: it is none.
static bool read_class_escape(struct pattern *pattern, struct regex_ranges *ranges) {
    char c = peek(pattern, 1);
    if (!at(pattern, "\\") || !c || !strchr("dDsSwWpP", c)) return false;
    pattern->p += 2;
    if (c == 'p' || c == 'P') {
        add_property(pattern, ranges, c == 'P');
    } else {
        add_class(pattern, ranges, c);
    }
    return true;
}

static struct pattern_node *make_set(struct pattern *pattern, struct regex_ranges *ranges,
                                     bool negated) {
    struct pattern_node *node = node_make(pattern, PATTERN_SET);
    regex_ranges_settle(ranges);
    if (negated && regex_ranges_negate(ranges, pattern->err)) pattern->status = ERR_NOMEM;
    if (node && !pattern->status) {
        struct expr_char_range *list =
            arena_alloc(&pattern->arena, (ranges->len + 1) * sizeof *list);
        uint32_t words = 0;
        for (size_t i = 0; list && i < ranges->len; i++) {
            list[i] = (struct expr_char_range){ranges->data[i].first, ranges->data[i].last};
        }
        for (uint32_t c = 0; c < 128; c++) {
            bool is_word = c_locale_is_alnum((int)c) || c == '_';
            words += is_word && regex_ranges_have(ranges, c);
        }
        uint64_t size = 0;
        for (size_t i = 0; i < ranges->len; i++) {
            size += ranges->data[i].last - ranges->data[i].first + 1;
        }
        node->has_word = words > 0;
        node->has_other = size > words;
        if (list) node->set = expr_char_set(pattern->exprs, list, ranges->len);
        if (!list) pattern->status = err_nomem(pattern->err, "expression");
    }
    regex_ranges_fini(ranges);
    return pattern->status ? NULL : node;
}

// At "[".
static struct pattern_node *parse_class(struct pattern *pattern) {
    struct regex_ranges ranges = {0};
    pattern->p++;
    bool negated = at(pattern, "^");
    pattern->p += negated;
    while (!at(pattern, "]") && !pattern->status) {
        if (pattern->p == pattern->end) {
            wrong(pattern, "a \"[\" without its \"]\"");
            break;
        }
        if (read_class_escape(pattern, &ranges)) continue;
        bool is_escape = at(pattern, "\\");
        if (is_escape && peek(pattern, 1) == 'b') {
            pattern->p += 2;
            add_range(pattern, &ranges, '\b', '\b');
            continue;
        }
        pattern->p += is_escape;
        uint32_t first = is_escape ? read_escape(pattern) : next_char(pattern), last = first;
        bool is_range = at(pattern, "-") && peek(pattern, 1) != ']' && peek(pattern, 1);
        bool has_class =
            peek(pattern, 1) == '\\' && peek(pattern, 2) && strchr("dDsSwWpP", peek(pattern, 2));
        if (is_range && !has_class) {
            pattern->p++;
            is_escape = at(pattern, "\\");
            pattern->p += is_escape;
            last = is_escape ? read_escape(pattern) : next_char(pattern);
            if (last < first) wrong(pattern, "a range in the wrong order");
        }
        if (!pattern->status) add_range(pattern, &ranges, first, last);
    }
    pattern->p += !pattern->status;
    return make_set(pattern, &ranges, negated);
}

// ---- the rest ----

static struct pattern_node *make_char(struct pattern *pattern, uint32_t c) {
    struct regex_ranges ranges = {0};
    add_range(pattern, &ranges, c, c);
    return make_set(pattern, &ranges, false);
}

static struct pattern_node *parse_dot(struct pattern *pattern) {
    struct regex_ranges ranges = {0};
    pattern->p++;
    add_range(pattern, &ranges, '\n', '\n');
    add_range(pattern, &ranges, '\r', '\r');
    add_range(pattern, &ranges, 0x2028, 0x2029);
    return make_set(pattern, &ranges, true);
}

// At "(".
static struct pattern_node *parse_group(struct pattern *pattern) {
    struct pattern_node *look = NULL;
    pattern->p++;
    if (at(pattern, "?=") || at(pattern, "?!")) {
        look = node_make(pattern, at(pattern, "?=") ? PATTERN_AHEAD : PATTERN_NOT_AHEAD);
        pattern->p += 2;
    } else if (at(pattern, "?:")) {
        pattern->p += 2;
    } else if (at(pattern, "?<=") || at(pattern, "?<!")) {
        look = node_make(pattern, at(pattern, "?<=") ? PATTERN_BEHIND : PATTERN_NOT_BEHIND);
        pattern->p += 3;
    } else if (at(pattern, "?<")) {
        const char *end = memchr(pattern->p, '>', (size_t)(pattern->end - pattern->p));
        if (!end) return wrong(pattern, "a group's name without its end");
        pattern->p = end + 1;
    } else if (at(pattern, "?")) {
        return refuse(pattern, "\"(?\" with an option that is not of ECMA-262");
    }
    struct pattern_node *inside = parse_choice(pattern);
    if (pattern->status) return NULL;
    if (!at(pattern, ")")) return wrong(pattern, "a \"(\" without its \")\"");
    pattern->p++;
    if (!look) return inside;
    look->child = inside;
    return look;
}

static struct pattern_node *parse_atom(struct pattern *pattern) {
    struct regex_ranges ranges = {0};
    char c = *pattern->p;
    if (c == '(') return parse_group(pattern);
    if (c == '[') return parse_class(pattern);
    if (c == '.') return parse_dot(pattern);
    if (c == '^' || c == '$') {
        pattern->p++;
        return node_make(pattern, c == '^' ? PATTERN_START : PATTERN_END);
    }
    if (c == '*' || c == '+' || c == '?') return wrong(pattern, "nothing to repeat");
    if (c != '\\') return make_char(pattern, next_char(pattern));
    char next = peek(pattern, 1);
    if (next == 'b' || next == 'B') {
        pattern->p += 2;
        return node_make(pattern, next == 'b' ? PATTERN_WORD_EDGE : PATTERN_NO_WORD_EDGE);
    }
    if (read_class_escape(pattern, &ranges)) return make_set(pattern, &ranges, false);
    pattern->p++;
    uint32_t escaped = read_escape(pattern);
    return pattern->status ? NULL : make_char(pattern, escaped);
}

static bool read_number(struct pattern *pattern, const char **p, uint32_t *number) {
    const char *start = *p;
    uint64_t value = 0;
    for (; *p < pattern->end && c_locale_is_digit(**p); ++*p) {
        if (value <= COUNT_MAX) value = value * 10 + (uint64_t)(**p - '0');
    }
    *number = value > COUNT_MAX ? COUNT_MAX + 1 : (uint32_t)value;
    return *p > start;
}

// {2}, {2,} or {2,5}. False, at the old place: it is none of these.
static bool read_counts(struct pattern *pattern, uint32_t *min, uint32_t *max) {
    const char *p = pattern->p + 1;
    if (!at(pattern, "{") || !read_number(pattern, &p, min)) return false;
    *max = *min;
    if (p < pattern->end && *p == ',') {
        p++;
        if (!read_number(pattern, &p, max)) *max = EXPR_FOREVER;
    }
    if (p == pattern->end || *p != '}') return false;
    pattern->p = p + 1;
    if (*min > COUNT_MAX || (*max > COUNT_MAX && *max != EXPR_FOREVER)) {
        refuse(pattern, "a repetition of more than 1000000 times");
    } else if (*min > *max) {
        wrong(pattern, "a repetition {n,m} with n > m");
    }
    return true;
}

static struct pattern_node *parse_repeated(struct pattern *pattern) {
    struct pattern_node *node = parse_atom(pattern);
    uint32_t min = 0, max = EXPR_FOREVER;
    if (pattern->status || pattern->p == pattern->end) return node;
    char c = *pattern->p;
    if (c == '*' || c == '+' || c == '?') {
        pattern->p++;
        min = c == '+';
        if (c == '?') max = 1;
    } else if (!read_counts(pattern, &min, &max)) {
        return node;
    }
    if (at(pattern, "?")) pattern->p++; // lazy: the same texts
    if (at(pattern, "+")) return refuse(pattern, "a possessive repetition");
    struct pattern_node *repeat = node_make(pattern, PATTERN_REPEAT);
    if (!repeat) return NULL;
    repeat->child = node;
    repeat->min = min;
    repeat->max = max;
    return repeat;
}

static struct pattern_node *parse_sequence(struct pattern *pattern) {
    struct pattern_node *sequence = node_make(pattern, PATTERN_SEQUENCE);
    struct pattern_node **last = sequence ? &sequence->child : NULL;
    while (last && pattern->p < pattern->end && *pattern->p != '|' && *pattern->p != ')' &&
           !pattern->status) {
        *last = parse_repeated(pattern);
        if (pattern->status || !*last) return NULL;
        last = &(*last)->next;
    }
    return sequence;
}

static struct pattern_node *parse_choice(struct pattern *pattern) {
    if (++pattern->depth > GROUP_DEPTH_MAX) return refuse(pattern, "more than 100 groups in a row");
    struct pattern_node *choice = node_make(pattern, PATTERN_CHOICE);
    struct pattern_node **last = choice ? &choice->child : NULL;
    while (last && !pattern->status) {
        *last = parse_sequence(pattern);
        if (pattern->status || !*last) return NULL;
        last = &(*last)->next;
        if (!at(pattern, "|")) break;
        pattern->p++;
    }
    pattern->depth--;
    return choice;
}

struct pattern_node *pattern_parse(struct pattern *pattern) {
    if (utf8_valid_prefix(pattern->text, (size_t)(pattern->end - pattern->text)) !=
        (size_t)(pattern->end - pattern->text)) {
        return wrong(pattern, "bytes that are not UTF-8");
    }
    struct pattern_node *root = parse_choice(pattern);
    if (!pattern->status && pattern->p < pattern->end) return wrong(pattern, "a \")\" too many");
    return root;
}
