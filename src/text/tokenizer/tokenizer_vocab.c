/* Texts are in one buffer and referred to by offsets, so that 150,000 tokens take a handful of
 * allocations. */
#include "text/tokenizer/tokenizer_vocab.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/os/secret.h"
#include "base/text/byte_level.h"
#include "text/unicode/unicode.h"

void vocab_init(struct vocab *vocab) {
    *vocab = (struct vocab){.byte_level = true, .secret = secret_make()};
    memset(vocab->byte_of_char, 0xff, sizeof vocab->byte_of_char);
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t c = byte_level_char((unsigned char)byte);
        vocab->char_of_byte[byte] = (uint16_t)c;
        vocab->byte_of_char[c] = (int16_t)byte;
    }
}

void vocab_fini(struct vocab *vocab) {
    buf_fini(&vocab->data);
    free(vocab->tokens);
    free(vocab->slots);
    *vocab = (struct vocab){0};
}

// Ids may come in any order and with gaps.
static enum status grow_ids(struct vocab *vocab, size_t num_ids, struct err *err) {
    if (num_ids > vocab->capacity) {
        size_t capacity = vocab->capacity ? vocab->capacity : 512;
        while (capacity < num_ids) capacity *= 2;
        struct vocab_token *tokens = realloc(vocab->tokens, capacity * sizeof *tokens);
        if (!tokens) return err_nomem(err, "vocabulary");
        memset(tokens + vocab->capacity, 0, (capacity - vocab->capacity) * sizeof *tokens);
        vocab->tokens = tokens;
        vocab->capacity = capacity;
    }
    if (num_ids > vocab->num_ids) vocab->num_ids = num_ids;
    return OK;
}

static uint32_t hash_of(const struct vocab *vocab, const char *text, size_t len) {
    return (uint32_t)XXH3_64bits_withSeed(text, len, vocab->secret);
}

// The slot of a text, or the empty slot where it belongs. The hash is compared first, so that the
// bytes of other texts are seldom read.
static size_t slot_of(const struct vocab *vocab, const char *text, size_t len, uint32_t hash) {
    size_t mask = vocab->num_slots - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        const struct vocab_slot *slot = &vocab->slots[i];
        if (slot->id_plus_1 == 0) return i;
        if (slot->hash != hash) continue;
        const struct vocab_token *token = &vocab->tokens[slot->id_plus_1 - 1];
        if (token->text_len == len && memcmp(vocab->data.data + token->text, text, len) == 0) {
            return i;
        }
    }
}

// Keeps the table at most half full. Slots store hashes, so texts are not hashed again.
static enum status grow_slots(struct vocab *vocab, struct err *err) {
    if (vocab->num_tokens < vocab->num_slots / 2) return OK;
    size_t num_slots = vocab->num_slots ? vocab->num_slots * 2 : 1024;
    struct vocab_slot *slots = calloc(num_slots, sizeof *slots);
    if (!slots) return err_nomem(err, "vocabulary");
    for (size_t i = 0; i < vocab->num_slots; i++) {
        if (vocab->slots[i].id_plus_1 == 0) continue;
        size_t k = vocab->slots[i].hash & (num_slots - 1);
        while (slots[k].id_plus_1) k = (k + 1) & (num_slots - 1);
        slots[k] = vocab->slots[i];
    }
    free(vocab->slots);
    vocab->slots = slots;
    vocab->num_slots = num_slots;
    return OK;
}

// Appends to vocab->data the bytes that a text in the byte-level alphabet stands for; the text is
// in vocab->data too. A text with any other character stands for itself.
static enum status spell_out(struct vocab *vocab, uint32_t text, uint32_t len,
                             struct vocab_token *token, struct err *err) {
    token->bytes = text;
    token->bytes_len = len;
    if (!vocab->byte_level) return OK;
    enum status status = buf_reserve(&vocab->data, len, err);
    if (status) return status;
    const unsigned char *characters = (const unsigned char *)vocab->data.data + text;
    char *out = vocab->data.data + vocab->data.len;
    size_t num_bytes = 0;
    for (size_t i = 0; i < len;) {
        size_t size;
        uint32_t c = utf8_decode(characters + i, &size);
        if (c >= ARRAY_LEN(vocab->byte_of_char) || vocab->byte_of_char[c] < 0) return OK;
        out[num_bytes++] = (char)vocab->byte_of_char[c];
        i += size;
    }
    if (num_bytes == len) return OK; // ASCII: the same bytes
    token->bytes = (uint32_t)vocab->data.len;
    token->bytes_len = (uint32_t)num_bytes;
    vocab->data.len += num_bytes;
    vocab->data.data[vocab->data.len] = '\0';
    return OK;
}

enum status vocab_store(struct vocab *vocab, const char *bytes, size_t len, uint32_t *at,
                        struct err *err) {
    if (len > UINT32_MAX - vocab->data.len) { // offsets are 32 bits
        return err_set(err, ERR_FORMAT, "the texts of all tokens have more than 4 GiB");
    }
    *at = (uint32_t)vocab->data.len;
    return buf_append(&vocab->data, bytes, len, err);
}

enum status vocab_set_decoded(struct vocab *vocab, uint32_t id, const char *text, size_t len,
                              struct err *err) {
    struct vocab_token *token = &vocab->tokens[id];
    uint32_t copy = 0;
    enum status status = vocab_store(vocab, text, len, &copy, err);
    if (!status) status = spell_out(vocab, copy, (uint32_t)len, token, err);
    if (token->bytes_len > vocab->max_token_bytes) vocab->max_token_bytes = token->bytes_len;
    return status;
}

enum status vocab_add(struct vocab *vocab, const char *text, size_t len, uint32_t id,
                      uint32_t flags, struct err *err) {
    enum status status = grow_slots(vocab, err);
    if (status) return status;
    uint32_t hash = hash_of(vocab, text, len);
    size_t slot = slot_of(vocab, text, len, hash);
    if (vocab->slots[slot].id_plus_1) return ERR_INVALID;
    if (id < vocab->num_ids && vocab->tokens[id].flags) return ERR_INVALID;
    status = grow_ids(vocab, (size_t)id + 1, err);
    if (status) return status;
    struct vocab_token token = {.text_len = (uint32_t)len};
    status = vocab_store(vocab, text, len, &token.text, err);
    if (!status) status = spell_out(vocab, token.text, token.text_len, &token, err);
    if (status) return status;
    token.flags = flags | TOKEN_PRESENT;
    vocab->tokens[id] = token;
    vocab->slots[slot] = (struct vocab_slot){.hash = hash, .id_plus_1 = id + 1};
    vocab->num_tokens++;
    if (flags & TOKEN_MODEL) vocab->num_model_tokens++;
    if (token.bytes_len > vocab->max_token_bytes) vocab->max_token_bytes = token.bytes_len;
    if (len > vocab->max_text_bytes) vocab->max_text_bytes = len;
    return OK;
}

bool vocab_find(const struct vocab *vocab, const char *text, size_t len, uint32_t *id) {
    if (vocab->num_slots == 0) return false;
    size_t slot = slot_of(vocab, text, len, hash_of(vocab, text, len));
    if (vocab->slots[slot].id_plus_1 == 0) return false;
    *id = vocab->slots[slot].id_plus_1 - 1;
    return true;
}

enum status vocab_spell(const struct vocab *vocab, const unsigned char *bytes, size_t len,
                        struct buf *out, struct err *err) {
    enum status status = buf_reserve(out, 2 * len, err);
    if (status) return status;
    for (size_t i = 0; i < len; i++) {
        out->len += utf8_write(vocab->char_of_byte[bytes[i]], out->data + out->len);
    }
    out->data[out->len] = '\0';
    return OK;
}
