/* Evaluation walks the tree. There is no compiled form: a template is rendered once for each
 * request, and moving its text takes far more time than visiting its nodes.
 *
 * Every node costs one step and one level of depth, a leaf only the step. Operands may be on other
 * lines, so run->line is set again before anything that may fail. After an error levels and frames
 * are left as they are: the render is over. */
#include "jinja/src/run/eval.h"

#include "jinja/src/library/library.h"
#include "jinja/src/run/scope.h"

// ---- arguments ----

enum { ARGS_INLINE = 6 };

// Memory for the arguments of most calls, so that they take no memory of the render.
struct args_storage {
    struct jinja_value values[ARGS_INLINE], named[ARGS_INLINE];
};

static enum status eval_all(struct jinja_run *run, struct jinja_expr *const *exprs, size_t count,
                            struct jinja_value *out) {
    enum status status = OK;
    for (size_t i = 0; i < count && !status; ++i) status = jinja_eval(run, exprs[i], &out[i]);
    return status;
}

// *args: the positional ones and all items of `star`.
static enum status add_star(struct jinja_run *run, const struct jinja_expr *star,
                            struct jinja_call_args *args) {
    struct jinja_value value;
    enum status status = jinja_eval(run, star, &value);
    if (status) return status;
    if (!jinja_value_is_iterable(value)) {
        return jinja_run_fail(run, "Value after * must be an iterable, not %s",
                              jinja_value_type_name(value));
    }
    const struct jinja_list *items;
    status = jinja_value_items(run, value, &items);
    if (status) return status;
    struct jinja_list *all;
    status = jinja_list_create(run, args->num_values + items->len, &all);
    for (size_t i = 0; i < args->num_values && !status; ++i)
        status = jinja_list_append(run, all, args->values[i]);
    for (size_t i = 0; i < items->len && !status; ++i)
        status = jinja_list_append(run, all, items->items[i]);
    if (status) return status;
    args->values = all->items;
    args->num_values = all->len;
    return jinja_run_pay(run, items->len);
}

// Reserves `more` keyword arguments. Copies those that are there, since they may be the
// tree's.
static enum status grow_names(struct jinja_run *run, size_t more,
                              const struct jinja_string ***names, struct jinja_value **named,
                              struct jinja_call_args *args) {
    size_t count = args->num_names;
    *names = jinja_run_alloc_array(run, count + more, sizeof(**names));
    *named = *names ? jinja_run_alloc_array(run, count + more, sizeof(**named)) : NULL;
    if (!*named) return jinja_run_status(run);
    for (size_t i = 0; i < count; ++i) {
        (*names)[i] = args->names[i];
        (*named)[i] = args->named[i];
    }
    args->names = *names;
    args->named = *named;
    return jinja_run_pay(run, count + more);
}

static bool has_keyword(const struct jinja_call_args *args, const struct jinja_string *name) {
    for (size_t i = 0; i < args->num_names; ++i)
        if (jinja_string_equal(args->names[i], name)) return true;
    return false;
}

static enum status fail_double(struct jinja_run *run, const struct jinja_string *name) {
    return jinja_run_fail(run, "got multiple values for keyword argument '%.*s'", (int)name->len,
                          name->data);
}

// **kwargs: the members of a dict.
static enum status add_star_star(struct jinja_run *run, const struct jinja_expr *star_star,
                                 struct jinja_call_args *args) {
    struct jinja_value value;
    enum status status = jinja_eval(run, star_star, &value);
    if (status) return status;
    if (value.type != JINJA_DICT) {
        return jinja_run_fail(run, "argument after ** must be a mapping, not %s",
                              jinja_value_type_name(value));
    }
    const struct jinja_string **names;
    struct jinja_value *named;
    status = grow_names(run, value.dict->len, &names, &named, args);
    if (status) return status;
    // Each new name is looked for among those written in the call, not among each other: a dict's
    // keys differ.
    size_t num_given = args->num_names;
    status = jinja_run_pay(run, num_given * value.dict->len);
    for (size_t i = 0; i < value.dict->len && !status; ++i) {
        const struct jinja_dict_entry *entry = &value.dict->entries[i];
        if (entry->key.type != JINJA_STRING) return jinja_run_fail(run, "keywords must be strings");
        const struct jinja_call_args given = {.names = args->names, .num_names = num_given};
        if (has_keyword(&given, entry->key.string)) return fail_double(run, entry->key.string);
        names[args->num_names] = entry->key.string;
        named[args->num_names++] = entry->value;
    }
    return status;
}

static enum status add_caller(struct jinja_run *run, struct jinja_value caller,
                              struct jinja_call_args *args) {
    static const struct jinja_string name = {.data = "caller", .len = 6, .num_chars = 6};
    if (has_keyword(args, &name)) return fail_double(run, &name);
    const struct jinja_string **names;
    struct jinja_value *named;
    enum status status = grow_names(run, 1, &names, &named, args);
    if (status) return status;
    names[args->num_names] = &name;
    named[args->num_names++] = caller;
    return OK;
}

static enum status eval_args(struct jinja_run *run, const struct jinja_expr_args *exprs,
                             struct args_storage *storage, struct jinja_call_args *out) {
    struct jinja_value *values = storage->values, *named = storage->named;
    if (exprs->num_values > ARGS_INLINE) {
        values = jinja_run_alloc_array(run, exprs->num_values, sizeof(*values));
        if (!values) return jinja_run_status(run);
    }
    if (exprs->num_names > ARGS_INLINE) {
        named = jinja_run_alloc_array(run, exprs->num_names, sizeof(*named));
        if (!named) return jinja_run_status(run);
    }
    enum status status = eval_all(run, exprs->values, exprs->num_values, values);
    if (status) return status;
    status = eval_all(run, exprs->named, exprs->num_names, named);
    if (status) return status;
    *out = (struct jinja_call_args){.values = values,
                                    .num_values = exprs->num_values,
                                    .names = exprs->names,
                                    .named = named,
                                    .num_names = exprs->num_names};
    if (exprs->star) status = add_star(run, exprs->star, out);
    if (!status && exprs->star_star) status = add_star_star(run, exprs->star_star, out);
    return status;
}

// ---- calls, filters, tests ----

static enum status eval_call(struct jinja_run *run, const struct jinja_expr *expr,
                             const struct jinja_value *caller, struct jinja_value *out) {
    struct jinja_value callee;
    struct args_storage storage;
    struct jinja_call_args args;
    enum status status = jinja_eval(run, expr->left, &callee);
    if (status) return status;
    status = eval_args(run, &expr->args, &storage, &args);
    if (!status && caller) status = add_caller(run, *caller, &args);
    if (status) return status;
    run->line = expr->line;
    return jinja_run_call(run, callee, &args, out);
}

enum status jinja_eval_call_with(struct jinja_run *run, const struct jinja_expr *expr,
                                 struct jinja_value caller, struct jinja_value *out) {
    return eval_call(run, expr, &caller, out);
}

// Filters the operand, which is evaluated already.
static enum status apply_filter(struct jinja_run *run, const struct jinja_expr *expr,
                                struct jinja_value operand, struct jinja_value *out) {
    struct args_storage storage;
    struct jinja_call_args args;
    enum status status = eval_args(run, &expr->args, &storage, &args);
    if (status) return status;
    run->line = expr->line;
    return jinja_run_filter(run, expr->name, operand, &args, out);
}

static enum status eval_filter(struct jinja_run *run, const struct jinja_expr *expr,
                               struct jinja_value *out) {
    struct jinja_value operand;
    enum status status = jinja_eval(run, expr->left, &operand);
    return status ? status : apply_filter(run, expr, operand, out);
}

enum status jinja_eval_filters(struct jinja_run *run, const struct jinja_expr *expr,
                               struct jinja_value text, struct jinja_value *out) {
    enum status status = jinja_run_enter(run);
    if (status) return status;
    struct jinja_value operand = text;
    if (expr->left) {
        status = jinja_eval_filters(run, expr->left, text, &operand);
        if (status) return status;
    }
    status = apply_filter(run, expr, operand, out);
    if (status) return status;
    jinja_run_leave(run);
    return OK;
}

static enum status eval_test(struct jinja_run *run, const struct jinja_expr *expr,
                             struct jinja_value *out) {
    struct jinja_value operand;
    struct args_storage storage;
    struct jinja_call_args args;
    enum status status = jinja_eval(run, expr->left, &operand);
    if (status) return status;
    status = eval_args(run, &expr->args, &storage, &args);
    if (status) return status;
    run->line = expr->line;
    bool passes;
    status = jinja_run_test(run, expr->name, operand, &args, &passes);
    if (!status) *out = jinja_value_bool(passes);
    return status;
}

// ---- literals ----

static enum status eval_list(struct jinja_run *run, const struct jinja_expr *expr,
                             struct jinja_value *out) {
    struct jinja_list *list;
    enum status status = jinja_list_create(run, expr->list.num_items, &list);
    for (size_t i = 0; i < expr->list.num_items && !status; ++i) {
        struct jinja_value item;
        status = jinja_eval(run, expr->list.items[i], &item);
        if (!status) status = jinja_list_append(run, list, item);
    }
    if (status) return status;
    *out = expr->type == JINJA_EXPR_TUPLE ? jinja_value_of_tuple(list) : jinja_value_of_list(list);
    return OK;
}

static enum status eval_dict(struct jinja_run *run, const struct jinja_expr *expr,
                             struct jinja_value *out) {
    struct jinja_dict *dict;
    enum status status = jinja_dict_create(run, expr->list.num_items / 2, &dict);
    for (size_t i = 0; i < expr->list.num_items && !status; i += 2) {
        struct jinja_value key, value;
        status = jinja_eval(run, expr->list.items[i], &key);
        if (!status) status = jinja_eval(run, expr->list.items[i + 1], &value);
        if (!status) status = jinja_dict_set(run, dict, key, value);
    }
    if (!status) *out = jinja_value_of_dict(dict);
    return status;
}

// ---- operators ----

enum { CONCAT_HEAD_MIN = 1024 }; // bytes

static enum status compare(struct jinja_run *run, enum jinja_compare_op op, struct jinja_value left,
                           struct jinja_value right, bool *out) {
    enum status status;
    bool is_unordered;
    int order;
    switch (op) {
    case JINJA_CMP_EQ:
        return jinja_value_equal(run, left, right, out);
    case JINJA_CMP_NE:
        status = jinja_value_equal(run, left, right, out);
        *out = !*out;
        return status;
    case JINJA_CMP_IN:
        return jinja_value_contains(run, right, left, out);
    case JINJA_CMP_NOT_IN:
        status = jinja_value_contains(run, right, left, out);
        *out = !*out;
        return status;
    default:
        break;
    }
    static const char *const signs[] = {
        [JINJA_CMP_LT] = "<", [JINJA_CMP_LE] = "<=", [JINJA_CMP_GT] = ">", [JINJA_CMP_GE] = ">="};
    status = jinja_value_compare_by(run, signs[op], left, right, &order, &is_unordered);
    if (status) return status;
    // A NaN is neither below, above nor equal to anything.
    *out = !is_unordered && (op == JINJA_CMP_LT   ? order < 0
                             : op == JINJA_CMP_LE ? order <= 0
                             : op == JINJA_CMP_GT ? order > 0
                                                  : order >= 0);
    return OK;
}

// a < b < c: each operand once, until a comparison fails.
static enum status eval_compare(struct jinja_run *run, const struct jinja_expr *expr,
                                struct jinja_value *out) {
    struct jinja_value left, right;
    bool holds = true;
    enum status status = jinja_eval(run, expr->left, &left);
    for (size_t i = 0; i < expr->compare.num_links && holds && !status; ++i) {
        const struct jinja_compare_link *link = &expr->compare.links[i];
        status = jinja_eval(run, link->right, &right);
        if (status) return status;
        run->line = expr->line;
        status = compare(run, link->op, left, right, &holds);
        left = right;
    }
    if (!status) *out = jinja_value_bool(holds);
    return status;
}

// Appends a ~ b ~ c, without the texts in between. A long string at the beginning is left to
// *head, so that it can be continued in place.
static enum status join(struct jinja_run *run, const struct jinja_expr *expr,
                        struct jinja_text *text, const struct jinja_string **head) {
    struct jinja_value value;
    enum status status;
    if (expr->type == JINJA_EXPR_BINARY && expr->binary == JINJA_OP_CONCAT) {
        status = jinja_run_enter(run);
        if (!status) status = join(run, expr->left, text, head);
        if (!status) status = join(run, expr->right, text, NULL);
        if (!status) jinja_run_leave(run);
        return status;
    }
    status = jinja_eval(run, expr, &value);
    if (status) return status;
    if (!head || value.type != JINJA_STRING || value.string->len < CONCAT_HEAD_MIN)
        return jinja_value_print(run, value, text);
    *head = value.string;
    return OK;
}

static enum status eval_concat(struct jinja_run *run, const struct jinja_expr *expr,
                               struct jinja_value *out) {
    struct jinja_text text = {0};
    const struct jinja_string *head = NULL;
    enum status status = join(run, expr, &text, &head);
    if (!status) status = jinja_text_finish(run, &text, out);
    if (status || !head) return status;
    struct jinja_string plain = *head; // str() of a Markup is no Markup
    plain.is_markup = false;
    return jinja_run_binary(run, JINJA_OP_ADD, jinja_value_of_string(&plain), *out, out);
}

static enum status eval_binary(struct jinja_run *run, const struct jinja_expr *expr,
                               struct jinja_value *out) {
    if (expr->binary == JINJA_OP_CONCAT) return eval_concat(run, expr, out);
    struct jinja_value left, right;
    enum status status = jinja_eval(run, expr->left, &left);
    if (!status) status = jinja_eval(run, expr->right, &right);
    if (status) return status;
    run->line = expr->line;
    return jinja_run_binary(run, expr->binary, left, right, out);
}

static enum status eval_unary_node(struct jinja_run *run, const struct jinja_expr *expr,
                                   struct jinja_value *out) {
    struct jinja_value operand;
    enum status status = jinja_eval(run, expr->left, &operand);
    if (status) return status;
    run->line = expr->line;
    return jinja_eval_unary(run, expr->unary, operand, out);
}

// `and` and `or` give the operand that decided, not its truth.
static enum status eval_logic(struct jinja_run *run, const struct jinja_expr *expr,
                              struct jinja_value *out) {
    enum status status = jinja_eval(run, expr->left, out);
    if (status) return status;
    if (jinja_value_is_true(*out) == (expr->type == JINJA_EXPR_OR)) return OK;
    return jinja_eval(run, expr->right, out);
}

static enum status eval_ternary(struct jinja_run *run, const struct jinja_expr *expr,
                                struct jinja_value *out) {
    struct jinja_value condition;
    enum status status = jinja_eval(run, expr->condition, &condition);
    if (status) return status;
    if (jinja_value_is_true(condition)) return jinja_eval(run, expr->left, out);
    if (expr->right) return jinja_eval(run, expr->right, out);
    return jinja_value_undefined(
        run, out,
        "the inline if-expression on line %u evaluated to false and no else "
        "section was defined.",
        (unsigned)expr->line);
}

// ---- access ----

static enum status eval_access(struct jinja_run *run, const struct jinja_expr *expr,
                               struct jinja_value *out) {
    struct jinja_value object, key;
    enum status status = jinja_eval(run, expr->left, &object);
    if (status) return status;
    if (expr->type == JINJA_EXPR_ATTRIBUTE) {
        run->line = expr->line;
        return jinja_run_attribute(run, object, expr->name, out);
    }
    status = jinja_eval(run, expr->right, &key);
    if (status) return status;
    run->line = expr->line;
    return jinja_run_item(run, object, key, out);
}

static enum status eval_slice_node(struct jinja_run *run, const struct jinja_expr *expr,
                                   struct jinja_value *out) {
    const struct jinja_expr *exprs[3] = {expr->slice.start, expr->slice.stop, expr->slice.step};
    struct jinja_value object, bounds[3];
    enum status status = jinja_eval(run, expr->left, &object);
    for (int i = 0; i < 3 && !status; ++i) {
        bounds[i] = jinja_value_none();
        if (exprs[i]) status = jinja_eval(run, exprs[i], &bounds[i]);
    }
    if (status) return status;
    run->line = expr->line;
    return jinja_eval_slice(run, object, bounds, out);
}

static enum status eval_node(struct jinja_run *run, const struct jinja_expr *expr,
                             struct jinja_value *out) {
    switch (expr->type) {
    case JINJA_EXPR_LIST:
    case JINJA_EXPR_TUPLE:
        return eval_list(run, expr, out);
    case JINJA_EXPR_DICT:
        return eval_dict(run, expr, out);
    case JINJA_EXPR_UNARY:
        return eval_unary_node(run, expr, out);
    case JINJA_EXPR_BINARY:
        return eval_binary(run, expr, out);
    case JINJA_EXPR_AND:
    case JINJA_EXPR_OR:
        return eval_logic(run, expr, out);
    case JINJA_EXPR_COMPARE:
        return eval_compare(run, expr, out);
    case JINJA_EXPR_TERNARY:
        return eval_ternary(run, expr, out);
    case JINJA_EXPR_ATTRIBUTE:
    case JINJA_EXPR_ITEM:
        return eval_access(run, expr, out);
    case JINJA_EXPR_SLICE:
        return eval_slice_node(run, expr, out);
    case JINJA_EXPR_CALL:
        return eval_call(run, expr, NULL, out);
    case JINJA_EXPR_FILTER:
        return eval_filter(run, expr, out);
    default:
        return eval_test(run, expr, out);
    }
}

enum status jinja_eval(struct jinja_run *run, const struct jinja_expr *expr,
                       struct jinja_value *out) {
    enum status status = jinja_run_pay(run, 1);
    if (status) return status;
    run->line = expr->line;
    if (expr->type == JINJA_EXPR_CONST) {
        *out = expr->constant;
        return OK;
    }
    if (expr->type == JINJA_EXPR_NAME) return jinja_scope_get(run, expr->name, out);
    status = jinja_run_enter(run);
    if (status) return status;
    status = eval_node(run, expr, out);
    if (status) return status;
    jinja_run_leave(run);
    return OK;
}
