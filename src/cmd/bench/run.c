/* One timed run. The clock covers all that a user waits for: adding the requests, every step,
 * making the text. Steps are timed one by one, so that prefill and decode have rates of their own.
 * A step that ran any prompt token counts as prefill. With chunked prefill it may run decodes too,
 * and their time cannot be separated. */
#include "cmd/bench/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/json_text.h"
#include "base/os/clock.h"
#include "cmd/cli.h"
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
    double launch_seconds = 0; // of calls that took no results: they launched the next ones' step
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
        double seconds = launch_seconds + clock_seconds() - start;
        nvllm_engine_stats(engine, &stats);
        uint64_t prefilled = stats.num_prefill_tokens - prefill_before;
        uint64_t generated = stats.num_generated_tokens - generated_before;
        bool has_results = prefilled || generated;
        launch_seconds = has_results ? 0 : seconds;
        if (!has_results) continue;
        if (prefilled) {
            result->prefill_tokens += prefilled;
            result->prefill_seconds += seconds;
        } else {
            result->decode_tokens += generated;
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

// ---- the report ----

static double rate(uint64_t count, double seconds) {
    return seconds > 0 ? (double)count / seconds : 0;
}

static double run_rate(const struct bench_result *run) {
    return rate(run->num_output_tokens, run->seconds);
}

enum status bench_median(const struct bench_result *runs, size_t num_runs, size_t *median,
                         struct err *err) {
    size_t *order = malloc(num_runs * sizeof *order);
    if (!order) return err_nomem(err, "bench");
    for (size_t i = 0; i < num_runs; i++) { // insertion sort: there are only a few runs
        size_t j = i;
        for (; j > 0 && runs[order[j - 1]].seconds > runs[i].seconds; j--) order[j] = order[j - 1];
        order[j] = i;
    }
    *median = order[(num_runs - 1) / 2];
    free(order);
    return OK;
}

static enum status append_total(struct buf *out, const struct bench_result *run, struct err *err) {
    return buf_appendf(out, err, "Total: %llutok, Time: %.2fs, Throughput: %.2ftok/s\n",
                       (unsigned long long)run->num_output_tokens, run->seconds, run_rate(run));
}

// Prints a line for each run, if the report of the median run does not cover them all.
static enum status append_run_lines(struct buf *out, const struct bench_report *report,
                                    struct err *err) {
    const struct bench_result *cut = report->interrupted;
    if (report->num_runs == 1 && !cut) return OK;
    enum status status = OK;
    for (size_t i = 0; i < report->num_runs && !status; i++) {
        status = buf_appendf(out, err, "Run %zu: ", i + 1);
        if (!status) status = append_total(out, &report->runs[i], err);
    }
    if (!status && cut) {
        status = buf_appendf(out, err, "Run %zu: interrupted after %llu tokens, %.2fs, %.2ftok/s\n",
                             report->num_runs + 1, (unsigned long long)cut->num_output_tokens,
                             cut->seconds, run_rate(cut));
    }
    if (status || !report->num_runs) return status;
    return buf_appendf(out, err, "Median of %zu run%s:\n", report->num_runs,
                       report->num_runs == 1 ? "" : "s");
}

enum status bench_report_text(struct buf *out, const struct bench_report *report, struct err *err) {
    enum status status = append_run_lines(out, report, err);
    if (!report->num_runs) return status;
    const struct bench_result *run = &report->runs[report->median];
    if (!status) status = append_total(out, run, err);
    if (!status) {
        status =
            buf_appendf(out, err, "Prefill: %llutok (%llu more from the prefix cache), %.2ftok/s\n",
                        (unsigned long long)run->prefill_tokens,
                        (unsigned long long)run->stats.num_cached_tokens,
                        rate(run->prefill_tokens, run->prefill_seconds));
    }
    if (!status && run->decode_tokens) {
        status = buf_appendf(out, err, "Decode: %llutok, %.2ftok/s\n",
                             (unsigned long long)run->decode_tokens,
                             rate(run->decode_tokens, run->decode_seconds));
    }
    const struct nvllm_stats *stats = &run->stats;
    if (!status && stats->num_drafts) {
        status = buf_appendf(out, err, "Drafts: %llutok guessed, %llutok of them right\n",
                             (unsigned long long)stats->num_draft_tokens,
                             (unsigned long long)stats->num_accepted_tokens);
    }
    if (status) return status;
    const struct bench_first_token *first = &run->first_token;
    return buf_appendf(out, err,
                       "First token: %.3fs mean, %.3fs median, %.3fs last\n"
                       "Steps: %llu, preemptions: %llu, KV blocks: %u of %u at most\n"
                       "Memory: weights %.2f GiB, workspace %.2f GiB, KV cache %.2f GiB\n"
                       "Load: %.3fs, peak memory: %.2f GiB\n",
                       first->mean, first->p50, first->max, (unsigned long long)stats->num_steps,
                       (unsigned long long)stats->num_preemptions, stats->num_kv_blocks_peak,
                       stats->num_kv_blocks, (double)stats->weights_bytes / 0x1p30,
                       (double)stats->workspace_bytes / 0x1p30,
                       (double)stats->kv_cache_bytes / 0x1p30, report->load_seconds,
                       (double)stats->peak_rss_bytes / 0x1p30);
}

static enum status append_member(struct buf *out, const char *name, double value, struct err *err) {
    enum status status = buf_appendf(out, err, "  \"%s\": ", name);
    if (!status) status = json_text_double(out, value, err);
    return status ? status : buf_append_str(out, ",\n", err);
}

static enum status append_string(struct buf *out, const char *name, const char *value,
                                 struct err *err) {
    enum status status = buf_appendf(out, err, "  \"%s\": ", name);
    if (!status) status = json_text_string(out, value, strlen(value), err);
    return status ? status : buf_append_str(out, ",\n", err);
}

// Has no comma after it, because nothing follows if no run finished.
static enum status append_runs(struct buf *out, const struct bench_report *report,
                               struct err *err) {
    enum status status = buf_append_str(out, "  \"runs_seconds\": [", err);
    for (size_t i = 0; i < report->num_runs && !status; i++) {
        if (i) status = buf_append_str(out, ", ", err);
        if (!status) status = json_text_double(out, report->runs[i].seconds, err);
    }
    if (!status) status = buf_append_str(out, "],\n  \"interrupted\": ", err);
    const struct bench_result *cut = report->interrupted;
    if (status || !cut) return status ? status : buf_append_str(out, "null", err);
    return buf_appendf(
        out, err, "{\"run\": %zu, \"num_output_tokens\": %llu, \"time_seconds\": %.6f}",
        report->num_runs + 1, (unsigned long long)cut->num_output_tokens, cut->seconds);
}

static enum status append_first_token(struct buf *out, const struct bench_first_token *first,
                                      struct err *err) {
    return buf_appendf(out, err,
                       "  \"first_token_seconds\": {\"min\": %.6f, \"mean\": %.6f, \"p50\": %.6f, "
                       "\"p99\": %.6f, \"max\": %.6f},\n",
                       first->min, first->mean, first->p50, first->p99, first->max);
}

static enum status append_head(struct buf *out, const struct bench_report *report,
                               struct err *err) {
    enum status status = append_string(out, "version", nvllm_version(), err);
    if (!status) status = append_string(out, "model", report->model, err);
    if (!status) status = append_string(out, "workload", report->workload, err);
    if (!status) status = append_string(out, "device", report->device, err);
    if (!status) status = append_string(out, "weight_dtype", report->weight_dtype, err);
    if (!status) status = append_string(out, "kv_cache_dtype", report->kv_cache_dtype, err);
    if (status) return status;
    return buf_appendf(out, err,
                       "  \"num_requests\": %zu,\n  \"temperature\": %g,\n"
                       "  \"ids_modulo_vocab\": %s,\n  \"num_input_tokens\": %llu,\n"
                       "  \"num_output_tokens\": %llu,\n",
                       report->num_requests, (double)report->temperature,
                       report->vocab_size < (uint32_t)report->ids_limit ? "true" : "false",
                       (unsigned long long)report->num_input_tokens,
                       (unsigned long long)report->num_output_tokens);
}

static enum status append_run(struct buf *out, const struct bench_result *run, struct err *err) {
    enum status status = append_member(out, "time_seconds", run->seconds, err);
    if (!status) status = append_member(out, "throughput_tok_s", run_rate(run), err);
    if (!status) {
        status = append_member(out, "prefill_tok_s",
                               rate(run->prefill_tokens, run->prefill_seconds), err);
    }
    if (!status) {
        status =
            append_member(out, "decode_tok_s", rate(run->decode_tokens, run->decode_seconds), err);
    }
    if (!status) status = append_member(out, "prefill_steps_seconds", run->prefill_seconds, err);
    if (!status) status = append_member(out, "decode_steps_seconds", run->decode_seconds, err);
    if (!status) status = append_first_token(out, &run->first_token, err);
    if (!status) status = buf_append_str(out, "  \"stats\": {\n", err);
    if (!status) status = stats_json_members(out, &run->stats, run->seconds, 4, err);
    return status ? status : buf_append_str(out, "\n  }", err);
}

enum status bench_report_json(struct buf *out, const struct bench_report *report, struct err *err) {
    enum status status = buf_append_str(out, "{\n", err);
    if (!status) status = append_head(out, report, err);
    if (!status) status = append_runs(out, report, err);
    if (!status && report->num_runs) {
        status = buf_append_str(out, ",\n", err);
        if (!status) status = append_run(out, &report->runs[report->median], err);
    }
    return status ? status : buf_append_str(out, "\n}\n", err);
}
