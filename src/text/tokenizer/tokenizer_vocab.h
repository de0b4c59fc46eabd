/* The vocabulary: tokens by id and by text. A token's text is as tokenizer.json writes it: in the
 * byte-level alphabet, where each byte is one printable character, or in plain characters with a
 * visible one for the space. Its bytes are its part of a decoded text. */
#ifndef TEXT_TOKENIZER_VOCAB_H
#define TEXT_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "base/text/byte_level.h"

enum {
    TOKEN_PRESENT = 1,
    TOKEN_MODEL = 2, // in the BPE model's vocabulary, not only an added token
    TOKEN_SPECIAL = 4, // skipped by a decoding that skips special tokens
    TOKEN_BYTE = 8, // <0x41>: one byte of a character that has no token
    TOKEN_ADDED = 16, // its text in a prompt is always this one token
    VOCAB_IDS_MAX = 1 << 22,
};

struct vocab_token {
    uint32_t text, text_len; // in vocab.data
    uint32_t bytes, bytes_len; // in vocab.data
    uint32_t flags; // TOKEN_..., 0: no token has this id
};

struct vocab_slot {
    uint32_t hash;
    uint32_t id_plus_1; // 0: empty
};

struct vocab {
    struct buf data; // texts and bytes of all tokens
    struct vocab_token *tokens; // [num_ids]
    size_t num_ids; // largest id + 1
    size_t capacity; // of tokens
    size_t num_tokens;
    size_t num_model_tokens; // those with TOKEN_MODEL
    size_t max_token_bytes;
    size_t max_text_bytes;
    bool byte_level; // texts are in the byte-level alphabet; set before the first token
    struct vocab_slot *slots; // [num_slots], open addressing by text
    size_t num_slots; // a power of two, or 0
    uint64_t secret; // keys the hashes: a file cannot choose texts that collide
    uint16_t char_of_byte[256];
    int16_t byte_of_char[BYTE_LEVEL_END]; // -1: not in the alphabet
};

void vocab_init(struct vocab *vocab);
void vocab_fini(struct vocab *vocab); // after vocab_init

// Adds a token. ERR_INVALID, with no message set, when the id or the text is taken.
MUST_USE enum status vocab_add(struct vocab *vocab, const char *text, size_t len, uint32_t id,
                               uint32_t flags, struct err *err);
// Makes the token decode to the bytes of another text.
MUST_USE enum status vocab_set_decoded(struct vocab *vocab, uint32_t id, const char *text,
                                       size_t len, struct err *err);
// Copies bytes into vocab->data; *at is their offset.
MUST_USE enum status vocab_store(struct vocab *vocab, const char *bytes, size_t len, uint32_t *at,
                                 struct err *err);
bool vocab_find(const struct vocab *vocab, const char *text, size_t len, uint32_t *id);

static inline const struct vocab_token *vocab_token(const struct vocab *vocab, int64_t id) {
    if (id < 0 || (uint64_t)id >= vocab->num_ids) return NULL;
    const struct vocab_token *token = &vocab->tokens[id];
    return token->flags ? token : NULL;
}

// Appends bytes in the byte-level alphabet.
MUST_USE enum status vocab_spell(const struct vocab *vocab, const unsigned char *bytes, size_t len,
                                 struct buf *out, struct err *err);

#endif
