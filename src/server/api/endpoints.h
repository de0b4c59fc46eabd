/* The endpoints that are answered through an API request. */
#ifndef SERVER_ENDPOINTS_H
#define SERVER_ENDPOINTS_H

#include "server/loop/api_request.h"

extern const struct endpoint endpoint_completions;
extern const struct endpoint endpoint_chat;
extern const struct endpoint endpoint_responses;
extern const struct endpoint endpoint_responses_count;
extern const struct endpoint endpoint_messages;
extern const struct endpoint endpoint_count_tokens;
extern const struct endpoint endpoint_tokenize;
extern const struct endpoint endpoint_detokenize;
extern const struct endpoint endpoint_apply_template;
extern const struct endpoint endpoint_engine_control;

#endif
