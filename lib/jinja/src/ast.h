/* The syntax tree of a template. Nodes live in the template's arena and never change after parsing.
 * Constants are ready-made values. */
#ifndef JINJA_AST_H
#define JINJA_AST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "jinja/src/value.h"

enum binary_op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_CONCAT, // ~
};

enum unary_op { OP_NOT, OP_NEG, OP_POS };

enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

enum expr_type {
    EXPR_CONST, // constant
    EXPR_NAME, // name
    EXPR_LIST, // items
    EXPR_TUPLE, // items
    EXPR_DICT, // items: key, value, key, value, ...
    EXPR_UNARY, // unary, left
    EXPR_BINARY, // binary, left, right
    EXPR_AND, // left, right
    EXPR_OR, // left, right
    EXPR_COMPARE, // left, compare: a chain a < b <= c
    EXPR_TERNARY, // condition, left, right (NULL: undefined)
    EXPR_ATTRIBUTE, // left, name
    EXPR_ITEM, // left, right
    EXPR_SLICE, // left, slice: left[start:stop:step]
    EXPR_CALL, // left, args
    EXPR_FILTER, // left (NULL in a filter block: its text), name, args
    EXPR_TEST, // left, name, args; `is not` is OP_NOT around it
};

struct expr;

struct expr_args {
    struct expr **values; // [num_values] positional
    size_t num_values;
    const struct string **names; // [num_names] keywords, each once
    struct expr **named; // [num_names]
    size_t num_names;
    struct expr *star; // *args, or NULL
    struct expr *star_star; // **kwargs, or NULL
};

struct compare_link {
    enum compare_op op;
    struct expr *right;
};

struct expr {
    enum expr_type type;
    uint32_t line; // from 1
    uint32_t height; // of the tree below, a leaf's is 1; at most AST_DEPTH_MAX
    union {
        struct value constant;
        const struct string *name; // NAME, ATTRIBUTE, FILTER, TEST
        enum unary_op unary;
        enum binary_op binary;
        struct expr *condition; // TERNARY
    };
    struct expr *left, *right;
    union {
        struct {
            struct expr **items;
            size_t num_items;
        } list; // LIST, TUPLE, DICT (2 per entry)
        struct {
            struct compare_link *links;
            size_t num_links;
        } compare;
        struct {
            struct expr *start, *stop, *step; // each may be NULL
        } slice;
        struct expr_args args; // CALL, FILTER, TEST
    };
};

// Where an assignment goes: a name, a namespace's attribute, or a tuple of targets.
enum target_type { TARGET_NAME, TARGET_ATTRIBUTE, TARGET_TUPLE };

struct target {
    enum target_type type;
    uint32_t line;
    const struct string *name; // NAME; ATTRIBUTE: the namespace's variable
    const struct string *attribute;
    struct target **items; // [num_items] TUPLE
    size_t num_items;
};

struct block { // statements in order
    struct stmt **stmts; // [num_stmts]
    size_t num_stmts;
    // Names that are undefined when the scope of this block is entered, whatever is outside; found
    // by symbols_resolve, empty until then.
    const struct string **unset; // [num_unset]
    size_t num_unset;
};

enum stmt_type {
    STMT_TEXT, // text
    STMT_PRINT, // expr
    STMT_IF, // branches
    STMT_FOR, // loop
    STMT_SET, // target = expr
    STMT_SET_BLOCK, // target = text of body, through the filter chain in expr (NULL: none)
    STMT_MACRO, // macro
    STMT_CALL, // call block: expr is an EXPR_CALL, macro is the caller
    STMT_FILTER, // body through the filter chain in expr
    STMT_WITH, // targets, exprs, body
    STMT_GENERATION, // body, in a scope of its own (transformers' mark of the assistant's text)
    STMT_BLOCK, // block tag: body in place, in a scope of its own
    STMT_BREAK,
    STMT_CONTINUE,
};

struct branch {
    struct expr *condition; // NULL: else
    struct block body;
};

struct for_stmt {
    struct target *target;
    struct expr *iterable;
    struct expr *filter; // `if`, NULL: none
    struct block body, otherwise;
    bool is_recursive;
};

struct macro_decl {
    const struct string *name; // of a call block: "caller"
    const struct string **params; // [num_params]
    struct expr **defaults; // [num_params], NULL: no default
    size_t num_params;
    struct block body;
    bool uses_varargs, uses_kwargs, uses_caller; // whether the body names them
};

struct stmt {
    enum stmt_type type;
    uint32_t line;
    union {
        const struct string *text;
        struct expr *expr; // PRINT, SET, SET_BLOCK, CALL, FILTER
    };
    struct block body; // SET_BLOCK, FILTER, WITH, GENERATION, BLOCK
    union {
        struct {
            struct branch *branches;
            size_t num_branches;
        } if_;
        struct for_stmt *loop;
        struct target *target; // SET, SET_BLOCK
        struct macro_decl *macro; // MACRO, CALL
        struct {
            const struct string *name;
            struct stmt *next; // of ast.blocks
            bool uses_self;
        } block; // BLOCK
        struct {
            struct target **targets; // [count]
            struct expr **values; // [count]
            size_t count;
        } with;
    };
};

struct ast {
    struct block root;
    struct stmt *blocks; // all block tags, each name once; linked by block.next
    bool uses_self; // outside of blocks: reads the name `self` before it sets it
};

// Nesting of statements, and in each of them of expressions, at most; also of brackets in the
// source. About what Jinja stops at.
enum { AST_DEPTH_MAX = 200 };

// `arena` owns the tree, also what was made before an error. Errors are
// "<what>: line <n>: <reason>", ERR_FORMAT. Unknown tags are errors here; unknown filters and tests
// too, but not inside `if` statements and conditional expressions: those fail when they are reached.
MUST_USE enum status ast_parse(struct ast *out, struct arena *arena, const char *source, size_t len,
                               const char *what, struct err *err);

#endif
