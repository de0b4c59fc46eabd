#include "cmd/chat/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "cmd/chat/signals.h"
#include "cmd/cli.h"

// ---- what is printed ----

static const char dim[] = "\033[2m", plain[] = "\033[0m";

enum status chat_output_init(struct chat_output *output, struct err *err) {
    output->terminal = isatty(STDOUT_FILENO);
    return output_file_open(&output->file, "-", err);
}

void chat_output_fini(struct chat_output *output) {
    output_file_abandon(&output->file);
    buf_fini(&output->text);
}

void chat_output_begin(struct chat_output *output) {
    output->dimmed = output->past_blanks = false;
    buf_clear(&output->text);
}

static enum status set_dimmed(struct chat_output *output, bool dimmed, struct err *err) {
    if (!output->color || output->dimmed == dimmed) return OK;
    output->dimmed = dimmed;
    return buf_append_str(&output->text, dimmed ? dim : plain, err);
}

// The length in bytes of a control character at `text`; 0: none. U+0080 to U+009F count too,
// because some terminals obey them.
static size_t control_len(const unsigned char *text, size_t len) {
    if (text[0] < 0x20) return text[0] != '\n' && text[0] != '\t';
    if (text[0] == 0x7f) return 1;
    return text[0] == 0xc2 && len > 1 && text[1] < 0xa0 ? 2 : 0;
}

static enum status append_safe(struct buf *out, const char *text, size_t len, struct err *err) {
    enum status status = OK;
    size_t start = 0; // bytes [start, i) are not printed yet
    for (size_t i = 0; i < len && !status;) {
        size_t control = control_len((const unsigned char *)text + i, len - i);
        if (!control) {
            i++;
            continue;
        }
        status = buf_append(out, text + start, i - start, err);
        if (!status) status = buf_append_str(out, "\xef\xbf\xbd", err);
        start = i += control;
    }
    return status ? status : buf_append(out, text + start, len - start, err);
}

enum status chat_output_piece(void *user_data, const char *text, size_t len, enum think_part part,
                              struct err *err) {
    struct chat_output *output = user_data;
    bool thinking = part != THINK_ANSWER; // the tags belong to it
    if (output->hide_thinking && thinking) return OK;
    // Drops the blank lines between hidden thinking and the rest of the answer.
    while (output->hide_thinking && !output->past_blanks && len) {
        if (*text != '\n' && *text != ' ') {
            output->past_blanks = true;
        } else {
            text++;
            len--;
        }
    }
    if (!len) return OK;
    enum status status = set_dimmed(output, thinking, err);
    if (status) return status;
    return output->terminal ? append_safe(&output->text, text, len, err)
                            : buf_append(&output->text, text, len, err);
}

enum status chat_output_flush(struct chat_output *output, struct err *err) {
    enum status status = OK;
    if (output->text.len) {
        status = output_file_write(&output->file, output->text.data, output->text.len, err);
    }
    buf_clear(&output->text);
    return status;
}

enum status chat_output_end(struct chat_output *output, struct err *err) {
    enum status status = set_dimmed(output, false, err);
    if (!status) status = buf_append_str(&output->text, "\n", err);
    return status ? status : chat_output_flush(output, err);
}

PRINTF_LIKE(3, 0)
static enum status print(struct chat_output *output, bool note, const char *format, va_list args,
                         struct err *err) {
    char *text = NULL;
    int len = vasprintf(&text, format, args);
    if (len < 0) return err_nomem(err, "output");
    bool dimmed = note && output->color;
    enum status status = dimmed ? buf_append_str(&output->text, dim, err) : OK;
    if (!status) {
        status = output->terminal ? append_safe(&output->text, text, (size_t)len, err)
                                  : buf_append(&output->text, text, (size_t)len, err);
    }
    free(text);
    if (!status && dimmed) status = buf_append_str(&output->text, plain, err);
    if (!status) status = buf_append_str(&output->text, "\n", err);
    return status ? status : chat_output_flush(output, err);
}

enum status chat_output_print(struct chat_output *output, struct err *err, const char *format,
                              ...) {
    va_list args;
    va_start(args, format);
    enum status status = print(output, false, format, args, err);
    va_end(args);
    return status;
}

enum status chat_output_note(struct chat_output *output, struct err *err, const char *format, ...) {
    if (!output->talks) return OK;
    va_list args;
    va_start(args, format);
    enum status status = print(output, true, format, args, err);
    va_end(args);
    return status;
}

// ---- the session ----

// The token of `tag`, if it is a single token that decoding leaves out; else -1.
static int32_t silent_token(const struct nvllm_tokenizer *tokenizer, const char *tag) {
    int32_t *ids = NULL, id = -1;
    size_t num_ids = 0, text_len = 0;
    char *text = NULL;
    if (!nvllm_tokenizer_encode(tokenizer, tag, strlen(tag), 0, NULL, &ids, &num_ids, NULL) &&
        num_ids == 1 && !nvllm_tokenizer_decode(tokenizer, ids, 1, 1, &text, &text_len, NULL) &&
        text_len == 0) {
        id = ids[0];
    }
    nvllm_free(text);
    nvllm_free(ids);
    return id;
}

void chat_session_start(struct chat_session *session) {
    const struct nvllm_tokenizer *tokenizer = nvllm_engine_tokenizer(session->engine);
    for (size_t i = 0; i < CHAT_TAGS_MAX; i++) session->open_ids[i] = session->close_ids[i] = -1;
    const struct think_tag *tag;
    for (size_t i = 0; tokenizer && i < CHAT_TAGS_MAX && (tag = think_tag(i)); i++) {
        session->open_ids[i] = silent_token(tokenizer, tag->token ? tag->token : tag->open);
        session->close_ids[i] = silent_token(tokenizer, tag->close);
    }
}

void chat_session_fini(struct chat_session *session) {
    chat_messages_fini(&session->messages);
    buf_fini(&session->answer);
}

static void fail(struct chat_session *session, enum status status, const struct err *err) {
    if (!status || session->status) return; // only the first fault is kept
    session->status = status;
    session->err = *err;
}

// Whether the tags of the thinking are tokens without text.
static bool is_silent(const struct chat_session *session) {
    const struct think_tag *tag;
    for (size_t i = 0; i < CHAT_TAGS_MAX && (tag = think_tag(i)); i++) {
        if (tag == session->think.tag) return session->close_ids[i] >= 0;
    }
    return false;
}

// Prints a piece and keeps it, but not thinking whose tags have no text: a template could not leave
// it out of later prompts.
static enum status take_piece(void *user_data, const char *text, size_t len, enum think_part part,
                              struct err *err) {
    struct chat_session *session = user_data;
    enum status status = OK;
    session->has_text = session->has_text || len > 0;
    if (part == THINK_ANSWER || !is_silent(session)) {
        status = buf_append(&session->answer, text, len, err);
    }
    return status ? status : chat_output_piece(session->output, text, len, part, err);
}

// Finds tags that are tokens without text.
static enum status mark_silent_tags(struct chat_session *session, int32_t token_id,
                                    struct err *err) {
    const struct think_tag *tag;
    for (size_t i = 0; i < CHAT_TAGS_MAX && (tag = think_tag(i)); i++) {
        bool opens = session->open_ids[i] == token_id;
        if (!opens && session->close_ids[i] != token_id) continue;
        return think_mark(&session->think, tag, opens, take_piece, session, err);
    }
    return OK;
}

static void count_request(struct chat_usage *usage, const struct nvllm_event *event) {
    usage->num_answers++;
    usage->num_prompt_tokens += event->num_prompt_tokens;
    usage->num_cached_tokens += event->num_cached_tokens;
    usage->num_generated_tokens += event->num_generated_tokens;
}

// A tag without text stands behind the text of the tokens before it.
static enum status feed_think(struct chat_session *session, const struct nvllm_event *event,
                              struct err *err) {
    size_t at = 0;
    enum status status = OK;
    for (uint32_t i = 0; i < event->num_tokens && !status; i++) {
        size_t end = event->text_ends[i];
        status = think_feed(&session->think, event->text + at, end - at, take_piece, session, err);
        if (!status) status = mark_silent_tags(session, event->token_ids[i], err);
        at = end;
    }
    if (status) return status;
    return think_feed(&session->think, event->text + at, event->text_len - at, take_piece, session,
                      err);
}

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct chat_session *session = user_data;
    struct chat_output *output = session->output;
    struct err err = {0};
    enum status status = feed_think(session, event, &err);
    if (!status && !event->finish_reason) status = chat_output_flush(output, &err);
    fail(session, status, &err);
    if (!event->finish_reason) return;
    session->finish_reason = event->finish_reason;
    count_request(&session->last, event);
    count_request(&session->total, event);
    if (event->error) {
        fail(session, err_set(&err, ERR_UNSUPPORTED, "%s", event->error), &err);
    }
}

static void count_step(struct chat_usage *usage, uint64_t prefill, uint64_t decode,
                       double seconds) {
    usage->num_prefill_tokens += prefill;
    usage->num_decode_tokens += decode;
    if (prefill) usage->prefill_seconds += seconds;
    if (!prefill && decode) usage->decode_seconds += seconds;
}

static enum status step(struct chat_session *session, struct err *err) {
    struct nvllm_stats before = NVLLM_STATS_INIT, after = NVLLM_STATS_INIT;
    nvllm_engine_stats(session->engine, &before);
    double start = clock_seconds();
    struct nvllm_error error = {0};
    enum status status = cli_status(nvllm_engine_step(session->engine, &error), &error, err);
    double seconds = clock_seconds() - start;
    nvllm_engine_stats(session->engine, &after);
    uint64_t prefill = after.num_prefill_tokens - before.num_prefill_tokens;
    uint64_t decode = after.num_decode_tokens - before.num_decode_tokens;
    count_step(&session->last, prefill, decode, seconds);
    count_step(&session->total, prefill, decode, seconds);
    return status;
}

// Steps until the request has ended, also by an error or an abort.
static enum status run(struct chat_session *session, uint64_t request_id, struct err *err) {
    while (!session->finish_reason) {
        bool stop = chat_signals_interrupted() || chat_signals_ended() || session->status;
        if (stop && nvllm_engine_abort(session->engine, request_id)) continue;
        enum status status = step(session, err);
        if (!status) continue;
        session->broken = true; // a failed step ends the engine
        return status;
    }
    return OK;
}

static int is_wanted(void *user_data) {
    (void)user_data;
    return chat_signals_interrupted() || chat_signals_ended();
}

static const struct nvllm_interrupt interrupt = {.is_wanted = is_wanted};

// Renders the prompt [*len]. Only the rendered text shows whether it ends inside the model's
// thinking.
static enum status render(struct chat_session *session, const struct buf *chat, char **prompt,
                          size_t *len, struct err *err) {
    struct nvllm_error error = {0};
    const struct nvllm_chat_template *chat_template =
        nvllm_engine_chat_template(session->engine, &error);
    if (!chat_template) return cli_status(error.status, &error, err);
    return cli_status(nvllm_chat_template_render(chat_template, chat->data, chat->len, &interrupt,
                                                 prompt, len, &error),
                      &error, err);
}

// Suggests /clear if the conversation is too long. That cannot help a first message.
static void hint_at_clear(const struct chat_session *session, const char *prompt, size_t len,
                          enum status status, struct err *err) {
    const struct nvllm_tokenizer *tokenizer = nvllm_engine_tokenizer(session->engine);
    bool has_system = chat_messages_system(&session->messages) != NULL;
    if (!err || chat_messages_count(&session->messages) <= 1 + (size_t)has_system) return;
    int32_t *ids = NULL;
    size_t num_ids = 0;
    bool counted = !nvllm_tokenizer_encode(tokenizer, prompt, len, 0, NULL, &ids, &num_ids, NULL);
    nvllm_free(ids);
    if (!counted || num_ids < session->max_model_len) return;
    struct err why = *err;
    err_set(err, status, "%s; /clear begins a new conversation", why.message);
}

static enum status add_request(struct chat_session *session, uint64_t *request_id,
                               struct err *err) {
    struct buf chat = {0};
    char *prompt = NULL;
    size_t prompt_len = 0;
    enum status status = chat_messages_text(&session->messages, &chat, err);
    if (!status) status = render(session, &chat, &prompt, &prompt_len, err);
    if (!status) {
        think_begin(&session->think, prompt, prompt_len);
        struct nvllm_request request = NVLLM_REQUEST_INIT;
        request.chat = chat.data;
        request.chat_len = chat.len;
        request.sampling = session->sampling;
        request.on_event = on_event;
        request.user_data = session;
        request.interrupt = &interrupt;
        struct nvllm_error error = {0};
        status = cli_status(nvllm_engine_add_request(session->engine, &request, request_id, &error),
                            &error, err);
        if (status == ERR_DEVICE) session->broken = true;
        if (status == ERR_INVALID) hint_at_clear(session, prompt, prompt_len, status, err);
    }
    nvllm_free(prompt);
    buf_fini(&chat);
    return status;
}

// Notes why an answer is incomplete.
static enum status note_end(struct chat_session *session, struct err *err) {
    struct chat_output *output = session->output;
    if (session->finish_reason == NVLLM_FINISH_ABORT) {
        return chat_output_note(output, err, "(stopped)");
    }
    if (session->finish_reason != NVLLM_FINISH_LENGTH) return OK;
    uint64_t used = session->last.num_prompt_tokens + session->last.num_generated_tokens;
    if (used < session->max_model_len) {
        return chat_output_note(output, err, "(cut at --max-tokens %d)",
                                session->sampling->max_tokens);
    }
    return chat_output_note(output, err,
                            "(cut: all %u tokens of context are used; /clear begins anew)",
                            session->max_model_len);
}

static enum status end_output(struct chat_session *session, struct err *err) {
    struct chat_output *output = session->output;
    enum status status = think_end(&session->think, take_piece, session, err);
    if (!status) status = chat_output_end(output, err);
    if (!status) status = note_end(session, err);
    if (status || !output->talks) return status;
    return chat_output_print(output, err, "%s", ""); // a blank line above the next prompt
}

// Generates the answer to the messages, prints it, and stores it in session->answer.
static enum status generate(struct chat_session *session, struct err *err) {
    buf_clear(&session->answer);
    session->has_text = false;
    session->finish_reason = NVLLM_FINISH_NONE;
    session->status = OK;
    chat_output_begin(session->output);
    uint64_t request_id = 0;
    enum status status = add_request(session, &request_id, err);
    if (status) return status;
    session->last = (struct chat_usage){0};
    status = run(session, request_id, err);
    struct err end_err = {0};
    enum status end_status = end_output(session, &end_err);
    fail(session, end_status, &end_err);
    // If output cannot be written, the chat ends. All other errors end only the turn.
    if (session->output->file.failed) session->broken = true;
    if (status || !session->status) return status;
    if (err) *err = session->err;
    return session->status;
}

static enum status keep_answer(struct chat_session *session, struct err *err) {
    const struct buf *answer = &session->answer;
    return chat_messages_add(&session->messages, "assistant", answer->data ? answer->data : "",
                             answer->len, err);
}

// True if the answer was stopped before its first character.
static bool nothing_came(const struct chat_session *session) {
    return session->finish_reason == NVLLM_FINISH_ABORT && !session->has_text;
}

// True if it was stopped before the first one that is kept.
static bool nothing_to_keep(const struct chat_session *session) {
    return session->finish_reason == NVLLM_FINISH_ABORT && session->answer.len == 0;
}

enum status chat_session_send(struct chat_session *session, const char *text, size_t len,
                              struct err *err) {
    enum status status = chat_messages_add(&session->messages, "user", text, len, err);
    if (status) return status;
    status = generate(session, err);
    bool keep = !status && !nothing_came(session);
    if (keep) {
        status = keep_answer(session, err);
        keep = !status;
    }
    if (!keep) chat_messages_drop_last(&session->messages);
    return status;
}

enum status chat_session_regenerate(struct chat_session *session, struct err *err) {
    struct chat_messages *messages = &session->messages;
    json_t *old = NULL;
    if (strcmp(chat_messages_last_role(messages), "assistant") == 0) {
        old = json_incref(json_array_get(messages->list, chat_messages_count(messages) - 1));
        chat_messages_drop_last(messages);
    }
    enum status status = OK;
    if (strcmp(chat_messages_last_role(messages), "user") != 0) {
        status = err_set(err, ERR_INVALID, "there is no message to answer again");
    } else {
        status = generate(session, err);
    }
    bool keep = !status && !nothing_to_keep(session);
    if (keep) {
        status = keep_answer(session, err);
        keep = !status;
    }
    // Cannot fail: its place in the list was freed above, so nothing is allocated.
    if (!keep && old) {
        int failed = json_array_append(messages->list, old);
        CHECK(!failed, "count=%zu", chat_messages_count(messages));
    }
    json_decref(old);
    return status;
}
