/* `nanovllm generate`: the options, files and engine for the loop in generate_run.c. Files are
 * opened before the model, so a missing file is reported before a long load. Signals are caught
 * only when there are results to finish. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "cmd/cli.h"
#include "cmd/generate/form_options.h"
#include "cmd/generate/generate_run.h"
#include "cmd/model/file_uses.h"
#include "cmd/model/model_place.h"
#include "cmd/terminal/interrupt.h"

struct generate {
    struct nvllm_engine_options engine_options;
    struct model_place place;
    struct nvllm_sampling_params sampling;
    const char *input, *output, *stats; // paths; NULL: not given
    int32_t chat; // 1: text prompts become user messages
    const char *system, *chat_template_kwargs; // NULL: not given
    struct request_defaults defaults;
    struct prompt_source source;
    struct output_file results, stats_file;
    struct trace trace;
    int32_t times;
    struct progress progress;
    struct nvllm_engine *engine;
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"prompt", NVLLM_PARAM_STRINGS, 0, 0, 0, NULL,
         "another way to give a PROMPT; may be given several times"},
        {"input", NVLLM_PARAM_STRING, offsetof(struct generate, input), 0, 0, NULL,
         "read requests from a JSONL file, one object per line; - is standard input"},
        {"output", NVLLM_PARAM_STRING, offsetof(struct generate, output), 0, 0, NULL,
         "write results to a JSONL file, one object per line in input order; - is standard output"},
        {"stats", NVLLM_PARAM_STRING, offsetof(struct generate, stats), 0, 0, NULL,
         "write the engine's counters to a JSON file at the end; - is standard output"},
        {"trace", NVLLM_PARAM_STRING, offsetof(struct generate, trace.path), 0, 0, NULL,
         TRACE_HELP},
        {"times", NVLLM_PARAM_BOOL, offsetof(struct generate, times), 0, 1, NULL,
         "add each request's times to its line of --output; default false"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const struct nvllm_param *chat_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"chat", NVLLM_PARAM_BOOL, offsetof(struct generate, chat), 0, 1, NULL,
         "make each text prompt a chat of one user message, with the chat template; default false"},
        {"system", NVLLM_PARAM_STRING, offsetof(struct generate, system), 0, 0, NULL,
         "system message for chats that do not begin with one; default none"},
        {"chat_template_kwargs", NVLLM_PARAM_STRING,
         offsetof(struct generate, chat_template_kwargs), 0, 0, NULL,
         "variables for the chat template, such as '{\"enable_thinking\": false}'; those of an "
         "input line have priority; default none"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const char details[] =
    "Completes each PROMPT. Without prompts and --input, or with the one prompt -,\n"
    "standard input is the prompt, whole and exactly as it is (printf leaves out the\n"
    "newline that echo adds). Prompts are plain text in which special tokens such as\n"
    "<|im_start|> are recognised; with --chat they are user messages, and the last\n"
    "newline of standard input is dropped.\n"
    "\n"
    "One prompt: the completion is printed as it is generated. Several prompts, or\n"
    "--n completions of one: for each prompt, in order, a line \"Prompt: ...\" and a\n"
    "line \"Completion: ...\" of each completion, all quoted as in JSON.\n";

static const char epilogue[] =
    "--stop, --bad-words and the flags of lists may be given several times. Each run\n"
    "draws a seed, which --stats writes. --seed repeats that run; a line's own \"seed\"\n"
    "fixes that request alone.\n"
    "\n"
    "Input lines: {\"prompt\": \"text\"}, {\"prompt_token_ids\": [1, 2]} or a chat,\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"text\"}]}. A chat may have tools,\n"
    "documents, chat_template_kwargs, add_generation_prompt (default true) and\n"
    "continue_final_message (continue the last message). Each line may have\n"
    "cache_salt, and any of temperature, max_tokens, stop, seed, ... as above (with _\n"
    "for -), which override the flags for this request. Blank lines are skipped. A\n"
    "line that cannot be used gets a result with finish_reason \"error\" and the reason\n"
    "in \"error\"; the others run.\n"
    "\n"
    "Output lines: index (of the request, from 0), prompt_token_ids, token_ids, text,\n"
    "finish_reason (\"stop\", \"length\", \"abort\" or \"error\"), stop_reason (the token id\n"
    "or string that stopped it, else null), num_cached_tokens, logprobs (null, or per\n"
    "generated token {\"token_id\", \"logprob\", \"top\": [[id, logprob], ...]}), and error\n"
    "if there is one. With n above 1 the list \"outputs\" has all of them, each with\n"
    "index, token_ids, text, finish_reason, stop_reason and logprobs; the members\n"
    "above are the first output's. prompt_logprobs is a list like logprobs, null for\n"
    "the first token. --times adds times: {\"first_scheduled\", \"first_token\",\n"
    "\"last_token\"} in seconds after the request's arrival. Log-probabilities are of\n"
    "the model's own distribution, before temperature, penalties and biases; with a\n"
    "form, among the tokens that it allows, and top is shorter where these are few.\n"
    "The id of a token that stopped a request is the last of token_ids. The\n"
    "prompt_token_ids of a refused request are empty.\n"
    "\n"
    "Ctrl-C stops the run: finished results are written, unfinished requests end with\n"
    "\"abort\". A second Ctrl-C ends the process at once.\n"
    "\n"
    "Exit status: 0 all requests were completed; 1 the run failed or was interrupted,\n"
    "or a request was refused; 2 the command line is wrong.\n";

// Removes the one newline that echo and editors add at the end, with or without a carriage return.
static void drop_newline(struct buf *text) {
    if (!text->len || text->data[text->len - 1] != '\n') return;
    text->len--;
    if (text->len && text->data[text->len - 1] == '\r') text->len--;
    text->data[text->len] = '\0';
}

static enum status open_source(struct generate *g, const struct options *options, struct err *err) {
    enum status status = OK;
    if (g->input) {
        status = prompt_source_from_file(&g->source, g->input, isatty(STDERR_FILENO), err);
    } else if (options->num_args == 0 ||
               (options->num_args == 1 && strcmp(options->args[0], "-") == 0)) {
        status = prompt_source_from_stdin(&g->source, err);
        if (!status && g->chat) drop_newline(&g->source.text);
    } else {
        prompt_source_from_args(&g->source, options->args, options->num_args);
    }
    g->source.defaults = &g->defaults;
    return status;
}

static enum status open_files(struct generate *g, struct err *err) {
    const struct nvllm_engine_options *options = &g->engine_options;
    const char *output = g->output ? g->output : "-";
    bool reads_stdin = !g->input && g->source.has_text;
    const struct file_use uses[] = {
        {reads_stdin ? "the prompt" : "--input", reads_stdin ? "-" : g->input, false},
        {"--chat-template", options->chat_template, false},
        {"--output", output, true},
        {"--stats", g->stats, true},
        {"--trace", g->trace.path, true},
    };
    enum status status = file_uses_check(uses, ARRAY_LEN(uses), err);
    if (!status) status = file_uses_spare_model(output, options->model, err);
    if (!status && g->stats) status = file_uses_spare_model(g->stats, options->model, err);
    if (!status) status = output_file_open(&g->results, output, err);
    if (!status && g->stats) status = output_file_open(&g->stats_file, g->stats, err);
    return status ? status : trace_open(&g->trace, options->model, err);
}

static enum status write_stats(struct generate *g, const struct generate_run *run, double seconds,
                               struct err *err) {
    if (!g->stats) return OK;
    struct nvllm_stats stats = {.struct_size = sizeof stats};
    nvllm_engine_stats(g->engine, &stats);
    struct buf out = {0};
    enum status status =
        buf_appendf(&out, err,
                    "{\n  \"seed\": %lld,\n  \"num_requests\": %llu,\n"
                    "  \"num_requests_refused\": %llu,\n",
                    (long long)g->engine_options.seed, (unsigned long long)run->num_requests,
                    (unsigned long long)run->num_refused);
    if (!status) status = stats_json_members(&out, &stats, seconds, 2, err);
    if (!status) status = buf_append_str(&out, "\n}\n", err);
    if (!status) status = output_file_write(&g->stats_file, out.data, out.len, err);
    buf_fini(&out);
    return status;
}

// Says that an output was cut: unlike a result line, text alone does not show it.
static void note_cut(const struct generate_run *run) {
    if (run->format == GENERATE_JSONL || !run->num_cut) return;
    if (run->num_requests > 1) {
        cli_note("%llu of %llu completions were cut at max_tokens%s",
                 (unsigned long long)run->num_cut, (unsigned long long)run->num_requests,
                 run->num_context_full ? " or the context's end" : "");
    } else if (run->num_context_full) {
        cli_note("cut after %llu tokens: prompt and output fill the context (--max-model-len)",
                 (unsigned long long)run->num_cut_tokens);
    } else {
        cli_note("cut after %llu tokens; --max-tokens N allows more",
                 (unsigned long long)run->num_cut_tokens);
    }
}

// Reports a run that came to its end but was interrupted or had refused requests.
static int report(const struct generate_run *run) {
    if (run->interrupted) {
        return cli_error("interrupted: %llu finished, %llu aborted",
                         (unsigned long long)run->num_finished,
                         (unsigned long long)run->num_aborted);
    }
    note_cut(run);
    if (!run->num_refused) return CLI_OK;
    if (run->num_requests == 1) return cli_error("%s", run->last_refusal);
    return cli_error("%llu of %llu requests were refused, the last one because: %s",
                     (unsigned long long)run->num_refused, (unsigned long long)run->num_requests,
                     run->last_refusal);
}

static int run_requests(struct generate *g, bool only_one) {
    struct generate_run run = {
        .engine = g->engine,
        .source = &g->source,
        .output = &g->results,
        .progress = &g->progress,
        .format = g->output  ? GENERATE_JSONL
                  : only_one ? GENERATE_STREAM
                             : GENERATE_LABELS,
        .has_times = g->times != 0,
        // Enough that a request always waits for the next free place in the engine.
        .unfinished_max = 2 * (size_t)g->engine_options.max_num_seqs,
    };
    bool stream_on_terminal = run.format == GENERATE_STREAM && isatty(STDOUT_FILENO);
    progress_init(&g->progress, "Generating", !stream_on_terminal, g->source.total);
    interrupt_install();
    double start = clock_seconds();
    struct err err = {0};
    enum status status = trace_begin(&g->trace, g->engine, &err);
    if (!status) status = generate_run_execute(&run, &err);
    if (!status) status = write_stats(g, &run, clock_seconds() - start, &err);
    struct err close_err = {0};
    enum status close_status = output_file_close(&g->results, &close_err);
    if (!status && (status = close_status)) err = close_err;
    close_status = output_file_close(&g->stats_file, &close_err);
    if (!status && (status = close_status)) err = close_err;
    close_status = trace_close(&g->trace, g->engine, &close_err);
    if (!status && (status = close_status)) err = close_err;
    return status ? cli_error("%s", err.message) : report(&run);
}

static int check_usage(const struct generate *g, const struct options *options) {
    if (!g->engine_options.model) return cli_usage_error(options, "no model given: use -m MODEL");
    if (g->input && options->num_args) {
        return cli_usage_error(options, "prompts come from the command line or from --input, not "
                                        "both");
    }
    if (!g->input && !options->num_args && isatty(STDIN_FILENO)) {
        return cli_usage_error(options, "no prompt given");
    }
    if (!g->chat && !g->input && (g->system || g->chat_template_kwargs)) {
        return cli_usage_error(options, "%s is for chats: use --chat",
                               g->system ? "--system" : "--chat-template-kwargs");
    }
    const char *unseen = g->times                            ? "--times"
                         : g->sampling.logprobs >= 0         ? "--logprobs"
                         : g->sampling.prompt_logprobs != -1 ? "--prompt-logprobs"
                                                             : NULL;
    if (!g->output && unseen) {
        return cli_usage_error(options, "%s is for --output FILE: plain text does not have it",
                               unseen);
    }
    bool shared = g->stats && g->output && strcmp(g->stats, g->output) == 0;
    if (shared) return cli_usage_error(options, "--output and --stats are the same file");
    return CLI_OK;
}

// --chat needs a template, so it is opened before the model: its faults are then reported early.
static enum status check_chat_template(const struct generate *g, struct err *err) {
    if (!g->chat) return OK;
    const struct nvllm_engine_options *options = &g->engine_options;
    struct nvllm_chat_template *chat_template = NULL;
    struct nvllm_error error = {0};
    enum status status = cli_status(
        nvllm_chat_template_open(&chat_template, options->model, options->chat_template, &error),
        &error, err);
    nvllm_chat_template_close(chat_template);
    return status;
}

static enum status set_defaults(struct generate *g, struct err *err) {
    struct request_chat_defaults *chat = &g->defaults.chat;
    chat->wrap_prompts = g->chat;
    chat->system = g->system;
    if (!g->chat_template_kwargs) return OK;
    return request_chat_set_kwargs(chat, g->chat_template_kwargs, err);
}

static int generate(struct generate *g, const struct options *options) {
    int exit_code = check_usage(g, options);
    if (exit_code) return exit_code;
    struct err err = {0};
    enum status status = set_defaults(g, &err);
    if (status == ERR_NOMEM) return cli_error("%s", err.message);
    if (status) return cli_usage_error(options, "--chat-template-kwargs: %s", err.message);
    status = model_place_find(&g->place, &g->engine_options, false, &err);
    if (!status) status = check_chat_template(g, &err);
    if (!status) status = open_source(g, options, &err);
    if (!status) status = open_files(g, &err);
    if (status) return cli_error("%s", err.message);
    status = cli_engine_create(&g->engine, &g->engine_options, g->place.name, &err);
    if (status) return cli_error("%s", err.message);
    return run_requests(g, !g->input && g->source.total == 1 && g->sampling.n == 1);
}

int cmd_generate(int argc, char **argv) {
    struct generate g = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT,
                         .sampling = NVLLM_SAMPLING_PARAMS_INIT,
                         .source.fd = -1,
                         .results.fd = -1,
                         .stats_file.fd = -1};
    g.defaults.sampling = &g.sampling;
    const struct option_group groups[] = {
        {.title = "Input and output", .row = own_option, .target = &g},
        {.title = "Chats", .row = chat_option, .target = &g},
        cli_sampling_group(&g.sampling),
        form_options(&g.sampling),
        cli_drawn_engine_group(&g.engine_options),
    };
    struct options options = {.command = "generate",
                              .synopsis = "-m MODEL [options] [PROMPT...]",
                              .details = details,
                              .epilogue = epilogue,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (cli_parse(&options, argc, argv, &exit_code)) exit_code = generate(&g, &options);
    nvllm_engine_destroy(g.engine);
    trace_abandon(&g.trace);
    prompt_source_close(&g.source);
    output_file_abandon(&g.results);
    output_file_abandon(&g.stats_file);
    nvllm_sampling_params_fini(&g.sampling);
    json_decref(g.defaults.chat.template_kwargs);
    return exit_code;
}
