/* What can be assigned to: names, attributes of a namespace (in `set` only), tuples of these. */
#include "jinja/src/parse/parser.h"

#include <string.h>

static struct jinja_target *new_target(struct jinja_parser *p, enum jinja_target_type type,
                                       uint32_t line) {
    struct jinja_target *target = jinja_parser_alloc(p, sizeof *target);
    if (!target) return NULL;
    target->type = type;
    target->line = line;
    return target;
}

const struct jinja_string *jinja_parser_target_name(struct jinja_parser *p) {
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < ARRAY_LEN(constants); ++i) {
        if (jinja_parser_at_name(p, constants[i]))
            jinja_parser_fail(p, p->token.line, "cannot assign to '%s'", constants[i]);
    }
    return jinja_parser_name(p);
}

static struct jinja_target *parse_name(struct jinja_parser *p, unsigned flags) {
    struct jinja_token token = p->token;
    const struct jinja_string *name = jinja_parser_target_name(p);
    struct jinja_target *target = name ? new_target(p, JINJA_TARGET_NAME, token.line) : NULL;
    if (!target) return NULL;
    target->name = name;
    if (flags & JINJA_TARGETS_NAMESPACE && jinja_parser_skip(p, JINJA_TOKEN_DOT)) {
        target->type = JINJA_TARGET_ATTRIBUTE;
        target->attribute = jinja_parser_name(p);
        return target->attribute ? target : NULL;
    }
    // As in Jinja this holds for all names that are set inside a loop.
    if (!(flags & JINJA_TARGETS_PARAM) && p->num_loops > 0 && jinja_token_is_name(&token, "loop"))
        jinja_parser_fail(p, token.line, "cannot assign to 'loop' inside a 'for'");
    jinja_parser_note_set(p, name);
    return target;
}

static struct jinja_target *parse_item(struct jinja_parser *p, unsigned flags) {
    if (!jinja_parser_at(p, JINJA_TOKEN_LPAREN)) {
        if (jinja_parser_at(p, JINJA_TOKEN_NAME)) return parse_name(p, flags);
        jinja_parser_fail_token(p, "the name of a variable");
        return NULL;
    }
    if (!jinja_parser_enter(p)) return NULL;
    jinja_parser_advance(p);
    struct jinja_target *target = jinja_parser_targets(
        p, (flags & ~(unsigned)JINJA_TARGETS_NAMESPACE) | JINJA_TARGETS_IN_PARENS);
    jinja_parser_leave(p);
    return target && jinja_parser_expect(p, JINJA_TOKEN_RPAREN, "')'") ? target : NULL;
}

// Whether a list of targets ends after a comma. It does not end before `in`, because Jinja reads
// that as a name here.
static bool at_end(const struct jinja_parser *p) {
    return jinja_parser_at(p, JINJA_TOKEN_BLOCK_END) || jinja_parser_at(p, JINJA_TOKEN_RPAREN);
}

struct jinja_target *jinja_parser_targets(struct jinja_parser *p, unsigned flags) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len;
    bool is_tuple = false;
    while (!at_end(p)) {
        struct jinja_target *item = parse_item(p, flags);
        if (!item) return NULL;
        jinja_parser_push(p, item);
        if (!jinja_parser_skip(p, JINJA_TOKEN_COMMA)) break;
        is_tuple = true;
    }
    size_t count;
    struct jinja_target **items = (struct jinja_target **)jinja_parser_take(p, mark, &count);
    if (!items) return NULL;
    if (count == 1 && !is_tuple) return items[0];
    if (count == 0 && !(flags & JINJA_TARGETS_IN_PARENS)) {
        jinja_parser_fail_token(p, "the name of a variable");
        return NULL;
    }
    struct jinja_target *tuple = new_target(p, JINJA_TARGET_TUPLE, line);
    if (!tuple) return NULL;
    tuple->items = items;
    tuple->num_items = count;
    return tuple;
}
