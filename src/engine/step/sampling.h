/* A request's sampling parameters once resolved: checked, defaults filled in, lists copied.
 * Allocates only in init.
 *
 * A field that is unset takes the model's default, else the library's. A temperature below 1e-5 is
 * greedy, as in vLLM. The repetition penalty sees prompt and output, as in transformers; presence
 * and frequency see the output only, as in vLLM and OpenAI's API. The counts that penalties need
 * are the backend's (backend.h, token_counts). */
#ifndef ENGINE_SAMPLING_H
#define ENGINE_SAMPLING_H

#include "backend/backend.h"
#include "checkpoint/model_config.h"
#include "engine/step/token_mask.h"
#include "nanovllm.h"

struct sampling {
    // First what each step reads.
    int32_t *stop_token_ids; // [params.num_stop_token_ids]; NULL: none
    // [row.bias_count + row.num_given] logit_bias, then logprob_token_ids, for the sampling op
    struct sample_bias *biases;
    bool has_penalties; // its rows need token counts
    bool is_borrowed; // its pointers lead to output 0's memory
    struct sample_row row; // all but draw, counts_slot, mask and bias_start, which batch.c sets
    struct token_mask mask;
    // Every field is set. Lists are copies; those that only the mask needs are empty.
    struct nvllm_sampling_params params;
    char **stops; // [params.num_stop], their bytes behind the pointers
    struct nvllm_logit_bias *logit_bias; // [params.num_logit_bias]
};

// Fills *out from `params` (NULL: all defaults) and the model's defaults (NULL: none), and copies
// all lists. Refuses values out of the parameter table's ranges and ids out of the vocabulary of
// `config`. logprobs and top_k beyond the vocabulary are cut to it. `tokenizer` is for bad_words
// and may be NULL. On failure *out is empty.
MUST_USE enum status sampling_init(struct sampling *out, const struct nvllm_sampling_params *params,
                                   const struct generation_config *model_defaults,
                                   const struct model_config *config,
                                   const struct tokenizer *tokenizer, struct err *err);
// Sets the fields that are unset, and looks at no other.
void sampling_fill_defaults(struct nvllm_sampling_params *params,
                            const struct generation_config *model_defaults);
// init for another output of the request. Borrows from `first`, which must live as long. On failure
// *out is empty.
MUST_USE enum status sampling_init_borrowed(struct sampling *out, const struct sampling *first,
                                            struct err *err);
// Sets the seed of the output with this index: the request's own seed + index, as in vLLM, or
// `seed` where the request has none.
void sampling_set_seed(struct sampling *sampling, uint64_t seed, uint32_t index);
void sampling_fini(struct sampling *sampling); // all-zero is fine
bool sampling_is_stop_token(const struct sampling *sampling, int32_t token_id);

#endif
