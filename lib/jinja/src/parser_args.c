/* What has arguments: calls, filters and tests. */
#include <string.h>

#include "jinja/src/library.h"
#include "jinja/src/parser.h"

// ---- (a, b, name=c, *d, **e) ----

// A keyword argument on the parser's stack.
struct keyword {
    const struct string *name;
    struct expr *value;
};

struct args_state {
    uint32_t line;
    size_t mark; // of the positional arguments, the keywords behind them
    size_t num_values;
    struct expr_args *args;
};

static bool misplaced(struct parser *p, const char *what) {
    parser_fail(p, p->token.line, "%s is not allowed here in a call", what);
    return false;
}

// One argument. Order: positional, keywords, *; keywords may follow *; ** is last.
static bool parse_arg(struct parser *p, struct args_state *state) {
    struct expr_args *args = state->args;
    bool has_keywords = p->stack_len > state->mark + state->num_values;
    if (parser_at(p, TOKEN_MUL)) {
        if (args->star || args->star_star) return misplaced(p, "'*'");
        parser_advance(p);
        args->star = parser_expr(p);
        return args->star;
    }
    if (parser_at(p, TOKEN_POW)) {
        if (args->star_star) return misplaced(p, "'**'");
        parser_advance(p);
        args->star_star = parser_expr(p);
        return args->star_star;
    }
    if (parser_at(p, TOKEN_NAME) && parser_look(p)->type == TOKEN_ASSIGN) {
        if (args->star_star) return misplaced(p, "a keyword argument");
        struct keyword *keyword = parser_alloc(p, sizeof *keyword);
        if (!keyword) return false;
        keyword->name = parser_name(p);
        parser_advance(p);
        keyword->value = parser_expr(p);
        parser_push(p, keyword);
        return keyword->value;
    }
    if (args->star || args->star_star || has_keywords) return misplaced(p, "a positional argument");
    struct expr *value = parser_expr(p);
    if (value) parser_push(p, value);
    ++state->num_values;
    return value;
}

// The pushed keywords to args->names and args->named.
static bool take_keywords(struct parser *p, struct args_state *state) {
    struct expr_args *args = state->args;
    size_t count;
    struct keyword **keywords =
        (struct keyword **)parser_take(p, state->mark + state->num_values, &count);
    if (!keywords) return false;
    args->names = parser_alloc(p, count * sizeof *args->names);
    args->named = parser_alloc(p, count * sizeof *args->named);
    if (!args->names || !args->named) return false;
    for (size_t i = 0; i < count; ++i) {
        args->names[i] = keywords[i]->name;
        args->named[i] = keywords[i]->value;
    }
    args->num_names = count;
    return parser_check_unique(p, args->names, count, state->line, "repeated keyword argument");
}

static bool adopt_args(struct parser *p, struct expr *owner) {
    const struct expr_args *args = &owner->args;
    bool is_good = parser_adopt(p, owner, args->star) && parser_adopt(p, owner, args->star_star);
    for (size_t i = 0; i < args->num_values && is_good; ++i)
        is_good = parser_adopt(p, owner, args->values[i]);
    for (size_t i = 0; i < args->num_names && is_good; ++i)
        is_good = parser_adopt(p, owner, args->named[i]);
    return is_good;
}

// At the '('.
static bool parse_args(struct parser *p, struct expr *owner) {
    struct expr_args *args = &owner->args;
    struct args_state state = {.line = p->token.line, .mark = p->stack_len, .args = args};
    parser_advance(p);
    while (!parser_at(p, TOKEN_RPAREN)) {
        if (!parse_arg(p, &state)) return false;
        if (!parser_skip(p, TOKEN_COMMA)) break;
    }
    if (!parser_expect(p, TOKEN_RPAREN, "')'") || !take_keywords(p, &state)) return false;
    args->values = (struct expr **)parser_take(p, state.mark, &args->num_values);
    return args->values && adopt_args(p, owner);
}

struct expr *parser_call(struct parser *p, struct expr *callee) {
    struct expr *expr = parser_new_expr(p, EXPR_CALL, p->token.line);
    if (!expr || !parser_adopt(p, expr, callee)) return NULL;
    expr->left = callee;
    return parse_args(p, expr) ? expr : NULL;
}

// ---- filters and tests ----

// a.b.c as one name. No filter or test is called so, but Jinja reads on before it says that.
static const struct string *parse_dotted_name(struct parser *p) {
    size_t mark = p->stack_len, len = 0, count;
    do {
        const struct string *part = parser_name(p);
        if (!part) return NULL;
        parser_push(p, part);
        len += part->len + 1;
    } while (parser_skip(p, TOKEN_DOT));
    const struct string *const *parts = (const struct string *const *)parser_take(p, mark, &count);
    if (!parts) return NULL;
    if (count == 1) return parts[0];
    char *name = parser_alloc(p, len);
    if (!name) return NULL;
    size_t used = 0;
    for (size_t i = 0; i < count; ++i) {
        memcpy(name + used, parts[i]->data, parts[i]->len);
        used += parts[i]->len;
        name[used++] = '.';
    }
    return parser_string(p, name, len - 1);
}

// The name of a filter or test, remembered if there is none of that name.
static bool set_name(struct parser *p, struct expr *expr, const char *kind) {
    struct token token = p->token;
    expr->name = parse_dotted_name(p);
    if (!expr->name) return false;
    bool is_filter = expr->type == EXPR_FILTER;
    const struct filter *filter = is_filter ? library_filter(expr->name) : NULL;
    bool is_known = is_filter ? filter && filter->run : library_test(expr->name) != NULL;
    if (is_known || p->is_soft || p->unknown.text) return true;
    p->unknown_is_refused = filter != NULL;
    p->unknown = token;
    p->unknown.text = expr->name->data;
    p->unknown.len = expr->name->len;
    p->unknown_kind = kind;
    return true;
}

struct expr *parser_filter(struct parser *p, struct expr *left) {
    struct expr *expr = parser_new_expr(p, EXPR_FILTER, p->token.line);
    if (!expr || !parser_adopt(p, expr, left)) return NULL;
    expr->left = left;
    if (!set_name(p, expr, "filter")) return NULL;
    if (parser_at(p, TOKEN_LPAREN) && !parse_args(p, expr)) return NULL;
    return expr;
}

struct expr *parser_filters(struct parser *p, struct expr *left) {
    while (parser_skip(p, TOKEN_PIPE)) {
        left = parser_filter(p, left);
        if (!left) return NULL;
    }
    return left;
}

// Whether an argument without parentheses follows the name of a test.
static bool at_bare_arg(const struct parser *p) {
    switch (p->token.type) {
    case TOKEN_NAME:
        return !parser_at_name(p, "else") && !parser_at_name(p, "or") && !parser_at_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
    case TOKEN_LBRACKET:
    case TOKEN_LBRACE:
        return true;
    default:
        return false;
    }
}

static bool parse_bare_arg(struct parser *p, struct expr *test) {
    if (parser_at_name(p, "is")) {
        parser_fail(p, p->token.line, "tests cannot be chained with 'is'");
        return false;
    }
    test->args.values = parser_alloc(p, sizeof *test->args.values);
    struct expr *value = parser_postfix(p, parser_primary(p));
    if (!test->args.values || !value) return false;
    test->args.values[0] = value;
    test->args.num_values = 1;
    return parser_adopt(p, test, value);
}

struct expr *parser_test(struct parser *p, struct expr *left) {
    uint32_t line = p->token.line;
    parser_advance(p);
    bool is_negated = parser_skip_name(p, "not");
    struct expr *test = parser_new_expr(p, EXPR_TEST, line);
    if (!test || !parser_adopt(p, test, left)) return NULL;
    test->left = left;
    if (!set_name(p, test, "test")) return NULL;
    bool is_good = true;
    if (parser_at(p, TOKEN_LPAREN)) {
        is_good = parse_args(p, test);
    } else if (at_bare_arg(p)) {
        is_good = parse_bare_arg(p, test);
    }
    if (!is_good || !is_negated) return is_good ? test : NULL;
    struct expr *negation = parser_new_expr(p, EXPR_UNARY, line);
    if (!negation || !parser_adopt(p, negation, test)) return NULL;
    negation->unary = OP_NOT;
    negation->left = test;
    return negation;
}
