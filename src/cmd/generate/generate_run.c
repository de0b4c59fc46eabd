/* Tasks form a list in input order. The engine finishes them in any order, but results are written
 * only from the front of the list. Finished results behind an unfinished task wait in memory,
 * counted in held_bytes. A callback cannot return an error, so the run keeps the first error, which
 * ends the loop. */
#include "cmd/generate/generate_run.h"

#include <stdlib.h>
#include <string.h>

#include "api/parsed.h"
#include "base/json/json_out.h"
#include "base/json/json_text.h"
#include "base/os/clock.h"
#include "cmd/cli.h"
#include "cmd/terminal/interrupt.h"

enum { HELD_BYTES_MAX = 64 << 20 };

struct generate_task {
    struct generate_task *next;
    struct generate_run *run;
    struct result result;
    char *prompt; // [prompt_len] for GENERATE_LABELS; NULL: it was given as ids
    size_t prompt_len;
    uint64_t request_id;
    bool finished;
    size_t held_bytes; // its share of the run's held_bytes
    char *fault; // of the first output that ended with an error; NULL: none
};

static void fail(struct generate_run *run, enum status status, const struct err *err) {
    if (!status || run->status) return; // only the first fault is kept
    run->status = status;
    run->err = *err;
}

static void task_destroy(struct generate_task *task) {
    if (!task) return;
    result_fini(&task->result);
    free(task->prompt);
    free(task->fault);
    free(task);
}

static void count_held(struct generate_task *task) {
    size_t bytes = sizeof *task + task->prompt_len + result_bytes(&task->result);
    task->run->held_bytes += bytes - task->held_bytes;
    task->held_bytes = bytes;
}

// Returns a copy. Allocates at least one byte, so NULL always means out of memory.
static void *copy_bytes(const void *from, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (copy && size) memcpy(copy, from, size);
    return copy;
}

static void take_error(struct generate_run *run, struct generate_task *task, const char *message) {
    struct result *result = &task->result;
    for (size_t i = 0; i <= result->num_others; i++) {
        struct completion *completion = result_completion(result, i);
        if (!completion->finish_reason) completion->finish_reason = NVLLM_FINISH_ERROR;
    }
    result->error = strdup(message);
    task->finished = true;
    run->num_refused++;
    memcpy(run->last_refusal, message, strlen(message) + 1);
    struct err err;
    if (!result->error) fail(run, err_nomem(&err, "result"), &err);
}

static void count_cut(struct generate_run *run, const struct nvllm_event *event) {
    struct nvllm_stats stats = {.struct_size = sizeof stats};
    nvllm_engine_stats(run->engine, &stats);
    run->num_cut++;
    run->num_cut_tokens = event->num_generated_tokens;
    size_t num_tokens = event->num_prompt_tokens + event->num_generated_tokens;
    if (num_tokens >= stats.max_model_len) run->num_context_full++;
}

static enum status take_completion(struct completion *completion, const struct nvllm_event *event,
                                   struct err *err) {
    completion->finish_reason = event->finish_reason;
    completion->stop_token_id = event->stop_token_id;
    completion->times = event->times;
    size_t bytes = event->num_generated_tokens * sizeof *completion->token_ids;
    completion->token_ids = copy_bytes(event->generated_token_ids, bytes);
    if (!completion->token_ids) return err_nomem(err, "result");
    completion->num_tokens = event->num_generated_tokens;
    if (!event->stop_string) return OK;
    completion->stop_string = strdup(event->stop_string);
    return completion->stop_string ? OK : err_nomem(err, "result");
}

static enum status take_prompt_side(struct result *result, const struct nvllm_event *event,
                                    struct err *err) {
    result->num_cached_tokens = event->num_cached_tokens;
    result->num_prompt_ids = event->num_prompt_tokens;
    if (event->embedding) return OK; // its line has their number alone
    size_t bytes = event->num_prompt_tokens * sizeof *result->prompt_ids;
    result->prompt_ids = copy_bytes(event->prompt_token_ids, bytes);
    if (!result->prompt_ids) return err_nomem(err, "result");
    if (!event->prompt_logprobs) return OK;
    return result_add_prompt_logprobs(result, event->prompt_logprobs, event->num_prompt_top,
                                      event->num_prompt_tokens, err);
}

// All outputs have ended. An error counts for the request, then an abort.
static void finish(struct generate_run *run, struct generate_task *task) {
    struct result *result = &task->result;
    bool is_aborted = false;
    task->finished = true;
    run->num_unfinished--;
    for (size_t i = 0; i <= result->num_others; i++) {
        is_aborted |= result_completion(result, i)->finish_reason == NVLLM_FINISH_ABORT;
    }
    if (task->fault) {
        take_error(run, task, task->fault);
    } else if (is_aborted) {
        run->num_aborted++;
    } else {
        run->num_finished++;
    }
}

static enum status take_end(struct generate_run *run, struct generate_task *task,
                            const struct nvllm_event *event, struct err *err) {
    struct result *result = &task->result;
    struct completion *completion = result_completion(result, event->index);
    if (event->finish_reason == NVLLM_FINISH_LENGTH) count_cut(run, event);
    enum status status = take_completion(completion, event, err);
    if (!status && event->error && !task->fault) {
        task->fault = strdup(event->error);
        if (!task->fault) status = err_nomem(err, "result");
    }
    if (event->num_outputs_left) return status;
    if (!status) status = take_prompt_side(result, event, err);
    count_held(task);
    finish(run, task);
    return status;
}

// The vector becomes text at once.
static enum status take_vector(const struct generate_run *run, struct completion *completion,
                               const struct nvllm_event *event, struct err *err) {
    struct json_out out = {0};
    if (run->is_base64) {
        json_out_base64(&out, event->embedding, event->num_dimensions * sizeof(float));
    } else {
        json_out_floats(&out, event->embedding, event->num_dimensions);
    }
    completion->text = out.buf;
    return out.status ? err_nomem(err, "result") : OK;
}

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct generate_task *task = user_data;
    struct generate_run *run = task->run;
    struct completion *completion = result_completion(&task->result, event->index);
    struct err err = {0};
    enum status status = OK;
    // An abort has no token, and the last token before a stop string may have no text.
    for (uint32_t i = 0; event->logprobs && i < event->num_tokens && !status; i++) {
        const struct nvllm_logprob *row = event->logprobs + i * (1 + event->num_top);
        status = result_add_logprobs(completion, row, event->num_top, &err);
    }
    if (event->embedding) status = take_vector(run, completion, event, &err);
    if (!status && event->text_len) {
        status = run->format == GENERATE_STREAM
                     ? output_file_write(run->output, event->text, event->text_len, &err)
                     : buf_append(&completion->text, event->text, event->text_len, &err);
    }
    fail(run, status, &err);
    if (event->finish_reason) fail(run, take_end(run, task, event, &err), &err);
}

// Prints no prompt for a line that was refused before it had one: its error names the line.
static enum status append_prompt(struct buf *out, const struct generate_task *task,
                                 struct err *err) {
    const struct result *result = &task->result;
    if (!task->prompt && !result->prompt_ids) return OK;
    enum status status = buf_append_str(out, "Prompt: ", err);
    if (status) return status;
    status = task->prompt ? json_text_string(out, task->prompt, task->prompt_len, err)
                          : json_text_ids(out, result->prompt_ids, result->num_prompt_ids, err);
    return status ? status : buf_append_str(out, "\n", err);
}

// The completion as text, or as ids where there is no tokenizer to make text.
static enum status append_completion(struct generate_run *run, const struct completion *completion,
                                     struct err *err) {
    struct buf *out = &run->line;
    enum status status = buf_append_str(out, "Completion: ", err);
    if (status) return status;
    if (!nvllm_engine_tokenizer(run->engine)) {
        status = json_text_ids(out, completion->token_ids, completion->num_tokens, err);
    } else {
        status = json_text_string(out, completion->text.data, completion->text.len, err);
    }
    return status ? status : buf_append_str(out, "\n", err);
}

static enum status format_labels(struct generate_run *run, struct generate_task *task,
                                 struct err *err) {
    struct buf *out = &run->line;
    struct result *result = &task->result;
    enum status status = result->index ? buf_append_str(out, "\n", err) : OK;
    if (!status) status = append_prompt(out, task, err);
    if (result->error) {
        return status ? status : buf_appendf(out, err, "Error: %s\n", result->error);
    }
    for (size_t i = 0; i <= result->num_others && !status; i++) {
        status = append_completion(run, result_completion(result, i), err);
    }
    return status;
}

// Ends the streamed text of the only request.
static enum status format_stream_end(struct generate_run *run, const struct generate_task *task,
                                     struct err *err) {
    const struct result *result = &task->result;
    if (result->error) return OK;
    enum status status = OK;
    if (!nvllm_engine_tokenizer(run->engine)) {
        const struct completion *completion = &result->first;
        status = json_text_ids(&run->line, completion->token_ids, completion->num_tokens, err);
    }
    return status ? status : buf_append_str(&run->line, "\n", err);
}

static enum status write_task(struct generate_run *run, struct generate_task *task,
                              struct err *err) {
    struct result *result = &task->result;
    if (result->first.finish_reason == NVLLM_FINISH_ERROR && !result->error) {
        take_error(run, task, run->err.message); // the engine failed while it ran
    }
    buf_clear(&run->line);
    enum status status = OK;
    switch (run->format) {
    case GENERATE_JSONL:
        status = result_line_format(&run->line, result, err);
        break;
    case GENERATE_LABELS:
        status = format_labels(run, task, err);
        break;
    case GENERATE_STREAM:
        status = format_stream_end(run, task, err);
        break;
    case GENERATE_VECTORS:
        status = vector_line_format(&run->line, result, err);
        break;
    }
    if (status || !run->line.len) return status;
    if (run->output->is_stdout) progress_clear(run->progress);
    return output_file_write(run->output, run->line.data, run->line.len, err);
}

// Writes and frees the finished tasks at the front.
static void write_finished(struct generate_run *run) {
    while (run->first && run->first->finished) {
        struct generate_task *task = run->first;
        struct err err = {0};
        if (!run->output->failed) fail(run, write_task(run, task, &err), &err);
        run->first = task->next;
        if (!run->first) run->last = NULL;
        run->held_bytes -= task->held_bytes;
        task_destroy(task);
    }
}

static struct generate_task *append_task(struct generate_run *run) {
    struct generate_task *task = calloc(1, sizeof *task);
    if (!task) return NULL;
    task->run = run;
    task->result.index = run->num_requests++;
    task->result.first.stop_token_id = -1;
    task->result.num_top = -1;
    task->result.has_times = run->has_times;
    if (run->last) {
        run->last->next = task;
    } else {
        run->first = task;
    }
    run->last = task;
    return task;
}

// Renders the chat as the model's prompt, unless an earlier try did.
static enum status render_chat(struct generate_run *run, struct request_line *line,
                               struct err *err) {
    if (line->rendered.data) return OK;
    struct nvllm_error error = {0};
    const struct nvllm_chat_template *chat_template =
        nvllm_engine_chat_template(run->engine, &error);
    if (!chat_template) return cli_status(error.status, &error, err);
    return cli_status(api_chat_render(chat_template, line->chat, line->memory_left,
                                      &interrupt_question, &line->rendered, &error),
                      &error, err);
}

// The prompt as it is printed: the user's text, or the rendered chat.
static enum status keep_prompt(struct generate_task *task, const char *text, size_t len,
                               struct err *err) {
    if (task->run->format != GENERATE_LABELS) return OK;
    task->prompt = copy_bytes(text, len);
    if (!task->prompt) return err_nomem(err, "prompt");
    task->prompt_len = len;
    return OK;
}

static enum status take_prompt(struct generate_run *run, struct generate_task *task,
                               struct request_line *line, struct err *err) {
    if (!line->prompt_token_ids && !nvllm_engine_tokenizer(run->engine)) {
        return err_set(err, ERR_INVALID,
                       "a %s needs the tokenizer, which --skip-tokenizer-init left out",
                       line->chat ? "chat" : "text prompt");
    }
    enum status status = line->chat ? render_chat(run, line, err) : OK;
    if (status || line->prompt_token_ids || task->prompt) return status;
    if (line->prompt) return keep_prompt(task, line->prompt, line->prompt_len, err);
    return keep_prompt(task, line->rendered.data, line->rendered.len, err);
}

static enum status add_request(struct generate_run *run, struct generate_task *task,
                               const struct request_line *line, struct err *err) {
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    if (line->prompt_token_ids) {
        request.prompt_token_ids = line->prompt_token_ids;
        request.num_prompt_token_ids = line->num_prompt_token_ids;
    } else if (line->chat) {
        request.prompt = line->rendered.data;
        request.prompt_len = line->rendered.len;
    } else {
        request.prompt = line->prompt;
        request.prompt_len = line->prompt_len;
    }
    request.sampling = &line->sampling;
    request.cache_salt = line->cache_salt;
    request.pooling = run->pooling;
    request.on_event = on_event;
    request.user_data = task;
    request.interrupt = &interrupt_question;
    size_t num_outputs = (size_t)line->sampling.n;
    enum status status = task->result.num_others + 1 < num_outputs
                             ? result_add_others(&task->result, num_outputs, err)
                             : OK; // there since an earlier try
    if (status) return status;
    struct nvllm_error error = {0};
    enum nvllm_status added =
        line->chat ? api_add_rendered(run->engine, &request, &task->request_id, &error)
                   : nvllm_engine_add_request(run->engine, &request, &task->request_id, &error);
    return cli_status(added, &error, err);
}

static void finish_aborted(struct generate_run *run, struct generate_task *task) {
    for (size_t i = 0; i <= task->result.num_others; i++) {
        result_completion(&task->result, i)->finish_reason = NVLLM_FINISH_ABORT;
    }
    task->finished = true;
    run->num_aborted++;
}

// Adds the next request to the engine. False: too many wait there, and it stays the next.
static bool admit_next(struct generate_run *run) {
    struct generate_task *task = run->next;
    struct request_line *line = &run->next_line;
    struct err err = {0};
    enum status status = take_prompt(run, task, line, &err);
    if (!status) status = add_request(run, task, line, &err);
    if (status == ERR_CAPACITY && run->num_unfinished) return false;
    if (status == ERR_DEVICE) fail(run, status, &err);
    if (status == ERR_INTERRUPTED) {
        finish_aborted(run, task);
    } else if (status) {
        if (line->line_number) {
            err_prefix(&err, status, "line %llu", (unsigned long long)line->line_number);
        }
        take_error(run, task, err.message);
    } else {
        task->result.num_top = line->sampling.logprobs;
        task->result.has_prompt_logprobs = line->sampling.prompt_logprobs != -1;
        run->num_unfinished++;
    }
    count_held(task);
    run->next = NULL;
    request_line_fini(line);
    return true;
}

static void refuse(struct generate_run *run, const struct err *why) {
    struct generate_task *task = append_task(run);
    struct err err;
    if (!task) {
        fail(run, err_nomem(&err, "request"), &err);
        return;
    }
    take_error(run, task, why->message);
    count_held(task);
}

static bool has_capacity(const struct generate_run *run) {
    if (run->num_unfinished == 0) return run->first == run->next; // write finished results first
    return run->num_unfinished < run->unfinished_max && run->held_bytes < HELD_BYTES_MAX;
}

// Refuses members of a line that have no effect on a vector.
static enum status check_vector_line(const struct request_line *line, struct err *err) {
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

// Takes one request from the source. False: none is there now.
static bool take_next(struct generate_run *run) {
    struct err err = {0};
    enum source_state state = SOURCE_END;
    bool may_wait = run->num_unfinished == 0;
    run->next_line = (struct request_line){0};
    enum status status = prompt_source_next(run->source, may_wait, &state, &run->next_line, &err);
    if (status) {
        fail(run, status, &err);
        return false;
    }
    if (state == SOURCE_REQUEST && run->pooling && check_vector_line(&run->next_line, &err)) {
        state = SOURCE_REFUSED;
    }
    if (state == SOURCE_REFUSED) refuse(run, &err);
    if (state == SOURCE_END) run->source_ended = true;
    if (state == SOURCE_REQUEST && !(run->next = append_task(run))) {
        fail(run, err_nomem(&err, "request"), &err);
    }
    if (!run->next) request_line_fini(&run->next_line);
    return !run->status && (state == SOURCE_REQUEST || state == SOURCE_REFUSED);
}

// Fills the engine up. Blocks for input only when the engine has nothing to do.
static void admit_requests(struct generate_run *run) {
    while (!run->status && !interrupt_requested() && has_capacity(run)) {
        if (run->next) {
            if (!admit_next(run)) return;
        } else if (run->source_ended || !take_next(run)) {
            return;
        }
    }
}

static void step(struct generate_run *run) {
    struct nvllm_stats before = {.struct_size = sizeof before};
    struct nvllm_stats after = {.struct_size = sizeof after};
    nvllm_engine_stats(run->engine, &before);
    double start = clock_seconds();
    struct nvllm_error error = {0};
    struct err err = {0};
    fail(run, cli_status(nvllm_engine_step(run->engine, &error), &error, &err), &err);
    nvllm_engine_stats(run->engine, &after);
    progress_step(run->progress, run->num_finished + run->num_refused,
                  after.num_prefill_tokens - before.num_prefill_tokens,
                  after.num_decode_tokens - before.num_decode_tokens, clock_seconds() - start);
}

// Aborts the unfinished requests; each delivers its last event.
static void abort_unfinished(struct generate_run *run) {
    if (run->next) {
        finish_aborted(run, run->next);
        run->next = NULL;
        request_line_fini(&run->next_line);
    }
    for (struct generate_task *task = run->first; task; task = task->next) {
        if (!task->finished) nvllm_engine_abort(run->engine, task->request_id);
    }
    nvllm_engine_wait(run->engine, 0, NULL);
}

enum status generate_run_execute(struct generate_run *run, struct err *err) {
    while (!run->status) {
        if (interrupt_requested()) {
            run->interrupted = true;
            break;
        }
        admit_requests(run);
        write_finished(run);
        if (run->num_unfinished) {
            step(run);
            write_finished(run);
        } else if (run->source_ended && !run->next) {
            break;
        }
    }
    // Every request taken from the source gets its result, however the loop ended.
    abort_unfinished(run);
    write_finished(run);
    progress_finish(run->progress, run->num_finished + run->num_refused);
    buf_fini(&run->line);
    if (run->status && err) *err = run->err;
    return run->status;
}
