/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's shape of a chat, texts only. */
#include <string.h>

#include "base/jread.h"
#include "server/answer.h"
#include "server/body.h"
#include "server/chat_body.h"
#include "server/convert.h"
#include "server/endpoints.h"
#include "server/submit.h"

// ---- the request ----

static bool convert_one(struct call *call, const json_t *message, json_t *out) {
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)) {
        return api_error_invalid(&call->error, "messages",
                                 "a message has a role other than user and assistant");
    }
    return convert_message(call, out, role, json_object_get(message, "content"), "messages");
}

static bool convert(struct call *call) {
    const json_t *messages = body_get(call, "messages"), *system = body_get(call, "system");
    if (!json_is_array(messages) || !json_array_size(messages)) {
        return api_error_invalid(&call->error, "messages", "messages is missing or empty");
    }
    if (body_get(call, "tools")) {
        return api_error_set(&call->error, 400, "unsupported", "tools",
                             "tools are not supported here yet");
    }
    json_t *out = json_array();
    bool is_good = out ? true : api_error_nomem(&call->error);
    if (is_good && system) is_good = convert_message(call, out, "system", system, "system");
    for (size_t i = 0; is_good && i < json_array_size(messages); i++) {
        is_good = convert_one(call, json_array_get(messages, i), out);
    }
    if (is_good) return convert_set_messages(call, out);
    json_decref(out);
    return false;
}

// The last message may be the beginning of the answer.
static bool set_continuation(struct call *call) {
    const json_t *messages = body_get(call, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    bool is_begun = strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0;
    json_t *value = json_boolean(is_begun);
    return json_object_set_new(call->root, "continue_final_message", value) == 0
               ? true
               : api_error_nomem(&call->error);
}

static bool encode(struct call *call) {
    return convert(call) && set_continuation(call) && chat_body_check(call) &&
           call_make_choices(call, 1) && chat_body_encode(call, &call->choices[0]);
}

static bool rename_stop(struct call *call) {
    json_t *stop = body_get(call, "stop_sequences");
    if (!stop) return true;
    return json_object_set(call->root, "stop", stop) == 0 ? true : api_error_nomem(&call->error);
}

static bool prepare(struct call *call) {
    int64_t max_tokens = 0;
    if (!body_parse(call) || !rename_stop(call) || !body_generation(call) ||
        !body_int(call, "max_tokens", 1, INT32_MAX, &max_tokens)) {
        return false;
    }
    if (!max_tokens) {
        return api_error_invalid(&call->error, "max_tokens", "max_tokens is missing");
    }
    return encode(call) && submit_fit(call, &call->choices[0], max_tokens, "messages");
}

static bool prepare_count(struct call *call) {
    if (!body_parse(call) || !body_model(call) || !encode(call)) return false;
    json_out_rawf(&call->result, "{\"input_tokens\":%zu}", call->choices[0].num_prompt_ids);
    call->answers_at_once = true;
    return true;
}

// ---- the answer ----

static const char *stop_reason(const struct choice *choice) {
    if (choice->finish == NVLLM_FINISH_LENGTH) return "max_tokens";
    if (choice->finish == NVLLM_FINISH_ABORT) return "pause_turn";
    return choice->stop_string ? "stop_sequence" : "end_turn";
}

static void write_usage(const struct call *call, struct json_out *out) {
    uint32_t num_cached = call_num_cached_tokens(call);
    json_out_rawf(out,
                  "\"usage\":{\"input_tokens\":%u,\"cache_read_input_tokens\":%u,"
                  "\"cache_creation_input_tokens\":0,\"output_tokens\":%u}",
                  call_num_prompt_tokens(call) - num_cached, num_cached,
                  call_num_generated_tokens(call));
}

static void write_head(const struct call *call, struct json_out *out) {
    json_out_rawf(
        out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", call->id);
    json_out_cstring(out, call->answer.model);
}

static void write_stop(const struct choice *choice, struct json_out *out) {
    json_out_rawf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(choice));
    json_out_cstring(out, choice->stop_string);
}

static void write_whole(struct call *call, struct json_out *out) {
    struct choice *choice = &call->choices[0];
    write_head(call, out);
    json_out_raw(out, ",\"content\":[{\"type\":\"text\",\"text\":");
    json_out_string(out, choice->text.data, choice->text.len);
    json_out_raw(out, "}],");
    write_stop(choice, out);
    json_out_raw(out, ",");
    write_usage(call, out);
    json_out_raw(out, "}");
}

static void begin_event(struct json_out *out, const char *type) {
    json_out_rawf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_event(struct json_out *out) {
    json_out_raw(out, "}\n\n");
}

static void write_begin(struct call *call, struct json_out *out) {
    begin_event(out, "message_start");
    json_out_raw(out, ",\"message\":");
    write_head(call, out);
    json_out_raw(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    write_usage(call, out);
    json_out_raw(out, "}");
    end_event(out);
    begin_event(out, "content_block_start");
    json_out_raw(out, ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
    end_event(out);
}

static void write_piece(struct choice *choice, const struct piece *piece, struct json_out *out) {
    (void)choice;
    if (!piece->text_len) return;
    begin_event(out, "content_block_delta");
    json_out_raw(out, ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":");
    json_out_string(out, piece->text, piece->text_len);
    json_out_raw(out, "}");
    end_event(out);
}

static void write_end(struct call *call, struct json_out *out) {
    begin_event(out, "content_block_stop");
    json_out_raw(out, ",\"index\":0");
    end_event(out);
    begin_event(out, "message_delta");
    json_out_raw(out, ",\"delta\":{");
    write_stop(&call->choices[0], out);
    json_out_raw(out, "},");
    write_usage(call, out);
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

static void write_error(struct call *call, const struct api_error *error, struct json_out *out) {
    (void)call;
    json_out_raw(out, "event: error\ndata: ");
    write_refusal(error, out);
    json_out_raw(out, "\n\n");
}

const struct endpoint endpoint_messages = {.id_prefix = "msg_",
                                           .prepare = prepare,
                                           .write_begin = write_begin,
                                           .write_piece = write_piece,
                                           .write_end = write_end,
                                           .write_error = write_error,
                                           .write_whole = write_whole,
                                           .write_refusal = write_refusal};
const struct endpoint endpoint_count_tokens = {
    .id_prefix = "count_", .prepare = prepare_count, .write_refusal = write_refusal};
