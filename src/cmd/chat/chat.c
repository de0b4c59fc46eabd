/* `nanovllm chat`: options, the model, and the source of the turns: one message of the command
 * line, lines of standard input, or a person at a terminal. Only the terminal gets a prompt, a line
 * editor and notes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os/file.h"
#include "cmd/chat/command.h"
#include "cmd/chat/editor.h"
#include "cmd/chat/signals.h"
#include "cmd/cli.h"
#include "cmd/generate/form_options.h"
#include "cmd/generate/request_line.h"
#include "cmd/model/file_uses.h"
#include "cmd/model/model_place.h"
#include "cmd/terminal/line_reader.h"
#include "cmd/terminal/progress.h"

struct chat {
    struct nvllm_engine_options engine_options;
    struct model_place place;
    struct nvllm_sampling_params sampling;
    char bundled[FILE_PATH_MAX]; // the model's folder where no model was given
    const char *system, *load, *kwargs_text; // NULL: not given
    int32_t thinking; // -1: not given
    int32_t hide_thinking, history, color;
    json_t *kwargs; // template variables that the flags set
    struct nvllm_engine *engine;
    struct chat_output output;
    struct chat_session session;
    struct chat_command_context commands;
    struct chat_entry entry;
    struct trace trace;
    bool failed; // a turn or command failed; the error is printed already
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"prompt", NVLLM_PARAM_STRINGS, 0, 0, 0, NULL, "the MESSAGE"},
        {"system", NVLLM_PARAM_STRING, offsetof(struct chat, system), 0, 0, NULL,
         "the system prompt; replaces that of a loaded conversation"},
        {"load", NVLLM_PARAM_STRING, offsetof(struct chat, load), 0, 0, NULL,
         "continues a conversation that /save wrote, or a JSON list of messages"},
        {"chat_template_kwargs", NVLLM_PARAM_STRING, offsetof(struct chat, kwargs_text), 0, 0, NULL,
         "a JSON object of further variables for the chat template"},
        {"thinking", NVLLM_PARAM_BOOL, offsetof(struct chat, thinking), 0, 1, NULL,
         "short for the template variable enable_thinking; default: the template's"},
        {"hide_thinking", NVLLM_PARAM_BOOL, offsetof(struct chat, hide_thinking), 0, 1, NULL,
         "hides the thinking, which the model generates all the same"},
        {"history", NVLLM_PARAM_BOOL, offsetof(struct chat, history), 0, 1, NULL,
         "keeps a history of the lines entered at the prompt; default on"},
        {"color", NVLLM_PARAM_BOOL, offsetof(struct chat, color), 0, 1, NULL,
         "dims thinking on a terminal; default on, unless NO_COLOR is set"},
        {"trace", NVLLM_PARAM_STRING, offsetof(struct chat, trace.path), 0, 0, NULL, TRACE_HELP},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

// False for parameters of parallel requests and of results that a chat does not print.
static bool is_of_chat(const char *name) {
    static const char *const others[] = {"echo", "logprobs", "n", "priority", "prompt_logprobs"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (strcmp(name, others[i]) == 0) return false;
    }
    return true;
}

// The library's rows that apply to a chat. max_tokens has a default of its own.
static const struct nvllm_param *sampling_option(size_t index) {
    static const struct nvllm_param max_tokens = {
        "max_tokens",
        NVLLM_PARAM_INT,
        offsetof(struct nvllm_sampling_params, max_tokens),
        1,
        INT32_MAX,
        NULL,
        "largest number of tokens in an answer; default: all that the context leaves"};
    const struct nvllm_param *row;
    for (size_t i = 0; (row = nvllm_sampling_param(i)); i++) {
        if (is_of_chat(row->name) && index-- == 0) break;
    }
    return row && strcmp(row->name, "max_tokens") == 0 ? &max_tokens : row;
}

static const char details[] =
    "Talks with a model through its chat template. With MESSAGE it answers that and\n"
    "ends; MESSAGE - takes standard input as one message. Without MESSAGE each line\n"
    "is a message. A terminal gets a prompt. Otherwise the lines of standard input\n"
    "are answered one after another, and standard output gets only the answers,\n"
    "each ended by a newline.\n"
    "\n"
    "The model's thinking is part of the answer. On a terminal it is dimmed.\n"
    "--no-thinking asks the model not to think. --hide-thinking prints only the rest\n"
    "of the answer.\n";

static const char epilogue[] =
    "At the prompt and in piped lines:\n"
    "  /help             the commands: /system, /schema, /clear, /regen, /save, /load,\n"
    "                    /stats, /quit\n"
    "  \\                 at the end of a line: the message continues in the next one\n"
    "  \"\"\"               before and after lines that are one message\n"
    "  //                at the start: a message that begins with one slash\n"
    "At the prompt, exit and quit end the chat as /quit does.\n"
    "\n"
    "Ctrl-C stops an answer and keeps the part that was generated. At the prompt it\n"
    "clears the line; twice on an empty line it ends the chat, as Ctrl-D does.\n"
    "\n"
    "Without --max-model-len the context is as long as the model and the default size\n"
    "of the KV cache allow. A message that does not fit is refused and not kept.\n"
    "\n"
    "Lines entered at the prompt are kept in nanovllm/chat_history below\n"
    "$XDG_STATE_HOME (~/.local/state), 1000 at most.\n"
    "\n"
    "Exit status: 0 done; 1 the run failed or was interrupted, or, without a prompt,\n"
    "a message or command failed; 2 the command line is wrong.\n";

// Prints the error of a turn, if there is one. Returns whether the chat can continue.
static bool told(struct chat *chat, enum status status, const struct err *err) {
    if (!status) return true;
    chat->failed = true;
    cli_error("%s", err->message);
    return !chat->session.broken && !chat->output.file.failed;
}

// ---- turns ----

// Runs the entered command or message. False: the chat ends.
static bool run_entry(struct chat *chat) {
    struct err err = {0};
    enum status status;
    size_t len;
    const char *text = chat_entry_message(&chat->entry, &len);
    if (chat_entry_is_command(&chat->entry)) {
        status = chat_command_run(&chat->commands, text, len, &err);
    } else {
        if (strspn(text, " \t\r\n") == len) return true; // a blank line
        status = chat_session_send(&chat->session, text, len, &err);
    }
    return told(chat, status, &err) && !chat->commands.quit;
}

// Adds a line, and runs the entry when it is complete. False: the chat ends.
static bool take_line(struct chat *chat, const char *line, size_t len) {
    struct err err = {0};
    enum status status = chat_entry_add(&chat->entry, line, len, &err);
    bool goes_on = true;
    if (status) {
        goes_on = told(chat, status, &err);
    } else if (!chat->entry.open) {
        goes_on = run_entry(chat);
    } else {
        return true;
    }
    chat_entry_clear(&chat->entry);
    return goes_on;
}

static int end_code(const struct chat *chat) {
    return chat->failed ? CLI_FAILED : CLI_OK;
}

static bool must_stop(void) {
    return chat_signals_interrupted() || chat_signals_ended();
}

static int run_lines(struct chat *chat) {
    struct line_reader reader;
    line_reader_init(&reader, STDIN_FILENO, "standard input", CHAT_ENTRY_BYTES_MAX);
    bool goes_on = true;
    while (goes_on && !must_stop()) {
        enum line_state state = LINE_END;
        struct err err = {0};
        enum status status = line_reader_next(&reader, true, &state, &err);
        if (status) {
            told(chat, status, &err);
            break;
        }
        if (state == LINE_END) break;
        if (state == LINE_TOO_LONG) {
            status = err_set(&err, ERR_INVALID, "line %llu is longer than %d MiB",
                             (unsigned long long)reader.line_number, CHAT_ENTRY_BYTES_MAX >> 20);
            goes_on = told(chat, status, &err);
        } else if (state == LINE_READY) {
            size_t len = reader.len;
            if (len && reader.text[len - 1] == '\r') len--;
            goes_on = take_line(chat, reader.text, len);
        }
    }
    line_reader_fini(&reader);
    if (must_stop()) return cli_error("interrupted");
    if (goes_on && chat->entry.open && chat->entry.block) {
        return cli_error("standard input ends inside a message that began with \"\"\"");
    }
    if (goes_on && chat->entry.open) run_entry(chat); // a last line that ends in a backslash
    return end_code(chat);
}

static int run_one(struct chat *chat, const char *text, size_t len) {
    struct err err = {0};
    struct buf message = {0};
    enum status status = chat_entry_append_utf8(&message, text, len, &err);
    if (!status) status = chat_session_send(&chat->session, message.data, message.len, &err);
    buf_fini(&message);
    told(chat, status, &err);
    if (must_stop()) return cli_error("interrupted");
    return end_code(chat);
}

static int run_stdin(struct chat *chat) {
    struct buf text = {0};
    struct err err = {0};
    enum status status = OK;
    ssize_t n = 1;
    while (!status && n > 0 && !must_stop()) {
        status = buf_reserve(&text, 1 << 16, &err);
        if (status) break;
        n = read(STDIN_FILENO, text.data + text.len, 1 << 16);
        if (n > 0) text.len += (size_t)n;
        if (n < 0) status = err_set(&err, ERR_IO, "cannot read standard input");
        if (text.len > CHAT_ENTRY_BYTES_MAX) {
            status = err_set(&err, ERR_INVALID, "standard input is longer than %d MiB",
                             CHAT_ENTRY_BYTES_MAX >> 20);
        }
    }
    int code = status ? cli_error("%s", err.message) : run_one(chat, text.data, text.len);
    buf_fini(&text);
    return code;
}

// ---- at a terminal ----

struct prompt {
    struct chat *chat;
    struct chat_editor *editor;
    bool asked; // Ctrl-C on an empty line: the next one ends the chat
};

static void remember(struct prompt *prompt) {
    struct err err = {0};
    const struct buf *text = &prompt->chat->entry.text;
    enum status status = chat_editor_remember(prompt->editor, text->data, text->len, &err);
    if (status) cli_error("%s", err.message);
}

static bool take_interrupt(struct prompt *prompt, bool empty) {
    struct chat *chat = prompt->chat;
    bool nothing = empty && !chat->entry.open;
    chat_entry_clear(&chat->entry);
    if (nothing && prompt->asked) return false;
    prompt->asked = nothing;
    if (!nothing) return true;
    struct err err = {0};
    return told(chat, chat_output_note(&chat->output, &err, "(Ctrl-C again or Ctrl-D ends)"), &err);
}

// At a prompt nobody means these for the model.
static bool is_goodbye(const char *line, size_t len) {
    while (len && line[len - 1] == ' ') len--;
    return len == 4 && (memcmp(line, "exit", 4) == 0 || memcmp(line, "quit", 4) == 0);
}

// Takes one line. False: the chat ends.
static bool take_turn(struct prompt *prompt) {
    struct chat *chat = prompt->chat;
    struct chat_editor_line line;
    struct err err = {0};
    enum status status =
        chat_editor_read(prompt->editor, chat->entry.open ? ". " : "> ", &line, &err);
    if (status) return told(chat, status, &err);
    if (line.state == CHAT_EDITOR_END) return false;
    if (line.state == CHAT_EDITOR_INTERRUPTED) return take_interrupt(prompt, line.empty);
    prompt->asked = false;
    if (!chat->entry.open && is_goodbye(line.text, line.len)) return false;
    status = chat_entry_add(&chat->entry, line.text, line.len, &err);
    if (status) {
        chat_entry_clear(&chat->entry);
        return told(chat, status, &err);
    }
    if (chat->entry.open) return true;
    bool goes_on = true;
    if (chat->entry.text.len) {
        remember(prompt);
        goes_on = run_entry(chat);
    }
    chat_entry_clear(&chat->entry);
    return goes_on;
}

static int run_prompt(struct chat *chat) {
    char path[FILE_PATH_MAX] = "";
    struct prompt prompt = {.chat = chat};
    struct err err = {0};
    enum status status = OK;
    if (chat->history) {
        status =
            chat_history_path(path, sizeof path, getenv("XDG_STATE_HOME"), getenv("HOME"), &err);
    }
    if (!status) status = chat_editor_create(&prompt.editor, path, terminal_has_escapes(), &err);
    // Without a usable history the chat goes on.
    if (status == ERR_IO || status == ERR_INVALID) {
        cli_error("%s; this chat has no history", err.message);
        status = chat_editor_create(&prompt.editor, "", terminal_has_escapes(), &err);
    }
    if (!status) {
        status =
            chat_output_note(&chat->output, &err,
                             "%s, %u tokens of context. /help lists the commands, Ctrl-D "
                             "ends.",
                             loading_model_name(chat->place.name), chat->session.max_model_len);
    }
    if (status) {
        chat_editor_destroy(prompt.editor);
        return cli_error("%s", err.message);
    }
    while (!chat_signals_ended() && take_turn(&prompt)) continue;
    chat_editor_destroy(prompt.editor);
    if (chat_signals_ended()) return cli_error("interrupted");
    // The user saw earlier errors; only the one that ended the chat sets the exit code.
    return chat->session.broken || chat->output.file.failed ? CLI_FAILED : CLI_OK;
}

// ---- before the first turn ----

static enum status set_kwargs(struct chat *chat, struct err *err) {
    if (chat->kwargs_text) {
        struct request_chat_defaults defaults = {0};
        enum status status = request_chat_set_kwargs(&defaults, chat->kwargs_text, err);
        chat->kwargs = defaults.template_kwargs;
        if (status) return status;
    }
    if (chat->thinking < 0) return OK;
    if (!chat->kwargs) chat->kwargs = json_object();
    if (json_object_set_new(chat->kwargs, "enable_thinking", json_boolean(chat->thinking)) != 0) {
        return err_nomem(err, "template variables");
    }
    return OK;
}

static enum status begin_messages(struct chat *chat, struct err *err) {
    struct chat_messages *messages = &chat->session.messages;
    enum status status = chat->load ? chat_messages_load(messages, chat->load, err)
                                    : chat_messages_init(messages, err);
    if (!status) status = chat_messages_set_kwargs(messages, chat->kwargs, err);
    if (status || !chat->system) return status;
    struct buf text = {0};
    status = chat_entry_append_utf8(&text, chat->system, strlen(chat->system), err);
    if (!status) status = chat_messages_set_system(messages, text.data, text.len, err);
    buf_fini(&text);
    return status;
}

// Chooses the context if no flag does: the model's maximum, or as much of it as the default KV
// cache holds. If that cannot be found out, the engine's default stays.
static void choose_context(struct nvllm_engine_options *options) {
    if (options->max_model_len) return;
    json_t *info = NULL;
    if (model_info_open(&info, options, NULL)) return;
    json_int_t length = model_info_int(json_object_get(info, "plan"), "longest_model_len");
    bool longer = length > model_info_int(info, "max_model_len");
    json_decref(info);
    if (!longer) return;
    options->max_model_len = (int32_t)length;
    info = NULL;
    if (model_info_open(&info, options, NULL)) options->max_model_len = 0;
    json_decref(info);
}

static enum status load_engine(struct chat *chat, struct err *err) {
    choose_context(&chat->engine_options);
    struct nvllm_error error = {0};
    enum status status =
        cli_engine_create(&chat->engine, &chat->engine_options, chat->place.name, err);
    // Reports a missing chat template before the first message.
    if (!status && !nvllm_engine_chat_template(chat->engine, &error)) {
        status = cli_status(error.status, &error, err);
    }
    if (status) return status;
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(chat->engine, &stats);
    chat->session.max_model_len = stats.max_model_len;
    return OK;
}

static bool wants_color(const struct chat *chat) {
    const char *no_color = getenv("NO_COLOR");
    return chat->output.terminal && chat->color && terminal_has_escapes() &&
           !(no_color && *no_color);
}

static enum status open_trace(struct chat *chat, struct err *err) {
    const struct file_use uses[] = {
        {"--load", chat->load, false},
        {"--chat-template", chat->engine_options.chat_template, false},
        {"--trace", chat->trace.path, true},
    };
    enum status status = file_uses_check(uses, ARRAY_LEN(uses), err);
    return status ? status : trace_open(&chat->trace, chat->engine_options.model, err);
}

static enum status start(struct chat *chat, bool at_prompt, struct err *err) {
    enum status status = begin_messages(chat, err);
    if (!status) status = chat_output_init(&chat->output, err);
    if (!status) status = model_place_find(&chat->place, &chat->engine_options, false, err);
    if (!status) status = open_trace(chat, err);
    if (status) return status;
    status = load_engine(chat, err);
    if (status) return status;
    chat->output.talks = at_prompt;
    chat->output.color = wants_color(chat);
    chat->output.hide_thinking = chat->hide_thinking != 0;
    chat->session.engine = chat->engine;
    chat->session.sampling = &chat->sampling;
    chat->session.output = &chat->output;
    chat_session_start(&chat->session);
    chat->commands =
        (struct chat_command_context){.session = &chat->session,
                                      .model = chat->engine_options.model,
                                      .chat_template = chat->engine_options.chat_template,
                                      .sampling = &chat->sampling,
                                      .seed = chat->engine_options.seed,
                                      .kwargs = chat->kwargs};
    status = trace_begin(&chat->trace, chat->engine, err);
    return status ? status : chat_signals_install(at_prompt, err);
}

// Runs the turns of the chosen source.
static int talk(struct chat *chat, const char *message, bool at_prompt) {
    if (message && strcmp(message, "-") == 0) return run_stdin(chat);
    if (message) return run_one(chat, message, strlen(message));
    return at_prompt ? run_prompt(chat) : run_lines(chat);
}

static int chat_run(struct chat *chat, const struct options *options) {
    if (!chat->engine_options.model) {
        if (!model_place_tiny(chat->bundled)) {
            return cli_usage_error(options, "no model given: use -m MODEL");
        }
        chat->engine_options.model = chat->bundled;
        fprintf(stderr, "no -m: this is the bundled model of 7 million parameters, %s\n",
                chat->bundled);
    }
    if (options->num_args > 1) {
        return cli_usage_error(options, "%zu messages were given, want one: put it in quotes",
                               options->num_args);
    }
    const char *message = options->num_args ? options->args[0] : NULL;
    bool at_prompt = !message && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct err err = {0};
    enum status status = set_kwargs(chat, &err);
    if (status && status != ERR_NOMEM) {
        return cli_usage_error(options, "--chat-template-kwargs: %s", err.message);
    }
    if (!status) status = start(chat, at_prompt, &err);
    if (status) return cli_error("%s", err.message);
    int exit_code = talk(chat, message, at_prompt);
    status = trace_close(&chat->trace, chat->engine, &err);
    return status ? cli_error("%s", err.message) : exit_code;
}

int cmd_chat(int argc, char **argv) {
    struct chat chat = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT,
                        .sampling = NVLLM_SAMPLING_PARAMS_INIT,
                        .thinking = -1,
                        .history = 1,
                        .color = 1,
                        .output.file.fd = -1};
    chat.engine_options.max_num_seqs = 1; // one conversation
    chat.sampling.max_tokens = INT32_MAX; // max_model_len is the bound
    struct option_group sampling = cli_sampling_group(&chat.sampling);
    sampling.row = sampling_option;
    struct option_group engine = cli_drawn_engine_group(&chat.engine_options);
    engine.hidden = "max_num_seqs";
    const struct option_group groups[] = {{.title = "Chat", .row = own_option, .target = &chat},
                                          sampling,
                                          form_options(&chat.sampling),
                                          engine};
    struct options options = {.command = "chat",
                              .synopsis = "-m MODEL [options] [MESSAGE]",
                              .details = details,
                              .epilogue = epilogue,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (cli_parse(&options, argc, argv, &exit_code)) exit_code = chat_run(&chat, &options);
    nvllm_engine_destroy(chat.engine);
    trace_abandon(&chat.trace);
    chat_session_fini(&chat.session);
    chat_output_fini(&chat.output);
    chat_entry_fini(&chat.entry);
    json_decref(chat.kwargs);
    nvllm_sampling_params_fini(&chat.sampling);
    return exit_code;
}

int cmd_run(int argc, char **argv) {
    if (argc == 0 || argv[0][0] == '-') return cmd_chat(argc, argv);
    char **longer = calloc((size_t)argc + 2, sizeof *longer); // ends with NULL, as argv does
    if (!longer) return cli_error("out of memory: arguments");
    static char flag[] = "-m";
    longer[0] = flag;
    memcpy(longer + 1, argv, (size_t)argc * sizeof *longer);
    int exit_code = cmd_chat(argc + 1, longer);
    free(longer);
    return exit_code;
}
