/* Byte pair encoding of one word. It starts from the word's bytes, or from its characters in models
 * converted from SentencePiece. The pair of neighbours with the lowest rank is joined, the leftmost
 * first, until no pair has a rank. Words of up to 64 symbols are joined in place with a scan per
 * join. Longer ones keep positions sorted by rank, so that a word of millions of bytes takes n log
 * n. The scratch caches the ids of short words. */
#ifndef TEXT_TOKENIZER_BPE_H
#define TEXT_TOKENIZER_BPE_H

#include "text/effort.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_vocab.h"

struct bpe_merge {
    uint64_t pair; // left id << 32 | right id; UINT64_MAX: empty
    uint32_t rank, new_id;
};

struct bpe {
    struct vocab vocab;
    struct bpe_merge *merges; // [num_slots], open addressing by pair
    size_t num_slots; // a power of two
    unsigned shift; // 64 - log2(num_slots)
    uint64_t multiplier; // odd and secret: a file cannot choose pairs that collide
    size_t num_merges; // ranks are below this
    int32_t byte_ids[256]; // the token of each single byte, -1 where there is none
    int32_t unk_id; // the token of bytes or characters without one; -1: they are left out
    bool fuse_unk; // a row of them becomes one unk_id
    bool ignore_merges; // a word that is a token is that token
    // NULL: BPE by bytes. Else by characters, [UNICODE_END]: each character's token + 1; 0: none.
    uint32_t *char_ids;
    bool byte_fallback; // a character without a token is spelled in byte_ids, if each byte has one
    bool cuts_at_space; // no merge joins another character with a U+2581 that follows it
};

// Reserves `num_merges`; `bpe` has no merges before.
MUST_USE enum status bpe_reserve_merges(struct bpe *bpe, size_t num_merges, struct err *err);
// Adds a merge with the next rank. A pair that is added twice has the later rank.
void bpe_add_merge(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t new_id);
void bpe_fini(struct bpe *bpe);

static inline const struct bpe_merge *bpe_find_merge(const struct bpe *bpe, uint32_t left,
                                                     uint32_t right) {
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t i = (size_t)((pair * bpe->multiplier) >> bpe->shift);
    while (bpe->merges[i].pair != pair) {
        if (bpe->merges[i].pair == UINT64_MAX) return NULL;
        i = (i + 1) & (bpe->num_slots - 1);
    }
    return &bpe->merges[i];
}

enum { BPE_CACHED_BYTES = 23, BPE_CACHED_IDS = 9, BPE_CACHE_BITS = 15 };

struct bpe_cached_word {
    uint64_t key[3]; // the word's bytes, zeros, and its length in the last byte; all 0: empty
    int32_t ids[BPE_CACHED_IDS];
    uint32_t num_ids;
};

// The positions of all pairs of one rank, waiting to be joined.
struct bpe_bucket {
    uint32_t left, right, new_id, rank;
    uint32_t *positions; // [len]; those before `next` are done
    size_t len, capacity, next;
    bool unsorted, queued;
};

struct bpe_symbol {
    uint32_t id; // UINT32_MAX: joined to the symbol before
    uint32_t previous, next;
};

struct bpe_scratch {
    struct effort *effort; // of the running encode
    struct bpe_cached_word *cache; // [1 << BPE_CACHE_BITS], made on first use
    struct buf spelled;
    // For long words, freed after each.
    struct bpe_symbol *symbols;
    uint32_t *bucket_of_rank; // [num_merges]: index + 1, 0: none
    struct bpe_bucket *buckets;
    size_t num_buckets, buckets_capacity;
    uint32_t *queue; // [num_queued], a heap of the ranks whose buckets are not empty
    size_t num_queued, queue_capacity;
};
void bpe_scratch_fini(struct bpe_scratch *scratch);

// Appends the ids of one word of `len` > 0 bytes; `available` >= len bytes may be read. With BPE by
// characters call bpe_encode_text instead: this ignores ignore_merges then.
MUST_USE enum status bpe_encode_word(const struct bpe *bpe, struct bpe_scratch *scratch,
                                     const unsigned char *word, size_t len, size_t available,
                                     struct token_list *out, struct err *err);
// Joins ids[0, *num_ids) of a long word in place.
MUST_USE enum status bpe_join_long(const struct bpe *bpe, struct bpe_scratch *scratch, int32_t *ids,
                                   size_t *num_ids, struct err *err);

// BPE by characters, in tokenizer_bpe_chars.c.
// Makes char_ids, byte_ids and cuts_at_space from the vocabulary, the merges and unk_id.
MUST_USE enum status bpe_use_characters(struct bpe *bpe, struct err *err);
// Appends the ids of `len` > 0 bytes of valid UTF-8: a word, or a whole text that the pre-tokenizer
// did not cut.
MUST_USE enum status bpe_encode_text(const struct bpe *bpe, struct bpe_scratch *scratch,
                                     const char *text, size_t len, struct token_list *out,
                                     struct err *err);
// Writes the ids of the word's single characters, at most `len`; returns how many.
size_t bpe_spell_characters(const struct bpe *bpe, const unsigned char *word, size_t len,
                            int32_t *ids);

MUST_USE enum status token_list_reserve(struct token_list *list, size_t extra, struct err *err);

#endif
