// The formats in which a model's linears are kept.
#include <string.h>

#include "model/decoder.h"
#include "model/family.h"
#include "model/linear_formats.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"

// Finds the formats of a model whose linears are stored in MXFP4: E2M1 in groups of 32.
static void find(struct linear_formats *formats, const char *folder, float gate_scale,
                 float mamba_scale) {
    const struct backend_options options = {
        .device = "cpu", .cpu_isa = "auto", .threads = 1, .weight_dtype = DTYPE_BF16};
    struct model_config config;
    struct generation_config generation;
    struct layer_table table;
    struct decoder_shape shape;
    struct backend *backend = NULL;
    struct weights *weights = NULL;
    struct err err = {0};
    if (folder_model_config(&config, &generation, folder, &err)) fail_msg("%s", err.message);
    if (family_resolve(&table, &config, &err)) fail_msg("%s", err.message);
    table.gate_scale = gate_scale;
    table.mamba_scales[0] = mamba_scale;
    for (int k = 1; k < MAMBA_PARTS; k++) table.mamba_scales[k] = 0.5f;
    if (decoder_shape_of(&shape, &config, &table, 0, 1, &err)) fail_msg("%s", err.message);
    if (backend_create(&backend, &options, &err)) fail_msg("%s", err.message);
    if (weights_open_dummy(&weights, &err)) fail_msg("%s", err.message);
    config.quantization.method = QUANTIZED_MXFP4;
    weights_set_quantization(weights, &config.quantization);
    if (linear_formats_find(formats, &config, &table, &shape, backend, weights, &err)) {
        fail_msg("%s", err.message);
    }
    weights_close(weights);
    backend_destroy(backend);
    layer_table_fini(&table);
    model_config_fini(&config);
}

static void expect_group(struct weight_format format, uint32_t group) {
    assert_int_equal(format.code, WEIGHT_CODE_E2M1);
    assert_int_equal(format.group, group);
}

// A scale times a factor is a power of 2 no more. Groups of 16 have scales that are floats.
static void test_factors_of_mxfp4(void **state) {
    (void)state;
    static const struct {
        float gate_scale, mamba_scale;
        uint32_t gate_group, mamba_group;
    } cases[] = {{1, 1, 32, 32}, {0.25f, 2, 32, 32}, {0.75f, 1, 16, 32}, {1, 1.25f, 32, 16}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct linear_formats formats;
        find(&formats, "bench/configs/falcon-h1-0.5b", cases[i].gate_scale, cases[i].mamba_scale);
        const struct layer_formats *layer = &formats.layers[1];
        expect_group(layer->gate_up, cases[i].gate_group);
        expect_group(layer->mamba_in, cases[i].mamba_group);
        expect_group(layer->down, 32);
        expect_group(layer->qkv, 32);
        expect_group(layer->mamba_out, 32);
        linear_formats_fini(&formats);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_factors_of_mxfp4)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
