/* Looks up each key: those of the request and of a chat are named here, all others are in the
 * library's sampling table. An unknown key is an error: with a typo in "temperature" the request
 * would otherwise silently run with another one. The library checks the types and ranges of values
 * in the same way for C, flags and lines. */
#include "cmd/generate/request_line.h"

#include <stdlib.h>
#include <string.h>

#include "api/parsed.h"
#include "base/json/jread.h"
#include "base/text/suggest.h"
#include "cmd/cli.h"
#include "text/unicode/unicode.h"

// ---- chats ----

static const char *const chat_members[] = {"messages",
                                           "tools",
                                           "documents",
                                           "add_generation_prompt",
                                           "continue_final_message",
                                           "chat_template_kwargs"};

static bool is_chat_member(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(chat_members); i++) {
        if (strcmp(chat_members[i], name) == 0) return true;
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
                              const struct request_chat_defaults *defaults, json_t **out,
                              struct err *err) {
    *out = NULL;
    json_t *chat = json_object(), *from = (json_t *)(uintptr_t)members;
    enum status status = OK;
    if (!chat || (members && json_object_update(chat, from))) status = err_nomem(err, "chat");
    if (!status && prompt) status = add_prompt(chat, prompt, len, err);
    if (!status && defaults->system) status = add_system(chat, defaults->system, err);
    if (!status && defaults->template_kwargs) {
        status = add_kwargs(chat, defaults->template_kwargs, err);
    }
    if (status) {
        json_decref(chat);
        return status;
    }
    *out = chat;
    return OK;
}

// ---- lines ----

static const char *const request_keys[] = {"prompt", "prompt_token_ids", "cache_salt"};
enum { NUM_REQUEST_KEYS = sizeof request_keys / sizeof request_keys[0], KEYS_MAX = 64 };

static bool is_sampling_param(const char *name) {
    const struct nvllm_param *row;
    for (size_t i = 0; (row = nvllm_sampling_param(i)); i++) {
        if (strcmp(row->name, name) == 0) return true;
    }
    return false;
}

static enum status unknown_key(const char *key, struct err *err) {
    const char *names[KEYS_MAX];
    size_t num_names = 0;
    for (; num_names < NUM_REQUEST_KEYS; num_names++) names[num_names] = request_keys[num_names];
    for (size_t i = 0; i < ARRAY_LEN(chat_members); i++) names[num_names++] = chat_members[i];
    const struct nvllm_param *row;
    for (size_t i = 0; (row = nvllm_sampling_param(i)) && num_names < KEYS_MAX; i++) {
        names[num_names++] = row->name;
    }
    const char *nearest = suggest_nearest(key, names, num_names);
    if (nearest) {
        return err_set(err, ERR_INVALID, "unknown key \"%.60s\"; did you mean \"%s\"?", key,
                       nearest);
    }
    return err_set(err, ERR_INVALID, "unknown key \"%.60s\"", key);
}

static enum status read_ids(struct request_line *line, const json_t *value, struct err *err) {
    if (!json_is_array(value)) {
        return err_set(err, ERR_FORMAT, "\"prompt_token_ids\" is %s, want a list of token ids",
                       jread_type_name(value));
    }
    size_t num_ids = json_array_size(value);
    line->prompt_token_ids = malloc((num_ids ? num_ids : 1) * sizeof *line->prompt_token_ids);
    if (!line->prompt_token_ids) return err_nomem(err, "prompt_token_ids");
    line->num_prompt_token_ids = num_ids;
    for (size_t i = 0; i < num_ids; i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id)) {
            return err_set(err, ERR_FORMAT, "\"prompt_token_ids\"[%zu] is %s, want an integer", i,
                           jread_type_name(id));
        }
        json_int_t number = json_integer_value(id);
        if (number < 0 || number > INT32_MAX) {
            return err_set(err, ERR_FORMAT, "\"prompt_token_ids\"[%zu] is %lld, not a token id", i,
                           (long long)number);
        }
        line->prompt_token_ids[i] = (int32_t)number;
    }
    return OK;
}

static enum status set_sampling(struct request_line *line, const char *key, const json_t *value,
                                struct err *err) {
    struct nvllm_error error = {0};
    return cli_status(api_sampling_params_set(&line->sampling, key, value, &error), &error, err);
}

// `chat` collects the members of the line's chat.
static enum status set_key(struct request_line *line, json_t *chat, const char *key, json_t *value,
                           struct err *err) {
    if (is_chat_member(key)) {
        if (json_is_null(value)) return OK;
        return json_object_set(chat, key, value) ? err_nomem(err, "request") : OK;
    }
    if (strcmp(key, "prompt_token_ids") == 0) {
        return json_is_null(value) ? OK : read_ids(line, value, err);
    }
    bool prompt = strcmp(key, "prompt") == 0;
    if (prompt || strcmp(key, "cache_salt") == 0) {
        if (json_is_null(value)) return OK;
        if (!json_is_string(value)) {
            return err_set(err, ERR_FORMAT, "\"%s\" is %s, want a string", key,
                           jread_type_name(value));
        }
        if (prompt) {
            line->prompt = json_string_value(value);
            line->prompt_len = json_string_length(value);
            return OK;
        }
        line->cache_salt = json_string_value(value);
        if (strlen(line->cache_salt) != json_string_length(value)) {
            return err_set(err, ERR_FORMAT, "\"cache_salt\" contains a NUL character");
        }
        return OK;
    }
    if (!is_sampling_param(key)) return unknown_key(key, err);
    return json_is_null(value) ? OK : set_sampling(line, key, value, err);
}

static enum status check_prompt(const struct request_line *line, const json_t *chat, bool wrap,
                                struct err *err) {
    bool messages = json_object_get(chat, "messages") != NULL;
    const char *first = line->prompt ? "prompt" : "prompt_token_ids";
    const char *second = messages ? "messages" : "prompt_token_ids";
    if ((line->prompt != NULL) + (line->prompt_token_ids != NULL) + messages > 1) {
        return err_set(err, ERR_INVALID, "both \"%s\" and \"%s\" are given, want one", first,
                       second);
    }
    if (!line->prompt && !line->prompt_token_ids && !messages) {
        return err_set(err, ERR_INVALID,
                       "none of \"prompt\", \"messages\" and \"prompt_token_ids\" is given");
    }
    if (messages || !json_object_size(chat) || (line->prompt && wrap)) return OK;
    return err_set(err, ERR_INVALID, "\"%s\" belongs to a chat and needs \"messages\"",
                   json_object_iter_key(json_object_iter((json_t *)(uintptr_t)chat)));
}

static enum status make_chat(struct request_line *line, const json_t *members,
                             const struct request_chat_defaults *defaults, struct err *err) {
    bool wrap = line->prompt && defaults->wrap_prompts;
    if (!wrap && !json_object_get(members, "messages")) return OK;
    return request_chat_make(members, line->prompt, line->prompt_len, defaults, &line->chat, err);
}

// Removes "line 1, " from a JSON error's position, because the text is one line.
static void drop_line_number(struct err *err) {
    static const char number[] = "line 1, ";
    char *at = err ? strstr(err->message, number) : NULL;
    if (at) memmove(at, at + sizeof number - 1, strlen(at + sizeof number - 1) + 1);
}

static enum status read_keys(struct request_line *line,
                             const struct request_chat_defaults *defaults, struct err *err) {
    json_t *chat = json_object();
    enum status status = chat ? OK : err_nomem(err, "request");
    const char *key;
    json_t *value;
    json_object_foreach(line->root, key, value) {
        if (!status) status = set_key(line, chat, key, value, err);
    }
    if (!status) status = check_prompt(line, chat, defaults->wrap_prompts, err);
    if (!status) status = make_chat(line, chat, defaults, err);
    json_decref(chat);
    return status;
}

static enum status parse(struct request_line *line, const char *text, size_t len,
                         const struct request_chat_defaults *defaults, struct err *err) {
    // A prompt may contain NUL.
    line->memory_left = jread_request_memory(len);
    enum status status =
        jread_request_part(&line->root, text, len, &line->memory_left, "this", err);
    if (status == ERR_FORMAT) drop_line_number(err);
    if (status) return status;
    if (!jread_is_object(line->root)) {
        return err_set(err, ERR_FORMAT, "the line is %s, want an object",
                       jread_type_name(line->root));
    }
    return read_keys(line, defaults, err);
}

static void init(struct request_line *line, const struct request_defaults *defaults) {
    *line = (struct request_line){.sampling = *defaults->sampling};
    line->sampling.owned = NULL; // the memory still belongs to the defaults
}

enum status request_line_parse(struct request_line *line, const char *text, size_t len,
                               const struct request_defaults *defaults, struct err *err) {
    init(line, defaults);
    enum status status = parse(line, text, len, &defaults->chat, err);
    if (status) request_line_fini(line);
    return status;
}

enum status request_line_from_text(struct request_line *line, const char *text, size_t len,
                                   const struct request_defaults *defaults, struct err *err) {
    init(line, defaults);
    line->prompt = text;
    line->prompt_len = len;
    line->memory_left = jread_request_memory(len);
    enum status status = make_chat(line, NULL, &defaults->chat, err);
    if (status) request_line_fini(line);
    return status;
}

void request_line_fini(struct request_line *line) {
    json_decref(line->root);
    free(line->prompt_token_ids);
    json_decref(line->chat);
    buf_fini(&line->rendered);
    if (line->sampling.owned) nvllm_sampling_params_fini(&line->sampling);
    *line = (struct request_line){0};
}
