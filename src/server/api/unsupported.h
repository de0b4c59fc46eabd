/* Members of OpenAI's, vLLM's, SGLang's and llama-server's requests that would change the answer
 * and are not built. An answer that differs in silence from what was asked is worse than none: so a
 * request that has one of them is refused, unless its value changes nothing. */
#ifndef SERVER_UNSUPPORTED_H
#define SERVER_UNSUPPORTED_H

#include "server/loop/api_request.h"

// Those that no endpoint knows. False: request->error names the member.
bool unsupported_refuse(struct api_request *request);
// The same for an endpoint's own list. As good as absent are false, "" and the empty list.
bool unsupported_refuse_keys(struct api_request *request, const char *const *keys, size_t num_keys);
// Refuses the member `key` of the body: "`what` is not supported yet".
bool unsupported_set(struct api_request *request, const char *key, const char *what);

#endif
