/* Shared by the tokenizer's tests: opening, comparing with recorded encodings, and tokenizer.json
 * texts that differ from the bundled model's in a few places. Faults fail the test. */
#ifndef SUPPORT_TOKENIZER_FIXTURE_H
#define SUPPORT_TOKENIZER_FIXTURE_H

#include <jansson.h>

#include "text/tokenizer/tokenizer.h"

#define TINY_TOKENIZER "models/tiny-qwen3/tokenizer.json"
#define QWEN3_TOKENIZER "../shared/models/qwen3-tokenizer/tokenizer.json"
#define TINY_VECTORS "tests/reference/data/tokenizer.json"
#define QWEN3_VECTORS "../shared/reference/qwen3-tokenizer.json"

struct tokenizer *fixture_open(const char *path);
// Like fixture_open, but if the file is missing, says so and skips the test.
struct tokenizer *fixture_open_published(const char *path);
json_t *fixture_json(const char *path); // the caller decrefs it

// A tokenizer.json in which the members of `change` replace its own; of "model", each member
// replaces one. "drop" lists letters: tokens and merges that contain them are removed. "add_merges"
// lists pairs: their merges come first, and their tokens go at the end of the vocabulary.
json_t *fixture_changed_file(const char *path, const json_t *change);
json_t *fixture_changed(const json_t *change); // of the bundled model
struct tokenizer *fixture_parse(const json_t *root);

// Encodes the JSON string and compares; `expected` is a list of ids.
void fixture_check_ids(const struct tokenizer *tokenizer, const json_t *string, bool special,
                       const json_t *expected, const char *name);
// Decode a list of ids and compare: at once, one by one in pieces of whole characters, or both.
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
// Fills `out` with up to `max_pieces` words, characters of many scripts and added tokens. Returns
// the length.
size_t fixture_random_text(uint64_t *state, size_t max_pieces, struct buf *out);

#endif
