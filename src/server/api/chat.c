/* POST /v1/chat/completions. */
#include "server/api/answer.h"
#include "server/api/chat_body.h"
#include "server/api/endpoints.h"
#include "server/api/logprobs.h"
#include "server/api/request_params.h"
#include "server/api/structured.h"
#include "server/loop/body.h"

static bool read_logprobs(struct api_request *request) {
    bool logprobs = false;
    int64_t num_top = 0;
    if (!body_bool(request, "logprobs", &logprobs) ||
        !logprobs_read_count(request, "top_logprobs", &num_top)) {
        return false;
    }
    if (num_top > 0 && !logprobs) {
        return api_error_invalid(&request->error, "top_logprobs",
                                 "top_logprobs is given, but logprobs is not true");
    }
    if (logprobs) request->answer.num_logprobs = (int32_t)num_top;
    request->sampling.logprobs = request->answer.num_logprobs;
    return logprobs_check_given(request);
}

// max_completion_tokens, else max_tokens, else what the context has left.
static bool read_max_tokens(struct api_request *request, int64_t *max_tokens) {
    *max_tokens = -1;
    return body_int(request, "max_tokens", 0, INT32_MAX, max_tokens) &&
           body_int(request, "max_completion_tokens", 0, INT32_MAX, max_tokens) &&
           request_params_n_predict(request, max_tokens);
}

// vLLM's echo: the content begins with the last message's, where both have one role. Whole answers
// with log-probabilities have the prompt's too.
static bool read_echo(struct api_request *request) {
    bool echo = false;
    if (!body_bool(request, "echo", &echo) ||
        (echo && !chat_body_echo(request, &request->chat.echo))) {
        return false;
    }
    bool wants_prompt = echo && !request->answer.stream && request->answer.num_logprobs >= 0;
    if (!wants_prompt || request->answer.prompt_logprobs) return true;
    request->answer.prompt_logprobs = true;
    request->sampling.prompt_logprobs = request->answer.num_logprobs;
    return true;
}

static bool prepare(struct api_request *request) {
    static const char *const refused[] = {"functions", "function_call", "audio"};
    int64_t max_tokens;
    return body_parse(request) && request_params_read(request) && structured_read(request) &&
           request_params_outputs(request) &&
           request_params_refuse(request, refused, ARRAY_LEN(refused)) && read_logprobs(request) &&
           read_max_tokens(request, &max_tokens) && chat_body_check(request) &&
           read_echo(request) && api_request_make_prompts(request, 1) &&
           chat_body_encode(request, &request->prompts[0]) &&
           api_request_fit(request, &request->prompts[0], max_tokens, "messages");
}

// ---- parts of the answer ----

static const char *finish_name(const struct choice *choice) {
    bool calls = choice->finish == NVLLM_FINISH_STOP && chat_split_has_call(choice->split);
    return calls ? "tool_calls" : answer_finish_name(choice);
}

// Under vLLM's name today, and under the one that it had and others have.
static void write_reasoning(const char *text, size_t len, struct json_out *out) {
    json_out_raw(out, "\"reasoning\":");
    json_out_string(out, text, len);
    json_out_raw(out, ",\"reasoning_content\":");
    json_out_string(out, text, len);
}

static void write_call(const char *id, const char *name, const char *arguments, size_t len,
                       struct json_out *out) {
    json_out_raw(out, "\"id\":");
    json_out_cstring(out, id);
    json_out_raw(out, ",\"type\":\"function\",\"function\":{\"name\":");
    json_out_cstring(out, name);
    json_out_raw(out, ",\"arguments\":");
    json_out_string(out, arguments, len);
    json_out_raw(out, "}");
}

// ---- stream ----

// One chunk with one choice, up to its delta's members; end_chunk writes what follows them.
static void begin_chunk(struct choice *choice, struct json_out *out) {
    answer_begin_chunk(out, choice, "chat.completion.chunk");
    json_out_raw(out, ",\"delta\":{");
}

static void end_chunk(struct choice *choice, enum answer_chunk kind, struct json_out *out) {
    const struct answer_options *answer = &choice->request->answer;
    json_out_raw(out, "},\"logprobs\":");
    // A head's chunk comes before the first token, which is collected already.
    if (kind == ANSWER_HEAD) {
        json_out_raw(out, "null");
    } else {
        logprobs_write_chat(choice, out);
    }
    json_out_raw(out, ",");
    if (kind == ANSWER_LAST) {
        answer_write_finish(out, choice, finish_name(choice));
    } else {
        json_out_raw(out, "\"finish_reason\":null");
    }
    if (answer->token_ids && kind != ANSWER_HEAD) answer_write_token_ids(out, choice);
    json_out_raw(out, "}]");
    if (answer->token_ids && !choice->has_chunk) answer_write_prompt_ids(out, choice->prompt);
    choice->has_chunk = true;
    answer_end_chunk(out, choice, kind);
}

static void write_role(struct choice *choice, struct json_out *out) {
    begin_chunk(choice, out);
    json_out_raw(out, "\"role\":");
    json_out_cstring(out, choice->request->chat.role);
    json_out_raw(out, ",\"content\":\"\"");
    end_chunk(choice, ANSWER_HEAD, out);
}

static void write_echo(struct choice *choice, struct json_out *out) {
    const struct buf *echo = &choice->request->chat.echo;
    if (!echo->len) return;
    begin_chunk(choice, out);
    json_out_raw(out, "\"content\":");
    json_out_string(out, echo->data, echo->len);
    end_chunk(choice, ANSWER_HEAD, out);
}

// A part of the answer as a chunk of its own.
static enum status write_part(void *user_data, const struct chat_event *event, struct err *err) {
    const struct answer_target *target = user_data;
    struct json_out *out = target->out;
    (void)err; // the fault of `out` is asked for at the end
    if (event->part == CHAT_CALL_END) return OK;
    begin_chunk(target->choice, out);
    if (event->part == CHAT_REASONING) {
        write_reasoning(event->text, event->len, out);
    } else if (event->part == CHAT_CONTENT) {
        json_out_raw(out, "\"content\":");
        json_out_string(out, event->text, event->len);
    } else if (event->part == CHAT_CALL) {
        json_out_rawf(out, "\"tool_calls\":[{\"index\":%u,", event->index);
        write_call(event->id, event->name, "", 0, out);
        json_out_raw(out, "}]");
    } else {
        json_out_rawf(out,
                      "\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":", event->index);
        json_out_string(out, event->text, event->len);
        json_out_raw(out, "}}]");
    }
    end_chunk(target->choice, ANSWER_PART, out);
    return out->status;
}

// A token that completes no character has a chunk without text, as in vLLM: what lies between two
// chunks is then the time of a token. Nothing is told of reasoning that is left out, and of calls.
static void write_empty(struct choice *choice, struct json_out *out) {
    bool is_thinking = chat_split_is_thinking(choice->split);
    if (chat_split_has_call(choice->split)) return;
    if (is_thinking && choice->request->chat.split.drops_reasoning) return;
    struct answer_target target = {choice, out};
    const struct chat_event empty = {.part = is_thinking ? CHAT_REASONING : CHAT_CONTENT};
    json_out_check(out, write_part(&target, &empty, NULL));
}

static void write_delta(struct choice *choice, const struct choice_delta *delta,
                        struct json_out *out) {
    if (!choice->has_begun) {
        choice->has_begun = true;
        write_role(choice, out);
        write_echo(choice, out);
    }
    logprobs_collect_chat(choice, delta);
    answer_split(choice, delta, write_part, out);
    if (!delta->finish && !delta->text_len && delta->num_tokens) write_empty(choice, out);
    if (!delta->finish) return;
    begin_chunk(choice, out);
    end_chunk(choice, ANSWER_LAST, out);
}

static void write_end(struct api_request *request, struct json_out *out) {
    answer_write_stream_end(request, "chat.completion.chunk", out);
}

// ---- whole ----

static void write_calls(const struct chat_blocks *blocks, struct json_out *out) {
    bool is_first = true;
    for (size_t i = 0; i < blocks->count; i++) {
        const struct chat_block *block = &blocks->items[i];
        if (block->part != CHAT_CALL) continue;
        json_out_raw(out, is_first ? ",\"tool_calls\":[{" : ",{");
        write_call(block->id, block->name, block->text.data, block->text.len, out);
        json_out_raw(out, "}");
        is_first = false;
    }
    if (!is_first) json_out_raw(out, "]");
}

static void write_message(struct choice *choice, struct json_out *out) {
    const struct chat_blocks *blocks = &choice->blocks;
    const struct chat_plan *chat = &choice->request->chat;
    struct buf content = {0}, reasoning = {0};
    json_out_check(out, buf_append(&content, chat->echo.data, chat->echo.len, NULL));
    json_out_check(out, chat_blocks_join(blocks, CHAT_CONTENT, &content, NULL));
    json_out_check(out, chat_blocks_join(blocks, CHAT_REASONING, &reasoning, NULL));
    json_out_raw(out, "{\"role\":");
    json_out_cstring(out, chat->role);
    json_out_raw(out, ",\"content\":");
    if (!content.len && chat_split_has_call(choice->split)) {
        json_out_raw(out, "null");
    } else {
        json_out_string(out, content.data, content.len);
    }
    json_out_raw(out, ",");
    if (reasoning.len) {
        write_reasoning(reasoning.data, reasoning.len, out);
    } else {
        json_out_raw(out, "\"reasoning\":null");
    }
    write_calls(blocks, out);
    json_out_raw(out, ",\"refusal\":null}");
    buf_fini(&content);
    buf_fini(&reasoning);
}

static void write_whole(struct api_request *request, struct json_out *out) {
    answer_write_head(out, request, "chat.completion");
    json_out_raw(out, ",\"choices\":[");
    for (uint32_t i = 0; i < request->num_choices; i++) {
        struct choice *choice = &request->choices[i];
        json_out_rawf(out, "%s{\"index\":%u,\"message\":", i ? "," : "", i);
        write_message(choice, out);
        json_out_raw(out, ",\"logprobs\":");
        logprobs_write_chat(choice, out);
        json_out_raw(out, ",");
        answer_write_finish(out, choice, finish_name(choice));
        answer_write_token_ids(out, choice);
        json_out_raw(out, "}");
    }
    json_out_raw(out, "],\"prompt_logprobs\":");
    prompt_logprobs_write(&request->prompts[0], out);
    answer_write_prompt_ids(out, &request->prompts[0]);
    json_out_raw(out, ",");
    answer_write_usage(out, request);
    answer_write_timings(out, &request->choices[0]);
    json_out_raw(out, "}");
}

static bool collect(struct choice *choice, const struct choice_delta *delta) {
    logprobs_collect_chat(choice, delta);
    return answer_collect(choice, delta);
}

const struct endpoint endpoint_chat = {.id_prefix = "chatcmpl-",
                                       .prepare = prepare,
                                       .write_delta = write_delta,
                                       .write_end = write_end,
                                       .write_error = answer_write_stream_error,
                                       .collect = collect,
                                       .write_whole = write_whole};
