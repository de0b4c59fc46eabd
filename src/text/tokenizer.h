/* tokenizer.json as Hugging Face tokenizers runs it, in two forms. Byte-level BPE (GPT-2, Llama 3,
 * Qwen): ByteLevel pre-tokenizer and decoder. BPE by characters with byte fallback, converted from
 * SentencePiece (Llama 2, Mistral): Prepend and Replace normalizers or a Metaspace pre-tokenizer;
 * Replace, Metaspace, ByteFallback, Fuse and Strip decoders. Both with NFC and NFKC, with Split,
 * Digits, Punctuation and Whitespace pre-tokenizers, added tokens, and a post-processor that adds
 * special tokens. A component that is not supported is named in the error. "truncation" and
 * "padding" change nothing, as in transformers, which sets both anew for each call.
 * Read-only after opening: shareable between threads. What an encoding works with, a word cache
 * among it, is kept in a pool inside. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/interrupt.h"

struct tokenizer;

struct token_list {
    int32_t *ids; // [len]
    size_t len, capacity;
};
void token_list_fini(struct token_list *list);

// Whether there is a file of this name. Where there is none, but another form of a tokenizer beside
// it (tokenizer.model, tekken.json), it is ERR_UNSUPPORTED and says how to make tokenizer.json.
MUST_USE enum status tokenizer_check_present(const char *path, bool *present, struct err *err);
// Of a file called tokenizer.json, "added_tokens_decoder" in a tokenizer_config.json beside it is
// part of the tokenizer, as in transformers.
MUST_USE enum status tokenizer_open(struct tokenizer **out, const char *path, struct err *err);
// From text (fuzzing and tests); `what` names it in errors.
MUST_USE enum status tokenizer_parse(struct tokenizer **out, const char *json, size_t len,
                                     const char *what, struct err *err);
void tokenizer_close(struct tokenizer *tokenizer); // NULL is fine

// Appends the ids of `text` to `out`. Invalid UTF-8 is read as U+FFFD. Thread-safe. `interrupt` may
// be NULL. ERR_INVALID: the text is too long, or patterns spend their budget on it (effort.h).
MUST_USE enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text,
                                      size_t len, bool add_special_tokens,
                                      const struct interrupt *interrupt, struct token_list *out,
                                      struct err *err);
// Appends the text of ids. Bytes that are not UTF-8 become U+FFFD. An id without a token is an
// error. Hugging Face 0.23 does not skip a special token whose text its normalizer changes; that
// is against what skip_special says, and not done here.
MUST_USE enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids,
                                      size_t num_ids, bool skip_special, struct buf *out,
                                      struct err *err);

uint32_t tokenizer_num_tokens(const struct tokenizer *tokenizer); // largest id + 1
// The raw bytes of one token ([*len], borrowed), NULL for an id without a token.
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *len);
bool tokenizer_token_is_special(const struct tokenizer *tokenizer, int32_t id);
bool tokenizer_find(const struct tokenizer *tokenizer, const char *content, size_t len,
                    int32_t *id);
size_t tokenizer_max_token_bytes(const struct tokenizer *tokenizer); // longest token's bytes

#endif
