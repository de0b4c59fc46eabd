/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's shape of a chat. */
#include <string.h>

#include "base/json/jread.h"
#include "server/api/answer.h"
#include "server/api/chat_body.h"
#include "server/api/convert.h"
#include "server/api/endpoints.h"
#include "server/api/request_params.h"
#include "server/api/structured.h"
#include "server/loop/body.h"

// ---- from Anthropic's members ----

static bool is_type(const json_t *block, const char *type) {
    const char *own = json_string_value(json_object_get(block, "type"));
    return own && strcmp(own, type) == 0;
}

// A block of an assistant that is not text: a tool call, or thinking.
static bool convert_block(struct api_request *request, const json_t *block, json_t *message) {
    if (is_type(block, "tool_use")) {
        return convert_call(request, message, json_object_get(block, "id"),
                            json_object_get(block, "name"), jread_get(block, "input"), "messages");
    }
    if (is_type(block, "redacted_thinking")) return true; // nobody can read it
    json_t *thinking = json_object_get(block, "thinking");
    if (!json_is_string(thinking)) {
        return api_error_invalid(&request->error, "messages",
                                 "messages has a block of thinking without its text");
    }
    return json_object_set(message, "reasoning_content", thinking) == 0
               ? true
               : api_error_nomem(&request->error);
}

static bool is_special_block(const json_t *block) {
    return is_type(block, "tool_use") || is_type(block, "thinking") ||
           is_type(block, "redacted_thinking");
}

static bool convert_assistant(struct api_request *request, const json_t *content, json_t *out) {
    json_t *message = convert_begin(request, out, "assistant"), *texts = json_array();
    bool is_good = message && texts;
    if (!is_good) api_error_nomem(&request->error);
    for (size_t i = 0; is_good && i < json_array_size(content); i++) {
        json_t *block = json_array_get(content, i);
        if (is_special_block(block)) {
            is_good = convert_block(request, block, message);
        } else if (json_array_append(texts, block)) {
            is_good = api_error_nomem(&request->error);
        }
    }
    if (is_good && json_array_size(texts)) {
        is_good = convert_content(request, message, texts, "messages");
    }
    json_decref(texts);
    return is_good;
}

// A message with the texts from `*next` up to the next result of a tool.
static bool convert_texts(struct api_request *request, const json_t *content, size_t *next,
                          json_t *out) {
    json_t *texts = json_array();
    bool is_good = texts ? true : api_error_nomem(&request->error);
    for (; is_good && *next < json_array_size(content); (*next)++) {
        json_t *block = json_array_get(content, *next);
        if (is_type(block, "tool_result")) break;
        if (json_array_append(texts, block)) is_good = api_error_nomem(&request->error);
    }
    is_good = is_good && convert_message(request, out, "user", texts, "messages");
    json_decref(texts);
    return is_good;
}

// A tool that failed: no template knows is_error, so the text says it. The result is the last
// message of `out`.
static bool mark_error(struct api_request *request, const json_t *block, json_t *out) {
    const json_t *is_error = jread_get(block, "is_error");
    if (is_error && !json_is_boolean(is_error)) {
        return body_wrong_type(request, "messages", is_error, "true or false as is_error");
    }
    if (!json_is_true(is_error)) return true;
    json_t *message = json_array_get(out, json_array_size(out) - 1), *key = message;
    const char *name = "content";
    json_t *parts = json_object_get(message, "content");
    if (json_array_size(parts)) {
        key = json_array_get(parts, 0);
        name = "text";
    }
    const json_t *text = json_object_get(key, name);
    struct buf marked = {0};
    bool is_empty = !json_string_length(text);
    enum status status = buf_append_str(&marked, is_empty ? "Error" : "Error: ", NULL);
    if (!status && !is_empty) {
        status = buf_append(&marked, json_string_value(text), json_string_length(text), NULL);
    }
    if (!status && json_object_set_new(key, name, json_stringn(marked.data, marked.len))) {
        status = ERR_NOMEM;
    }
    buf_fini(&marked);
    return status ? api_error_nomem(&request->error) : true;
}

// Results of tools are messages of their own, before and after the user's texts.
static bool convert_user(struct api_request *request, const json_t *content, json_t *out) {
    bool is_good = true;
    for (size_t next = 0; is_good && next < json_array_size(content);) {
        const json_t *block = json_array_get(content, next);
        if (is_type(block, "tool_result")) {
            is_good = convert_result(request, out, json_object_get(block, "tool_use_id"),
                                     jread_get(block, "content"), "messages") &&
                      mark_error(request, block, out);
            next++;
        } else {
            is_good = convert_texts(request, content, &next, out);
        }
    }
    return is_good;
}

static bool convert_one(struct api_request *request, const json_t *message, json_t *out) {
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    bool is_user = role && strcmp(role, "user") == 0;
    if (!is_user && (!role || strcmp(role, "assistant") != 0)) {
        return api_error_invalid(&request->error, "messages",
                                 "a message has a role other than user and assistant");
    }
    if (!json_array_size(content)) return convert_message(request, out, role, content, "messages");
    return is_user ? convert_user(request, content, out) : convert_assistant(request, content, out);
}

static bool convert_messages(struct api_request *request, json_t *out) {
    const json_t *messages = body_get(request, "messages"), *system = body_get(request, "system");
    if (!json_is_array(messages) || !json_array_size(messages)) {
        return api_error_invalid(&request->error, "messages", "messages is missing or empty");
    }
    if (system && !convert_message(request, out, "system", system, "system")) return false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!convert_one(request, json_array_get(messages, i), out)) return false;
    }
    // The last message may be the beginning of the answer.
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    bool is_begun = strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0;
    return convert_set(request, "continue_final_message", json_boolean(is_begun));
}

static bool convert_tools(struct api_request *request, json_t *out) {
    const json_t *tools = body_get(request, "tools");
    if (!json_is_array(tools)) return body_wrong_type(request, "tools", tools, "a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *kind = jread_get(tool, "type");
        const char *type = json_string_value(kind);
        if (kind && !type)
            return body_wrong_type(request, "tools", kind, "a string as a tool's type");
        if (type && strcmp(type, "custom") != 0) {
            if (!body_leave_out_tool(request, type)) return false;
            continue;
        }
        if (!convert_tool(request, out, tool, jread_get(tool, "input_schema"))) return false;
    }
    return true;
}

static bool convert_choice(struct api_request *request) {
    const json_t *choice = body_get(request, "tool_choice");
    if (!choice) return true;
    const char *name = json_string_value(json_object_get(choice, "name"));
    const json_t *single = jread_get(choice, "disable_parallel_tool_use");
    if (single && !json_is_boolean(single)) {
        return body_wrong_type(request, "tool_choice", single,
                               "true or false in disable_parallel_tool_use");
    }
    if (json_is_true(single) && !convert_set(request, "parallel_tool_calls", json_false()))
        return false;
    if (is_type(choice, "tool") && name) return convert_tool_choice(request, NULL, name);
    if (is_type(choice, "any")) return convert_tool_choice(request, "required", NULL);
    if (is_type(choice, "auto")) return convert_tool_choice(request, "auto", NULL);
    if (is_type(choice, "none")) return convert_tool_choice(request, "none", NULL);
    return api_error_invalid(&request->error, "tool_choice",
                             "tool_choice is not known, want the type auto, any, none, or tool "
                             "with a name");
}

// Templates know whether to think, not how long.
static bool convert_thinking(struct api_request *request) {
    const json_t *thinking = body_get(request, "thinking");
    if (!thinking) return true;
    // Thinking comes whole, whatever `display` says.
    static const char *const known[] = {"type", "budget_tokens", "display"};
    if (!body_leave_out_others(request, "thinking", thinking, known, ARRAY_LEN(known))) {
        return false;
    }
    if (is_type(thinking, "disabled")) { // a budget beside it, such as 0, asks for nothing
        json_t *none = json_string("none");
        bool is_good = none ? convert_effort(request, "thinking", NULL, none)
                            : api_error_nomem(&request->error);
        json_decref(none);
        return is_good;
    }
    const json_t *budget = jread_get(thinking, "budget_tokens");
    if (budget && json_integer_value(budget) < 1) {
        return api_error_invalid(&request->error, "thinking",
                                 "thinking.budget_tokens is not an integer above 0");
    }
    if (is_type(thinking, "enabled") || is_type(thinking, "adaptive")) return true;
    return api_error_invalid(&request->error, "thinking",
                             "thinking has no known type, want enabled, disabled or adaptive");
}

// Of output_config the effort and the format are read.
static bool convert_output_config(struct api_request *request) {
    static const char *const refused[] = {"mcp_servers", "container", "context_management"};
    static const char *const known[] = {"effort", "format"};
    json_t *config = body_get(request, "output_config");
    if (!request_params_refuse(request, refused, ARRAY_LEN(refused))) return false;
    if (!structured_convert(request, "output_format", body_get(request, "output_format"))) {
        return false;
    }
    if (!config) return true;
    if (!body_leave_out_others(request, "output_config", config, known, ARRAY_LEN(known))) {
        return false;
    }
    if (!structured_convert(request, "output_config", jread_get(config, "format"))) return false;
    return convert_effort(request, "output_config", "effort", jread_get(config, "effort"));
}

bool messages_request_convert(struct api_request *request) {
    bool has_tools = body_get(request, "tools") != NULL;
    return convert_list(request, "messages", convert_messages) &&
           (!has_tools || convert_list(request, "tools", convert_tools)) &&
           convert_choice(request) && convert_output_config(request) && convert_thinking(request);
}

// ---- the request ----

static bool encode(struct api_request *request) {
    return messages_request_convert(request) && structured_read(request) &&
           chat_body_check(request) && api_request_make_prompts(request, 1) &&
           chat_body_encode(request, &request->prompts[0]);
}

static bool prepare(struct api_request *request) {
    int64_t max_tokens = 0;
    if (!body_parse(request) || !request_params_read(request) ||
        !request_params_take(request, "stop", "stop_sequences") ||
        !request_params_one_output(request) ||
        !body_int(request, "max_tokens", 1, INT32_MAX, &max_tokens)) {
        return false;
    }
    if (!max_tokens) {
        return api_error_invalid(&request->error, "max_tokens", "max_tokens is missing");
    }
    return encode(request) &&
           api_request_fit(request, &request->prompts[0], max_tokens, "messages");
}

static bool prepare_count(struct api_request *request) {
    if (!body_parse(request) || !request_params_model(request) || !encode(request)) return false;
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
    enum status status = jread_request(&input, arguments->data ? arguments->data : "",
                                       arguments->len, "the arguments", NULL);
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
    json_out_raw(out, "event: ");
    json_out_raw(out, type);
    json_out_raw(out, "\ndata: {\"type\":\"");
    json_out_raw(out, type);
    json_out_raw(out, "\"");
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

static void write_block_delta(struct choice *choice, const struct chat_event *event,
                              struct json_out *out) {
    static const char *const kinds[] = {
        [CHAT_REASONING] = "\"thinking_delta\",\"thinking\"",
        [CHAT_CONTENT] = "\"text_delta\",\"text\"",
        [CHAT_ARGUMENTS] = "\"input_json_delta\",\"partial_json\"",
    };
    begin_event(out, "content_block_delta");
    json_out_raw(out, ",\"index\":");
    json_out_uint(out, choice->blocks.count - 1);
    json_out_raw(out, ",\"delta\":{\"type\":");
    json_out_raw(out, kinds[event->part]);
    json_out_raw(out, ":");
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
    if (event->part != CHAT_CALL) write_block_delta(choice, event, target->out);
    return target->out->status;
}

static void write_delta(struct choice *choice, const struct choice_delta *delta,
                        struct json_out *out) {
    answer_split_blocks(choice, delta, write_part, out);
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
                                           .write_delta = write_delta,
                                           .write_end = write_end,
                                           .collect = answer_collect,
                                           .write_error = write_error,
                                           .write_whole = write_whole,
                                           .write_refusal = write_refusal};
const struct endpoint endpoint_count_tokens = {
    .id_prefix = "count_", .prepare = prepare_count, .write_refusal = write_refusal};
