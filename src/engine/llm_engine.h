/* The engine: requests in, events out. Owns the scheduler, the model runner, the tokenizer and the
 * requests, and runs the loop schedule -> batch -> model -> tokens. Behind the public API, whose
 * contracts (nanovllm.h) hold here word for word; one thread at a time. */
#ifndef ENGINE_LLM_ENGINE_H
#define ENGINE_LLM_ENGINE_H

#include <stdbool.h>

#include "base/err.h"
#include "engine/model_runner.h"
#include "nanovllm.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct llm_engine;

// `options`: full size (the api has handled struct_size).
MUST_USE enum status llm_engine_create(struct llm_engine **out,
                                       const struct nvllm_engine_options *options, struct err *err);
void llm_engine_destroy(struct llm_engine *engine);
MUST_USE enum status llm_engine_add_request(struct llm_engine *engine,
                                            const struct nvllm_request *request,
                                            uint64_t *request_id, struct err *err);
MUST_USE enum status llm_engine_step(struct llm_engine *engine, struct err *err);
bool llm_engine_has_unfinished(const struct llm_engine *engine);
bool llm_engine_abort(struct llm_engine *engine, uint64_t request_id);
void llm_engine_abort_all(struct llm_engine *engine);
void llm_engine_stats(const struct llm_engine *engine, struct nvllm_stats *stats);
const struct tokenizer *llm_engine_tokenizer(const struct llm_engine *engine);
// Opens it at the first call. *out is borrowed; NULL after a fault.
MUST_USE enum status llm_engine_chat_template(struct llm_engine *engine,
                                              const struct chat_template **out, struct err *err);

// For tests: the runner of this engine.
struct model_runner *llm_engine_runner(struct llm_engine *engine);

#endif
