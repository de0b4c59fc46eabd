/* The body of OpenAI's newer form of a chat, made into chat completions'. */
#ifndef SERVER_RESPONSES_REQUEST_H
#define SERVER_RESPONSES_REQUEST_H

#include "server/loop/api_request.h"

// Rewrites input, instructions, tools, tool_choice and reasoning of request->root, and refuses what
// needs a server that keeps conversations. False: request->error is set.
bool responses_request_convert(struct api_request *request);

#endif
