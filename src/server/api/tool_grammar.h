/* Holds a chat's answers to the form of its tools' calls: where a call is demanded, where a tool is
 * strict, and where the answer's text has a form itself. */
#ifndef SERVER_TOOL_GRAMMAR_H
#define SERVER_TOOL_GRAMMAR_H

#include "server/loop/api_request.h"

// Sets request->sampling.structured_outputs. `tools` are checked; `name` is the function that
// tool_choice names, NULL for any. request->chat says whether a call is demanded, and how many.
// False: request->error is set.
bool tool_grammar_set(struct api_request *request, const json_t *tools, const char *name);

#endif
