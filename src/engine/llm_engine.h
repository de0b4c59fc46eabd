/* The engine: requests in, events out. Owns the scheduler, the model runner, the tokenizer and the
 * requests, and runs the loop schedule -> batch -> model -> tokens. Behind the public API, whose
 * contracts (nanovllm.h) hold here word for word. */
#ifndef ENGINE_LLM_ENGINE_H
#define ENGINE_LLM_ENGINE_H

#include <stdbool.h>

#include "base/err.h"
#include "engine/model_runner.h"
#include "engine/request_table.h"
#include "nanovllm.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct llm_engine;

// The caller's question, for the layers below; `given` may be NULL.
struct interrupt llm_engine_interrupt(const struct nvllm_interrupt *given);

// `options`: full size (the api has handled struct_size).
MUST_USE enum status llm_engine_create(struct llm_engine **out,
                                       const struct nvllm_engine_options *options, struct err *err);
void llm_engine_destroy(struct llm_engine *engine);

// ---- the engine's thread: step, wait and observe between enter and leave ----

// ERR_INVALID: another thread is inside, or this one is in an event.
MUST_USE enum status llm_engine_enter(struct llm_engine *engine, struct err *err);
void llm_engine_leave(struct llm_engine *engine);
MUST_USE enum status llm_engine_step(struct llm_engine *engine, struct err *err);
MUST_USE enum status llm_engine_wait(struct llm_engine *engine, double seconds, struct err *err);
MUST_USE enum status llm_engine_observe(struct llm_engine *engine, nvllm_step_fn on_step,
                                        void *user_data, struct err *err);

// ---- any thread ----

MUST_USE enum status llm_engine_add_request(struct llm_engine *engine,
                                            const struct nvllm_request *request,
                                            uint64_t *request_id, struct err *err);
// add_request in two parts. A request that is built and not submitted is the caller's
// (request_destroy); one that is refused for want of room may be submitted again.
MUST_USE enum status llm_engine_build_request(const struct llm_engine *engine,
                                              const struct nvllm_request *in, struct request **out,
                                              struct err *err);
MUST_USE enum status llm_engine_submit(struct llm_engine *engine, struct request *request,
                                       uint64_t *id, struct err *err);
bool llm_engine_abort(struct llm_engine *engine, uint64_t request_id);
void llm_engine_drain(struct llm_engine *engine);
void llm_engine_wake(struct llm_engine *engine);
uint32_t llm_engine_num_unfinished(struct llm_engine *engine);
bool llm_engine_is_unfinished(struct llm_engine *engine, uint64_t request_id);
void llm_engine_stats(struct llm_engine *engine, struct nvllm_stats *stats);
const struct tokenizer *llm_engine_tokenizer(const struct llm_engine *engine);
// *out is borrowed; NULL after a fault.
MUST_USE enum status llm_engine_chat_template(const struct llm_engine *engine,
                                              const struct chat_template **out, struct err *err);

#endif
