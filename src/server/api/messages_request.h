/* Anthropic's shape of a chat, made into chat completions'. */
#ifndef SERVER_MESSAGES_REQUEST_H
#define SERVER_MESSAGES_REQUEST_H

#include "server/loop/api_request.h"

// Rewrites messages, system, tools, tool_choice, thinking and stop_sequences of request->root.
// False: request->error is set.
bool messages_request_convert(struct api_request *request);

#endif
