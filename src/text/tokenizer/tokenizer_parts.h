/* The parts of an open tokenizer, for the files that build it and those that run it. */
#ifndef TEXT_TOKENIZER_PARTS_H
#define TEXT_TOKENIZER_PARTS_H

#include <jansson.h>
#include <pthread.h>

#include "text/tokenizer/tokenizer_added.h"
#include "text/tokenizer/tokenizer_bpe.h"
#include "text/tokenizer/tokenizer_pattern.h"
#include "text/unicode/unicode.h"

enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
};

enum split_kind {
    SPLIT_PATTERN,
    SPLIT_PREFIX_SPACE, // of ByteLevel: a piece that does not begin with a space gets one
    SPLIT_METASPACE, // spaces become a visible character; see struct metaspace
};

enum metaspace_scheme { METASPACE_ALWAYS, METASPACE_FIRST, METASPACE_NEVER };

struct metaspace {
    char character[4]; // the visible character that stands for a space
    size_t len; // of character
    enum metaspace_scheme scheme; // which pieces get one in front
    bool split; // words begin at each one
};

// One stage of the pre-tokenizer: cuts each piece of the stage before into smaller ones.
struct split {
    enum split_kind kind;
    struct pattern pattern;
    enum split_behavior behavior;
    bool invert; // matches of the pattern are text, and the rest is delimiters
    struct metaspace metaspace;
};

enum normalizer_kind { NORMALIZER_NFC, NORMALIZER_NFKC, NORMALIZER_PREPEND, NORMALIZER_REPLACE };

struct normalizer {
    enum normalizer_kind kind;
    struct pattern pattern; // NORMALIZER_REPLACE replaces its matches
    char *text; // [len], the prefix or the replacement
    size_t len;
};

// The part of decoding that looks across tokens. The stages that look at one token alone have been
// applied to vocab_token.bytes.
struct decoding {
    bool byte_level; // the bytes of all tokens are one text, and nothing else is done
    bool byte_fallback; // TOKEN_BYTE tokens in a row are one text
    // [num_ids], in vocab.data: each token's bytes when it is the text's first, without visible
    // spaces. NULL: the first token is like the others.
    struct {
        uint32_t at, len;
    } * first;
    char strip[4]; // [strip_len], removed from the start of the text
    uint32_t strip_len;
    uint32_t strip_max; // at most so many times
};

enum { SPLITS_MAX = 16, TEMPLATE_IDS_MAX = 16, SCRATCHES_KEPT = 8 };

// The memory of one running encode. It is kept for the next encode, mainly for its word cache.
struct tokenizer_scratch {
    struct tokenizer_scratch *next;
    struct effort effort;
    struct bpe_scratch bpe;
    struct pattern_scratch pattern;
    struct unicode_nfc_scratch nfc;
    struct buf repaired; // the text with invalid UTF-8 replaced
    struct buf normalized, normalizing; // the current piece, after one normalizer each
    struct buf prefixed; // the current piece with a space before it, or with visible spaces
};

struct tokenizer {
    uint8_t *flags; // [UNICODE_END], of unicode.h
    struct bpe bpe;
    struct normalizer normalizers[SPLITS_MAX];
    size_t num_normalizers;
    struct decoding decoding;
    struct added_set raw, normalized; // added tokens matched before and after normalisation
    struct split splits[SPLITS_MAX];
    size_t num_splits;
    // The post-processor's special tokens before and after the text.
    int32_t prefix[TEMPLATE_IDS_MAX], suffix[TEMPLATE_IDS_MAX];
    size_t num_prefix, num_suffix;

    pthread_mutex_t lock; // guards `idle` and `num_idle`; nothing else changes after opening
    struct tokenizer_scratch *idle;
    size_t num_idle;
};

// Call before each use, for a text of `len` bytes. `interrupt` may be NULL.
void tokenizer_scratch_begin(struct tokenizer_scratch *scratch, size_t len,
                             const struct interrupt *interrupt);
void tokenizer_scratch_fini(struct tokenizer_scratch *scratch); // all-zero is fine

// The members of a Sequence, or a single component.
struct component_list {
    const json_t *items[SPLITS_MAX];
    const char *types[SPLITS_MAX];
    size_t len;
};
MUST_USE enum status component_list_read(const json_t *root, const char *role, const char *key,
                                         struct component_list *list, const char *what,
                                         struct err *err);
MUST_USE enum status component_unsupported(const char *role, const char *type, const char *what,
                                           struct err *err);

// The stages of loading: the model in tokenizer_load.c, the added tokens in tokenizer_load_added.c,
// the components around it in tokenizer_components.c, tokenizer_normalizer.c and
// tokenizer_decoder.c. Each fills its part and needs the parts before it. `root` is the document
// without the model's big values; `what` names the source in errors.
//
// Whether the vocabulary is written in the byte-level alphabet.
MUST_USE enum status tokenizer_find_byte_level(const json_t *root, bool *byte_level,
                                               const char *what, struct err *err);
MUST_USE enum status tokenizer_load_normalizer(struct tokenizer *tokenizer, const json_t *root,
                                               const char *what, struct err *err);
MUST_USE enum status tokenizer_load_pre_tokenizer(struct tokenizer *tokenizer, const json_t *root,
                                                  const char *what, struct err *err);
MUST_USE enum status tokenizer_load_post_processor(struct tokenizer *tokenizer, const json_t *root,
                                                   const char *what, struct err *err);
MUST_USE enum status tokenizer_load_decoder(struct tokenizer *tokenizer, const json_t *root,
                                            const char *what, struct err *err);
// Reads the flags of a ByteLevel component. Only those of the pre_tokenizer have an effect.
MUST_USE enum status tokenizer_read_byte_level(const json_t *component, bool *prefix_space,
                                               bool *use_regex, const char *what, struct err *err);
// {"replacement": "▁", "prepend_scheme": ..., "split": ...}
MUST_USE enum status tokenizer_read_metaspace(const json_t *component, const char *role,
                                              struct metaspace *out, const char *what,
                                              struct err *err);
// {"pattern": {"Regex": ...}} or {"pattern": {"String": ...}}
MUST_USE enum status tokenizer_load_pattern(struct pattern *pattern, const uint8_t *flags,
                                            const json_t *component, const char *role,
                                            const char *what, struct err *err);
// {"pattern": ..., "content": ...}
MUST_USE enum status tokenizer_load_replace(struct normalizer *out, const uint8_t *flags,
                                            const json_t *component, const char *role,
                                            const char *what, struct err *err);
// A file that lists added tokens: tokenizer.json in "added_tokens", or tokenizer_config.json in
// "added_tokens_decoder".
struct added_source {
    const json_t *root; // NULL: there is no such file
    const char *what;
};
// Loads the tokens of tokenizer.json, as changed and completed by the other file.
MUST_USE enum status tokenizer_load_added_tokens(struct tokenizer *tokenizer,
                                                 const struct added_source *own,
                                                 const struct added_source *config,
                                                 struct err *err);
void tokenizer_normalizer_fini(struct normalizer *normalizer); // all-zero is fine
// ERR_UNSUPPORTED where a text can become too long. *total, the factor by which the normalizers so
// far can lengthen a text, is multiplied by this one's.
MUST_USE enum status normalizer_check_growth(const struct normalizer *normalizer, const char *role,
                                             size_t *total, const char *what, struct err *err);
// Where the normalizers change the text, *text then points into the scratch.
MUST_USE enum status tokenizer_normalize(const struct tokenizer *tokenizer,
                                         struct tokenizer_scratch *scratch, const char **text,
                                         size_t *len, struct err *err);
// Sets `out` to `text` with all matches of a NORMALIZER_REPLACE replaced. ERR_INVALID for a result
// longer than scratch->effort allows, before it is built.
MUST_USE enum status text_replace(const struct normalizer *normalizer,
                                  struct pattern_scratch *scratch, const char *text, size_t len,
                                  struct buf *out, struct err *err);
// Sets `out` to `before` free bytes, then `text` with each `byte` replaced by `content`.
MUST_USE enum status text_replace_byte(const char *text, size_t len, char byte, const char *content,
                                       size_t content_len, size_t before, struct buf *out,
                                       struct err *err);

// In tokenizer_decode.c. Returns the bytes [*len] of an existing token, borrowed. `first`: the text
// begins with it.
const char *decoding_token(const struct tokenizer *tokenizer, int32_t id, bool first, size_t *len);
// Removes `strip` from the start of a text, which begins at `start` in `out`. *num_stripped counts
// the removals so far. True when nothing more is to be removed.
bool decoding_strip(const struct decoding *decoding, uint32_t *num_stripped, struct buf *out,
                    size_t start);

#endif
