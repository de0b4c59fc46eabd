/* Attributes and items, as Jinja's sandbox gives them. `x.name` looks for an attribute of Python's
 * object first, `x[key]` for an item. A name that the sandbox forbids gives an undefined value,
 * which says so when it is used. */
#include "jinja/src/library/library.h"
#include "jinja/src/run/call.h"
#include "jinja/src/run/eval.h"
#include "jinja/src/run/loop.h"

// ---- undefined values ----

// How Jinja's sentence names an object that lacks an attribute: "dict object", "None".
static enum status describe(struct jinja_run *run, struct jinja_value value,
                            struct jinja_text *text) {
    static const char *const modules[] = {
        [JINJA_UNDEFINED] = "jinja2.runtime.", [JINJA_NAMESPACE] = "jinja2.utils.",
        [JINJA_MACRO] = "jinja2.runtime.",     [JINJA_LOOP] = "jinja2.runtime.",
        [JINJA_SELF] = "jinja2.runtime.",      [JINJA_BLOCK] = "jinja2.runtime.",
    };
    if (value.type == JINJA_NONE) return jinja_text_append_str(run, text, "None");
    const char *module = NULL;
    if (value.type < ARRAY_LEN(modules)) module = modules[value.type];
    if (value.type == JINJA_STRING && value.string->is_markup) module = "markupsafe.";
    enum status status = module ? jinja_text_append_str(run, text, module) : OK;
    if (!status) status = jinja_text_append_str(run, text, jinja_value_type_name(value));
    if (!status) status = jinja_text_append_str(run, text, " object");
    return status;
}

static enum status finish_reason(struct jinja_run *run, struct jinja_text *text,
                                 struct jinja_value *out) {
    struct jinja_value reason;
    enum status status = jinja_text_finish(run, text, &reason);
    if (status) return status;
    *out = (struct jinja_value){.type = JINJA_UNDEFINED, .hint = reason.string};
    return OK;
}

static enum status quote_name(struct jinja_run *run, const struct jinja_string *name,
                              struct jinja_text *text) {
    if ((size_t)jinja_name_shown_len(name) < name->len)
        return jinja_text_append_str(run, text, "'...'");
    struct jinja_string plain = *name;
    plain.is_markup = false;
    return jinja_value_repr(run, jinja_value_of_string(&plain), text);
}

static enum status no_attribute(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_string *name, struct jinja_value *out) {
    struct jinja_text text = {0};
    enum status status = jinja_text_append_str(run, &text, "'");
    if (!status) status = describe(run, value, &text);
    if (!status) status = jinja_text_append_str(run, &text, "' has no attribute ");
    if (!status) status = quote_name(run, name, &text);
    return status ? status : finish_reason(run, &text, out);
}

static enum status no_element(struct jinja_run *run, struct jinja_value value,
                              struct jinja_value key, struct jinja_value *out) {
    struct jinja_text text = {0};
    enum status status = describe(run, value, &text);
    if (!status) status = jinja_text_append_str(run, &text, " has no element ");
    bool is_short = key.type == JINJA_NONE || key.type == JINJA_BOOL || key.type == JINJA_INT ||
                    key.type == JINJA_FLOAT;
    if (!status) {
        status = is_short ? jinja_value_repr(run, key, &text)
                          : jinja_text_append_str(run, &text, jinja_value_type_name(key));
    }
    return status ? status : finish_reason(run, &text, out);
}

static enum status unsafe(struct jinja_run *run, struct jinja_value value,
                          const struct jinja_string *name, struct jinja_value *out) {
    struct jinja_text text = {0};
    enum status status = jinja_text_append_str(run, &text, "access to attribute ");
    if (!status) status = quote_name(run, name, &text);
    if (!status) status = jinja_text_append_str(run, &text, " of '");
    if (!status) status = jinja_text_append_str(run, &text, jinja_value_type_name(value));
    if (!status) status = jinja_text_append_str(run, &text, "' object is unsafe.");
    return status ? status : finish_reason(run, &text, out);
}

// ---- attributes of Python's objects ----

static bool is_among(const struct jinja_string *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (jinja_string_is(name, names[i])) return true;
    return false;
}

// What every object of Python has.
static bool is_object_attribute(const struct jinja_string *name) {
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

// Methods that would change a value that others share.
static bool is_mutator(struct jinja_value value, const struct jinja_string *name) {
    static const char *const of_list[] = {"append", "clear", "pop",    "reverse",
                                          "insert", "sort",  "extend", "remove"};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (value.type == JINJA_LIST) return is_among(name, of_list, ARRAY_LEN(of_list));
    return value.type == JINJA_DICT && is_among(name, of_dict, ARRAY_LEN(of_dict));
}

static bool get_range_field(const struct jinja_range *range, const struct jinja_string *name,
                            struct jinja_value *out) {
    const char *const names[] = {"start", "stop", "step"};
    const int64_t fields[] = {range->start, range->stop, range->step};
    for (size_t i = 0; i < ARRAY_LEN(names); ++i) {
        if (!jinja_string_is(name, names[i])) continue;
        *out = jinja_value_int(fields[i]);
        return true;
    }
    return false;
}

static bool get_group_field(const struct jinja_list *group, const struct jinja_string *name,
                            struct jinja_value *out) {
    size_t i = jinja_string_is(name, "list");
    if (!group->is_group || (i == 0 && !jinja_string_is(name, "grouper"))) return false;
    *out = group->items[i];
    return true;
}

static bool get_number_field(struct jinja_value value, const struct jinja_string *name,
                             struct jinja_value *out) {
    bool is_int = value.type != JINJA_FLOAT;
    struct jinja_value self = value.type == JINJA_BOOL ? jinja_value_int(value.boolean) : value;
    if (jinja_string_is(name, "real")) {
        *out = self;
    } else if (jinja_string_is(name, "imag")) {
        *out = is_int ? jinja_value_int(0) : jinja_value_float(0);
    } else if (is_int && jinja_string_is(name, "numerator")) {
        *out = self;
    } else if (is_int && jinja_string_is(name, "denominator")) {
        *out = jinja_value_int(1);
    } else {
        return false;
    }
    return true;
}

// Attributes that are data, not methods.
static bool get_field(struct jinja_value value, const struct jinja_string *name,
                      struct jinja_value *out) {
    switch (value.type) {
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
        return get_number_field(value, name, out);
    case JINJA_RANGE:
        return get_range_field(value.range, name, out);
    case JINJA_TUPLE:
        return get_group_field(value.list, name, out);
    default:
        return false;
    }
}

static enum status get_own(struct jinja_run *run, struct jinja_value value,
                           const struct jinja_string *name, bool *found, struct jinja_value *out) {
    switch (value.type) {
    case JINJA_NAMESPACE:
        return jinja_dict_get(run, value.attributes, jinja_value_of_string(name), found, out);
    case JINJA_MACRO:
        return jinja_macro_attribute(run, value.macro, name, found, out);
    case JINJA_SELF:
        return jinja_self_attribute(run, value.self, name, found, out);
    case JINJA_BLOCK:
        *found = jinja_string_is(name, "name");
        if (*found) *out = jinja_value_of_string(value.block->stmt->block.name);
        return OK;
    case JINJA_LOOP:
        return jinja_loop_attribute(run, value.loop, name, found, out);
    default:
        *found = get_field(value, name, out);
        return *found ? OK : jinja_library_method(run, value, name, found, out);
    }
}

// An attribute as the sandbox gives it: *found, perhaps as an undefined value.
static enum status get_attribute(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_string *name, bool *found,
                                 struct jinja_value *out) {
    *found = true;
    if (is_object_attribute(name) || is_mutator(value, name)) return unsafe(run, value, name, out);
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    enum status status = get_own(run, value, name, found, out);
    if (!status && *found && name->len && name->data[0] == '_')
        return unsafe(run, value, name, out);
    return status;
}

enum status jinja_run_attribute(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_string *name, struct jinja_value *out) {
    bool found;
    enum status status = get_attribute(run, value, name, &found, out);
    if (status || found) return status;
    if (value.type == JINJA_DICT) {
        status = jinja_dict_get(run, value.dict, jinja_value_of_string(name), &found, out);
        if (status || found) return status;
    }
    return no_attribute(run, value, name, out);
}

// ---- items ----

// Whether the key can be a key of a dict. Each item of a tuple costs a step: tuples of tuples can
// be very large.
static enum status check_hashable(struct jinja_run *run, struct jinja_value key,
                                  bool *is_hashable) {
    if (key.type == JINJA_VIEW) *is_hashable = key.view->type == JINJA_VIEW_VALUES;
    if (key.type == JINJA_LIST || key.type == JINJA_DICT) *is_hashable = false;
    if (key.type != JINJA_TUPLE) return OK;
    enum status status = jinja_run_enter(run);
    if (!status) status = jinja_run_pay(run, key.list->len);
    for (size_t i = 0; i < key.list->len && *is_hashable && !status; ++i)
        status = check_hashable(run, key.list->items[i], is_hashable);
    if (!status) jinja_run_leave(run);
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

static enum status get_character(struct jinja_run *run, const struct jinja_string *string,
                                 size_t index, struct jinja_value *out) {
    bool is_ascii = string->len == string->num_chars;
    enum status status = jinja_run_pay(run, is_ascii ? 0 : string->len / 64);
    if (status) return status;
    size_t start = is_ascii ? index : jinja_string_offset(string, index);
    size_t end = is_ascii ? index + 1 : jinja_string_offset(string, index + 1);
    struct jinja_string *character = jinja_run_alloc(run, sizeof(*character));
    if (!character) return jinja_run_status(run);
    *character = (struct jinja_string){.data = string->data + start,
                                       .len = (uint32_t)(end - start),
                                       .num_chars = 1,
                                       .is_markup = string->is_markup};
    *out = jinja_value_of_string(character);
    return OK;
}

static enum status get_at(struct jinja_run *run, struct jinja_value value, int64_t index,
                          bool *found, struct jinja_value *out) {
    size_t at;
    switch (value.type) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        *found = find_index(index, value.list->len, &at);
        if (*found) *out = value.list->items[at];
        return OK;
    case JINJA_RANGE:
        *found = find_index(index, value.range->len, &at);
        if (*found) *out = jinja_value_int(jinja_range_item(value.range, at));
        return OK;
    case JINJA_STRING:
        *found = find_index(index, value.string->num_chars, &at);
        return *found ? get_character(run, value.string, at, out) : OK;
    default:
        *found = false;
        return OK;
    }
}

enum status jinja_run_item(struct jinja_run *run, struct jinja_value value, struct jinja_value key,
                           struct jinja_value *out) {
    bool found = false;
    enum status status = OK;
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    if (value.type == JINJA_DICT) {
        bool is_hashable = true;
        status = check_hashable(run, key, &is_hashable);
        if (!status && is_hashable) status = jinja_dict_get(run, value.dict, key, &found, out);
    } else if (key.type == JINJA_INT) {
        status = get_at(run, value, key.integer, &found, out);
    } else if (key.type == JINJA_BOOL) {
        status = get_at(run, value, key.boolean, &found, out);
    }
    if (status || found) return status;
    if (key.type != JINJA_STRING) return no_element(run, value, key, out);
    status = get_attribute(run, value, key.string, &found, out);
    if (status || found) return status;
    return no_attribute(run, value, key.string, out);
}
