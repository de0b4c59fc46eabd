/* The tools of a chat's request, and what follows from them for its prompt and its answer. */
#ifndef SERVER_CHAT_TOOLS_H
#define SERVER_CHAT_TOOLS_H

#include "server/loop/api_request.h"

// Checks tools, tool_choice, parallel_tool_calls and include_reasoning, and fills request->chat.
// False: request->error is set.
bool chat_tools_check(struct api_request *request);
// Checks an assistant's tool_calls, and that a tool's message says which call it answers.
bool chat_tools_check_message(struct api_request *request, const json_t *message, const char *role);

#endif
