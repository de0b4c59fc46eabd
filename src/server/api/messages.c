/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's shape of a chat. */
#include <string.h>

#include "base/json/jread.h"
#include "server/api/answer.h"
#include "server/api/chat_body.h"
#include "server/api/convert.h"
#include "server/api/endpoints.h"
#include "server/api/messages_request.h"
#include "server/loop/body.h"
#include "server/loop/submit.h"

// ---- the request ----

static bool encode(struct api_request *request) {
    return messages_request_convert(request) && chat_body_check(request) &&
           api_request_make_prompts(request, 1) && chat_body_encode(request, &request->prompts[0]);
}

static bool rename_stop(struct api_request *request) {
    json_t *stop = body_get(request, "stop_sequences");
    if (!stop) return true;
    return convert_set(request, "stop", json_incref(stop));
}

static bool prepare(struct api_request *request) {
    int64_t max_tokens = 0;
    if (!body_parse(request) || !rename_stop(request) || !body_generation(request) ||
        !body_one_output(request) || !body_int(request, "max_tokens", 1, INT32_MAX, &max_tokens)) {
        return false;
    }
    if (!max_tokens) {
        return api_error_invalid(&request->error, "max_tokens", "max_tokens is missing");
    }
    return encode(request) && submit_fit(request, &request->prompts[0], max_tokens, "messages");
}

static bool prepare_count(struct api_request *request) {
    if (!body_parse(request) || !body_model(request) || !encode(request)) return false;
    json_out_rawf(&request->result, "{\"input_tokens\":%zu}", request->prompts[0].num_ids);
    request->answers_at_once = true;
    return true;
}

// ---- the answer ----

static const char *stop_reason(const struct choice *choice) {
    if (choice->finish == NVLLM_FINISH_LENGTH) return "max_tokens";
    if (choice->finish == NVLLM_FINISH_ABORT) return "pause_turn";
    if (chat_split_has_call(choice->split)) return "tool_use";
    return choice->stop_string ? "stop_sequence" : "end_turn";
}

static void write_usage(const struct api_request *request, struct json_out *out) {
    uint32_t num_cached = api_request_num_cached_tokens(request);
    json_out_rawf(out,
                  "\"usage\":{\"input_tokens\":%u,\"cache_read_input_tokens\":%u,"
                  "\"cache_creation_input_tokens\":0,\"output_tokens\":%u}",
                  api_request_num_prompt_tokens(request) - num_cached, num_cached,
                  api_request_num_generated_tokens(request));
}

static void write_head(const struct api_request *request, struct json_out *out) {
    json_out_rawf(
        out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", request->id);
    json_out_cstring(out, request->answer.model);
}

static void write_stop(const struct choice *choice, struct json_out *out) {
    json_out_rawf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(choice));
    json_out_cstring(out, choice->stop_string);
}

// Arguments that are no JSON object cannot stand as one: Anthropic's name for such text.
static void write_input(const struct buf *arguments, struct json_out *out) {
    json_t *input = NULL;
    enum status status = jread_text(&input, arguments->data ? arguments->data : "", arguments->len,
                                    "the arguments", NULL);
    if (!status && jread_is_object(input)) {
        json_out_raw(out, arguments->data);
    } else {
        json_out_check(out, status == ERR_NOMEM ? status : OK);
        json_out_raw(out, "{\"INVALID_JSON\":");
        json_out_string(out, arguments->data, arguments->len);
        json_out_raw(out, "}");
    }
    json_decref(input);
}

// `text` NULL: the block begins, and is empty.
static void write_block(const struct chat_block *block, const struct buf *text,
                        struct json_out *out) {
    static const struct buf empty = {0};
    if (block->part == CHAT_CALL) {
        json_out_raw(out, "{\"type\":\"tool_use\",\"id\":");
        json_out_cstring(out, block->id);
        json_out_raw(out, ",\"name\":");
        json_out_cstring(out, block->name);
        json_out_raw(out, ",\"input\":");
        if (text) {
            write_input(text, out);
        } else {
            json_out_raw(out, "{}");
        }
        json_out_raw(out, "}");
        return;
    }
    if (!text) text = &empty;
    bool is_text = block->part == CHAT_CONTENT;
    json_out_raw(out,
                 is_text ? "{\"type\":\"text\",\"text\":" : "{\"type\":\"thinking\",\"thinking\":");
    json_out_string(out, text->data, text->len);
    json_out_raw(out, is_text ? "}" : ",\"signature\":\"\"}");
}

static void write_whole(struct api_request *request, struct json_out *out) {
    static const struct chat_block empty = {.part = CHAT_CONTENT};
    struct choice *choice = &request->choices[0];
    const struct chat_blocks *blocks = &choice->blocks;
    write_head(request, out);
    json_out_raw(out, ",\"content\":[");
    for (size_t i = 0; i < blocks->count; i++) {
        if (i) json_out_raw(out, ",");
        write_block(&blocks->items[i], &blocks->items[i].text, out);
    }
    if (!blocks->count) write_block(&empty, NULL, out);
    json_out_raw(out, "],");
    write_stop(choice, out);
    json_out_raw(out, ",");
    write_usage(request, out);
    json_out_raw(out, "}");
}

// ---- stream ----

static void begin_event(struct json_out *out, const char *type) {
    json_out_rawf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_event(struct json_out *out) {
    json_out_raw(out, "}\n\n");
}

static void write_begin(struct api_request *request, struct json_out *out) {
    begin_event(out, "message_start");
    json_out_raw(out, ",\"message\":");
    write_head(request, out);
    json_out_raw(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    write_usage(request, out);
    json_out_raw(out, "}");
    end_event(out);
}

static void write_block_start(struct choice *choice, struct json_out *out) {
    size_t index = choice->blocks.count - 1;
    begin_event(out, "content_block_start");
    json_out_rawf(out, ",\"index\":%zu,\"content_block\":", index);
    write_block(&choice->blocks.items[index], NULL, out);
    end_event(out);
    choice->block_is_open = true;
}

static void write_block_stop(struct choice *choice, struct json_out *out) {
    if (!choice->block_is_open) return;
    begin_event(out, "content_block_stop");
    json_out_rawf(out, ",\"index\":%zu", choice->blocks.count - 1);
    end_event(out);
    choice->block_is_open = false;
}

static void write_delta(struct choice *choice, const struct chat_event *event,
                        struct json_out *out) {
    static const char *const kinds[] = {
        [CHAT_REASONING] = "\"thinking_delta\",\"thinking\"",
        [CHAT_CONTENT] = "\"text_delta\",\"text\"",
        [CHAT_ARGUMENTS] = "\"input_json_delta\",\"partial_json\"",
    };
    begin_event(out, "content_block_delta");
    json_out_rawf(out, ",\"index\":%zu,\"delta\":{\"type\":%s:", choice->blocks.count - 1,
                  kinds[event->part]);
    json_out_string(out, event->text, event->len);
    json_out_raw(out, "}");
    end_event(out);
}

static enum status write_part(void *user_data, const struct chat_event *event, struct err *err) {
    const struct answer_target *target = user_data;
    struct choice *choice = target->choice;
    if (event->part == CHAT_CALL_END) {
        write_block_stop(choice, target->out);
        return target->out->status;
    }
    if (answer_begins_block(choice, event)) {
        struct chat_event head = *event;
        head.len = 0; // the text is not needed again
        write_block_stop(choice, target->out);
        enum status status = chat_blocks_add(&choice->blocks, &head, err);
        if (status) return status;
        write_block_start(choice, target->out);
    }
    if (event->part != CHAT_CALL) write_delta(choice, event, target->out);
    return target->out->status;
}

static void write_piece(struct choice *choice, const struct piece *piece, struct json_out *out) {
    answer_split(choice, piece, write_part, out);
}

static void write_end(struct api_request *request, struct json_out *out) {
    struct choice *choice = &request->choices[0];
    if (!choice->blocks.count) {
        const struct chat_event empty = {.part = CHAT_CONTENT};
        json_out_check(out, chat_blocks_add(&choice->blocks, &empty, NULL));
        if (!out->status) write_block_start(choice, out);
    }
    write_block_stop(choice, out);
    begin_event(out, "message_delta");
    json_out_raw(out, ",\"delta\":{");
    write_stop(&request->choices[0], out);
    json_out_raw(out, "},");
    write_usage(request, out);
    end_event(out);
    begin_event(out, "message_stop");
    end_event(out);
}

static void write_refusal(const struct api_error *error, struct json_out *out) {
    json_out_rawf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                  error->status == 503 ? "overloaded_error" : api_error_type(error));
    json_out_cstring(out, error->message);
    json_out_raw(out, "}}");
}

static void write_error(struct api_request *request, const struct api_error *error,
                        struct json_out *out) {
    (void)request;
    json_out_raw(out, "event: error\ndata: ");
    write_refusal(error, out);
    json_out_raw(out, "\n\n");
}

const struct endpoint endpoint_messages = {.id_prefix = "msg_",
                                           .prepare = prepare,
                                           .write_begin = write_begin,
                                           .write_piece = write_piece,
                                           .write_end = write_end,
                                           .collect = answer_collect,
                                           .write_error = write_error,
                                           .write_whole = write_whole,
                                           .write_refusal = write_refusal};
const struct endpoint endpoint_count_tokens = {
    .id_prefix = "count_", .prepare = prepare_count, .write_refusal = write_refusal};
