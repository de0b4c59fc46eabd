#include "server/api/tool_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "server/api/request_params.h"
#include "server/chat/tool_form.h"
#include "server/loop/body.h"

// ---- the functions ----

static bool refuse_parameters(struct api_request *request, const char *name) {
    return api_error_invalid(&request->error, "tools",
                             "the parameters of the strict tool \"%.64s\" are no schema of an "
                             "object",
                             name);
}

// Sets *schema to the schema of an object, a reference of its own; it stays NULL for any object.
static bool make_parameters(struct api_request *request, const char *name, json_t *parameters,
                            bool is_strict, json_t **schema) {
    const json_t *type = jread_get(parameters, "type");
    bool may_be_object = !type || json_is_array(type);
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *word = json_string_value(json_array_get(type, i));
        if (word && strcmp(word, "object") == 0) type = NULL;
    }
    const char *word = json_string_value(type);
    if (!parameters) return true;
    if (word && strcmp(word, "object") == 0) {
        *schema = json_incref(parameters);
        return true;
    }
    if (!may_be_object || type) return is_strict ? refuse_parameters(request, name) : true;
    *schema = json_object();
    if (json_object_update(*schema, parameters) == 0 &&
        json_object_set_new(*schema, "type", json_string("object")) == 0)
        return true;
    return api_error_nomem(&request->error);
}

static bool is_strict(const json_t *tool) {
    return json_is_true(json_object_get(json_object_get(tool, "function"), "strict"));
}

// Without properties a call that is no JSON has no arguments at all: then any function is checked.
static bool check_tags(struct api_request *request, const struct tool_form_function *function) {
    const struct tool_format *format = request->api->tool_format;
    bool has_properties = json_object_size(json_object_get(function->parameters, "properties"));
    if (tool_format_has_json(format)) return true;
    if (!function->is_strict && has_properties) return true;
    const struct tool_form_loose loose = tool_form_find_loose(format, function);
    if (!loose.keyword) return true;
    char place[100] = "parameters";
    if (loose.property) snprintf(place, sizeof place, "property \"%.64s\"", loose.property);
    return api_error_invalid(&request->error, "tools",
                             "\"%s\" of the %s of the tool \"%.64s\" cannot be enforced in the "
                             "tool call format %s",
                             loose.keyword, place, function->name, format->name);
}

static bool fill_function(struct api_request *request, const json_t *tool,
                          struct tool_form_function *out) {
    json_t *function = json_object_get(tool, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    *out = (struct tool_form_function){.name = name, .is_strict = is_strict(tool)};
    if (!tool_format_fits_name(request->api->tool_format, name)) {
        return api_error_invalid(&request->error,
                                 request->chat.forces_call ? "tool_choice" : "tools",
                                 "a call of the function \"%.64s\" cannot be enforced in the tool "
                                 "call format %s",
                                 name, request->api->tool_format->name);
    }
    if (!make_parameters(request, name, jread_get(function, "parameters"), out->is_strict,
                         &out->parameters)) {
        return false;
    }
    return check_tags(request, out);
}

// ---- the whole ----

// The options of structured_outputs, which hold for all JSON of the answer. A new reference; NULL:
// no memory.
static json_t *make_options(const json_t *form) {
    static const char *const constraints[] = {"json",   "json_object", "regex",
                                              "choice", "grammar",     "structural_tag"};
    json_t *options = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)form, key, value) {
        bool is_constraint = false;
        for (size_t i = 0; i < ARRAY_LEN(constraints); i++) {
            is_constraint |= strcmp(constraints[i], key) == 0;
        }
        if (!is_constraint && json_object_set(options, key, value)) {
            json_decref(options);
            return NULL;
        }
    }
    return options;
}

static bool set_form(struct api_request *request, json_t *format, bool has_tools) {
    json_t *form = make_options(request->chat.form);
    bool is_good =
        format && form &&
        json_object_set_new(form, "structural_tag", json_pack("{s:O}", "format", format)) == 0;
    is_good = is_good ? request_params_set(request, "structured_outputs", form)
                      : api_error_nomem(&request->error);
    json_decref(form);
    request->chat.has_form = true;
    struct api_error *error = &request->error;
    bool is_own = !request->chat.form || request->chat.forces_call || has_tools;
    if (is_good || !is_own || strcmp(error->param, "structured_outputs") != 0) return is_good;
    const struct api_error own = *error; // the client did not send that member
    *error = (struct api_error){0};
    return api_error_set(error, own.status, own.code, "tools",
                         "the schemas of tools make a form that is refused: %.500s", own.message);
}

static bool set_functions(struct api_request *request, const json_t *tools, const char *name,
                          struct tool_form_function *functions, json_t *text) {
    const struct api *api = request->api;
    struct tool_form_options options = {
        .format = api->tool_format,
        .functions = functions,
        .mark_is_token = api->mark_is_token,
        .end_mark_is_token = api->end_mark_is_token,
        .after_name_is_token = api->after_name_is_token,
        .demands_call = request->chat.forces_call,
        .one_call = request->chat.split.one_call || name,
        .text = text,
    };
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *own = json_object_get(json_object_get(tool, "function"), "name");
        if (name && strcmp(name, json_string_value(own)) != 0) continue;
        if (!fill_function(request, tool, &functions[options.num_functions++])) return false;
        if (name) break;
    }
    json_t *format = tool_form_make(&options);
    bool is_good = set_form(request, format, options.num_functions > 0);
    json_decref(format);
    return is_good;
}

// Calls of no known format are text. Clients send strict to every server.
static bool leave_out_strict(struct api_request *request) {
    if (!request->api->options->refuses_unknown) return body_ignore(request, "tools.strict");
    return api_error_set(&request->error, 400, "unsupported", "tools",
                         "a strict tool cannot be enforced, because the format in which this model "
                         "writes tool calls is not known");
}

bool tool_grammar_set(struct api_request *request, const json_t *tools, const char *name) {
    bool any_strict = false;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        any_strict |= is_strict(json_array_get(tools, i));
    }
    const struct tool_format *known = request->api->tool_format;
    bool has_channels = known && known->has_channels;
    if (!request->endpoint->collect) return true; // generates nothing
    if (!json_array_size(tools) && (!has_channels || !request->chat.form)) return true;
    if (!request->api->tool_format && request->chat.form) {
        return api_error_set(
            &request->error, 400, "unsupported", "tools",
            "tools beside a form of the answer are not supported, because the format "
            "in which this model writes tool calls is not known");
    }
    if (!request->api->tool_format) return any_strict ? leave_out_strict(request) : true;
    if (jread_get(request->chat.form, "structural_tag")) {
        if (!json_array_size(tools)) return true; // it says where the channels are
        return request_params_unsupported(request, "structural_tag",
                                          "a structural tag beside tools");
    }
    json_t *text = NULL;
    if (request->chat.form && !request->chat.forces_call) {
        text = json_pack("{s:s, s:O}", "type", "structured_outputs", "structured_outputs",
                         request->chat.form);
        if (!text) return api_error_nomem(&request->error);
    }
    if (!request->chat.forces_call && !any_strict && !text) return true;
    size_t count = json_array_size(tools);
    struct tool_form_function *functions = calloc(count ? count : 1, sizeof *functions);
    bool is_good = functions ? set_functions(request, tools, name, functions, text)
                             : api_error_nomem(&request->error);
    for (size_t i = 0; functions && i < count; i++) json_decref(functions[i].parameters);
    free(functions);
    json_decref(text);
    return is_good;
}
