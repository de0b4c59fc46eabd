/* One timed run. The clock covers all that a user waits for: adding the requests, every step,
 * making the text. Steps are timed one by one, so that prefill and decode have rates of their own.
 * A step that ran any prompt token counts as prefill. With chunked prefill it may run decodes too,
 * and their time cannot be separated. */
#include "cmd/bench/run.h"

#include <stdlib.h>

#include "base/os/clock.h"
#include "cmd/cli.h"
#include "cmd/stats_json.h"
#include "cmd/terminal/interrupt.h"

struct bench_request {
    double *first_token; // seconds since `start`; negative: no token yet
    double start;
    struct bench_state *state;
    uint64_t id;
    bool added;
};

struct bench_state {
    struct bench_request *requests; // [num_requests]
    double *first_tokens; // [num_requests]
    struct progress *progress; // NULL: no progress line
    uint64_t num_output_tokens;
    uint64_t num_failed;
};

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct bench_request *request = user_data;
    if (event->num_generated_tokens && *request->first_token < 0) {
        *request->first_token = clock_seconds() - request->start;
    }
    if (!event->finish_reason) return;
    request->state->num_output_tokens += event->num_generated_tokens;
    if (event->finish_reason != NVLLM_FINISH_LENGTH) request->state->num_failed++;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct bench_first_token summarise(double *times, size_t count) {
    qsort(times, count, sizeof *times, compare_doubles);
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += times[i];
    return (struct bench_first_token){.min = times[0],
                                      .mean = sum / (double)count,
                                      .p50 = times[(count - 1) / 2],
                                      .p99 = times[(count - 1) * 99 / 100],
                                      .max = times[count - 1]};
}

static enum status add_requests(struct nvllm_engine *engine, const struct workload *workload,
                                float temperature, const char *salt, struct bench_state *state,
                                struct err *err) {
    // Sets every field that a model's generation_config.json could change, so that the workload is
    // the same for all models.
    struct nvllm_sampling_params sampling = NVLLM_SAMPLING_PARAMS_INIT;
#define SET(type, name, value, ...) sampling.name = value;
    NVLLM_MODEL_PARAMS(SET)
    sampling.temperature = temperature;
    sampling.ignore_eos = 1;
    double start = clock_seconds();
    for (size_t i = 0; i < workload->num_requests; i++) {
        state->first_tokens[i] = -1;
        struct bench_request *own = &state->requests[i];
        *own = (struct bench_request){
            .first_token = &state->first_tokens[i], .start = start, .state = state};
        sampling.max_tokens = workload->requests[i].max_tokens;
        struct nvllm_request request = NVLLM_REQUEST_INIT;
        request.prompt_token_ids = workload->requests[i].prompt;
        request.num_prompt_token_ids = workload->requests[i].prompt_len;
        request.sampling = &sampling;
        request.cache_salt = salt;
        request.on_event = on_event;
        request.user_data = own;
        struct nvllm_error error = {0};
        enum status status =
            cli_status(nvllm_engine_add_request(engine, &request, &own->id, &error), &error, err);
        if (status) return err_prefix(err, status, "request %zu", i);
        own->added = true;
    }
    return OK;
}

static enum status step_to_end(struct nvllm_engine *engine, struct progress *progress,
                               struct bench_result *result, struct err *err) {
    struct nvllm_stats stats = {.struct_size = sizeof stats};
    nvllm_engine_stats(engine, &stats);
    uint64_t generated_at_start = stats.num_generated_tokens;
    while (nvllm_engine_has_unfinished(engine)) {
        if (interrupt_requested()) {
            result->interrupted = true;
            return OK;
        }
        uint64_t prefill_before = stats.num_prefill_tokens;
        uint64_t generated_before = stats.num_generated_tokens;
        uint64_t decoded_before = stats.num_decode_tokens;
        double start = clock_seconds();
        struct nvllm_error error = {0};
        enum status status = cli_status(nvllm_engine_step(engine, &error), &error, err);
        if (status) return status;
        double seconds = clock_seconds() - start;
        nvllm_engine_stats(engine, &stats);
        uint64_t prefilled = stats.num_prefill_tokens - prefill_before;
        if (prefilled) {
            result->prefill_tokens += prefilled;
            result->prefill_seconds += seconds;
        } else {
            result->decode_tokens += stats.num_generated_tokens - generated_before;
            result->decode_seconds += seconds;
        }
        if (!progress) continue;
        progress_step(progress, stats.num_generated_tokens - generated_at_start, prefilled,
                      stats.num_decode_tokens - decoded_before, seconds);
    }
    return OK;
}

static enum status measure(struct nvllm_engine *engine, const struct workload *workload,
                           float temperature, const char *salt, struct bench_state *state,
                           struct bench_result *result, struct err *err) {
    struct nvllm_stats before = {.struct_size = sizeof before};
    nvllm_engine_stats(engine, &before);
    double start = clock_seconds();
    enum status status = add_requests(engine, workload, temperature, salt, state, err);
    if (!status) status = step_to_end(engine, state->progress, result, err);
    result->seconds = clock_seconds() - start;
    if (status) return status;
    struct nvllm_stats after = {.struct_size = sizeof after};
    nvllm_engine_stats(engine, &after);
    result->stats = stats_since(&before, &after);
    if (result->interrupted) {
        result->num_output_tokens = result->stats.num_generated_tokens;
        return OK;
    }
    result->num_input_tokens = workload->num_input_tokens;
    result->num_output_tokens = state->num_output_tokens;
    if (state->num_failed || state->num_output_tokens != workload->num_output_tokens) {
        return err_set(err, ERR_INVALID, "%llu tokens were generated, want %llu",
                       (unsigned long long)state->num_output_tokens,
                       (unsigned long long)workload->num_output_tokens);
    }
    result->first_token = summarise(state->first_tokens, workload->num_requests);
    return OK;
}

enum status bench_run(struct nvllm_engine *engine, const struct workload *workload,
                      float temperature, const char *salt, struct progress *progress,
                      struct bench_result *result, struct err *err) {
    *result = (struct bench_result){0};
    struct bench_state state = {
        .requests = calloc(workload->num_requests, sizeof *state.requests),
        .first_tokens = calloc(workload->num_requests, sizeof *state.first_tokens),
        .progress = progress,
    };
    enum status status = state.requests && state.first_tokens
                             ? measure(engine, workload, temperature, salt, &state, result, err)
                             : err_nomem(err, "bench");
    // Unfinished requests must deliver their last event now: their callbacks use memory that is
    // freed here.
    bool left = status || result->interrupted;
    for (size_t i = 0; left && state.requests && i < workload->num_requests; i++) {
        if (state.requests[i].added) nvllm_engine_abort(engine, state.requests[i].id);
    }
    if (left) nvllm_engine_wait(engine, 0, NULL);
    free(state.requests);
    free(state.first_tokens);
    return status;
}
