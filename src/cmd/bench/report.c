/* Two forms of the same numbers. The text has the line that nano-vllm's bench.py prints, so that
 * results can be compared by eye or by grep. The JSON has all numbers, under names with units. Both
 * describe the run with the median time, because a mean would include runs that a busy machine
 * slowed. After an interrupt the finished runs are reported, and how far the last one came. */
#include "cmd/bench/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/json_text.h"
#include "cmd/stats_json.h"

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
    if (status) return status;
    const struct bench_first_token *first = &run->first_token;
    const struct nvllm_stats *stats = &run->stats;
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
