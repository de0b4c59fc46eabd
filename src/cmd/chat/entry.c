#include "cmd/chat/entry.h"

#include <string.h>

#include "text/unicode/unicode.h"

static const char quotes[] = "\"\"\"";
enum { QUOTES_LEN = sizeof quotes - 1 };

static bool begins_with_quotes(const char *text, size_t len) {
    return len >= QUOTES_LEN && memcmp(text, quotes, QUOTES_LEN) == 0;
}

static bool ends_with_quotes(const char *text, size_t len) {
    return len >= QUOTES_LEN && memcmp(text + len - QUOTES_LEN, quotes, QUOTES_LEN) == 0;
}

enum status chat_entry_append_utf8(struct buf *out, const char *text, size_t len, struct err *err) {
    struct utf8_partial partial = {0};
    enum status status = utf8_append_lossy(&partial, text, len, out, err);
    if (!status) status = utf8_append_end(&partial, out, err);
    return status ? status : buf_reserve(out, 0, err);
}

// Adds a line between the marks. The lines of the marks count only if they hold text too.
static enum status add_block_line(struct chat_entry *entry, const char *line, size_t len,
                                  bool first, struct err *err) {
    entry->open = !ends_with_quotes(line, len);
    if (!entry->open) len -= QUOTES_LEN;
    enum status status = chat_entry_append_utf8(&entry->text, line, len, err);
    bool empty_mark = first && len == 0;
    if (!status && entry->open && !empty_mark) status = buf_append(&entry->text, "\n", 1, err);
    if (status || entry->open || len) return status;
    struct buf *text = &entry->text;
    if (text->len && text->data[text->len - 1] == '\n') text->data[--text->len] = '\0';
    return OK;
}

enum status chat_entry_add(struct chat_entry *entry, const char *line, size_t len,
                           struct err *err) {
    if (len > CHAT_ENTRY_BYTES_MAX - entry->text.len) {
        return err_set(err, ERR_INVALID, "a message is longer than %d MiB",
                       CHAT_ENTRY_BYTES_MAX >> 20);
    }
    bool first = !entry->open;
    if (first && begins_with_quotes(line, len)) {
        entry->block = true;
        return add_block_line(entry, line + QUOTES_LEN, len - QUOTES_LEN, true, err);
    }
    if (entry->block) return add_block_line(entry, line, len, false, err);
    entry->open = len && line[len - 1] == '\\';
    enum status status =
        chat_entry_append_utf8(&entry->text, line, entry->open ? len - 1 : len, err);
    if (!status && entry->open) status = buf_append(&entry->text, "\n", 1, err);
    return status;
}

bool chat_entry_is_command(const struct chat_entry *entry) {
    const struct buf *text = &entry->text;
    return !entry->block && text->len && text->data[0] == '/' && text->data[1] != '/';
}

const char *chat_entry_message(const struct chat_entry *entry, size_t *len) {
    const struct buf *text = &entry->text;
    bool slashes = !entry->block && text->len >= 2 && memcmp(text->data, "//", 2) == 0;
    *len = text->len - slashes;
    return text->data ? text->data + slashes : "";
}

void chat_entry_clear(struct chat_entry *entry) {
    buf_clear(&entry->text);
    entry->open = entry->block = false;
}

void chat_entry_fini(struct chat_entry *entry) {
    buf_fini(&entry->text);
    *entry = (struct chat_entry){0};
}
