/* Translates the library's parameter tables and errors into the command's terms. Every error line
 * is printed here. */
#include "cmd/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/devices.h"
#include "base/compiler.h"
#include "base/os/file.h"
#include "base/os/secret.h"
#include "base/os/write_whole.h"
#include "base/text/sentence.h"
#include "cmd/model/file_uses.h"

// ---- loading ----

static const uint64_t line_parameters_min = 100000000; // fewer are loaded in less than a second

const char *loading_model_name(const char *model) {
    const char *slash = strrchr(model, '/');
    return slash && slash[1] ? slash + 1 : model;
}

void loading_sentence(char *out, size_t size, const char *name, uint64_t num_parameters) {
    bool is_large = num_parameters >= 1000000000;
    snprintf(out, size, "loading %s, %.*f %s parameters", name, is_large,
             (double)num_parameters / (is_large ? 1e9 : 1e6), is_large ? "billion" : "million");
}

static void on_loaded(uint64_t num_loaded, uint64_t num_parameters, void *user_data) {
    struct loading *loading = user_data;
    progress_share(&loading->progress, num_loaded, num_parameters);
    if (loading->is_told) return;
    loading->is_told = true;
    if (loading->progress.enabled || num_parameters < line_parameters_min) return;
    char line[256];
    loading_sentence(line, sizeof line, loading_model_name(loading->model), num_parameters);
    cli_say("%s", line);
}

void loading_begin(struct loading *loading, const char *model) {
    *loading = (struct loading){.model = model,
                                .callback = {.on_loaded = on_loaded, .user_data = loading}};
    snprintf(loading->label, sizeof loading->label, "Loading %s", loading_model_name(model));
    progress_init(&loading->progress, loading->label, true, 0);
    progress_share(&loading->progress, 0, 1);
}

void loading_end(struct loading *loading) {
    progress_clear(&loading->progress);
}

// ---- the command line ----

enum status cli_status(enum nvllm_status status, const struct nvllm_error *error, struct err *err) {
    // The public codes have the same values as ours under another name.
    if (status == NVLLM_OK) return OK;
    return err_set(err, (enum status)status, "%s", error->message);
}

// NULL: the user has no such folder.
static const char *user_cache(char *path, size_t size) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int len = -1;
    if (cache && cache[0] == '/') {
        len = snprintf(path, size, "%s/nanovllm", cache);
    } else if (home && home[0] == '/') {
        len = snprintf(path, size, "%s/.cache/nanovllm", home);
    }
    return len > 0 && (size_t)len < size ? path : NULL;
}

// Whether the character may stand beside a parameter's name in a sentence, and not in a path.
static bool is_beside(char c) {
    return c == '\0' || strchr(" ,:;()", c);
}

// The library names options as C does; here each becomes the flag. Names of one word stay, because
// sentences also use them as words. Only "quantization" is never used so.
static void name_flags(struct err *err) {
    const struct nvllm_param *row;
    for (size_t i = 0; err && (row = nvllm_engine_option(i)); i++) {
        size_t len = strlen(row->name);
        if (!strchr(row->name, '_') && strcmp(row->name, "quantization") != 0) continue;
        char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
        option_spellings(row, flags);
        size_t flag_len = strlen(flags[0]);
        char *at = err->message;
        while ((at = strstr(at, row->name))) {
            bool is_word = (at == err->message || is_beside(at[-1])) && is_beside(at[len]);
            size_t rest = strlen(at + len) + 1;
            size_t left = sizeof err->message - (size_t)(at - err->message);
            if (flag_len + rest > left) return;
            if (is_word) {
                memmove(at + flag_len, at + len, rest);
                memcpy(at, flags[0], flag_len);
            }
            at += is_word ? flag_len : len;
        }
    }
}

enum status cli_options_status(enum nvllm_status status, const struct nvllm_error *error,
                               struct err *err) {
    enum status own = cli_status(status, error, err);
    if (own) name_flags(err);
    return own;
}

// Under mpirun the program may have threads already.
void cli_begin_device(const struct nvllm_engine_options *options) {
    const char *name, *value;
    bool is_one = options->tensor_parallel_size == 1 && options->data_parallel_size == 1;
    if (!is_one || mpirun_is_there()) return;
    for (uint32_t i = 0; api_devices_variable(i, &name, &value); i++) (void)setenv(name, value, 0);
}

enum status cli_engine_create(struct nvllm_engine **out, const struct nvllm_engine_options *options,
                              const char *name, struct err *err) {
    char path[FILE_PATH_MAX];
    struct nvllm_engine_options own = *options;
    cli_begin_device(options);
    const struct nvllm_engine_options defaults = NVLLM_ENGINE_OPTIONS_INIT;
    if (strcmp(own.worker_program, defaults.worker_program) == 0)
        own.worker_program = "/proc/self/exe";
    if (strcmp(own.distributed_executor_backend, "auto") == 0 && mpirun_is_there()) {
        own.distributed_executor_backend = "mpi";
    }
    if (!own.cache_dir) own.cache_dir = user_cache(path, sizeof path - sizeof "/gemm.txt");
    struct nvllm_error error = {0};
    if (own.load_progress) {
        return cli_options_status(nvllm_engine_create(out, &own, &error), &error, err);
    }
    struct loading loading;
    loading_begin(&loading, name);
    own.load_progress = &loading.callback;
    enum nvllm_status created = nvllm_engine_create(out, &own, &error);
    loading_end(&loading);
    return cli_options_status(created, &error, err);
}

// In place of `download`, which is the command's default.
static const struct nvllm_param offline_row = {
    "offline",
    NVLLM_PARAM_BOOL,
    offsetof(struct nvllm_engine_options, download),
    0,
    1,
    NULL,
    "read a model by its name from the Hugging Face cache only, and download nothing; default "
    "false, or HF_HUB_OFFLINE"};

static enum status set_engine_option(void *target, const char *name, const char *value,
                                     struct err *err) {
    struct nvllm_error error = {0};
    if (strcmp(name, offline_row.name) == 0) {
        name = "download";
        value = strcmp(value, "false") == 0 ? "true" : "false";
    }
    return cli_status(nvllm_engine_options_set(target, name, value, &error), &error, err);
}

static const struct nvllm_param *engine_option(size_t index) {
    const struct nvllm_param *row = nvllm_engine_option(index);
    return row && strcmp(row->name, "download") == 0 ? &offline_row : row;
}

static enum status set_sampling_param(void *target, const char *name, const char *value,
                                      struct err *err) {
    const struct nvllm_sampling_params *params = target;
    struct nvllm_error error = {0};
    // --regex and the others beside it were read before.
    if (strcmp(name, "structured_outputs") == 0 && params->num_structured_outputs) {
        return err_set(err, ERR_INVALID, "the output has another form already");
    }
    return cli_status(nvllm_sampling_params_set(target, name, value, &error), &error, err);
}

struct option_group cli_engine_group(struct nvllm_engine_options *options) {
    options->download = 1;
    return (struct option_group){
        .title = "Engine", .row = engine_option, .set = set_engine_option, .target = options};
}

static const struct nvllm_param *model_option(size_t index) {
    static const char *const names[] = {"revision", "quant", "offline"};
    const struct nvllm_param *row = NULL;
    if (index >= ARRAY_LEN(names)) return NULL;
    for (size_t i = 0; (row = engine_option(i)) && strcmp(row->name, names[index]) != 0;) i++;
    return row;
}

struct option_group cli_model_group(struct nvllm_engine_options *options) {
    struct option_group group = cli_engine_group(options);
    group.title = "A model by its name";
    group.row = model_option;
    return group;
}

static const struct nvllm_param *drawn_engine_option(size_t index) {
    static const struct nvllm_param seed = {
        "seed",
        NVLLM_PARAM_INT64,
        offsetof(struct nvllm_engine_options, seed),
        0,
        0x1p63,
        NULL,
        "seed for the sampling of requests that set no seed of their own; default: another in each "
        "run, shown by --stats, by /stats of a chat, and in a server's first line"};
    const struct nvllm_param *row = engine_option(index);
    return row && strcmp(row->name, "seed") == 0 ? &seed : row;
}

struct option_group cli_drawn_engine_group(struct nvllm_engine_options *options) {
    options->seed = (int64_t)(secret_make() >> 33); // 31 bits: easy to type
    struct option_group group = cli_engine_group(options);
    group.row = drawn_engine_option;
    return group;
}

struct option_group cli_sampling_group(struct nvllm_sampling_params *params) {
    return (struct option_group){.title = "Sampling",
                                 .row = nvllm_sampling_param,
                                 .set = set_sampling_param,
                                 .target = params,
                                 .hidden = "seed"};
}

// "nanovllm<command>: <message>" and the lines of `end`, in one write.
PRINTF_LIKE(3, 0)
static void write_error(const char *command, const char *end, const char *format, va_list args) {
    char message[SENTENCE_BYTES_MAX], line[SENTENCE_BYTES_MAX + 256];
    sentence_format(message, sizeof message, format, args);
    int len = snprintf(line, sizeof line, "nanovllm%s%s: %s\n%s", *command ? " " : "", command,
                       message, end);
    write_whole(STDERR_FILENO, line, (size_t)len < sizeof line ? (size_t)len : sizeof line - 1);
}

int cli_usage_error(const struct options *options, const char *format, ...) {
    char hint[128];
    snprintf(hint, sizeof hint, "Try 'nanovllm %s --help'.\n", options->command);
    va_list args;
    va_start(args, format);
    write_error(options->command, hint, format, args);
    va_end(args);
    return CLI_USAGE;
}

int cli_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_error("", "", format, args);
    va_end(args);
    return CLI_FAILED;
}

void cli_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_error("", "", format, args);
    va_end(args);
}

void cli_note(const char *format, ...) {
    if (!isatty(STDERR_FILENO)) return;
    va_list args;
    va_start(args, format);
    write_error("", "", format, args);
    va_end(args);
}

int cli_print(const char *text, size_t len) {
    if (write_whole(STDOUT_FILENO, text, len)) return CLI_OK;
    if (errno == EPIPE) return CLI_FAILED; // the reader closed the pipe and needs no message
    return cli_error("cannot write standard output: %s", strerror(errno));
}

int cli_print_whole(void (*print)(FILE *out, const void *user_data), const void *user_data) {
    char *text = NULL;
    size_t len = 0;
    FILE *whole = open_memstream(&text, &len);
    if (!whole) return cli_error("out of memory: help");
    print(whole, user_data);
    int exit_code = fclose(whole) ? cli_error("out of memory: help") : cli_print(text, len);
    free(text);
    return exit_code;
}

static void print_options(FILE *out, const void *options) {
    options_print(options, out);
}

bool cli_parse(struct options *options, int argc, char **argv, int *exit_code) {
    struct err err = {0};
    enum status status = options_parse(options, argc, argv, &err);
    if (status == ERR_NOMEM) {
        *exit_code = cli_error("%s", err.message);
        return false;
    }
    if (status) {
        *exit_code = cli_usage_error(options, "%s", err.message);
        return false;
    }
    if (!options->help) return true;
    *exit_code = cli_print_whole(print_options, options);
    return false;
}

// ---- --trace ----

enum status trace_open(struct trace *trace, const char *model, struct err *err) {
    if (!trace->path) return OK;
    enum status status = file_uses_spare_model(trace->path, model, err);
    if (status) return status;
    struct nvllm_error error = {0};
    return cli_status(nvllm_trace_file_open(&trace->file, trace->path, &error), &error, err);
}

enum status trace_begin(struct trace *trace, struct nvllm_engine *engine, struct err *err) {
    if (!trace->file) return OK;
    struct nvllm_error error = {0};
    return cli_status(nvllm_engine_observe(engine, nvllm_trace_file_step, trace->file, &error),
                      &error, err);
}

enum status trace_close(struct trace *trace, struct nvllm_engine *engine, struct err *err) {
    if (!engine) trace_abandon(trace);
    if (!trace->file) return OK;
    struct nvllm_trace_file *file = trace->file;
    struct nvllm_error error = {0};
    trace->file = NULL;
    nvllm_engine_observe(engine, NULL, NULL, NULL);
    return cli_status(nvllm_trace_file_close(file, &error), &error, err);
}

void trace_abandon(struct trace *trace) {
    nvllm_trace_file_abandon(trace->file);
    trace->file = NULL;
}

// ---- the engine's counters ----

static const struct {
    const char *name;
    size_t offset;
    bool peak; // a peak or a size: taken from `after`, not a difference
} counters[] = {
    {"num_steps", offsetof(struct nvllm_stats, num_steps), false},
    {"num_prefill_tokens", offsetof(struct nvllm_stats, num_prefill_tokens), false},
    {"num_decode_tokens", offsetof(struct nvllm_stats, num_decode_tokens), false},
    {"num_generated_tokens", offsetof(struct nvllm_stats, num_generated_tokens), false},
    {"num_cached_tokens", offsetof(struct nvllm_stats, num_cached_tokens), false},
    {"num_preemptions", offsetof(struct nvllm_stats, num_preemptions), false},
    {"num_requests_added", offsetof(struct nvllm_stats, num_requests_added), false},
    {"num_requests_finished", offsetof(struct nvllm_stats, num_requests_finished), false},
    {"num_drafts", offsetof(struct nvllm_stats, num_drafts), false},
    {"num_draft_tokens", offsetof(struct nvllm_stats, num_draft_tokens), false},
    {"num_accepted_tokens", offsetof(struct nvllm_stats, num_accepted_tokens), false},
    {"peak_rss_bytes", offsetof(struct nvllm_stats, peak_rss_bytes), true},
    {"weights_bytes", offsetof(struct nvllm_stats, weights_bytes), true},
    {"workspace_bytes", offsetof(struct nvllm_stats, workspace_bytes), true},
    {"kv_cache_bytes", offsetof(struct nvllm_stats, kv_cache_bytes), true},
};

static const struct {
    const char *name;
    size_t offset;
} phases[] = {
    {"schedule", offsetof(struct nvllm_stats, schedule_seconds)},
    {"forward", offsetof(struct nvllm_stats, forward_seconds)},
    {"sample", offsetof(struct nvllm_stats, sample_seconds)},
    {"output", offsetof(struct nvllm_stats, output_seconds)},
};

static uint64_t *counter_at(struct nvllm_stats *stats, size_t i) {
    return (uint64_t *)(void *)((char *)stats + counters[i].offset);
}

static double *phase_at(struct nvllm_stats *stats, size_t i) {
    return (double *)(void *)((char *)stats + phases[i].offset);
}

struct nvllm_stats stats_since(const struct nvllm_stats *before, const struct nvllm_stats *after) {
    struct nvllm_stats from = *before, since = *after;
    for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
        if (!counters[i].peak) *counter_at(&since, i) -= *counter_at(&from, i);
    }
    for (size_t i = 0; i < ARRAY_LEN(phases); i++) *phase_at(&since, i) -= *phase_at(&from, i);
    return since;
}

enum status stats_json_members(struct buf *out, const struct nvllm_stats *stats,
                               double total_seconds, int indent, struct err *err) {
    struct nvllm_stats copy = *stats;
    enum status status = OK;
    for (size_t i = 0; i < ARRAY_LEN(counters) && !status; i++) {
        status = buf_appendf(out, err, "%*s\"%s\": %llu,\n", indent, "", counters[i].name,
                             (unsigned long long)*counter_at(&copy, i));
    }
    if (!status) {
        status = buf_appendf(out, err,
                             "%*s\"num_kv_blocks\": %u,\n%*s\"num_kv_blocks_peak\": %u,\n"
                             "%*s\"block_size\": %u,\n%*s\"seconds\": {\"load\": %.6f, "
                             "\"warm_up\": %.6f",
                             indent, "", stats->num_kv_blocks, indent, "",
                             stats->num_kv_blocks_peak, indent, "", stats->block_size, indent, "",
                             stats->load_seconds, stats->warm_up_seconds);
    }
    for (size_t i = 0; i < ARRAY_LEN(phases) && !status; i++) {
        status = buf_appendf(out, err, ", \"%s\": %.6f", phases[i].name, *phase_at(&copy, i));
    }
    return status ? status : buf_appendf(out, err, ", \"total\": %.6f}", total_seconds);
}
