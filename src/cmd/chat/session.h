/* One conversation with one engine: sends the messages, prints the answer as it comes, keeps it.
 * The engine's prefix cache carries the conversation from turn to turn; nothing else does. */
#ifndef CMD_CHAT_SESSION_H
#define CMD_CHAT_SESSION_H

#include "cmd/chat/messages.h"
#include "cmd/chat/output.h"
#include "nanovllm.h"
#include "text/think.h"

// What one answer, or all of them, took.
struct chat_usage {
    uint64_t num_answers;
    uint64_t num_prompt_tokens, num_cached_tokens, num_generated_tokens;
    uint64_t num_prefill_tokens, num_decode_tokens; // run through the model
    double prefill_seconds, decode_seconds; // of the steps that ran some
};

enum { CHAT_TAGS_MAX = 16 };

struct chat_session {
    struct nvllm_engine *engine; // borrowed
    const struct nvllm_sampling_params *sampling; // borrowed
    struct chat_output *output; // borrowed
    uint32_t max_model_len;
    struct chat_messages messages;
    struct chat_usage last, total;
    // No answer can come or be printed any more; the status that was returned says why.
    bool broken;
    // Tags that are tokens without text: [i] of the table's tag i, -1: it has text.
    int32_t open_ids[CHAT_TAGS_MAX], close_ids[CHAT_TAGS_MAX];
    // Of the answer under way.
    struct think think;
    struct buf answer;
    enum nvllm_finish_reason finish_reason;
    enum status status; // the first fault in a callback, with its sentence
    struct err err;
};

// The borrowed fields, max_model_len and messages are set already.
void chat_session_start(struct chat_session *session);
void chat_session_fini(struct chat_session *session);

// Adds a user's message and answers it. Where that fails the conversation is as it was before. An
// answer that Ctrl-C stopped is kept as far as it came; where nothing came, the message goes too.
MUST_USE enum status chat_session_send(struct chat_session *session, const char *text, size_t len,
                                       struct err *err);
// Answers the last user's message again, with other random numbers. ERR_INVALID: there is none. The
// old answer stays where no new one came.
MUST_USE enum status chat_session_regenerate(struct chat_session *session, struct err *err);

#endif
