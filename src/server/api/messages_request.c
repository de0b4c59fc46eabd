#include "server/api/messages_request.h"

#include <string.h>

#include "base/json/jread.h"
#include "server/api/convert.h"
#include "server/api/unsupported.h"
#include "server/loop/body.h"

static bool is_type(const json_t *block, const char *type) {
    const char *own = json_string_value(json_object_get(block, "type"));
    return own && strcmp(own, type) == 0;
}

// A block of an assistant that is not text: a tool call, or thinking.
static bool convert_block(struct api_request *request, const json_t *block, json_t *message) {
    if (is_type(block, "tool_use")) {
        return convert_call(request, message, json_object_get(block, "id"),
                            json_object_get(block, "name"), jread_get(block, "input"), "messages");
    }
    if (is_type(block, "redacted_thinking")) return true; // nobody can read it
    json_t *thinking = json_object_get(block, "thinking");
    if (!json_is_string(thinking)) {
        return api_error_invalid(&request->error, "messages",
                                 "messages has a block of thinking without its text");
    }
    return json_object_set(message, "reasoning_content", thinking) == 0
               ? true
               : api_error_nomem(&request->error);
}

static bool is_special_block(const json_t *block) {
    return is_type(block, "tool_use") || is_type(block, "thinking") ||
           is_type(block, "redacted_thinking");
}

static bool convert_assistant(struct api_request *request, const json_t *content, json_t *out) {
    json_t *message = convert_begin(request, out, "assistant"), *texts = json_array();
    bool is_good = message && texts;
    if (!is_good) api_error_nomem(&request->error);
    for (size_t i = 0; is_good && i < json_array_size(content); i++) {
        json_t *block = json_array_get(content, i);
        if (is_special_block(block)) {
            is_good = convert_block(request, block, message);
        } else if (json_array_append(texts, block)) {
            is_good = api_error_nomem(&request->error);
        }
    }
    if (is_good && json_array_size(texts)) {
        is_good = convert_content(request, message, texts, "messages");
    }
    json_decref(texts);
    return is_good;
}

// A message with the texts from `*next` up to the next result of a tool.
static bool convert_texts(struct api_request *request, const json_t *content, size_t *next,
                          json_t *out) {
    json_t *texts = json_array();
    bool is_good = texts ? true : api_error_nomem(&request->error);
    for (; is_good && *next < json_array_size(content); (*next)++) {
        json_t *block = json_array_get(content, *next);
        if (is_type(block, "tool_result")) break;
        if (json_array_append(texts, block)) is_good = api_error_nomem(&request->error);
    }
    is_good = is_good && convert_message(request, out, "user", texts, "messages");
    json_decref(texts);
    return is_good;
}

// Results of tools are messages of their own, before and after the user's texts.
static bool convert_user(struct api_request *request, const json_t *content, json_t *out) {
    bool is_good = true;
    for (size_t next = 0; is_good && next < json_array_size(content);) {
        const json_t *block = json_array_get(content, next);
        if (is_type(block, "tool_result")) {
            is_good = convert_result(request, out, json_object_get(block, "tool_use_id"),
                                     jread_get(block, "content"), "messages");
            next++;
        } else {
            is_good = convert_texts(request, content, &next, out);
        }
    }
    return is_good;
}

static bool convert_one(struct api_request *request, const json_t *message, json_t *out) {
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    bool is_user = role && strcmp(role, "user") == 0;
    if (!is_user && (!role || strcmp(role, "assistant") != 0)) {
        return api_error_invalid(&request->error, "messages",
                                 "a message has a role other than user and assistant");
    }
    if (!json_array_size(content)) return convert_message(request, out, role, content, "messages");
    return is_user ? convert_user(request, content, out) : convert_assistant(request, content, out);
}

static bool convert_messages(struct api_request *request, json_t *out) {
    const json_t *messages = body_get(request, "messages"), *system = body_get(request, "system");
    if (!json_is_array(messages) || !json_array_size(messages)) {
        return api_error_invalid(&request->error, "messages", "messages is missing or empty");
    }
    if (system && !convert_message(request, out, "system", system, "system")) return false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!convert_one(request, json_array_get(messages, i), out)) return false;
    }
    // The last message may be the beginning of the answer.
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    bool is_begun = strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0;
    return convert_set(request, "continue_final_message", json_boolean(is_begun));
}

static bool convert_tools(struct api_request *request, const json_t *tools, json_t *out) {
    if (!json_is_array(tools)) return body_wrong_type(request, "tools", tools, "a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *kind = jread_get(tool, "type");
        const char *type = json_string_value(kind);
        if (kind && !type)
            return body_wrong_type(request, "tools", kind, "a string as a tool's type");
        if (type && strcmp(type, "custom") != 0) {
            return api_error_set(&request->error, 400, "unsupported", "tools",
                                 "a tool is of the type \"%.60s\", which runs elsewhere: want "
                                 "tools with a name and an input_schema",
                                 type);
        }
        if (!convert_tool(request, out, json_object_get(tool, "name"),
                          jread_get(tool, "description"), jread_get(tool, "input_schema"))) {
            return false;
        }
    }
    return true;
}

static bool convert_choice(struct api_request *request) {
    const json_t *choice = body_get(request, "tool_choice");
    if (!choice) return true;
    const char *name = json_string_value(json_object_get(choice, "name"));
    const json_t *single = jread_get(choice, "disable_parallel_tool_use");
    if (single && !json_is_boolean(single)) {
        return body_wrong_type(request, "tool_choice", single,
                               "true or false in disable_parallel_tool_use");
    }
    if (json_is_true(single) && !convert_set(request, "parallel_tool_calls", json_false()))
        return false;
    if (is_type(choice, "tool") && name) return convert_tool_choice(request, NULL, name);
    if (is_type(choice, "any")) return convert_tool_choice(request, "required", NULL);
    if (is_type(choice, "auto")) return convert_tool_choice(request, "auto", NULL);
    if (is_type(choice, "none")) return convert_tool_choice(request, "none", NULL);
    return api_error_invalid(&request->error, "tool_choice",
                             "tool_choice is not known, want the type auto, any, none, or tool "
                             "with a name");
}

// Templates know whether to think, not how long.
static bool convert_thinking(struct api_request *request) {
    const json_t *thinking = body_get(request, "thinking");
    if (!thinking) return true;
    if (!jread_is_object(thinking))
        return body_wrong_type(request, "thinking", thinking, "an object");
    if (is_type(thinking, "enabled") || is_type(thinking, "adaptive")) return true;
    if (is_type(thinking, "disabled")) {
        return convert_set(request, "reasoning_effort", json_string("none"));
    }
    return api_error_invalid(&request->error, "thinking",
                             "thinking has no known type, want enabled, disabled or adaptive");
}

// Of output_config only the effort is read: all else would constrain the answer.
static bool convert_output_config(struct api_request *request) {
    static const char *const refused[] = {"output_format", "mcp_servers", "container",
                                          "context_management"};
    json_t *config = body_get(request, "output_config");
    if (!unsupported_refuse_keys(request, refused, ARRAY_LEN(refused))) return false;
    if (!config) return true;
    if (!jread_is_object(config)) {
        return body_wrong_type(request, "output_config", config, "an object");
    }
    const char *key;
    json_t *value;
    json_object_foreach(config, key, value) {
        if (json_is_null(value) || strcmp(key, "effort") == 0) continue;
        return api_error_set(&request->error, 400, "unsupported", "output_config",
                             "output_config.%.40s is not supported yet", key);
    }
    json_t *effort = jread_get(config, "effort");
    return effort ? convert_set(request, "reasoning_effort", json_incref(effort)) : true;
}

static bool set_tools(struct api_request *request) {
    const json_t *tools = body_get(request, "tools");
    if (!tools) return true;
    json_t *out = json_array();
    bool is_good = out ? convert_tools(request, tools, out) : api_error_nomem(&request->error);
    if (is_good) return convert_set(request, "tools", out);
    json_decref(out);
    return false;
}

bool messages_request_convert(struct api_request *request) {
    json_t *out = json_array();
    bool is_good = out ? convert_messages(request, out) : api_error_nomem(&request->error);
    if (!is_good) {
        json_decref(out);
        return false;
    }
    return convert_set(request, "messages", out) && set_tools(request) && convert_choice(request) &&
           convert_output_config(request) && convert_thinking(request);
}
