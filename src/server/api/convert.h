/* Turns the bodies of other chat APIs into those of chat completions, so that all code behind it is
 * shared. Functions that return NULL or false have set request->error. */
#ifndef SERVER_CONVERT_H
#define SERVER_CONVERT_H

#include "server/loop/api_request.h"

// Appends a message with a role alone; borrowed from the list.
json_t *convert_begin(struct api_request *request, json_t *messages, const char *role);
// Its content: text, or a list of text blocks of whatever API; a block of another kind is refused.
bool convert_content(struct api_request *request, json_t *message, const json_t *content,
                     const char *param);
// Appends a message with a role and its content.
bool convert_message(struct api_request *request, json_t *messages, const char *role,
                     const json_t *content, const char *param);
// Adds a tool call to an assistant's message. `arguments` is an object, JSON text or NULL.
bool convert_call(struct api_request *request, json_t *message, const json_t *id,
                  const json_t *name, json_t *arguments, const char *param);
// Appends a tool's message: what the tool call with this id returned. NULL content is empty.
bool convert_result(struct api_request *request, json_t *messages, const json_t *id,
                    const json_t *content, const char *param);
// Appends a function to the tools: `tool` has its name, description and strict; `parameters` may be
// NULL.
bool convert_tool(struct api_request *request, json_t *tools, const json_t *tool,
                  json_t *parameters);
// tool_choice becomes the word, or with a name the function.
bool convert_tool_choice(struct api_request *request, const char *word, const char *name);
// reasoning_effort becomes `effort`, which may be NULL: then it stays. The client gave it as the
// member `member`, or with `part` as this part of it.
bool convert_effort(struct api_request *request, const char *member, const char *part,
                    json_t *effort);
// Fills the list that becomes the member `key` of request->root.
bool convert_list(struct api_request *request, const char *key,
                  bool (*fill)(struct api_request *request, json_t *list));
// The value becomes the member of request->root with this name. Takes it in every case.
bool convert_set(struct api_request *request, const char *key, json_t *value);

// ---- whole bodies ----

// messages.c: rewrites messages, system, tools, tool_choice, thinking and stop_sequences of
// request->root.
bool messages_request_convert(struct api_request *request);
// responses.c: rewrites input, instructions, tools, tool_choice and reasoning of request->root, and
// refuses what needs a server that keeps conversations.
bool responses_request_convert(struct api_request *request);

#endif
