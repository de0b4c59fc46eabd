/* Incremental decoding for streaming: tokens in, whole characters out. The pieces of all pushes and
 * the flush concatenate to tokenizer_decode of all ids, with one exception. tokenizer_decode turns
 * a row of byte tokens (<0xE4> <0xB8> ...) that is not UTF-8 into one U+FFFD for each byte, also
 * for whole characters before the fault. A stream has already given out those characters, and they
 * stay.
 *
 * Strip and Metaspace remove spaces from the start of a text. Here that is the first token pushed:
 * the pieces are the text of the output alone, not of prompt and output. A detokenizer is a value
 * of a few bytes and owns no memory. */
#ifndef TEXT_DETOKENIZER_H
#define TEXT_DETOKENIZER_H

#include "base/text/buf.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

struct detokenizer {
    struct utf8_partial partial; // the start of a character whose end has not come yet
    // Of tokenizers with byte fallback only:
    uint32_t num_stripped; // spaces removed from the start
    bool stripped; // nothing more is to be removed from the start
    bool started; // a token was pushed
    bool in_row; // the last one was a byte token
    bool broken; // ... and its row of byte tokens is not UTF-8
};

// Appends the characters that token `id` completes to `out`: at most 3 * (tokenizer_max_token_bytes
// + 4) bytes. An id without a token adds nothing.
MUST_USE enum status detokenizer_push(struct detokenizer *detokenizer,
                                      const struct tokenizer *tokenizer, int32_t id,
                                      bool skip_special, struct buf *out, struct err *err);
// The end: a half character becomes one U+FFFD, or from byte tokens one for each byte.
MUST_USE enum status detokenizer_flush(struct detokenizer *detokenizer, struct buf *out,
                                       struct err *err);

#endif
