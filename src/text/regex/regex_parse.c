/* The syntax, from an expression to a tree. */
#include <string.h>

#include "base/check.h"
#include "base/text/c_locale.h"
#include "text/regex/regex_parts.h"

static enum status parse_choice(struct regex_parser *parser, struct regex_node **out);

static enum status node_make(struct regex_parser *parser, enum regex_node_kind kind,
                             struct regex_node **out) {
    *out = arena_alloc(&parser->tree->arena, sizeof **out);
    if (!*out) return err_nomem(parser->err, "regular expression");
    **out = (struct regex_node){.kind = kind};
    return OK;
}

// Makes a node of the set. Takes the ranges, also when it fails. Equal sets are stored once.
static enum status make_set(struct regex_parser *parser, struct regex_ranges *ranges,
                            struct regex_node **out) {
    struct regex_tree *tree = parser->tree;
    regex_ranges_settle(ranges);
    enum status status = node_make(parser, NODE_SET, out);
    size_t i = 0;
    while (i < tree->num_sets && !regex_ranges_equal(&tree->sets[i], ranges)) i++;
    if (!status && i == REGEX_SETS_MAX) {
        static const char refused[] = "more than 256 different classes";
        status = regex_refuse(parser, refused, sizeof refused - 1);
    }
    if (status || i < tree->num_sets) {
        regex_ranges_fini(ranges);
    } else {
        tree->sets[tree->num_sets++] = *ranges;
    }
    if (!status) (*out)->set = (uint32_t)i;
    return status;
}

// One character as written; under (?i) the set of its cases.
static enum status make_char(struct regex_parser *parser, uint32_t c, struct regex_node **out) {
    if (parser->ignore_case) {
        struct regex_ranges ranges = {0};
        enum status status = regex_ranges_add(&ranges, c, c, parser->err);
        if (!status) status = regex_fold(parser, &ranges);
        if (!status && (ranges.len > 1 || ranges.data[0].first != ranges.data[0].last)) {
            return make_set(parser, &ranges, out);
        }
        regex_ranges_fini(&ranges);
        if (status) return status;
    }
    enum status status = node_make(parser, NODE_CHAR, out);
    if (!status) (*out)->code_point = c;
    return status;
}

static enum status make_assertion(struct regex_parser *parser, enum regex_assertion assertion,
                                  struct regex_node **out) {
    enum status status = node_make(parser, NODE_ASSERTION, out);
    if (status) return status;
    (*out)->assertion = assertion;
    bool is_word = assertion == ASSERT_WORD_EDGE || assertion == ASSERT_NO_WORD_EDGE;
    if (!is_word || parser->tree->word_set >= 0) return OK;
    struct regex_ranges ranges = {0};
    struct regex_node *set;
    status = regex_ranges_add_escape(&ranges, 'w', parser->err);
    if (status) {
        regex_ranges_fini(&ranges);
        return status;
    }
    status = make_set(parser, &ranges, &set);
    if (!status) parser->tree->word_set = (int32_t)set->set;
    return status;
}

// "." or a class.
static enum status parse_set(struct regex_parser *parser, struct regex_node **out) {
    struct regex_ranges ranges = {0};
    enum status status = OK;
    if (*parser->p == '[') {
        status = regex_parse_class(parser, &ranges);
    } else {
        parser->p++;
        if (!parser->dot_is_all) status = regex_ranges_add(&ranges, '\n', '\n', parser->err);
        if (!status) status = regex_ranges_negate(&ranges, parser->err);
    }
    if (!status) return make_set(parser, &ranges, out);
    regex_ranges_fini(&ranges);
    return status;
}

static enum status parse_backref(struct regex_parser *parser, struct regex_node **out) {
    if (c_locale_is_digit(parser->p[1]) || parser->ignore_case) {
        return regex_refuse(parser, parser->p - 1, 3);
    }
    enum status status = node_make(parser, NODE_BACKREF, out);
    if (!status) (*out)->group = (uint32_t)(*parser->p++ - '0');
    parser->tree->has_backref = true;
    return status;
}

// A backslash and what follows it.
static enum status parse_escape(struct regex_parser *parser, struct regex_node **out) {
    static const char letters[] = "AzZbB";
    static const enum regex_assertion assertions[] = {ASSERT_TEXT_START, ASSERT_TEXT_END,
                                                      ASSERT_TEXT_END_OR_LINE, ASSERT_WORD_EDGE,
                                                      ASSERT_NO_WORD_EDGE};
    char c = *++parser->p;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        parser->p++;
        return make_assertion(parser, assertions[letter - letters], out);
    }
    if (c >= '1' && c <= '9') return parse_backref(parser, out);
    if (c == 'K') {
        if (parser->in_look) return regex_refuse(parser, "\\K in a lookaround", 18);
        parser->p++;
        return node_make(parser, NODE_KEEP, out);
    }
    struct regex_ranges ranges = {0};
    bool is_set;
    enum status status = regex_parse_set_escape(parser, &ranges, &is_set);
    if (!status && is_set) return make_set(parser, &ranges, out);
    regex_ranges_fini(&ranges);
    uint32_t code_point;
    if (!status) status = regex_parse_char_escape(parser, &code_point);
    return status ? status : make_char(parser, code_point, out);
}

// "(?im-im:" or, with *to_end, "(?im-im)"; `p` is after "(?". In Oniguruma m lets "." match line
// ends.
static enum status parse_options(struct regex_parser *parser, bool *to_end) {
    size_t len = strspn(parser->p, "im-");
    char closing = parser->p[len];
    *to_end = closing == ')';
    // "(?i)" applies up to the end of its group. It is supported only at the beginning of the
    // expression: elsewhere it also splits the group's alternatives.
    bool at_start = parser->p == parser->source + 2;
    if (len == 0 || (closing != ':' && !(*to_end && at_start))) {
        return regex_refuse(parser, parser->p - 2, 3);
    }
    bool on = true;
    for (size_t i = 0; i < len; i++) {
        char option = parser->p[i];
        if (option == '-') on = false;
        if (option == 'i') parser->ignore_case = on;
        if (option == 'm') parser->dot_is_all = on;
    }
    parser->p += len + 1;
    return OK;
}

// The inside of a group and its ")".
static enum status parse_inside(struct regex_parser *parser, struct regex_node **out) {
    enum status status = parse_choice(parser, out);
    if (status) return status;
    if (*parser->p != ')') return regex_wrong(parser, "a \"(\" without its \")\"");
    parser->p++;
    return OK;
}

// A capturing group: "(" or "(?<name>".
static enum status parse_capture(struct regex_parser *parser, struct regex_node **out) {
    enum status status = node_make(parser, NODE_GROUP, out);
    if (!status) (*out)->group = ++parser->tree->num_groups;
    return status ? status : parse_inside(parser, &(*out)->child);
}

static enum status parse_look(struct regex_parser *parser, bool behind, bool negative,
                              struct regex_node **out) {
    bool outer = parser->in_look;
    enum status status = node_make(parser, NODE_LOOK, out);
    if (status) return status;
    (*out)->behind = behind;
    (*out)->negative = negative;
    parser->in_look = true;
    status = parse_inside(parser, &(*out)->child);
    parser->in_look = outer;
    return status;
}

static enum status parse_named(struct regex_parser *parser, struct regex_node **out) {
    size_t len = strcspn(parser->p, ">)");
    if (parser->p[len] != '>') return regex_wrong(parser, "a group's name has no end");
    parser->has_named = true;
    parser->p += len + 1;
    return parse_capture(parser, out);
}

// At "(".
static enum status parse_group(struct regex_parser *parser, struct regex_node **out) {
    const char *p = parser->p++;
    if (p[1] == '*') return regex_refuse(parser, p, 2);
    if (p[1] != '?') return parse_capture(parser, out);
    bool behind = p[2] == '<';
    char look = behind ? p[3] : p[2];
    if (look == '=' || look == '!') {
        parser->p = p + (behind ? 4 : 3);
        return parse_look(parser, behind, look == '!', out);
    }
    parser->p = p + 3;
    if (behind && (c_locale_is_alpha(look) || look == '_')) return parse_named(parser, out);
    if (p[2] == ':') return parse_inside(parser, out);
    if (p[2] == '>') {
        enum status status = node_make(parser, NODE_ATOMIC, out);
        return status ? status : parse_inside(parser, &(*out)->child);
    }
    parser->p = p + 2;
    bool ignore_case = parser->ignore_case, dot_is_all = parser->dot_is_all, to_end;
    enum status status = parse_options(parser, &to_end);
    if (status) return status;
    if (to_end) return node_make(parser, NODE_LIST, out);
    status = parse_inside(parser, out);
    parser->ignore_case = ignore_case;
    parser->dot_is_all = dot_is_all;
    return status;
}

static enum status parse_atom(struct regex_parser *parser, struct regex_node **out) {
    switch (*parser->p) {
    case '\\':
        return parse_escape(parser, out);
    case '[':
    case '.':
        return parse_set(parser, out);
    case '(':
        if (++parser->depth > REGEX_DEPTH_MAX) return regex_refuse(parser, "(((...", 6);
        enum status status = parse_group(parser, out);
        parser->depth--;
        return status;
    case '^':
        parser->p++;
        return make_assertion(parser, ASSERT_LINE_START, out);
    case '$':
        parser->p++;
        return make_assertion(parser, ASSERT_LINE_END, out);
    case '*':
    case '+':
    case '?':
        return regex_wrong(parser, "a repetition of nothing");
    default:
        break;
    }
    size_t size;
    uint32_t c = utf8_decode((const unsigned char *)parser->p, &size);
    parser->p += size;
    return make_char(parser, c, out);
}

static uint32_t read_number(const char **p) {
    uint32_t number = 0;
    for (; c_locale_is_digit(**p); ++*p) {
        if (number <= REGEX_REPEAT_MAX) number = number * 10 + (uint32_t)(**p - '0');
    }
    return number;
}

// "{n}", "{n,}", "{,m}" or "{n,m}" at the brace; *is_one = false: the brace stands for itself.
static enum status parse_interval(struct regex_parser *parser, struct regex_node *node,
                                  bool *is_one) {
    const char *p = parser->p + 1, *low = p;
    uint32_t min = read_number(&p), max = min;
    bool has_low = p > low, comma = *p == ',', has_high = false;
    if (comma) {
        const char *high = ++p;
        max = read_number(&p);
        has_high = p > high;
        if (!has_high) max = REGEX_FOREVER;
    }
    *is_one = *p == '}' && (has_low || has_high);
    if (!*is_one) return OK;
    // After an interval "+", and after "{n}" also "?", repeats the whole once more in Oniguruma.
    // Elsewhere they mean possessive and lazy.
    if (p[1] == '+' || (p[1] == '?' && !comma)) {
        return regex_refuse(parser, parser->p, (size_t)(p - parser->p) + 2);
    }
    bool too_many = min > REGEX_REPEAT_MAX || (max != REGEX_FOREVER && max > REGEX_REPEAT_MAX);
    if (too_many || max < min) {
        return regex_refuse(parser, parser->p, (size_t)(p - parser->p) + 1);
    }
    node->min = min;
    node->max = max;
    parser->p = p + 1;
    return OK;
}

// Wraps the atom *node into its repetition, if one follows.
static enum status parse_repeat(struct regex_parser *parser, struct regex_node **node) {
    char sign = *parser->p;
    if (!sign || !strchr("*+?{", sign)) return OK;
    struct regex_node *repeat;
    enum status status = node_make(parser, NODE_REPEAT, &repeat);
    if (status) return status;
    if (sign == '{') {
        bool is_one;
        status = parse_interval(parser, repeat, &is_one);
        if (status || !is_one) return status;
    } else {
        repeat->min = sign == '+';
        repeat->max = sign == '?' ? 1 : REGEX_FOREVER;
        parser->p++;
    }
    enum regex_node_kind kind = (*node)->kind;
    if (kind == NODE_LOOK || kind == NODE_ASSERTION || kind == NODE_KEEP) {
        return regex_refuse(parser, parser->p - 1, 1);
    }
    if (kind == NODE_CHAR) { // only sets are repeated without a loop of instructions
        struct regex_ranges ranges = {0};
        uint32_t c = (*node)->code_point;
        status = regex_ranges_add(&ranges, c, c, parser->err);
        if (!status) status = make_set(parser, &ranges, node);
        if (status) return status;
    }
    if (*parser->p == '?') repeat->repeat = REPEAT_LAZY;
    if (*parser->p == '+') repeat->repeat = REPEAT_POSSESSIVE;
    if (repeat->repeat != REPEAT_GREEDY) parser->p++;
    if (*parser->p && strchr("*+?", *parser->p)) return regex_refuse(parser, parser->p - 1, 2);
    repeat->child = *node;
    *node = repeat;
    return OK;
}

// Whether (?i) is on and the two letters at `p` are also one character, as "ss" is U+00DF.
static bool are_a_ligature(const struct regex_parser *parser, const char *p) {
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    for (size_t i = 0; i < ARRAY_LEN(pairs) && parser->ignore_case; i++) {
        if ((p[0] | 0x20) == pairs[i][0] && (p[1] | 0x20) == pairs[i][1]) return true;
    }
    return false;
}

// Atoms one after the other, up to "|", ")" or the end.
static enum status parse_list(struct regex_parser *parser, struct regex_node **out) {
    enum status status = node_make(parser, NODE_LIST, out);
    struct regex_node **next = status ? NULL : &(*out)->child;
    while (!status && *parser->p && *parser->p != '|' && *parser->p != ')') {
        if (are_a_ligature(parser, parser->p)) return regex_refuse(parser, parser->p, 2);
        struct regex_node *node = NULL;
        status = parse_atom(parser, &node);
        CHECK(status || node, "status=%d", (int)status);
        // A "{" that begins no interval is itself an atom.
        if (!status) status = parse_repeat(parser, &node);
        if (status) break;
        *next = node;
        next = &node->next;
    }
    return status;
}

static enum status parse_choice(struct regex_parser *parser, struct regex_node **out) {
    struct regex_node *first;
    enum status status = parse_list(parser, &first);
    if (status || *parser->p != '|') {
        *out = first;
        return status;
    }
    status = node_make(parser, NODE_CHOICE, out);
    if (status) return status;
    (*out)->child = first;
    for (struct regex_node *last = first; *parser->p == '|' && !status; last = last->next) {
        parser->p++;
        status = parse_list(parser, &last->next);
        if (status) break;
    }
    return status;
}

// Refuses backward references to groups that do not exist.
static enum status check_backrefs(struct regex_parser *parser, const struct regex_node *node) {
    for (; node; node = node->next) {
        if (node->kind == NODE_BACKREF && node->group > parser->tree->num_groups) {
            return regex_wrong(parser, "a reference to a group that does not exist");
        }
        enum status status = check_backrefs(parser, node->child);
        if (status) return status;
    }
    return OK;
}

enum status regex_parse(struct regex_tree *tree, const char *source, const char *what,
                        struct err *err) {
    *tree = (struct regex_tree){.word_set = -1};
    struct regex_parser parser = {
        .tree = tree, .source = source, .p = source, .what = what, .err = err};
    if (strlen(source) > REGEX_SOURCE_MAX) {
        return err_set(err, ERR_UNSUPPORTED, "%s: a pattern has %zu bytes, want at most %d", what,
                       strlen(source), REGEX_SOURCE_MAX);
    }
    enum status status = parse_choice(&parser, &tree->root);
    if (!status && *parser.p) return regex_wrong(&parser, "a \")\" without its \"(\"");
    if (status || !tree->has_backref) return status;
    // In an expression with named groups Oniguruma does not capture unnamed ones.
    if (parser.has_named) return regex_refuse(&parser, "\\1 beside (?<name>", 18);
    if (tree->num_groups > REGEX_GROUPS_MAX) return regex_refuse(&parser, "\\1 and ten groups", 17);
    return check_backrefs(&parser, tree->root);
}

void regex_tree_fini(struct regex_tree *tree) {
    for (size_t i = 0; i < tree->num_sets; i++) regex_ranges_fini(&tree->sets[i]);
    arena_fini(&tree->arena);
    *tree = (struct regex_tree){0};
}
