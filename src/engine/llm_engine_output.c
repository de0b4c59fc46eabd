/* What follows a step: the ends of requests, the events that their callers get, and what the
 * observer is told. */
#include <math.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "engine/llm_engine_internal.h"

// NULL until all rows are there.
static const struct nvllm_logprob *prompt_logprobs_of(const struct request *request) {
    const struct request *first = request->first;
    return first->num_rows_finished == first->num_prompt_rows ? first->prompt_logprobs : NULL;
}

static struct nvllm_event event_of(const struct request *request) {
    const struct sequence *seq = request->seq;
    const struct nvllm_logprob *prompt_logprobs = prompt_logprobs_of(request);
    return (struct nvllm_event){
        .request_id = seq->id,
        .index = request->index,
        .num_outputs_left = request->first->num_unended,
        .text = "",
        .stop_token_id = -1,
        .prompt_logprobs = prompt_logprobs,
        .num_prompt_top = prompt_logprobs ? (size_t)request->sampling.params.prompt_logprobs : 0,
        .prompt_token_ids = seq->token_ids,
        .num_prompt_tokens = seq->num_prompt_tokens,
        .num_cached_tokens = request->first->seq->num_cached_tokens,
        .generated_token_ids = seq->token_ids + seq->num_prompt_tokens,
        .num_generated_tokens = sequence_num_known(seq) - seq->num_prompt_tokens,
        .num_preemptions = seq->num_preemptions,
        .times = request->times,
    };
}

static void add_text(struct nvllm_event *event, const struct buf *text) {
    event->text = text->data ? text->data : "";
    event->text_len = text->len;
}

void llm_engine_make_finish_event(struct nvllm_event *event) {
    event->token_ids = event->generated_token_ids;
    event->num_tokens = event->num_generated_tokens;
    event->text = "";
    event->text_len = 0;
    event->text_ends = NULL;
    event->logprobs = NULL;
    event->num_top = 0;
}

static void deliver(const struct request *request, struct nvllm_event *event) {
    if (event->finish_reason) event->num_outputs_left--;
    if (!request->on_event) return;
    if (request->finish_event_only && !event->finish_reason) return;
    if (request->finish_event_only) llm_engine_make_finish_event(event);
    request->on_event(event, request->user_data);
}

static void release(struct llm_engine *engine, struct request *request,
                    enum nvllm_finish_reason reason) {
    bool was_scheduled = request->times.first_scheduled > 0;
    const struct sequence *seq = request->seq;
    draft_pool_add(&engine->draft_pool, seq->cache_salt, seq->token_ids, sequence_num_known(seq),
                   seq->num_prompt_tokens);
    scheduler_finish(engine->scheduler, request->seq);
    token_count_slots_give_back(&engine->token_count_slots, request);
    inbox_remove(&engine->inbox, request, !was_scheduled);
    engine->stats.num_requests_finished++;
    engine->observer.has_changes = true;
    request->finish_reason = reason;
    request->has_ended = true;
    llm_engine_free_if_unneeded(request);
}

void llm_engine_free_if_unneeded(struct request *request) {
    if (request->num_inflight || --request->first->num_held) return;
    request_destroy(request->first);
}

static void end_one(struct llm_engine *engine, struct request *request,
                    enum nvllm_finish_reason reason, const char *error) {
    buf_clear(&request->event_text);
    output_text_finish(&request->text, &request->event_text);
    struct nvllm_event event = event_of(request);
    add_text(&event, &request->event_text);
    event.finish_reason = reason;
    event.error = error;
    deliver(request, &event);
    release(engine, request, reason);
}

void llm_engine_end_request(struct llm_engine *engine, struct request *request,
                            enum nvllm_finish_reason reason, const char *error) {
    if (inbox_begin_end(&engine->inbox, request)) end_one(engine, request, reason, error);
}

void llm_engine_end_aborted(struct llm_engine *engine, struct request *first) {
    first->num_held++; // keeps the outputs until the loop is over
    for (struct request *request = first; request; request = request->next_output) {
        if (request->has_ended) continue;
        inbox_begin_abort(&engine->inbox, request);
        end_one(engine, request, NVLLM_FINISH_ABORT, NULL);
    }
    if (!--first->num_held) request_destroy(first);
}

void llm_engine_end_pooled(struct llm_engine *engine, struct request *request, double now) {
    if (!inbox_begin_end(&engine->inbox, request)) return; // an abort came first
    request->times.first_token = request->times.last_token = now;
    struct nvllm_event event = event_of(request);
    event.finish_reason = NVLLM_FINISH_STOP;
    event.embedding = llm_engine_pooled_vector(engine, request);
    event.num_dimensions = request->pooled.dimensions;
    deliver(request, &event);
    release(engine, request, NVLLM_FINISH_STOP);
}

static bool is_eos(const struct llm_engine *engine, const struct request *request, int32_t token) {
    const struct model_config *config = &engine->plan.config;
    for (uint32_t i = 0; i < config->num_eos_token_ids; i++) {
        if (config->eos_token_ids[i] == token) return !request->sampling.params.ignore_eos;
    }
    return false;
}

// Decides whether the output ends with this token. Appends the text that may be shown now to the
// event's.
static void judge_token(const struct llm_engine *engine, struct request *request, int32_t token,
                        struct nvllm_event *event) {
    struct buf *text = &request->event_text;
    bool is_stop =
        is_eos(engine, request, token) || sampling_is_stop_token(&request->sampling, token);
    // With finish_event_only nobody sees the text, but stop strings still need it.
    bool wants_text = !request->finish_event_only || request->text.num_stops;
    bool has_text = wants_text && (!is_stop || request->keeps_stop_token);
    int stop =
        has_text ? output_text_push(&request->text, llm_engine_tokenizer(engine), token, text) : -1;
    if (stop >= 0) {
        event->finish_reason = NVLLM_FINISH_STOP;
        event->stop_string = request->sampling.params.stop[stop];
    } else if (is_stop) {
        event->finish_reason = NVLLM_FINISH_STOP;
        event->stop_token_id = token;
        output_text_finish(&request->text, text);
    } else if (request->seq->num_tokens == request->seq->num_tokens_max) {
        event->finish_reason = NVLLM_FINISH_LENGTH;
        output_text_finish(&request->text, text);
    }
}

// The bias makes the row choose the prompt's token. If it chose another, the token's logit is not a
// number.
static void take_row(struct nvllm_logprob *out, int32_t num_top, int32_t token_id,
                     const struct sample_result *result) {
    float logprob = result->token_id == token_id ? result->logprob : -INFINITY;
    out[0] = (struct nvllm_logprob){token_id, logprob};
    for (int32_t i = 0; i < num_top; i++) {
        out[1 + i] = (struct nvllm_logprob){result->top_id[i], result->top_logprob[i]};
    }
}

void llm_engine_take_row(void *user_data, uint32_t slot, uint32_t row, const float *logits) {
    struct llm_engine *engine = user_data;
    const struct scheduled *item = engine->inflight_steps[slot].schedule.items;
    while (row >= item->num_prompt_rows) row -= item++->num_prompt_rows;
    const struct request *request = item->seq->user;
    uint32_t vocab_size = engine->plan.config.vocab_size;
    size_t first = ((size_t)item->start + row) * (1 + vocab_size);
    struct nvllm_logprob *out = request->prompt_logprobs + first + 1;
    const struct ranked_token *ranked = engine->row_buffers.ranked;
    log_softmax_rank(logits, vocab_size, engine->row_buffers.scratch, engine->row_buffers.ranked);
    for (uint32_t i = 0; i < vocab_size; i++) {
        out[i] = (struct nvllm_logprob){ranked[i].token_id, ranked[i].logprob};
    }
}

void llm_engine_take_prompt(struct request *request, const struct scheduled *item,
                            const struct sample_result *results) {
    if (!item->num_prompt_rows) return;
    int32_t num_top = request->sampling.params.prompt_logprobs;
    int32_t num_listed = num_top > SAMPLE_TOP_MAX ? 0 : num_top; // else llm_engine_take_row's
    for (uint32_t i = 0; i < item->num_prompt_rows; i++) {
        uint32_t row = item->start + i;
        take_row(request->prompt_logprobs + (size_t)row * (size_t)(1 + num_top), num_listed,
                 request->seq->token_ids[row + 1], &results[i]);
        if (row == request->num_rows_finished) request->num_rows_finished++;
    }
}

// The prompt's text, before anything else of the output.
static void deliver_echo(const struct request *request) {
    const struct buf *echo = &request->first->echo;
    if (!echo->data) return;
    struct nvllm_event event = event_of(request);
    add_text(&event, echo);
    deliver(request, &event);
}

static bool is_aborted(const struct request *request) {
    return atomic_load_explicit(&request->first->is_aborted, memory_order_relaxed);
}

// The lists of one event, which the event borrows.
struct event_lists {
    uint32_t text_ends[LLM_ENGINE_STEP_TOKENS_MAX];
    struct nvllm_logprob logprobs[LLM_ENGINE_STEP_TOKENS_MAX * (1 + SAMPLE_TOP_MAX)];
};

static void add_logprobs(struct nvllm_logprob *row, int32_t num_top,
                         const struct sample_result *result) {
    row[0] = (struct nvllm_logprob){result->token_id, result->logprob};
    for (int32_t i = 0; i < num_top; i++) {
        row[1 + i] = (struct nvllm_logprob){result->top_id[i], result->top_logprob[i]};
    }
}

static void take_one(const struct llm_engine *engine, struct request *request, int32_t token_id,
                     struct nvllm_event *event, struct event_lists *lists) {
    // Where steps overlap, threads that make masks take it, while the next forward pass runs.
    if (engine->plan.is_async) {
        token_mask_note(&request->sampling.mask, token_id);
    } else {
        token_mask_take(&request->sampling.mask, token_id);
    }
    judge_token(engine, request, token_id, event);
    lists->text_ends[event->num_tokens++] = (uint32_t)request->event_text.len;
}

// Appends the tokens that the form leaves no choice of. They would be sampled as they are, because
// their masks have one token each, so they need no step of their own. Rows that report what was
// sampled, or count it, are left to the sampler.
static void run_ahead(struct llm_engine *engine, struct request *request, struct nvllm_event *event,
                      struct event_lists *lists) {
    const struct sampling *sampling = &request->sampling;
    const struct constraint *constraint = sampling->mask.constraint;
    if (!constraint || engine->plan.is_async) return;
    if (sampling->row.num_top >= 0 || sampling->has_penalties) return;
    if (!scheduler_can_run_ahead(engine->scheduler, request->seq)) return;
    while (!event->finish_reason && event->num_tokens < LLM_ENGINE_STEP_TOKENS_MAX) {
        int32_t token_id = constraint_forced_token(constraint);
        if (token_id < 0) return;
        scheduler_append_ahead(engine->scheduler, request->seq, token_id);
        take_one(engine, request, token_id, event, lists);
    }
}

// Appends results to the output in order, up to the one that ends it, or that is no token.
static void take_in_order(struct llm_engine *engine, struct request *request,
                          const struct sample_result *results, uint32_t num_results,
                          struct nvllm_event *event, struct event_lists *lists) {
    int32_t num_top = request->sampling.row.num_top;
    buf_clear(&request->event_text);
    event->token_ids = event->generated_token_ids + event->num_generated_tokens;
    event->text_ends = lists->text_ends;
    if (num_top >= 0) {
        event->logprobs = lists->logprobs;
        event->num_top = (size_t)num_top;
    }
    for (uint32_t i = 0; i < num_results && !event->finish_reason; i++) {
        int32_t token_id = results[i].token_id;
        if (token_id < 0) break;
        if (i == 0) {
            scheduler_resolve_token(engine->scheduler, request->seq, token_id);
        } else {
            scheduler_append_further(engine->scheduler, request->seq, token_id);
        }
        take_one(engine, request, token_id, event, lists);
        if (num_top >= 0) {
            add_logprobs(lists->logprobs + i * (1 + (size_t)num_top), num_top, &results[i]);
        }
    }
    if (event->num_tokens == num_results) run_ahead(engine, request, event, lists);
    event->num_generated_tokens += event->num_tokens;
    engine->stats.num_generated_tokens += event->num_tokens;
    add_text(event, &request->event_text);
}

static void end_without_token(struct llm_engine *engine, struct request *request) {
    // Broken weights, or logit_bias banned everything.
    struct err err;
    err_set(&err, ERR_INVALID, "no token can be chosen: no logit is a number above -infinity");
    token_mask_settle(&request->sampling.mask);
    const struct constraint *constraint = request->sampling.mask.constraint;
    if (constraint) (void)constraint_explain(constraint, &err);
    llm_engine_end_request(engine, request, NVLLM_FINISH_ERROR, err.message);
}

uint32_t llm_engine_take_tokens(struct llm_engine *engine, struct request *request,
                                const struct sample_result *results, uint32_t num_results,
                                double now) {
    CHECK(num_results > 0 && num_results <= LLM_ENGINE_STEP_TOKENS_MAX, "%u results", num_results);
    if (is_aborted(request)) return 0;
    if (results[0].token_id < 0) {
        end_without_token(engine, request);
        return 0;
    }
    bool is_first = !(request->times.first_token > 0);
    if (is_first) {
        deliver_echo(request);
        if (is_aborted(request)) return 0; // the event's callback aborted it
        request->times.first_token = now;
    }
    request->times.last_token = now;

    struct event_lists lists;
    struct nvllm_event event = event_of(request);
    take_in_order(engine, request, results, num_results, &event, &lists);
    uint32_t num_tokens = event.num_tokens;
    bool lacks_token = !event.finish_reason && num_tokens < num_results;
    if (event.finish_reason && !inbox_begin_end(&engine->inbox, request)) {
        // An abort came first: these tokens do not end it.
        event.finish_reason = NVLLM_FINISH_NONE;
        event.stop_token_id = -1;
        event.stop_string = NULL;
    }
    deliver(request, &event);
    if (event.finish_reason) {
        release(engine, request, event.finish_reason);
    } else if (lacks_token) {
        end_without_token(engine, request);
    }
    return num_tokens;
}

enum status llm_engine_observe(struct llm_engine *engine, nvllm_step_fn on_step, void *user_data,
                               struct err *err) {
    struct step_observer observer = {0};
    if (on_step) {
        uint32_t max_blocks = engine->plan.runner.decoder.limits.max_blocks_per_seq;
        enum status status = step_observer_init(&observer, &engine->plan.scheduler, max_blocks,
                                                on_step, user_data, err);
        if (status) return status;
        for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
            const struct inflight_step *inflight = &engine->inflight_steps[i];
            if (!inflight->is_launched) continue;
            step_observer_note_launch(&observer, inflight->slot, &inflight->schedule,
                                      engine->plan.scheduler.block_size);
        }
    }
    step_observer_fini(&engine->observer);
    engine->observer = observer;
    scheduler_observe(engine->scheduler, on_step ? &engine->observer.changes : NULL);
    engine->observer.has_changes = engine->observer.changes.num_ids > 0;
    return OK;
}

static struct nvllm_sequence describe(const struct sequence *seq) {
    const struct request *request = seq->user;
    return (struct nvllm_sequence){
        .request_id = seq->id,
        .index = request->index,
        .sequence_id = seq->arrival,
        .is_running = seq->status == SEQUENCE_RUNNING,
        .num_prompt_tokens = seq->num_prompt_tokens,
        .num_tokens = seq->num_tokens,
        .num_computed_tokens = seq->num_computed_tokens,
        .num_cached_tokens = seq->num_cached_tokens,
        .block_table = seq->block_table,
        .num_blocks = seq->num_blocks,
        .num_kv_groups = seq->num_kv_groups,
        .block_table_stride = seq->num_blocks_max,
    };
}

size_t llm_engine_sequences(const struct llm_engine *engine, struct nvllm_sequence *out,
                            size_t max) {
    const struct sequence *queues[] = {scheduler_first_running(engine->scheduler),
                                       scheduler_first_waiting(engine->scheduler)};
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_LEN(queues); i++) {
        for (const struct sequence *seq = queues[i]; seq && count < max; seq = seq->next) {
            out[count++] = describe(seq);
        }
    }
    return count;
}

void llm_engine_tell(struct llm_engine *engine, const struct inflight_step *inflight) {
    if (!engine->observer.on_step) return;
    struct nvllm_step_trace trace = {0};
    if (inflight) {
        trace.step = engine->stats.num_steps;
        trace.times = inflight->times;
    } else {
        double now = clock_seconds();
        trace.times = (struct nvllm_step_times){now, now, now, now, now, now, now};
    }
    step_observer_tell(&engine->observer, inflight ? &inflight->schedule : NULL, engine->scheduler,
                       &trace);
}

void llm_engine_tell_ends(struct llm_engine *engine) {
    if (engine->observer.has_changes) llm_engine_tell(engine, NULL);
}
