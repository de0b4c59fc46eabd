/* From a prepared API request to the engine: its prompts and choices, their token ids, the room in
 * the context, and whose fault it is where the engine refuses one. On a thread of the pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/encode.h"
#include "server/chat/tool_form.h"
#include "server/loop/api_request_internal.h"
#include "server/loop/body.h"

// ---- prompts ----

bool api_request_make_prompts(struct api_request *request, uint32_t count) {
    uint32_t n = (uint32_t)request->sampling.n;
    request->prompts = calloc(count, sizeof *request->prompts);
    request->choices =
        request->prompts ? calloc((size_t)count * n, sizeof *request->choices) : NULL;
    if (!request->choices) return api_error_nomem(&request->error);
    request->num_prompts = count;
    request->num_choices = count * n;
    for (uint32_t i = 0; i < count; i++) {
        struct prompt *prompt = &request->prompts[i];
        prompt->request = request;
        prompt->choices = &request->choices[i * n];
        prompt->sampling = request->sampling;
        prompt->sampling.owned = NULL;
    }
    for (uint32_t i = 0; i < request->num_choices; i++) {
        struct choice *choice = &request->choices[i];
        choice->request = request;
        choice->prompt = &request->prompts[i / n];
        choice->index = i;
        choice->stop_token_id = -1;
    }
    return true;
}

bool api_request_encode(struct api_request *request, struct prompt *prompt, const char *text,
                        size_t len, bool add_special_tokens, const char *param) {
    struct nvllm_error fault = {0};
    // An endpoint that generates has no use for more ids than fit into the context.
    uint32_t len_max = request->endpoint->collect ? request->api->max_model_len : 0;
    prompt->num_ids = len_max;
    enum nvllm_status status =
        api_encode(request->api->tokenizer, text, len, add_special_tokens, &request->interrupt,
                   &prompt->ids, &prompt->num_ids, &fault);
    if (status == NVLLM_ERR_CAPACITY && request->wants_vectors) {
        return api_error_set(&request->error, 400, "context_length_exceeded", param,
                             "a text has more than %u tokens, which the context holds", len_max);
    }
    if (status == NVLLM_ERR_CAPACITY) {
        return api_error_set(&request->error, 400, "context_length_exceeded", param,
                             "the prompt has more than %u tokens and the context holds %u, with at "
                             "least one to generate",
                             len_max, len_max);
    }
    return api_error_library(&request->error, status, &fault, param);
}

bool api_request_fit(struct api_request *request, struct prompt *prompt, int64_t max_tokens,
                     const char *param) {
    uint32_t context = request->api->max_model_len;
    size_t len = prompt->num_ids;
    if (len >= context) {
        return api_error_set(&request->error, 400, "context_length_exceeded", param,
                             "the prompt has %zu tokens and the context holds %u, with at least "
                             "one to generate",
                             len, context);
    }
    size_t left = context - len;
    if (max_tokens > (int64_t)left) {
        return api_error_set(&request->error, 400, "context_length_exceeded", "max_tokens",
                             "the prompt has %zu tokens, %lld more are asked for, and the context "
                             "holds %u",
                             len, (long long)max_tokens, context);
    }
    request->answer.generates_nothing = max_tokens == 0; // the engine generates at least one
    if (max_tokens == 0) max_tokens = 1;
    prompt->sampling.max_tokens = (int32_t)(max_tokens < 0 ? (int64_t)left : max_tokens);
    return true;
}

// ---- whose fault a refused form is ----

// Takes the part [at, to) out of the sentence.
static void cut_out(char *at, const char *to) {
    memmove(at, to, strlen(to) + 1);
}

// A fault of the tools' schemas. The client knows nothing of the form that holds them.
static const char *blame_tools(struct nvllm_error *fault, char *at) {
    const char *tool = strstr(at, TOOL_FORM_TOOL);
    if (tool) {
        cut_out(fault->message, tool);
        return "tools";
    }
    char own[sizeof fault->message];
    snprintf(own, sizeof own, "%s", at);
    snprintf(fault->message, sizeof fault->message,
             "the schemas of tools make a form that is refused: %.400s", own);
    return "tools";
}

// The member that a fault of the form is about: the tools, or the form beside them. The sentence
// becomes the one about that member alone.
static const char *blame_form(const struct api_request *request, struct nvllm_error *fault) {
    static const char start[] = "structured_outputs: ";
    char *at = fault->message + strlen(start);
    if (strncmp(fault->message, start, strlen(start)) != 0) return NULL;
    if (!request->chat.has_form) return "structured_outputs";
    if (!request->chat.form || request->chat.forces_call) return blame_tools(fault, at);
    bool has_channels = request->chat.split.has_channels;
    const char *place = has_channels ? TOOL_FORM_FINAL_PLACE : TOOL_FORM_TEXT_PLACE;
    if (strncmp(at, place, strlen(place)) == 0) {
        cut_out(at, at + strlen(place));
        return "structured_outputs";
    }
    bool is_call = strncmp(at, TOOL_FORM_PLACE, strlen(TOOL_FORM_PLACE)) == 0;
    return is_call ? blame_tools(fault, at) : "structured_outputs";
}

// ---- to the engine ----

static bool submit_one(struct api_request *request, struct prompt *prompt) {
    struct nvllm_request options = NVLLM_REQUEST_INIT;
    struct nvllm_error fault = {0};
    options.prompt_token_ids = prompt->ids;
    options.num_prompt_token_ids = prompt->num_ids;
    options.sampling = &prompt->sampling;
    options.cache_salt = request->cache_salt;
    options.on_event = choice_delta_on_event;
    options.user_data = prompt;
    options.interrupt = &request->interrupt;
    options.may_reason = request->chat.role != NULL;
    if (request->wants_vectors) options.pooling = &request->pooling;
    enum nvllm_status status =
        nvllm_engine_add_request(request->api->engine, &options, &prompt->engine_id, &fault);
    const char *member = blame_form(request, &fault);
    if (!member) member = body_blamed(request, fault.message, NULL);
    return api_error_library(&request->error, status, &fault, member);
}

void api_request_submit(struct api_request *request) {
    for (uint32_t i = 0; i < request->num_prompts; i++) {
        if (!submit_one(request, &request->prompts[i])) {
            api_request_cancel(request);
            return;
        }
        atomic_store(&request->num_added, i + 1);
        if (!api_request_is_wanted(request)) {
            api_request_cancel(request);
            return;
        }
    }
}
