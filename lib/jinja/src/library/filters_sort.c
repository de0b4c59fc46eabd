// Filters that order and compare items: sort, dictsort, groupby, unique, min, max.
#include <string.h>

#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/str_ops.h"

// ---- a stable merge sort whose comparison may fail ----

struct keyed {
    struct jinja_value key, item;
};

static enum status is_less(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
                           bool *out) {
    int order;
    bool unordered;
    enum status status = jinja_value_compare(run, a, b, &order, &unordered);
    if (!status) *out = !unordered && order < 0;
    return status;
}

// Merges from[start, middle) and from[middle, end) into `to`. Of equal keys the left one is first,
// also in descending order, as Python's sorted has it.
static enum status merge(struct jinja_run *run, const struct keyed *from, struct keyed *to,
                         size_t start, size_t middle, size_t end, bool descending) {
    size_t left = start, right = middle;
    enum status status = jinja_run_pay(run, end - start);
    for (size_t i = start; i < end && !status; i++) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
            struct jinja_value a = from[right].key, b = from[left].key;
            status = descending ? is_less(run, b, a, &take_right) : is_less(run, a, b, &take_right);
        }
        to[i] = take_right ? from[right++] : from[left++];
    }
    return status;
}

// Bottom-up, so no recursion.
static enum status sort_keyed(struct jinja_run *run, struct keyed *items, size_t len,
                              bool descending) {
    struct keyed *from = items, *to = jinja_run_alloc_array(run, len, sizeof *to);
    if (!to) return jinja_run_status(run);
    for (size_t width = 1; width < len; width *= 2) {
        for (size_t start = 0; start < len; start += 2 * width) {
            size_t middle = len - start > width ? start + width : len;
            size_t end = len - start > 2 * width ? start + 2 * width : len;
            enum status status = merge(run, from, to, start, middle, end, descending);
            if (status) return status;
        }
        struct keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != items && len) memcpy(items, from, len * sizeof *items);
    return OK;
}

static enum status items_of(struct jinja_run *run, const struct keyed *keyed, size_t len,
                            struct jinja_value *out) {
    struct jinja_list *list;
    enum status status = jinja_list_create(run, len, &list);
    for (size_t i = 0; i < len && !status; i++)
        status = jinja_list_append(run, list, keyed[i].item);
    if (!status) *out = jinja_value_of_list(list);
    return status;
}

static enum status keyed_by_path(struct jinja_run *run, const struct jinja_attribute_path *path,
                                 const struct jinja_list *items, struct keyed **out) {
    struct keyed *keyed = jinja_run_alloc_array(run, items->len, sizeof *keyed);
    if (!keyed) return jinja_run_status(run);
    enum status status = OK;
    for (size_t i = 0; i < items->len && !status; i++) {
        keyed[i].item = items->items[i];
        status = jinja_attribute_get(run, path, items->items[i], &keyed[i].key);
    }
    *out = keyed;
    return status;
}

// ---- sort ----

// sort's attribute may name several, "a,b": the key is then the list of what they give.
static enum status sort_paths(struct jinja_run *run, struct jinja_value attribute, bool ignore_case,
                              struct jinja_attribute_path **paths, size_t *num_paths) {
    const struct jinja_string *string = attribute.type == JINJA_STRING ? attribute.string : NULL;
    *num_paths = 1;
    for (size_t i = 0; string && i < string->len; i++) *num_paths += string->data[i] == ',';
    *paths = jinja_run_alloc_array(run, *num_paths, sizeof **paths);
    if (!*paths) return jinja_run_status(run);
    if (!string) return jinja_attribute_path(run, attribute, ignore_case, *paths);
    enum status status = jinja_str_pay_chars(run, string->len);
    size_t start = 0;
    for (size_t p = 0; p < *num_paths && !status; p++) {
        size_t end = start;
        while (end < string->len && string->data[end] != ',') end++;
        struct jinja_value part;
        status = jinja_str_part(run, string, start, end, &part);
        if (!status) status = jinja_attribute_path(run, part, ignore_case, &(*paths)[p]);
        start = end + 1;
    }
    return status;
}

static enum status sort_key(struct jinja_run *run, const struct jinja_attribute_path *paths,
                            size_t num_paths, struct jinja_value item, struct jinja_value *out) {
    struct jinja_list *key;
    enum status status = jinja_list_create(run, num_paths, &key);
    for (size_t p = 0; p < num_paths && !status; p++) {
        struct jinja_value part;
        status = jinja_attribute_get(run, &paths[p], item, &part);
        if (!status) status = jinja_list_append(run, key, part);
    }
    if (!status) *out = jinja_value_of_list(key);
    return status;
}

static enum status filter_sort(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[3] = {jinja_value_bool(false), jinja_value_bool(false),
                                    jinja_value_none()};
    enum status status =
        jinja_args_bind(run, "sort", args,
                        (const char *[]){"reverse", "case_sensitive", "attribute"}, 3, 0, values);
    struct jinja_attribute_path *paths;
    size_t num_paths;
    if (!status)
        status = sort_paths(run, values[2], !jinja_value_is_true(values[1]), &paths, &num_paths);
    const struct jinja_list *items;
    if (!status) status = jinja_value_items(run, value, &items);
    if (status) return status;
    struct keyed *keyed = jinja_run_alloc_array(run, items->len, sizeof *keyed);
    if (!keyed) return jinja_run_status(run);
    for (size_t i = 0; i < items->len && !status; i++) {
        keyed[i].item = items->items[i];
        status = sort_key(run, paths, num_paths, items->items[i], &keyed[i].key);
    }
    if (!status) status = sort_keyed(run, keyed, items->len, jinja_value_is_true(values[0]));
    if (status) return status;
    return items_of(run, keyed, items->len, out);
}

static enum status filter_dictsort(struct jinja_run *run, struct jinja_value value,
                                   const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[3] = {jinja_value_bool(false), [2] = jinja_value_bool(false)};
    enum status status = jinja_value_string_borrow(run, "key", 3, &values[1]);
    if (!status)
        status = jinja_args_bind(run, "dictsort", args,
                                 (const char *[]){"case_sensitive", "by", "reverse"}, 3, 0, values);
    if (status) return status;
    bool by_key = values[1].type == JINJA_STRING && jinja_string_is(values[1].string, "key");
    if (!by_key && !(values[1].type == JINJA_STRING && jinja_string_is(values[1].string, "value")))
        return jinja_run_fail(run, "You can only sort by either \"key\" or \"value\"");
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    if (value.type != JINJA_DICT)
        return jinja_run_fail(run, "dictsort wants a dict, not %s", jinja_value_type_name(value));
    const struct jinja_dict *dict = value.dict;
    struct keyed *keyed = jinja_run_alloc_array(run, dict->len, sizeof *keyed);
    if (!keyed) return jinja_run_status(run);
    bool ignore_case = !jinja_value_is_true(values[0]);
    for (size_t i = 0; i < dict->len && !status; i++) {
        struct jinja_list *pair;
        status = jinja_run_pay(run, 1);
        if (!status) status = jinja_list_create(run, 2, &pair);
        if (!status) status = jinja_list_append(run, pair, dict->entries[i].key);
        if (!status) status = jinja_list_append(run, pair, dict->entries[i].value);
        if (status) return status;
        keyed[i] = (struct keyed){.key = pair->items[!by_key], .item = jinja_value_of_tuple(pair)};
        if (ignore_case && keyed[i].key.type == JINJA_STRING)
            status = jinja_str_case_map(run, keyed[i].key.string, JINJA_STR_LOWER, &keyed[i].key);
    }
    if (!status) status = sort_keyed(run, keyed, dict->len, jinja_value_is_true(values[2]));
    if (status) return status;
    return items_of(run, keyed, dict->len, out);
}

// ---- groupby ----

static enum status append_group(struct jinja_run *run, const struct jinja_attribute_path *path,
                                const struct keyed *group, size_t len, struct jinja_list *groups) {
    struct jinja_value key, items;
    // The key as the first item has it, where the sorting ignored case.
    enum status status = jinja_attribute_get(run, path, group[0].item, &key);
    if (!status) status = items_of(run, group, len, &items);
    struct jinja_list *pair;
    if (!status) status = jinja_list_create(run, 2, &pair);
    if (!status) status = jinja_list_append(run, pair, key);
    if (!status) status = jinja_list_append(run, pair, items);
    if (status) return status;
    pair->is_group = true;
    return jinja_list_append(run, groups, jinja_value_of_tuple(pair));
}

static enum status filter_groupby(struct jinja_run *run, struct jinja_value value,
                                  const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[3] = {[1] = jinja_value_none(), [2] = jinja_value_bool(false)};
    enum status status =
        jinja_args_bind(run, "groupby", args,
                        (const char *[]){"attribute", "default", "case_sensitive"}, 3, 1, values);
    struct jinja_attribute_path path;
    if (!status)
        status = jinja_attribute_path(run, values[0], !jinja_value_is_true(values[2]), &path);
    const struct jinja_list *items;
    if (!status) status = jinja_value_items(run, value, &items);
    if (status) return status;
    path.default_value = values[1];
    struct keyed *keyed = NULL;
    status = keyed_by_path(run, &path, items, &keyed);
    if (!status) status = sort_keyed(run, keyed, items->len, false);
    struct jinja_list *groups;
    if (!status) status = jinja_list_create(run, 0, &groups);
    path.ignore_case = false;
    for (size_t start = 0; !status && start < items->len;) {
        size_t end = start + 1;
        bool is_equal = true;
        for (; end < items->len && !status; end++) {
            status = jinja_value_equal(run, keyed[start].key, keyed[end].key, &is_equal);
            if (!is_equal) break;
        }
        if (!status) status = append_group(run, &path, keyed + start, end - start, groups);
        start = end;
    }
    if (!status) *out = jinja_value_of_list(groups);
    return status;
}

// ---- unique, min, max ----

static enum status filter_unique(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {jinja_value_bool(false), jinja_value_none()};
    enum status status = jinja_args_bind(
        run, "unique", args, (const char *[]){"case_sensitive", "attribute"}, 2, 0, values);
    struct jinja_attribute_path path;
    if (!status)
        status = jinja_attribute_path(run, values[1], !jinja_value_is_true(values[0]), &path);
    const struct jinja_list *items;
    if (!status) status = jinja_value_items(run, value, &items);
    struct jinja_dict *seen;
    struct jinja_list *unique;
    if (!status) status = jinja_dict_create(run, 0, &seen);
    if (!status) status = jinja_list_create(run, 0, &unique);
    for (size_t i = 0; !status && i < items->len; i++) {
        struct jinja_value key, ignored;
        bool found = true;
        status = jinja_attribute_get(run, &path, items->items[i], &key);
        if (!status) status = jinja_dict_get(run, seen, key, &found, &ignored);
        if (status || found) continue;
        status = jinja_dict_set(run, seen, key, jinja_value_none());
        if (!status) status = jinja_list_append(run, unique, items->items[i]);
    }
    if (status) return status;
    return jinja_value_iterator(run, unique, "generator", out);
}

static enum status extreme(struct jinja_run *run, const char *callee, struct jinja_value value,
                           const struct jinja_call_args *args, bool want_max,
                           struct jinja_value *out) {
    struct jinja_value values[2] = {jinja_value_bool(false), jinja_value_none()};
    enum status status = jinja_args_bind(
        run, callee, args, (const char *[]){"case_sensitive", "attribute"}, 2, 0, values);
    struct jinja_attribute_path path;
    if (!status)
        status = jinja_attribute_path(run, values[1], !jinja_value_is_true(values[0]), &path);
    const struct jinja_list *items;
    if (!status) status = jinja_value_items(run, value, &items);
    if (status) return status;
    if (items->len == 0)
        return jinja_value_undefined(run, out, "No aggregated item, sequence was empty.");
    struct jinja_value best;
    size_t at = 0;
    for (size_t i = 0; i < items->len && !status; i++) {
        struct jinja_value key;
        bool is_better = i == 0;
        status = jinja_attribute_get(run, &path, items->items[i], &key);
        if (!status && i)
            status = want_max ? is_less(run, best, key, &is_better)
                              : is_less(run, key, best, &is_better);
        if (status || !is_better) continue;
        best = key;
        at = i;
    }
    if (!status) *out = items->items[at];
    return status;
}

static enum status filter_max(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    return extreme(run, "max", value, args, true, out);
}

static enum status filter_min(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    return extreme(run, "min", value, args, false, out);
}

const struct jinja_filter jinja_filters_sort[] = {
    {"dictsort", filter_dictsort},
    {"groupby", filter_groupby},
    {"max", filter_max},
    {"min", filter_min},
    {"sort", filter_sort},
    {"unique", filter_unique},
    {0},
};
