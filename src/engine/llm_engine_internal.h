/* The engine's own struct, shared by llm_engine.c (life, step), llm_engine_prompt.c and
 * llm_engine_request.c (what goes in) and llm_engine_output.c (events).
 *
 * Any thread reads what does not change after llm_engine_create, and uses the inbox. Everything else
 * is touched by the engine's thread alone. */
#ifndef ENGINE_LLM_ENGINE_INTERNAL_H
#define ENGINE_LLM_ENGINE_INTERNAL_H

#include <stdatomic.h>

#include "engine/count_slots.h"
#include "engine/engine_plan.h"
#include "engine/inbox.h"
#include "engine/llm_engine.h"
#include "engine/ranks/rank_group.h"
#include "engine/step_observer.h"

// A step from its schedule until its results are taken. The requests of its schedule live until then,
// also those that end meanwhile.
struct flight {
    bool is_launched;
    uint32_t slot; // of the runner
    struct schedule schedule;
    struct batch batch;
    struct nvllm_step_times times;
};

struct llm_engine {
    // Never change after llm_engine_create.
    struct engine_plan plan;
    struct tokenizer *tokenizer; // NULL with skip_tokenizer_init
    struct chat_template *chat_template; // NULL: the model has none that works, because of
    enum status template_status;
    struct err template_err;
    uint64_t secret; // of this process: keys the hashes of the prefix cache

    struct inbox inbox;
    atomic_bool is_entered; // a thread is in a function of the engine's thread

    struct rank_group *ranks; // NULL: the engine is one process
    struct model_runner *runner;
    struct scheduler *scheduler; // any thread may call scheduler_check
    struct flight flights[MODEL_RUNNER_SLOTS]; // at most one is launched between two steps
    uint32_t next_slot;
    struct count_slots count_slots;
    struct step_observer observer;
    bool failed; // the device is gone: nothing more can run
    struct nvllm_stats stats; // what neither the scheduler nor the inbox counts
};

// The prompt's ids: the caller's, or those of its text or chat in *encoded. Checked. `echo` (NULL: not
// wanted) gets the prompt's text. Any thread.
MUST_USE enum status llm_engine_prompt_ids(const struct llm_engine *engine,
                                           const struct nvllm_request *request,
                                           struct token_list *encoded, const int32_t **ids,
                                           size_t *count, struct buf *echo, struct err *err);

// A family that was taken out of the inbox: from now on it is the scheduler's.
void llm_engine_accept(struct llm_engine *engine, struct request *first);

// The log-probabilities of an item's rows of its prompt.
void llm_engine_take_prompt(struct request *request, const struct scheduled *item,
                            const struct sample_result *results);
// One generated token of a request, pending until `now`: checked for its end, delivered. One that was
// aborted stays as it is. Returns the token's id, -1: there is none.
int32_t llm_engine_take_token(struct llm_engine *engine, struct request *request,
                              const struct sample_result *result, double now);
// Ends a request without a token: delivers the event. `error`: why, with NVLLM_FINISH_ERROR; else NULL.
// One that was aborted meanwhile stays as it is.
void llm_engine_end_request(struct llm_engine *engine, struct request *request,
                            enum nvllm_finish_reason reason, const char *error);
// The same for all of a family that was taken from the inbox's aborted ones.
void llm_engine_end_aborted(struct llm_engine *engine, struct request *first);
// Of one that has ended: frees its family when nothing needs any of it.
void llm_engine_let_go(struct request *request);

// Tells the observer, where there is one, about a step that landed. NULL: requests ended without one.
void llm_engine_tell(struct llm_engine *engine, const struct flight *flight);
// The second of these, if requests ended since it was told last.
void llm_engine_tell_ends(struct llm_engine *engine);

#endif
