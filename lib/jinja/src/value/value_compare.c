/* Python's ==, <, `is` and `in`. Comparing containers costs steps for each item, and depth.
 *
 * As in CPython, two items that are one object count as equal without being compared. So [nan] ==
 * [nan] holds for one nan, and a list inside another is not compared with itself. Integers and
 * floats compare by their exact values, since 2^53 + 1 is no double. */
#include <math.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "jinja/src/library/library.h"
#include "jinja/src/run/run.h"
#include "jinja/src/value/value.h"

// ---- numbers ----

enum { DIGITS_OF_DOUBLE = 320 }; // of the largest one, its sign and NUL: 311

static bool is_number(struct jinja_value value) {
    return value.type == JINJA_BOOL || value.type == JINJA_INT || value.type == JINJA_BIG_INT ||
           value.type == JINJA_FLOAT;
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
static int order_of_digits(const struct jinja_string *a, const struct jinja_string *b) {
    bool is_negative = a->data[0] == '-';
    if (is_negative != (b->data[0] == '-')) return is_negative ? -1 : 1;
    int order = (a->len > b->len) - (a->len < b->len);
    if (order == 0) order = memcmp(a->data, b->data, a->len);
    return is_negative ? -order : order;
}

// An integer beyond 64 bits and any other number, which is not NaN.
static int order_big(const struct jinja_string *big, struct jinja_value other) {
    int sign = big->data[0] == '-' ? -1 : 1;
    if (other.type == JINJA_BIG_INT) return order_of_digits(big, other.string);
    if (other.type != JINJA_FLOAT || fabs(other.number) < 0x1p63) return sign;
    if (isinf(other.number)) return other.number > 0 ? -1 : 1;
    char digits[DIGITS_OF_DOUBLE]; // exact: so large a double is a whole number
    int len = c_locale_snprintf(digits, sizeof digits, "%.0f", other.number);
    const struct jinja_string number = jinja_string_of(digits, (size_t)len);
    return order_of_digits(big, &number);
}

static int order_of_numbers(struct jinja_value a, struct jinja_value b, bool *unordered) {
    *unordered =
        (a.type == JINJA_FLOAT && isnan(a.number)) || (b.type == JINJA_FLOAT && isnan(b.number));
    if (*unordered) return 1;
    if (a.type == JINJA_BIG_INT) return order_big(a.string, b);
    if (b.type == JINJA_BIG_INT) return -order_big(b.string, a);
    if (a.type == JINJA_FLOAT && b.type == JINJA_FLOAT) {
        return (a.number > b.number) - (a.number < b.number);
    }
    int64_t integer_a = a.type == JINJA_BOOL ? a.boolean : a.integer;
    int64_t integer_b = b.type == JINJA_BOOL ? b.boolean : b.integer;
    if (a.type == JINJA_FLOAT) return -order_int_float(integer_b, a.number);
    if (b.type == JINJA_FLOAT) return order_int_float(integer_a, b.number);
    return order_of_ints(integer_a, integer_b);
}

// ---- is ----

// Python has one object for all equal strings of one Latin-1 character.
static bool is_same_string(const struct jinja_string *a, const struct jinja_string *b) {
    if (a == b) return true;
    // Long strings are not compared, because this costs no steps.
    if (a->is_markup || b->is_markup || a->num_chars > 1 || !jinja_string_equal(a, b)) return false;
    return a->len == 0 || (unsigned char)a->data[0] < 0xc4;
}

bool jinja_value_is_same(struct jinja_value a, struct jinja_value b) {
    if (a.type != b.type) return false;
    switch (a.type) {
    case JINJA_NONE:
        return true;
    case JINJA_BOOL:
        return a.boolean == b.boolean;
    case JINJA_INT:
    case JINJA_FLOAT: // the bits: a NaN is itself
        return a.integer == b.integer;
    case JINJA_STRING:
        return is_same_string(a.string, b.string);
    case JINJA_TUPLE:
        return a.list == b.list || (a.list->len == 0 && b.list->len == 0);
    default:
        return a.list == b.list; // whatever it points to
    }
}

// ---- == ----

// Compares as Python compares items of containers: there a NaN equals itself.
static enum status item_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
                              bool *out) {
    *out = jinja_value_is_same(a, b);
    return *out ? jinja_run_pay(run, 1) : jinja_value_equal(run, a, b, out);
}

static enum status lists_equal(struct jinja_run *run, const struct jinja_list *a,
                               const struct jinja_list *b, bool *out) {
    enum status status = OK;
    *out = a->len == b->len;
    for (size_t i = 0; i < a->len && *out && !status; i++) {
        status = item_equal(run, a->items[i], b->items[i], out);
    }
    return status;
}

// Whether `b` has `key` with an equal value.
static enum status dict_has(struct jinja_run *run, const struct jinja_dict *dict,
                            struct jinja_value key, struct jinja_value value, bool *out) {
    struct jinja_value found;
    enum status status = jinja_dict_get(run, dict, key, out, &found);
    if (status || !*out) return status;
    return item_equal(run, found, value, out);
}

static enum status dicts_equal(struct jinja_run *run, const struct jinja_dict *a,
                               const struct jinja_dict *b, bool *out) {
    enum status status = OK;
    *out = a->len == b->len;
    for (size_t i = 0; i < a->len && *out && !status; i++) {
        status = dict_has(run, b, a->entries[i].key, a->entries[i].value, out);
    }
    return status;
}

static bool ranges_equal(const struct jinja_range *a, const struct jinja_range *b) {
    if (a->len != b->len) return false;
    if (a->len == 0) return true;
    return a->start == b->start && (a->len == 1 || a->step == b->step);
}

static enum status view_contains(struct jinja_run *run, const struct jinja_view *view,
                                 struct jinja_value needle, bool *out) {
    enum status status = OK;
    *out = false;
    switch (view->type) {
    case JINJA_VIEW_KEYS: {
        struct jinja_value ignored;
        return jinja_dict_get(run, view->dict, needle, out, &ignored);
    }
    case JINJA_VIEW_ITEMS:
        if (needle.type != JINJA_TUPLE || needle.list->len != 2) return OK;
        return dict_has(run, view->dict, needle.list->items[0], needle.list->items[1], out);
    case JINJA_VIEW_VALUES:
        for (size_t i = 0; i < view->dict->len && !*out && !status; i++) {
            status = item_equal(run, view->dict->entries[i].value, needle, out);
        }
    }
    return status;
}

static bool is_set_view(struct jinja_value value) {
    return value.type == JINJA_VIEW && value.view->type != JINJA_VIEW_VALUES;
}

// Keys and items are sets: whether all of `a` is in `b`.
static enum status view_is_within(struct jinja_run *run, const struct jinja_view *a,
                                  const struct jinja_view *b, bool *out) {
    enum status status = OK;
    *out = true;
    for (size_t i = 0; i < a->dict->len && *out && !status; i++) {
        const struct jinja_dict_entry *entry = &a->dict->entries[i];
        struct jinja_value items[2] = {entry->key, entry->value};
        struct jinja_list pair = {.items = items, .len = 2, .capacity = 2};
        struct jinja_value needle =
            a->type == JINJA_VIEW_KEYS ? entry->key : jinja_value_of_tuple(&pair);
        status = view_contains(run, b, needle, out);
    }
    return status;
}

static bool methods_equal(const struct jinja_method *a, const struct jinja_method *b) {
    return a->run == b->run && strcmp(a->name, b->name) == 0 &&
           jinja_value_is_same(a->self, b->self);
}

static enum status containers_equal(struct jinja_run *run, struct jinja_value a,
                                    struct jinja_value b, bool *out) {
    if (a.type == JINJA_DICT) return dicts_equal(run, a.dict, b.dict, out);
    if (a.type != JINJA_VIEW) return lists_equal(run, a.list, b.list, out);
    if (!is_set_view(a) || !is_set_view(b)) {
        *out = a.view == b.view;
        return OK;
    }
    *out = a.view->dict->len == b.view->dict->len;
    return *out ? view_is_within(run, a.view, b.view, out) : OK;
}

enum status jinja_value_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
                              bool *out) {
    enum status status = jinja_run_pay(run, 1);
    if (status) return status;
    *out = false;
    if (is_number(a) && is_number(b)) {
        bool unordered;
        *out = order_of_numbers(a, b, &unordered) == 0;
        return OK;
    }
    if (a.type != b.type) return OK;
    switch (a.type) {
    case JINJA_UNDEFINED:
        *out = true;
        return OK;
    case JINJA_STRING:
        *out = jinja_string_equal(a.string, b.string);
        return jinja_run_pay(run, a.string->len == b.string->len ? a.string->len / 64 : 0);
    case JINJA_RANGE:
        *out = ranges_equal(a.range, b.range);
        return OK;
    case JINJA_METHOD:
        *out = methods_equal(a.method, b.method);
        return OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
        status = jinja_run_enter(run);
        if (status) return status;
        status = containers_equal(run, a, b, out);
        jinja_run_leave(run);
        return status;
    default:
        *out = jinja_value_is_same(a, b);
        return OK;
    }
}

// ---- < ----

static enum status order_of_strings(struct jinja_run *run, const struct jinja_string *a,
                                    const struct jinja_string *b, int *order) {
    // The order of UTF-8's bytes is that of the code points.
    size_t len = a->len < b->len ? a->len : b->len;
    *order = len > 0 ? memcmp(a->data, b->data, len) : 0;
    if (*order == 0) *order = (a->len > b->len) - (a->len < b->len);
    return jinja_run_pay(run, len / 64);
}

static enum status order_of_lists(struct jinja_run *run, const char *sign,
                                  const struct jinja_list *a, const struct jinja_list *b,
                                  int *order, bool *unordered) {
    size_t len = a->len < b->len ? a->len : b->len;
    for (size_t i = 0; i < len; i++) {
        bool is_equal;
        enum status status = item_equal(run, a->items[i], b->items[i], &is_equal);
        if (status) return status;
        if (is_equal) continue;
        return jinja_value_compare_by(run, sign, a->items[i], b->items[i], order, unordered);
    }
    *order = (a->len > b->len) - (a->len < b->len);
    return OK;
}

// Sets are less than the sets they are within; most are not ordered.
static enum status order_of_views(struct jinja_run *run, const struct jinja_view *a,
                                  const struct jinja_view *b, int *order, bool *unordered) {
    bool is_within = false;
    size_t len_a = a->dict->len, len_b = b->dict->len;
    enum status status = len_a <= len_b ? view_is_within(run, a, b, &is_within)
                                        : view_is_within(run, b, a, &is_within);
    *order = (len_a > len_b) - (len_a < len_b);
    *unordered = !is_within;
    return status;
}

enum status jinja_value_compare_by(struct jinja_run *run, const char *sign, struct jinja_value a,
                                   struct jinja_value b, int *order, bool *unordered) {
    enum status status = jinja_run_pay(run, 1);
    if (status) return status;
    *unordered = false;
    if (a.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, a);
    if (b.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, b);
    if (is_number(a) && is_number(b)) {
        *order = order_of_numbers(a, b, unordered);
        return OK;
    }
    bool are_lists = a.type == b.type && (a.type == JINJA_LIST || a.type == JINJA_TUPLE);
    bool are_sets = is_set_view(a) && is_set_view(b);
    if (a.type == JINJA_STRING && b.type == JINJA_STRING) {
        return order_of_strings(run, a.string, b.string, order);
    }
    if (!are_lists && !are_sets) {
        return jinja_run_fail(run, "'%s' not supported between instances of '%s' and '%s'", sign,
                              jinja_value_type_name(a), jinja_value_type_name(b));
    }
    status = jinja_run_enter(run);
    if (status) return status;
    if (are_lists) {
        status = order_of_lists(run, sign, a.list, b.list, order, unordered);
    } else {
        status = order_of_views(run, a.view, b.view, order, unordered);
    }
    jinja_run_leave(run);
    return status;
}

enum status jinja_value_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
                                int *order, bool *unordered) {
    return jinja_value_compare_by(run, "<", a, b, order, unordered);
}

// ---- in ----

static enum status string_contains(struct jinja_run *run, const struct jinja_string *haystack,
                                   struct jinja_value needle, bool *out) {
    if (needle.type != JINJA_STRING) {
        return jinja_run_fail(run, "'in <string>' requires string as left operand, not %s",
                              jinja_value_type_name(needle));
    }
    size_t at;
    enum status status = jinja_string_find(run, haystack, 0, haystack->len, needle.string, &at);
    *out = !status && at != SIZE_MAX;
    return status;
}

static enum status list_contains(struct jinja_run *run, const struct jinja_list *list,
                                 struct jinja_value needle, bool *out) {
    enum status status = OK;
    for (size_t i = 0; i < list->len && !*out && !status; i++) {
        status = item_equal(run, list->items[i], needle, out);
    }
    return status;
}

static bool range_contains(const struct jinja_range *range, struct jinja_value needle) {
    int64_t n = needle.integer;
    if (needle.type == JINJA_BOOL) n = needle.boolean;
    if (needle.type == JINJA_FLOAT) {
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
static enum status iterator_contains(struct jinja_run *run, struct jinja_iterator *iterator,
                                     struct jinja_value needle, bool *out) {
    enum status status = OK;
    while (iterator->next < iterator->items->len && !*out && !status) {
        status = item_equal(run, iterator->items->items[iterator->next++], needle, out);
    }
    return status;
}

enum status jinja_value_contains(struct jinja_run *run, struct jinja_value haystack,
                                 struct jinja_value needle, bool *out) {
    *out = false;
    struct jinja_value ignored;
    switch (haystack.type) {
    case JINJA_UNDEFINED:
        return OK;
    case JINJA_STRING:
        return string_contains(run, haystack.string, needle, out);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return list_contains(run, haystack.list, needle, out);
    case JINJA_DICT:
        return jinja_dict_get(run, haystack.dict, needle, out, &ignored);
    case JINJA_RANGE:
        *out = range_contains(haystack.range, needle);
        return OK;
    case JINJA_VIEW:
        return view_contains(run, haystack.view, needle, out);
    case JINJA_ITERATOR:
        return iterator_contains(run, haystack.iterator, needle, out);
    case JINJA_LOOP: {
        const struct jinja_list *items;
        enum status status = jinja_value_items(run, haystack, &items);
        return status ? status : list_contains(run, items, needle, out);
    }
    default:
        return jinja_run_fail(run, "argument of type '%s' is not iterable",
                              jinja_value_type_name(haystack));
    }
}
