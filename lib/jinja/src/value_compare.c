/* Python's ==, <, `is` and `in`. What goes into containers is paid per item and bounded in depth.
 *
 * Items of containers are the same before they are equal, as in CPython: [nan] == [nan] holds for
 * one nan, and a list deep in another is not compared with itself. Integers and floats compare by
 * their exact values, since 2^53 + 1 is no double. */
#include <math.h>
#include <string.h>

#include "base/c_locale.h"
#include "jinja/src/library.h"
#include "jinja/src/run.h"
#include "jinja/src/value.h"

// ---- numbers ----

enum { DIGITS_OF_DOUBLE = 320 }; // of the largest one, its sign and NUL: 311

static bool is_number(struct value value) {
    return value.type == VALUE_BOOL || value.type == VALUE_INT || value.type == VALUE_BIG_INT ||
           value.type == VALUE_FLOAT;
}

static int order_of_ints(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

// Exact: an int is not rounded to a float first. `number` is not NaN.
static int order_int_float(int64_t integer, double number) {
    if (number >= 0x1p63) return -1;
    if (number < -0x1p63) return 1;
    double whole = trunc(number);
    int order = order_of_ints(integer, (int64_t)whole);
    return order != 0 ? order : (whole > number) - (whole < number);
}

// Of two whole numbers in decimal digits.
static int order_of_digits(const struct string *a, const struct string *b) {
    bool is_negative = a->data[0] == '-';
    if (is_negative != (b->data[0] == '-')) return is_negative ? -1 : 1;
    int order = (a->len > b->len) - (a->len < b->len);
    if (order == 0) order = memcmp(a->data, b->data, a->len);
    return is_negative ? -order : order;
}

// An integer beyond 64 bits and any other number, which is not NaN.
static int order_big(const struct string *big, struct value other) {
    int sign = big->data[0] == '-' ? -1 : 1;
    if (other.type == VALUE_BIG_INT) return order_of_digits(big, other.string);
    if (other.type != VALUE_FLOAT || fabs(other.number) < 0x1p63) return sign;
    if (isinf(other.number)) return other.number > 0 ? -1 : 1;
    char digits[DIGITS_OF_DOUBLE]; // exact: so large a double is a whole number
    int len = c_locale_snprintf(digits, sizeof digits, "%.0f", other.number);
    const struct string number = string_of(digits, (size_t)len);
    return order_of_digits(big, &number);
}

static int order_of_numbers(struct value a, struct value b, bool *unordered) {
    *unordered =
        (a.type == VALUE_FLOAT && isnan(a.number)) || (b.type == VALUE_FLOAT && isnan(b.number));
    if (*unordered) return 1;
    if (a.type == VALUE_BIG_INT) return order_big(a.string, b);
    if (b.type == VALUE_BIG_INT) return -order_big(b.string, a);
    if (a.type == VALUE_FLOAT && b.type == VALUE_FLOAT) {
        return (a.number > b.number) - (a.number < b.number);
    }
    int64_t integer_a = a.type == VALUE_BOOL ? a.boolean : a.integer;
    int64_t integer_b = b.type == VALUE_BOOL ? b.boolean : b.integer;
    if (a.type == VALUE_FLOAT) return -order_int_float(integer_b, a.number);
    if (b.type == VALUE_FLOAT) return order_int_float(integer_a, b.number);
    return order_of_ints(integer_a, integer_b);
}

// ---- is ----

// Python keeps one object of each string of a Latin-1 character.
static bool is_same_string(const struct string *a, const struct string *b) {
    if (a == b) return true;
    // Long strings are not looked at: nobody pays for this.
    if (a->is_markup || b->is_markup || a->num_chars > 1 || !string_equal(a, b)) return false;
    return a->len == 0 || (unsigned char)a->data[0] < 0xc4;
}

bool value_is_same(struct value a, struct value b) {
    if (a.type != b.type) return false;
    switch (a.type) {
    case VALUE_NONE:
        return true;
    case VALUE_BOOL:
        return a.boolean == b.boolean;
    case VALUE_INT:
    case VALUE_FLOAT: // the bits: a NaN is itself
        return a.integer == b.integer;
    case VALUE_STRING:
        return is_same_string(a.string, b.string);
    case VALUE_TUPLE:
        return a.list == b.list || (a.list->len == 0 && b.list->len == 0);
    default:
        return a.list == b.list; // whatever it points to
    }
}

// ---- == ----

// As Python compares what lies in containers: a NaN equals itself there.
static enum status item_equal(struct run *run, struct value a, struct value b, bool *out) {
    *out = value_is_same(a, b);
    return *out ? run_pay(run, 1) : value_equal(run, a, b, out);
}

static enum status lists_equal(struct run *run, const struct list *a, const struct list *b,
                               bool *out) {
    enum status status = OK;
    *out = a->len == b->len;
    for (size_t i = 0; i < a->len && *out && !status; i++) {
        status = item_equal(run, a->items[i], b->items[i], out);
    }
    return status;
}

// Whether `b` has `key` with an equal value.
static enum status dict_has(struct run *run, const struct dict *dict, struct value key,
                            struct value value, bool *out) {
    struct value found;
    enum status status = dict_get(run, dict, key, out, &found);
    if (status || !*out) return status;
    return item_equal(run, found, value, out);
}

static enum status dicts_equal(struct run *run, const struct dict *a, const struct dict *b,
                               bool *out) {
    enum status status = OK;
    *out = a->len == b->len;
    for (size_t i = 0; i < a->len && *out && !status; i++) {
        status = dict_has(run, b, a->entries[i].key, a->entries[i].value, out);
    }
    return status;
}

static bool ranges_equal(const struct range *a, const struct range *b) {
    if (a->len != b->len) return false;
    if (a->len == 0) return true;
    return a->start == b->start && (a->len == 1 || a->step == b->step);
}

static enum status view_contains(struct run *run, const struct view *view, struct value needle,
                                 bool *out) {
    enum status status = OK;
    *out = false;
    switch (view->type) {
    case VIEW_KEYS: {
        struct value ignored;
        return dict_get(run, view->dict, needle, out, &ignored);
    }
    case VIEW_ITEMS:
        if (needle.type != VALUE_TUPLE || needle.list->len != 2) return OK;
        return dict_has(run, view->dict, needle.list->items[0], needle.list->items[1], out);
    case VIEW_VALUES:
        for (size_t i = 0; i < view->dict->len && !*out && !status; i++) {
            status = item_equal(run, view->dict->entries[i].value, needle, out);
        }
    }
    return status;
}

static bool is_set_view(struct value value) {
    return value.type == VALUE_VIEW && value.view->type != VIEW_VALUES;
}

// Keys and items are sets: whether all of `a` is in `b`.
static enum status view_is_within(struct run *run, const struct view *a, const struct view *b,
                                  bool *out) {
    enum status status = OK;
    *out = true;
    for (size_t i = 0; i < a->dict->len && *out && !status; i++) {
        const struct dict_entry *entry = &a->dict->entries[i];
        struct value items[2] = {entry->key, entry->value};
        struct list pair = {.items = items, .len = 2, .capacity = 2};
        struct value needle = a->type == VIEW_KEYS ? entry->key : value_of_tuple(&pair);
        status = view_contains(run, b, needle, out);
    }
    return status;
}

static bool methods_equal(const struct method *a, const struct method *b) {
    return a->run == b->run && strcmp(a->name, b->name) == 0 && value_is_same(a->self, b->self);
}

static enum status containers_equal(struct run *run, struct value a, struct value b, bool *out) {
    if (a.type == VALUE_DICT) return dicts_equal(run, a.dict, b.dict, out);
    if (a.type != VALUE_VIEW) return lists_equal(run, a.list, b.list, out);
    if (!is_set_view(a) || !is_set_view(b)) {
        *out = a.view == b.view;
        return OK;
    }
    *out = a.view->dict->len == b.view->dict->len;
    return *out ? view_is_within(run, a.view, b.view, out) : OK;
}

enum status value_equal(struct run *run, struct value a, struct value b, bool *out) {
    enum status status = run_pay(run, 1);
    if (status) return status;
    *out = false;
    if (is_number(a) && is_number(b)) {
        bool unordered;
        *out = order_of_numbers(a, b, &unordered) == 0;
        return OK;
    }
    if (a.type != b.type) return OK;
    switch (a.type) {
    case VALUE_UNDEFINED:
        *out = true;
        return OK;
    case VALUE_STRING:
        *out = string_equal(a.string, b.string);
        return run_pay(run, a.string->len == b.string->len ? a.string->len / 64 : 0);
    case VALUE_RANGE:
        *out = ranges_equal(a.range, b.range);
        return OK;
    case VALUE_METHOD:
        *out = methods_equal(a.method, b.method);
        return OK;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_VIEW:
        status = run_enter(run);
        if (status) return status;
        status = containers_equal(run, a, b, out);
        run_leave(run);
        return status;
    default:
        *out = value_is_same(a, b);
        return OK;
    }
}

// ---- < ----

static enum status order_of_strings(struct run *run, const struct string *a, const struct string *b,
                                    int *order) {
    // The order of UTF-8's bytes is that of the code points.
    size_t len = a->len < b->len ? a->len : b->len;
    *order = len > 0 ? memcmp(a->data, b->data, len) : 0;
    if (*order == 0) *order = (a->len > b->len) - (a->len < b->len);
    return run_pay(run, len / 64);
}

static enum status order_of_lists(struct run *run, const char *sign, const struct list *a,
                                  const struct list *b, int *order, bool *unordered) {
    size_t len = a->len < b->len ? a->len : b->len;
    for (size_t i = 0; i < len; i++) {
        bool is_equal;
        enum status status = item_equal(run, a->items[i], b->items[i], &is_equal);
        if (status) return status;
        if (is_equal) continue;
        return value_compare_by(run, sign, a->items[i], b->items[i], order, unordered);
    }
    *order = (a->len > b->len) - (a->len < b->len);
    return OK;
}

// Sets are less than the sets they are within; most are not ordered.
static enum status order_of_views(struct run *run, const struct view *a, const struct view *b,
                                  int *order, bool *unordered) {
    bool is_within = false;
    size_t len_a = a->dict->len, len_b = b->dict->len;
    enum status status = len_a <= len_b ? view_is_within(run, a, b, &is_within)
                                        : view_is_within(run, b, a, &is_within);
    *order = (len_a > len_b) - (len_a < len_b);
    *unordered = !is_within;
    return status;
}

enum status value_compare_by(struct run *run, const char *sign, struct value a, struct value b,
                             int *order, bool *unordered) {
    enum status status = run_pay(run, 1);
    if (status) return status;
    *unordered = false;
    if (a.type == VALUE_UNDEFINED) return run_fail_undefined(run, a);
    if (b.type == VALUE_UNDEFINED) return run_fail_undefined(run, b);
    if (is_number(a) && is_number(b)) {
        *order = order_of_numbers(a, b, unordered);
        return OK;
    }
    bool are_lists = a.type == b.type && (a.type == VALUE_LIST || a.type == VALUE_TUPLE);
    bool are_sets = is_set_view(a) && is_set_view(b);
    if (a.type == VALUE_STRING && b.type == VALUE_STRING) {
        return order_of_strings(run, a.string, b.string, order);
    }
    if (!are_lists && !are_sets) {
        return run_fail(run, "'%s' not supported between instances of '%s' and '%s'", sign,
                        value_type_name(a), value_type_name(b));
    }
    status = run_enter(run);
    if (status) return status;
    if (are_lists) {
        status = order_of_lists(run, sign, a.list, b.list, order, unordered);
    } else {
        status = order_of_views(run, a.view, b.view, order, unordered);
    }
    run_leave(run);
    return status;
}

enum status value_compare(struct run *run, struct value a, struct value b, int *order,
                          bool *unordered) {
    return value_compare_by(run, "<", a, b, order, unordered);
}

// ---- in ----

static enum status string_contains(struct run *run, const struct string *haystack,
                                   struct value needle, bool *out) {
    if (needle.type != VALUE_STRING) {
        return run_fail(run, "'in <string>' requires string as left operand, not %s",
                        value_type_name(needle));
    }
    size_t at;
    enum status status = string_find(run, haystack, 0, haystack->len, needle.string, &at);
    *out = !status && at != SIZE_MAX;
    return status;
}

static enum status list_contains(struct run *run, const struct list *list, struct value needle,
                                 bool *out) {
    enum status status = OK;
    for (size_t i = 0; i < list->len && !*out && !status; i++) {
        status = item_equal(run, list->items[i], needle, out);
    }
    return status;
}

static bool range_contains(const struct range *range, struct value needle) {
    int64_t n = needle.integer;
    if (needle.type == VALUE_BOOL) n = needle.boolean;
    if (needle.type == VALUE_FLOAT) {
        if (!(needle.number >= -0x1p63 && needle.number < 0x1p63)) return false;
        n = (int64_t)needle.number;
        if ((double)n != needle.number) return false;
    } else if (!is_number(needle)) {
        return false;
    }
    // Unsigned: the distance of two 64-bit integers may be longer than one.
    uint64_t start = (uint64_t)range->start, step = (uint64_t)range->step;
    if (range->step > 0) {
        return n >= range->start && n < range->stop && ((uint64_t)n - start) % step == 0;
    }
    return n <= range->start && n > range->stop && (start - (uint64_t)n) % (0 - step) == 0;
}

// Walks the iterator up to the item that was looked for, as Python does.
static enum status iterator_contains(struct run *run, struct iterator *iterator,
                                     struct value needle, bool *out) {
    enum status status = OK;
    while (iterator->next < iterator->items->len && !*out && !status) {
        status = item_equal(run, iterator->items->items[iterator->next++], needle, out);
    }
    return status;
}

enum status value_contains(struct run *run, struct value haystack, struct value needle, bool *out) {
    *out = false;
    struct value ignored;
    switch (haystack.type) {
    case VALUE_UNDEFINED:
        return OK;
    case VALUE_STRING:
        return string_contains(run, haystack.string, needle, out);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return list_contains(run, haystack.list, needle, out);
    case VALUE_DICT:
        return dict_get(run, haystack.dict, needle, out, &ignored);
    case VALUE_RANGE:
        *out = range_contains(haystack.range, needle);
        return OK;
    case VALUE_VIEW:
        return view_contains(run, haystack.view, needle, out);
    case VALUE_ITERATOR:
        return iterator_contains(run, haystack.iterator, needle, out);
    case VALUE_LOOP: {
        const struct list *items;
        enum status status = value_items(run, haystack, &items);
        return status ? status : list_contains(run, items, needle, out);
    }
    default:
        return run_fail(run, "argument of type '%s' is not iterable", value_type_name(haystack));
    }
}
