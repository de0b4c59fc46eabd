/* Tokens, lists and bodies of statements, which all rules of the grammar use. */
#include "jinja/src/parse/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "base/text/utf8.h"
#include "jinja/jinja.h"

// ---- faults ----

// After a fault no rule accepts the current token.
static void break_off(struct jinja_parser *p, enum status status) {
    p->status = status;
    p->token.type = JINJA_TOKEN_BROKEN;
    p->has_next = false;
}

void jinja_parser_fail_nomem(struct jinja_parser *p) {
    if (!p->status) break_off(p, err_nomem(p->lexer.err, "the tree of a template"));
}

void jinja_parser_fail(struct jinja_parser *p, uint32_t line, const char *format, ...) {
    if (p->status) return;
    char sentence[300];
    va_list args;
    va_start(args, format);
    c_locale_vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    break_off(p, jinja_lexer_fail(&p->lexer, line, "%s", sentence));
}

enum { SHOWN_BYTES = 40, SHOWN_SIZE = SHOWN_BYTES + 16 };

// The token as a sentence shows it, cut where it is long.
static void show_token(const struct jinja_token *token, char out[SHOWN_SIZE]) {
    const char *kind = token->type == JINJA_TOKEN_EOF         ? "end of template"
                       : token->type == JINJA_TOKEN_BLOCK_END ? "'%}'"
                       : token->type == JINJA_TOKEN_PRINT_END ? "'}}'"
                       : token->type == JINJA_TOKEN_STRING    ? "string"
                                                              : NULL;
    if (kind) {
        snprintf(out, SHOWN_SIZE, "%s", kind);
        return;
    }
    size_t len = token->len < SHOWN_BYTES ? token->len : SHOWN_BYTES;
    len = utf8_valid_prefix(token->text, len);
    snprintf(out, SHOWN_SIZE, "'%.*s'%s", (int)len, token->text, len < token->len ? "..." : "");
}

void jinja_parser_fail_token(struct jinja_parser *p, const char *want) {
    char shown[SHOWN_SIZE];
    show_token(&p->token, shown);
    jinja_parser_fail(p, p->token.line, "unexpected %s, want %s", shown, want);
}

// ---- tokens ----

static void read_token(struct jinja_parser *p, struct jinja_token *out) {
    enum status status = p->status ? p->status : jinja_lexer_next(&p->lexer, out);
    if (status) break_off(p, status);
}

void jinja_parser_advance(struct jinja_parser *p) {
    if (p->has_next) {
        p->token = p->next;
        p->has_next = false;
    } else {
        read_token(p, &p->token);
    }
}

const struct jinja_token *jinja_parser_look(struct jinja_parser *p) {
    if (!p->has_next) {
        struct jinja_token next = {0};
        read_token(p, &next);
        p->next = next;
        p->has_next = !p->status;
    }
    return &p->next;
}

bool jinja_token_is_name(const struct jinja_token *token, const char *name) {
    return token->type == JINJA_TOKEN_NAME && token->len == strlen(name) &&
           memcmp(token->text, name, token->len) == 0;
}

bool jinja_parser_at(const struct jinja_parser *p, enum jinja_token_type type) {
    return p->token.type == type;
}

bool jinja_parser_at_name(const struct jinja_parser *p, const char *name) {
    return jinja_token_is_name(&p->token, name);
}

bool jinja_parser_skip(struct jinja_parser *p, enum jinja_token_type type) {
    if (!jinja_parser_at(p, type)) return false;
    jinja_parser_advance(p);
    return true;
}

bool jinja_parser_skip_name(struct jinja_parser *p, const char *name) {
    if (!jinja_parser_at_name(p, name)) return false;
    jinja_parser_advance(p);
    return true;
}

bool jinja_parser_expect(struct jinja_parser *p, enum jinja_token_type type, const char *want) {
    if (jinja_parser_skip(p, type)) return true;
    jinja_parser_fail_token(p, want);
    return false;
}

// ---- the tree's memory ----

void *jinja_parser_alloc(struct jinja_parser *p, size_t size) {
    void *memory = p->status ? NULL : arena_alloc(p->arena, size);
    if (memory) {
        memset(memory, 0, size);
    } else {
        jinja_parser_fail_nomem(p);
    }
    return memory;
}

const struct jinja_string *jinja_parser_string(struct jinja_parser *p, const char *text,
                                               size_t len) {
    struct jinja_string *string = jinja_parser_alloc(p, sizeof *string);
    if (string) *string = jinja_string_of(text, len);
    return string;
}

const struct jinja_string *jinja_parser_name(struct jinja_parser *p) {
    struct jinja_token token = p->token;
    if (!jinja_parser_expect(p, JINJA_TOKEN_NAME, "a name")) return NULL;
    return jinja_parser_string(p, token.text, token.len);
}

bool jinja_parser_enter(struct jinja_parser *p) {
    if (p->depth == JINJA_AST_DEPTH_MAX) {
        jinja_parser_fail(p, p->token.line, "nested deeper than %d", JINJA_AST_DEPTH_MAX);
        return false;
    }
    ++p->depth;
    return true;
}

void jinja_parser_leave(struct jinja_parser *p) {
    --p->depth;
}

void jinja_parser_push(struct jinja_parser *p, const void *part) {
    if (p->status) return;
    if (p->stack_len == p->stack_capacity) {
        size_t capacity = p->stack_capacity ? p->stack_capacity * 2 : 64;
        void **stack = realloc(p->stack, capacity * sizeof *stack);
        if (!stack) {
            jinja_parser_fail_nomem(p);
            return;
        }
        p->stack = stack;
        p->stack_capacity = capacity;
    }
    p->stack[p->stack_len++] = (void *)(uintptr_t)part;
}

void **jinja_parser_take(struct jinja_parser *p, size_t mark, size_t *count) {
    size_t len = p->status ? 0 : p->stack_len - mark;
    void **list = jinja_parser_alloc(p, len * sizeof *list);
    if (!list) return NULL;
    if (len > 0) memcpy(list, p->stack + mark, len * sizeof *list);
    p->stack_len = mark;
    *count = len;
    return list;
}

bool jinja_parser_check_unique(struct jinja_parser *p, const struct jinja_string *const *names,
                               size_t count, uint32_t line, const char *what) {
    struct strmap seen = {0};
    for (size_t i = 0; i < count && count > 1 && !p->status; ++i) {
        bool existed = false;
        if (strmap_put(&seen, names[i]->data, names[i]->len, 0, &existed, p->lexer.err)) {
            jinja_parser_fail_nomem(p);
        } else if (existed) {
            jinja_parser_fail(p, line, "%s '%.*s'", what,
                              (int)(names[i]->len < SHOWN_BYTES ? names[i]->len : SHOWN_BYTES),
                              names[i]->data);
        }
    }
    strmap_fini(&seen);
    return !p->status;
}

// ---- special variables ----

static unsigned special_name(const struct jinja_string *name) {
    return jinja_string_is(name, "caller")    ? JINJA_USES_CALLER
           : jinja_string_is(name, "kwargs")  ? JINJA_USES_KWARGS
           : jinja_string_is(name, "varargs") ? JINJA_USES_VARARGS
           : jinja_string_is(name, "self")    ? JINJA_USES_SELF
                                              : 0;
}

// A name in a macro counts for the scope around the macro too.
void jinja_parser_note_read(struct jinja_parser *p, const struct jinja_string *name) {
    unsigned bit = special_name(name);
    if (bit == 0) return;
    for (struct jinja_special_uses *uses = p->uses; uses; uses = uses->outer)
        uses->used |= bit & ~uses->set;
}

void jinja_parser_note_set(struct jinja_parser *p, const struct jinja_string *name) {
    unsigned bit = special_name(name);
    if (bit == 0) return;
    for (struct jinja_special_uses *uses = p->uses; uses; uses = uses->outer) uses->set |= bit;
}

// ---- bodies ----

struct jinja_stmt *jinja_parser_push_stmt(struct jinja_parser *p, enum jinja_stmt_type type,
                                          uint32_t line) {
    struct jinja_stmt *stmt = jinja_parser_alloc(p, sizeof *stmt);
    if (!stmt) return NULL;
    stmt->type = type;
    stmt->line = line;
    jinja_parser_push(p, stmt);
    return stmt;
}

static bool parse_text(struct jinja_parser *p) {
    struct jinja_stmt *stmt = jinja_parser_push_stmt(p, JINJA_STMT_TEXT, p->token.line);
    if (!stmt) return false;
    stmt->text = jinja_parser_string(p, p->token.text, p->token.len);
    jinja_parser_advance(p);
    return stmt->text;
}

static bool parse_print(struct jinja_parser *p) {
    struct jinja_stmt *stmt = jinja_parser_push_stmt(p, JINJA_STMT_PRINT, p->token.line);
    if (!stmt) return false;
    jinja_parser_advance(p);
    stmt->expr = jinja_parser_tuple(p, 0);
    return stmt->expr && jinja_parser_expect(p, JINJA_TOKEN_PRINT_END, "'}}'");
}

static bool at_end_name(const struct jinja_parser *p, const char *const *ends) {
    for (; ends && *ends; ++ends)
        if (jinja_parser_at_name(p, *ends)) return true;
    return false;
}

// The statements up to one of `ends`, or for NULL up to the end of the template.
static bool parse_stmts(struct jinja_parser *p, const char *const *ends, struct jinja_block *out) {
    size_t mark = p->stack_len;
    bool is_good = true, is_end = false;
    while (is_good && !is_end) {
        if (jinja_parser_at(p, JINJA_TOKEN_TEXT)) {
            is_good = parse_text(p);
        } else if (jinja_parser_at(p, JINJA_TOKEN_PRINT_BEGIN)) {
            is_good = parse_print(p);
        } else if (jinja_parser_skip(p, JINJA_TOKEN_BLOCK_BEGIN)) {
            is_end = at_end_name(p, ends);
            is_good = is_end || (jinja_parser_stmt(p) &&
                                 jinja_parser_expect(p, JINJA_TOKEN_BLOCK_END, "'%}'"));
        } else {
            is_end = true; // of the template, or a fault
        }
    }
    if (!is_good) return false;
    out->stmts = (struct jinja_stmt **)jinja_parser_take(p, mark, &out->num_stmts);
    return out->stmts;
}

bool jinja_parser_body(struct jinja_parser *p, const char *const *ends, struct jinja_block *out) {
    jinja_parser_skip(p, JINJA_TOKEN_COLON); // Jinja allows Python's
    if (!jinja_parser_expect(p, JINJA_TOKEN_BLOCK_END, "'%}'") || !parse_stmts(p, ends, out))
        return false;
    if (!jinja_parser_at(p, JINJA_TOKEN_EOF)) return true;
    while (ends[1]) ++ends;
    jinja_parser_fail(p, p->token.line,
                      "unexpected end of template, want '%s' for the '%.*s' of line %u", *ends,
                      (int)p->tag->name.len, p->tag->name.text, p->tag->name.line);
    return false;
}

// ---- the whole ----

static enum status check_source(const char *source, size_t len, const char *what, struct err *err) {
    if (len > JINJA_SOURCE_MAX)
        return err_set(err, ERR_FORMAT, "%s: the template has %zu bytes, want at most %d", what,
                       len, JINJA_SOURCE_MAX);
    size_t good = utf8_valid_prefix(source, len);
    if (good < len) return err_set(err, ERR_FORMAT, "%s: byte %zu is not UTF-8", what, good);
    return OK;
}

static void check_unknown(struct jinja_parser *p) {
    if (!p->unknown.text) return;
    char shown[SHOWN_SIZE];
    show_token(&p->unknown, shown);
    if (p->unknown_is_refused)
        jinja_parser_fail(p, p->unknown.line, "%s %s of Jinja2 is not supported", p->unknown_kind,
                          shown);
    else
        jinja_parser_fail(p, p->unknown.line, "no %s named %s", p->unknown_kind, shown);
}

enum status jinja_ast_parse(struct jinja_ast *out, struct arena *arena, const char *source,
                            size_t len, const char *what, struct err *err) {
    *out = (struct jinja_ast){0};
    enum status status = check_source(source, len, what, err);
    if (status) return status;
    struct jinja_special_uses uses = {0};
    struct jinja_parser p = {.arena = arena, .uses = &uses};
    status = jinja_lexer_init(&p.lexer, arena, source, len, what, err);
    if (status) return status;
    jinja_parser_advance(&p);
    if (parse_stmts(&p, NULL, &out->root)) check_unknown(&p);
    out->blocks = p.blocks;
    out->uses_self = uses.used & JINJA_USES_SELF;
    free(p.stack);
    strmap_fini(&p.block_names);
    return p.status;
}
