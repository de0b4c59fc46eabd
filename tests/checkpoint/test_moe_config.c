// The keys of a mixture of experts: transformers' defaults, both names of the count, which layers
// are sparse, and the message for each malformed configuration.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/config_text.h"

#define QWEN3_MOE                                                                                  \
    { "architectures", "[\"Qwen3MoeForCausalLM\"]" }

static void test_defaults(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(QWEN3_MOE);
    assert_int_equal(config.moe.num_experts, 128);
    assert_int_equal(config.moe.num_experts_per_tok, 8);
    assert_int_equal(config.moe.intermediate_size, 768);
    assert_false(config.moe.norm_topk_prob);
    assert_int_equal(config.moe.num_sparse_layers, 3);
    for (int i = 0; i < 3; i++) assert_true(config.moe.is_sparse[i]);
    model_config_fini(&config);
    model_config_fini(&config); // again is fine
}

static void test_values(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK(QWEN3_MOE, {"num_experts_per_tok", "5"}, {"moe_intermediate_size", "96"},
                 {"norm_topk_prob", "true"});
    assert_int_equal(config.moe.num_experts_per_tok, 5);
    assert_int_equal(config.moe.intermediate_size, 96);
    assert_true(config.moe.norm_topk_prob);
    model_config_fini(&config);
}

// Mixtral's class has only the keys of the two counts: others are ignored.
static void test_mixtral(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"architectures", "[\"MixtralForCausalLM\"]"}, {"moe_intermediate_size", "96"},
                 {"mlp_only_layers", "[0]"}, {"norm_topk_prob", "false"});
    assert_int_equal(config.moe.num_experts, 8);
    assert_int_equal(config.moe.num_experts_per_tok, 2);
    assert_int_equal(config.moe.intermediate_size, config.intermediate_size);
    assert_true(config.moe.norm_topk_prob);
    assert_int_equal(config.moe.num_sparse_layers, 3);
    assert_true(config.rms_norm_eps == 1e-5f && config.rope.theta == 1e6);
    model_config_fini(&config);
}

static void test_gpt_oss(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"architectures", "[\"GptOssForCausalLM\"]"},
                                          {"num_hidden_layers", "3"}, {"hidden_size", "96"});
    assert_int_equal(config.moe.num_experts, 128);
    assert_int_equal(config.moe.num_experts_per_tok, 4);
    assert_int_equal(config.moe.layout, EXPERTS_INTERLEAVED);
    assert_true(config.moe.norm_topk_prob);
    assert_int_equal(config.head_dim, 64);
    assert_int_equal(config.sliding_window, 128);
    assert_true(config.is_sliding[0] && !config.is_sliding[1] && config.is_sliding[2]);
    assert_true(config.rms_norm_eps == 1e-5f && config.rope.theta == 1.5e5);
    // The class's rotary embedding, where config.json has none.
    assert_int_equal(config.rope.type, ROPE_YARN);
    assert_true(config.rope.factor == 32 && !config.rope.truncate);
    assert_true(config.rope.original_max_position_embeddings == 4096);
    model_config_fini(&config);
}

#define GLM4_MOE                                                                                   \
    { "architectures", "[\"Glm4MoeForCausalLM\"]" }

static void test_glm4_moe(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(GLM4_MOE);
    assert_int_equal(config.moe.num_experts, 128);
    assert_int_equal(config.moe.intermediate_size, 1408);
    assert_int_equal(config.moe.shared_intermediate_size, 1408);
    assert_true(config.moe.norm_topk_prob && config.moe.weights_factor == 1);
    assert_true(!config.moe.is_sparse[0] && config.moe.is_sparse[1] && config.moe.is_sparse[2]);
    assert_int_equal(model_config_rotary_dim(&config), 32);
    assert_int_equal(config.num_draft_layers, 0);
    assert_false(config.own.use_qk_norm);
    model_config_fini(&config);
    config = PARSE_OK(GLM4_MOE, {"n_routed_experts", "16"}, {"n_shared_experts", "2"},
                      {"first_k_dense_replace", "2"}, {"routed_scaling_factor", "2.5"},
                      {"num_nextn_predict_layers", "1"});
    assert_int_equal(config.moe.num_experts, 16);
    assert_int_equal(config.moe.shared_intermediate_size, 2816);
    assert_true(config.moe.weights_factor == 2.5f);
    assert_true(!config.moe.is_sparse[1] && config.moe.is_sparse[2]);
    assert_int_equal(config.num_draft_layers, 1);
    model_config_fini(&config);
}

// transformers' Llama 4 has no such key.
static void test_llama4_has_no_factor(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"architectures", "[\"Llama4ForCausalLM\"]"}, {"intermediate_size_mlp", "96"},
                 {"routed_scaling_factor", "2.5"});
    assert_true(config.moe.weights_factor == 1);
    assert_int_equal(config.moe.shared_intermediate_size, config.moe.intermediate_size);
    model_config_fini(&config);
}

// As in Python, where None is false: the class' defaults are true.
static void test_null_is_false(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"architectures", "[\"DeepseekV3ForCausalLM\"]"},
                                          {"norm_topk_prob", "null"}, {"rope_interleave", "null"});
    assert_false(config.moe.norm_topk_prob);
    assert_false(config.own.has_interleaved_rope);
    model_config_fini(&config);
}

static void test_two_names_of_k_exaone(void **state) {
    (void)state;
    static const char *const names[] = {"[\"ExaoneMoeForCausalLM\"]", "[\"ExaoneMoEForCausalLM\"]"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct model_config config = PARSE_OK({"architectures", names[i]});
        assert_string_equal(config.architecture, "ExaoneMoeForCausalLM");
        assert_int_equal(config.moe.num_experts, 64);
        model_config_fini(&config);
    }
}

// The published file has names and defaults of its own.
static void test_sarvam_mla_is_deepseek_v3(void **state) {
    (void)state;
    static const char text[] =
        "{\"architectures\": [\"SarvamMLAForCausalLM\"], \"model_type\": \"sarvam_mla\", "
        "\"num_experts\": 96, \"num_shared_experts\": 2, "
        "\"rope_scaling\": {\"type\": \"deepseek_yarn\", \"factor\": 40}}";
    struct model_config config;
    struct err err = {0};
    if (model_config_parse(&config, text, sizeof text - 1, "c.json", &err)) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(config.architecture, "DeepseekV3ForCausalLM");
    assert_int_equal(config.moe.num_experts, 96);
    assert_int_equal(config.moe.shared_intermediate_size, 2 * 2048);
    assert_int_equal(config.moe.num_groups, 0);
    assert_int_equal(config.own.latent.query_rank, 0);
    assert_int_equal(config.rope.type, ROPE_YARN);
    model_config_fini(&config);
}

#define ERNIE4_5                                                                                   \
    { "architectures", "[\"Ernie4_5_MoeForCausalLM\"]" }

static void test_ernie4_5(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(ERNIE4_5, {"num_nextn_predict_layers", "1"});
    assert_int_equal(config.moe.num_experts, 64);
    assert_int_equal(config.moe.num_experts_per_tok, 6);
    assert_int_equal(config.moe.intermediate_size, 1536);
    assert_int_equal(config.moe.shared_intermediate_size, 3072);
    assert_true(config.moe.norm_topk_prob && !config.moe.is_sigmoid);
    assert_true(!config.moe.is_sparse[0] && config.moe.is_sparse[1] && config.moe.is_sparse[2]);
    assert_true(config.rope.theta == 5e5 && config.tie_word_embeddings && config.has_other_parts);
    model_config_fini(&config);
    config = PARSE_OK(ERNIE4_5, {"num_hidden_layers", "6"}, {"moe_k", "2"},
                      {"moe_layer_start_index", "2"}, {"moe_layer_end_index", "4"},
                      {"moe_layer_interval", "2"});
    assert_int_equal(config.moe.num_experts_per_tok, 2);
    assert_int_equal(config.moe.num_sparse_layers, 1);
    assert_true(config.moe.is_sparse[3] && !config.has_other_parts);
    model_config_fini(&config);
}

// Experts have the size of a dense MLP, and norm_topk_prob is a key of the class.
static void test_olmoe(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"architectures", "[\"OlmoeForCausalLM\"]"});
    assert_int_equal(config.moe.intermediate_size, config.intermediate_size);
    assert_false(config.moe.norm_topk_prob);
    model_config_fini(&config);
    config = PARSE_OK({"architectures", "[\"OlmoeForCausalLM\"]"}, {"norm_topk_prob", "true"});
    assert_true(config.moe.norm_topk_prob);
    model_config_fini(&config);
}

#define DEEPSEEK_V3                                                                                \
    { "architectures", "[\"DeepseekV3ForCausalLM\"]" }

#define HUNYUAN                                                                                    \
    { "architectures", "[\"HunYuanMoEV1ForCausalLM\"]" }

static void test_hunyuan(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK(HUNYUAN, {"num_experts", "16"}, {"moe_topk", "[3, 3, 3]"},
                 {"num_shared_expert", "[1, 1, 1]"}, {"head_dim", "64"},
                 {"rope_scaling", "{\"type\": \"dynamic\", \"alpha\": 2.0, \"factor\": 1.0}"});
    assert_int_equal(config.moe.num_experts_per_tok, 3);
    assert_int_equal(config.moe.intermediate_size, config.intermediate_size);
    assert_int_equal(config.moe.shared_intermediate_size, config.intermediate_size);
    assert_int_equal(config.moe.num_sparse_layers, 3);
    assert_int_equal(config.rope.type, ROPE_DEFAULT);
    assert_true(fabs(config.rope.theta - 1e4 * pow(2, 64.0 / 62)) < 1e-6);
    model_config_fini(&config);
}

static void test_minimax_m2(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"architectures", "[\"MiniMaxM2ForCausalLM\"]"},
                                          {"rotary_dim", "64"}, {"sliding_window", "null"});
    assert_int_equal(config.moe.num_experts, 256);
    assert_int_equal(config.moe.intermediate_size, 512);
    assert_int_equal(config.moe.num_sparse_layers, 3);
    assert_true(config.moe.norm_topk_prob && config.moe.weights_factor == 1);
    assert_int_equal(config.head_dim, 128);
    assert_int_equal(model_config_rotary_dim(&config), 64);
    assert_true(config.rope.theta == 5e6);
    model_config_fini(&config);
}

static void test_both_names_of_the_count(void **state) {
    (void)state;
    static const struct field cases[][2] = {
        {{"num_experts", "16"}, {NULL, NULL}},
        {{"num_local_experts", "16"}, {NULL, NULL}},
        {{"num_experts", "16"}, {"num_local_experts", "16"}},
        {{"num_experts", "null"}, {"num_local_experts", "16"}},
        {{"num_experts", "16"}, {"num_local_experts", "null"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model_config config = PARSE_OK(QWEN3_MOE, cases[i][0], cases[i][1]);
        assert_int_equal(config.moe.num_experts, 16);
        model_config_fini(&config);
    }
}

// `want` has a letter for each layer; S is a sparse one.
static void check_layers(const char *num_layers, const char *step, const char *only,
                         const char *want) {
    struct model_config config = PARSE_OK(QWEN3_MOE, {"num_hidden_layers", num_layers},
                                          {"decoder_sparse_step", step}, {"mlp_only_layers", only});
    assert_int_equal(config.num_layers, strlen(want));
    uint32_t num_sparse = 0;
    for (uint32_t i = 0; i < config.num_layers; i++) {
        bool sparse = config.moe.num_experts && config.moe.is_sparse[i];
        if (sparse != (want[i] == 'S')) fail_msg("step %s, only %s: layer %u", step, only, i);
        num_sparse += sparse;
    }
    assert_int_equal(config.moe.num_sparse_layers, num_sparse);
    model_config_fini(&config);
}

static void test_sparse_layers(void **state) {
    (void)state;
    check_layers("5", "1", "[]", "SSSSS");
    check_layers("5", "1", "null", "SSSSS");
    check_layers("5", "2", "[]", ".S.S.");
    check_layers("6", "3", "[]", "..S..S");
    check_layers("5", "1", "[0, 3]", ".SS.S");
    check_layers("5", "2", "[1, 1, 2]", "...S.");
    check_layers("2", "3", "[]", "..");
    check_layers("2", "1", "[1, 0]", "..");
}

// With no experts, or no sparse layer, the model is dense and config.moe is all zero.
static void test_no_experts_is_dense(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK(QWEN3_MOE, {"num_experts", "0"}, {"num_experts_per_tok", "0"});
    assert_int_equal(config.moe.num_experts, 0);
    assert_int_equal(config.moe.num_sparse_layers, 0);
    assert_null(config.moe.is_sparse);
    model_config_fini(&config);
    config = PARSE_OK(QWEN3_MOE, {"mlp_only_layers", "[0, 1, 2]"});
    assert_int_equal(config.moe.num_experts, 0);
    assert_null(config.moe.is_sparse);
    model_config_fini(&config);
}

static void test_dense_architectures_have_none(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"num_experts", "8"});
    assert_int_equal(config.moe.num_experts, 0);
    model_config_fini(&config);
}

static void test_malformed(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{GLM4_MOE, {"n_routed_experts", "16"}, {"num_local_experts", "8"}},
         ERR_FORMAT,
         "n_routed_experts|16|num_local_experts|8"},
        {{GLM4_MOE, {"n_shared_experts", "4096"}, {"moe_intermediate_size", "20000"}},
         ERR_FORMAT,
         "4096 shared experts|too many"},
        {{GLM4_MOE, {"routed_scaling_factor", "0"}}, ERR_FORMAT, "routed_scaling_factor|0"},
        {{QWEN3_MOE, {"num_experts_per_tok", "129"}},
         ERR_FORMAT,
         "num_experts_per_tok|129|more than the 128"},
        {{QWEN3_MOE, {"num_local_experts", "4"}}, ERR_FORMAT, "num_experts_per_tok|8|the 4"},
        {{QWEN3_MOE, {"num_experts_per_tok", "0"}}, ERR_FORMAT, "num_experts_per_tok|0|1 to"},
        {{QWEN3_MOE, {"num_experts_per_tok", "257"}}, ERR_FORMAT, "num_experts_per_tok|257"},
        {{QWEN3_MOE, {"num_experts_per_tok", "\"8\""}}, ERR_FORMAT, "num_experts_per_tok|a string"},
        {{QWEN3_MOE, {"num_experts", "-1"}}, ERR_FORMAT, "num_experts|-1"},
        {{QWEN3_MOE, {"num_experts", "4097"}}, ERR_FORMAT, "num_experts|4097|4096"},
        {{QWEN3_MOE, {"num_local_experts", "9999999999"}}, ERR_FORMAT, "num_local_experts|0 to"},
        {{QWEN3_MOE, {"num_experts", "16"}, {"num_local_experts", "8"}},
         ERR_FORMAT,
         "num_experts|16|num_local_experts|8"},
        {{QWEN3_MOE, {"moe_intermediate_size", "0"}}, ERR_FORMAT, "moe_intermediate_size|0"},
        {{QWEN3_MOE, {"moe_intermediate_size", "2097152"}},
         ERR_FORMAT,
         "128 experts|intermediate size|2097152|too many"},
        {{QWEN3_MOE, {"decoder_sparse_step", "0"}}, ERR_FORMAT, "decoder_sparse_step|0|1 to"},
        {{QWEN3_MOE, {"mlp_only_layers", "3"}}, ERR_FORMAT, "mlp_only_layers|an integer|list"},
        {{QWEN3_MOE, {"mlp_only_layers", "[0, 3]"}}, ERR_FORMAT, "mlp_only_layers|3|0 to 2"},
        {{QWEN3_MOE, {"mlp_only_layers", "[-1]"}}, ERR_FORMAT, "mlp_only_layers|-1|0 to 2"},
        {{QWEN3_MOE, {"mlp_only_layers", "[1, true]"}},
         ERR_FORMAT,
         "mlp_only_layers|a boolean at 1|layer number"},
        {{QWEN3_MOE, {"norm_topk_prob", "1"}}, ERR_FORMAT, "norm_topk_prob|true or false"},
        {{{"architectures", "[\"Dots1ForCausalLM\"]"}, {"n_group", "8"}},
         ERR_UNSUPPORTED,
         "n_group|8"},
        {{{"architectures", "[\"DeepseekV2ForCausalLM\"]"}},
         ERR_FORMAT,
         "num_experts_per_tok|missing"},
        {{{"architectures", "[\"Dots1ForCausalLM\"]"},
          {"n_routed_experts", "8"},
          {"num_experts_per_tok", "2"}},
         ERR_FORMAT,
         "moe_intermediate_size|missing"},
        {{DEEPSEEK_V3, {"n_routed_experts", "4"}},
         ERR_FORMAT,
         "num_experts_per_tok|8|the 4 of|n_routed_experts"},
        {{DEEPSEEK_V3, {"n_group", "7"}}, ERR_FORMAT, "n_group|7|topk_group|256 experts"},
        {{DEEPSEEK_V3, {"n_group", "32"}, {"topk_group", "1"}, {"num_experts_per_tok", "9"}},
         ERR_FORMAT,
         "n_group|32|9"},
        {{DEEPSEEK_V3, {"topk_group", "9"}}, ERR_FORMAT, "topk_group|9|1 to 8"},
        {{DEEPSEEK_V3, {"topk_method", "\"greedy\""}}, ERR_UNSUPPORTED, "topk_method|greedy"},
        {{DEEPSEEK_V3, {"kv_lora_rank", "40"}}, ERR_UNSUPPORTED, "kv_lora_rank|40|16"},
        {{DEEPSEEK_V3, {"mlp_layer_types", "[\"dense\"]"}},
         ERR_FORMAT,
         "mlp_layer_types|1|3 layers"},
        {{{"architectures", "[\"DeepseekV2ForCausalLM\"]"},
          {"num_experts_per_tok", "6"},
          {"topk_method", "\"noaux_tc\""}},
         ERR_UNSUPPORTED,
         "topk_method|noaux_tc"},
        {{HUNYUAN, {"num_experts", "16"}, {"moe_topk", "[3, 2]"}},
         ERR_UNSUPPORTED,
         "moe_topk|differs"},
        {{{"architectures", "[\"AfmoeForCausalLM\"]"}, {"score_func", "\"softmax\""}},
         ERR_UNSUPPORTED,
         "score_func|softmax"},
        {{{"architectures", "[\"Cohere2MoeForCausalLM\"]"}, {"expert_selection_fn", "\"relu\""}},
         ERR_UNSUPPORTED,
         "expert_selection_fn|relu|softmax and sigmoid"},
        {{{"architectures", "[\"Cohere2MoeForCausalLM\"]"},
          {"shared_expert_combination_strategy", "\"gate\""}},
         ERR_UNSUPPORTED,
         "shared_expert_combination_strategy|gate|average and sum"},
        {{{"architectures", "[\"HYV3ForCausalLM\"]"}, {"first_k_dense_replace", "2"}},
         ERR_UNSUPPORTED,
         "first_k_dense_replace|2"},
        {{{"architectures", "[\"Mistral4ForCausalLM\"]"}, {"partial_rotary_factor", "0.25"}},
         ERR_UNSUPPORTED,
         "partial_rotary_factor|0.25|0.5"},
        {{{"architectures", "[\"SolarOpenForCausalLM\"]"}, {"topk_group", "2"}},
         ERR_UNSUPPORTED,
         "topk_group|2"},
        {{HUNYUAN, {"num_experts", "16"}, {"moe_topk", "[0]"}}, ERR_FORMAT, "moe_topk|0|1 to 256"},
        {{HUNYUAN, {"num_shared_expert", "[1, 2, 1]"}}, ERR_UNSUPPORTED, "num_shared_expert|2"},
        {{QWEN3_MOE, {"rope_scaling", "{\"type\": \"dynamic\", \"alpha\": 2.0}"}},
         ERR_UNSUPPORTED,
         "alpha|2"},
        {{HUNYUAN, {"rope_scaling", "{\"type\": \"linear\", \"alpha\": 2.0, \"factor\": 2.0}"}},
         ERR_UNSUPPORTED,
         "alpha|linear|dynamic"},
        {{ERNIE4_5, {"use_bias", "true"}}, ERR_UNSUPPORTED, "use_bias|true"},
        {{ERNIE4_5, {"moe_layer_end_index", "-2"}}, ERR_FORMAT, "moe_layer_end_index|-2"},
    };
    REFUSE_ALL(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_mixtral),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_glm4_moe),
        cmocka_unit_test(test_llama4_has_no_factor),
        cmocka_unit_test(test_null_is_false),
        cmocka_unit_test(test_two_names_of_k_exaone),
        cmocka_unit_test(test_sarvam_mla_is_deepseek_v3),
        cmocka_unit_test(test_ernie4_5),
        cmocka_unit_test(test_olmoe),
        cmocka_unit_test(test_hunyuan),
        cmocka_unit_test(test_minimax_m2),
        cmocka_unit_test(test_both_names_of_the_count),
        cmocka_unit_test(test_sparse_layers),
        cmocka_unit_test(test_no_experts_is_dense),
        cmocka_unit_test(test_dense_architectures_have_none),
        cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
