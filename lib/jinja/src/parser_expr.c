/* Expressions, from the weakest operator to the strongest:
 *
 *   a if b else c | or | and | not | == != < <= > >= in, not in (a chain) | + - | ~ | * / // % | **
 *   | unary - + | .name [item] (call) | is test, |filter
 *
 * ** groups to the left, and unary minus binds tighter than ** but looser than a filter's operand:
 * -1|abs is 1. Every function leads to parser_expr or parser_unary, which count the depth. */
#include "jinja/src/parser.h"

#include <string.h>

static struct expr *parse_or(struct parser *p);

// ---- nodes ----

struct expr *parser_new_expr(struct parser *p, enum expr_type type, uint32_t line) {
    struct expr *expr = parser_alloc(p, sizeof *expr);
    if (!expr) return NULL;
    expr->type = type;
    expr->line = line;
    expr->height = 1;
    return expr;
}

bool parser_adopt(struct parser *p, struct expr *parent, const struct expr *child) {
    if (child && child->height >= parent->height) parent->height = child->height + 1;
    if (parent->height <= AST_DEPTH_MAX) return true;
    parser_fail(p, parent->line, "an expression nested deeper than %d", AST_DEPTH_MAX);
    return false;
}

// A node over one or two operands; NULL if `left` is, or `right` where it must not be.
static struct expr *join(struct parser *p, enum expr_type type, uint32_t line, struct expr *left,
                         struct expr *right) {
    struct expr *expr = p->status ? NULL : parser_new_expr(p, type, line);
    if (!expr) return NULL;
    expr->left = left;
    expr->right = right;
    return parser_adopt(p, expr, left) && parser_adopt(p, expr, right) ? expr : NULL;
}

static struct expr *new_const(struct parser *p, uint32_t line, struct value value) {
    struct expr *expr = parser_new_expr(p, EXPR_CONST, line);
    if (expr) expr->constant = value;
    return expr;
}

// The pushed parts as the items of a list, tuple or dict.
static struct expr *take_items(struct parser *p, enum expr_type type, uint32_t line, size_t mark) {
    struct expr *expr = parser_new_expr(p, type, line);
    if (!expr) return NULL;
    expr->list.items = (struct expr **)parser_take(p, mark, &expr->list.num_items);
    if (!expr->list.items) return NULL;
    for (size_t i = 0; i < expr->list.num_items; ++i)
        if (!parser_adopt(p, expr, expr->list.items[i])) return NULL;
    return expr;
}

// Parses an expression and pushes it.
static bool push_expr(struct parser *p) {
    struct expr *expr = parser_expr(p);
    if (expr) parser_push(p, expr);
    return expr;
}

// ---- primaries ----

static struct expr *parse_name(struct parser *p) {
    static const struct {
        const char *name;
        enum value_type type;
        bool boolean;
    } constants[] = {
        {"true", VALUE_BOOL, true},   {"True", VALUE_BOOL, true}, {"false", VALUE_BOOL, false},
        {"False", VALUE_BOOL, false}, {"none", VALUE_NONE, 0},    {"None", VALUE_NONE, 0},
    };
    uint32_t line = p->token.line;
    for (size_t i = 0; i < ARRAY_LEN(constants); ++i) {
        if (!parser_skip_name(p, constants[i].name)) continue;
        bool is_none = constants[i].type == VALUE_NONE;
        return new_const(p, line, is_none ? value_none() : value_bool(constants[i].boolean));
    }
    const struct string *name = parser_name(p);
    struct expr *expr = name ? parser_new_expr(p, EXPR_NAME, line) : NULL;
    if (!expr) return NULL;
    expr->name = name;
    parser_note_read(p, name);
    return expr;
}

// Strings side by side are one.
static struct expr *parse_string(struct parser *p) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len, len = 0, count;
    while (parser_at(p, TOKEN_STRING)) {
        parser_push(p, parser_string(p, p->token.text, p->token.len));
        len += p->token.len;
        parser_advance(p);
    }
    const struct string *const *parts = (const struct string *const *)parser_take(p, mark, &count);
    if (!parts) return NULL;
    if (count == 1) return new_const(p, line, value_of_string(parts[0]));
    char *data = parser_alloc(p, len);
    if (!data) return NULL;
    size_t used = 0;
    for (size_t i = 0; i < count; used += parts[i++]->len)
        memcpy(data + used, parts[i]->data, parts[i]->len);
    const struct string *string = parser_string(p, data, len);
    return string ? new_const(p, line, value_of_string(string)) : NULL;
}

// Where a tuple may end: after a comma, or with nothing in it. (Not before `recursive`: that is a name
// there for Jinja, too.)
static bool at_tuple_end(const struct parser *p) {
    return parser_at(p, TOKEN_PRINT_END) || parser_at(p, TOKEN_BLOCK_END) ||
           parser_at(p, TOKEN_RPAREN);
}

struct expr *parser_tuple(struct parser *p, unsigned flags) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len;
    bool is_tuple = false;
    while (!at_tuple_end(p)) {
        struct expr *item = flags & TUPLE_NO_TERNARY ? parser_expr_no_ternary(p) : parser_expr(p);
        if (!item) return NULL;
        parser_push(p, item);
        if (!parser_skip(p, TOKEN_COMMA)) break;
        is_tuple = true;
    }
    if (is_tuple || (p->stack_len == mark && flags & TUPLE_IN_PARENS))
        return take_items(p, EXPR_TUPLE, line, mark);
    if (p->stack_len == mark) {
        parser_fail_token(p, "an expression");
        return NULL;
    }
    return p->stack[--p->stack_len];
}

static struct expr *parse_list(struct parser *p) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len;
    parser_advance(p);
    while (!parser_at(p, TOKEN_RBRACKET)) {
        if (!push_expr(p)) return NULL;
        if (!parser_skip(p, TOKEN_COMMA)) break;
    }
    if (!parser_expect(p, TOKEN_RBRACKET, "']'")) return NULL;
    return take_items(p, EXPR_LIST, line, mark);
}

static struct expr *parse_dict(struct parser *p) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len;
    parser_advance(p);
    while (!parser_at(p, TOKEN_RBRACE)) {
        if (!push_expr(p) || !parser_expect(p, TOKEN_COLON, "':'") || !push_expr(p)) return NULL;
        if (!parser_skip(p, TOKEN_COMMA)) break;
    }
    if (!parser_expect(p, TOKEN_RBRACE, "'}'")) return NULL;
    return take_items(p, EXPR_DICT, line, mark);
}

struct expr *parser_primary(struct parser *p) {
    struct token token = p->token;
    switch (token.type) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return parse_string(p);
    case TOKEN_INTEGER:
        parser_advance(p);
        return new_const(p, token.line, value_int(token.integer));
    case TOKEN_FLOAT:
        parser_advance(p);
        return new_const(p, token.line, value_float(token.number));
    case TOKEN_LPAREN:
        parser_advance(p);
        struct expr *expr = parser_tuple(p, TUPLE_IN_PARENS);
        return expr && parser_expect(p, TOKEN_RPAREN, "')'") ? expr : NULL;
    case TOKEN_LBRACKET:
        return parse_list(p);
    case TOKEN_LBRACE:
        return parse_dict(p);
    default:
        parser_fail_token(p, "an expression");
        return NULL;
    }
}

// ---- what follows a primary ----

// .name or .0
static struct expr *parse_dot(struct parser *p, struct expr *left) {
    uint32_t line = p->token.line;
    parser_advance(p);
    if (parser_at(p, TOKEN_INTEGER)) return join(p, EXPR_ITEM, line, left, parser_primary(p));
    if (!parser_at(p, TOKEN_NAME)) {
        parser_fail_token(p, "a name or a number");
        return NULL;
    }
    const struct string *name = parser_name(p);
    struct expr *expr = join(p, EXPR_ATTRIBUTE, line, left, NULL);
    if (expr) expr->name = name;
    return expr;
}

static bool at_slice_end(const struct parser *p) {
    return parser_at(p, TOKEN_COLON) || parser_at(p, TOKEN_RBRACKET) || parser_at(p, TOKEN_COMMA);
}

// One bound of left[start:stop:step], which may be absent.
static bool parse_bound(struct parser *p, struct expr *slice, struct expr **bound) {
    if (at_slice_end(p)) return true;
    *bound = parser_expr(p);
    return *bound && parser_adopt(p, slice, *bound);
}

// The rest of left[start: from the colon on.
static struct expr *parse_slice(struct parser *p, uint32_t line, struct expr *left,
                                struct expr *start) {
    struct expr *expr = join(p, EXPR_SLICE, line, left, NULL);
    if (!expr || !parser_adopt(p, expr, start)) return NULL;
    expr->slice.start = start;
    parser_advance(p);
    if (!parse_bound(p, expr, &expr->slice.stop)) return NULL;
    if (parser_skip(p, TOKEN_COLON) && !parse_bound(p, expr, &expr->slice.step)) return NULL;
    return parser_expect(p, TOKEN_RBRACKET, "']'") ? expr : NULL;
}

// left[a, b]: the item of a tuple.
static struct expr *parse_many_items(struct parser *p, uint32_t line, struct expr *left,
                                     struct expr *first) {
    size_t mark = p->stack_len;
    if (first) parser_push(p, first);
    while (!parser_at(p, TOKEN_RBRACKET)) {
        if (!parser_expect(p, TOKEN_COMMA, "']'") || !push_expr(p)) return NULL;
    }
    parser_advance(p);
    return join(p, EXPR_ITEM, line, left, take_items(p, EXPR_TUPLE, line, mark));
}

static struct expr *parse_subscript(struct parser *p, struct expr *left) {
    uint32_t line = p->token.line;
    parser_advance(p);
    if (parser_at(p, TOKEN_COLON)) return parse_slice(p, line, left, NULL);
    if (parser_at(p, TOKEN_RBRACKET)) return parse_many_items(p, line, left, NULL);
    struct expr *first = parser_expr(p);
    if (!first) return NULL;
    if (parser_at(p, TOKEN_COLON)) return parse_slice(p, line, left, first);
    if (parser_skip(p, TOKEN_RBRACKET)) return join(p, EXPR_ITEM, line, left, first);
    return parse_many_items(p, line, left, first);
}

struct expr *parser_postfix(struct parser *p, struct expr *left) {
    while (left) {
        if (parser_at(p, TOKEN_DOT)) {
            left = parse_dot(p, left);
        } else if (parser_at(p, TOKEN_LBRACKET)) {
            left = parse_subscript(p, left);
        } else if (parser_at(p, TOKEN_LPAREN)) {
            left = parser_call(p, left);
        } else {
            break;
        }
    }
    return left;
}

static struct expr *parse_filters_and_tests(struct parser *p, struct expr *left) {
    while (left) {
        if (parser_at(p, TOKEN_PIPE)) {
            left = parser_filters(p, left);
        } else if (parser_at_name(p, "is")) {
            left = parser_test(p, left);
        } else if (parser_at(p, TOKEN_LPAREN)) {
            left = parser_call(p, left);
        } else {
            break;
        }
    }
    return left;
}

// ---- operators ----

// A minus or plus, and what it applies to.
static struct expr *parse_sign(struct parser *p) {
    struct token token = p->token;
    if (token.type != TOKEN_SUB && token.type != TOKEN_ADD)
        return parser_postfix(p, parser_primary(p));
    if (!parser_enter(p)) return NULL;
    parser_advance(p);
    struct expr *expr = join(p, EXPR_UNARY, token.line, parse_sign(p), NULL);
    if (expr) expr->unary = token.type == TOKEN_SUB ? OP_NEG : OP_POS;
    parser_leave(p);
    return parser_postfix(p, expr);
}

static struct expr *parse_unary(struct parser *p) {
    return parse_filters_and_tests(p, parse_sign(p));
}

enum level { LEVEL_SUM, LEVEL_PRODUCT, LEVEL_POWER };

static bool find_operator(enum token_type type, enum level level, enum binary_op *op) {
    static const struct {
        enum token_type type;
        enum level level;
        enum binary_op op;
    } operators[] = {
        {TOKEN_ADD, LEVEL_SUM, OP_ADD},
        {TOKEN_SUB, LEVEL_SUM, OP_SUB},
        {TOKEN_MUL, LEVEL_PRODUCT, OP_MUL},
        {TOKEN_DIV, LEVEL_PRODUCT, OP_DIV},
        {TOKEN_FLOORDIV, LEVEL_PRODUCT, OP_FLOORDIV},
        {TOKEN_MOD, LEVEL_PRODUCT, OP_MOD},
        {TOKEN_POW, LEVEL_POWER, OP_POW},
    };
    for (size_t i = 0; i < ARRAY_LEN(operators); ++i) {
        if (operators[i].type != type || operators[i].level != level) continue;
        *op = operators[i].op;
        return true;
    }
    return false;
}

static struct expr *new_binary(struct parser *p, uint32_t line, enum binary_op op,
                               struct expr *left, struct expr *right) {
    struct expr *expr = join(p, EXPR_BINARY, line, left, right);
    if (expr) expr->binary = op;
    return expr;
}

static struct expr *parse_concat(struct parser *p);

static struct expr *parse_math(struct parser *p, enum level level) {
    struct expr *left = NULL;
    enum binary_op op = OP_ADD;
    do {
        uint32_t line = p->token.line;
        if (left) parser_advance(p);
        struct expr *right = level == LEVEL_SUM       ? parse_concat(p)
                             : level == LEVEL_PRODUCT ? parse_math(p, LEVEL_POWER)
                                                      : parse_unary(p);
        left = left ? new_binary(p, line, op, left, right) : right;
    } while (left && find_operator(p->token.type, level, &op));
    return left;
}

// parts[0] ~ parts[1] ~ ...: the operator is associative, so a long chain need not be a deep tree.
static struct expr *join_concat(struct parser *p, struct expr **parts, size_t count) {
    if (count == 1) return parts[0];
    size_t half = count / 2;
    struct expr *left = join_concat(p, parts, half);
    struct expr *right = join_concat(p, parts + half, count - half);
    return left && right ? new_binary(p, left->line, OP_CONCAT, left, right) : NULL;
}

static struct expr *parse_concat(struct parser *p) {
    struct expr *first = parse_math(p, LEVEL_PRODUCT);
    if (!first || !parser_at(p, TOKEN_TILDE)) return first;
    size_t mark = p->stack_len, count;
    parser_push(p, first);
    while (parser_skip(p, TOKEN_TILDE)) {
        struct expr *part = parse_math(p, LEVEL_PRODUCT);
        if (!part) return NULL;
        parser_push(p, part);
    }
    struct expr **parts = (struct expr **)parser_take(p, mark, &count);
    return parts ? join_concat(p, parts, count) : NULL;
}

// The comparison that begins at the current token, which is passed.
static bool skip_comparison(struct parser *p, enum compare_op *op) {
    static const struct {
        enum token_type type;
        enum compare_op op;
    } comparisons[] = {{TOKEN_EQ, CMP_EQ}, {TOKEN_NE, CMP_NE}, {TOKEN_LT, CMP_LT},
                       {TOKEN_LE, CMP_LE}, {TOKEN_GT, CMP_GT}, {TOKEN_GE, CMP_GE}};
    for (size_t i = 0; i < ARRAY_LEN(comparisons); ++i) {
        *op = comparisons[i].op;
        if (parser_skip(p, comparisons[i].type)) return true;
    }
    *op = CMP_IN;
    if (parser_skip_name(p, "in")) return true;
    if (!parser_at_name(p, "not") || !token_is_name(parser_look(p), "in")) return false;
    *op = CMP_NOT_IN;
    parser_advance(p);
    parser_advance(p);
    return true;
}

static struct expr *parse_compare(struct parser *p) {
    struct expr *left = parse_math(p, LEVEL_SUM);
    struct compare_link link = {0};
    if (!left || !skip_comparison(p, &link.op)) return left;
    struct expr *expr = join(p, EXPR_COMPARE, left->line, left, NULL);
    if (!expr) return NULL;
    size_t mark = p->stack_len;
    do {
        struct compare_link *part = parser_alloc(p, sizeof *part);
        link.right = parse_math(p, LEVEL_SUM);
        if (!part || !link.right || !parser_adopt(p, expr, link.right)) return NULL;
        *part = link;
        parser_push(p, part);
    } while (skip_comparison(p, &link.op));
    size_t count;
    struct compare_link **parts = (struct compare_link **)parser_take(p, mark, &count);
    struct compare_link *links = parts ? parser_alloc(p, count * sizeof *links) : NULL;
    if (!links) return NULL;
    for (size_t i = 0; i < count; ++i) links[i] = *parts[i];
    expr->compare.links = links;
    expr->compare.num_links = count;
    return expr;
}

static struct expr *parse_not(struct parser *p) {
    struct token token = p->token;
    if (!token_is_name(&token, "not")) return parse_compare(p);
    if (!parser_enter(p)) return NULL;
    parser_advance(p);
    struct expr *expr = join(p, EXPR_UNARY, token.line, parse_not(p), NULL);
    if (expr) expr->unary = OP_NOT;
    parser_leave(p);
    return expr;
}

static struct expr *parse_and(struct parser *p) {
    struct expr *left = parse_not(p);
    while (left && parser_skip_name(p, "and"))
        left = join(p, EXPR_AND, left->line, left, parse_not(p));
    return left;
}

static struct expr *parse_or(struct parser *p) {
    struct expr *left = parse_and(p);
    while (left && parser_skip_name(p, "or"))
        left = join(p, EXPR_OR, left->line, left, parse_and(p));
    return left;
}

struct expr *parser_expr_no_ternary(struct parser *p) {
    if (!parser_enter(p)) return NULL;
    struct expr *expr = parse_or(p);
    parser_leave(p);
    return expr;
}

// The condition and, if there is one, the else of `value if ...`.
static struct expr *parse_condition(struct parser *p, struct expr *value) {
    struct expr *condition = parse_or(p), *otherwise = NULL;
    if (condition && parser_skip_name(p, "else")) otherwise = parser_expr(p);
    struct expr *expr = join(p, EXPR_TERNARY, value->line, value, otherwise);
    if (!expr || !parser_adopt(p, expr, condition)) return NULL;
    expr->condition = condition;
    return expr;
}

struct expr *parser_expr(struct parser *p) {
    if (!parser_enter(p)) return NULL;
    struct token unknown = p->unknown;
    struct expr *expr = parse_or(p);
    while (expr && parser_skip_name(p, "if")) {
        bool was_soft = p->is_soft;
        p->is_soft = true;
        p->unknown = unknown; // what the value asks for may never be reached
        expr = parse_condition(p, expr);
        p->is_soft = was_soft;
    }
    parser_leave(p);
    return expr;
}
