/* The chat in a request's body: from OpenAI's members to the JSON that the library's templates
 * take, and to token ids. Used by every endpoint that has messages. */
#ifndef SERVER_CHAT_BODY_H
#define SERVER_CHAT_BODY_H

#include "server/loop/call.h"

// Checks messages, tools, tool_choice and the template's members of call->root; fills call->chat.
bool chat_body_check(struct call *call);
// Appends the text of the last message if the answer goes on in its role, after the check.
bool chat_body_echo(struct call *call, struct buf *out);
// Appends the prompt's text.
bool chat_body_render(struct call *call, struct buf *out);
// The prompt's token ids, into the prompt, and what divides its answers.
bool chat_body_encode(struct call *call, struct prompt *prompt);

#endif
