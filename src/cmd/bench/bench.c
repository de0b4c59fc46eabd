/* `nanovllm bench`: options, engine and repetitions; run.c measures one run. Lengths are checked
 * against the model's description before any weight is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/output_file.h"
#include "base/text/suggest.h"
#include "checkpoint/checkpoint.h"
#include "cmd/bench/run.h"
#include "cmd/cli.h"
#include "cmd/model/model_place.h"
#include "cmd/terminal/interrupt.h"

struct bench {
    struct nvllm_engine_options engine_options;
    struct model_place place;
    const char *workload_name;
    struct workload_options options;
    double temperature;
    int32_t repeat, json;
    uint32_t max_model_len;
    struct trace trace;
    struct nvllm_engine *engine;
    struct workload workload;
    char device[128], weight_dtype[16], kv_cache_dtype[16]; // for people
    struct bench_result *runs; // [repeat]
    int32_t num_finished; // finished runs; if fewer than `repeat`, the next one was interrupted
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"workload", NVLLM_PARAM_STRING, offsetof(struct bench, workload_name), 0, 0, NULL,
         "nano-vllm, one-stream, batch (or batch-N), prefill or shared-prefix; default nano-vllm"},
        {"scale", NVLLM_PARAM_DOUBLE, offsetof(struct bench, options.scale), 1e-6, 1, NULL,
         "share of the requests to run, from the first on, at least one request; default 1"},
        {"batch_size", NVLLM_PARAM_INT, offsetof(struct bench, options.batch_size), 1, 1000000,
         NULL, "number of requests; default: see above"},
        {"input_len", NVLLM_PARAM_INT, offsetof(struct bench, options.input_len), 1, 1 << 24, NULL,
         "prompt tokens per request, without the shared prefix; default: see above"},
        {"output_len", NVLLM_PARAM_INT, offsetof(struct bench, options.output_len), 1, 1 << 24,
         NULL, "tokens to generate per request; default: see above"},
        {"prefix_len", NVLLM_PARAM_INT, offsetof(struct bench, options.prefix_len), 1, 1 << 24,
         NULL, "tokens of the shared prefix; default: see above"},
        {"temperature", NVLLM_PARAM_DOUBLE, offsetof(struct bench, temperature), 0, 100, NULL,
         "sampling temperature, 0 is greedy; default 0.6"},
        {"repeat", NVLLM_PARAM_INT, offsetof(struct bench, repeat), 1, 1000, NULL,
         "number of timed runs, the median one is reported; default 1"},
        {"json", NVLLM_PARAM_BOOL, offsetof(struct bench, json), 0, 1, NULL,
         "print one JSON object instead of text"},
        {"trace", NVLLM_PARAM_STRING, offsetof(struct bench, trace.path), 0, 0, NULL, TRACE_HELP},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const char details[] =
    "Runs a fixed workload after a short warm-up and prints its speed. All requests\n"
    "are added at the start, ignore end-of-sequence tokens and are sampled at one\n"
    "temperature.\n"
    "\n"
    "Workload        requests  shared prefix   input tokens   output tokens\n"
    "nano-vllm            256              -  100-1024 each   100-1024 each\n"
    "one-stream             1              -            128             512\n"
    "batch                  8              -            128              64\n"
    "prefill                8              -            512               1\n"
    "shared-prefix        256           2048             64              64\n"
    "\n"
    "The workload nano-vllm has exactly the numbers of that project's bench.py:\n"
    "142,827 tokens in, 133,966 out. Token ids are below 10,001; for a smaller\n"
    "vocabulary they are taken modulo its size. A folder that holds only config.json\n"
    "can be measured with random weights: --load-format dummy.\n";

static const char epilogue[] =
    "Total counts generated tokens over the whole time. Prefill is the rate of the\n"
    "steps that run prompt tokens, Decode that of all others. First token is counted\n"
    "from the start of the run. Ctrl-C stops the bench. It then reports the\n"
    "finished runs, and how far the last one came. A second Ctrl-C ends the process\n"
    "at once.\n"
    "\n"
    "Exit status: 0 success; 1 the run failed or was interrupted; 2 the command line\n"
    "is wrong.\n";

// Refuses lengths above max_model_len before loading. The library would cut such requests, and the
// numbers would be those of another workload.
static enum status check_lengths(const struct bench *b, struct err *err) {
    for (size_t i = 0; i < b->workload.num_requests; i++) {
        const struct workload_request *request = &b->workload.requests[i];
        uint64_t len = (uint64_t)request->prompt_len + (uint64_t)request->max_tokens;
        if (len <= b->max_model_len) continue;
        return err_set(err, ERR_INVALID,
                       "request %zu of the workload has %llu tokens, but max_model_len is %u", i,
                       (unsigned long long)len, b->max_model_len);
    }
    return OK;
}

static void copy_text(char *out, size_t size, const json_t *info, const char *key) {
    const char *text = json_string_value(json_object_get(info, key));
    snprintf(out, size, "%s", text ? text : "");
}

static enum status prepare(struct bench *b, struct err *err) {
    json_t *info = NULL;
    enum status status = model_info_open(&info, &b->engine_options, err);
    if (status) return status;
    b->options.vocab_size = (uint32_t)model_info_int(info, "vocab_size");
    b->max_model_len = (uint32_t)model_info_int(info, "max_model_len");
    copy_text(b->device, sizeof b->device, info, "device");
    copy_text(b->weight_dtype, sizeof b->weight_dtype, info, "weight_dtype");
    copy_text(b->kv_cache_dtype, sizeof b->kv_cache_dtype, info, "kv_cache_dtype");
    json_decref(info);
    status = workload_create(&b->workload, &b->options, err);
    if (!status) status = check_lengths(b, err);
    if (status) return status;
    b->runs = calloc((size_t)b->repeat, sizeof *b->runs);
    return b->runs ? OK : err_nomem(err, "bench");
}

// Prompts are token ids, so no tokenizer is needed. If there is one it runs, because making text is
// part of the work.
static enum status skip_missing_tokenizer(struct bench *b, struct err *err) {
    struct checkpoint *checkpoint = NULL;
    struct document_name what;
    bool is_present = false;
    enum status status = checkpoint_open(&checkpoint, b->engine_options.model, err);
    if (!status) {
        status = checkpoint_find(checkpoint, "tokenizer.json", &what, &is_present, err);
    }
    checkpoint_close(checkpoint);
    if (!status && !is_present) b->engine_options.skip_tokenizer_init = 1;
    return status;
}

static enum status load(struct bench *b, struct err *err) {
    return cli_engine_create(&b->engine, &b->engine_options, b->place.name, err);
}

static enum status warm_up(struct bench *b, bool *interrupted, struct err *err) {
    int32_t ids[] = {0, 0, 0, 0};
    struct workload_request request = {.prompt = ids, .prompt_len = ARRAY_LEN(ids)};
    request.max_tokens = 16;
    struct workload workload = {.requests = &request,
                                .num_requests = 1,
                                .num_input_tokens = request.prompt_len,
                                .num_output_tokens = (uint64_t)request.max_tokens};
    struct bench_result result;
    enum status status =
        bench_run(b->engine, &workload, (float)b->temperature, "warm-up", NULL, &result, err);
    *interrupted = result.interrupted;
    return status;
}

static void begin_progress(const struct bench *b, struct progress *progress, char *label,
                           size_t size) {
    snprintf(label, size, "Run %d of %d", b->num_finished + 1, b->repeat);
    progress_init(progress, b->repeat > 1 ? label : "Running", true, b->workload.num_output_tokens);
}

static enum status run_all(struct bench *b, struct err *err) {
    interrupt_install();
    char label[40];
    // During the warm-up; then the first run is reported as interrupted with no tokens.
    bool interrupted = false;
    enum status status = warm_up(b, &interrupted, err);
    if (!status) status = trace_begin(&b->trace, b->engine, err);
    while (b->num_finished < b->repeat && !status && !interrupted) {
        struct bench_result *run = &b->runs[b->num_finished];
        char salt[16]; // so that no run finds prefixes of an earlier run in the cache
        snprintf(salt, sizeof salt, "run %d", b->num_finished);
        struct progress progress;
        begin_progress(b, &progress, label, sizeof label);
        status =
            bench_run(b->engine, &b->workload, (float)b->temperature, salt, &progress, run, err);
        progress_clear(&progress); // the report replaces the progress line
        interrupted = run->interrupted;
        if (!status && !interrupted) b->num_finished++;
    }
    return status;
}

static enum status print_workload(const struct bench *b, struct buf *out, struct err *err) {
    enum status status = buf_appendf(
        out, err, "Workload: %s, %zu request%s, %llu tokens in, %llu out\n",
        workload_name(b->options.kind), b->workload.num_requests,
        b->workload.num_requests == 1 ? "" : "s", (unsigned long long)b->workload.num_input_tokens,
        (unsigned long long)b->workload.num_output_tokens);
    bool reduced = b->options.vocab_size < (uint32_t)b->workload.ids_limit;
    if (!status && reduced) {
        status = buf_appendf(out, err, "Token ids are taken modulo the vocabulary's %u\n",
                             b->options.vocab_size);
    }
    if (status) return status;
    return buf_appendf(out, err, "Device: %s; weights %s, KV cache %s\n", b->device,
                       b->weight_dtype, b->kv_cache_dtype);
}

static enum status print_report(const struct bench *b, struct err *err) {
    struct nvllm_stats stats = {.struct_size = sizeof stats};
    nvllm_engine_stats(b->engine, &stats);
    struct bench_report report = {.model = b->place.name,
                                  .device = b->device,
                                  .weight_dtype = b->weight_dtype,
                                  .kv_cache_dtype = b->kv_cache_dtype,
                                  .workload = workload_name(b->options.kind),
                                  .num_requests = b->workload.num_requests,
                                  .num_input_tokens = b->workload.num_input_tokens,
                                  .num_output_tokens = b->workload.num_output_tokens,
                                  .temperature = (float)b->temperature,
                                  .vocab_size = b->options.vocab_size,
                                  .ids_limit = b->workload.ids_limit,
                                  .load_seconds = stats.load_seconds,
                                  .runs = b->runs,
                                  .num_runs = (size_t)b->num_finished};
    if (b->num_finished < b->repeat) report.interrupted = &b->runs[b->num_finished];
    enum status status = OK;
    if (report.num_runs) status = bench_median(b->runs, report.num_runs, &report.median, err);
    if (status) return status;
    struct buf out = {0};
    if (b->json) {
        status = bench_report_json(&out, &report, err);
    } else {
        status = print_workload(b, &out, err);
        if (!status) status = bench_report_text(&out, &report, err);
    }
    struct output_file file;
    if (!status) status = output_file_open(&file, "-", err);
    if (!status) status = output_file_write(&file, out.data, out.len, err);
    buf_fini(&out);
    return status;
}

static int unknown_workload(const struct bench *b, const struct options *options) {
    static const char *const names[] = {"nano-vllm", "one-stream", "batch", "prefill",
                                        "shared-prefix"};
    const char *nearest = suggest_nearest(b->workload_name, names, ARRAY_LEN(names));
    if (!nearest) return cli_usage_error(options, "unknown workload %s", b->workload_name);
    return cli_usage_error(options, "unknown workload %s; did you mean %s?", b->workload_name,
                           nearest);
}

// Refuses numbers that contradict the workload's name, such as one-stream with several requests.
static int check_shape(const struct workload_options *o, const struct options *options) {
    bool shaped = o->batch_size || o->input_len || o->output_len || o->prefix_len;
    if (o->kind == WORKLOAD_NANO_VLLM && shaped) {
        return cli_usage_error(options, "the nano-vllm workload has fixed lengths: choose another "
                                        "--workload");
    }
    if (o->kind == WORKLOAD_ONE_STREAM && o->batch_size > 1) {
        return cli_usage_error(options,
                               "the one-stream workload is one request: use --workload "
                               "batch for --batch-size %d",
                               o->batch_size);
    }
    if (o->kind == WORKLOAD_PREFILL && o->output_len > 1) {
        return cli_usage_error(options,
                               "the prefill workload generates one token: use --workload "
                               "batch for --output-len %d",
                               o->output_len);
    }
    if (o->kind != WORKLOAD_SHARED_PREFIX && o->prefix_len) {
        return cli_usage_error(options, "--prefix-len needs --workload shared-prefix, not %s",
                               workload_name(o->kind));
    }
    return CLI_OK;
}

static int check_usage(struct bench *b, const struct options *options) {
    struct workload_options *o = &b->options;
    if (!b->engine_options.model) return cli_usage_error(options, "no model given: use -m MODEL");
    if (options->num_args)
        return cli_usage_error(options, "unexpected argument %s", options->args[0]);
    int32_t batch_size = o->batch_size;
    if (!workload_from_name(b->workload_name, &o->kind, &o->batch_size)) {
        return unknown_workload(b, options);
    }
    if (batch_size && batch_size != o->batch_size) {
        return cli_usage_error(options, "--workload %s and --batch-size %d contradict each other",
                               b->workload_name, batch_size);
    }
    return check_shape(o, options);
}

static int bench(struct bench *b, const struct options *options) {
    int exit_code = check_usage(b, options);
    if (exit_code) return exit_code;
    struct err err = {0};
    enum status status = model_place_find(&b->place, &b->engine_options, false, &err);
    if (!status) status = prepare(b, &err);
    if (!status) status = skip_missing_tokenizer(b, &err);
    if (!status) status = trace_open(&b->trace, b->engine_options.model, &err);
    if (!status) status = load(b, &err);
    if (!status) status = run_all(b, &err);
    if (!status) status = print_report(b, &err);
    struct err close_err = {0};
    enum status close_status = trace_close(&b->trace, b->engine, &close_err);
    if (!status && (status = close_status)) err = close_err;
    if (status) return cli_error("%s", err.message);
    return b->num_finished < b->repeat ? cli_error("interrupted") : CLI_OK;
}

int cmd_bench(int argc, char **argv) {
    struct bench b = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT,
                      .workload_name = "nano-vllm",
                      .options.scale = 1,
                      .temperature = 0.6,
                      .repeat = 1};
    b.engine_options.full_warm_up = 1; // so that no run has a part of it
    const struct option_group groups[] = {
        {.title = "Workload", .row = own_option, .target = &b},
        cli_engine_group(&b.engine_options),
    };
    struct options options = {.command = "bench",
                              .synopsis = "-m MODEL [options]",
                              .details = details,
                              .epilogue = epilogue,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (cli_parse(&options, argc, argv, &exit_code)) exit_code = bench(&b, &options);
    nvllm_engine_destroy(b.engine);
    trace_abandon(&b.trace);
    workload_fini(&b.workload);
    free(b.runs);
    return exit_code;
}
