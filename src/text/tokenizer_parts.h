/* What an opened tokenizer consists of; for the files that build it and those that run it. */
#ifndef TEXT_TOKENIZER_PARTS_H
#define TEXT_TOKENIZER_PARTS_H

#include <jansson.h>
#include <pthread.h>

#include "text/tokenizer_added.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_pattern.h"
#include "text/unicode.h"

enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
};

enum split_kind {
    SPLIT_PATTERN,
    SPLIT_PREFIX_SPACE, // ByteLevel's: a space is put before a piece that does not start so
    SPLIT_METASPACE, // spaces become a visible character, which may be put before and cut at
};

enum metaspace_scheme { METASPACE_ALWAYS, METASPACE_FIRST, METASPACE_NEVER };

struct metaspace {
    char character[4]; // stands for a space
    size_t len; // of character
    enum metaspace_scheme scheme; // which pieces get one in front
    bool split; // words begin at each one
};

// One stage of the pre-tokenizer: cuts each piece of the stage before into smaller ones.
struct split {
    enum split_kind kind;
    struct pattern pattern;
    enum split_behavior behavior;
    bool invert; // what the pattern matches is text, the rest delimiters
    struct metaspace metaspace;
};

enum normalizer_kind { NORMALIZER_NFC, NORMALIZER_NFKC, NORMALIZER_PREPEND, NORMALIZER_REPLACE };

struct normalizer {
    enum normalizer_kind kind;
    struct pattern pattern; // what is replaced
    char *text; // [len], what is put before or instead
    size_t len;
};

// What follows the tokens' own texts in decoding. vocab_token.bytes have been through the stages
// that look at one token alone.
struct decoding {
    bool byte_level; // all bytes of all tokens are one text, nothing else is done
    bool byte_fallback; // TOKEN_BYTE tokens in a row are one text
    // Without the visible spaces, for the first token: [num_ids] in vocab.data; NULL: like others.
    struct {
        uint32_t at, len;
    } * first;
    char strip[4]; // [strip_len], removed from the start of the text
    uint32_t strip_len;
    uint32_t strip_max; // ... so many times
};

enum { SPLITS_MAX = 16, TEMPLATE_IDS_MAX = 16, SCRATCHES_KEPT = 8 };

// What one running encode needs. Kept for the next one: the word cache is worth keeping.
struct tokenizer_scratch {
    struct tokenizer_scratch *next;
    struct effort effort;
    struct bpe_scratch bpe;
    struct pattern_scratch pattern;
    struct unicode_nfc_scratch nfc;
    struct buf repaired; // the text with invalid UTF-8 replaced
    struct buf normalized, normalizing; // the piece being worked on, after one normalizer each
    struct buf prefixed; // the same with a space before it, or with visible spaces
};

struct tokenizer {
    uint8_t *flags; // [UNICODE_END], of unicode.h
    struct bpe bpe;
    struct normalizer normalizers[SPLITS_MAX];
    size_t num_normalizers;
    struct decoding decoding;
    struct added_set raw, normalized; // added tokens looked for before and after normalisation
    struct split splits[SPLITS_MAX];
    size_t num_splits;
    // The post-processor's special tokens before and after the text.
    int32_t prefix[TEMPLATE_IDS_MAX], suffix[TEMPLATE_IDS_MAX];
    size_t num_prefix, num_suffix;

    pthread_mutex_t lock; // guards `idle` and `num_idle`, all that changes after opening
    struct tokenizer_scratch *idle;
    size_t num_idle;
};

// Before each use, for a text of `len` bytes. `interrupt` may be NULL.
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
// tokenizer_decoder.c. `root` is the
// document without the model's big values; `what` names the source in errors. Each fills its part
// of a tokenizer whose parts before it are there.
// Whether words are spelled in the byte-level alphabet: the vocabulary is then written in it.
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
// The flags of a ByteLevel, of which only the pre_tokenizer's do anything.
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
// Where added tokens are written: tokenizer.json with "added_tokens", or tokenizer_config.json with
// "added_tokens_decoder".
struct added_source {
    const json_t *root; // NULL: there is no such file
    const char *what;
};
// tokenizer.json's tokens, and what the other file says of them and adds to them.
MUST_USE enum status tokenizer_load_added_tokens(struct tokenizer *tokenizer,
                                                 const struct added_source *own,
                                                 const struct added_source *config,
                                                 struct err *err);
void tokenizer_normalizer_fini(struct normalizer *normalizer); // all-zero is fine
// ERR_UNSUPPORTED where a text can become too long: *total is how many times as long as before the
// normalizers so far.
MUST_USE enum status normalizer_check_growth(const struct normalizer *normalizer, const char *role,
                                             size_t *total, const char *what, struct err *err);
// Where the normalizers change the text, *text and *len then are in the scratch.
MUST_USE enum status tokenizer_normalize(const struct tokenizer *tokenizer,
                                         struct tokenizer_scratch *scratch, const char **text,
                                         size_t *len, struct err *err);
// `text` with all that a NORMALIZER_REPLACE looks for replaced, or all of one byte after leaving
// room of `before` bytes; `out` is cleared first. ERR_INVALID, before it is built, for a result that
// is longer than scratch->effort allows.
MUST_USE enum status text_replace(const struct normalizer *normalizer,
                                  struct pattern_scratch *scratch, const char *text, size_t len,
                                  struct buf *out, struct err *err);
MUST_USE enum status text_replace_byte(const char *text, size_t len, char byte, const char *content,
                                       size_t content_len, size_t before, struct buf *out,
                                       struct err *err);

// In tokenizer_decode.c. The bytes of a token (*len of them, borrowed) that is there.
const char *decoding_token(const struct tokenizer *tokenizer, int32_t id, bool first, size_t *len);
// Removes what is left to remove from the start of a text, which is at `start` in `out`; true when
// the start is past.
bool decoding_strip(const struct decoding *decoding, uint32_t *num_stripped, struct buf *out,
                    size_t start);

#endif
