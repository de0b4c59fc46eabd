/* Log-probabilities in the two shapes that clients know: chat's, a list of objects, and
 * completions', four lists side by side. They are collected in the choice until a chunk or the
 * answer takes them. */
#ifndef SERVER_LOGPROBS_H
#define SERVER_LOGPROBS_H

#include "server/loop/api_request.h"

// A number of best tokens, 0 to 20; absent leaves *count as it is. vLLM's -1, the whole vocabulary,
// is refused: a step's result holds 20. False: request->error is set.
bool logprobs_read_count(struct api_request *request, const char *key, int64_t *count);
// With logprob_token_ids these are shown in place of the best tokens. False: the request asks for
// no log-probabilities, and request->error is set.
bool logprobs_check_given(struct api_request *request);
void logprobs_collect_chat(struct choice *choice, const struct choice_delta *delta);
void logprobs_collect_completion(struct choice *choice, const struct choice_delta *delta);
// What was collected as the value of "logprobs": null when the request asked for none. Collecting
// starts anew.
void logprobs_write_chat(struct choice *choice, struct json_out *out);
void logprobs_write_completion(struct choice *choice, struct json_out *out);

// ---- of a prompt's tokens ----

// The value of "prompt_logprobs": a list of null and, for each further token, of an object
// {"17": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}, ...}. Null: the request has no
// prompt_logprobs.
void prompt_logprobs_write(const struct prompt *prompt, struct json_out *out);
// The prompt's tokens into the lists of completions, if the request has an echo and
// log-probabilities.
void prompt_logprobs_collect(struct choice *choice);

#endif
