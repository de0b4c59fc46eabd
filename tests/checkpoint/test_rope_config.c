// config.json's rope section: both forms, each type's numbers, and refused sections.
#include "checkpoint/model_config.h"

#include <string.h>

#include "support/cmocka_all.h"
#include "support/config_text.h"

static void test_rope_forms_agree(void **state) {
    (void)state;
#define LLAMA3                                                                                     \
    "\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1, \"high_freq_factor\": 4," \
    " \"original_max_position_embeddings\": 512"
    const struct field forms[][CHANGES_MAX] = {
        {{"rope_parameters", "{" LLAMA3 ", \"rope_theta\": 500000.0}"}},
        {{"rope_scaling", "{" LLAMA3 "}"}, {"rope_theta", "500000"}},
        {{"rope_scaling", "{" LLAMA3 ", \"rope_theta\": 5e5}"}},
        {{"rope_parameters", "{" LLAMA3 "}"}, {"rope_theta", "500000.0"}},
        {{"rope_parameters", "{" LLAMA3 ", \"rope_theta\": 500000}"},
         {"rope_scaling", "{" LLAMA3 "}"},
         {"rope_theta", "500000"}},
        {{"rope_scaling", "{\"type\": \"llama3\", " LLAMA3 "}"}, {"rope_theta", "500000"}},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct model_config config = parse_ok(forms[i]);
        const struct rope_config *rope = &config.rope;
        assert_int_equal(rope->type, ROPE_LLAMA3);
        assert_true(rope->theta == 500000);
        assert_true(rope->factor == 8);
        assert_true(rope->low_freq_factor == 1 && rope->high_freq_factor == 4);
        assert_true(rope->original_max_position_embeddings == 512);
        assert_int_equal(config.max_position_embeddings, 2048);
        model_config_fini(&config);
    }
}

static void test_rope_types(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"rope_theta", "1000000"});
    assert_int_equal(config.rope.type, ROPE_DEFAULT);
    assert_true(config.rope.theta == 1e6);
    model_config_fini(&config);
    config = PARSE_OK({"rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 5e6}"});
    assert_true(config.rope.theta == 5e6);
    model_config_fini(&config);
    config = PARSE_OK({"rope_parameters", "{\"rope_theta\": 20000}"});
    assert_int_equal(config.rope.type, ROPE_DEFAULT);
    assert_true(config.rope.theta == 20000);
    model_config_fini(&config);
    config = PARSE_OK({"rope_scaling", "{\"type\": \"linear\", \"factor\": 2.5}"});
    assert_int_equal(config.rope.type, ROPE_LINEAR);
    assert_true(config.rope.factor == 2.5);
    assert_int_equal(config.max_position_embeddings, 2048);
    model_config_fini(&config);
}

static void test_yarn(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(
        {"rope_scaling", "{\"type\": \"yarn\", \"factor\": 4.0,"
                         " \"original_max_position_embeddings\": 1024, \"finetuned\": true}"});
    assert_int_equal(config.rope.type, ROPE_YARN);
    assert_true(config.rope.factor == 4);
    assert_true(config.rope.original_max_position_embeddings == 1024);
    assert_true(config.rope.beta_fast == 32 && config.rope.beta_slow == 1);
    assert_true(config.rope.attention_factor == 0 && config.rope.mscale == 0);
    assert_true(config.rope.truncate);
    assert_int_equal(config.max_position_embeddings, 4096); // 4 x 1024, declared 2048
    model_config_fini(&config);
    config = PARSE_OK({"rope_parameters",
                       "{\"rope_type\": \"yarn\", \"original_max_position_embeddings\": 512,"
                       " \"beta_fast\": 16, \"beta_slow\": 2, \"attention_factor\": 1.5,"
                       " \"mscale\": 0.7, \"mscale_all_dim\": 0.6, \"truncate\": false}"});
    assert_true(config.rope.factor == 4); // 2048 / 512
    assert_true(config.rope.beta_fast == 16 && config.rope.beta_slow == 2);
    assert_true(config.rope.attention_factor == 1.5);
    assert_true(config.rope.mscale == 0.7 && config.rope.mscale_all_dim == 0.6);
    assert_false(config.rope.truncate);
    assert_int_equal(config.max_position_embeddings, 2048);
    model_config_fini(&config);
    config = PARSE_OK({"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 2}"});
    assert_true(config.rope.original_max_position_embeddings == 2048);
    assert_int_equal(config.max_position_embeddings, 4096);
    model_config_fini(&config);
}

// Its angles differ from the plain ones only for positions that the model does not have.
static void test_dynamic_is_plain(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK({"rope_scaling", "{\"rope_type\": \"dynamic\", \"factor\": 6.0}"});
    assert_int_equal(config.rope.type, ROPE_DEFAULT);
    assert_int_equal(config.max_position_embeddings, 2048);
    model_config_fini(&config);
}

#define CLASS(name)                                                                                \
    { "architectures", "[\"" name "ForCausalLM\"]" }

// Apertus has a scaling without any key. Its theta belongs to it: of another one outside of it
// nobody can say whether the scaling holds.
static void test_scaling_of_a_class(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(CLASS("Apertus"), {"hidden_act", "\"xielu\""});
    assert_int_equal(config.rope.type, ROPE_LLAMA3);
    assert_true(config.rope.theta == 12e6);
    model_config_fini(&config);
    config = PARSE_OK(CLASS("Apertus"), {"hidden_act", "\"xielu\""}, {"rope_theta", "12000000.0"});
    assert_int_equal(config.rope.type, ROPE_LLAMA3);
    assert_true(config.rope.theta == 12e6);
    model_config_fini(&config);
    const struct refusal cases[] = {
        {{CLASS("Apertus"), {"hidden_act", "\"xielu\""}, {"rope_theta", "500000.0"}},
         ERR_FORMAT,
         "rope_theta|12000000|500000"},
    };
    REFUSE_ALL(cases);
}

// Phi-3's first folders named it su or yarn. Its class has an original length.
static void test_old_longrope(void **state) {
    (void)state;
#define EIGHT "1, 1, 1, 1, 1, 1, 1, 1"
#define FACTORS "[" EIGHT ", " EIGHT ", " EIGHT ", " EIGHT "]"
#define OLD(type)                                                                                  \
    {                                                                                              \
        "rope_scaling", "{\"type\": \"" type "\", \"short_factor\": " FACTORS                      \
                        ", \"long_factor\": " FACTORS "}"                                          \
    }
    const struct field types[] = {OLD("longrope"), OLD("su"), OLD("yarn")};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct model_config config =
            PARSE_OK(CLASS("Phi3"), {"max_position_embeddings", "131072"}, types[i]);
        assert_int_equal(config.rope.type, ROPE_LONG);
        assert_true(config.rope.original_max_position_embeddings == 4096);
        assert_true(config.rope.factor == 32);
        model_config_fini(&config);
    }
    struct model_config config = PARSE_OK(CLASS("Phi3"), {"max_position_embeddings", "131072"},
                                          types[0], {"original_max_position_embeddings", "8192"});
    assert_true(config.rope.factor == 16);
    model_config_fini(&config);
}

static void test_share_of_a_head_is_null(void **state) {
    (void)state;
    const struct {
        struct field architecture, key;
        double partial;
    } cases[] = {{CLASS("Glm"), {"partial_rotary_factor", NULL}, 0.5},
                 {CLASS("Glm"), {"partial_rotary_factor", "null"}, 1},
                 {CLASS("Glm"),
                  {"rope_parameters", "{\"rope_theta\": 1e4, \"partial_rotary_factor\": 0.25}"},
                  0.25},
                 {CLASS("Bamba"), {"partial_rotary_factor", "null"}, 0.5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config =
            PARSE_OK(cases[i].architecture, cases[i].key, {"mamba_n_heads", "16"});
        assert_true(config.rope.partial == cases[i].partial);
        model_config_fini(&config);
    }
}

// Text models of models of images have other defaults than their makers' text models.
static void test_defaults_of_text_models(void **state) {
    (void)state;
#define VL(type, keys)                                                                             \
    "{\"tie_word_embeddings\": false, \"text_config\": {\"model_type\": \"" type                   \
    "\", \"vocab_size\": 99, \"hidden_size\": 64, \"intermediate_size\": 96, "                     \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 512, "     \
    "\"tie_word_embeddings\": true" keys "}}"
    static const struct {
        const char *text;
        double theta;
        float eps;
        bool is_tied;
    } cases[] = {
        {VL("qwen2_vl_text", ""), 1e6, 1e-5f, true},
        {VL("qwen2_5_vl_text", ", \"rope_theta\": 5000, \"rms_norm_eps\": 1e-6"), 5000, 1e-6f,
         true},
        {VL("qwen3_vl_text", ""), 5e5, 1e-6f, false},
        {VL("qwen3_vl_text", ", \"rope_parameters\": {\"rope_theta\": 5000}"), 5000, 1e-6f, false},
        {VL("qwen3_vl_moe_text", ", \"rope_scaling\": {\"rope_theta\": 5000}"), 5000, 1e-6f, false},
        {VL("qwen3_vl_moe_text", ", \"rope_scaling\": null"), 5e5, 1e-6f, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        const char *text = cases[i].text;
        assert_int_equal(model_config_parse(&config, text, strlen(text), "c.json", NULL), OK);
        assert_true(config.rope.theta == cases[i].theta && config.rms_norm_eps == cases[i].eps);
        assert_int_equal(config.tie_word_embeddings, cases[i].is_tied);
        model_config_fini(&config);
    }
}

// Text models that are another family's, and what their rows say of missing keys.
static void test_families_of_text_models(void **state) {
    (void)state;
    static const struct {
        const char *text, *architecture;
        enum config_flag bias;
        double partial;
        bool is_tied;
    } cases[] = {
        {VL("glm4v_text", ""), "Glm4ForCausalLM", FLAG_TRUE, 1, true},
        {VL("glm4v_moe_text", ""), "Glm4MoeForCausalLM", FLAG_TRUE, 0.5, true},
        {VL("glm4v_moe_text", ", \"attention_bias\": false"), "Glm4MoeForCausalLM", FLAG_FALSE, 0.5,
         true},
        {VL("exaone4_5_text", ""), "Exaone4ForCausalLM", FLAG_ABSENT, 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        struct err err = {0};
        const char *text = cases[i].text;
        if (model_config_parse(&config, text, strlen(text), "c.json", &err)) {
            fail_msg("%s", err.message);
        }
        assert_string_equal(config.architecture, cases[i].architecture);
        assert_int_equal(config.attention_bias, cases[i].bias);
        assert_true(config.rope.partial == cases[i].partial);
        assert_int_equal(config.tie_word_embeddings, cases[i].is_tied);
        model_config_fini(&config);
    }
}

static void test_bad_rope(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{{"rope_theta", "\"1e6\""}}, ERR_FORMAT, "rope_theta|a string"},
        {{{"rope_theta", "0"}}, ERR_FORMAT, "rope_theta|0"},
        {{{"rope_theta", "-5"}}, ERR_FORMAT, "rope_theta|-5"},
        {{{"rope_scaling", "\"yarn\""}}, ERR_FORMAT, "rope_scaling|a string"},
        {{{"rope_scaling", "[]"}}, ERR_FORMAT, "rope_scaling|a list"},
        {{{"rope_parameters", "3"}}, ERR_FORMAT, "rope_parameters|an integer"},
        {{{"rope_scaling", "{\"type\": 1}"}}, ERR_FORMAT, "rope_scaling|type|an integer"},
        {{{"rope_scaling", "{\"factor\": 2}"}},
         ERR_FORMAT,
         "rope_scaling|rope_type|missing|dynamic"},
        {{{"rope_scaling", "{\"type\": \"su\", \"factor\": 2}"}},
         ERR_UNSUPPORTED,
         "rope_scaling|rope_type|su|dynamic"},
        {{{"rope_scaling", "{\"rope_type\": \"longrope\"}"}}, ERR_FORMAT, "short_factor|missing"},
        {{{"rope_scaling",
           "{\"rope_type\": \"longrope\", \"short_factor\": [1, 0], \"long_factor\": [1, 1]}"}},
         ERR_FORMAT,
         "short_factor|0 at 1"},
        {{{"rope_scaling",
           "{\"rope_type\": \"longrope\", \"short_factor\": [1, 1], \"long_factor\": [1]}"}},
         ERR_FORMAT,
         "short_factor|2 numbers|long_factor|1"},
        {{{"rope_scaling",
           "{\"rope_type\": \"longrope\", \"short_factor\": [1, 1], \"long_factor\": [1, 1]}"}},
         ERR_FORMAT,
         "short_factor|2 numbers, want 32"},
        {{{"rope_scaling", "{\"type\": \"mrope\"}"}}, ERR_UNSUPPORTED, "mrope"},
        {{{"rope_scaling", "{\"rope_type\": \"default\", \"mrope_section\": [1, 2]}"}},
         ERR_UNSUPPORTED,
         "rope_scaling|mrope_section"},
        {{{"rope_parameters", "{\"full_attention\": {\"rope_theta\": 1e6}}"}},
         ERR_UNSUPPORTED,
         "rope_parameters|full_attention"},
        {{{"rope_scaling", "{\"rope_type\": \"yarn\", \"type\": \"linear\", \"factor\": 2}"}},
         ERR_FORMAT,
         "rope_scaling|yarn|linear"},
        {{{"rope_parameters", "{\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}"}},
         ERR_UNSUPPORTED,
         "partial_rotary_factor|0.25"},
        {{{"rope_parameters", "{\"rope_theta\": 10000}"}, {"rope_theta", "20000"}},
         ERR_FORMAT,
         "rope_parameters|rope_theta|10000|20000"},
        {{{"rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 2}"},
          {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 4}"}},
         ERR_FORMAT,
         "rope_parameters|rope_scaling|disagree"},
        {{{"rope_scaling", "{\"type\": \"linear\"}"}}, ERR_FORMAT, "rope_scaling|factor|missing"},
        {{{"rope_scaling", "{\"type\": \"linear\", \"factor\": 0.5}"}}, ERR_FORMAT, "factor|0.5"},
        {{{"rope_scaling", "{\"type\": \"linear\", \"factor\": \"2\"}"}},
         ERR_FORMAT,
         "rope_scaling|factor|a string"},
        {{{"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}"}},
         ERR_FORMAT,
         "rope_scaling|low_freq_factor|missing"},
        {{{"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4,"
                           " \"high_freq_factor\": 3}"}},
         ERR_FORMAT,
         "high_freq_factor|3|low_freq_factor|4"},
        {{{"rope_scaling", "{\"type\": \"yarn\"}"}}, ERR_FORMAT, "rope_scaling|factor|missing"},
        {{{"rope_scaling", "{\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 0.5}"}},
         ERR_FORMAT,
         "beta_fast|0.5|beta_slow"},
        {{{"rope_scaling", "{\"type\": \"yarn\", \"factor\": 2, \"attention_factor\": -1}"}},
         ERR_FORMAT,
         "attention_factor|-1"},
        {{{"rope_scaling", "{\"type\": \"yarn\", \"factor\": 2, \"truncate\": 1}"}},
         ERR_FORMAT,
         "truncate|true or false"},
        {{{"rope_scaling", "{\"type\": \"yarn\", \"factor\": 2,"
                           " \"original_max_position_embeddings\": 0}"}},
         ERR_FORMAT,
         "original_max_position_embeddings|0"},
    };
    REFUSE_ALL(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_forms_agree),
        cmocka_unit_test(test_rope_types),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_dynamic_is_plain),
        cmocka_unit_test(test_scaling_of_a_class),
        cmocka_unit_test(test_old_longrope),
        cmocka_unit_test(test_share_of_a_head_is_null),
        cmocka_unit_test(test_defaults_of_text_models),
        cmocka_unit_test(test_families_of_text_models),
        cmocka_unit_test(test_bad_rope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
