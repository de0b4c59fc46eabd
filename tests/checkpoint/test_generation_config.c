// EOS ids of config.json and generation_config.json, and the latter's sampling defaults.
#include "checkpoint/model_config.h"

#include <string.h>

#include "support/cmocka_all.h"
#include "support/config_text.h"

static void test_eos(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"eos_token_id", "[5, 3, 5]"});
    assert_int_equal(config.num_eos_token_ids, 2);
    assert_int_equal(config.eos_token_ids[0], 5);
    assert_int_equal(config.eos_token_ids[1], 3);
    struct generation_config generation;
    struct err err = {0};
    static const char text[] = "{\"eos_token_id\": [3, 999, 0]}";
    assert_int_equal(
        generation_config_parse(&config, &generation, text, sizeof text - 1, "g.json", &err), OK);
    assert_int_equal(config.num_eos_token_ids, 4);
    assert_int_equal(config.eos_token_ids[2], 999);
    assert_int_equal(config.eos_token_ids[3], 0);
    model_config_fini(&config);
    config = PARSE_OK({"eos_token_id", "7"});
    assert_int_equal(config.num_eos_token_ids, 1);
    assert_int_equal(config.eos_token_ids[0], 7);
    model_config_fini(&config);
    // Ids that the vocabulary of 1,000 lacks, and bos_token_id is not read.
    config = PARSE_OK({"eos_token_id", "[2, 1000, 4294967297]"}, {"bos_token_id", "128000"});
    assert_int_equal(config.num_eos_token_ids, 1);
    assert_int_equal(config.eos_token_ids[0], 2);
    model_config_fini(&config);
    config = PARSE_OK({"eos_token_id", "[]"});
    assert_int_equal(config.num_eos_token_ids, 0);
    model_config_fini(&config);
    char many[1025 * 2 + 2] = "[1";
    for (int i = 1; i < 1025; i++) strcat(many, ",1");
    strcat(many, "]");
    const struct refusal cases[] = {
        {{{"eos_token_id", "\"</s>\""}}, ERR_FORMAT, "eos_token_id|a string"},
        {{{"eos_token_id", "[1, null]"}}, ERR_FORMAT, "eos_token_id|null"},
        {{{"eos_token_id", "[[1]]"}}, ERR_FORMAT, "eos_token_id|a list"},
        {{{"eos_token_id", "-1"}}, ERR_FORMAT, "eos_token_id|-1"},
        {{{"eos_token_id", many}}, ERR_FORMAT, "eos_token_id|1025"},
    };
    REFUSE_ALL(cases);
}

static enum status parse_generation(const char *text, struct generation_config *generation,
                                    struct err *err) {
    struct model_config config = {.vocab_size = 100};
    enum status status =
        generation_config_parse(&config, generation, text, strlen(text), "g.json", err);
    model_config_fini(&config);
    return status;
}

static void test_generation_values(void **state) {
    (void)state;
    struct generation_config generation;
    struct err err = {0};
    assert_int_equal(parse_generation("{}", &generation, &err), OK);
    assert_false(generation.has_temperature || generation.has_top_p || generation.has_top_k ||
                 generation.has_min_p || generation.has_repetition_penalty);
    assert_int_equal(parse_generation("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20,"
                                      " \"top_p\": 0.95, \"min_p\": 0.1,"
                                      " \"repetition_penalty\": 1.05, \"max_new_tokens\": 5}",
                                      &generation, &err),
                     OK);
    assert_true(generation.has_temperature && generation.temperature == 0.6f);
    assert_true(generation.has_top_p && generation.top_p == 0.95f);
    assert_true(generation.has_top_k && generation.top_k == 20);
    assert_true(generation.has_min_p && generation.min_p == 0.1f);
    assert_true(generation.has_repetition_penalty && generation.repetition_penalty == 1.05f);
    // do_sample absent: the values as they stand
    assert_int_equal(parse_generation("{\"temperature\": 0.7}", &generation, &err), OK);
    assert_true(generation.has_temperature && generation.temperature == 0.7f);
    assert_false(generation.has_top_p);
    // spelled out false: greedy
    assert_int_equal(
        parse_generation("{\"do_sample\": false, \"temperature\": 0.7, \"top_p\": 0.8}",
                         &generation, &err),
        OK);
    assert_true(generation.has_temperature && generation.temperature == 0);
    assert_true(generation.has_top_p && generation.top_p == 0.8f);
    assert_int_equal(parse_generation("{\"do_sample\": false}", &generation, &err), OK);
    assert_true(generation.has_temperature && generation.temperature == 0);
    assert_int_equal(parse_generation("{\"do_sample\": null, \"temperature\": null, \"top_k\": -1}",
                                      &generation, &err),
                     OK);
    assert_false(generation.has_temperature);
    assert_true(generation.has_top_k && generation.top_k == -1);
}

static void test_bad_generation(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "not valid JSON"},
        {"[]", "a list|want an object"},
        {"{\"temperature\": \"hot\"}", "temperature|a string"},
        {"{\"temperature\": -0.1}", "temperature|-0.1"},
        {"{\"temperature\": 1000}", "temperature|1000"},
        {"{\"top_p\": 0}", "top_p|0"},
        {"{\"top_p\": 1.1}", "top_p|1.1"},
        {"{\"top_p\": 1.0000001}", "is 1.0000001, want above 0 to 1"},
        {"{\"top_p\": true}", "top_p|a boolean"},
        {"{\"min_p\": -1}", "min_p|-1"},
        {"{\"min_p\": 2}", "min_p|2"},
        {"{\"repetition_penalty\": 0}", "repetition_penalty|0"},
        {"{\"repetition_penalty\": 11}", "repetition_penalty|11"},
        {"{\"top_k\": 1.5}", "top_k|a real number"},
        {"{\"top_k\": -2}", "top_k|-2"},
        {"{\"top_k\": 4294967296}", "top_k|4294967296"},
        {"{\"do_sample\": \"yes\"}", "do_sample|a string"},
        {"{\"eos_token_id\": -1}", "\"eos_token_id\" is -1, want 0 or more"},
        {"{\"eos_token_id\": [1, -1]}", "\"eos_token_id\" has -1, want 0 or more"},
        {"{\"eos_token_id\": {}}", "eos_token_id|an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct generation_config generation;
        struct err err = {0};
        assert_int_equal(parse_generation(cases[i].text, &generation, &err), ERR_FORMAT);
        expect_words(&err, "g.json");
        expect_words(&err, cases[i].words);
        assert_false(generation.has_temperature || generation.has_top_p || generation.has_top_k ||
                     generation.has_min_p || generation.has_repetition_penalty);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eos),
        cmocka_unit_test(test_generation_values),
        cmocka_unit_test(test_bad_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
