/* An observer that keeps a picture of the engine from what it is told alone, and fails the test
 * where that does not fit together: blocks and their holders, what each slot of the KV cache holds,
 * and the tokens of each sequence. */
#ifndef SUPPORT_STEP_WATCH_H
#define SUPPORT_STEP_WATCH_H

#include <stdbool.h>

#include "nanovllm.h"

enum { WATCH_BLOCKS_MAX = 64, WATCH_SLOTS_MAX = WATCH_BLOCKS_MAX * 16, WATCH_SEQS_MAX = 64 };

struct watched_sequence {
    bool is_active; // it was admitted, and not preempted since
    uint64_t request_id;
    uint32_t index;
    int32_t tokens[512]; // that went in or came out
    uint32_t num_tokens, num_prompt_tokens;
    uint32_t num_computed; // tokens whose keys and values are in the cache
    uint32_t num_outputs;
    enum nvllm_finish_reason finish_reason;
};

struct step_watch {
    bool is_attached_late; // what slots held before is unknown, so slots are not checked
    uint32_t holders[WATCH_BLOCKS_MAX];
    bool is_cached[WATCH_BLOCKS_MAX];
    int32_t slots[WATCH_SLOTS_MAX]; // the token whose keys and values are there
    struct watched_sequence sequences[WATCH_SEQS_MAX]; // by sequence id
    uint32_t num_used; // blocks
    double last_output_end;
    // What came in all calls.
    uint64_t num_calls, num_steps, last_step;
    uint64_t num_prefill_tokens, num_decode_tokens;
    uint64_t num_taken, num_freed, num_preempted;
    uint64_t num_hit_blocks, num_first_hit_blocks; // of all admissions, of the first ones
    uint64_t changes[5]; // blocks with the n-th flag of nvllm_block_change
    uint64_t num_overlaps; // steps that were launched before the one before had its results
    double last_results;
};

void step_watch_call(const struct nvllm_step_trace *trace, void *user_data); // an nvllm_step_fn

#endif
