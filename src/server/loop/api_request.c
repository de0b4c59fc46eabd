/* The life of an API request: made from an HTTP request, prepared on a thread of the pool, and
 * freed when nobody has it any more. */
#include "server/loop/api_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/secret.h"
#include "server/loop/api_request_internal.h"
#include "server/loop/body.h"

// ---- the end ----

static void free_held(struct api_request *request) {
    while (request->held) {
        struct choice_delta *next = request->held->next;
        choice_delta_free(request->held);
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

void api_request_maybe_free(struct api_request *request) {
    uint32_t num_outputs = atomic_load(&request->num_added) * (uint32_t)request->sampling.n;
    bool is_out = request->is_prepared && request->num_finished == num_outputs;
    if (is_out && !request->conn && !request->is_busy) api_request_free(request);
}

static int is_cancelled(void *user_data) {
    struct api_request *request = user_data;
    return atomic_load(&request->is_cancelled);
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

void api_request_abandon(struct api_request *request) {
    request->conn = NULL;
    api_request_cancel(request);
    if (!request->is_answered) {
        api_request_fill_counts(request);
        request_info_log(request->api, &request->info, 499);
    }
    api_request_maybe_free(request);
}

// ---- the job, on the pool ----

static struct api_request *request_of(struct work *work) {
    return (struct api_request *)(void *)((char *)work - offsetof(struct api_request, work));
}

static void end_job(struct api_request *request) {
    body_forget(request);
    loop_queue_send_one(request->api->loop_queue, &request->message);
}

static void run_submit(struct work *work) {
    struct api_request *request = request_of(work);
    if (api_request_is_wanted(request)) api_request_submit(request);
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
    if (submits) api_request_submit(request);
    end_job(request);
}

// ---- the end of the job, on the loop ----

static void take_held(struct api_request *request) {
    // The last delta may free the request, but nothing before it does.
    struct choice_delta *delta = request->held;
    request->held = NULL;
    while (delta) {
        struct choice_delta *next = delta->next;
        api_request_take_delta(delta);
        delta = next;
    }
}

static void handle_prepared(struct loop_message *message) {
    struct api_request *request = (struct api_request *)(void *)message;
    request->is_prepared = true;
    // Otherwise a few short members are all that is left of the body.
    if (!request->keeps_members) uncount_body(request);
    request->is_busy = true;
    memcpy(request->info.ignored, request->ignored, sizeof request->ignored);
    if (request->conn && request->error.status) {
        api_request_reply_error(request, &request->error);
    } else if (request->conn && (request->result.buf.len || request->result.status)) {
        api_request_reply_result(request, &request->result);
    } else if (request->conn && request->answer.stream) {
        api_request_begin_stream(request);
    }
    request->is_busy = false;
    if (request->held) {
        take_held(request);
    } else {
        api_request_maybe_free(request);
    }
}

// ---- the beginning ----

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

// ---- all requests ----

// The request's client gets the error now.
static void fail_now(struct api_request *request, const struct api_error *error) {
    request->is_busy = true;
    api_request_fail(request, error);
    request->is_busy = false;
    api_request_maybe_free(request);
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
