#include "server/submit.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static char *put(char **at, const void *bytes, size_t len) {
    char *start = *at;
    if (len) memcpy(start, bytes, len);
    start[len] = '\0';
    *at += len + 1;
    return start;
}

// An event as one allocation: the struct, log-probabilities, texts.
static struct piece *make_piece(const struct nvllm_event *event) {
    size_t num_logprobs = event->chosen ? 1 + event->num_top : 0;
    size_t stop_len = event->stop_string ? strlen(event->stop_string) : 0;
    size_t error_len = event->error ? strlen(event->error) : 0;
    size_t bytes = sizeof(struct piece) + num_logprobs * sizeof(struct nvllm_logprob) +
                   event->text_len + stop_len + error_len + 3;
    struct piece *piece = malloc(bytes);
    CHECK(piece, "out of memory for a token's %zu bytes", bytes);
    *piece = (struct piece){.token_id = event->token_id,
                            .finish = event->finish_reason,
                            .stop_token_id = event->stop_token_id,
                            .num_prompt_tokens = event->num_prompt_tokens,
                            .num_cached_tokens = event->num_cached_tokens,
                            .num_generated_tokens = event->num_generated_tokens,
                            .times = event->times,
                            .text_len = event->text_len,
                            .num_logprobs = num_logprobs};
    struct nvllm_logprob *logprobs = (struct nvllm_logprob *)(void *)(piece + 1);
    if (num_logprobs) {
        logprobs[0] = *event->chosen;
        if (event->num_top) memcpy(logprobs + 1, event->top, event->num_top * sizeof *logprobs);
    }
    piece->logprobs = logprobs;
    char *at = (char *)(logprobs + num_logprobs);
    piece->text = put(&at, event->text, event->text_len);
    if (event->stop_string) piece->stop_string = put(&at, event->stop_string, stop_len);
    if (event->error) piece->error = put(&at, event->error, error_len);
    return piece;
}

// On the engine's thread.
static void on_event(const struct nvllm_event *event, void *user_data) {
    struct choice *choice = user_data;
    struct piece *piece = make_piece(event);
    piece->choice = choice;
    piece->mail.handle = call_handle_piece;
    engine_thread_send(choice->call->api->engine_thread, &piece->mail);
}

static bool submit_one(struct call *call, struct choice *choice) {
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    struct nvllm_error fault = {0};
    request.prompt_token_ids = choice->prompt_ids;
    request.num_prompt_token_ids = choice->num_prompt_ids;
    request.sampling = &choice->sampling;
    request.cache_salt = call->cache_salt;
    request.on_event = on_event;
    request.user_data = choice;
    request.interrupt = &call->interrupt;
    enum nvllm_status status =
        nvllm_engine_add_request(call->api->engine, &request, &choice->engine_id, &fault);
    return api_error_library(&call->error, status, &fault, NULL);
}

void submit_choices(struct call *call) {
    for (uint32_t i = 0; i < call->num_choices; i++) {
        if (!submit_one(call, &call->choices[i])) {
            call_cancel(call);
            return;
        }
        atomic_store(&call->num_added, i + 1);
        if (atomic_load(&call->is_cancelled)) {
            api_error_set(&call->error, 503, "cancelled", NULL, "the request was cancelled");
            call_cancel(call);
            return;
        }
    }
}

bool submit_encode(struct call *call, struct choice *choice, const char *text, size_t len,
                   bool add_special_tokens, const char *param) {
    struct nvllm_error fault = {0};
    enum nvllm_status status = nvllm_tokenizer_encode(
        call->api->tokenizer, text, len, add_special_tokens, &call->interrupt, &choice->prompt_ids,
        &choice->num_prompt_ids, &fault);
    return api_error_library(&call->error, status, &fault, param);
}

bool submit_fit(struct call *call, struct choice *choice, int64_t max_tokens, const char *param) {
    uint32_t context = call->api->max_model_len;
    size_t len = choice->num_prompt_ids;
    if (len >= context) {
        return api_error_set(&call->error, 400, "context_length_exceeded", param,
                             "the prompt has %zu tokens and the context holds %u, with at least "
                             "one to generate",
                             len, context);
    }
    size_t left = context - len;
    if (max_tokens > (int64_t)left) {
        return api_error_set(&call->error, 400, "context_length_exceeded", "max_tokens",
                             "the prompt has %zu tokens, %lld more are asked for, and the context "
                             "holds %u",
                             len, (long long)max_tokens, context);
    }
    choice->sampling.max_tokens = (int32_t)(max_tokens < 0 ? (int64_t)left : max_tokens);
    return true;
}
