/* The answer to an API request, on the loop's thread. Deltas are counted, then written to the
 * stream or kept for an answer at the end. A request that fails gets its error here too. */
#include <stdlib.h>
#include <string.h>

#include "server/loop/api_request_internal.h"

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

// ---- ends ----

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
    http_conn_close(conn);
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

// ---- writing ----

void api_request_begin_stream(struct api_request *request) {
    request->is_streaming = true;
    request_info_stream_begin(&request->info, request->conn);
}

// False: the request has failed or its client is gone.
static bool write_stream(struct api_request *request, const struct json_out *out) {
    if (!out->status) return http_conn_stream_write(request->conn, out->buf.data, out->buf.len);
    fail_nomem(request);
    return false;
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
    api_request_fail(request, &error);
}

void api_request_take_delta(struct choice_delta *delta) {
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
    choice_delta_free(delta);
    if (is_last && request->conn) finish_whole(request);
    request->is_busy = false;
    api_request_maybe_free(request);
}

void api_request_handle_delta(struct loop_message *message) {
    struct choice_delta *delta = (struct choice_delta *)(void *)message;
    struct api_request *request = delta->choice->request;
    if (request->is_prepared) {
        api_request_take_delta(delta);
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
