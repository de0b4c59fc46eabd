/* What an opened tokenizer consists of; for tokenizer.c, which runs it, and tokenizer_load.c, which
 * builds it. */
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

// One stage of the pre-tokenizer: cuts each piece of the stage before into smaller ones.
struct split {
    bool prefix_space; // instead of cutting: a space is put before a piece that does not start so
    struct pattern pattern;
    enum split_behavior behavior;
    bool invert; // what the pattern matches is text, the rest delimiters
};

enum { SPLITS_MAX = 16, TEMPLATE_IDS_MAX = 16, SCRATCHES_KEPT = 8 };

// What one running encode needs. Kept for the next one: the word cache is worth keeping.
struct tokenizer_scratch {
    struct tokenizer_scratch *next;
    struct bpe_scratch bpe;
    struct pattern_scratch pattern;
    struct unicode_nfc_scratch nfc;
    struct buf repaired; // the text with invalid UTF-8 replaced
    struct buf normalized; // the NFC of the piece being worked on
    struct buf prefixed; // the same with a space before it
};

struct tokenizer {
    uint8_t *flags; // [UNICODE_END], of unicode.h
    struct bpe bpe;
    bool nfc;
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

void tokenizer_scratch_destroy(struct tokenizer_scratch *scratch);

// The stages of loading, in tokenizer_load.c: the model; then the components, in
// tokenizer_components.c. `root` is the document without the model's big values; `what` names the
// source in errors. Each fills its part of a tokenizer whose parts before it are there.
MUST_USE enum status tokenizer_load_normalizer(struct tokenizer *tokenizer, const json_t *root,
                                               const char *what, struct err *err);
MUST_USE enum status tokenizer_load_pre_tokenizer(struct tokenizer *tokenizer, const json_t *root,
                                                  const char *what, struct err *err);
MUST_USE enum status tokenizer_load_post_processor(struct tokenizer *tokenizer, const json_t *root,
                                                   const char *what, struct err *err);
MUST_USE enum status tokenizer_check_decoder(const json_t *root, const char *what, struct err *err);
MUST_USE enum status tokenizer_load_added_tokens(struct tokenizer *tokenizer, const json_t *root,
                                                 const char *what, struct err *err);
// NFC when the tokenizer normalises: *text and *len then are in scratch->normalized.
MUST_USE enum status tokenizer_normalize(const struct tokenizer *tokenizer,
                                         struct tokenizer_scratch *scratch, const char **text,
                                         size_t *len, struct err *err);

#endif
