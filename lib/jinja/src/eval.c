/* Evaluation walks the tree; there is no compiled form, since a template is rendered once per
 * request and its text is moved far more often than its nodes are visited.
 *
 * Every node pays one step and one level of depth; leaves pay only the step. run->line is set again
 * before whatever may fail, because operands on other lines have moved it. After an error levels
 * and frames are left as they are: the render is over. */
#include "jinja/src/eval.h"

#include "jinja/src/library.h"
#include "jinja/src/scope.h"

// ---- arguments ----

enum { ARGS_INLINE = 6 };

// Room for the arguments of most calls, so that they take no memory of the render.
struct args_room {
    struct value values[ARGS_INLINE], named[ARGS_INLINE];
};

static enum status eval_all(struct run *run, struct expr *const *exprs, size_t count,
                            struct value *out) {
    enum status status = OK;
    for (size_t i = 0; i < count && !status; ++i) status = eval(run, exprs[i], &out[i]);
    return status;
}

// *args: the positional ones and all items of `star`.
static enum status add_star(struct run *run, const struct expr *star, struct call_args *args) {
    struct value value;
    enum status status = eval(run, star, &value);
    if (status) return status;
    if (!value_is_iterable(value)) {
        return run_fail(run, "Value after * must be an iterable, not %s", value_type_name(value));
    }
    const struct list *items;
    status = value_items(run, value, &items);
    if (status) return status;
    struct list *all;
    status = list_create(run, args->num_values + items->len, &all);
    for (size_t i = 0; i < args->num_values && !status; ++i)
        status = list_append(run, all, args->values[i]);
    for (size_t i = 0; i < items->len && !status; ++i)
        status = list_append(run, all, items->items[i]);
    if (status) return status;
    args->values = all->items;
    args->num_values = all->len;
    return run_pay(run, items->len);
}

// Room for `more` keyword arguments behind those there are, which may be the tree's: copied.
static enum status grow_names(struct run *run, size_t more, const struct string ***names,
                              struct value **named, struct call_args *args) {
    size_t count = args->num_names;
    *names = run_alloc_array(run, count + more, sizeof(**names));
    *named = *names ? run_alloc_array(run, count + more, sizeof(**named)) : NULL;
    if (!*named) return run_status(run);
    for (size_t i = 0; i < count; ++i) {
        (*names)[i] = args->names[i];
        (*named)[i] = args->named[i];
    }
    args->names = *names;
    args->named = *named;
    return run_pay(run, count + more);
}

static bool has_keyword(const struct call_args *args, const struct string *name) {
    for (size_t i = 0; i < args->num_names; ++i)
        if (string_equal(args->names[i], name)) return true;
    return false;
}

static enum status fail_double(struct run *run, const struct string *name) {
    return run_fail(run, "got multiple values for keyword argument '%.*s'", (int)name->len,
                    name->data);
}

// **kwargs: the members of a dict.
static enum status add_star_star(struct run *run, const struct expr *star_star,
                                 struct call_args *args) {
    struct value value;
    enum status status = eval(run, star_star, &value);
    if (status) return status;
    if (value.type != VALUE_DICT) {
        return run_fail(run, "argument after ** must be a mapping, not %s", value_type_name(value));
    }
    const struct string **names;
    struct value *named;
    status = grow_names(run, value.dict->len, &names, &named, args);
    if (status) return status;
    // Each new name is looked for among those written in the call, not among each other: a dict's
    // keys differ.
    size_t num_given = args->num_names;
    status = run_pay(run, num_given * value.dict->len);
    for (size_t i = 0; i < value.dict->len && !status; ++i) {
        const struct dict_entry *entry = &value.dict->entries[i];
        if (entry->key.type != VALUE_STRING) return run_fail(run, "keywords must be strings");
        const struct call_args given = {.names = args->names, .num_names = num_given};
        if (has_keyword(&given, entry->key.string)) return fail_double(run, entry->key.string);
        names[args->num_names] = entry->key.string;
        named[args->num_names++] = entry->value;
    }
    return status;
}

static enum status add_caller(struct run *run, struct value caller, struct call_args *args) {
    static const struct string name = {.data = "caller", .len = 6, .num_chars = 6};
    if (has_keyword(args, &name)) return fail_double(run, &name);
    const struct string **names;
    struct value *named;
    enum status status = grow_names(run, 1, &names, &named, args);
    if (status) return status;
    names[args->num_names] = &name;
    named[args->num_names++] = caller;
    return OK;
}

static enum status eval_args(struct run *run, const struct expr_args *exprs, struct args_room *room,
                             struct call_args *out) {
    struct value *values = room->values, *named = room->named;
    if (exprs->num_values > ARGS_INLINE) {
        values = run_alloc_array(run, exprs->num_values, sizeof(*values));
        if (!values) return run_status(run);
    }
    if (exprs->num_names > ARGS_INLINE) {
        named = run_alloc_array(run, exprs->num_names, sizeof(*named));
        if (!named) return run_status(run);
    }
    enum status status = eval_all(run, exprs->values, exprs->num_values, values);
    if (status) return status;
    status = eval_all(run, exprs->named, exprs->num_names, named);
    if (status) return status;
    *out = (struct call_args){.values = values,
                              .num_values = exprs->num_values,
                              .names = exprs->names,
                              .named = named,
                              .num_names = exprs->num_names};
    if (exprs->star) status = add_star(run, exprs->star, out);
    if (!status && exprs->star_star) status = add_star_star(run, exprs->star_star, out);
    return status;
}

// ---- calls, filters, tests ----

static enum status eval_call(struct run *run, const struct expr *expr, const struct value *caller,
                             struct value *out) {
    struct value callee;
    struct args_room room;
    struct call_args args;
    enum status status = eval(run, expr->left, &callee);
    if (status) return status;
    status = eval_args(run, &expr->args, &room, &args);
    if (!status && caller) status = add_caller(run, *caller, &args);
    if (status) return status;
    run->line = expr->line;
    return run_call(run, callee, &args, out);
}

enum status eval_call_with(struct run *run, const struct expr *expr, struct value caller,
                           struct value *out) {
    return eval_call(run, expr, &caller, out);
}

// Filters the operand, which is evaluated already.
static enum status apply_filter(struct run *run, const struct expr *expr, struct value operand,
                                struct value *out) {
    struct args_room room;
    struct call_args args;
    enum status status = eval_args(run, &expr->args, &room, &args);
    if (status) return status;
    run->line = expr->line;
    return run_filter(run, expr->name, operand, &args, out);
}

static enum status eval_filter(struct run *run, const struct expr *expr, struct value *out) {
    struct value operand;
    enum status status = eval(run, expr->left, &operand);
    return status ? status : apply_filter(run, expr, operand, out);
}

enum status eval_filters(struct run *run, const struct expr *expr, struct value text,
                         struct value *out) {
    enum status status = run_enter(run);
    if (status) return status;
    struct value operand = text;
    if (expr->left) {
        status = eval_filters(run, expr->left, text, &operand);
        if (status) return status;
    }
    status = apply_filter(run, expr, operand, out);
    if (status) return status;
    run_leave(run);
    return OK;
}

static enum status eval_test(struct run *run, const struct expr *expr, struct value *out) {
    struct value operand;
    struct args_room room;
    struct call_args args;
    enum status status = eval(run, expr->left, &operand);
    if (status) return status;
    status = eval_args(run, &expr->args, &room, &args);
    if (status) return status;
    run->line = expr->line;
    bool passes;
    status = run_test(run, expr->name, operand, &args, &passes);
    if (!status) *out = value_bool(passes);
    return status;
}

// ---- literals ----

static enum status eval_list(struct run *run, const struct expr *expr, struct value *out) {
    struct list *list;
    enum status status = list_create(run, expr->list.num_items, &list);
    for (size_t i = 0; i < expr->list.num_items && !status; ++i) {
        struct value item;
        status = eval(run, expr->list.items[i], &item);
        if (!status) status = list_append(run, list, item);
    }
    if (status) return status;
    *out = expr->type == EXPR_TUPLE ? value_of_tuple(list) : value_of_list(list);
    return OK;
}

static enum status eval_dict(struct run *run, const struct expr *expr, struct value *out) {
    struct dict *dict;
    enum status status = dict_create(run, expr->list.num_items / 2, &dict);
    for (size_t i = 0; i < expr->list.num_items && !status; i += 2) {
        struct value key, value;
        status = eval(run, expr->list.items[i], &key);
        if (!status) status = eval(run, expr->list.items[i + 1], &value);
        if (!status) status = dict_set(run, dict, key, value);
    }
    if (!status) *out = value_of_dict(dict);
    return status;
}

// ---- operators ----

enum { CONCAT_HEAD_MIN = 1024 }; // bytes

static enum status compare(struct run *run, enum compare_op op, struct value left,
                           struct value right, bool *out) {
    enum status status;
    bool is_unordered;
    int order;
    switch (op) {
    case CMP_EQ:
        return value_equal(run, left, right, out);
    case CMP_NE:
        status = value_equal(run, left, right, out);
        *out = !*out;
        return status;
    case CMP_IN:
        return value_contains(run, right, left, out);
    case CMP_NOT_IN:
        status = value_contains(run, right, left, out);
        *out = !*out;
        return status;
    default:
        break;
    }
    static const char *const signs[] = {
        [CMP_LT] = "<", [CMP_LE] = "<=", [CMP_GT] = ">", [CMP_GE] = ">="};
    status = value_compare_by(run, signs[op], left, right, &order, &is_unordered);
    if (status) return status;
    // A NaN is neither below, above nor equal to anything.
    *out = !is_unordered && (op == CMP_LT   ? order < 0
                             : op == CMP_LE ? order <= 0
                             : op == CMP_GT ? order > 0
                                            : order >= 0);
    return OK;
}

// a < b < c: each operand once, until a comparison fails.
static enum status eval_compare(struct run *run, const struct expr *expr, struct value *out) {
    struct value left, right;
    bool holds = true;
    enum status status = eval(run, expr->left, &left);
    for (size_t i = 0; i < expr->compare.num_links && holds && !status; ++i) {
        const struct compare_link *link = &expr->compare.links[i];
        status = eval(run, link->right, &right);
        if (status) return status;
        run->line = expr->line;
        status = compare(run, link->op, left, right, &holds);
        left = right;
    }
    if (!status) *out = value_bool(holds);
    return status;
}

// Appends a ~ b ~ c, without the texts in between. A long string at the beginning is left to
// *head, so that it can be continued in place.
static enum status join(struct run *run, const struct expr *expr, struct text *text,
                        const struct string **head) {
    struct value value;
    enum status status;
    if (expr->type == EXPR_BINARY && expr->binary == OP_CONCAT) {
        status = run_enter(run);
        if (!status) status = join(run, expr->left, text, head);
        if (!status) status = join(run, expr->right, text, NULL);
        if (!status) run_leave(run);
        return status;
    }
    status = eval(run, expr, &value);
    if (status) return status;
    if (!head || value.type != VALUE_STRING || value.string->len < CONCAT_HEAD_MIN)
        return value_print(run, value, text);
    *head = value.string;
    return OK;
}

static enum status eval_concat(struct run *run, const struct expr *expr, struct value *out) {
    struct text text = {0};
    const struct string *head = NULL;
    enum status status = join(run, expr, &text, &head);
    if (!status) status = text_finish(run, &text, out);
    if (status || !head) return status;
    struct string plain = *head; // str() of a Markup is no Markup
    plain.is_markup = false;
    return run_binary(run, OP_ADD, value_of_string(&plain), *out, out);
}

static enum status eval_binary(struct run *run, const struct expr *expr, struct value *out) {
    if (expr->binary == OP_CONCAT) return eval_concat(run, expr, out);
    struct value left, right;
    enum status status = eval(run, expr->left, &left);
    if (!status) status = eval(run, expr->right, &right);
    if (status) return status;
    run->line = expr->line;
    return run_binary(run, expr->binary, left, right, out);
}

static enum status eval_unary_node(struct run *run, const struct expr *expr, struct value *out) {
    struct value operand;
    enum status status = eval(run, expr->left, &operand);
    if (status) return status;
    run->line = expr->line;
    return eval_unary(run, expr->unary, operand, out);
}

// `and` and `or` give the operand that decided, not its truth.
static enum status eval_logic(struct run *run, const struct expr *expr, struct value *out) {
    enum status status = eval(run, expr->left, out);
    if (status) return status;
    if (value_is_true(*out) == (expr->type == EXPR_OR)) return OK;
    return eval(run, expr->right, out);
}

static enum status eval_ternary(struct run *run, const struct expr *expr, struct value *out) {
    struct value condition;
    enum status status = eval(run, expr->condition, &condition);
    if (status) return status;
    if (value_is_true(condition)) return eval(run, expr->left, out);
    if (expr->right) return eval(run, expr->right, out);
    return value_undefined(run, out,
                           "the inline if-expression on line %u evaluated to false and no else "
                           "section was defined.",
                           (unsigned)expr->line);
}

// ---- access ----

static enum status eval_access(struct run *run, const struct expr *expr, struct value *out) {
    struct value object, key;
    enum status status = eval(run, expr->left, &object);
    if (status) return status;
    if (expr->type == EXPR_ATTRIBUTE) {
        run->line = expr->line;
        return run_attribute(run, object, expr->name, out);
    }
    status = eval(run, expr->right, &key);
    if (status) return status;
    run->line = expr->line;
    return run_item(run, object, key, out);
}

static enum status eval_slice_node(struct run *run, const struct expr *expr, struct value *out) {
    const struct expr *exprs[3] = {expr->slice.start, expr->slice.stop, expr->slice.step};
    struct value object, bounds[3];
    enum status status = eval(run, expr->left, &object);
    for (int i = 0; i < 3 && !status; ++i) {
        bounds[i] = value_none();
        if (exprs[i]) status = eval(run, exprs[i], &bounds[i]);
    }
    if (status) return status;
    run->line = expr->line;
    return eval_slice(run, object, bounds, out);
}

static enum status eval_node(struct run *run, const struct expr *expr, struct value *out) {
    switch (expr->type) {
    case EXPR_LIST:
    case EXPR_TUPLE:
        return eval_list(run, expr, out);
    case EXPR_DICT:
        return eval_dict(run, expr, out);
    case EXPR_UNARY:
        return eval_unary_node(run, expr, out);
    case EXPR_BINARY:
        return eval_binary(run, expr, out);
    case EXPR_AND:
    case EXPR_OR:
        return eval_logic(run, expr, out);
    case EXPR_COMPARE:
        return eval_compare(run, expr, out);
    case EXPR_TERNARY:
        return eval_ternary(run, expr, out);
    case EXPR_ATTRIBUTE:
    case EXPR_ITEM:
        return eval_access(run, expr, out);
    case EXPR_SLICE:
        return eval_slice_node(run, expr, out);
    case EXPR_CALL:
        return eval_call(run, expr, NULL, out);
    case EXPR_FILTER:
        return eval_filter(run, expr, out);
    default:
        return eval_test(run, expr, out);
    }
}

enum status eval(struct run *run, const struct expr *expr, struct value *out) {
    enum status status = run_pay(run, 1);
    if (status) return status;
    run->line = expr->line;
    if (expr->type == EXPR_CONST) {
        *out = expr->constant;
        return OK;
    }
    if (expr->type == EXPR_NAME) return scope_get(run, expr->name, out);
    status = run_enter(run);
    if (status) return status;
    status = eval_node(run, expr, out);
    if (status) return status;
    run_leave(run);
    return OK;
}
