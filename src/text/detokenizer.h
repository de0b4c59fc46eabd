/* Incremental decoding for streaming: bytes of tokens in, whole characters out. Never emits half a
 * character; the pieces of all pushes and the flush concatenate to tokenizer_decode of all ids.
 * Holds no memory: a value of a few bytes. */
#ifndef TEXT_DETOKENIZER_H
#define TEXT_DETOKENIZER_H

#include "base/buf.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

struct detokenizer {
    struct utf8_pending pending; // the start of a character whose end has not come yet
};

// Appends the characters that token `id` completes to `out`: at most
// 3 * (tokenizer_max_token_bytes + 4) bytes. An id without a token adds nothing.
MUST_USE enum status detokenizer_push(struct detokenizer *detokenizer,
                                      const struct tokenizer *tokenizer, int32_t id,
                                      bool skip_special, struct buf *out, struct err *err);
// The end: a half character becomes U+FFFD.
MUST_USE enum status detokenizer_flush(struct detokenizer *detokenizer, struct buf *out,
                                       struct err *err);

#endif
