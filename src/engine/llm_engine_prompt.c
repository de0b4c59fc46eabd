/* Makes token ids of a prompt: the tokenizer encodes text, and the template makes text of a
 * chat. */
#include "engine/llm_engine_internal.h"
#include "text/tokenizer/detokenizer.h"
#include "text/unicode/unicode.h"

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

// The prompt as UTF-8, as the tokenizer reads it.
static enum status echo_text(struct buf *echo, const char *text, size_t len, struct err *err) {
    struct utf8_partial partial = {0};
    enum status status = buf_reserve(echo, len, err); // never NULL
    if (!status) status = utf8_append_lossy(&partial, text, len, echo, err);
    return status ? status : utf8_append_end(&partial, echo, err);
}

// The text of a prompt that came as ids. Ids without a token add nothing.
static enum status echo_ids(struct buf *echo, const struct tokenizer *tokenizer, const int32_t *ids,
                            size_t count, bool skip_special, struct err *err) {
    struct detokenizer detokenizer = {0};
    enum status status = buf_reserve(echo, 0, err);
    for (size_t i = 0; i < count && !status; i++) {
        status = detokenizer_push(&detokenizer, tokenizer, ids[i], skip_special, echo, err);
    }
    return status ? status : detokenizer_flush(&detokenizer, echo, err);
}

// The template itself writes BOS and other special tokens, so the tokenizer adds none.
static enum status encode_chat(const struct llm_engine *engine, const struct nvllm_request *request,
                               const struct interrupt *interrupt, struct token_list *encoded,
                               struct buf *echo, struct err *err) {
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
    if (!status && echo) status = echo_text(echo, text.len ? text.data : "", text.len, err);
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

static const char *too_long(const struct nvllm_request *request) {
    return request->pooling ? "is shorter" : "leaves no room for an answer";
}

enum status llm_engine_prompt_ids(const struct llm_engine *engine,
                                  const struct nvllm_request *request, bool is_rendered,
                                  struct token_list *encoded, const int32_t **ids, size_t *count,
                                  struct buf *echo, struct err *err) {
    enum status status = check_given(engine, request, err);
    // A vector needs no place behind the prompt.
    size_t count_max = engine->plan.max_model_len - (request->pooling ? 0 : 1);
    encoded->len_max = engine->plan.max_model_len; // not all of a text that cannot fit is encoded
    const struct interrupt interrupt = llm_engine_interrupt(request->interrupt);
    if (!status && request->prompt) {
        status = tokenizer_encode(engine->tokenizer, request->prompt, request->prompt_len,
                                  !is_rendered, &interrupt, encoded, err);
        if (!status && echo) status = echo_text(echo, request->prompt, request->prompt_len, err);
    } else if (!status && request->chat) {
        status = encode_chat(engine, request, &interrupt, encoded, echo, err);
    }
    if (status == ERR_CAPACITY) {
        return err_set(err, ERR_INVALID, "the prompt has more than %zu tokens; max_model_len %u %s",
                       encoded->len_max, engine->plan.max_model_len, too_long(request));
    }
    if (status) return status;
    *ids = request->prompt_token_ids ? request->prompt_token_ids : encoded->ids;
    *count = request->prompt_token_ids ? request->num_prompt_token_ids : encoded->len;
    if (*count == 0) return err_set(err, ERR_INVALID, "the prompt is empty");
    if (*count > count_max) {
        return err_set(err, ERR_INVALID, "the prompt has %zu tokens; max_model_len %u %s", *count,
                       engine->plan.max_model_len, too_long(request));
    }
    status = check_prompt_ids(engine, *ids, *count, err);
    bool echoes_ids = echo && request->prompt_token_ids && engine->tokenizer;
    if (status || !echoes_ids) return status;
    bool skip_special = request->sampling->skip_special_tokens != 0;
    return echo_ids(echo, engine->tokenizer, *ids, *count, skip_special, err);
}
