/* A conversation as JSON in the form that chat templates take: {"messages": [...]} and whatever
 * else was in a loaded file ("tools", say). This one tree is sent, saved and loaded. Pure but for
 * the files. */
#ifndef CMD_CHAT_MESSAGES_H
#define CMD_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

// All-zero is none; fini takes it.
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
// All but the system prompt goes.
void chat_messages_clear(struct chat_messages *messages);

// The first message where it is the system's and text, else NULL; borrowed.
const char *chat_messages_system(const struct chat_messages *messages);
// Replaces, adds or (text NULL) removes it.
MUST_USE enum status chat_messages_set_system(struct chat_messages *messages, const char *text,
                                              size_t len, struct err *err);
// Sets members of "chat_template_kwargs"; `kwargs` is borrowed, NULL or without members: nothing.
MUST_USE enum status chat_messages_set_kwargs(struct chat_messages *messages, json_t *kwargs,
                                              struct err *err);

// The request's JSON, in place of what `text` holds.
MUST_USE enum status chat_messages_text(const struct chat_messages *messages, struct buf *text,
                                        struct err *err);
// A new file is made whole or not at all. One that exists is refused (ERR_INVALID) without
// `replace`, and with it changes only at the end, in one step; links are followed.
MUST_USE enum status chat_messages_save(const struct chat_messages *messages, const char *path,
                                        bool replace, struct err *err);
// Replaces everything by a file's JSON: a list of messages, or an object with such a list. On
// failure nothing changes.
MUST_USE enum status chat_messages_load(struct chat_messages *messages, const char *path,
                                        struct err *err);

#endif
