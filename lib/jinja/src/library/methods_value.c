// Methods of lists, tuples, dicts, ranges and numbers.
#include <math.h>

#include "jinja/src/library/library_parts.h"

// ---- list and tuple ----

static enum status method_count(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value wanted;
    int64_t count = 0;
    enum status status = jinja_args_positional(run, "count()", args, 1, 1, &wanted);
    for (size_t i = 0; !status && i < self.list->len; i++) {
        bool is_equal = false;
        status = jinja_run_pay(run, 1);
        if (!status) status = jinja_value_equal(run, self.list->items[i], wanted, &is_equal);
        count += is_equal;
    }
    *out = jinja_value_int(count);
    return status;
}

static enum status list_bound(struct jinja_run *run, struct jinja_value value, int64_t len,
                              int64_t *out) {
    enum status status = jinja_args_int(run, "index()", "a bound", value, out);
    if (status) return status;
    if (*out < 0) *out += len;
    if (*out < 0) *out = 0;
    if (*out > len) *out = len;
    return OK;
}

static enum status method_index(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[3] = {[1] = jinja_value_int(0), [2] = jinja_value_int(INT64_MAX)};
    int64_t len = (int64_t)self.list->len, start, stop;
    enum status status = jinja_args_positional(run, "index()", args, 1, 3, values);
    if (!status) status = list_bound(run, values[1], len, &start);
    if (!status) status = list_bound(run, values[2], len, &stop);
    if (status) return status;
    for (int64_t i = start; i < stop; i++) {
        bool is_equal = false;
        status = jinja_run_pay(run, 1);
        if (!status) status = jinja_value_equal(run, self.list->items[i], values[0], &is_equal);
        if (status) return status;
        if (!is_equal) continue;
        *out = jinja_value_int(i);
        return OK;
    }
    return jinja_run_fail(run, "the %s has no such item", jinja_value_type_name(self));
}

// Nothing can change the copied value, so it is its own copy.
static enum status method_copy(struct jinja_run *run, struct jinja_value self,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    *out = self;
    return jinja_args_positional(run, "copy()", args, 0, 0, NULL);
}

// ---- dict ----

static enum status method_get(struct jinja_run *run, struct jinja_value self,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {[1] = jinja_value_none()};
    bool found = false;
    enum status status = jinja_args_positional(run, "get()", args, 1, 2, values);
    if (!status) status = jinja_dict_get(run, self.dict, values[0], &found, out);
    if (!status && !found) *out = values[1];
    return status;
}

static enum status view_method(struct jinja_run *run, const char *callee, struct jinja_value self,
                               const struct jinja_call_args *args, enum jinja_view_type type,
                               struct jinja_value *out) {
    enum status status = jinja_args_positional(run, callee, args, 0, 0, NULL);
    if (status) return status;
    struct jinja_view *view = jinja_run_alloc(run, sizeof *view);
    if (!view) return jinja_run_status(run);
    *view = (struct jinja_view){.type = type, .dict = self.dict};
    *out = (struct jinja_value){.type = JINJA_VIEW, .view = view};
    return OK;
}

static enum status method_items(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return view_method(run, "items()", self, args, JINJA_VIEW_ITEMS, out);
}

static enum status method_keys(struct jinja_run *run, struct jinja_value self,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    return view_method(run, "keys()", self, args, JINJA_VIEW_KEYS, out);
}

static enum status method_values(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    return view_method(run, "values()", self, args, JINJA_VIEW_VALUES, out);
}

static enum status method_fromkeys(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_call_args *args, struct jinja_value *out) {
    (void)self;
    struct jinja_value values[2] = {[1] = jinja_value_none()};
    const struct jinja_list *keys;
    struct jinja_dict *dict;
    enum status status = jinja_args_positional(run, "fromkeys()", args, 1, 2, values);
    if (!status) status = jinja_value_items(run, values[0], &keys);
    if (!status) status = jinja_dict_create(run, keys->len, &dict);
    for (size_t i = 0; !status && i < keys->len; i++) {
        status = jinja_run_pay(run, 1);
        if (!status) status = jinja_dict_set(run, dict, keys->items[i], values[1]);
    }
    if (!status) *out = jinja_value_of_dict(dict);
    return status;
}

// ---- numbers ----

static enum status method_bit_length(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    int64_t integer = self.type == JINJA_BOOL ? self.boolean : self.integer;
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    *out = jinja_value_int(magnitude ? 64 - __builtin_clzll(magnitude) : 0);
    return jinja_args_positional(run, "bit_length()", args, 0, 0, NULL);
}

static enum status method_bit_count(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_call_args *args, struct jinja_value *out) {
    int64_t integer = self.type == JINJA_BOOL ? self.boolean : self.integer;
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    *out = jinja_value_int(__builtin_popcountll(magnitude));
    return jinja_args_positional(run, "bit_count()", args, 0, 0, NULL);
}

static enum status method_conjugate(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_call_args *args, struct jinja_value *out) {
    *out = self.type == JINJA_BOOL ? jinja_value_int(self.boolean) : self;
    return jinja_args_positional(run, "conjugate()", args, 0, 0, NULL);
}

static enum status method_is_integer(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    *out = jinja_value_bool(self.type != JINJA_FLOAT ||
                            (isfinite(self.number) && self.number == trunc(self.number)));
    return jinja_args_positional(run, "is_integer()", args, 0, 0, NULL);
}

// ---- range ----

static enum status method_range_count(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value wanted;
    bool found = false;
    enum status status = jinja_args_positional(run, "count()", args, 1, 1, &wanted);
    if (!status) status = jinja_value_contains(run, self, wanted, &found);
    *out = jinja_value_int(found);
    return status;
}

static enum status method_range_index(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value wanted;
    enum status status = jinja_args_positional(run, "index()", args, 1, 1, &wanted);
    for (size_t i = 0; !status && i < self.range->len; i++) {
        bool is_equal = false;
        struct jinja_value item = jinja_value_int(jinja_range_item(self.range, i));
        status = jinja_run_pay(run, 1);
        if (!status) status = jinja_value_equal(run, item, wanted, &is_equal);
        if (status || !is_equal) continue;
        *out = jinja_value_int((int64_t)i);
        return OK;
    }
    if (status) return status;
    return jinja_run_fail(run, "the range has no such item");
}

const struct jinja_method_row jinja_methods_list[] = {
    {"copy", method_copy}, {"count", method_count}, {"index", method_index}, {0}};
const struct jinja_method_row jinja_methods_tuple[] = {
    {"count", method_count}, {"index", method_index}, {0}};
const struct jinja_method_row jinja_methods_dict[] = {{"copy", method_copy},
                                                      {"fromkeys", method_fromkeys},
                                                      {"get", method_get},
                                                      {"items", method_items},
                                                      {"keys", method_keys},
                                                      {"values", method_values},
                                                      {0}};
const struct jinja_method_row jinja_methods_range[] = {
    {"count", method_range_count}, {"index", method_range_index}, {0}};
const struct jinja_method_row jinja_methods_int[] = {{"bit_count", method_bit_count},
                                                     {"bit_length", method_bit_length},
                                                     {"conjugate", method_conjugate},
                                                     {"is_integer", method_is_integer},
                                                     {0}};
const struct jinja_method_row jinja_methods_float[] = {
    {"conjugate", method_conjugate}, {"is_integer", method_is_integer}, {0}};
