// The KV groups and shapes that the table of layers plans.
#include <stdio.h>

#include "model/family.h"
#include "support/cmocka_all.h"
#include "support/config_text.h"

// Windows of layers, and the groups that they make.
static void test_kv_groups(void **state) {
    (void)state;
    static const struct {
        uint32_t num_layers, max_groups;
        uint32_t every, window; // each every-th layer has none; 0: all have the window
        uint32_t num_groups, size;
    } cases[] = {
        {32, 8, 0, 4096, 1, 32}, // Mistral
        {24, 8, 2, 128, 2, 12}, // every other one
        {32, 8, 4, 4096, 4, 8},
        {26, 8, 6, 512, 7, 4}, // 22 and 4 layers: room for two layers more
        {26, 1, 6, 512, 1, 26}, // one group keeps all
        {32, 8, 0, 40000, 1, 32}, // as long as sequences get: no window
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char num[16];
        snprintf(num, sizeof num, "%u", cases[i].num_layers);
        struct model_config config = PARSE_OK({"num_hidden_layers", num});
        struct layer_table table;
        struct err err = {0};
        assert_int_equal(layer_table_init(&table, &config, &err), OK);
        for (uint32_t k = 0; k < table.num_layers; k++) {
            bool is_whole = cases[i].every && (k + 1) % cases[i].every == 0;
            table.layers[k].window = is_whole ? 0 : cases[i].window;
        }
        layer_table_plan_kv(&table, 32768, cases[i].max_groups, 1);
        assert_int_equal(table.num_kv_groups, cases[i].num_groups);
        assert_int_equal(table.layers_per_group, cases[i].size);
        bool is_taken[KV_GROUPS_MAX][64] = {{false}};
        for (uint32_t k = 0; k < table.num_layers; k++) {
            const struct layer *layer = &table.layers[k];
            assert_true(layer->kv_group < table.num_kv_groups && layer->kv_index < cases[i].size);
            assert_false(is_taken[layer->kv_group][layer->kv_index]);
            is_taken[layer->kv_group][layer->kv_index] = true;
            uint32_t window = table.kv_windows[layer->kv_group];
            assert_true(window == layer->window || (table.num_kv_groups == 1 && !window));
        }
        assert_int_equal(layer_table_has_windows(&table), cases[i].window < 32768);
        layer_table_fini(&table);
        model_config_fini(&config);
    }
}

// Layers of two shapes: every `every`-th one has `whole` and no window, the others `local`. Where
// one of several groups is not full, its memory is lost.
static void test_kv_groups_of_layers_with_different_shapes(void **state) {
    (void)state;
    static const struct {
        uint32_t every, window, world_size;
        struct {
            uint32_t num_kv_heads, head_dim;
        } whole, local;
        uint32_t num_groups;
        size_t elements; // of a block
    } cases[] = {
        {6, 0, 1, {4, 512}, {16, 256}, 1, 50 * 4096 + 10 * 2048}, // one group of both, nothing lost
        {6, 1024, 1, {4, 512}, {16, 256}, 6, 10 * 4096}, // layers without window fill half a block
        {2, 1024, 1, {1, 512}, {2, 256}, 2, 30 * 512},
        {2, 1024, 4, {1, 512}, {4, 256}, 3, 30 * 256}, // of a rank: twice the memory without window
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model_config config = PARSE_OK({"num_hidden_layers", "60"});
        struct layer_table table;
        assert_int_equal(layer_table_init(&table, &config, NULL), OK);
        for (uint32_t k = 0; k < table.num_layers; k++) {
            bool is_whole = (k + 1) % cases[i].every == 0;
            struct layer *layer = &table.layers[k];
            layer->window = is_whole ? 0 : cases[i].window;
            layer->head_dim = is_whole ? cases[i].whole.head_dim : cases[i].local.head_dim;
            layer->num_kv_heads =
                is_whole ? cases[i].whole.num_kv_heads : cases[i].local.num_kv_heads;
        }
        layer_table_plan_kv(&table, 32768, KV_GROUPS_MAX, cases[i].world_size);
        assert_int_equal(table.num_kv_groups, cases[i].num_groups);
        assert_int_equal(table.kv_block_end.num_elements, cases[i].elements);
        assert_int_equal(table.num_kv_shapes, 2);
        for (uint32_t k = 0; k < 2; k++) {
            const struct kv_shape *shape = &table.kv_shapes[k];
            uint32_t first = k ? cases[i].every - 1 : 0; // the first layer with it
            assert_int_equal(shape->head_dim, table.layers[first].head_dim);
            assert_int_equal(shape->num_kv_heads,
                             layer_kv_heads(&table.layers[first], cases[i].world_size));
        }
        struct kv_place ends[KV_GROUPS_MAX] = {{0, 0}};
        for (uint32_t k = 0; k < table.num_layers; k++) {
            const struct layer *layer = &table.layers[k];
            struct kv_place *end = &ends[layer->kv_group];
            assert_int_equal(layer->kv_place.num_heads, end->num_heads);
            assert_int_equal(layer->kv_place.num_elements, end->num_elements);
            uint32_t heads = layer_kv_heads(layer, cases[i].world_size);
            end->num_heads += heads;
            end->num_elements += heads * layer->head_dim;
            assert_true(end->num_heads <= table.kv_block_end.num_heads);
            assert_true(end->num_elements <= cases[i].elements);
            assert_int_equal(table.kv_windows[layer->kv_group], layer->window);
        }
        layer_table_fini(&table);
        model_config_fini(&config);
    }
}

static void test_more_shapes_of_keys_than_a_cache_has_are_refused(void **state) {
    (void)state;
    struct model_config config = PARSE_OK({"num_hidden_layers", "60"});
    struct layer_table table;
    struct err err = {0};
    assert_int_equal(family_resolve(&table, &config, &err), OK);
    for (uint32_t i = 0; i < table.num_layers; i++) table.layers[i].num_kv_heads = 1 + i % 8;
    assert_int_equal(layer_table_check(&table, &err), OK);
    table.layers[59].num_kv_heads = 9;
    assert_int_equal(layer_table_check(&table, &err), ERR_UNSUPPORTED);
    expect_words(&err, "keys and values of more than 8 shapes");
    layer_table_fini(&table);
    model_config_fini(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kv_groups),
        cmocka_unit_test(test_kv_groups_of_layers_with_different_shapes),
        cmocka_unit_test(test_more_shapes_of_keys_than_a_cache_has_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
