#include "jinja/tests/support/ast_text.h"

#include <stdio.h>

struct writer {
    struct buf *out;
    struct err *err;
    enum status status; // of the first failure
};

static void put(struct writer *w, const char *text) {
    if (!w->status) w->status = buf_append_str(w->out, text, w->err);
}

static void put_name(struct writer *w, const struct jinja_string *name) {
    if (!w->status) w->status = buf_append(w->out, name->data, name->len, w->err);
}

// 'text', with bytes that are not printable ASCII as \xNN.
static void put_quoted(struct writer *w, const struct jinja_string *text) {
    for (size_t i = 0; i < text->len && !w->status; ++i) {
        unsigned char c = (unsigned char)text->data[i];
        bool is_plain = c >= ' ' && c <= '~' && c != '\'' && c != '\\';
        w->status = is_plain ? buf_appendf(w->out, w->err, "%c", c)
                             : buf_appendf(w->out, w->err, "\\x%02x", c);
    }
}

static void put_expr(struct writer *w, const struct jinja_expr *expr);

static void put_const(struct writer *w, struct jinja_value value) {
    char number[40];
    switch (value.type) {
    case JINJA_NONE:
        put(w, "none");
        break;
    case JINJA_BOOL:
        put(w, value.boolean ? "true" : "false");
        break;
    case JINJA_INT:
        snprintf(number, sizeof number, "%lld", (long long)value.integer);
        put(w, number);
        break;
    case JINJA_FLOAT:
        jinja_float_repr(value.number, number);
        put(w, number);
        break;
    default:
        put(w, "'");
        put_quoted(w, value.string);
        put(w, "'");
    }
}

static void put_args(struct writer *w, const struct jinja_expr_args *args) {
    for (size_t i = 0; i < args->num_values; ++i) {
        put(w, " ");
        put_expr(w, args->values[i]);
    }
    for (size_t i = 0; i < args->num_names; ++i) {
        put(w, " ");
        put_name(w, args->names[i]);
        put(w, "=");
        put_expr(w, args->named[i]);
    }
    if (args->star) {
        put(w, " *");
        put_expr(w, args->star);
    }
    if (args->star_star) {
        put(w, " **");
        put_expr(w, args->star_star);
    }
    put(w, ")");
}

static void put_operand(struct writer *w, const struct jinja_expr *operand) {
    put(w, " ");
    if (operand) {
        put_expr(w, operand);
    } else {
        put(w, "-");
    }
}

static void put_concat(struct writer *w, const struct jinja_expr *expr) {
    if (expr->type == JINJA_EXPR_BINARY && expr->binary == JINJA_OP_CONCAT) {
        put_concat(w, expr->left);
        put_concat(w, expr->right);
    } else {
        put_operand(w, expr);
    }
}

static void put_compare(struct writer *w, const struct jinja_expr *expr) {
    static const char *const names[] = {" ==", " !=", " <", " <=", " >", " >=", " in", " notin"};
    put(w, "(cmp");
    put_operand(w, expr->left);
    for (size_t i = 0; i < expr->compare.num_links; ++i) {
        put(w, names[expr->compare.links[i].op]);
        put_operand(w, expr->compare.links[i].right);
    }
    put(w, ")");
}

static void put_items(struct writer *w, const char *head, const struct jinja_expr *expr) {
    put(w, head);
    for (size_t i = 0; i < expr->list.num_items; ++i) put_operand(w, expr->list.items[i]);
    put(w, ")");
}

// (head left right), what is NULL left out.
static void put_operator(struct writer *w, const char *head, const struct jinja_expr *left,
                         const struct jinja_expr *right) {
    put(w, head);
    put_operand(w, left);
    if (right) put_operand(w, right);
    put(w, ")");
}

static void put_named(struct writer *w, const char *head, const struct jinja_expr *expr) {
    put(w, head);
    put_operand(w, expr->left);
    put(w, " ");
    put_name(w, expr->name);
}

static void put_slice(struct writer *w, const struct jinja_expr *expr) {
    put(w, "(slice");
    put_operand(w, expr->left);
    put_operand(w, expr->slice.start);
    put_operand(w, expr->slice.stop);
    put_operand(w, expr->slice.step);
    put(w, ")");
}

static void put_ternary(struct writer *w, const struct jinja_expr *expr) {
    put(w, "(if");
    put_operand(w, expr->condition);
    put_operand(w, expr->left);
    put_operand(w, expr->right);
    put(w, ")");
}

static void put_expr(struct writer *w, const struct jinja_expr *expr) {
    static const char *const unary[] = {"(not", "(neg", "(pos"};
    static const char *const binary[] = {"(+", "(-", "(*", "(/", "(//", "(%", "(**"};
    switch (expr->type) {
    case JINJA_EXPR_CONST:
        put_const(w, expr->constant);
        break;
    case JINJA_EXPR_NAME:
        put_name(w, expr->name);
        break;
    case JINJA_EXPR_LIST:
        put_items(w, "(list", expr);
        break;
    case JINJA_EXPR_TUPLE:
        put_items(w, "(tuple", expr);
        break;
    case JINJA_EXPR_DICT:
        put_items(w, "(dict", expr);
        break;
    case JINJA_EXPR_UNARY:
        put_operator(w, unary[expr->unary], expr->left, NULL);
        break;
    case JINJA_EXPR_BINARY:
        if (expr->binary != JINJA_OP_CONCAT) {
            put_operator(w, binary[expr->binary], expr->left, expr->right);
            break;
        }
        put(w, "(~");
        put_concat(w, expr);
        put(w, ")");
        break;
    case JINJA_EXPR_AND:
        put_operator(w, "(and", expr->left, expr->right);
        break;
    case JINJA_EXPR_OR:
        put_operator(w, "(or", expr->left, expr->right);
        break;
    case JINJA_EXPR_COMPARE:
        put_compare(w, expr);
        break;
    case JINJA_EXPR_TERNARY:
        put_ternary(w, expr);
        break;
    case JINJA_EXPR_ATTRIBUTE:
        put_named(w, "(.", expr);
        put(w, ")");
        break;
    case JINJA_EXPR_ITEM:
        put_operator(w, "(item", expr->left, expr->right);
        break;
    case JINJA_EXPR_SLICE:
        put_slice(w, expr);
        break;
    case JINJA_EXPR_CALL:
        put(w, "(call");
        put_operand(w, expr->left);
        put_args(w, &expr->args);
        break;
    case JINJA_EXPR_FILTER:
        put_named(w, "(filter", expr);
        put_args(w, &expr->args);
        break;
    case JINJA_EXPR_TEST:
        put_named(w, "(test", expr);
        put_args(w, &expr->args);
        break;
    }
}

// ---- statements ----

static void put_target(struct writer *w, const struct jinja_target *target) {
    if (target->type == JINJA_TARGET_NAME) {
        put_name(w, target->name);
        return;
    }
    put(w, target->type == JINJA_TARGET_TUPLE ? "(tuple" : "(ns ");
    for (size_t i = 0; i < target->num_items; ++i) {
        put(w, " ");
        put_target(w, target->items[i]);
    }
    if (target->type == JINJA_TARGET_ATTRIBUTE) {
        put_name(w, target->name);
        put(w, " ");
        put_name(w, target->attribute);
    }
    put(w, ")");
}

static void put_block(struct writer *w, const struct jinja_block *block);

static void put_body(struct writer *w, const struct jinja_block *block) {
    put(w, " (");
    put_block(w, block);
    put(w, "))");
}

static void put_if(struct writer *w, const struct jinja_stmt *stmt) {
    put(w, "(if");
    for (size_t i = 0; i < stmt->if_.num_branches; ++i) {
        put(w, " (");
        if (stmt->if_.branches[i].condition) {
            put_expr(w, stmt->if_.branches[i].condition);
        } else {
            put(w, "else");
        }
        put_body(w, &stmt->if_.branches[i].body);
    }
    put(w, ")");
}

static void put_for(struct writer *w, const struct jinja_for_stmt *loop) {
    put(w, loop->is_recursive ? "(for recursive " : "(for ");
    put_target(w, loop->target);
    put_operand(w, loop->iterable);
    put_operand(w, loop->filter);
    put(w, " (");
    put_block(w, &loop->body);
    put(w, ")");
    put_body(w, &loop->otherwise);
}

static void put_macro(struct writer *w, const struct jinja_macro_decl *macro) {
    put(w, " (params");
    for (size_t i = 0; i < macro->num_params; ++i) {
        put(w, " ");
        put_name(w, macro->params[i]);
        if (macro->defaults[i]) {
            put(w, "=");
            put_expr(w, macro->defaults[i]);
        }
    }
    put(w, ")");
    if (macro->uses_caller) put(w, " caller");
    if (macro->uses_kwargs) put(w, " kwargs");
    if (macro->uses_varargs) put(w, " varargs");
    put_body(w, &macro->body);
}

static void put_with(struct writer *w, const struct jinja_stmt *stmt) {
    put(w, "(with");
    for (size_t i = 0; i < stmt->with.count; ++i) {
        put(w, " (");
        put_target(w, stmt->with.targets[i]);
        put_operand(w, stmt->with.values[i]);
        put(w, ")");
    }
    put_body(w, &stmt->body);
}

static void put_stmt(struct writer *w, const struct jinja_stmt *stmt) {
    switch (stmt->type) {
    case JINJA_STMT_TEXT:
        break; // put_block's
    case JINJA_STMT_PRINT:
        put_operator(w, "(print", stmt->expr, NULL);
        break;
    case JINJA_STMT_IF:
        put_if(w, stmt);
        break;
    case JINJA_STMT_FOR:
        put_for(w, stmt->loop);
        break;
    case JINJA_STMT_SET:
    case JINJA_STMT_SET_BLOCK:
        put(w, "(set ");
        put_target(w, stmt->target);
        put_operand(w, stmt->expr);
        if (stmt->type == JINJA_STMT_SET) {
            put(w, ")");
        } else {
            put_body(w, &stmt->body);
        }
        break;
    case JINJA_STMT_MACRO:
        put(w, "(macro ");
        put_name(w, stmt->macro->name);
        put_macro(w, stmt->macro);
        break;
    case JINJA_STMT_CALL:
        put(w, "(callblock");
        put_operand(w, stmt->expr);
        put_macro(w, stmt->macro);
        break;
    case JINJA_STMT_FILTER:
        put(w, "(filterblock");
        put_operand(w, stmt->expr);
        put_body(w, &stmt->body);
        break;
    case JINJA_STMT_WITH:
        put_with(w, stmt);
        break;
    case JINJA_STMT_GENERATION:
        put(w, "(generation");
        put_body(w, &stmt->body);
        break;
    case JINJA_STMT_BLOCK:
        put(w, "(block");
        put_body(w, &stmt->body);
        break;
    case JINJA_STMT_BREAK:
        put(w, "(break)");
        break;
    case JINJA_STMT_CONTINUE:
        put(w, "(continue)");
        break;
    }
}

static void put_block(struct writer *w, const struct jinja_block *block) {
    for (size_t i = 0; i < block->num_stmts; ++i) {
        if (i > 0) put(w, " ");
        if (block->stmts[i]->type != JINJA_STMT_TEXT) {
            put_stmt(w, block->stmts[i]);
            continue;
        }
        put(w, "'");
        put_quoted(w, block->stmts[i]->text);
        while (i + 1 < block->num_stmts && block->stmts[i + 1]->type == JINJA_STMT_TEXT)
            put_quoted(w, block->stmts[++i]->text);
        put(w, "'");
    }
}

enum status jinja_ast_text(const struct jinja_block *block, struct buf *out, struct err *err) {
    struct writer w = {.out = out, .err = err};
    put_block(&w, block);
    return w.status;
}
