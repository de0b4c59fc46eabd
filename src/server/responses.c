/* POST /v1/responses, stateless: the whole conversation comes with each request, nothing is stored. */
#include <string.h>

#include "base/jread.h"
#include "server/answer.h"
#include "server/body.h"
#include "server/chat_body.h"
#include "server/convert.h"
#include "server/endpoints.h"
#include "server/submit.h"

// ---- the request ----

static bool convert_item(struct call *call, const json_t *item, json_t *out) {
    const char *role = json_string_value(json_object_get(item, "role"));
    const char *type = json_string_value(json_object_get(item, "type"));
    if (!role || (type && strcmp(type, "message") != 0)) {
        return api_error_set(&call->error, 400, "unsupported", "input",
                             "input has an item that is no message");
    }
    return convert_message(call, out, role, json_object_get(item, "content"), "input");
}

static bool convert_input(struct call *call, json_t *out) {
    const json_t *input = body_get(call, "input"), *instructions = body_get(call, "instructions");
    if (instructions && !json_is_string(instructions)) {
        return body_wrong_type(call, "instructions", instructions, "a string");
    }
    if (instructions && !convert_message(call, out, "system", instructions, "instructions")) {
        return false;
    }
    if (json_is_string(input)) return convert_message(call, out, "user", input, "input");
    if (!json_is_array(input) || !json_array_size(input)) {
        return api_error_invalid(&call->error, "input", "input is missing or empty");
    }
    for (size_t i = 0; i < json_array_size(input); i++) {
        if (!convert_item(call, json_array_get(input, i), out)) return false;
    }
    return true;
}

static bool convert(struct call *call) {
    json_t *out = json_array();
    bool is_good = out ? convert_input(call, out) : api_error_nomem(&call->error);
    if (is_good) return convert_set_messages(call, out);
    json_decref(out);
    return false;
}

static bool refuse_state(struct call *call) {
    static const char *const keys[] = {"previous_response_id", "conversation", "prompt", "tools"};
    bool background = false;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *value = body_get(call, keys[i]);
        if (!value || (json_is_array(value) && !json_array_size(value))) continue;
        return api_error_set(&call->error, 400, "unsupported", keys[i], "%s is not supported",
                             keys[i]);
    }
    if (!body_bool(call, "background", &background)) return false;
    if (background) {
        return api_error_set(&call->error, 400, "unsupported", "background",
                             "background is not supported");
    }
    const json_t *format = jread_get(body_get(call, "text"), "format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!format || (type && strcmp(type, "text") == 0)) return true;
    return api_error_set(&call->error, 400, "unsupported", "text",
                         "a format other than text is not supported yet");
}

static bool prepare(struct call *call) {
    int64_t max_tokens = -1;
    if (!body_parse(call) || !body_generation(call) || !refuse_state(call) ||
        !body_int(call, "max_output_tokens", 1, INT32_MAX, &max_tokens) || !convert(call)) {
        return false;
    }
    json_object_del(call->root, "tools");
    json_object_del(call->root, "tool_choice");
    return chat_body_check(call) && call_make_choices(call, 1) &&
           chat_body_encode(call, &call->choices[0]) &&
           submit_fit(call, &call->choices[0], max_tokens, "input");
}

// ---- the answer ----

static bool is_cut(const struct choice *choice) {
    return choice->finish == NVLLM_FINISH_LENGTH || choice->finish == NVLLM_FINISH_ABORT;
}

static void write_part(const char *text, size_t len, struct json_out *out) {
    json_out_raw(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    json_out_string(out, text, len);
    json_out_raw(out, "}");
}

// `text` NULL: the item begins, and has no parts.
static void write_item(const struct call *call, const char *status, const struct buf *text,
                       struct json_out *out) {
    json_out_rawf(out,
                  "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\","
                  "\"status\":\"%s\",\"content\":[",
                  call->id, status);
    if (text) write_part(text->data, text->len, out);
    json_out_raw(out, "]}");
}

static void write_response(struct call *call, bool is_over, struct json_out *out) {
    const struct choice *choice = &call->choices[0];
    const char *status = !is_over ? "in_progress" : is_cut(choice) ? "incomplete" : "completed";
    json_out_rawf(out,
                  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%llu,\"status\":\"%s\","
                  "\"error\":null,\"incomplete_details\":",
                  call->id, (unsigned long long)call->created, status);
    json_out_raw(out, is_over && is_cut(choice) ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_out_raw(out, ",\"model\":");
    json_out_cstring(out, call->answer.model);
    json_out_raw(out, ",\"parallel_tool_calls\":false,\"tool_choice\":\"none\",\"tools\":[],"
                      "\"metadata\":{},\"store\":false,\"output\":[");
    if (is_over) {
        write_item(call, is_cut(choice) ? "incomplete" : "completed", &choice->text, out);
    }
    json_out_raw(out, "],\"usage\":");
    if (is_over) {
        uint32_t num_prompt = call_num_prompt_tokens(call);
        uint32_t num_generated = call_num_generated_tokens(call);
        json_out_rawf(out,
                      "{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u},"
                      "\"output_tokens\":%u,\"output_tokens_details\":{\"reasoning_tokens\":0},"
                      "\"total_tokens\":%u}",
                      num_prompt, call_num_cached_tokens(call), num_generated,
                      num_prompt + num_generated);
    } else {
        json_out_raw(out, "null");
    }
    json_out_raw(out, "}");
}

static void write_whole(struct call *call, struct json_out *out) {
    write_response(call, true, out);
}

// ---- stream ----

static void begin_event(struct call *call, const char *type, struct json_out *out) {
    json_out_rawf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u", type, type,
                  call->num_events++);
}

static void end_event(struct json_out *out) {
    json_out_raw(out, "}\n\n");
}

static void write_place(const struct call *call, struct json_out *out) {
    json_out_rawf(out, ",\"item_id\":\"msg_%s\",\"output_index\":0,\"content_index\":0", call->id);
}

static void write_state(struct call *call, const char *type, bool is_over, struct json_out *out) {
    begin_event(call, type, out);
    json_out_raw(out, ",\"response\":");
    write_response(call, is_over, out);
    end_event(out);
}

static void write_begin(struct call *call, struct json_out *out) {
    write_state(call, "response.created", false, out);
    write_state(call, "response.in_progress", false, out);
    begin_event(call, "response.output_item.added", out);
    json_out_raw(out, ",\"output_index\":0,\"item\":");
    write_item(call, "in_progress", NULL, out);
    end_event(out);
    begin_event(call, "response.content_part.added", out);
    write_place(call, out);
    json_out_raw(out, ",\"part\":");
    write_part("", 0, out);
    end_event(out);
}

static void write_piece(struct choice *choice, const struct piece *piece, struct json_out *out) {
    if (!piece->text_len) return;
    struct call *call = choice->call;
    // The last events have the whole text once more.
    if (buf_append(&choice->text, piece->text, piece->text_len, NULL)) out->status = ERR_NOMEM;
    begin_event(call, "response.output_text.delta", out);
    write_place(call, out);
    json_out_raw(out, ",\"logprobs\":[],\"delta\":");
    json_out_string(out, piece->text, piece->text_len);
    end_event(out);
}

static void write_end(struct call *call, struct json_out *out) {
    const struct choice *choice = &call->choices[0];
    begin_event(call, "response.output_text.done", out);
    write_place(call, out);
    json_out_raw(out, ",\"logprobs\":[],\"text\":");
    json_out_string(out, choice->text.data, choice->text.len);
    end_event(out);
    begin_event(call, "response.content_part.done", out);
    write_place(call, out);
    json_out_raw(out, ",\"part\":");
    write_part(choice->text.data, choice->text.len, out);
    end_event(out);
    begin_event(call, "response.output_item.done", out);
    json_out_raw(out, ",\"output_index\":0,\"item\":");
    write_item(call, is_cut(choice) ? "incomplete" : "completed", &choice->text, out);
    end_event(out);
    write_state(call, is_cut(choice) ? "response.incomplete" : "response.completed", true, out);
}

static void write_error(struct call *call, const struct api_error *error, struct json_out *out) {
    begin_event(call, "error", out);
    json_out_raw(out, ",\"code\":");
    json_out_cstring(out, error->code);
    json_out_raw(out, ",\"message\":");
    json_out_cstring(out, error->message);
    json_out_raw(out, ",\"param\":null");
    end_event(out);
}

const struct endpoint endpoint_responses = {.id_prefix = "resp_",
                                            .prepare = prepare,
                                            .write_begin = write_begin,
                                            .write_piece = write_piece,
                                            .write_end = write_end,
                                            .write_error = write_error,
                                            .write_whole = write_whole};
