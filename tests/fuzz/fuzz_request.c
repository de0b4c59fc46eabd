// Bodies of every POST that reads one: any bytes become token ids and parameters, or one error that
// names a status below 500. What was read is then answered with a fixed text, and each answer is
// JSON. No socket and no engine. The first byte chooses the endpoint.
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json/jread.h"
#include "server/api/endpoints.h"
#include "server/loop/api_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct endpoint *const endpoints[] = {
    &endpoint_completions,  &endpoint_chat,     &endpoint_responses,  &endpoint_messages,
    &endpoint_count_tokens, &endpoint_tokenize, &endpoint_detokenize, &endpoint_apply_template};

static const char template_source[] =
    "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ "
    "m.role }}{{ m.reasoning_content or '' }}{{ m.content or '' }}{% for c in m.tool_calls or [] "
    "%}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor "
    "%}{% if add_generation_prompt %}<|im_start|>assistant{% if enable_thinking is false "
    "%}<think></think>{% endif %}{% endif %}";

static const char *const answer[] = {
    "<thi",         "nk>so</think>Hi \xe4\xb8\x96 ", "",
    "<tool_call>{", "\"name\": \"f\", \"arg",        "uments\": {\"a\": [1]}}</tool_call>"};

static struct nvllm_chat_template *open_template(void) {
    char path[] = "/tmp/nanovllm-fuzz-request-"
                  "XX"
                  "XX"
                  "XX";
    int fd = mkstemp(path);
    CHECK(fd >= 0, "mkstemp failed");
    size_t len = strlen(template_source);
    CHECK(write(fd, template_source, len) == (ssize_t)len, "len=%zu", len);
    close(fd);
    struct nvllm_chat_template *chat_template = NULL;
    CHECK(nvllm_chat_template_open(&chat_template, NULL, path, NULL) == NVLLM_OK, "%s", path);
    unlink(path);
    return chat_template;
}

static void ignore_end(struct api *api) {
    (void)api;
}

// Opened once and kept: the fuzzer calls the same process again and again.
static struct api *get_api(void) {
    static struct api api;
    static const char *const names[] = {"tiny"};
    static const struct server_options options = {.host = "127.0.0.1",
                                                  .model_names = names,
                                                  .num_model_names = 1,
                                                  .tool_call_parser = "auto",
                                                  .reasoning_parser = "auto",
                                                  .outputs_max = 16};
    if (api.options) return &api;
    struct nvllm_tokenizer *tokenizer = NULL;
    CHECK(nvllm_tokenizer_open(&tokenizer, "models/tiny-qwen3", NULL) == NVLLM_OK, "no tokenizer");
    api.options = &options;
    api.tokenizer = tokenizer;
    api.max_model_len = 4096;
    api.on_requests_ended = ignore_end;
    TAILQ_INIT(&api.requests);
    api_set_chat(&api, open_template());
    CHECK(api.reads_tools && api.tool_format, "the template has tools");
    return &api;
}

static void check_json(const char *text, size_t len) {
    json_t *root = NULL;
    struct err err = {0};
    CHECK(jread_text(&root, text, len, "an answer", &err) == OK, "%s: %.*s", err.message, (int)len,
          text);
    json_decref(root);
}

// Each "data: " line of a stream.
static void check_events(const struct json_out *out) {
    CHECK(!out->status, "status=%d", out->status);
    const char *at = out->buf.data, *end;
    while (at && *at) {
        CHECK((end = strstr(at, "\n\n")) != NULL, "%s", at);
        const char *data = strstr(at, "data: ");
        CHECK(data && data < end, "%s", at);
        data += 6;
        if (strncmp(data, "[DONE]", 6) != 0) check_json(data, (size_t)(end - data));
        at = end + 2;
    }
}

static void answer_choice(struct choice *choice, struct json_out *out) {
    struct api_request *request = choice->request;
    for (size_t i = 0; i < ARRAY_LEN(answer); i++) {
        bool is_last = i + 1 == ARRAY_LEN(answer);
        const struct nvllm_logprob logprobs[] = {{5, -0.5f}, {5, -0.5f}, {6, -1.5f}};
        const int32_t token_id = 5;
        const uint32_t text_end = (uint32_t)strlen(answer[i]);
        const struct choice_delta delta = {.choice = choice,
                                           .finish =
                                               is_last ? NVLLM_FINISH_STOP : NVLLM_FINISH_NONE,
                                           .text = answer[i],
                                           .text_len = strlen(answer[i]),
                                           .token_ids = &token_id,
                                           .text_ends = &text_end,
                                           .num_tokens = 1,
                                           .logprobs = logprobs,
                                           .num_top = ARRAY_LEN(logprobs) - 1};
        choice->finish = delta.finish;
        if (request->answer.stream) {
            request->endpoint->write_delta(choice, &delta, out);
            continue;
        }
        CHECK(request->endpoint->collect(choice, &delta), "no memory");
    }
}

static void answer_request(struct api_request *request) {
    struct json_out out = {0};
    const struct endpoint *endpoint = request->endpoint;
    if (request->answer.stream && endpoint->write_begin) endpoint->write_begin(request, &out);
    for (uint32_t i = 0; i < request->num_choices; i++) answer_choice(&request->choices[i], &out);
    if (request->answer.stream) {
        endpoint->write_end(request, &out);
        check_events(&out);
    } else {
        endpoint->write_whole(request, &out);
        CHECK(!out.status, "status=%d", out.status);
        check_json(out.buf.data, out.buf.len);
    }
    json_out_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    struct api_request *request =
        api_request_create(get_api(), endpoints[data[0] % ARRAY_LEN(endpoints)]);
    CHECK(request && !buf_append(&request->body, data + 1, size - 1, NULL), "out of memory");
    bool is_good = request->endpoint->prepare(request);
    if (!is_good) {
        int status = request->error.status;
        CHECK(status >= 400 && status < 500 && request->error.message[0], "status=%d: %s", status,
              request->error.message);
    } else if (request->answers_at_once) {
        CHECK(!request->result.status, "status=%d", request->result.status);
        check_json(request->result.buf.data, request->result.buf.len);
    } else {
        CHECK(request->num_prompts && request->prompts[0].num_ids, "nothing to generate from");
        answer_request(request);
    }
    api_request_free(request);
    return 0;
}
