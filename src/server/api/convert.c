#include "server/api/convert.h"

#include <string.h>

#include "base/json/jread.h"
#include "server/loop/body.h"

static bool is_text(const char *type) {
    static const char *const types[] = {"text", "input_text", "output_text"};
    for (size_t i = 0; type && i < ARRAY_LEN(types); i++) {
        if (strcmp(types[i], type) == 0) return true;
    }
    return false;
}

// Text blocks as chat completions have them: {"type": "text", "text": ...}.
static bool convert_blocks(struct api_request *request, const json_t *blocks, json_t *out,
                           const char *param) {
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        if (!api_request_is_wanted(request)) return false;
        const json_t *block = json_array_get(blocks, i);
        const char *type = json_string_value(json_object_get(block, "type"));
        json_t *text = json_object_get(block, "text");
        if (!is_text(type) || !json_is_string(text)) {
            return api_error_set(&request->error, 400, "unsupported", param,
                                 "%s has a part that is not text", param);
        }
        json_t *part = json_object();
        if (!part || json_object_set_new(part, "type", json_string("text")) ||
            json_object_set(part, "text", text) || json_array_append_new(out, part)) {
            return api_error_nomem(&request->error);
        }
    }
    return true;
}

json_t *convert_begin(struct api_request *request, json_t *messages, const char *role) {
    if (!api_request_is_wanted(request)) return NULL;
    json_t *message = json_object();
    bool is_good = message && json_object_set_new(message, "role", json_string(role)) == 0 &&
                   json_array_append(messages, message) == 0;
    json_decref(message); // the list has it
    if (!is_good) api_error_nomem(&request->error);
    return is_good ? message : NULL;
}

bool convert_content(struct api_request *request, json_t *message, const json_t *content,
                     const char *param) {
    json_t *parts = NULL;
    if (json_is_string(content)) {
        parts = json_stringn(json_string_value(content), json_string_length(content));
    } else if (json_is_array(content)) {
        parts = json_array();
        if (parts && !convert_blocks(request, content, parts, param)) {
            json_decref(parts);
            return false;
        }
    } else {
        return api_error_set(&request->error, 400, "invalid_type", param,
                             "%s has a content that is neither text nor a list", param);
    }
    return json_object_set_new(message, "content", parts) == 0 ? true
                                                               : api_error_nomem(&request->error);
}

bool convert_message(struct api_request *request, json_t *messages, const char *role,
                     const json_t *content, const char *param) {
    json_t *message = convert_begin(request, messages, role);
    return message && convert_content(request, message, content, param);
}

// A copy, which the caller takes: jansson's own functions for it know no const.
static json_t *copy_string(const json_t *value) {
    return json_stringn(json_string_value(value), json_string_length(value));
}

bool convert_call(struct api_request *request, json_t *message, const json_t *id,
                  const json_t *name, json_t *arguments, const char *param) {
    if (!api_request_is_wanted(request)) return false;
    bool good = json_is_string(id) && json_is_string(name) &&
                (!arguments || json_is_string(arguments) || jread_is_object(arguments));
    if (!good) {
        return api_error_invalid(&request->error, param,
                                 "%s has a call without an id, a name or arguments", param);
    }
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls) {
        calls = json_array();
        if (json_object_set_new(message, "tool_calls", calls))
            return api_error_nomem(&request->error);
    }
    json_t *function = json_pack("{s:o}", "name", copy_string(name));
    if (function && arguments && json_object_set(function, "arguments", arguments)) {
        json_decref(function);
        function = NULL;
    }
    json_t *one = json_pack("{s:o, s:s, s:o}", "id", copy_string(id), "type", "function",
                            "function", function);
    return json_array_append_new(calls, one) == 0 ? true : api_error_nomem(&request->error);
}

bool convert_result(struct api_request *request, json_t *messages, const json_t *id,
                    const json_t *content, const char *param) {
    json_t *message = convert_begin(request, messages, "tool");
    if (!message) return false;
    if (!json_is_string(id)) {
        return api_error_invalid(&request->error, param, "%s has a result without its call's id",
                                 param);
    }
    if (json_object_set_new(message, "tool_call_id", copy_string(id))) {
        return api_error_nomem(&request->error);
    }
    if (content) return convert_content(request, message, content, param);
    return json_object_set_new(message, "content", json_string("")) == 0
               ? true
               : api_error_nomem(&request->error);
}

bool convert_tool(struct api_request *request, json_t *tools, const json_t *tool,
                  json_t *parameters) {
    const json_t *name = json_object_get(tool, "name");
    json_t *description = jread_get(tool, "description"), *strict = jread_get(tool, "strict");
    if (!api_request_is_wanted(request)) return false;
    if (!json_is_string(name)) {
        return api_error_invalid(&request->error, "tools", "a tool has no name");
    }
    json_t *function = json_pack("{s:o}", "name", copy_string(name));
    bool is_good = function &&
                   (!description || json_object_set(function, "description", description) == 0) &&
                   (!strict || json_object_set(function, "strict", strict) == 0) &&
                   (!parameters || json_object_set(function, "parameters", parameters) == 0);
    json_t *converted =
        is_good ? json_pack("{s:s, s:O}", "type", "function", "function", function) : NULL;
    json_decref(function);
    return json_array_append_new(tools, converted) == 0 ? true : api_error_nomem(&request->error);
}

bool convert_tool_choice(struct api_request *request, const char *word, const char *name) {
    json_t *choice = name
                         ? json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name)
                         : json_string(word);
    return convert_set(request, "tool_choice", choice);
}

bool convert_set(struct api_request *request, const char *key, json_t *value) {
    return json_object_set_new(request->root, key, value) == 0 ? true
                                                               : api_error_nomem(&request->error);
}

bool convert_effort(struct api_request *request, const char *member, const char *part,
                    json_t *effort) {
    if (!effort) return true;
    request->chat.effort_member = member;
    request->chat.effort_part = part;
    return convert_set(request, "reasoning_effort", json_incref(effort));
}

bool convert_list(struct api_request *request, const char *key,
                  bool (*fill)(struct api_request *request, json_t *list)) {
    json_t *list = json_array();
    bool is_good = list ? fill(request, list) : api_error_nomem(&request->error);
    if (is_good) return convert_set(request, key, list);
    json_decref(list);
    return false;
}
