/* Shared by api_request.c (a request's life) and api_request_answer.c (what its client reads). */
#ifndef SERVER_API_REQUEST_INTERNAL_H
#define SERVER_API_REQUEST_INTERNAL_H

#include "server/loop/api_request.h"

// Frees the request once nobody has it any more: not the pool, not the engine, not the client.
void api_request_maybe_free(struct api_request *request);
void api_request_free_piece(struct piece *piece);

// Fills the counts that the log shows.
void api_request_fill_counts(struct api_request *request);
// The head of a stream, before its first token, so that proxies see that the request lives.
void api_request_begin_stream(struct api_request *request);
void api_request_reply_error(struct api_request *request, const struct api_error *error);
void api_request_reply_result(struct api_request *request, const struct json_out *out);
// The request fails after some of it has run; what still runs is aborted.
void api_request_fail(struct api_request *request, const struct api_error *error);
// Counts a piece of a prepared request and writes or keeps it. Frees it, and maybe the request.
void api_request_take_piece(struct piece *piece);

#endif
