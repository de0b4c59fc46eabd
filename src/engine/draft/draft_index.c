#include "engine/draft/draft_index.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"

enum {
    BITS_MIN = 6,
    // An init clears the tables, also for a text that stays short: 64 KiB each at most. Longer ones
    // made texts of 60,000 tokens 1 % faster.
    BITS_MAX = 14,
    RUN_LEN = 2, // of the runs that are hashed where min_len is 1
    CANDIDATES_MAX = 32, // that one search looks at
};

enum status draft_index_init(struct draft_index *index, uint32_t num_tokens_max, uint32_t min_len,
                             uint32_t max_len, struct err *err) {
    *index = (struct draft_index){.num_bits = BITS_MIN,
                                  .num_tokens_max = num_tokens_max,
                                  .min_len = min_len,
                                  .max_len = max_len};
    if (min_len < 1 || max_len < min_len) {
        return err_set(err, ERR_INVALID, "a draft's match of %u to %u tokens", min_len, max_len);
    }
    while (index->num_bits < BITS_MAX && 1u << index->num_bits < num_tokens_max) index->num_bits++;
    index->run_len = min_len == 1 && max_len >= RUN_LEN ? RUN_LEN : min_len;
    index->heads = calloc((size_t)1 << index->num_bits, sizeof *index->heads);
    // Each is written before it is read, so a long context costs no pages until its text is long.
    index->links = malloc(((size_t)num_tokens_max + 1) * sizeof *index->links);
    bool has_lasts = index->run_len > min_len;
    if (has_lasts) index->lasts = calloc((size_t)1 << index->num_bits, sizeof *index->lasts);
    if (index->heads && index->links && (index->lasts || !has_lasts)) return OK;
    draft_index_fini(index);
    return err_nomem(err, "drafts");
}

void draft_index_fini(struct draft_index *index) {
    free(index->heads);
    free(index->lasts);
    free(index->links);
    *index = (struct draft_index){0};
}

// Of the `len` tokens in front of a place.
static uint32_t hash_of(const struct draft_index *index, const int32_t *tokens, uint32_t place,
                        uint32_t len) {
    uint64_t hash = 0;
    for (uint32_t i = place - len; i < place; i++) {
        hash = (hash ^ (uint32_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return (uint32_t)((hash * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - index->num_bits));
}

// How many tokens in front of the place equal those at the text's end, up to max_len.
static uint32_t match(const struct draft_index *index, const int32_t *tokens, uint32_t num_tokens,
                      uint32_t place) {
    uint32_t len = 0;
    while (len < index->max_len && len < place &&
           tokens[place - 1 - len] == tokens[num_tokens - 1 - len]) {
        len++;
    }
    return len;
}

static void add_tokens(struct draft_index *index, const int32_t *tokens, uint32_t num_tokens) {
    while (index->num_added < num_tokens) {
        uint32_t place = ++index->num_added;
        if (index->lasts) {
            uint32_t *last = &index->lasts[hash_of(index, tokens, place, 1)];
            index->last = *last;
            *last = place;
        }
        if (place < index->run_len) continue;
        uint32_t *head = &index->heads[hash_of(index, tokens, place, index->run_len)];
        index->links[place] = *head;
        *head = place;
    }
}

uint32_t draft_index_find(struct draft_index *index, const int32_t *tokens, uint32_t num_tokens,
                          int32_t *draft, uint32_t max_draft, uint32_t *match_len) {
    CHECK(num_tokens <= index->num_tokens_max && num_tokens >= index->num_added,
          "%u tokens after %u, at most %u", num_tokens, index->num_added, index->num_tokens_max);
    uint32_t best = 0, best_len = 0;
    add_tokens(index, tokens, num_tokens);
    uint32_t place = num_tokens < index->run_len ? 0 : index->links[num_tokens];
    for (uint32_t i = 0; place && i < CANDIDATES_MAX; i++, place = index->links[place]) {
        uint32_t len = match(index, tokens, num_tokens, place);
        if (len < index->run_len || len <= best_len) continue;
        best = place;
        best_len = len;
        if (len == index->max_len) break;
    }
    if (!best && index->last) {
        best_len = match(index, tokens, num_tokens, index->last);
        if (best_len) best = index->last; // else another token with its hash
    }
    if (!best) return 0;
    // A text that repeats itself goes on beyond its end: there the draft is its own source.
    for (uint32_t i = 0; i < max_draft; i++) {
        uint32_t from = best + i;
        draft[i] = from < num_tokens ? tokens[from] : draft[from - num_tokens];
    }
    *match_len = best_len;
    return max_draft;
}
