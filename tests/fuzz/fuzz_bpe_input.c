/* Arbitrary bytes to encode, with the bundled model's tokenizer, with a small one whose pattern is
 * run as a regular expression and whose added tokens have every option, and with two as converted
 * from SentencePiece; the first byte chooses. The decoding of the encoding is valid UTF-8 and, for
 * the bundled tokenizer, encodes and decodes to itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char small[] =
    "{\"added_tokens\": ["
    "{\"id\": 8, \"content\": \"<s>\", \"lstrip\": true, \"rstrip\": true, \"normalized\": false},"
    "{\"id\": 9, \"content\": \"  \", \"rstrip\": true, \"normalized\": false},"
    "{\"id\": 4, \"content\": \"aba\", \"single_word\": true, \"normalized\": false},"
    "{\"id\": 10, \"content\": \"\\u212b\", \"lstrip\": true, \"normalized\": true}],"
    " \"normalizer\": {\"type\": \"NFC\"},"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\s*|\\\\w{1,40}\\\\b\"}, \"behavior\":"
    " \"MergedWithNext\"},"
    "{\"type\": \"Split\", \"pattern\": {\"String\": \"b\"}, \"behavior\": \"Contiguous\"},"
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"use_regex\": true}]},"
    " \"decoder\": {\"type\": \"ByteLevel\"},"
    " \"model\": {\"unk_token\": \"?\", \"fuse_unk\": true, \"ignore_merges\": true, \"vocab\":"
    " {\"a\": 0, \"b\": 1, \"ab\": 2, \"ba\": 3, \"aba\": 4, \"abab\": 5, \"?\": 6,"
    " \"\\u0120a\": 7}, \"merges\": [\"b a\", \"a b\", \"a ba\", \"ab ab\"]}}";

enum { SMALL, BUNDLED, LLAMA2, METASPACE, NUM_KINDS };

static struct tokenizer *open_once(unsigned kind) {
    static const char *const paths[NUM_KINDS] = {
        [BUNDLED] = "models/tiny-qwen3/tokenizer.json",
        [LLAMA2] = "tests/reference/data/sentencepiece/llama2.json",
        [METASPACE] = "tests/reference/data/sentencepiece/metaspace_first.json"};
    static struct tokenizer *opened[NUM_KINDS]; // never closed: libFuzzer ends by exit
    if (!opened[kind]) {
        struct err err = {0};
        enum status status =
            paths[kind] ? tokenizer_open_file(&opened[kind], paths[kind], &err)
                        : tokenizer_parse(&opened[kind], small, strlen(small), "small", &err);
        CHECK(status == OK, "%s", err.message);
    }
    return opened[kind];
}

// Encodes, decodes at once and piece by piece, compares.
static void round_trip(const struct tokenizer *tokenizer, const char *text, size_t len,
                       struct buf *out) {
    struct err err = {0};
    struct token_list ids = {0};
    struct buf pieces = {0};
    struct detokenizer detokenizer = {0};
    enum status status = tokenizer_encode(tokenizer, text, len, false, NULL, &ids, &err);
    if (!status) status = tokenizer_decode(tokenizer, ids.ids, ids.len, false, out, &err);
    for (size_t i = 0; i < ids.len && !status; i++) {
        size_t before = pieces.len;
        status = detokenizer_push(&detokenizer, tokenizer, ids.ids[i], false, &pieces, &err);
        size_t piece = pieces.len - before;
        CHECK(!piece || utf8_valid_prefix(pieces.data + before, piece) == piece, "token %zu", i);
    }
    if (!status) status = detokenizer_flush(&detokenizer, &pieces, &err);
    CHECK(status == OK, "%s", err.message);
    CHECK(pieces.len == out->len, "%zu %zu", pieces.len, out->len);
    CHECK(!out->len || memcmp(pieces.data, out->data, out->len) == 0, "%s", "streaming differs");
    token_list_fini(&ids);
    buf_fini(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    unsigned kind = data[0] % NUM_KINDS;
    const struct tokenizer *tokenizer = open_once(kind);
    struct buf once = {0}, twice = {0};
    round_trip(tokenizer, (const char *)data + 1, size - 1, &once);
    if (kind == BUNDLED) {
        round_trip(tokenizer, once.len ? once.data : "", once.len, &twice);
        CHECK(once.len == twice.len, "%zu %zu", once.len, twice.len);
        CHECK(!once.len || memcmp(once.data, twice.data, once.len) == 0, "%s", "not stable");
    }
    buf_fini(&once);
    buf_fini(&twice);
    return 0;
}
