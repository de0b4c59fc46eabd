/* Linked into the program `nanovllm_merged` with --wrap=nvllm_engine_add_request: requests then get
 * events of NUM_MERGED tokens or more, as from an engine whose steps bring several. The tokens are
 * the real engine's. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nanovllm.h"

enum {
    NUM_MERGED = 3,
    HELD_MAX = 64, // the engine's own events have several tokens where a form leaves no choice
    TEXT_BYTES = 1 << 16,
    ROW_MAX = 1 + NVLLM_LOGPROBS_MAX
};

enum nvllm_status __real_nvllm_engine_add_request(struct nvllm_engine *engine,
                                                  const struct nvllm_request *request,
                                                  uint64_t *request_id, struct nvllm_error *error);
enum nvllm_status __wrap_nvllm_engine_add_request(struct nvllm_engine *engine,
                                                  const struct nvllm_request *request,
                                                  uint64_t *request_id, struct nvllm_error *error);

// The tokens of an output that its next event will bring.
struct held {
    uint32_t num_tokens;
    size_t num_top;
    bool has_logprobs;
    int32_t token_ids[HELD_MAX];
    uint32_t text_ends[HELD_MAX];
    struct nvllm_logprob logprobs[HELD_MAX * ROW_MAX];
    char text[TEXT_BYTES];
    size_t text_len;
};

struct merger {
    nvllm_event_fn on_event; // the caller's
    void *user_data;
    struct held outputs[]; // [n]
};

static void hold(struct held *held, const struct nvllm_event *event) {
    if (held->text_len + event->text_len >= TEXT_BYTES) abort();
    if (held->num_tokens + event->num_tokens > HELD_MAX) abort();
    size_t row = 1 + event->num_top;
    for (uint32_t i = 0; i < event->num_tokens; i++) {
        held->token_ids[held->num_tokens] = event->token_ids[i];
        held->text_ends[held->num_tokens] = (uint32_t)held->text_len + event->text_ends[i];
        if (event->logprobs) {
            held->has_logprobs = true;
            held->num_top = event->num_top;
            memcpy(held->logprobs + held->num_tokens * row, event->logprobs + i * row,
                   row * sizeof *held->logprobs);
        }
        held->num_tokens++;
    }
    memcpy(held->text + held->text_len, event->text, event->text_len + 1);
    held->text_len += event->text_len;
}

static void merge(const struct nvllm_event *event, void *user_data) {
    struct merger *merger = user_data;
    struct held *held = &merger->outputs[event->index];
    bool is_echo = !event->num_tokens && !event->finish_reason;
    if (is_echo) {
        merger->on_event(event, merger->user_data);
        return;
    }
    hold(held, event);
    if (held->num_tokens < NUM_MERGED && !event->finish_reason) return;
    struct nvllm_event merged = *event;
    merged.token_ids = held->token_ids;
    merged.num_tokens = held->num_tokens;
    merged.text = held->text;
    merged.text_len = held->text_len;
    merged.text_ends = held->num_tokens ? held->text_ends : NULL;
    if (held->num_tokens && held->has_logprobs) {
        merged.logprobs = held->logprobs;
        merged.num_top = held->num_top;
    }
    held->num_tokens = 0;
    held->text_len = 0;
    merger->on_event(&merged, merger->user_data);
    if (!event->num_outputs_left) free(merger);
}

enum nvllm_status __wrap_nvllm_engine_add_request(struct nvllm_engine *engine,
                                                  const struct nvllm_request *request,
                                                  uint64_t *request_id, struct nvllm_error *error) {
    if (!request->on_event || request->finish_event_only) {
        return __real_nvllm_engine_add_request(engine, request, request_id, error);
    }
    size_t num_outputs = request->sampling ? (size_t)request->sampling->n : 1;
    struct merger *merger = calloc(1, sizeof *merger + num_outputs * sizeof merger->outputs[0]);
    if (!merger) abort();
    merger->on_event = request->on_event;
    merger->user_data = request->user_data;
    struct nvllm_request mine = *request;
    mine.on_event = merge;
    mine.user_data = merger;
    enum nvllm_status status = __real_nvllm_engine_add_request(engine, &mine, request_id, error);
    if (status) free(merger);
    return status;
}
