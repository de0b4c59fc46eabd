/* Parts of answers that completions and chats share: the head of each object, usage, why an answer
 * ended, the events of a stream. */
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "server/loop/api_request.h"

// {"id":...,"object":...,"created":...,"model":...
void answer_write_head(struct json_out *out, const struct api_request *request, const char *object);
// "usage":{...} of the whole request, or of what it has so far.
void answer_write_usage(struct json_out *out, const struct api_request *request);
// ,"token_ids":[...] that no chunk had yet; null where the request does not ask for them.
void answer_write_token_ids(struct json_out *out, struct choice *choice);
// ,"prompt_token_ids":[...]; likewise.
void answer_write_prompt_ids(struct json_out *out, const struct prompt *prompt);
// ,"timings":{...} as llama-server has them. Nothing where a request has several answers, because
// they share their time.
void answer_write_timings(struct json_out *out, const struct choice *choice);
// "finish_reason":"stop","stop_reason":"END": null while it goes on.
void answer_write_finish(struct json_out *out, const struct choice *choice, const char *reason);
// "stop", "length" or "abort".
const char *answer_finish_name(const struct choice *choice);
// endpoint->collect of chats: the delta's parts go to choice->blocks.
bool answer_collect(struct choice *choice, const struct choice_delta *delta);
// user_data of a chat_event_fn that writes.
struct answer_target {
    struct choice *choice;
    struct json_out *out;
};
// Divides a delta of a chat's stream into its parts and hands each to `write`: the text of a part
// once, however many tokens bring it. A failure is noted in `out`.
void answer_split(struct choice *choice, const struct choice_delta *delta, chat_event_fn write,
                  struct json_out *out);
// Whether the event is the first of another block than the last of choice->blocks.
bool answer_begins_block(const struct choice *choice, const struct chat_event *event);
// answer_split for endpoints whose streams have blocks. A delta of tokens that complete no
// character becomes an event without text for the open block, so that clients see when tokens come.
void answer_split_blocks(struct choice *choice, const struct choice_delta *delta,
                         chat_event_fn write, struct json_out *out);
// An event of a stream: its data, which the caller writes, is between the two.
void answer_begin_event(struct json_out *out);
// A chunk up to the index of its choice: data: {"id":...,"choices":[{"index":0
void answer_begin_chunk(struct json_out *out, const struct choice *choice, const char *object);
void answer_end_event(struct json_out *out);
void answer_write_done(struct json_out *out); // data: [DONE]
// endpoint->write_error of OpenAI's streams.
void answer_write_stream_error(struct api_request *request, const struct api_error *error,
                               struct json_out *out);
// The last chunk, with the usage, where it was asked for; then the stream's end.
void answer_write_stream_end(struct api_request *request, const char *object, struct json_out *out);
enum answer_chunk {
    ANSWER_HEAD, // comes before the choice's first token: a role, an echo
    ANSWER_PART,
    ANSWER_LAST, // of the choice
};
// The end of a chunk behind its choices: usage and timings where every chunk has them.
void answer_end_chunk(struct json_out *out, const struct choice *choice, enum answer_chunk kind);

#endif
