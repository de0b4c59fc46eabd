// MLX's "quantization" of config.json: what its keys mean, and that others are refused by name.
#include <string.h>

#include "base/compiler.h"
#include "checkpoint/quantized/quantization_config.h"
#include "support/cmocka_all.h"

static enum status read_text(struct quantization_config *config, const char *text,
                             struct err *err) {
    json_t *object = json_loads(text, 0, NULL);
    // MLX repeats it under the other name.
    json_t *root = json_pack("{s:O, s:o}", "quantization", object, "quantization_config", object);
    if (!root) fail_msg("no JSON: %s", text);
    enum status status = quantization_config_read(config, root, "config.json", err);
    json_decref(root);
    return status;
}

static struct quantization_config read_ok(const char *text) {
    struct quantization_config config;
    struct err err = {0};
    if (read_text(&config, text, &err)) fail_msg("%s", err.message);
    return config;
}

static void refused(enum status status, const char *text, const char *words) {
    struct quantization_config config;
    struct err err = {0};
    enum status found = read_text(&config, text, &err);
    if (found != status) fail_msg("%s: %s: %s", text, status_name(found), err.message);
    if (!strstr(err.message, words)) fail_msg("no \"%s\" in: %s", words, err.message);
    assert_int_equal(config.method, QUANTIZED_NOT);
}

static void test_mlx(void **state) {
    (void)state;
    struct quantization_config c =
        read_ok(("{\"group_size\": 128, \"bits\": 3, \"mode\": \"affine\", \"a.b\": {\"bits\": 8}, "
                 "\"a.c\": {\"group_size\": 32, \"bits\": 6}, \"a.d\": false, \"a.e\": true}"));
    static const struct {
        const char *module;
        uint32_t bits, group;
    } cases[] = {{"a", 3, 128},   {"a.bb", 3, 128}, {"x.a.b", 3, 128},
                 {"a.e", 3, 128}, {"a.c", 6, 32},   {"a.b", 8, 64}}; // 64: MLX's own
    const struct quantization_config *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *module = cases[i].module;
        // By the name in the file too.
        assert_int_equal(quantization_config_of(&found, &c, i % 2 ? "m" : module, module, NULL),
                         OK);
        assert_int_equal(found->method, QUANTIZED_MLX);
        assert_int_equal(found->bits, cases[i].bits);
        assert_int_equal(found->block_cols, cases[i].group);
    }
    assert_int_equal(quantization_config_of(&found, &c, "a.d", "a.d", NULL), OK);
    assert_null(found);
    quantization_config_fini(&c);
}

static void test_mlx_floats(void **state) {
    (void)state;
    struct quantization_config c =
        read_ok("{\"group_size\": 32, \"bits\": 4, \"mode\": \"mxfp4\", \"a\": {\"bits\": 8}, "
                "\"b\": {\"mode\": \"mxfp8\"}, "
                "\"c\": {\"mode\": \"nvfp4\", \"global_scale\": true}}");
    static const struct {
        const char *module;
        enum quantization_method method;
        uint32_t bits, group;
        bool has_global_scale;
    } cases[] = {{"m", QUANTIZED_MLX_FLOATS, 4, 32, false},
                 {"a", QUANTIZED_MLX, 8, 64, false}, // a module without a mode has MLX's own
                 {"b", QUANTIZED_MLX_FLOATS, 8, 32, false},
                 {"c", QUANTIZED_MLX_FLOATS, 4, 16, true}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct quantization_config *found = NULL;
        const char *module = cases[i].module;
        assert_int_equal(quantization_config_of(&found, &c, module, module, NULL), OK);
        assert_int_equal(found->method, cases[i].method);
        assert_int_equal(found->bits, cases[i].bits);
        assert_int_equal(found->block_cols, cases[i].group);
        assert_int_equal(found->has_global_scale, cases[i].has_global_scale);
    }
    quantization_config_fini(&c);
}

static void test_mlx_refused(void **state) {
    (void)state;
    refused(ERR_UNSUPPORTED, "{\"bits\": 7}", "\"bits\"");
    refused(ERR_UNSUPPORTED, "{\"bits\": 1}", "\"bits\"");
    refused(ERR_UNSUPPORTED, "{\"bits\": 16}", "\"bits\"");
    refused(ERR_UNSUPPORTED, "{\"group_size\": 48}", "\"group_size\"");
    refused(ERR_UNSUPPORTED, "{\"mode\": \"fp6\"}", "fp6");
    refused(ERR_UNSUPPORTED, "{\"mode\": \"mxfp4\", \"group_size\": 64}", "\"group_size\"");
    refused(ERR_UNSUPPORTED, "{\"mode\": \"mxfp8\", \"bits\": 4}", "\"bits\"");
    refused(ERR_UNSUPPORTED, "{\"mode\": \"nvfp4\", \"group_size\": 32}", "\"group_size\"");
    refused(ERR_FORMAT, "{\"mode\": \"nvfp4\", \"global_scale\": 2}", "\"global_scale\"");
    refused(ERR_UNSUPPORTED, "{\"bits\": 4, \"twist\": 1}", "\"twist\"");
    refused(ERR_UNSUPPORTED, "{\"bits\": 4, \"a\": {\"twist\": 1}}", "\"twist\"");
    refused(ERR_UNSUPPORTED, "{\"bits\": 4, \"a\": {\"bits\": 7}}", "\"bits\"");
    refused(ERR_UNSUPPORTED, "{\"bits\": 4, \"a\": {\"mode\": \"fp6\"}}", "fp6");
    refused(ERR_FORMAT, "[4]", "\"quantization\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlx),
        cmocka_unit_test(test_mlx_floats),
        cmocka_unit_test(test_mlx_refused),
    };
    return cmocka_run_group_tests_name("mlx_config", tests, NULL, NULL);
}
