/* What the engine room says, as JSON: events, a block with its text, counters. */
#ifndef SERVER_ENGINE_ROOM_JSON_H
#define SERVER_ENGINE_ROOM_JSON_H

#include "base/json/json_out.h"
#include "server/observe/engine_view.h"

struct room_now {
    const struct view_news *news;
    struct nvllm_stats stats;
    bool is_paused;
    uint32_t num_blocks, block_size; // of blocks that are shown
    const char
        *request_ids[VIEW_SEQUENCES_MAX]; // of news->sequences, as in the log; NULL: not known
};

// One server-sent event: `state` has the whole picture, `step` what changed.
void engine_room_write_event(struct json_out *out, const struct room_now *now);
// tokens: [block_size], -1: not known.
void engine_room_write_block(struct json_out *out, const struct view_block *block,
                             const int32_t *tokens, uint32_t block_size,
                             const struct nvllm_tokenizer *tokenizer);
// "stats":{...}
void engine_room_write_stats(struct json_out *out, const struct nvllm_stats *stats);

#endif
