// The table of families: the traits of each for a configuration, the refusals with their messages,
// and the parameter counts of the shapes under bench/configs.
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/model_config.h"
#include "model/decoder.h"
#include "support/cmocka_all.h"
#include "support/config_text.h"

static struct family_traits resolve(const struct field changes[CHANGES_MAX]) {
    struct model_config config = parse_ok(changes);
    struct family_traits traits;
    struct err err = {0};
    if (family_resolve(&traits, &config, &err)) fail_msg("%s", err.message);
    model_config_fini(&config);
    return traits;
}

static void test_biases(void **state) {
    (void)state;
    static const struct {
        const char *architecture;
        bool qk_norm;
        bool qkv[2], o[2], mlp[2]; // biases without and with `keys` set in config.json
        const char *keys[2];
    } cases[] = {
        {"[\"LlamaForCausalLM\"]",
         false,
         {false, true},
         {false, true},
         {false, true},
         {"attention_bias", "mlp_bias"}},
        {"[\"MistralForCausalLM\"]",
         false,
         {false, false},
         {false, false},
         {false, false},
         {"unused", "also_unused"}},
        {"[\"MixtralForCausalLM\"]",
         false,
         {false, false},
         {false, false},
         {false, false},
         {"unused", "also_unused"}},
        {"[\"Qwen2ForCausalLM\"]",
         false,
         {true, true},
         {false, false},
         {false, false},
         {"attention_bias", "unused"}},
        {"[\"Qwen3ForCausalLM\"]",
         true,
         {false, true},
         {false, true},
         {false, false},
         {"attention_bias", "unused"}},
        {"[\"Qwen3MoeForCausalLM\"]",
         true,
         {false, true},
         {false, true},
         {false, false},
         {"attention_bias", "unused"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int asked = 0; asked < 2; asked++) {
            const char *value = asked ? "true" : "false";
            const struct field changes[CHANGES_MAX] = {{"architectures", cases[i].architecture},
                                                       {cases[i].keys[0], value},
                                                       {cases[i].keys[1], value}};
            struct family_traits traits = resolve(changes);
            assert_int_equal(traits.qk_norm, cases[i].qk_norm);
            assert_int_equal(traits.qkv_bias, cases[i].qkv[asked]);
            assert_int_equal(traits.o_bias, cases[i].o[asked]);
            assert_int_equal(traits.mlp_bias, cases[i].mlp[asked]);
        }
    }
}

// Families differ in the meaning of an absent key, and in the key of o's bias.
static void test_keys_and_defaults_of_biases(void **state) {
    (void)state;
    const struct model_family family = {
        .name = "Own",
        .qkv_bias = {.key = BIAS_ATTENTION, .by_default = true},
        .o_bias = {.key = BIAS_ATTENTION_OUT},
        .mlp_bias = {.key = BIAS_MLP, .by_default = true},
    };
    static const struct {
        struct field changes[CHANGES_MAX];
        bool qkv, o, mlp;
    } cases[] = {
        {{{NULL, NULL}}, true, false, true},
        {{{"attention_bias", "null"}, {"attention_out_bias", "null"}}, true, false, true},
        {{{"attention_bias", "true"}}, true, false, true},
        {{{"attention_bias", "false"}, {"attention_out_bias", "true"}}, false, true, true},
        {{{"attention_out_bias", "false"}, {"mlp_bias", "false"}}, true, false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model_config config = parse_ok(cases[i].changes);
        struct family_traits traits;
        struct err err = {0};
        if (family_apply(&traits, &family, &config, &err)) fail_msg("%s", err.message);
        assert_int_equal(traits.qkv_bias, cases[i].qkv);
        assert_int_equal(traits.o_bias, cases[i].o);
        assert_int_equal(traits.mlp_bias, cases[i].mlp);
        model_config_fini(&config);
    }
}

static void refused(const struct field changes[CHANGES_MAX], const char *words) {
    struct model_config config = parse_ok(changes);
    struct family_traits traits;
    struct err err = {0};
    assert_int_equal(family_resolve(&traits, &config, &err), ERR_UNSUPPORTED);
    expect_words(&err, words);
    model_config_fini(&config);
}

static void test_unknown_architecture_lists_the_known(void **state) {
    (void)state;
    refused((const struct field[CHANGES_MAX]){{"architectures", "[\"NopeForCausalLM\"]"}},
            "NopeForCausalLM|not supported|LlamaForCausalLM, |MistralForCausalLM, |"
            "MixtralForCausalLM, |Qwen2ForCausalLM, |Qwen3ForCausalLM, |Qwen3MoeForCausalLM");
}

// A bias that the family cannot have is refused.
static void test_biases_that_a_family_lacks(void **state) {
    (void)state;
    static const struct field cases[][2] = {
        {{"architectures", "[\"MistralForCausalLM\"]"}, {"attention_bias", "true"}},
        {{"architectures", "[\"MistralForCausalLM\"]"}, {"mlp_bias", "true"}},
        {{"architectures", "[\"Qwen2ForCausalLM\"]"}, {"mlp_bias", "true"}},
        {{"architectures", "[\"Qwen2ForCausalLM\"]"}, {"attention_out_bias", "true"}},
        {{"architectures", "[\"LlamaForCausalLM\"]"}, {"attention_out_bias", "true"}},
        {{"architectures", "[\"Qwen3MoeForCausalLM\"]"}, {"mlp_bias", "true"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        refused((const struct field[CHANGES_MAX]){cases[i][0], cases[i][1]}, cases[i][1].key);
    }
}

// The counts of the published checkpoints.
static void test_bench_configs(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t num_parameters;
        double active; // billions, as the model card says; 0: all
    } cases[] = {
        {"llama-3.1-8b", 8030261248, 0},     {"llama-3.2-1b", 1235814400, 0},
        {"mistral-7b-v0.3", 7248023552, 0},  {"qwen2.5-7b", 7615616512, 0},
        {"qwen3-0.6b", 596049920, 0},        {"qwen3-1.7b", 1720574976, 0},
        {"qwen3-4b", 4022468096, 0},         {"qwen3-8b", 8190735360, 0},
        {"qwen3-14b", 14768307200, 0},       {"qwen3-32b", 32762123264, 0},
        {"qwen3-30b-a3b", 30532122624, 3.3}, {"mixtral-8x7b", 46702792704, 12.9},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char folder[256];
        struct model_config c;
        struct generation_config generation;
        struct family_traits traits;
        struct err err = {0};
        snprintf(folder, sizeof folder, "bench/configs/%s", cases[i].name);
        if (model_config_load(&c, &generation, folder, &err) != OK) fail_msg("%s", err.message);
        if (family_resolve(&traits, &c, &err)) fail_msg("%s", err.message);
        uint64_t total = decoder_num_parameters(&c, &traits);
        if (total != cases[i].num_parameters) {
            fail_msg("%s has %llu parameters, want %llu", cases[i].name, (unsigned long long)total,
                     (unsigned long long)cases[i].num_parameters);
        }
        double active = (double)decoder_num_active_parameters(&c, &traits) / 1e9;
        double want = cases[i].active > 0 ? cases[i].active : (double)total / 1e9;
        assert_true(active > want - 0.1 && active < want + 0.1);
        assert_int_equal(c.dtype, DTYPE_BF16);
        assert_int_equal(c.sliding_window, 0);
        assert_false(generation.has_temperature);
        model_config_fini(&c);
    }
}

// Each rank has a part of every expert, as of a dense MLP, and the parts add up to the whole.
static void test_ranks_share_every_expert(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"architectures", "[\"Qwen3MoeForCausalLM\"]"}, {"moe_intermediate_size", "50"});
    uint32_t next = 0;
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct decoder_shape shape;
        struct err err = {0};
        if (decoder_shape_of(&shape, &config, rank, 4, &err)) fail_msg("%s", err.message);
        assert_int_equal(shape.expert_start, next);
        assert_in_range(shape.expert_size, 12, 14);
        next += shape.expert_size;
    }
    assert_int_equal(next, 50);
    model_config_fini(&config);
}

// GPUs want multiples of 8, which are kept even where shares then differ.
static void test_shares_are_multiples_of_8(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"architectures", "[\"Qwen3MoeForCausalLM\"]"}, {"moe_intermediate_size", "40"});
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct decoder_shape shape;
        struct err err = {0};
        if (decoder_shape_of(&shape, &config, rank, 2, &err)) fail_msg("%s", err.message);
        assert_int_equal(shape.expert_size, rank ? 24 : 16);
    }
    model_config_fini(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_keys_and_defaults_of_biases),
        cmocka_unit_test(test_unknown_architecture_lists_the_known),
        cmocka_unit_test(test_biases_that_a_family_lacks),
        cmocka_unit_test(test_bench_configs),
        cmocka_unit_test(test_ranks_share_every_expert),
        cmocka_unit_test(test_shares_are_multiples_of_8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
