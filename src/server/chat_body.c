#include "server/chat_body.h"

#include <string.h>

#include "base/jread.h"
#include "base/jwrite.h"
#include "server/body.h"
#include "server/submit.h"

// What nvllm_chat_template_render knows of a chat; all else in the body is not the template's.
static const char *const chat_members[] = {"messages",
                                           "tools",
                                           "documents",
                                           "add_generation_prompt",
                                           "continue_final_message",
                                           "chat_template_kwargs"};

static bool check_message(struct call *call, const json_t *message) {
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    if (!jread_is_object(message)) {
        return api_error_invalid(&call->error, "messages", "a message is %s, want an object",
                                 jread_type_name(message));
    }
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; role && i < ARRAY_LEN(roles); i++) {
        if (strcmp(role, roles[i]) == 0) return true;
    }
    if (!role) return api_error_invalid(&call->error, "messages", "a message has no role");
    return api_error_invalid(&call->error, "messages",
                             "a message has the role \"%.40s\", which is not known", role);
}

static bool check_messages(struct call *call) {
    const json_t *messages = body_get(call, "messages");
    if (!messages) return api_error_invalid(&call->error, "messages", "messages is missing");
    if (!json_is_array(messages)) return body_wrong_type(call, "messages", messages, "a list");
    if (!json_array_size(messages)) {
        return api_error_invalid(&call->error, "messages", "messages is empty");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!check_message(call, json_array_get(messages, i))) return false;
    }
    return true;
}

static bool has_tool(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *own = json_string_value(json_object_get(function, "name"));
        if (own && strcmp(own, name) == 0) return true;
    }
    return false;
}

static bool check_tool(struct call *call, const json_t *tool) {
    const json_t *function = json_object_get(tool, "function");
    const char *type = json_string_value(json_object_get(tool, "type"));
    const char *name = json_string_value(json_object_get(function, "name"));
    size_t len = name ? strlen(name) : 0;
    bool good = type && strcmp(type, "function") == 0 && len >= 1 && len <= 256;
    if (!good) {
        return api_error_invalid(&call->error, "tools",
                                 "a tool is not of the form {\"type\": \"function\", "
                                 "\"function\": {\"name\": ...}}");
    }
    const json_t *parameters = jread_get(function, "parameters");
    if (!parameters || jread_is_object(parameters)) return true;
    return api_error_invalid(&call->error, "tools",
                             "the parameters of a tool are %s, want an object",
                             jread_type_name(parameters));
}

static bool check_tools(struct call *call) {
    const json_t *tools = body_get(call, "tools");
    if (!tools) return true;
    if (!json_is_array(tools)) return body_wrong_type(call, "tools", tools, "a list");
    if (!json_array_size(tools)) return api_error_invalid(&call->error, "tools", "tools is empty");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (!check_tool(call, json_array_get(tools, i))) return false;
    }
    return true;
}

// auto and none pass; a call that must be made needs a parser that forces its beginning.
static bool check_tool_choice(struct call *call) {
    const json_t *choice = body_get(call, "tool_choice"), *tools = body_get(call, "tools");
    if (!choice) return true;
    const char *word = json_string_value(choice);
    if (word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)) {
        if (tools || word[0] == 'n') return true;
        return api_error_invalid(&call->error, "tool_choice", "tool_choice is given without tools");
    }
    if (!tools) {
        return api_error_invalid(&call->error, "tool_choice", "tool_choice is given without tools");
    }
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (name && !has_tool(tools, name)) {
        return api_error_invalid(&call->error, "tool_choice",
                                 "tool_choice names \"%.64s\", which is not among the tools", name);
    }
    if (name || (word && strcmp(word, "required") == 0)) {
        return api_error_set(&call->error, 400, "unsupported", "tool_choice",
                             "a tool_choice other than auto and none is not supported yet");
    }
    return api_error_invalid(&call->error, "tool_choice",
                             "tool_choice is not known, want \"auto\" or \"none\"");
}

static bool check_template_members(struct call *call) {
    bool add = true, go_on = false;
    if (!body_bool(call, "continue_final_message", &go_on)) return false;
    add = !go_on;
    if (!body_bool(call, "add_generation_prompt", &add)) return false;
    if (add && go_on) {
        return api_error_invalid(&call->error, "continue_final_message",
                                 "continue_final_message and add_generation_prompt exclude each "
                                 "other");
    }
    const json_t *kwargs = body_get(call, "chat_template_kwargs");
    if (kwargs && !jread_is_object(kwargs)) {
        return body_wrong_type(call, "chat_template_kwargs", kwargs, "an object");
    }
    if (!body_get(call, "chat_template")) return true;
    return api_error_set(&call->error, 400, "unsupported", "chat_template",
                         "a chat_template in a request is not supported: it is the server's");
}

bool chat_body_check(struct call *call) {
    return check_messages(call) && check_tools(call) && check_tool_choice(call) &&
           check_template_members(call);
}

// The members of the chat, as text.
static bool write_chat(struct call *call, struct buf *out) {
    json_t *chat = json_object();
    bool is_good = chat != NULL;
    for (size_t i = 0; is_good && i < ARRAY_LEN(chat_members); i++) {
        json_t *value = body_get(call, chat_members[i]);
        if (value) is_good = json_object_set(chat, chat_members[i], value) == 0;
    }
    bool go_on = json_is_true(body_get(call, "continue_final_message"));
    if (is_good && go_on) {
        is_good = json_object_set_new(chat, "add_generation_prompt", json_false()) == 0;
    }
    if (is_good) is_good = jwrite(out, chat, JSON_COMPACT, "chat", NULL) == OK;
    json_decref(chat);
    return is_good ? true : api_error_nomem(&call->error);
}

// The sentence of a template's fault names its file, which clients are not to see.
static void hide_path(char *sentence, const char *path) {
    size_t len = path ? strlen(path) : 0;
    while (len && path[len - 1] == '/') len--;
    char *at;
    while (len && (at = memmem(sentence, strlen(sentence), path, len))) {
        size_t skip = at[len] == '/' ? len + 1 : len;
        memmove(at, at + skip, strlen(at + skip) + 1);
    }
}

bool chat_body_render(struct call *call, char **text, size_t *len) {
    const struct server_options *options = call->api->options;
    struct nvllm_error fault = {0};
    struct buf chat = {0};
    const struct nvllm_chat_template *chat_template =
        nvllm_engine_chat_template(call->api->engine, &fault);
    enum nvllm_status status = fault.status;
    bool is_good = chat_template != NULL && write_chat(call, &chat);
    if (is_good) {
        status = nvllm_chat_template_render(chat_template, chat.data, chat.len, &call->interrupt,
                                            text, len, &fault);
    }
    buf_fini(&chat);
    hide_path(fault.message, options->chat_template_path);
    hide_path(fault.message, options->model_path);
    if (chat_template && !is_good) return false;
    return api_error_library(&call->error, chat_template ? status : NVLLM_ERR_INVALID, &fault,
                             "messages");
}

bool chat_body_encode(struct call *call, struct choice *choice) {
    char *text = NULL;
    size_t len = 0;
    if (!chat_body_render(call, &text, &len)) return false;
    // The template writes its own BOS and the like.
    bool is_good = submit_encode(call, choice, text, len, false, "messages");
    nvllm_free(text);
    if (!is_good || choice->num_prompt_ids) return is_good;
    return api_error_invalid(&call->error, "messages", "the chat has an empty prompt");
}
