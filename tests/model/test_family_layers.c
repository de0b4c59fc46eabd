// What families with LayerNorms, MLPs without a gate or parallel layers make of a configuration.
#include "model/family.h"
#include "support/cmocka_all.h"
#include "support/config_text.h"

static struct layer_table resolve(const struct field changes[CHANGES_MAX]) {
    struct model_config config = parse_ok(changes);
    struct layer_table table;
    struct err err = {0};
    if (family_resolve(&table, &config, &err)) fail_msg("%s", err.message);
    model_config_fini(&config);
    return table;
}

// Classes have names of their own for the keys of biases, and other defaults.
static void test_biases_by_other_keys(void **state) {
    (void)state;
    static const struct {
        struct field changes[CHANGES_MAX];
        bool qkv, o, mlp;
    } cases[] = {
        {{{"architectures", "[\"Starcoder2ForCausalLM\"]"}}, true, true, true},
        {{{"architectures", "[\"Starcoder2ForCausalLM\"]"}, {"use_bias", "false"}},
         false,
         false,
         false},
        {{{"architectures", "[\"StableLmForCausalLM\"]"}}, false, false, false},
        {{{"architectures", "[\"StableLmForCausalLM\"]"}, {"use_qkv_bias", "true"}},
         true,
         false,
         false},
        {{{"architectures", "[\"InternLM3ForCausalLM\"]"}, {"qkv_bias", "true"}, {"bias", "true"}},
         true,
         true,
         true},
        {{{"architectures", "[\"NemotronForCausalLM\"]"}, {"mlp_bias", "true"}},
         false,
         false,
         true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct layer_table table = resolve(cases[i].changes);
        assert_int_equal(table.layers[0].has_qkv_bias, cases[i].qkv);
        assert_int_equal(table.layers[0].has_o_bias, cases[i].o);
        assert_int_equal(table.layers[0].has_mlp_bias, cases[i].mlp);
        layer_table_fini(&table);
    }
}

static void test_mlps_without_a_gate(void **state) {
    (void)state;
    static const struct {
        const char *architecture;
        enum activation activation;
        bool is_layer_norm;
    } cases[] = {{"[\"ArceeForCausalLM\"]", ACTIVATION_RELU_SQUARED, false},
                 {"[\"NemotronForCausalLM\"]", ACTIVATION_RELU_SQUARED, true},
                 {"[\"Starcoder2ForCausalLM\"]", ACTIVATION_GELU_TANH, true},
                 {"[\"PhiForCausalLM\"]", ACTIVATION_GELU_TANH, true},
                 {"[\"ApertusForCausalLM\"]", ACTIVATION_XIELU, false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct layer_table table =
            resolve((const struct field[CHANGES_MAX]){{"architectures", cases[i].architecture}});
        assert_true(layer_table_lacks_gate(&table) && !layer_table_is_even(&table));
        assert_int_equal(table.layers[0].activation, cases[i].activation);
        assert_true(table.is_layer_norm == cases[i].is_layer_norm);
        assert_true(table.has_norm_bias == cases[i].is_layer_norm);
        layer_table_fini(&table);
    }
}

// Attention and MLP share one norm. Only layers with a window have a rotary embedding.
static void test_parallel_layers_of_command_a(void **state) {
    (void)state;
    struct layer_table table = resolve((const struct field[CHANGES_MAX]){
        {"architectures", "[\"Cohere2ForCausalLM\"]"}, {"num_hidden_layers", "4"}});
    assert_true(table.is_layer_norm && !table.has_norm_bias && table.is_rope_interleaved);
    assert_true(table.logits_scale == 0.0625f); // the class' default
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(table.layers[i].is_parallel);
        assert_int_equal(table.layers[i].window, i == 3 ? 0 : 4096);
        assert_int_equal(layer_table_rope(&table, i) == NULL, i == 3);
    }
    assert_false(layer_table_is_even(&table));
    layer_table_fini(&table);
}

// Chunks and norms of heads are in layers with a rotary embedding. The others scale q.
static void test_layers_of_llama4(void **state) {
    (void)state;
    const struct field changes[CHANGES_MAX] = {{"architectures", "[\"Llama4ForCausalLM\"]"},
                                               {"intermediate_size_mlp", "96"},
                                               {"num_hidden_layers", "4"},
                                               {"attention_chunk_size", "64"},
                                               {"no_rope_layers", "[]"}};
    struct layer_table table = resolve(changes);
    assert_true(table.is_chunked && table.scales_expert_inputs);
    for (uint32_t i = 0; i < 4; i++) {
        const struct layer *layer = &table.layers[i];
        const struct rope_config *rope = layer_table_rope(&table, i);
        assert_int_equal(layer->window, i == 3 ? 0 : 64);
        assert_int_equal(layer->rotary_dim, i == 3 ? 0 : 128);
        assert_int_equal(layer->head_norm, i == 3 ? HEAD_NORM_NONE : HEAD_NORM_EACH);
        assert_true(rope->query_beta == (i == 3 ? 0.1 : 0));
    }
    assert_true(layer_table_rope(&table, 3)->query_length == 8192);
    layer_table_plan_kv(&table, 8191, 8, 1); // q of position 8191 would be the first that is scaled
    assert_true(layer_table_rope(&table, 3)->query_beta == 0);
    layer_table_fini(&table);
    table = resolve(changes);
    layer_table_plan_kv(&table, 8192, 8, 1);
    assert_true(layer_table_rope(&table, 3)->query_beta == 0.1);
    layer_table_fini(&table);
}

// Layers with the same theta share a table; a theta of 0 means no rotary embedding.
static void test_thetas_of_layers(void **state) {
    (void)state;
    const struct field architecture = {"architectures", "[\"GraniteSWAForCausalLM\"]"};
    const struct field changes[CHANGES_MAX] = {
        architecture, {"num_hidden_layers", "4"}, {"layer_rope_theta", "[500, 0, 1e6, 500]"}};
    struct layer_table table = resolve(changes);
    assert_int_equal(table.num_ropes, 2);
    assert_true(layer_table_rope(&table, 0)->theta == 500);
    assert_null(layer_table_rope(&table, 1));
    assert_true(layer_table_rope(&table, 2)->theta == 1e6);
    assert_ptr_equal(layer_table_rope(&table, 3), layer_table_rope(&table, 0));
    layer_table_fini(&table);
    const struct field many[CHANGES_MAX] = {
        architecture, {"num_hidden_layers", "5"}, {"layer_rope_theta", "[1, 2, 3, 4, 5]"}};
    struct model_config config = parse_ok(many);
    struct err err = {0};
    assert_int_equal(family_resolve(&table, &config, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "more than 4 kinds"));
    model_config_fini(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_biases_by_other_keys),
        cmocka_unit_test(test_mlps_without_a_gate),
        cmocka_unit_test(test_parallel_layers_of_command_a),
        cmocka_unit_test(test_layers_of_llama4),
        cmocka_unit_test(test_thetas_of_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
