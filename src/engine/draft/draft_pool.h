/* The latest texts of an engine's outputs. Where an output repeats a run of tokens from one of
 * them, it may go on as that text did. draft_index.h does the same with an output's own text.
 *
 * A text is the end of a prompt with what was generated behind it: tokens that are right, never
 * drafts. It enters when its output ends, in place of the oldest one. A search sees only texts with
 * the same salt, as in the prefix cache. So users whose salts differ learn nothing from each other,
 * not even by the time that an answer takes.
 *
 * Runs of DRAFT_POOL_RUN_LEN tokens are hashed, with the salt. Heads, links and lasts are as in
 * draft_index.h. When a text is overwritten, links may lead to places with another hash; all tokens
 * are compared, and a search looks at a bounded number of places. */
#ifndef ENGINE_DRAFT_DRAFT_POOL_H
#define ENGINE_DRAFT_DRAFT_POOL_H

#include <stdint.h>

#include "base/err.h"

enum {
    DRAFT_POOL_TEXTS = 128,
    DRAFT_POOL_TEXT_LEN = 1024, // most tokens of a text, the last ones
    DRAFT_POOL_PROMPT_LEN = 16, // of them, most of the prompt
    DRAFT_POOL_RUN_LEN = 4, // tokens of a match, unless one is enough
};

struct draft_pool {
    int32_t *tokens; // [DRAFT_POOL_TEXTS][DRAFT_POOL_TEXT_LEN]
    uint32_t *links; // by place, 1 + the number of the token behind it: the one before
    uint32_t *heads; // by hash: places; 0: none
    uint32_t *lasts; // by hash of one token: the last place behind it
    struct draft_text {
        uint64_t salt;
        uint32_t num_tokens;
    } texts[DRAFT_POOL_TEXTS];
    uint32_t next; // which text is overwritten next
    uint32_t min_len, max_len;
};

// A match takes DRAFT_POOL_RUN_LEN tokens, and counts up to max_len of them. With a min_len of 1
// one token is enough where there is nothing else.
MUST_USE enum status draft_pool_init(struct draft_pool *pool, uint32_t min_len, uint32_t max_len,
                                     struct err *err);
void draft_pool_fini(struct draft_pool *pool); // all-zero is fine
// Adds the text of an output that has ended. All-zero pools take none.
void draft_pool_add(struct draft_pool *pool, uint64_t salt, const int32_t *tokens,
                    uint32_t num_tokens, uint32_t num_prompt_tokens);
// Writes up to max_draft tokens that may follow tokens [num_tokens], and returns how many. 0:
// nothing matches more than `more_than` of the last tokens. *match_len: how many match.
uint32_t draft_pool_find(const struct draft_pool *pool, uint64_t salt, const int32_t *tokens,
                         uint32_t num_tokens, uint32_t more_than, int32_t *draft,
                         uint32_t max_draft, uint32_t *match_len);

#endif
