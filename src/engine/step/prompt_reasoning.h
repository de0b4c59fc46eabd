/* Where the model's reasoning stands at the end of a prompt: a template may have opened it, or
 * opened and closed it. For what holds only behind the reasoning (constraint.h). */
#ifndef ENGINE_PROMPT_REASONING_H
#define ENGINE_PROMPT_REASONING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "text/chat/think.h"
#include "text/tokenizer/tokenizer.h"

enum { REASONING_OPENING_MAX = 8 };

// Writes the tokens that an opening tag of reasoning is or begins with, and returns their number.
uint32_t reasoning_opening_tokens(const struct tokenizer *tokenizer, uint32_t vocab_size,
                                  int32_t ids[REASONING_OPENING_MAX]);
// The tokens of the rest of the tag that begins with the token: none where the token is all of it.
MUST_USE enum status reasoning_opening_rest(const struct tokenizer *tokenizer, int32_t id,
                                            struct token_list *rest, struct err *err);
// Looks at the last tokens of `prompt` [num_prompt]. *think is inside where the prompt has opened
// the reasoning; *is_over: the prompt has closed it, except for blanks behind it.
MUST_USE enum status prompt_reasoning(struct think *think, bool *is_over,
                                      const struct tokenizer *tokenizer, const int32_t *prompt,
                                      uint32_t num_prompt, struct err *err);

#endif
