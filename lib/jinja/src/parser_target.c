/* What can be assigned to: names, attributes of a namespace (in `set` only), tuples of these. */
#include "jinja/src/parser.h"

#include <string.h>

static struct target *new_target(struct parser *p, enum target_type type, uint32_t line) {
    struct target *target = parser_alloc(p, sizeof *target);
    if (!target) return NULL;
    target->type = type;
    target->line = line;
    return target;
}

const struct string *parser_target_name(struct parser *p) {
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < ARRAY_LEN(constants); ++i) {
        if (parser_at_name(p, constants[i]))
            parser_fail(p, p->token.line, "cannot assign to '%s'", constants[i]);
    }
    return parser_name(p);
}

static struct target *parse_name(struct parser *p, unsigned flags) {
    struct token token = p->token;
    const struct string *name = parser_target_name(p);
    struct target *target = name ? new_target(p, TARGET_NAME, token.line) : NULL;
    if (!target) return NULL;
    target->name = name;
    if (flags & TARGETS_NAMESPACE && parser_skip(p, TOKEN_DOT)) {
        target->type = TARGET_ATTRIBUTE;
        target->attribute = parser_name(p);
        return target->attribute ? target : NULL;
    }
    // Jinja looks for this in everything inside a loop.
    if (!(flags & TARGETS_PARAM) && p->num_loops > 0 && token_is_name(&token, "loop"))
        parser_fail(p, token.line, "cannot assign to 'loop' inside a 'for'");
    parser_note_set(p, name);
    return target;
}

static struct target *parse_item(struct parser *p, unsigned flags) {
    if (!parser_at(p, TOKEN_LPAREN)) {
        if (parser_at(p, TOKEN_NAME)) return parse_name(p, flags);
        parser_fail_token(p, "the name of a variable");
        return NULL;
    }
    if (!parser_enter(p)) return NULL;
    parser_advance(p);
    struct target *target =
        parser_targets(p, (flags & ~(unsigned)TARGETS_NAMESPACE) | TARGETS_IN_PARENS);
    parser_leave(p);
    return target && parser_expect(p, TOKEN_RPAREN, "')'") ? target : NULL;
}

// Not before `in`, which is a name here for Jinja, too: a trailing comma needs parentheses.
static bool at_end(const struct parser *p) {
    return parser_at(p, TOKEN_BLOCK_END) || parser_at(p, TOKEN_RPAREN);
}

struct target *parser_targets(struct parser *p, unsigned flags) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len;
    bool is_tuple = false;
    while (!at_end(p)) {
        struct target *item = parse_item(p, flags);
        if (!item) return NULL;
        parser_push(p, item);
        if (!parser_skip(p, TOKEN_COMMA)) break;
        is_tuple = true;
    }
    size_t count;
    struct target **items = (struct target **)parser_take(p, mark, &count);
    if (!items) return NULL;
    if (count == 1 && !is_tuple) return items[0];
    if (count == 0 && !(flags & TARGETS_IN_PARENS)) {
        parser_fail_token(p, "the name of a variable");
        return NULL;
    }
    struct target *tuple = new_target(p, TARGET_TUPLE, line);
    if (!tuple) return NULL;
    tuple->items = items;
    tuple->num_items = count;
    return tuple;
}
