/* Finds where a text goes on as it did before: prompt lookup. The tokens that stood behind the last
 * ones earlier in the text are a draft of those that come next.
 *
 * Runs of min_len tokens are hashed, or of 2 if min_len is 1. A head leads to the last place behind
 * a run with that hash. Links lead from each place to the one before, as in LZ77. The place
 * whose tokens match the most of the text's end is taken; of equal ones the last. Hashes only find
 * candidates: all tokens are compared. Where no run matches and min_len is 1, the last place behind
 * the text's last token is taken.
 *
 *   heads[hash] -> place -> links[place] -> ... -> 0
 *   lasts[hash of one token] -> place
 *
 * Tokens are added as the text grows, each once. Memory is bounded by the longest text, and only
 * init allocates. */
#ifndef ENGINE_DRAFT_DRAFT_INDEX_H
#define ENGINE_DRAFT_DRAFT_INDEX_H

#include <stdint.h>

#include "base/err.h"

struct draft_index {
    uint32_t *heads; // [1 << num_bits] places; 0: none
    uint32_t *links; // [num_tokens_max] by place: the one before with the same hash
    uint32_t *lasts; // [1 << num_bits] places, or NULL
    uint32_t last; // of the text's last token, the one before its end; 0: none
    uint32_t num_bits;
    uint32_t num_tokens_max;
    uint32_t num_added; // places [run_len, num_added] are known
    uint32_t min_len, max_len, run_len;
};

// A match takes at least min_len tokens, 1 or more, and counts up to max_len of them.
MUST_USE enum status draft_index_init(struct draft_index *index, uint32_t num_tokens_max,
                                      uint32_t min_len, uint32_t max_len, struct err *err);
void draft_index_fini(struct draft_index *index); // all-zero is fine

// Writes up to max_draft tokens that may follow tokens [num_tokens], at most num_tokens_max of
// them. Returns how many: max_draft, or 0 where nothing matches. The text must begin as in the call
// before. *match_len: how many of its last tokens the place has in front.
uint32_t draft_index_find(struct draft_index *index, const int32_t *tokens, uint32_t num_tokens,
                          int32_t *draft, uint32_t max_draft, uint32_t *match_len);

#endif
