/* continue_final_message, as transformers does it (render_jinja_template): a mark is appended to
 * the last message's text, and the prompt is cut where the template printed the mark. */
#include <string.h>

#include "base/json/jread.h"
#include "text/chat/chat_messages.h"
#include "text/unicode/unicode.h"

// The mark ends in a space. Where that is missing, the template trims texts, and the prompt must
// end without the message's own white space too.
static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { MARK_LEN = sizeof mark - 1, TRIMMED_LEN = MARK_LEN - 1 };

// Python's str.isspace.
static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

// Bytes of `text` without the white space at its end.
static size_t rstrip(const char *text, size_t len) {
    while (len) {
        size_t start = len - 1, size;
        while (start && ((unsigned char)text[start] & 0xc0) == 0x80) start--;
        if (!is_space(utf8_decode((const unsigned char *)text + start, &size))) break;
        len = start;
    }
    return len;
}

// Bytes of white space at the beginning of `text`.
static size_t leading_space(const char *text, size_t len) {
    size_t at = 0;
    while (at < len) {
        size_t size;
        if (!is_space(utf8_decode((const unsigned char *)text + at, &size))) break;
        at += size;
    }
    return at;
}

// The object that holds the last text of a message, under *key: the message or its last part.
// ERR_NOMEM is the only fault; *holder is NULL where a list has no parts.
static enum status last_text_holder(const struct chat *chat, size_t index, json_t **holder,
                                    const char **key, struct err *err) {
    *key = "content";
    *holder = chat_own_item(chat, chat->messages, index);
    if (!*holder) return err_nomem(err, "message");
    if (!json_is_array(json_object_get(*holder, "content"))) return OK;
    *key = "text";
    json_t *parts = chat_own_member(chat, *holder, "content");
    size_t num_parts = json_array_size(parts); // all parts are text
    *holder = num_parts ? chat_own_item(chat, parts, num_parts - 1) : NULL;
    return parts && (*holder || !num_parts) ? OK : err_nomem(err, "message");
}

enum status chat_mark_end(struct chat *chat, json_t **text, struct err *err) {
    *text = NULL;
    size_t num_messages = json_array_size(chat->messages); // not 0: chat_read
    const char *key;
    json_t *holder;
    if (last_text_holder(chat, num_messages - 1, &holder, &key, err)) return ERR_NOMEM;
    json_t *old = json_object_get(holder, key);
    if (!json_is_string(old)) {
        return err_set(err, ERR_INVALID,
                       "\"continue_final_message\" is set, but messages[%zu] has no text to go on "
                       "with",
                       num_messages - 1);
    }
    struct buf marked = {0};
    enum status status = buf_append(&marked, json_string_value(old), json_string_length(old), err);
    if (!status) status = buf_append(&marked, mark, MARK_LEN, err);
    if (!status) {
        *text = json_incref(old);
        json_t *string = json_stringn_nocheck(marked.data, marked.len);
        if (json_object_set_new(holder, key, string)) status = err_nomem(err, "message");
    }
    buf_fini(&marked);
    if (!status) return OK;
    json_decref(*text);
    *text = NULL;
    return status;
}

static const char *find_last(const char *text, size_t len, const char *what, size_t what_len) {
    for (size_t at = len; at >= what_len; at--) {
        const char *start = text + at - what_len;
        if (*start == *what && memcmp(start, what, what_len) == 0) return start;
    }
    return NULL;
}

enum status chat_cut_at_mark(struct buf *out, size_t start, const json_t *text, struct err *err) {
    const char *prompt = out->data + start;
    size_t len = out->len - start;
    const char *message = json_string_value(text);
    size_t message_len = rstrip(message, json_string_length(text));
    size_t skip = leading_space(message, message_len);
    const char *at = find_last(prompt, len, mark, TRIMMED_LEN);
    if (!at || !memmem(prompt, len, message + skip, message_len - skip)) {
        return err_set(err, ERR_INVALID,
                       "\"continue_final_message\" is set, but the template leaves out some of the "
                       "last message");
    }
    size_t cut = (size_t)(at - prompt);
    bool whole = len - cut >= MARK_LEN && memcmp(at, mark, MARK_LEN) == 0;
    out->len = start + (whole ? cut : rstrip(prompt, cut));
    out->data[out->len] = '\0';
    return OK;
}
