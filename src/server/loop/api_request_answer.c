/* From the engine's pieces to what the client reads: counting, streams, whole answers, failures. */
#include <string.h>

#include "server/loop/api_request_internal.h"

void api_request_fill_counts(struct api_request *request) {
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

// ---- answers ----

// The answer is out: the connection is somebody else's from here on.
static struct http_conn *let_go(struct api_request *request) {
    struct http_conn *conn = request->conn;
    request->conn = NULL;
    request->is_answered = true;
    http_conn_set_data(conn, NULL);
    api_request_fill_counts(request);
    return conn;
}

void api_request_reply_error(struct api_request *request, const struct api_error *error) {
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

void api_request_reply_result(struct api_request *request, const struct json_out *out) {
    if (out->status) {
        struct api_error error = {0};
        api_error_nomem(&error);
        api_request_reply_error(request, &error);
        return;
    }
    struct http_conn *conn = let_go(request);
    request_info_reply_json(request->api, &request->info, conn, 200, out);
}

// The error of a stream that cannot be written: the client sees a stream without an end.
static void cut_stream(struct api_request *request, int status) {
    struct http_conn *conn = let_go(request);
    request_info_log(request->api, &request->info, status);
    http_conn_abort(conn);
}

static void end_stream(struct api_request *request) {
    struct http_conn *conn = let_go(request);
    request_info_log(request->api, &request->info, 200);
    http_conn_stream_end(conn);
}

void api_request_fail(struct api_request *request, const struct api_error *error) {
    api_request_cancel(request);
    if (!request->conn) return;
    if (!request->is_streaming) {
        api_request_reply_error(request, error);
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
    api_request_fail(request, &error);
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
    api_request_reply_result(request, out);
}

// ---- pieces ----

static void count_piece(struct choice *choice, const struct piece *piece) {
    struct metrics *metrics = choice->request->api->metrics;
    if (!choice->num_generated_tokens && piece->num_tokens) {
        bool is_first = choice == choice->prompt->choices; // the others share its prompt
        metrics_first_tokens(metrics, piece->num_tokens, is_first ? piece->num_prompt_tokens : 0,
                             is_first ? piece->num_cached_tokens : 0, &piece->times);
    } else if (piece->num_tokens) {
        metrics_next_tokens(metrics, piece->num_tokens,
                            piece->times.last_token - choice->times.last_token);
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
    choice->request->num_finished++;
    metrics_finished(metrics, piece->finish, piece->num_prompt_tokens, piece->num_generated_tokens,
                     choice->prompt->sampling.max_tokens,
                     choice == choice->prompt->choices ? choice->prompt->sampling.n : 0,
                     piece->num_preemptions, &piece->times);
}

// max_tokens is 0: of the one token that the engine had to generate nothing is to be seen.
static void drop_token(struct choice *choice, struct piece *piece) {
    piece->text_len = 0;
    piece->num_tokens = 0;
    choice->num_generated_tokens = 0;
    if (piece->finish == NVLLM_FINISH_STOP) choice->finish = NVLLM_FINISH_LENGTH;
}

static void collect_tokens(struct choice *choice, const struct piece *piece) {
    struct json_out *ids = &choice->token_ids;
    if (!choice->request->answer.token_ids) return;
    for (uint32_t i = 0; i < piece->num_tokens; i++) {
        json_out_rawf(ids, ids->buf.len ? ",%d" : "%d", piece->token_ids[i]);
    }
}

static void take_prompt_logprobs(struct prompt *prompt, struct piece *piece) {
    if (!piece->prompt_logprobs) return;
    prompt->logprobs = piece->prompt_logprobs;
    piece->prompt_logprobs = NULL;
}

void api_request_begin_stream(struct api_request *request) {
    request->is_streaming = true;
    request_info_stream_begin(&request->info, request->conn);
}

static void write_piece(struct choice *choice, const struct piece *piece) {
    struct api_request *request = choice->request;
    struct json_out *out = &request->api->scratch;
    json_out_clear(out);
    if (!request->has_written && request->endpoint->write_begin)
        request->endpoint->write_begin(request, out);
    request->has_written = true;
    request->endpoint->write_piece(choice, piece, out);
    write_stream(request, out);
}

static void fail_piece(struct api_request *request, const struct piece *piece) {
    struct api_error error = {0};
    if (piece->has_no_memory) {
        fail_nomem(request);
        return;
    }
    (void)piece->error; // the engine's own words may name what clients are not to see
    api_error_set(&error, 500, "engine_failed", NULL, "the engine could not go on with this");
    api_request_fail(request, &error);
}

void api_request_take_piece(struct piece *piece) {
    struct choice *choice = piece->choice;
    struct api_request *request = choice->request;
    request->is_busy = true;
    count_piece(choice, piece);
    take_prompt_logprobs(choice->prompt, piece);
    if (request->answer.generates_nothing) drop_token(choice, piece);
    collect_tokens(choice, piece);
    bool lacks_stop = piece->stop_string && !choice->stop_string;
    if (request->conn && lacks_stop) {
        fail_nomem(request);
    } else if (request->conn && piece->finish == NVLLM_FINISH_ERROR) {
        fail_piece(request, piece);
    } else if (request->conn && request->answer.stream) {
        write_piece(choice, piece);
    } else if (request->conn && !request->endpoint->collect(choice, piece)) {
        fail_nomem(request);
    }
    bool is_last = piece->finish && request->num_finished == request->num_choices;
    api_request_free_piece(piece);
    if (is_last && request->conn) finish_whole(request);
    request->is_busy = false;
    api_request_maybe_free(request);
}
