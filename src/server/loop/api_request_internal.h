/* What the files of an API request do for each other: api_request.c has its life,
 * api_request_submit.c brings it to the engine, choice_delta.c brings the engine's events back, and
 * api_request_answer.c answers. */
#ifndef SERVER_API_REQUEST_INTERNAL_H
#define SERVER_API_REQUEST_INTERNAL_H

#include "server/loop/api_request.h"

// ---- api_request.c ----

// Frees the request once nobody has it any more: not the pool, not the engine, not the client.
void api_request_maybe_free(struct api_request *request);

// ---- api_request_submit.c ----

// Gives all prompts to the engine. One that is refused sets request->error, and those before it are
// aborted.
void api_request_submit(struct api_request *request);

// ---- choice_delta.c ----

// The engine's on_event; `prompt` is the user data. A choice ends with one delta whatever happens.
void choice_delta_on_event(const struct nvllm_event *event, void *prompt);
void choice_delta_free(struct choice_delta *delta);

// ---- api_request_answer.c ----

// The message of a delta. It is held until the request is prepared.
void api_request_handle_delta(struct loop_message *message);
// Counts a delta of a prepared request and writes or keeps it. Frees it, and maybe the request.
void api_request_take_delta(struct choice_delta *delta);
// The head of a stream, before its first token, so that proxies see that the request lives.
void api_request_begin_stream(struct api_request *request);
// Whole answers. The connection is not the request's any more.
void api_request_reply_error(struct api_request *request, const struct api_error *error);
void api_request_reply_result(struct api_request *request, const struct json_out *out);
// Ends a request of which some has run, and aborts what still runs.
void api_request_fail(struct api_request *request, const struct api_error *error);
// Fills the counts that the log shows.
void api_request_fill_counts(struct api_request *request);

#endif
