/* A request's sampling parameters once resolved: checked, defaults filled in, lists copied; and the
 * running counts that penalties need. Allocates only in init.
 *
 * A field that is unset takes the model's default, else the library's. A temperature below 1e-5 is
 * greedy, as in vLLM. The repetition penalty sees prompt and output, as in transformers; presence
 * and frequency see the output only, as in vLLM and OpenAI's API. */
#ifndef ENGINE_SAMPLING_H
#define ENGINE_SAMPLING_H

#include "backend/backend.h"
#include "base/map.h"
#include "checkpoint/model_config.h"
#include "nanovllm.h"

struct sampling {
    struct nvllm_sampling_params params; // every field set; lists are this struct's own
    struct sample_row row; // template: all but draw, adjust_start, adjust_count
    int32_t *stop_token_ids; // [params.num_stop_token_ids]
    char **stops; // [params.num_stop], their bytes behind the pointers
    struct nvllm_logit_bias *logit_bias; // [params.num_logit_bias]
    struct sample_adjust *adjusts; // [num_adjusts], room for every id that can still come
    uint32_t num_adjusts, num_adjusts_max;
    struct u64map adjust_of; // mixed token id -> index in adjusts
    bool track_outputs; // penalties are on: generated tokens are counted
};

// Fills *out (all fields, also lists, are copies) from params (NULL: all defaults) and the model's
// defaults (NULL: none). Refuses values out of the parameter table's ranges and ids (also the
// prompt's) out of the vocabulary, naming the field. logprobs and top_k beyond the vocabulary are
// cut to it. seed: the request's own when params leave it unset. On failure *out is empty.
MUST_USE enum status sampling_init(struct sampling *out, const struct nvllm_sampling_params *params,
                                   const struct generation_config *model_defaults,
                                   uint32_t vocab_size, uint64_t seed, const int32_t *prompt,
                                   uint32_t num_prompt_tokens, struct err *err);
void sampling_fini(struct sampling *sampling); // all-zero is fine
// Counts a generated token for the penalties; at most params.max_tokens times.
void sampling_count_output(struct sampling *sampling, int32_t token_id);
bool sampling_is_stop_token(const struct sampling *sampling, int32_t token_id);

#endif
