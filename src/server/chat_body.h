/* The chat in a request's body: from OpenAI's members to the JSON that the library's templates take,
 * and to token ids. Used by every endpoint that has messages. */
#ifndef SERVER_CHAT_BODY_H
#define SERVER_CHAT_BODY_H

#include "server/call.h"

// Checks messages, tools, tool_choice and the template's members of call->root.
bool chat_body_check(struct call *call);
// The prompt's text, of the library (nvllm_free).
bool chat_body_render(struct call *call, char **text, size_t *len);
// The prompt's token ids, into the choice.
bool chat_body_encode(struct call *call, struct choice *choice);

#endif
