#include "server/loop/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/secret.h"
#include "server/loop/body.h"
#include "server/loop/call_internal.h"
#include "server/loop/submit.h"
#include "server/loop/unknown_members.h"

// ---- birth and death ----

void call_free_piece(struct piece *piece) {
    if (piece == &piece->choice->last_piece) return;
    free(piece->prompt_logprobs);
    free(piece);
}

static void free_held(struct call *call) {
    while (call->held) {
        struct piece *next = call->held->next;
        call_free_piece(call->held);
        call->held = next;
    }
}

static void free_choice(struct choice *choice) {
    chat_split_destroy(choice->split);
    chat_blocks_fini(&choice->blocks);
    buf_fini(&choice->text);
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

// What the body was read into counts, too.
static void uncount_body(struct call *call) {
    if (call->api->http) http_server_body_freed(call->api->http, call->body_len);
    call->body_len = 0;
}

void call_free(struct call *call) {
    struct api *api = call->api;
    uncount_body(call);
    free_held(call);
    for (uint32_t i = 0; i < call->num_choices; i++) free_choice(&call->choices[i]);
    free(call->choices);
    for (uint32_t i = 0; i < call->num_prompts; i++) free_prompt(&call->prompts[i]);
    free(call->prompts);
    json_decref(call->root);
    json_decref(call->chat.last_role);
    buf_fini(&call->body);
    buf_fini(&call->chat.echo);
    for (uint32_t i = 0; i < call->chat.num_call_prefixes; i++) free(call->chat.call_prefixes[i]);
    free(call->chat.call_prefixes);
    json_out_fini(&call->result);
    nvllm_sampling_params_fini(&call->sampling);
    TAILQ_REMOVE(&api->calls, call, link);
    free(call);
    if (--api->num_calls == 0) api->on_calls_ended(api);
}

void call_maybe_free(struct call *call) {
    uint32_t num_outputs = atomic_load(&call->num_added) * (uint32_t)call->sampling.n;
    bool is_out = call->is_prepared && call->num_finished == num_outputs;
    if (is_out && !call->conn && !call->is_busy) call_free(call);
}

static int is_cancelled(void *user_data) {
    struct call *call = user_data;
    return atomic_load(&call->is_cancelled);
}

bool call_make_prompts(struct call *call, uint32_t count) {
    uint32_t n = (uint32_t)call->sampling.n;
    call->prompts = calloc(count, sizeof *call->prompts);
    call->choices = call->prompts ? calloc((size_t)count * n, sizeof *call->choices) : NULL;
    if (!call->choices) return api_error_nomem(&call->error);
    call->num_prompts = count;
    call->num_choices = count * n;
    for (uint32_t i = 0; i < count; i++) {
        struct prompt *prompt = &call->prompts[i];
        prompt->call = call;
        prompt->choices = &call->choices[i * n];
        prompt->sampling = call->sampling;
        prompt->sampling.owned = NULL;
    }
    for (uint32_t i = 0; i < call->num_choices; i++) {
        struct choice *choice = &call->choices[i];
        choice->call = call;
        choice->prompt = &call->prompts[i / n];
        choice->index = i;
        choice->stop_token_id = -1;
    }
    return true;
}

void call_cancel(struct call *call) {
    // The pool stores a request's id, then asks is_cancelled: one of the two sides sees the other.
    atomic_store(&call->is_cancelled, true);
    uint32_t num_added = atomic_load(&call->num_added);
    for (uint32_t i = 0; i < num_added; i++) {
        nvllm_engine_abort(call->api->engine, call->prompts[i].engine_id);
    }
}

bool call_is_wanted(struct call *call) {
    if (!atomic_load(&call->is_cancelled)) return true;
    return api_error_set(&call->error, 503, "cancelled", NULL, "the request was cancelled");
}

void call_abandon(struct call *call) {
    call->conn = NULL;
    call_cancel(call);
    if (!call->is_answered) {
        call_fill_counts(call);
        exchange_log(call->api, &call->exchange, 499);
    }
    call_maybe_free(call);
}

void call_handle_piece(struct mail *mail) {
    struct piece *piece = (struct piece *)(void *)mail;
    struct call *call = piece->choice->call;
    if (call->is_prepared) {
        call_take_piece(piece);
        return;
    }
    piece->next = NULL;
    if (call->held) {
        call->last_held->next = piece;
    } else {
        call->held = piece;
    }
    call->last_held = piece;
}

// ---- the job ----

static void take_held(struct call *call) {
    // The last piece may free the call, but nothing before it does.
    struct piece *piece = call->held;
    call->held = NULL;
    while (piece) {
        struct piece *next = piece->next;
        call_take_piece(piece);
        piece = next;
    }
}

static void handle_prepared(struct mail *mail) {
    struct call *call = (struct call *)(void *)mail;
    call->is_prepared = true;
    // All that is left of it otherwise is in a few short members.
    if (!call->keeps_members) uncount_body(call);
    call->is_busy = true;
    memcpy(call->exchange.ignored, call->ignored, sizeof call->ignored);
    if (call->conn && call->error.status) {
        call_reply_error(call, &call->error);
    } else if (call->conn && (call->result.buf.len || call->result.status)) {
        call_reply_result(call, &call->result);
    } else if (call->conn && call->answer.stream) {
        call_begin_stream(call);
    }
    call->is_busy = false;
    if (call->held) {
        take_held(call);
    } else {
        call_maybe_free(call);
    }
}

static void run_job(struct work *work) {
    struct call *call = (struct call *)(void *)((char *)work - offsetof(struct call, work));
    // Its client may have left while it waited for a thread.
    bool is_good = call_is_wanted(call) && call->endpoint->prepare(call);
    // What does not generate is often given a whole request of what does: nothing is unknown there.
    if (is_good && call->endpoint->collect) is_good = unknown_members_check(call);
    if (is_good && !call->answers_at_once) submit_prompts(call);
    body_forget(call);
    mailbox_send_one(call->api->mailbox, &call->mail);
}

struct call *call_create(struct api *api, const struct endpoint *endpoint) {
    struct call *call = calloc(1, sizeof *call);
    if (!call) return NULL;
    call->api = api;
    call->endpoint = endpoint;
    call->mail.handle = handle_prepared;
    call->work.run = run_job;
    call->interrupt = (struct nvllm_interrupt){.is_wanted = is_cancelled, .user_data = call};
    call->sampling = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
    call->answer.num_logprobs = -1;
    call->created = api_unix_time();
    snprintf(call->id, sizeof call->id, "%s%016llx%08x", endpoint->id_prefix,
             (unsigned long long)secret_make(), (unsigned)secret_make());
    TAILQ_INSERT_TAIL(&api->calls, call, link);
    api->num_calls++;
    return call;
}

// Whether the engine would refuse any request: then none is read and tokenized first.
static bool is_full(const struct api *api, struct api_error *error) {
    struct nvllm_error fault = {0};
    enum nvllm_status status = nvllm_engine_check_open(api->engine, &fault);
    return !api_error_library(error, status, &fault, NULL);
}

void call_start(struct api *api, struct http_conn *conn, const struct endpoint *endpoint,
                const struct exchange *exchange) {
    struct call *call = call_create(api, endpoint);
    if (!call) {
        struct api_error error = {0};
        api_error_nomem(&error);
        exchange_reply_error(api, exchange, conn, &error);
        return;
    }
    call->conn = conn;
    call->exchange = *exchange;
    http_conn_set_data(conn, call);
    if (endpoint->collect && is_full(api, &call->error)) {
        handle_prepared(&call->mail);
        return;
    }
    call->body = http_conn_take_body(conn);
    call->body_len = call->body.len;
    call->work.is_large = call->body_len > HTTP_SMALL_BODY_BYTES;
    work_pool_add(api->pool, &call->work);
}

// The call's client gets the error now.
static void fail_now(struct call *call, const struct api_error *error) {
    call->is_busy = true;
    call_fail(call, error);
    call->is_busy = false;
    call_maybe_free(call);
}

void call_expire(struct api *api, double time) {
    struct api_error error = {0};
    api_error_set(&error, 504, "request_timeout", NULL, "the request took longer than it may");
    struct call *call, *next;
    // In the order of their arrival.
    for (call = TAILQ_FIRST(&api->calls); call && call->exchange.arrival < time; call = next) {
        next = TAILQ_NEXT(call, link);
        if (call->conn) fail_now(call, &error);
    }
}

void call_fail_all(struct api *api) {
    struct api_error error = {0};
    api_error_set(&error, 500, "engine_failed", NULL, "the engine has failed");
    struct call *call, *next;
    for (call = TAILQ_FIRST(&api->calls); call; call = next) {
        next = TAILQ_NEXT(call, link);
        if (call->conn) fail_now(call, &error);
    }
}

void call_free_all(struct api *api) {
    struct call *call, *next;
    for (call = TAILQ_FIRST(&api->calls); call; call = next) {
        next = TAILQ_NEXT(call, link);
        call_free(call);
    }
}

// ---- sums ----

uint32_t call_num_prompt_tokens(const struct call *call) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < call->num_prompts; i++) sum += (uint32_t)call->prompts[i].num_ids;
    return sum;
}

uint32_t call_num_generated_tokens(const struct call *call) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < call->num_choices; i++) sum += call->choices[i].num_generated_tokens;
    return sum;
}

// The outputs of a prompt share it, and what of it was cached.
uint32_t call_num_cached_tokens(const struct call *call) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < call->num_prompts; i++) {
        sum += call->prompts[i].choices[0].num_cached_tokens;
    }
    return sum;
}

uint32_t call_num_reasoning_tokens(const struct call *call) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < call->num_choices; i++) sum += call->choices[i].num_reasoning_tokens;
    return sum;
}
