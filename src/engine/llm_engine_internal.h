/* The engine's own struct, shared by llm_engine.c (life, step), llm_engine_prompt.c (what
 * goes in) and llm_engine_output.c (events). */
#ifndef ENGINE_LLM_ENGINE_INTERNAL_H
#define ENGINE_LLM_ENGINE_INTERNAL_H

#include "engine/engine_plan.h"
#include "engine/llm_engine.h"
#include "engine/request_table.h"

// A step that was launched and whose results are not taken yet.
struct flight {
    bool is_launched;
    uint32_t slot; // of the runner, and of the engine's batches
    // [num_rows] by row of the results; NULL: ended meanwhile
    struct request **requests;
    uint32_t num_rows;
    uint32_t num_prefill_tokens, num_decode_tokens; // as of struct schedule
    bool needs_history; // a row's penalties wait for its token
};

struct llm_engine {
    struct engine_plan plan;
    struct tokenizer *tokenizer; // NULL with skip_tokenizer_init
    char *model; // the folder, for a chat template that is opened late
    struct chat_template *chat_template; // NULL until it is wanted
    struct model_runner *runner;
    struct scheduler *scheduler;
    struct batch batches[MODEL_RUNNER_SLOTS];
    struct flight flights[MODEL_RUNNER_SLOTS]; // at most one is launched between two steps
    uint32_t next_slot;
    struct request_table requests;
    struct buf piece; // text of one event, reserved when requests are added
    uint64_t secret; // of this process: keys the hashes of the prefix cache
    uint64_t next_id;
    bool in_callback; // an event is being delivered
    struct request *aborted; // by that callback, linked through next_aborted
    bool failed; // the device is gone: nothing more can run
    struct nvllm_stats stats; // what the scheduler does not count itself
};

// The prompt's ids: the caller's, or those of its text or chat in *encoded. Checked.
MUST_USE enum status llm_engine_prompt_ids(struct llm_engine *engine,
                                           const struct nvllm_request *request,
                                           struct token_list *encoded, const int32_t **ids,
                                           size_t *count, struct err *err);

// One generated token of a request, pending until now: checked for its end, delivered. Frees the
// request at its end.
void llm_engine_take_token(struct llm_engine *engine, struct request *request,
                           const struct sample_result *result);
// Ends a request without a token, delivers the event and frees it.
// `error`: why, with NVLLM_FINISH_ERROR; else NULL.
void llm_engine_end_request(struct llm_engine *engine, struct request *request,
                            enum nvllm_finish_reason reason, const char *error);

#endif
