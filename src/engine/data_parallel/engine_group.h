/* The engines behind one nvllm_engine: one, or with data_parallel_size D of them behind one queue.
 *
 * One engine is driven by the caller's thread, and all calls just go through. Of several each has a
 * thread of its own, which steps whenever the engine has requests. A request goes to the engine
 * that request_router.h chooses when it is submitted. All engines count requests together, and a
 * request's seed comes from its number, so it does not matter to its tokens which engine runs it.
 *
 * The contracts are llm_engine.h's. With several engines:
 * - Events come from the engines' threads, one at a time, while a call that delivers events waits
 *   (event_turn.h).
 * - A step returns when some engine has done one.
 * - When an engine is lost, the requests of all end with its error. */
#ifndef ENGINE_DATA_PARALLEL_ENGINE_GROUP_H
#define ENGINE_DATA_PARALLEL_ENGINE_GROUP_H

#include "engine/llm_engine.h"

struct engine_group;

MUST_USE enum status engine_group_create(struct engine_group **out,
                                         const struct nvllm_engine_options *options,
                                         struct err *err);
void engine_group_destroy(struct engine_group *group); // NULL is fine; from an event: does nothing

// ---- the caller's thread: step, wait and observe between enter and leave ----

MUST_USE enum status engine_group_enter(struct engine_group *group, struct err *err);
void engine_group_leave(struct engine_group *group);
MUST_USE enum status engine_group_step(struct engine_group *group, struct err *err);
MUST_USE enum status engine_group_wait(struct engine_group *group, double seconds, struct err *err);
// ERR_UNSUPPORTED with several engines.
MUST_USE enum status engine_group_observe(struct engine_group *group, nvllm_step_fn on_step,
                                          void *user_data, struct err *err);
// As nvllm_engine_sequences: also without enter, from an observer. 0 with several engines.
size_t engine_group_sequences(const struct engine_group *group, struct nvllm_sequence *out,
                              size_t max);

// ---- any thread ----

MUST_USE enum status engine_group_add_request(struct engine_group *group,
                                              const struct nvllm_request *request, bool is_rendered,
                                              uint64_t *request_id, struct err *err);
// OK: at least one of the engines takes a request now.
MUST_USE enum status engine_group_check_open(struct engine_group *group, struct err *err);
MUST_USE enum status engine_group_build_request(const struct engine_group *group,
                                                const struct nvllm_request *in, bool is_rendered,
                                                struct request **out, struct err *err);
MUST_USE enum status engine_group_submit(struct engine_group *group, struct request *request,
                                         uint64_t *id, struct err *err);
bool engine_group_abort(struct engine_group *group, uint64_t request_id);
void engine_group_drain(struct engine_group *group);
void engine_group_wake(struct engine_group *group);
uint32_t engine_group_num_unfinished(struct engine_group *group);
bool engine_group_is_unfinished(struct engine_group *group, uint64_t request_id);
// Sums over the engines. load_seconds and warm_up_seconds are the longest ones; peak_rss_bytes is
// the process's.
void engine_group_stats(struct engine_group *group, struct nvllm_stats *stats);
// The stats' num_prefill_tokens + num_decode_tokens, without a lock.
uint64_t engine_group_num_step_tokens(const struct engine_group *group);
// The one whose tokenizer and chat template all use.
const struct llm_engine *engine_group_first(const struct engine_group *group);

#endif
