// Tokenizers converted from SentencePiece models, against the results of Hugging Face tokenizers
// for the same texts, and for lists of ids that no text encodes to.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/tokenizer_fixture.h"
#include "text/tokenizer/detokenizer.h"

#define FOLDER "tests/reference/data/sentencepiece/"

enum { FIRST_BYTE = 3 }; // the id of <0x00>

struct form {
    const json_t *recorded, *texts, *lists;
    const char *name;
    struct tokenizer *tokenizer;
};

static const json_t *recorded(const struct form *form, const char *key, size_t i) {
    return json_array_get(json_object_get(form->recorded, key), i);
}

static void check_texts(const struct form *form) {
    size_t num_texts = json_array_size(json_object_get(form->recorded, "ids"));
    assert_true(num_texts > 60);
    for (size_t i = 0; i < num_texts; i++) {
        const json_t *text = json_array_get(form->texts, i);
        const json_t *ids = recorded(form, "ids", i);
        fixture_check_ids(form->tokenizer, text, true, ids, form->name);
        json_t *plain = json_copy((json_t *)(uintptr_t)ids);
        json_array_remove(plain, 0); // <s>
        fixture_check_ids(form->tokenizer, text, false, plain, form->name);
        json_decref(plain);
        const json_t *decoded = recorded(form, "decoded", i);
        fixture_check_decoded(form->tokenizer, ids, false, json_is_null(decoded) ? text : decoded,
                              form->name);
        decoded = recorded(form, "skipped", i);
        fixture_check_decoded(form->tokenizer, ids, true, json_is_null(decoded) ? text : decoded,
                              form->name);
    }
}

static void check_lists(const struct form *form) {
    static const char *const keys[2][2] = {{"list_decoded", "stream_decoded"},
                                           {"list_skipped", "stream_skipped"}};
    if (!json_object_get(form->recorded, keys[0][0])) return;
    for (size_t i = 0; i < json_array_size(form->lists); i++) {
        const json_t *ids = json_array_get(form->lists, i);
        for (int skip = 0; skip < 2; skip++) {
            const json_t *whole = recorded(form, keys[skip][0], i);
            const json_t *stream = recorded(form, keys[skip][1], i);
            fixture_check_whole(form->tokenizer, ids, skip, whole, form->name);
            fixture_check_streamed(form->tokenizer, ids, skip,
                                   json_is_null(stream) ? whole : stream, form->name);
        }
    }
}

static void check_forms(void (*check)(const struct form *)) {
    json_t *vectors = fixture_json(FOLDER "vectors.json");
    const json_t *forms = json_object_get(vectors, "forms");
    assert_true(json_array_size(forms) > 15);
    for (size_t i = 0; i < json_array_size(forms); i++) {
        const json_t *recorded_form = json_array_get(forms, i);
        char path[200];
        snprintf(path, sizeof path, FOLDER "%s",
                 json_string_value(json_object_get(recorded_form, "file")));
        json_t *root = fixture_changed_file(path, json_object_get(recorded_form, "change"));
        struct form form = {.recorded = recorded_form,
                            .texts = json_object_get(vectors, "texts"),
                            .lists = json_object_get(vectors, "lists"),
                            .name = json_string_value(json_object_get(recorded_form, "name")),
                            .tokenizer = fixture_parse(root)};
        check(&form);
        tokenizer_close(form.tokenizer);
        json_decref(root);
    }
    json_decref(vectors);
}

static void test_texts_as_recorded(void **state) {
    (void)state;
    check_forms(check_texts);
}

static void test_lists_of_ids_as_recorded(void **state) {
    (void)state;
    check_forms(check_lists);
}

static void encode(const struct tokenizer *tokenizer, const char *text, size_t len,
                   struct token_list *out) {
    struct err err = {0};
    out->len = 0;
    if (tokenizer_encode(tokenizer, text, len, false, NULL, out, &err)) fail_msg("%s", err.message);
}

static void test_invalid_utf8_is_replaced(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(FOLDER "llama2.json");
    static const char broken[] = "a\xff\xe4\xb8z", repaired[] = "a\xef\xbf\xbd\xef\xbf\xbdz";
    struct token_list a = {0}, b = {0};
    encode(tokenizer, broken, sizeof broken - 1, &a);
    encode(tokenizer, repaired, sizeof repaired - 1, &b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.ids, b.ids, a.len * sizeof *a.ids);
    token_list_fini(&a);
    token_list_fini(&b);
    tokenizer_close(tokenizer);
}

// The same few characters, a million bytes of them: with anything quadratic in it this does not
// end in minutes.
static void check_long_text(const struct tokenizer *tokenizer, const char *part) {
    enum { BYTES = 1000000 };
    struct buf text = {0}, decoded = {0};
    struct token_list ids = {0};
    while (text.len < BYTES) assert_int_equal(buf_append_str(&text, part, NULL), OK);
    encode(tokenizer, text.data, text.len, &ids);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.len, false, &decoded, NULL), OK);
    assert_int_equal(decoded.len, text.len);
    assert_memory_equal(decoded.data, text.data, text.len);
    buf_fini(&text);
    buf_fini(&decoded);
    token_list_fini(&ids);
}

static void test_linear_time(void **state) {
    (void)state;
    static const char *const parts[] = {"a",
                                        "ab",
                                        " ",
                                        "a ",
                                        "the",
                                        "\xe4\xb8\xad",
                                        "\n",
                                        " \n",
                                        "\xf0\x9f\x99\x82",
                                        "\xe4\xb8\xad\xd0\xb6"};
    static const char *const merge_over_a_space = "{\"add_merges\": [[\"e\", \"\xe2\x96\x81\"]]}";
    json_t *change = json_loads(merge_over_a_space, 0, NULL);
    json_t *root = fixture_changed_file(FOLDER "llama2.json", change);
    struct tokenizer *cut = fixture_open(FOLDER "llama2.json"), *whole = fixture_parse(root);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        check_long_text(cut, parts[i]);
        check_long_text(whole, parts[i]);
    }
    tokenizer_close(cut);
    tokenizer_close(whole);
    json_decref(root);
    json_decref(change);
}

// Pushes ids up to a negative one, and checks the whole output so far after each.
static void check_pieces(const char *file, const int32_t *ids, const char *const *so_far) {
    struct tokenizer *tokenizer = fixture_open(file);
    struct detokenizer detokenizer = {0};
    struct buf out = {0};
    for (size_t i = 0; ids[i] >= 0; i++) {
        assert_int_equal(detokenizer_push(&detokenizer, tokenizer, ids[i], true, &out, NULL), OK);
        assert_string_equal(out.data ? out.data : "", so_far[i]);
    }
    buf_fini(&out);
    tokenizer_close(tokenizer);
}

static int32_t find(const char *token) {
    struct tokenizer *tokenizer = fixture_open(FOLDER "llama2.json");
    int32_t id = -1;
    assert_true(tokenizer_find(tokenizer, token, strlen(token), &id));
    tokenizer_close(tokenizer);
    return id;
}

static void test_a_character_comes_with_its_last_byte(void **state) {
    (void)state;
    const int32_t ids[] = {FIRST_BYTE + 0xf0, FIRST_BYTE + 0x9f, FIRST_BYTE + 0x99,
                           FIRST_BYTE + 0x82, FIRST_BYTE + 0x41, -1};
#define SMILE "\xf0\x9f\x99\x82"
    static const char *const so_far[] = {"", "", "", SMILE, (SMILE "A")};
    check_pieces(FOLDER "llama2.json", ids, so_far);
}

static void test_each_byte_from_a_fault_on_is_replaced(void **state) {
    (void)state;
    const int32_t ids[] = {FIRST_BYTE + 0x41,
                           FIRST_BYTE + 0xe4,
                           FIRST_BYTE + 0xb8,
                           FIRST_BYTE + 0x42,
                           find("b"),
                           FIRST_BYTE + 0x43,
                           -1};
#define GONE "\xef\xbf\xbd"
    static const char *const so_far[] = {
        "A", "A", "A", "A" GONE GONE GONE, "A" GONE GONE GONE "b", "A" GONE GONE GONE "bC"};
    check_pieces(FOLDER "llama2.json", ids, so_far);
}

static void test_one_space_is_stripped_from_the_start_only(void **state) {
    (void)state;
    int32_t space = find("\xe2\x96\x81"), space_b = find("\xe2\x96\x81"
                                                         "b");
    const int32_t ids[] = {1, space, space_b, space_b, -1}; // <s> is skipped
    static const char *const so_far[] = {"", "", " b", " b b"};
    check_pieces(FOLDER "llama2.json", ids, so_far);
    const int32_t byte_first[] = {FIRST_BYTE + 0x20, FIRST_BYTE + 0x20, space_b, -1};
    static const char *const byte_so_far[] = {"", " ", "  b"};
    check_pieces(FOLDER "llama2.json", byte_first, byte_so_far);
    struct tokenizer *tokenizer = fixture_open(FOLDER "llama2.json");
    struct tokenizer *metaspace = fixture_open(FOLDER "metaspace_always.json");
    struct tokenizer *plain = fixture_open(TINY_TOKENIZER);
    assert_true(tokenizer_strips_blank(tokenizer));
    assert_false(tokenizer_strips_blank(metaspace)); // it drops all of them
    assert_false(tokenizer_strips_blank(plain));
    tokenizer_close(tokenizer);
    tokenizer_close(metaspace);
    tokenizer_close(plain);
}

// A Metaspace decoder has no Strip: it drops the spaces of the first token.
static void test_metaspace_drops_the_first_tokens_spaces(void **state) {
    (void)state;
    int32_t space = find("\xe2\x96\x81"), space_b = find("\xe2\x96\x81"
                                                         "b");
    const int32_t ids[] = {1, space, space_b, -1};
    static const char *const so_far[] = {"", "", " b"};
    check_pieces(FOLDER "metaspace_always.json", ids, so_far);
}

static void test_token_bytes_are_what_a_token_stands_for(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(FOLDER "llama2.json");
    size_t len;
    const char *bytes = tokenizer_token_bytes(tokenizer, FIRST_BYTE + 0xf0, &len);
    assert_int_equal(len, 1);
    assert_memory_equal(bytes, "\xf0", 1);
    bytes = tokenizer_token_bytes(tokenizer, find("\xe2\x96\x81the"), &len);
    assert_int_equal(len, 4);
    assert_memory_equal(bytes, " the", 4);
    tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_as_recorded),
        cmocka_unit_test(test_lists_of_ids_as_recorded),
        cmocka_unit_test(test_invalid_utf8_is_replaced),
        cmocka_unit_test(test_linear_time),
        cmocka_unit_test(test_a_character_comes_with_its_last_byte),
        cmocka_unit_test(test_each_byte_from_a_fault_on_is_replaced),
        cmocka_unit_test(test_one_space_is_stripped_from_the_start_only),
        cmocka_unit_test(test_metaspace_drops_the_first_tokens_spaces),
        cmocka_unit_test(test_token_bytes_are_what_a_token_stands_for),
    };
    return cmocka_run_group_tests_name("tokenizer_sentencepiece", tests, NULL, NULL);
}
