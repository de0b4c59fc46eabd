/* The engine: requests go in, events come out. It owns the scheduler, the model runner, the
 * tokenizer and the requests, and runs the loop schedule, batch, model, tokens. The public API
 * calls it; the contracts of nanovllm.h hold here too. */
#ifndef ENGINE_LLM_ENGINE_H
#define ENGINE_LLM_ENGINE_H

#include <stdbool.h>

#include "base/err.h"
#include "engine/request/request.h"
#include "engine/step/model_runner.h"
#include "nanovllm.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

struct llm_engine;
struct event_turn;

// Makes an event as finish_event_only has it: all tokens, without text and log-probabilities.
void llm_engine_make_finish_event(struct nvllm_event *event);

// The caller's interrupt as the layers below take it; `given` may be NULL.
struct interrupt llm_engine_interrupt(const struct nvllm_interrupt *given);

// What the engines of a data-parallel group share, borrowed for an engine's life.
struct llm_engine_shared {
    uint32_t index; // of this engine, from 0
    struct event_turn *turn; // passed by whoever delivers events
    uint64_t *next_id; // of requests, whose seeds come from their ids
};

// The plan of an engine, checked against the machine's memory: nothing large is allocated yet.
// `options`: checked and complete, as api's read_options leaves them. `shared` NULL: the engine is
// alone.
MUST_USE enum status llm_engine_plan(struct llm_engine **out,
                                     const struct nvllm_engine_options *options,
                                     const struct llm_engine_shared *shared, struct err *err);
// Loads what the plan says. Call it after llm_engine_plan with the same options, on the thread that
// will drive the engine. After an error the engine can only be destroyed. `text_of`: the engine
// whose tokenizer and chat template this one uses. It builds all requests, and is destroyed later.
// NULL: this one loads its own.
MUST_USE enum status llm_engine_load(struct llm_engine *engine,
                                     const struct nvllm_engine_options *options,
                                     const struct llm_engine *text_of, struct err *err);
// False: called by an event of the engine, and nothing happened. NULL is fine.
bool llm_engine_destroy(struct llm_engine *engine);

// ---- the engine's thread: step, wait and observe between enter and leave ----

// ERR_INVALID: another thread is inside, or this one is in an event.
MUST_USE enum status llm_engine_enter(struct llm_engine *engine, struct err *err);
void llm_engine_leave(struct llm_engine *engine);
// After an error call llm_engine_fail with its reason.
MUST_USE enum status llm_engine_step(struct llm_engine *engine, struct err *err);
MUST_USE enum status llm_engine_wait(struct llm_engine *engine, double seconds, struct err *err);
// The engine is lost: all requests end with that error, and no more are taken in.
void llm_engine_fail(struct llm_engine *engine, const char *why);
// All requests end, also those that the events of others add.
void llm_engine_abort_all(struct llm_engine *engine);
MUST_USE enum status llm_engine_observe(struct llm_engine *engine, nvllm_step_fn on_step,
                                        void *user_data, struct err *err);
// As nvllm_engine_sequences: also without enter, from an observer.
size_t llm_engine_sequences(const struct llm_engine *engine, struct nvllm_sequence *out,
                            size_t max);

// ---- any thread ----

// Fails as a submission would now. Ask before building a request.
MUST_USE enum status llm_engine_check_open(struct llm_engine *engine, struct err *err);
// Until it is submitted, the request is the caller's (request_destroy). One that was refused with
// ERR_CAPACITY may be submitted again. `is_rendered`: its prompt is a chat's, which the template
// rendered, so the tokenizer adds no special tokens.
MUST_USE enum status llm_engine_build_request(const struct llm_engine *engine,
                                              const struct nvllm_request *in, bool is_rendered,
                                              struct request **out, struct err *err);
MUST_USE enum status llm_engine_submit(struct llm_engine *engine, struct request *request,
                                       uint64_t *id, struct err *err);
bool llm_engine_abort(struct llm_engine *engine, uint64_t request_id);
void llm_engine_drain(struct llm_engine *engine);
void llm_engine_wake(struct llm_engine *engine);
uint32_t llm_engine_num_unfinished(struct llm_engine *engine);
uint32_t llm_engine_num_aborting(struct llm_engine *engine); // requests, until their last event
uint64_t llm_engine_num_tokens(struct llm_engine *engine); // of unfinished requests, at most
bool llm_engine_is_unfinished(struct llm_engine *engine, uint64_t request_id);
void llm_engine_stats(struct llm_engine *engine, struct nvllm_stats *stats);
// The stats' num_prefill_tokens + num_decode_tokens, without a lock.
uint64_t llm_engine_num_step_tokens(const struct llm_engine *engine);
bool llm_engine_caches_prefixes(const struct llm_engine *engine);
// How the model makes embeddings; as long as the engine.
const struct pooling_config *llm_engine_pooling(const struct llm_engine *engine);
const struct tokenizer *llm_engine_tokenizer(const struct llm_engine *engine);
void llm_engine_default_sampling(const struct llm_engine *engine,
                                 struct nvllm_sampling_params *params);
// *out is borrowed, and NULL on failure.
MUST_USE enum status llm_engine_chat_template(const struct llm_engine *engine,
                                              const struct chat_template **out, struct err *err);

#endif
