/* Log-probabilities of a prompt's tokens: vLLM's prompt_logprobs, and the prompt's part of
 * completions' logprobs where they have an echo. */
#ifndef SERVER_PROMPT_LOGPROBS_H
#define SERVER_PROMPT_LOGPROBS_H

#include "server/loop/api_request.h"

// The value of "prompt_logprobs": a list of null and, for each further token, of an object
// {"17": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}, ...}. Null: the request has no
// prompt_logprobs.
void prompt_logprobs_write(const struct prompt *prompt, struct json_out *out);
// The prompt's tokens into the lists of completions, if the request has an echo and
// log-probabilities.
void prompt_logprobs_collect(struct choice *choice);

#endif
