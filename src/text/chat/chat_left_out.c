/* Finds messages that a template leaves out. Qwen's templates, for one, print nothing for a role
 * that they do not know: the model would never see what such a message demands.
 *
 * First each message's text is looked for in the prompt, which costs little and nearly always finds
 * all. A template may print a text otherwise, as JSON for one. So where a text is missing, the chat
 * is rendered once more with marks in place of the texts. A mark is printed alike in any form.
 *
 * Mistral's templates print the system's message in front of the last user's, and only where that
 * is the last message of all. So each turn with a tool's result lacks it. That is how these models
 * are run, so it is no fault.
 *
 * Texts of users and assistants are not looked for. Each template prints those of users, and of an
 * assistant's many leave out the reasoning. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "text/chat/chat_messages.h"

// Fixed width, so that no mark begins another.
static const char mark_format[] = "nanovllm-message-%010zu";
enum { MARK_PREFIX = sizeof "nanovllm-message-" - 1, MARK_DIGITS = 10 };
enum { MARK_LEN = MARK_PREFIX + MARK_DIGITS };

static bool is_ascii_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// The text of the message `index` without ASCII white space around it, which templates trim: its
// content, or the last part of it. Empty where it need not be looked for.
static const char *text_of(const struct chat *chat, size_t index, size_t *len) {
    const json_t *message = json_array_get(chat->messages, index);
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    size_t num_parts = json_array_size(content);
    if (num_parts) content = json_object_get(json_array_get(content, num_parts - 1), "text");
    bool is_usual = strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0;
    const char *text = json_string_value(content);
    *len = text && !is_usual ? json_string_length(content) : 0;
    while (*len && is_ascii_space(text[*len - 1])) (*len)--;
    while (*len && is_ascii_space(*text)) {
        text++;
        (*len)--;
    }
    return text;
}

bool chat_shows_texts(const struct chat *chat, const char *prompt, size_t prompt_len) {
    const char *rest = prompt, *end = prompt + prompt_len;
    for (size_t i = 0; i < json_array_size(chat->messages); i++) {
        size_t len;
        const char *text = text_of(chat, i, &len);
        if (!len) continue;
        // From one message to the next, so that all of them together read the prompt once.
        const char *found = memmem(rest, (size_t)(end - rest), text, len);
        if (!found) return false;
        rest = found + len;
    }
    return true;
}

enum status chat_mark_texts(struct chat *chat, struct err *err) {
    for (size_t i = 0; i < json_array_size(chat->messages); i++) {
        size_t len;
        text_of(chat, i, &len);
        if (!len) continue;
        json_t *message = chat_own_item(chat, chat->messages, i);
        char mark[MARK_LEN + 16];
        snprintf(mark, sizeof mark, mark_format, i);
        if (json_object_set_new(message, "content", json_string(mark))) {
            return err_nomem(err, "message");
        }
    }
    return OK;
}

static bool is_marked(const struct chat *chat, size_t index) {
    size_t len;
    const char *text = text_of(chat, index, &len);
    return len == MARK_LEN && memcmp(text, mark_format, MARK_PREFIX) == 0;
}

// The system's message of a template that shows it in turns of its choice.
static bool is_excused(const struct chat *chat, const struct chat_forms *forms, size_t index) {
    const json_t *role = json_object_get(json_array_get(chat->messages, index), "role");
    return forms->system && index == 0 && strcmp(json_string_value(role), "system") == 0;
}

enum status chat_check_marks(const struct chat *chat, const struct chat_forms *forms,
                             const char *prompt, size_t prompt_len, struct err *err) {
    size_t num_messages = json_array_size(chat->messages);
    bool *seen = calloc(num_messages, sizeof *seen);
    if (!seen) return err_nomem(err, "chat");
    const char *at = prompt, *end = prompt + prompt_len;
    while ((at = memmem(at, (size_t)(end - at), mark_format, MARK_PREFIX))) {
        at += MARK_PREFIX;
        if (end - at < MARK_DIGITS) break;
        char digits[MARK_DIGITS + 1] = "";
        memcpy(digits, at, MARK_DIGITS);
        uintmax_t index = strtoumax(digits, NULL, 10);
        if (index < num_messages) seen[index] = true;
    }
    enum status status = OK;
    for (size_t i = 0; i < num_messages && !status; i++) {
        if (seen[i] || !is_marked(chat, i) || is_excused(chat, forms, i)) continue;
        const json_t *message = json_array_get(chat->messages, i);
        status = err_set(err, ERR_INVALID,
                         "the chat template leaves out messages[%zu], whose role is \"%.60s\": the "
                         "model would not see its text",
                         i ? i + chat->num_joined : 0,
                         json_string_value(json_object_get(message, "role")));
    }
    free(seen);
    return status;
}
