#include "server/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/secret.h"
#include "server/submit.h"

// ---- birth and death ----

static void free_held(struct call *call) {
    while (call->held) {
        struct piece *next = call->held->next;
        free(call->held);
        call->held = next;
    }
}

static void free_choice(struct choice *choice) {
    if (choice->call->endpoint->free_choice) choice->call->endpoint->free_choice(choice);
    free(choice->prompt_ids);
    buf_fini(&choice->text);
    json_out_fini(&choice->logprobs);
    for (size_t i = 0; i < ARRAY_LEN(choice->logprobs_more); i++) {
        json_out_fini(&choice->logprobs_more[i]);
    }
    free(choice->stop_string);
}

static void free_call(struct call *call) {
    struct api *api = call->api;
    for (uint32_t i = 0; i < call->num_choices; i++) free_choice(&call->choices[i]);
    free(call->choices);
    free_held(call);
    json_decref(call->root);
    buf_fini(&call->body);
    json_out_fini(&call->result);
    nvllm_sampling_params_fini(&call->sampling);
    free(call->state);
    TAILQ_REMOVE(&api->calls, call, link);
    free(call);
    if (--api->num_calls == 0) api->on_calls_ended(api);
}

// Frees the call once nobody has it any more: not the pool, not the engine, not the client.
static void maybe_free(struct call *call) {
    bool is_out = call->is_prepared && call->num_finished == atomic_load(&call->num_added);
    if (is_out && !call->conn && !call->is_busy) free_call(call);
}

static int is_cancelled(void *user_data) {
    struct call *call = user_data;
    return atomic_load(&call->is_cancelled);
}

bool call_make_choices(struct call *call, uint32_t count) {
    call->choices = calloc(count, sizeof *call->choices);
    if (!call->choices) return api_error_nomem(&call->error);
    call->num_choices = count;
    for (uint32_t i = 0; i < count; i++) {
        struct choice *choice = &call->choices[i];
        choice->call = call;
        choice->index = i;
        choice->stop_token_id = -1;
        choice->sampling = call->sampling;
        choice->sampling.owned = NULL;
    }
    return true;
}

void call_cancel(struct call *call) {
    // The pool stores a request's id, then asks is_cancelled: one of the two sides sees the other.
    atomic_store(&call->is_cancelled, true);
    uint32_t num_added = atomic_load(&call->num_added);
    for (uint32_t i = 0; i < num_added; i++) {
        nvllm_engine_abort(call->api->engine, call->choices[i].engine_id);
    }
}

static void fill_counts(struct call *call) {
    struct exchange *exchange = &call->exchange;
    // Until then choices are the pool's.
    if (!call->is_prepared || call->answers_at_once || !call->num_choices) return;
    exchange->has_counts = true;
    exchange->num_prompt_tokens = call_num_prompt_tokens(call);
    exchange->num_generated_tokens = call_num_generated_tokens(call);
    exchange->num_cached_tokens = call_num_cached_tokens(call);
    exchange->times = call->choices[0].times;
    enum nvllm_finish_reason finish = call->choices[call->num_choices - 1].finish;
    exchange->finish = finish ? nvllm_finish_reason_name(finish) : NULL;
}

void call_abandon(struct call *call) {
    call->conn = NULL;
    call_cancel(call);
    if (!call->is_answered) {
        fill_counts(call);
        exchange_log(call->api, &call->exchange, 499);
    }
    maybe_free(call);
}

// ---- answers ----

// The answer is out: the connection is somebody else's from here on.
static struct http_conn *let_go(struct call *call) {
    struct http_conn *conn = call->conn;
    call->conn = NULL;
    call->is_answered = true;
    http_conn_set_data(conn, NULL);
    fill_counts(call);
    return conn;
}

static void reply_error(struct call *call, const struct api_error *error) {
    struct http_conn *conn = let_go(call);
    struct json_out *out = &call->api->scratch;
    json_out_clear(out);
    if (call->endpoint->write_refusal) {
        call->endpoint->write_refusal(error, out);
    } else {
        api_error_write(out, error);
    }
    exchange_reply_refusal(call->api, &call->exchange, conn, error, out);
}

static void reply_result(struct call *call, const struct json_out *out) {
    if (out->status) {
        struct api_error error = {0};
        api_error_nomem(&error);
        reply_error(call, &error);
        return;
    }
    struct http_conn *conn = let_go(call);
    exchange_reply_json(call->api, &call->exchange, conn, 200, out);
}

// False: the client is gone, and so may be the call.
static bool write_stream(struct call *call, const struct json_out *out) {
    CHECK(!out->status, "out of memory for a part of an answer: status=%d", out->status);
    return http_conn_stream_write(call->conn, out->buf.data, out->buf.len);
}

static void end_stream(struct call *call) {
    struct http_conn *conn = let_go(call);
    exchange_log(call->api, &call->exchange, 200);
    http_conn_stream_end(conn);
}

// The call fails after some of it has run; what still runs is aborted.
static void fail(struct call *call, const struct api_error *error) {
    call_cancel(call);
    if (!call->conn) return;
    if (!call->is_streaming) {
        reply_error(call, error);
        return;
    }
    struct json_out *out = &call->api->scratch;
    json_out_clear(out);
    call->endpoint->write_error(call, error, out);
    if (write_stream(call, out)) end_stream(call);
}

static void finish_whole(struct call *call) {
    struct json_out *out = &call->api->scratch;
    json_out_clear(out);
    if (call->is_streaming) {
        call->endpoint->write_end(call, out);
        if (write_stream(call, out)) end_stream(call);
        return;
    }
    call->endpoint->write_whole(call, out);
    reply_result(call, out);
}

// ---- pieces ----

static void count_piece(struct choice *choice, const struct piece *piece) {
    struct metrics *metrics = choice->call->api->metrics;
    if (!choice->num_generated_tokens && piece->num_generated_tokens) {
        metrics_first_token(metrics, piece->num_prompt_tokens, piece->num_cached_tokens,
                            &piece->times);
    } else if (piece->num_generated_tokens > choice->num_generated_tokens) {
        metrics_next_token(metrics, piece->times.last_token - choice->times.last_token);
    }
    choice->num_prompt_tokens = piece->num_prompt_tokens;
    choice->num_cached_tokens = piece->num_cached_tokens;
    choice->num_generated_tokens = piece->num_generated_tokens;
    choice->times = piece->times;
    if (!piece->finish) return;
    choice->finish = piece->finish;
    choice->stop_token_id = piece->stop_token_id;
    if (piece->stop_string) choice->stop_string = strdup(piece->stop_string);
    choice->call->num_finished++;
    metrics_finished(metrics, piece->finish, piece->num_prompt_tokens, piece->num_generated_tokens,
                     choice->sampling.max_tokens, &piece->times);
}

static bool begin_stream(struct call *call) {
    if (call->is_streaming) return true;
    call->is_streaming = true;
    return exchange_stream_begin(&call->exchange, call->conn);
}

static void write_piece(struct choice *choice, const struct piece *piece) {
    struct call *call = choice->call;
    struct json_out *out = &call->api->scratch;
    json_out_clear(out);
    bool is_first = !call->is_streaming;
    if (!begin_stream(call)) return;
    if (is_first && call->endpoint->write_begin) call->endpoint->write_begin(call, out);
    call->endpoint->write_piece(choice, piece, out);
    write_stream(call, out);
}

static void fail_piece(struct call *call, const struct piece *piece) {
    struct api_error error = {0};
    (void)piece->error; // the engine's own words may name what clients are not to see
    api_error_set(&error, 500, "engine_failed", NULL, "the engine could not go on with this");
    fail(call, &error);
}

static void take_piece(struct piece *piece) {
    struct choice *choice = piece->choice;
    struct call *call = choice->call;
    call->is_busy = true;
    count_piece(choice, piece);
    if (call->conn && piece->finish == NVLLM_FINISH_ERROR) {
        fail_piece(call, piece);
    } else if (call->conn && call->answer.stream) {
        write_piece(choice, piece);
    } else if (call->conn) {
        if (piece->text_len && buf_append(&choice->text, piece->text, piece->text_len, NULL)) {
            struct api_error error = {0};
            api_error_nomem(&error);
            fail(call, &error);
        } else if (call->endpoint->collect) {
            call->endpoint->collect(choice, piece);
        }
    }
    bool is_last = piece->finish && call->num_finished == call->num_choices;
    free(piece);
    if (is_last && call->conn) finish_whole(call);
    call->is_busy = false;
    maybe_free(call);
}

void call_handle_piece(struct mail *mail) {
    struct piece *piece = (struct piece *)(void *)mail;
    struct call *call = piece->choice->call;
    if (call->is_prepared) {
        take_piece(piece);
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
        take_piece(piece);
        piece = next;
    }
}

static void handle_prepared(struct mail *mail) {
    struct call *call = (struct call *)(void *)mail;
    call->is_prepared = true;
    call->is_busy = true;
    if (call->conn && call->error.status) {
        reply_error(call, &call->error);
    } else if (call->conn && (call->result.buf.len || call->result.status)) {
        reply_result(call, &call->result);
    }
    call->is_busy = false;
    if (call->held) {
        take_held(call);
    } else {
        maybe_free(call);
    }
}

static void run_job(struct work *work) {
    struct call *call = (struct call *)(void *)((char *)work - offsetof(struct call, work));
    bool is_good = call->endpoint->prepare(call);
    if (is_good && !call->answers_at_once) submit_choices(call);
    mailbox_send_one(call->api->mailbox, &call->mail);
}

void call_start(struct api *api, struct http_conn *conn, const struct endpoint *endpoint,
                const struct exchange *exchange) {
    struct call *call = calloc(1, sizeof *call);
    if (!call) {
        struct api_error error = {0};
        api_error_nomem(&error);
        exchange_reply_error(api, exchange, conn, &error);
        return;
    }
    call->api = api;
    call->endpoint = endpoint;
    call->conn = conn;
    call->exchange = *exchange;
    call->mail.handle = handle_prepared;
    call->work.run = run_job;
    call->interrupt = (struct nvllm_interrupt){.is_wanted = is_cancelled, .user_data = call};
    call->sampling = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
    call->answer.num_logprobs = -1;
    call->created = api_unix_time();
    snprintf(call->id, sizeof call->id, "%s%016llx%08x", endpoint->id_prefix,
             (unsigned long long)secret_make(), (unsigned)secret_make());
    call->body = http_conn_take_body(conn);
    http_conn_set_data(conn, call);
    TAILQ_INSERT_TAIL(&api->calls, call, link);
    api->num_calls++;
    work_pool_add(api->pool, &call->work);
}

void call_fail_all(struct api *api) {
    struct api_error error = {0};
    api_error_set(&error, 500, "engine_failed", NULL, "the engine has failed");
    struct call *call, *next;
    for (call = TAILQ_FIRST(&api->calls); call; call = next) {
        next = TAILQ_NEXT(call, link);
        if (!call->conn) continue;
        call->is_busy = true;
        fail(call, &error);
        call->is_busy = false;
    }
}

void call_free_all(struct api *api) {
    struct call *call, *next;
    for (call = TAILQ_FIRST(&api->calls); call; call = next) {
        next = TAILQ_NEXT(call, link);
        free_call(call);
    }
}

// ---- sums ----

uint32_t call_num_prompt_tokens(const struct call *call) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < call->num_choices; i++) {
        sum += (uint32_t)call->choices[i].num_prompt_ids;
    }
    return sum;
}

uint32_t call_num_generated_tokens(const struct call *call) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < call->num_choices; i++) sum += call->choices[i].num_generated_tokens;
    return sum;
}

uint32_t call_num_cached_tokens(const struct call *call) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < call->num_choices; i++) sum += call->choices[i].num_cached_tokens;
    return sum;
}
