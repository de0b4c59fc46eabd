/* The commands of a chat: /help, /system, /schema, /clear, /regen, /save, /load, /stats, /quit. */
#ifndef CMD_CHAT_COMMAND_H
#define CMD_CHAT_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text/buf.h"
#include "cmd/chat/session.h"

struct chat_command_context {
    struct chat_session *session;
    const char *model; // the model's folder; its files are never overwritten
    const char *chat_template; // a file that is never overwritten; NULL: none
    struct nvllm_sampling_params *sampling; // the session's; /schema sets its structured_outputs
    int64_t seed; // the engine's
    json_t *kwargs; // template variables of the command line; loaded chats get them too
    bool quit; // set by /quit
};

// Runs "/name arguments" [len]. A failed command changes nothing, and its error is printed.
MUST_USE enum status chat_command_run(struct chat_command_context *context, const char *text,
                                      size_t len, struct err *err);
// The i-th command with its slash, NULL past the end: for completion.
const char *chat_command_name(size_t index);

/* An entry of the user, made from one or more lines. A line that ends in "\" continues in the next
 * one. Lines between """ and """ are one message. Reads and writes nothing. */

// An all-zero struct is an entry without lines.
struct chat_entry {
    struct buf text; // lines joined by newlines, without the marks; valid UTF-8
    bool open; // it needs another line
    bool block; // between """ and """: never a command
};

enum { CHAT_ENTRY_BYTES_MAX = 16 << 20 };

// Adds a line [len] without its newline; bytes that are not UTF-8 become U+FFFD. ERR_INVALID: the
// entry would be larger than CHAT_ENTRY_BYTES_MAX.
MUST_USE enum status chat_entry_add(struct chat_entry *entry, const char *line, size_t len,
                                    struct err *err);
// Copies bytes as valid UTF-8, as above. `out` ends with a NUL, even if it is empty.
MUST_USE enum status chat_entry_append_utf8(struct buf *out, const char *text, size_t len,
                                            struct err *err);
bool chat_entry_is_command(const struct chat_entry *entry); // "/x", but not "//x"
// Returns the message [*len]. If it begins with "//", the first slash is dropped.
const char *chat_entry_message(const struct chat_entry *entry, size_t *len);
void chat_entry_clear(struct chat_entry *entry); // makes it all-zero, for the next entry
void chat_entry_fini(struct chat_entry *entry);

#endif
