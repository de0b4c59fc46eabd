// Keys of config.json that only some architectures have: what they mean there, in both forms of the
// file, and what is refused.
#include "checkpoint/model_config.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/config_text.h"

#define SMOLLM3                                                                                    \
    { "architectures", "[\"SmolLM3ForCausalLM\"]" }

#define LFM2                                                                                       \
    { "architectures", "[\"Lfm2ForCausalLM\"]" }

#define GPT_OSS                                                                                    \
    { "architectures", "[\"GptOssForCausalLM\"]" }

// Layers with windows have another rotary embedding, in both forms.
static void test_both_forms_of_local_ropes(void **state) {
    (void)state;
    static const struct {
        const char *family;
        enum rope_type rope;
        double theta, local_theta;
    } cases[] = {{"gemma3", ROPE_LINEAR, 1e6, 1e4}, {"olmo3", ROPE_YARN, 5e5, 5e5}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int form = 0; form < 2; form++) {
            char path[256];
            struct model_config config;
            snprintf(path, sizeof path, "tests/reference/data/%s/config%s.json", cases[i].family,
                     form ? "_published_form" : "");
            parse_path(&config, path);
            assert_int_equal(config.rope.type, cases[i].rope);
            assert_true(config.rope.theta == cases[i].theta);
            assert_int_equal(config.local_rope.type, ROPE_DEFAULT);
            assert_true(config.local_rope.theta == cases[i].local_theta);
            assert_int_equal(config.sliding_window, 48);
            assert_true(config.is_sliding[0]);
            assert_false(config.is_sliding[i == 0 ? 5 : 3]);
            model_config_fini(&config);
        }
    }
}

static void test_layers_without_rope(void **state) {
    (void)state;
    struct model_config config =
        parse_ok((const struct field[CHANGES_MAX]){SMOLLM3, {"num_hidden_layers", "6"}});
    for (int i = 0; i < 6; i++) assert_int_equal(config.own.has_no_rope[i], i == 3);
    model_config_fini(&config);
    config = parse_ok((const struct field[CHANGES_MAX]){
        SMOLLM3, {"num_hidden_layers", "3"}, {"no_rope_layers", "[0, 1, 0, 1]"}});
    for (int i = 0; i < 3; i++) assert_int_equal(config.own.has_no_rope[i], i != 1);
    model_config_fini(&config);
}

// LFM2 names the layers with attention, or all layers' types. Its MLP is rounded up.
static void test_layers_of_lfm2(void **state) {
    (void)state;
    static const char *const lists[][2] = {
        {"full_attn_idxs", "[1]"}, {"layer_types", "[\"conv\", \"full_attention\", \"conv\"]"}};
    for (size_t i = 0; i < 2; i++) {
        struct model_config config = PARSE_OK(
            LFM2, {lists[i][0], lists[i][1]}, {"block_ff_dim", "600"}, {"block_multiple_of", "64"},
            {"intermediate_size", i ? "512" : "null"}, {"tie_embedding", i ? "false" : "null"});
        for (int k = 0; k < 3; k++) assert_int_equal(config.own.is_linear[k], k != 1);
        assert_int_equal(config.intermediate_size, 448); // 7 x 64, for 400
        assert_int_equal(config.tie_word_embeddings, i == 0);
        model_config_fini(&config);
    }
}

static void test_what_new_classes_may_not_have(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{{"architectures", "[\"Cohere2ForCausalLM\"]"}, {"use_parallel_block", "false"}},
         ERR_UNSUPPORTED,
         "use_parallel_block"},
        {{{"architectures", "[\"Cohere2ForCausalLM\"]"}, {"hidden_act", "\"gelu\""}},
         ERR_UNSUPPORTED,
         "hidden_act|gelu|silu"},
        {{{"architectures", "[\"ArceeForCausalLM\"]"}, {"hidden_act", "\"silu\""}},
         ERR_UNSUPPORTED,
         "hidden_act|silu|relu2"},
        {{{"architectures", "[\"StableLmForCausalLM\"]"}, {"qk_layernorm", "1"}},
         ERR_FORMAT,
         "qk_layernorm"},
        {{LFM2, {"full_attn_idxs", "[0, \"x\"]"}}, ERR_FORMAT, "full_attn_idxs|at 1, want 0 to 2"},
        {{LFM2, {"full_attn_idxs", "[3]"}}, ERR_FORMAT, "full_attn_idxs|at 0, want 0 to 2"},
        {{LFM2, {"block_ff_dim", "1"}}, ERR_FORMAT, "size, 1, becomes 0|block_auto_adjust_ff_dim"},
        {{LFM2, {"block_ff_dim", "2097152"}, {"block_ffn_dim_multiplier", "64"}},
         ERR_FORMAT,
         "2097152, becomes 89478656|1 to 2097152"},
        {{LFM2, {"conv_bias", "true"}}, ERR_UNSUPPORTED, "conv_bias"},
        {{{"architectures", "[\"Lfm2ForCausalLM\"]"}, {"conv_L_cache", "4"}},
         ERR_UNSUPPORTED,
         "conv_L_cache|4"},
        {{{"architectures", "[\"Lfm2ForCausalLM\"]"}, {"layer_types", "[\"conv\"]"}},
         ERR_FORMAT,
         "layer_types|1"},
        {{{"architectures", "[\"Lfm2ForCausalLM\"]"},
          {"num_hidden_layers", "1"},
          {"layer_types", "[\"linear_attention\"]"}},
         ERR_UNSUPPORTED,
         "layer_types|linear_attention|conv"},
        {{{"architectures", "[\"Lfm2MoeForCausalLM\"]"}, {"use_expert_bias", "false"}},
         ERR_UNSUPPORTED,
         "use_expert_bias"},
        {{{"architectures", "[\"Llama4ForCausalLM\"]"},
          {"intermediate_size_mlp", "96"},
          {"num_experts_per_tok", "2"}},
         ERR_UNSUPPORTED,
         "num_experts_per_tok|2|1"},
        {{{"architectures", "[\"Llama4ForCausalLM\"]"},
          {"intermediate_size_mlp", "96"},
          {"attn_temperature_tuning", "\"yes\""}},
         ERR_FORMAT,
         "attn_temperature_tuning|a string"},
        {{{"architectures", "[\"AfmoeForCausalLM\"]"}, {"sliding_window", "null"}},
         ERR_UNSUPPORTED,
         "sliding_window|null"},
        {{{"architectures", "[\"ApertusForCausalLM\"]"}, {"qk_norm", "false"}},
         ERR_UNSUPPORTED,
         "qk_norm"},
        {{{"architectures", "[\"BambaForCausalLM\"]"}, {"partial_rotary_factor", "0.25"}},
         ERR_UNSUPPORTED,
         "partial_rotary_factor|0.25|0.5"},
        {{{"architectures", "[\"GraniteSWAForCausalLM\"]"}, {"layer_rope_theta", "[1e4]"}},
         ERR_FORMAT,
         "layer_rope_theta|of 1, want|3 layers"},
        {{{"architectures", "[\"GraniteSWAForCausalLM\"]"},
          {"layer_rope_theta", "[1e4, 0, \"x\"]"}},
         ERR_FORMAT,
         "layer_rope_theta|a string at 2"},
        {{{"architectures", "[\"GraniteSWAForCausalLM\"]"}, {"layer_rope_theta", "[1e4, 0.5, 0]"}},
         ERR_FORMAT,
         "layer_rope_theta|another number at 1"},
        {{{"architectures", "[\"GemmaForCausalLM\"]"}, {"hidden_act", "\"silu\""}},
         ERR_UNSUPPORTED,
         "hidden_act|silu|gelu_pytorch_tanh"},
    };
    REFUSE_ALL(cases);
}

static void test_factors(void **state) {
    (void)state;
    struct model_config config =
        parse_ok((const struct field[CHANGES_MAX]){{"architectures", "[\"GraniteForCausalLM\"]"},
                                                   {"embedding_multiplier", "12"},
                                                   {"residual_multiplier", "0.25"},
                                                   {"logits_scaling", "8"}});
    assert_true(config.own.embedding_multiplier == 12);
    assert_true(config.own.residual_multiplier == 0.25f);
    assert_true(config.own.attention_multiplier == 0); // not given
    assert_true(config.own.logits_scaling == 8);
    model_config_fini(&config);
}

// A missing key is the class' limit, null is none.
static void test_soft_limits(void **state) {
    (void)state;
    const struct field gemma2 = {"architectures", "[\"Gemma2ForCausalLM\"]"};
    const struct {
        struct field changes[CHANGES_MAX];
        float scores, logits;
    } cases[] = {
        {{gemma2}, 50, 30},
        {{gemma2, {"attn_logit_softcapping", "null"}}, 0, 30},
        {{gemma2, {"attn_logit_softcapping", "2.5"}, {"final_logit_softcapping", "null"}}, 2.5f, 0},
        {{{"architectures", "[\"Gemma4ForCausalLM\"]"}, {"vocab_size", "262144"}}, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config config = parse_ok(cases[i].changes);
        assert_true(config.own.scores_softcap == cases[i].scores);
        assert_true(config.own.logits_softcap == cases[i].logits);
        model_config_fini(&config);
    }
}

// EXAONE's files write the pattern of windows in letters.
static void test_windows_in_letters(void **state) {
    (void)state;
    struct model_config config;
    parse_path(&config, "bench/configs/exaone-4-32b/config.json");
    for (int i = 0; i < 64; i++) assert_int_equal(config.is_sliding[i], i % 4 != 3);
    model_config_fini(&config);
    static const struct refusal mixed[] = {
        {{{"architectures", "[\"Exaone4ForCausalLM\"]"}, {"sliding_window_pattern", "\"LGLG\""}},
         ERR_FORMAT,
         "sliding_window_pattern|string"}};
    REFUSE_ALL(mixed);
}

static void test_sizes_that_gemma3_leaves_out(void **state) {
    (void)state;
    struct model_config config;
    parse_path(&config, "bench/configs/gemma-3-4b/config.json");
    assert_string_equal(config.architecture, "Gemma3ForCausalLM");
    assert_true(config.has_other_parts && config.tie_word_embeddings);
    assert_int_equal(config.vocab_size, 262208);
    assert_int_equal(config.num_heads, 8);
    assert_int_equal(config.num_kv_heads, 4);
    assert_int_equal(config.head_dim, 256);
    assert_int_equal(config.max_position_embeddings, 131072);
    assert_true(config.rope.theta == 1e6 && config.rope.factor == 8);
    assert_true(config.local_rope.theta == 1e4);
    assert_int_equal(config.num_eos_token_ids, 2);
    model_config_fini(&config);
}

#define QWEN3_5                                                                                    \
    { "architectures", "[\"Qwen3_5ForCausalLM\"]" }

// The text part with drafts and images beside it; and the published form of a text model.
static void test_delta_nets(void **state) {
    (void)state;
    struct model_config config;
    parse_path(&config, "bench/configs/qwen3.5-35b-a3b/config.json");
    assert_string_equal(config.architecture, "Qwen3_5MoeForCausalLM");
    assert_true(config.has_other_parts);
    assert_int_equal(config.own.delta.num_key_heads, 16);
    assert_int_equal(config.own.delta.num_heads, 32);
    assert_int_equal(config.own.delta.key_dim, 128);
    assert_int_equal(model_config_rotary_dim(&config), 64);
    assert_int_equal(config.moe.num_sparse_layers, 40);
    assert_int_equal(config.moe.shared_intermediate_size, 512);
    assert_true(config.moe.norm_topk_prob);
    for (int i = 0; i < 40; i++) assert_int_equal(config.own.is_linear[i], i % 4 != 3);
    model_config_fini(&config);
    for (int form = 0; form < 2; form++) {
        char path[256];
        snprintf(path, sizeof path, "tests/reference/data/qwen3-next/config%s.json",
                 form ? "_published_form" : "");
        parse_path(&config, path);
        assert_int_equal(model_config_rotary_dim(&config), 8);
        assert_int_equal(config.own.delta.value_dim, 32);
        assert_true(config.own.is_linear[2] && !config.own.is_linear[3]);
        assert_false(config.moe.is_sparse[1]);
        model_config_fini(&config);
    }
}

static void test_defaults_of_delta_nets(void **state) {
    (void)state;
    struct model_config config = parse_ok((const struct field[CHANGES_MAX]){
        QWEN3_5, {"num_hidden_layers", "4"}, {"full_attention_interval", "2"}, {"head_dim", NULL}});
    assert_int_equal(config.head_dim, 256);
    assert_int_equal(model_config_rotary_dim(&config), 64);
    assert_int_equal(config.own.delta.num_heads, 32);
    for (int i = 0; i < 4; i++) assert_int_equal(config.own.is_linear[i], i % 2 == 0);
    model_config_fini(&config);
}

// Of positions in three parts a text model has equal ones. Either key alone says that there are.
static void test_positions_in_parts(void **state) {
    (void)state;
    static const char *const keys[] = {"\"mrope_section\": [2, 1, 1]",
                                       "\"mrope_interleaved\": true"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        char text[512];
        struct model_config config;
        struct err err = {0};
        snprintf(text, sizeof text,
                 "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"model_type\": \"qwen3_5_text\","
                 " \"vocab_size\": 1000, \"hidden_size\": 256, \"intermediate_size\": 512,"
                 " \"num_hidden_layers\": 3, \"num_attention_heads\": 4,"
                 " \"max_position_embeddings\": 2048, \"rope_parameters\": {\"rope_type\": "
                 "\"default\", \"rope_theta\": 500, %s}}",
                 keys[i]);
        if (model_config_parse(&config, text, strlen(text), "c.json", &err)) {
            fail_msg("%s", err.message);
        }
        assert_int_equal(config.rope.type, ROPE_DEFAULT);
        assert_true(config.rope.theta == 500);
        model_config_fini(&config);
    }
}

// Qwen3.5's class knows none of these keys: all layers have experts, whose weights sum to 1.
static void test_experts_in_every_layer(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(
        {"architectures", "[\"Qwen3_5MoeForCausalLM\"]"}, {"num_hidden_layers", "4"},
        {"mlp_only_layers", "[0]"}, {"decoder_sparse_step", "2"}, {"norm_topk_prob", "false"});
    assert_int_equal(config.moe.num_sparse_layers, 4);
    assert_true(config.moe.norm_topk_prob);
    model_config_fini(&config);
}

#define GLM4_MOE                                                                                   \
    { "architectures", "[\"Glm4MoeForCausalLM\"]" }
#define MINIMAX_M2                                                                                 \
    { "architectures", "[\"MiniMaxM2ForCausalLM\"]" }
#define MINISTRAL3                                                                                 \
    { "architectures", "[\"Ministral3ForCausalLM\"]" }
#define GRANITE4                                                                                   \
    {"architectures", "[\"GraniteMoeHybridForCausalLM\"]"}, {                                      \
        "shared_intermediate_size", "64"                                                           \
    }

static void test_scale_of_q(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(MINISTRAL3);
    assert_int_equal(config.rope.type, ROPE_YARN);
    assert_true(config.rope.theta == 1e6 && config.rope.factor == 16);
    assert_true(config.rope.query_beta == 0.1 && config.rope.query_length == 16384);
    assert_true(config.rope.mscale == 1 && config.rope.mscale_all_dim == 1);
    assert_int_equal(config.head_dim, 128);
    assert_int_equal(config.sliding_window, 0);
    model_config_fini(&config);
    config = PARSE_OK(MINISTRAL3,
                      {"rope_parameters", "{\"rope_theta\": 500, \"llama_4_scaling_beta\": 0.25, "
                                          "\"original_max_position_embeddings\": 64}"});
    assert_int_equal(config.rope.type, ROPE_DEFAULT);
    assert_true(config.rope.query_beta == 0.25 && config.rope.query_length == 64);
    model_config_fini(&config);
    parse_path(&config, "bench/configs/ministral-3-3b/config.json");
    assert_string_equal(config.architecture, "Ministral3ForCausalLM");
    assert_true(config.has_other_parts && config.tie_word_embeddings);
    assert_int_equal(config.quantization.method, QUANTIZED_FP8);
    model_config_fini(&config);
}

// Qwen2.5-VL as published: the text model's keys are beside those of images.
static void test_text_model_beside_images(void **state) {
    (void)state;
    static const char text[] =
        "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"model_type\": "
        "\"qwen2_5_vl\", \"vocab_size\": 99, \"hidden_size\": 64, \"intermediate_size\": 96, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 512, "
        "\"vision_config\": {\"depth\": 32}, \"rope_scaling\": {\"type\": \"mrope\", "
        "\"mrope_section\": [2, 3, 3]}}";
    struct model_config config;
    assert_int_equal(model_config_parse(&config, text, sizeof text - 1, "c.json", NULL), OK);
    assert_string_equal(config.architecture, "Qwen2ForCausalLM");
    assert_true(config.has_other_parts);
    assert_int_equal(config.rope.type, ROPE_DEFAULT);
    assert_true(config.rope.theta == 1e6 && config.rms_norm_eps == 1e-5f);
    model_config_fini(&config);
}

// The size of its MLP has the name of a shared expert's.
static void test_granite4(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(GRANITE4, {"layer_types", "[\"attention\"]"},
                                          {"num_local_experts", "0"}, {"num_hidden_layers", "1"});
    assert_int_equal(config.intermediate_size, 64);
    assert_true(config.own.lacks_rope);
    assert_int_equal(config.moe.num_experts, 0);
    model_config_fini(&config);
}

// Both names of its layers; their sizes by default, and as the keys say.
static void test_mamba_layers(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK(GRANITE4, {"layer_types", "[\"mamba\", \"attention\", \"linear_attention\"]"},
                 {"num_hidden_layers", "3"}, {"num_local_experts", "0"}, {"mamba_n_heads", "8"});
    const struct mamba_config *mamba = &config.own.mamba;
    assert_true(config.own.is_linear[0] && !config.own.is_linear[1] && config.own.is_linear[2]);
    assert_int_equal(mamba->num_heads, 8);
    assert_int_equal(mamba->num_groups, 1);
    assert_int_equal(mamba->head_dim * 8, 2 * config.hidden_size);
    assert_int_equal(mamba->state_dim, 256);
    assert_true(mamba->dt_min == 0 && mamba->dt_max == FLT_MAX);
    model_config_fini(&config);
    static const struct {
        const char *limit;
        float max;
    } limits[] = {{"[0.25, 8]", 8},
                  {"[0.25, {\"__float__\": \"Infinity\"}]", FLT_MAX},
                  {"[0.25, Infinity]", FLT_MAX}}; // as Python writes it
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        config = PARSE_OK(GRANITE4, {"mamba_n_heads", "4"}, {"mamba_d_state", "64"},
                          {"mamba_n_groups", "2"}, {"time_step_limit", limits[i].limit});
        assert_int_equal(mamba->state_dim, 64);
        assert_int_equal(mamba->num_groups, 2);
        assert_true(mamba->dt_min == 0.25f && mamba->dt_max == limits[i].max);
        model_config_fini(&config);
    }
}

#define MAMBA                                                                                      \
    GRANITE4, {                                                                                    \
        "mamba_n_heads", "4"                                                                       \
    }

static void test_mamba_layers_that_are_refused(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{MAMBA, {"mamba_conv_bias", "false"}}, ERR_UNSUPPORTED, "\"mamba_conv_bias\" is false"},
        {{MAMBA, {"mamba_conv_bias", "null"}}, ERR_UNSUPPORTED, "\"mamba_conv_bias\" is false"},
        {{MAMBA, {"mamba_proj_bias", "true"}}, ERR_UNSUPPORTED, "\"mamba_proj_bias\" is true"},
        {{MAMBA, {"mamba_d_conv", "3"}}, ERR_UNSUPPORTED, "\"mamba_d_conv\" is 3, only 4 is"},
        {{MAMBA, {"mamba_d_state", "24"}},
         ERR_UNSUPPORTED,
         "\"mamba_d_state\" is 24, only multiples of 16 up to 256"},
        {{MAMBA, {"mamba_d_head", "48"}},
         ERR_FORMAT,
         "\"mamba_d_head\" 48, want together \"mamba_expand\" times \"hidden_size\""},
        {{MAMBA, {"mamba_n_groups", "3"}}, ERR_FORMAT, "\"mamba_n_heads\" is 4, want a multiple"},
        {{MAMBA, {"time_step_limit", "[2, 1]"}}, ERR_FORMAT, "\"time_step_limit\" is|two numbers"},
        {{MAMBA, {"layer_types", "[\"mamba\"]"}}, ERR_FORMAT, "\"layer_types\" is|of 1, want"},
        {{MAMBA, {"layer_types", "[\"conv\"]"}, {"num_hidden_layers", "1"}},
         ERR_UNSUPPORTED,
         "\"layer_types\" has conv at 0"},
    };
    REFUSE_ALL(cases);
}

#define NEMOTRON_H                                                                                 \
    { "architectures", "[\"NemotronHForCausalLM\"]" }

// A pattern, and transformers 5's list, which also says how many layers there are.
static void test_layers_of_one_block(void **state) {
    (void)state;
    for (int has_list = 0; has_list < 2; has_list++) {
        const char *list = "[\"mamba\", \"full_attention\", \"mlp\", \"moe\"]";
        struct model_config config =
            PARSE_OK(NEMOTRON_H, {"num_hidden_layers", has_list ? NULL : "4"},
                     {"hybrid_override_pattern", has_list ? NULL : "\"M*-E\""},
                     {"layers_block_type", has_list ? list : NULL}, {"n_routed_experts", "4"},
                     {"moe_shared_expert_intermediate_size", "24"});
        assert_int_equal(config.num_layers, 4);
        assert_memory_equal(config.own.blocks, "M*-E", 4);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(config.own.is_linear[i], i == 0);
            assert_int_equal(config.moe.is_sparse[i], i == 3);
        }
        assert_int_equal(config.moe.shared_intermediate_size, 24);
        assert_int_equal(config.own.mamba.num_groups, 8);
        model_config_fini(&config);
    }
    static const struct refusal cases[] = {
        {{NEMOTRON_H, {"num_hidden_layers", "2"}, {"hybrid_override_pattern", "\"M*-\""}},
         ERR_FORMAT,
         "\"hybrid_override_pattern\" has 3 blocks, want one for each of 2 layers"},
        {{NEMOTRON_H, {"num_hidden_layers", "2"}, {"hybrid_override_pattern", "\"M|\""}},
         ERR_UNSUPPORTED,
         "\"hybrid_override_pattern\" has"},
        {{NEMOTRON_H, {"num_hidden_layers", NULL}, {"layers_block_type", "[\"mamba\", \"conv\"]"}},
         ERR_UNSUPPORTED,
         "\"layers_block_type\" has conv at 1"},
        {{NEMOTRON_H, {"moe_latent_size", "64"}}, ERR_UNSUPPORTED, "\"moe_latent_size\" is 64"},
        {{NEMOTRON_H, {"n_shared_experts", "2"}}, ERR_UNSUPPORTED, "n_shared_experts"},
        {{NEMOTRON_H, {"mlp_hidden_act", "\"silu\""}}, ERR_UNSUPPORTED, "mlp_hidden_act"},
    };
    REFUSE_ALL(cases);
}

#define GEMMA4                                                                                     \
    {"architectures", "[\"Gemma4ForCausalLM\"]"}, {                                                \
        "hidden_size_per_layer_input", "0"                                                         \
    }

// The published form, and that of transformers 5, which numbers the layers.
static void test_gemma4(void **state) {
    (void)state;
    for (int form = 0; form < 2; form++) {
        struct model_config config;
        parse_path(&config, form ? "tests/reference/data/gemma4/config_published_form.json"
                                 : "tests/reference/data/gemma4/config.json");
        assert_int_equal(config.head_dim, 16);
        assert_int_equal(config.own.global_head_dim, 32);
        assert_true(config.own.has_keys_as_values && config.own.logits_softcap == 5);
        assert_int_equal(config.rope.type, ROPE_PROPORTIONAL);
        assert_true(config.rope.theta == 1e6 && config.rope.proportion == 0.25);
        assert_true(config.rope.partial == 1 && config.local_rope.theta == 1e4);
        assert_true(config.is_sliding[0] && !config.is_sliding[1]);
        model_config_fini(&config);
    }
}

// Experts are read only where they are switched on. The dense MLP is their shared expert.
static void test_experts_of_gemma4(void **state) {
    (void)state;
    struct model_config config;
    parse_path(&config, "tests/reference/data/gemma4-moe/config_published_form.json");
    const struct moe_config *moe = &config.moe;
    assert_int_equal(moe->num_experts, 5);
    assert_int_equal(moe->num_experts_per_tok, 2);
    assert_int_equal(moe->intermediate_size, 16);
    assert_int_equal(moe->shared_intermediate_size, config.intermediate_size);
    assert_int_equal(moe->num_sparse_layers, 2);
    assert_true(moe->norm_topk_prob && moe->weights_factor == 1);
    model_config_fini(&config);
    parse_path(&config, "tests/reference/data/gemma4/config.json");
    assert_int_equal(config.moe.num_experts + config.moe.shared_intermediate_size, 0);
    model_config_fini(&config);
}

#define LOCAL_ROPE(members)                                                                        \
    { "rope_parameters", "{\"full_attention\": {}, \"sliding_attention\": {" members "}}" }

static void test_refused(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{{"is_encoder_decoder", "true"}, {"text_config", "{\"model_type\": \"llama\"}"}},
         ERR_UNSUPPORTED,
         "is_encoder_decoder|true"},
        {{{"architectures", "[\"Olmo3ForCausalLM\"]"},
          LOCAL_ROPE("\"partial_rotary_factor\": 0.5")},
         ERR_UNSUPPORTED,
         "sliding_attention|partial_rotary_factor"},
        {{{"architectures", "[\"Olmo3ForCausalLM\"]"},
          LOCAL_ROPE("\"rope_type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1]")},
         ERR_UNSUPPORTED,
         "sliding_attention|longrope"},
        {{SMOLLM3, {"no_rope_layers", "[1]"}}, ERR_FORMAT, "no_rope_layers|a list of 1"},
        {{SMOLLM3, {"no_rope_layers", "\"all\""}}, ERR_FORMAT, "no_rope_layers|a string"},
        {{SMOLLM3, {"num_hidden_layers", "2"}, {"no_rope_layers", "[1, 2]"}},
         ERR_FORMAT,
         "no_rope_layers|another number at 1"},
        {{QWEN3_5, {"attn_output_gate", "false"}}, ERR_UNSUPPORTED, "attn_output_gate|true"},
        {{QWEN3_5, {"linear_conv_kernel_dim", "3"}},
         ERR_UNSUPPORTED,
         "linear_conv_kernel_dim|3|only 4"},
        {{QWEN3_5, {"linear_key_head_dim", "40"}},
         ERR_UNSUPPORTED,
         "linear_key_head_dim|40|multiples of 16"},
        {{QWEN3_5, {"linear_num_value_heads", "24"}},
         ERR_FORMAT,
         "linear_num_value_heads|24|multiple"},
        {{QWEN3_5, {"num_hidden_layers", "1"}, {"layer_types", "[\"sliding_attention\"]"}},
         ERR_UNSUPPORTED,
         "layer_types|sliding_attention at 0"},
        {{QWEN3_5, {"layer_types", "[\"full_attention\"]"}}, ERR_FORMAT, "layer_types|a list of 1"},
        {{{"architectures", "[\"Gemma4ForCausalLM\"]"}},
         ERR_UNSUPPORTED,
         "vocab_size_per_layer_input|262144|vocab_size"},
        {{GEMMA4, {"enable_moe_block", "true"}}, ERR_FORMAT, "num_experts|enable_moe_block"},
        {{GEMMA4, {"num_kv_shared_layers", "20"}}, ERR_FORMAT, "num_kv_shared_layers|20"},
        {{GEMMA4, {"use_bidirectional_attention", "\"all\""}},
         ERR_UNSUPPORTED,
         "use_bidirectional_attention|\"all\"|\"vision\""},
        {{GEMMA4,
          {"layer_types", "[\"sliding_attention\", \"full_attention\", \"full_attention\"]"},
          {"per_layer_config", "{\"2\": {\"head_dim\": 64}}"}},
         ERR_UNSUPPORTED,
         "per_layer_config|1 layers, but 2"},
        {{GEMMA4,
          {"layer_types", "[\"sliding_attention\", \"full_attention\", \"full_attention\"]"},
          {"per_layer_config", "{\"1\": {\"head_dim\": 64}, \"2\": {\"head_dim\": 32}}"}},
         ERR_UNSUPPORTED,
         "per_layer_config|differs"},
        {{GLM4_MOE, {"n_group", "8"}}, ERR_UNSUPPORTED, "n_group|is 8|want 1"},
        {{MINIMAX_M2, {"scoring_func", "\"softmax\""}},
         ERR_UNSUPPORTED,
         "scoring_func|\"softmax\"|want \"sigmoid\""},
        {{MINIMAX_M2, {"attn_type_list", "[1, 0, 1]"}}, ERR_UNSUPPORTED, "attn_type_list|has 0|1"},
        {{MINIMAX_M2, {"use_routing_bias", "false"}}, ERR_UNSUPPORTED, "use_routing_bias|false"},
        {{MINIMAX_M2, {"rotary_dim", "130"}}, ERR_FORMAT, "rotary_dim|130|1 to 128"},
        {{MINISTRAL3, {"rope_parameters", "{\"llama_4_scaling_beta\": 0.1}"}},
         ERR_FORMAT,
         "original_max_position_embeddings|missing"},
        {{{"rope_parameters", "{\"llama_4_scaling_beta\": 0.1, "
                              "\"original_max_position_embeddings\": 64}"}},
         ERR_UNSUPPORTED,
         "llama_4_scaling_beta|0.1|want it 0"},
        {{GPT_OSS, {"swiglu_limit", "5"}}, ERR_UNSUPPORTED, "swiglu_limit|is 5|want it 7"},
        {{GPT_OSS, {"swiglu_alpha", "1"}}, ERR_UNSUPPORTED, "swiglu_alpha|is 1,|1.702"},
        {{{"swiglu_limit", "7"}}, ERR_UNSUPPORTED, "swiglu_limit|absent or null"},
        {{SMOLLM3, {"residual_multiplier", "0.5"}}, ERR_UNSUPPORTED, "residual_multiplier|0.5"},
        {{{"architectures", "[\"Phi3ForCausalLM\"]"}, {"partial_rotary_factor", "0.01"}},
         ERR_FORMAT,
         "partial_rotary_factor|0.01|even"},
    };
    REFUSE_ALL(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_forms_of_local_ropes),
        cmocka_unit_test(test_layers_without_rope),
        cmocka_unit_test(test_layers_of_lfm2),
        cmocka_unit_test(test_what_new_classes_may_not_have),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_soft_limits),
        cmocka_unit_test(test_windows_in_letters),
        cmocka_unit_test(test_sizes_that_gemma3_leaves_out),
        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_experts_of_gemma4),
        cmocka_unit_test(test_scale_of_q),
        cmocka_unit_test(test_text_model_beside_images),
        cmocka_unit_test(test_granite4),
        cmocka_unit_test(test_layers_of_one_block),
        cmocka_unit_test(test_mamba_layers),
        cmocka_unit_test(test_mamba_layers_that_are_refused),
        cmocka_unit_test(test_delta_nets),
        cmocka_unit_test(test_defaults_of_delta_nets),
        cmocka_unit_test(test_positions_in_parts),
        cmocka_unit_test(test_experts_in_every_layer),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
