/* Texts for the programs that measure drafts. Each line of the input has the token ids of a text,
 * in any form of list. Its first tokens are the prompt. */
#ifndef BENCH_DRAFT_LINES_H
#define BENCH_DRAFT_LINES_H

#include <stdint.h>
#include <stdio.h>

enum { TOKENS_MAX = 1 << 16, TEXTS_MAX = 1 << 12 };

struct text {
    int32_t *tokens; // [num_tokens]
    uint32_t num_tokens, num_prompt;
};

// Fills texts [TEXTS_MAX]; returns how many there are. `prompt`: how many tokens of each text are
// its prompt, or `each`: the first number of a line says it, and is no token. Texts that are no
// longer than their prompt are left out.
uint32_t draft_lines_read(FILE *input, struct text *texts, const char *prompt);
void draft_lines_free(struct text *texts, uint32_t num_texts);

#endif
