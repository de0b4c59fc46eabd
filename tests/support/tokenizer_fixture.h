/* What the tokenizer's tests share: opening, comparing with recorded encodings, and tokenizer.json
 * texts that differ from the bundled model's in a few places. Faults end the test. */
#ifndef SUPPORT_TOKENIZER_FIXTURE_H
#define SUPPORT_TOKENIZER_FIXTURE_H

#include <jansson.h>

#include "text/tokenizer.h"

#define TINY_TOKENIZER "models/tiny-qwen3/tokenizer.json"
#define QWEN3_TOKENIZER "../shared/models/qwen3-tokenizer/tokenizer.json"
#define TINY_VECTORS "tests/reference/data/tokenizer.json"
#define QWEN3_VECTORS "../shared/reference/qwen3-tokenizer.json"

struct tokenizer *fixture_open(const char *path);
// Like fixture_open, but skips the test, saying so, when the file is not there.
struct tokenizer *fixture_open_published(const char *path);
json_t *fixture_json(const char *path); // the caller decrefs it

// A tokenizer.json with the members of `change` put over its own: of "model" each member alone;
// "drop" lists letters whose tokens and merges are left out, "add_merges" pairs whose merges come
// first, as tokens at the end of the vocabulary.
json_t *fixture_changed_file(const char *path, const json_t *change);
json_t *fixture_changed(const json_t *change); // of the bundled model
struct tokenizer *fixture_parse(const json_t *root);

// Encodes the JSON string and compares; `expected` is a list of ids.
void fixture_check_ids(const struct tokenizer *tokenizer, const json_t *string, bool special,
                       const json_t *expected, const char *name);
// Decodes the list of ids at once, one by one in pieces of whole characters, or both; compares.
void fixture_check_whole(const struct tokenizer *tokenizer, const json_t *ids, bool skip_special,
                         const json_t *expected, const char *name);
void fixture_check_streamed(const struct tokenizer *tokenizer, const json_t *ids, bool skip_special,
                            const json_t *expected, const char *name);
void fixture_check_decoded(const struct tokenizer *tokenizer, const json_t *ids, bool skip_special,
                           const json_t *expected, const char *name);

// A small deterministic generator.
static inline uint32_t fixture_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
// Up to `max_pieces` words, characters of many scripts and added tokens; returns the length.
size_t fixture_random_text(uint64_t *state, size_t max_pieces, struct buf *out);

#endif
