/* The pending bytes of utf8_append_lossy do all the work: a piece ends where a character ends. */
#include "text/detokenizer.h"

enum status detokenizer_push(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                             int32_t id, bool skip_special, struct buf *out, struct err *err) {
    size_t len;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &len);
    if (!bytes || (skip_special && tokenizer_token_is_special(tokenizer, id))) return OK;
    return utf8_append_lossy(&detokenizer->pending, bytes, len, out, err);
}

enum status detokenizer_flush(struct detokenizer *detokenizer, struct buf *out, struct err *err) {
    return utf8_append_end(&detokenizer->pending, out, err);
}
