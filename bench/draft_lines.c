#include "draft_lines.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

// False: the input has ended. Its last line may have no end. `buffer` has TOKENS_MAX tokens.
static bool read_line(FILE *input, struct text *text, int32_t *buffer) {
    uint32_t count = 0;
    int c = getc(input);
    while (c != EOF && c != '\n') {
        uint32_t token = 0;
        if (!isdigit(c)) {
            c = getc(input);
            continue;
        }
        for (; isdigit(c); c = getc(input)) token = token * 10 + (uint32_t)(c - '0');
        CHECK(count < TOKENS_MAX, "more than %d tokens", TOKENS_MAX);
        buffer[count++] = (int32_t)token;
    }
    text->tokens = malloc((count + 1) * sizeof *buffer);
    CHECK(text->tokens, "no memory");
    memcpy(text->tokens, buffer, count * sizeof *buffer);
    text->num_tokens = count;
    return c != EOF || count;
}

uint32_t draft_lines_read(FILE *input, struct text *texts, const char *prompt) {
    static int32_t buffer[TOKENS_MAX];
    bool is_each = strcmp(prompt, "each") == 0;
    uint32_t count = 0;
    for (struct text text = {0}; read_line(input, &text, buffer);) {
        text.num_prompt = (uint32_t)strtoul(prompt, NULL, 10);
        if (is_each && text.num_tokens) {
            text.num_prompt = (uint32_t)text.tokens[0];
            memmove(text.tokens, text.tokens + 1, --text.num_tokens * sizeof *text.tokens);
        }
        if (text.num_tokens <= text.num_prompt) continue;
        CHECK(count < TEXTS_MAX, "more than %d texts", TEXTS_MAX);
        texts[count++] = text;
    }
    return count;
}

void draft_lines_free(struct text *texts, uint32_t num_texts) {
    for (uint32_t i = 0; i < num_texts; i++) free(texts[i].tokens);
}
