#include "cmd/chat/command.h"

#include <string.h>

#include "base/text/blank.h"
#include "base/text/suggest.h"
#include "cmd/generate/form_options.h"
#include "cmd/model/file_uses.h"
#include "text/unicode/unicode.h"

struct chat_command {
    const char *name; // with its slash
    const char *synopsis, *help;
    enum status (*run)(struct chat_command_context *context, const char *argument, size_t len,
                       struct err *err);
    bool takes_argument;
};

static const struct chat_command *command_at(size_t index);

static enum status run_help(struct chat_command_context *context, const char *argument, size_t len,
                            struct err *err) {
    (void)argument, (void)len;
    struct chat_output *output = context->session->output;
    enum status status = OK;
    const struct chat_command *command;
    for (size_t i = 0; !status && (command = command_at(i)); i++) {
        if (!command->help) continue;
        status = chat_output_print(output, err, "  %-15s %s", command->synopsis, command->help);
    }
    if (status) return status;
    return chat_output_print(
        output, err,
        "A line that ends in \\ continues in the next one; lines between \"\"\" and \"\"\" are "
        "one\n"
        "message; // at the start of a line sends a message that begins with a slash.\n"
        "Ctrl-C stops an answer, Ctrl-R searches earlier lines, Ctrl-D ends the chat.");
}

static enum status run_system(struct chat_command_context *context, const char *argument,
                              size_t len, struct err *err) {
    struct chat_messages *messages = &context->session->messages;
    struct chat_output *output = context->session->output;
    if (!len) {
        const char *text = chat_messages_system(messages);
        if (text) return chat_output_print(output, err, "%s", text);
        return chat_output_note(output, err, "There is no system prompt.");
    }
    bool removes = len == 1 && argument[0] == '-';
    enum status status = chat_messages_set_system(messages, removes ? NULL : argument, len, err);
    if (status) return status;
    return chat_output_note(output, err,
                            removes ? "The system prompt is gone from the next message on."
                                    : "The system prompt holds from the next message on.");
}

static enum status run_clear(struct chat_command_context *context, const char *argument, size_t len,
                             struct err *err) {
    (void)argument, (void)len;
    struct chat_messages *messages = &context->session->messages;
    chat_messages_clear(messages);
    return chat_output_note(context->session->output, err,
                            chat_messages_count(messages)
                                ? "A new conversation begins; the system prompt stays."
                                : "A new conversation begins.");
}

static enum status run_regen(struct chat_command_context *context, const char *argument, size_t len,
                             struct err *err) {
    (void)argument, (void)len;
    return chat_session_regenerate(context->session, err);
}

static enum status want_file(const char *command, const char *argument, size_t len,
                             struct err *err) {
    if (!len) return err_set(err, ERR_INVALID, "%s needs a file name", command);
    if (memchr(argument, '\0', len)) {
        return err_set(err, ERR_INVALID, "a file name cannot contain NUL");
    }
    return OK;
}

static enum status run_schema(struct chat_command_context *context, const char *argument,
                              size_t len, struct err *err) {
    struct nvllm_sampling_params *sampling = context->sampling;
    struct chat_output *output = context->session->output;
    if (!len) {
        if (!sampling->num_structured_outputs) {
            return chat_output_note(output, err, "Answers are free text.");
        }
        return chat_output_print(output, err, "%.*s", (int)sampling->num_structured_outputs,
                                 sampling->structured_outputs);
    }
    bool removes = len == 1 && argument[0] == '-';
    enum status status =
        removes ? form_remove(sampling, err) : want_file("/schema", argument, len, err);
    if (!status && !removes) status = form_set_schema(sampling, argument, err);
    if (status) return status;
    return chat_output_note(output, err,
                            removes ? "The next answers are free text."
                                    : "The next answers are JSON that fits the schema.");
}

static enum status save(struct chat_command_context *context, const char *path, size_t len,
                        bool replace, struct err *err) {
    enum status status = want_file(replace ? "/save!" : "/save", path, len, err);
    if (!status) status = file_uses_spare_model(path, context->model, err);
    const struct file_use uses[] = {{"the file", path, true},
                                    {"--chat-template", context->chat_template, false}};
    if (!status) status = file_uses_check(uses, ARRAY_LEN(uses), err);
    if (status) return status;
    status = chat_messages_save(&context->session->messages, path, replace, err);
    if (status == ERR_INVALID && !replace) {
        struct err why = *err;
        return err_set(err, status, "%s; /save! replaces a file", why.message);
    }
    if (status) return status;
    return chat_output_note(context->session->output, err, "%zu messages are in %s.",
                            chat_messages_count(&context->session->messages), path);
}

static enum status run_save(struct chat_command_context *context, const char *argument, size_t len,
                            struct err *err) {
    return save(context, argument, len, false, err);
}

static enum status run_save_over(struct chat_command_context *context, const char *argument,
                                 size_t len, struct err *err) {
    return save(context, argument, len, true, err);
}

static enum status run_load(struct chat_command_context *context, const char *argument, size_t len,
                            struct err *err) {
    struct chat_messages loaded = {0};
    enum status status = want_file("/load", argument, len, err);
    if (!status) status = chat_messages_load(&loaded, argument, err);
    if (!status) status = chat_messages_set_kwargs(&loaded, context->kwargs, err);
    if (status) {
        chat_messages_fini(&loaded);
        return status;
    }
    chat_messages_fini(&context->session->messages);
    context->session->messages = loaded;
    return chat_output_note(context->session->output, err, "%zu messages were loaded.",
                            chat_messages_count(&loaded));
}

static double rate(uint64_t count, double seconds) {
    return seconds > 0 ? (double)count / seconds : 0;
}

static enum status print_usage(struct chat_output *output, const char *title,
                               const struct chat_usage *usage, struct err *err) {
    return chat_output_print(output, err, "%-12s %8llu %8llu %10llu %14.0f %13.0f", title,
                             (unsigned long long)usage->num_prompt_tokens,
                             (unsigned long long)usage->num_cached_tokens,
                             (unsigned long long)usage->num_generated_tokens,
                             rate(usage->num_prefill_tokens, usage->prefill_seconds),
                             rate(usage->num_decode_tokens, usage->decode_seconds));
}

static enum status run_stats(struct chat_command_context *context, const char *argument, size_t len,
                             struct err *err) {
    (void)argument, (void)len;
    const struct chat_session *session = context->session;
    struct chat_output *output = session->output;
    uint64_t used = session->last.num_prompt_tokens + session->last.num_generated_tokens;
    char title[32];
    snprintf(title, sizeof title, "all %llu", (unsigned long long)session->total.num_answers);
    enum status status =
        chat_output_print(output, err, "%-12s %8s %8s %10s %14s %13s", "answer", "prompt", "cached",
                          "generated", "prefill tok/s", "decode tok/s");
    if (!status) status = print_usage(output, "last", &session->last, err);
    if (!status) status = print_usage(output, title, &session->total, err);
    if (status) return status;
    status = chat_output_print(output, err, "%llu of %u tokens of context are used (%.0f %%)",
                               (unsigned long long)used, session->max_model_len,
                               100.0 * (double)used / session->max_model_len);
    if (status) return status;
    return chat_output_print(output, err, "--seed %lld repeats this chat",
                             (long long)context->seed);
}

static enum status run_quit(struct chat_command_context *context, const char *argument, size_t len,
                            struct err *err) {
    (void)argument, (void)len, (void)err;
    context->quit = true;
    return OK;
}

static const struct chat_command commands[] = {
    {"/help", "/help", "this list", run_help, false},
    {"/system", "/system TEXT", "sets the system prompt; without TEXT shows it; - removes it",
     run_system, true},
    {"/schema", "/schema FILE", "answers fit this JSON schema; without FILE shows it; - removes it",
     run_schema, true},
    {"/clear", "/clear", "begins a new conversation; the system prompt stays", run_clear, false},
    {"/regen", "/regen", "answers the last message again, with a new seed", run_regen, false},
    {"/save", "/save FILE", "writes the messages as JSON; /save! replaces a file", run_save, true},
    {"/save!", "/save! FILE", NULL, run_save_over, true},
    {"/load", "/load FILE", "continues a saved conversation", run_load, true},
    {"/stats", "/stats", "tokens, speed, context used, seed", run_stats, false},
    {"/quit", "/quit", "ends the chat, as Ctrl-D does", run_quit, false},
    // Other programs' words.
    {"/exit", "/exit", NULL, run_quit, false},
    {"/bye", "/bye", NULL, run_quit, false},
    {"/?", "/?", NULL, run_help, false},
};

static const struct chat_command *command_at(size_t index) {
    return index < ARRAY_LEN(commands) ? &commands[index] : NULL;
}

const char *chat_command_name(size_t index) {
    return index < ARRAY_LEN(commands) ? commands[index].name : NULL;
}

static enum status unknown_command(const char *name, size_t len, struct err *err) {
    char shown[40];
    snprintf(shown, sizeof shown, "%.*s", (int)(len < sizeof shown ? len : sizeof shown - 1), name);
    const char *names[ARRAY_LEN(commands)];
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) names[i] = commands[i].name;
    const char *nearest = suggest_nearest(shown, names, ARRAY_LEN(commands));
    if (nearest) {
        return err_set(err, ERR_INVALID, "unknown command %s; did you mean %s?", shown, nearest);
    }
    return err_set(err, ERR_INVALID,
                   "unknown command %s; /help lists them; to send a message that begins with a "
                   "slash, type two",
                   shown);
}

enum status chat_command_run(struct chat_command_context *context, const char *text, size_t len,
                             struct err *err) {
    while (len && is_blank(text[len - 1])) len--;
    size_t name_len = 0;
    while (name_len < len && !is_blank(text[name_len])) name_len++;
    size_t start = name_len;
    while (start < len && is_blank(text[start])) start++;
    const struct chat_command *command = NULL;
    for (size_t i = 0; i < ARRAY_LEN(commands) && !command; i++) {
        bool same =
            strlen(commands[i].name) == name_len && memcmp(commands[i].name, text, name_len) == 0;
        if (same) command = &commands[i];
    }
    if (!command) return unknown_command(text, name_len, err);
    if (start < len && !command->takes_argument) {
        return err_set(err, ERR_INVALID, "%s takes no argument", command->name);
    }
    // Copied, because a path needs a NUL at its end.
    struct buf argument = {0};
    enum status status = buf_append(&argument, text + start, len - start, err);
    if (!status) status = command->run(context, argument.data, argument.len, err);
    buf_fini(&argument);
    return status;
}

// ---- entries ----

static const char quotes[] = "\"\"\"";
enum { QUOTES_LEN = sizeof quotes - 1 };

static bool begins_with_quotes(const char *text, size_t len) {
    return len >= QUOTES_LEN && memcmp(text, quotes, QUOTES_LEN) == 0;
}

static bool ends_with_quotes(const char *text, size_t len) {
    return len >= QUOTES_LEN && memcmp(text + len - QUOTES_LEN, quotes, QUOTES_LEN) == 0;
}

enum status chat_entry_append_utf8(struct buf *out, const char *text, size_t len, struct err *err) {
    struct utf8_partial partial = {0};
    enum status status = utf8_append_lossy(&partial, text, len, out, err);
    if (!status) status = utf8_append_end(&partial, out, err);
    return status ? status : buf_reserve(out, 0, err);
}

// Adds a line between the marks. The lines of the marks count only if they hold text too.
static enum status add_block_line(struct chat_entry *entry, const char *line, size_t len,
                                  bool first, struct err *err) {
    entry->open = !ends_with_quotes(line, len);
    if (!entry->open) len -= QUOTES_LEN;
    enum status status = chat_entry_append_utf8(&entry->text, line, len, err);
    bool empty_mark = first && len == 0;
    if (!status && entry->open && !empty_mark) status = buf_append(&entry->text, "\n", 1, err);
    if (status || entry->open || len) return status;
    struct buf *text = &entry->text;
    if (text->len && text->data[text->len - 1] == '\n') text->data[--text->len] = '\0';
    return OK;
}

enum status chat_entry_add(struct chat_entry *entry, const char *line, size_t len,
                           struct err *err) {
    if (len > CHAT_ENTRY_BYTES_MAX - entry->text.len) {
        return err_set(err, ERR_INVALID, "a message is longer than %d MiB",
                       CHAT_ENTRY_BYTES_MAX >> 20);
    }
    bool first = !entry->open;
    if (first && begins_with_quotes(line, len)) {
        entry->block = true;
        return add_block_line(entry, line + QUOTES_LEN, len - QUOTES_LEN, true, err);
    }
    if (entry->block) return add_block_line(entry, line, len, false, err);
    entry->open = len && line[len - 1] == '\\';
    enum status status =
        chat_entry_append_utf8(&entry->text, line, entry->open ? len - 1 : len, err);
    if (!status && entry->open) status = buf_append(&entry->text, "\n", 1, err);
    return status;
}

bool chat_entry_is_command(const struct chat_entry *entry) {
    const struct buf *text = &entry->text;
    return !entry->block && text->len && text->data[0] == '/' && text->data[1] != '/';
}

const char *chat_entry_message(const struct chat_entry *entry, size_t *len) {
    const struct buf *text = &entry->text;
    bool slashes = !entry->block && text->len >= 2 && memcmp(text->data, "//", 2) == 0;
    *len = text->len - slashes;
    return text->data ? text->data + slashes : "";
}

void chat_entry_clear(struct chat_entry *entry) {
    buf_clear(&entry->text);
    entry->open = entry->block = false;
}

void chat_entry_fini(struct chat_entry *entry) {
    buf_fini(&entry->text);
    *entry = (struct chat_entry){0};
}
