/* The parser's state and what its files share: parser.c (tokens, bodies of statements),
 * parser_stmt.c, parser_target.c (what is assigned to), parser_expr.c and parser_args.c.
 *
 * The grammar is Jinja's, rule by rule. A function that gives NULL or false has failed; the sentence
 * is written, and the first one stays. After a fault the current token is TOKEN_BROKEN, which no rule
 * accepts, so that moving on needs no check of its own. */
#ifndef JINJA_PARSER_H
#define JINJA_PARSER_H

#include "base/map.h"
#include "jinja/src/lexer.h"

// A statement whose end is awaited.
struct open_tag {
    struct token name;
    const struct open_tag *outer;
};

enum { USES_CALLER = 1, USES_KWARGS = 2, USES_VARARGS = 4, USES_SELF = 8 };

// Which special variables the body of a macro or a block, or the template, names before it sets them.
struct special_uses {
    struct special_uses *outer; // NULL: a block or the template
    unsigned set, used; // USES_* bits
};

struct parser {
    struct lexer lexer;
    struct token token; // current
    struct token next; // if has_next
    bool has_next;
    enum status status; // of the first fault
    struct arena *arena;
    uint32_t depth; // of nested rules, at most AST_DEPTH_MAX
    void **stack; // [stack_len] parts of lists that are not complete yet
    size_t stack_len, stack_capacity;
    const struct open_tag *tag; // innermost
    struct special_uses *uses; // innermost
    struct strmap block_names;
    struct stmt *blocks; // those parsed, the last one first
    uint32_t num_loops; // for statements around, their else included
    bool is_in_loop; // break and continue have a loop to go to
    // Inside `if` statements and conditional expressions an unknown filter or test is a fault only
    // when it is reached, and it may be known only later that one is inside: the first is kept.
    bool is_soft;
    struct token unknown; // its name; text NULL: none
    const char *unknown_kind; // "filter", "test"
    bool unknown_is_refused; // Jinja2 has it
};

// ---- parser.c ----

void parser_fail(struct parser *p, uint32_t line, const char *format, ...) PRINTF_LIKE(3, 4);
void parser_fail_nomem(struct parser *p);
// "unexpected <the current token>, want <want>".
void parser_fail_token(struct parser *p, const char *want);
void parser_advance(struct parser *p);
const struct token *parser_look(struct parser *p); // the one behind the current
bool token_is_name(const struct token *token, const char *name);
bool parser_at(const struct parser *p, enum token_type type);
bool parser_at_name(const struct parser *p, const char *name);
bool parser_skip(struct parser *p, enum token_type type); // true: it was there
bool parser_skip_name(struct parser *p, const char *name);
bool parser_expect(struct parser *p, enum token_type type, const char *want);
// Zeroed memory of the tree.
void *parser_alloc(struct parser *p, size_t size);
const struct string *parser_string(struct parser *p, const char *text, size_t len);
// The current name, which is passed.
const struct string *parser_name(struct parser *p);
// Around a rule that may lead to itself.
bool parser_enter(struct parser *p);
void parser_leave(struct parser *p);
// Lists of unknown length: parts are pushed from a mark (stack_len) on, then moved to the tree.
// A push that failed makes parser_take fail.
void parser_push(struct parser *p, const void *part);
void **parser_take(struct parser *p, size_t mark, size_t *count);
// Fails if one of the names is there twice: "<what> '<name>'".
bool parser_check_unique(struct parser *p, const struct string *const *names, size_t count,
                         uint32_t line, const char *what);
void parser_note_read(struct parser *p, const struct string *name);
void parser_note_set(struct parser *p, const struct string *name);
// A statement at the end of the list that is being parsed.
struct stmt *parser_push_stmt(struct parser *p, enum stmt_type type, uint32_t line);
// The statements up to {% and one of the names (the last one is what the statement wants), which is
// then current; from the end of the statement's own tag on.
bool parser_body(struct parser *p, const char *const *ends, struct block *out);

// ---- parser_expr.c ----

enum { TUPLE_NO_TERNARY = 1, TUPLE_IN_PARENS = 2 };

// With or without `a if b else c`.
struct expr *parser_expr(struct parser *p);
struct expr *parser_expr_no_ternary(struct parser *p);
// One expression, or several with commas: a tuple.
struct expr *parser_tuple(struct parser *p, unsigned flags);
// A literal, a name or something in brackets; and what is called on or taken from it.
struct expr *parser_primary(struct parser *p);
struct expr *parser_postfix(struct parser *p, struct expr *left);
struct expr *parser_new_expr(struct parser *p, enum expr_type type, uint32_t line);
// Sets the height of `parent`, above what it has; NULL children are fine.
bool parser_adopt(struct parser *p, struct expr *parent, const struct expr *child);

// ---- parser_args.c ----

struct expr *parser_call(struct parser *p, struct expr *callee);
// | name | name ...; without a pipe `left` itself.
struct expr *parser_filters(struct parser *p, struct expr *left);
struct expr *parser_filter(struct parser *p, struct expr *left); // at the name
struct expr *parser_test(struct parser *p, struct expr *left); // at `is`

// ---- parser_target.c ----

enum { TARGETS_NAMESPACE = 1, TARGETS_PARAM = 2, TARGETS_IN_PARENS = 4 };

struct target *parser_targets(struct parser *p, unsigned flags);
// A name that may be assigned to; passed.
const struct string *parser_target_name(struct parser *p);

// ---- parser_stmt.c ----

// The statement whose name is current, up to its %}; pushed.
bool parser_stmt(struct parser *p);

#endif
