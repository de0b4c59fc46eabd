#include "structured/read/gbnf.h"

#include <stdlib.h>
#include <string.h>

#include "base/os/map.h"
#include "base/text/buf.h"
#include "base/text/c_locale.h"
#include "base/text/utf8.h"
#include "text/regex/regex_set.h"

enum { DEPTH_MAX = 100, COUNT_MAX = 100000000 };

struct gbnf {
    struct grammar *grammar;
    struct exprs *exprs;
    const char *text, *p, *end;
    struct strmap rules; // name -> rule
    uint32_t *items; // [num_items], a stack of lists
    size_t num_items, capacity;
    size_t depth;
    struct err *err;
};

static enum status wrong(const struct gbnf *gbnf, const char *at, const char *what) {
    size_t line = 1, column = 1;
    for (const char *p = gbnf->text; p < at; p++, column++) {
        if (*p != '\n') continue;
        line++;
        column = 0;
    }
    return err_set(gbnf->err, ERR_FORMAT, "line %zu, column %zu of the grammar: %s", line, column,
                   what);
}

static bool is_name_char(char c) {
    return c_locale_is_alnum(c) || c == '-' || c == '_';
}

static void skip_space(struct gbnf *gbnf) {
    for (; gbnf->p < gbnf->end; gbnf->p++) {
        char c = *gbnf->p;
        if (c == '#') {
            while (gbnf->p < gbnf->end && *gbnf->p != '\n') gbnf->p++;
            if (gbnf->p == gbnf->end) return;
        } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            return;
        }
    }
}

static bool at(const struct gbnf *gbnf, const char *text) {
    size_t len = strlen(text);
    return (size_t)(gbnf->end - gbnf->p) >= len && memcmp(gbnf->p, text, len) == 0;
}

// Bytes of the name at `p`, and whether "::=" follows it.
static size_t name_len(const struct gbnf *gbnf, bool *defines) {
    size_t len = 0, left = (size_t)(gbnf->end - gbnf->p);
    while (len < left && is_name_char(gbnf->p[len])) len++;
    struct gbnf after = *gbnf;
    after.p += len;
    skip_space(&after);
    *defines = len > 0 && at(&after, "::=");
    return len;
}

static enum status find_rule(struct gbnf *gbnf, const char *name, size_t len, uint32_t *rule) {
    if (strmap_get(&gbnf->rules, name, len, rule)) return OK;
    char *copy = strndup(name, len);
    if (!copy) return err_nomem(gbnf->err, "grammar");
    *rule = grammar_rule(gbnf->grammar, copy);
    free(copy);
    return strmap_put(&gbnf->rules, name, len, *rule, NULL, gbnf->err);
}

static enum status push(struct gbnf *gbnf, uint32_t item) {
    if (gbnf->num_items == gbnf->capacity) {
        size_t capacity = gbnf->capacity ? gbnf->capacity * 2 : 64;
        uint32_t *items = realloc(gbnf->items, capacity * sizeof *items);
        if (!items) return err_nomem(gbnf->err, "grammar");
        gbnf->items = items;
        gbnf->capacity = capacity;
    }
    gbnf->items[gbnf->num_items++] = item;
    return OK;
}

// ---- characters ----

static enum status read_hex(struct gbnf *gbnf, size_t num_digits, uint32_t *c) {
    const char *begin = gbnf->p - 2;
    *c = 0;
    for (size_t i = 0; i < num_digits; i++, gbnf->p++) {
        char digit = gbnf->p < gbnf->end ? *gbnf->p : 'x';
        char letter = (char)(digit | 0x20);
        if (c_locale_is_digit(digit)) {
            *c = *c << 4 | (uint32_t)(digit - '0');
        } else if (letter >= 'a' && letter <= 'f') {
            *c = *c << 4 | (uint32_t)(letter - 'a' + 10);
        } else {
            return wrong(gbnf, begin, "an escape has too few hexadecimal digits");
        }
    }
    if (*c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000)) {
        return wrong(gbnf, begin, "an escape is no character");
    }
    return OK;
}

// One character of a string or class, maybe escaped.
static enum status read_char(struct gbnf *gbnf, uint32_t *c) {
    if (*gbnf->p != '\\') {
        size_t size;
        *c = utf8_decode((const unsigned char *)gbnf->p, &size);
        gbnf->p += size;
        return OK;
    }
    char letter = gbnf->p + 1 < gbnf->end ? gbnf->p[1] : '\0';
    gbnf->p += 2;
    if (letter == 'x') return read_hex(gbnf, 2, c);
    if (letter == 'u') return read_hex(gbnf, 4, c);
    if (letter == 'U') return read_hex(gbnf, 8, c);
    *c = letter == 'n' ? '\n' : letter == 'r' ? '\r' : letter == 't' ? '\t' : (unsigned char)letter;
    bool punctuation = letter > ' ' && (unsigned char)letter < 0x7f && !c_locale_is_alnum(letter);
    if (*c == (unsigned char)letter && !punctuation) {
        return wrong(gbnf, gbnf->p - 2, "this escape is not known");
    }
    return OK;
}

static enum status read_string(struct gbnf *gbnf, uint32_t *item) {
    const char *begin = gbnf->p++;
    struct buf text = {0};
    enum status status = OK;
    while (!status) {
        if (gbnf->p >= gbnf->end || *gbnf->p == '\n') {
            status = wrong(gbnf, begin, "a string has no end");
            break;
        }
        if (*gbnf->p == '"') break;
        uint32_t c;
        char bytes[4];
        status = read_char(gbnf, &c);
        if (!status) status = buf_append(&text, bytes, utf8_write(c, bytes), gbnf->err);
    }
    gbnf->p++;
    if (!status) {
        *item = grammar_terminal(gbnf->grammar, expr_literal(gbnf->exprs, text.data, text.len));
    }
    buf_fini(&text);
    return status;
}

static enum status read_ranges(struct gbnf *gbnf, const char *begin, struct regex_ranges *ranges) {
    for (;;) {
        if (gbnf->p >= gbnf->end || *gbnf->p == '\n') {
            return wrong(gbnf, begin, "a class has no end");
        }
        if (*gbnf->p == ']') break;
        uint32_t first, last;
        const char *from = gbnf->p;
        enum status status = read_char(gbnf, &first);
        if (status) return status;
        last = first;
        if (gbnf->p + 1 < gbnf->end && gbnf->p[0] == '-' && gbnf->p[1] != ']') {
            gbnf->p++;
            status = read_char(gbnf, &last);
            if (status) return status;
            if (last < first) return wrong(gbnf, from, "a range goes backward");
        }
        status = regex_ranges_add(ranges, first, last, gbnf->err);
        if (status) return status;
    }
    gbnf->p++;
    return OK;
}

static enum status read_class(struct gbnf *gbnf, uint32_t *item) {
    const char *begin = gbnf->p++;
    struct regex_ranges ranges = {0};
    bool negated = gbnf->p < gbnf->end && *gbnf->p == '^';
    if (negated) gbnf->p++;
    enum status status = read_ranges(gbnf, begin, &ranges);
    regex_ranges_settle(&ranges);
    if (!status && negated) status = regex_ranges_negate(&ranges, gbnf->err);
    struct expr_char_range *list = calloc(ranges.len + 1, sizeof *list);
    if (!status && !list) status = err_nomem(gbnf->err, "grammar");
    if (!status && list) {
        for (size_t i = 0; i < ranges.len; i++) {
            list[i] = (struct expr_char_range){ranges.data[i].first, ranges.data[i].last};
        }
        *item = grammar_terminal(gbnf->grammar, expr_char_set(gbnf->exprs, list, ranges.len));
    }
    free(list);
    regex_ranges_fini(&ranges);
    return status;
}

// ---- items ----

static enum status read_choice(struct gbnf *gbnf, uint32_t *item);

static enum status read_group(struct gbnf *gbnf, uint32_t *item) {
    const char *begin = gbnf->p++;
    if (++gbnf->depth > DEPTH_MAX) return wrong(gbnf, begin, "groups are nested too deep");
    enum status status = read_choice(gbnf, item);
    if (status) return status;
    if (gbnf->p >= gbnf->end || *gbnf->p != ')') {
        return wrong(gbnf, begin, "a group has no end");
    }
    gbnf->p++;
    gbnf->depth--;
    return OK;
}

static enum status read_atom(struct gbnf *gbnf, uint32_t *item) {
    bool defines;
    switch (*gbnf->p) {
    case '"':
        return read_string(gbnf, item);
    case '[':
        return read_class(gbnf, item);
    case '(':
        return read_group(gbnf, item);
    case '.':
        gbnf->p++;
        *item = grammar_terminal(gbnf->grammar, expr_any_char(gbnf->exprs));
        return OK;
    case '<':
    case '!':
        return wrong(gbnf, gbnf->p, "tokens by name are not supported");
    default:
        break;
    }
    size_t len = name_len(gbnf, &defines);
    if (len == 0) return wrong(gbnf, gbnf->p, "this begins no item");
    uint32_t rule;
    enum status status = find_rule(gbnf, gbnf->p, len, &rule);
    if (status) return status;
    gbnf->p += len;
    *item = grammar_call(gbnf->grammar, rule);
    return OK;
}

static enum status read_number(struct gbnf *gbnf, uint32_t *number) {
    const char *begin = gbnf->p;
    *number = 0;
    for (; gbnf->p < gbnf->end && c_locale_is_digit(*gbnf->p); gbnf->p++) {
        *number = *number * 10 + (uint32_t)(*gbnf->p - '0');
        if (*number > COUNT_MAX) return wrong(gbnf, begin, "a count is above 100000000");
    }
    return gbnf->p == begin ? wrong(gbnf, begin, "a count is missing") : OK;
}

// "{m}", "{m,}" and "{m,n}" at the brace.
static enum status read_counts(struct gbnf *gbnf, uint32_t *min, uint32_t *max) {
    const char *begin = gbnf->p++;
    skip_space(gbnf);
    enum status status = read_number(gbnf, min);
    if (status) return status;
    *max = *min;
    skip_space(gbnf);
    if (at(gbnf, ",")) {
        gbnf->p++;
        skip_space(gbnf);
        *max = EXPR_FOREVER;
        if (!at(gbnf, "}")) status = read_number(gbnf, max);
        if (status) return status;
        skip_space(gbnf);
    }
    if (!at(gbnf, "}")) return wrong(gbnf, begin, "a repetition has no end");
    if (*max < *min) return wrong(gbnf, begin, "a repetition has more at least than at most");
    gbnf->p++;
    return OK;
}

static enum status read_repeated(struct gbnf *gbnf, uint32_t *item) {
    enum { REPEATS_MAX = 10 }; // x*+? ...
    enum status status = read_atom(gbnf, item);
    for (size_t n = 0; !status; n++) {
        skip_space(gbnf);
        char sign = gbnf->p < gbnf->end ? *gbnf->p : '\0';
        if (!sign || !strchr("*+?{", sign)) break;
        if (n == REPEATS_MAX) return wrong(gbnf, gbnf->p, "too many repetitions of one item");
        uint32_t min = sign == '+', max = sign == '?' ? 1 : EXPR_FOREVER;
        if (sign == '{') {
            status = read_counts(gbnf, &min, &max);
        } else {
            gbnf->p++;
        }
        if (!status) *item = grammar_repeat(gbnf->grammar, *item, min, max);
    }
    return status;
}

// Items up to "|", ")", the next rule or the end.
static enum status read_sequence(struct gbnf *gbnf, uint32_t *item) {
    size_t base = gbnf->num_items;
    enum status status = OK;
    for (;;) {
        bool defines;
        skip_space(gbnf);
        if (gbnf->p >= gbnf->end || *gbnf->p == '|' || *gbnf->p == ')') break;
        name_len(gbnf, &defines);
        if (defines) break;
        status = read_repeated(gbnf, item);
        if (!status) status = push(gbnf, *item);
        if (status) return status;
    }
    size_t len = gbnf->num_items - base;
    *item = len ? grammar_sequence(gbnf->grammar, gbnf->items + base, len) : GRAMMAR_EMPTY;
    gbnf->num_items = base;
    return OK;
}

static enum status read_choice(struct gbnf *gbnf, uint32_t *item) {
    size_t base = gbnf->num_items;
    enum status status = OK;
    for (;;) {
        status = read_sequence(gbnf, item);
        if (!status) status = push(gbnf, *item);
        if (status) return status;
        if (gbnf->p >= gbnf->end || *gbnf->p != '|') break;
        gbnf->p++;
    }
    *item = grammar_choice(gbnf->grammar, gbnf->items + base, gbnf->num_items - base);
    gbnf->num_items = base;
    return OK;
}

static enum status read_rules(struct gbnf *gbnf) {
    for (;;) {
        bool defines;
        skip_space(gbnf);
        if (gbnf->p >= gbnf->end) return OK;
        size_t len = name_len(gbnf, &defines);
        if (!defines) return wrong(gbnf, gbnf->p, "want a rule: name ::= ...");
        uint32_t rule, item = GRAMMAR_EMPTY;
        enum status status = find_rule(gbnf, gbnf->p, len, &rule);
        if (status) return status;
        gbnf->p += len;
        skip_space(gbnf);
        gbnf->p += strlen("::=");
        status = read_choice(gbnf, &item);
        if (!status && gbnf->p < gbnf->end && *gbnf->p == ')') {
            status = wrong(gbnf, gbnf->p, "a \")\" without its \"(\"");
        }
        if (status) return status;
        grammar_define(gbnf->grammar, rule, item);
        status = grammar_status(gbnf->grammar, gbnf->err);
        if (status) return status;
    }
}

enum status gbnf_add(struct grammar *grammar, const char *text, size_t len, uint32_t *rule,
                     struct err *err) {
    struct gbnf gbnf = {.grammar = grammar,
                        .exprs = grammar_exprs(grammar),
                        .text = text,
                        .p = text,
                        .end = text + len,
                        .err = err};
    if (len > GBNF_BYTES_MAX) {
        return err_set(err, ERR_INVALID, "the grammar has %zu bytes, want at most %d", len,
                       GBNF_BYTES_MAX);
    }
    if (utf8_valid_prefix(text, len) != len) {
        return err_set(err, ERR_FORMAT, "the grammar is not valid UTF-8");
    }
    enum status status = read_rules(&gbnf);
    if (!status && !strmap_get(&gbnf.rules, "root", 4, rule)) {
        status = err_set(err, ERR_FORMAT, "the grammar has no rule called root");
    }
    strmap_fini(&gbnf.rules);
    free(gbnf.items);
    return status;
}
