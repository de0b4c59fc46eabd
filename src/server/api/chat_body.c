#include "server/api/chat_body.h"

#include <string.h>

#include "api/parsed.h"
#include "base/json/jread.h"
#include "base/os/secret.h"
#include "base/text/blank.h"
#include "server/api/tool_grammar.h"
#include "server/loop/api_request.h"
#include "server/loop/body.h"

// ---- tools ----

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
    const json_t *strict = jread_get(function, "strict");
    if (strict && !json_is_boolean(strict)) {
        return api_error_invalid(&request->error, "tools",
                                 "strict of a tool is %s, want true or false",
                                 jread_type_name(strict));
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
    request->chat.forces_call = true;
    return true;
}

// *named is the function that tool_choice names; it stays NULL for none.
static bool read_choice(struct api_request *request, const json_t *tools, const char **named) {
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
    *named = name;
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

// Sets into which parts the answer is divided: reasoning, content, tool calls.
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
    const struct tool_format *format = request->api->tool_format;
    bool has_text_marks = format && format->text_marks[0];
    split->format = has_tools || has_text_marks ? format : NULL;
    split->calls_are_text = !has_tools;
    split->tools = has_tools ? body_get(request, "tools") : NULL;
    split->has_channels = request->api->tool_format && request->api->tool_format->has_channels;
    bool needs_special = split->has_channels || (split->format && request->api->calls_in_special) ||
                         (split->splits_reasoning && request->api->thinks_in_special);
    if (needs_special) request->sampling.skip_special_tokens = 0;
    return true;
}

// Checks tools, tool_choice, parallel_tool_calls and include_reasoning, and fills request->chat.
// False: request->error is set.
static bool chat_tools_check(struct api_request *request) {
    const json_t *tools = body_get(request, "tools");
    const char *named = NULL;
    if (!check_tools(request, tools) || !read_choice(request, tools, &named)) return false;
    // Agents send an empty list. A template may tell it from none.
    request->chat.hides_tools |= !json_array_size(tools);
    bool has_tools = !request->chat.hides_tools;
    if (has_tools && !request->api->reads_tools) {
        return api_error_set(&request->error, 400, "unsupported", "tools",
                             "the chat template of this model knows no tools");
    }
    return fill_split(request, has_tools) &&
           tool_grammar_set(request, has_tools ? tools : NULL, named);
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

// Checks an assistant's tool_calls, and that a tool's message says which call it answers.
static bool chat_tools_check_message(struct api_request *request, const json_t *message,
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

// ---- the chat ----

// Whether one of the templates names this variable. One that does not cannot read it.
static bool template_reads(const struct api_request *request, const char *name) {
    const struct nvllm_chat_template *chat_template = request->api->chat_template;
    for (int has_tools = 0; chat_template && has_tools < 2; has_tools++) {
        size_t len = 0;
        const char *source = api_chat_source(chat_template, has_tools, &len);
        if (source && memmem(source, len, name, strlen(name))) return true;
    }
    return false;
}

// What api_chat_render knows of a chat; all else in the body is not the template's.
static const char *const chat_members[] = {"messages",
                                           "tools",
                                           "documents",
                                           "add_generation_prompt",
                                           "continue_final_message",
                                           "chat_template_kwargs"};

// Any role may be: the template knows which it has.
static bool check_message(struct api_request *request, const json_t *message) {
    if (!api_request_is_wanted(request)) return false;
    if (!jread_is_object(message)) {
        return api_error_invalid(&request->error, "messages", "a message is %s, want an object",
                                 jread_type_name(message));
    }
    const json_t *role = json_object_get(message, "role");
    const char *text = json_string_value(role);
    if (!text || !*text || strlen(text) != json_string_length(role)) {
        return api_error_invalid(&request->error, "messages",
                                 "a message has no role that is text without NUL characters");
    }
    return chat_tools_check_message(request, message, text);
}

static bool check_messages(struct api_request *request) {
    const json_t *messages = body_get(request, "messages");
    if (!messages) return api_error_invalid(&request->error, "messages", "messages is missing");
    if (!json_is_array(messages)) return body_wrong_type(request, "messages", messages, "a list");
    if (!json_array_size(messages)) {
        return api_error_invalid(&request->error, "messages", "messages is empty");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!check_message(request, json_array_get(messages, i))) return false;
    }
    return true;
}

static const json_t *last_message(struct api_request *request) {
    const json_t *messages = body_get(request, "messages");
    return json_array_get(messages, json_array_size(messages) - 1);
}

// Without a generation prompt the answer goes on in the role of the last message.
static bool check_template_members(struct api_request *request) {
    bool add = true, go_on = false;
    const json_t *last = last_message(request);
    if (!body_bool(request, "continue_final_message", &go_on)) return false;
    add = !go_on;
    if (!body_bool(request, "add_generation_prompt", &add)) return false;
    if (add && go_on) {
        return api_error_invalid(&request->error, "continue_final_message",
                                 "continue_final_message and add_generation_prompt exclude each "
                                 "other");
    }
    if (!add) request->chat.last_role = json_incref(json_object_get(last, "role"));
    request->chat.role = add ? "assistant" : json_string_value(request->chat.last_role);
    const json_t *kwargs = body_get(request, "chat_template_kwargs");
    if (kwargs && !jread_is_object(kwargs)) {
        return body_wrong_type(request, "chat_template_kwargs", kwargs, "an object");
    }
    // Clients send variables of other models' templates.
    if (!body_leave_out_unknown(request, "chat_template_kwargs", kwargs, template_reads)) {
        return false;
    }
    if (!body_get(request, "chat_template")) return true;
    return api_error_set(&request->error, 400, "unsupported", "chat_template",
                         "a chat_template in a request is not supported: it is the server's");
}

static bool is_text_or_none(struct api_request *request, const json_t *value) {
    if (!value || json_is_string(value)) return true;
    return api_error_invalid(&request->error, "messages",
                             "the reasoning of a message is %s, want a string",
                             jread_type_name(value));
}

// gpt-oss' template reads it as `thinking`, and refuses it beside the content of a message with
// calls.
static bool copy_thinking(struct api_request *request, json_t *message) {
    json_t *reasoning = jread_get(message, "reasoning_content");
    const struct tool_format *format = request->api->tool_format;
    bool has_content = json_string_length(jread_get(message, "content")) > 0;
    bool has_calls = json_array_size(jread_get(message, "tool_calls")) > 0;
    if (!format || !format->has_channels || !reasoning || jread_get(message, "thinking")) {
        return true;
    }
    if (has_content && has_calls) return true;
    return json_object_set(message, "thinking", reasoning) == 0 ? true
                                                                : api_error_nomem(&request->error);
}

// Answers have it as `reasoning`, templates read `reasoning_content`.
static bool rename_reasoning(struct api_request *request) {
    json_t *messages = body_get(request, "messages");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        json_t *reasoning = jread_get(message, "reasoning");
        const json_t *old = jread_get(message, "reasoning_content");
        if (!is_text_or_none(request, reasoning) || !is_text_or_none(request, old)) return false;
        if (reasoning && !old && json_object_set(message, "reasoning_content", reasoning)) {
            return api_error_nomem(&request->error);
        }
        if (!copy_thinking(request, message)) return false;
    }
    return true;
}

// Sets a variable of the template that the request does not set itself. Takes `value`.
static bool set_variable(struct api_request *request, const char *name, json_t *value) {
    json_t *kwargs = body_get(request, "chat_template_kwargs");
    bool is_good = value != NULL;
    if (is_good && !kwargs) {
        kwargs = json_object();
        is_good = json_object_set_new(request->root, "chat_template_kwargs", kwargs) == 0;
    }
    if (is_good && !json_object_get(kwargs, name)) {
        is_good = json_object_set(kwargs, name, value) == 0;
    }
    json_decref(value);
    return is_good ? true : api_error_nomem(&request->error);
}

// Templates read the effort as a variable, or know only whether to think.
static bool apply_effort(struct api_request *request) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    const char *part = request->chat.effort_part;
    const char *member = request->chat.effort_member;
    if (!member) member = "reasoning_effort";
    const json_t *value = body_get(request, "reasoning_effort");
    if (!value) return true;
    if (!json_is_string(value)) {
        return api_error_set(&request->error, 400, "invalid_type", member,
                             "%s%s%s is %s, want a string", member, part ? "." : "",
                             part ? part : "", jread_type_name(value));
    }
    const char *effort = json_string_value(value);
    for (size_t i = 0; i < ARRAY_LEN(efforts); i++) {
        if (strcmp(efforts[i], effort) != 0) continue;
        bool is_read = template_reads(request, "reasoning_effort") ||
                       (i == 0 && template_reads(request, "enable_thinking"));
        if (!is_read && !body_leave_out(request, member, part)) return false;
        return set_variable(request, "reasoning_effort", json_string(effort)) &&
               (i > 0 || set_variable(request, "enable_thinking", json_false()));
    }
    return api_error_invalid(&request->error, member,
                             "%s%s%s is not known, want none, minimal, low, medium, high, xhigh "
                             "or max",
                             member, part ? "." : "", part ? part : "");
}

bool chat_body_check(struct api_request *request) {
    return check_messages(request) && chat_tools_check(request) &&
           check_template_members(request) && rename_reasoning(request) && apply_effort(request);
}

// The members of the chat, which they share with the body. NULL: no memory.
static json_t *make_chat(struct api_request *request) {
    json_t *chat = json_object();
    bool is_good = chat != NULL;
    for (size_t i = 0; is_good && i < ARRAY_LEN(chat_members); i++) {
        json_t *value = body_get(request, chat_members[i]);
        if (request->chat.hides_tools && strcmp(chat_members[i], "tools") == 0) continue;
        if (value) is_good = json_object_set(chat, chat_members[i], value) == 0;
    }
    bool go_on = json_is_true(body_get(request, "continue_final_message"));
    if (is_good && go_on) {
        is_good = json_object_set_new(chat, "add_generation_prompt", json_false()) == 0;
    }
    if (is_good) return chat;
    json_decref(chat);
    return NULL;
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

bool chat_body_render(struct api_request *request, struct buf *out) {
    const struct server_options *options = request->api->options;
    struct nvllm_error fault = request->api->chat_fault;
    enum nvllm_status status = NVLLM_ERR_INVALID;
    if (request->api->chat_template) {
        json_t *chat = make_chat(request);
        if (!chat) return api_error_nomem(&request->error);
        status = api_chat_render(request->api->chat_template, chat, request->memory_left,
                                 &request->interrupt, out, &fault);
        json_decref(chat);
    }
    hide_path(fault.message, options->chat_template_path);
    hide_path(fault.message, options->model_path);
    const char *member = body_blamed(request, fault.message, "messages");
    return api_error_library(&request->error, status, &fault, member);
}

// With continue_final_message the last message is the beginning of the answer; of a list of parts
// the last one.
static const json_t *begun_text(struct api_request *request) {
    if (!json_is_true(body_get(request, "continue_final_message"))) return NULL;
    const json_t *content = json_object_get(last_message(request), "content");
    size_t num_parts = json_array_size(content);
    if (num_parts) content = json_object_get(json_array_get(content, num_parts - 1), "text");
    return json_is_string(content) ? content : NULL;
}

static enum status append_text(struct buf *out, const json_t *text) {
    if (!json_is_string(text)) return OK;
    return buf_append(out, json_string_value(text), json_string_length(text), NULL);
}

// Parts are lines, as templates that take only strings get them.
bool chat_body_echo(struct api_request *request, struct buf *out) {
    const json_t *message = last_message(request), *content = json_object_get(message, "content");
    if (strcmp(json_string_value(json_object_get(message, "role")), request->chat.role) != 0) {
        return true;
    }
    enum status status = append_text(out, content);
    for (size_t i = 0; i < json_array_size(content) && !status; i++) {
        if (i) status = buf_append_str(out, "\n", NULL);
        if (!status) {
            status = append_text(out, json_object_get(json_array_get(content, i), "text"));
        }
    }
    return status ? api_error_nomem(&request->error) : true;
}

static size_t count_blanks(const char *text, size_t len) {
    size_t count = 0;
    while (count < len && is_blank(text[len - 1 - count])) count++;
    return count;
}

// The bytes that the prompt's end has of the answer's beginning. A template may have trimmed it:
// then the prompt ends with fewer blanks, and as many are cut here. Every other cut would differ in
// the last byte that is none.
static size_t begun_len(struct api_request *request, const char *prompt, size_t prompt_len) {
    const json_t *begun = begun_text(request);
    const char *text = json_string_value(begun);
    size_t len = json_string_length(begun), lead = 0;
    while (lead < len && is_blank(text[lead])) lead++;
    size_t blanks = count_blanks(text, len), kept = count_blanks(prompt, prompt_len);
    if (lead == len || kept > blanks || !prompt_len || !prompt) return 0;
    size_t rest = len - lead - (blanks - kept);
    bool is_end = rest <= prompt_len && !memcmp(prompt + prompt_len - rest, text + lead, rest);
    return is_end ? rest : 0;
}

// Makes the splitter of each answer to the prompt. The prompt's last `begun` bytes are the
// beginning of each answer, so splitters read them first.
static bool make_splits(struct api_request *request, struct prompt *prompt, const struct buf *text,
                        size_t begun) {
    struct chat_split_options options = request->chat.split;
    size_t before = text->len - begun;
    for (uint32_t i = 0; i < (uint32_t)request->sampling.n; i++) {
        options.seed = secret_make();
        struct chat_split *split = chat_split_create(&options, text->data, before);
        prompt->choices[i].split = split;
        if (!split || (begun && chat_split_begin(split, text->data + before, begun, NULL))) {
            return api_error_nomem(&request->error);
        }
    }
    return true;
}

bool chat_body_encode(struct api_request *request, struct prompt *prompt) {
    struct buf text = {0};
    bool add_special_tokens = false; // the template writes its own BOS and the like
    if (!body_bool(request, "add_special_tokens", &add_special_tokens)) return false;
    bool is_good =
        chat_body_render(request, &text) &&
        api_request_encode(request, prompt, text.data, text.len, add_special_tokens, "messages") &&
        make_splits(request, prompt, &text, begun_len(request, text.data, text.len));
    buf_fini(&text);
    if (!is_good || prompt->num_ids) return is_good;
    return api_error_invalid(&request->error, "messages", "the chat has an empty prompt");
}
