/* The tokenizer for a server: prompts that are too long are refused, and tokens are asked for. */
#ifndef API_ENCODE_H
#define API_ENCODE_H

#include <stdbool.h>

#include "nanovllm.h"

// As nvllm_tokenizer_encode, but *num_ids is the most ids that are wanted (0: any number) and
// becomes their number. NVLLM_ERR_CAPACITY: there are more. It may also return more ids than that.
enum nvllm_status api_encode(const struct nvllm_tokenizer *tokenizer, const char *text,
                             size_t text_len, int add_special_tokens,
                             const struct nvllm_interrupt *interrupt, int32_t **ids,
                             size_t *num_ids, struct nvllm_error *error);

// Whether the text is an added token, special or not, with an id below `vocab_size`.
bool api_tokenizer_has_added(const struct nvllm_tokenizer *tokenizer, const char *text,
                             uint32_t vocab_size);

#endif
