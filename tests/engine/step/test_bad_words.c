// Bad words become the tokens that vLLM bans, and are banned where they would be completed.
#include "engine/step/bad_words.h"

#include <string.h>

#include "base/compiler.h"
#include "engine/step/token_mask.h"
#include "support/cmocka_all.h"

enum { VOCAB = 4096, NUM_WORDS = VOCAB / 32, IDS_MAX = 16 };

static struct tokenizer *tokenizer;

struct ids {
    int32_t ids[IDS_MAX];
    uint32_t count;
};

static struct ids encode(const char *text) {
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), false, NULL, &list, NULL), OK);
    assert_true(list.len > 0 && list.len <= IDS_MAX);
    struct ids ids = {.count = (uint32_t)list.len};
    memcpy(ids.ids, list.ids, list.len * sizeof *list.ids);
    token_list_fini(&list);
    return ids;
}

static int32_t id_of(const char *text) {
    struct ids ids = encode(text);
    assert_int_equal(ids.count, 1);
    return ids.ids[0];
}

struct fixture {
    struct bad_words bad;
    uint32_t always[NUM_WORDS];
};

static void init(struct fixture *f, const char *const *texts, size_t num_texts) {
    struct err err = {0};
    memset(f->always, 0xff, sizeof f->always);
    if (bad_words_init(&f->bad, texts, num_texts, tokenizer, f->always, &err)) {
        fail_msg("%s", err.message);
    }
}

static void expect_only_banned(const uint32_t *mask, const int32_t *ids, size_t count) {
    for (int32_t id = 0; id < VOCAB; id++) {
        bool is_banned = false;
        for (size_t i = 0; i < count; i++) is_banned |= ids[i] == id;
        if ((mask[id / 32] >> (id % 32) & 1) == is_banned) fail_msg("token %d", id);
    }
}

// Behind the output exactly these ids are banned, besides those that always are.
static void expect_next(const struct fixture *f, const char *output, const int32_t *ids,
                        size_t count) {
    struct ids generated = output[0] ? encode(output) : (struct ids){.count = 0};
    uint32_t mask[NUM_WORDS];
    memset(mask, 0xff, sizeof mask);
    assert_int_equal(bad_words_ban(&f->bad, generated.ids, generated.count, NULL), count != 0);
    assert_int_equal(bad_words_ban(&f->bad, generated.ids, generated.count, mask), count != 0);
    expect_only_banned(mask, ids, count);
}

static void test_a_word_of_one_token_is_banned_with_and_without_a_space(void **state) {
    (void)state;
    static const char *const texts[] = {"is",
                                        " \t\xc2\xa0on"}; // white space before it is no part of it
    const int32_t ids[] = {id_of("is"), id_of(" is"), id_of("on"), id_of(" on")};
    struct fixture f;
    init(&f, texts, ARRAY_LEN(texts));
    expect_only_banned(f.always, ids, ARRAY_LEN(ids));
    assert_int_equal(f.bad.num_words, 0);
    expect_next(&f, "this", NULL, 0);
    bad_words_fini(&f.bad);
}

// " the" is one token, "the" are two: as in vLLM the word is not banned behind a space.
static void test_another_number_of_tokens_behind_a_space_is_passed_over(void **state) {
    (void)state;
    static const char *const texts[] = {"the"};
    assert_int_equal(encode("the").count, 2);
    assert_int_equal(encode(" the").count, 1);
    struct fixture f;
    init(&f, texts, 1);
    expect_only_banned(f.always, NULL, 0);
    assert_int_equal(f.bad.num_words, 1);
    bad_words_fini(&f.bad);
}

static void test_the_last_token_is_banned_behind_the_others(void **state) {
    (void)state;
    static const char *const texts[] = {"95", "912", "58 =", "12"};
    const int32_t five = id_of("5"), two = id_of("2"), equals = id_of(" =");
    assert_int_equal(encode("58 =").count, 3);
    struct fixture f;
    init(&f, texts, ARRAY_LEN(texts));
    expect_only_banned(f.always, NULL, 0);
    expect_next(&f, "", NULL, 0);
    expect_next(&f, "9", &five, 1);
    expect_next(&f, "3 = 9", &five, 1);
    expect_next(&f, "95", NULL, 0); // what is there is there
    expect_next(&f, "58", &equals, 1);
    expect_next(&f, "8", NULL, 0); // the output is shorter than the word
    expect_next(&f, "48", NULL, 0);
    expect_next(&f, "91", &two, 1); // two words' last token
    expect_next(&f, "1", &two, 1);
    bad_words_fini(&f.bad);
}

// The output ends where it begins: what stands before it in memory, the prompt, is no part of it.
static void test_the_prompt_is_not_looked_at(void **state) {
    (void)state;
    static const char *const texts[] = {"58 ="};
    const struct ids ids = encode("58");
    struct fixture f;
    init(&f, texts, 1);
    assert_true(bad_words_ban(&f.bad, ids.ids, 2, NULL));
    assert_false(bad_words_ban(&f.bad, ids.ids + 1, 1, NULL));
    bad_words_fini(&f.bad);
}

// A tokenizer that sees no difference has one form of a word.
static void test_the_same_tokens_behind_a_space_are_there_once(void **state) {
    (void)state;
    static const char *const texts[] = {"a b"};
    struct tokenizer *bundled = tokenizer;
    assert_int_equal(tokenizer_open_file(&tokenizer,
                                         "tests/reference/data/sentencepiece/metaspace_first.json",
                                         NULL),
                     OK);
    const struct ids plain = encode("a b"), spaced = encode(" a b");
    assert_int_equal(plain.count, 2);
    assert_memory_equal(plain.ids, spaced.ids, 2 * sizeof *plain.ids);
    struct fixture f;
    init(&f, texts, 1);
    assert_int_equal(f.bad.num_words, 1);
    bad_words_fini(&f.bad);
    tokenizer_close(tokenizer);
    tokenizer = bundled;
}

static void test_words_that_begin_alike(void **state) {
    (void)state;
    static const char *const texts[] = {"95", "97", "9"};
    const int32_t want[] = {id_of("5"), id_of("7")}, nine = id_of("9");
    struct fixture f;
    init(&f, texts, ARRAY_LEN(texts));
    expect_only_banned(f.always, &nine, 1);
    expect_next(&f, "9", want, 2);
    bad_words_fini(&f.bad);
}

static void test_white_space_is_no_word(void **state) {
    (void)state;
    static const char *const texts[] = {"a", " \n"};
    struct bad_words bad;
    struct err err = {0};
    uint32_t always[NUM_WORDS];
    assert_int_equal(bad_words_init(&bad, texts, 2, tokenizer, always, &err), ERR_INVALID);
    assert_string_equal(err.message, "entry 1 of bad_words has no token: it is white space");
    assert_null(bad.words);
}

static int open_tokenizer(void **state) {
    (void)state;
    return tokenizer_open_file(&tokenizer, "models/tiny-qwen3/tokenizer.json", NULL) ? -1 : 0;
}

static int close_tokenizer(void **state) {
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_word_of_one_token_is_banned_with_and_without_a_space),
        cmocka_unit_test(test_another_number_of_tokens_behind_a_space_is_passed_over),
        cmocka_unit_test(test_the_last_token_is_banned_behind_the_others),
        cmocka_unit_test(test_the_prompt_is_not_looked_at),
        cmocka_unit_test(test_the_same_tokens_behind_a_space_are_there_once),
        cmocka_unit_test(test_words_that_begin_alike),
        cmocka_unit_test(test_white_space_is_no_word),
    };
    return cmocka_run_group_tests_name("bad_words", tests, open_tokenizer, close_tokenizer);
}
