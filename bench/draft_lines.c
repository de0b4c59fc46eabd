#include "draft_lines.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

// The numbers of a line, of which the last one may have no end. `ids` has TOKENS_MAX. False: the
// input has ended.
static bool read_line(FILE *input, int32_t *ids, uint32_t *num_ids) {
    uint32_t count = 0;
    int c = getc(input);
    while (c != EOF && c != '\n') {
        uint32_t id = 0;
        if (!isdigit(c)) {
            c = getc(input);
            continue;
        }
        for (; isdigit(c); c = getc(input)) id = id * 10 + (uint32_t)(c - '0');
        CHECK(count < TOKENS_MAX, "more than %d tokens", TOKENS_MAX);
        ids[count++] = (int32_t)id;
    }
    *num_ids = count;
    return c != EOF || count;
}

uint32_t draft_lines_read(FILE *input, struct text *texts, const char *prompt) {
    static int32_t ids[TOKENS_MAX];
    bool is_each = strcmp(prompt, "each") == 0;
    uint32_t count = 0, num_ids;
    while (read_line(input, ids, &num_ids)) {
        uint32_t num_prompt = is_each ? (uint32_t)ids[0] : (uint32_t)strtoul(prompt, NULL, 10);
        uint32_t first = is_each && num_ids;
        if (num_ids - first <= num_prompt) continue;
        CHECK(count < TEXTS_MAX, "more than %d texts", TEXTS_MAX);
        struct text *text = &texts[count++];
        text->num_prompt = num_prompt;
        text->num_tokens = num_ids - first;
        text->tokens = malloc(text->num_tokens * sizeof *ids);
        CHECK(text->tokens, "no memory");
        memcpy(text->tokens, ids + first, text->num_tokens * sizeof *ids);
    }
    return count;
}

void draft_lines_free(struct text *texts, uint32_t num_texts) {
    for (uint32_t i = 0; i < num_texts; i++) free(texts[i].tokens);
}
