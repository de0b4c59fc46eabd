/* How an engine makes drafts: the options `drafts` and `speculative_config`, resolved. */
#ifndef ENGINE_DRAFT_DRAFT_OPTIONS_H
#define ENGINE_DRAFT_DRAFT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "nanovllm.h"

enum {
    DRAFT_TOKENS_MAX = 15, // of one draft
    DRAFT_ROWS_MAX = 64, // of a step with drafts, or max_num_seqs if that is more
    DRAFT_AUTO_ROWS_MAX = 256, // of one whose drafts are as long as they pay
};

struct draft_options {
    uint32_t num_tokens; // most of one draft; 0: there are no drafts
    bool is_adaptive; // drafts are as long as they pay; else every match gives num_tokens
    uint32_t min_len, max_len; // tokens of a match (draft_index.h)
    bool uses_others; // also the texts of other outputs (draft_pool.h)
    bool only_forced; // no guesses: only what an output's form leaves no choice of
};

// Of an engine without guesses whose steps overlap: forms skip certain text by drafts.
struct draft_options draft_options_forced(void);
// speculative_config is vLLM's JSON object. Its method is ngram; others are refused by name.
// has_states: the model has recurrent layers. These would have to take their states back with the
// drafts, so there are none, and a number of them is refused.
MUST_USE enum status draft_options_read(struct draft_options *out,
                                        const struct nvllm_engine_options *options, bool has_states,
                                        struct err *err);
// Most rows of logits of a step. Where few sequences run, each may have drafts besides.
uint32_t draft_options_rows(const struct draft_options *drafts, uint32_t max_num_seqs,
                            uint32_t max_num_batched_tokens);

#endif
