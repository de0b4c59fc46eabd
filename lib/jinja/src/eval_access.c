/* Attributes and items, as Jinja's sandbox gives them: `x.name` prefers an attribute of Python's
 * object, `x[key]` an item; what there is but must not be touched gives an undefined value that
 * tells so when it is used. */
#include "jinja/src/call.h"
#include "jinja/src/eval.h"
#include "jinja/src/library.h"
#include "jinja/src/loop.h"

// ---- undefined values ----

// Jinja's name of an object without what was asked for: "dict object", "None".
static enum status describe(struct run *run, struct value value, struct text *text) {
    static const char *const modules[] = {
        [VALUE_UNDEFINED] = "jinja2.runtime.", [VALUE_NAMESPACE] = "jinja2.utils.",
        [VALUE_MACRO] = "jinja2.runtime.",     [VALUE_LOOP] = "jinja2.runtime.",
        [VALUE_SELF] = "jinja2.runtime.",      [VALUE_BLOCK] = "jinja2.runtime.",
    };
    if (value.type == VALUE_NONE) return text_append_str(run, text, "None");
    const char *module = NULL;
    if (value.type < ARRAY_LEN(modules)) module = modules[value.type];
    if (value.type == VALUE_STRING && value.string->is_markup) module = "markupsafe.";
    enum status status = module ? text_append_str(run, text, module) : OK;
    if (!status) status = text_append_str(run, text, value_type_name(value));
    if (!status) status = text_append_str(run, text, " object");
    return status;
}

static enum status finish_reason(struct run *run, struct text *text, struct value *out) {
    struct value reason;
    enum status status = text_finish(run, text, &reason);
    if (status) return status;
    *out = (struct value){.type = VALUE_UNDEFINED, .hint = reason.string};
    return OK;
}

static enum status quote_name(struct run *run, const struct string *name, struct text *text) {
    if ((size_t)name_shown_len(name) < name->len) return text_append_str(run, text, "'...'");
    struct string plain = *name;
    plain.is_markup = false;
    return value_repr(run, value_of_string(&plain), text);
}

static enum status no_attribute(struct run *run, struct value value, const struct string *name,
                                struct value *out) {
    struct text text = {0};
    enum status status = text_append_str(run, &text, "'");
    if (!status) status = describe(run, value, &text);
    if (!status) status = text_append_str(run, &text, "' has no attribute ");
    if (!status) status = quote_name(run, name, &text);
    return status ? status : finish_reason(run, &text, out);
}

static enum status no_element(struct run *run, struct value value, struct value key,
                              struct value *out) {
    struct text text = {0};
    enum status status = describe(run, value, &text);
    if (!status) status = text_append_str(run, &text, " has no element ");
    bool is_short = key.type == VALUE_NONE || key.type == VALUE_BOOL || key.type == VALUE_INT ||
                    key.type == VALUE_FLOAT;
    if (!status) {
        status = is_short ? value_repr(run, key, &text)
                          : text_append_str(run, &text, value_type_name(key));
    }
    return status ? status : finish_reason(run, &text, out);
}

static enum status unsafe(struct run *run, struct value value, const struct string *name,
                          struct value *out) {
    struct text text = {0};
    enum status status = text_append_str(run, &text, "access to attribute ");
    if (!status) status = quote_name(run, name, &text);
    if (!status) status = text_append_str(run, &text, " of '");
    if (!status) status = text_append_str(run, &text, value_type_name(value));
    if (!status) status = text_append_str(run, &text, "' object is unsafe.");
    return status ? status : finish_reason(run, &text, out);
}

// ---- attributes of Python's objects ----

static bool is_among(const struct string *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (string_is(name, names[i])) return true;
    return false;
}

// What every object of Python has.
static bool is_object_attribute(const struct string *name) {
    static const char *const names[] = {
        "__class__",   "__delattr__", "__dir__",           "__doc__",          "__eq__",
        "__format__",  "__ge__",      "__getattribute__",  "__getstate__",     "__gt__",
        "__hash__",    "__init__",    "__init_subclass__", "__le__",           "__lt__",
        "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",    "__repr__",
        "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__",
    };
    return name->len > 2 && name->data[0] == '_' && name->data[1] == '_' &&
           is_among(name, names, ARRAY_LEN(names));
}

// What would change a value that others share.
static bool is_mutator(struct value value, const struct string *name) {
    static const char *const of_list[] = {"append", "clear", "pop",    "reverse",
                                          "insert", "sort",  "extend", "remove"};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (value.type == VALUE_LIST) return is_among(name, of_list, ARRAY_LEN(of_list));
    return value.type == VALUE_DICT && is_among(name, of_dict, ARRAY_LEN(of_dict));
}

static bool get_range_field(const struct range *range, const struct string *name,
                            struct value *out) {
    const char *const names[] = {"start", "stop", "step"};
    const int64_t fields[] = {range->start, range->stop, range->step};
    for (size_t i = 0; i < ARRAY_LEN(names); ++i) {
        if (!string_is(name, names[i])) continue;
        *out = value_int(fields[i]);
        return true;
    }
    return false;
}

static bool get_group_field(const struct list *group, const struct string *name,
                            struct value *out) {
    size_t i = string_is(name, "list");
    if (!group->is_group || (i == 0 && !string_is(name, "grouper"))) return false;
    *out = group->items[i];
    return true;
}

static bool get_number_field(struct value value, const struct string *name, struct value *out) {
    bool is_int = value.type != VALUE_FLOAT;
    struct value self = value.type == VALUE_BOOL ? value_int(value.boolean) : value;
    if (string_is(name, "real")) {
        *out = self;
    } else if (string_is(name, "imag")) {
        *out = is_int ? value_int(0) : value_float(0);
    } else if (is_int && string_is(name, "numerator")) {
        *out = self;
    } else if (is_int && string_is(name, "denominator")) {
        *out = value_int(1);
    } else {
        return false;
    }
    return true;
}

// Attributes that are data, not methods.
static bool get_field(struct value value, const struct string *name, struct value *out) {
    switch (value.type) {
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT:
        return get_number_field(value, name, out);
    case VALUE_RANGE:
        return get_range_field(value.range, name, out);
    case VALUE_TUPLE:
        return get_group_field(value.list, name, out);
    default:
        return false;
    }
}

static enum status get_own(struct run *run, struct value value, const struct string *name,
                           bool *found, struct value *out) {
    switch (value.type) {
    case VALUE_NAMESPACE:
        return dict_get(run, value.attributes, value_of_string(name), found, out);
    case VALUE_MACRO:
        return macro_attribute(run, value.macro, name, found, out);
    case VALUE_SELF:
        return self_attribute(run, value.self, name, found, out);
    case VALUE_BLOCK:
        *found = string_is(name, "name");
        if (*found) *out = value_of_string(value.block->stmt->block.name);
        return OK;
    case VALUE_LOOP:
        return loop_attribute(run, value.loop, name, found, out);
    default:
        *found = get_field(value, name, out);
        return *found ? OK : library_method(run, value, name, found, out);
    }
}

// An attribute as the sandbox gives it: *found, perhaps as an undefined value.
static enum status get_attribute(struct run *run, struct value value, const struct string *name,
                                 bool *found, struct value *out) {
    *found = true;
    if (is_object_attribute(name) || is_mutator(value, name)) return unsafe(run, value, name, out);
    if (value.type == VALUE_UNDEFINED) return run_fail_undefined(run, value);
    enum status status = get_own(run, value, name, found, out);
    if (!status && *found && name->len && name->data[0] == '_')
        return unsafe(run, value, name, out);
    return status;
}

enum status run_attribute(struct run *run, struct value value, const struct string *name,
                          struct value *out) {
    bool found;
    enum status status = get_attribute(run, value, name, &found, out);
    if (status || found) return status;
    if (value.type == VALUE_DICT) {
        status = dict_get(run, value.dict, value_of_string(name), &found, out);
        if (status || found) return status;
    }
    return no_attribute(run, value, name, out);
}

// ---- items ----

// Whether a dict may be asked for the key; a tuple may be as large as the tuples in it make it.
static enum status check_hashable(struct run *run, struct value key, bool *is_hashable) {
    if (key.type == VALUE_VIEW) *is_hashable = key.view->type == VIEW_VALUES;
    if (key.type == VALUE_LIST || key.type == VALUE_DICT) *is_hashable = false;
    if (key.type != VALUE_TUPLE) return OK;
    enum status status = run_enter(run);
    if (!status) status = run_pay(run, key.list->len);
    for (size_t i = 0; i < key.list->len && *is_hashable && !status; ++i)
        status = check_hashable(run, key.list->items[i], is_hashable);
    if (!status) run_leave(run);
    return status;
}

// `index` of a sequence of `len` items, from the end if negative. False: outside.
static bool find_index(int64_t index, size_t len, size_t *out) {
    if (index < 0) {
        if ((uint64_t) - (index + 1) >= len) return false;
        *out = len - (size_t) - (index + 1) - 1;
        return true;
    }
    *out = (size_t)index;
    return (uint64_t)index < len;
}

static enum status get_character(struct run *run, const struct string *string, size_t index,
                                 struct value *out) {
    bool is_ascii = string->len == string->num_chars;
    enum status status = run_pay(run, is_ascii ? 0 : string->len / 64);
    if (status) return status;
    size_t start = is_ascii ? index : string_offset(string, index);
    size_t end = is_ascii ? index + 1 : string_offset(string, index + 1);
    struct string *character = run_alloc(run, sizeof(*character));
    if (!character) return run_status(run);
    *character = (struct string){.data = string->data + start,
                                 .len = (uint32_t)(end - start),
                                 .num_chars = 1,
                                 .is_markup = string->is_markup};
    *out = value_of_string(character);
    return OK;
}

static enum status get_at(struct run *run, struct value value, int64_t index, bool *found,
                          struct value *out) {
    size_t at;
    switch (value.type) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        *found = find_index(index, value.list->len, &at);
        if (*found) *out = value.list->items[at];
        return OK;
    case VALUE_RANGE:
        *found = find_index(index, value.range->len, &at);
        if (*found) *out = value_int(range_item(value.range, at));
        return OK;
    case VALUE_STRING:
        *found = find_index(index, value.string->num_chars, &at);
        return *found ? get_character(run, value.string, at, out) : OK;
    default:
        *found = false;
        return OK;
    }
}

enum status run_item(struct run *run, struct value value, struct value key, struct value *out) {
    bool found = false;
    enum status status = OK;
    if (value.type == VALUE_UNDEFINED) return run_fail_undefined(run, value);
    if (value.type == VALUE_DICT) {
        bool is_hashable = true;
        status = check_hashable(run, key, &is_hashable);
        if (!status && is_hashable) status = dict_get(run, value.dict, key, &found, out);
    } else if (key.type == VALUE_INT) {
        status = get_at(run, value, key.integer, &found, out);
    } else if (key.type == VALUE_BOOL) {
        status = get_at(run, value, key.boolean, &found, out);
    }
    if (status || found) return status;
    if (key.type != VALUE_STRING) return no_element(run, value, key, out);
    status = get_attribute(run, value, key.string, &found, out);
    if (status || found) return status;
    return no_attribute(run, value, key.string, out);
}
