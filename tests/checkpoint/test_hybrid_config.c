/* config.json of models with Mamba-2 beside attention: Falcon-H1's factors and sizes, and Bamba's
 * layers. */
#include <stdlib.h>

#include "support/cmocka_all.h"
#include "support/config_text.h"

#define FALCON                                                                                     \
    { "architectures", "[\"FalconH1ForCausalLM\"]" }
#define BAMBA                                                                                      \
    { "architectures", "[\"BambaForCausalLM\"]" }

static void test_factors(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK(FALCON, {"ssm_multipliers", "[1, 2, 3, 4, 0.5]"}, {"mlp_multipliers", "[5, 6]"},
                 {"key_multiplier", "7"}, {"lm_head_multiplier", "0.25"}, {"mamba_n_heads", "16"});
    const struct hybrid_factors *f = &config.own.factors;
    static const float ssm[5] = {1, 2, 3, 4, 0.5f};
    assert_memory_equal(f->ssm, ssm, sizeof ssm);
    assert_true(f->gate == 5 && f->down == 6 && f->key == 7 && f->lm_head == 0.25f);
    assert_true(f->attention_in == 1 && f->attention_out == 1 && f->ssm_in == 1 && f->ssm_out == 1);
    assert_true(config.own.lacks_mamba_norm); // as the class has it
    assert_int_equal(config.own.mamba.num_heads * config.own.mamba.head_dim, 1024);
    model_config_fini(&config);
}

// Without a width of their own the heads are as wide as in other models.
static void test_widths(void **state) {
    (void)state;
    struct model_config config =
        PARSE_OK(FALCON, {"mamba_d_ssm", "96"}, {"mamba_n_heads", "6"}, {"mamba_rms_norm", "true"},
                 {"mamba_norm_before_gate", "false"});
    assert_int_equal(config.own.mamba.head_dim, 16);
    assert_false(config.own.lacks_mamba_norm);
    model_config_fini(&config);
    config = PARSE_OK(FALCON, {"mamba_d_ssm", "null"}, {"mamba_n_heads", "4"});
    assert_int_equal(config.own.mamba.head_dim * 4, 2 * config.hidden_size);
    model_config_fini(&config);
}

static void test_what_falcon_refuses(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{FALCON, {"mamba_d_ssm", "96"}, {"mamba_n_heads", "6"}, {"mamba_d_head", "32"}},
         ERR_FORMAT,
         "\"mamba_d_head\" 32, want together \"mamba_d_ssm\", 96"},
        {{FALCON, {"mamba_rms_norm", "true"}},
         ERR_UNSUPPORTED,
         "\"mamba_norm_before_gate\" is true"},
        {{FALCON, {"ssm_multipliers", "[1, 2]"}}, ERR_FORMAT, "\"ssm_multipliers\" is|of 2, want"},
        {{FALCON, {"mlp_multipliers", "[1, \"2\"]"}}, ERR_FORMAT, "\"mlp_multipliers\"|at 1"},
        {{FALCON, {"attention_bias", "true"}, {"attention_in_multiplier", "2"}},
         ERR_UNSUPPORTED,
         "\"attention_in_multiplier\"|\"attention_bias\""},
        {{FALCON, {"attn_layer_indices", "[1]"}}, ERR_UNSUPPORTED, "\"attn_layer_indices\" has 1"},
        {{FALCON, {"projectors_bias", "true"}}, ERR_UNSUPPORTED, "\"projectors_bias\" is true"},
    };
    REFUSE_ALL(cases);
}

// The layers with attention are those of a list of numbers.
static void test_layers_of_bamba(void **state) {
    (void)state;
    struct model_config config = PARSE_OK(BAMBA, {"num_hidden_layers", "4"},
                                          {"attn_layer_indices", "[1, 3]"}, {"mamba_n_heads", "4"});
    for (int i = 0; i < 4; i++) assert_int_equal(config.own.is_linear[i], i % 2 == 0);
    assert_true(config.rope.partial == 0.5);
    model_config_fini(&config);
    static const struct refusal cases[] = {
        {{BAMBA, {"num_hidden_layers", "4"}, {"attn_layer_indices", "[1, 4]"}},
         ERR_FORMAT,
         "\"attn_layer_indices\" has no layer's number at 1, want 0 to 3"},
        {{BAMBA, {"attn_layer_indices", "1"}}, ERR_FORMAT, "\"attn_layer_indices\" is|want a list"},
    };
    REFUSE_ALL(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_what_falcon_refuses),
        cmocka_unit_test(test_layers_of_bamba),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
