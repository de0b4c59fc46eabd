/* A piece ends where a character ends. Byte-level tokens are bytes of one text, so the partial
 * bytes are the whole state. With byte fallback each row of byte tokens is a text of its own. */
#include "text/tokenizer/detokenizer.h"

#include "text/tokenizer/tokenizer_parts.h"

static enum status push_characters(struct detokenizer *detokenizer,
                                   const struct tokenizer *tokenizer, int32_t id, bool is_byte,
                                   struct buf *out, struct err *err) {
    size_t len;
    const char *bytes = decoding_token(tokenizer, id, !detokenizer->started, &len);
    detokenizer->started = true;
    if (is_byte) {
        detokenizer->in_row = true;
        return utf8_append_byte(&detokenizer->partial, (unsigned char)*bytes, &detokenizer->broken,
                                out, err);
    }
    enum status status = detokenizer_flush(detokenizer, out, err);
    return status ? status : buf_append(out, bytes, len, err);
}

enum status detokenizer_push(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                             int32_t id, bool skip_special, struct buf *out, struct err *err) {
    const struct vocab *vocab = &tokenizer->bpe.vocab;
    const struct vocab_token *token = vocab_token(vocab, id);
    if (!token || (skip_special && token->flags & TOKEN_SPECIAL)) return OK;
    if (tokenizer->decoding.byte_level) {
        return utf8_append_lossy(&detokenizer->partial, vocab->data.data + token->bytes,
                                 token->bytes_len, out, err);
    }
    size_t start = out->len;
    enum status status =
        push_characters(detokenizer, tokenizer, id, token->flags & TOKEN_BYTE, out, err);
    if (!status && !detokenizer->stripped && out->len > start) {
        detokenizer->stripped =
            decoding_strip(&tokenizer->decoding, &detokenizer->num_stripped, out, start);
    }
    return status;
}

enum status detokenizer_flush(struct detokenizer *detokenizer, struct buf *out, struct err *err) {
    if (!detokenizer->in_row) return utf8_append_end(&detokenizer->partial, out, err);
    uint32_t len = detokenizer->partial.len;
    detokenizer->partial.len = 0;
    detokenizer->in_row = detokenizer->broken = false;
    return utf8_append_replacements(len, out, err);
}
