#include "server/loop/api_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/encode.h"
#include "base/os/secret.h"
#include "server/chat/tool_form.h"
#include "server/loop/body.h"

// ---- birth and death ----

static void free_delta(struct choice_delta *delta) {
    if (delta == &delta->choice->last_delta) return;
    free(delta->prompt_logprobs);
    free(delta);
}

static void free_held(struct api_request *request) {
    while (request->held) {
        struct choice_delta *next = request->held->next;
        free_delta(request->held);
        request->held = next;
    }
}

static void free_choice(struct choice *choice) {
    chat_split_destroy(choice->split);
    chat_blocks_fini(&choice->blocks);
    buf_fini(&choice->text);
    buf_fini(&choice->joined);
    json_out_fini(&choice->logprobs);
    json_out_fini(&choice->token_ids);
    for (size_t i = 0; i < ARRAY_LEN(choice->logprobs_more); i++) {
        json_out_fini(&choice->logprobs_more[i]);
    }
    free(choice->stop_string);
}

static void free_prompt(struct prompt *prompt) {
    nvllm_free(prompt->ids);
    nvllm_free(prompt->echo);
    free(prompt->logprobs);
}

// The body's memory is free again, which lets the server read more bodies.
static void uncount_body(struct api_request *request) {
    if (request->api->http) http_server_body_freed(request->api->http, request->body_len);
    request->body_len = 0;
}

void api_request_free(struct api_request *request) {
    struct api *api = request->api;
    uncount_body(request);
    free_held(request);
    for (uint32_t i = 0; i < request->num_choices; i++) free_choice(&request->choices[i]);
    free(request->choices);
    for (uint32_t i = 0; i < request->num_prompts; i++) free_prompt(&request->prompts[i]);
    free(request->prompts);
    json_decref(request->root);
    json_decref(request->chat.last_role);
    buf_fini(&request->body);
    buf_fini(&request->chat.echo);
    json_decref(request->chat.form);
    json_out_fini(&request->result);
    json_out_fini(&request->chunk_head);
    nvllm_sampling_params_fini(&request->sampling);
    TAILQ_REMOVE(&api->requests, request, link);
    free(request);
    if (--api->num_requests == 0) api->on_requests_ended(api);
}

// Frees the request once nobody has it any more: not the pool, not the engine, not the client.
static void maybe_free(struct api_request *request) {
    uint32_t num_outputs = atomic_load(&request->num_added) * (uint32_t)request->sampling.n;
    bool is_out = request->is_prepared && request->num_finished == num_outputs;
    if (is_out && !request->conn && !request->is_busy) api_request_free(request);
}

static int is_cancelled(void *user_data) {
    struct api_request *request = user_data;
    return atomic_load(&request->is_cancelled);
}

bool api_request_make_prompts(struct api_request *request, uint32_t count) {
    uint32_t n = (uint32_t)request->sampling.n;
    request->prompts = calloc(count, sizeof *request->prompts);
    request->choices =
        request->prompts ? calloc((size_t)count * n, sizeof *request->choices) : NULL;
    if (!request->choices) return api_error_nomem(&request->error);
    request->num_prompts = count;
    request->num_choices = count * n;
    for (uint32_t i = 0; i < count; i++) {
        struct prompt *prompt = &request->prompts[i];
        prompt->request = request;
        prompt->choices = &request->choices[i * n];
        prompt->sampling = request->sampling;
        prompt->sampling.owned = NULL;
    }
    for (uint32_t i = 0; i < request->num_choices; i++) {
        struct choice *choice = &request->choices[i];
        choice->request = request;
        choice->prompt = &request->prompts[i / n];
        choice->index = i;
        choice->stop_token_id = -1;
    }
    return true;
}

void api_request_cancel(struct api_request *request) {
    // The pool stores a request's id, then asks is_cancelled: one of the two sides sees the other.
    atomic_store(&request->is_cancelled, true);
    uint32_t num_added = atomic_load(&request->num_added);
    for (uint32_t i = 0; i < num_added; i++) {
        nvllm_engine_abort(request->api->engine, request->prompts[i].engine_id);
    }
}

bool api_request_is_wanted(struct api_request *request) {
    if (!atomic_load(&request->is_cancelled)) return true;
    return api_error_set(&request->error, 503, "cancelled", NULL, "the request was cancelled");
}

// ---- sums ----

uint32_t api_request_num_prompt_tokens(const struct api_request *request) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < request->num_prompts; i++)
        sum += (uint32_t)request->prompts[i].num_ids;
    return sum;
}

uint32_t api_request_num_generated_tokens(const struct api_request *request) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < request->num_choices; i++)
        sum += request->choices[i].num_generated_tokens;
    return sum;
}

// All n outputs share the prompt: count its cached tokens once.
uint32_t api_request_num_cached_tokens(const struct api_request *request) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < request->num_prompts; i++) {
        sum += request->prompts[i].choices[0].num_cached_tokens;
    }
    return sum;
}

uint32_t api_request_num_reasoning_tokens(const struct api_request *request) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < request->num_choices; i++)
        sum += request->choices[i].num_reasoning_tokens;
    return sum;
}

// ---- answers ----

// Fills the counts that the log shows.
static void fill_counts(struct api_request *request) {
    struct request_info *info = &request->info;
    // Until then choices are the pool's.
    if (!request->is_prepared || request->answers_at_once || !request->num_choices) return;
    info->has_counts = true;
    info->num_prompt_tokens = api_request_num_prompt_tokens(request);
    info->num_generated_tokens = api_request_num_generated_tokens(request);
    info->num_cached_tokens = api_request_num_cached_tokens(request);
    info->times = request->choices[0].times;
    enum nvllm_finish_reason finish = request->choices[request->num_choices - 1].finish;
    info->finish = finish ? nvllm_finish_reason_name(finish) : NULL;
}

// The answer is out: the connection is somebody else's from here on.
static struct http_conn *let_go(struct api_request *request) {
    struct http_conn *conn = request->conn;
    request->conn = NULL;
    request->is_answered = true;
    http_conn_set_data(conn, NULL);
    fill_counts(request);
    return conn;
}

static void reply_error(struct api_request *request, const struct api_error *error) {
    struct http_conn *conn = let_go(request);
    struct json_out *out = &request->api->scratch;
    json_out_clear(out);
    if (request->endpoint->write_refusal) {
        request->endpoint->write_refusal(error, out);
    } else {
        api_error_write(out, error);
    }
    request_info_reply_refusal(request->api, &request->info, conn, error, out);
}

static void reply_result(struct api_request *request, const struct json_out *out) {
    if (out->status) {
        struct api_error error = {0};
        api_error_nomem(&error);
        reply_error(request, &error);
        return;
    }
    struct http_conn *conn = let_go(request);
    request_info_reply_json(request->api, &request->info, conn, 200, out);
}

// The error of a stream that cannot be written: the client sees a stream without an end.
static void cut_stream(struct api_request *request, int status) {
    struct http_conn *conn = let_go(request);
    request_info_log(request->api, &request->info, status);
    http_conn_close(conn);
}

static void end_stream(struct api_request *request) {
    struct http_conn *conn = let_go(request);
    request_info_log(request->api, &request->info, 200);
    http_conn_stream_end(conn);
}

// The request fails after some of it has run; what still runs is aborted.
static void fail(struct api_request *request, const struct api_error *error) {
    api_request_cancel(request);
    if (!request->conn) return;
    if (!request->is_streaming) {
        reply_error(request, error);
        return;
    }
    struct json_out *out = &request->api->scratch;
    json_out_clear(out);
    request->endpoint->write_error(request, error, out);
    if (out->status) {
        cut_stream(request, error->status);
    } else if (http_conn_stream_write(request->conn, out->buf.data, out->buf.len)) {
        end_stream(request);
    }
}

static void fail_nomem(struct api_request *request) {
    struct api_error error = {0};
    api_error_nomem(&error);
    fail(request, &error);
}

// False: the request has failed or its client is gone.
static bool write_stream(struct api_request *request, const struct json_out *out) {
    if (!out->status) return http_conn_stream_write(request->conn, out->buf.data, out->buf.len);
    fail_nomem(request);
    return false;
}

static void finish_whole(struct api_request *request) {
    struct json_out *out = &request->api->scratch;
    json_out_clear(out);
    if (request->is_streaming) {
        request->endpoint->write_end(request, out);
        if (write_stream(request, out)) end_stream(request);
        return;
    }
    request->endpoint->write_whole(request, out);
    reply_result(request, out);
}

// ---- deltas ----

static void count_delta(struct choice *choice, const struct choice_delta *delta) {
    struct metrics *metrics = choice->request->api->metrics;
    if (!choice->num_generated_tokens && delta->num_tokens) {
        bool is_first = choice == choice->prompt->choices; // the others share its prompt
        metrics_first_tokens(metrics, delta->num_tokens, is_first ? delta->num_prompt_tokens : 0,
                             is_first ? delta->num_cached_tokens : 0, &delta->times);
    } else if (delta->num_tokens) {
        metrics_next_tokens(metrics, delta->num_tokens,
                            delta->times.last_token - choice->times.last_token);
    }
    choice->num_prompt_tokens = delta->num_prompt_tokens;
    choice->num_cached_tokens = delta->num_cached_tokens;
    choice->num_generated_tokens = delta->num_generated_tokens;
    choice->times = delta->times;
    if (!delta->finish) return;
    choice->finish = delta->finish;
    choice->stop_token_id = delta->stop_token_id;
    // Without memory for it the request fails: take_delta.
    if (delta->stop_string) choice->stop_string = strdup(delta->stop_string);
    choice->request->num_finished++;
    metrics_finished(metrics, delta->finish, delta->num_prompt_tokens, delta->num_generated_tokens,
                     choice->prompt->sampling.max_tokens,
                     choice == choice->prompt->choices ? choice->prompt->sampling.n : 0,
                     delta->num_preemptions, &delta->times);
}

// max_tokens is 0: of the one token that the engine had to generate nothing is to be seen.
static void drop_token(struct choice *choice, struct choice_delta *delta) {
    delta->text_len = 0;
    delta->num_tokens = 0;
    choice->num_generated_tokens = 0;
    if (delta->finish == NVLLM_FINISH_STOP) choice->finish = NVLLM_FINISH_LENGTH;
}

static void collect_tokens(struct choice *choice, const struct choice_delta *delta) {
    struct json_out *ids = &choice->token_ids;
    if (!choice->request->answer.token_ids) return;
    for (uint32_t i = 0; i < delta->num_tokens; i++) {
        json_out_rawf(ids, ids->buf.len ? ",%d" : "%d", delta->token_ids[i]);
    }
}

static void take_prompt_logprobs(struct prompt *prompt, struct choice_delta *delta) {
    if (!delta->prompt_logprobs) return;
    prompt->logprobs = delta->prompt_logprobs;
    delta->prompt_logprobs = NULL;
}

// The head of a stream, before its first token, so that proxies see that the request lives.
static void begin_stream(struct api_request *request) {
    request->is_streaming = true;
    request_info_stream_begin(&request->info, request->conn);
}

static void write_delta(struct choice *choice, const struct choice_delta *delta) {
    struct api_request *request = choice->request;
    struct json_out *out = &request->api->scratch;
    json_out_clear(out);
    if (!request->has_written && request->endpoint->write_begin)
        request->endpoint->write_begin(request, out);
    request->has_written = true;
    request->endpoint->write_delta(choice, delta, out);
    write_stream(request, out);
}

static void fail_delta(struct api_request *request, const struct choice_delta *delta) {
    struct api_error error = {0};
    if (delta->has_no_memory) {
        fail_nomem(request);
        return;
    }
    // The engine's own words may name what clients are not to see, but those about the form that
    // the request asked for are the client's.
    const char *form = delta->error ? strstr(delta->error, "structured_outputs") : NULL;
    if (form && form == delta->error) {
        api_error_set(&error, 400, "structured_outputs", "structured_outputs", "%s", form);
    } else {
        api_error_set(&error, 500, "engine_failed", NULL, "the engine could not go on with this");
    }
    fail(request, &error);
}

// Counts a delta of a prepared request and writes or keeps it. Frees it, and maybe the request.
static void take_delta(struct choice_delta *delta) {
    struct choice *choice = delta->choice;
    struct api_request *request = choice->request;
    request->is_busy = true;
    count_delta(choice, delta);
    take_prompt_logprobs(choice->prompt, delta);
    if (request->answer.generates_nothing) drop_token(choice, delta);
    collect_tokens(choice, delta);
    bool lacks_stop = delta->stop_string && !choice->stop_string;
    if (request->conn && lacks_stop) {
        fail_nomem(request);
    } else if (request->conn && delta->finish == NVLLM_FINISH_ERROR) {
        fail_delta(request, delta);
    } else if (request->conn && request->answer.stream) {
        write_delta(choice, delta);
    } else if (request->conn && !request->endpoint->collect(choice, delta)) {
        fail_nomem(request);
    }
    bool is_last = delta->finish && request->num_finished == request->num_choices;
    free_delta(delta);
    if (is_last && request->conn) finish_whole(request);
    request->is_busy = false;
    maybe_free(request);
}

// ---- to the engine, and its events back ----

static void handle_delta(struct loop_message *message) {
    struct choice_delta *delta = (struct choice_delta *)(void *)message;
    struct api_request *request = delta->choice->request;
    if (request->is_prepared) {
        take_delta(delta);
        return;
    }
    delta->next = NULL;
    if (request->held) {
        request->last_held->next = delta;
    } else {
        request->held = delta;
    }
    request->last_held = delta;
}

static char *put(char **at, const void *bytes, size_t len) {
    char *start = *at;
    if (len) memcpy(start, bytes, len);
    start[len] = '\0';
    *at += len + 1;
    return start;
}

static void *put_list(char **at, const void *items, size_t count, size_t size) {
    void *start = *at;
    if (count) memcpy(start, items, count * size);
    *at += count * size;
    return start;
}

// An event as one allocation: the struct, lists of 4-byte items, texts. NULL: no memory.
static struct choice_delta *make_delta(const struct nvllm_event *event) {
    size_t num_tokens = event->num_tokens;
    size_t num_logprobs = event->logprobs ? num_tokens * (1 + event->num_top) : 0;
    size_t stop_len = event->stop_string ? strlen(event->stop_string) : 0;
    size_t error_len = event->error ? strlen(event->error) : 0;
    size_t num_dimensions = event->embedding ? event->num_dimensions : 0;
    size_t bytes = sizeof(struct choice_delta) + num_logprobs * sizeof(struct nvllm_logprob) +
                   num_tokens * (sizeof(int32_t) + sizeof(uint32_t)) +
                   num_dimensions * sizeof(float) + event->text_len + stop_len + error_len + 3;
    struct choice_delta *delta = malloc(bytes);
    if (!delta) return NULL;
    *delta = (struct choice_delta){.finish = event->finish_reason,
                                   .stop_token_id = event->stop_token_id,
                                   .num_prompt_tokens = event->num_prompt_tokens,
                                   .num_cached_tokens = event->num_cached_tokens,
                                   .num_generated_tokens = event->num_generated_tokens,
                                   .num_preemptions = event->num_preemptions,
                                   .times = event->times,
                                   .text_len = event->text_len,
                                   .num_tokens = event->num_tokens,
                                   .num_top = event->num_top};
    char *at = (char *)(delta + 1);
    delta->token_ids = put_list(&at, event->token_ids, num_tokens, sizeof *event->token_ids);
    delta->text_ends = put_list(&at, event->text_ends, num_tokens, sizeof *event->text_ends);
    if (event->logprobs) {
        delta->logprobs = put_list(&at, event->logprobs, num_logprobs, sizeof *event->logprobs);
    }
    if (num_dimensions) {
        delta->embedding =
            put_list(&at, event->embedding, num_dimensions, sizeof *event->embedding);
        delta->num_dimensions = event->num_dimensions;
    }
    delta->text = put(&at, event->text, event->text_len);
    if (event->stop_string) delta->stop_string = put(&at, event->stop_string, stop_len);
    if (event->error) delta->error = put(&at, event->error, error_len);
    return delta;
}

// Once a prompt, with the first event that has them. False: no memory.
static bool copy_prompt_logprobs(struct prompt *prompt, const struct nvllm_event *event,
                                 struct choice_delta *delta) {
    if (!event->prompt_logprobs || prompt->has_sent_logprobs) return true;
    size_t count = (event->num_prompt_tokens - 1) * (1 + event->num_prompt_top);
    delta->prompt_logprobs = malloc((count ? count : 1) * sizeof *delta->prompt_logprobs);
    if (!delta->prompt_logprobs) return false;
    if (count) {
        memcpy(delta->prompt_logprobs, event->prompt_logprobs,
               count * sizeof *delta->prompt_logprobs);
    }
    prompt->has_sent_logprobs = true;
    return true;
}

static struct choice_delta *make_whole_delta(struct prompt *prompt,
                                             const struct nvllm_event *event) {
    struct choice_delta *delta = make_delta(event);
    if (!delta || copy_prompt_logprobs(prompt, event, delta)) return delta;
    free(delta);
    return NULL;
}

// The end of a choice that has lost a delta.
static struct choice_delta *last_delta(struct choice *choice, const struct nvllm_event *event) {
    choice->last_delta = (struct choice_delta){.finish = NVLLM_FINISH_ERROR,
                                               .stop_token_id = -1,
                                               .num_prompt_tokens = event->num_prompt_tokens,
                                               .num_cached_tokens = event->num_cached_tokens,
                                               .num_generated_tokens = event->num_generated_tokens,
                                               .times = event->times,
                                               .text = "",
                                               .has_no_memory = true};
    return &choice->last_delta;
}

// On the engine's thread. A choice ends with one delta whatever happens.
static void on_event(const struct nvllm_event *event, void *user_data) {
    struct prompt *prompt = user_data;
    struct api *api = prompt->request->api;
    struct choice *choice = &prompt->choices[event->index];
    struct choice_delta *delta = choice->is_lost ? NULL : make_whole_delta(prompt, event);
    if (!delta) {
        if (!choice->is_lost) nvllm_engine_abort(api->engine, event->request_id);
        choice->is_lost = true;
        if (!event->finish_reason) return;
        delta = last_delta(choice, event);
    }
    delta->choice = choice;
    delta->message.handle = handle_delta;
    engine_thread_send(api->engine_thread, &delta->message);
}

// Takes the part [at, to) out of the sentence.
static void cut_out(char *at, const char *to) {
    memmove(at, to, strlen(to) + 1);
}

// A fault of the tools' schemas. The client knows nothing of the form that holds them.
static const char *blame_tools(struct nvllm_error *fault, char *at) {
    const char *tool = strstr(at, TOOL_FORM_TOOL);
    if (tool) {
        cut_out(fault->message, tool);
        return "tools";
    }
    char own[sizeof fault->message];
    snprintf(own, sizeof own, "%s", at);
    snprintf(fault->message, sizeof fault->message,
             "the schemas of tools make a form that is refused: %.400s", own);
    return "tools";
}

// The member that a fault of the form is about: the tools, or the form beside them. The sentence
// becomes the one about that member alone.
static const char *blame_form(const struct api_request *request, struct nvllm_error *fault) {
    static const char start[] = "structured_outputs: ";
    char *at = fault->message + strlen(start);
    if (strncmp(fault->message, start, strlen(start)) != 0) return NULL;
    if (!request->chat.has_form) return "structured_outputs";
    if (!request->chat.form || request->chat.forces_call) return blame_tools(fault, at);
    bool has_channels = request->chat.split.has_channels;
    const char *place = has_channels ? TOOL_FORM_FINAL_PLACE : TOOL_FORM_TEXT_PLACE;
    if (strncmp(at, place, strlen(place)) == 0) {
        cut_out(at, at + strlen(place));
        return "structured_outputs";
    }
    bool is_call = strncmp(at, TOOL_FORM_PLACE, strlen(TOOL_FORM_PLACE)) == 0;
    return is_call ? blame_tools(fault, at) : "structured_outputs";
}

static bool submit_one(struct api_request *request, struct prompt *prompt) {
    struct nvllm_request options = NVLLM_REQUEST_INIT;
    struct nvllm_error fault = {0};
    options.prompt_token_ids = prompt->ids;
    options.num_prompt_token_ids = prompt->num_ids;
    options.sampling = &prompt->sampling;
    options.cache_salt = request->cache_salt;
    options.on_event = on_event;
    options.user_data = prompt;
    options.interrupt = &request->interrupt;
    options.may_reason = request->chat.role != NULL;
    if (request->wants_vectors) options.pooling = &request->pooling;
    enum nvllm_status status =
        nvllm_engine_add_request(request->api->engine, &options, &prompt->engine_id, &fault);
    const char *member = blame_form(request, &fault);
    return api_error_library(&request->error, status, &fault, member);
}

// On the pool. A prompt that is refused sets request->error, and those before it are aborted.
static void submit_prompts(struct api_request *request) {
    for (uint32_t i = 0; i < request->num_prompts; i++) {
        if (!submit_one(request, &request->prompts[i])) {
            api_request_cancel(request);
            return;
        }
        atomic_store(&request->num_added, i + 1);
        if (!api_request_is_wanted(request)) {
            api_request_cancel(request);
            return;
        }
    }
}

bool api_request_encode(struct api_request *request, struct prompt *prompt, const char *text,
                        size_t len, bool add_special_tokens, const char *param) {
    struct nvllm_error fault = {0};
    // An endpoint that generates has no use for more ids than fit into the context.
    uint32_t len_max = request->endpoint->collect ? request->api->max_model_len : 0;
    prompt->num_ids = len_max;
    enum nvllm_status status =
        api_encode(request->api->tokenizer, text, len, add_special_tokens, &request->interrupt,
                   &prompt->ids, &prompt->num_ids, &fault);
    if (status == NVLLM_ERR_CAPACITY && request->wants_vectors) {
        return api_error_set(&request->error, 400, "context_length_exceeded", param,
                             "a text has more than %u tokens, which the context holds", len_max);
    }
    if (status == NVLLM_ERR_CAPACITY) {
        return api_error_set(&request->error, 400, "context_length_exceeded", param,
                             "the prompt has more than %u tokens and the context holds %u, with at "
                             "least one to generate",
                             len_max, len_max);
    }
    return api_error_library(&request->error, status, &fault, param);
}

bool api_request_fit(struct api_request *request, struct prompt *prompt, int64_t max_tokens,
                     const char *param) {
    uint32_t context = request->api->max_model_len;
    size_t len = prompt->num_ids;
    if (len >= context) {
        return api_error_set(&request->error, 400, "context_length_exceeded", param,
                             "the prompt has %zu tokens and the context holds %u, with at least "
                             "one to generate",
                             len, context);
    }
    size_t left = context - len;
    if (max_tokens > (int64_t)left) {
        return api_error_set(&request->error, 400, "context_length_exceeded", "max_tokens",
                             "the prompt has %zu tokens, %lld more are asked for, and the context "
                             "holds %u",
                             len, (long long)max_tokens, context);
    }
    request->answer.generates_nothing = max_tokens == 0; // the engine generates at least one
    if (max_tokens == 0) max_tokens = 1;
    prompt->sampling.max_tokens = (int32_t)(max_tokens < 0 ? (int64_t)left : max_tokens);
    return true;
}

// ---- the job and what ends it ----

void api_request_abandon(struct api_request *request) {
    request->conn = NULL;
    api_request_cancel(request);
    if (!request->is_answered) {
        fill_counts(request);
        request_info_log(request->api, &request->info, 499);
    }
    maybe_free(request);
}

static void take_held(struct api_request *request) {
    // The last delta may free the request, but nothing before it does.
    struct choice_delta *delta = request->held;
    request->held = NULL;
    while (delta) {
        struct choice_delta *next = delta->next;
        take_delta(delta);
        delta = next;
    }
}

static void handle_prepared(struct loop_message *message) {
    struct api_request *request = (struct api_request *)(void *)message;
    request->is_prepared = true;
    // All that is left of it otherwise is in a few short members.
    if (!request->keeps_members) uncount_body(request);
    request->is_busy = true;
    memcpy(request->info.ignored, request->ignored, sizeof request->ignored);
    if (request->conn && request->error.status) {
        reply_error(request, &request->error);
    } else if (request->conn && (request->result.buf.len || request->result.status)) {
        reply_result(request, &request->result);
    } else if (request->conn && request->answer.stream) {
        begin_stream(request);
    }
    request->is_busy = false;
    if (request->held) {
        take_held(request);
    } else {
        maybe_free(request);
    }
}

static struct api_request *request_of(struct work *work) {
    return (struct api_request *)(void *)((char *)work - offsetof(struct api_request, work));
}

static void end_job(struct api_request *request) {
    body_forget(request);
    loop_queue_send_one(request->api->loop_queue, &request->message);
}

static void run_submit(struct work *work) {
    struct api_request *request = request_of(work);
    if (api_request_is_wanted(request)) submit_prompts(request);
    end_job(request);
}

static void run_job(struct work *work) {
    struct api_request *request = request_of(work);
    // Its client may have left while it waited for a thread.
    bool is_good = api_request_is_wanted(request) && request->endpoint->prepare(request);
    // Only endpoints that generate refuse unknown members. The others, such as /tokenize, are often
    // sent the whole body of a request to generate.
    if (is_good && request->endpoint->collect) is_good = body_check_unknown(request);
    bool submits = is_good && !request->answers_at_once;
    // Its form is compiled, which takes a second at worst.
    if (submits && !work->is_large && request->sampling.num_structured_outputs) {
        work->run = run_submit;
        work->is_large = true;
        work_pool_add(request->api->pool, work);
        return;
    }
    if (submits) submit_prompts(request);
    end_job(request);
}

struct api_request *api_request_create(struct api *api, const struct endpoint *endpoint) {
    struct api_request *request = calloc(1, sizeof *request);
    if (!request) return NULL;
    request->api = api;
    request->endpoint = endpoint;
    request->message.handle = handle_prepared;
    request->work.run = run_job;
    request->interrupt = (struct nvllm_interrupt){.is_wanted = is_cancelled, .user_data = request};
    request->sampling = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
    request->answer.num_logprobs = -1;
    request->created = api_unix_time();
    snprintf(request->id, sizeof request->id, "%s%016llx%08x", endpoint->id_prefix,
             (unsigned long long)secret_make(), (unsigned)secret_make());
    TAILQ_INSERT_TAIL(&api->requests, request, link);
    api->num_requests++;
    return request;
}

// Whether the engine would refuse any request: then none is read and tokenized first.
static bool is_full(const struct api *api, struct api_error *error) {
    struct nvllm_error fault = {0};
    enum nvllm_status status = nvllm_engine_check_open(api->engine, &fault);
    return !api_error_library(error, status, &fault, NULL);
}

void api_request_start(struct api *api, struct http_conn *conn, const struct endpoint *endpoint,
                       const struct request_info *info) {
    struct api_request *request = api_request_create(api, endpoint);
    if (!request) {
        struct api_error error = {0};
        api_error_nomem(&error);
        request_info_reply_error(api, info, conn, &error);
        return;
    }
    request->conn = conn;
    request->info = *info;
    http_conn_set_data(conn, request);
    if (endpoint->collect && is_full(api, &request->error)) {
        handle_prepared(&request->message);
        return;
    }
    request->body = http_conn_take_body(conn);
    request->body_len = request->body.len;
    request->work.is_large = request->body_len > HTTP_SMALL_BODY_BYTES;
    work_pool_add(api->pool, &request->work);
}

// The request's client gets the error now.
static void fail_now(struct api_request *request, const struct api_error *error) {
    request->is_busy = true;
    fail(request, error);
    request->is_busy = false;
    maybe_free(request);
}

void api_request_expire(struct api *api, double time) {
    struct api_error error = {0};
    api_error_set(&error, 504, "request_timeout", NULL, "the request took longer than it may");
    struct api_request *request, *next;
    // In the order of their arrival.
    for (request = TAILQ_FIRST(&api->requests); request && request->info.arrival < time;
         request = next) {
        next = TAILQ_NEXT(request, link);
        if (request->conn) fail_now(request, &error);
    }
}

void api_request_fail_all(struct api *api) {
    struct api_error error = {0};
    api_error_set(&error, 500, "engine_failed", NULL, "the engine has failed");
    struct api_request *request, *next;
    for (request = TAILQ_FIRST(&api->requests); request; request = next) {
        next = TAILQ_NEXT(request, link);
        if (request->conn) fail_now(request, &error);
    }
}

void api_request_free_all(struct api *api) {
    struct api_request *request, *next;
    for (request = TAILQ_FIRST(&api->requests); request; request = next) {
        next = TAILQ_NEXT(request, link);
        api_request_free(request);
    }
}
