/* What an engine will be, decided before any weight is loaded: the options checked and resolved
 * against the model and the machine, and the memory plan (weights + workspace + KV cache) that must
 * fit. */
#ifndef ENGINE_ENGINE_PLAN_H
#define ENGINE_ENGINE_PLAN_H

#include "backend/backend.h"
#include "checkpoint/model_config.h"
#include "engine/batch.h"
#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "model/decoder.h"
#include "model/family.h"
#include "nanovllm.h"

struct engine_plan {
    struct model_config config;
    struct generation_config generation;
    struct family_traits traits;
    struct decoder_shape shape;
    uint32_t rank, world_size; // of the tensor-parallel group
    struct backend *backend; // the plan's own
    bool dummy_weights;
    bool is_async; // a step is launched before the one before is waited for
    uint32_t max_model_len;
    uint64_t seed;
    struct scheduler_config scheduler; // hash_seed left 0
    struct model_runner_options runner; // its decoder.limits are the step's

    size_t weights_bytes;
    size_t workspace_bytes;
    size_t kv_block_bytes;
    size_t memory_available_bytes; // when the plan was made; 0: unknown
    size_t memory_left_bytes; // of a device, likewise, whoever takes it
    // On a device, where the options do not say how many KV blocks: scheduler.num_blocks is at
    // most so many, and the runner begins with a cache of few, until engine_plan_fill_memory.
    bool fills_memory;
};

// The plan of one rank, 0 .. tensor_parallel_size - 1. `options` checked by the parameter table
// already. A plan may need more memory than there is.
MUST_USE enum status engine_plan_make(struct engine_plan *plan,
                                      const struct nvllm_engine_options *options, uint32_t rank,
                                      struct err *err);
void engine_plan_fini(struct engine_plan *plan); // all-zero is fine
// The checkpoint's weights, or random ones; the caller closes them.
MUST_USE enum status engine_plan_open_weights(const struct engine_plan *plan,
                                              const struct nvllm_engine_options *options,
                                              struct weights **out, struct err *err);
// ERR_NOMEM says what is needed and what there is.
MUST_USE enum status engine_plan_check_memory(const struct engine_plan *plan, struct err *err);
// Of a plan that fills memory: as many KV blocks as there is room for, now that the runner has been
// made and warmed up, so that all else has its memory. Nothing of that is guessed: loaded kernels,
// recorded steps and what allocations are rounded up to are as much as the device's memory became
// less. ERR_NOMEM: there is no room for a sequence of max_model_len.
MUST_USE enum status engine_plan_fill_memory(struct engine_plan *plan, struct err *err);
size_t engine_plan_total_bytes(const struct engine_plan *plan);
// nvllm_inspect's JSON; *json is the caller's (free).
MUST_USE enum status engine_plan_json(const struct engine_plan *plan, char **json, struct err *err);

#endif
