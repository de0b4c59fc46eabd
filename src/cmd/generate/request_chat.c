#include "cmd/generate/request_chat.h"

#include <string.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "text/unicode/unicode.h"

const char *const request_chat_members[REQUEST_CHAT_MEMBERS] = {"messages",
                                                                "tools",
                                                                "documents",
                                                                "add_generation_prompt",
                                                                "continue_final_message",
                                                                "chat_template_kwargs"};

bool request_chat_has_member(const char *name) {
    for (size_t i = 0; i < REQUEST_CHAT_MEMBERS; i++) {
        if (strcmp(request_chat_members[i], name) == 0) return true;
    }
    return false;
}

enum status request_chat_set_kwargs(struct request_chat_defaults *defaults, const char *json,
                                    struct err *err) {
    enum status status =
        jread_request(&defaults->template_kwargs, json, strlen(json), "the value", err);
    if (status) return status == ERR_NOMEM ? status : ERR_INVALID;
    if (jread_is_object(defaults->template_kwargs)) return OK;
    return err_set(err, ERR_INVALID, "the value is %s, want an object like {\"name\": value}",
                   jread_type_name(defaults->template_kwargs));
}

// {"role": role, "content": text}
static enum status make_message(json_t **out, const char *role, const char *text, size_t len,
                                struct err *err) {
    struct utf8_partial partial = {0};
    struct buf clean = {0};
    enum status status = buf_reserve(&clean, len, err);
    if (!status) status = utf8_append_lossy(&partial, text, len, &clean, err);
    if (!status) status = utf8_append_end(&partial, &clean, err);
    json_t *message = status ? NULL : json_object();
    if (message && (json_object_set_new(message, "role", json_string(role)) ||
                    json_object_set_new(message, "content", json_stringn(clean.data, clean.len)))) {
        json_decref(message);
        message = NULL;
    }
    if (!status && !message) status = err_nomem(err, "chat");
    buf_fini(&clean);
    *out = message;
    return status;
}

static bool begins_with_system(const json_t *messages) {
    const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    return role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

// Copies the messages, so that the line's own stay unchanged.
static enum status add_system(json_t *chat, const char *system, struct err *err) {
    json_t *messages = json_object_get(chat, "messages"), *message = NULL;
    if (!json_is_array(messages) || begins_with_system(messages)) return OK;
    enum status status = make_message(&message, "system", system, strlen(system), err);
    if (status) return status;
    json_t *all = json_array();
    if (!all || json_array_append(all, message) || json_array_extend(all, messages) ||
        json_object_set(chat, "messages", all)) {
        status = err_nomem(err, "chat");
    }
    json_decref(message);
    json_decref(all);
    return status;
}

static enum status add_kwargs(json_t *chat, json_t *kwargs, struct err *err) {
    json_t *own = jread_get(chat, "chat_template_kwargs");
    if (own && !jread_is_object(own)) return OK; // the library reports its type
    json_t *all = json_object();
    enum status status = OK;
    if (!all || json_object_update(all, kwargs) || (own && json_object_update(all, own)) ||
        json_object_set(chat, "chat_template_kwargs", all)) {
        status = err_nomem(err, "chat");
    }
    json_decref(all);
    return status;
}

static enum status add_prompt(json_t *chat, const char *prompt, size_t len, struct err *err) {
    json_t *message = NULL, *messages = json_array();
    enum status status = make_message(&message, "user", prompt, len, err);
    if (!status && (!messages || json_array_append(messages, message) ||
                    json_object_set(chat, "messages", messages))) {
        status = err_nomem(err, "chat");
    }
    json_decref(message);
    json_decref(messages);
    return status;
}

enum status request_chat_make(const json_t *members, const char *prompt, size_t len,
                              const struct request_chat_defaults *defaults, char **out,
                              size_t *out_len, struct err *err) {
    *out = NULL;
    *out_len = 0;
    struct buf text = {0};
    json_t *chat = json_object(), *from = (json_t *)(uintptr_t)members;
    enum status status = OK;
    if (!chat || (members && json_object_update(chat, from))) status = err_nomem(err, "chat");
    if (!status && prompt) status = add_prompt(chat, prompt, len, err);
    if (!status && defaults->system) status = add_system(chat, defaults->system, err);
    if (!status && defaults->template_kwargs) {
        status = add_kwargs(chat, defaults->template_kwargs, err);
    }
    if (!status) status = jwrite(&text, chat, JSON_COMPACT, "chat", err);
    json_decref(chat);
    if (status) {
        buf_fini(&text);
        return status;
    }
    *out = text.data;
    *out_len = text.len;
    return OK;
}
