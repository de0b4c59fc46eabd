/* From a prepared call to the engine's requests, and from the engine's events to letters. */
#ifndef SERVER_SUBMIT_H
#define SERVER_SUBMIT_H

#include "server/loop/call.h"

// On the pool. A prompt that is refused sets call->error, and those before it are aborted.
void submit_prompts(struct call *call);
// Checks a prompt against the context, and gives it max_tokens: -1 is what the context has left.
// `param` is where the limit was given. False: call->error is set.
bool submit_fit(struct call *call, struct prompt *prompt, int64_t max_tokens, const char *param);
// Text to the prompt's token ids.
bool submit_encode(struct call *call, struct prompt *prompt, const char *text, size_t len,
                   bool add_special_tokens, const char *param);
// In call.c: a letter that is a piece.
void call_handle_piece(struct mail *mail);

#endif
