/* The form that an answer must have, in the members that clients know: OpenAI's response_format,
 * vLLM's guided_*, SGLang's regex, ebnf and structural_tag, llama-server's grammar and json_schema,
 * Ollama's format. All of them become the library's structured_outputs, which vLLM's clients send
 * as it is. */
#ifndef SERVER_STRUCTURED_H
#define SERVER_STRUCTURED_H

#include "server/loop/api_request.h"

// Reads these members, sets request->sampling, and keeps the form in request->chat, because tools
// change it (tool_grammar.h). Call it after request_params_read, and after a body of another API
// was converted. False: request->error is set, also where two of them are given.
bool structured_read(struct api_request *request);
// response_format of chat completions, made of the `format` of another API: {"type": "json_schema",
// "schema": {...}}, or text. `member` names it in errors. Takes nothing.
bool structured_convert(struct api_request *request, const char *member, const json_t *format);

#endif
