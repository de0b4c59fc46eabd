/* Short words: a lookup in the cache, else a scan for the lowest rank per join. Nearly all words of
 * a text are short and occur again, so the cache decides the speed. An entry is one cache line, and
 * a hit copies all of its ids at once. */
#include "text/tokenizer/tokenizer_bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/os/secret.h"

enum { SHORT_WORD_IDS = 64 };

void token_list_fini(struct token_list *list) {
    if (!list) return;
    free(list->ids);
    *list = (struct token_list){0};
}

static enum status token_list_full(const struct token_list *list, struct err *err) {
    return err_set(err, ERR_CAPACITY, "the text has more than %zu tokens", list->len_max);
}

enum status token_list_reserve(struct token_list *list, size_t extra, struct err *err) {
    if (list->capacity - list->len >= extra) return OK;
    // Only where it grows, not for each word: an encode ends at about twice the limit.
    if (list->len_max && list->len > list->len_max) return token_list_full(list, err);
    size_t capacity = list->capacity ? list->capacity : 64;
    while (capacity - list->len < extra) capacity *= 2;
    int32_t *ids = realloc(list->ids, capacity * sizeof *ids);
    if (!ids) return err_nomem(err, "token ids");
    list->ids = ids;
    list->capacity = capacity;
    return OK;
}

// The table is at most half full: most lookups find nothing, and end after one or two slots.
enum status bpe_reserve_merges(struct bpe *bpe, size_t num_merges, struct err *err) {
    size_t num_slots = 16;
    bpe->shift = 60;
    while (num_slots / 2 < num_merges) {
        num_slots *= 2;
        bpe->shift--;
    }
    bpe->merges = malloc(num_slots * sizeof *bpe->merges);
    if (!bpe->merges) return err_nomem(err, "merges");
    memset(bpe->merges, 0xff, num_slots * sizeof *bpe->merges);
    bpe->num_slots = num_slots;
    bpe->multiplier = secret_make() | 1;
    return OK;
}

void bpe_add_merge(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t new_id) {
    CHECK(bpe->num_merges < bpe->num_slots / 2, "num_merges=%zu num_slots=%zu", bpe->num_merges,
          bpe->num_slots);
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t i = (size_t)((pair * bpe->multiplier) >> bpe->shift);
    while (bpe->merges[i].pair != pair && bpe->merges[i].pair != UINT64_MAX) {
        i = (i + 1) & (bpe->num_slots - 1);
    }
    uint32_t rank = (uint32_t)bpe->num_merges++;
    bpe->merges[i] = (struct bpe_merge){.pair = pair, .rank = rank, .new_id = new_id};
}

void bpe_fini(struct bpe *bpe) {
    vocab_fini(&bpe->vocab);
    free(bpe->merges);
    free(bpe->char_ids);
    *bpe = (struct bpe){0};
}

// Writes the ids of the word's single bytes; returns how many.
static size_t spell_bytes(const struct bpe *bpe, const unsigned char *word, size_t len,
                          int32_t *ids) {
    size_t num_ids = 0;
    bool unknown = false; // the byte before had no token either
    for (size_t i = 0; i < len; i++) {
        int32_t id = bpe->byte_ids[word[i]];
        if (id < 0) {
            if (bpe->unk_id >= 0 && !(unknown && bpe->fuse_unk)) ids[num_ids++] = bpe->unk_id;
            unknown = true;
            continue;
        }
        unknown = false;
        ids[num_ids++] = id;
    }
    return num_ids;
}

struct candidate {
    uint32_t rank, new_id;
};

// The result of joining the ids i and i + 1; rank UINT32_MAX when they cannot be joined.
static struct candidate candidate_at(const struct bpe *bpe, const int32_t *ids, size_t i) {
    const struct bpe_merge *merge = bpe_find_merge(bpe, (uint32_t)ids[i], (uint32_t)ids[i + 1]);
    return merge ? (struct candidate){merge->rank, merge->new_id}
                 : (struct candidate){UINT32_MAX, 0};
}

// Joins in place; returns how many ids are left. Only the pairs beside a join change, so only they
// are looked up again.
static size_t join_short(const struct bpe *bpe, int32_t *ids, size_t num_ids) {
    struct candidate candidates[SHORT_WORD_IDS]; // [num_ids - 1]: of ids i and i + 1
    for (size_t i = 0; i + 1 < num_ids; i++) candidates[i] = candidate_at(bpe, ids, i);
    while (num_ids > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < num_ids; i++) {
            // "<", not "<=": of equal ranks the leftmost wins.
            if (candidates[i].rank < candidates[best].rank) best = i;
        }
        if (candidates[best].rank == UINT32_MAX) break;
        ids[best] = (int32_t)candidates[best].new_id;
        num_ids--;
        for (size_t i = best + 1; i < num_ids; i++) {
            ids[i] = ids[i + 1];
            candidates[i - 1] = candidates[i];
        }
        if (best + 1 < num_ids) candidates[best] = candidate_at(bpe, ids, best);
        if (best > 0) candidates[best - 1] = candidate_at(bpe, ids, best - 1);
    }
    return num_ids;
}

// Whether the whole word is a token of the model.
static enum status find_whole(const struct bpe *bpe, struct bpe_scratch *scratch,
                              const unsigned char *word, size_t len, bool *found, uint32_t *id,
                              struct err *err) {
    *found = false;
    if (len > bpe->vocab.max_token_bytes) return OK;
    buf_clear(&scratch->spelled);
    enum status status = vocab_spell(&bpe->vocab, word, len, &scratch->spelled, err);
    if (status) return status;
    *found = vocab_find(&bpe->vocab, scratch->spelled.data, scratch->spelled.len, id) &&
             (bpe->vocab.tokens[*id].flags & TOKEN_MODEL);
    return OK;
}

// Whether a word of so many bytes is too much for the list however it is joined.
static bool is_beyond(const struct bpe *bpe, const struct token_list *out, size_t num_bytes) {
    if (!out->len_max || bpe->char_ids || bpe->unk_id >= 0) return false;
    return out->len + num_bytes / bpe->vocab.max_token_bytes > out->len_max;
}

// Appends the ids without looking at the cache.
static enum status encode_uncached(const struct bpe *bpe, struct bpe_scratch *scratch,
                                   const unsigned char *word, size_t len, struct token_list *out,
                                   struct err *err) {
    enum status status = token_list_reserve(out, len, err);
    if (status) return status;
    if (bpe->ignore_merges && LIKELY(!bpe->char_ids)) {
        bool found;
        uint32_t id;
        status = find_whole(bpe, scratch, word, len, &found, &id, err);
        if (status) return status;
        if (found) {
            out->ids[out->len++] = (int32_t)id;
            return OK;
        }
    }
    int32_t *ids = out->ids + out->len;
    size_t num_ids = UNLIKELY(bpe->char_ids) ? bpe_spell_characters(bpe, word, len, ids)
                                             : spell_bytes(bpe, word, len, ids);
    if (num_ids <= SHORT_WORD_IDS) {
        num_ids = join_short(bpe, ids, num_ids);
    } else if (is_beyond(bpe, out, num_ids)) {
        return token_list_full(out, err);
    } else {
        status = bpe_join_long(bpe, scratch, ids, &num_ids, err);
        if (status) return status;
    }
    out->len += num_ids;
    return OK;
}

// The first `len` bytes of a little-endian word, the others zero.
static uint64_t low_bytes(uint64_t word, size_t len) {
    return len >= 8 ? word : word & (((uint64_t)1 << (8 * len)) - 1);
}

// A word of at most BPE_CACHED_BYTES as three integers; different words have different keys.
static void make_key(const unsigned char *word, size_t len, size_t available, uint64_t key[3]) {
    key[0] = key[1] = key[2] = 0;
    if (available >= 24) {
        memcpy(&key[0], word, 8);
        key[0] = low_bytes(key[0], len);
        if (len > 8) {
            memcpy(&key[1], word + 8, 8);
            key[1] = low_bytes(key[1], len - 8);
        }
        if (len > 16) {
            memcpy(&key[2], word + 16, 8);
            key[2] = low_bytes(key[2], len - 16);
        }
    } else {
        memcpy(key, word, len);
    }
    key[2] |= (uint64_t)len << 56;
}

// Mixes all of the key into the high bits, which are the index. No secret is needed: words that
// collide replace each other in the cache, which only makes them slower.
static size_t key_slot(const uint64_t key[3]) {
    uint64_t hash = (key[0] ^ key[2]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
    hash = (hash ^ key[1]) * 0xbf58476d1ce4e5b9u;
    return (size_t)(hash >> (64 - BPE_CACHE_BITS));
}

enum status bpe_encode_word(const struct bpe *bpe, struct bpe_scratch *scratch,
                            const unsigned char *word, size_t len, size_t available,
                            struct token_list *out, struct err *err) {
    enum status status = effort_spend(scratch->effort, len, err);
    if (UNLIKELY(status)) return status;
    if (len > BPE_CACHED_BYTES) return encode_uncached(bpe, scratch, word, len, out, err);
    if (UNLIKELY(!scratch->cache)) {
        // calloc: a short text touches only the pages of its words.
        scratch->cache = calloc((size_t)1 << BPE_CACHE_BITS, sizeof *scratch->cache);
        if (!scratch->cache) return err_nomem(err, "word cache");
    }
    uint64_t key[3];
    make_key(word, len, available, key);
    struct bpe_cached_word *cached = &scratch->cache[key_slot(key)];
    if (LIKELY(cached->key[0] == key[0] && cached->key[1] == key[1] && cached->key[2] == key[2])) {
        if (UNLIKELY(out->capacity - out->len < BPE_CACHED_IDS)) {
            status = token_list_reserve(out, BPE_CACHED_IDS, err);
            if (status) return status;
        }
        // Copy all of them: with a fixed size that needs no loop.
        memcpy(out->ids + out->len, cached->ids, sizeof cached->ids);
        out->len += cached->num_ids;
        return OK;
    }
    size_t first = out->len;
    status = encode_uncached(bpe, scratch, word, len, out, err);
    size_t num_ids = out->len - first;
    if (status || num_ids > BPE_CACHED_IDS) return status;
    // The newer word replaces the older one; frequent words come back soon.
    memcpy(cached->key, key, sizeof key);
    memcpy(cached->ids, out->ids + first, num_ids * sizeof *out->ids);
    cached->num_ids = (uint32_t)num_ids;
    return OK;
}
