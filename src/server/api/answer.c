#include "server/api/answer.h"

void answer_write_head(struct json_out *out, const struct api_request *request,
                       const char *object) {
    json_out_rawf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%llu,\"model\":", request->id,
                  object, (unsigned long long)request->created);
    json_out_cstring(out, request->answer.model);
}

static void write_usage(struct json_out *out, const struct api_request *request,
                        uint32_t num_generated) {
    uint32_t num_prompt = api_request_num_prompt_tokens(request);
    json_out_rawf(out,
                  "\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%u}",
                  num_prompt, num_generated, num_prompt + num_generated,
                  api_request_num_cached_tokens(request));
    if (request->choices[0].split) { // a chat
        json_out_rawf(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%u}",
                      api_request_num_reasoning_tokens(request));
    }
    json_out_raw(out, "}");
}

void answer_write_usage(struct json_out *out, const struct api_request *request) {
    write_usage(out, request, api_request_num_generated_tokens(request));
}

void answer_write_token_ids(struct json_out *out, struct choice *choice) {
    json_out_raw(out, ",\"token_ids\":");
    if (choice->request->answer.token_ids) {
        json_out_take_list(out, &choice->token_ids);
    } else {
        json_out_raw(out, "null");
    }
}

void answer_write_prompt_ids(struct json_out *out, const struct prompt *prompt) {
    json_out_raw(out, ",\"prompt_token_ids\":");
    if (prompt->request->answer.token_ids) {
        json_out_ids(out, prompt->ids, prompt->num_ids);
    } else {
        json_out_raw(out, "null");
    }
}

// How many tokens took how long: "prompt_n", "prompt_ms" and what follows from them.
static void write_rate(struct json_out *out, const char *what, uint32_t num_tokens,
                       double seconds) {
    double per_token = num_tokens ? seconds * 1e3 / num_tokens : 0;
    json_out_rawf(out, ",\"%s_n\":%u,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.6f", what, num_tokens,
                  what, seconds * 1e3, what, per_token);
    json_out_rawf(out, ",\"%s_per_second\":%.3f", what, per_token > 0 ? 1e3 / per_token : 0);
}

void answer_write_timings(struct json_out *out, const struct choice *choice) {
    const struct nvllm_times *times = &choice->times;
    if (choice->request->num_choices > 1) return;
    bool has_token = choice->num_generated_tokens > 0;
    json_out_rawf(out, ",\"timings\":{\"cache_n\":%u", choice->num_cached_tokens);
    write_rate(out, "prompt", choice->num_prompt_tokens - choice->num_cached_tokens,
               has_token ? times->first_token - times->first_scheduled : 0);
    write_rate(out, "predicted", choice->num_generated_tokens,
               has_token ? times->last_token - times->first_token : 0);
    json_out_raw(out, "}");
}

const char *answer_finish_name(const struct choice *choice) {
    return nvllm_finish_reason_name(choice->finish);
}

void answer_write_finish(struct json_out *out, const struct choice *choice, const char *reason) {
    json_out_raw(out, "\"finish_reason\":");
    json_out_cstring(out, choice->finish ? reason : NULL);
    json_out_raw(out, ",\"stop_reason\":");
    if (choice->finish == NVLLM_FINISH_STOP && choice->stop_string) {
        json_out_cstring(out, choice->stop_string);
    } else if (choice->finish == NVLLM_FINISH_STOP && choice->stop_token_id >= 0) {
        json_out_rawf(out, "%d", choice->stop_token_id);
    } else {
        json_out_raw(out, "null");
    }
}

// Pushes the text of the delta token by token, which tells whose tokens are reasoning.
static enum status push_tokens(struct choice *choice, const struct choice_delta *delta,
                               chat_event_fn emit, void *user_data) {
    struct chat_split *split = choice->split;
    enum status status = OK;
    size_t at = 0;
    for (uint32_t i = 0; i < delta->num_tokens && !status; i++) {
        size_t len = delta->text_ends[i] - at;
        bool was_thinking = chat_split_is_thinking(split);
        status = chat_split_push(split, delta->text + at, len, emit, user_data, NULL);
        choice->num_reasoning_tokens += was_thinking || chat_split_is_thinking(split);
        at += len;
    }
    if (status || at == delta->text_len) return status;
    return chat_split_push(split, delta->text + at, delta->text_len - at, emit, user_data, NULL);
}

static enum status split(struct choice *choice, const struct choice_delta *delta,
                         chat_event_fn emit, void *user_data) {
    enum status status = push_tokens(choice, delta, emit, user_data);
    if (status || !delta->finish) return status;
    // A stop string can end a forced call early. Its answer was cut, and does not say stop.
    bool is_cut = choice->request->chat.forces_call && !chat_split_has_ended_call(choice->split);
    if (is_cut && choice->finish == NVLLM_FINISH_STOP) choice->finish = NVLLM_FINISH_LENGTH;
    return chat_split_finish(choice->split, emit, user_data, NULL);
}

bool answer_collect(struct choice *choice, const struct choice_delta *delta) {
    return split(choice, delta, chat_blocks_add, &choice->blocks) == OK;
}

// Joins texts of one part that follow each other.
struct joiner {
    chat_event_fn write;
    struct answer_target target;
    struct chat_event event; // of the text in choice->joined
};

static enum status write_joined(struct joiner *joiner, struct err *err) {
    struct buf *text = &joiner->target.choice->joined;
    if (!text->len) return OK;
    joiner->event.text = text->data;
    joiner->event.len = text->len;
    enum status status = joiner->write(&joiner->target, &joiner->event, err);
    buf_clear(text);
    return status;
}

static enum status join(void *user_data, const struct chat_event *event, struct err *err) {
    struct joiner *joiner = user_data;
    struct buf *text = &joiner->target.choice->joined;
    bool is_other = event->part != joiner->event.part || event->index != joiner->event.index;
    enum status status = is_other ? write_joined(joiner, err) : OK;
    if (status) return status;
    joiner->event = *event;
    if (!event->len) return joiner->write(&joiner->target, event, err);
    return buf_append(text, event->text, event->len, err);
}

void answer_split(struct choice *choice, const struct choice_delta *delta, chat_event_fn write,
                  struct json_out *out) {
    struct joiner joiner = {.write = write, .target = {choice, out}};
    if (delta->num_tokens > 1) {
        enum status status = split(choice, delta, join, &joiner);
        json_out_check(out, status ? status : write_joined(&joiner, NULL));
    } else {
        json_out_check(out, split(choice, delta, write, &joiner.target));
    }
}

bool answer_begins_block(const struct choice *choice, const struct chat_event *event) {
    const struct chat_blocks *blocks = &choice->blocks;
    if (event->part == CHAT_ARGUMENTS || event->part == CHAT_CALL_END) return false;
    return event->part == CHAT_CALL || !blocks->count ||
           blocks->items[blocks->count - 1].part != event->part;
}

void answer_split_blocks(struct choice *choice, const struct choice_delta *delta,
                         chat_event_fn write, struct json_out *out) {
    answer_split(choice, delta, write, out);
    bool has_text = !delta->num_tokens || delta->text_len || delta->finish;
    if (has_text || !choice->block_is_open) return;
    const bool is_thinking = chat_split_is_thinking(choice->split);
    const struct chat_event empty = {.part = is_thinking ? CHAT_REASONING : CHAT_CONTENT};
    if (answer_begins_block(choice, &empty)) return;
    struct answer_target target = {choice, out};
    json_out_check(out, write(&target, &empty, NULL));
}

void answer_begin_event(struct json_out *out) {
    json_out_raw(out, "data: ");
}

void answer_end_event(struct json_out *out) {
    json_out_raw(out, "\n\n");
}

void answer_write_done(struct json_out *out) {
    json_out_raw(out, "data: [DONE]\n\n");
}

void answer_write_stream_error(struct api_request *request, const struct api_error *error,
                               struct json_out *out) {
    (void)request;
    answer_begin_event(out);
    api_error_write(out, error);
    answer_end_event(out);
    answer_write_done(out);
}

void answer_begin_chunk(struct json_out *out, const struct choice *choice, const char *object) {
    struct json_out *head = &choice->request->chunk_head;
    if (!head->buf.len) {
        answer_begin_event(head);
        answer_write_head(head, choice->request, object);
        json_out_raw(head, ",\"choices\":[{\"index\":");
    }
    json_out_check(out, head->status);
    json_out_bytes(out, head->buf.data, head->buf.len);
    json_out_uint(out, choice->index);
}

void answer_end_chunk(struct json_out *out, const struct choice *choice, enum answer_chunk kind) {
    const struct api_request *request = choice->request;
    if (request->answer.continuous_usage) {
        uint32_t num_generated = api_request_num_generated_tokens(request);
        if (kind == ANSWER_HEAD) num_generated -= choice->num_generated_tokens;
        json_out_raw(out, ",");
        write_usage(out, request, num_generated);
    } else if (request->answer.include_usage) {
        json_out_raw(out, ",\"usage\":null");
    }
    bool has_timings = kind == ANSWER_PART && request->answer.timings_per_token;
    if (has_timings || kind == ANSWER_LAST) answer_write_timings(out, choice);
    json_out_raw(out, "}");
    answer_end_event(out);
}

void answer_write_stream_end(struct api_request *request, const char *object,
                             struct json_out *out) {
    if (request->answer.include_usage) {
        answer_begin_event(out);
        answer_write_head(out, request, object);
        json_out_raw(out, ",\"choices\":[],");
        answer_write_usage(out, request);
        json_out_raw(out, "}");
        answer_end_event(out);
    }
    answer_write_done(out);
}
