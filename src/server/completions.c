/* POST /v1/completions: one or several prompts, text or token ids. */
#include <stdlib.h>
#include <string.h>

#include "base/jread.h"
#include "server/answer.h"
#include "server/body.h"
#include "server/endpoints.h"
#include "server/logprobs.h"
#include "server/submit.h"

enum { MAX_TOKENS_DEFAULT = 16 }; // OpenAI's

static bool bad_prompt(struct call *call, const char *sentence) {
    return api_error_invalid(&call->error, "prompt", "%s", sentence);
}

static bool is_id_list(const json_t *value) {
    return json_is_array(value) && json_is_integer(json_array_get(value, 0));
}

static bool read_ids(struct call *call, struct choice *choice, const json_t *list) {
    size_t count = json_array_size(list);
    choice->prompt_ids = malloc((count ? count : 1) * sizeof *choice->prompt_ids);
    if (!choice->prompt_ids) return api_error_nomem(&call->error);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(list, i);
        bool fits = json_is_integer(id) && json_integer_value(id) >= 0 &&
                    json_integer_value(id) <= INT32_MAX;
        if (!fits) {
            return api_error_invalid(&call->error, "prompt",
                                     "prompt has an item that is no token id of the vocabulary");
        }
        choice->prompt_ids[i] = (int32_t)json_integer_value(id);
    }
    choice->num_prompt_ids = count;
    return true;
}

static bool read_prompt(struct call *call, struct choice *choice, const json_t *prompt,
                        bool add_special_tokens) {
    if (json_is_string(prompt)) {
        if (!submit_encode(call, choice, json_string_value(prompt), json_string_length(prompt),
                           add_special_tokens, "prompt")) {
            return false;
        }
    } else if (is_id_list(prompt)) {
        if (!read_ids(call, choice, prompt)) return false;
    } else {
        return bad_prompt(call, "prompt is neither text nor token ids, nor a list of these");
    }
    return choice->num_prompt_ids ? true : bad_prompt(call, "prompt is empty");
}

static bool read_prompts(struct call *call) {
    const json_t *prompt = body_get(call, "prompt");
    bool add_special_tokens = true;
    if (!body_bool(call, "add_special_tokens", &add_special_tokens)) return false;
    if (!prompt) return bad_prompt(call, "prompt is missing");
    bool is_list = json_is_array(prompt) && !is_id_list(prompt);
    size_t count = is_list ? json_array_size(prompt) : 1;
    if (!count) return bad_prompt(call, "prompt is empty");
    if (count > call->api->options->prompts_max) {
        return api_error_invalid(&call->error, "prompt", "prompt has %zu prompts, want at most %u",
                                 count, call->api->options->prompts_max);
    }
    if (!call_make_choices(call, (uint32_t)count)) return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = is_list ? json_array_get(prompt, i) : prompt;
        if (!read_prompt(call, &call->choices[i], one, add_special_tokens)) return false;
    }
    return true;
}

static bool read_logprobs(struct call *call) {
    int64_t logprobs = -1;
    if (!body_int(call, "logprobs", 0, NVLLM_LOGPROBS_MAX, &logprobs)) return false;
    call->answer.num_logprobs = (int32_t)logprobs;
    call->sampling.logprobs = (int32_t)logprobs;
    return true;
}

static bool prepare(struct call *call) {
    int64_t max_tokens = MAX_TOKENS_DEFAULT;
    const char *suffix = NULL;
    if (!body_parse(call) || !body_generation(call) || !read_logprobs(call) ||
        !body_int(call, "max_tokens", 1, INT32_MAX, &max_tokens) ||
        !body_string(call, "suffix", &suffix)) {
        return false;
    }
    if (suffix && *suffix) {
        return api_error_set(&call->error, 400, "unsupported", "suffix", "suffix is not supported");
    }
    if (!read_prompts(call)) return false;
    for (uint32_t i = 0; i < call->num_choices; i++) {
        if (!submit_fit(call, &call->choices[i], max_tokens, "prompt")) return false;
    }
    return true;
}

static void write_choice(struct json_out *out, struct choice *choice, const char *text,
                         size_t len) {
    json_out_rawf(out, "{\"index\":%u,\"text\":", choice->index);
    json_out_string(out, text, len);
    json_out_raw(out, ",\"logprobs\":");
    logprobs_write_completion(choice, out);
    json_out_raw(out, ",");
    answer_write_finish(out, choice, answer_finish_name(choice));
    json_out_raw(out, "}");
}

static void write_piece(struct choice *choice, const struct piece *piece, struct json_out *out) {
    logprobs_collect_completion(choice, piece);
    if (!piece->text_len && !piece->finish) return;
    answer_begin_event(out);
    answer_write_head(out, choice->call, "text_completion");
    json_out_raw(out, ",\"choices\":[");
    write_choice(out, choice, piece->text, piece->text_len);
    json_out_raw(out, "]");
    answer_end_chunk(out, choice->call);
}

static void write_end(struct call *call, struct json_out *out) {
    answer_write_stream_end(call, "text_completion", out);
}

static void write_whole(struct call *call, struct json_out *out) {
    answer_write_head(out, call, "text_completion");
    json_out_raw(out, ",\"choices\":[");
    for (uint32_t i = 0; i < call->num_choices; i++) {
        struct choice *choice = &call->choices[i];
        if (i) json_out_raw(out, ",");
        write_choice(out, choice, choice->text.data, choice->text.len);
    }
    json_out_raw(out, "],");
    answer_write_usage(out, call);
    json_out_raw(out, "}");
}

const struct endpoint endpoint_completions = {.id_prefix = "cmpl-",
                                              .prepare = prepare,
                                              .write_piece = write_piece,
                                              .write_end = write_end,
                                              .write_error = answer_write_stream_error,
                                              .collect = logprobs_collect_completion,
                                              .write_whole = write_whole};
