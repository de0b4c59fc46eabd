/* Turns a prepared API request into the engine's requests, and the engine's events into messages to
 * the loop. */
#ifndef SERVER_SUBMIT_H
#define SERVER_SUBMIT_H

#include "server/loop/api_request.h"

// On the pool. A prompt that is refused sets request->error, and those before it are aborted.
void submit_prompts(struct api_request *request);
// Checks a prompt against the context, and gives it max_tokens: -1 is what the context has left.
// `param` is where the limit was given. False: request->error is set.
bool submit_fit(struct api_request *request, struct prompt *prompt, int64_t max_tokens,
                const char *param);
// Text to the prompt's token ids.
bool submit_encode(struct api_request *request, struct prompt *prompt, const char *text, size_t len,
                   bool add_special_tokens, const char *param);
// In api_request.c: handles a message that is a delta.
void api_request_handle_delta(struct loop_message *message);

#endif
