/* value[start:stop:step] of strings, lists, tuples and ranges, with Python's clamping. */
#include <string.h>

#include "jinja/src/run/eval.h"

// Positions start, start + step, ... [count] of a sequence.
struct cut {
    int64_t start, stop, step;
    size_t count;
};

// A bound as an integer; *is_given false for none.
static enum status read_bound(struct jinja_run *run, struct jinja_value value, bool *is_given,
                              int64_t *out) {
    *is_given = value.type != JINJA_NONE;
    if (!*is_given) return OK;
    if (value.type != JINJA_INT && value.type != JINJA_BOOL) {
        return jinja_run_fail(run,
                              "slice indices must be integers or None or have an __index__ method");
    }
    *out = value.type == JINJA_BOOL ? value.boolean : value.integer;
    return OK;
}

// Into [low, high], counted from the end if negative.
static int64_t clamp(int64_t bound, int64_t len, int64_t low, int64_t high) {
    if (bound < 0) {
        bound += len;
        return bound < low ? low : bound;
    }
    return bound > high ? high : bound;
}

static enum status make_cut(struct jinja_run *run, const struct jinja_value bounds[3],
                            size_t num_items, struct cut *cut) {
    bool has_start, has_stop, has_step;
    int64_t start = 0, stop = 0, step = 1;
    int64_t len = (int64_t)num_items;
    enum status status = read_bound(run, bounds[2], &has_step, &step);
    if (status) return status;
    if (step == 0) return jinja_run_fail(run, "slice step cannot be zero");
    if (step == INT64_MIN) step = -INT64_MAX; // so that it can be negated
    status = read_bound(run, bounds[0], &has_start, &start);
    if (!status) status = read_bound(run, bounds[1], &has_stop, &stop);
    if (status) return status;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? len - 1 : len;
    start = has_start ? clamp(start, len, low, high) : step < 0 ? high : low;
    stop = has_stop ? clamp(stop, len, low, high) : step < 0 ? low : high;
    *cut = (struct cut){.start = start, .stop = stop, .step = step};
    if (step > 0 && start < stop) cut->count = (size_t)((stop - start - 1) / step + 1);
    if (step < 0 && start > stop) cut->count = (size_t)((start - stop - 1) / -step + 1);
    return OK;
}

static enum status slice_list(struct jinja_run *run, struct jinja_value value,
                              const struct cut *cut, struct jinja_value *out) {
    struct jinja_list *list;
    enum status status = jinja_run_pay(run, cut->count);
    if (!status) status = jinja_list_create(run, cut->count, &list);
    if (status) return status;
    for (size_t i = 0; i < cut->count; ++i)
        list->items[i] = value.list->items[cut->start + (int64_t)i * cut->step];
    list->len = cut->count;
    *out = value.type == JINJA_TUPLE ? jinja_value_of_tuple(list) : jinja_value_of_list(list);
    return OK;
}

// Characters [start, start + count) share the string's memory.
static enum status slice_run(struct jinja_run *run, const struct jinja_string *string,
                             const struct cut *cut, struct jinja_value *out) {
    size_t first = cut->count ? (size_t)cut->start : 0;
    size_t begin = jinja_string_offset(string, first);
    size_t end = jinja_string_offset(string, first + cut->count);
    struct jinja_string *part = jinja_run_alloc(run, sizeof(*part));
    if (!part) return jinja_run_status(run);
    *part = (struct jinja_string){.data = string->data + begin,
                                  .len = (uint32_t)(end - begin),
                                  .num_chars = (uint32_t)cut->count,
                                  .is_markup = string->is_markup};
    *out = jinja_value_of_string(part);
    return OK;
}

// Moves `offset` by `count` characters, back if negative.
static size_t walk(const struct jinja_string *string, size_t offset, int64_t count) {
    for (; count > 0; --count) do
            ++offset;
        while (offset < string->len && ((unsigned char)string->data[offset] & 0xc0) == 0x80);
    for (; count < 0; ++count) do
            --offset;
        while (offset && ((unsigned char)string->data[offset] & 0xc0) == 0x80);
    return offset;
}

static enum status slice_string(struct jinja_run *run, const struct jinja_string *string,
                                const struct cut *cut, struct jinja_value *out) {
    enum status status = jinja_run_pay(run, cut->count + string->len / 64);
    if (status) return status;
    if (cut->step == 1 || cut->count <= 1) return slice_run(run, string, cut, out);
    struct jinja_string *part = jinja_run_alloc(run, sizeof(*part));
    char *data = part ? jinja_run_alloc(run, string->len) : NULL;
    if (!data) return jinja_run_status(run);
    size_t offset = jinja_string_offset(string, (size_t)cut->start), len = 0;
    for (size_t i = 0; i < cut->count; ++i) {
        if (i) offset = walk(string, offset, cut->step);
        size_t size = walk(string, offset, 1) - offset;
        memcpy(data + len, string->data + offset, size);
        len += size;
    }
    *part = (struct jinja_string){.data = data,
                                  .len = (uint32_t)len,
                                  .num_chars = (uint32_t)cut->count,
                                  .is_markup = string->is_markup};
    *out = jinja_value_of_string(part);
    return OK;
}

// A range again, of the same numbers.
static enum status slice_range(struct jinja_run *run, const struct jinja_range *range,
                               const struct cut *cut, struct jinja_value *out) {
    int64_t start, stop, step;
    if (__builtin_mul_overflow(range->step, cut->step, &step) ||
        __builtin_mul_overflow(range->step, cut->start, &start) ||
        __builtin_mul_overflow(range->step, cut->stop, &stop) ||
        __builtin_add_overflow(range->start, start, &start) ||
        __builtin_add_overflow(range->start, stop, &stop))
        return jinja_run_fail(run, "integer result is too large");
    struct jinja_range *part = jinja_run_alloc(run, sizeof(*part));
    if (!part) return jinja_run_status(run);
    *part = (struct jinja_range){.start = start, .stop = stop, .step = step, .len = cut->count};
    *out = (struct jinja_value){.type = JINJA_RANGE, .range = part};
    return OK;
}

enum status jinja_eval_slice(struct jinja_run *run, struct jinja_value value,
                             const struct jinja_value bounds[3], struct jinja_value *out) {
    size_t len;
    switch (value.type) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        len = value.list->len;
        break;
    case JINJA_STRING:
        len = value.string->num_chars;
        break;
    case JINJA_RANGE:
        len = value.range->len;
        break;
    case JINJA_UNDEFINED:
        return jinja_run_fail_undefined(run, value);
    case JINJA_DICT:
        return jinja_run_fail(run, "unhashable type: 'slice'");
    default:
        return jinja_run_fail(run, "'%s' object is not subscriptable",
                              jinja_value_type_name(value));
    }
    struct cut cut = {0};
    enum status status = make_cut(run, bounds, len, &cut);
    if (status) return status;
    if (value.type == JINJA_STRING) return slice_string(run, value.string, &cut, out);
    if (value.type == JINJA_RANGE) return slice_range(run, value.range, &cut, out);
    return slice_list(run, value, &cut, out);
}
