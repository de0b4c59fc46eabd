/* The syntax tree of a template. Nodes live in the template's arena and never change after parsing.
 * Constants are ready-made values. */
#ifndef JINJA_AST_H
#define JINJA_AST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "jinja/src/value/value.h"

enum jinja_binary_op {
    JINJA_OP_ADD,
    JINJA_OP_SUB,
    JINJA_OP_MUL,
    JINJA_OP_DIV,
    JINJA_OP_FLOORDIV,
    JINJA_OP_MOD,
    JINJA_OP_POW,
    JINJA_OP_CONCAT, // ~
};

enum jinja_unary_op { JINJA_OP_NOT, JINJA_OP_NEG, JINJA_OP_POS };

enum jinja_compare_op {
    JINJA_CMP_EQ,
    JINJA_CMP_NE,
    JINJA_CMP_LT,
    JINJA_CMP_LE,
    JINJA_CMP_GT,
    JINJA_CMP_GE,
    JINJA_CMP_IN,
    JINJA_CMP_NOT_IN
};

enum jinja_expr_type {
    JINJA_EXPR_CONST, // constant
    JINJA_EXPR_NAME, // name
    JINJA_EXPR_LIST, // items
    JINJA_EXPR_TUPLE, // items
    JINJA_EXPR_DICT, // items: key, value, key, value, ...
    JINJA_EXPR_UNARY, // unary, left
    JINJA_EXPR_BINARY, // binary, left, right
    JINJA_EXPR_AND, // left, right
    JINJA_EXPR_OR, // left, right
    JINJA_EXPR_COMPARE, // left, compare: a chain a < b <= c
    JINJA_EXPR_TERNARY, // condition, left, right (NULL: undefined)
    JINJA_EXPR_ATTRIBUTE, // left, name
    JINJA_EXPR_ITEM, // left, right
    JINJA_EXPR_SLICE, // left, slice: left[start:stop:step]
    JINJA_EXPR_CALL, // left, args
    JINJA_EXPR_FILTER, // left (NULL in a filter block: its text), name, args
    JINJA_EXPR_TEST, // left, name, args; `is not` is JINJA_OP_NOT around it
};

struct jinja_expr;

struct jinja_expr_args {
    struct jinja_expr **values; // [num_values] positional
    size_t num_values;
    const struct jinja_string **names; // [num_names] keywords, each once
    struct jinja_expr **named; // [num_names]
    size_t num_names;
    struct jinja_expr *star; // *args, or NULL
    struct jinja_expr *star_star; // **kwargs, or NULL
};

struct jinja_compare_link {
    enum jinja_compare_op op;
    struct jinja_expr *right;
};

struct jinja_expr {
    enum jinja_expr_type type;
    uint32_t line; // from 1
    uint32_t height; // of the tree below, a leaf's is 1; at most JINJA_AST_DEPTH_MAX
    union {
        struct jinja_value constant;
        const struct jinja_string *name; // NAME, ATTRIBUTE, FILTER, TEST
        enum jinja_unary_op unary;
        enum jinja_binary_op binary;
        struct jinja_expr *condition; // TERNARY
    };
    struct jinja_expr *left, *right;
    union {
        struct {
            struct jinja_expr **items;
            size_t num_items;
        } list; // LIST, TUPLE, DICT (2 per entry)
        struct {
            struct jinja_compare_link *links;
            size_t num_links;
        } compare;
        struct {
            struct jinja_expr *start, *stop, *step; // each may be NULL
        } slice;
        struct jinja_expr_args args; // CALL, FILTER, TEST
    };
};

// Where an assignment goes: a name, a namespace's attribute, or a tuple of targets.
enum jinja_target_type { JINJA_TARGET_NAME, JINJA_TARGET_ATTRIBUTE, JINJA_TARGET_TUPLE };

struct jinja_target {
    enum jinja_target_type type;
    uint32_t line;
    const struct jinja_string *name; // NAME; ATTRIBUTE: the namespace's variable
    const struct jinja_string *attribute;
    struct jinja_target **items; // [num_items] TUPLE
    size_t num_items;
};

struct jinja_block { // statements in order
    struct jinja_stmt **stmts; // [num_stmts]
    size_t num_stmts;
    // Names that are undefined when the scope of this block is entered, whatever is outside; found
    // by jinja_symbols_resolve, empty until then.
    const struct jinja_string **unset; // [num_unset]
    size_t num_unset;
};

enum jinja_stmt_type {
    JINJA_STMT_TEXT, // text
    JINJA_STMT_PRINT, // expr
    JINJA_STMT_IF, // branches
    JINJA_STMT_FOR, // loop
    JINJA_STMT_SET, // target = expr
    JINJA_STMT_SET_BLOCK, // target = text of body, through the filter chain in expr (NULL: none)
    JINJA_STMT_MACRO, // macro
    JINJA_STMT_CALL, // call block: expr is an JINJA_EXPR_CALL, macro is the caller
    JINJA_STMT_FILTER, // body through the filter chain in expr
    JINJA_STMT_WITH, // targets, exprs, body
    JINJA_STMT_GENERATION, // body, in a scope of its own: transformers' mark of an answer
    JINJA_STMT_BLOCK, // block tag: body in place, in a scope of its own
    JINJA_STMT_BREAK,
    JINJA_STMT_CONTINUE,
};

struct jinja_branch {
    struct jinja_expr *condition; // NULL: else
    struct jinja_block body;
};

struct jinja_for_stmt {
    struct jinja_target *target;
    struct jinja_expr *iterable;
    struct jinja_expr *filter; // `if`, NULL: none
    struct jinja_block body, otherwise;
    bool is_recursive;
};

struct jinja_macro_decl {
    const struct jinja_string *name; // of a call block: "caller"
    const struct jinja_string **params; // [num_params]
    struct jinja_expr **defaults; // [num_params], NULL: no default
    size_t num_params;
    struct jinja_block body;
    bool uses_varargs, uses_kwargs, uses_caller; // whether the body names them
};

struct jinja_stmt {
    enum jinja_stmt_type type;
    uint32_t line;
    union {
        const struct jinja_string *text;
        struct jinja_expr *expr; // PRINT, SET, SET_BLOCK, CALL, FILTER
    };
    struct jinja_block body; // SET_BLOCK, FILTER, WITH, GENERATION, BLOCK
    union {
        struct {
            struct jinja_branch *branches;
            size_t num_branches;
        } if_;
        struct jinja_for_stmt *loop;
        struct jinja_target *target; // SET, SET_BLOCK
        struct jinja_macro_decl *macro; // MACRO, CALL
        struct {
            const struct jinja_string *name;
            struct jinja_stmt *next; // of ast.blocks
            bool uses_self;
        } block; // BLOCK
        struct {
            struct jinja_target **targets; // [count]
            struct jinja_expr **values; // [count]
            size_t count;
        } with;
    };
};

struct jinja_ast {
    struct jinja_block root;
    struct jinja_stmt *blocks; // all block tags, each name once; linked by block.next
    bool uses_self; // outside of blocks: reads the name `self` before it sets it
};

// Deepest nesting of statements, of expressions in one statement, and of brackets in the source.
// Jinja itself stops at about this depth.
enum { JINJA_AST_DEPTH_MAX = 200 };

// `arena` owns the tree, also what was made before an error. Errors are
// "<what>: line <n>: <reason>", ERR_FORMAT. Unknown tags are errors here. So are unknown filters
// and tests, but not inside `if` statements and conditional expressions: those fail when they are
// reached.
MUST_USE enum status jinja_ast_parse(struct jinja_ast *out, struct arena *arena, const char *source,
                                     size_t len, const char *what, struct err *err);

#endif
