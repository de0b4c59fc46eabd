// Each layer computes what its entry in the table of layers says.
#include <string.h>

#include "model/decoder.h"
#include "model/family.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"

enum { TOKENS = 2, BLOCK_SIZE = 16, POSITIONS = 64, LOGITS = 16 };

static const char checkpoint[] = "tests/reference/data/qwen3";

// Writes some logits of two tokens at positions 0 and `distance`, where the first num_without_rope
// layers have no rotary embedding.
static void run(uint32_t num_without_rope, int32_t distance, float logits[LOGITS]) {
    const struct backend_options options = {
        .device = "cpu", .cpu_isa = "auto", .threads = 1, .weight_dtype = DTYPE_BF16};
    const struct step_limits limits = {.max_num_tokens = TOKENS,
                                       .max_num_seqs = 1,
                                       .max_positions = POSITIONS,
                                       .max_blocks_per_seq = 1};
    struct model_config config;
    struct generation_config generation;
    struct layer_table table;
    struct decoder_shape shape;
    struct backend *backend = NULL;
    struct weights *weights = NULL;
    struct decoder *decoder = NULL;
    struct kv_cache *cache = NULL;
    struct comm comm = comm_single();
    struct err err = {0};
    if (folder_model_config(&config, &generation, checkpoint, &err)) fail_msg("%s", err.message);
    if (family_resolve(&table, &config, &err)) fail_msg("%s", err.message);
    assert_true(num_without_rope <= table.num_layers);
    for (uint32_t i = 0; i < num_without_rope; i++) table.layers[i].rope = ROPE_NONE;
    if (decoder_shape_of(&shape, &config, &table, 0, 1, &err)) fail_msg("%s", err.message);
    if (backend_create(&backend, &options, &err)) fail_msg("%s", err.message);
    if (folder_model_weights(&weights, checkpoint, &err)) fail_msg("%s", err.message);
    const struct kv_cache_spec spec = {.num_layers = config.num_layers,
                                       .num_blocks = 1,
                                       .block_size = BLOCK_SIZE,
                                       .num_kv_heads = config.num_kv_heads,
                                       .head_dim = config.head_dim,
                                       .num_heads = config.num_heads,
                                       .limits = limits};
    if (backend->ops->kv_cache_create(backend, &spec, &cache, &err)) fail_msg("%s", err.message);
    const struct decoder_options decoder_options = {.config = &config,
                                                    .table = &table,
                                                    .shape = &shape,
                                                    .backend = backend,
                                                    .comm = &comm,
                                                    .limits = limits};
    if (decoder_create(&decoder, &decoder_options, weights, &err)) fail_msg("%s", err.message);

    int32_t tokens[TOKENS] = {5, 9}, positions[TOKENS] = {0, distance}, slots[TOKENS] = {0, 1};
    int32_t query_start[] = {0, TOKENS}, context_len[] = {TOKENS}, block_table[] = {0};
    int32_t logit_index[] = {TOKENS - 1};
    const struct step step = {.num_tokens = TOKENS,
                              .num_seqs = 1,
                              .num_logits = 1,
                              .table_stride = 1,
                              .max_query_len = TOKENS,
                              .max_context_len = TOKENS,
                              .tokens = tokens,
                              .positions = positions,
                              .slot_mapping = slots,
                              .query_start = query_start,
                              .context_len = context_len,
                              .block_tables = block_table,
                              .table_row = block_table, // row 0
                              .logit_index = logit_index};
    const float *all = decoder_forward(decoder, cache, &step);
    memcpy(logits, all, LOGITS * sizeof *logits);

    decoder_destroy(decoder);
    backend->ops->kv_cache_destroy(backend, cache);
    weights_close(weights);
    backend_destroy(backend);
    layer_table_fini(&table);
    model_config_fini(&config);
}

// Rotations by positions are all that tells two distances apart.
static void test_layers_without_rope_do_not_see_positions(void **state) {
    (void)state;
    float near[LOGITS], far[LOGITS];
    run(3, 1, near);
    run(3, 40, far);
    assert_memory_equal(near, far, sizeof near);
    run(2, 1, near); // one layer sees them
    run(2, 40, far);
    assert_memory_not_equal(near, far, sizeof near);
}

// Ranks exchange the sums of squares of norms over all heads in rows of hidden_size.
static void test_hidden_size_has_room_for_sums_of_squares(void **state) {
    (void)state;
    struct model_config config;
    struct generation_config generation;
    struct layer_table table;
    struct decoder_shape shape;
    struct err err = {0};
    assert_int_equal(folder_model_config(&config, &generation, checkpoint, &err), OK);
    assert_int_equal(family_resolve(&table, &config, &err), OK);
    config.hidden_size = 15;
    assert_int_equal(decoder_shape_of(&shape, &config, &table, 0, 2, &err), OK);
    table.layers[1].head_norm = HEAD_NORM_ROW;
    assert_int_equal(decoder_shape_of(&shape, &config, &table, 0, 2, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "hidden_size is 15, too small for 2 ranks"));
    config.hidden_size = 16;
    assert_int_equal(decoder_shape_of(&shape, &config, &table, 0, 2, &err), OK);
    layer_table_fini(&table);
    model_config_fini(&config);
}

// Only EXAONE 4's large model, which has windows, has layers without a rotary embedding.
static void test_ropes_of_exaone4(void **state) {
    (void)state;
    static const char *const folders[] = {"bench/configs/exaone-4-1.2b",
                                          "bench/configs/exaone-4-32b"};
    for (uint32_t large = 0; large < 2; large++) {
        struct model_config config;
        struct generation_config generation;
        struct layer_table table;
        assert_int_equal(folder_model_config(&config, &generation, folders[large], NULL), OK);
        assert_int_equal(family_resolve(&table, &config, NULL), OK);
        for (uint32_t i = 0; i < table.num_layers; i++) {
            bool has_rope = !large || i % 4 != 3;
            assert_int_equal(table.layers[i].rope, has_rope ? 0 : ROPE_NONE);
        }
        layer_table_fini(&table);
        model_config_fini(&config);
    }
}

// What a GPU's attention prepares itself, so that drafts cost less.
static void test_plain_heads(void **state) {
    (void)state;
    static const struct {
        const char *folder;
        bool is_plain;
    } models[] = {
        {"bench/configs/qwen3-0.6b", true},        {"bench/configs/gemma-3-1b", true},
        {"bench/configs/gemma-2-2b", false}, // a cap of scores
        {"bench/configs/hunyuan-7b", false}, // norms behind the rotation
        {"bench/configs/gemma-4-31b", false}, // layers of two shapes
        {"bench/configs/gemma-4-e2b", false}, // and layers without keys of their own
        {"bench/configs/deepseek-v2-lite", false}, {"bench/configs/lfm2-350m", false},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct model_config config;
        struct generation_config generation;
        struct layer_table table;
        assert_int_equal(folder_model_config(&config, &generation, models[i].folder, NULL), OK);
        assert_int_equal(family_resolve(&table, &config, NULL), OK);
        assert_int_equal(layer_table_has_plain_heads(&table), models[i].is_plain);
        layer_table_fini(&table);
        model_config_fini(&config);
    }
}

// Queries that are scaled by their position differ from keys.
static void test_scaled_queries_are_not_plain(void **state) {
    (void)state;
    struct model_config config;
    struct generation_config generation;
    struct layer_table table;
    assert_int_equal(folder_model_config(&config, &generation, checkpoint, NULL), OK);
    assert_int_equal(family_resolve(&table, &config, NULL), OK);
    assert_true(layer_table_has_plain_heads(&table));
    table.ropes[0].query_beta = 0.1;
    assert_false(layer_table_has_plain_heads(&table));
    layer_table_fini(&table);
    model_config_fini(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_without_rope_do_not_see_positions),
        cmocka_unit_test(test_hidden_size_has_room_for_sums_of_squares),
        cmocka_unit_test(test_ropes_of_exaone4),
        cmocka_unit_test(test_plain_heads),
        cmocka_unit_test(test_scaled_queries_are_not_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
