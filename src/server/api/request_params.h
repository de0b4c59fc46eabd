/* The parameters that requests share, from the members of their bodies: the model, streams, all
 * parameters of the library's table, the number of outputs. And the refusal of members of OpenAI's,
 * vLLM's, SGLang's and llama-server's requests that would change the answer and are not built: an
 * answer that differs in silence from what was asked is worse than none, so a request that has one
 * of them is refused, unless its value changes nothing.
 *
 * Functions that return false have set request->error. */
#ifndef SERVER_REQUEST_PARAMS_H
#define SERVER_REQUEST_PARAMS_H

#include "server/loop/api_request.h"

// What all endpoints that generate have: model, stream and its options, cache_salt, all parameters
// of the library's table, and the refusal of what no endpoint knows.
bool request_params_read(struct api_request *request);
// A parameter of the library's table that the API calls `key`. After request_params_read.
bool request_params_take(struct api_request *request, const char *name, const char *key);
// llama-server's name of max_tokens, which wins; -1 is what the context has left.
bool request_params_n_predict(struct api_request *request, int64_t *max_tokens);
// n, best_of and prompt_logprobs, after request_params_read.
bool request_params_outputs(struct api_request *request);
// The same for endpoints that have none of them: they are refused.
bool request_params_one_output(struct api_request *request);
bool request_params_model(struct api_request *request);
bool request_params_cache_salt(struct api_request *request);
// Sets the parameter of the library's table that has this name.
bool request_params_set(struct api_request *request, const char *name, const json_t *value);

// Refuses these members, which an endpoint does not know. As good as absent are false, "" and the
// empty list.
bool request_params_refuse(struct api_request *request, const char *const *keys, size_t num_keys);
// Refuses the member `key`: "`what` is not supported yet". Returns false.
bool request_params_unsupported(struct api_request *request, const char *key, const char *what);

#endif
