// Methods of lists, tuples, dicts, ranges and numbers.
#include <math.h>

#include "jinja/src/library_parts.h"

// ---- list and tuple ----

static enum status method_count(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    struct value wanted;
    int64_t count = 0;
    enum status status = args_positional(run, "count()", args, 1, 1, &wanted);
    for (size_t i = 0; !status && i < self.list->len; i++) {
        bool is_equal = false;
        status = run_pay(run, 1);
        if (!status) status = value_equal(run, self.list->items[i], wanted, &is_equal);
        count += is_equal;
    }
    *out = value_int(count);
    return status;
}

static enum status list_bound(struct run *run, struct value value, int64_t len, int64_t *out) {
    enum status status = args_int(run, "index()", "a bound", value, out);
    if (status) return status;
    if (*out < 0) *out += len;
    if (*out < 0) *out = 0;
    if (*out > len) *out = len;
    return OK;
}

static enum status method_index(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    struct value values[3] = {[1] = value_int(0), [2] = value_int(INT64_MAX)};
    int64_t len = (int64_t)self.list->len, start, stop;
    enum status status = args_positional(run, "index()", args, 1, 3, values);
    if (!status) status = list_bound(run, values[1], len, &start);
    if (!status) status = list_bound(run, values[2], len, &stop);
    if (status) return status;
    for (int64_t i = start; i < stop; i++) {
        bool is_equal = false;
        status = run_pay(run, 1);
        if (!status) status = value_equal(run, self.list->items[i], values[0], &is_equal);
        if (status) return status;
        if (!is_equal) continue;
        *out = value_int(i);
        return OK;
    }
    return run_fail(run, "the %s has no such item", value_type_name(self));
}

// Nothing can change the copied value, so it is its own copy.
static enum status method_copy(struct run *run, struct value self, const struct call_args *args,
                               struct value *out) {
    *out = self;
    return args_positional(run, "copy()", args, 0, 0, NULL);
}

// ---- dict ----

static enum status method_get(struct run *run, struct value self, const struct call_args *args,
                              struct value *out) {
    struct value values[2] = {[1] = value_none()};
    bool found = false;
    enum status status = args_positional(run, "get()", args, 1, 2, values);
    if (!status) status = dict_get(run, self.dict, values[0], &found, out);
    if (!status && !found) *out = values[1];
    return status;
}

static enum status view_method(struct run *run, const char *callee, struct value self,
                               const struct call_args *args, enum view_type type,
                               struct value *out) {
    enum status status = args_positional(run, callee, args, 0, 0, NULL);
    if (status) return status;
    struct view *view = run_alloc(run, sizeof *view);
    if (!view) return run_status(run);
    *view = (struct view){.type = type, .dict = self.dict};
    *out = (struct value){.type = VALUE_VIEW, .view = view};
    return OK;
}

static enum status method_items(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    return view_method(run, "items()", self, args, VIEW_ITEMS, out);
}

static enum status method_keys(struct run *run, struct value self, const struct call_args *args,
                               struct value *out) {
    return view_method(run, "keys()", self, args, VIEW_KEYS, out);
}

static enum status method_values(struct run *run, struct value self, const struct call_args *args,
                                 struct value *out) {
    return view_method(run, "values()", self, args, VIEW_VALUES, out);
}

static enum status method_fromkeys(struct run *run, struct value self, const struct call_args *args,
                                   struct value *out) {
    (void)self;
    struct value values[2] = {[1] = value_none()};
    const struct list *keys;
    struct dict *dict;
    enum status status = args_positional(run, "fromkeys()", args, 1, 2, values);
    if (!status) status = value_items(run, values[0], &keys);
    if (!status) status = dict_create(run, keys->len, &dict);
    for (size_t i = 0; !status && i < keys->len; i++) {
        status = run_pay(run, 1);
        if (!status) status = dict_set(run, dict, keys->items[i], values[1]);
    }
    if (!status) *out = value_of_dict(dict);
    return status;
}

// ---- numbers ----

static enum status method_bit_length(struct run *run, struct value self,
                                     const struct call_args *args, struct value *out) {
    int64_t integer = self.type == VALUE_BOOL ? self.boolean : self.integer;
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    *out = value_int(magnitude ? 64 - __builtin_clzll(magnitude) : 0);
    return args_positional(run, "bit_length()", args, 0, 0, NULL);
}

static enum status method_bit_count(struct run *run, struct value self,
                                    const struct call_args *args, struct value *out) {
    int64_t integer = self.type == VALUE_BOOL ? self.boolean : self.integer;
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    *out = value_int(__builtin_popcountll(magnitude));
    return args_positional(run, "bit_count()", args, 0, 0, NULL);
}

static enum status method_conjugate(struct run *run, struct value self,
                                    const struct call_args *args, struct value *out) {
    *out = self.type == VALUE_BOOL ? value_int(self.boolean) : self;
    return args_positional(run, "conjugate()", args, 0, 0, NULL);
}

static enum status method_is_integer(struct run *run, struct value self,
                                     const struct call_args *args, struct value *out) {
    *out = value_bool(self.type != VALUE_FLOAT ||
                      (isfinite(self.number) && self.number == trunc(self.number)));
    return args_positional(run, "is_integer()", args, 0, 0, NULL);
}

// ---- range ----

static enum status method_range_count(struct run *run, struct value self,
                                      const struct call_args *args, struct value *out) {
    struct value wanted;
    bool found = false;
    enum status status = args_positional(run, "count()", args, 1, 1, &wanted);
    if (!status) status = value_contains(run, self, wanted, &found);
    *out = value_int(found);
    return status;
}

static enum status method_range_index(struct run *run, struct value self,
                                      const struct call_args *args, struct value *out) {
    struct value wanted;
    enum status status = args_positional(run, "index()", args, 1, 1, &wanted);
    for (size_t i = 0; !status && i < self.range->len; i++) {
        bool is_equal = false;
        struct value item = value_int(range_item(self.range, i));
        status = run_pay(run, 1);
        if (!status) status = value_equal(run, item, wanted, &is_equal);
        if (status || !is_equal) continue;
        *out = value_int((int64_t)i);
        return OK;
    }
    if (status) return status;
    return run_fail(run, "the range has no such item");
}

const struct method_row methods_list[] = {
    {"copy", method_copy}, {"count", method_count}, {"index", method_index}, {0}};
const struct method_row methods_tuple[] = {{"count", method_count}, {"index", method_index}, {0}};
const struct method_row methods_dict[] = {{"copy", method_copy},
                                          {"fromkeys", method_fromkeys},
                                          {"get", method_get},
                                          {"items", method_items},
                                          {"keys", method_keys},
                                          {"values", method_values},
                                          {0}};
const struct method_row methods_range[] = {
    {"count", method_range_count}, {"index", method_range_index}, {0}};
const struct method_row methods_int[] = {{"bit_count", method_bit_count},
                                         {"bit_length", method_bit_length},
                                         {"conjugate", method_conjugate},
                                         {"is_integer", method_is_integer},
                                         {0}};
const struct method_row methods_float[] = {
    {"conjugate", method_conjugate}, {"is_integer", method_is_integer}, {0}};
