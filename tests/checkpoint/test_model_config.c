// config.json and generation_config.json: both published forms load alike, defaults are those of
// transformers, and a key that would silently change the computation is refused by name.
#include "checkpoint/model_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/config_text.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

static void test_defaults(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({0});
    assert_string_equal(config.architecture, "Qwen3ForCausalLM");
    assert_int_equal(config.dtype, DTYPE_F32);
    assert_int_equal(config.vocab_size, 1000);
    assert_int_equal(config.hidden_size, 256);
    assert_int_equal(config.intermediate_size, 512);
    assert_int_equal(config.num_layers, 3);
    assert_int_equal(config.num_heads, 4);
    assert_int_equal(config.num_kv_heads, 4);
    assert_int_equal(config.head_dim, 64);
    assert_int_equal(config.max_position_embeddings, 2048);
    assert_true(config.rms_norm_eps == 1e-6f);
    assert_false(config.tie_word_embeddings);
    assert_int_equal(config.attention_bias, FLAG_ABSENT);
    assert_int_equal(config.attention_out_bias, FLAG_ABSENT);
    assert_int_equal(config.mlp_bias, FLAG_ABSENT);
    assert_null(config.is_sliding);
    assert_int_equal(config.sliding_window, 0);
    assert_int_equal(config.rope.type, ROPE_DEFAULT);
    assert_true(config.rope.theta == 10000);
    assert_int_equal(config.num_eos_token_ids, 0);
    model_config_fini(&config);
    model_config_fini(&config); // again is fine
}

static void test_null_is_absent(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"head_dim", "null"}, {"num_key_value_heads", "null"}, {"rope_scaling", "null"},
                 {"quantization_config", "null"});
    assert_int_equal(config.head_dim, 64);
    assert_int_equal(config.num_kv_heads, 4);
    assert_int_equal(config.rope.type, ROPE_DEFAULT);
    model_config_fini(&config);
    config = PARSE_OK({"eos_token_id", "null"}, {"hidden_act", "null"}, {"attention_bias", "null"});
    assert_int_equal(config.num_eos_token_ids, 0);
    assert_int_equal(config.attention_bias, FLAG_ABSENT);
    model_config_fini(&config);
}

static void test_values(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"head_dim", "128"}, {"num_key_value_heads", "2"}, {"rms_norm_eps", "1e-5"},
                 {"tie_word_embeddings", "true"});
    assert_int_equal(config.head_dim, 128);
    assert_int_equal(config.num_kv_heads, 2);
    assert_true(config.rms_norm_eps == 1e-5f);
    assert_true(config.tie_word_embeddings);
    model_config_fini(&config);
    config =
        PARSE_OK({"attention_bias", "true"}, {"mlp_bias", "false"}, {"hidden_act", "\"swish\""});
    assert_int_equal(config.attention_bias, FLAG_TRUE);
    assert_int_equal(config.attention_out_bias, FLAG_ABSENT);
    assert_int_equal(config.mlp_bias, FLAG_FALSE);
    model_config_fini(&config);
    config = PARSE_OK({"attention_out_bias", "true"}, {"pretraining_tp", "2"},
                      {"partial_rotary_factor", "1.0"}, {"use_mrope", "false"});
    assert_int_equal(config.attention_bias, FLAG_ABSENT);
    assert_int_equal(config.attention_out_bias, FLAG_TRUE);
    model_config_fini(&config);
}

// Gemma's classes leave hidden_act out where there is hidden_activation, and only there.
static void test_activation_of_gemma(void **state) {
    (void)state;
    const struct field gemma2 = {"architectures", "[\"Gemma2ForCausalLM\"]"};
    struct model_config config = PARSE_OK(gemma2, {"hidden_act", "\"gelu\""},
                                          {"hidden_activation", "\"gelu_pytorch_tanh\""});
    model_config_fini(&config);
    const struct refusal cases[] = {
        {{gemma2, {"hidden_act", "\"gelu\""}}, ERR_UNSUPPORTED, "hidden_act|gelu"},
        {{{"architectures", "[\"GemmaForCausalLM\"]"}, // which reads hidden_act
          {"hidden_act", "\"silu\""},
          {"hidden_activation", "\"gelu_pytorch_tanh\""}},
         ERR_UNSUPPORTED,
         "hidden_act|silu"},
        {{gemma2, {"hidden_activation", "\"gelu\""}}, ERR_UNSUPPORTED, "hidden_activation|gelu"},
    };
    REFUSE_ALL(cases);
}

static void test_dtypes(void **state) {
    (void)state;
    static const struct {
        const char *dtype, *torch_dtype;
        enum dtype want;
    } cases[] = {
        {NULL, "\"bfloat16\"", DTYPE_BF16},       {"\"float16\"", NULL, DTYPE_F16},
        {"\"float32\"", NULL, DTYPE_F32},         {"\"float16\"", "\"bfloat16\"", DTYPE_F16},
        {"null", "\"bfloat16\"", DTYPE_BF16},     {"null", "null", DTYPE_F32},
        {"\"torch.bfloat16\"", NULL, DTYPE_BF16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config =
            PARSE_OK({"dtype", cases[i].dtype}, {"torch_dtype", cases[i].torch_dtype});
        assert_int_equal(config.dtype, cases[i].want);
        model_config_fini(&config);
    }
}

static void test_not_a_config(void **state) {
    (void)state;
    text_refused("", ERR_FORMAT, "not valid JSON");
    text_refused("[]", ERR_FORMAT, "a list|want an object");
    text_refused("\"config\"", ERR_FORMAT, "a string|want an object");
    text_refused("12", ERR_FORMAT, "an integer|want an object");
    text_refused("null", ERR_FORMAT, "null|want an object");
    text_refused("{", ERR_FORMAT, "not valid JSON");
    text_refused("{} {}", ERR_FORMAT, "not valid JSON");
    text_refused("{\"a\": 1, \"a\": 2}", ERR_FORMAT, "duplicate");
    text_refused("\x7f"
                 "ELF",
                 ERR_FORMAT, "not valid JSON");
    text_refused("{\"vocab_size\": NaN}", ERR_FORMAT, "not valid JSON");
    text_refused("{}", ERR_FORMAT, "architectures|missing");
    enum { DEPTH = 100000 };
    char *deep = malloc(DEPTH + 1);
    assert_non_null(deep);
    memset(deep, '[', DEPTH);
    deep[DEPTH] = '\0';
    text_refused(deep, ERR_UNSUPPORTED, "nested deeper than 64 levels");
    free(deep);
}

static void test_bad_architectures(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{{"architectures", NULL}}, ERR_FORMAT, "architectures|missing"},
        {{{"architectures", "null"}}, ERR_FORMAT, "architectures|missing"},
        {{{"architectures", "\"Qwen3ForCausalLM\""}}, ERR_FORMAT, "architectures|a string"},
        {{{"architectures", "[]"}}, ERR_FORMAT, "architectures|0 entries|one string"},
        {{{"architectures", "[3]"}}, ERR_FORMAT, "architectures|an integer|one string"},
        {{{"architectures", "[\"A\", \"B\"]"}}, ERR_FORMAT, "architectures|2 entries|one string"},
        {{{"architectures", "[\"\"]"}}, ERR_FORMAT, "architectures|letters"},
        {{{"architectures", "[\"a b\"]"}}, ERR_FORMAT, "architectures|a b|letters"},
        {{{"architectures", "[\"A234567890123456789012345678901234567890"
                            "123456789012345678901234\"]"}},
         ERR_FORMAT,
         "architectures|1 to 63"},
    };
    REFUSE_ALL(cases);
    // any name parses: families are matched elsewhere
    struct model_config config = PARSE_OK({"architectures", "[\"SomeNewForCausalLM\"]"});
    assert_string_equal(config.architecture, "SomeNewForCausalLM");
    model_config_fini(&config);
}

// Every size: missing, null, of each wrong type, below and above its range.
static void test_bad_sizes(void **state) {
    (void)state;
    static const char *const keys[] = {"vocab_size",          "hidden_size",
                                       "intermediate_size",   "num_hidden_layers",
                                       "num_attention_heads", "max_position_embeddings"};
    static const char *const values[] = {NULL,
                                         "null",
                                         "0",
                                         "-1",
                                         "1.5",
                                         "2.0",
                                         "true",
                                         "[4]",
                                         "\"4\"",
                                         "{}",
                                         "1e3",
                                         "4294967296",
                                         "4294967297",
                                         "9223372036854775807",
                                         "99999999999999999999999"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            char *text = make_config((const struct field[CHANGES_MAX]){{keys[i], values[k]}});
            bool json = !values[k] || strlen(values[k]) < 20;
            text_refused(text, ERR_FORMAT, json ? keys[i] : "too big integer");
            free(text);
        }
    }
}

static void test_bad_heads(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{{"num_key_value_heads", "3"}}, ERR_FORMAT, "num_attention_heads|4|num_key_value_heads|3"},
        {{{"num_key_value_heads", "8"}}, ERR_FORMAT, "num_key_value_heads|8|1 to 4"},
        {{{"num_key_value_heads", "0"}}, ERR_FORMAT, "num_key_value_heads|0"},
        {{{"num_key_value_heads", "\"2\""}}, ERR_FORMAT, "num_key_value_heads|a string"},
        {{{"head_dim", "0"}}, ERR_FORMAT, "head_dim|0"},
        {{{"head_dim", "-64"}}, ERR_FORMAT, "head_dim|-64"},
        {{{"head_dim", "63"}}, ERR_FORMAT, "head_dim|63|even"},
        {{{"head_dim", "100000"}}, ERR_FORMAT, "head_dim|100000"},
        {{{"head_dim", "64.0"}}, ERR_FORMAT, "head_dim|a real number"},
        {{{"num_attention_heads", "3"}}, ERR_FORMAT, "head_dim|missing|256|3"},
        {{{"num_attention_heads", "256"}}, ERR_FORMAT, "head_dim|1|even"},
        {{{"num_attention_heads", "1"}, {"hidden_size", "8192"}}, ERR_FORMAT, "head_dim|missing"},
    };
    REFUSE_ALL(cases);
}

static void test_wrong_types(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{{"rms_norm_eps", "\"1e-6\""}}, ERR_FORMAT, "rms_norm_eps|a string"},
        {{{"rms_norm_eps", "0"}}, ERR_FORMAT, "rms_norm_eps|0"},
        {{{"rms_norm_eps", "-1e-6"}}, ERR_FORMAT, "rms_norm_eps"},
        {{{"rms_norm_eps", "1e-46"}}, ERR_FORMAT, "rms_norm_eps"}, // 0 as a float
        {{{"rms_norm_eps", "2"}}, ERR_FORMAT, "rms_norm_eps|2"},
        {{{"rms_norm_eps", "1e999"}}, ERR_FORMAT, "not valid JSON"},
        {{{"tie_word_embeddings", "1"}}, ERR_FORMAT, "tie_word_embeddings|true or false"},
        {{{"attention_bias", "\"no\""}}, ERR_FORMAT, "attention_bias|a string"},
        {{{"mlp_bias", "[]"}}, ERR_FORMAT, "mlp_bias|a list"},
        {{{"hidden_act", "[]"}}, ERR_FORMAT, "hidden_act|a list"},
        {{{"dtype", "16"}}, ERR_FORMAT, "dtype|an integer"},
        {{{"torch_dtype", "{}"}}, ERR_FORMAT, "torch_dtype|an object"},
        {{{"dtype", "\"float64\""}}, ERR_UNSUPPORTED, "dtype|float64|bfloat16"},
        {{{"torch_dtype", "\"float8_e4m3fn\""}}, ERR_UNSUPPORTED, "torch_dtype|float8_e4m3fn"},
    };
    REFUSE_ALL(cases);
}

static void test_fp8(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"quantization_config", "{\"quant_method\": \"fp8\", \"activation_scheme\": "
                                         "\"dynamic\", \"weight_block_size\": [128, 64]}"});
    assert_int_equal(config.quantization.method, QUANTIZED_FP8);
    assert_int_equal(config.quantization.block_rows, 128);
    assert_int_equal(config.quantization.block_cols, 64);
    model_config_fini(&config);
    config = PARSE_OK(
        {"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": null}"});
    assert_int_equal(config.quantization.method, QUANTIZED_FP8);
    assert_int_equal(config.quantization.block_rows, 0);
    model_config_fini(&config);
    static const struct refusal cases[] = {
        {{{"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}"}},
         ERR_FORMAT,
         "weight_block_size"},
        {{{"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": [0, 1]}"}},
         ERR_FORMAT,
         "weight_block_size"},
        {{{"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": 128}"}},
         ERR_FORMAT,
         "weight_block_size"},
    };
    REFUSE_ALL(cases);
}

// Unsupported keys are refused by name, not ignored.
static void test_unsupported(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{{"quantization_config", "{\"quant_method\": \"exl3\", \"bits\": 4}"}},
         ERR_UNSUPPORTED,
         "quantization_config|exl3"},
        {{{"quantization_config", "{}"}}, ERR_UNSUPPORTED, "quantization_config"},
        {{{"quantization_config", "4"}}, ERR_UNSUPPORTED, "quantization_config"},
        {{{"quantization", "{\"bits\": 7}"}}, ERR_UNSUPPORTED, "\"quantization\""},
        {{{"compression_config", "{}"}}, ERR_UNSUPPORTED, "no \"quant_method\""},
        {{{"hidden_act", "\"gelu\""}}, ERR_UNSUPPORTED, "hidden_act|gelu|silu"},
        {{{"hidden_activation", "\"gelu_pytorch_tanh\""}},
         ERR_UNSUPPORTED,
         "hidden_activation|gelu"},
        {{{"partial_rotary_factor", "0.5"}}, ERR_UNSUPPORTED, "partial_rotary_factor|0.5"},
        {{{"partial_rotary_factor", "\"1\""}}, ERR_UNSUPPORTED, "partial_rotary_factor|a string"},
        {{{"attn_logit_softcapping", "50.0"}}, ERR_UNSUPPORTED, "attn_logit_softcapping|50"},
        {{{"final_logit_softcapping", "30.0"}}, ERR_UNSUPPORTED, "final_logit_softcapping|30"},
        {{{"rope_interleaved", "true"}}, ERR_UNSUPPORTED, "rope_interleaved|true"},
        {{{"rope_interleave", "true"}}, ERR_UNSUPPORTED, "rope_interleave"},
        {{{"use_mrope", "true"}}, ERR_UNSUPPORTED, "use_mrope|true"},
        {{{"is_causal", "false"}}, ERR_UNSUPPORTED, "is_causal|false"},
        {{{"is_encoder_decoder", "true"}}, ERR_UNSUPPORTED, "is_encoder_decoder"},
        {{{"text_config", "{}"}}, ERR_UNSUPPORTED, "text_config|model_type|missing"},
        {{{"text_config", "{\"model_type\": \"qwen9\"}"}},
         ERR_UNSUPPORTED,
         "text_config|model_type|qwen9"},
        {{{"text_config", "[]"}}, ERR_FORMAT, "text_config|a list|an object"},
        {{{"vision_config", "{}"}}, ERR_UNSUPPORTED, "vision_config"},
        {{{"kv_lora_rank", "512"}}, ERR_UNSUPPORTED, "kv_lora_rank|512"},
        {{{"logits_scaling", "8"}}, ERR_UNSUPPORTED, "logits_scaling|8"},
        {{{"embedding_multiplier", "12.0"}}, ERR_UNSUPPORTED, "embedding_multiplier|12"},
        {{{"no_rope_layers", "[1, 0, 1]"}}, ERR_UNSUPPORTED, "no_rope_layers|a list"},
        {{{"clip_qkv", "8"}}, ERR_UNSUPPORTED, "clip_qkv|8"},
        {{{"dual_chunk_attention_config", "{}"}}, ERR_UNSUPPORTED, "dual_chunk_attention_config"},
    };
    REFUSE_ALL(cases);
}

static void assert_equal(const struct model_config *a, const struct model_config *b) {
    assert_string_equal(a->architecture, b->architecture);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->vocab_size, b->vocab_size);
    assert_int_equal(a->hidden_size, b->hidden_size);
    assert_int_equal(a->intermediate_size, b->intermediate_size);
    assert_int_equal(a->num_layers, b->num_layers);
    assert_int_equal(a->num_heads, b->num_heads);
    assert_int_equal(a->num_kv_heads, b->num_kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->max_position_embeddings, b->max_position_embeddings);
    assert_true(a->rms_norm_eps == b->rms_norm_eps);
    assert_int_equal(a->tie_word_embeddings, b->tie_word_embeddings);
    assert_int_equal(a->attention_bias, b->attention_bias);
    assert_int_equal(a->attention_out_bias, b->attention_out_bias);
    assert_int_equal(a->mlp_bias, b->mlp_bias);
    assert_int_equal(a->sliding_window, b->sliding_window);
    assert_int_equal(a->rope.type, b->rope.type);
    assert_true(a->rope.theta == b->rope.theta && a->rope.factor == b->rope.factor);
    assert_true(a->rope.original_max_position_embeddings ==
                b->rope.original_max_position_embeddings);
    assert_true(a->rope.low_freq_factor == b->rope.low_freq_factor);
    assert_true(a->rope.high_freq_factor == b->rope.high_freq_factor);
    assert_true(a->rope.beta_fast == b->rope.beta_fast && a->rope.beta_slow == b->rope.beta_slow);
    assert_true(a->rope.attention_factor == b->rope.attention_factor);
    assert_int_equal(a->rope.truncate, b->rope.truncate);
    assert_true(a->rope.partial == b->rope.partial && a->rope.query_beta == b->rope.query_beta);
    assert_int_equal(a->moe.num_experts, b->moe.num_experts);
    assert_int_equal(a->moe.num_experts_per_tok, b->moe.num_experts_per_tok);
    assert_int_equal(a->moe.intermediate_size, b->moe.intermediate_size);
    assert_int_equal(a->moe.norm_topk_prob, b->moe.norm_topk_prob);
    assert_int_equal(a->moe.num_sparse_layers, b->moe.num_sparse_layers);
    for (uint32_t i = 0; i < a->num_layers && a->moe.num_experts; i++) {
        assert_int_equal(a->moe.is_sparse[i], b->moe.is_sparse[i]);
    }
    assert_int_equal(a->num_eos_token_ids, b->num_eos_token_ids);
    for (uint32_t i = 0; i < a->num_eos_token_ids; i++) {
        assert_int_equal(a->eos_token_ids[i], b->eos_token_ids[i]);
    }
}

static const struct {
    const char *family, *architecture;
    enum rope_type rope;
    double theta;
} family_cases[] = {
    {"qwen3", "Qwen3ForCausalLM", ROPE_DEFAULT, 1e6},
    {"qwen3-tied-bias", "Qwen3ForCausalLM", ROPE_DEFAULT, 1e6},
    {"qwen3-yarn", "Qwen3ForCausalLM", ROPE_YARN, 1e6},
    {"qwen3-moe", "Qwen3MoeForCausalLM", ROPE_DEFAULT, 1e4},
    {"qwen3-moe-mixed", "Qwen3MoeForCausalLM", ROPE_DEFAULT, 1e4},
    {"llama-bias", "LlamaForCausalLM", ROPE_DEFAULT, 1e4},
    {"qwen2", "Qwen2ForCausalLM", ROPE_DEFAULT, 1e6},
    {"llama3-rope", "LlamaForCausalLM", ROPE_LLAMA3, 5e5},
    {"llama-mha", "LlamaForCausalLM", ROPE_DEFAULT, 1e4},
    {"mistral", "MistralForCausalLM", ROPE_DEFAULT, 1e4},
    {"mixtral", "MixtralForCausalLM", ROPE_DEFAULT, 1e6},
    {"gpt-oss", "GptOssForCausalLM", ROPE_YARN, 1.5e5},
    {"qwen3-vl", "Qwen3ForCausalLM", ROPE_DEFAULT, 5e6},
    {"smollm3", "SmolLM3ForCausalLM", ROPE_DEFAULT, 2e6},
    {"granite", "GraniteForCausalLM", ROPE_DEFAULT, 1e4},
    {"olmo2", "Olmo2ForCausalLM", ROPE_DEFAULT, 1e4},
    {"phi3", "Phi3ForCausalLM", ROPE_DEFAULT, 1e4},
    {"phi3-short", "Phi3ForCausalLM", ROPE_LONG, 1e4},
    {"phi3-long", "Phi3ForCausalLM", ROPE_LONG, 1e4},
    {"mistral3", "MistralForCausalLM", ROPE_DEFAULT, 1e4},
    {"ministral3", "Ministral3ForCausalLM", ROPE_YARN, 1e4},
    {"glm4-moe", "Glm4MoeForCausalLM", ROPE_DEFAULT, 1e4},
    {"ernie4-5", "Ernie4_5ForCausalLM", ROPE_DEFAULT, 5e5},
    {"ernie4-5-moe", "Ernie4_5_MoeForCausalLM", ROPE_DEFAULT, 5e5},
    {"olmoe", "OlmoeForCausalLM", ROPE_DEFAULT, 1e4},
    {"dots1", "Dots1ForCausalLM", ROPE_DEFAULT, 1e4},
    {"deepseek-v2", "DeepseekV2ForCausalLM", ROPE_YARN, 1e4},
    {"deepseek-v3", "DeepseekV3ForCausalLM", ROPE_YARN, 1e4},
    {"glm4-moe-lite", "Glm4MoeLiteForCausalLM", ROPE_DEFAULT, 1e4},
    {"granite-moe", "GraniteMoeForCausalLM", ROPE_DEFAULT, 1e4},
    {"hunyuan", "HunYuanDenseV1ForCausalLM", ROPE_DEFAULT, 874339.3107950698},
    {"hunyuan-moe", "HunYuanMoEV1ForCausalLM", ROPE_DEFAULT, 874339.3107950698},
    {"cohere", "CohereForCausalLM", ROPE_DEFAULT, 5e5},
    {"cohere-plus", "CohereForCausalLM", ROPE_DEFAULT, 5e5},
    {"stablelm-norms", "StableLmForCausalLM", ROPE_DEFAULT, 1e4},
    {"apertus", "ApertusForCausalLM", ROPE_LLAMA3, 12e6},
    {"arcee", "ArceeForCausalLM", ROPE_DEFAULT, 1e4},
    {"internlm3", "InternLM3ForCausalLM", ROPE_DEFAULT, 1e4},
    {"lfm2", "Lfm2ForCausalLM", ROPE_DEFAULT, 1e6},
    {"lfm2-moe", "Lfm2MoeForCausalLM", ROPE_DEFAULT, 1e6},
    {"llama4", "Llama4ForCausalLM", ROPE_DEFAULT, 5e5},
    {"phi", "PhiForCausalLM", ROPE_DEFAULT, 1e4},
    {"exaone-moe", "ExaoneMoeForCausalLM", ROPE_DEFAULT, 1e4},
    {"nemotron", "NemotronForCausalLM", ROPE_DEFAULT, 1e4},
    {"stablelm", "StableLmForCausalLM", ROPE_DEFAULT, 1e4},
    {"stablelm-parallel", "StableLmForCausalLM", ROPE_DEFAULT, 1e4},
    {"starcoder2", "Starcoder2ForCausalLM", ROPE_DEFAULT, 1e4},
    {"cohere2", "Cohere2ForCausalLM", ROPE_DEFAULT, 1e4},
    {"solar-open", "SolarOpenForCausalLM", ROPE_DEFAULT, 1e6},
    {"helium", "HeliumForCausalLM", ROPE_DEFAULT, 1e5},
    {"hyperclovax", "HyperCLOVAXForCausalLM", ROPE_DEFAULT, 1e4},
    {"glm", "GlmForCausalLM", ROPE_DEFAULT, 1e4},
    {"glm4", "Glm4ForCausalLM", ROPE_DEFAULT, 1e4},
    {"minimax-m2", "MiniMaxM2ForCausalLM", ROPE_DEFAULT, 5e6},
    {"cwm", "CwmForCausalLM", ROPE_LLAMA3, 1e6},
    {"gemma", "GemmaForCausalLM", ROPE_DEFAULT, 1e4},
    {"granite-swa", "GraniteSWAForCausalLM", ROPE_DEFAULT, 1e4},
    {"jais2", "Jais2ForCausalLM", ROPE_DEFAULT, 1e4},
    {"minicpm", "MiniCPMForCausalLM", ROPE_DEFAULT, 1e4},
    {"ministral", "MinistralForCausalLM", ROPE_DEFAULT, 1e4},
    {"nanochat", "NanoChatForCausalLM", ROPE_DEFAULT, 1e4},
    {"afmoe", "AfmoeForCausalLM", ROPE_DEFAULT, 1e4},
    {"axk1", "AXK1ForCausalLM", ROPE_DEFAULT, 1e4},
    {"flex-olmo", "FlexOlmoForCausalLM", ROPE_DEFAULT, 5e5},
    {"granite-moe-shared", "GraniteMoeSharedForCausalLM", ROPE_DEFAULT, 1e4},
    {"hy-v3", "HYV3ForCausalLM", ROPE_DEFAULT, 11158840},
    {"mellum", "MellumForCausalLM", ROPE_DEFAULT, 5e5},
    {"mistral4", "Mistral4ForCausalLM", ROPE_YARN, 1e4},
    {"sarvam-mla", "DeepseekV3ForCausalLM", ROPE_YARN, 1e4},
    {"sarvam-moe", "SarvamMoEForCausalLM", ROPE_DEFAULT, 8e6},
    {"youtu", "YoutuForCausalLM", ROPE_DEFAULT, 1e4},
    {"kimi-k25", "DeepseekV3ForCausalLM", ROPE_DEFAULT, 1e4},
    {"glm4v", "Glm4ForCausalLM", ROPE_DEFAULT, 1e4},
    {"vaultgemma", "VaultGemmaForCausalLM", ROPE_DEFAULT, 1e4},
    {"gemma2", "Gemma2ForCausalLM", ROPE_DEFAULT, 1e4},
    {"seed-oss", "SeedOssForCausalLM", ROPE_DEFAULT, 1e4},
    {"exaone4", "Exaone4ForCausalLM", ROPE_DEFAULT, 1e4},
    {"qwen2-moe", "Qwen2MoeForCausalLM", ROPE_DEFAULT, 1e4},
    {"granite4", "GraniteMoeHybridForCausalLM", ROPE_DEFAULT, 1e4},
    {"bamba", "BambaForCausalLM", ROPE_DEFAULT, 1e4},
    {"falcon-h1", "FalconH1ForCausalLM", ROPE_DEFAULT, 1e4},
    {"falcon-h1-norm", "FalconH1ForCausalLM", ROPE_DEFAULT, 1e4},
    {"nemotron-h", "NemotronHForCausalLM", ROPE_DEFAULT, 1e4},
    {"nemotron-h-moe", "NemotronHForCausalLM", ROPE_DEFAULT, 1e4},
    {"granite4-h", "GraniteMoeHybridForCausalLM", ROPE_DEFAULT, 1e4},
    {"granite4-h-moe", "GraniteMoeHybridForCausalLM", ROPE_DEFAULT, 1e4},
};

static void test_both_forms_of_every_family(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(family_cases); i++) {
        char path[256];
        struct model_config now;
        struct model_config before;
        snprintf(path, sizeof path, "tests/reference/data/%s/config.json", family_cases[i].family);
        parse_path(&now, path);
        snprintf(path, sizeof path, "tests/reference/data/%s/config_published_form.json",
                 family_cases[i].family);
        parse_path(&before, path);
        assert_string_equal(now.architecture, family_cases[i].architecture);
        assert_int_equal(now.dtype, DTYPE_BF16);
        assert_int_equal(now.rope.type, family_cases[i].rope);
        assert_true(fabs(now.rope.theta / family_cases[i].theta - 1) < 1e-12);
        assert_int_equal(now.sliding_window, now.is_sliding ? 48 : 0);
        assert_int_equal(now.num_eos_token_ids, 1);
        assert_equal(&now, &before);
        model_config_fini(&before);
        model_config_fini(&now);
    }
}

static void test_load_bundled_model(void **state) {
    (void)state;
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    if (folder_model_config(&config, &generation, "models/tiny-qwen3", &err) != OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(config.num_layers, 6);
    assert_int_equal(config.num_eos_token_ids, 2); // the second is generation_config.json's
    assert_int_equal(config.eos_token_ids[0], 4091);
    assert_int_equal(config.eos_token_ids[1], 4089);
    assert_true(generation.has_temperature && generation.temperature == 0.6f);
    assert_true(generation.has_top_k && generation.top_k == 20);
    model_config_fini(&config);
}

static void test_load_faults(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    assert_int_equal(folder_model_config(&config, &generation, "/nonexistent/x", &err), ERR_IO);
    expect_words(&err, "/nonexistent/x|not a folder");
    assert_int_equal(folder_model_config(&config, &generation, folder.path, &err), ERR_IO);
    expect_words(&err, folder.path);
    expect_words(&err, "has no config.json: it is not the folder of a model");
    temp_folder_write_text(&folder, "config.json", "");
    assert_int_equal(folder_model_config(&config, &generation, folder.path, &err), ERR_FORMAT);
    expect_words(&err, "/config.json");
    char *text = make_config((const struct field[CHANGES_MAX]){{"eos_token_id", "4"}});
    temp_folder_write_text(&folder, "config.json", text);
    free(text);
    temp_folder_write_text(&folder, "generation_config.json", "{\"top_p\": 3}");
    assert_int_equal(folder_model_config(&config, &generation, folder.path, &err), ERR_FORMAT);
    expect_words(&err, "/generation_config.json|top_p");
    assert_null(config.eos_token_ids);
    temp_folder_remove(&folder);
}

// There are no sampling defaults only where no file has the name; an unreadable file is an error.
static void test_generation_file_that_cannot_be_read(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    char *text = make_config((const struct field[CHANGES_MAX]){{NULL, NULL}});
    temp_folder_write_text(&folder, "config.json", text);
    free(text);
    char path[256];
    snprintf(path, sizeof path, "%s/generation_config.json", folder.path);
    const struct {
        const char *link_to; // NULL: no file
        enum status status;
        const char *words;
    } cases[] = {
        {NULL, OK, ""},
        {"nowhere", ERR_IO, "generation_config.json is a dangling link"},
        {"/", ERR_IO, "generation_config.json is not a regular file but a folder"},
        {"/dev/null", ERR_IO, "generation_config.json is not a regular file"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (cases[i].link_to) assert_int_equal(symlink(cases[i].link_to, path), 0);
        struct model_config config;
        struct generation_config generation;
        struct err err = {0};
        enum status status = folder_model_config(&config, &generation, folder.path, &err);
        if (status != cases[i].status) fail_msg("%s: %s", status_name(status), err.message);
        expect_words(&err, cases[i].words);
        model_config_fini(&config);
        if (cases[i].link_to) assert_int_equal(remove(path), 0);
    }
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    temp_folder_write_text(&folder, "generation_config.json", pointer);
    assert_int_equal(folder_model_config(&config, &generation, folder.path, &err), ERR_FORMAT);
    expect_words(&err, "generation_config.json is a Git LFS pointer");
    temp_folder_write_text(&folder, "config.json", pointer);
    assert_int_equal(folder_model_config(&config, &generation, folder.path, &err), ERR_FORMAT);
    expect_words(&err, "/config.json is a Git LFS pointer");
    temp_folder_remove(&folder);
}

// Gemma's first files call the function gelu, and mean its tanh form.
static void test_gemmas_old_name_of_its_activation(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"architectures", "[\"GemmaForCausalLM\"]"}, {"hidden_act", "\"gelu\""},
                 {"hidden_activation", "null"});
    assert_true(config.tie_word_embeddings);
    model_config_fini(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_activation_of_gemma),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_not_a_config),
        cmocka_unit_test(test_bad_architectures),
        cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_bad_heads),
        cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_both_forms_of_every_family),
        cmocka_unit_test(test_load_bundled_model),
        cmocka_unit_test(test_load_faults),
        cmocka_unit_test(test_generation_file_that_cannot_be_read),
        cmocka_unit_test(test_gemmas_old_name_of_its_activation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
