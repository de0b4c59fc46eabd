/* Statements: one function per tag, in a table. Each is called at what follows the tag's name and
 * ends before the last %}.
 *
 * What only Jinja's compiler refuses is refused here too: break outside of a loop, a macro's
 * parameter named twice, a block tag named twice. */
#include <string.h>

#include "jinja/src/parse/parser.h"

// State of the parser that a scope of its own changes, and that is restored behind it.
struct around {
    bool is_soft, is_in_loop;
    struct jinja_special_uses *uses;
};

static struct around enter_scope(struct jinja_parser *p) {
    struct around around = {p->is_soft, p->is_in_loop, p->uses};
    p->is_soft = false;
    return around;
}

static void leave_scope(struct jinja_parser *p, const struct around *around) {
    p->is_soft = around->is_soft;
    p->is_in_loop = around->is_in_loop;
    p->uses = around->uses;
}

static struct jinja_stmt *push_stmt(struct jinja_parser *p, enum jinja_stmt_type type) {
    return jinja_parser_push_stmt(p, type, p->tag->name.line);
}

// The body up to the one name `end`, which is passed.
static bool parse_body(struct jinja_parser *p, const char *end, struct jinja_block *out) {
    if (!jinja_parser_body(p, (const char *const[]){end, NULL}, out)) return false;
    jinja_parser_advance(p);
    return true;
}

static bool expect_name(struct jinja_parser *p, const char *name, const char *want) {
    if (jinja_parser_skip_name(p, name)) return true;
    jinja_parser_fail_token(p, want);
    return false;
}

// ---- if, for ----

// One branch: the condition unless it is the else, and the body.
static struct jinja_branch *push_branch(struct jinja_parser *p, bool is_else) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jinja_branch *branch = jinja_parser_alloc(p, sizeof *branch);
    if (!branch) return NULL;
    if (!is_else) {
        branch->condition = jinja_parser_tuple(p, JINJA_TUPLE_NO_TERNARY);
        if (!branch->condition) return NULL;
    }
    if (!jinja_parser_body(p, is_else ? ends + 2 : ends, &branch->body)) return NULL;
    jinja_parser_push(p, branch);
    return branch;
}

static bool parse_if(struct jinja_parser *p) {
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_IF);
    bool was_soft = p->is_soft;
    p->is_soft = true;
    size_t mark = p->stack_len, count;
    bool is_good = stmt && push_branch(p, false);
    while (is_good && !jinja_parser_skip_name(p, "endif")) {
        bool is_else = jinja_parser_at_name(p, "else");
        jinja_parser_advance(p);
        is_good = push_branch(p, is_else);
    }
    p->is_soft = was_soft;
    struct jinja_branch **parts =
        is_good ? (struct jinja_branch **)jinja_parser_take(p, mark, &count) : NULL;
    if (!parts) return false;
    stmt->if_.branches = jinja_parser_alloc(p, count * sizeof *stmt->if_.branches);
    if (!stmt->if_.branches) return false;
    for (size_t i = 0; i < count; ++i) stmt->if_.branches[i] = *parts[i];
    stmt->if_.num_branches = count;
    return true;
}

// for target in iterable if filter recursive: up to the %}.
static bool parse_for_head(struct jinja_parser *p, struct jinja_for_stmt *loop) {
    loop->target = jinja_parser_targets(p, 0);
    if (!loop->target || !expect_name(p, "in", "'in'")) return false;
    loop->iterable = jinja_parser_tuple(p, JINJA_TUPLE_NO_TERNARY);
    if (!loop->iterable) return false;
    if (jinja_parser_skip_name(p, "if")) {
        struct around around = enter_scope(p);
        loop->filter = jinja_parser_expr(p);
        leave_scope(p, &around);
        if (!loop->filter) return false;
    }
    loop->is_recursive = jinja_parser_skip_name(p, "recursive");
    return true;
}

static bool parse_for_bodies(struct jinja_parser *p, struct jinja_for_stmt *loop) {
    static const char *const ends[] = {"else", "endfor", NULL};
    bool was_in_loop = p->is_in_loop;
    p->is_in_loop = true;
    if (!jinja_parser_body(p, ends, &loop->body)) return false;
    if (jinja_parser_skip_name(p, "endfor")) return true;
    jinja_parser_advance(p);
    // A break in the else is the outer loop's; a recursive loop is a function of its own.
    p->is_in_loop = was_in_loop && !loop->is_recursive;
    return parse_body(p, "endfor", &loop->otherwise);
}

static bool parse_for(struct jinja_parser *p) {
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_FOR);
    struct jinja_for_stmt *loop = stmt ? jinja_parser_alloc(p, sizeof *loop) : NULL;
    if (!loop) return false;
    stmt->loop = loop;
    ++p->num_loops;
    bool is_good = parse_for_head(p, loop);
    struct around around = enter_scope(p);
    is_good = is_good && parse_for_bodies(p, loop);
    leave_scope(p, &around);
    --p->num_loops;
    return is_good;
}

static bool parse_break(struct jinja_parser *p) {
    bool is_break = jinja_token_is_name(&p->tag->name, "break");
    if (!p->is_in_loop) {
        jinja_parser_fail(p, p->tag->name.line, "'%s' outside of a loop",
                          is_break ? "break" : "continue");
        return false;
    }
    return push_stmt(p, is_break ? JINJA_STMT_BREAK : JINJA_STMT_CONTINUE);
}

// ---- set, with ----

static bool parse_set(struct jinja_parser *p) {
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_SET);
    if (!stmt) return false;
    stmt->target = jinja_parser_targets(p, JINJA_TARGETS_NAMESPACE);
    if (!stmt->target) return false;
    if (jinja_parser_skip(p, JINJA_TOKEN_ASSIGN)) {
        stmt->expr = jinja_parser_tuple(p, 0);
        return stmt->expr;
    }
    stmt->type = JINJA_STMT_SET_BLOCK;
    struct around around = enter_scope(p);
    stmt->expr = jinja_parser_filters(p, NULL);
    bool is_good = parse_body(p, "endset", &stmt->body);
    leave_scope(p, &around);
    return is_good;
}

// The variables of a with, each pushed as its target and its value.
static bool push_variables(struct jinja_parser *p) {
    for (bool is_first = true; !jinja_parser_at(p, JINJA_TOKEN_BLOCK_END); is_first = false) {
        if (!is_first && !jinja_parser_expect(p, JINJA_TOKEN_COMMA, "'%}'")) return false;
        struct jinja_target *target = jinja_parser_targets(p, JINJA_TARGETS_PARAM);
        if (!target || !jinja_parser_expect(p, JINJA_TOKEN_ASSIGN, "'='")) return false;
        struct jinja_expr *value = jinja_parser_expr(p);
        if (!value) return false;
        jinja_parser_push(p, target);
        jinja_parser_push(p, value);
    }
    return true;
}

static bool parse_with(struct jinja_parser *p) {
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_WITH);
    size_t mark = p->stack_len, count;
    if (!stmt || !push_variables(p)) return false;
    void **parts = jinja_parser_take(p, mark, &count);
    if (!parts) return false;
    count /= 2;
    stmt->with.targets = jinja_parser_alloc(p, count * sizeof *stmt->with.targets);
    stmt->with.values = jinja_parser_alloc(p, count * sizeof *stmt->with.values);
    if (!stmt->with.targets || !stmt->with.values) return false;
    for (size_t i = 0; i < count; ++i) {
        stmt->with.targets[i] = parts[2 * i];
        stmt->with.values[i] = parts[2 * i + 1];
    }
    stmt->with.count = count;
    struct around around = enter_scope(p);
    bool is_good = parse_body(p, "endwith", &stmt->body);
    leave_scope(p, &around);
    return is_good;
}

// ---- macro, call ----

// (a, b, c=1, d=2): the parameters and their defaults, pushed in pairs.
static bool push_params(struct jinja_parser *p) {
    bool has_default = false;
    for (bool is_first = true; !jinja_parser_at(p, JINJA_TOKEN_RPAREN); is_first = false) {
        if (!is_first && !jinja_parser_expect(p, JINJA_TOKEN_COMMA, "')'")) return false;
        const struct jinja_string *name = jinja_parser_target_name(p);
        if (!name) return false;
        jinja_parser_note_set(p, name);
        struct jinja_expr *value = NULL;
        if (jinja_parser_skip(p, JINJA_TOKEN_ASSIGN)) {
            has_default = true;
            value = jinja_parser_expr(p);
            if (!value) return false;
        } else if (has_default) {
            jinja_parser_fail(p, p->token.line,
                              "a parameter without a default follows one with a default");
            return false;
        }
        jinja_parser_push(p, name);
        jinja_parser_push(p, value);
    }
    return true;
}

static bool parse_params(struct jinja_parser *p, struct jinja_macro_decl *macro) {
    uint32_t line = p->token.line;
    size_t mark = p->stack_len, count;
    if (!jinja_parser_expect(p, JINJA_TOKEN_LPAREN, "'('") || !push_params(p)) return false;
    jinja_parser_advance(p);
    void **parts = jinja_parser_take(p, mark, &count);
    if (!parts) return false;
    count /= 2;
    macro->params = jinja_parser_alloc(p, count * sizeof *macro->params);
    macro->defaults = jinja_parser_alloc(p, count * sizeof *macro->defaults);
    if (!macro->params || !macro->defaults) return false;
    for (size_t i = 0; i < count; ++i) {
        macro->params[i] = parts[2 * i];
        macro->defaults[i] = parts[2 * i + 1];
    }
    macro->num_params = count;
    return jinja_parser_check_unique(p, macro->params, count, line, "repeated parameter");
}

// The body of a macro or call block, and which special variables it names.
static bool parse_macro_body(struct jinja_parser *p, const char *end,
                             struct jinja_macro_decl *macro) {
    struct around around = enter_scope(p);
    struct jinja_special_uses uses = {.outer = p->uses};
    p->uses = &uses;
    p->is_in_loop = false;
    bool is_good = parse_body(p, end, &macro->body);
    leave_scope(p, &around);
    macro->uses_caller = uses.used & JINJA_USES_CALLER;
    macro->uses_kwargs = uses.used & JINJA_USES_KWARGS;
    macro->uses_varargs = uses.used & JINJA_USES_VARARGS;
    for (size_t i = 0; i < macro->num_params; ++i) {
        if (jinja_string_is(macro->params[i], "kwargs")) macro->uses_kwargs = false;
        if (jinja_string_is(macro->params[i], "varargs")) macro->uses_varargs = false;
        if (is_good && macro->uses_caller && !macro->defaults[i] &&
            jinja_string_is(macro->params[i], "caller")) {
            jinja_parser_fail(p, p->tag->name.line, "the parameter 'caller' needs a default");
            return false;
        }
    }
    return is_good;
}

static bool parse_macro(struct jinja_parser *p) {
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_MACRO);
    struct jinja_macro_decl *macro = stmt ? jinja_parser_alloc(p, sizeof *macro) : NULL;
    if (!macro) return false;
    stmt->macro = macro;
    macro->name = jinja_parser_target_name(p);
    if (!macro->name) return false;
    struct around around = enter_scope(p);
    bool is_good = parse_params(p, macro);
    leave_scope(p, &around);
    return is_good && parse_macro_body(p, "endmacro", macro);
}

static bool parse_call(struct jinja_parser *p) {
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_CALL);
    struct jinja_macro_decl *macro = stmt ? jinja_parser_alloc(p, sizeof *macro) : NULL;
    if (!macro) return false;
    stmt->macro = macro;
    macro->name = jinja_parser_string(p, "caller", strlen("caller"));
    if (jinja_parser_at(p, JINJA_TOKEN_LPAREN)) {
        struct around around = enter_scope(p);
        bool is_good = parse_params(p, macro);
        leave_scope(p, &around);
        if (!is_good) return false;
    }
    stmt->expr = jinja_parser_expr(p);
    if (!stmt->expr) return false;
    if (stmt->expr->type != JINJA_EXPR_CALL) {
        jinja_parser_fail(p, stmt->line, "'call' wants a call, as in {%% call name() %%}");
        return false;
    }
    const struct jinja_expr_args *args = &stmt->expr->args;
    for (size_t i = 0; i < args->num_names; ++i) {
        if (!jinja_string_is(args->names[i], "caller")) continue;
        jinja_parser_fail(p, stmt->line, "repeated keyword argument 'caller'");
        return false;
    }
    return parse_macro_body(p, "endcall", macro);
}

// ---- bodies in a scope of their own ----

static bool parse_filter(struct jinja_parser *p) {
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_FILTER);
    if (!stmt) return false;
    struct around around = enter_scope(p);
    stmt->expr = jinja_parser_filter(p, NULL);
    if (stmt->expr) stmt->expr = jinja_parser_filters(p, stmt->expr);
    bool is_good = stmt->expr && parse_body(p, "endfilter", &stmt->body);
    leave_scope(p, &around);
    return is_good;
}

static bool parse_autoescape(struct jinja_parser *p) {
    jinja_parser_fail(p, p->tag->name.line, "tag 'autoescape' of Jinja2 is not supported");
    return false;
}

// Jinja makes a function of it, so that no break leads out.
static bool parse_generation(struct jinja_parser *p) {
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_GENERATION);
    if (!stmt) return false;
    struct around around = enter_scope(p);
    p->is_in_loop = false;
    bool is_good = parse_body(p, "endgeneration", &stmt->body);
    leave_scope(p, &around);
    return is_good;
}

// {% block name scoped %}: no template extends this one, so the body stands where it is.
static bool parse_block(struct jinja_parser *p) {
    struct jinja_token name = p->token;
    struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_BLOCK);
    if (!stmt || !jinja_parser_expect(p, JINJA_TOKEN_NAME, "the name of the block")) return false;
    jinja_parser_skip_name(p, "scoped");
    if (jinja_parser_at_name(p, "required")) {
        jinja_parser_fail(p, stmt->line, "a required block wants another template to fill it");
        return false;
    }
    bool existed = false;
    enum status status =
        strmap_put(&p->block_names, name.text, name.len, 0, &existed, p->lexer.err);
    if (status) {
        jinja_parser_fail_nomem(p);
        return false;
    }
    if (existed) {
        jinja_parser_fail(p, stmt->line, "there is a block '%.*s' before",
                          name.len < 40 ? (int)name.len : 40, name.text);
        return false;
    }
    struct around around = enter_scope(p);
    p->is_in_loop = false;
    struct jinja_special_uses uses = {0}; // names in it do not count for a macro around it
    p->uses = &uses;
    bool is_good = parse_body(p, "endblock", &stmt->body);
    leave_scope(p, &around);
    stmt->block.name = jinja_parser_string(p, name.text, name.len);
    stmt->block.uses_self = uses.used & JINJA_USES_SELF;
    stmt->block.next = p->blocks;
    p->blocks = stmt;
    bool is_named = jinja_parser_at(p, JINJA_TOKEN_NAME) && p->token.len == name.len &&
                    memcmp(p->token.text, name.text, name.len) == 0;
    if (is_good && is_named) jinja_parser_advance(p);
    return is_good;
}

// {% print a, b %}
static bool parse_print(struct jinja_parser *p) {
    for (bool is_first = true; !jinja_parser_at(p, JINJA_TOKEN_BLOCK_END); is_first = false) {
        if (!is_first && !jinja_parser_expect(p, JINJA_TOKEN_COMMA, "'%}'")) return false;
        struct jinja_stmt *stmt = push_stmt(p, JINJA_STMT_PRINT);
        if (!stmt) return false;
        stmt->expr = jinja_parser_expr(p);
        if (!stmt->expr) return false;
    }
    return true;
}

// ---- all of them ----

static bool parse_other_template(struct jinja_parser *p) {
    jinja_parser_fail(p, p->tag->name.line, "'%.*s' is not supported: there are no other templates",
                      (int)p->tag->name.len, p->tag->name.text);
    return false;
}

static const struct {
    const char *name;
    bool (*parse)(struct jinja_parser *p);
} statements[] = {
    {"autoescape", parse_autoescape},
    {"block", parse_block},
    {"break", parse_break},
    {"call", parse_call},
    {"continue", parse_break},
    {"extends", parse_other_template},
    {"filter", parse_filter},
    {"for", parse_for},
    {"from", parse_other_template},
    {"generation", parse_generation},
    {"if", parse_if},
    {"import", parse_other_template},
    {"include", parse_other_template},
    {"macro", parse_macro},
    {"print", parse_print},
    {"set", parse_set},
    {"with", parse_with},
};

// No statement has this name. It ends a statement that is not open, or nobody knows it.
static void fail_unknown(struct jinja_parser *p) {
    bool is_end = (p->token.len > 3 && memcmp(p->token.text, "end", 3) == 0) ||
                  jinja_parser_at_name(p, "else") || jinja_parser_at_name(p, "elif");
    int len = p->token.len < 40 ? (int)p->token.len : 40;
    if (!is_end) {
        jinja_parser_fail(p, p->token.line, "unknown tag '%.*s'", len, p->token.text);
    } else if (p->tag) {
        jinja_parser_fail(p, p->token.line, "unexpected '%.*s' inside the '%.*s' of line %u", len,
                          p->token.text, (int)p->tag->name.len, p->tag->name.text,
                          p->tag->name.line);
    } else {
        jinja_parser_fail(p, p->token.line, "unexpected '%.*s'", len, p->token.text);
    }
}

bool jinja_parser_stmt(struct jinja_parser *p) {
    if (!jinja_parser_at(p, JINJA_TOKEN_NAME)) {
        jinja_parser_fail_token(p, "the name of a tag");
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(statements); ++i) {
        if (!jinja_parser_at_name(p, statements[i].name)) continue;
        if (!jinja_parser_enter(p)) return false;
        struct jinja_open_tag tag = {p->token, p->tag};
        p->tag = &tag;
        jinja_parser_advance(p);
        bool is_good = statements[i].parse(p);
        p->tag = tag.outer;
        jinja_parser_leave(p);
        return is_good;
    }
    fail_unknown(p);
    return false;
}
