/* `nanovllm embed`: the options, files and engine for a run of generate's loop that asks for the
 * vector of each text. */
#include <string.h>
#include <unistd.h>

#include "base/os/output_file.h"
#include "cmd/cli.h"
#include "cmd/generate/generate_run.h"
#include "cmd/model/file_uses.h"
#include "cmd/model/model_place.h"
#include "cmd/terminal/interrupt.h"

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

// Says what a run that came to its end did not do.
static int report(const struct generate_run *run) {
    if (run->interrupted) {
        return cli_error("interrupted: %llu finished, %llu aborted",
                         (unsigned long long)run->num_finished,
                         (unsigned long long)run->num_aborted);
    }
    if (!run->num_refused) return CLI_OK;
    if (run->num_requests == 1) return cli_error("%s", run->last_refusal);
    return cli_error("%llu of %llu texts were refused, the last one because: %s",
                     (unsigned long long)run->num_refused, (unsigned long long)run->num_requests,
                     run->last_refusal);
}

static int run_texts(struct embed *embed) {
    struct generate_run run = {
        .engine = embed->engine,
        .source = &embed->source,
        .output = &embed->vectors,
        .progress = &embed->progress,
        .format = GENERATE_VECTORS,
        .pooling = &embed->pooling,
        .is_base64 = embed->encoding && strcmp(embed->encoding, "base64") == 0,
        // Enough that a request always waits for the next free place in the engine.
        .unfinished_max = 2 * (size_t)embed->engine_options.max_num_seqs,
    };
    struct err err = {0}, close_err = {0};
    progress_init(&embed->progress, "Embedding", true, embed->source.total);
    interrupt_install();
    enum status status = generate_run_execute(&run, &err);
    enum status closed = output_file_close(&embed->vectors, &close_err);
    if (!status && (status = closed)) err = close_err;
    return status ? cli_error("%s", err.message) : report(&run);
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
    return run_texts(embed);
}

int cmd_embed(int argc, char **argv) {
    struct embed embed = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT,
                          .pooling = NVLLM_POOLING_INIT,
                          .sampling = NVLLM_SAMPLING_PARAMS_INIT,
                          .source.fd = -1,
                          .vectors.fd = -1};
    embed.defaults.sampling = &embed.sampling;
    const struct option_group groups[] = {
        {.title = "Input and output", .row = own_option, .target = &embed},
        {.title = "Vectors", .row = pooling_option, .target = &embed},
        cli_engine_group(&embed.engine_options),
    };
    struct options options = {.command = "embed",
                              .synopsis = "-m MODEL [options] [TEXT...]",
                              .details = details,
                              .epilogue = epilogue,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (cli_parse(&options, argc, argv, &exit_code)) exit_code = embed_texts(&embed, &options);
    nvllm_engine_destroy(embed.engine);
    prompt_source_close(&embed.source);
    output_file_abandon(&embed.vectors);
    nvllm_sampling_params_fini(&embed.sampling);
    return exit_code;
}
