/* POST /v1/completions: one or several prompts, text or token ids. */
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "server/api/answer.h"
#include "server/api/endpoints.h"
#include "server/api/logprobs.h"
#include "server/api/prompts.h"
#include "server/api/request_params.h"
#include "server/api/structured.h"
#include "server/loop/body.h"

enum { MAX_TOKENS_DEFAULT = 16 }; // OpenAI's

// Text comes back as it came, ids as their tokens' text.
static bool read_echo(struct api_request *request, struct prompt *prompt, const json_t *value) {
    int flags = NVLLM_DECODE_SKIP_UNKNOWN;
    if (request->sampling.skip_special_tokens) flags |= NVLLM_DECODE_SKIP_SPECIAL;
    if (!json_is_string(value)) {
        struct nvllm_error fault = {0};
        enum nvllm_status status =
            nvllm_tokenizer_decode(request->api->tokenizer, prompt->ids, prompt->num_ids, flags,
                                   &prompt->echo, &prompt->echo_len, &fault);
        return api_error_library(&request->error, status, &fault, "prompt");
    }
    prompt->echo_len = json_string_length(value);
    prompt->echo = malloc(prompt->echo_len + 1);
    if (!prompt->echo) return api_error_nomem(&request->error);
    memcpy(prompt->echo, json_string_value(value), prompt->echo_len + 1);
    return true;
}

static bool read_prompts(struct api_request *request) {
    struct prompts_options options = {
        .key = "prompt", .add_special_tokens = true, .most = request->api->options->outputs_max};
    if (!body_bool(request, "add_special_tokens", &options.add_special_tokens) ||
        !prompts_read(request, &options)) {
        return false;
    }
    const json_t *member = body_get(request, "prompt");
    for (uint32_t i = 0; request->answer.echo && i < request->num_prompts; i++) {
        if (!read_echo(request, &request->prompts[i], prompts_item(member, i))) return false;
    }
    return true;
}

// With an echo the log-probabilities are the prompt's too.
static bool read_logprobs(struct api_request *request) {
    int64_t logprobs = -1;
    if (!logprobs_read_count(request, "logprobs", &logprobs) ||
        !body_bool(request, "echo", &request->answer.echo)) {
        return false;
    }
    request->answer.num_logprobs = (int32_t)logprobs;
    request->sampling.logprobs = (int32_t)logprobs;
    if (request->answer.echo && logprobs > request->sampling.prompt_logprobs) {
        request->sampling.prompt_logprobs = (int32_t)logprobs;
    }
    return logprobs_check_given(request);
}

static bool prepare(struct api_request *request) {
    int64_t max_tokens = MAX_TOKENS_DEFAULT;
    const char *suffix = NULL;
    if (!body_parse(request) || !request_params_read(request) || !structured_read(request) ||
        !request_params_outputs(request) || !read_logprobs(request) ||
        !body_int(request, "max_tokens", 0, INT32_MAX, &max_tokens) ||
        !request_params_n_predict(request, &max_tokens) ||
        !body_string(request, "suffix", &suffix)) {
        return false;
    }
    if (suffix && *suffix) {
        return api_error_set(&request->error, 400, "unsupported", "suffix",
                             "suffix is not supported");
    }
    if (!read_prompts(request)) return false;
    for (uint32_t i = 0; i < request->num_prompts; i++) {
        if (!api_request_fit(request, &request->prompts[i], max_tokens, "prompt")) return false;
    }
    return true;
}

// What follows the choice's index.
static void write_choice(struct json_out *out, struct choice *choice, const char *text, size_t len,
                         bool is_whole) {
    const struct answer_options *answer = &choice->request->answer;
    bool is_first = !choice->has_chunk;
    choice->has_chunk = true;
    json_out_raw(out, ",\"text\":");
    json_out_string(out, text, len);
    json_out_raw(out, ",\"logprobs\":");
    logprobs_write_completion(choice, out);
    json_out_raw(out, ",");
    answer_write_finish(out, choice, answer_finish_name(choice));
    if (is_whole) {
        json_out_raw(out, ",\"prompt_logprobs\":");
        prompt_logprobs_write(choice->prompt, out);
    }
    if (is_whole || answer->token_ids) answer_write_token_ids(out, choice);
    if (is_whole || (answer->token_ids && is_first)) answer_write_prompt_ids(out, choice->prompt);
    json_out_raw(out, "}");
}

static void write_chunk(struct choice *choice, const char *text, size_t len, enum answer_chunk kind,
                        struct json_out *out) {
    answer_begin_chunk(out, choice, "text_completion");
    write_choice(out, choice, text, len, false);
    json_out_raw(out, "]");
    answer_end_chunk(out, choice, kind);
}

// The prompt comes before the first token.
static bool begins_with_echo(struct choice *choice) {
    bool is_first = !choice->has_begun;
    choice->has_begun = true;
    if (!is_first || !choice->prompt->echo) return false;
    prompt_logprobs_collect(choice);
    return true;
}

// A chunk of its own for the prompt, whose finish_reason is null. The first token is the next
// one's.
static void write_echo(struct choice *choice, struct json_out *out) {
    enum nvllm_finish_reason finish = choice->finish;
    struct json_out token_ids = choice->token_ids;
    choice->finish = NVLLM_FINISH_NONE;
    choice->token_ids = (struct json_out){0};
    write_chunk(choice, choice->prompt->echo, choice->prompt->echo_len, ANSWER_HEAD, out);
    choice->finish = finish;
    choice->token_ids = token_ids;
}

static void write_delta(struct choice *choice, const struct choice_delta *delta,
                        struct json_out *out) {
    if (begins_with_echo(choice)) write_echo(choice, out);
    logprobs_collect_completion(choice, delta);
    // A token that completes no character has a chunk without text, as in vLLM: what lies between
    // two chunks is then the time of a token.
    if (!delta->num_tokens && !delta->text_len && !delta->finish) return;
    write_chunk(choice, delta->text, delta->text_len, delta->finish ? ANSWER_LAST : ANSWER_PART,
                out);
}

static bool collect(struct choice *choice, const struct choice_delta *delta) {
    const struct prompt *prompt = choice->prompt;
    if (begins_with_echo(choice) &&
        buf_append(&choice->text, prompt->echo, prompt->echo_len, NULL)) {
        return false;
    }
    logprobs_collect_completion(choice, delta);
    return !delta->text_len || !buf_append(&choice->text, delta->text, delta->text_len, NULL);
}

static void write_end(struct api_request *request, struct json_out *out) {
    answer_write_stream_end(request, "text_completion", out);
}

static void write_whole(struct api_request *request, struct json_out *out) {
    answer_write_head(out, request, "text_completion");
    json_out_raw(out, ",\"choices\":[");
    for (uint32_t i = 0; i < request->num_choices; i++) {
        struct choice *choice = &request->choices[i];
        json_out_rawf(out, "%s{\"index\":%u", i ? "," : "", choice->index);
        write_choice(out, choice, choice->text.data, choice->text.len, true);
    }
    json_out_raw(out, "],");
    answer_write_usage(out, request);
    answer_write_timings(out, &request->choices[0]);
    json_out_raw(out, "}");
}

const struct endpoint endpoint_completions = {.id_prefix = "cmpl-",
                                              .prepare = prepare,
                                              .write_delta = write_delta,
                                              .write_end = write_end,
                                              .write_error = answer_write_stream_error,
                                              .collect = collect,
                                              .write_whole = write_whole};
