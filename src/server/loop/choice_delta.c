/* An event of the engine, copied into one allocation and sent to the loop. Runs on the engine's
 * thread. */
#include <stdlib.h>
#include <string.h>

#include "server/loop/api_request_internal.h"

void choice_delta_free(struct choice_delta *delta) {
    if (delta == &delta->choice->last_delta) return;
    free(delta->prompt_logprobs);
    free(delta);
}

static char *put(char **at, const void *bytes, size_t len) {
    char *start = *at;
    if (len) memcpy(start, bytes, len);
    start[len] = '\0';
    *at += len + 1;
    return start;
}

static void *put_list(char **at, const void *items, size_t count, size_t size) {
    void *start = *at;
    if (count) memcpy(start, items, count * size);
    *at += count * size;
    return start;
}

// An event as one allocation: the struct, lists of 4-byte items, texts. NULL: no memory.
static struct choice_delta *make_delta(const struct nvllm_event *event) {
    size_t num_tokens = event->num_tokens;
    size_t num_logprobs = event->logprobs ? num_tokens * (1 + event->num_top) : 0;
    size_t stop_len = event->stop_string ? strlen(event->stop_string) : 0;
    size_t error_len = event->error ? strlen(event->error) : 0;
    size_t num_dimensions = event->embedding ? event->num_dimensions : 0;
    size_t bytes = sizeof(struct choice_delta) + num_logprobs * sizeof(struct nvllm_logprob) +
                   num_tokens * (sizeof(int32_t) + sizeof(uint32_t)) +
                   num_dimensions * sizeof(float) + event->text_len + stop_len + error_len + 3;
    struct choice_delta *delta = malloc(bytes);
    if (!delta) return NULL;
    *delta = (struct choice_delta){.finish = event->finish_reason,
                                   .stop_token_id = event->stop_token_id,
                                   .num_prompt_tokens = event->num_prompt_tokens,
                                   .num_cached_tokens = event->num_cached_tokens,
                                   .num_generated_tokens = event->num_generated_tokens,
                                   .num_preemptions = event->num_preemptions,
                                   .times = event->times,
                                   .text_len = event->text_len,
                                   .num_tokens = event->num_tokens,
                                   .num_top = event->num_top};
    char *at = (char *)(delta + 1);
    delta->token_ids = put_list(&at, event->token_ids, num_tokens, sizeof *event->token_ids);
    delta->text_ends = put_list(&at, event->text_ends, num_tokens, sizeof *event->text_ends);
    if (event->logprobs) {
        delta->logprobs = put_list(&at, event->logprobs, num_logprobs, sizeof *event->logprobs);
    }
    if (num_dimensions) {
        delta->embedding =
            put_list(&at, event->embedding, num_dimensions, sizeof *event->embedding);
        delta->num_dimensions = event->num_dimensions;
    }
    delta->text = put(&at, event->text, event->text_len);
    if (event->stop_string) delta->stop_string = put(&at, event->stop_string, stop_len);
    if (event->error) delta->error = put(&at, event->error, error_len);
    return delta;
}

// Once a prompt, with the first event that has them. False: no memory.
static bool copy_prompt_logprobs(struct prompt *prompt, const struct nvllm_event *event,
                                 struct choice_delta *delta) {
    if (!event->prompt_logprobs || prompt->has_sent_logprobs) return true;
    size_t count = (event->num_prompt_tokens - 1) * (1 + event->num_prompt_top);
    delta->prompt_logprobs = malloc((count ? count : 1) * sizeof *delta->prompt_logprobs);
    if (!delta->prompt_logprobs) return false;
    if (count) {
        memcpy(delta->prompt_logprobs, event->prompt_logprobs,
               count * sizeof *delta->prompt_logprobs);
    }
    prompt->has_sent_logprobs = true;
    return true;
}

static struct choice_delta *make_whole_delta(struct prompt *prompt,
                                             const struct nvllm_event *event) {
    struct choice_delta *delta = make_delta(event);
    if (!delta || copy_prompt_logprobs(prompt, event, delta)) return delta;
    free(delta);
    return NULL;
}

// The end of a choice that has lost a delta.
static struct choice_delta *last_delta(struct choice *choice, const struct nvllm_event *event) {
    choice->last_delta = (struct choice_delta){.finish = NVLLM_FINISH_ERROR,
                                               .stop_token_id = -1,
                                               .num_prompt_tokens = event->num_prompt_tokens,
                                               .num_cached_tokens = event->num_cached_tokens,
                                               .num_generated_tokens = event->num_generated_tokens,
                                               .times = event->times,
                                               .text = "",
                                               .has_no_memory = true};
    return &choice->last_delta;
}

void choice_delta_on_event(const struct nvllm_event *event, void *user_data) {
    struct prompt *prompt = user_data;
    struct api *api = prompt->request->api;
    struct choice *choice = &prompt->choices[event->index];
    struct choice_delta *delta = choice->is_lost ? NULL : make_whole_delta(prompt, event);
    if (!delta) {
        if (!choice->is_lost) nvllm_engine_abort(api->engine, event->request_id);
        choice->is_lost = true;
        if (!event->finish_reason) return;
        delta = last_delta(choice, event);
    }
    delta->choice = choice;
    delta->message.handle = api_request_handle_delta;
    engine_thread_send(api->engine_thread, &delta->message);
}
