#include "server/chat/chat_blocks.h"

#include <stdio.h>
#include <stdlib.h>

void chat_blocks_fini(struct chat_blocks *blocks) {
    for (size_t i = 0; i < blocks->count; i++) buf_fini(&blocks->items[i].text);
    free(blocks->items);
    *blocks = (struct chat_blocks){0};
}

static enum status begin_block(struct chat_blocks *blocks, const struct chat_event *event,
                               struct err *err) {
    struct chat_block *items = realloc(blocks->items, (blocks->count + 1) * sizeof *items);
    if (!items) return err_nomem(err, "answer");
    blocks->items = items;
    struct chat_block *block = &items[blocks->count];
    *block = (struct chat_block){.part = event->part};
    if (event->part == CHAT_CALL) {
        snprintf(block->id, sizeof block->id, "%s", event->id);
        snprintf(block->name, sizeof block->name, "%s", event->name);
    }
    blocks->count++;
    return OK;
}

enum status chat_blocks_add(void *user_data, const struct chat_event *event, struct err *err) {
    struct chat_blocks *blocks = user_data;
    if (event->part == CHAT_CALL_END) {
        if (blocks->count) blocks->items[blocks->count - 1].is_unfinished = event->is_unfinished;
        return OK;
    }
    const struct chat_block *last = blocks->count ? &blocks->items[blocks->count - 1] : NULL;
    bool goes_on = event->part == CHAT_ARGUMENTS || (last && last->part == event->part);
    enum status status = OK;
    if (!goes_on || event->part == CHAT_CALL) status = begin_block(blocks, event, err);
    if (status || !event->len) return status;
    return buf_append(&blocks->items[blocks->count - 1].text, event->text, event->len, err);
}

enum status chat_blocks_join(const struct chat_blocks *blocks, enum chat_part part, struct buf *out,
                             struct err *err) {
    enum status status = buf_reserve(out, 0, err);
    for (size_t i = 0; i < blocks->count && !status; i++) {
        const struct chat_block *block = &blocks->items[i];
        if (block->part == part && block->text.len) {
            status = buf_append(out, block->text.data, block->text.len, err);
        }
    }
    return status;
}
