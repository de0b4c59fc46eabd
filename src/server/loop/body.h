/* The JSON body of an API request, member by member. null is as good as absent, and leaves *out as
 * it is; what nobody asks for is ignored and named (unknown_members.h); a wrong type or range sets
 * the request's error, with the member's name, and returns false. */
#ifndef SERVER_BODY_H
#define SERVER_BODY_H

#include "server/loop/api_request.h"

// Parses request->body, which it frees, into request->root, an object.
bool body_parse(struct api_request *request);
// Frees the members that no answer needs.
void body_forget(struct api_request *request);
// NULL: absent or null. `key` is a literal, as in all functions below.
json_t *body_get(struct api_request *request, const char *key);
bool body_bool(struct api_request *request, const char *key, bool *out);
bool body_int(struct api_request *request, const char *key, int64_t min, int64_t max, int64_t *out);
// *out borrows from the body. NUL characters are refused.
bool body_string(struct api_request *request, const char *key, const char **out);
// "is 5, want a string"
bool body_wrong_type(struct api_request *request, const char *key, const json_t *value,
                     const char *want);

// What all endpoints that generate have: model, stream and its options, cache_salt, all parameters
// of the library's table, and the refusal of members that would change the answer.
bool body_generation(struct api_request *request);
// llama-server's name of max_tokens, which wins; -1 is what the context has left.
bool body_n_predict(struct api_request *request, int64_t *max_tokens);
// n, best_of and prompt_logprobs, after body_generation.
bool body_outputs(struct api_request *request);
// The same for endpoints that have none of them: they are refused.
bool body_one_output(struct api_request *request);
bool body_model(struct api_request *request);

#endif
