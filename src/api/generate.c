/* nvllm_engine_generate: a list of requests to its end, collected into results. Written over the
 * public functions, as a user could. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "base/buf.h"
#include "base/check.h"

// One request while it runs; the callback's user_data.
struct collector {
    struct nvllm_result *result;
    const struct nvllm_request *request; // the caller's
    struct buf text;
    size_t capacity; // tokens that token_ids and logprobs have room for
    bool finished;
    bool *out_of_memory; // of the whole list
    uint64_t id;
};

static bool grow(struct collector *c, size_t num_tokens, size_t row) {
    if (num_tokens <= c->capacity) return true;
    size_t capacity = c->capacity ? c->capacity * 2 : 64;
    struct nvllm_result *result = c->result;
    int32_t *ids = realloc(result->token_ids, capacity * sizeof *ids);
    if (!ids) return false;
    result->token_ids = ids;
    if (row) {
        struct nvllm_logprob *logprobs =
            realloc(result->logprobs, capacity * row * sizeof *logprobs);
        if (!logprobs) return false;
        result->logprobs = logprobs;
    }
    c->capacity = capacity;
    return true;
}

static bool collect_token(struct collector *c, const struct nvllm_event *event) {
    struct nvllm_result *result = c->result;
    size_t row = event->chosen ? 1 + event->num_top : 0;
    if (!grow(c, result->num_tokens + 1, row)) return false;
    if (row) {
        struct nvllm_logprob *out = result->logprobs + result->num_tokens * row;
        out[0] = *event->chosen;
        memcpy(out + 1, event->top, event->num_top * sizeof *out);
        result->num_top = (int32_t)event->num_top;
    }
    result->token_ids[result->num_tokens++] = event->token_id;
    return true;
}

// To the caller's own callback, as the engine would have.
static void forward_event(const struct nvllm_request *request, const struct nvllm_event *event) {
    if (!request->on_event) return;
    struct nvllm_event last = *event;
    if (request->finish_event_only) {
        if (!event->finish_reason) return;
        last.text = "";
        last.text_len = 0;
        last.chosen = last.top = NULL;
        last.num_top = 0;
    }
    request->on_event(&last, request->user_data);
}

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct collector *c = user_data;
    struct nvllm_result *result = c->result;
    if (event->token_id >= 0 && !collect_token(c, event)) *c->out_of_memory = true;
    if (buf_append(&c->text, event->text, event->text_len, NULL)) *c->out_of_memory = true;
    if (event->finish_reason) {
        c->finished = true;
        result->finish_reason = event->finish_reason;
        result->stop_token_id = event->stop_token_id;
        result->num_cached_tokens = event->num_cached_tokens;
        if (event->error) {
            struct err err = {0};
            api_error(&result->error, err_set(&err, ERR_DEVICE, "%s", event->error), &err);
        }
        if (event->stop_string) {
            result->stop_string = strdup(event->stop_string);
            if (!result->stop_string) *c->out_of_memory = true;
        }
    }
    forward_event(c->request, event);
}

// The ids of an accepted request; the engine has checked them.
static bool copy_prompt_ids(struct nvllm_result *result, const struct nvllm_request *request) {
    size_t bytes = request->num_prompt_token_ids * sizeof *result->prompt_token_ids;
    result->prompt_token_ids = malloc(bytes);
    if (!result->prompt_token_ids) return false;
    memcpy(result->prompt_token_ids, request->prompt_token_ids, bytes);
    result->num_prompt_tokens = request->num_prompt_token_ids;
    return true;
}

// Text and chats are encoded here, once, and go to the engine as ids: the result wants them too.
static enum nvllm_status encode_chat(struct nvllm_engine *engine,
                                     const struct nvllm_request *request,
                                     struct nvllm_result *result) {
    const struct nvllm_chat_template *chat_template =
        nvllm_engine_chat_template(engine, &result->error);
    if (!chat_template) return result->error.status;
    char *text = NULL;
    size_t text_len = 0;
    enum nvllm_status status = nvllm_chat_template_render(
        chat_template, request->chat, request->chat_len, &text, &text_len, &result->error);
    if (!status) {
        status = nvllm_tokenizer_encode(nvllm_engine_tokenizer(engine), text, text_len, 0,
                                        &result->prompt_token_ids, &result->num_prompt_tokens,
                                        &result->error);
    }
    nvllm_free(text);
    return status;
}

static enum nvllm_status add_text(struct nvllm_engine *engine, struct collector *c,
                                  struct nvllm_request request) {
    struct nvllm_result *result = c->result;
    enum nvllm_status status =
        request.chat ? encode_chat(engine, &request, result)
                     : nvllm_tokenizer_encode(nvllm_engine_tokenizer(engine), request.prompt,
                                              request.prompt_len, 1, &result->prompt_token_ids,
                                              &result->num_prompt_tokens, &result->error);
    if (status) return status;
    request.prompt = NULL;
    request.chat = NULL;
    request.prompt_token_ids = result->prompt_token_ids;
    request.num_prompt_token_ids = result->num_prompt_tokens;
    return nvllm_engine_add_request(engine, &request, &c->id, &result->error);
}

static enum nvllm_status add_ids(struct nvllm_engine *engine, struct collector *c,
                                 struct nvllm_request request) {
    struct nvllm_result *result = c->result;
    enum nvllm_status status = nvllm_engine_add_request(engine, &request, &c->id, &result->error);
    if (status || !request.prompt_token_ids || copy_prompt_ids(result, &request)) return status;
    struct err err = {0};
    return api_error(&result->error, err_nomem(&err, "prompt"), &err);
}

// Refusals become the request's own result; only running out of memory or a lost engine ends the
// list.
static enum nvllm_status submit(struct nvllm_engine *engine, struct collector *c,
                                struct nvllm_error *error) {
    struct nvllm_result *result = c->result;
    struct err err = {0};
    result->stop_token_id = -1;
    result->num_top = -1;
    enum nvllm_status status =
        api_error(&result->error,
                  api_check_size(c->request, sizeof *c->request, "nvllm_request", &err), &err);
    if (!status) {
        struct nvllm_request request = *c->request;
        request.on_event = on_event;
        request.user_data = c;
        request.finish_event_only = 0; // the result wants every token
        // Whatever else was given, the engine refuses it with the reason.
        bool is_text = !request.prompt != !request.chat && !request.prompt_token_ids &&
                       nvllm_engine_tokenizer(engine);
        status = is_text ? add_text(engine, c, request) : add_ids(engine, c, request);
    }
    if (!status) {
        if (c->request->sampling) result->num_top = c->request->sampling->logprobs;
        return NVLLM_OK;
    }
    if (status == NVLLM_ERR_NOMEM || status == NVLLM_ERR_DEVICE) {
        if (error) *error = result->error;
        return status;
    }
    c->finished = true;
    result->finish_reason = NVLLM_FINISH_ERROR;
    return NVLLM_OK;
}

static size_t count_unfinished(const struct collector *collectors, size_t count, size_t *first) {
    // Requests finish roughly in order: remember how far everything is done.
    while (*first < count && collectors[*first].finished) ++*first;
    return count - *first;
}

static enum nvllm_status run(struct nvllm_engine *engine, struct collector *collectors,
                             size_t count, const volatile int *interrupt,
                             struct nvllm_error *error) {
    size_t first = 0;
    while (count_unfinished(collectors, count, &first)) {
        if (interrupt && *interrupt) break;
        enum nvllm_status status = nvllm_engine_step(engine, error);
        if (status) return status;
        if (*collectors->out_of_memory) break; // finish_text reports it
    }
    return NVLLM_OK;
}

static void abort_rest(struct nvllm_engine *engine, struct collector *collectors, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (collectors[i].id && !collectors[i].finished)
            nvllm_engine_abort(engine, collectors[i].id);
    }
}

static enum status finish_text(struct collector *c, struct err *err) {
    if (*c->out_of_memory || buf_reserve(&c->text, 0, NULL)) return err_nomem(err, "results");
    c->result->text = c->text.data; // handed over
    c->result->text_len = c->text.len;
    c->text = (struct buf){0};
    return OK;
}

enum nvllm_status nvllm_engine_generate(struct nvllm_engine *engine,
                                        const struct nvllm_request *requests, size_t num_requests,
                                        struct nvllm_result **results,
                                        const volatile int *interrupt, struct nvllm_error *error) {
    *results = NULL;
    struct err err = {0};
    struct nvllm_result *out = calloc(num_requests ? num_requests : 1, sizeof *out);
    struct collector *collectors = calloc(num_requests ? num_requests : 1, sizeof *collectors);
    bool out_of_memory = false;
    enum nvllm_status status = NVLLM_OK;
    if (!out || !collectors) {
        api_error(error, err_nomem(&err, "results"), &err);
        status = NVLLM_ERR_NOMEM;
    }

    for (size_t i = 0; i < num_requests && !status; i++) {
        collectors[i] = (struct collector){
            .result = &out[i], .request = &requests[i], .out_of_memory = &out_of_memory};
        status = submit(engine, &collectors[i], error);
    }
    if (!status) status = run(engine, collectors, num_requests, interrupt, error);
    if (collectors) abort_rest(engine, collectors, num_requests);
    for (size_t i = 0; i < num_requests && !status; i++) {
        status = api_error(error, finish_text(&collectors[i], &err), &err);
    }
    for (size_t i = 0; i < num_requests && collectors; i++) buf_fini(&collectors[i].text);
    free(collectors);
    if (status) {
        nvllm_results_free(out, num_requests);
        return status;
    }
    *results = out;
    return NVLLM_OK;
}

void nvllm_results_free(struct nvllm_result *results, size_t num_results) {
    if (!results) return;
    for (size_t i = 0; i < num_results; i++) {
        free(results[i].stop_string);
        free(results[i].prompt_token_ids);
        free(results[i].token_ids);
        free(results[i].text);
        free(results[i].logprobs);
    }
    free(results);
}
