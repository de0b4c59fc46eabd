/* Decoding a whole list of ids. The tokens of a byte-level tokenizer form one text of bytes, in
 * which invalid UTF-8 is replaced. The tokens of a SentencePiece tokenizer are characters, except
 * for rows of byte tokens. As in Hugging Face, a row that is not UTF-8 as a whole becomes one
 * U+FFFD for each of its bytes. */
#include <string.h>

#include "text/tokenizer/tokenizer_parts.h"

static enum status unknown_id(const struct vocab *vocab, int32_t id, struct err *err) {
    return err_set(err, ERR_INVALID, "token id %d has no token, ids are 0 to %zu", id,
                   vocab->num_ids - 1);
}

static enum status decode_bytes(const struct tokenizer *tokenizer, const int32_t *ids,
                                size_t num_ids, bool skip_special, struct buf *out,
                                struct err *err) {
    const struct vocab *vocab = &tokenizer->bpe.vocab;
    struct utf8_partial partial = {0};
    for (size_t i = 0; i < num_ids; i++) {
        const struct vocab_token *token = vocab_token(vocab, ids[i]);
        if (!token) return unknown_id(vocab, ids[i], err);
        if (skip_special && token->flags & TOKEN_SPECIAL) continue;
        enum status status = utf8_append_lossy(&partial, vocab->data.data + token->bytes,
                                               token->bytes_len, out, err);
        if (status) return status;
    }
    return utf8_append_end(&partial, out, err);
}

const char *decoding_token(const struct tokenizer *tokenizer, int32_t id, bool first, size_t *len) {
    const struct vocab *vocab = &tokenizer->bpe.vocab;
    const struct decoding *decoding = &tokenizer->decoding;
    if (first && decoding->first) {
        *len = decoding->first[id].len;
        return vocab->data.data + decoding->first[id].at;
    }
    *len = vocab->tokens[id].bytes_len;
    return vocab->data.data + vocab->tokens[id].bytes;
}

bool decoding_strip(const struct decoding *decoding, uint32_t *num_stripped, struct buf *out,
                    size_t start) {
    if (!decoding->strip_len) return true;
    size_t end = start;
    while (*num_stripped < decoding->strip_max && out->len - end >= decoding->strip_len &&
           memcmp(out->data + end, decoding->strip, decoding->strip_len) == 0) {
        end += decoding->strip_len;
        ++*num_stripped;
    }
    bool past = end < out->len || *num_stripped == decoding->strip_max;
    if (end > start) {
        memmove(out->data + start, out->data + end, out->len - end);
        out->len -= end - start;
        out->data[out->len] = '\0';
    }
    return past;
}

// Ends the row of byte tokens that begins at `row` in `out`.
static enum status end_row(struct buf *out, size_t row, struct err *err) {
    size_t len = out->len - row;
    if (utf8_valid_prefix(out->data + row, len) == len) return OK;
    out->len = row;
    return utf8_append_replacements(len, out, err);
}

static enum status decode_characters(const struct tokenizer *tokenizer, const int32_t *ids,
                                     size_t num_ids, bool skip_special, struct buf *out,
                                     struct err *err) {
    const struct vocab *vocab = &tokenizer->bpe.vocab;
    size_t row = SIZE_MAX; // where the current row of byte tokens begins in `out`; SIZE_MAX: none
    bool first = true;
    enum status status = OK;
    for (size_t i = 0; i < num_ids && !status; i++) {
        const struct vocab_token *token = vocab_token(vocab, ids[i]);
        if (!token) return unknown_id(vocab, ids[i], err);
        if (skip_special && token->flags & TOKEN_SPECIAL) continue;
        if (!(token->flags & TOKEN_BYTE)) {
            if (row != SIZE_MAX) status = end_row(out, row, err);
            row = SIZE_MAX;
        } else if (row == SIZE_MAX) {
            row = out->len;
        }
        size_t len;
        const char *bytes = decoding_token(tokenizer, ids[i], first, &len);
        if (!status) status = buf_append(out, bytes, len, err);
        first = false;
    }
    return status || row == SIZE_MAX ? status : end_row(out, row, err);
}

enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t num_ids,
                             bool skip_special, struct buf *out, struct err *err) {
    const struct decoding *decoding = &tokenizer->decoding;
    size_t first = out->len;
    enum status status = decoding->byte_level
                             ? decode_bytes(tokenizer, ids, num_ids, skip_special, out, err)
                             : decode_characters(tokenizer, ids, num_ids, skip_special, out, err);
    if (status && out->data) {
        out->len = first;
        out->data[first] = '\0';
    }
    uint32_t num_stripped = 0;
    if (!status && !decoding->byte_level) (void)decoding_strip(decoding, &num_stripped, out, first);
    return status;
}
