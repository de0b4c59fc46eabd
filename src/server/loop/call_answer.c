/* From the engine's pieces to what the client reads: counting, streams, whole answers, failures. */
#include <string.h>

#include "server/loop/call_internal.h"

void call_fill_counts(struct call *call) {
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

// ---- answers ----

// The answer is out: the connection is somebody else's from here on.
static struct http_conn *let_go(struct call *call) {
    struct http_conn *conn = call->conn;
    call->conn = NULL;
    call->is_answered = true;
    http_conn_set_data(conn, NULL);
    call_fill_counts(call);
    return conn;
}

void call_reply_error(struct call *call, const struct api_error *error) {
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

void call_reply_result(struct call *call, const struct json_out *out) {
    if (out->status) {
        struct api_error error = {0};
        api_error_nomem(&error);
        call_reply_error(call, &error);
        return;
    }
    struct http_conn *conn = let_go(call);
    exchange_reply_json(call->api, &call->exchange, conn, 200, out);
}

// The error of a stream that cannot be written: the client sees a stream without an end.
static void cut_stream(struct call *call, int status) {
    struct http_conn *conn = let_go(call);
    exchange_log(call->api, &call->exchange, status);
    http_conn_abort(conn);
}

static void end_stream(struct call *call) {
    struct http_conn *conn = let_go(call);
    exchange_log(call->api, &call->exchange, 200);
    http_conn_stream_end(conn);
}

void call_fail(struct call *call, const struct api_error *error) {
    call_cancel(call);
    if (!call->conn) return;
    if (!call->is_streaming) {
        call_reply_error(call, error);
        return;
    }
    struct json_out *out = &call->api->scratch;
    json_out_clear(out);
    call->endpoint->write_error(call, error, out);
    if (out->status) {
        cut_stream(call, error->status);
    } else if (http_conn_stream_write(call->conn, out->buf.data, out->buf.len)) {
        end_stream(call);
    }
}

static void fail_nomem(struct call *call) {
    struct api_error error = {0};
    api_error_nomem(&error);
    call_fail(call, &error);
}

// False: the call has failed or its client is gone.
static bool write_stream(struct call *call, const struct json_out *out) {
    if (!out->status) return http_conn_stream_write(call->conn, out->buf.data, out->buf.len);
    fail_nomem(call);
    return false;
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
    call_reply_result(call, out);
}

// ---- pieces ----

static void count_piece(struct choice *choice, const struct piece *piece) {
    struct metrics *metrics = choice->call->api->metrics;
    if (!choice->num_generated_tokens && piece->num_generated_tokens) {
        bool is_first = choice == choice->prompt->choices; // the others share its prompt
        metrics_first_token(metrics, is_first ? piece->num_prompt_tokens : 0,
                            is_first ? piece->num_cached_tokens : 0, &piece->times);
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
    // Without memory for it the request fails: take_piece.
    if (piece->stop_string) choice->stop_string = strdup(piece->stop_string);
    choice->call->num_finished++;
    metrics_finished(metrics, piece->finish, piece->num_prompt_tokens, piece->num_generated_tokens,
                     choice->prompt->sampling.max_tokens,
                     choice == choice->prompt->choices ? choice->prompt->sampling.n : 0,
                     piece->num_preemptions, &piece->times);
}

// max_tokens is 0: of the one token that the engine had to generate nothing is to be seen.
static void drop_token(struct choice *choice, struct piece *piece) {
    piece->text_len = piece->num_logprobs = 0;
    piece->token_id = -1;
    choice->num_generated_tokens = 0;
    if (piece->finish == NVLLM_FINISH_STOP) choice->finish = NVLLM_FINISH_LENGTH;
}

static void collect_token(struct choice *choice, const struct piece *piece) {
    struct json_out *ids = &choice->token_ids;
    if (!choice->call->answer.token_ids || piece->token_id < 0) return;
    json_out_rawf(ids, ids->buf.len ? ",%d" : "%d", piece->token_id);
}

static void take_prompt_logprobs(struct prompt *prompt, struct piece *piece) {
    if (!piece->prompt_logprobs) return;
    prompt->logprobs = piece->prompt_logprobs;
    piece->prompt_logprobs = NULL;
}

void call_begin_stream(struct call *call) {
    call->is_streaming = true;
    exchange_stream_begin(&call->exchange, call->conn);
}

static void write_piece(struct choice *choice, const struct piece *piece) {
    struct call *call = choice->call;
    struct json_out *out = &call->api->scratch;
    json_out_clear(out);
    if (!call->has_written && call->endpoint->write_begin) call->endpoint->write_begin(call, out);
    call->has_written = true;
    call->endpoint->write_piece(choice, piece, out);
    write_stream(call, out);
}

static void fail_piece(struct call *call, const struct piece *piece) {
    struct api_error error = {0};
    if (piece->has_no_memory) {
        fail_nomem(call);
        return;
    }
    (void)piece->error; // the engine's own words may name what clients are not to see
    api_error_set(&error, 500, "engine_failed", NULL, "the engine could not go on with this");
    call_fail(call, &error);
}

void call_take_piece(struct piece *piece) {
    struct choice *choice = piece->choice;
    struct call *call = choice->call;
    call->is_busy = true;
    count_piece(choice, piece);
    take_prompt_logprobs(choice->prompt, piece);
    if (call->answer.generates_nothing) drop_token(choice, piece);
    collect_token(choice, piece);
    bool lacks_stop = piece->stop_string && !choice->stop_string;
    if (call->conn && lacks_stop) {
        fail_nomem(call);
    } else if (call->conn && piece->finish == NVLLM_FINISH_ERROR) {
        fail_piece(call, piece);
    } else if (call->conn && call->answer.stream) {
        write_piece(choice, piece);
    } else if (call->conn && !call->endpoint->collect(choice, piece)) {
        fail_nomem(call);
    }
    bool is_last = piece->finish && call->num_finished == call->num_choices;
    call_free_piece(piece);
    if (is_last && call->conn) finish_whole(call);
    call->is_busy = false;
    call_maybe_free(call);
}
