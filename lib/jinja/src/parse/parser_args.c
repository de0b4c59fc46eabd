/* What has arguments: calls, filters and tests. */
#include <string.h>

#include "jinja/src/library/library.h"
#include "jinja/src/parse/parser.h"

// ---- (a, b, name=c, *d, **e) ----

// A keyword argument on the parser's stack.
struct keyword {
    const struct jinja_string *name;
    struct jinja_expr *value;
};

struct args_state {
    uint32_t line;
    size_t mark; // of the positional arguments, the keywords behind them
    size_t num_values;
    struct jinja_expr_args *args;
};

static bool misplaced(struct jinja_parser *p, const char *what) {
    jinja_parser_fail(p, p->token.line, "%s is not allowed here in a call", what);
    return false;
}

// One argument. Order: positional, keywords, *; keywords may follow *; ** is last.
static bool parse_arg(struct jinja_parser *p, struct args_state *state) {
    struct jinja_expr_args *args = state->args;
    bool has_keywords = p->stack_len > state->mark + state->num_values;
    if (jinja_parser_at(p, JINJA_TOKEN_MUL)) {
        if (args->star || args->star_star) return misplaced(p, "'*'");
        jinja_parser_advance(p);
        args->star = jinja_parser_expr(p);
        return args->star;
    }
    if (jinja_parser_at(p, JINJA_TOKEN_POW)) {
        if (args->star_star) return misplaced(p, "'**'");
        jinja_parser_advance(p);
        args->star_star = jinja_parser_expr(p);
        return args->star_star;
    }
    if (jinja_parser_at(p, JINJA_TOKEN_NAME) && jinja_parser_look(p)->type == JINJA_TOKEN_ASSIGN) {
        if (args->star_star) return misplaced(p, "a keyword argument");
        struct keyword *keyword = jinja_parser_alloc(p, sizeof *keyword);
        if (!keyword) return false;
        keyword->name = jinja_parser_name(p);
        jinja_parser_advance(p);
        keyword->value = jinja_parser_expr(p);
        jinja_parser_push(p, keyword);
        return keyword->value;
    }
    if (args->star || args->star_star || has_keywords) return misplaced(p, "a positional argument");
    struct jinja_expr *value = jinja_parser_expr(p);
    if (value) jinja_parser_push(p, value);
    ++state->num_values;
    return value;
}

// Moves the pushed keywords to args->names and args->named.
static bool take_keywords(struct jinja_parser *p, struct args_state *state) {
    struct jinja_expr_args *args = state->args;
    size_t count;
    struct keyword **keywords =
        (struct keyword **)jinja_parser_take(p, state->mark + state->num_values, &count);
    if (!keywords) return false;
    args->names = jinja_parser_alloc(p, count * sizeof *args->names);
    args->named = jinja_parser_alloc(p, count * sizeof *args->named);
    if (!args->names || !args->named) return false;
    for (size_t i = 0; i < count; ++i) {
        args->names[i] = keywords[i]->name;
        args->named[i] = keywords[i]->value;
    }
    args->num_names = count;
    return jinja_parser_check_unique(p, args->names, count, state->line,
                                     "repeated keyword argument");
}

static bool adopt_args(struct jinja_parser *p, struct jinja_expr *owner) {
    const struct jinja_expr_args *args = &owner->args;
    bool is_good =
        jinja_parser_adopt(p, owner, args->star) && jinja_parser_adopt(p, owner, args->star_star);
    for (size_t i = 0; i < args->num_values && is_good; ++i)
        is_good = jinja_parser_adopt(p, owner, args->values[i]);
    for (size_t i = 0; i < args->num_names && is_good; ++i)
        is_good = jinja_parser_adopt(p, owner, args->named[i]);
    return is_good;
}

// At the '('.
static bool parse_args(struct jinja_parser *p, struct jinja_expr *owner) {
    struct jinja_expr_args *args = &owner->args;
    struct args_state state = {.line = p->token.line, .mark = p->stack_len, .args = args};
    jinja_parser_advance(p);
    while (!jinja_parser_at(p, JINJA_TOKEN_RPAREN)) {
        if (!parse_arg(p, &state)) return false;
        if (!jinja_parser_skip(p, JINJA_TOKEN_COMMA)) break;
    }
    if (!jinja_parser_expect(p, JINJA_TOKEN_RPAREN, "')'") || !take_keywords(p, &state))
        return false;
    args->values = (struct jinja_expr **)jinja_parser_take(p, state.mark, &args->num_values);
    return args->values && adopt_args(p, owner);
}

struct jinja_expr *jinja_parser_call(struct jinja_parser *p, struct jinja_expr *callee) {
    struct jinja_expr *expr = jinja_parser_new_expr(p, JINJA_EXPR_CALL, p->token.line);
    if (!expr || !jinja_parser_adopt(p, expr, callee)) return NULL;
    expr->left = callee;
    return parse_args(p, expr) ? expr : NULL;
}

// ---- filters and tests ----

// a.b.c as one name. No filter or test has such a name, but Jinja reads all of it before it says
// so.
static const struct jinja_string *parse_dotted_name(struct jinja_parser *p) {
    size_t mark = p->stack_len, len = 0, count;
    do {
        const struct jinja_string *part = jinja_parser_name(p);
        if (!part) return NULL;
        jinja_parser_push(p, part);
        len += part->len + 1;
    } while (jinja_parser_skip(p, JINJA_TOKEN_DOT));
    const struct jinja_string *const *parts =
        (const struct jinja_string *const *)jinja_parser_take(p, mark, &count);
    if (!parts) return NULL;
    if (count == 1) return parts[0];
    char *name = jinja_parser_alloc(p, len);
    if (!name) return NULL;
    size_t used = 0;
    for (size_t i = 0; i < count; ++i) {
        memcpy(name + used, parts[i]->data, parts[i]->len);
        used += parts[i]->len;
        name[used++] = '.';
    }
    return jinja_parser_string(p, name, len - 1);
}

// The name of a filter or test, remembered if there is none of that name.
static bool set_name(struct jinja_parser *p, struct jinja_expr *expr, const char *kind) {
    struct jinja_token token = p->token;
    expr->name = parse_dotted_name(p);
    if (!expr->name) return false;
    bool is_filter = expr->type == JINJA_EXPR_FILTER;
    const struct jinja_filter *filter = is_filter ? jinja_library_filter(expr->name) : NULL;
    bool is_known = is_filter ? filter && filter->run : jinja_library_test(expr->name) != NULL;
    if (is_known || p->is_soft || p->unknown.text) return true;
    p->unknown_is_refused = filter != NULL;
    p->unknown = token;
    p->unknown.text = expr->name->data;
    p->unknown.len = expr->name->len;
    p->unknown_kind = kind;
    return true;
}

struct jinja_expr *jinja_parser_filter(struct jinja_parser *p, struct jinja_expr *left) {
    struct jinja_expr *expr = jinja_parser_new_expr(p, JINJA_EXPR_FILTER, p->token.line);
    if (!expr || !jinja_parser_adopt(p, expr, left)) return NULL;
    expr->left = left;
    if (!set_name(p, expr, "filter")) return NULL;
    if (jinja_parser_at(p, JINJA_TOKEN_LPAREN) && !parse_args(p, expr)) return NULL;
    return expr;
}

struct jinja_expr *jinja_parser_filters(struct jinja_parser *p, struct jinja_expr *left) {
    while (jinja_parser_skip(p, JINJA_TOKEN_PIPE)) {
        left = jinja_parser_filter(p, left);
        if (!left) return NULL;
    }
    return left;
}

// Whether an argument without parentheses follows the name of a test.
static bool at_bare_arg(const struct jinja_parser *p) {
    switch (p->token.type) {
    case JINJA_TOKEN_NAME:
        return !jinja_parser_at_name(p, "else") && !jinja_parser_at_name(p, "or") &&
               !jinja_parser_at_name(p, "and");
    case JINJA_TOKEN_STRING:
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_FLOAT:
    case JINJA_TOKEN_LBRACKET:
    case JINJA_TOKEN_LBRACE:
        return true;
    default:
        return false;
    }
}

static bool parse_bare_arg(struct jinja_parser *p, struct jinja_expr *test) {
    if (jinja_parser_at_name(p, "is")) {
        jinja_parser_fail(p, p->token.line, "tests cannot be chained with 'is'");
        return false;
    }
    test->args.values = jinja_parser_alloc(p, sizeof *test->args.values);
    struct jinja_expr *value = jinja_parser_postfix(p, jinja_parser_primary(p));
    if (!test->args.values || !value) return false;
    test->args.values[0] = value;
    test->args.num_values = 1;
    return jinja_parser_adopt(p, test, value);
}

struct jinja_expr *jinja_parser_test(struct jinja_parser *p, struct jinja_expr *left) {
    uint32_t line = p->token.line;
    jinja_parser_advance(p);
    bool is_negated = jinja_parser_skip_name(p, "not");
    struct jinja_expr *test = jinja_parser_new_expr(p, JINJA_EXPR_TEST, line);
    if (!test || !jinja_parser_adopt(p, test, left)) return NULL;
    test->left = left;
    if (!set_name(p, test, "test")) return NULL;
    bool is_good = true;
    if (jinja_parser_at(p, JINJA_TOKEN_LPAREN)) {
        is_good = parse_args(p, test);
    } else if (at_bare_arg(p)) {
        is_good = parse_bare_arg(p, test);
    }
    if (!is_good || !is_negated) return is_good ? test : NULL;
    struct jinja_expr *negation = jinja_parser_new_expr(p, JINJA_EXPR_UNARY, line);
    if (!negation || !jinja_parser_adopt(p, negation, test)) return NULL;
    negation->unary = JINJA_OP_NOT;
    negation->left = test;
    return negation;
}
