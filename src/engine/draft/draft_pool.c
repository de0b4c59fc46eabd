#include "engine/draft/draft_pool.h"

#include <stdlib.h>
#include <string.h>

enum {
    NUM_BITS = 17,
    NUM_PLACES = DRAFT_POOL_TEXTS * DRAFT_POOL_TEXT_LEN,
    CANDIDATES_MAX = 16, // that one search looks at
};

enum status draft_pool_init(struct draft_pool *pool, uint32_t min_len, uint32_t max_len,
                            struct err *err) {
    *pool = (struct draft_pool){.min_len = min_len, .max_len = max_len};
    pool->tokens = malloc(NUM_PLACES * sizeof *pool->tokens);
    pool->links = calloc(NUM_PLACES + 1, sizeof *pool->links);
    pool->heads = calloc((size_t)1 << NUM_BITS, sizeof *pool->heads);
    pool->lasts = calloc((size_t)1 << NUM_BITS, sizeof *pool->lasts);
    if (pool->tokens && pool->links && pool->heads && pool->lasts) return OK;
    draft_pool_fini(pool);
    return err_nomem(err, "drafts");
}

void draft_pool_fini(struct draft_pool *pool) {
    free(pool->tokens);
    free(pool->links);
    free(pool->heads);
    free(pool->lasts);
    *pool = (struct draft_pool){0};
}

// Of the `len` tokens in front of `end`.
static uint32_t hash_of(uint64_t salt, const int32_t *end, int len) {
    const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t hash = salt;
    for (int i = -len; i < 0; i++) {
        hash = (hash ^ (uint32_t)end[i]) * factor;
        hash ^= hash >> 32;
    }
    return (uint32_t)((hash * factor) >> (64 - NUM_BITS));
}

void draft_pool_add(struct draft_pool *pool, uint64_t salt, const int32_t *tokens,
                    uint32_t num_tokens, uint32_t num_prompt_tokens) {
    if (!pool->tokens || num_tokens <= num_prompt_tokens) return;
    uint32_t num_generated = num_tokens - num_prompt_tokens;
    uint32_t count =
        num_prompt_tokens < DRAFT_POOL_PROMPT_LEN ? num_prompt_tokens : DRAFT_POOL_PROMPT_LEN;
    count =
        num_generated < DRAFT_POOL_TEXT_LEN - count ? count + num_generated : DRAFT_POOL_TEXT_LEN;
    if (count <= DRAFT_POOL_RUN_LEN) return;
    uint32_t first = pool->next * DRAFT_POOL_TEXT_LEN;
    int32_t *text = pool->tokens + first;
    memcpy(text, tokens + num_tokens - count, count * sizeof *text);
    pool->texts[pool->next] = (struct draft_text){salt, count};
    pool->next = (pool->next + 1) % DRAFT_POOL_TEXTS;
    for (uint32_t i = 1; i < count; i++) {
        uint32_t place = 1 + first + i;
        pool->lasts[hash_of(salt, text + i, 1)] = place;
        if (i < DRAFT_POOL_RUN_LEN) continue;
        uint32_t *head = &pool->heads[hash_of(salt, text + i, DRAFT_POOL_RUN_LEN)];
        pool->links[place] = *head;
        *head = place;
    }
}

// How many tokens in front of the place equal the last ones of tokens [num_tokens]. 0: none may be
// seen.
static uint32_t match(const struct draft_pool *pool, uint64_t salt, uint32_t place,
                      const int32_t *tokens, uint32_t num_tokens) {
    const struct draft_text *text = &pool->texts[(place - 1) / DRAFT_POOL_TEXT_LEN];
    const int32_t *behind = pool->tokens + place - 1;
    uint32_t at = (place - 1) % DRAFT_POOL_TEXT_LEN, len = 0;
    if (text->salt != salt || at >= text->num_tokens) return 0;
    uint32_t most = at < num_tokens ? at : num_tokens;
    if (most > pool->max_len) most = pool->max_len;
    while (len < most && behind[-1 - (int)len] == tokens[num_tokens - 1 - len]) len++;
    return len;
}

uint32_t draft_pool_find(const struct draft_pool *pool, uint64_t salt, const int32_t *tokens,
                         uint32_t num_tokens, uint32_t more_than, int32_t *draft,
                         uint32_t max_draft, uint32_t *match_len) {
    if (!pool->tokens || num_tokens < DRAFT_POOL_RUN_LEN) return 0;
    uint32_t best = 0, best_len = more_than;
    if (best_len < DRAFT_POOL_RUN_LEN - 1) best_len = DRAFT_POOL_RUN_LEN - 1;
    uint32_t place = pool->heads[hash_of(salt, tokens + num_tokens, DRAFT_POOL_RUN_LEN)];
    for (int i = 0; place && i < CANDIDATES_MAX; i++, place = pool->links[place]) {
        uint32_t len = match(pool, salt, place, tokens, num_tokens);
        if (len <= best_len) continue;
        best = place;
        best_len = len;
        if (len == pool->max_len) break;
    }
    uint32_t last = pool->lasts[hash_of(salt, tokens + num_tokens, 1)];
    if (!best && !more_than && pool->min_len == 1 && last) {
        best_len = match(pool, salt, last, tokens, num_tokens);
        if (best_len) best = last;
    }
    if (!best) return 0;
    uint32_t text = (best - 1) / DRAFT_POOL_TEXT_LEN, at = (best - 1) % DRAFT_POOL_TEXT_LEN;
    uint32_t left = pool->texts[text].num_tokens - at;
    uint32_t count = left < max_draft ? left : max_draft;
    memcpy(draft, pool->tokens + best - 1, count * sizeof *draft);
    *match_len = best_len;
    return count;
}
