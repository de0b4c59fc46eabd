/* What follows a step: the end of requests and the events their owners see. */
#include "base/check.h"
#include "engine/llm_engine_internal.h"

static struct nvllm_event event_of(const struct request *request) {
    const struct sequence *seq = request->seq;
    return (struct nvllm_event){
        .request_id = seq->id,
        .token_id = -1,
        .text = "",
        .stop_token_id = -1,
        .num_prompt_tokens = seq->num_prompt_tokens,
        .num_cached_tokens = seq->num_cached_tokens,
        .num_generated_tokens = sequence_num_known(seq) - seq->num_prompt_tokens,
        .token_ids = seq->token_ids + seq->num_prompt_tokens,
    };
}

static void add_text(struct nvllm_event *event, const struct buf *piece) {
    event->text = piece->data ? piece->data : "";
    event->text_len = piece->len;
}

static void deliver(struct llm_engine *engine, struct request *request,
                    const struct nvllm_event *event) {
    if (!request->on_event) return;
    request->ending = event->finish_reason != NVLLM_FINISH_NONE;
    struct nvllm_event last;
    if (request->finish_event_only) {
        if (!request->ending) return;
        last = *event;
        last.text = "";
        last.text_len = 0;
        last.chosen = last.top = NULL;
        last.num_top = 0;
        event = &last;
    }
    engine->in_callback = true;
    request->on_event(event, request->user_data);
    engine->in_callback = false;
}

static void release(struct llm_engine *engine, struct request *request) {
    for (uint32_t slot = 0; slot < MODEL_RUNNER_SLOTS; slot++) {
        if (request->flight_entries[slot]) *request->flight_entries[slot] = NULL;
    }
    scheduler_finish(engine->scheduler, request->seq);
    request_table_remove(&engine->requests, request->seq->id);
    request_destroy(request);
    engine->stats.num_requests_finished++;
}

static void end_one(struct llm_engine *engine, struct request *request,
                    enum nvllm_finish_reason reason, const char *error) {
    buf_clear(&engine->piece);
    output_text_finish(&request->text, &engine->piece);
    struct nvllm_event event = event_of(request);
    add_text(&event, &engine->piece);
    event.finish_reason = reason;
    event.error = error;
    deliver(engine, request, &event);
    release(engine, request);
}

// Aborts asked for inside a callback run after it, one by one, so that events never nest.
static void run_deferred_aborts(struct llm_engine *engine) {
    while (engine->aborted) {
        struct request *request = engine->aborted;
        engine->aborted = request->next_aborted;
        end_one(engine, request, NVLLM_FINISH_ABORT, NULL);
    }
}

void llm_engine_end_request(struct llm_engine *engine, struct request *request,
                            enum nvllm_finish_reason reason, const char *error) {
    end_one(engine, request, reason, error);
    run_deferred_aborts(engine);
}

static bool is_eos(const struct llm_engine *engine, const struct request *request, int32_t token) {
    if (request->sampling.params.ignore_eos) return false;
    const struct model_config *config = &engine->plan.config;
    for (uint32_t i = 0; i < config->num_eos_token_ids; i++) {
        if (config->eos_token_ids[i] == token) return true;
    }
    return false;
}

// Why the request ends with this token, if it does, and the text that may be shown now. The text of
// a stop token is not part of the output, as with vLLM, unless special tokens are kept.
static void judge_token(struct llm_engine *engine, struct request *request, int32_t token,
                        struct nvllm_event *event) {
    struct buf *piece = &engine->piece;
    buf_clear(piece);
    bool is_stop =
        is_eos(engine, request, token) || sampling_is_stop_token(&request->sampling, token);
    // Nobody sees the text of one that wants its end alone; its stop strings still need it.
    bool wants_text = !request->finish_event_only || request->text.num_stops;
    bool has_text = wants_text && (!is_stop || request->text.keep_special);
    int stop = has_text ? output_text_push(&request->text, engine->tokenizer, token, piece) : -1;
    if (stop >= 0) {
        event->finish_reason = NVLLM_FINISH_STOP;
        event->stop_string = request->sampling.params.stop[stop];
    } else if (is_stop) {
        event->finish_reason = NVLLM_FINISH_STOP;
        event->stop_token_id = token;
        output_text_finish(&request->text, piece);
    } else if (request->seq->num_tokens == request->seq->num_tokens_max) {
        event->finish_reason = NVLLM_FINISH_LENGTH;
        output_text_finish(&request->text, piece);
    }
}

void llm_engine_take_token(struct llm_engine *engine, struct request *request,
                           const struct sample_result *result) {
    if (result->token_id < 0) { // broken weights, or logit_bias banned everything
        llm_engine_end_request(engine, request, NVLLM_FINISH_ERROR,
                               "no token can be chosen: no logit is a number above -infinity");
        return;
    }
    scheduler_resolve_token(engine->scheduler, request->seq, result->token_id);
    sampling_count_output(&request->sampling, result->token_id);
    engine->stats.num_generated_tokens++;

    struct nvllm_event event = event_of(request);
    event.token_id = result->token_id;
    judge_token(engine, request, result->token_id, &event);
    add_text(&event, &engine->piece);

    int32_t num_top = request->sampling.row.num_top;
    struct nvllm_logprob chosen = {result->token_id, result->logprob};
    struct nvllm_logprob top[SAMPLE_TOP_MAX];
    if (num_top >= 0) {
        for (int32_t i = 0; i < num_top; i++) {
            top[i] = (struct nvllm_logprob){result->top_id[i], result->top_logprob[i]};
        }
        event.chosen = &chosen;
        event.top = top;
        event.num_top = (size_t)num_top;
    }
    deliver(engine, request, &event);
    if (event.finish_reason) release(engine, request);
    run_deferred_aborts(engine);
}
