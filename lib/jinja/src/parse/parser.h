/* The parser's state and what its files share: parser.c (tokens, bodies of statements),
 * parser_stmt.c, parser_target.c (what is assigned to), parser_expr.c and parser_args.c.
 *
 * The grammar is Jinja's, rule by rule. A function that gives NULL or false has failed; the
 * sentence is written, and the first one stays. After a fault the current token is
 * JINJA_TOKEN_BROKEN, which no rule accepts, so that moving on needs no check of its own. */
#ifndef JINJA_PARSER_H
#define JINJA_PARSER_H

#include "base/os/map.h"
#include "jinja/src/parse/lexer.h"

// A statement whose end tag has not come yet.
struct jinja_open_tag {
    struct jinja_token name;
    const struct jinja_open_tag *outer;
};

enum { JINJA_USES_CALLER = 1, JINJA_USES_KWARGS = 2, JINJA_USES_VARARGS = 4, JINJA_USES_SELF = 8 };

// Which special variables the body of a macro or a block, or the template, names before it sets
// them.
struct jinja_special_uses {
    struct jinja_special_uses *outer; // NULL: a block or the template
    unsigned set, used; // JINJA_USES_* bits
};

struct jinja_parser {
    struct jinja_lexer lexer;
    struct jinja_token token; // current
    struct jinja_token next; // if has_next
    bool has_next;
    enum status status; // of the first fault
    struct arena *arena;
    uint32_t depth; // of nested rules, at most JINJA_AST_DEPTH_MAX
    void **stack; // [stack_len] parts of lists that are not complete yet
    size_t stack_len, stack_capacity;
    const struct jinja_open_tag *tag; // innermost
    struct jinja_special_uses *uses; // innermost
    struct strmap block_names;
    struct jinja_stmt *blocks; // those parsed, the last one first
    uint32_t num_loops; // for statements around, their else included
    bool is_in_loop; // break and continue have a loop to go to
    // Inside `if` statements and conditional expressions an unknown filter or test is a fault only
    // when it is reached. The parser may learn only later that it is inside one, so the first
    // unknown name is kept.
    bool is_soft;
    struct jinja_token unknown; // its name; text NULL: none
    const char *unknown_kind; // "filter", "test"
    bool unknown_is_refused; // Jinja2 has it
};

// ---- parser.c ----

void jinja_parser_fail(struct jinja_parser *p, uint32_t line, const char *format, ...)
    PRINTF_LIKE(3, 4);
void jinja_parser_fail_nomem(struct jinja_parser *p);
// "unexpected <the current token>, want <want>".
void jinja_parser_fail_token(struct jinja_parser *p, const char *want);
void jinja_parser_advance(struct jinja_parser *p);
const struct jinja_token *jinja_parser_look(struct jinja_parser *p); // the token after the current
bool jinja_token_is_name(const struct jinja_token *token, const char *name);
bool jinja_parser_at(const struct jinja_parser *p, enum jinja_token_type type);
bool jinja_parser_at_name(const struct jinja_parser *p, const char *name);
bool jinja_parser_skip(struct jinja_parser *p, enum jinja_token_type type); // true: it was there
bool jinja_parser_skip_name(struct jinja_parser *p, const char *name);
bool jinja_parser_expect(struct jinja_parser *p, enum jinja_token_type type, const char *want);
// Zeroed memory of the tree.
void *jinja_parser_alloc(struct jinja_parser *p, size_t size);
const struct jinja_string *jinja_parser_string(struct jinja_parser *p, const char *text,
                                               size_t len);
// Returns the current token, a name, and moves past it.
const struct jinja_string *jinja_parser_name(struct jinja_parser *p);
// Call these before and after a rule that may recurse.
bool jinja_parser_enter(struct jinja_parser *p);
void jinja_parser_leave(struct jinja_parser *p);
// Lists of unknown length: parts are pushed from a mark (stack_len) on, then moved to the tree.
// A push that failed makes jinja_parser_take fail.
void jinja_parser_push(struct jinja_parser *p, const void *part);
void **jinja_parser_take(struct jinja_parser *p, size_t mark, size_t *count);
// Fails if one of the names is there twice: "<what> '<name>'".
bool jinja_parser_check_unique(struct jinja_parser *p, const struct jinja_string *const *names,
                               size_t count, uint32_t line, const char *what);
void jinja_parser_note_read(struct jinja_parser *p, const struct jinja_string *name);
void jinja_parser_note_set(struct jinja_parser *p, const struct jinja_string *name);
// Pushes a new statement to the list that is being parsed.
struct jinja_stmt *jinja_parser_push_stmt(struct jinja_parser *p, enum jinja_stmt_type type,
                                          uint32_t line);
// Parses statements from the end of a tag up to {% and one of the names in `ends`, which is then
// the current token. The last name is the one that errors say is wanted.
bool jinja_parser_body(struct jinja_parser *p, const char *const *ends, struct jinja_block *out);

// ---- parser_expr.c ----

enum { JINJA_TUPLE_NO_TERNARY = 1, JINJA_TUPLE_IN_PARENS = 2 };

// With or without `a if b else c`.
struct jinja_expr *jinja_parser_expr(struct jinja_parser *p);
struct jinja_expr *jinja_parser_expr_no_ternary(struct jinja_parser *p);
// One expression, or several with commas: a tuple.
struct jinja_expr *jinja_parser_tuple(struct jinja_parser *p, unsigned flags);
// A literal, a name or something in brackets, with the calls, attributes and items after it.
struct jinja_expr *jinja_parser_primary(struct jinja_parser *p);
struct jinja_expr *jinja_parser_postfix(struct jinja_parser *p, struct jinja_expr *left);
struct jinja_expr *jinja_parser_new_expr(struct jinja_parser *p, enum jinja_expr_type type,
                                         uint32_t line);
// Sets the height of `parent` to one more than that of its highest child. Children may be NULL.
bool jinja_parser_adopt(struct jinja_parser *p, struct jinja_expr *parent,
                        const struct jinja_expr *child);

// ---- parser_args.c ----

struct jinja_expr *jinja_parser_call(struct jinja_parser *p, struct jinja_expr *callee);
// | name | name ...; without a pipe `left` itself.
struct jinja_expr *jinja_parser_filters(struct jinja_parser *p, struct jinja_expr *left);
struct jinja_expr *jinja_parser_filter(struct jinja_parser *p,
                                       struct jinja_expr *left); // at the name
struct jinja_expr *jinja_parser_test(struct jinja_parser *p, struct jinja_expr *left); // at `is`

// ---- parser_target.c ----

enum { JINJA_TARGETS_NAMESPACE = 1, JINJA_TARGETS_PARAM = 2, JINJA_TARGETS_IN_PARENS = 4 };

struct jinja_target *jinja_parser_targets(struct jinja_parser *p, unsigned flags);
// Parses a name that may be assigned to.
const struct jinja_string *jinja_parser_target_name(struct jinja_parser *p);

// ---- parser_stmt.c ----

// Parses the statement whose name is the current token, up to its %}, and pushes it.
bool jinja_parser_stmt(struct jinja_parser *p);

#endif
