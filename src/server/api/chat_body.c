#include "server/api/chat_body.h"

#include <string.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/os/secret.h"
#include "base/text/blank.h"
#include "server/api/chat_tools.h"
#include "server/loop/body.h"
#include "server/loop/submit.h"

// What nvllm_chat_template_render knows of a chat; all else in the body is not the template's.
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

// Answers have it as `reasoning`, templates read `reasoning_content`.
static bool rename_reasoning(struct api_request *request) {
    json_t *messages = body_get(request, "messages");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        json_t *reasoning = jread_get(message, "reasoning");
        const json_t *old = jread_get(message, "reasoning_content");
        if (!is_text_or_none(request, reasoning) || !is_text_or_none(request, old)) return false;
        if (!reasoning || old) continue;
        if (json_object_set(message, "reasoning_content", reasoning)) {
            return api_error_nomem(&request->error);
        }
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
    const char *effort = NULL;
    if (!body_string(request, "reasoning_effort", &effort)) return false;
    if (!effort) return true;
    for (size_t i = 0; i < ARRAY_LEN(efforts); i++) {
        if (strcmp(efforts[i], effort) != 0) continue;
        return set_variable(request, "reasoning_effort", json_string(effort)) &&
               (i > 0 || set_variable(request, "enable_thinking", json_false()));
    }
    return api_error_invalid(&request->error, "reasoning_effort",
                             "reasoning_effort is not known, want none, minimal, low, medium, "
                             "high, xhigh or max");
}

bool chat_body_check(struct api_request *request) {
    return check_messages(request) && chat_tools_check(request) &&
           check_template_members(request) && rename_reasoning(request) && apply_effort(request);
}

// The members of the chat, as text.
static bool write_chat(struct api_request *request, struct buf *out) {
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
    if (is_good) is_good = jwrite(out, chat, JSON_COMPACT, "chat", NULL) == OK;
    json_decref(chat);
    return is_good ? true : api_error_nomem(&request->error);
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
    struct buf chat = {0};
    char *text = NULL;
    size_t len = 0;
    enum nvllm_status status = NVLLM_ERR_INVALID;
    if (request->api->chat_template) {
        if (!write_chat(request, &chat)) return false;
        status = nvllm_chat_template_render(request->api->chat_template, chat.data, chat.len,
                                            &request->interrupt, &text, &len, &fault);
    }
    buf_fini(&chat);
    if (!status && buf_append(out, text, len, NULL)) status = NVLLM_ERR_NOMEM;
    nvllm_free(text);
    hide_path(fault.message, options->chat_template_path);
    hide_path(fault.message, options->model_path);
    return api_error_library(&request->error, status, &fault, "messages");
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

// What divides the answers to the prompt. Its last `begun` bytes are the beginning of each answer.
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
        submit_encode(request, prompt, text.data, text.len, add_special_tokens, "messages") &&
        make_splits(request, prompt, &text, begun_len(request, text.data, text.len));
    buf_fini(&text);
    if (!is_good || prompt->num_ids) return is_good;
    return api_error_invalid(&request->error, "messages", "the chat has an empty prompt");
}
