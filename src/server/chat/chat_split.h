/* Divides the answer to a chat, as it comes, into reasoning, content and tool calls. Joins
 * reasoning.h and tool_calls.h: calls are looked for in the content alone. The same text gives the
 * same parts, whole or in pieces. */
#ifndef SERVER_CHAT_SPLIT_H
#define SERVER_CHAT_SPLIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text/buf.h"
#include "server/chat/tool_calls.h"
#include "server/chat/tool_format.h"

enum chat_part {
    CHAT_REASONING, // text
    CHAT_CONTENT, // text
    CHAT_CALL, // a call begins: its id and name
    CHAT_ARGUMENTS, // text of its arguments' JSON
    CHAT_CALL_END,
};

struct chat_event {
    enum chat_part part;
    uint32_t index; // of the call, from 0
    const char *id, *name; // CHAT_CALL: valid during the callback, as is the text
    const char *text; // [len], never empty where the part is text
    size_t len;
    bool is_unfinished; // CHAT_CALL_END: the answer ended before its arguments did
};

typedef enum status (*chat_event_fn)(void *user_data, const struct chat_event *event,
                                     struct err *err);

struct chat_split_options {
    bool splits_reasoning; // else it and its tags are content
    bool drops_reasoning; // no event tells of it
    const struct tool_format *format; // NULL: calls are content
    bool calls_are_text; // calls stay content; only the format's marks around text are removed
    json_t *tools; // of the chat, whose parameters say what values in tags are; borrowed by create
    bool one_call; // calls after the first are dropped
    bool has_channels; // the model's answers are as harmony.h says
    uint64_t seed; // of the calls' ids
};

struct chat_split;

// For an answer to `prompt`. NULL: no memory.
struct chat_split *chat_split_create(const struct chat_split_options *options, const char *prompt,
                                     size_t prompt_len);
void chat_split_destroy(struct chat_split *split); // NULL is fine
// The prompt ends with the beginning of the answer, which is not emitted again. Before the first
// push.
MUST_USE enum status chat_split_begin(struct chat_split *split, const char *text, size_t len,
                                      struct err *err);
// Emits all that is certain after `text`. After an error nothing may be pushed.
MUST_USE enum status chat_split_push(struct chat_split *split, const char *text, size_t len,
                                     chat_event_fn emit, void *user_data, struct err *err);
// The end of the answer.
MUST_USE enum status chat_split_finish(struct chat_split *split, chat_event_fn emit,
                                       void *user_data, struct err *err);
// Whether the text is inside the reasoning.
bool chat_split_is_thinking(const struct chat_split *split);
// Whether a call has begun.
bool chat_split_has_call(const struct chat_split *split);
// Whether a call has ended. Before chat_split_finish: by itself, and not with the answer.
bool chat_split_has_ended_call(const struct chat_split *split);

/* The answer to a chat as a list of blocks, kept from the events of chat_split.h: for answers that
 * are sent whole, and for streams that repeat all of it at their end. */

struct chat_block {
    enum chat_part part; // CHAT_REASONING, CHAT_CONTENT or CHAT_CALL
    char id[TOOL_CALL_ID_MAX + 1], name[TOOL_CALL_NAME_MAX + 1]; // of a call
    struct buf text; // a call's: its arguments
    bool is_unfinished; // a call: the answer ended before its arguments did
};

// All-zero is empty.
struct chat_blocks {
    struct chat_block *items; // [count]; texts that follow each other are one block
    size_t count;
};

void chat_blocks_fini(struct chat_blocks *blocks);
// A chat_event_fn whose user_data is the blocks.
enum status chat_blocks_add(void *blocks, const struct chat_event *event, struct err *err);
// Appends the texts of all blocks of a part.
MUST_USE enum status chat_blocks_join(const struct chat_blocks *blocks, enum chat_part part,
                                      struct buf *out, struct err *err);

#endif
