/* A GGUF file's tokens: which have a role, and tokenizer.json and tokenizer_config.json written
 * from them.
 *
 * "gpt2" is byte-level BPE, whose words are cut by the rule that tokenizer.ggml.pre names
 * (gguf_split_rules.c). "llama" is a SentencePiece model: of all pairs of neighbours that make a
 * token, the one whose token has the highest score is joined first. So its list of merges is made
 * here: all pairs, in the order of their tokens' scores. "gemma4" has such tokens and a list of
 * merges. As in llama.cpp texts are not normalised;
 * the file does not say that they should be. */
#ifndef CHECKPOINT_GGUF_GGUF_TOKENS_H
#define CHECKPOINT_GGUF_GGUF_TOKENS_H

#include "checkpoint/gguf/file/gguf_file.h"

enum { GGUF_ENDS_MAX = 32 };

enum gguf_token_type {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN = 2,
    GGUF_TOKEN_CONTROL = 3,
    GGUF_TOKEN_USER_DEFINED = 4,
    GGUF_TOKEN_UNUSED = 5,
    GGUF_TOKEN_BYTE = 6,
};

// Ids; -1: there is none.
struct gguf_special {
    bool is_spm; // tokens are those of SentencePiece; else byte-level BPE, or no tokenizer
    bool has_merges; // in the file
    uint64_t num_tokens; // 0: no tokenizer
    int64_t bos, eos, unk, pad;
    int64_t ends[GGUF_ENDS_MAX]; // [num_ends]: eos, and what else ends an answer
    size_t num_ends;
};

MUST_USE enum status gguf_special_read(struct gguf_special *out, const struct gguf *gguf,
                                       struct err *err);
bool gguf_has_tokenizer(const struct gguf *gguf);

struct json_out;
MUST_USE enum status gguf_write_tokenizer(const struct gguf *gguf, struct json_out *out,
                                          struct err *err);
MUST_USE enum status gguf_write_tokenizer_config(const struct gguf *gguf, struct json_out *out,
                                                 struct err *err);

// A rule of tokenizer.ggml.pre: the expressions cut a text one after the other.
struct gguf_split_rule {
    const char *const *patterns; // NULL at the end
    bool ignores_merges; // a word that is a token is that token
    bool adds_bos; // unless tokenizer.ggml.add_bos_token says otherwise
};
// False: the name is not known.
bool gguf_find_split_rule(struct gguf_string name, struct gguf_split_rule *out);

// gguf_merges.c: writes "merges" of a SentencePiece model.
MUST_USE enum status gguf_write_spm_merges(const struct gguf *gguf, struct json_out *out,
                                           struct err *err);

#endif
