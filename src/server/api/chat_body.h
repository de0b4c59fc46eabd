/* The chat in a request's body: from OpenAI's members to the JSON that the library's templates
 * take, and to token ids. Used by every endpoint that has messages. */
#ifndef SERVER_CHAT_BODY_H
#define SERVER_CHAT_BODY_H

#include "server/loop/api_request.h"

// Checks messages, tools, tool_choice and the template's members of request->root. Fills
// request->chat.
bool chat_body_check(struct api_request *request);
// Appends the text of the last message if the answer goes on in its role, after the check.
bool chat_body_echo(struct api_request *request, struct buf *out);
// Appends the prompt's text.
bool chat_body_render(struct api_request *request, struct buf *out);
// The prompt's token ids, into the prompt, and what divides its answers.
bool chat_body_encode(struct api_request *request, struct prompt *prompt);

#endif
