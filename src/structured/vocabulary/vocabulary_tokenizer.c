#include "structured/vocabulary/vocabulary_tokenizer.h"

#include <stdlib.h>

#include "text/tokenizer/tokenizer.h"

enum status vocabulary_of_tokenizer(struct vocabulary **out, const struct tokenizer *tokenizer,
                                    uint32_t vocab_size, const int32_t *ending, uint32_t num_ending,
                                    struct err *err) {
    struct vocabulary_token *tokens = calloc(vocab_size + 1, sizeof *tokens);
    if (!tokens) return err_nomem(err, "structured output");
    for (uint32_t i = 0; i < vocab_size; i++) {
        size_t len = 0;
        const char *bytes = tokenizer_token_bytes(tokenizer, (int32_t)i, &len);
        if (!bytes || len > VOCABULARY_TOKEN_BYTES_MAX) continue;
        tokens[i] = (struct vocabulary_token){
            .bytes = bytes,
            .len = (uint32_t)len,
            .special = tokenizer_token_is_special(tokenizer, (int32_t)i),
            .named = tokenizer_token_is_added(tokenizer, (int32_t)i),
        };
    }
    enum status status = vocabulary_create(out, tokens, vocab_size, ending, num_ending, err);
    free(tokens);
    if (!status) (*out)->strips_blank = tokenizer_strips_blank(tokenizer);
    return status;
}
