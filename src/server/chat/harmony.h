/* Splits an answer of gpt-oss, as it comes, into the events of chat_split.h. Its answers are
 * messages in channels:
 *
 *   <|channel|>analysis<|message|>TEXT<|end|>                                       reasoning
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json
 *       <|message|>{...}<|call|>                                                    a call
 *   <|start|>assistant<|channel|>final<|message|>TEXT<|return|>                     content
 *
 * A recipient may also stand before the channel. Commentary without one is content. A message to
 * any other recipient is reasoning: nothing here runs the model's own tools. The prompt may have
 * begun a message. Text that is in no message is content.
 *
 * A call ends with its arguments' last brace, because <|call|> ends the answer and has no text.
 * Arguments that are no JSON go on to the end of their message. */
#ifndef SERVER_CHAT_HARMONY_H
#define SERVER_CHAT_HARMONY_H

#include "base/json/jstream.h"
#include "server/chat/chat_split.h"

#define HARMONY_START "<|start|>"
#define HARMONY_CHANNEL "<|channel|>"
#define HARMONY_CONSTRAIN "<|constrain|>"
#define HARMONY_MESSAGE "<|message|>"
#define HARMONY_END "<|end|>"

enum { HARMONY_HEADER_MAX = 1024 }; // bytes of a header: a longer one is content

// One answer's. Its members are harmony.c's.
struct harmony {
    bool finds_calls, splits_reasoning;
    uint64_t seed; // of the calls' ids
    chat_event_fn emit; // of the push under way; NULL: nothing is emitted
    void *user_data;
    uint8_t state, kind; // kind: of the message under way
    bool at_start; // no message has begun
    size_t prompt_len; // with at_start: bytes of the header that the prompt has
    struct buf held; // a header, or what may be a mark
    struct buf text; // of this push, not handed out
    uint32_t num_calls;
    bool is_open; // a call has begun and not ended
    bool is_broken; // its arguments are no JSON
    struct jstream json; // of its arguments
};

// For an answer to `prompt`. False: no memory.
bool harmony_begin(struct harmony *harmony, const struct chat_split_options *options,
                   const char *prompt, size_t prompt_len);
void harmony_fini(struct harmony *harmony); // all-zero is fine
MUST_USE enum status harmony_push(struct harmony *harmony, const char *text, size_t len,
                                  struct err *err);
MUST_USE enum status harmony_finish(struct harmony *harmony, struct err *err);
bool harmony_is_thinking(const struct harmony *harmony);

#endif
