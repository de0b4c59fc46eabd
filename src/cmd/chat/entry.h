/* What a user enters, from one or more lines: a line that ends in "\" goes on in the next one, and
 * lines between """ and """ are one message. Says whether it is a command. Pure. */
#ifndef CMD_CHAT_ENTRY_H
#define CMD_CHAT_ENTRY_H

#include <stdbool.h>

#include "base/buf.h"

// All-zero is an entry without lines.
struct chat_entry {
    struct buf text; // lines joined by newlines, without the marks; valid UTF-8
    bool open; // wants another line
    bool block; // between """ and """: never a command
};

enum { CHAT_ENTRY_BYTES_MAX = 16 << 20 };

// Adds a line [len] without its newline; bytes that are not UTF-8 become U+FFFD. ERR_INVALID: the
// entry would be larger than CHAT_ENTRY_BYTES_MAX.
MUST_USE enum status chat_entry_add(struct chat_entry *entry, const char *line, size_t len,
                                    struct err *err);
// Any bytes as valid UTF-8, as above. `out` has a NUL at its end, also when it is empty.
MUST_USE enum status chat_entry_append_utf8(struct buf *out, const char *text, size_t len,
                                            struct err *err);
bool chat_entry_is_command(const struct chat_entry *entry); // "/x", but not "//x"
// The message [*len]: a line that begins with "//" is sent with one slash.
const char *chat_entry_message(const struct chat_entry *entry, size_t *len);
void chat_entry_clear(struct chat_entry *entry); // for the next one
void chat_entry_fini(struct chat_entry *entry);

#endif
