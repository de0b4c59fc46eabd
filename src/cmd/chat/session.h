/* One conversation with one engine. Sends the messages, prints the answer while it is generated,
 * and keeps it. Each turn sends the whole conversation; the engine's prefix cache spares computing
 * it again. */
#ifndef CMD_CHAT_SESSION_H
#define CMD_CHAT_SESSION_H

#include "base/os/output_file.h"
#include "base/text/buf.h"
#include "cmd/chat/messages.h"
#include "nanovllm.h"
#include "text/chat/think.h"

// Tokens and seconds of one answer, or of all.
struct chat_usage {
    uint64_t num_answers;
    uint64_t num_prompt_tokens, num_cached_tokens, num_generated_tokens;
    uint64_t num_prefill_tokens, num_decode_tokens; // run through the model
    double prefill_seconds, decode_seconds; // of the steps that ran any such tokens
};

enum { CHAT_TAGS_MAX = 16 };

struct chat_session {
    struct nvllm_engine *engine; // borrowed
    const struct nvllm_sampling_params *sampling; // borrowed
    struct chat_output *output; // borrowed
    uint32_t max_model_len;
    struct chat_messages messages;
    struct chat_usage last, total;
    // No answer can be generated or printed any more; the returned error said why.
    bool broken;
    // Token ids of tags without text: [i] is that of tag i in the table; -1: the tag has text.
    int32_t open_ids[CHAT_TAGS_MAX], close_ids[CHAT_TAGS_MAX];
    // State of the current answer:
    struct think think;
    struct buf answer; // what the conversation keeps of it
    bool has_text; // any text came, also such that is not kept
    enum nvllm_finish_reason finish_reason;
    enum status status; // the first fault in a callback, with its sentence
    struct err err;
};

// The caller sets the borrowed fields, max_model_len and messages before.
void chat_session_start(struct chat_session *session);
void chat_session_fini(struct chat_session *session);

// Adds a user's message and answers it. On failure the conversation stays as it was. If Ctrl-C
// stops the answer, its text so far is kept. If no text came, the message is removed too.
MUST_USE enum status chat_session_send(struct chat_session *session, const char *text, size_t len,
                                       struct err *err);
// Answers the last user's message again, with a new seed. ERR_INVALID: there is no message. If no
// new answer comes, or it was stopped in thinking that is not kept, the old one stays.
MUST_USE enum status chat_session_regenerate(struct chat_session *session, struct err *err);

/* Prints a chat. On a terminal, thinking is dimmed. The model's control characters become U+FFFD
 * there, so that an answer cannot move the cursor. Elsewhere text is written as it is. */

struct chat_output {
    struct output_file file; // standard output
    bool terminal; // standard output is one
    bool color; // escape sequences for dimmed text are allowed
    bool talks; // a person is at the prompt: notes are printed
    bool hide_thinking;
    // State of the current answer:
    bool dimmed;
    bool past_blanks; // hide_thinking: text was printed
    struct buf text; // not yet written
};

MUST_USE enum status chat_output_init(struct chat_output *output, struct err *err);
void chat_output_fini(struct chat_output *output);

void chat_output_begin(struct chat_output *output); // begins an answer
// A think_fn; `user_data` is the output.
MUST_USE enum status chat_output_piece(void *user_data, const char *text, size_t len,
                                       enum think_part part, struct err *err);
MUST_USE enum status chat_output_flush(struct chat_output *output, struct err *err);
MUST_USE enum status chat_output_end(struct chat_output *output, struct err *err); // newline

// Prints requested text. chat_output_note prints only if a person is at the prompt.
MUST_USE enum status chat_output_print(struct chat_output *output, struct err *err,
                                       const char *format, ...) PRINTF_LIKE(3, 4);
MUST_USE enum status chat_output_note(struct chat_output *output, struct err *err,
                                      const char *format, ...) PRINTF_LIKE(3, 4);

#endif
