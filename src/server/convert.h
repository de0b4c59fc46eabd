/* Chats of other APIs than chat completions, made into its members: the rest of the way is the same. */
#ifndef SERVER_CONVERT_H
#define SERVER_CONVERT_H

#include "server/call.h"

// Appends {"role", "content"} to `messages`. `content` is text or a list of text blocks of whatever
// API; a block of another kind is refused. False: call->error is set.
bool convert_message(struct call *call, json_t *messages, const char *role, const json_t *content,
                     const char *param);
// The list becomes "messages" of call->root, which has no such member or one that is to go. Takes the
// list in every case.
bool convert_set_messages(struct call *call, json_t *messages);

#endif
