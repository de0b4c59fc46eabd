/* From a row of logits to a token: how each row is sampled, and what comes of it. Part of the seam
 * to a device (backend.h), whose conventions it follows. */
#ifndef BACKEND_SAMPLE_ARGS_H
#define BACKEND_SAMPLE_ARGS_H

#include <stdint.h>

#include "nanovllm.h"

struct collective;
struct token_counts;

enum { SAMPLE_TOP_MAX = 20 };

// How to sample a token from one row of logits. The order is: repetition, presence and frequency
// penalty, logit bias, mask, temperature, min_p, top_k, top_p, then the draw. Greedy sampling
// (temperature 0) takes the largest logit after the mask, of equal ones the first. The repetition
// penalty divides positive logits of seen tokens and multiplies negative ones. All fields have
// 32 bits, because the engine's block of a step (engine/step/batch.h) consists of 32-bit words.
struct sample_row {
    // float temperature; ... frequency_penalty; as nanovllm.h has them. top_k is not below 0.
#define SAMPLE_ROW_FIELD(type, name, ...) NVLLM_TYPE_##type name;
    NVLLM_MODEL_PARAMS(SAMPLE_ROW_FIELD)
    NVLLM_SAMPLER_PARAMS(SAMPLE_ROW_FIELD)
    uint32_t seed_low, seed_high;
    uint32_t draw; // which draw of this seed: the index of the token to generate
    int32_t num_top; // -1: no logprobs; else how many best tokens to report
    uint32_t counts_slot; // 1 ..: the row's place in the token counts; 0: no penalties
    // 1: its token is not counted in, because it may be dropped. Only such rows of a call may have
    // the same counts_slot; 0: it is counted in.
    uint32_t is_tentative;
    uint32_t bias_start, bias_count; // this row's part of `biases`
    // Tokens behind these, whose biases are not read: they are reported in place of the best ones.
    // num_top is the same number then; 0: none.
    uint32_t num_given;
    uint32_t mask; // 1 ..: this row's place in `masks`; 0: every token is allowed
    uint32_t masks_logprobs; // 1: log-probabilities are of the allowed tokens alone; 0: of all
};

// Is added to one token's logit. A row has at most one for each token.
struct sample_bias {
    int32_t token_id;
    float bias;
    // For the penalties of this row the token was generated so many times more than its counts say.
    uint32_t count;
};

// The token of one row. Log-probabilities are log_softmax of the model's unchanged logits: of all,
// or with masks_logprobs of those that the mask allows.
struct sample_result {
    int32_t token_id; // -1: no logit was a number above -inf
    float logprob; // of token_id; 0 when num_top < 0
    // [num_top] best first, ties: the smaller id first; or the given ones in their order. With
    // masks_logprobs the list of the best ends with -1 where no further token is possible.
    int32_t top_id[SAMPLE_TOP_MAX];
    float top_logprob[SAMPLE_TOP_MAX];
};

struct sample_args {
    const float *logits; // dev [num_rows][vocab_size]
    // The ranks that have a slice of each row's logits: `logits` is this rank's. All of them make
    // the call, and all get the same results. NULL: rows are whole.
    struct collective *collective;
    const struct sample_row *rows; // dev [num_rows]
    const struct sample_bias *biases; // dev
    // dev [..][ceil(vocab_size / 32)]: bit id % 32 of word id / 32 is 1 where a token is allowed.
    const uint32_t *masks;
    // Read for the penalties of rows with a counts_slot; their new token is counted in afterwards.
    // NULL: no row has one.
    struct token_counts *counts;
    struct sample_result *results; // dev [num_rows]
    uint32_t num_rows, vocab_size;
    float *scratch; // dev [sample_scratch_floats(vocab_size, num_rows)]
};

#endif
