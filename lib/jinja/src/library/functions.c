// Global functions: range, dict, namespace, raise_exception; strftime_now is
// strftime.c's.
#include "jinja/src/library/library_parts.h"
#include "jinja/src/library/strftime.h"

enum { RANGE_LEN_MAX = 100000 }; // the sandbox's MAX_RANGE

static enum status function_range(struct jinja_run *run, const struct jinja_call_args *args,
                                  struct jinja_value *out) {
    struct jinja_value values[3];
    int64_t bounds[3] = {0, 0, 1}; // start, stop, step
    enum status status = jinja_args_positional(run, "range()", args, 1, 3, values);
    for (size_t i = 0; i < args->num_values && !status; i++) {
        size_t at = args->num_values == 1 ? 1 : i;
        status = jinja_args_int(run, "range()", "a bound", values[i], &bounds[at]);
    }
    if (status) return status;
    int64_t start = bounds[0], stop = bounds[1], step = bounds[2];
    if (step == 0) return jinja_run_fail(run, "range() arg 3 must not be zero");
    // Unsigned, so that no distance overflows.
    uint64_t distance = 0, stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 && stop > start) distance = (uint64_t)stop - (uint64_t)start;
    if (step < 0 && stop < start) distance = (uint64_t)start - (uint64_t)stop;
    uint64_t len = distance ? (distance - 1) / stride + 1 : 0;
    if (len > RANGE_LEN_MAX)
        return jinja_run_fail(
            run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
            RANGE_LEN_MAX);
    struct jinja_range *range = jinja_run_alloc(run, sizeof *range);
    if (!range) return jinja_run_status(run);
    *range = (struct jinja_range){.start = start, .stop = stop, .step = step, .len = (size_t)len};
    *out = (struct jinja_value){.type = JINJA_RANGE, .range = range};
    return OK;
}

// ---- dict, namespace ----

static enum status add_pair(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value item,
                            size_t index) {
    if (!jinja_value_is_iterable(item))
        return jinja_run_fail(
            run, "cannot convert dictionary update sequence element #%zu to a sequence", index);
    const struct jinja_list *pair;
    enum status status = jinja_value_items(run, item, &pair);
    if (status) return status;
    if (pair->len != 2)
        return jinja_run_fail(
            run, "dictionary update sequence element #%zu has length %zu; 2 is required", index,
            pair->len);
    return jinja_dict_set(run, dict, pair->items[0], pair->items[1]);
}

// dict(mapping or pairs, **kwargs).
static enum status new_dict(struct jinja_run *run, const char *callee,
                            const struct jinja_call_args *args, struct jinja_dict **out) {
    if (args->num_values > 1)
        return jinja_run_fail(run, "%s expected at most 1 argument, got %zu", callee,
                              args->num_values);
    enum status status = jinja_dict_create(run, args->num_names, out);
    if (!status && args->num_values && args->values[0].type == JINJA_DICT) {
        const struct jinja_dict *from = args->values[0].dict;
        for (size_t i = 0; i < from->len && !status; i++) {
            status = jinja_run_pay(run, 1);
            if (!status)
                status = jinja_dict_set(run, *out, from->entries[i].key, from->entries[i].value);
        }
    } else if (!status && args->num_values) {
        if (args->values[0].type == JINJA_UNDEFINED)
            return jinja_run_fail_undefined(run, args->values[0]); // Python asks it for its keys
        const struct jinja_list *items;
        status = jinja_value_items(run, args->values[0], &items);
        for (size_t i = 0; !status && i < items->len; i++)
            status = add_pair(run, *out, items->items[i], i);
    }
    for (size_t i = 0; i < args->num_names && !status; i++)
        status = jinja_dict_set(run, *out, jinja_value_of_string(args->names[i]), args->named[i]);
    return status;
}

static enum status function_dict(struct jinja_run *run, const struct jinja_call_args *args,
                                 struct jinja_value *out) {
    struct jinja_dict *dict;
    enum status status = new_dict(run, "dict()", args, &dict);
    if (!status) *out = jinja_value_of_dict(dict);
    return status;
}

static enum status function_namespace(struct jinja_run *run, const struct jinja_call_args *args,
                                      struct jinja_value *out) {
    struct jinja_dict *dict;
    enum status status = new_dict(run, "namespace()", args, &dict);
    if (!status) *out = (struct jinja_value){.type = JINJA_NAMESPACE, .attributes = dict};
    return status;
}

// ---- raise_exception ----

static enum status function_raise_exception(struct jinja_run *run,
                                            const struct jinja_call_args *args,
                                            struct jinja_value *out) {
    (void)out;
    struct jinja_value message;
    const struct jinja_string *string;
    enum status status = jinja_args_bind(run, "raise_exception()", args,
                                         (const char *[]){"message"}, 1, 1, &message);
    if (!status) status = jinja_value_to_string(run, message, &string);
    if (status) return status;
    return jinja_run_fail(run, "%.*s", (int)string->len, string->data);
}

const struct jinja_function jinja_library_functions[] = {
    {"dict", function_dict},
    {"namespace", function_namespace},
    {"raise_exception", function_raise_exception},
    {"range", function_range},
    {"strftime_now", jinja_function_strftime_now},
    {0},
};
