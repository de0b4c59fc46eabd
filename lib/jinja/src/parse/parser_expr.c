/* Expressions, from the weakest operator to the strongest:
 *
 *   a if b else c | or | and | not | == != < <= > >= in, not in (a chain) | + - | ~ | * / // % | **
 *   | unary - + | .name [item] (call) | is test, |filter
 *
 * ** groups to the left, and unary minus binds tighter than ** but looser than a filter's operand:
 * -1|abs is 1. Every function leads to jinja_parser_expr or parser_unary, which count the depth. */
#include "jinja/src/parse/parser.h"

#include <string.h>

static struct jinja_expr *parse_or(struct jinja_parser *p);

// ---- nodes ----

struct jinja_expr *jinja_parser_new_expr(struct jinja_parser *p, enum jinja_expr_type type,
                                         uint32_t line) {
    struct jinja_expr *expr = jinja_parser_alloc(p, sizeof *expr);
    if (!expr) return NULL;
    expr->type = type;
    expr->line = line;
    expr->height = 1;
    return expr;
}

bool jinja_parser_adopt(struct jinja_parser *p, struct jinja_expr *parent,
                        const struct jinja_expr *child) {
    if (child && child->height >= parent->height) parent->height = child->height + 1;
    if (parent->height <= JINJA_AST_DEPTH_MAX) return true;
    jinja_parser_fail(p, parent->line, "an expression nested deeper than %d", JINJA_AST_DEPTH_MAX);
    return false;
}

// A node over one or two operands; NULL if `left` is, or `right` where it must not be.
static struct jinja_expr *join(struct jinja_parser *p, enum jinja_expr_type type, uint32_t line,
                               struct jinja_expr *left, struct jinja_expr *right) {
    struct jinja_expr *expr = p->status ? NULL : jinja_parser_new_expr(p, type, line);
    if (!expr) return NULL;
    expr->left = left;
    expr->right = right;
    return jinja_parser_adopt(p, expr, left) && jinja_parser_adopt(p, expr, right) ? expr : NULL;
}

static struct jinja_expr *new_const(struct jinja_parser *p, uint32_t line,
                                    struct jinja_value value) {
    struct jinja_expr *expr = jinja_parser_new_expr(p, JINJA_EXPR_CONST, line);
    if (expr) expr->constant = value;
    return expr;
}

// The pushed parts as the items of a list, tuple or dict.
static struct jinja_expr *take_items(struct jinja_parser *p, enum jinja_expr_type type,
                                     uint32_t line, size_t mark) {
    struct jinja_expr *expr = jinja_parser_new_expr(p, type, line);
    if (!expr) return NULL;
    expr->list.items = (struct jinja_expr **)jinja_parser_take(p, mark, &expr->list.num_items);
    if (!expr->list.items) return NULL;
    for (size_t i = 0; i < expr->list.num_items; ++i)
        if (!jinja_parser_adopt(p, expr, expr->list.items[i])) return NULL;
    return expr;
}

// Parses an expression and pushes it.
static bool push_expr(struct jinja_parser *p) {
    struct jinja_expr *expr = jinja_parser_expr(p);
    if (expr) jinja_parser_push(p, expr);
    return expr;
}

// ---- primaries ----

static struct jinja_expr *parse_name(struct jinja_parser *p) {
    static const struct {
        const char *name;
        enum jinja_value_type type;
        bool boolean;
    } constants[] = {
        {"true", JINJA_BOOL, true},   {"True", JINJA_BOOL, true}, {"false", JINJA_BOOL, false},
        {"False", JINJA_BOOL, false}, {"none", JINJA_NONE, 0},    {"None", JINJA_NONE, 0},
    };
    uint32_t line = p->token.line;
    for (size_t i = 0; i < ARRAY_LEN(constants); ++i) {
        if (!jinja_parser_skip_name(p, constants[i].name)) continue;
        bool is_none = constants[i].type == JINJA_NONE;
        return new_const(p, line,
                         is_none ? jinja_value_none() : jinja_value_bool(constants[i].boolean));
    }
    const struct jinja_string *name = jinja_parser_name(p);
    struct jinja_expr *expr = name ? jinja_parser_new_expr(p, JINJA_EXPR_NAME, line) : NULL;
    if (!expr) return NULL;
    expr->name = name;
    jinja_parser_note_read(p, name);
    return expr;
}

// Strings side by side are one.
static struct jinja_expr *parse_string(struct jinja_parser *p) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len, len = 0, count;
    while (jinja_parser_at(p, JINJA_TOKEN_STRING)) {
        jinja_parser_push(p, jinja_parser_string(p, p->token.text, p->token.len));
        len += p->token.len;
        jinja_parser_advance(p);
    }
    const struct jinja_string *const *parts =
        (const struct jinja_string *const *)jinja_parser_take(p, mark, &count);
    if (!parts) return NULL;
    if (count == 1) return new_const(p, line, jinja_value_of_string(parts[0]));
    char *data = jinja_parser_alloc(p, len);
    if (!data) return NULL;
    size_t used = 0;
    for (size_t i = 0; i < count; used += parts[i++]->len)
        memcpy(data + used, parts[i]->data, parts[i]->len);
    const struct jinja_string *string = jinja_parser_string(p, data, len);
    return string ? new_const(p, line, jinja_value_of_string(string)) : NULL;
}

// Where a tuple may end: after a comma, or with nothing in it. (Not before `recursive`: that is a
// name there for Jinja, too.)
static bool at_tuple_end(const struct jinja_parser *p) {
    return jinja_parser_at(p, JINJA_TOKEN_PRINT_END) || jinja_parser_at(p, JINJA_TOKEN_BLOCK_END) ||
           jinja_parser_at(p, JINJA_TOKEN_RPAREN);
}

struct jinja_expr *jinja_parser_tuple(struct jinja_parser *p, unsigned flags) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len;
    bool is_tuple = false;
    while (!at_tuple_end(p)) {
        struct jinja_expr *item =
            flags & JINJA_TUPLE_NO_TERNARY ? jinja_parser_expr_no_ternary(p) : jinja_parser_expr(p);
        if (!item) return NULL;
        jinja_parser_push(p, item);
        if (!jinja_parser_skip(p, JINJA_TOKEN_COMMA)) break;
        is_tuple = true;
    }
    if (is_tuple || (p->stack_len == mark && flags & JINJA_TUPLE_IN_PARENS))
        return take_items(p, JINJA_EXPR_TUPLE, line, mark);
    if (p->stack_len == mark) {
        jinja_parser_fail_token(p, "an expression");
        return NULL;
    }
    return p->stack[--p->stack_len];
}

static struct jinja_expr *parse_list(struct jinja_parser *p) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len;
    jinja_parser_advance(p);
    while (!jinja_parser_at(p, JINJA_TOKEN_RBRACKET)) {
        if (!push_expr(p)) return NULL;
        if (!jinja_parser_skip(p, JINJA_TOKEN_COMMA)) break;
    }
    if (!jinja_parser_expect(p, JINJA_TOKEN_RBRACKET, "']'")) return NULL;
    return take_items(p, JINJA_EXPR_LIST, line, mark);
}

static struct jinja_expr *parse_dict(struct jinja_parser *p) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len;
    jinja_parser_advance(p);
    while (!jinja_parser_at(p, JINJA_TOKEN_RBRACE)) {
        if (!push_expr(p) || !jinja_parser_expect(p, JINJA_TOKEN_COLON, "':'") || !push_expr(p))
            return NULL;
        if (!jinja_parser_skip(p, JINJA_TOKEN_COMMA)) break;
    }
    if (!jinja_parser_expect(p, JINJA_TOKEN_RBRACE, "'}'")) return NULL;
    return take_items(p, JINJA_EXPR_DICT, line, mark);
}

struct jinja_expr *jinja_parser_primary(struct jinja_parser *p) {
    struct jinja_token token = p->token;
    switch (token.type) {
    case JINJA_TOKEN_NAME:
        return parse_name(p);
    case JINJA_TOKEN_STRING:
        return parse_string(p);
    case JINJA_TOKEN_INTEGER:
        jinja_parser_advance(p);
        return new_const(p, token.line, jinja_value_int(token.integer));
    case JINJA_TOKEN_FLOAT:
        jinja_parser_advance(p);
        return new_const(p, token.line, jinja_value_float(token.number));
    case JINJA_TOKEN_LPAREN:
        jinja_parser_advance(p);
        struct jinja_expr *expr = jinja_parser_tuple(p, JINJA_TUPLE_IN_PARENS);
        return expr && jinja_parser_expect(p, JINJA_TOKEN_RPAREN, "')'") ? expr : NULL;
    case JINJA_TOKEN_LBRACKET:
        return parse_list(p);
    case JINJA_TOKEN_LBRACE:
        return parse_dict(p);
    default:
        jinja_parser_fail_token(p, "an expression");
        return NULL;
    }
}

// ---- what follows a primary ----

// .name or .0
static struct jinja_expr *parse_dot(struct jinja_parser *p, struct jinja_expr *left) {
    uint32_t line = p->token.line;
    jinja_parser_advance(p);
    if (jinja_parser_at(p, JINJA_TOKEN_INTEGER))
        return join(p, JINJA_EXPR_ITEM, line, left, jinja_parser_primary(p));
    if (!jinja_parser_at(p, JINJA_TOKEN_NAME)) {
        jinja_parser_fail_token(p, "a name or a number");
        return NULL;
    }
    const struct jinja_string *name = jinja_parser_name(p);
    struct jinja_expr *expr = join(p, JINJA_EXPR_ATTRIBUTE, line, left, NULL);
    if (expr) expr->name = name;
    return expr;
}

static bool at_slice_end(const struct jinja_parser *p) {
    return jinja_parser_at(p, JINJA_TOKEN_COLON) || jinja_parser_at(p, JINJA_TOKEN_RBRACKET) ||
           jinja_parser_at(p, JINJA_TOKEN_COMMA);
}

// One bound of left[start:stop:step], which may be absent.
static bool parse_bound(struct jinja_parser *p, struct jinja_expr *slice,
                        struct jinja_expr **bound) {
    if (at_slice_end(p)) return true;
    *bound = jinja_parser_expr(p);
    return *bound && jinja_parser_adopt(p, slice, *bound);
}

// The rest of left[start: from the colon on.
static struct jinja_expr *parse_slice(struct jinja_parser *p, uint32_t line,
                                      struct jinja_expr *left, struct jinja_expr *start) {
    struct jinja_expr *expr = join(p, JINJA_EXPR_SLICE, line, left, NULL);
    if (!expr || !jinja_parser_adopt(p, expr, start)) return NULL;
    expr->slice.start = start;
    jinja_parser_advance(p);
    if (!parse_bound(p, expr, &expr->slice.stop)) return NULL;
    if (jinja_parser_skip(p, JINJA_TOKEN_COLON) && !parse_bound(p, expr, &expr->slice.step))
        return NULL;
    return jinja_parser_expect(p, JINJA_TOKEN_RBRACKET, "']'") ? expr : NULL;
}

// left[a, b]: the item of a tuple.
static struct jinja_expr *parse_many_items(struct jinja_parser *p, uint32_t line,
                                           struct jinja_expr *left, struct jinja_expr *first) {
    size_t mark = p->stack_len;
    if (first) jinja_parser_push(p, first);
    while (!jinja_parser_at(p, JINJA_TOKEN_RBRACKET)) {
        if (!jinja_parser_expect(p, JINJA_TOKEN_COMMA, "']'") || !push_expr(p)) return NULL;
    }
    jinja_parser_advance(p);
    return join(p, JINJA_EXPR_ITEM, line, left, take_items(p, JINJA_EXPR_TUPLE, line, mark));
}

static struct jinja_expr *parse_subscript(struct jinja_parser *p, struct jinja_expr *left) {
    uint32_t line = p->token.line;
    jinja_parser_advance(p);
    if (jinja_parser_at(p, JINJA_TOKEN_COLON)) return parse_slice(p, line, left, NULL);
    if (jinja_parser_at(p, JINJA_TOKEN_RBRACKET)) return parse_many_items(p, line, left, NULL);
    struct jinja_expr *first = jinja_parser_expr(p);
    if (!first) return NULL;
    if (jinja_parser_at(p, JINJA_TOKEN_COLON)) return parse_slice(p, line, left, first);
    if (jinja_parser_skip(p, JINJA_TOKEN_RBRACKET))
        return join(p, JINJA_EXPR_ITEM, line, left, first);
    return parse_many_items(p, line, left, first);
}

struct jinja_expr *jinja_parser_postfix(struct jinja_parser *p, struct jinja_expr *left) {
    while (left) {
        if (jinja_parser_at(p, JINJA_TOKEN_DOT)) {
            left = parse_dot(p, left);
        } else if (jinja_parser_at(p, JINJA_TOKEN_LBRACKET)) {
            left = parse_subscript(p, left);
        } else if (jinja_parser_at(p, JINJA_TOKEN_LPAREN)) {
            left = jinja_parser_call(p, left);
        } else {
            break;
        }
    }
    return left;
}

static struct jinja_expr *parse_filters_and_tests(struct jinja_parser *p, struct jinja_expr *left) {
    while (left) {
        if (jinja_parser_at(p, JINJA_TOKEN_PIPE)) {
            left = jinja_parser_filters(p, left);
        } else if (jinja_parser_at_name(p, "is")) {
            left = jinja_parser_test(p, left);
        } else if (jinja_parser_at(p, JINJA_TOKEN_LPAREN)) {
            left = jinja_parser_call(p, left);
        } else {
            break;
        }
    }
    return left;
}

// ---- operators ----

// A minus or plus, and what it applies to.
static struct jinja_expr *parse_sign(struct jinja_parser *p) {
    struct jinja_token token = p->token;
    if (token.type != JINJA_TOKEN_SUB && token.type != JINJA_TOKEN_ADD)
        return jinja_parser_postfix(p, jinja_parser_primary(p));
    if (!jinja_parser_enter(p)) return NULL;
    jinja_parser_advance(p);
    struct jinja_expr *expr = join(p, JINJA_EXPR_UNARY, token.line, parse_sign(p), NULL);
    if (expr) expr->unary = token.type == JINJA_TOKEN_SUB ? JINJA_OP_NEG : JINJA_OP_POS;
    jinja_parser_leave(p);
    return jinja_parser_postfix(p, expr);
}

static struct jinja_expr *parse_unary(struct jinja_parser *p) {
    return parse_filters_and_tests(p, parse_sign(p));
}

enum level { LEVEL_SUM, LEVEL_PRODUCT, LEVEL_POWER };

static bool find_operator(enum jinja_token_type type, enum level level, enum jinja_binary_op *op) {
    static const struct {
        enum jinja_token_type type;
        enum level level;
        enum jinja_binary_op op;
    } operators[] = {
        {JINJA_TOKEN_ADD, LEVEL_SUM, JINJA_OP_ADD},
        {JINJA_TOKEN_SUB, LEVEL_SUM, JINJA_OP_SUB},
        {JINJA_TOKEN_MUL, LEVEL_PRODUCT, JINJA_OP_MUL},
        {JINJA_TOKEN_DIV, LEVEL_PRODUCT, JINJA_OP_DIV},
        {JINJA_TOKEN_FLOORDIV, LEVEL_PRODUCT, JINJA_OP_FLOORDIV},
        {JINJA_TOKEN_MOD, LEVEL_PRODUCT, JINJA_OP_MOD},
        {JINJA_TOKEN_POW, LEVEL_POWER, JINJA_OP_POW},
    };
    for (size_t i = 0; i < ARRAY_LEN(operators); ++i) {
        if (operators[i].type != type || operators[i].level != level) continue;
        *op = operators[i].op;
        return true;
    }
    return false;
}

static struct jinja_expr *new_binary(struct jinja_parser *p, uint32_t line, enum jinja_binary_op op,
                                     struct jinja_expr *left, struct jinja_expr *right) {
    struct jinja_expr *expr = join(p, JINJA_EXPR_BINARY, line, left, right);
    if (expr) expr->binary = op;
    return expr;
}

static struct jinja_expr *parse_concat(struct jinja_parser *p);

static struct jinja_expr *parse_math(struct jinja_parser *p, enum level level) {
    struct jinja_expr *left = NULL;
    enum jinja_binary_op op = JINJA_OP_ADD;
    do {
        uint32_t line = p->token.line;
        if (left) jinja_parser_advance(p);
        struct jinja_expr *right = level == LEVEL_SUM       ? parse_concat(p)
                                   : level == LEVEL_PRODUCT ? parse_math(p, LEVEL_POWER)
                                                            : parse_unary(p);
        left = left ? new_binary(p, line, op, left, right) : right;
    } while (left && find_operator(p->token.type, level, &op));
    return left;
}

// parts[0] ~ parts[1] ~ ...: the operator is associative, so a long chain need not be a deep tree.
static struct jinja_expr *join_concat(struct jinja_parser *p, struct jinja_expr **parts,
                                      size_t count) {
    if (count == 1) return parts[0];
    size_t half = count / 2;
    struct jinja_expr *left = join_concat(p, parts, half);
    struct jinja_expr *right = join_concat(p, parts + half, count - half);
    return left && right ? new_binary(p, left->line, JINJA_OP_CONCAT, left, right) : NULL;
}

static struct jinja_expr *parse_concat(struct jinja_parser *p) {
    struct jinja_expr *first = parse_math(p, LEVEL_PRODUCT);
    if (!first || !jinja_parser_at(p, JINJA_TOKEN_TILDE)) return first;
    size_t mark = p->stack_len, count;
    jinja_parser_push(p, first);
    while (jinja_parser_skip(p, JINJA_TOKEN_TILDE)) {
        struct jinja_expr *part = parse_math(p, LEVEL_PRODUCT);
        if (!part) return NULL;
        jinja_parser_push(p, part);
    }
    struct jinja_expr **parts = (struct jinja_expr **)jinja_parser_take(p, mark, &count);
    return parts ? join_concat(p, parts, count) : NULL;
}

// The comparison that begins at the current token, which is passed.
static bool skip_comparison(struct jinja_parser *p, enum jinja_compare_op *op) {
    static const struct {
        enum jinja_token_type type;
        enum jinja_compare_op op;
    } comparisons[] = {{JINJA_TOKEN_EQ, JINJA_CMP_EQ}, {JINJA_TOKEN_NE, JINJA_CMP_NE},
                       {JINJA_TOKEN_LT, JINJA_CMP_LT}, {JINJA_TOKEN_LE, JINJA_CMP_LE},
                       {JINJA_TOKEN_GT, JINJA_CMP_GT}, {JINJA_TOKEN_GE, JINJA_CMP_GE}};
    for (size_t i = 0; i < ARRAY_LEN(comparisons); ++i) {
        *op = comparisons[i].op;
        if (jinja_parser_skip(p, comparisons[i].type)) return true;
    }
    *op = JINJA_CMP_IN;
    if (jinja_parser_skip_name(p, "in")) return true;
    if (!jinja_parser_at_name(p, "not") || !jinja_token_is_name(jinja_parser_look(p), "in"))
        return false;
    *op = JINJA_CMP_NOT_IN;
    jinja_parser_advance(p);
    jinja_parser_advance(p);
    return true;
}

static struct jinja_expr *parse_compare(struct jinja_parser *p) {
    struct jinja_expr *left = parse_math(p, LEVEL_SUM);
    struct jinja_compare_link link = {0};
    if (!left || !skip_comparison(p, &link.op)) return left;
    struct jinja_expr *expr = join(p, JINJA_EXPR_COMPARE, left->line, left, NULL);
    if (!expr) return NULL;
    size_t mark = p->stack_len;
    do {
        struct jinja_compare_link *part = jinja_parser_alloc(p, sizeof *part);
        link.right = parse_math(p, LEVEL_SUM);
        if (!part || !link.right || !jinja_parser_adopt(p, expr, link.right)) return NULL;
        *part = link;
        jinja_parser_push(p, part);
    } while (skip_comparison(p, &link.op));
    size_t count;
    struct jinja_compare_link **parts =
        (struct jinja_compare_link **)jinja_parser_take(p, mark, &count);
    struct jinja_compare_link *links = parts ? jinja_parser_alloc(p, count * sizeof *links) : NULL;
    if (!links) return NULL;
    for (size_t i = 0; i < count; ++i) links[i] = *parts[i];
    expr->compare.links = links;
    expr->compare.num_links = count;
    return expr;
}

static struct jinja_expr *parse_not(struct jinja_parser *p) {
    struct jinja_token token = p->token;
    if (!jinja_token_is_name(&token, "not")) return parse_compare(p);
    if (!jinja_parser_enter(p)) return NULL;
    jinja_parser_advance(p);
    struct jinja_expr *expr = join(p, JINJA_EXPR_UNARY, token.line, parse_not(p), NULL);
    if (expr) expr->unary = JINJA_OP_NOT;
    jinja_parser_leave(p);
    return expr;
}

static struct jinja_expr *parse_and(struct jinja_parser *p) {
    struct jinja_expr *left = parse_not(p);
    while (left && jinja_parser_skip_name(p, "and"))
        left = join(p, JINJA_EXPR_AND, left->line, left, parse_not(p));
    return left;
}

static struct jinja_expr *parse_or(struct jinja_parser *p) {
    struct jinja_expr *left = parse_and(p);
    while (left && jinja_parser_skip_name(p, "or"))
        left = join(p, JINJA_EXPR_OR, left->line, left, parse_and(p));
    return left;
}

struct jinja_expr *jinja_parser_expr_no_ternary(struct jinja_parser *p) {
    if (!jinja_parser_enter(p)) return NULL;
    struct jinja_expr *expr = parse_or(p);
    jinja_parser_leave(p);
    return expr;
}

// The condition and, if there is one, the else of `value if ...`.
static struct jinja_expr *parse_condition(struct jinja_parser *p, struct jinja_expr *value) {
    struct jinja_expr *condition = parse_or(p), *otherwise = NULL;
    if (condition && jinja_parser_skip_name(p, "else")) otherwise = jinja_parser_expr(p);
    struct jinja_expr *expr = join(p, JINJA_EXPR_TERNARY, value->line, value, otherwise);
    if (!expr || !jinja_parser_adopt(p, expr, condition)) return NULL;
    expr->condition = condition;
    return expr;
}

struct jinja_expr *jinja_parser_expr(struct jinja_parser *p) {
    if (!jinja_parser_enter(p)) return NULL;
    struct jinja_token unknown = p->unknown;
    struct jinja_expr *expr = parse_or(p);
    while (expr && jinja_parser_skip_name(p, "if")) {
        bool was_soft = p->is_soft;
        p->is_soft = true;
        p->unknown = unknown; // what the value asks for may never be reached
        expr = parse_condition(p, expr);
        p->is_soft = was_soft;
    }
    jinja_parser_leave(p);
    return expr;
}
