/* The commands of a chat: /help, /system, /clear, /regen, /save, /load, /stats, /quit. */
#ifndef CMD_CHAT_COMMAND_H
#define CMD_CHAT_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/chat/session.h"

struct chat_command_context {
    struct chat_session *session;
    const char *model; // the model's folder; its files are never overwritten
    const char *chat_template; // a file that is never overwritten; NULL: none
    int64_t seed; // the engine's
    json_t *kwargs; // template variables of the command line; loaded chats get them too
    bool quit; // set by /quit
};

// Runs "/name arguments" [len]. A failed command changes nothing, and its error is printed.
MUST_USE enum status chat_command_run(struct chat_command_context *context, const char *text,
                                      size_t len, struct err *err);
// The i-th command with its slash, NULL past the end: for completion.
const char *chat_command_name(size_t index);

#endif
