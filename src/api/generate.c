/* nvllm_engine_generate runs a list of requests and collects their results. It drives the engine
 * from the first request to the last event. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "base/check.h"
#include "base/text/buf.h"
#include "base/thread/interrupt.h"
#include "engine/data_parallel/engine_group.h"

// One output while it runs.
struct output {
    struct nvllm_result *result;
    struct buf text;
    size_t capacity; // of token_ids and logprobs, in tokens
};

// One request while it runs; the callback's user_data.
struct collector {
    struct output *outputs; // [num_outputs], by index; their results are linked in that order
    uint32_t num_outputs;
    const struct nvllm_request *request; // the caller's
    struct request *built; // set until it is submitted; else NULL
    uint64_t id; // set when submitted; else 0
    bool finished;
    bool *out_of_memory; // of the whole list
};

static bool grow(struct output *output, size_t num_tokens, size_t row) {
    if (num_tokens <= output->capacity) return true;
    size_t capacity = output->capacity ? output->capacity * 2 : 64;
    if (capacity < num_tokens) capacity = num_tokens;
    struct nvllm_result *result = output->result;
    int32_t *ids = realloc(result->token_ids, capacity * sizeof *ids);
    if (!ids) return false;
    result->token_ids = ids;
    if (row) {
        struct nvllm_logprob *logprobs =
            realloc(result->logprobs, capacity * row * sizeof *logprobs);
        if (!logprobs) return false;
        result->logprobs = logprobs;
    }
    output->capacity = capacity;
    return true;
}

static bool collect_tokens(struct output *output, const struct nvllm_event *event) {
    struct nvllm_result *result = output->result;
    size_t row = event->logprobs ? 1 + event->num_top : 0;
    if (!event->num_tokens) return true;
    if (!grow(output, result->num_tokens + event->num_tokens, row)) return false;
    if (row) {
        memcpy(result->logprobs + result->num_tokens * row, event->logprobs,
               event->num_tokens * row * sizeof *result->logprobs);
        result->num_top = (int32_t)event->num_top;
    }
    memcpy(result->token_ids + result->num_tokens, event->token_ids,
           event->num_tokens * sizeof *result->token_ids);
    result->num_tokens += event->num_tokens;
    return true;
}

// Calls the caller's own callback as the engine would.
static void forward_event(const struct nvllm_request *request, const struct nvllm_event *event) {
    if (!request->on_event) return;
    struct nvllm_event last = *event;
    if (request->finish_event_only && !event->finish_reason) return;
    if (request->finish_event_only) llm_engine_make_finish_event(&last);
    request->on_event(&last, request->user_data);
}

static bool collect_prompt_logprobs(struct nvllm_result *result, const struct nvllm_event *event) {
    if (!event->prompt_logprobs) return true;
    size_t count = (event->num_prompt_tokens - 1) * (1 + event->num_prompt_top);
    result->prompt_logprobs = malloc((count ? count : 1) * sizeof *result->prompt_logprobs);
    if (!result->prompt_logprobs) return false;
    memcpy(result->prompt_logprobs, event->prompt_logprobs,
           count * sizeof *result->prompt_logprobs);
    result->num_prompt_top = (int32_t)event->num_prompt_top;
    return true;
}

static bool collect_end(struct output *output, const struct nvllm_event *event) {
    struct nvllm_result *result = output->result;
    result->finish_reason = event->finish_reason;
    result->stop_token_id = event->stop_token_id;
    result->num_cached_tokens = event->num_cached_tokens;
    result->times = event->times;
    if (event->error) {
        struct err err = {0};
        api_error(&result->error, err_set(&err, ERR_DEVICE, "%s", event->error), &err);
    }
    if (event->embedding) {
        size_t bytes = event->num_dimensions * sizeof *result->embedding;
        result->embedding = malloc(bytes);
        if (!result->embedding) return false;
        memcpy(result->embedding, event->embedding, bytes);
        result->num_dimensions = event->num_dimensions;
    }
    if (event->stop_string && !(result->stop_string = strdup(event->stop_string))) return false;
    size_t bytes = event->num_prompt_tokens * sizeof *result->prompt_token_ids;
    result->prompt_token_ids = malloc(bytes);
    if (!result->prompt_token_ids) return false;
    memcpy(result->prompt_token_ids, event->prompt_token_ids, bytes);
    result->num_prompt_tokens = event->num_prompt_tokens;
    return event->index || collect_prompt_logprobs(result, event);
}

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct collector *c = user_data;
    struct output *output = &c->outputs[event->index];
    bool collected = collect_tokens(output, event);
    if (buf_append(&output->text, event->text, event->text_len, NULL)) collected = false;
    if (event->finish_reason && !collect_end(output, event)) collected = false;
    if (!event->num_outputs_left) c->finished = true;
    if (!collected) *c->out_of_memory = true;
    forward_event(c->request, event);
}

// A refused request gets an error as its result. Only lack of memory or a lost engine ends the
// list.
static enum status refuse(struct collector *c, enum status status, const struct err *why,
                          struct err *err) {
    if (status == ERR_NOMEM || status == ERR_DEVICE) {
        *err = *why;
        return status;
    }
    c->finished = true;
    bool interrupted = status == ERR_INTERRUPTED;
    for (uint32_t i = 0; i < c->num_outputs; i++) {
        struct nvllm_result *result = c->outputs[i].result;
        result->finish_reason = interrupted ? NVLLM_FINISH_ABORT : NVLLM_FINISH_ERROR;
        api_error(&result->error, status, why);
    }
    return OK;
}

static struct nvllm_result empty_result(uint32_t index) {
    return (struct nvllm_result){
        .index = index, .stop_token_id = -1, .num_top = -1, .num_prompt_top = -1};
}

// Links the results of the other outputs behind `first`, that of output 0.
static enum status make_outputs(struct collector *c, struct nvllm_result *first,
                                uint32_t num_outputs, struct err *err) {
    c->outputs = calloc(num_outputs, sizeof *c->outputs);
    if (!c->outputs) return err_nomem(err, "results");
    *first = empty_result(0);
    c->outputs[0].result = first;
    for (c->num_outputs = 1; c->num_outputs < num_outputs; c->num_outputs++) {
        struct nvllm_result *result = malloc(sizeof *result);
        if (!result) return err_nomem(err, "results");
        *result = empty_result(c->num_outputs);
        c->outputs[c->num_outputs - 1].result->next = result;
        c->outputs[c->num_outputs].result = result;
    }
    return OK;
}

static void set_num_top(struct collector *c, int32_t num_top) {
    for (uint32_t i = 0; i < c->num_outputs; i++) c->outputs[i].result->num_top = num_top;
}

static enum status build(const struct engine_group *group, struct collector *c,
                         struct nvllm_result *first, const struct nvllm_interrupt *interrupt,
                         struct err *err) {
    struct err why = {0};
    enum status status = api_check_request(c->request, &why);
    struct nvllm_request request = {0};
    if (!status) {
        request = *c->request;
        request.on_event = on_event;
        request.user_data = c;
        request.finish_event_only = 0; // the result collects every token
        if (interrupt) request.interrupt = interrupt;
        status = engine_group_build_request(group, &request, false, &c->built, &why);
    }
    enum status made = make_outputs(c, first, c->built ? c->built->num_outputs : 1, err);
    if (made) return made;
    if (status) return refuse(c, status, &why, err);
    if (request.sampling) {
        size_t num_given = request.sampling->num_logprob_token_ids;
        set_num_top(c, num_given ? (int32_t)num_given : request.sampling->logprobs);
    }
    return OK;
}

// Submits requests from *next on, in order, while there is room to wait.
static enum status submit(struct engine_group *group, struct collector *collectors, size_t count,
                          size_t *next, struct err *err) {
    for (; *next < count; ++*next) {
        struct collector *c = &collectors[*next];
        if (!c->built) continue; // refused
        struct err why = {0};
        enum status status = engine_group_submit(group, c->built, &c->id, &why);
        // Try again after a step.
        if (status == ERR_CAPACITY && engine_group_num_unfinished(group)) return OK;
        if (status) {
            request_destroy(c->built);
            set_num_top(c, -1);
            status = refuse(c, status, &why, err);
        }
        c->built = NULL;
        if (status) return status;
    }
    return OK;
}

// Requests finish roughly in order, so *first remembers up to where all are finished.
static bool all_finished(const struct collector *collectors, size_t count, size_t *first) {
    while (*first < count && collectors[*first].finished) ++*first;
    return *first == count;
}

static enum status run(struct engine_group *group, struct collector *collectors, size_t count,
                       const struct interrupt *interrupt, struct err *err) {
    size_t first = 0, next = 0;
    for (;;) {
        enum status status = submit(group, collectors, count, &next, err);
        if (status || all_finished(collectors, count, &first)) return status;
        if (interrupt_check(interrupt, NULL)) return OK;
        status = engine_group_step(group, err);
        if (status) return status;
        if (*collectors->out_of_memory) return OK; // finish_text reports it
    }
}

// Leaves no request of the list in the group, however the run ended.
static void abort_rest(struct engine_group *group, struct collector *collectors, size_t count) {
    bool has_aborted = false;
    for (size_t i = 0; i < count; i++) {
        struct collector *c = &collectors[i];
        if (c->id && !c->finished) has_aborted |= engine_group_abort(group, c->id);
        if (!c->built) continue;
        request_destroy(c->built);
        for (uint32_t k = 0; k < c->num_outputs; k++) {
            c->outputs[k].result->finish_reason = NVLLM_FINISH_ABORT;
        }
    }
    if (has_aborted)
        // Delivers their last events; a lost engine has none.
        (void)!engine_group_wait(group, 0, NULL);
}

static enum status finish_text(struct collector *c, struct err *err) {
    for (uint32_t i = 0; i < c->num_outputs; i++) {
        struct output *output = &c->outputs[i];
        if (*c->out_of_memory || buf_reserve(&output->text, 0, NULL)) {
            return err_nomem(err, "results");
        }
        output->result->text = output->text.data; // the result owns it now
        output->result->text_len = output->text.len;
        output->text = (struct buf){0};
    }
    return OK;
}

static void collector_fini(struct collector *c) {
    for (uint32_t i = 0; i < c->num_outputs; i++) buf_fini(&c->outputs[i].text);
    free(c->outputs);
}

// `results` and `collectors`: [count], zeros.
static enum status generate(struct engine_group *group, const struct nvllm_request *requests,
                            struct nvllm_result *results, struct collector *collectors,
                            size_t count, const struct nvllm_interrupt *interrupt,
                            struct err *err) {
    const struct interrupt asked = llm_engine_interrupt(interrupt);
    bool out_of_memory = false;
    enum status status = OK;
    for (size_t i = 0; i < count && !status; i++) {
        collectors[i] =
            (struct collector){.request = &requests[i], .out_of_memory = &out_of_memory};
        status = build(group, &collectors[i], &results[i], interrupt, err);
    }
    if (!status) status = run(group, collectors, count, &asked, err);
    abort_rest(group, collectors, count);
    for (size_t i = 0; i < count && !status; i++) status = finish_text(&collectors[i], err);
    for (size_t i = 0; i < count; i++) collector_fini(&collectors[i]);
    return status;
}

enum nvllm_status nvllm_engine_generate(struct nvllm_engine *handle,
                                        const struct nvllm_request *requests, size_t num_requests,
                                        struct nvllm_result **results,
                                        const struct nvllm_interrupt *interrupt,
                                        struct nvllm_error *error) {
    struct engine_group *group = (struct engine_group *)handle;
    *results = NULL;
    struct err err = {0};
    enum status status = engine_group_enter(group, &err);
    if (status) return api_error(error, status, &err);
    struct nvllm_result *out = calloc(num_requests ? num_requests : 1, sizeof *out);
    struct collector *collectors = calloc(num_requests ? num_requests : 1, sizeof *collectors);
    status = out && collectors
                 ? generate(group, requests, out, collectors, num_requests, interrupt, &err)
                 : err_nomem(&err, "results");
    engine_group_leave(group);
    free(collectors);
    if (status) {
        nvllm_results_free(out, num_requests);
        return api_error(error, status, &err);
    }
    *results = out;
    return NVLLM_OK;
}

static void free_parts(struct nvllm_result *result) {
    free(result->stop_string);
    free(result->prompt_token_ids);
    free(result->token_ids);
    free(result->text);
    free(result->logprobs);
    free(result->prompt_logprobs);
    free(result->embedding);
}

void nvllm_results_free(struct nvllm_result *results, size_t num_results) {
    if (!results) return;
    for (size_t i = 0; i < num_results; i++) {
        struct nvllm_result *result = results[i].next;
        while (result) {
            struct nvllm_result *next = result->next;
            free_parts(result);
            free(result);
            result = next;
        }
        free_parts(&results[i]);
    }
    free(results);
}
