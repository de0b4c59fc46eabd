#include "server/api/chat_tools.h"

#include <string.h>

#include "base/json/jread.h"
#include "server/loop/body.h"

enum { NAME_BYTES_MAX = 256 };

static const char *tool_name(const json_t *tool) {
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

// Printable ASCII; OpenAI allows fewer, some clients use dots and slashes.
static bool is_good_name(const json_t *name) {
    const char *text = json_string_value(name);
    size_t len = json_string_length(name);
    if (!text || !len || len > NAME_BYTES_MAX) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < ' ' || text[i] > '~') return false;
    }
    return true;
}

static bool check_tool(struct api_request *request, const json_t *tool) {
    const json_t *function = json_object_get(tool, "function");
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (!type || strcmp(type, "function") != 0 ||
        !is_good_name(json_object_get(function, "name"))) {
        return api_error_invalid(&request->error, "tools",
                                 "a tool is not of the form {\"type\": \"function\", "
                                 "\"function\": {\"name\": ...}} with a name of 1 to %d printable "
                                 "ASCII characters",
                                 NAME_BYTES_MAX);
    }
    const json_t *description = jread_get(function, "description");
    if (description && !json_is_string(description)) {
        return api_error_invalid(&request->error, "tools",
                                 "the description of a tool is %s, want a string",
                                 jread_type_name(description));
    }
    const json_t *parameters = jread_get(function, "parameters");
    if (!parameters || jread_is_object(parameters)) return true;
    return api_error_invalid(&request->error, "tools",
                             "the parameters of a tool are %s, want an object",
                             jread_type_name(parameters));
}

static bool check_tools(struct api_request *request, const json_t *tools) {
    if (!tools) return true;
    if (!json_is_array(tools)) return body_wrong_type(request, "tools", tools, "a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (!check_tool(request, json_array_get(tools, i))) return false;
    }
    return true;
}

static bool has_tool(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (strcmp(tool_name(json_array_get(tools, i)), name) == 0) return true;
    }
    return false;
}

// The beginning of a call of this tool.
static bool add_prefix(struct api_request *request, const char *name) {
    struct chat_plan *chat = &request->chat;
    struct buf text = {0};
    struct err err = {0};
    enum status status = tool_format_begin_call(request->api->tool_format, name, &text, &err);
    if (!status) chat->call_prefixes[chat->num_call_prefixes++] = text.data;
    if (!status) return true;
    buf_fini(&text);
    if (status != ERR_INVALID) return api_error_nomem(&request->error);
    return api_error_invalid(&request->error, "tool_choice", "%s", err.message);
}

// A call of any tool, or of the one with this name.
static bool read_forced(struct api_request *request, const json_t *tools, const char *name) {
    if (name && !has_tool(tools, name)) {
        return api_error_invalid(&request->error, "tool_choice",
                                 "tool_choice names \"%.64s\", which is not among the tools", name);
    }
    if (!request->api->tool_format) {
        return api_error_set(&request->error, 400, "unsupported", "tool_choice",
                             "the format in which this model writes tool calls is not known, so no "
                             "call can be forced: want tool_choice auto or none");
    }
    size_t num_tools = name ? 1 : json_array_size(tools);
    request->chat.forces_call = true;
    request->chat.call_prefixes = calloc(num_tools, sizeof *request->chat.call_prefixes);
    if (!request->chat.call_prefixes) return api_error_nomem(&request->error);
    for (size_t i = 0; i < num_tools; i++) {
        if (!add_prefix(request, name ? name : tool_name(json_array_get(tools, i)))) return false;
    }
    return true;
}

static bool read_choice(struct api_request *request, const json_t *tools) {
    const json_t *choice = body_get(request, "tool_choice");
    const char *word = choice ? json_string_value(choice) : "auto";
    if (word && strcmp(word, "none") == 0) {
        request->chat.hides_tools = true;
        return true;
    }
    if (word && strcmp(word, "auto") == 0) return true;
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (!name && (!word || strcmp(word, "required") != 0)) {
        return api_error_invalid(&request->error, "tool_choice",
                                 "tool_choice is not known, want \"auto\", \"none\", \"required\" "
                                 "or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    if (json_array_size(tools)) return read_forced(request, tools, name);
    return api_error_invalid(&request->error, "tool_choice",
                             "tool_choice demands a call, but there are no tools");
}

// llama-server's: "none" leaves reasoning in the text.
static bool read_reasoning_format(struct api_request *request, bool *keeps_reasoning) {
    const char *format = "auto";
    if (!body_string(request, "reasoning_format", &format)) return false;
    *keeps_reasoning = strcmp(format, "none") == 0;
    if (*keeps_reasoning || strcmp(format, "auto") == 0 || strcmp(format, "deepseek") == 0) {
        return true;
    }
    return api_error_invalid(&request->error, "reasoning_format",
                             "reasoning_format is not known, want auto, deepseek or none");
}

// What the answer is divided into.
static bool fill_split(struct api_request *request, bool has_tools) {
    struct chat_split_options *split = &request->chat.split;
    bool parallel = true, include_reasoning = true, keeps_reasoning = false;
    if (!read_reasoning_format(request, &keeps_reasoning) ||
        !body_bool(request, "parallel_tool_calls", &parallel) ||
        !body_bool(request, "include_reasoning", &include_reasoning)) {
        return false;
    }
    split->splits_reasoning = request->api->splits_reasoning && !keeps_reasoning;
    split->drops_reasoning = !include_reasoning;
    split->one_call = !parallel;
    split->format = has_tools ? request->api->tool_format : NULL;
    bool needs_special = (split->format && request->api->calls_in_special) ||
                         (split->splits_reasoning && request->api->thinks_in_special);
    if (needs_special) request->sampling.skip_special_tokens = 0;
    return true;
}

bool chat_tools_check(struct api_request *request) {
    const json_t *tools = body_get(request, "tools");
    if (!check_tools(request, tools) || !read_choice(request, tools)) return false;
    // Agents send an empty list. A template may tell it from none.
    request->chat.hides_tools |= !json_array_size(tools);
    bool has_tools = !request->chat.hides_tools;
    if (has_tools && !request->api->reads_tools) {
        return api_error_set(&request->error, 400, "unsupported", "tools",
                             "the chat template of this model knows no tools");
    }
    return fill_split(request, has_tools);
}

static bool check_history_call(struct api_request *request, const json_t *tool_call) {
    const json_t *function = json_object_get(tool_call, "function");
    const json_t *arguments = jread_get(function, "arguments");
    const json_t *type = jread_get(tool_call, "type"), *id = jread_get(tool_call, "id");
    const char *word = type ? json_string_value(type) : "function";
    bool good = word && strcmp(word, "function") == 0 && (!id || json_is_string(id)) &&
                json_is_string(json_object_get(function, "name")) &&
                (!arguments || json_is_string(arguments) || jread_is_object(arguments));
    if (good) return true;
    return api_error_invalid(
        &request->error, "messages",
        "a tool call of a message is not of the form {\"function\": {\"name\": "
        "..., \"arguments\": ...}}");
}

bool chat_tools_check_message(struct api_request *request, const json_t *message,
                              const char *role) {
    if (strcmp(role, "tool") == 0) {
        if (json_is_string(json_object_get(message, "tool_call_id"))) return true;
        return api_error_invalid(&request->error, "messages",
                                 "a message of the role tool has no tool_call_id");
    }
    const json_t *calls = jread_get(message, "tool_calls");
    if (!calls) return true;
    if (!json_is_array(calls)) {
        return api_error_invalid(&request->error, "messages",
                                 "the tool_calls of a message are %s, want a list",
                                 jread_type_name(calls));
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        if (!check_history_call(request, json_array_get(calls, i))) return false;
    }
    return true;
}
