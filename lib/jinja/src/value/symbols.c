/* Each scope is walked twice. The first walk finds the names that its own statements read and set,
 * in order. The second walks the scopes inside it, which need all names of the scopes around them.
 * As in Jinja, a name that is first set inside an `if` keeps its outer meaning. */
#include "jinja/src/value/symbols.h"

#include <stdlib.h>
#include <string.h>

#include "base/os/map.h"

struct symbols {
    const struct symbols *parent;
    struct strmap names; // read or set by the scope's own statements
    const struct jinja_string **unset; // [num_unset]
    size_t num_unset, capacity;
    struct arena *arena;
    struct err *err;
};

static enum status walk_block(struct symbols *symbols, const struct jinja_block *block,
                              bool is_branch);
static enum status resolve_inside(struct symbols *symbols, struct jinja_block *block);

// ---- names of one scope ----

static enum status add_name(struct symbols *symbols, const struct jinja_string *name,
                            bool *existed) {
    return strmap_put(&symbols->names, name->data, name->len, 0, existed, symbols->err);
}

static bool is_known_outside(const struct symbols *symbols, const struct jinja_string *name) {
    for (symbols = symbols->parent; symbols; symbols = symbols->parent) {
        uint32_t ignored;
        if (strmap_get(&symbols->names, name->data, name->len, &ignored)) return true;
    }
    return false;
}

static enum status add_unset(struct symbols *symbols, const struct jinja_string *name) {
    if (symbols->num_unset == symbols->capacity) {
        size_t capacity = symbols->capacity ? symbols->capacity * 2 : 16;
        void *grown = realloc(symbols->unset, capacity * sizeof(struct jinja_string *));
        if (!grown) return err_nomem(symbols->err, "the names of a template");
        symbols->unset = grown;
        symbols->capacity = capacity;
    }
    symbols->unset[symbols->num_unset++] = name;
    return OK;
}

// Notes a name that is set. It is undefined from the scope's beginning only if it is new here and
// set outside of branches: names of outer scopes go on inside, and a branch may not run.
static enum status store(struct symbols *symbols, const struct jinja_string *name, bool is_branch) {
    bool existed;
    enum status status = add_name(symbols, name, &existed);
    if (status || existed || is_branch || is_known_outside(symbols, name)) return status;
    return add_unset(symbols, name);
}

static enum status load(struct symbols *symbols, const struct jinja_expr *expr);

static enum status load_args(struct symbols *symbols, const struct jinja_expr_args *args) {
    enum status status = OK;
    for (size_t i = 0; i < args->num_values && !status; ++i)
        status = load(symbols, args->values[i]);
    for (size_t i = 0; i < args->num_names && !status; ++i) status = load(symbols, args->named[i]);
    if (!status) status = load(symbols, args->star);
    if (!status) status = load(symbols, args->star_star);
    return status;
}

// Names in the parts of an expression other than left and right.
static enum status load_parts(struct symbols *symbols, const struct jinja_expr *expr) {
    enum status status = OK;
    switch (expr->type) {
    case JINJA_EXPR_LIST:
    case JINJA_EXPR_TUPLE:
    case JINJA_EXPR_DICT:
        for (size_t i = 0; i < expr->list.num_items && !status; ++i)
            status = load(symbols, expr->list.items[i]);
        return status;
    case JINJA_EXPR_COMPARE:
        for (size_t i = 0; i < expr->compare.num_links && !status; ++i)
            status = load(symbols, expr->compare.links[i].right);
        return status;
    case JINJA_EXPR_TERNARY:
        return load(symbols, expr->condition);
    case JINJA_EXPR_SLICE:
        status = load(symbols, expr->slice.start);
        if (!status) status = load(symbols, expr->slice.stop);
        if (!status) status = load(symbols, expr->slice.step);
        return status;
    case JINJA_EXPR_CALL:
    case JINJA_EXPR_FILTER:
    case JINJA_EXPR_TEST:
        return load_args(symbols, &expr->args);
    default:
        return OK;
    }
}

// All names that `expr` (NULL: nothing) reads.
static enum status load(struct symbols *symbols, const struct jinja_expr *expr) {
    if (!expr) return OK;
    if (expr->type == JINJA_EXPR_NAME) return add_name(symbols, expr->name, NULL);
    enum status status = load(symbols, expr->left);
    if (!status) status = load(symbols, expr->right);
    if (!status) status = load_parts(symbols, expr);
    return status;
}

// A namespace's attribute is set, but its variable is read.
static enum status store_target(struct symbols *symbols, const struct jinja_target *target,
                                bool is_branch) {
    if (target->type == JINJA_TARGET_NAME) return store(symbols, target->name, is_branch);
    if (target->type == JINJA_TARGET_ATTRIBUTE) return add_name(symbols, target->name, NULL);
    enum status status = OK;
    for (size_t i = 0; i < target->num_items && !status; ++i)
        status = store_target(symbols, target->items[i], is_branch);
    return status;
}

// Names that have a value whenever the scope is entered.
static enum status declare_target(struct symbols *symbols, const struct jinja_target *target) {
    if (target->type == JINJA_TARGET_NAME) return add_name(symbols, target->name, NULL);
    enum status status = OK;
    for (size_t i = 0; i < target->num_items && !status; ++i)
        status = declare_target(symbols, target->items[i]);
    return status;
}

// Declares a macro's parameters and the special variables that its body uses. Its defaults read
// names in its scope.
static enum status declare_params(struct symbols *symbols, const struct jinja_macro_decl *decl) {
    enum status status = OK;
    for (size_t i = 0; i < decl->num_params && !status; ++i)
        status = add_name(symbols, decl->params[i], NULL);
    static const struct {
        const char *data;
        size_t len;
    } special[] = {{"caller", 6}, {"kwargs", 6}, {"varargs", 7}};
    const bool used[] = {decl->uses_caller, decl->uses_kwargs, decl->uses_varargs};
    for (size_t i = 0; i < ARRAY_LEN(special) && !status; ++i) {
        if (!used[i]) continue;
        status =
            strmap_put(&symbols->names, special[i].data, special[i].len, 0, NULL, symbols->err);
    }
    for (size_t i = 0; i < decl->num_params && !status; ++i)
        status = load(symbols, decl->defaults[i]);
    return status;
}

// ---- the statements of one scope ----

static enum status walk_if(struct symbols *symbols, const struct jinja_stmt *stmt) {
    enum status status = OK;
    for (size_t i = 0; i < stmt->if_.num_branches && !status; ++i) {
        const struct jinja_branch *branch = &stmt->if_.branches[i];
        status = load(symbols, branch->condition);
        if (!status) status = walk_block(symbols, &branch->body, true);
    }
    return status;
}

// What a statement reads and sets in the scope where it stands. Bodies that are scopes come later;
// the filter arguments of a block set are read inside its scope, those of a filter block in both.
static enum status walk_stmt(struct symbols *symbols, const struct jinja_stmt *stmt,
                             bool is_branch) {
    enum status status = OK;
    switch (stmt->type) {
    case JINJA_STMT_PRINT:
    case JINJA_STMT_CALL:
    case JINJA_STMT_FILTER:
        return load(symbols, stmt->expr);
    case JINJA_STMT_IF:
        return walk_if(symbols, stmt);
    case JINJA_STMT_FOR:
        return load(symbols, stmt->loop->iterable);
    case JINJA_STMT_SET:
        status = load(symbols, stmt->expr);
        if (status) return status;
        return store_target(symbols, stmt->target, is_branch);
    case JINJA_STMT_SET_BLOCK:
        return store_target(symbols, stmt->target, is_branch);
    case JINJA_STMT_MACRO:
        return store(symbols, stmt->macro->name, is_branch);
    case JINJA_STMT_WITH:
        for (size_t i = 0; i < stmt->with.count && !status; ++i)
            status = load(symbols, stmt->with.values[i]);
        return status;
    default:
        return OK;
    }
}

static enum status walk_block(struct symbols *symbols, const struct jinja_block *block,
                              bool is_branch) {
    enum status status = OK;
    for (size_t i = 0; i < block->num_stmts && !status; ++i)
        status = walk_stmt(symbols, block->stmts[i], is_branch);
    return status;
}

// ---- scopes inside scopes ----

static void symbols_fini(struct symbols *symbols) {
    strmap_fini(&symbols->names);
    free(symbols->unset);
}

// Resolves the scope of `block`, whose declared names are in `symbols` already. Frees `symbols`.
static enum status resolve_scope(struct symbols *symbols, struct jinja_block *block) {
    enum status status = walk_block(symbols, block, false);
    if (!status && symbols->num_unset) {
        size_t size = symbols->num_unset * sizeof(struct jinja_string *);
        block->unset = arena_alloc(symbols->arena, size);
        if (block->unset) {
            memcpy(block->unset, symbols->unset, size);
            block->num_unset = symbols->num_unset;
        } else {
            status = err_nomem(symbols->err, "the names of a template");
        }
    }
    if (!status) status = resolve_inside(symbols, block);
    symbols_fini(symbols);
    return status;
}

static struct symbols below(const struct symbols *parent) {
    return (struct symbols){.parent = parent, .arena = parent->arena, .err = parent->err};
}

static enum status resolve_for(const struct symbols *parent, struct jinja_for_stmt *loop) {
    struct symbols body = below(parent);
    enum status status = declare_target(&body, loop->target);
    if (!status) status = strmap_put(&body.names, "loop", 4, 0, NULL, body.err);
    if (status) {
        symbols_fini(&body);
        return status;
    }
    status = resolve_scope(&body, &loop->body);
    if (status) return status;
    struct symbols otherwise = below(parent);
    return resolve_scope(&otherwise, &loop->otherwise);
}

// Resolves the body of a statement, if it is a scope; `symbols` is the scope around it.
static enum status resolve_body(const struct symbols *symbols, struct jinja_stmt *stmt) {
    struct symbols inner = below(symbols);
    struct jinja_block *body = &stmt->body;
    enum status status = OK;
    if (stmt->type == JINJA_STMT_BLOCK) inner.parent = NULL; // a function of its own in Jinja
    if (stmt->type == JINJA_STMT_MACRO || stmt->type == JINJA_STMT_CALL) {
        status = declare_params(&inner, stmt->macro);
        body = &stmt->macro->body;
    }
    if (stmt->type == JINJA_STMT_WITH) {
        for (size_t i = 0; i < stmt->with.count && !status; ++i)
            status = declare_target(&inner, stmt->with.targets[i]);
    }
    if (!status) return resolve_scope(&inner, body);
    symbols_fini(&inner);
    return status;
}

static enum status resolve_stmt(struct symbols *symbols, struct jinja_stmt *stmt) {
    enum status status = OK;
    switch (stmt->type) {
    case JINJA_STMT_IF:
        for (size_t i = 0; i < stmt->if_.num_branches && !status; ++i)
            status = resolve_inside(symbols, &stmt->if_.branches[i].body);
        return status;
    case JINJA_STMT_FOR:
        return resolve_for(symbols, stmt->loop);
    case JINJA_STMT_SET_BLOCK:
    case JINJA_STMT_MACRO:
    case JINJA_STMT_CALL:
    case JINJA_STMT_FILTER:
    case JINJA_STMT_WITH:
    case JINJA_STMT_GENERATION:
    case JINJA_STMT_BLOCK:
        return resolve_body(symbols, stmt);
    default:
        return OK;
    }
}

static enum status resolve_inside(struct symbols *symbols, struct jinja_block *block) {
    enum status status = OK;
    for (size_t i = 0; i < block->num_stmts && !status; ++i)
        status = resolve_stmt(symbols, block->stmts[i]);
    return status;
}

enum status jinja_symbols_resolve(struct jinja_block *root, struct arena *arena, struct err *err) {
    struct symbols symbols = {.arena = arena, .err = err};
    return resolve_scope(&symbols, root);
}
