// Forms of a tokenizer in place of tokenizer.json. The ids are those of the form's own package
// (tests/reference/make_tokenizer_forms.py); files that are wrong are refused with one sentence.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/file.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "support/tokenizer_fixture.h"

#define FORMS "tests/reference/data/tokenizer-forms/"

static struct buf read_form(const char *name) {
    struct buf text = {0};
    char path[200];
    snprintf(path, sizeof path, FORMS "%s", name);
    assert_int_equal(file_read(&text, path, NULL), OK);
    return text;
}

// A folder with the form's file and, where there is one, its tokenizer_config.json.
static void make_folder(struct temp_folder *folder, const char *form, const struct buf *text,
                        const char *config) {
    temp_folder_create(folder);
    temp_folder_write(folder, form, text->data, text->len);
    if (config) temp_folder_write_text(folder, "tokenizer_config.json", config);
}

static enum status open_in(struct tokenizer **out, const struct temp_folder *folder,
                           const char *name, struct err *err) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    return tokenizer_open_file(out, path, err);
}

static void check_cases(const char *form, const char *path) {
    json_t *all = fixture_json(FORMS "cases.json");
    const json_t *cases = json_object_get(all, form);
    struct tokenizer *tokenizer = fixture_open(path);
    assert_true(json_array_size(cases) > 5);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i), *ids = json_object_get(item, "ids");
        const json_t *text = json_object_get(item, "text");
        fixture_check_ids(tokenizer, text, true, ids, form);
        fixture_check_decoded(tokenizer, ids, true, text, form);
    }
    tokenizer_close(tokenizer);
    json_decref(all);
}

static void check_special(const struct tokenizer *tokenizer, const char *text, int32_t want,
                          bool is_special) {
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), false, NULL, &ids, NULL), OK);
    if (ids.len != 1 || ids.ids[0] != want) fail_msg("%s has other ids", text);
    assert_int_equal(tokenizer_token_is_special(tokenizer, want), is_special);
    token_list_fini(&ids);
}

static void test_tekken(void **state) {
    (void)state;
    check_cases("tekken.json", FORMS "tekken.json");
    struct tokenizer *tokenizer = fixture_open(FORMS "tekken.json");
    assert_int_equal(tokenizer_num_tokens(tokenizer), 390);
    check_special(tokenizer, "</s>", 2, true);
    check_special(tokenizer, "[THINK]", 5, false);
    check_special(tokenizer, "<SPECIAL_9>", 9, true); // has no name in the file
    tokenizer_close(tokenizer);
}

// Files up to version 7 may leave their special tokens to a list that all of them share.
static void test_tekken_without_special_tokens(void **state) {
    (void)state;
    struct buf text = read_form("tekken.json");
    char *version = strstr(text.data, "\"v11\""),
         *special = strstr(text.data, "\"special_tokens\"");
    memcpy(version, "\"v3\" ", 5);
    memcpy(special, "\"passed_overly\"", 15);
    special[15] = ' ';
    struct temp_folder folder;
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    make_folder(&folder, "tekken.json", &text, NULL);
    if (open_in(&tokenizer, &folder, "tokenizer.json", &err)) fail_msg("%s", err.message);
    check_special(tokenizer, "[TOOL_CALLS]", 9, true);
    tokenizer_close(tokenizer);
    temp_folder_remove(&folder);
    buf_fini(&text);
}

// tokenizer.json wins; the form is read where its own file is named.
static void test_both(void **state) {
    (void)state;
    struct buf text = read_form("tekken.json");
    struct temp_folder folder;
    struct tokenizer *tokenizer = NULL;
    make_folder(&folder, "tekken.json", &text, NULL);
    assert_int_equal(open_in(&tokenizer, &folder, "tokenizer.json", NULL), OK);
    assert_int_equal(tokenizer_num_tokens(tokenizer), 390);
    tokenizer_close(tokenizer);
    temp_folder_write_text(&folder, "tokenizer.json",
                           "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []},"
                           " \"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\":"
                           " \"ByteLevel\"}}");
    assert_int_equal(open_in(&tokenizer, &folder, "tokenizer.json", NULL), OK);
    assert_int_equal(tokenizer_num_tokens(tokenizer), 1);
    tokenizer_close(tokenizer);
    assert_int_equal(open_in(&tokenizer, &folder, "tekken.json", NULL), OK);
    assert_int_equal(tokenizer_num_tokens(tokenizer), 390);
    tokenizer_close(tokenizer);
    temp_folder_remove(&folder);
    buf_fini(&text);
}

// Tokens that no file of Mistral has, but that JSON allows, are read too.
static void test_tekken_other_tokens(void **state) {
    (void)state;
    static const char *const others[] = {
        "{\"rank\": 97, \"token_bytes\": \"YQ==\", \"token_str\": \"\\u0000\\ud83d\\ude42\"}",
        "{ \"token_str\" :null ,\"token_bytes\":\"YQ==\"\n}",
        "{\"rank\": 97, \"token_bytes\": \"YQ=\\u003d\", \"more\": [{}, \"]\"]}",
        "{\"rank\": null, \"token_bytes\": \"YQ==\"}",
        "{\"rank\": 97, \"token_bytes\": \"YQ=\\u003d\", \"token_str\": \"a\"}",
    };
    static const char plain[] = "{\"rank\": 97, \"token_bytes\": \"YQ==\", \"token_str\": \"a\"}";
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct buf text = read_form("tekken.json"), changed = {0};
        const char *place = strstr(text.data, plain);
        assert_non_null(place);
        assert_int_equal(buf_append(&changed, text.data, (size_t)(place - text.data), NULL), OK);
        assert_int_equal(buf_append_str(&changed, others[i], NULL), OK);
        assert_int_equal(buf_append_str(&changed, place + strlen(plain), NULL), OK);
        struct temp_folder folder;
        struct tokenizer *tokenizer = NULL;
        struct err err = {0};
        make_folder(&folder, "tekken.json", &changed, NULL);
        if (open_in(&tokenizer, &folder, "tekken.json", &err)) fail_msg("%zu: %s", i, err.message);
        assert_int_equal(tokenizer_num_tokens(tokenizer), 390);
        tokenizer_close(tokenizer);
        temp_folder_remove(&folder);
        buf_fini(&changed);
        buf_fini(&text);
    }
}

struct bytes {
    const char *data;
    size_t len;
};
#define BYTES(text)                                                                                \
    { text, sizeof(text) - 1 }

struct fault {
    struct bytes from, to; // the last `from` of the file becomes `to`; NULL: the file is `to`
    const char *says;
};
#define FAULT(from, to, says)                                                                      \
    { BYTES(from), BYTES(to), says }
#define WHOLE(to, says)                                                                            \
    { {NULL, 0}, BYTES(to), says }

static const char *find_last(const struct buf *text, struct bytes part) {
    const char *found = NULL, *at = text->data, *end = text->data + text->len;
    while ((at = memmem(at, (size_t)(end - at), part.data, part.len))) found = at++;
    return found;
}

static void check_fault(const char *form, const struct buf *text, const char *config,
                        const struct fault *fault) {
    struct temp_folder folder;
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    struct buf changed = {0};
    if (fault->from.data) {
        const char *at = find_last(text, fault->from);
        if (!at) fail_msg("%s: nothing to change for: %s", form, fault->says);
        const char *after = at + fault->from.len;
        assert_int_equal(buf_append(&changed, text->data, (size_t)(at - text->data), NULL), OK);
        assert_int_equal(buf_append(&changed, fault->to.data, fault->to.len, NULL), OK);
        size_t left = text->len - (size_t)(after - text->data);
        assert_int_equal(buf_append(&changed, after, left, NULL), OK);
    } else {
        assert_int_equal(buf_append(&changed, fault->to.data, fault->to.len, NULL), OK);
    }
    make_folder(&folder, form, &changed, config);
    enum status status = open_in(&tokenizer, &folder, "tokenizer.json", &err);
    if (status != ERR_FORMAT && status != ERR_UNSUPPORTED) {
        fail_msg("%s is read with: %s", form, fault->says);
    }
    if (!strstr(err.message, fault->says) || !strstr(err.message, form)) {
        fail_msg("%s, want %s", err.message, fault->says);
    }
    temp_folder_remove(&folder);
    buf_fini(&changed);
}

static void check_faults(const char *form, const char *config, const struct fault *faults,
                         size_t count) {
    struct buf text = read_form(form);
    for (size_t i = 0; i < count; i++) check_fault(form, &text, config, &faults[i]);
    buf_fini(&text);
}

static void test_tekken_faults(void **state) {
    (void)state;
    static const struct fault faults[] = {
        WHOLE("", "is not valid JSON"),
        WHOLE("[]", "\"config\" is"),
        WHOLE("{\"config\": {}}", "config has no \"pattern\""),
        FAULT("\"pattern\": \"", "\"pattern\": \"(", "pattern"),
        FAULT("\"pattern\": \"", "\"pattern\": \"\\u0000", "NUL"),
        FAULT("\"default_vocab_size\": 390", "\"default_vocab_size\": 99999999999",
              "default_vocab_size"),
        FAULT("\"default_vocab_size\": 390", "\"default_vocab_size\": 4000000", "at least 3999990"),
        FAULT("\"default_vocab_size\": 390", "\"default_vocab_size\": 10", "all of the 10 ids"),
        FAULT("\"default_vocab_size\": 390", "\"default_vocab_size\": 100",
              "byte 0x5a has no token"),
        FAULT("special_tokens\": 10", "special_tokens\": 999999999", "special_tokens"),
        FAULT("\"vocab\": [", "\"vocab\": 1, \"other\": [", "\"vocab\" is no list"),
        FAULT("{\"rank\": 1, \"token_bytes", "{\"rank\": 2, \"token_bytes",
              "another rank than its place"),
        FAULT("\"token_bytes\": \"AQ==\"", "\"token_bytes\": null", "has no bytes"),
        FAULT("\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"AQ\"", "not in base64"),
        FAULT("\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"AR==\"", "not in base64"),
        FAULT("\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"A*==\"", "not in base64"),
        FAULT("\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"\"", "not in base64"),
        FAULT("\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"AAA=\"", "byte 0x01 has no token"),
        FAULT("\"token_str\": \"a\"", "\"token_str\": \"\xff\"", "not UTF-8 at byte"),
        FAULT("\"token_str\": \"a\"", "\"token_str\": \"\\x\"", "invalid escape"),
        FAULT("\"token_str\": \"a\"", "\"token_str\": \"\\u00g0\"", "invalid escape"),
        FAULT("\"token_str\": \"a\"", "\"token_str\": \"\t\"", "control character"),
        FAULT("\"token_str\": \"a\"", "\"token_str\": nul", "invalid token"),
        FAULT("\"token_str\": \"a\"", "\"token_str\": \"a\",", "string or '}' expected"),
        FAULT("\"token_str\": \"a\"", "\"rank\": 97", "duplicate"),
        FAULT("\"token_str\": \"a\"", "\"token_bytes\": \"YQ==\"", "duplicate"),
        FAULT("\"token_str\": \"a\"", "\"token_str\": \"a\", \"token_str\": \"a\"", "duplicate"),
        // 97 in 64 bits
        FAULT("\"rank\": 97, ", "\"rank\": 18446744073709551713, ", "beyond 64 bits"),
        FAULT("{\"rank\": 97, ", "{\"rank\": 97, \"token_bytes\": \"YQ==\"} {\"rank\": 98, ",
              "\"vocab\" is no list of tokens at byte"),
        FAULT("\"rank\": 97, \"token_bytes", "\"rank\": 97 \"token_bytes", "'}' expected"),
        FAULT("\"rank\": 97, \"token_bytes", "\"rank\": 097, \"token_bytes", "invalid token"),
        FAULT("\"rank\": 97, \"token_bytes", "\"rank\": -1, \"token_bytes", "\"rank\""),
        FAULT("{\"rank\": 97, \"token_bytes", ", {\"rank\": 97, \"token_bytes",
              "\"vocab\" is no list of tokens at byte"),
        FAULT("{\"rank\": 97, \"token_bytes", "7, {\"rank\": 97, \"token_bytes",
              "\"vocab\" is no list of tokens at byte"),
        FAULT("\"special_tokens\": [", "\"special_tokens\": [1, ", "want an object"),
        FAULT("\"token_str\": \"</s>\"", "\"token_str\": \"<s>\"", "appears twice"),
        FAULT("\"token_str\": \"</s>\"", "\"token_str\": \"the\"", "appears twice"),
        FAULT("\"rank\": 2, \"token_str\": \"</s>\"", "\"rank\": 1, \"token_str\": \"</s>\"",
              "the rank of another"),
        FAULT("\"token_str\": \"<s>\"", "\"token_str\": \"<begin>\"", "no special token <s>"),
        FAULT("\"special_tokens\"", "\"none\"", "version \"v11\" has no list"),
    };
    check_faults("tekken.json", NULL, faults, ARRAY_LEN(faults));
}

// A folder with tiktoken.model and its tokenizer_config.json, which the data has by another name.
static char tiktoken_config[1000];

static int read_tiktoken_config(void **state) {
    (void)state;
    struct buf text = read_form("tiktoken_config.json");
    snprintf(tiktoken_config, sizeof tiktoken_config, "%s", text.data);
    buf_fini(&text);
    return 0;
}

static void test_tiktoken(void **state) {
    (void)state;
    struct buf text = read_form("tiktoken.model");
    struct temp_folder folder;
    char path[300];
    make_folder(&folder, "tiktoken.model", &text, tiktoken_config);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder.path);
    check_cases("tiktoken.model", path);
    struct tokenizer *tokenizer = fixture_open(path);
    assert_int_equal(tokenizer_num_tokens(tokenizer), 391);
    check_special(tokenizer, "[EOS]", 381, true);
    check_special(tokenizer, "<think>", 384, false);
    check_special(tokenizer, "<|reserved_token_389|>", 389, false);
    tokenizer_close(tokenizer);
    temp_folder_remove(&folder);
    buf_fini(&text);
}

static void test_tiktoken_faults(void **state) {
    (void)state;
    static const struct fault faults[] = {
        WHOLE("", "byte 0x00 has no token"),
        WHOLE("AA==\n", "line 1 is no token in base64 with its rank"),
        WHOLE("AA== x\n", "line 1 is no token in base64 with its rank"),
        WHOLE("AA== \n", "line 1 is no token in base64 with its rank"),
        WHOLE("AA== 99999999999\n", "line 1 is no token in base64 with its rank"),
        WHOLE("AA== 4000000000\n", "rank 4000000000, want less than 2"),
        WHOLE("AA== -1\n", "line 1 is no token"),
        WHOLE(" 0\n", "not in base64"),
        WHOLE("\x00\xff 0\n", "not in base64"),
        WHOLE("AA== 0\nAQ== 0\n", "two tokens have rank 0"),
        WHOLE("AA== 0\nAQ== 2\n", "no token has rank 1"),
        FAULT("AQ== 1\n", "AQ=A 1\n", "not in base64"),
        FAULT("AQ== 1\n", "AA== 1\n", "byte 0x01 has no token"),
        FAULT(" 379\n", "", "line 380 is no token"),
    };
    check_faults("tiktoken.model", tiktoken_config, faults, ARRAY_LEN(faults));
    static const struct {
        const char *config;
        struct fault fault;
    } configs[] = {
        {NULL, FAULT(" 0\n", " 0\n", "needs \"added_tokens_decoder\"")},
        {"{\"added_tokens_decoder\": []}", FAULT(" 0\n", " 0\n", "needs \"added_tokens_decoder")},
        {"{\"added_tokens_decoder\": {\"99999999\": {\"content\": \"x\"}}}",
         FAULT(" 0\n", " 0\n", "names one with id 99999999")},
        {"{\"added_tokens_decoder\": {\"380\": {\"content\": 1}}}",
         FAULT(" 0\n", " 0\n", "\"content\" is")},
    };
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        check_faults("tiktoken.model", configs[i].config, &configs[i].fault, 1);
    }
}

static void test_sentencepiece(void **state) {
    (void)state;
    check_cases("tokenizer.model", FORMS "tokenizer.model");
    struct tokenizer *tokenizer = fixture_open(FORMS "tokenizer.model");
    assert_int_equal(tokenizer_num_tokens(tokenizer), 380);
    check_special(tokenizer, "[INST]", 3, true);
    check_special(tokenizer, "[CALL]", 4, false);
    tokenizer_close(tokenizer);
}

// tokenizer_config.json says which tokens are around a text.
static void test_sentencepiece_with_a_config(void **state) {
    (void)state;
    struct buf text = read_form("tokenizer.model");
    struct temp_folder folder;
    struct tokenizer *tokenizer = NULL;
    struct token_list ids = {0};
    make_folder(&folder, "tokenizer.model", &text,
                "{\"add_bos_token\": false, \"add_eos_token\": true}");
    assert_int_equal(open_in(&tokenizer, &folder, "tokenizer.json", NULL), OK);
    assert_int_equal(tokenizer_encode(tokenizer, "[CALL]", 6, true, NULL, &ids, NULL), OK);
    assert_int_equal(ids.len, 2);
    assert_int_equal(ids.ids[0], 4);
    assert_int_equal(ids.ids[1], 2);
    token_list_fini(&ids);
    tokenizer_close(tokenizer);
    temp_folder_remove(&folder);
    buf_fini(&text);
}

static void test_sentencepiece_faults(void **state) {
    (void)state;
    static const struct fault faults[] = {
        WHOLE("", "is not a SentencePiece model"),
        WHOLE("AA== 0\n", "is not a SentencePiece model"),
        WHOLE("\x0a\xff\xff\xff\xff\x0f", "is not a SentencePiece model"),
        WHOLE("\x0a\x03\x0a\x05x", "is not a SentencePiece model"),
        WHOLE("\x0a\x03\x0a\x01x", "model of type \"Unigram\""),
        FAULT("\x18\x02 ", "\x18\x01 ", "model of type \"Unigram\" is not supported, want BPE"),
        FAULT("\x18\x02 ", "\x18\x03 ", "model of type \"Word\""),
        FAULT("identity\x12\x00 \x00", "identity\x12\x01z ", "is not a SentencePiece model"),
        FAULT("identity\x12\x00", "nmt_nfkc\x12\x01z", "is not a SentencePiece model"),
        FAULT("identity\x12\x00 \x00", "nmtnfkc\x12\x01z ", "is not a SentencePiece model"),
        FAULT("\x08identity\x12\x00 ", "\x07nfkccfs\x12\x01z ", "\"nfkccfs\" is not supported"),
        FAULT("identity\x12\x00 \x00", "identity\x12\x00 \x01", "remove_extra_whitespaces"),
        FAULT("identity\x12\x00 \x00", "identity\x12\x00(\x00", "remove_extra_whitespaces"),
        FAULT("\x0a\x02"
              "at",
              "\x0a\x02"
              "he",
              "appears twice"),
        FAULT("\x0a\x02"
              "at",
              "\x0a\x02"
              "a\xff",
              "has no UTF-8"),
        FAULT("\x0a\x02"
              "at",
              "\x12\x02"
              "at",
              "has no text"),
        FAULT("[INST]\x15\x00\x00\x00\x00\x18\x03", "[INST]\x15\x00\x00\x00\x00\x18\x05",
              "is of type 5"),
        FAULT("[INST]\x15\x00\x00\x00\x00", "[INST]\x15\x00\x00\xc0\x7f", "has no score"),
        FAULT("<0x41>", "<0x4a>", "piece 70 stands for no byte"),
        FAULT("<0x41>", "<0x42>", "byte 0x41 has no piece"),
    };
    check_faults("tokenizer.model", NULL, faults, ARRAY_LEN(faults));
}

// Cut anywhere, the file is refused or read without its last fields, but never past its end.
static void test_sentencepiece_cut_off(void **state) {
    (void)state;
    struct buf text = read_form("tokenizer.model");
    struct temp_folder folder;
    temp_folder_create(&folder);
    for (size_t len = 0; len < text.len; len += len < 200 ? 1 : 97) {
        struct tokenizer *tokenizer = NULL;
        struct err err = {0};
        temp_folder_write(&folder, "tokenizer.model", text.data, len);
        assert_int_not_equal(open_in(&tokenizer, &folder, "tokenizer.json", &err), OK);
        assert_non_null(strstr(err.message, "tokenizer.model"));
    }
    temp_folder_remove(&folder);
    buf_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tekken),
        cmocka_unit_test(test_tekken_without_special_tokens),
        cmocka_unit_test(test_both),
        cmocka_unit_test(test_tekken_other_tokens),
        cmocka_unit_test(test_tekken_faults),
        cmocka_unit_test(test_tiktoken),
        cmocka_unit_test(test_tiktoken_faults),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_sentencepiece_with_a_config),
        cmocka_unit_test(test_sentencepiece_faults),
        cmocka_unit_test(test_sentencepiece_cut_off),
    };
    return cmocka_run_group_tests(tests, read_tiktoken_config, NULL);
}
