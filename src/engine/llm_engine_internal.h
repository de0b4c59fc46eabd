/* The engine's own struct, shared by llm_engine_load.c (start), llm_engine.c (steps, end),
 * llm_engine_prompt.c and llm_engine_request.c (what goes in), llm_engine_output.c (events),
 * llm_engine_drafts.c (drafts) and llm_engine_pooling.c (vectors in place of text).
 *
 * Any thread reads what does not change after llm_engine_load, and uses the inbox. Everything else
 * is touched by the engine's thread alone. */
#ifndef ENGINE_LLM_ENGINE_INTERNAL_H
#define ENGINE_LLM_ENGINE_INTERNAL_H

#include <stdatomic.h>

#include "backend/log_softmax.h"
#include "engine/draft/draft_pool.h"
#include "engine/draft/drafter.h"
#include "engine/event_turn.h"
#include "engine/executor/executor.h"
#include "engine/llm_engine.h"
#include "engine/plan/engine_plan.h"
#include "engine/request/forms.h"
#include "engine/request/inbox.h"
#include "engine/request/token_count_slots.h"
#include "engine/step_observer.h"

// Most tokens that a step may bring for one output; the text of an event holds theirs.
enum { LLM_ENGINE_STEP_TOKENS_MAX = 1 + DRAFT_TOKENS_MAX };

// A step from its schedule until its results are taken. A request in its schedule that ends
// meanwhile is freed only after that.
struct inflight_step {
    bool is_launched;
    bool has_waited; // for the results before it, because of drafts; else steps overlap if they can
    uint32_t slot; // of the executor
    struct schedule schedule;
    struct batch batch;
    struct nvllm_step_times times;
};

struct llm_engine {
    // Never change after llm_engine_load.
    struct engine_plan plan;
    const struct llm_engine *text_of; // whose tokenizer this engine uses; NULL: its own
    struct tokenizer *tokenizer; // NULL with skip_tokenizer_init
    struct forms *forms; // of answers; has a lock of its own
    struct chat_template *chat_template; // NULL: none works, and the next two say why
    enum status template_status;
    struct err template_err;
    uint64_t secret; // of this process: keys the hashes of the prefix cache
    struct llm_engine_shared shared; // all-zero: the engine is alone
    double start_seconds; // when it was planned

    struct inbox inbox;
    atomic_bool is_entered; // a thread drives the engine now: llm_engine_enter

    struct executor *executor;
    struct thread_pool *mask_threads; // make the masks of forms while a step runs; NULL: not needed
    uint32_t num_mask_threads; // to create; 0: that was tried
    struct scheduler *scheduler; // any thread may call scheduler_check
    // Between two calls of llm_engine_step at most one of them is launched.
    struct inflight_step inflight_steps[MODEL_RUNNER_SLOTS];
    uint32_t next_slot; // of the next launch
    struct token_count_slots token_count_slots;
    struct row_buffers {
        uint64_t *scratch; // [2][vocab_size]
        struct ranked_token *ranked; // [vocab_size]
    } row_buffers; // for the log-probabilities of a prompt's token over the whole vocabulary
    struct drafter drafter;
    struct draft_pool draft_pool; // all-zero without drafts from others' texts
    struct draft_offer *draft_offers; // [drafter.rows_max]
    double last_done; // when the last step was done; 0: the engine was idle since, or is new
    struct step_observer observer;
    bool failed; // a step failed: nothing more can run
    struct nvllm_stats stats; // what neither the scheduler nor the inbox counts
    atomic_ullong num_step_tokens; // of `stats`, prefill and decode; any thread reads it
};

// Leaves a copy of the statistics in the inbox, where any thread reads it.
void llm_engine_publish_stats(struct llm_engine *engine);

// Finds the prompt's ids and checks them: the caller's, or those of its text or chat in *encoded.
// `echo` (NULL: not wanted) gets the prompt's text. Any thread. `is_rendered`: see
// llm_engine_build_request.
MUST_USE enum status llm_engine_prompt_ids(const struct llm_engine *engine,
                                           const struct nvllm_request *request, bool is_rendered,
                                           struct token_list *encoded, const int32_t **ids,
                                           size_t *count, struct buf *echo, struct err *err);

// Gives all outputs of a request from the inbox to the scheduler.
void llm_engine_accept(struct llm_engine *engine, struct request *first);

// A model_runner_row_fn. Keeps the log-probabilities of the whole vocabulary for a row of a prompt,
// for requests that want them (NVLLM_LOGPROBS_ALL). llm_engine_take_prompt adds that of the
// prompt's own token.
void llm_engine_take_row(void *engine, uint32_t slot, uint32_t row, const float *logits);
// A model_runner_hidden_fn. Adds the hidden state of a row to the vector of its request.
void llm_engine_take_hidden(void *engine, uint32_t slot, uint32_t row, const float *hidden);
// Marks the rows that pooled requests of the schedule want.
void llm_engine_want_pooled(const struct schedule *schedule);
// Prepares a request whose answer is a vector. Any thread.
MUST_USE enum status llm_engine_pool(const struct llm_engine *engine, struct request *request,
                                     const struct nvllm_pooling *pooling, struct err *err);
// Appends a prompt to `text`, behind the model's text that pooling->prompt_name names.
MUST_USE enum status llm_engine_prefix_prompt(const struct llm_engine *engine,
                                              const struct nvllm_request *request, struct buf *text,
                                              struct err *err);
// Call it once, when all hidden states are there. [pooled.dimensions], the request's.
const float *llm_engine_pooled_vector(const struct llm_engine *engine,
                                      const struct request *request);
// Ends a request whose vector is complete, and delivers its event.
void llm_engine_end_pooled(struct llm_engine *engine, struct request *request, double now);
// Keeps the log-probabilities of an item's prompt rows.
void llm_engine_take_prompt(struct request *request, const struct scheduled *item,
                            const struct sample_result *results);
// Appends the tokens that a step sampled for an output, up to the one that ends it, and delivers
// one event. results[0] is of its pending token, each further one of the token behind it. They came
// at `now`. num_results is 1 to LLM_ENGINE_STEP_TOKENS_MAX. Returns how many were appended: 0 if
// the output was aborted or no token could be sampled.
uint32_t llm_engine_take_tokens(struct llm_engine *engine, struct request *request,
                                const struct sample_result *results, uint32_t num_results,
                                double now);
// Allocates what drafts need, if the plan has any; of the engine and of one output.
MUST_USE enum status llm_engine_init_drafts(struct llm_engine *engine, struct err *err);
MUST_USE enum status llm_engine_init_output_drafts(const struct llm_engine *engine,
                                                   struct request *request, struct err *err);
// Whether the next step may have drafts, so that it is to be scheduled when all tokens are known.
// The step before was launched and advanced.
bool llm_engine_awaits_drafts(struct llm_engine *engine);
// Adds drafts to a schedule of the scheduler. No token is pending.
void llm_engine_add_drafts(struct llm_engine *engine, struct schedule *schedule);
// Tells the drafter that a step ran. Call it before its results are taken.
void llm_engine_count_draft_step(struct llm_engine *engine, const struct schedule *schedule,
                                 bool has_waited);
// How many of an item's drafts are right: each is what the row before it sampled. `results`: of its
// rows; `ran`: its tokens.
uint32_t llm_engine_verify_drafts(struct llm_engine *engine, const struct scheduled *item,
                                  const int32_t *ran, const struct sample_result *results);
// Counts an item's drafts in the statistics. num_taken: tokens that the output took of the step.
// They are fewer than 1 + num_right if one of them ended it.
void llm_engine_count_drafts(struct llm_engine *engine, const struct scheduled *item,
                             uint32_t num_right, uint32_t num_taken);
// Ends an output without a token, and delivers the event. `error` is the reason with
// NVLLM_FINISH_ERROR, else NULL. Does nothing to an output that was aborted: it ends by its abort.
void llm_engine_end_request(struct llm_engine *engine, struct request *request,
                            enum nvllm_finish_reason reason, const char *error);
// Ends all outputs of a request that the inbox listed as aborted.
void llm_engine_end_aborted(struct llm_engine *engine, struct request *first);
// Call it for an output that has ended. Frees all outputs once none is needed any more.
void llm_engine_free_if_unneeded(struct request *request);

// Tells the observer, if there is one, about a step that finished. NULL: requests ended without a
// step.
void llm_engine_tell(struct llm_engine *engine, const struct inflight_step *inflight);
// Tells the observer of requests that ended without a step since the last call.
void llm_engine_tell_ends(struct llm_engine *engine);

#endif
