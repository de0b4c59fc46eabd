// A tokenizer.json that is broken or needs something unsupported gives one sentence that names the
// file and the fault. Each case is the same small valid file with one place changed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "text/tokenizer/tokenizer.h"

#define SPLIT                                                                                      \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a-c]+\"}, \"behavior\": \"Isolated\"}"
#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"

static const char valid[] =
    "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 6, \"content\": \"<s>\", \"special\": true,"
    " \"normalized\": false}, {\"id\": 7, \"content\": \"<t>\", \"normalized\": false}],"
    " \"normalizer\": {\"type\": \"NFC\"},"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT ", " BYTE_LEVEL "]},"
    " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
    "{\"id\":"
    " \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [6]}}},"
    " \"decoder\": {\"type\": \"ByteLevel\"},"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2,"
    " \"ab\": 3, \"abc\": 4, \"\\u00e9\": 5}, \"merges\": [\"a b\", [\"ab\", \"c\"]]}}";

struct fault {
    const char *from, *to; // the place that is changed
    const char *says; // part of the sentence
};

static const struct fault faults[] = {
    // JSON
    {"{\"version\"", "[\"version\"", "not valid JSON"},
    {"\"1.0\"", "\"2.0\"", "version \"2.0\""},
    {"\"1.0\"", "1.0", "\"version\" is a real number"},
    {"\"1.0\", ", "\"1.0\", \"version\": \"1.0\", ", "duplicate"},
    {"\"<s>\", \"special\"", "\"\xff\", \"special\"", "not UTF-8"},
    {"\"<s>\", \"special\"", "\"\\u0000\", \"special\"", "\\u0000 in a string is not supported"},
    {"{\"version\"", "\xef\xbb\xbf{\"version\"", "starts with a byte order mark"},
    {"{\"version\"", "version https://git-lfs.github.com/spec/v1\n{\"version\"",
     "is a Git LFS pointer, not the file itself"},
    {"]]}}", "]]}", "not valid JSON"},
    {"]]}}", "]]}} x", "not valid JSON"},
    // version, truncation, padding
    {"\"1.0\", ", "\"1.0\", \"truncation\": 8, ", "\"truncation\" is an integer"},
    {"\"1.0\", ", "\"1.0\", \"padding\": true, ", "\"padding\" is a boolean"},
    // the model
    {"\"model\": {", "\"models\": {", "\"model\" is missing"},
    {"\"BPE\"", "\"WordPiece\"", "WordPiece"},
    {"\"type\": \"BPE\", \"dropout\": null, \"vocab\": {", "\"vocab\": [[\"a\", -1.5]], \"old\": {",
     "model of type \"Unigram\" is not supported"},
    {"\"type\": \"BPE\", \"dropout\": null, ", "\"x\": 1, \"vocab\": {}}, \"old\": {",
     "model of type \"WordPiece or WordLevel\" is not supported"},
    {"\"dropout\": null", "\"dropout\": 0.1", "\"dropout\" is not supported"},
    {"\"dropout\": null", "\"byte_fallback\": true", "\"byte_fallback\""},
    {"\"dropout\": null", "\"continuing_subword_prefix\": \"##\"", "continuing_subword_prefix"},
    {"\"dropout\": null", "\"end_of_word_suffix\": \"</w>\"", "end_of_word_suffix"},
    {"\"dropout\": null", "\"ignore_merges\": 1", "\"ignore_merges\" is an integer"},
    {"\"dropout\": null", "\"dropout\": -0.1", "\"dropout\" is not supported"},
    {"\"dropout\": null", "\"dropout\": \"0\"", "\"dropout\" is a string"},
    {"\"dropout\": null", "\"dropout\": false", "\"dropout\" is a boolean"},
    {"\"dropout\": null", "\"byte_fallback\": 0", "\"byte_fallback\" is an integer"},
    {"\"dropout\": null", "\"continuing_subword_prefix\": 0",
     "\"continuing_subword_prefix\" is an integer"},
    {"\"dropout\": null", "\"end_of_word_suffix\": []", "\"end_of_word_suffix\" is a list"},
    {"\"dropout\": null", "\"unk_token\": \"nope\"", "unk_token \"nope\""},
    {"\"dropout\": null", "\"vocab\": {}", "duplicate"},
    {"\"vocab\": {", "\"vocabulary\": {", "no object \"vocab\""},
    {"\"merges\": [", "\"merge\": [", "no list \"merges\""},
    {"\"b\": 1", "\"b\": 0", "token \"b\" or its id 0 appears twice"},
    {"\"b\": 1", "\"a\": 1", "token \"a\" or its id 1 appears twice"},
    {"\"b\": 1", "\"b\": -1", "model.vocab: want a whole number"},
    {"\"b\": 1", "\"b\": 01", "model.vocab: want a whole number"},
    {"\"b\": 1", "\"b\": 1.5", "model.vocab: want a comma"},
    {"\"b\": 1", "\"b\": \"1\"", "model.vocab: want a whole number"},
    {"\"b\": 1", "\"b\": 99999999999999999999", "id 9999999999"},
    {"\"b\": 1", "\"b\": 4194304", "id 4194304"},
    {"\"b\": 1", "\"b\" 1", "want a colon"},
    {"\"b\": 1", "b: 1", "model.vocab: want a string"},
    {"\"b\": 1", "\"\\q\": 1", "a JSON escape"},
    {"\"b\": 1", "\"\\ud800\": 1", "surrogate"},
    {"\"b\": 1", "\"\\udc00\": 1", "surrogate"},
    {"\"b\": 1", "\"\\u00\": 1", "four hexadecimal digits"},
    {"\"b\": 1", "\"\n\": 1", "the end of a string"},
    {"5}", "5,}", "model.vocab: want a string"},
    {"\"a b\"", "\"a z\"", "merge 0 names \"z\""},
    {"\"a b\"", "\"b a\"", "merge 0 names \"ba\""},
    {"\"a b\"", "\"ab\"", "two tokens with one space"},
    {"\"a b\"", "\"a b c\"", "two tokens with one space"},
    {"\"a b\"", "\" b\"", "merge 0 names \"\""},
    {"\"a b\"", "7", "model.merges: want a string"},
    {"[\"ab\", \"c\"]", "[\"ab\", \"a\"]", "merge 1 names \"aba\""},
    {"[\"ab\", \"c\"]", "[\"ab\"]", "model.merges: want a comma"},
    {"[\"ab\", \"c\"]", "[\"ab\", \"c\", \"c\"]", "the end of a pair"},
    // added tokens
    {"\"added_tokens\": [", "\"added_tokens\": 3, \"x\": [", "\"added_tokens\" is an integer"},
    {"{\"id\": 6,", "3, {\"id\": 6,", "an added token is an integer"},
    {"\"id\": 6,", "\"id\": 5,", "has id 5, but Hugging Face tokenizers gives it 6"},
    {"\"id\": 7,", "\"id\": 9,", "has id 9, but Hugging Face tokenizers gives it 7"},
    {"\"id\": 7,", "\"id\": -7,", "\"id\" is -7"},
    {"\"id\": 7,", "", "no content or no id"},
    {"\"<t>\"", "\"\"", "no content or no id"},
    {"\"<t>\"", "\"<s>\"", "\"<s>\" appears twice"},
    {"\"<t>\"", "\"ab\"", "has id 7, but Hugging Face tokenizers gives it 3"},
    {"\"<t>\"", "7", "\"content\" is an integer"},
    {"\"special\": true", "\"special\": 1", "\"special\" is an integer"},
    {"\"special\": true", "\"speciall\": true", "the key \"speciall\""},
    // normalizer
    {"\"NFC\"", "\"NFKD\"", "normalizer of type \"NFKD\""},
    {"{\"type\": \"NFC\"}", "\"NFC\"", "normalizer is a string"},
    {"{\"type\": \"NFC\"}", "{}", "normalizer has no \"type\""},
    {"{\"type\": \"NFC\"}", "{\"type\": \"Sequence\"}", "\"normalizers\" is missing"},
    {"{\"type\": \"NFC\"}",
     "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}]}",
     "normalizer of type \"Lowercase\""},
    // pre_tokenizer
    {SPLIT ", ", "{\"type\": \"Metaspace\"}, ", "pre_tokenizer of type \"Metaspace\""},
    {", " BYTE_LEVEL, "", "decoder is ByteLevel, but the last pre_tokenizer is not"},
    {SPLIT ", ", BYTE_LEVEL ", ", "ByteLevel before other components"},
    {"\"pre_tokenizer\": {", "\"pre\": {", "decoder is ByteLevel, but the last pre_tokenizer is"},
    {"{\"Regex\": \"[a-c]+\"}", "{\"Glob\": \"*\"}", "neither {\"Regex\""},
    {"{\"Regex\": \"[a-c]+\"}", "{\"String\": \"\"}", "empty pattern"},
    {"{\"Regex\": \"[a-c]+\"}", "{\"Regex\": \"(\"}", "is not valid"},
    {"{\"Regex\": \"[a-c]+\"}", "{\"Regex\": \"[a\"}", "without its"},
    {"{\"Regex\": \"[a-c]+\"}", "{\"Regex\": \"\\\\p{Nope}\"}",
     "\"p{Nope}\", which is not supported"},
    {"{\"Regex\": \"[a-c]+\"}", "{\"Regex\": \"[[:alpha:]]\"}", "not supported"},
    {"\"Isolated\"", "\"Merged\"", "behavior \"Merged\""},
    {", \"behavior\": \"Isolated\"", "", "behavior \"(missing)\""},
    {"\"add_prefix_space\": false", "\"add_prefix_space\": 0", "\"add_prefix_space\" is"},
    {"\"add_prefix_space\": false", "\"trim_offsets\": \"\"", "\"trim_offsets\" is a string"},
    {"\"use_regex\": false", "\"use_regex\": []", "\"use_regex\" is a list"},
    // post_processor
    {"\"post_processor\": {",
     "\"post_processor\": {\"type\": \"ByteLevel\", \"trim_offsets\": 1},"
     " \"unused\": {",
     "\"trim_offsets\" is an integer"},
    {"\"TemplateProcessing\"", "\"BertProcessing\"", "post_processor of type \"BertProcessing\""},
    {"\"ids\": [6]", "\"ids\": [8]", "an id without a token"},
    {"\"ids\": [6]", "\"ids\": [\"x\"]", "an id without a token"},
    {"\"ids\": [6]", "\"ids\": 6", "has no ids"},
    {"{\"ids\": [6]}", "6", "has no ids"},
    {"{\"Sequence\": {\"id\": \"A\"}}", "{\"Sequence\": {\"id\": \"B\"}}", "around one text"},
    {", {\"Sequence\": {\"id\": \"A\"}}", "", "\"single\" has no sequence"},
    // decoder
    {"\"decoder\": {\"type\": \"ByteLevel\"",
     "\"decoder\": {\"type\": \"ByteLevel\", \"use_regex\": 1", "\"use_regex\" is an integer"},
    {"\"decoder\": {\"type\": \"ByteLevel\"}", "\"decoder\": {\"type\": \"Metaspace\"}",
     "decoder of type \"Metaspace\""},
    {"\"decoder\": {\"type\": \"ByteLevel\"}", "\"decoder\": null", "decoder is missing"},
};

#define SHOW "{\"type\": \"Replace\", \"pattern\": {\"String\": \"_\"}, \"content\": \" \"}"
#define STRIP "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"
#define METASPACE                                                                                  \
    "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"always\"}"

// As converted from SentencePiece.
static const char valid_pieces[] =
    "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 0, \"content\": \"<u>\"}],"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\","
    "  \"prepend\": \"_\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"},"
    "  \"content\": \"_\"}]}, \"pre_tokenizer\": null, \"decoder\": {\"type\": \"Sequence\","
    "  \"decoders\": [" SHOW ", {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, " STRIP "]},"
    " \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"unk_token\": \"<u>\","
    "  \"vocab\": {\"<u>\": 0, \"<0x41>\": 1, \"_\": 2, \"b\": 3, \"_b\": 4},"
    "  \"merges\": [\"_ b\"]}}";

static const struct fault piece_faults[] = {
    {"\"byte_fallback\": true", "\"byte_fallback\": 1", "\"byte_fallback\" is an integer"},
    {"\"unk_token\": \"<u>\"", "\"unk_token\": \"<v>\"", "unk_token \"<v>\""},
    // normalizer
    {"\"prepend\": \"_\"", "\"x\": \"_\"", "Prepend has no \"prepend\""},
    {"\"prepend\": \"_\"", "\"prepend\": 1", "\"prepend\" is an integer"},
    {"\"Prepend\"", "\"Nmt\"", "normalizer of type \"Nmt\""},
    {",  \"content\": \"_\"", "", "Replace has no content"},
    {"{\"String\": \" \"}", "{\"String\": \"\"}", "normalizer: an empty pattern"},
    {"{\"String\": \" \"}", "{\"Regex\": \"(\"}", "is not valid"},
    {"{\"String\": \" \"}", "\" \"", "neither {\"Regex\""},
    {"\"prepend\": \"_\"",
     "\"prepend\": \"0123456789012345678901234567890123456789012345678901234567890123456789"
     "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
     "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
     "0123456789\"",
     "normalizer can make a text more than 256 times as long"},
    // pre_tokenizer
    {"\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"Metaspace\"}",
     "replacement is not one character"},
    {"\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"__\"}",
     "replacement is not one character"},
    {"\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"prepend_scheme\": \"last\"}",
     "prepend_scheme \"last\" is not known"},
    {"\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"prepend_scheme\": \"first\","
     " \"add_prefix_space\": false}",
     "add_prefix_space is false, but prepend_scheme is \"first\""},
    {"\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" METASPACE ", " METASPACE
     "]}",
     "two Metaspaces"},
    {"\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}",
     "pre_tokenizer of type \"BertPreTokenizer\""},
    {"\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}",
     "\"byte_fallback\" with ByteLevel"},
    // decoder
    {SHOW ", ", "{\"type\": \"WordPiece\"}, ", "decoder of type \"WordPiece\""},
    {SHOW ", ", "{\"type\": \"Fuse\"}, ", "decoder: ByteFallback in this place"},
    {"{\"type\": \"Fuse\"}, ", "", "decoder: Strip in this place"},
    {"{\"type\": \"Fuse\"}, ", "{\"type\": \"Fuse\"}, {\"type\": \"Fuse\"}, ",
     "decoder: Fuse in this place"},
    {"{\"type\": \"ByteFallback\"}", METASPACE ", " SHOW, "decoder: Replace in this place"},
    {"\"start\": 1", "\"x\": 1", "Strip wants one character"},
    {"\"start\": 1", "\"start\": -1", "\"start\" is -1"},
    {"\"stop\": 0", "\"stop\": 1", "Strip at the end of a text"},
    {"\"content\": \" \", \"start\"", "\"content\": \"  \", \"start\"",
     "Strip wants one character"},
    {"\"decoder\": {", "\"decode\": {", "decoder is missing, want Replace, ByteFallback and Fuse"},
};

// The valid text with the first `from` replaced.
static char *changed(const char *valid_text, const struct fault *fault) {
    const char *at = strstr(valid_text, fault->from);
    assert_non_null(at);
    struct buf text = {0};
    assert_int_equal(buf_append(&text, valid_text, (size_t)(at - valid_text), NULL), OK);
    assert_int_equal(buf_append_str(&text, fault->to, NULL), OK);
    assert_int_equal(buf_append_str(&text, at + strlen(fault->from), NULL), OK);
    return text.data;
}

static void check_ids(const struct tokenizer *tokenizer) {
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, "abc<t>a", 7, true, NULL, &ids, NULL), OK);
    const int32_t expected[] = {6, 4, 7, 0};
    assert_int_equal(ids.len, 4);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    token_list_fini(&ids);
}

static void test_the_valid_file_is_read(void **state) {
    (void)state;
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_parse(&tokenizer, valid, strlen(valid), "valid", &err)) {
        fail_msg("%s", err.message);
    }
    check_ids(tokenizer);
    tokenizer_close(tokenizer);
}

// Options that are off are accepted, and so are "truncation" and "padding", which change nothing.
static void test_harmless_options(void **state) {
    (void)state;
    static const struct fault changes[] = {
        {"\"1.0\", ",
         "\"1.0\", \"truncation\": null, \"padding\": {\"strategy\": \"BatchLongest\"}, ", ""},
        {"\"1.0\", ",
         "\"1.0\", \"truncation\": {\"direction\": \"Right\", \"max_length\": 1, \"stride\": 0,"
         " \"strategy\": \"LongestFirst\"}, ",
         ""},
        {"\"dropout\": null",
         "\"dropout\": 0.0, \"byte_fallback\": false, \"continuing_subword_prefix\": \"\","
         " \"end_of_word_suffix\": null",
         ""},
        {"\"use_regex\": false", "\"use_regex\": false, \"trim_offsets\": true", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        char *text = changed(valid, &changes[i]);
        struct err err = {0};
        struct tokenizer *tokenizer = NULL;
        if (tokenizer_parse(&tokenizer, text, strlen(text), "t.json", &err)) {
            fail_msg("%s", err.message);
        }
        check_ids(tokenizer);
        tokenizer_close(tokenizer);
        free(text);
    }
}

static void check_faults(const char *valid_text, const struct fault *list, size_t num_faults) {
    for (size_t i = 0; i < num_faults; i++) {
        char *text = changed(valid_text, &list[i]);
        struct err err = {0};
        struct tokenizer *tokenizer = NULL;
        enum status status = tokenizer_parse(&tokenizer, text, strlen(text), "t.json", &err);
        if (status != ERR_FORMAT && status != ERR_UNSUPPORTED) {
            fail_msg("\"%s\" for \"%s\" gives %s", list[i].to, list[i].from, status_name(status));
        }
        assert_null(tokenizer);
        if (!strstr(err.message, "t.json") || !strstr(err.message, list[i].says)) {
            fail_msg("\"%s\" for \"%s\" says: %s", list[i].to, list[i].from, err.message);
        }
        free(text);
    }
}

static void test_faults(void **state) {
    (void)state;
    check_faults(valid, faults, ARRAY_LEN(faults));
}

static void test_faults_of_one_from_sentencepiece(void **state) {
    (void)state;
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_parse(&tokenizer, valid_pieces, strlen(valid_pieces), "valid", &err)) {
        fail_msg("%s", err.message);
    }
    tokenizer_close(tokenizer);
    check_faults(valid_pieces, piece_faults, ARRAY_LEN(piece_faults));
}

// Every shorter beginning of the file is refused, wherever it is cut.
static void test_truncated(void **state) {
    (void)state;
    for (size_t len = 0; len < strlen(valid); len++) {
        struct err err = {0};
        struct tokenizer *tokenizer = NULL;
        assert_int_equal(tokenizer_parse(&tokenizer, valid, len, "t.json", &err), ERR_FORMAT);
        assert_null(tokenizer);
        assert_non_null(strstr(err.message, "t.json"));
    }
}

static void test_no_file(void **state) {
    (void)state;
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(tokenizer_open_file(&tokenizer, "no/such/tokenizer.json", &err), ERR_IO);
    assert_null(tokenizer);
    assert_non_null(strstr(err.message, "no/such/tokenizer.json"));
}

// A folder with another form of a tokenizer only: the message says how to make tokenizer.json.
static void check_other_form(const char *name) {
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, name, "x");
    char path[300];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder.path);
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(tokenizer_open_file(&tokenizer, path, &err), ERR_UNSUPPORTED);
    assert_null(tokenizer);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, name));
    assert_non_null(strstr(err.message, "save_pretrained"));
    temp_folder_write_text(&folder, "tokenizer.json", valid_pieces);
    assert_int_equal(tokenizer_open_file(&tokenizer, path, &err), OK);
    tokenizer_close(tokenizer);
    temp_folder_remove(&folder);
}

static void test_other_forms_of_a_tokenizer(void **state) {
    (void)state;
    check_other_form("vocab.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_valid_file_is_read),
        cmocka_unit_test(test_harmless_options),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_faults_of_one_from_sentencepiece),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_other_forms_of_a_tokenizer),
    };
    return cmocka_run_group_tests_name("tokenizer_malformed", tests, NULL, NULL);
}
