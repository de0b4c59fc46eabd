#include "checkpoint/tokens/tokenizer_form.h"

#include <string.h>

const struct tokenizer_form tokenizer_forms[TOKENIZER_FORMS] = {
    {"tekken.json", tekken_write_tokenizer, tekken_write_config},
    {"tiktoken.model", tiktoken_write_tokenizer, NULL},
    {"tokenizer.model", sentencepiece_write_tokenizer, sentencepiece_write_config},
};

const struct tokenizer_form *tokenizer_form_find(const char *file) {
    for (size_t i = 0; i < TOKENIZER_FORMS; i++) {
        if (strcmp(file, tokenizer_forms[i].file) == 0) return &tokenizer_forms[i];
    }
    return NULL;
}
