/* The answer to a chat as a list of blocks, kept from the events of chat_split.h: for answers that
 * are sent whole, and for streams that repeat all of it at their end. */
#ifndef SERVER_CHAT_BLOCKS_H
#define SERVER_CHAT_BLOCKS_H

#include "server/chat/chat_split.h"
#include "server/chat/tool_calls.h"

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
