/* Expressions of ECMA-262, as "pattern" has them, to sets of texts.
 *
 * The syntax becomes a tree, and the tree is written from its end: each part gets the set of texts
 * that may follow it. So an assertion is an intersection with what follows: (?=a) keeps the rest
 * that begins with a match of a, and $ keeps the empty rest. \b and ^ also need to know what is
 * before. For \b the texts of the parts before it are told apart by their last character. Where
 * that is not enough, as for a part in a group, the expression is refused. In a repetition only the
 * first round can go through ^ and only the last one through $.
 *
 * Lookbehind intersects the texts of the parts before it, and is refused where it may reach
 * further.
 *
 * \d, \w and \s have ECMA-262's meaning. What means different things in different languages (\A,
 * \Z, (?i)) is refused, and so are backward references. */
#include <string.h>

#include "structured/schema/schema_pattern.h"

enum { UNROLLED_MAX = 8 };

// Whether each text that the node matches is empty.
static bool is_assertion(const struct pattern_node *node) {
    return node->kind >= PATTERN_START;
}

static bool has_assertion(const struct pattern_node *node) {
    if (is_assertion(node)) return true;
    for (const struct pattern_node *at = node->child; at; at = at->next) {
        if (has_assertion(at)) return true;
    }
    return false;
}

static bool has_word_edge(const struct pattern_node *node) {
    if (node->kind == PATTERN_WORD_EDGE || node->kind == PATTERN_NO_WORD_EDGE) return true;
    for (const struct pattern_node *at = node->child; at; at = at->next) {
        if (has_word_edge(at)) return true;
    }
    return false;
}

// The children of a node, which may be thousands, as a list. NULL after an error.
static const struct pattern_node **list_children(struct pattern *pattern,
                                                 const struct pattern_node *node, size_t *len) {
    *len = 0;
    for (const struct pattern_node *at = node->child; at; at = at->next) ++*len;
    const struct pattern_node **list = arena_alloc(&pattern->arena, (*len + 1) * sizeof *list);
    if (!list) {
        if (!pattern->status) pattern->status = err_nomem(pattern->err, "expression");
        return NULL;
    }
    size_t count = 0;
    for (const struct pattern_node *at = node->child; at; at = at->next) list[count++] = at;
    return list;
}

// The set of texts of a node without assertions. Those that go through ^ or $ are left out.
static uint32_t plain(struct pattern *pattern, const struct pattern_node *node) {
    struct exprs *exprs = pattern->exprs;
    if (node->kind == PATTERN_SET) return node->set;
    if (is_assertion(node)) return EXPR_NOTHING;
    if (node->kind == PATTERN_REPEAT) {
        return expr_repeat(exprs, plain(pattern, node->child), node->min, node->max);
    }
    size_t len;
    const struct pattern_node **list = list_children(pattern, node, &len);
    if (!list) return EXPR_NOTHING;
    bool is_choice = node->kind == PATTERN_CHOICE;
    uint32_t all = is_choice ? EXPR_NOTHING : EXPR_EPSILON;
    while (len-- > 0) {
        uint32_t one = plain(pattern, list[len]);
        all = is_choice ? expr_alt(exprs, one, all) : expr_concat(exprs, one, all);
    }
    return all;
}

// Characters before a place: one bit for each kind that is possible.
enum { BEFORE_START = 1, BEFORE_WORD = 2, BEFORE_OTHER = 4 };

// What may be before the end of the node, if `before` is before its beginning.
static unsigned last_of(const struct pattern_node *node, unsigned before) {
    unsigned after = 0;
    switch (node->kind) {
    case PATTERN_SET:
        return (node->has_word ? BEFORE_WORD : 0u) | (node->has_other ? BEFORE_OTHER : 0u);
    case PATTERN_SEQUENCE:
        for (const struct pattern_node *at = node->child; at; at = at->next) {
            before = last_of(at, before);
        }
        return before;
    case PATTERN_CHOICE:
        for (const struct pattern_node *at = node->child; at; at = at->next) {
            after |= last_of(at, before);
        }
        return after;
    case PATTERN_REPEAT:
        after = node->min == 0 ? before : 0;
        if (node->max) after |= last_of(node->child, before);
        return after;
    default:
        return before;
    }
}

static uint32_t refuse(struct pattern *pattern, const char *what) {
    if (!pattern->status) {
        pattern->status = err_set(pattern->err, ERR_UNSUPPORTED, "%s in an expression", what);
    }
    return EXPR_NOTHING;
}

static uint32_t match(struct pattern *pattern, const struct pattern_node *node, unsigned before,
                      uint32_t rest);

// `rest` behind \b or \B.
static uint32_t match_word_edge(struct pattern *pattern, unsigned before, bool wants_edge,
                                uint32_t rest) {
    struct exprs *exprs = pattern->exprs;
    bool maybe_word = before & BEFORE_WORD, maybe_not = before & ~(unsigned)BEFORE_WORD;
    if (maybe_word && maybe_not) return refuse(pattern, "\\b behind a part that varies");
    if (!before) return EXPR_NOTHING;
    uint32_t word_next = expr_concat(exprs, pattern->word, pattern->any_text);
    if (maybe_word != wants_edge) return expr_and(exprs, rest, word_next);
    return expr_minus(exprs, rest, word_next);
}

static bool is_word_edge(const struct pattern_node *node) {
    return node->kind == PATTERN_WORD_EDGE || node->kind == PATTERN_NO_WORD_EDGE;
}

// The parts of a sequence, which have no assertion, then \b, then `rest`. The texts of the parts
// are told apart by their last character.
static uint32_t match_before_edge(struct pattern *pattern, const struct pattern_node **parts,
                                  size_t num_parts, unsigned before, bool wants_edge,
                                  uint32_t rest) {
    struct exprs *exprs = pattern->exprs;
    uint32_t begin = EXPR_EPSILON;
    for (size_t i = num_parts; i-- > 0;) {
        begin = expr_concat(exprs, plain(pattern, parts[i]), begin);
    }
    uint32_t other = expr_minus(exprs, expr_any_char(exprs), pattern->word);
    uint32_t ends_in_word =
        expr_and(exprs, begin, expr_concat(exprs, pattern->any_text, pattern->word));
    uint32_t ends_in_other = expr_and(exprs, begin, expr_concat(exprs, pattern->any_text, other));
    uint32_t all = expr_alt(
        exprs,
        expr_concat(exprs, ends_in_word, match_word_edge(pattern, BEFORE_WORD, wants_edge, rest)),
        expr_concat(exprs, ends_in_other,
                    match_word_edge(pattern, BEFORE_OTHER, wants_edge, rest)));
    if (!expr_is_nullable(exprs, begin)) return all;
    return expr_alt(exprs, all, match_word_edge(pattern, before, wants_edge, rest));
}

static bool is_behind(const struct pattern_node *node) {
    return node->kind == PATTERN_BEHIND || node->kind == PATTERN_NOT_BEHIND;
}

// The fewest or the most characters of a text of the node, which has no assertion.
static size_t text_len(const struct pattern_node *node, bool most) {
    enum { LEN_MAX = 1 << 20 };
    size_t len = node->kind == PATTERN_SET, count = most ? node->max : node->min;
    bool is_first = true;
    for (const struct pattern_node *at = node->child; at; at = at->next, is_first = false) {
        size_t one = text_len(at, most);
        bool is_better = most ? one > len : one < len;
        if (node->kind == PATTERN_REPEAT) one *= count < LEN_MAX ? count : LEN_MAX;
        if (node->kind != PATTERN_CHOICE) {
            len += one;
        } else if (is_first || is_better) {
            len = one;
        }
    }
    return len < LEN_MAX ? len : LEN_MAX;
}

// The parts [first, behind) of a sequence, which have no assertion, then lookbehinds up to `end`,
// then `rest`.
static uint32_t match_before_behind(struct pattern *pattern, const struct pattern_node **parts,
                                    size_t first, size_t behind, size_t end, unsigned before,
                                    uint32_t rest) {
    struct exprs *exprs = pattern->exprs;
    uint32_t begin = EXPR_EPSILON;
    size_t least = 0;
    for (size_t i = behind; i-- > first;) {
        begin = expr_concat(exprs, plain(pattern, parts[i]), begin);
        least += text_len(parts[i], false);
    }
    for (size_t i = behind; i < end; i++) {
        const struct pattern_node *body = parts[i]->child;
        if (has_assertion(body)) return refuse(pattern, "an assertion in lookbehind");
        if (before != BEFORE_START && text_len(body, true) > least) {
            return refuse(pattern, "lookbehind further than the parts before it");
        }
        uint32_t ends = expr_concat(exprs, pattern->any_text, plain(pattern, body));
        bool is_negated = parts[i]->kind == PATTERN_NOT_BEHIND;
        begin = is_negated ? expr_minus(exprs, begin, ends) : expr_and(exprs, begin, ends);
    }
    return expr_concat(exprs, begin, rest);
}

static uint32_t match_sequence(struct pattern *pattern, const struct pattern_node *node,
                               unsigned before, uint32_t rest) {
    size_t len;
    const struct pattern_node **list = list_children(pattern, node, &len);
    unsigned *befores = arena_alloc(&pattern->arena, (len + 1) * sizeof *befores);
    if (!list || !befores) {
        if (!pattern->status) pattern->status = err_nomem(pattern->err, "expression");
        return EXPR_NOTHING;
    }
    if (len && list[0]->kind == PATTERN_START && !(before & BEFORE_START)) return EXPR_NOTHING;
    for (size_t i = 0; i < len; i++) {
        befores[i] = before;
        before = last_of(list[i], before);
    }
    while (len-- > 0) {
        size_t first = len;
        if (is_behind(list[len])) {
            size_t behind = len;
            while (behind > 0 && is_behind(list[behind - 1])) behind--;
            for (first = behind; first > 0 && !has_assertion(list[first - 1]);) first--;
            rest = match_before_behind(pattern, list, first, behind, len + 1, befores[first], rest);
            len = first;
            continue;
        }
        while (is_word_edge(list[len]) && first > 0 && !has_assertion(list[first - 1])) first--;
        if (first == len) {
            rest = match(pattern, list[len], befores[len], rest);
            continue;
        }
        bool wants_edge = list[len]->kind == PATTERN_WORD_EDGE;
        rest =
            match_before_edge(pattern, list + first, len - first, befores[first], wants_edge, rest);
        len = first;
    }
    return rest;
}

static bool has_start(const struct pattern_node *node) {
    if (node->kind == PATTERN_START) return true;
    for (const struct pattern_node *at = node->child; at; at = at->next) {
        if (has_start(at)) return true;
    }
    return false;
}

// ((?!a)c)* at the end of the text: no c begins an a, so each rest of the text that is not empty
// begins with none. False: the repetition is not of this form.
static bool match_guarded(struct pattern *pattern, const struct pattern_node *node, uint32_t rest,
                          uint32_t *all) {
    struct exprs *exprs = pattern->exprs;
    const struct pattern_node *at = node->child;
    uint32_t bad = EXPR_NOTHING;
    while ((at->kind == PATTERN_SEQUENCE || at->kind == PATTERN_CHOICE) && at->child &&
           !at->child->next) {
        at = at->child;
    }
    if (rest != EXPR_EPSILON || at->kind != PATTERN_SEQUENCE || !at->child) return false;
    for (at = at->child; at->kind == PATTERN_AHEAD || at->kind == PATTERN_NOT_AHEAD;) {
        if (has_start(at) || has_word_edge(at) || !at->next) return false;
        uint32_t begun = match(pattern, at->child, BEFORE_WORD | BEFORE_OTHER, pattern->any_text);
        if (at->kind == PATTERN_AHEAD) begun = expr_minus(exprs, pattern->any_text, begun);
        bad = expr_alt(exprs, bad, begun);
        at = at->next;
    }
    if (at->kind != PATTERN_SET || at->next) return false;
    bad = expr_minus(exprs, bad, EXPR_EPSILON);
    *all = expr_minus(exprs, expr_repeat(exprs, at->set, node->min, node->max),
                      expr_concat(exprs, pattern->any_text, bad));
    return true;
}

// Whether the node has no assertions but ^ and $.
static bool has_ends_only(const struct pattern_node *node) {
    if (is_assertion(node)) return node->kind == PATTERN_START || node->kind == PATTERN_END;
    for (const struct pattern_node *at = node->child; at; at = at->next) {
        if (!has_ends_only(at)) return false;
    }
    return true;
}

// (a|b$)*, where ^ is not or never matches: the last round may end the text, and then nothing
// follows. The rounds before it go through no $.
static uint32_t match_ends(struct pattern *pattern, const struct pattern_node *body, uint32_t min,
                           uint32_t max, uint32_t rest) {
    struct exprs *exprs = pattern->exprs;
    uint32_t round = plain(pattern, body);
    uint32_t all = expr_concat(exprs, expr_repeat(exprs, round, min, max), rest);
    if (!max || !expr_is_nullable(exprs, rest)) return all;
    uint32_t last = match(pattern, body, BEFORE_WORD | BEFORE_OTHER, EXPR_EPSILON);
    uint32_t most = max == EXPR_FOREVER ? max : max - 1;
    last = expr_concat(exprs, expr_repeat(exprs, round, 0, most), last);
    return expr_alt(exprs, all, last);
}

// The first round alone can go through ^.
static uint32_t match_starts(struct pattern *pattern, const struct pattern_node *node,
                             unsigned before, uint32_t rest) {
    const struct pattern_node *body = node->child;
    if (!(before & BEFORE_START) || !has_start(body)) {
        return match_ends(pattern, body, node->min, node->max, rest);
    }
    uint32_t most = node->max == EXPR_FOREVER ? node->max : node->max - 1;
    uint32_t all = match(pattern, body, before, match_ends(pattern, body, 0, most, rest));
    return node->min ? all : expr_alt(pattern->exprs, all, rest);
}

static uint32_t match_repeat(struct pattern *pattern, const struct pattern_node *node,
                             unsigned before, uint32_t rest) {
    struct exprs *exprs = pattern->exprs;
    if (!has_assertion(node->child)) {
        uint32_t body = plain(pattern, node->child);
        return expr_concat(exprs, expr_repeat(exprs, body, node->min, node->max), rest);
    }
    uint32_t all = rest;
    if (match_guarded(pattern, node, rest, &all)) return all;
    if (node->min <= 1 && node->max && has_ends_only(node->child)) {
        return match_starts(pattern, node, before, rest);
    }
    if (node->max > UNROLLED_MAX) return refuse(pattern, "a repeated assertion");
    unsigned befores[UNROLLED_MAX + 1];
    befores[0] = before;
    for (uint32_t i = 0; i < node->max; i++) befores[i + 1] = last_of(node->child, befores[i]);
    for (uint32_t i = node->max; i-- > 0;) {
        all = match(pattern, node->child, befores[i], all);
        if (i >= node->min) all = expr_alt(exprs, all, rest);
    }
    return all;
}

static uint32_t match(struct pattern *pattern, const struct pattern_node *node, unsigned before,
                      uint32_t rest) {
    struct exprs *exprs = pattern->exprs;
    uint32_t all = EXPR_NOTHING;
    switch (node->kind) {
    case PATTERN_SET:
        return expr_concat(exprs, node->set, rest);
    case PATTERN_SEQUENCE:
        return match_sequence(pattern, node, before, rest);
    case PATTERN_CHOICE:
        for (const struct pattern_node *at = node->child; at; at = at->next) {
            all = expr_alt(exprs, all, match(pattern, at, before, rest));
        }
        return all;
    case PATTERN_REPEAT:
        return match_repeat(pattern, node, before, rest);
    case PATTERN_START:
        if (before == BEFORE_START) return rest;
        if (before & BEFORE_START) return refuse(pattern, "^ behind a part that may be empty");
        return EXPR_NOTHING;
    case PATTERN_END:
        return expr_and(exprs, rest, EXPR_EPSILON);
    case PATTERN_WORD_EDGE:
    case PATTERN_NO_WORD_EDGE:
        return match_word_edge(pattern, before, node->kind == PATTERN_WORD_EDGE, rest);
    case PATTERN_AHEAD:
        return expr_and(exprs, rest, match(pattern, node->child, before, pattern->any_text));
    case PATTERN_NOT_AHEAD:
        return expr_minus(exprs, rest, match(pattern, node->child, before, pattern->any_text));
    case PATTERN_BEHIND:
    case PATTERN_NOT_BEHIND:
        return refuse(pattern, "a repeated lookbehind"); // others are for match_sequence
    }
    return EXPR_NOTHING;
}

// Texts in which a match begins anywhere.
static uint32_t search(struct pattern *pattern, const struct pattern_node *root) {
    struct exprs *exprs = pattern->exprs;
    uint32_t any = pattern->any_text;
    uint32_t at_start = match(pattern, root, BEFORE_START, any);
    if (!has_assertion(root)) return expr_concat(exprs, any, at_start);
    if (!has_word_edge(root)) {
        unsigned before = BEFORE_WORD | BEFORE_OTHER;
        uint32_t later = match(pattern, root, before, any);
        uint32_t skipped = expr_repeat(exprs, expr_any_char(exprs), 1, EXPR_FOREVER);
        return expr_alt(exprs, at_start, expr_concat(exprs, skipped, later));
    }
    uint32_t behind_word = match(pattern, root, BEFORE_WORD, any);
    uint32_t behind_other = match(pattern, root, BEFORE_OTHER, any);
    uint32_t other = expr_minus(exprs, expr_any_char(exprs), pattern->word);
    uint32_t later = expr_alt(exprs, expr_concat(exprs, pattern->word, behind_word),
                              expr_concat(exprs, other, behind_other));
    return expr_alt(exprs, at_start, expr_concat(exprs, any, later));
}

static enum status read_pattern(struct exprs *exprs, const char *text, size_t len, bool whole,
                                uint32_t *expr, struct err *err) {
    struct pattern pattern = {.exprs = exprs,
                              .text = text,
                              .p = text,
                              .end = text + len,
                              .any_text = expr_any_text(exprs),
                              .err = err};
    static const struct expr_char_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    pattern.word = expr_char_set(exprs, word, ARRAY_LEN(word));
    struct pattern_node *root = pattern_parse(&pattern);
    *expr = EXPR_NOTHING;
    if (root && !pattern.status) {
        *expr = whole ? match(&pattern, root, BEFORE_START, EXPR_EPSILON) : search(&pattern, root);
    }
    arena_fini(&pattern.arena);
    if (!pattern.status) pattern.status = exprs_status(exprs, err);
    return pattern.status;
}

enum status schema_pattern(struct exprs *exprs, const char *text, size_t len, uint32_t *expr,
                           struct err *err) {
    return read_pattern(exprs, text, len, false, expr, err);
}

enum status schema_pattern_whole(struct exprs *exprs, const char *text, size_t len, uint32_t *expr,
                                 struct err *err) {
    return read_pattern(exprs, text, len, true, expr, err);
}
