// Every allocation of the tokenizer failing in turn: ERR_NOMEM, nothing leaked. A small
// tokenizer.json with every component is swept exhaustively, the bundled model's in growing steps.
#include <string.h>

#include "support/alloc_hook.h"
#include "support/cmocka_all.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

static const char small[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,"
    " \"added_tokens\": [{\"id\": 9, \"content\": \"<|end|>\", \"single_word\": false,"
    "   \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true},"
    "  {\"id\": 10, \"content\": \"<tool>\", \"single_word\": false, \"lstrip\": false,"
    "   \"rstrip\": false, \"normalized\": false, \"special\": false}],"
    " \"normalizer\": {\"type\": \"NFC\"},"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
    "  {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{L}+|\\\\s+|[^\\\\s\\\\p{L}]+\"},"
    "   \"behavior\": \"Isolated\", \"invert\": false},"
    "  {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false,"
    "   \"use_regex\": false}]},"
    " \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false,"
    "  \"trim_offsets\": false, \"use_regex\": false},"
    " \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false,"
    "  \"use_regex\": false},"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,"
    "  \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false,"
    "  \"byte_fallback\": false, \"ignore_merges\": false,"
    "  \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"\\u0120\": 3, \"ab\": 4, \"abc\": 5,"
    "   \"\\u00c3\": 6, \"\\u00a9\": 7, \"\\u00c3\\u00a9\": 8},"
    "  \"merges\": [\"a b\", [\"ab\", \"c\"], \"\\u00c3 \\u00a9\"]}}";

// As converted from SentencePiece, with every kind of component.
static const char pieces[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true,"
    "   \"normalized\": true}, {\"id\": 13, \"content\": \"<|end|>\", \"normalized\": false}],"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"},"
    "  {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"q+\"}, \"content\": \"ab\"},"
    "  {\"type\": \"Prepend\", \"prepend\": \"a\"}]},"
    " \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\","
    "  \"prepend_scheme\": \"always\", \"split\": false},"
    " \"decoder\": {\"type\": \"Sequence\", \"decoders\": ["
    "  {\"type\": \"Replace\", \"pattern\": {\"String\": \"c\"}, \"content\": \"cc\"},"
    "  {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"always\"},"
    "  {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},"
    "  {\"type\": \"Strip\", \"content\": \"a\", \"start\": 1, \"stop\": 0}]},"
    " \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true,"
    "  \"byte_fallback\": true, \"ignore_merges\": true,"
    "  \"vocab\": {\"<unk>\": 0, \"a\": 1, \"b\": 2, \"c\": 3, \"\u2581\": 4, \"ab\": 5,"
    "   \"\u2581a\": 6, \"abc\": 7, \"<0xC3>\": 8, \"<0xA9>\": 9, \"<0x3C>\": 10,"
    "   \"<0x7C>\": 11, \"<0x7E>\": 12},"
    "  \"merges\": [\"a b\", [\"ab\", \"c\"], \"\u2581 a\"]}}";

// Text that takes every path: words, an added token, a composed character.
static enum status use_tokenizer(const struct tokenizer *tokenizer, struct err *err) {
    static const char text[] = "abc ab<|end|>c a<tool>abcabcabc e\xcc\x81 abc abc";
    struct token_list ids = {0};
    struct buf decoded = {0}, streamed = {0};
    struct detokenizer detokenizer = {0};
    enum status status = tokenizer_encode(tokenizer, text, sizeof text - 1, true, NULL, &ids, err);
    if (!status) status = tokenizer_decode(tokenizer, ids.ids, ids.len, false, &decoded, err);
    for (size_t i = 0; i < ids.len && !status; i++) {
        status = detokenizer_push(&detokenizer, tokenizer, ids.ids[i], false, &streamed, err);
    }
    if (!status) status = detokenizer_flush(&detokenizer, &streamed, err);
    if (!status && strcmp(decoded.data, streamed.data) != 0) {
        status = err_set(err, ERR_INVALID, "streamed \"%s\", decoded \"%s\"", streamed.data,
                         decoded.data);
    }
    buf_fini(&decoded);
    buf_fini(&streamed);
    token_list_fini(&ids);
    return status;
}

static enum status parse_and_use(void *context, struct err *err) {
    (void)context;
    struct tokenizer *tokenizer = NULL;
    enum status status = tokenizer_parse(&tokenizer, small, sizeof small - 1, "small", err);
    if (!status) status = use_tokenizer(tokenizer, err);
    tokenizer_close(tokenizer);
    return status;
}

static enum status parse_and_use_pieces(void *context, struct err *err) {
    (void)context;
    struct tokenizer *tokenizer = NULL;
    enum status status = tokenizer_parse(&tokenizer, pieces, sizeof pieces - 1, "pieces", err);
    if (!status) status = use_tokenizer(tokenizer, err);
    tokenizer_close(tokenizer);
    return status;
}

static enum status open_and_use(void *context, struct err *err) {
    struct tokenizer *tokenizer = NULL;
    enum status status = tokenizer_open_file(&tokenizer, context, err);
    if (!status) status = use_tokenizer(tokenizer, err);
    tokenizer_close(tokenizer);
    return status;
}

static enum status use_only(void *context, struct err *err) {
    return use_tokenizer(context, err);
}

static void test_every_allocation_of_a_small_tokenizer(void **state) {
    (void)state;
    // qsort of a long list of ranges asks for memory, but also sorts without it (glibc 2.36).
    struct alloc_sweep sweep = {.work = parse_and_use, .may_survive = true};
    assert_true(alloc_sweep_run(&sweep) > 20);
}

static void test_every_allocation_of_one_from_sentencepiece(void **state) {
    (void)state;
    struct alloc_sweep sweep = {.work = parse_and_use_pieces};
    assert_true(alloc_sweep_run(&sweep) > 20);
}

static void test_bundled_tokenizer(void **state) {
    (void)state;
    char path[] = "models/tiny-qwen3/tokenizer.json";
    struct alloc_sweep sweep = {.work = open_and_use, .context = path, .stride = 8};
    assert_true(alloc_sweep_run(&sweep) > 20);
}

static void test_use_of_an_open_tokenizer(void **state) {
    (void)state;
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    if (tokenizer_parse(&tokenizer, small, sizeof small - 1, "small", &err)) {
        fail_msg("%s", err.message);
    }
    struct alloc_sweep sweep = {.work = use_only, .context = tokenizer};
    assert_true(alloc_sweep_run(&sweep) > 2);
    tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_of_a_small_tokenizer),
        cmocka_unit_test(test_every_allocation_of_one_from_sentencepiece),
        cmocka_unit_test(test_bundled_tokenizer),
        cmocka_unit_test(test_use_of_an_open_tokenizer),
    };
    return cmocka_run_group_tests_name("text_faults", tests, NULL, NULL);
}
