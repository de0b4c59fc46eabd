/* Everything is first checked on the JSON as it came, so that errors name places in the caller's
 * chat. Then the messages are changed: in place where the parsed tree is ours, else copies of
 * those that need it. */
#include "text/chat/chat_messages.h"

#include <string.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/text/suggest.h"

static const char *const members[] = {"messages",
                                      "tools",
                                      "documents",
                                      "add_generation_prompt",
                                      "continue_final_message",
                                      "chat_template_kwargs",
                                      "now"};

// transformers sets these variables from its own arguments, and giving them twice is an error
// there.
static const char *const own_variables[] = {"messages", "tools", "documents",
                                            "add_generation_prompt", "continue_final_message"};

// A copy whose members or items are shared. NULL: no memory. json_copy would lose some then.
static json_t *copy_of(const json_t *value) {
    json_t *from = (json_t *)(uintptr_t)value;
    json_t *copy = json_is_array(value) ? json_array() : json_object();
    int fault =
        json_is_array(value) ? json_array_extend(copy, from) : json_object_update(copy, from);
    if (!fault) return copy;
    json_decref(copy);
    return NULL;
}

json_t *chat_own_item(const struct chat *chat, json_t *list, size_t index) {
    json_t *item = json_array_get(list, index);
    if (!chat->is_shared) return item;
    json_t *copy = copy_of(item);
    return json_array_set_new(list, index, copy) ? NULL : copy;
}

json_t *chat_own_member(const struct chat *chat, json_t *object, const char *key) {
    json_t *member = json_object_get(object, key);
    if (!chat->is_shared) return member;
    json_t *copy = copy_of(member);
    return json_object_set_new_nocheck(object, key, copy) ? NULL : copy;
}

static bool is_one_of(const char *name, const char *const *names, size_t num_names) {
    for (size_t i = 0; i < num_names; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

static enum status check_members(json_t *root, struct err *err) {
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        if (is_one_of(key, members, ARRAY_LEN(members))) continue;
        const char *nearest = suggest_nearest(key, members, ARRAY_LEN(members));
        if (nearest) {
            return err_set(err, ERR_INVALID, "a chat has no \"%.60s\"; did you mean \"%s\"?", key,
                           nearest);
        }
        return err_set(err, ERR_INVALID,
                       "a chat has no \"%.60s\" (variables of the template are given in "
                       "\"chat_template_kwargs\")",
                       key);
    }
    return OK;
}

// Reads a member that must be a list of objects; *out is NULL where it is not given.
static enum status read_list(json_t *root, const char *name, json_t **out, struct err *err) {
    *out = jread_get(root, name);
    if (!*out) return OK;
    if (!json_is_array(*out)) {
        return err_set(err, ERR_FORMAT, "\"%s\" is %s, want a list", name, jread_type_name(*out));
    }
    for (size_t i = 0; i < json_array_size(*out); i++) {
        const json_t *item = json_array_get(*out, i);
        if (jread_is_object(item)) continue;
        return err_set(err, ERR_FORMAT, "%s[%zu] is %s, want an object", name, i,
                       jread_type_name(item));
    }
    return OK;
}

static enum status read_flag(const json_t *root, const char *name, bool *out, struct err *err) {
    const json_t *value = jread_get(root, name);
    if (!value) return OK;
    if (!json_is_boolean(value)) {
        return err_set(err, ERR_FORMAT, "\"%s\" is %s, want true or false", name,
                       jread_type_name(value));
    }
    *out = json_is_true(value);
    return OK;
}

static enum status read_flags(struct chat *chat, struct err *err) {
    bool add = false;
    enum status status =
        read_flag(chat->root, "continue_final_message", &chat->continue_final_message, err);
    if (!status) status = read_flag(chat->root, "add_generation_prompt", &add, err);
    if (status) return status;
    if (add && chat->continue_final_message) {
        return err_set(err, ERR_INVALID,
                       "\"continue_final_message\" goes on with the last message, "
                       "\"add_generation_prompt\" begins another: want one of them");
    }
    bool given = jread_get(chat->root, "add_generation_prompt") != NULL;
    chat->add_generation_prompt = given ? add : !chat->continue_final_message;
    return OK;
}

static enum status read_kwargs(struct chat *chat, struct err *err) {
    chat->template_kwargs = jread_get(chat->root, "chat_template_kwargs");
    if (!chat->template_kwargs) return OK;
    if (!jread_is_object(chat->template_kwargs)) {
        return err_set(err, ERR_FORMAT, "\"chat_template_kwargs\" is %s, want an object",
                       jread_type_name(chat->template_kwargs));
    }
    const char *name;
    json_t *value;
    json_object_foreach(chat->template_kwargs, name, value) {
        if (!is_one_of(name, own_variables, ARRAY_LEN(own_variables))) continue;
        return err_set(err, ERR_INVALID,
                       "\"chat_template_kwargs\" has \"%s\", which is a member of the chat itself",
                       name);
    }
    return OK;
}

static enum status check_part(const json_t *part, size_t message, size_t i, struct err *err) {
    const json_t *type = json_object_get(part, "type");
    if (!json_is_string(type)) {
        return err_set(err, ERR_FORMAT,
                       "messages[%zu].content[%zu] is %s, want an object {\"type\": \"text\", "
                       "\"text\": ...}",
                       message, i,
                       jread_is_object(part) ? "without a type" : jread_type_name(part));
    }
    if (strcmp(json_string_value(type), "text") != 0) {
        return err_set(err, ERR_UNSUPPORTED,
                       "messages[%zu].content[%zu] is of type \"%.40s\"; this engine reads text "
                       "only",
                       message, i, json_string_value(type));
    }
    const json_t *text = json_object_get(part, "text");
    if (json_is_string(text)) return OK;
    return err_set(err, ERR_FORMAT, "messages[%zu].content[%zu].text is %s, want a string", message,
                   i, jread_type_name(text));
}

static enum status check_content(const json_t *message, size_t index, const char *role,
                                 struct err *err) {
    const json_t *content = jread_get(message, "content");
    if (json_is_string(content)) return OK;
    // An assistant may have only called tools, or only thought.
    if (!content && strcmp(role, "assistant") == 0) return OK;
    if (!json_is_array(content)) {
        return err_set(err, ERR_FORMAT,
                       "messages[%zu].content is %s, want a string or a list of text parts", index,
                       jread_type_name(json_object_get(message, "content")));
    }
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(content) && !status; i++) {
        status = check_part(json_array_get(content, i), index, i, err);
    }
    return status;
}

static enum status check_tool_calls(const json_t *message, size_t index, struct err *err) {
    const json_t *calls = jread_get(message, "tool_calls");
    if (!calls) return OK;
    if (!json_is_array(calls)) {
        return err_set(err, ERR_FORMAT, "messages[%zu].tool_calls is %s, want a list", index,
                       jread_type_name(calls));
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        if (jread_is_object(call)) continue;
        return err_set(err, ERR_FORMAT, "messages[%zu].tool_calls[%zu] is %s, want an object",
                       index, i, jread_type_name(call));
    }
    return OK;
}

static enum status check_message(const json_t *message, size_t index, struct err *err) {
    if (!jread_is_object(message)) {
        return err_set(err, ERR_FORMAT, "messages[%zu] is %s, want an object", index,
                       jread_type_name(message));
    }
    const json_t *role = json_object_get(message, "role");
    if (!json_is_string(role)) {
        return err_set(err, ERR_FORMAT, "messages[%zu].role is %s, want a string", index,
                       jread_type_name(role));
    }
    enum status status = check_content(message, index, json_string_value(role), err);
    return status ? status : check_tool_calls(message, index, err);
}

static enum status read_messages(struct chat *chat, struct err *err) {
    json_t *messages =
        json_is_array(chat->root) ? chat->root : json_object_get(chat->root, "messages");
    if (!json_is_array(messages)) {
        return err_set(err, ERR_FORMAT, "\"messages\" is %s, want a list",
                       jread_type_name(messages));
    }
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(messages) && !status; i++) {
        status = check_message(json_array_get(messages, i), i, err);
    }
    if (status) return status;
    chat->messages = chat->is_shared ? copy_of(messages) : json_incref(messages);
    return chat->messages ? OK : err_nomem(err, "chat");
}

static enum status read(struct chat *chat, struct err *err) {
    enum status status = OK;
    if (!json_is_array(chat->root) && !jread_is_object(chat->root)) {
        return err_set(err, ERR_FORMAT, "the chat is %s, want a list of messages or an object",
                       jread_type_name(chat->root));
    }
    if (json_is_object(chat->root)) status = check_members(chat->root, err);
    if (!status) status = read_messages(chat, err);
    if (!status) status = read_list(chat->root, "tools", &chat->tools, err);
    if (!status) status = read_list(chat->root, "documents", &chat->documents, err);
    if (!status) status = read_kwargs(chat, err);
    if (!status) status = read_flags(chat, err);
    if (!status) status = chat_now_read(&chat->now, json_object_get(chat->root, "now"), err);
    if (!status && !json_array_size(chat->messages)) { // templates read the first message
        status = err_set(err, ERR_INVALID, "\"messages\" is empty, want at least one message");
    }
    return status;
}

enum status chat_read(struct chat *chat, const char *text, size_t len, struct err *err) {
    *chat = (struct chat){.memory_left = jread_request_memory(len)};
    enum status status =
        jread_request_part(&chat->root, text, len, &chat->memory_left, "the chat", err);
    if (!status) status = read(chat, err);
    if (status) chat_fini(chat);
    return status;
}

enum status chat_read_json(struct chat *chat, const json_t *root, size_t memory_left,
                           struct err *err) {
    *chat = (struct chat){.root = json_incref((json_t *)(uintptr_t)root),
                          .is_shared = true,
                          .memory_left = memory_left};
    enum status status = read(chat, err);
    if (status) chat_fini(chat);
    return status;
}

void chat_fini(struct chat *chat) {
    json_decref(chat->messages);
    json_decref(chat->root);
    *chat = (struct chat){0};
}

// Replaces a list of text parts by one string, the parts joined by newlines.
static enum status join_parts(const struct chat *chat, size_t index, const json_t *parts,
                              struct err *err) {
    struct buf text = {0};
    enum status status = buf_reserve(&text, 0, err);
    for (size_t i = 0; i < json_array_size(parts) && !status; i++) {
        const json_t *part = json_object_get(json_array_get(parts, i), "text");
        if (i) status = buf_append(&text, "\n", 1, err);
        if (!status) {
            status = buf_append(&text, json_string_value(part), json_string_length(part), err);
        }
    }
    if (!status) {
        json_t *string = json_stringn_nocheck(text.data, text.len); // parts of checked JSON
        json_t *message = chat_own_item(chat, chat->messages, index);
        if (json_object_set_new(message, "content", string)) status = err_nomem(err, "message");
    }
    buf_fini(&text);
    return status;
}

/* In OpenAI's API the arguments of a call are JSON text. Most templates loop over an object, so the
 * text is parsed; missing or empty arguments become an empty object. Text that is no valid object
 * stays, also where only a duplicate key is wrong: the template may print it as it is. */
static enum status parse_arguments(struct chat *chat, json_t *call, struct err *err) {
    json_t *function = json_object_get(call, "function");
    if (!jread_is_object(function)) return OK;
    const json_t *arguments = jread_get(function, "arguments");
    if (arguments && !json_is_string(arguments)) return OK;
    json_t *object = NULL;
    if (!arguments || !json_string_length(arguments)) {
        if (!(object = json_object())) return err_nomem(err, "message");
    } else {
        enum status status =
            jread_request_part(&object, json_string_value(arguments), json_string_length(arguments),
                               &chat->memory_left, "the text of a tool call's arguments", err);
        if (status && status != ERR_FORMAT) return status;
    }
    if (!jread_is_object(object)) {
        json_decref(object);
        return OK;
    }
    function = chat_own_member(chat, call, "function");
    return json_object_set_new(function, "arguments", object) ? err_nomem(err, "message") : OK;
}

// For templates that append the arguments to a text. Anthropic's API has them as objects.
static enum status print_arguments(struct chat *chat, json_t *call, struct err *err) {
    json_t *function = json_object_get(call, "function");
    if (!jread_is_object(function)) return OK;
    const json_t *arguments = jread_get(function, "arguments");
    if (json_string_length(arguments)) return OK;
    struct buf text = {0};
    enum status status = arguments && !json_is_string(arguments)
                             ? jwrite(&text, arguments, JSON_ENCODE_ANY, "message", err)
                             : buf_append_str(&text, "{}", err);
    if (!status) {
        function = chat_own_member(chat, call, "function");
        json_t *string = json_stringn_nocheck(text.data, text.len);
        if (json_object_set_new(function, "arguments", string)) status = err_nomem(err, "message");
    }
    buf_fini(&text);
    return status;
}

static enum status normalize_tool_calls(struct chat *chat, size_t index,
                                        const struct chat_forms *forms, struct err *err) {
    json_t *message = json_array_get(chat->messages, index);
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls) return OK;
    message = chat_own_item(chat, chat->messages, index);
    if (!message) return err_nomem(err, "message");
    if (!json_array_size(calls)) { // null or empty: as if left out
        json_object_del(message, "tool_calls");
        return OK;
    }
    calls = chat_own_member(chat, message, "tool_calls");
    enum status status = calls ? OK : err_nomem(err, "message");
    for (size_t i = 0; i < json_array_size(calls) && !status; i++) {
        json_t *call = chat_own_item(chat, calls, i);
        if (!call) return err_nomem(err, "message");
        status = forms->text_arguments ? print_arguments(chat, call, err)
                                       : parse_arguments(chat, call, err);
    }
    return status;
}

// Replaces content that is null or missing, which only an assistant's may be (check_content).
static enum status normalize_no_content(const struct chat *chat, size_t index,
                                        const struct chat_forms *forms, struct err *err) {
    json_t *message = json_array_get(chat->messages, index);
    bool has_calls = json_array_size(json_object_get(message, "tool_calls"));
    enum chat_shape shape = has_calls ? CHAT_WITH_CALLS : CHAT_WITHOUT_CALLS;
    const json_t *content = json_object_get(message, "content");
    if (content ? forms->null[shape] : forms->missing[shape]) return OK;
    json_t *other = forms->null[shape] ? json_null() : json_string("");
    message = chat_own_item(chat, chat->messages, index);
    return json_object_set_new_nocheck(message, "content", other) ? err_nomem(err, "chat") : OK;
}

// OpenAI's API calls its system messages so, and few templates know the word.
static enum status normalize_role(const struct chat *chat, size_t index,
                                  const struct chat_forms *forms, struct err *err) {
    const json_t *role = json_object_get(json_array_get(chat->messages, index), "role");
    if (forms->developer || strcmp(json_string_value(role), "developer") != 0) return OK;
    json_t *message = chat_own_item(chat, chat->messages, index);
    return json_object_set_new(message, "role", json_string("system")) ? err_nomem(err, "message")
                                                                       : OK;
}

// How many messages of the system, or of a developer, whose contents are strings begin the chat.
static size_t num_systems(const struct chat *chat) {
    for (size_t i = 0;; i++) {
        const json_t *message = json_array_get(chat->messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        bool is_system = role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
        if (!is_system || !json_is_string(json_object_get(message, "content"))) return i;
    }
}

// OpenAI's clients send several, such as instructions and a developer's message. Many templates
// print only one, or refuse more.
static enum status join_systems(struct chat *chat, struct err *err) {
    size_t count = num_systems(chat);
    if (count < 2) return OK;
    struct buf text = {0};
    enum status status = buf_reserve(&text, 0, err);
    for (size_t i = 0; i < count && !status; i++) {
        const json_t *content = json_object_get(json_array_get(chat->messages, i), "content");
        if (i) status = buf_append(&text, "\n\n", 2, err);
        if (!status) {
            status =
                buf_append(&text, json_string_value(content), json_string_length(content), err);
        }
    }
    if (!status) {
        json_t *string = json_stringn_nocheck(text.data, text.len); // parts of checked JSON
        json_t *message = chat_own_item(chat, chat->messages, 0);
        if (json_object_set_new(message, "content", string)) status = err_nomem(err, "message");
    }
    for (; count > 1 && !status; count--) {
        json_array_remove(chat->messages, count - 1);
        chat->num_joined++;
    }
    buf_fini(&text);
    return status;
}

enum status chat_normalize(struct chat *chat, const struct chat_forms *forms, struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(chat->messages) && !status; i++) {
        const json_t *content = jread_get(json_array_get(chat->messages, i), "content");
        if (!content) {
            status = normalize_no_content(chat, i, forms, err);
        } else if (json_is_array(content) && !forms->parts) {
            status = join_parts(chat, i, content, err);
        }
        if (!status) status = normalize_tool_calls(chat, i, forms, err);
        if (!status) status = normalize_role(chat, i, forms, err);
    }
    if (!status && forms->system && !forms->systems) status = join_systems(chat, err);
    return status;
}
