/* The parts of tokenizer.json that are written from other forms of a tokenizer: tekken.json,
 * tiktoken.model and tokenizer.model in a folder (tokenizer_form.h), and the metadata of a GGUF
 * file (gguf/tokens). */
#ifndef CHECKPOINT_TOKENS_TOKEN_JSON_H
#define CHECKPOINT_TOKENS_TOKEN_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct json_out;

struct token_text {
    const char *text; // NULL: there is no such token
    size_t len; // bytes
    float score; // the pair whose token has the highest is joined first
    bool is_never_joined; // no pair makes this token
};

// A string in the byte-level alphabet, where each byte is one printable character.
void token_json_byte_level(struct json_out *out, const char *bytes, size_t len);
// Decoder and pre-tokenizer of byte-level BPE. The expressions cut a text one after the other; NULL
// at the end.
void token_json_byte_level_components(struct json_out *out, const char *const *patterns);
// Normalizer and decoder of a SentencePiece model. adds_space: a text gets a space in front.
void token_json_spm_components(struct json_out *out, bool adds_space);
// Writes what puts tokens before and after each text. NULL: no such token.
void token_json_post_processor(struct json_out *out, const struct token_text *bos, int64_t bos_id,
                               const struct token_text *eos, int64_t eos_id);
// Writes "merges": each way to make a token of two others, in the order of the tokens' scores, the
// highest first. by_bytes: tokens are cut at any byte and written in the byte-level alphabet;
// without it they are UTF-8 and are cut between characters.
MUST_USE enum status token_json_merges(const struct token_text *tokens, size_t num_tokens,
                                       bool by_bytes, const char *what, struct json_out *out,
                                       struct err *err);

#endif
