/* BPE by characters, for models converted from SentencePiece. A character without a token is
 * spelled in the tokens of its UTF-8 bytes. To such a model a whole text is one word. Where no
 * merge can reach over the beginning of a word, words are encoded one by one instead: the ids are
 * the same, and the cache has most of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/tokenizer_bpe.h"
#include "text/unicode/unicode.h"

static const char space[] = "\xe2\x96\x81"; // U+2581, which stands for a space
enum { SPACE_BYTES = 3 };

static bool begins_with_space(const char *text, size_t len) {
    return len >= SPACE_BYTES && memcmp(text, space, SPACE_BYTES) == 0;
}

static bool ends_with_space(const char *text, size_t len) {
    return len >= SPACE_BYTES && begins_with_space(text + len - SPACE_BYTES, SPACE_BYTES);
}

// Whether a text can be cut before each U+2581 that follows another character. A merge over such a
// cut has a right part whose text begins with U+2581, because that character has a token. Its left
// part ends in the other character, in a byte's token or in unk_id. So it suffices to look for such
// merges.
static bool can_cut_at_space(const struct bpe *bpe) {
    const struct vocab *vocab = &bpe->vocab;
    const char *data = vocab->data.data;
    uint32_t id;
    if (!vocab_find(vocab, space, SPACE_BYTES, &id) || !(vocab->tokens[id].flags & TOKEN_MODEL)) {
        return false;
    }
    // Characters that are left out make their neighbours meet.
    if (bpe->unk_id < 0 && !bpe->byte_fallback) return false;
    if (bpe->unk_id >= 0) {
        const struct vocab_token *unk = &vocab->tokens[bpe->unk_id];
        if (ends_with_space(data + unk->text, unk->text_len)) return false;
    }
    for (size_t i = 0; i < bpe->num_slots; i++) {
        if (bpe->merges[i].pair == UINT64_MAX) continue;
        const struct vocab_token *left = &vocab->tokens[bpe->merges[i].pair >> 32];
        const struct vocab_token *right = &vocab->tokens[(uint32_t)bpe->merges[i].pair];
        if (begins_with_space(data + right->text, right->text_len) &&
            !ends_with_space(data + left->text, left->text_len)) {
            return false;
        }
    }
    return true;
}

enum status bpe_use_characters(struct bpe *bpe, struct err *err) {
    const struct vocab *vocab = &bpe->vocab;
    // calloc: pages of characters without tokens are never touched.
    bpe->char_ids = calloc(UNICODE_END, sizeof *bpe->char_ids);
    if (!bpe->char_ids) return err_nomem(err, "characters of the vocabulary");
    for (size_t id = 0; id < vocab->num_ids; id++) {
        const struct vocab_token *token = &vocab->tokens[id];
        if (!(token->flags & TOKEN_MODEL) || token->text_len == 0) continue;
        size_t size;
        uint32_t c = utf8_decode((const unsigned char *)vocab->data.data + token->text, &size);
        if (size == token->text_len) bpe->char_ids[c] = (uint32_t)id + 1;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        uint32_t id;
        int len = snprintf(name, sizeof name, "<0x%02X>", byte);
        bool found = vocab_find(vocab, name, (size_t)len, &id);
        bpe->byte_ids[byte] = found ? (int32_t)id : -1;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        if (bpe->byte_ids[byte] < 0 && bpe->unk_id < 0) return OK;
    }
    bpe->cuts_at_space = can_cut_at_space(bpe);
    return OK;
}

// Spells one character in bytes; false when one of them has no token.
static bool spell_fallback(const struct bpe *bpe, const unsigned char *bytes, size_t size,
                           int32_t *ids) {
    for (size_t i = 0; i < size; i++) {
        ids[i] = bpe->byte_ids[bytes[i]];
        if (ids[i] < 0) return false;
    }
    return true;
}

size_t bpe_spell_characters(const struct bpe *bpe, const unsigned char *word, size_t len,
                            int32_t *ids) {
    size_t num_ids = 0;
    // As in Hugging Face an unknown character's id is held back until a character with its own
    // token comes. Characters spelled in bytes go before it. `ids` is large enough: it has one
    // place for each byte, and the unknown character left at least one unused.
    bool unknown = false;
    for (size_t i = 0, size; i < len; i += size) {
        uint32_t id_plus_1 = bpe->char_ids[utf8_decode(word + i, &size)];
        if (id_plus_1) {
            if (unknown) ids[num_ids++] = bpe->unk_id;
            unknown = false;
            ids[num_ids++] = (int32_t)(id_plus_1 - 1);
        } else if (bpe->byte_fallback && spell_fallback(bpe, word + i, size, ids + num_ids)) {
            num_ids += size;
        } else if (bpe->unk_id >= 0) {
            if (unknown && !bpe->fuse_unk) ids[num_ids++] = bpe->unk_id;
            unknown = true;
        }
    }
    if (unknown) ids[num_ids++] = bpe->unk_id;
    return num_ids;
}

// The length of the first word: up to the next U+2581 that follows another character.
static size_t word_bytes(const char *text, size_t len) {
    size_t i = 0;
    while (begins_with_space(text + i, len - i)) i += SPACE_BYTES;
    while (i < len && (text[i] != space[0] || !begins_with_space(text + i, len - i))) i++;
    return i;
}

enum status bpe_encode_text(const struct bpe *bpe, struct bpe_scratch *scratch, const char *text,
                            size_t len, struct token_list *out, struct err *err) {
    uint32_t id;
    if (bpe->ignore_merges && len <= bpe->vocab.max_text_bytes &&
        vocab_find(&bpe->vocab, text, len, &id) && bpe->vocab.tokens[id].flags & TOKEN_MODEL) {
        enum status status = token_list_reserve(out, 1, err);
        if (!status) out->ids[out->len++] = (int32_t)id;
        return status;
    }
    while (len) {
        size_t word = bpe->cuts_at_space ? word_bytes(text, len) : len;
        enum status status =
            bpe_encode_word(bpe, scratch, (const unsigned char *)text, word, len, out, err);
        if (status) return status;
        text += word;
        len -= word;
    }
    return OK;
}
