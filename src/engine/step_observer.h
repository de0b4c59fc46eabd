/* Tells a caller what each step did: fills struct nvllm_step_trace from the finished step and the
 * scheduler's state. Without an observer nothing is collected. */
#ifndef ENGINE_STEP_OBSERVER_H
#define ENGINE_STEP_OBSERVER_H

#include <stdbool.h>

#include "engine/schedule/block_changes.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/model_runner.h"
#include "nanovllm.h"

struct step_observer {
    nvllm_step_fn on_step; // NULL: nobody observes, and all the rest is zero
    void *user_data;
    struct block_changes changes; // the scheduler writes there
    struct nvllm_step_item
        *items; // [max_num_seqs], the first num_items are of the step that finishes
    uint32_t num_items;
    // By the step's slot: the block tables that its items had when it was launched, one behind the
    // other. [max_num_seqs * blocks of the longest sequence]
    uint32_t *tables[MODEL_RUNNER_SLOTS];
    const uint32_t *next_table; // of the next item
    struct nvllm_step_block *blocks; // [num_blocks]
    bool has_changes; // requests ended since the last call; or blocks were in use before the first
};

// `out` is written only on success; `config` is the scheduler's.
MUST_USE enum status step_observer_init(struct step_observer *out,
                                        const struct scheduler_config *config,
                                        uint32_t max_blocks_per_seq, nvllm_step_fn on_step,
                                        void *user_data, struct err *err);
void step_observer_fini(struct step_observer *observer); // all-zero is fine

// When a step is launched: keeps its items' block tables, which may change before it finishes.
void step_observer_note_launch(struct step_observer *observer, uint32_t slot,
                               const struct schedule *schedule, uint32_t block_size);
// Before the first item of a step that finishes.
void step_observer_begin(struct step_observer *observer, uint32_t slot);
// The next item of its schedule. ran: its tokens as the batch has them, which live until the call
// of the observer. num_output_tokens: what it added to the sequence.
void step_observer_add(struct step_observer *observer, const struct schedule *schedule,
                       uint32_t block_size, const int32_t *ran, uint32_t num_output_tokens);
// Calls the observer. `trace` has the step's number and times; this fills in the rest. `schedule`
// NULL: there was no step.
void step_observer_tell(struct step_observer *observer, const struct schedule *schedule,
                        const struct scheduler *scheduler, struct nvllm_step_trace *trace);

#endif
