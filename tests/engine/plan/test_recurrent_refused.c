/* Recurrent layers and LayerNorms of heads on a device without them, which plain_backend.c is, and
 * what a table of recurrent layers may not say. */
#include <stdio.h>
#include <string.h>

#include "base/os/file.h"
#include "model/family.h"
#include "support/cmocka_all.h"
#include "support/config_text.h"
#include "support/engine_fixture.h"
#include "support/gguf_builder.h"
#include "support/temp_folder.h"

static void test_a_device_without_them_refuses_by_name(void **state) {
    (void)state;
    static const struct {
        const char *model, *message;
    } cases[] = {{"tests/reference/data/qwen3-5",
                  "tests/reference/data/qwen3-5/config.json: recurrent layers (linear attention) "
                  "are not supported on the device plain"},
                 {"tests/reference/data/granite4-h",
                  "tests/reference/data/granite4-h/config.json: Mamba layers are not supported on "
                  "the device plain"},
                 {"tests/reference/data/cohere-plus",
                  "tests/reference/data/cohere-plus/config.json: LayerNorms of heads are not "
                  "supported on the device plain"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct nvllm_engine_options options = small_options();
        struct nvllm_engine *engine = NULL;
        struct nvllm_error error = {0};
        options.model = cases[i].model;
        options.device = "cuda"; // the plain backend replaces it
        assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_UNSUPPORTED);
        assert_string_equal(error.message, cases[i].message);
    }
}

// Its configuration is in the file. It has LayerNorms.
static void test_a_file_is_named_as_it_is(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"command-r.context_length", 64},      {"command-r.embedding_length", 32},
                 {"command-r.block_count", 1},          {"command-r.feed_forward_length", 16},
                 {"command-r.attention.head_count", 2}, {"command-r.attention.head_count_kv", 1}};
    static const uint64_t embedding[] = {32, 12};
    struct temp_folder folder;
    char path[256], want[400];
    struct buf bytes = {0};
    put_start(&bytes, 1, ARRAY_LEN(sizes) + 3);
    put_string_value(&bytes, "general.architecture", "command-r");
    put_f32_value(&bytes, "command-r.attention.layer_norm_epsilon", 1e-5f);
    put_f32_value(&bytes, "command-r.logit_scale", 0.5f);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        put_u32_value(&bytes, sizes[i].key, sizes[i].value);
    }
    put_tensor(&bytes, "token_embd.weight", 2, embedding, 0, 0);
    put_data(&bytes, 32, 32 * 12 * sizeof(float));
    temp_folder_create(&folder);
    temp_folder_write(&folder, "m.gguf", bytes.data, bytes.len);
    buf_fini(&bytes);
    assert_int_equal(file_join(path, sizeof path, folder.path, "m.gguf", NULL), OK);
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    options.model = path;
    options.device = "cuda"; // the plain backend replaces it
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_UNSUPPORTED);
    snprintf(want, sizeof want,
             "%s (as config.json): LayerNorms are not supported on the device plain", path);
    assert_string_equal(error.message, want);
    temp_folder_remove(&folder);
}

static uint32_t window;
static uint32_t num_recurrent;
static uint32_t rope;
static bool has_mamba; // beside them

static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    for (uint32_t i = 0; i < num_recurrent; i++) {
        table->layers[i].mixer = MIXER_GATED_DELTA_NET;
        table->layers[i].window = window;
        table->layers[i].rope = rope;
        table->layers[i].has_mamba = has_mamba;
    }
}

static const struct model_family family = {
    .name = "Test", .architecture = "Qwen3ForCausalLM", .change = change};

static void expect_refused_layers(const char *words) {
    struct model_config config = PARSE_OK({"num_hidden_layers", "3"});
    struct layer_table table;
    struct err err = {0};
    assert_int_equal(family_apply(&table, &family, &config, &err), ERR_UNSUPPORTED);
    expect_words(&err, words);
    model_config_fini(&config);
}

static void test_values_without_code_are_refused_by_name(void **state) {
    (void)state;
    num_recurrent = 1;
    rope = 0;
    expect_refused_layers("Test: layer 0 has linear attention with a rotary embedding");
    rope = ROPE_NONE;
    window = 64;
    expect_refused_layers("Test: layer 0 has linear attention over a window");
    window = 0;
    has_mamba = true;
    expect_refused_layers("Test: layer 0 has Mamba-2 beside no plain attention");
    has_mamba = false;
    num_recurrent = 3;
    expect_refused_layers("Test: a model without any layer of softmax attention");
}

// Only the layers with KV are in KV groups, one behind the other.
static void test_layers_with_a_state_have_no_kv(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"num_hidden_layers", "3"});
    struct layer_table table;
    num_recurrent = 2;
    rope = ROPE_NONE;
    assert_int_equal(family_apply(&table, &family, &config, NULL), OK);
    assert_int_equal(layer_table_num_states(&table), 2);
    assert_false(layer_table_is_even(&table));
    layer_table_plan_kv(&table, 100, KV_GROUPS_MAX, 1);
    assert_int_equal(table.num_kv_groups, 1);
    assert_int_equal(table.layers_per_group, 1);
    assert_int_equal(table.layers[2].kv_index, 0);
    layer_table_fini(&table);
    model_config_fini(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_device_without_them_refuses_by_name),
        cmocka_unit_test(test_a_file_is_named_as_it_is),
        cmocka_unit_test(test_values_without_code_are_refused_by_name),
        cmocka_unit_test(test_layers_with_a_state_have_no_kv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
