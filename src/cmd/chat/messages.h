/* A conversation as JSON in the form that chat templates take: {"messages": [...]} and the other
 * members of a loaded file, such as "tools". This one tree is sent, saved and loaded. */
#ifndef CMD_CHAT_MESSAGES_H
#define CMD_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/text/buf.h"

// An all-zero struct has no messages; fini accepts it.
struct chat_messages {
    json_t *root;
    json_t *list; // root's "messages", borrowed
};

MUST_USE enum status chat_messages_init(struct chat_messages *messages, struct err *err);
void chat_messages_fini(struct chat_messages *messages);

// Text is UTF-8 and may hold NUL. `role`: "user" or "assistant".
MUST_USE enum status chat_messages_add(struct chat_messages *messages, const char *role,
                                       const char *text, size_t len, struct err *err);
void chat_messages_drop_last(struct chat_messages *messages); // there must be one
size_t chat_messages_count(const struct chat_messages *messages);
// The role of the last message, borrowed; "" without any.
const char *chat_messages_last_role(const struct chat_messages *messages);
// Removes all messages but the system prompt.
void chat_messages_clear(struct chat_messages *messages);

// The system prompt, if the first message is one and is text; else NULL. Borrowed.
const char *chat_messages_system(const struct chat_messages *messages);
// Replaces or adds the system prompt; text NULL removes it.
MUST_USE enum status chat_messages_set_system(struct chat_messages *messages, const char *text,
                                              size_t len, struct err *err);
// Sets members of "chat_template_kwargs". `kwargs` is borrowed; if it is NULL or empty, nothing
// changes.
MUST_USE enum status chat_messages_set_kwargs(struct chat_messages *messages, json_t *kwargs,
                                              struct err *err);

// Replaces `text` by the request's JSON.
MUST_USE enum status chat_messages_text(const struct chat_messages *messages, struct buf *text,
                                        struct err *err);
// Writes a new file whole or not at all. An existing file is refused (ERR_INVALID) without
// `replace`. With `replace` it is exchanged in one step at the end. Links are followed.
MUST_USE enum status chat_messages_save(const struct chat_messages *messages, const char *path,
                                        bool replace, struct err *err);
// Replaces all messages by those of a JSON file: a list, or an object with a list. On failure
// nothing changes.
MUST_USE enum status chat_messages_load(struct chat_messages *messages, const char *path,
                                        struct err *err);

/* Small files that are written whole: a saved conversation, a shortened history. */

// Writes a file whole. A new file that cannot be written completely is removed again. Without
// `replace` an existing file is refused with ERR_INVALID. With `replace` it is exchanged for a new
// file with its permissions, once all bytes are on the disk. Links are followed.
MUST_USE enum status chat_file_write(const char *path, const void *bytes, size_t len, bool replace,
                                     struct err *err);

#endif
