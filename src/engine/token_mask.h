/* Which tokens a request may generate next, as the mask that the sampling op reads (backend.h).
 *
 * The first min_tokens tokens must not end the output: EOS ids and stop_token_ids are banned for so
 * long, EOS also where ignore_eos lets it pass, as in vLLM. Allocates only in init. */
#ifndef ENGINE_TOKEN_MASK_H
#define ENGINE_TOKEN_MASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "checkpoint/model_config.h"
#include "nanovllm.h"

// Bit id % 32 of word id / 32 is 1 where a token is allowed.
struct token_mask {
    uint32_t num_words; // ceil(vocab_size / 32)
    uint32_t *always; // [num_words] tokens that are not banned for good; NULL: all
    int32_t *ending; // [num_ending] banned from the first min_tokens tokens
    size_t num_ending;
    uint32_t min_tokens;
};

// `params` are resolved and checked, their token ids inside the vocabulary. On failure *mask is
// empty.
MUST_USE enum status token_mask_init(struct token_mask *mask,
                                     const struct nvllm_sampling_params *params,
                                     const struct model_config *config, struct err *err);
void token_mask_fini(struct token_mask *mask); // all-zero is fine

// Whether any token is banned after `num_generated` generated ones.
bool token_mask_is_needed(const struct token_mask *mask, uint32_t num_generated);
// Writes the mask for that place: out[num_words].
void token_mask_write(const struct token_mask *mask, uint32_t num_generated, uint32_t *out);

#endif
