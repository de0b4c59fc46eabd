/* Which tokens a request may generate next, as the mask that the sampling op reads (backend.h).
 *
 * Five reasons ban a token:
 * - it is not in allowed_token_ids;
 * - it is a bad word;
 * - it would complete a bad word;
 * - the output has a form (structured_outputs), and the token does not continue it (constraint.h);
 * - it is an EOS or stop token, and the output has fewer than min_tokens tokens. As in vLLM, EOS is
 *   banned there even with ignore_eos.
 * Allocates only in init. */
#ifndef ENGINE_TOKEN_MASK_H
#define ENGINE_TOKEN_MASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "checkpoint/model_config.h"
#include "engine/step/bad_words.h"
#include "engine/step/constraint.h"
#include "nanovllm.h"

// Bit id % 32 of word id / 32 is 1 where a token is allowed.
struct token_mask {
    struct constraint *constraint; // of one output; NULL: it has no form
    uint32_t num_words; // ceil(vocab_size / 32)
    uint32_t *always; // [num_words] the mask of tokens that are always banned; NULL: none is
    struct bad_words bad_words; // those of several tokens
    int32_t *ending; // [num_ending] EOS and stop tokens, banned among the first min_tokens
    size_t num_ending;
    uint32_t min_tokens;
};

static inline void token_mask_ban(uint32_t *words, int32_t id) {
    words[id / 32] &= ~(1u << (id % 32));
}

// `params` are resolved and checked, with their token ids inside the vocabulary. Their lists are
// not borrowed. `tokenizer` may be NULL: bad_words are refused without one. Also refuses parameters
// that ban every first token. On failure *mask is empty.
MUST_USE enum status token_mask_init(struct token_mask *mask,
                                     const struct nvllm_sampling_params *params,
                                     const struct model_config *config,
                                     const struct tokenizer *tokenizer, struct err *err);
// After init: gives outputs the form that the automaton has.
MUST_USE enum status token_mask_constrain(struct token_mask *mask, struct automaton *automaton,
                                          const struct constraint_options *options,
                                          struct err *err);
void token_mask_fini(struct token_mask *mask); // all-zero is fine
// For another output of the same request, before any token: borrows from `from` what all share.
MUST_USE enum status token_mask_borrow(struct token_mask *out, const struct token_mask *from,
                                       struct err *err);
void token_mask_fini_borrowed(struct token_mask *mask);
// The output has one more token, on which the mask may depend.
static inline void token_mask_take(struct token_mask *mask, int32_t token_id) {
    if (mask->constraint) constraint_take(mask->constraint, token_id);
}
// The same for a token on which nothing depends before token_mask_settle (constraint.h).
static inline void token_mask_note(struct token_mask *mask, int32_t token_id) {
    if (mask->constraint) constraint_note(mask->constraint, token_id);
}
static inline void token_mask_settle(struct token_mask *mask) {
    if (mask->constraint) constraint_settle(mask->constraint);
}

// Whether the mask depends on the generated ids, and not only on their number. Then it can only be
// made when no token is pending.
static inline bool token_mask_reads_ids(const struct token_mask *mask) {
    return mask->bad_words.num_words > 0 || mask->constraint;
}
// Whether any token is banned after `generated` [num_generated].
bool token_mask_is_needed(const struct token_mask *mask, const int32_t *generated,
                          uint32_t num_generated);
// Writes the mask for the token after `generated`: out[num_words].
void token_mask_write(const struct token_mask *mask, const int32_t *generated,
                      uint32_t num_generated, uint32_t *out);

#endif
