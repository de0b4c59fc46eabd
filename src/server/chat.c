/* POST /v1/chat/completions. */
#include "server/answer.h"
#include "server/body.h"
#include "server/chat_body.h"
#include "server/endpoints.h"
#include "server/logprobs.h"
#include "server/submit.h"

static bool read_logprobs(struct call *call) {
    bool logprobs = false;
    int64_t num_top = -1;
    // -1: all that there may be.
    if (!body_bool(call, "logprobs", &logprobs) ||
        !body_int(call, "top_logprobs", -1, NVLLM_LOGPROBS_MAX, &num_top)) {
        return false;
    }
    bool has_top = body_get(call, "top_logprobs") != NULL;
    if (has_top && num_top < 0) num_top = NVLLM_LOGPROBS_MAX;
    if (has_top && num_top > 0 && !logprobs) {
        return api_error_invalid(&call->error, "top_logprobs",
                                 "top_logprobs is given, but logprobs is not true");
    }
    if (logprobs) call->answer.num_logprobs = has_top ? (int32_t)num_top : 0;
    call->sampling.logprobs = call->answer.num_logprobs;
    return true;
}

// max_completion_tokens, else max_tokens, else what the context has left.
static bool read_max_tokens(struct call *call, int64_t *max_tokens) {
    *max_tokens = -1;
    return body_int(call, "max_tokens", 1, INT32_MAX, max_tokens) &&
           body_int(call, "max_completion_tokens", 1, INT32_MAX, max_tokens);
}

static bool prepare(struct call *call) {
    int64_t max_tokens;
    if (!body_parse(call) || !body_generation(call) || !read_logprobs(call) ||
        !read_max_tokens(call, &max_tokens) || !chat_body_check(call) ||
        !call_make_choices(call, 1)) {
        return false;
    }
    struct choice *choice = &call->choices[0];
    return chat_body_encode(call, choice) && submit_fit(call, choice, max_tokens, "messages");
}

// ---- stream ----

// One chunk with one choice; `delta` is JSON, `piece_ends` tells whether it is the choice's last.
static void begin_chunk(struct choice *choice, struct json_out *out) {
    answer_begin_event(out);
    answer_write_head(out, choice->call, "chat.completion.chunk");
    json_out_rawf(out, ",\"choices\":[{\"index\":%u,\"delta\":{", choice->index);
}

static void end_chunk(struct choice *choice, bool is_last, struct json_out *out) {
    json_out_raw(out, "},\"logprobs\":");
    logprobs_write_chat(choice, out);
    json_out_raw(out, ",");
    if (is_last) {
        answer_write_finish(out, choice, answer_finish_name(choice));
    } else {
        json_out_raw(out, "\"finish_reason\":null");
    }
    json_out_raw(out, "}]");
    answer_end_chunk(out, choice->call);
}

static void write_role(struct choice *choice, struct json_out *out) {
    int32_t num_logprobs = choice->call->answer.num_logprobs;
    begin_chunk(choice, out);
    json_out_raw(out, "\"role\":\"assistant\",\"content\":\"\"");
    choice->call->answer.num_logprobs = -1; // they belong to the text that follows
    end_chunk(choice, false, out);
    choice->call->answer.num_logprobs = num_logprobs;
}

// Text of the answer: here parsers of reasoning and of tool calls divide it.
static void write_text(struct choice *choice, const char *text, size_t len, struct json_out *out) {
    if (!len) return;
    begin_chunk(choice, out);
    json_out_raw(out, "\"content\":");
    json_out_string(out, text, len);
    end_chunk(choice, false, out);
}

static void write_piece(struct choice *choice, const struct piece *piece, struct json_out *out) {
    if (!choice->has_begun) {
        choice->has_begun = true;
        write_role(choice, out);
    }
    logprobs_collect_chat(choice, piece);
    write_text(choice, piece->text, piece->text_len, out);
    if (!piece->finish) return;
    begin_chunk(choice, out);
    end_chunk(choice, true, out);
}

static void write_end(struct call *call, struct json_out *out) {
    answer_write_stream_end(call, "chat.completion.chunk", out);
}

// ---- whole ----

// The members of the message: here parsers of reasoning and of tool calls divide the text.
static void write_message(struct choice *choice, struct json_out *out) {
    json_out_raw(out, "{\"role\":\"assistant\",\"content\":");
    json_out_string(out, choice->text.data, choice->text.len);
    json_out_raw(out, ",\"refusal\":null}");
}

static void write_whole(struct call *call, struct json_out *out) {
    answer_write_head(out, call, "chat.completion");
    json_out_raw(out, ",\"choices\":[");
    for (uint32_t i = 0; i < call->num_choices; i++) {
        struct choice *choice = &call->choices[i];
        json_out_rawf(out, "%s{\"index\":%u,\"message\":", i ? "," : "", i);
        write_message(choice, out);
        json_out_raw(out, ",\"logprobs\":");
        logprobs_write_chat(choice, out);
        json_out_raw(out, ",");
        answer_write_finish(out, choice, answer_finish_name(choice));
        json_out_raw(out, "}");
    }
    json_out_raw(out, "],");
    answer_write_usage(out, call);
    json_out_raw(out, "}");
}

const struct endpoint endpoint_chat = {.id_prefix = "chatcmpl-",
                                       .prepare = prepare,
                                       .write_piece = write_piece,
                                       .write_end = write_end,
                                       .write_error = answer_write_stream_error,
                                       .collect = logprobs_collect_chat,
                                       .write_whole = write_whole};
