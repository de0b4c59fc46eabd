/* The tokenizer for a server, which refuses prompts that are too long. */
#ifndef API_ENCODE_H
#define API_ENCODE_H

#include "nanovllm.h"

// As nvllm_tokenizer_encode. NVLLM_ERR_CAPACITY: there are more than `num_ids_max` ids, 0: any
// number may be. It may also return more ids than that.
enum nvllm_status api_encode(const struct nvllm_tokenizer *tokenizer, const char *text,
                             size_t text_len, int add_special_tokens, size_t num_ids_max,
                             const struct nvllm_interrupt *interrupt, int32_t **ids,
                             size_t *num_ids, struct nvllm_error *error);

#endif
