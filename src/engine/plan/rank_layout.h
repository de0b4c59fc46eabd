/* What the ranks of one engine exchange, as the plan has it: the shape of sums and logits, and the
 * layout of the memory that the ranks of a host share (executor/rank_segment.h). */
#ifndef ENGINE_PLAN_RANK_LAYOUT_H
#define ENGINE_PLAN_RANK_LAYOUT_H

#include "comm/shm_comm.h"
#include "engine/plan/engine_plan.h"

enum {
    RANK_COMMANDS = 2, // commands that may be unfinished at once
    RANK_HEAD_BYTES = 64 << 10, // of struct rank_segment, with which the memory begins
};

struct rank_layout {
    size_t size_bytes; // of the whole memory
    // Where its parts are, in bytes from its start.
    size_t options_at, batch_at[MODEL_RUNNER_SLOTS], results_at, ids_at[RANK_COMMANDS], comm_at;
    struct shm_comm_shape comm_shape; // of ranks on CPUs
    struct collective_spec collective; // of ranks with devices; `rank` is not set
};

// `options_bytes`: of the options with their texts, which workers read.
struct rank_layout rank_layout_make(const struct engine_plan *plan, size_t options_bytes);
// One rank's share of the memory, for the memory plan. Texts of options are not counted.
size_t rank_layout_share_bytes(const struct engine_plan *plan);
// What this rank's device needs to know of the group.
void rank_layout_collective_spec(const struct engine_plan *plan, struct collective_spec *out);
// Sizes of what CPU ranks send each other.
struct shm_comm_shape rank_layout_comm_shape(const struct engine_plan *plan);

#endif
