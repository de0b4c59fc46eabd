#include "server/api/responses_request.h"

#include <string.h>

#include "base/json/jread.h"
#include "server/api/convert.h"
#include "server/api/unsupported.h"
#include "server/loop/body.h"

// ---- input ----

// The assistant's message that a tool call or an answer belongs to: the last one, else a new one.
static json_t *assistant_of(struct api_request *request, json_t *out) {
    json_t *last = json_array_get(out, json_array_size(out) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    bool is_assistant = role && strcmp(role, "assistant") == 0;
    return is_assistant ? last : convert_begin(request, out, "assistant");
}

static bool convert_item_message(struct api_request *request, const json_t *item, json_t *out) {
    const char *role = json_string_value(json_object_get(item, "role"));
    const json_t *content = json_object_get(item, "content");
    if (!role)
        return api_error_invalid(&request->error, "input", "input has a message without a role");
    if (strcmp(role, "assistant") != 0)
        return convert_message(request, out, role, content, "input");
    // An answer goes on with what its reasoning began.
    json_t *message = assistant_of(request, out);
    if (message && json_object_get(message, "content")) {
        message = convert_begin(request, out, "assistant");
    }
    return message && convert_content(request, message, content, "input");
}

static bool convert_item_reasoning(struct api_request *request, const json_t *item, json_t *out) {
    const json_t *content = json_object_get(item, "content");
    json_t *text = json_object_get(json_array_get(content, 0), "text");
    if (!json_is_string(text)) return true; // a summary, or encrypted: no template reads it
    json_t *message = convert_begin(request, out, "assistant");
    if (!message) return false;
    return json_object_set(message, "reasoning_content", text) == 0
               ? true
               : api_error_nomem(&request->error);
}

static bool convert_item(struct api_request *request, const json_t *item, json_t *out) {
    const json_t *kind = jread_get(item, "type");
    const char *type = json_string_value(kind);
    if (kind && !type) {
        return api_error_invalid(&request->error, "input", "input has an item whose type is %s",
                                 jread_type_name(kind));
    }
    if (!jread_is_object(item)) {
        return api_error_invalid(&request->error, "input", "input has an item that is %s",
                                 jread_type_name(item));
    }
    if (!type || strcmp(type, "message") == 0) return convert_item_message(request, item, out);
    if (strcmp(type, "reasoning") == 0) return convert_item_reasoning(request, item, out);
    if (strcmp(type, "function_call") == 0) {
        json_t *message = assistant_of(request, out);
        return message &&
               convert_call(request, message, json_object_get(item, "call_id"),
                            json_object_get(item, "name"), jread_get(item, "arguments"), "input");
    }
    if (strcmp(type, "function_call_output") == 0) {
        return convert_result(request, out, json_object_get(item, "call_id"),
                              jread_get(item, "output"), "input");
    }
    return api_error_set(&request->error, 400, "unsupported", "input",
                         "input has an item of the type \"%.60s\", which is not supported", type);
}

static bool convert_input(struct api_request *request, json_t *out) {
    const json_t *input = body_get(request, "input"),
                 *instructions = body_get(request, "instructions");
    if (instructions && !json_is_string(instructions)) {
        return body_wrong_type(request, "instructions", instructions, "a string");
    }
    if (instructions && !convert_message(request, out, "system", instructions, "instructions")) {
        return false;
    }
    if (json_is_string(input)) return convert_message(request, out, "user", input, "input");
    if (!json_is_array(input) || !json_array_size(input)) {
        return api_error_invalid(&request->error, "input", "input is missing or empty");
    }
    for (size_t i = 0; i < json_array_size(input); i++) {
        if (!convert_item(request, json_array_get(input, i), out)) return false;
    }
    return true;
}

// ---- tools ----

static bool convert_tools(struct api_request *request, json_t *out) {
    const json_t *tools = body_get(request, "tools");
    if (!json_is_array(tools)) return body_wrong_type(request, "tools", tools, "a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!type || strcmp(type, "function") != 0) {
            return api_error_set(&request->error, 400, "unsupported", "tools",
                                 "a tool is of the type \"%.60s\", want \"function\"",
                                 type ? type : "");
        }
        if (!convert_tool(request, out, json_object_get(tool, "name"),
                          jread_get(tool, "description"), jread_get(tool, "parameters"))) {
            return false;
        }
    }
    return true;
}

// {"type": "function", "name": ...} becomes chat completions' form; words stay.
static bool convert_choice(struct api_request *request) {
    const json_t *choice = body_get(request, "tool_choice");
    const char *name = json_string_value(json_object_get(choice, "name"));
    const char *type = json_string_value(json_object_get(choice, "type"));
    bool is_function = name && type && strcmp(type, "function") == 0;
    return is_function ? convert_tool_choice(request, NULL, name) : true;
}

static bool set_tools(struct api_request *request) {
    if (!body_get(request, "tools")) return true;
    json_t *out = json_array();
    bool is_good = out ? convert_tools(request, out) : api_error_nomem(&request->error);
    if (is_good) return convert_set(request, "tools", out);
    json_decref(out);
    return false;
}

static bool convert_reasoning(struct api_request *request) {
    json_t *reasoning = body_get(request, "reasoning");
    if (!reasoning) return true;
    if (!jread_is_object(reasoning)) {
        return body_wrong_type(request, "reasoning", reasoning, "an object");
    }
    json_t *effort = jread_get(reasoning, "effort");
    return effort ? convert_set(request, "reasoning_effort", json_incref(effort)) : true;
}

// ---- all ----

// What the answer is to contain beside its text. Reasoning comes as it is, never encrypted.
static bool refuse_include(struct api_request *request) {
    const json_t *include = body_get(request, "include");
    if (include && !json_is_array(include)) {
        return body_wrong_type(request, "include", include, "a list");
    }
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *part = json_string_value(json_array_get(include, i));
        if (part && strcmp(part, "reasoning.encrypted_content") == 0) continue;
        return api_error_set(&request->error, 400, "unsupported", "include",
                             "include asks for \"%.60s\", which is not supported",
                             part ? part : "");
    }
    return true;
}

static bool is_word(const json_t *value, const char *word) {
    const char *text = json_string_value(value);
    return text && strcmp(text, word) == 0;
}

static bool refuse_text(struct api_request *request) {
    const json_t *text = body_get(request, "text"), *format = jread_get(text, "format");
    const json_t *verbosity = jread_get(text, "verbosity");
    if (text && !jread_is_object(text)) return body_wrong_type(request, "text", text, "an object");
    if (verbosity && !is_word(verbosity, "medium")) {
        return unsupported_set(request, "text", "a verbosity other than medium");
    }
    if (!format || is_word(json_object_get(format, "type"), "text")) return true;
    return unsupported_set(request, "text", "a format other than text");
}

static bool refuse_state(struct api_request *request) {
    static const char *const keys[] = {"previous_response_id",
                                       "conversation",
                                       "prompt",
                                       "background",
                                       "previous_input_messages",
                                       "enable_response_messages"};
    bool background = false;
    int64_t num_top = 0;
    if (!body_bool(request, "background", &background) ||
        !unsupported_refuse_keys(request, keys, ARRAY_LEN(keys)) ||
        !body_int(request, "top_logprobs", 0, NVLLM_LOGPROBS_MAX, &num_top)) {
        return false;
    }
    if (num_top) return unsupported_set(request, "top_logprobs", "top_logprobs of this endpoint");
    const json_t *metadata = body_get(request, "metadata"); // the answer repeats it
    if (metadata && !jread_is_object(metadata)) {
        return body_wrong_type(request, "metadata", metadata, "an object");
    }
    const json_t *truncation = body_get(request, "truncation");
    if (truncation && !is_word(truncation, "disabled")) {
        return unsupported_set(request, "truncation", "a truncation other than disabled");
    }
    return refuse_include(request) && refuse_text(request);
}

bool responses_request_convert(struct api_request *request) {
    if (!refuse_state(request)) return false;
    json_t *out = json_array();
    bool is_good = out ? convert_input(request, out) : api_error_nomem(&request->error);
    if (!is_good) {
        json_decref(out);
        return false;
    }
    return convert_set(request, "messages", out) && set_tools(request) && convert_choice(request) &&
           convert_reasoning(request);
}
