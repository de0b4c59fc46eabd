/* POST /v1/responses, stateless: the whole conversation comes with each request, nothing is stored.
 * An answer is a list of items: reasoning, messages, calls of functions. */
#include <string.h>

#include "base/json/jread.h"
#include "server/api/answer.h"
#include "server/api/chat_body.h"
#include "server/api/convert.h"
#include "server/api/endpoints.h"
#include "server/api/request_params.h"
#include "server/api/structured.h"
#include "server/loop/body.h"

// ---- input ----

// The assistant's message that a tool call or an answer belongs to: the last one, else a new one.
static json_t *assistant_of(struct api_request *request, json_t *out) {
    json_t *last = json_array_get(out, json_array_size(out) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    bool is_assistant = role && strcmp(role, "assistant") == 0;
    return is_assistant ? last : convert_begin(request, out, "assistant");
}

static bool convert_item_message(struct api_request *request, const json_t *item, json_t *out) {
    const char *role = json_string_value(json_object_get(item, "role"));
    const json_t *content = json_object_get(item, "content");
    if (!role)
        return api_error_invalid(&request->error, "input", "input has a message without a role");
    if (strcmp(role, "assistant") != 0)
        return convert_message(request, out, role, content, "input");
    // An answer goes on with what its reasoning began.
    json_t *message = assistant_of(request, out);
    if (message && json_object_get(message, "content")) {
        message = convert_begin(request, out, "assistant");
    }
    return message && convert_content(request, message, content, "input");
}

static bool convert_item_reasoning(struct api_request *request, const json_t *item, json_t *out) {
    const json_t *content = json_object_get(item, "content");
    json_t *text = json_object_get(json_array_get(content, 0), "text");
    if (!json_is_string(text)) return true; // a summary, or encrypted: no template reads it
    json_t *message = convert_begin(request, out, "assistant");
    if (!message) return false;
    return json_object_set(message, "reasoning_content", text) == 0
               ? true
               : api_error_nomem(&request->error);
}

static bool convert_item(struct api_request *request, const json_t *item, json_t *out) {
    const json_t *kind = jread_get(item, "type");
    const char *type = json_string_value(kind);
    if (kind && !type) {
        return api_error_invalid(&request->error, "input", "input has an item whose type is %s",
                                 jread_type_name(kind));
    }
    if (!jread_is_object(item)) {
        return api_error_invalid(&request->error, "input", "input has an item that is %s",
                                 jread_type_name(item));
    }
    if (!type || strcmp(type, "message") == 0) return convert_item_message(request, item, out);
    if (strcmp(type, "reasoning") == 0) return convert_item_reasoning(request, item, out);
    if (strcmp(type, "function_call") == 0) {
        json_t *message = assistant_of(request, out);
        return message &&
               convert_call(request, message, json_object_get(item, "call_id"),
                            json_object_get(item, "name"), jread_get(item, "arguments"), "input");
    }
    if (strcmp(type, "function_call_output") == 0) {
        return convert_result(request, out, json_object_get(item, "call_id"),
                              jread_get(item, "output"), "input");
    }
    return api_error_set(&request->error, 400, "unsupported", "input",
                         "input has an item of the type \"%.60s\", which is not supported", type);
}

static bool convert_input(struct api_request *request, json_t *out) {
    const json_t *input = body_get(request, "input"),
                 *instructions = body_get(request, "instructions");
    if (instructions && !json_is_string(instructions)) {
        return body_wrong_type(request, "instructions", instructions, "a string");
    }
    if (instructions && !convert_message(request, out, "system", instructions, "instructions")) {
        return false;
    }
    if (json_is_string(input)) return convert_message(request, out, "user", input, "input");
    if (input && !json_is_array(input)) {
        return body_wrong_type(request, "input", input, "a string or a list");
    }
    if (!json_array_size(input)) {
        return api_error_invalid(&request->error, "input", "input is missing or empty");
    }
    for (size_t i = 0; i < json_array_size(input); i++) {
        if (!convert_item(request, json_array_get(input, i), out)) return false;
    }
    return true;
}

// ---- tools ----

static bool convert_tools(struct api_request *request, json_t *out) {
    const json_t *tools = body_get(request, "tools");
    if (!json_is_array(tools)) return body_wrong_type(request, "tools", tools, "a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!type) return api_error_invalid(&request->error, "tools", "a tool has no type");
        if (strcmp(type, "function") != 0) {
            if (!body_leave_out_tool(request, type)) return false;
            continue;
        }
        if (!convert_tool(request, out, tool, jread_get(tool, "parameters"))) return false;
    }
    return true;
}

// {"type": "function", "name": ...} becomes chat completions' form; words stay.
static bool convert_choice(struct api_request *request) {
    const json_t *choice = body_get(request, "tool_choice");
    const char *name = json_string_value(json_object_get(choice, "name"));
    const char *type = json_string_value(json_object_get(choice, "type"));
    bool is_function = name && type && strcmp(type, "function") == 0;
    return is_function ? convert_tool_choice(request, NULL, name) : true;
}

static bool convert_reasoning(struct api_request *request) {
    json_t *reasoning = body_get(request, "reasoning");
    if (!reasoning) return true;
    // Reasoning comes whole, so a summary of it is there too.
    static const char *const known[] = {"effort", "summary", "generate_summary"};
    if (!body_leave_out_others(request, "reasoning", reasoning, known, ARRAY_LEN(known))) {
        return false;
    }
    return convert_effort(request, "reasoning", "effort", jread_get(reasoning, "effort"));
}

// ---- all ----

// Refuses parts of the answer that are not built. Encrypted reasoning may be asked for, but
// reasoning comes as it is.
static bool refuse_include(struct api_request *request) {
    const json_t *include = body_get(request, "include");
    if (include && !json_is_array(include)) {
        return body_wrong_type(request, "include", include, "a list");
    }
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *part = json_string_value(json_array_get(include, i));
        if (part && strcmp(part, "reasoning.encrypted_content") == 0) continue;
        return api_error_set(&request->error, 400, "unsupported", "include",
                             "include asks for \"%.60s\", which is not supported",
                             part ? part : "");
    }
    return true;
}

static bool convert_text(struct api_request *request) {
    const json_t *text = body_get(request, "text"), *format = jread_get(text, "format");
    const json_t *verbosity = jread_get(text, "verbosity");
    static const char *const known[] = {"format", "verbosity"};
    if (text && !body_leave_out_others(request, "text", text, known, ARRAY_LEN(known))) {
        return false;
    }
    if (verbosity && !body_is_word(verbosity, "medium")) {
        return request_params_unsupported(request, "text", "a verbosity other than medium");
    }
    return structured_convert(request, "text", format);
}

static bool refuse_state(struct api_request *request) {
    static const char *const keys[] = {"messages", // `input` takes its place
                                       "previous_response_id",
                                       "conversation",
                                       "prompt",
                                       "background",
                                       "previous_input_messages",
                                       "enable_response_messages"};
    bool background = false;
    int64_t num_top = 0;
    if (!body_bool(request, "background", &background) ||
        !request_params_refuse(request, keys, ARRAY_LEN(keys)) ||
        !body_int(request, "top_logprobs", 0, NVLLM_LOGPROBS_MAX, &num_top)) {
        return false;
    }
    if (num_top)
        return request_params_unsupported(request, "top_logprobs", "top_logprobs of this endpoint");
    const json_t *metadata = body_get(request, "metadata"); // the answer repeats it
    if (metadata && !jread_is_object(metadata)) {
        return body_wrong_type(request, "metadata", metadata, "an object");
    }
    const json_t *truncation = body_get(request, "truncation");
    if (truncation && !body_is_word(truncation, "disabled")) {
        return request_params_unsupported(request, "truncation",
                                          "a truncation other than disabled");
    }
    return refuse_include(request) && convert_text(request);
}

bool responses_request_convert(struct api_request *request) {
    bool has_tools = body_get(request, "tools") != NULL;
    return refuse_state(request) && convert_list(request, "messages", convert_input) &&
           (!has_tools || convert_list(request, "tools", convert_tools)) &&
           convert_choice(request) && convert_reasoning(request);
}

// ---- the request ----

static bool encode(struct api_request *request) {
    return responses_request_convert(request) && structured_read(request) &&
           chat_body_check(request) && api_request_make_prompts(request, 1) &&
           chat_body_encode(request, &request->prompts[0]);
}

static bool prepare_count(struct api_request *request) {
    if (!body_parse(request) || !request_params_model(request) || !encode(request)) return false;
    json_out_rawf(&request->result, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}",
                  request->prompts[0].num_ids);
    request->answers_at_once = true;
    return true;
}

static bool prepare(struct api_request *request) {
    int64_t max_tokens = -1;
    return body_parse(request) && request_params_read(request) &&
           request_params_one_output(request) &&
           body_int(request, "max_output_tokens", 1, INT32_MAX, &max_tokens) && encode(request) &&
           api_request_fit(request, &request->prompts[0], max_tokens, "input");
}

// ---- items ----

static bool is_cut(const struct choice *choice) {
    return choice->finish == NVLLM_FINISH_LENGTH || choice->finish == NVLLM_FINISH_ABORT;
}

// The item's id, with its quotes.
static void write_id(const struct api_request *request, const struct chat_block *block,
                     size_t index, struct json_out *out) {
    static const char *const prefixes[] = {
        [CHAT_REASONING] = "rs", [CHAT_CONTENT] = "msg", [CHAT_CALL] = "fc"};
    json_out_raw(out, "\"");
    json_out_raw(out, prefixes[block->part]);
    json_out_raw(out, "_");
    json_out_raw(out, request->id);
    json_out_raw(out, "_");
    json_out_uint(out, index);
    json_out_raw(out, "\"");
}

static void write_part(const struct chat_block *block, const char *text, size_t len,
                       struct json_out *out) {
    json_out_raw(out,
                 block->part == CHAT_REASONING
                     ? "{\"type\":\"reasoning_text\",\"text\":"
                     : "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    json_out_string(out, text, len);
    json_out_raw(out, "}");
}

// Without parts where the item only begins.
static void write_item(const struct api_request *request, const struct chat_block *block,
                       size_t index, const char *status, bool has_parts, struct json_out *out) {
    json_out_raw(out, "{\"id\":");
    write_id(request, block, index, out);
    json_out_rawf(out, ",\"status\":\"%s\",", status);
    if (block->part == CHAT_CALL) {
        json_out_raw(out, "\"type\":\"function_call\",\"call_id\":");
        json_out_cstring(out, block->id);
        json_out_raw(out, ",\"name\":");
        json_out_cstring(out, block->name);
        json_out_raw(out, ",\"arguments\":");
        json_out_string(out, block->text.data, has_parts ? block->text.len : 0);
        json_out_raw(out, "}");
        return;
    }
    json_out_raw(out, block->part == CHAT_REASONING
                          ? "\"type\":\"reasoning\",\"summary\":[],\"content\":["
                          : "\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
    if (has_parts) write_part(block, block->text.data, block->text.len, out);
    json_out_raw(out, "]}");
}

// The last item is as complete as the answer, but a tool call knows it by itself.
static const char *item_status(const struct choice *choice, size_t index) {
    const struct chat_block *block = &choice->blocks.items[index];
    if (block->part == CHAT_CALL) return block->is_unfinished ? "incomplete" : "completed";
    return is_cut(choice) && index + 1 == choice->blocks.count ? "incomplete" : "completed";
}

// An answer without anything has an empty message.
static enum status add_empty(struct choice *choice) {
    const struct chat_event empty = {.part = CHAT_CONTENT};
    return choice->blocks.count ? OK : chat_blocks_add(&choice->blocks, &empty, NULL);
}

// ---- the response ----

static void write_usage(const struct api_request *request, struct json_out *out) {
    uint32_t num_prompt = api_request_num_prompt_tokens(request);
    uint32_t num_generated = api_request_num_generated_tokens(request);
    json_out_rawf(out,
                  "{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u},"
                  "\"output_tokens\":%u,\"output_tokens_details\":{\"reasoning_tokens\":%u},"
                  "\"total_tokens\":%u}",
                  num_prompt, api_request_num_cached_tokens(request), num_generated,
                  api_request_num_reasoning_tokens(request), num_prompt + num_generated);
}

// What the request said of tools: in its own words, or the defaults.
static void write_tools(struct api_request *request, struct json_out *out) {
    const json_t *choice = body_get(request, "tool_choice"), *tools = body_get(request, "tools");
    json_out_rawf(out, ",\"parallel_tool_calls\":%s,\"tool_choice\":",
                  request->chat.split.one_call ? "false" : "true");
    if (json_is_string(choice)) {
        json_out_value(out, choice);
    } else if (choice) {
        json_out_raw(out, "{\"type\":\"function\",\"name\":");
        json_out_value(out, json_object_get(json_object_get(choice, "function"), "name"));
        json_out_raw(out, "}");
    } else {
        json_out_raw(out, "\"auto\"");
    }
    json_out_raw(out, ",\"tools\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *description = json_object_get(function, "description");
        const json_t *parameters = json_object_get(function, "parameters");
        json_out_raw(out,
                     i ? ",{\"type\":\"function\",\"name\":" : "{\"type\":\"function\",\"name\":");
        json_out_value(out, json_object_get(function, "name"));
        bool is_strict =
            json_is_true(json_object_get(function, "strict")) && request->api->tool_format;
        json_out_rawf(out, ",\"strict\":%s,\"description\":", is_strict ? "true" : "false");
        json_out_value(out, description ? description : json_null());
        json_out_raw(out, ",\"parameters\":");
        json_out_value(out, parameters ? parameters : json_null());
        json_out_raw(out, "}");
    }
    json_out_raw(out, "]");
}

static void write_response(struct api_request *request, bool is_over, struct json_out *out) {
    const struct choice *choice = &request->choices[0];
    const char *status = !is_over ? "in_progress" : is_cut(choice) ? "incomplete" : "completed";
    json_out_rawf(out,
                  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%llu,\"status\":\"%s\","
                  "\"error\":null,\"incomplete_details\":",
                  request->id, (unsigned long long)request->created, status);
    json_out_raw(out, is_over && is_cut(choice) ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_out_raw(out, ",\"model\":");
    json_out_cstring(out, request->answer.model);
    write_tools(request, out);
    const json_t *metadata = body_get(request, "metadata");
    json_out_raw(out, ",\"metadata\":");
    if (metadata) {
        json_out_value(out, metadata);
    } else {
        json_out_raw(out, "{}");
    }
    json_out_raw(out, ",\"store\":false,\"output\":[");
    for (size_t i = 0; is_over && i < choice->blocks.count; i++) {
        if (i) json_out_raw(out, ",");
        write_item(request, &choice->blocks.items[i], i, item_status(choice, i), true, out);
    }
    json_out_raw(out, "],\"usage\":");
    if (is_over) {
        write_usage(request, out);
    } else {
        json_out_raw(out, "null");
    }
    json_out_raw(out, "}");
}

static void write_whole(struct api_request *request, struct json_out *out) {
    struct choice *choice = &request->choices[0];
    json_out_check(out, add_empty(choice));
    write_response(request, true, out);
}

// ---- stream ----

static void begin_event(struct api_request *request, const char *type, struct json_out *out) {
    json_out_raw(out, "event: ");
    json_out_raw(out, type);
    json_out_raw(out, "\ndata: {\"type\":\"");
    json_out_raw(out, type);
    json_out_raw(out, "\",\"sequence_number\":");
    json_out_uint(out, request->num_events++);
}

static void end_event(struct json_out *out) {
    json_out_raw(out, "}\n\n");
}

// Where the last item is. With `key`, a text of that name follows.
static void write_keys(struct choice *choice, const char *key, struct json_out *out) {
    size_t index = choice->blocks.count - 1;
    const struct chat_block *block = &choice->blocks.items[index];
    json_out_raw(out, ",\"item_id\":");
    write_id(choice->request, block, index, out);
    json_out_raw(out, ",\"output_index\":");
    json_out_uint(out, index);
    if (block->part != CHAT_CALL) json_out_raw(out, ",\"content_index\":0");
    if (!key) return;
    if (block->part == CHAT_CONTENT) json_out_raw(out, ",\"logprobs\":[]");
    json_out_raw(out, ",\"");
    json_out_raw(out, key);
    json_out_raw(out, "\":");
}

// An event of the last item: its place, and `key` with a text unless it is NULL.
static void write_place(struct choice *choice, const char *type, const char *key, const char *text,
                        size_t len, struct json_out *out) {
    begin_event(choice->request, type, out);
    write_keys(choice, key, out);
    if (key) {
        json_out_string(out, text, len);
        end_event(out);
    }
}

// The same for the next part of the last item's text, whose keys are written once for all parts.
static void write_text(struct choice *choice, const char *type, const char *text, size_t len,
                       struct json_out *out) {
    struct json_out *keys = &choice->request->chunk_head;
    begin_event(choice->request, type, out);
    if (!keys->buf.len) write_keys(choice, "delta", keys);
    json_out_check(out, keys->status);
    json_out_bytes(out, keys->buf.data, keys->buf.len);
    json_out_string(out, text, len);
    end_event(out);
}

static void write_item_event(struct choice *choice, const char *type, const char *status,
                             bool has_parts, struct json_out *out) {
    size_t index = choice->blocks.count - 1;
    begin_event(choice->request, type, out);
    json_out_rawf(out, ",\"output_index\":%zu,\"item\":", index);
    write_item(choice->request, &choice->blocks.items[index], index, status, has_parts, out);
    end_event(out);
}

static void begin_item(struct choice *choice, struct json_out *out) {
    const struct chat_block *block = &choice->blocks.items[choice->blocks.count - 1];
    choice->block_is_open = true;
    choice->request->chunk_head.buf.len = 0; // of the item before
    write_item_event(choice, "response.output_item.added", "in_progress", false, out);
    if (block->part == CHAT_CALL) return;
    write_place(choice, "response.content_part.added", NULL, NULL, 0, out);
    json_out_raw(out, ",\"part\":");
    write_part(block, "", 0, out);
    end_event(out);
}

static void end_item(struct choice *choice, const char *status, struct json_out *out) {
    static const char *const done[] = {[CHAT_REASONING] = "response.reasoning_text.done",
                                       [CHAT_CONTENT] = "response.output_text.done",
                                       [CHAT_CALL] = "response.function_call_arguments.done"};
    if (!choice->block_is_open) return;
    const struct chat_block *block = &choice->blocks.items[choice->blocks.count - 1];
    const struct buf *text = &block->text;
    bool is_call = block->part == CHAT_CALL;
    choice->block_is_open = false;
    write_place(choice, done[block->part], is_call ? "arguments" : "text", text->data, text->len,
                out);
    if (!is_call) {
        write_place(choice, "response.content_part.done", NULL, NULL, 0, out);
        json_out_raw(out, ",\"part\":");
        write_part(block, text->data, text->len, out);
        end_event(out);
    }
    write_item_event(choice, "response.output_item.done", status, true, out);
}

static enum status write_event(void *user_data, const struct chat_event *event, struct err *err) {
    static const char *const deltas[] = {
        [CHAT_REASONING] = "response.reasoning_text.delta",
        [CHAT_CONTENT] = "response.output_text.delta",
        [CHAT_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    const struct answer_target *target = user_data;
    struct choice *choice = target->choice;
    if (event->part == CHAT_CALL_END) {
        enum status status = chat_blocks_add(&choice->blocks, event, err);
        end_item(choice, item_status(choice, choice->blocks.count - 1), target->out);
        return status ? status : target->out->status;
    }
    bool begins = answer_begins_block(choice, event);
    if (begins) end_item(choice, "completed", target->out);
    // The last events have the whole text once more.
    enum status status = chat_blocks_add(&choice->blocks, event, err);
    if (status) return status;
    if (begins) begin_item(choice, target->out);
    if (event->part != CHAT_CALL) {
        write_text(choice, deltas[event->part], event->text, event->len, target->out);
    }
    return target->out->status;
}

static void write_state(struct api_request *request, const char *type, bool is_over,
                        struct json_out *out) {
    begin_event(request, type, out);
    json_out_raw(out, ",\"response\":");
    write_response(request, is_over, out);
    end_event(out);
}

static void write_begin(struct api_request *request, struct json_out *out) {
    write_state(request, "response.created", false, out);
    write_state(request, "response.in_progress", false, out);
}

static void write_delta(struct choice *choice, const struct choice_delta *delta,
                        struct json_out *out) {
    answer_split_blocks(choice, delta, write_event, out);
}

static void write_end(struct api_request *request, struct json_out *out) {
    struct choice *choice = &request->choices[0];
    bool is_empty = !choice->blocks.count;
    json_out_check(out, add_empty(choice));
    if (out->status) return;
    if (is_empty) begin_item(choice, out);
    end_item(choice, item_status(choice, choice->blocks.count - 1), out);
    write_state(request, is_cut(choice) ? "response.incomplete" : "response.completed", true, out);
}

static void write_error(struct api_request *request, const struct api_error *error,
                        struct json_out *out) {
    begin_event(request, "error", out);
    json_out_raw(out, ",\"code\":");
    json_out_cstring(out, error->code);
    json_out_raw(out, ",\"message\":");
    json_out_cstring(out, error->message);
    json_out_raw(out, ",\"param\":null");
    end_event(out);
}

const struct endpoint endpoint_responses = {.id_prefix = "resp_",
                                            .repeats_members = true,
                                            .prepare = prepare,
                                            .write_begin = write_begin,
                                            .write_delta = write_delta,
                                            .write_end = write_end,
                                            .collect = answer_collect,
                                            .write_error = write_error,
                                            .write_whole = write_whole};
const struct endpoint endpoint_responses_count = {.id_prefix = "count_", .prepare = prepare_count};
