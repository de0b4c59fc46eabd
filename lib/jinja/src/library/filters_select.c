// Filters that run another filter or a test on each item: map, select, reject and their kin.
//
// Jinja evaluates them item by item, as the result is walked. Here all items are done at once. The
// difference shows only where an item fails that the template never asks for.
#include "jinja/src/library/library_parts.h"

// args without its first `skip` positional ones.
static struct jinja_call_args rest_of(const struct jinja_call_args *args, size_t skip) {
    struct jinja_call_args rest = *args;
    rest.values += skip;
    rest.num_values -= skip;
    return rest;
}

static enum status empty_iterator(struct jinja_run *run, struct jinja_value *out) {
    struct jinja_list *list;
    enum status status = jinja_list_create(run, 0, &list);
    if (status) return status;
    return jinja_value_iterator(run, list, "generator", out);
}

// The keyword arguments of map(attribute=..., default=...).
static enum status map_path(struct jinja_run *run, const struct jinja_call_args *args,
                            struct jinja_attribute_path *path) {
    struct jinja_value values[2] = {jinja_value_none(), jinja_value_none()};
    enum status status =
        jinja_args_bind(run, "map", args, (const char *[]){"attribute", "default"}, 2, 1, values);
    if (!status) status = jinja_attribute_path(run, values[0], false, path);
    if (!status) path->default_value = values[1];
    return status;
}

static bool has_keyword(const struct jinja_call_args *args, const char *name) {
    for (size_t i = 0; i < args->num_names; i++) {
        if (jinja_string_is(args->names[i], name)) return true;
    }
    return false;
}

static enum status filter_map(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    if (!jinja_value_is_true(value)) return empty_iterator(run, out);
    bool by_attribute = args->num_values == 0 && has_keyword(args, "attribute");
    struct jinja_attribute_path path;
    const struct jinja_string *name = NULL;
    struct jinja_call_args rest = *args;
    enum status status;
    if (by_attribute) {
        status = map_path(run, args, &path);
    } else {
        if (args->num_values == 0) return jinja_run_fail(run, "map requires a filter argument");
        status = jinja_args_string(run, "map", "the filter's name", args->values[0], &name);
        rest = rest_of(args, 1);
    }
    const struct jinja_list *items;
    struct jinja_list *mapped;
    if (!status) status = jinja_value_items(run, value, &items);
    if (!status) status = jinja_list_create(run, items->len, &mapped);
    for (size_t i = 0; !status && i < items->len; i++) {
        struct jinja_value item;
        status = jinja_run_pay(run, 1);
        if (!status && by_attribute)
            status = jinja_attribute_get(run, &path, items->items[i], &item);
        else if (!status)
            status = jinja_run_filter(run, name, items->items[i], &rest, &item);
        if (!status) status = jinja_list_append(run, mapped, item);
    }
    if (status) return status;
    return jinja_value_iterator(run, mapped, "generator", out);
}

// How items are chosen.
struct selection {
    struct jinja_attribute_path path; // from an item to the value that is tested
    const struct jinja_string *test; // NULL: truth
    struct jinja_call_args args; // of the test
    bool keeps; // the items that pass; else the others
};

static enum status passes(struct jinja_run *run, const struct selection *selection,
                          struct jinja_value item, bool *out) {
    enum status status = jinja_attribute_get(run, &selection->path, item, &item);
    if (status) return status;
    if (selection->test) return jinja_run_test(run, selection->test, item, &selection->args, out);
    *out = jinja_value_is_true(item);
    return OK;
}

static enum status select_items(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, bool by_attribute, bool keeps,
                                struct jinja_value *out) {
    if (!jinja_value_is_true(value)) return empty_iterator(run, out);
    struct selection selection = {.keeps = keeps};
    size_t num_used = by_attribute;
    if (args->num_values < num_used)
        return jinja_run_fail(run, "Missing parameter for attribute name");
    enum status status = jinja_attribute_path(
        run, by_attribute ? args->values[0] : jinja_value_none(), false, &selection.path);
    if (!status && args->num_values > num_used) {
        status = jinja_args_string(run, keeps ? "select" : "reject", "the test's name",
                                   args->values[num_used], &selection.test);
        selection.args = rest_of(args, num_used + 1);
    }
    const struct jinja_list *items;
    struct jinja_list *chosen;
    if (!status) status = jinja_value_items(run, value, &items);
    if (!status) status = jinja_list_create(run, 0, &chosen);
    for (size_t i = 0; !status && i < items->len; i++) {
        bool passed;
        status = passes(run, &selection, items->items[i], &passed);
        if (!status && passed == keeps) status = jinja_list_append(run, chosen, items->items[i]);
    }
    if (status) return status;
    return jinja_value_iterator(run, chosen, "generator", out);
}

static enum status filter_select(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    return select_items(run, value, args, false, true, out);
}

static enum status filter_reject(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    return select_items(run, value, args, false, false, out);
}

static enum status filter_selectattr(struct jinja_run *run, struct jinja_value value,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    return select_items(run, value, args, true, true, out);
}

static enum status filter_rejectattr(struct jinja_run *run, struct jinja_value value,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    return select_items(run, value, args, true, false, out);
}

const struct jinja_filter jinja_filters_select[] = {
    {"map", filter_map},       {"reject", filter_reject},         {"rejectattr", filter_rejectattr},
    {"select", filter_select}, {"selectattr", filter_selectattr}, {0},
};
