#include "structured/forced_tokens.h"

#include <string.h>

enum { BYTES_MAX = 256 };

// The length of the text before the next name.
static size_t text_len(const char *bytes, size_t len) {
    const char *name = memchr(bytes, 0xff, len);
    return name ? (size_t)(name - bytes) : len;
}

// The token whose name the bytes begin with. 0 bytes: they end within it, or there is none.
static size_t find_name(const struct tokenizer *tokenizer, const char *bytes, size_t len,
                        int32_t *token) {
    const char *end = len > 1 ? memchr(bytes + 1, 0xff, len - 1) : NULL;
    if (!end || !tokenizer_find(tokenizer, bytes + 1, (size_t)(end - bytes) - 1, token)) return 0;
    return (size_t)(end - bytes) + 1;
}

struct forced {
    struct automaton *automaton;
    uint32_t end_state; // behind the bytes
    const struct tokenizer *tokenizer;
    const char *bytes; // [len] that must come
    size_t len;
    int32_t *tokens; // [num_tokens] found
    uint32_t num_tokens;
};

// The tokens of the text at `at`. False: the first that is not certain was met.
static enum status add_text(struct forced *forced, size_t at, size_t len, bool *goes_on,
                            struct err *err) {
    struct token_list ids = {0};
    enum status status =
        tokenizer_encode(forced->tokenizer, forced->bytes + at, len, false, NULL, &ids, err);
    size_t end = at + len;
    for (size_t i = 0; i < ids.len && !status && *goes_on; i++) {
        size_t left = forced->len - at, size = 0;
        const char *bytes = tokenizer_token_bytes(forced->tokenizer, ids.ids[i], &size);
        // A tokenizer may write a blank before a text.
        bool is_text =
            bytes && size && size <= end - at && memcmp(bytes, forced->bytes + at, size) == 0;
        bool has_longer = true;
        if (is_text) {
            status = automaton_has_longer(forced->automaton, forced->end_state, forced->bytes + at,
                                          left, &has_longer, err);
        }
        *goes_on = !status && !has_longer && forced->num_tokens < FORCED_TOKENS_MAX;
        if (*goes_on) forced->tokens[forced->num_tokens++] = ids.ids[i];
        at += size;
    }
    token_list_fini(&ids);
    return status;
}

static enum status divide(struct forced *forced, struct err *err) {
    enum status status = OK;
    bool goes_on = true;
    for (size_t at = 0; at < forced->len && goes_on && !status;) {
        size_t size = text_len(forced->bytes + at, forced->len - at);
        if (size) {
            status = add_text(forced, at, size, &goes_on, err);
        } else {
            int32_t token = -1;
            size = find_name(forced->tokenizer, forced->bytes + at, forced->len - at, &token);
            goes_on = size > 0 && forced->num_tokens < FORCED_TOKENS_MAX;
            if (goes_on) forced->tokens[forced->num_tokens++] = token;
        }
        at += size;
    }
    return status;
}

enum status forced_tokens(const struct matcher *matcher, const struct tokenizer *tokenizer,
                          int32_t tokens[FORCED_TOKENS_MAX], uint32_t *num_tokens,
                          struct err *err) {
    struct buf bytes = {0};
    struct forced forced = {
        .automaton = matcher->automaton, .tokenizer = tokenizer, .tokens = tokens};
    *num_tokens = 0;
    enum status status = matcher_forced(matcher, BYTES_MAX, &bytes, err);
    forced.bytes = bytes.data;
    forced.len = bytes.len;
    if (!status && bytes.len) {
        status = automaton_advance(matcher->automaton, matcher->states[matcher->num_tokens],
                                   bytes.data, bytes.len, &forced.end_state, err);
        if (!status) status = divide(&forced, err);
    }
    buf_fini(&bytes);
    // A special token that the tokenizer finds in a text is not the text.
    if (!status && forced.num_tokens) {
        status = matcher_fitting(matcher, tokens, forced.num_tokens, num_tokens, err);
    }
    return status;
}
