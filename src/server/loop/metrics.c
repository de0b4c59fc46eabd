#include "server/loop/metrics.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum { BUCKETS_MAX = 32, STATUS_CLASSES = 6, REASONS = 4 };

struct histogram {
    const char *name, *help;
    const double *bounds; // [num_bounds]
    size_t num_bounds;
    uint64_t counts[BUCKETS_MAX]; // of each bucket alone; the last is above all bounds
    double sum;
};

static const double first_token_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1,
                                            .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                            20,   40,   80,  160, 640, 2560};
static const double token_bounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                      .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
static const double request_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double step_bounds[] = {1,   8,    16,   32,   64,   128,  256,
                                     512, 1024, 2048, 4096, 8192, 16384};
static const double n_bounds[] = {1, 2, 5, 10, 20};
static const double preemption_bounds[] = {1, 2, 3, 4, 5, 10, 20};

// 4^i microseconds, as struct nvllm_durations counts them.
static const double duration_bounds[NVLLM_DURATION_BUCKETS - 1] = {
    1e-6,    4e-6,    16e-6,   64e-6,   256e-6,   1024e-6,
    4096e-6, .016384, .065536, .262144, 1.048576, 4.194304};

enum histogram_id {
    FIRST_TOKEN,
    NEXT_TOKEN,
    NEXT_TOKEN_OLD,
    PER_OUTPUT_TOKEN,
    END_TO_END,
    QUEUE,
    INFERENCE,
    PREFILL,
    DECODE,
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    MAX_GENERATION_TOKENS,
    PARAM_MAX_TOKENS,
    PARAM_N,
    PREEMPTIONS,
    NUM_HISTOGRAMS,
};

struct metrics {
    struct histogram histograms[NUM_HISTOGRAMS];
    double length_bounds[BUCKETS_MAX]; // 1, 2, 5, 10 ... up to the context
    size_t num_length_bounds;
    uint64_t num_prompt_tokens, num_cached_tokens, num_generated_tokens;
    uint64_t num_finished[REASONS];
    uint64_t num_answered[STATUS_CLASSES];
    atomic_uint_least64_t steps[ARRAY_LEN(step_bounds) + 1];
    atomic_uint_least64_t step_tokens;
};

static size_t bucket_of(const double *bounds, size_t num_bounds, double value) {
    size_t i = 0;
    while (i < num_bounds && value > bounds[i]) i++;
    return i;
}

static void observe(struct metrics *metrics, enum histogram_id id, double value) {
    struct histogram *histogram = &metrics->histograms[id];
    if (value < 0) value = 0;
    histogram->counts[bucket_of(histogram->bounds, histogram->num_bounds, value)]++;
    histogram->sum += value;
}

static void make_length_bounds(struct metrics *metrics, uint32_t max_model_len) {
    static const double steps[] = {1, 2, 5};
    for (double decade = 1;; decade *= 10) {
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            double bound = decade * steps[i];
            if (bound > max_model_len || metrics->num_length_bounds == BUCKETS_MAX - 1) return;
            metrics->length_bounds[metrics->num_length_bounds++] = bound;
        }
    }
}

#define BOUNDS(array) .bounds = (array), .num_bounds = ARRAY_LEN(array)
#define LENGTHS .bounds = metrics->length_bounds, .num_bounds = metrics->num_length_bounds

struct metrics *metrics_create(uint32_t max_model_len) {
    struct metrics *metrics = calloc(1, sizeof *metrics);
    if (!metrics) return NULL;
    make_length_bounds(metrics, max_model_len);
    const struct histogram histograms[NUM_HISTOGRAMS] = {
        [FIRST_TOKEN] = {"time_to_first_token_seconds", "Time to first token",
                         BOUNDS(first_token_bounds)},
        [NEXT_TOKEN] = {"inter_token_latency_seconds",
                        "Time between two steps' tokens of a request", BOUNDS(token_bounds)},
        [NEXT_TOKEN_OLD] = {"time_per_output_token_seconds", "The same under its older name",
                            BOUNDS(token_bounds)},
        [PER_OUTPUT_TOKEN] = {"request_time_per_output_token_seconds",
                              "Mean time per token after the first", BOUNDS(token_bounds)},
        [END_TO_END] = {"e2e_request_latency_seconds", "Arrival to last token",
                        BOUNDS(request_bounds)},
        [QUEUE] = {"request_queue_time_seconds", "Arrival to first step", BOUNDS(request_bounds)},
        [INFERENCE] = {"request_inference_time_seconds", "First step to last token",
                       BOUNDS(request_bounds)},
        [PREFILL] = {"request_prefill_time_seconds", "First step to first token",
                     BOUNDS(request_bounds)},
        [DECODE] = {"request_decode_time_seconds", "First token to last", BOUNDS(request_bounds)},
        [PROMPT_TOKENS] = {"request_prompt_tokens", "Prompt tokens of a request", LENGTHS},
        [GENERATION_TOKENS] = {"request_generation_tokens", "Generated tokens of a request",
                               LENGTHS},
        [MAX_GENERATION_TOKENS] = {"request_max_num_generation_tokens",
                                   "Most tokens generated for a sequence of a request", LENGTHS},
        [PARAM_MAX_TOKENS] = {"request_params_max_tokens", "max_tokens of a request", LENGTHS},
        [PARAM_N] = {"request_params_n", "n of a request", BOUNDS(n_bounds)},
        [PREEMPTIONS] = {"request_num_preemptions", "Times that a request lost its blocks",
                         BOUNDS(preemption_bounds)},
    };
    for (size_t i = 0; i < NUM_HISTOGRAMS; i++) metrics->histograms[i] = histograms[i];
    return metrics;
}

void metrics_destroy(struct metrics *metrics) {
    free(metrics);
}

void metrics_step(struct metrics *metrics, uint64_t num_tokens) {
    size_t bucket = bucket_of(step_bounds, ARRAY_LEN(step_bounds), (double)num_tokens);
    atomic_fetch_add_explicit(&metrics->steps[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metrics->step_tokens, num_tokens, memory_order_relaxed);
}

void metrics_first_tokens(struct metrics *metrics, uint32_t num_tokens, uint32_t num_prompt_tokens,
                          uint32_t num_cached_tokens, const struct nvllm_times *times) {
    metrics->num_prompt_tokens += num_prompt_tokens;
    metrics->num_cached_tokens += num_cached_tokens;
    metrics->num_generated_tokens += num_tokens;
    observe(metrics, FIRST_TOKEN, times->first_token - times->arrival);
    observe(metrics, QUEUE, times->first_scheduled - times->arrival);
    observe(metrics, PREFILL, times->first_token - times->first_scheduled);
}

void metrics_next_tokens(struct metrics *metrics, uint32_t num_tokens, double seconds) {
    metrics->num_generated_tokens += num_tokens;
    observe(metrics, NEXT_TOKEN, seconds);
    observe(metrics, NEXT_TOKEN_OLD, seconds);
}

void metrics_finished(struct metrics *metrics, enum nvllm_finish_reason reason,
                      uint32_t num_prompt_tokens, uint32_t num_generated_tokens, int32_t max_tokens,
                      int32_t n, uint32_t num_preemptions, const struct nvllm_times *times) {
    metrics->num_finished[reason - NVLLM_FINISH_STOP]++;
    observe(metrics, PROMPT_TOKENS, num_prompt_tokens);
    observe(metrics, GENERATION_TOKENS, num_generated_tokens);
    observe(metrics, MAX_GENERATION_TOKENS, num_generated_tokens);
    observe(metrics, PARAM_MAX_TOKENS, max_tokens);
    if (n) observe(metrics, PARAM_N, n);
    observe(metrics, PREEMPTIONS, num_preemptions);
    if (!num_generated_tokens) return;
    observe(metrics, END_TO_END, times->last_token - times->arrival);
    observe(metrics, INFERENCE, times->last_token - times->first_scheduled);
    observe(metrics, DECODE, times->last_token - times->first_token);
    if (num_generated_tokens < 2) return;
    observe(metrics, PER_OUTPUT_TOKEN,
            (times->last_token - times->first_token) / (num_generated_tokens - 1));
}

void metrics_answered(struct metrics *metrics, int status) {
    int class = status / 100;
    if (class > 0 && class < STATUS_CLASSES) metrics->num_answered[class]++;
}

// ---- the text ----

struct page {
    struct json_out *out;
    const char *model_name;
};

static void write_head(struct page *page, const char *name, const char *type, const char *help) {
    json_out_rawf(page->out, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name, type);
}

static void write_labels(struct page *page) {
    json_out_raw(page->out, "{engine=\"0\",model_name=");
    json_out_cstring(page->out, page->model_name);
}

static void write_number(struct page *page, const char *name, const char *type, double value,
                         const char *help) {
    write_head(page, name, type, help);
    json_out_raw(page->out, name);
    write_labels(page);
    json_out_rawf(page->out, "} %.17g\n", value);
}

static void write_buckets(struct page *page, const char *prefix,
                          const struct histogram *histogram) {
    uint64_t total = 0;
    char name[80];
    snprintf(name, sizeof name, "%s:%s", prefix, histogram->name);
    write_head(page, name, "histogram", histogram->help);
    for (size_t i = 0; i <= histogram->num_bounds; i++) {
        total += histogram->counts[i];
        json_out_rawf(page->out, "%s_bucket", name);
        write_labels(page);
        if (i < histogram->num_bounds) {
            json_out_rawf(page->out, ",le=\"%.12g\"} %llu\n", histogram->bounds[i],
                          (unsigned long long)total);
        } else {
            json_out_rawf(page->out, ",le=\"+Inf\"} %llu\n", (unsigned long long)total);
        }
    }
    json_out_rawf(page->out, "%s_sum", name);
    write_labels(page);
    json_out_rawf(page->out, "} %.17g\n%s_count", histogram->sum, name);
    write_labels(page);
    json_out_rawf(page->out, "} %llu\n", (unsigned long long)total);
}

static void write_steps(struct page *page, const struct metrics *metrics) {
    struct histogram steps = {.name = "iteration_tokens_total",
                              .help = "Tokens of a step",
                              .bounds = step_bounds,
                              .num_bounds = ARRAY_LEN(step_bounds)};
    for (size_t i = 0; i <= ARRAY_LEN(step_bounds); i++) {
        steps.counts[i] = atomic_load_explicit(&metrics->steps[i], memory_order_relaxed);
    }
    steps.sum = (double)atomic_load_explicit(&metrics->step_tokens, memory_order_relaxed);
    write_buckets(page, "vllm", &steps);
}

static void write_finished(struct page *page, const struct metrics *metrics) {
    static const char *const reasons[REASONS] = {"stop", "length", "abort", "error"};
    write_head(page, "vllm:request_success_total", "counter", "Requests that ended, by reason");
    for (size_t i = 0; i < REASONS; i++) {
        json_out_raw(page->out, "vllm:request_success_total");
        write_labels(page);
        json_out_rawf(page->out, ",finished_reason=\"%s\"} %llu\n", reasons[i],
                      (unsigned long long)metrics->num_finished[i]);
    }
}

static void write_answered(struct page *page, const struct metrics *metrics) {
    write_head(page, "nanovllm:http_requests_total", "counter", "HTTP requests, by status class");
    for (int i = 2; i < STATUS_CLASSES; i++) {
        json_out_raw(page->out, "nanovllm:http_requests_total");
        write_labels(page);
        json_out_rawf(page->out, ",status=\"%dxx\"} %llu\n", i,
                      (unsigned long long)metrics->num_answered[i]);
    }
}

static void write_reason(struct page *page, const char *name, const char *reason, uint64_t value) {
    json_out_raw(page->out, name);
    write_labels(page);
    json_out_rawf(page->out, ",reason=\"%s\"} %llu\n", reason, (unsigned long long)value);
}

// vLLM defers requests whose cache or grammar is not there yet; here none is.
static void write_waiting(struct page *page, const struct nvllm_stats *stats) {
    static const char waiting[] = "vllm:num_requests_waiting_by_reason";
    static const char rejections[] = "vllm:admission_rejections_total";
    write_head(page, waiting, "gauge", "The same by the reason");
    write_reason(page, waiting, "capacity", stats->num_waiting);
    write_reason(page, waiting, "deferred", 0);
    write_head(page, rejections, "counter", "Requests refused because too many waited");
    write_reason(page, rejections, "max_num_queued_reqs", stats->num_refused_max_num_waiting);
    write_reason(page, rejections, "max_num_queued_tokens", stats->num_refused_max_waiting_tokens);
}

static void write_cache(struct page *page, const struct nvllm_stats *stats) {
    uint32_t num_groups = stats->num_kv_groups ? stats->num_kv_groups : 1;
    uint64_t num_tokens = (uint64_t)(stats->num_kv_blocks / num_groups) * stats->block_size;
    uint32_t each = stats->num_kv_blocks_each;
    double concurrency = each ? (double)stats->num_kv_blocks / each : 0;
    write_head(page, "vllm:cache_config_info", "gauge", "How the KV cache is made");
    json_out_raw(page->out, "vllm:cache_config_info");
    write_labels(page);
    json_out_rawf(page->out,
                  ",block_size=\"%u\",num_gpu_blocks=\"%u\",kv_cache_size_tokens=\"%llu\","
                  "kv_cache_max_concurrency=\"%.6g\"} 1\n",
                  stats->block_size, stats->num_kv_blocks, (unsigned long long)num_tokens,
                  concurrency);
}

static void write_durations(struct page *page, const char *name, const char *help,
                            const struct nvllm_durations *durations) {
    struct histogram histogram = {.name = name,
                                  .help = help,
                                  .bounds = duration_bounds,
                                  .num_bounds = ARRAY_LEN(duration_bounds),
                                  .sum = durations->seconds};
    memcpy(histogram.counts, durations->counts, sizeof durations->counts);
    write_buckets(page, "nanovllm", &histogram);
}

static void write_forms(struct page *page, const struct nvllm_stats *stats) {
    write_number(page, "nanovllm:structured_output_requests_total", "counter",
                 (double)stats->num_forms, "Requests whose answers must have a form");
    write_number(page, "nanovllm:structured_output_cache_hits_total", "counter",
                 (double)stats->num_forms_kept,
                 "Of these, requests whose form was compiled before");
    write_number(page, "nanovllm:structured_output_refused_total", "counter",
                 (double)stats->num_forms_refused, "Requests that were refused for their form");
    write_durations(page, "structured_output_compile_time_seconds", "Time to compile a form",
                    &stats->form_compile);
    write_durations(page, "structured_output_mask_time_seconds",
                    "Time to find the tokens that a form allows next", &stats->form_mask);
}

static void write_drafts(struct page *page, const struct nvllm_stats *stats) {
    write_number(page, "vllm:spec_decode_num_drafts_total", "counter", (double)stats->num_drafts,
                 "Drafts of tokens that were verified");
    write_number(page, "vllm:spec_decode_num_draft_tokens_total", "counter",
                 (double)stats->num_draft_tokens, "Their tokens");
    write_number(page, "vllm:spec_decode_num_accepted_tokens_total", "counter",
                 (double)stats->num_accepted_tokens, "Of these, tokens that were right");
}

static void write_engine(struct page *page, const struct nvllm_stats *stats) {
    double blocks = stats->num_kv_blocks ? stats->num_kv_blocks : 1;
    const char *usage = "Share of the KV cache's blocks in use, 1 is all";
    write_number(page, "vllm:num_requests_running", "gauge", stats->num_running,
                 "Requests in the engine's batches");
    write_number(page, "vllm:num_requests_waiting", "gauge", stats->num_waiting,
                 "Requests that wait for their first step, or were preempted");
    write_waiting(page, stats);
    write_number(page, "vllm:kv_cache_usage_perc", "gauge", stats->num_kv_blocks_used / blocks,
                 usage);
    write_number(page, "vllm:gpu_cache_usage_perc", "gauge", stats->num_kv_blocks_used / blocks,
                 usage);
    write_number(page, "vllm:num_preemptions_total", "counter", (double)stats->num_preemptions,
                 "Requests that lost their blocks and ran again");
    write_number(page, "nanovllm:steps_total", "counter", (double)stats->num_steps,
                 "Steps of the engine");
    write_number(page, "nanovllm:requests_added_total", "counter",
                 (double)stats->num_requests_added, "Requests that the engine took");
    write_number(page, "nanovllm:requests_finished_total", "counter",
                 (double)stats->num_requests_finished, "Requests that the engine ended");
    write_cache(page, stats);
    write_drafts(page, stats);
    write_forms(page, stats);
}

void metrics_write(const struct metrics *metrics, const struct metrics_now *now,
                   struct json_out *out) {
    struct page page = {.out = out, .model_name = now->model_name};
    write_engine(&page, &now->stats);
    write_number(&page, "vllm:prompt_tokens_total", "counter", (double)metrics->num_prompt_tokens,
                 "Prompt tokens of requests that began to answer");
    write_number(&page, "vllm:generation_tokens_total", "counter",
                 (double)metrics->num_generated_tokens, "Generated tokens");
    write_number(&page, "vllm:prefix_cache_queries_total", "counter",
                 (double)metrics->num_prompt_tokens, "Prompt tokens looked up in the prefix cache");
    write_number(&page, "vllm:prefix_cache_hits_total", "counter",
                 (double)metrics->num_cached_tokens, "Prompt tokens found in the prefix cache");
    write_finished(&page, metrics);
    write_steps(&page, metrics);
    for (size_t i = 0; i < NUM_HISTOGRAMS; i++)
        write_buckets(&page, "vllm", &metrics->histograms[i]);
    write_answered(&page, metrics);
    write_number(&page, "nanovllm:http_connections", "gauge", now->num_connections,
                 "Open connections");
    write_number(&page, "nanovllm:http_requests_in_flight", "gauge", now->num_unanswered,
                 "HTTP requests without an answer, this one among them");
    write_number(&page, "nanovllm:request_bodies_bytes", "gauge", (double)now->bodies_bytes,
                 "Bytes of requests' bodies in memory, small ones not counted");
    write_number(&page, "nanovllm:calls_in_flight", "gauge", now->num_calls,
                 "Requests of the API in work, also those whose client went away");
}
