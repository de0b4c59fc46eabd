/* This folder's entries of route.c's table: endpoints, which are answered through an API request,
 * and pages, which are answered at once. */
#ifndef SERVER_ENDPOINTS_H
#define SERVER_ENDPOINTS_H

#include <jansson.h>

#include "server/loop/api_request.h"
#include "server/loop/request_info.h"

extern const struct endpoint endpoint_completions;
extern const struct endpoint endpoint_chat;
extern const struct endpoint endpoint_responses;
extern const struct endpoint endpoint_responses_count;
extern const struct endpoint endpoint_messages;
extern const struct endpoint endpoint_count_tokens;
extern const struct endpoint endpoint_embeddings;
extern const struct endpoint endpoint_score;
extern const struct endpoint endpoint_rerank;
extern const struct endpoint endpoint_tokenize;
extern const struct endpoint endpoint_detokenize;
extern const struct endpoint endpoint_apply_template;

page_fn page_health, page_live, page_ready, page_version, page_metrics, page_models, page_model,
    page_openapi, page_props, page_tokenizer_info;

// For /tokenizer_info and /props: the object in tokenizer_config.json of the model's folder; an
// empty one where there is none. NULL: it cannot be read. The caller's.
json_t *tokenizer_info_read(const char *model_path);

#endif
