// Which layers have a window, by the keys of config.json and each class' defaults.
#include "checkpoint/classes/window_config.h"

#include "support/cmocka_all.h"
#include "support/config_text.h"

static const char cwm[] = "[\"CwmForCausalLM\"]";

static void test_sliding_window(void **state) {
    (void)state;
    static const char mistral[] = "[\"MistralForCausalLM\"]";
    static const char llama[] = "[\"LlamaForCausalLM\"]";
    static const char moe[] = "[\"Qwen3MoeForCausalLM\"]";
    static const char qwen2_moe[] = "[\"Qwen2MoeForCausalLM\"]";
    static const char exaone4[] = "[\"Exaone4ForCausalLM\"]";
    static const char full[] = "[\"full_attention\", \"full_attention\", \"full_attention\"]";
    static const char mixed[] = "[\"full_attention\", \"sliding_attention\", \"full_attention\"]";
    static const struct {
        struct field changes[CHANGES_MAX];
        uint32_t want; // 0: off
        const char *layers; // 's' for each with the window; NULL: all
    } cases[] = {
        {{{"sliding_window", "null"}}, 0, NULL},
        {{{"sliding_window", "512"}}, 0, NULL}, // Qwen: off unless switched on
        {{{"sliding_window", "512"}, {"use_sliding_window", "false"}}, 0, NULL},
        {{{"sliding_window", "null"}, {"use_sliding_window", "true"}}, 0, NULL},
        {{{"sliding_window", "512"}, {"use_sliding_window", "true"}}, 0, NULL}, // from layer 28 on
        {{{"use_sliding_window", "true"}, {"max_window_layers", "0"}}, 4096, NULL},
        {{{"use_sliding_window", "true"}, {"architectures", moe}}, 4096, NULL},
        {{{"sliding_window", "512"}, {"use_sliding_window", "true"}, {"architectures", moe}},
         512,
         NULL},
        {{{"sliding_window", "512"}, {"architectures", moe}}, 0, NULL},
        {{{"use_sliding_window", "true"}, {"architectures", qwen2_moe}}, 4096, "sfs"},
        {{{"use_sliding_window", "true"}, {"architectures", qwen2_moe}, {"max_window_layers", "2"}},
         4096,
         "sff"},
        {{{"sliding_window", "512"}, {"use_sliding_window", "true"}, {"max_window_layers", "0"}},
         512,
         NULL},
        {{{"sliding_window", "512"}, {"use_sliding_window", "true"}, {"max_window_layers", "3"}},
         0,
         NULL},
        {{{"sliding_window", "512"}, {"use_sliding_window", "true"}, {"layer_types", full}},
         0,
         NULL},
        {{{"sliding_window", "512"}, {"use_sliding_window", "true"}, {"layer_types", mixed}},
         512,
         "fsf"},
        {{{"sliding_window", "512"}, {"use_sliding_window", "true"}, {"max_window_layers", "2"}},
         512,
         "ffs"},
        {{{"layer_types", full}}, 0, NULL},
        {{{"layer_types", mixed}}, 0, NULL}, // windows are off
        {{{"architectures", mistral}, {"sliding_window", "4096"}}, 4096, NULL},
        {{{"architectures", "[\"MinistralForCausalLM\"]"}}, 4096, NULL},
        {{{"architectures", cwm}}, 8192, "fss"},
        {{{"architectures", cwm}, {"sliding_window_pattern", "2"}}, 8192, "fss"}, // no key of it
        {{{"architectures", "[\"GraniteSWAForCausalLM\"]"}}, 128, "fss"},
        {{{"architectures", "[\"VaultGemmaForCausalLM\"]"}}, 4096, "sfs"},
        {{{"architectures", mistral}, {"sliding_window", "4096"}, {"max_window_layers", "1"}},
         4096,
         NULL},
        {{{"architectures", "[\"MixtralForCausalLM\"]"},
          {"sliding_window", "4096"},
          {"max_window_layers", "1"}},
         4096,
         NULL},
        {{{"architectures", mistral}, {"sliding_window", "null"}}, 0, NULL},
        {{{"architectures", mistral}}, 4096, NULL}, // transformers' default, on
        {{{"architectures", mistral}, {"use_sliding_window", "false"}}, 4096, NULL}, // not its key
        {{{"architectures", exaone4},
          {"sliding_window", "512"},
          {"sliding_window_pattern", "\"LG\""}},
         512,
         "sfs"},
        {{{"architectures", exaone4}, {"sliding_window", "null"}, {"sliding_window_pattern", "0"}},
         0,
         NULL},
        {{{"architectures", llama}}, 0, NULL},
        {{{"architectures", llama}, {"sliding_window", "512"}}, 0, NULL},
        {{{"architectures", llama}, {"sliding_window", "512"}, {"use_sliding_window", "true"}},
         0,
         NULL},
        {{{"architectures", "[\"SmolLM3ForCausalLM\"]"},
          {"sliding_window", "512"},
          {"use_sliding_window", "true"},
          {"no_rope_layers", "[1, 0, 1]"}},
         512,
         "fsf"},
        {{{"architectures", "[\"SmolLM3ForCausalLM\"]"},
          {"sliding_window", "512"},
          {"use_sliding_window", "false"},
          {"layer_types", mixed}},
         512,
         "fsf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config = parse_ok(cases[i].changes);
        assert_int_equal(config.sliding_window, cases[i].want);
        const char *layers = cases[i].layers ? cases[i].layers : "sss";
        assert_int_equal(config.is_sliding != NULL, cases[i].want != 0);
        for (uint32_t k = 0; config.is_sliding && k < config.num_layers; k++) {
            assert_int_equal(config.is_sliding[k], layers[k] == 's');
        }
        model_config_fini(&config);
    }
}

static void test_bad_sliding_window(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {{{"sliding_window", "0"}, {"use_sliding_window", "true"}}, ERR_FORMAT, "sliding_window|0"},
        {{{"sliding_window", "-1"}}, ERR_FORMAT, "sliding_window|-1"},
        {{{"sliding_window", "true"}}, ERR_FORMAT, "sliding_window|a boolean"},
        {{{"use_sliding_window", "1"}}, ERR_FORMAT, "use_sliding_window|true or false"},
        {{{"architectures", "[\"Exaone4ForCausalLM\"]"}, {"sliding_window_pattern", "0"}},
         ERR_FORMAT,
         "sliding_window_pattern|0"},
        {{{"max_window_layers", "\"all\""}}, ERR_FORMAT, "max_window_layers|a string"},
        {{{"layer_types", "\"full_attention\""}}, ERR_FORMAT, "layer_types|a string"},
        {{{"layer_types", "[\"full_attention\"]"}}, ERR_FORMAT, "layer_types|1 entries|3 layers"},
        {{{"layer_types", "[\"full_attention\", 2, \"full_attention\"]"}},
         ERR_FORMAT,
         "layer_types|an integer at 1"},
        {{{"layer_types", "[\"full_attention\", \"linear_attention\", \"full_attention\"]"}},
         ERR_UNSUPPORTED,
         "layer_types|linear_attention|at 1"},
    };
    REFUSE_ALL(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sliding_window),
        cmocka_unit_test(test_bad_sliding_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
