/* What call.c (a call's life) and call_answer.c (what its client reads) share. */
#ifndef SERVER_CALL_INTERNAL_H
#define SERVER_CALL_INTERNAL_H

#include "server/loop/call.h"

// Frees the call once nobody has it any more: not the pool, not the engine, not the client.
void call_maybe_free(struct call *call);
void call_free_piece(struct piece *piece);

// What the log says of the call.
void call_fill_counts(struct call *call);
// The head of a stream, before its first token, so that proxies see that the request lives.
void call_begin_stream(struct call *call);
void call_reply_error(struct call *call, const struct api_error *error);
void call_reply_result(struct call *call, const struct json_out *out);
// The call fails after some of it has run; what still runs is aborted.
void call_fail(struct call *call, const struct api_error *error);
// Counts a piece of a prepared call and writes or keeps it. Frees it, and maybe the call.
void call_take_piece(struct piece *piece);

#endif
