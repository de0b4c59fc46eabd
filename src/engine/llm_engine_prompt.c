/* What a request says, to token ids: text by the tokenizer, chats by the template first. */
#include "engine/llm_engine_internal.h"

static enum status check_prompt_ids(const struct llm_engine *engine, const int32_t *ids,
                                    size_t count, struct err *err) {
    uint32_t vocab_size = engine->plan.config.vocab_size;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= 0 && (uint32_t)ids[i] < vocab_size) continue;
        return err_set(err, ERR_INVALID,
                       "prompt_token_ids[%zu] is %d, outside the vocabulary of %u tokens", i,
                       ids[i], vocab_size);
    }
    return OK;
}

enum status llm_engine_chat_template(const struct llm_engine *engine,
                                     const struct chat_template **out, struct err *err) {
    *out = engine->chat_template;
    if (engine->template_status && err) *err = engine->template_err;
    return engine->template_status;
}

// The template writes its own BOS and the like: none are added.
static enum status encode_chat(const struct llm_engine *engine, const struct nvllm_request *request,
                               const struct interrupt *interrupt, struct token_list *encoded,
                               struct err *err) {
    const struct chat_template *chat_template = NULL;
    struct buf text = {0};
    enum status status = llm_engine_chat_template(engine, &chat_template, err);
    if (!status) {
        status = chat_template_render(chat_template, request->chat, request->chat_len, interrupt,
                                      &text, err);
    }
    if (!status) {
        status = tokenizer_encode(engine->tokenizer, text.len ? text.data : "", text.len, false,
                                  interrupt, encoded, err);
    }
    buf_fini(&text);
    return status;
}

static enum status check_given(const struct llm_engine *engine, const struct nvllm_request *request,
                               struct err *err) {
    int given =
        (request->prompt != NULL) + (request->prompt_token_ids != NULL) + (request->chat != NULL);
    if (given > 1) {
        return err_set(err, ERR_INVALID,
                       "a request has one of prompt, prompt_token_ids and chat, not several");
    }
    if (!given) {
        return err_set(err, ERR_INVALID, "a request needs prompt, prompt_token_ids or chat");
    }
    if (request->prompt_token_ids || engine->tokenizer) return OK;
    return err_set(err, ERR_INVALID, "a %s needs the tokenizer, which skip_tokenizer_init left out",
                   request->chat ? "chat" : "text prompt");
}

enum status llm_engine_prompt_ids(const struct llm_engine *engine,
                                  const struct nvllm_request *request, struct token_list *encoded,
                                  const int32_t **ids, size_t *count, struct err *err) {
    enum status status = check_given(engine, request, err);
    const struct interrupt interrupt = llm_engine_interrupt(request->interrupt);
    if (!status && request->prompt) {
        status = tokenizer_encode(engine->tokenizer, request->prompt, request->prompt_len, true,
                                  &interrupt, encoded, err);
    } else if (!status && request->chat) {
        status = encode_chat(engine, request, &interrupt, encoded, err);
    }
    if (status) return status;
    *ids = request->prompt_token_ids ? request->prompt_token_ids : encoded->ids;
    *count = request->prompt_token_ids ? request->num_prompt_token_ids : encoded->len;
    if (*count == 0) return err_set(err, ERR_INVALID, "the prompt is empty");
    if (*count >= engine->plan.max_model_len) {
        return err_set(err, ERR_INVALID,
                       "the prompt has %zu tokens; max_model_len %u leaves no room for an answer",
                       *count, engine->plan.max_model_len);
    }
    return check_prompt_ids(engine, *ids, *count, err);
}
