/* What `nanovllm bench` prints: for people, or as one JSON object. */
#ifndef CMD_BENCH_REPORT_H
#define CMD_BENCH_REPORT_H

#include "base/text/buf.h"
#include "cmd/bench/run.h"

struct bench_report {
    const char *model; // path
    const char *workload; // name
    const char *device; // for people: "cpu avx512, 2 threads"
    const char *weight_dtype, *kv_cache_dtype;
    size_t num_requests;
    uint64_t num_input_tokens, num_output_tokens; // of one whole run
    float temperature;
    uint32_t vocab_size;
    int32_t ids_limit; // ids of the workload are below this before the modulo
    double load_seconds;
    const struct bench_result *runs; // [num_runs] finished runs; may be empty
    size_t num_runs;
    size_t median; // index of the run with the median time
    const struct bench_result *interrupted; // the run that Ctrl-C cut short; NULL: none
};

// The index of the run with the median time, the lower one of two; num_runs is at least 1.
MUST_USE enum status bench_median(const struct bench_result *runs, size_t num_runs, size_t *median,
                                  struct err *err);
// Prints upstream's line, then the rates.
MUST_USE enum status bench_report_text(struct buf *out, const struct bench_report *report,
                                       struct err *err);
MUST_USE enum status bench_report_json(struct buf *out, const struct bench_report *report,
                                       struct err *err);

#endif
