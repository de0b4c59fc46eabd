/* Incremental decoding for streaming: tokens in, whole characters out. Never emits half a character;
 * the pieces of all pushes and the flush concatenate to tokenizer_decode of all ids, with one
 * exception. A row of byte tokens (<0xE4> <0xB8> ...) that is not UTF-8 decodes to one U+FFFD for
 * each of its bytes, also for the whole characters before the fault; those have been handed out by
 * then and stay. What is removed from the start of a text (Strip, Metaspace) is removed from the
 * first token pushed on: the pieces are the text of the output alone, not of prompt and output.
 * Holds no memory: a value of a few bytes. */
#ifndef TEXT_DETOKENIZER_H
#define TEXT_DETOKENIZER_H

#include "base/buf.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

struct detokenizer {
    struct utf8_pending pending; // the start of a character whose end has not come yet
    // Of tokenizers with byte fallback only:
    uint32_t num_stripped; // spaces removed from the start
    bool stripped; // the start is past
    bool started; // a token has come
    bool in_row; // the last one was a byte
    bool broken; // ... in a row that is not UTF-8
};

// Appends the characters that token `id` completes to `out`: at most
// 3 * (tokenizer_max_token_bytes + 4) bytes. An id without a token adds nothing.
MUST_USE enum status detokenizer_push(struct detokenizer *detokenizer,
                                      const struct tokenizer *tokenizer, int32_t id,
                                      bool skip_special, struct buf *out, struct err *err);
// The end: a half character becomes U+FFFD, of byte tokens one for each byte.
MUST_USE enum status detokenizer_flush(struct detokenizer *detokenizer, struct buf *out,
                                       struct err *err);

#endif
