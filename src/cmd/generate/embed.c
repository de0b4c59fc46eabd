/* `nanovllm embed`: a vector for each text. Texts go to the engine in batches of bounded size,
 * which the engine runs together. A batch takes the lines that are there: where another program
 * writes one line and waits for its vector, the batch is that line. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json/json_out.h"
#include "base/os/clock.h"
#include "base/os/output_file.h"
#include "cmd/cli.h"
#include "cmd/generate/prompt_source.h"
#include "cmd/model/file_uses.h"
#include "cmd/model/model_place.h"
#include "cmd/terminal/interrupt.h"

enum { BATCH_LINES_MAX = 1024, BATCH_BYTES_MAX = 16 << 20 };

struct embed {
    struct nvllm_engine_options engine_options;
    struct nvllm_pooling pooling;
    const char *kind, *encoding; // values of --pooling and --encoding-format
    struct model_place place;
    const char *input, *output; // paths; NULL: not given
    struct nvllm_sampling_params sampling; // all defaults; a line may set its priority
    struct request_defaults defaults;
    struct prompt_source source;
    struct output_file vectors;
    struct progress progress;
    struct nvllm_engine *engine;
    // The batch: a line that was refused while it was read has a sentence and no request.
    struct request_line lines[BATCH_LINES_MAX];
    char *refusals[BATCH_LINES_MAX];
    struct nvllm_request requests[BATCH_LINES_MAX];
    size_t num_lines;
    bool source_ended;
    uint64_t num_done, num_refused, num_aborted;
    char last_refusal[512]; // the sentence
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"input", NVLLM_PARAM_STRING, offsetof(struct embed, input), 0, 0, NULL,
         "read texts from a JSONL file, one object per line; - is standard input"},
        {"output", NVLLM_PARAM_STRING, offsetof(struct embed, output), 0, 0, NULL,
         "write the vectors to a JSONL file; default -, standard output"},
        {"encoding_format", NVLLM_PARAM_STRING, offsetof(struct embed, encoding), 0, 0,
         "float|base64",
         "a vector is a list of numbers, or the base64 of its float32 bytes; default float"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const struct nvllm_param *pooling_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"pooling", NVLLM_PARAM_STRING, offsetof(struct embed, kind), 0, 0, "model|last|mean",
         "the last token's hidden states, or the mean over all tokens; default model: as the "
         "model's files say"},
        {"normalize", NVLLM_PARAM_BOOL, offsetof(struct embed, pooling.normalize), 0, 1, NULL,
         "scale each vector to length 1; default as the model's files say"},
        {"dimensions", NVLLM_PARAM_INT, offsetof(struct embed, pooling.dimensions), 1, INT32_MAX,
         NULL, "keep the first N numbers only, for models trained for it; default all"},
        {"prompt_name", NVLLM_PARAM_STRING, offsetof(struct embed, pooling.prompt_name), 0, 0, NULL,
         "put a text of the model before each text, by its name in "
         "config_sentence_transformers.json, such as query; default none"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const char details[] =
    "Turns each TEXT into a vector. Without texts and --input, or with the one text -,\n"
    "standard input is the text, whole and exactly as it is.\n";

static const char epilogue[] =
    "Input lines: {\"prompt\": \"text\"} or {\"prompt_token_ids\": [1, 2]}, and if wanted\n"
    "cache_salt and priority. Blank lines are skipped. A line that cannot be used gets a\n"
    "line with the reason in \"error\"; the others run.\n"
    "\n"
    "Output lines, in input order: index (of the text, from 0), embedding,\n"
    "num_prompt_tokens, num_cached_tokens, and error if there is one.\n"
    "\n"
    "Exit status: 0 all texts have vectors; 1 the run failed or was interrupted, or a text\n"
    "was refused; 2 the command line is wrong.\n";

// ---- a batch ----

// Refuses members of a line that have no effect on a vector.
static enum status check_members(const struct request_line *line, struct err *err) {
    static const char *const known[] = {"prompt", "prompt_token_ids", "cache_salt", "priority"};
    const char *key;
    json_t *value;
    json_object_foreach(line->root, key, value) {
        bool is_known = json_is_null(value);
        for (size_t i = 0; i < ARRAY_LEN(known) && !is_known; i++) {
            is_known = strcmp(key, known[i]) == 0;
        }
        if (is_known) continue;
        return err_set(err, ERR_INVALID, "line %llu: \"%s\" is not for vectors",
                       (unsigned long long)line->line_number, key);
    }
    return OK;
}

static enum status refuse(struct embed *embed, size_t i, const char *reason, struct err *err) {
    embed->refusals[i] = strdup(reason);
    return embed->refusals[i] ? OK : err_nomem(err, "text");
}

// Takes the lines that are there. Waits for the first only.
static enum status fill_batch(struct embed *embed, struct err *err) {
    size_t bytes = 0;
    while (embed->num_lines < BATCH_LINES_MAX && bytes < BATCH_BYTES_MAX) {
        if (interrupt_requested()) return OK;
        size_t i = embed->num_lines;
        struct request_line *line = &embed->lines[i];
        enum source_state state = SOURCE_END;
        struct err reason = {0};
        *line = (struct request_line){0};
        enum status status = prompt_source_next(&embed->source, i == 0, &state, line, &reason);
        if (status) return err_set(err, status, "%s", reason.message);
        embed->source_ended = state == SOURCE_END;
        if (state == SOURCE_END || (state == SOURCE_WAIT && i)) return OK;
        if (state == SOURCE_WAIT) continue;
        embed->num_lines++;
        if (state == SOURCE_REQUEST && check_members(line, &reason)) state = SOURCE_REFUSED;
        bytes += line->prompt_len + line->num_prompt_token_ids * sizeof(int32_t);
        if (state == SOURCE_REFUSED) status = refuse(embed, i, reason.message, err);
        if (status) return status;
    }
    return OK;
}

static struct nvllm_request make_request(struct embed *embed, const struct request_line *line) {
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.prompt = line->prompt;
    request.prompt_len = line->prompt_len;
    request.prompt_token_ids = line->prompt_token_ids;
    request.num_prompt_token_ids = line->num_prompt_token_ids;
    request.sampling = &line->sampling;
    request.cache_salt = line->cache_salt;
    request.pooling = &embed->pooling;
    return request;
}

static void write_vector(struct embed *embed, struct json_out *out, const float *vector,
                         size_t num_dimensions) {
    if (embed->encoding && strcmp(embed->encoding, "base64") == 0) {
        json_out_base64(out, vector, num_dimensions * sizeof *vector);
    } else {
        json_out_floats(out, vector, num_dimensions);
    }
}

// `result` NULL: the line was refused before.
static void write_line(struct embed *embed, struct json_out *out, size_t i,
                       const struct nvllm_result *result) {
    const char *error = embed->refusals[i];
    json_out_rawf(out, "{\"index\":%llu", (unsigned long long)embed->num_done++);
    if (result && result->embedding) {
        json_out_raw(out, ",\"embedding\":");
        write_vector(embed, out, result->embedding, result->num_dimensions);
        json_out_rawf(out, ",\"num_prompt_tokens\":%zu,\"num_cached_tokens\":%u}\n",
                      result->num_prompt_tokens, result->num_cached_tokens);
        return;
    }
    struct err reason = {0};
    bool is_aborted = result && result->finish_reason == NVLLM_FINISH_ABORT;
    unsigned long long line_number = embed->lines[i].line_number;
    if (is_aborted) {
        error = "interrupted";
    } else if (!error && line_number) {
        err_set(&reason, ERR_INVALID, "line %llu: %s", line_number, result->error.message);
        error = reason.message;
    } else if (!error) {
        error = result->error.message;
    }
    if (is_aborted) {
        embed->num_aborted++;
    } else {
        embed->num_refused++;
        snprintf(embed->last_refusal, sizeof embed->last_refusal, "%s", error);
    }
    json_out_raw(out, ",\"embedding\":null,\"error\":");
    json_out_cstring(out, error);
    json_out_raw(out, "}\n");
}

static enum status write_batch(struct embed *embed, const struct nvllm_result *results,
                               struct err *err) {
    struct json_out out = {0};
    enum status status = OK;
    for (size_t i = 0, used = 0; i < embed->num_lines && !status; i++) {
        json_out_clear(&out);
        write_line(embed, &out, i, embed->refusals[i] ? NULL : &results[used++]);
        status = out.status ? err_nomem(err, "result")
                            : output_file_write(&embed->vectors, out.buf.data, out.buf.len, err);
    }
    json_out_fini(&out);
    return status;
}

static void clear_batch(struct embed *embed) {
    for (size_t i = 0; i < embed->num_lines; i++) {
        request_line_fini(&embed->lines[i]);
        free(embed->refusals[i]);
        embed->refusals[i] = NULL;
    }
    embed->num_lines = 0;
}

static enum status run_batch(struct embed *embed, struct err *err) {
    size_t num_requests = 0, num_tokens = 0;
    for (size_t i = 0; i < embed->num_lines; i++) {
        if (embed->refusals[i]) continue;
        embed->requests[num_requests++] = make_request(embed, &embed->lines[i]);
    }
    struct nvllm_error error = {0};
    struct nvllm_result *results = NULL;
    double start = clock_seconds();
    enum status status = OK;
    if (num_requests) {
        status = cli_status(nvllm_engine_generate(embed->engine, embed->requests, num_requests,
                                                  &results, &interrupt_question, &error),
                            &error, err);
    }
    for (size_t i = 0; i < num_requests && !status; i++) {
        num_tokens += results[i].num_prompt_tokens - results[i].num_cached_tokens;
    }
    if (!status && embed->vectors.is_stdout) progress_clear(&embed->progress);
    if (!status) status = write_batch(embed, results, err);
    progress_step(&embed->progress, embed->num_done, num_tokens, 0, clock_seconds() - start);
    nvllm_results_free(results, num_requests);
    return status;
}

// ---- the run ----

static enum status run(struct embed *embed, struct err *err) {
    enum status status = OK;
    progress_init(&embed->progress, "Embedding", true, embed->source.total);
    while (!status && !embed->source_ended && !interrupt_requested()) {
        status = fill_batch(embed, err);
        if (!status && embed->num_lines) status = run_batch(embed, err);
        clear_batch(embed);
    }
    progress_finish(&embed->progress, embed->num_done);
    struct err close_err = {0};
    enum status closed = output_file_close(&embed->vectors, &close_err);
    if (status || !closed) return status;
    return err_set(err, closed, "%s", close_err.message);
}

static int report(const struct embed *embed) {
    if (interrupt_requested()) {
        uint64_t finished = embed->num_done - embed->num_refused - embed->num_aborted;
        return cli_error("interrupted: %llu vectors written", (unsigned long long)finished);
    }
    if (!embed->num_refused) return CLI_OK;
    if (embed->num_done == 1) return cli_error("%s", embed->last_refusal);
    return cli_error("%llu of %llu texts were refused, the last one because: %s",
                     (unsigned long long)embed->num_refused, (unsigned long long)embed->num_done,
                     embed->last_refusal);
}

static enum status open_files(struct embed *embed, const struct options *options, struct err *err) {
    bool from_stdin =
        !embed->input &&
        (options->num_args == 0 || (options->num_args == 1 && strcmp(options->args[0], "-") == 0));
    const char *output = embed->output ? embed->output : "-";
    const struct file_use uses[] = {
        {from_stdin ? "the text" : "--input", from_stdin ? "-" : embed->input, false},
        {"--output", output, true},
    };
    enum status status = OK;
    if (embed->input) {
        status = prompt_source_from_file(&embed->source, embed->input, isatty(STDERR_FILENO), err);
    } else if (from_stdin) {
        status = prompt_source_from_stdin(&embed->source, err);
    } else {
        prompt_source_from_args(&embed->source, options->args, options->num_args);
    }
    embed->source.defaults = &embed->defaults;
    if (!status) status = file_uses_check(uses, ARRAY_LEN(uses), err);
    if (!status) status = file_uses_spare_model(output, embed->engine_options.model, err);
    return status ? status : output_file_open(&embed->vectors, output, err);
}

static int check_usage(struct embed *embed, const struct options *options) {
    static const char *const kinds[] = {"model", "last", "mean"}; // by enum nvllm_pooling_kind
    if (!embed->engine_options.model) {
        return cli_usage_error(options, "no model given: use -m MODEL");
    }
    if (embed->input && options->num_args) {
        return cli_usage_error(options, "texts come from the command line or from --input, not "
                                        "both");
    }
    if (!embed->input && !options->num_args && isatty(STDIN_FILENO)) {
        return cli_usage_error(options, "no text given");
    }
    for (size_t i = 0; embed->kind && i < ARRAY_LEN(kinds); i++) {
        if (strcmp(embed->kind, kinds[i]) == 0) embed->pooling.kind = (enum nvllm_pooling_kind)i;
    }
    return CLI_OK;
}

static int embed_texts(struct embed *embed, const struct options *options) {
    int exit_code = check_usage(embed, options);
    if (exit_code) return exit_code;
    struct err err = {0};
    enum status status = model_place_find(&embed->place, &embed->engine_options, false, &err);
    if (!status) status = open_files(embed, options, &err);
    if (!status) {
        status = cli_engine_create(&embed->engine, &embed->engine_options, embed->place.name, &err);
    }
    const char *name = embed->pooling.prompt_name;
    if (!status && name && !nvllm_engine_prompt_text(embed->engine, name)) {
        status =
            err_set(&err, ERR_INVALID, "--prompt-name: the model has no prompt named %s", name);
    }
    if (status) return cli_error("%s", err.message);
    interrupt_install();
    status = run(embed, &err);
    return status ? cli_error("%s", err.message) : report(embed);
}

int cmd_embed(int argc, char **argv) {
    struct embed *embed = calloc(1, sizeof *embed);
    if (!embed) return cli_error("out of memory");
    embed->engine_options = (struct nvllm_engine_options)NVLLM_ENGINE_OPTIONS_INIT;
    embed->pooling = (struct nvllm_pooling)NVLLM_POOLING_INIT;
    embed->sampling = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
    embed->source.fd = embed->vectors.fd = -1;
    embed->defaults.sampling = &embed->sampling;
    const struct option_group groups[] = {
        {.title = "Input and output", .row = own_option, .target = embed},
        {.title = "Vectors", .row = pooling_option, .target = embed},
        cli_engine_group(&embed->engine_options),
    };
    struct options options = {.command = "embed",
                              .synopsis = "-m MODEL [options] [TEXT...]",
                              .details = details,
                              .epilogue = epilogue,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (cli_parse(&options, argc, argv, &exit_code)) exit_code = embed_texts(embed, &options);
    clear_batch(embed);
    nvllm_engine_destroy(embed->engine);
    prompt_source_close(&embed->source);
    output_file_abandon(&embed->vectors);
    nvllm_sampling_params_fini(&embed->sampling);
    free(embed);
    return exit_code;
}
