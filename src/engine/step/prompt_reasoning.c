#include "engine/step/prompt_reasoning.h"

#include <string.h>

#include "base/text/blank.h"

enum { TAIL_TOKENS = 32 }; // they may contain a tag of reasoning and blanks

static bool ends_with(const char *text, size_t len, const char *ending) {
    size_t ending_len = strlen(ending);
    return len >= ending_len && memcmp(text + len - ending_len, ending, ending_len) == 0;
}

static bool find_opening(const struct tokenizer *tokenizer, const struct think_tag *tag,
                         int32_t *id) {
    const char *text = tag->token ? tag->token : tag->open;
    return tokenizer_find(tokenizer, text, strlen(text), id);
}

uint32_t reasoning_opening_tokens(const struct tokenizer *tokenizer, uint32_t vocab_size,
                                  int32_t ids[REASONING_OPENING_MAX]) {
    uint32_t num_ids = 0;
    const struct think_tag *tag;
    for (size_t i = 0; num_ids < REASONING_OPENING_MAX && (tag = think_tag(i)); i++) {
        int32_t id;
        if (find_opening(tokenizer, tag, &id) && (uint32_t)id < vocab_size) ids[num_ids++] = id;
    }
    return num_ids;
}

enum status reasoning_opening_rest(const struct tokenizer *tokenizer, int32_t id,
                                   struct token_list *rest, struct err *err) {
    const struct think_tag *tag;
    for (size_t i = 0; (tag = think_tag(i)); i++) {
        int32_t opening;
        if (!tag->token || !find_opening(tokenizer, tag, &opening) || opening != id) continue;
        const char *text = tag->open + strlen(tag->token);
        return tokenizer_encode(tokenizer, text, strlen(text), false, NULL, rest, err);
    }
    return OK;
}

enum status prompt_reasoning(struct think *think, bool *is_over, const struct tokenizer *tokenizer,
                             const int32_t *prompt, uint32_t num_prompt, struct err *err) {
    struct buf tail = {0};
    *is_over = false;
    enum status status = buf_reserve(&tail, 0, err);
    for (uint32_t i = num_prompt > TAIL_TOKENS ? num_prompt - TAIL_TOKENS : 0;
         i < num_prompt && !status; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, prompt[i], &len);
        if (bytes) status = buf_append(&tail, bytes, len, err);
    }
    if (!status) {
        think_begin(think, tail.data, tail.len);
        size_t len = tail.len;
        while (len && is_blank(tail.data[len - 1])) len--;
        const struct think_tag *tag;
        for (size_t i = 0; (tag = think_tag(i)); i++) {
            *is_over |= ends_with(tail.data, len, tag->close);
        }
    }
    buf_fini(&tail);
    return status;
}
