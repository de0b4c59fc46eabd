/* Filters on sequences: length, ends, parts, sums.
 *
 * Where Jinja gives a generator, so does this. It has no length and is true even when it is empty;
 * only `list` or a loop walks it. `list` of a list is the list itself, which only `sameas` tells
 * from a copy. */
#include "jinja/src/library/library_parts.h"

static enum status filter_length(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "length", args, NULL, 0, 0, NULL);
    size_t len;
    if (!status) status = jinja_value_length(run, value, &len);
    if (!status) *out = jinja_value_int((int64_t)len);
    return status;
}

static enum status filter_list(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "list", args, NULL, 0, 0, NULL);
    const struct jinja_list *items;
    if (!status) status = jinja_value_items(run, value, &items);
    if (!status) *out = jinja_value_of_list(items);
    return status;
}

static enum status filter_first(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "first", args, NULL, 0, 0, NULL);
    if (status) return status;
    if (value.type == JINJA_ITERATOR) { // takes one item and leaves the others
        struct jinja_iterator *iterator = value.iterator;
        if (iterator->next < iterator->items->len) {
            *out = iterator->items->items[iterator->next++];
            return OK;
        }
        return jinja_value_undefined(run, out, "No first item, sequence was empty.");
    }
    const struct jinja_list *items;
    status = jinja_value_items(run, value, &items);
    if (status) return status;
    if (items->len == 0)
        return jinja_value_undefined(run, out, "No first item, sequence was empty.");
    *out = items->items[0];
    return OK;
}

static bool is_reversible(struct jinja_value value) {
    return jinja_value_is_sequence(value) || value.type == JINJA_UNDEFINED ||
           value.type == JINJA_VIEW;
}

static enum status filter_last(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "last", args, NULL, 0, 0, NULL);
    if (status) return status;
    if (!is_reversible(value))
        return jinja_run_fail(run, "'%s' object is not reversible", jinja_value_type_name(value));
    const struct jinja_list *items;
    status = jinja_value_items(run, value, &items);
    if (status) return status;
    if (items->len == 0)
        return jinja_value_undefined(run, out, "No last item, sequence was empty.");
    *out = items->items[items->len - 1];
    return OK;
}

static enum status reverse_string(struct jinja_run *run, const struct jinja_string *string,
                                  struct jinja_value *out) {
    const struct jinja_list *chars;
    enum status status = jinja_value_items(run, jinja_value_of_string(string), &chars);
    struct jinja_text text = {0};
    for (size_t i = chars ? chars->len : 0; i > 0 && !status; i--) {
        status = jinja_run_pay(run, 1);
        if (!status) status = jinja_text_append_string(run, &text, chars->items[i - 1].string);
    }
    if (status) return status;
    return jinja_text_finish(run, &text, out);
}

// What reversed() of a type is called, for printing.
static const char *reversed_name(struct jinja_value value) {
    switch (value.type) {
    case JINJA_LIST:
        return "list_reverseiterator";
    case JINJA_DICT:
        return "dict_reversekeyiterator";
    case JINJA_RANGE:
        return "range_iterator";
    default:
        return "reversed";
    }
}

static enum status filter_reverse(struct jinja_run *run, struct jinja_value value,
                                  const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "reverse", args, NULL, 0, 0, NULL);
    if (status) return status;
    if (value.type == JINJA_STRING) return reverse_string(run, value.string, out);
    const struct jinja_list *items;
    struct jinja_list *reversed;
    status = jinja_value_items(run, value, &items);
    if (!status) status = jinja_list_create(run, items->len, &reversed);
    for (size_t i = 0; !status && i < items->len; i++) {
        status = jinja_run_pay(run, 1);
        if (!status) status = jinja_list_append(run, reversed, items->items[items->len - 1 - i]);
    }
    if (status) return status;
    if (is_reversible(value)) return jinja_value_iterator(run, reversed, reversed_name(value), out);
    *out = jinja_value_of_list(reversed);
    return OK;
}

static enum status fill_up(struct jinja_run *run, struct jinja_list *list, int64_t count,
                           struct jinja_value fill) {
    enum status status = OK;
    for (int64_t i = 0; i < count && !status; i++) {
        status = jinja_run_pay(run, 1);
        if (!status) status = jinja_list_append(run, list, fill);
    }
    return status;
}

static enum status filter_batch(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {[1] = jinja_value_none()};
    enum status status = jinja_args_bind(run, "batch", args,
                                         (const char *[]){"linecount", "fill_with"}, 2, 1, values);
    int64_t count;
    const struct jinja_list *items;
    struct jinja_list *batches, *batch;
    if (!status) status = jinja_args_int(run, "batch", "linecount", values[0], &count);
    if (!status) status = jinja_value_items(run, value, &items);
    if (!status) status = jinja_list_create(run, 0, &batches);
    if (!status) status = jinja_list_create(run, 0, &batch);
    for (size_t i = 0; !status && i < items->len; i++) {
        status = jinja_run_pay(run, 1);
        if (!status && (int64_t)batch->len == count) {
            status = jinja_list_append(run, batches, jinja_value_of_list(batch));
            if (!status) status = jinja_list_create(run, 0, &batch);
        }
        if (!status) status = jinja_list_append(run, batch, items->items[i]);
    }
    if (!status && batch->len) {
        if (values[1].type != JINJA_NONE && count > (int64_t)batch->len)
            status = fill_up(run, batch, count - (int64_t)batch->len, values[1]);
        if (!status) status = jinja_list_append(run, batches, jinja_value_of_list(batch));
    }
    if (status) return status;
    return jinja_value_iterator(run, batches, "generator", out);
}

static enum status filter_slice(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {[1] = jinja_value_none()};
    enum status status =
        jinja_args_bind(run, "slice", args, (const char *[]){"slices", "fill_with"}, 2, 1, values);
    int64_t count;
    const struct jinja_list *items;
    struct jinja_list *slices;
    if (!status) status = jinja_args_int(run, "slice", "slices", values[0], &count);
    if (!status) status = jinja_value_items(run, value, &items);
    if (!status && count == 0) return jinja_run_fail(run, "integer division or modulo by zero");
    if (!status) status = jinja_list_create(run, 0, &slices);
    size_t start = 0;
    for (int64_t i = 0; !status && i < count; i++) {
        int64_t len = (int64_t)items->len / count;
        bool has_extra = i < (int64_t)items->len % count;
        len += has_extra;
        struct jinja_list *slice;
        status = jinja_run_pay(run, 1 + (uint64_t)len);
        if (!status) status = jinja_list_create(run, (size_t)len + 1, &slice);
        for (int64_t k = 0; !status && k < len; k++)
            status = jinja_list_append(run, slice, items->items[start++]);
        if (!status && values[1].type != JINJA_NONE && !has_extra)
            status = jinja_list_append(run, slice, values[1]);
        if (!status) status = jinja_list_append(run, slices, jinja_value_of_list(slice));
    }
    if (status) return status;
    return jinja_value_iterator(run, slices, "generator", out);
}

static enum status filter_items(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "items", args, NULL, 0, 0, NULL);
    if (status) return status;
    struct jinja_list *pairs;
    if (value.type == JINJA_UNDEFINED) {
        status = jinja_list_create(run, 0, &pairs);
    } else if (value.type == JINJA_DICT) {
        status = jinja_list_create(run, value.dict->len, &pairs);
        for (size_t i = 0; i < value.dict->len && !status; i++) {
            struct jinja_list *pair;
            status = jinja_run_pay(run, 1);
            if (!status) status = jinja_list_create(run, 2, &pair);
            if (!status) status = jinja_list_append(run, pair, value.dict->entries[i].key);
            if (!status) status = jinja_list_append(run, pair, value.dict->entries[i].value);
            if (!status) status = jinja_list_append(run, pairs, jinja_value_of_tuple(pair));
        }
    } else {
        return jinja_run_fail(run, "Can only get item pairs from a mapping.");
    }
    if (status) return status;
    return jinja_value_iterator(run, pairs, "generator", out);
}

static enum status filter_sum(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {jinja_value_none(), jinja_value_int(0)};
    enum status status =
        jinja_args_bind(run, "sum", args, (const char *[]){"attribute", "start"}, 2, 0, values);
    struct jinja_attribute_path path;
    if (!status) status = jinja_attribute_path(run, values[0], false, &path);
    const struct jinja_list *items;
    if (!status) status = jinja_value_items(run, value, &items);
    if (status) return status;
    if (values[1].type == JINJA_STRING) return jinja_run_fail(run, "sum() can't sum strings");
    struct jinja_value total = values[1];
    for (size_t i = 0; i < items->len && !status; i++) {
        struct jinja_value item;
        status = jinja_attribute_get(run, &path, items->items[i], &item);
        if (!status) status = jinja_run_binary(run, JINJA_OP_ADD, total, item, &total);
    }
    if (!status) *out = total;
    return status;
}

const struct jinja_filter jinja_filters_list[] = {
    {"batch", filter_batch},
    {"count", filter_length},
    {"first", filter_first},
    {"items", filter_items},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"reverse", filter_reverse},
    {"slice", filter_slice},
    {"sum", filter_sum},
    {0},
};
