/* All decisions about an engine that are made before any weight is loaded. The options are resolved
 * against the model and the machine, and weights, workspace and KV cache make up the memory
 * plan. */
#ifndef ENGINE_ENGINE_PLAN_H
#define ENGINE_ENGINE_PLAN_H

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "checkpoint/pooling_config.h"
#include "engine/draft/draft_costs.h"
#include "engine/draft/draft_options.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/batch.h"
#include "engine/step/model_runner.h"
#include "model/decoder.h"
#include "model/family.h"
#include "nanovllm.h"

struct engine_plan {
    struct checkpoint *checkpoint; // the plan's own; its config and generation are these
    struct model_config config;
    struct generation_config generation;
    struct pooling_config pooling;
    struct layer_table layers;
    struct decoder_shape shape;
    uint32_t engine; // number of the engine in its data-parallel group
    uint32_t rank, world_size; // of the tensor-parallel group
    // Under mpirun: the process that is the group's rank 0. If not 0, this process runs no rank of
    // the group: it only tells the group what to run.
    uint32_t first_process;
    uint32_t rank_on_host; // of all engines' ranks on this host
    uint32_t num_on_host; // of them, which share its memory
    uint32_t num_sharing; // of these, how many share this one's cores
    struct backend *backend; // the plan's own
    bool dummy_weights;
    struct weight_format format; // of the layers' weights, unless they stay packed as stored
    bool is_async; // step n + 1 is launched before step n is waited for
    uint32_t max_model_len;
    uint32_t longest_model_len; // the longest max_model_len that a KV cache of this size allows
    uint64_t seed;
    struct draft_options drafts;
    struct draft_costs draft_costs; // of adaptive drafts
    struct scheduler_config scheduler; // hash_seed left 0
    struct model_runner_options runner; // its decoder.limits are the step's

    size_t weights_bytes;
    size_t workspace_bytes;
    size_t kv_block_bytes;
    size_t state_bytes; // of all slots of recurrent layers, snapshots included; 0: there are none
    size_t memory_available_bytes; // when the plan was made; 0: unknown
    // Free memory of the device, or this rank's share of it, when the plan was made.
    size_t memory_left_bytes;
    // On a device whose KV cache takes the memory that is left: until warm_up_run,
    // scheduler.num_blocks is an upper bound, and the runner has a small trial cache.
    bool fills_memory;
    uint32_t num_on_gpu; // ranks that share this one's GPU, itself included
    bool is_one_host; // all ranks of the group are on this host, their numbers there in a row
    enum collective_kind collective_kind; // how the ranks' devices reach each other
};

// The plan of one rank, 0 .. tensor_parallel_size - 1, of an engine, 0 .. data_parallel_size - 1.
// `options` are checked already. A plan may need more memory than there is.
MUST_USE enum status engine_plan_make(struct engine_plan *plan,
                                      const struct nvllm_engine_options *options, uint32_t engine,
                                      uint32_t rank, struct err *err);
// Ranks of all engines of a data-parallel group.
uint32_t engine_plan_num_ranks(const struct nvllm_engine_options *options);
// Whether mpirun starts the ranks.
bool engine_plan_uses_mpi(const struct nvllm_engine_options *options);
void engine_plan_fini(struct engine_plan *plan); // all-zero is fine
// Opens the checkpoint's weights, or random ones. The caller closes them.
MUST_USE enum status engine_plan_open_weights(const struct engine_plan *plan, struct weights **out,
                                              struct err *err);
// The format of most layers' weights: the checkpoint's, if they stay packed, else plan->format.
struct weight_format engine_plan_weight_format(const struct engine_plan *plan);
// Finds the memory that this process may take, and what all parts but the KV cache take of it. Of
// engine_plan_make.
MUST_USE enum status engine_plan_find_memory(struct engine_plan *plan,
                                             const struct nvllm_engine_options *options,
                                             struct err *err);
// ERR_NOMEM: the plan needs more memory than there is. ERR_INVALID: nothing says how ranks share a
// GPU's memory.
MUST_USE enum status engine_plan_check_memory(const struct engine_plan *plan, struct err *err);
// Most KV blocks that a sequence of num_tokens tokens holds at a time, over all KV groups.
uint64_t engine_plan_blocks_for(const struct engine_plan *plan, uint32_t num_tokens);
// Most tokens of a request: max_model_len, or what the whole KV cache holds if that is less. Call
// it when warm_up_run is over.
uint32_t engine_plan_context_len(const struct engine_plan *plan);
uint64_t engine_plan_most_blocks(const struct engine_plan *plan); // the highest number of KV blocks
// Of the tables of KV blocks and cached prefixes. Rank 0 has them, in the host's memory: 0 on a
// device with memory of its own.
size_t engine_plan_scheduler_bytes(const struct engine_plan *plan);
size_t engine_plan_total_bytes(const struct engine_plan *plan);
// Memory that is left beside all that the plan counts. If the KV cache is to fill what is left
// (fills_memory), a cache for one sequence of max_model_len is counted.
size_t engine_plan_spare_bytes(const struct engine_plan *plan);
// Writes nvllm_inspect's JSON. The caller frees *json.
MUST_USE enum status engine_plan_json(const struct engine_plan *plan, char **json, struct err *err);

#endif
