/* A picture of the engine's blocks, sequences and steps, for those who watch it. The engine's
 * thread updates it after each step, and the loop takes the changes at its own rate. Both hold one
 * lock, to copy and for nothing else. While nobody watches, the engine has no observer and a step
 * pays an atomic load.
 *
 * Blocks carry their tokens, so that the loop can show any one of them without asking the
 * engine. */
#ifndef SERVER_ENGINE_VIEW_H
#define SERVER_ENGINE_VIEW_H

#include <stdbool.h>

#include "base/err.h"
#include "nanovllm.h"

enum {
    VIEW_BLOCKS_MAX = 1 << 18, // shown: a cache with more blocks has its first ones shown
    VIEW_STEPS_MAX = 64, // of the newest steps
    VIEW_SEQUENCES_MAX = 128,
    VIEW_TABLE_MAX = 4096, // entries of all block tables shown
};

enum view_block_state {
    VIEW_FREE,
    VIEW_CACHED, // nobody holds it, the prefix cache can find it
    VIEW_USED, // one sequence holds it
    VIEW_PUBLISHED, // one sequence holds it, and the prefix cache can find it
    VIEW_SHARED, // several sequences hold it
};

struct view_block {
    uint32_t id;
    uint8_t state; // enum view_block_state
    uint32_t num_holders;
    uint32_t num_tokens; // whose keys and values it has
};

struct view_step {
    uint64_t number;
    float schedule_ms, model_ms, output_ms; // model: from the launch to the results
    double end; // when it was over, seconds of CLOCK_MONOTONIC
    uint32_t num_prefill_tokens, num_decode_tokens, num_seqs, num_preempted;
};

struct view_sequence {
    // Its block_table points into struct view_news, and has the blocks that it holds in all groups.
    struct nvllm_sequence seq;
    uint32_t first_block; // of its table in the tables
    uint32_t num_step_tokens; // that the last step ran of it; 0: none
    bool is_prefill; // these were of the prompt
};

// What the loop takes: everything since it took last.
struct view_news {
    bool is_new; // false: nothing happened, and nothing below is valid
    bool is_whole; // blocks has all that are not free, not only those that changed
    struct view_block *blocks; // [num_blocks] those that changed, the first num_changed are valid
    uint32_t num_changed;
    struct view_step steps[VIEW_STEPS_MAX]; // the newest, the oldest first
    uint32_t num_steps;
    struct view_sequence sequences[VIEW_SEQUENCES_MAX];
    uint32_t num_sequences;
    uint32_t tables[VIEW_TABLE_MAX]; // block tables; a longer one ends early
    uint32_t num_running, num_waiting;
};

struct engine_view;

// `engine` is borrowed. No memory for blocks is taken before somebody watches.
struct engine_view *engine_view_create(struct nvllm_engine *engine); // NULL: no memory
// The engine's thread has ended; the engine has not. NULL is fine.
void engine_view_destroy(struct engine_view *view);

// ---- the loop's thread ----

MUST_USE enum status engine_view_watch(struct engine_view *view, struct err *err);
void engine_view_unwatch(struct engine_view *view);
// `is_whole`: also blocks that did not change; the view may decide so by itself.
const struct view_news *engine_view_take(struct engine_view *view, bool is_whole);
// tokens: [block_size]; -1: not known, the block was filled before anybody watched. False: no such
// block, or nobody watches.
bool engine_view_block(struct engine_view *view, uint32_t id, struct view_block *block,
                       int32_t *tokens);
uint32_t engine_view_num_blocks(const struct engine_view *view); // that are shown
uint32_t engine_view_block_size(const struct engine_view *view);

// ---- the engine's thread, between two steps ----

// Begins or ends to observe, as the loop wants.
void engine_view_attend(struct engine_view *view);
// Looks at the sequences although no step ran: some may have come or gone while it is paused.
void engine_view_look(struct engine_view *view);

#endif
