#include "server/chat/tool_form.h"

#include <string.h>

#include "base/compiler.h"
#include "server/chat/call_notation.h"
#include "server/chat/harmony.h"
#include "server/chat/python_notation.h"

// JSON under construction: one failure makes all of it fail.
struct builder {
    const struct tool_form_options *options;
    const struct tool_format *format;
    bool failed;
};

// Takes `value`.
static void put(struct builder *b, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value)) b->failed = true;
}

static void append(struct builder *b, json_t *list, json_t *value) {
    if (json_array_append_new(list, value)) b->failed = true;
}

static json_t *make_part(struct builder *b, const char *type) {
    json_t *part = json_object();
    put(b, part, "type", json_string(type));
    return part;
}

// A part with one member, which it takes.
static json_t *part_of(struct builder *b, const char *type, const char *key, json_t *value) {
    json_t *part = make_part(b, type);
    put(b, part, key, value);
    return part;
}

static json_t *const_part(struct builder *b, const char *text) {
    return part_of(b, "const_string", "value", json_string(text));
}

static json_t *regex_part(struct builder *b, const char *pattern) {
    return part_of(b, "regex", "pattern", json_string(pattern));
}

static json_t *text_part(struct builder *b, const char *text, bool is_token) {
    return is_token ? part_of(b, "token", "token", json_string(text)) : const_part(b, text);
}

static json_t *sequence(struct builder *b, json_t *elements) {
    return part_of(b, "sequence", "elements", elements);
}

// ---- a call ----

static json_t *parameters_part(struct builder *b, const struct tool_form_function *function) {
    json_t *part = make_part(b, "json_schema");
    json_t *schema = function->parameters ? json_incref(function->parameters)
                                          : json_pack("{s:s}", "type", "object");
    put(b, part, "json_schema", schema);
    put(b, part, "name", json_sprintf(TOOL_FORM_TOOL "%s\"", function->name));
    if (!function->is_strict) put(b, part, "best_effort", json_true());
    return part;
}

// The beginning of a call up to its arguments, or up to a token before them.
static json_t *beginning(struct builder *b, const struct tool_form_function *function) {
    const char *after = b->options->after_name_is_token ? "" : b->format->after_name;
    return json_sprintf("%s%s%s", b->format->before_name, function->name, after);
}

static void append_arguments(struct builder *b, json_t *elements,
                             const struct tool_form_function *function) {
    append(b, elements, regex_part(b, " ?"));
    append(b, elements, parameters_part(b, function));
}

// ---- a call in tags ----

static bool is_string(const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && strcmp(type, "string") == 0;
}

// The first of some keywords that the schema has; NULL: none.
static const char *find_keyword(const json_t *schema, const char *const *keys) {
    while (*keys && !json_object_get(schema, *keys)) keys++;
    return *keys;
}

static bool has_text(const char *name, const char *text) {
    return strstr(name, text) != NULL;
}

// What of a string's schema the form leaves out; NULL: nothing.
static const char *loose_keyword(const json_t *schema, const struct tool_tags *tags) {
    static const char *const keys[] = {"pattern", "format", "minLength",   "maxLength",
                                       "allOf",   "anyOf",  "oneOf",       "not",
                                       "if",      "$ref",   "$dynamicRef", NULL};
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    if (only &&
        (list || !json_is_string(only) || has_text(json_string_value(only), tags->after_value))) {
        return "const";
    }
    bool has_string = !list;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text && has_text(text, tags->after_value)) return "enum";
        has_string |= text != NULL;
    }
    return has_string ? find_keyword(schema, keys) : "enum";
}

struct tool_form_loose tool_form_find_loose(const struct tool_format *format,
                                            const struct tool_form_function *function) {
    static const char *const keys[] = {"$ref",
                                       "$dynamicRef",
                                       "allOf",
                                       "anyOf",
                                       "oneOf",
                                       "not",
                                       "if",
                                       "enum",
                                       "const",
                                       "minProperties",
                                       "maxProperties",
                                       "patternProperties",
                                       "propertyNames",
                                       "dependentRequired",
                                       "dependentSchemas",
                                       "dependencies",
                                       NULL};
    struct tool_form_loose loose = {.keyword = find_keyword(function->parameters, keys)};
    json_t *properties = json_object_get(function->parameters, "properties");
    json_t *required = json_object_get(function->parameters, "required");
    json_t *schema;
    for (size_t i = 0; i < json_array_size(required) && !loose.keyword; i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && !json_object_get(properties, name)) {
            loose = (struct tool_form_loose){"required", name};
        }
    }
    if (loose.keyword) return loose;
    json_object_foreach(properties, loose.property, schema) {
        const struct tool_tags *tags = format->tags;
        bool is_key = tags ? !has_text(loose.property, tags->after_key)
                           : python_notation_is_key(loose.property);
        if (!is_key) loose.keyword = "properties";
        if (tags && is_key && is_string(schema)) loose.keyword = loose_keyword(schema, tags);
        if (loose.keyword) return loose;
    }
    return (struct tool_form_loose){0};
}

// One of some strings, or any text up to the tag behind it.
static json_t *string_part(struct builder *b, const json_t *schema) {
    json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    json_t *texts = json_array(), *excludes = json_array();
    if (json_is_string(only)) append(b, texts, const_part(b, json_string_value(only)));
    for (size_t i = 0; i < json_array_size(list) && !only; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text) append(b, texts, const_part(b, text));
    }
    append(b, excludes, json_string(b->format->tags->after_value));
    if (json_array_size(texts)) {
        json_decref(excludes);
        return part_of(b, "or", "elements", texts);
    }
    json_decref(texts);
    return part_of(b, "any_text", "excludes", excludes);
}

// A property's schema with the definitions that it may refer to.
static json_t *value_part(struct builder *b, const struct tool_form_function *function,
                          json_t *schema) {
    static const char *const keys[] = {"$defs", "definitions"};
    if (is_string(schema) && b->format->tags) return string_part(b, schema);
    json_t *whole = json_is_object(schema) ? json_copy(schema) : json_object();
    if (!whole) b->failed = true;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *definitions = json_object_get(function->parameters, keys[i]);
        if (definitions) put(b, whole, keys[i], json_incref(definitions));
    }
    const struct tool_form_function own = {function->name, whole, function->is_strict};
    json_t *part = parameters_part(b, &own);
    json_decref(whole);
    return part;
}

static json_t *property_part(struct builder *b, const struct tool_form_function *function,
                             const char *name, json_t *schema) {
    const struct tool_tags *tags = b->format->tags;
    const char *pad = tags->is_padded ? "\n" : "";
    json_t *elements = json_array();
    json_t *before = json_sprintf("%s%s%s%s%s%s", tags->before_key, name, tags->after_key,
                                  *tags->before_value ? "\n" : "", tags->before_value, pad);
    append(b, elements, part_of(b, "const_string", "value", before));
    append(b, elements, value_part(b, function, schema));
    json_t *after = json_sprintf("%s%s\n", pad, tags->after_value);
    append(b, elements, part_of(b, "const_string", "value", after));
    return sequence(b, elements);
}

// The names that must be there, as the keys of an object.
static json_t *required_names(struct builder *b, const struct tool_form_function *function) {
    json_t *list = json_object_get(function->parameters, "required"), *names = json_object();
    if (!names) b->failed = true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name) put(b, names, name, json_true());
    }
    return names;
}

// The name and the properties, in the order of the schema; no others.
static void append_call_in_tags(struct builder *b, json_t *elements,
                                const struct tool_form_function *function) {
    const struct tool_tags *tags = b->format->tags;
    const char *name;
    json_t *schema, *required = required_names(b, function);
    json_t *begin = json_sprintf("%s%s%s%s\n", *tags->before_name ? "\n" : "", tags->before_name,
                                 function->name, tags->after_name);
    append(b, elements, part_of(b, "const_string", "value", begin));
    json_object_foreach(json_object_get(function->parameters, "properties"), name, schema) {
        json_t *part = property_part(b, function, name, schema);
        bool is_there = json_object_get(required, name) != NULL;
        append(b, elements, is_there ? part : part_of(b, "optional", "content", part));
    }
    json_decref(required);
    if (!*tags->end_call) return;
    json_t *end = json_sprintf("%s\n", tags->end_call);
    append(b, elements, part_of(b, "const_string", "value", end));
}

// True or False. A condition beside the type is kept as JSON, whose words are read as well.
static bool is_plain_boolean(const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && strcmp(type, "boolean") == 0 && !json_object_get(schema, "enum") &&
           !json_object_get(schema, "const");
}

// A property in Python's notation, with a comma before or behind it. Values are JSON, whose lists,
// strings and numbers are Python's too.
static json_t *python_property(struct builder *b, const struct tool_form_function *function,
                               const char *name, json_t *schema, bool is_comma_before,
                               bool is_comma_behind) {
    json_t *elements = json_array();
    json_t *before = json_sprintf("%s%s=", is_comma_before ? ", " : "", name);
    append(b, elements, part_of(b, "const_string", "value", before));
    append(b, elements,
           is_plain_boolean(schema) ? regex_part(b, "True|False")
                                    : value_part(b, function, schema));
    if (is_comma_behind) append(b, elements, const_part(b, ", "));
    return sequence(b, elements);
}

// A property in Gemma 4's notation, with a comma before or behind it.
static json_t *noted_property(struct builder *b, const struct tool_form_function *function,
                              const char *name, json_t *schema, bool is_comma_before,
                              bool is_comma_behind) {
    json_t *elements = json_array();
    bool is_text = is_string(schema);
    json_t *before = json_sprintf("%s%s:", is_comma_before ? "," : "", name);
    append(b, elements, part_of(b, "const_string", "value", before));
    if (is_text) append(b, elements, text_part(b, NOTATION_QUOTE, b->options->mark_is_token));
    append(b, elements, value_part(b, function, schema));
    if (is_text) append(b, elements, text_part(b, NOTATION_QUOTE, b->options->mark_is_token));
    if (is_comma_behind) append(b, elements, const_part(b, ","));
    return sequence(b, elements);
}

// The properties in the order of the schema; lists and objects in them are JSON. In Python's
// notation so are strings. Up to the last one
// that must be there each has a comma behind it, and then each has one in front. Where none must,
// the last has one behind it too, which is read.
static void append_noted_properties(struct builder *b, json_t *elements,
                                    const struct tool_form_function *function) {
    json_t *properties = json_object_get(function->parameters, "properties"), *schema;
    json_t *required = required_names(b, function);
    const char *name, *last = NULL;
    json_object_foreach(properties, name, schema) {
        if (json_object_get(required, name)) last = name;
    }
    bool is_over = false; // the last one that must be there is written
    json_object_foreach(properties, name, schema) {
        bool is_last = last && strcmp(name, last) == 0;
        bool is_comma_behind = !is_over && !is_last;
        json_t *part = b->format->python
                           ? python_property(b, function, name, schema, is_over, is_comma_behind)
                           : noted_property(b, function, name, schema, is_over, is_comma_behind);
        bool is_there = json_object_get(required, name) != NULL;
        append(b, elements, is_there ? part : part_of(b, "optional", "content", part));
        is_over |= is_last;
    }
    json_decref(required);
}

static void append_call_in_notation(struct builder *b, json_t *elements,
                                    const struct tool_form_function *function) {
    const struct tool_tags *tags = b->format->tags;
    json_t *begin = json_sprintf("%s%s%s", tags->before_name, function->name, tags->after_name);
    append(b, elements, part_of(b, "const_string", "value", begin));
    append_noted_properties(b, elements, function);
    append(b, elements, const_part(b, tags->end_call));
}

// ---- a call with marks around its name and its JSON ----

// The mark that the text begins with, or what stands before its next one. Moves *text behind it.
static json_t *next_text(struct builder *b, const char **text) {
    bool is_mark = **text == '<';
    size_t len = strcspn(*text, is_mark ? ">" : "<") + is_mark;
    json_t *piece = json_stringn(*text, len);
    *text += len;
    if (is_mark && b->options->mark_is_token) return part_of(b, "token", "token", piece);
    return is_mark ? piece : part_of(b, "const_string", "value", piece);
}

static void append_texts(struct builder *b, json_t *elements, const char *text) {
    while (*text) {
        json_t *part = next_text(b, &text);
        bool is_bare = json_is_string(part);
        append(b, elements, is_bare ? part_of(b, "const_string", "value", part) : part);
    }
}

// A call between the marks of all calls. It begins with a mark of its own.
static json_t *call_among_marks(struct builder *b, const struct tool_form_function *function) {
    const struct tool_tags *tags = b->format->tags;
    const char *before = tags->before_name, *pad = tags->is_padded ? "\n" : "";
    json_t *tag = json_object(), *elements = json_array();
    put(b, tag, "begin", next_text(b, &before));
    append_texts(b, elements, before);
    json_t *name = json_sprintf("%s%s%s", tags->has_id ? "functions." : "", function->name,
                                tags->has_id ? ":" : "");
    append(b, elements, part_of(b, "const_string", "value", name));
    if (tags->has_id) append(b, elements, regex_part(b, "[0-9]{1,4}"));
    append_texts(b, elements, tags->after_name);
    append_texts(b, elements, pad);
    append(b, elements, parameters_part(b, function));
    append_texts(b, elements, pad);
    append_texts(b, elements, tags->end_call);
    put(b, tag, "content", sequence(b, elements));
    put(b, tag, "end", json_string(""));
    return tag;
}

// A call in JSON, with the white space that models write around it.
static void append_call(struct builder *b, json_t *elements,
                        const struct tool_form_function *function) {
    bool has_end = b->format->end_mark != NULL;
    if (has_end) append(b, elements, regex_part(b, "[ \\n]?"));
    append(b, elements, part_of(b, "const_string", "value", beginning(b, function)));
    if (b->options->after_name_is_token) {
        append(b, elements, text_part(b, b->format->after_name, true));
    }
    append_arguments(b, elements, function);
    append(b, elements, const_part(b, b->format->after_arguments));
    if (has_end) append(b, elements, regex_part(b, "[ \\n]?"));
}

// A call behind its mark.
static json_t *marked_tag(struct builder *b, const struct tool_form_function *function) {
    const struct tool_form_options *options = b->options;
    const char *end_mark = b->format->end_mark;
    json_t *tag = json_object(), *elements = json_array();
    put(b, tag, "begin",
        options->mark_is_token ? text_part(b, b->format->mark, true)
                               : json_string(b->format->mark));
    if (b->format->tags && b->format->tags->has_notation) {
        append_call_in_notation(b, elements, function);
    } else if (b->format->tags) {
        append_call_in_tags(b, elements, function);
    } else {
        append_call(b, elements, function);
    }
    if (end_mark) append(b, elements, text_part(b, end_mark, options->end_mark_is_token));
    put(b, tag, "content", sequence(b, elements));
    put(b, tag, "end", json_string(""));
    return tag;
}

static json_t *bare_tag(struct builder *b, const struct tool_form_function *function) {
    json_t *tag = json_object(), *elements = json_array();
    const char *number = b->format->before_number;
    put(b, tag, "begin", number ? json_string(number) : beginning(b, function));
    if (number) append(b, elements, regex_part(b, "[0-9]{1,4}"));
    if (number) append(b, elements, part_of(b, "const_string", "value", beginning(b, function)));
    if (b->format->python) {
        append_noted_properties(b, elements, function);
    } else {
        append_arguments(b, elements, function);
    }
    append(b, elements, const_part(b, b->format->after_arguments));
    put(b, tag, "content", sequence(b, elements));
    put(b, tag, "end", json_string(""));
    return tag;
}

// ---- calls ----

static bool is_among_marks(const struct tool_format *format) {
    return format->tags && format->tags->has_json;
}

static json_t *tags(struct builder *b, bool are_marked) {
    json_t *list = json_array();
    for (size_t i = 0; i < b->options->num_functions; i++) {
        const struct tool_form_function *function = &b->options->functions[i];
        append(b, list,
               are_marked                  ? marked_tag(b, function)
               : is_among_marks(b->format) ? call_among_marks(b, function)
                                           : bare_tag(b, function));
    }
    return list;
}

static json_t *separated(struct builder *b, bool are_marked) {
    json_t *part = part_of(b, "tags_with_separator", "tags", tags(b, are_marked));
    put(b, part, "separator", json_string(b->format->between));
    put(b, part, "at_least_one", json_true());
    put(b, part, "stop_after_first", json_boolean(b->options->one_call));
    return part;
}

static void append_list(struct builder *b, json_t *elements) {
    const char *space = b->format->end_mark ? "[ \\n]?" : " ?";
    const char *open = b->format->open_list, *close = b->format->close_list;
    if (!open) append(b, elements, regex_part(b, space));
    append(b, elements, const_part(b, open ? open : "["));
    append(b, elements, separated(b, false));
    append(b, elements, const_part(b, close ? close : "]"));
    if (b->format->end_mark && !close) append(b, elements, regex_part(b, space));
}

// One mark before all calls, which are a list or have marks of their own.
static json_t *list_tag(struct builder *b) {
    json_t *tag = make_part(b, "tag"), *elements = json_array();
    put(b, tag, "begin",
        b->options->mark_is_token ? text_part(b, b->format->mark, true)
                                  : json_string(b->format->mark));
    const char *end_mark = b->format->end_mark;
    if (is_among_marks(b->format)) {
        append(b, elements, separated(b, false));
    } else {
        append_list(b, elements);
    }
    if (end_mark) append(b, elements, text_part(b, end_mark, b->options->end_mark_is_token));
    put(b, tag, "content", sequence(b, elements));
    put(b, tag, "end", json_string(""));
    return tag;
}

static bool has_list(const struct tool_format *format) {
    return is_among_marks(format) || (format->list && (format->before_name[0] || format->python));
}

// Nothing but calls. Those of a bare format need no mark, but may have one.
static json_t *calls_only(struct builder *b) {
    if (!b->format->bare) return has_list(b->format) ? list_tag(b) : separated(b, true);
    json_t *elements = json_array();
    if (!b->options->demands_call) {
        json_t *mark = text_part(b, b->format->mark, b->options->mark_is_token);
        append(b, elements, part_of(b, "optional", "content", mark));
    }
    if (has_list(b->format)) {
        append_list(b, elements);
    } else {
        append(b, elements, separated(b, false));
    }
    return sequence(b, elements);
}

// ---- answers ----

static json_t *either(struct builder *b, json_t *text) {
    json_t *elements = json_array();
    append(b, elements, text);
    append(b, elements, calls_only(b));
    return part_of(b, "or", "elements", elements);
}

// Text that does not begin as a bare call does, and has no mark. Escapes what patterns read.
static json_t *text_without_calls(struct builder *b) {
    char mark[128];
    size_t len = 0;
    for (const char *c = b->format->mark; *c && len + 3 < sizeof mark; c++) {
        if (strchr("|[](){}.*+?^$\\/", *c)) mark[len++] = '\\';
        mark[len++] = *c;
    }
    mark[len] = '\0';
    json_t *pattern = json_sprintf("^(?![ \\t\\r\\n]*\\%s)(?![\\s\\S]*%s)[\\s\\S]*$",
                                   b->format->python ? "[" : "{", mark);
    return part_of(b, "regex", "pattern", pattern);
}

static json_t *calls_in_text(struct builder *b) {
    json_t *part = make_part(b, "triggered_tags"), *list = NULL, *triggers = json_array();
    bool is_list = has_list(b->format);
    append(b, triggers, json_string(b->format->mark));
    if (is_list) {
        list = json_array();
        append(b, list, list_tag(b));
    } else {
        list = tags(b, true);
    }
    put(b, part, "triggers", triggers);
    put(b, part, "tags", list);
    put(b, part, "stop_after_first", json_boolean(is_list || b->options->one_call));
    return part;
}

// ---- answers in channels ----

static void append_mark(struct builder *b, json_t *elements, const char *mark) {
    append(b, elements, text_part(b, mark, b->options->mark_is_token));
}

static json_t *free_text(struct builder *b) {
    json_t *part = make_part(b, "any_text"), *excludes = json_array();
    if (!b->options->mark_is_token) append(b, excludes, json_string("<|"));
    put(b, part, "excludes", excludes);
    return part;
}

// A header and the text behind it, which is taken. NULL name: the final answer.
static json_t *message(struct builder *b, const char *channel, const char *name, json_t *text) {
    json_t *elements = json_array();
    append_mark(b, elements, HARMONY_CHANNEL);
    json_t *words =
        name ? json_sprintf("%s to=functions.%s ", channel, name) : json_string(channel);
    append(b, elements, part_of(b, "const_string", "value", words));
    if (name) append_mark(b, elements, HARMONY_CONSTRAIN);
    if (name) append(b, elements, const_part(b, "json"));
    append_mark(b, elements, HARMONY_MESSAGE);
    append(b, elements, text);
    return sequence(b, elements);
}

// Reasoning, if the model likes, and then one call or the text.
static json_t *answer_in_channels(struct builder *b) {
    const struct tool_form_options *options = b->options;
    json_t *elements = json_array(), *choices = json_array(), *reasoning = json_array();
    append(b, reasoning, message(b, "analysis", NULL, free_text(b)));
    append_mark(b, reasoning, HARMONY_END);
    append_mark(b, reasoning, HARMONY_START);
    append(b, reasoning, const_part(b, "assistant"));
    append(b, elements, part_of(b, "optional", "content", sequence(b, reasoning)));
    if (!options->demands_call) {
        json_t *text = options->text ? json_incref(options->text) : free_text(b);
        append(b, choices, message(b, "final", NULL, text));
    }
    for (size_t i = 0; i < options->num_functions; i++) {
        const struct tool_form_function *function = &options->functions[i];
        append(b, choices, message(b, "commentary", function->name, parameters_part(b, function)));
    }
    append(b, elements, part_of(b, "or", "elements", choices));
    return sequence(b, elements);
}

json_t *tool_form_make(const struct tool_form_options *options) {
    struct builder b = {.options = options, .format = options->format};
    json_t *form = NULL;
    if (options->format->has_channels) {
        form = answer_in_channels(&b);
    } else if (options->demands_call) {
        form = calls_only(&b);
    } else if (options->text) {
        form = either(&b, json_incref(options->text));
    } else if (options->format->bare) {
        form = either(&b, text_without_calls(&b));
    } else {
        form = calls_in_text(&b);
    }
    if (!b.failed) return form;
    json_decref(form);
    return NULL;
}
