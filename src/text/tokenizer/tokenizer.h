/* tokenizer.json as Hugging Face tokenizers runs it, in two forms.
 * - Byte-level BPE (GPT-2, Llama 3, Qwen): ByteLevel pre-tokenizer and decoder.
 * - BPE by characters with byte fallback, converted from SentencePiece (Llama 2, Mistral): Prepend
 * and Replace normalizers or a Metaspace pre-tokenizer; Replace, Metaspace, ByteFallback, Fuse and
 * Strip decoders.
 *
 * Both forms have NFC and NFKC; Split, Digits, Punctuation and Whitespace pre-tokenizers; added
 * tokens; and a post-processor that adds special tokens. An error names a component that is not
 * supported. "truncation" and "padding" are ignored, because transformers sets both for each call.
 *
 * A tokenizer is read-only after opening, so threads may share it. A pool inside keeps the buffers
 * and word caches of encodings. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "base/thread/interrupt.h"

struct checkpoint;
struct document_name;
struct tokenizer;

struct token_list {
    int32_t *ids; // [len]
    size_t len, capacity;
    size_t len_max; // an encode ends once it has more ids; 0: any number
};
void token_list_fini(struct token_list *list);

// Whether the checkpoint has a tokenizer.json, or a form that it is written from; errors call it
// *what. Where it only has one that is not read (vocab.json), ERR_UNSUPPORTED says how to make one.
MUST_USE enum status tokenizer_check_present(const struct checkpoint *checkpoint,
                                             struct document_name *what, bool *present,
                                             struct err *err);
// As in transformers, "added_tokens_decoder" of tokenizer_config.json is part of the tokenizer.
MUST_USE enum status tokenizer_open(struct tokenizer **out, const struct checkpoint *checkpoint,
                                    struct err *err);
// From a file of that form, or from another form by its published name. tokenizer_config.json in
// the same folder is used unless the file has a name of its own.
MUST_USE enum status tokenizer_open_file(struct tokenizer **out, const char *path, struct err *err);
// From text (fuzzing and tests); `what` names it in errors.
MUST_USE enum status tokenizer_parse(struct tokenizer **out, const char *json, size_t len,
                                     const char *what, struct err *err);
void tokenizer_close(struct tokenizer *tokenizer); // NULL is fine

// Appends the ids of `text` to `out`; an error leaves `out` as it was. Invalid UTF-8 is read as
// U+FFFD. Thread-safe. `interrupt` may be NULL. ERR_INVALID: the text is too long, or spends a
// budget of effort.h. ERR_CAPACITY: `out` would have more than len_max ids. The encode ends early
// then, and does not find every such text: the caller compares `len` too.
MUST_USE enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text,
                                      size_t len, bool add_special_tokens,
                                      const struct interrupt *interrupt, struct token_list *out,
                                      struct err *err);
// Appends the text of ids. Bytes that are not UTF-8 become U+FFFD. An id without a token is an
// error. skip_special skips every special token. (Hugging Face 0.23 does not skip one whose text
// its normalizer changes.)
MUST_USE enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids,
                                      size_t num_ids, bool skip_special, struct buf *out,
                                      struct err *err);

// Whether decoding removes one blank from the start of a text, as Llama 2's tokenizer does.
bool tokenizer_strips_blank(const struct tokenizer *tokenizer);
uint32_t tokenizer_num_tokens(const struct tokenizer *tokenizer); // largest id + 1
// The raw bytes of one token ([*len], borrowed), NULL for an id without a token.
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *len);
// The same as tokenizer.json spells it: in a byte-level vocabulary the space of " a" is a letter.
const char *tokenizer_token_text(const struct tokenizer *tokenizer, int32_t id, size_t *len);
bool tokenizer_token_is_special(const struct tokenizer *tokenizer, int32_t id);
// Whether the token is one of the added tokens, special or not, such as <tool_call>.
bool tokenizer_token_is_added(const struct tokenizer *tokenizer, int32_t id);
bool tokenizer_find(const struct tokenizer *tokenizer, const char *content, size_t len,
                    int32_t *id);
size_t tokenizer_max_token_bytes(const struct tokenizer *tokenizer); // longest token's bytes

#endif
