// The table of families: the layers of each for a configuration, the refusals with their messages,
// and the parameter counts of the shapes under bench/configs.
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/model_config.h"
#include "model/decoder.h"
#include "support/cmocka_all.h"
#include "support/config_text.h"
#include "support/folder_model.h"

static struct layer_table resolve(const struct field changes[CHANGES_MAX]) {
    struct model_config config = parse_ok(changes);
    struct layer_table table;
    struct err err = {0};
    if (family_resolve(&table, &config, &err)) fail_msg("%s", err.message);
    model_config_fini(&config);
    return table;
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
        {"[\"GptOssForCausalLM\"]",
         false,
         {true, true},
         {true, true},
         {false, false},
         {"unused", "also_unused"}},
        {"[\"Glm4ForCausalLM\"]",
         false,
         {false, true},
         {false, false},
         {false, false},
         {"attention_bias", "unused"}},
        {"[\"Glm4MoeForCausalLM\"]",
         false,
         {false, true},
         {false, false},
         {false, false},
         {"attention_bias", "unused"}},
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
            struct layer_table table = resolve(changes);
            for (uint32_t k = 0; k < table.num_layers; k++) {
                const struct layer *layer = &table.layers[k];
                assert_int_equal(layer->head_norm,
                                 cases[i].qk_norm ? HEAD_NORM_EACH : HEAD_NORM_NONE);
                assert_int_equal(layer->has_qkv_bias, cases[i].qkv[asked]);
                assert_int_equal(layer->has_o_bias, cases[i].o[asked]);
                assert_int_equal(layer->has_mlp_bias, cases[i].mlp[asked]);
            }
            layer_table_fini(&table);
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
        struct layer_table table;
        struct err err = {0};
        if (family_apply(&table, &family, &config, &err)) fail_msg("%s", err.message);
        assert_int_equal(table.layers[0].has_qkv_bias, cases[i].qkv);
        assert_int_equal(table.layers[0].has_o_bias, cases[i].o);
        assert_int_equal(table.layers[0].has_mlp_bias, cases[i].mlp);
        layer_table_fini(&table);
        model_config_fini(&config);
    }
}

// What a family changes in its layers.
static struct layer changed;
static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    table->layers[1] = changed;
}

// What most layers have, and what a family may change in one of them.
static void test_layers_are_described_one_by_one(void **state) {
    (void)state;
    static const struct model_family family = {.name = "Own", .change = change};
    struct model_config config = PARSE_OK({NULL, NULL});
    struct layer_table table;
    struct err err = {0};
    assert_int_equal(layer_table_init(&table, &config, &err), OK);
    const struct layer usual = table.layers[0];
    layer_table_fini(&table);
    assert_int_equal(usual.head_dim, config.head_dim);
    assert_int_equal(usual.num_kv_heads, config.num_kv_heads);
    assert_float_equal(usual.query_scale * usual.query_scale * (float)config.head_dim, 1, 1e-6);

    changed = usual;
    changed.rope = ROPE_NONE;
    changed.query_scale = 0.5f;
    assert_int_equal(family_apply(&table, &family, &config, &err), OK);
    assert_int_equal(table.layers[0].rope, 0);
    assert_int_equal(table.layers[1].rope, ROPE_NONE);
    assert_false(layer_table_is_even(&table));
    table.layers[1] = usual;
    assert_true(layer_table_is_even(&table));
    layer_table_fini(&table);
    model_config_fini(&config);
}

// Ops that run all layers at once are told nothing of these, so no such op may get the model.
static void test_layers_with_changed_scores_are_not_even(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({NULL, NULL});
    struct layer_table table;
    struct err err = {0};
    assert_int_equal(layer_table_init(&table, &config, &err), OK);
    assert_true(layer_table_is_even(&table));
    const struct layer usual = table.layers[0];
    struct layer windowed = usual, capped = usual, sunk = usual, normed = usual, scaled = usual;
    struct layer parallel = usual;
    windowed.window = 8;
    capped.softcap = 50;
    sunk.has_sinks = true;
    normed.has_v_norm = true;
    scaled.has_scalar = true;
    parallel.is_parallel = true;
    const struct layer *cases[] = {&windowed, &capped, &sunk, &normed, &scaled, &parallel};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (uint32_t l = 0; l < table.num_layers; l++) table.layers[l] = *cases[i];
        assert_false(layer_table_is_even(&table));
    }
    layer_table_fini(&table);
    model_config_fini(&config);
}

// A scale of q by its position matters from query_length on. Where no sequence is longer, there is
// none.
static void test_scales_of_q_by_position(void **state) {
    (void)state;
    static const struct field ministral3[CHANGES_MAX] = {
        {"architectures", "[\"Ministral3ForCausalLM\"]"}};
    for (uint32_t longer = 0; longer < 2; longer++) {
        struct layer_table table = resolve(ministral3);
        assert_int_equal(layer_table_rope(&table, 0)->query_length, 16384);
        assert_false(layer_table_is_even(&table));
        layer_table_plan_kv(&table, 16384 + longer, 8, 1);
        assert_int_equal(layer_table_is_even(&table), longer == 0);
        layer_table_fini(&table);
    }
}

static void test_hyperclovax_may_have_no_norms_behind(void **state) {
    (void)state;
    struct field changes[CHANGES_MAX] = {{"architectures", "[\"HyperCLOVAXForCausalLM\"]"},
                                         {"logits_scaling", "0.125"}};
    for (int has_norms = 0; has_norms < 2; has_norms++) {
        changes[2] = (struct field){"use_post_norm", has_norms ? "true" : "false"};
        struct layer_table table = resolve(changes);
        assert_int_equal(table.layers[2].norm_place, has_norms ? NORM_AROUND : NORM_BEFORE);
        assert_true(table.logits_scale == 0.125f);
        assert_true(table.layers[2].query_scale < 1); // without the key that of the heads' width
        layer_table_fini(&table);
    }
}

static void test_granite4_may_have_no_rope(void **state) {
    (void)state;
    static const char *const types[] = {"\"rope\"", "\"nope\"", "null"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct field changes[CHANGES_MAX] = {
            {"architectures", "[\"GraniteMoeHybridForCausalLM\"]"},
            {"layer_types", "[\"attention\", \"attention\", \"full_attention\"]"},
            {"num_local_experts", "0"},
            {"shared_intermediate_size", "64"},
            {"position_embedding_type", types[i]}};
        struct layer_table table = resolve(changes);
        assert_int_equal(layer_table_rope(&table, 2) != NULL, i == 0);
        layer_table_fini(&table);
    }
}

// Layers without a window have heads of their own, and may have keys as values.
static void test_heads_of_gemma4(void **state) {
    (void)state;
    struct field changes[CHANGES_MAX] = {{"architectures", "[\"Gemma4ForCausalLM\"]"},
                                         {"hidden_size_per_layer_input", "0"},
                                         {"num_key_value_heads", "4"},
                                         {"num_global_key_value_heads", "2"}};
    for (int has_keys = 0; has_keys < 2; has_keys++) {
        if (has_keys) changes[4] = (struct field){"attention_k_eq_v", "true"};
        struct layer_table table = resolve(changes);
        const struct layer *first = &table.layers[0], *last = &table.layers[2];
        assert_int_equal(first->window, 512);
        assert_int_equal(first->head_dim, 256);
        assert_int_equal(first->num_kv_heads, 4);
        assert_false(first->has_keys_as_values);
        assert_int_equal(last->window, 0); // the last one never has a window
        assert_int_equal(last->head_dim, 512);
        assert_int_equal(last->rotary_dim, 512);
        assert_int_equal(last->num_kv_heads, has_keys ? 2 : 4);
        assert_int_equal(last->has_keys_as_values, has_keys);
        assert_true(last->has_v_norm && last->has_scalar && last->query_scale == 1);
        assert_int_equal(layer_table_rope(&table, 2)->type, ROPE_PROPORTIONAL);
        assert_int_equal(layer_table_rope(&table, 0)->type, ROPE_DEFAULT);
        assert_true(table.norm_kind == NORM_WEIGHT && table.logits_softcap == 0);
        layer_table_fini(&table);
    }
}

// transformers writes only in what layers without a window differ from the others.
static void test_layers_of_gemma4_by_number(void **state) {
    (void)state;
    static const struct {
        const char *layers;
        uint32_t head_dim, num_kv_heads;
    } cases[] = {
        {"{}", 256, 4},
        {"{\"2\": {\"head_dim\": 128}}", 128, 4},
        {"{\"2\": {\"num_key_value_heads\": 2}}", 256, 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct field changes[CHANGES_MAX] = {{"architectures", "[\"Gemma4ForCausalLM\"]"},
                                                   {"hidden_size_per_layer_input", "0"},
                                                   {"num_key_value_heads", "4"},
                                                   {"per_layer_config", cases[i].layers}};
        struct layer_table table = resolve(changes);
        assert_int_equal(table.layers[0].head_dim, 256);
        assert_int_equal(table.layers[2].head_dim, cases[i].head_dim);
        assert_int_equal(table.layers[2].rotary_dim, cases[i].head_dim);
        assert_int_equal(table.layers[2].num_kv_heads, cases[i].num_kv_heads);
        layer_table_fini(&table);
    }
}

static void test_gemma4_reads_keys_of_the_last_layer_of_a_kind(void **state) {
    (void)state;
    struct field changes[CHANGES_MAX] = {{"architectures", "[\"Gemma4ForCausalLM\"]"},
                                         {"hidden_size_per_layer_input", "0"},
                                         {"num_kv_shared_layers", "2"},
                                         {"num_hidden_layers", "4"},
                                         {"sliding_window_pattern", "2"}};
    struct layer_table table = resolve(changes);
    layer_table_plan_kv(&table, 4096, 8, 1);
    assert_true(table.layers[1].kv_source == KV_OWN && table.layers[3].kv_source == 1);
    layer_table_fini(&table);
}

// No value is ignored: what the decoder cannot compute is refused by name.
static void test_what_has_no_code_is_refused(void **state) {
    (void)state;
    static const struct model_family family = {.name = "Own", .change = change};
    struct model_config config = PARSE_OK({NULL, NULL});
    struct layer_table table;
    struct err err = {0};
    assert_int_equal(layer_table_init(&table, &config, &err), OK);
    const struct layer usual = table.layers[0];
    layer_table_fini(&table);
    struct {
        const char *words;
        struct layer layer;
    } cases[] = {
        {"experts with gelu", usual},
    };
    cases[0].layer.is_sparse = true;
    cases[0].layer.activation = ACTIVATION_GELU_TANH;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        changed = cases[i].layer;
        err = (struct err){0};
        assert_int_equal(family_apply(&table, &family, &config, &err), ERR_UNSUPPORTED);
        expect_words(&err, "Own|layer 1");
        expect_words(&err, cases[i].words);
        assert_null(table.layers);
    }
    model_config_fini(&config);
}

static void test_heads_of_every_layer_are_checked(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({NULL, NULL});
    struct layer_table table;
    assert_int_equal(family_resolve(&table, &config, NULL), OK);
    const struct layer usual = table.layers[1];
    static const struct {
        uint32_t num_kv_heads, head_dim, world_size;
        const char *words;
    } cases[] = {{2, 520, 1, "head_dim 520"},
                 {3, 64, 1, "heads on 3 key/value heads are not supported"},
                 {2, 64, 3, "cannot be shared evenly by 3 ranks"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct decoder_shape shape;
        struct err err = {0};
        table.layers[1] = usual;
        table.layers[1].num_kv_heads = cases[i].num_kv_heads;
        table.layers[1].head_dim = cases[i].head_dim;
        assert_int_equal(decoder_shape_of(&shape, &config, &table, 0, cases[i].world_size, &err),
                         ERR_UNSUPPORTED);
        expect_words(&err, cases[i].words);
    }
    layer_table_fini(&table);
    model_config_fini(&config);
}

static void refused(const struct field changes[CHANGES_MAX], const char *words) {
    struct model_config config = parse_ok(changes);
    struct layer_table table;
    struct err err = {0};
    assert_int_equal(family_resolve(&table, &config, &err), ERR_UNSUPPORTED);
    assert_null(table.layers);
    expect_words(&err, words);
    model_config_fini(&config);
}

static void test_unknown_architecture_tells_those_alike(void **state) {
    (void)state;
    refused((const struct field[CHANGES_MAX]){{"architectures", "[\"NopeForCausalLM\"]"}},
            "architecture NopeForCausalLM is not supported; doc/models.md");
    refused((const struct field[CHANGES_MAX]){{"architectures", "[\"MixtalForCausalLM\"]"}},
            "MixtalForCausalLM is not supported; supported are MixtralForCausalLM; doc/models.md");
    refused((const struct field[CHANGES_MAX]){{"architectures", "[\"Qwen4ForCausalLM\"]"}},
            "supported are Qwen2ForCausalLM, |, Qwen3_5MoeForCausalLM|"
            "Qwen3NextForCausalLM; doc/models.md");
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
static const struct {
    const char *name;
    uint64_t num_parameters;
    double active; // billions, as the model card says; 0: all
    uint32_t window;
} bench_configs[] = {
    {"llama-3.1-8b", 8030261248, 0, 0},
    {"llama-3.2-1b", 1235814400, 0, 0},
    {"mistral-7b-v0.3", 7248023552, 0, 0},
    {"mistral-7b-v0.1", 7241732096, 0, 4096},
    {"qwen2.5-7b", 7615616512, 0, 0},
    {"qwen3-0.6b", 596049920, 0, 0},
    {"qwen3-1.7b", 1720574976, 0, 0},
    {"qwen3-4b", 4022468096, 0, 0},
    {"qwen3-8b", 8190735360, 0, 0},
    {"qwen3-14b", 14768307200, 0, 0},
    {"qwen3-32b", 32762123264, 0, 0},
    {"qwen3-30b-a3b", 30532122624, 3.3, 0},
    {"mixtral-8x7b", 46702792704, 12.9, 0},
    {"gemma-3-270m", 268098176, 0, 512},
    {"gemma-3-1b", 999885952, 0, 512},
    {"gemma-3-4b", 3880263168, 0, 1024},
    {"gemma-3-12b", 11766034176, 0, 1024},
    {"gemma-3-27b", 27009346304, 0, 1024},
    {"smollm3-3b", 3075098624, 0, 0},
    {"phi-4", 14659507200, 0, 0},
    {"granite-3.3-8b", 8170864640, 0, 0},
    {"olmo-2-7b", 7298617344, 0, 0},
    {"olmo-3-7b", 7298011136, 0, 4096},
    {"mistral-small-3.1-24b", 23572403200, 0, 0},
    {"qwen3-vl-4b", 4022468096, 0, 0},
    {"gpt-oss-20b", 20914757184, 4.2, 128},
    {"gpt-oss-120b", 116829156672, 5.7, 128},
    {"glm-4.5-air", 106852251264, 13.4, 0},
    {"glm-4.6", 352797829024, 33.6, 0},
    {"minimax-m2", 228689764864, 11.0, 0},
    {"ministral-3-3b", 3429006336, 0, 0},
    {"ministral-3-8b", 8489553920, 0, 0},
    {"ministral-3-14b", 13506073600, 0, 0},
    {"devstral-small-2-24b", 23572403200, 0, 0},
    {"granite-4.0-micro", 3402836480, 0, 0},
    {"granite-4.0-1b", 1631750144, 0, 0},
    {"granite-4.0-350m", 352379904, 0, 0},
    {"granite-4.0-h-1b", 1461538368, 0, 0},
    {"bamba-9b", 9780235392, 0, 0},
    {"falcon-h1-0.5b", 521411104, 0, 0},
    {"granite-4.0-h-micro", 3191396096, 0, 0},
    {"granite-4.0-h-tiny", 6939037248, 1.5, 0},
    {"granite-4.0-h-small", 32207337984, 8.8, 0},
    {"gemma-4-26b-a4b", 25233141790, 3.8, 1024},
    {"gemma-4-e2b", 4628569379, 0, 512},
    {"gemma-4-e4b", 7463013418, 0, 512},
    {"gemma-4-31b", 30697345340, 0, 1024},
    {"gemma-2-2b", 2614341888, 0, 4096},
    {"gemma-2-9b", 9241705984, 0, 4096},
    {"gemma-2-27b", 27227128320, 0, 4096},
    {"glm-4-9b-chat", 9399951360, 0, 0},
    {"glm-4-32b-0414", 32566081536, 0, 0},
    {"glm-4-9b-0414", 9400279040, 0, 0},
    {"hyperclovax-14b", 14748112896, 0, 0},
    {"helium-1-2b", 2172643840, 0, 0},
    {"solar-open-100b", 102651799552, 12.0, 0},
    {"hunyuan-7b", 7504568320, 0, 0},
    {"hunyuan-a13b", 80393183232, 12.7, 0},
    {"olmoe-1b-7b", 6919161856, 1.3, 0},
    {"granite-3.1-1b-a400m", 1334628352, 0.4, 0},
    {"dots.llm1", 142774381696, 14.0, 0},
    {"granite-3.1-3b-a800m", 3298793472, 0.8, 0},
    {"ernie-4.5-0.3b", 360748032, 0, 0},
    {"ernie-4.5-21b-a3b", 21825437888, 3.4, 0},
    {"seed-oss-36b", 36151104512, 0, 0},
    {"exaone-4-1.2b", 1279391488, 0, 0},
    {"exaone-4-32b", 32003216384, 0, 4096},
    {"qwen1.5-moe-a2.7b", 14315784192, 2.7, 0},
    {"qwen2-57b-a14b", 57408658944, 14.2, 0},
    {"deepseek-v2-lite", 15706484224, 2.7, 0},
    {"deepseek-v3", 671026419200, 37.6, 0},
    {"kimi-k2", 1026408232448, 32.9, 0},
    {"glm-4.7-flash", 29943393920, 3.9, 0},
    {"command-r", 34980831232, 0, 0},
    {"command-r-plus", 103810674688, 0, 0},
    {"command-r7b", 8028033024, 0, 4096},
    {"command-a", 111057580032, 0, 4096},
    {"llama-4-scout", 107769861120, 17.2, 8192},
    {"phi-2", 2779683840, 0, 0},
    {"k-exaone-236b", 236571156352, 23.7, 128},
    {"lfm2-350m", 354483968, 0, 0},
    {"lfm2-1.2b", 1170340608, 0, 0},
    {"lfm2-8b-a1b", 8339930560, 1.6, 0},
    {"apertus-8b", 8053338176, 0, 0},
    {"starcoder2-3b", 3030371328, 0, 4096},
    {"starcoder2-7b", 7173923840, 0, 4096},
    {"stablelm-2-1.6b", 1644515328, 0, 0},
    {"stablelm-2-12b", 12143185920, 0, 0},
    {"internlm3-8b", 8804241408, 0, 0},
    {"afm-4.5b", 4619184640, 0, 0},
    {"cwm-32b", 32581097472, 0, 8192},
    {"gemma-2b", 2506172416, 0, 0},
    {"gemma-7b", 8537680896, 0, 0},
    {"jais-2-8b", 8090401280, 0, 0},
    {"minicpm-2b", 2724880896, 0, 0},
    {"nanochat-d32", 1879048192, 0, 0},
    {"nemotron-mini-4b", 4190509056, 0, 0},
    {"nemotron-nano-9b-v2", 8888227328, 0, 0},
    {"nemotron-3-nano-30b-a3b", 31577940288, 3.6, 0},
};

static void test_bench_configs(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bench_configs); i++) {
        char folder[256];
        struct model_config c;
        struct generation_config generation;
        struct layer_table table;
        struct err err = {0};
        snprintf(folder, sizeof folder, "bench/configs/%s", bench_configs[i].name);
        if (folder_model_config(&c, &generation, folder, &err) != OK) fail_msg("%s", err.message);
        if (family_resolve(&table, &c, &err)) fail_msg("%s", err.message);
        uint64_t total = decoder_num_parameters(&c, &table);
        if (total != bench_configs[i].num_parameters) {
            fail_msg("%s has %llu parameters, want %llu", bench_configs[i].name,
                     (unsigned long long)total,
                     (unsigned long long)bench_configs[i].num_parameters);
        }
        double active = (double)decoder_num_active_parameters(&c, &table) / 1e9;
        double want = bench_configs[i].active > 0 ? bench_configs[i].active : (double)total / 1e9;
        assert_true(active > want - 0.1 && active < want + 0.1);
        assert_int_equal(c.dtype, DTYPE_BF16);
        assert_int_equal(c.sliding_window, bench_configs[i].window);
        assert_false(generation.has_temperature);
        layer_table_fini(&table);
        model_config_fini(&c);
    }
}

// Each rank has a part of every expert, as of a dense MLP, and the parts add up to the whole.
static void test_ranks_share_every_expert(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"architectures", "[\"Qwen3MoeForCausalLM\"]"}, {"moe_intermediate_size", "50"});
    struct layer_table table;
    uint32_t next = 0;
    assert_int_equal(family_resolve(&table, &config, NULL), OK);
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct decoder_shape shape;
        struct err err = {0};
        if (decoder_shape_of(&shape, &config, &table, rank, 4, &err)) fail_msg("%s", err.message);
        assert_int_equal(shape.expert_start, next);
        assert_in_range(shape.expert_size, 12, 14);
        next += shape.expert_size;
    }
    assert_int_equal(next, 50);
    layer_table_fini(&table);
    model_config_fini(&config);
}

// GPUs want multiples of 8, which are kept even where shares then differ.
static void test_shares_are_multiples_of_8(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"architectures", "[\"Qwen3MoeForCausalLM\"]"}, {"moe_intermediate_size", "40"});
    struct layer_table table;
    assert_int_equal(family_resolve(&table, &config, NULL), OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct decoder_shape shape;
        struct err err = {0};
        if (decoder_shape_of(&shape, &config, &table, rank, 2, &err)) fail_msg("%s", err.message);
        assert_int_equal(shape.expert_size, rank ? 24 : 16);
    }
    layer_table_fini(&table);
    model_config_fini(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_keys_and_defaults_of_biases),
        cmocka_unit_test(test_layers_are_described_one_by_one),
        cmocka_unit_test(test_layers_with_changed_scores_are_not_even),
        cmocka_unit_test(test_scales_of_q_by_position),
        cmocka_unit_test(test_hyperclovax_may_have_no_norms_behind),
        cmocka_unit_test(test_granite4_may_have_no_rope),
        cmocka_unit_test(test_heads_of_gemma4),
        cmocka_unit_test(test_layers_of_gemma4_by_number),
        cmocka_unit_test(test_gemma4_reads_keys_of_the_last_layer_of_a_kind),
        cmocka_unit_test(test_heads_of_every_layer_are_checked),
        cmocka_unit_test(test_what_has_no_code_is_refused),
        cmocka_unit_test(test_unknown_architecture_tells_those_alike),
        cmocka_unit_test(test_biases_that_a_family_lacks),
        cmocka_unit_test(test_bench_configs),
        cmocka_unit_test(test_ranks_share_every_expert),
        cmocka_unit_test(test_shares_are_multiples_of_8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
