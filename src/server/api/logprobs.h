/* Log-probabilities in the two shapes that clients know: chat's, a list of objects, and
 * completions', four lists side by side. They are collected in the choice until a chunk or the
 * answer takes them. */
#ifndef SERVER_LOGPROBS_H
#define SERVER_LOGPROBS_H

#include "server/loop/api_request.h"

// A token as clients see it.
struct logprobs_token {
    char *text; // [len] of the library
    size_t len;
    char id[24]; // "token_id:17"
    const char *shown; // [shown_len] one of the two
    size_t shown_len;
};

// A number of best tokens, 0 to 20; absent leaves *count as it is. vLLM's -1, the whole vocabulary,
// is refused: a step's result has room for 20. False: request->error is set.
bool logprobs_read_count(struct api_request *request, const char *key, int64_t *count);
// With logprob_token_ids these are shown in place of the best tokens. False: the request asks for
// no log-probabilities, and request->error is set.
bool logprobs_check_given(struct api_request *request);
// `out` is where it will be written: without memory that has a fault.
void logprobs_get_token(const struct api_request *request, int32_t token_id,
                        struct logprobs_token *token, struct json_out *out);
void logprobs_end_token(struct logprobs_token *token);
void logprobs_write_value(struct json_out *out, float logprob);

void logprobs_collect_chat(struct choice *choice, const struct piece *piece);
// `values`: the token's own, then num_top best ones.
void logprobs_add_completion(struct choice *choice, const struct nvllm_logprob *values,
                             size_t num_top);
// The first token of a prompt, which follows nothing.
void logprobs_add_first(struct choice *choice, int32_t token_id);
void logprobs_collect_completion(struct choice *choice, const struct piece *piece);
// What was collected as the value of "logprobs": null when the request asked for none. Collecting
// starts anew.
void logprobs_write_chat(struct choice *choice, struct json_out *out);
void logprobs_write_completion(struct choice *choice, struct json_out *out);

#endif
