// Global functions: range, dict, namespace, cycler, joiner, raise_exception; strftime_now is
// strftime.c's.
#include "text/template/library_parts.h"
#include "text/template/strftime.h"

enum { RANGE_LEN_MAX = 100000 }; // the sandbox's MAX_RANGE

struct cycler {
    const struct value *items; // [num_items]
    size_t num_items, position;
};

struct joiner {
    struct value separator;
    bool is_used;
};

static enum status function_range(struct run *run, const struct call_args *args,
                                  struct value *out) {
    struct value values[3];
    int64_t bounds[3] = {0, 0, 1}; // start, stop, step
    enum status status = args_positional(run, "range()", args, 1, 3, values);
    for (size_t i = 0; i < args->num_values && !status; i++) {
        size_t at = args->num_values == 1 ? 1 : i;
        status = args_int(run, "range()", "a bound", values[i], &bounds[at]);
    }
    if (status) return status;
    int64_t start = bounds[0], stop = bounds[1], step = bounds[2];
    if (step == 0) return run_fail(run, "range() arg 3 must not be zero");
    // Unsigned, so that no distance overflows.
    uint64_t distance = 0, stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 && stop > start) distance = (uint64_t)stop - (uint64_t)start;
    if (step < 0 && stop < start) distance = (uint64_t)start - (uint64_t)stop;
    uint64_t len = distance ? (distance - 1) / stride + 1 : 0;
    if (len > RANGE_LEN_MAX)
        return run_fail(run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                        RANGE_LEN_MAX);
    struct range *range = run_alloc(run, sizeof *range);
    if (!range) return run_status(run);
    *range = (struct range){.start = start, .stop = stop, .step = step, .len = (size_t)len};
    *out = (struct value){.type = VALUE_RANGE, .range = range};
    return OK;
}

// ---- dict, namespace ----

static enum status add_pair(struct run *run, struct dict *dict, struct value item, size_t index) {
    if (!value_is_iterable(item))
        return run_fail(run, "cannot convert dictionary update sequence element #%zu to a sequence",
                        index);
    const struct list *pair;
    enum status status = value_items(run, item, &pair);
    if (status) return status;
    if (pair->len != 2)
        return run_fail(run,
                        "dictionary update sequence element #%zu has length %zu; 2 is required",
                        index, pair->len);
    return dict_set(run, dict, pair->items[0], pair->items[1]);
}

// dict(mapping or pairs, **kwargs).
static enum status new_dict(struct run *run, const char *callee, const struct call_args *args,
                            struct dict **out) {
    if (args->num_values > 1)
        return run_fail(run, "%s expected at most 1 argument, got %zu", callee, args->num_values);
    enum status status = dict_create(run, args->num_names, out);
    if (!status && args->num_values && args->values[0].type == VALUE_DICT) {
        const struct dict *from = args->values[0].dict;
        for (size_t i = 0; i < from->len && !status; i++) {
            status = run_pay(run, 1);
            if (!status) status = dict_set(run, *out, from->entries[i].key, from->entries[i].value);
        }
    } else if (!status && args->num_values) {
        if (args->values[0].type == VALUE_UNDEFINED)
            return run_fail_undefined(run, args->values[0]); // it is asked for its keys
        const struct list *items;
        status = value_items(run, args->values[0], &items);
        for (size_t i = 0; !status && i < items->len; i++)
            status = add_pair(run, *out, items->items[i], i);
    }
    for (size_t i = 0; i < args->num_names && !status; i++)
        status = dict_set(run, *out, value_of_string(args->names[i]), args->named[i]);
    return status;
}

static enum status function_dict(struct run *run, const struct call_args *args, struct value *out) {
    struct dict *dict;
    enum status status = new_dict(run, "dict()", args, &dict);
    if (!status) *out = value_of_dict(dict);
    return status;
}

static enum status function_namespace(struct run *run, const struct call_args *args,
                                      struct value *out) {
    struct dict *dict;
    enum status status = new_dict(run, "namespace()", args, &dict);
    if (!status) *out = (struct value){.type = VALUE_NAMESPACE, .attributes = dict};
    return status;
}

// ---- cycler ----

static enum status function_cycler(struct run *run, const struct call_args *args,
                                   struct value *out) {
    if (args->num_names) return run_fail(run, "cycler() takes no keyword arguments");
    if (args->num_values == 0) return run_fail(run, "at least one item has to be provided");
    struct list *items;
    enum status status = list_create(run, args->num_values, &items);
    for (size_t i = 0; i < args->num_values && !status; i++)
        status = list_append(run, items, args->values[i]);
    if (status) return status;
    struct cycler *cycler = run_alloc(run, sizeof *cycler);
    if (!cycler) return run_status(run);
    *cycler = (struct cycler){.items = items->items, .num_items = items->len};
    *out = (struct value){.type = VALUE_CYCLER, .cycler = cycler};
    return OK;
}

static enum status method_next(struct run *run, struct value self, const struct call_args *args,
                               struct value *out) {
    struct cycler *cycler = self.cycler;
    enum status status = args_positional(run, "next()", args, 0, 0, NULL);
    if (status) return status;
    *out = cycler->items[cycler->position];
    cycler->position = (cycler->position + 1) % cycler->num_items;
    return OK;
}

static enum status method_reset(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    enum status status = args_positional(run, "reset()", args, 0, 0, NULL);
    if (status) return status;
    self.cycler->position = 0;
    *out = value_none();
    return OK;
}

enum status library_cycler_attribute(struct run *run, struct value value, const struct string *name,
                                     struct value *out) {
    static const struct method_row next = {"next", method_next}, reset = {"reset", method_reset};
    const struct cycler *cycler = value.cycler;
    if (string_is(name, "next")) return library_bind(run, &next, value, out);
    if (string_is(name, "reset")) return library_bind(run, &reset, value, out);
    if (string_is(name, "current")) {
        *out = cycler->items[cycler->position];
        return OK;
    }
    if (string_is(name, "pos")) {
        *out = value_int((int64_t)cycler->position);
        return OK;
    }
    if (string_is(name, "items")) {
        struct list *items;
        enum status status = list_create(run, cycler->num_items, &items);
        for (size_t i = 0; i < cycler->num_items && !status; i++)
            status = list_append(run, items, cycler->items[i]);
        if (!status) *out = value_of_tuple(items);
        return status;
    }
    return value_undefined(run, out, "'jinja2.utils.Cycler object' has no attribute '%.*s'",
                           name_shown_len(name), name->data);
}

// ---- joiner ----

static enum status function_joiner(struct run *run, const struct call_args *args,
                                   struct value *out) {
    struct value separator;
    enum status status = value_string_borrow(run, ", ", 2, &separator);
    if (!status)
        status = args_bind(run, "joiner()", args, (const char *[]){"sep"}, 1, 0, &separator);
    if (status) return status;
    struct joiner *joiner = run_alloc(run, sizeof *joiner);
    if (!joiner) return run_status(run);
    *joiner = (struct joiner){.separator = separator};
    *out = (struct value){.type = VALUE_JOINER, .joiner = joiner};
    return OK;
}

enum status library_call_joiner(struct run *run, struct value value, struct value *out) {
    struct joiner *joiner = value.joiner;
    if (joiner->is_used) {
        *out = joiner->separator;
        return OK;
    }
    joiner->is_used = true;
    return value_string_borrow(run, "", 0, out);
}

// ---- raise_exception, lipsum ----

static enum status function_raise_exception(struct run *run, const struct call_args *args,
                                            struct value *out) {
    (void)out;
    struct value message;
    const struct string *string;
    enum status status =
        args_bind(run, "raise_exception()", args, (const char *[]){"message"}, 1, 1, &message);
    if (!status) status = value_to_string(run, message, &string);
    if (status) return status;
    return run_fail(run, "%.*s", (int)string->len, string->data);
}

static enum status function_lipsum(struct run *run, const struct call_args *args,
                                   struct value *out) {
    (void)args, (void)out;
    return run_fail(run, "the function 'lipsum' is not available");
}

const struct function library_functions[] = {
    {"cycler", function_cycler},
    {"dict", function_dict},
    {"joiner", function_joiner},
    {"lipsum", function_lipsum},
    {"namespace", function_namespace},
    {"raise_exception", function_raise_exception},
    {"range", function_range},
    {"strftime_now", function_strftime_now},
    {0},
};
