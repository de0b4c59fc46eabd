// "quantization_config" of programs that write several kinds: AutoRound, ModelOpt, FBGEMM, Quark.
#include "checkpoint/quantized/quantization_config.h"

#include <stdio.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/quantization_text.h"

// AutoRound's own format: the packing says how zeros are stored, or that it is AWQ's. Modules of
// its "extra_config" are names, or patterns of any part of a name; those of 16 bits are not
// quantized.
static void test_auto_round(void **state) {
    (void)state;
    struct quantization_config c = quantization_read(
        "{\"quant_method\": \"auto-round\", \"packing_format\": \"auto_round:auto_gptq\", "
        "\"bits\": 4, "
        "\"group_size\": 128, \"sym\": true, \"data_type\": \"int\", \"block_name_to_quantize\": "
        "\"model.layers\", \"extra_config\": {\"lm_head\": {\"bits\": 16, \"data_type\": "
        "\"float\"}, "
        "\"m.down\": {\"bits\": 8}, \"down|o_proj\": {\"group_size\": 32}}}");
    static const struct {
        const char *module;
        uint32_t bits, block_cols;
    } cases[] = {{"m.up", 4, 128}, {"m.down", 8, 128}, {"m.down.x", 4, 32}, {"a.o_proj", 4, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct quantization_config *found = NULL;
        const char *module = cases[i].module;
        assert_int_equal(quantization_config_of(&found, &c, module, module, NULL), OK);
        assert_int_equal(found->method, QUANTIZED_GPTQ);
        assert_true(found->is_zero_less_one);
        if (found->bits != cases[i].bits || found->block_cols != cases[i].block_cols) {
            fail_msg("%s: %u bits, %u columns", module, found->bits, found->block_cols);
        }
    }
    quantization_config_fini(&c);
    static const char text[] =
        "{\"quant_method\": \"auto-round\", \"packing_format\": \"%s\", "
        "\"bits\": 4, \"group_size\": 32, \"sym\": false, \"desc_act\": false}";
    static const struct {
        const char *packing;
        enum quantization_method method;
        bool is_zero_less_one;
    } packings[] = {{"auto_round", QUANTIZED_GPTQ, false},
                    {"auto_round:gptqmodel", QUANTIZED_GPTQ, false},
                    {"auto_round:gptq", QUANTIZED_GPTQ, true},
                    {"auto_round:auto_gptq:exllamav2", QUANTIZED_GPTQ, true},
                    {"auto_round:exllamav2", QUANTIZED_GPTQ, false},
                    {"auto_round:auto_awq", QUANTIZED_AWQ, false}};
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        char whole[256];
        snprintf(whole, sizeof whole, text, packings[i].packing);
        c = quantization_read(whole);
        assert_int_equal(c.method, packings[i].method);
        assert_int_equal(c.is_zero_less_one, packings[i].is_zero_less_one);
        assert_false(c.is_symmetric);
    }
    quantization_refused(
        ERR_UNSUPPORTED,
        "{\"quant_method\": \"auto-round\", \"bits\": 4, \"packing_format\": \"auto_round:x\"}",
        "auto_round:x");
    quantization_refused(
        ERR_UNSUPPORTED,
        "{\"quant_method\": \"auto-round\", \"bits\": 4, \"packing_format\": \"auto_round\", "
        "\"extra_config\": {\"a\": {\"bits\": 4, \"data_type\": \"mx_fp\"}}}",
        "mx_fp");
    quantization_refused(ERR_UNSUPPORTED, // AWQ's order of codes is one of 4 bits
                         "{\"quant_method\": \"auto-round\", \"bits\": 4, \"packing_format\": "
                         "\"auto_round:awq\", \"extra_config\": {\"a\": {\"bits\": 8}}}",
                         "\"bits\"");
}

// Old checkpoints name the packing "backend", or not at all.
static void test_auto_round_backend(void **state) {
    (void)state;
    static const char text[] = "{\"quant_method\": \"intel/auto-round\", \"bits\": 4, "
                               "\"group_size\": 32, \"sym\": false, \"backend\": \"%s\"}";
    static const struct {
        const char *backend;
        enum quantization_method method;
        bool is_zero_less_one;
    } cases[] = {{"auto_round:exllamav2", QUANTIZED_GPTQ, false},
                 {"auto_round:gptq:exllamav2", QUANTIZED_GPTQ, true},
                 {"auto_round:awq:gemm", QUANTIZED_AWQ, false},
                 {"auto", QUANTIZED_GPTQ, true}};
    static const char unknown[] = "{\"quant_method\": \"intel/auto-round\", \"bits\": 4, "
                                  "\"backend\": \"autoround:exllamav2\", %s}";
    static const char *const with_zeros[] = {"\"sym\": false",
                                             "\"extra_config\": {\"a\": {\"sym\": false}}"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char whole[256];
        snprintf(whole, sizeof whole, text, cases[i].backend);
        struct quantization_config c = quantization_read(whole);
        assert_int_equal(c.method, cases[i].method);
        assert_int_equal(c.is_zero_less_one, cases[i].is_zero_less_one);
        quantization_config_fini(&c);
    }
    char whole[256];
    for (size_t i = 0; i < ARRAY_LEN(with_zeros); i++) {
        snprintf(whole, sizeof whole, unknown, with_zeros[i]);
        quantization_refused(ERR_UNSUPPORTED, whole, "\"backend\"");
        quantization_refused(ERR_UNSUPPORTED, whole, "autoround:exllamav2");
    }
    snprintf(whole, sizeof whole, unknown, "\"sym\": true");
    struct quantization_config c = quantization_read(whole);
    assert_int_equal(c.method, QUANTIZED_GPTQ);
    quantization_config_fini(&c);
}

// Types, and sizes of groups, of AutoRound's, ModelOpt's and FBGEMM's floats.
static void test_kinds_of_floats(void **state) {
    (void)state;
#define AUTO_ROUND(keys) "{\"quant_method\": \"auto-round\", " keys "}"
    static const struct {
        const char *text;
        enum quantization_method method;
        uint32_t rows, cols;
        bool rounds_inputs;
    } cases[] = {
        {AUTO_ROUND("\"data_type\": \"mx_fp\", \"bits\": 8, \"act_bits\": 8"), QUANTIZED_FP8, 1, 32,
         false},
        {AUTO_ROUND("\"data_type\": \"mx_fp_rceil\", \"bits\": 4"), QUANTIZED_MXFP4, 1, 32, false},
        {AUTO_ROUND("\"data_type\": \"nv_fp\", \"bits\": 4"), QUANTIZED_NVFP4, 1, 16, false},
        {AUTO_ROUND("\"data_type\": \"fp\", \"bits\": 8, \"group_size\": 0, \"act_bits\": 8"),
         QUANTIZED_FP8, 0, 0, true},
        {AUTO_ROUND("\"data_type\": \"fp\", \"bits\": 8, \"group_size\": -1"), QUANTIZED_FP8, 1, 0,
         false},
        {AUTO_ROUND("\"data_type\": \"fp\", \"bits\": 8, \"act_bits\": 16"), QUANTIZED_FP8, 1, 0,
         false},
        {AUTO_ROUND("\"data_type\": \"fp\", \"bits\": 8, \"group_size\": [128, 64]"), QUANTIZED_FP8,
         128, 64, false},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8_PB_WO\"}", QUANTIZED_FP8, 128, 128,
         false},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MXFP8\"}", QUANTIZED_FP8, 1, 32,
         false},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8_PER_CHANNEL_PER_TOKEN\"}",
         QUANTIZED_FP8, 1, 0, true},
        {"{\"quant_method\": \"fbgemm_fp8\", \"modules_to_not_convert\": []}", QUANTIZED_FP8, 1, 0,
         true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct quantization_config c = quantization_read(cases[i].text);
        bool is_good = c.method == cases[i].method && c.block_rows == cases[i].rows &&
                       c.block_cols == cases[i].cols && c.rounds_inputs == cases[i].rounds_inputs;
        if (!is_good)
            fail_msg("%s: %u rows, %u columns", cases[i].text, c.block_rows, c.block_cols);
        quantization_config_fini(&c);
    }
    quantization_refused(
        ERR_UNSUPPORTED,
        AUTO_ROUND("\"data_type\": \"fp\", \"bits\": 8, \"group_size\": 0, \"fmt\": \"e5m2\""),
        "e5m2");
    quantization_refused(ERR_UNSUPPORTED, AUTO_ROUND("\"data_type\": \"nvfp4_v2\", \"bits\": 4"),
                         "nvfp4_v2");
}

// AutoRound's floats may have modules of their own in "extra_config" that are as all are.
static void test_overrides_of_floats(void **state) {
    (void)state;
#define MXFP4_WITH(keys)                                                                           \
    AUTO_ROUND("\"data_type\": \"mx_fp\", \"bits\": 4, \"extra_config\": {\"a.b\": {" keys "}}")
#define FP8_WITH(keys)                                                                             \
    AUTO_ROUND("\"data_type\": \"fp\", \"bits\": 8, \"group_size\": -1, \"act_bits\": 8, "         \
               "\"extra_config\": {\"a.b\": {" keys "}}")
    static const struct {
        const char *text;
        enum quantization_method method; // NOT: it is refused
    } cases[] = {
        {MXFP4_WITH("\"bits\": 4, \"data_type\": \"mx_fp\", \"group_size\": 32"), QUANTIZED_MXFP4},
        {MXFP4_WITH("\"bits\": 4, \"data_type\": null"), QUANTIZED_MXFP4},
        {MXFP4_WITH("\"bits\": 8"), QUANTIZED_NOT},
        {MXFP4_WITH("\"bits\": 4, \"data_type\": \"int\""), QUANTIZED_NOT},
        {MXFP4_WITH("\"group_size\": 16"), QUANTIZED_NOT},
        {FP8_WITH("\"bits\": 8"), QUANTIZED_FP8},
        {FP8_WITH("\"bits\": 8, \"group_size\": -1"), QUANTIZED_FP8},
        {FP8_WITH("\"bits\": 4"), QUANTIZED_NOT},
        {FP8_WITH("\"group_size\": 0"), QUANTIZED_NOT},
        {FP8_WITH("\"group_size\": 32"), QUANTIZED_NOT},
        {FP8_WITH("\"data_type\": \"mx_fp\""), QUANTIZED_NOT},
        {FP8_WITH("\"act_bits\": 16"), QUANTIZED_NOT},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (cases[i].method == QUANTIZED_NOT) {
            quantization_refused(ERR_UNSUPPORTED, cases[i].text, "\"a.b\"");
            continue;
        }
        const struct quantization_config *found = NULL;
        struct quantization_config c = quantization_read(cases[i].text);
        assert_int_equal(quantization_config_of(&found, &c, "a.b", "a.b", NULL), OK);
        assert_int_equal(found->method, cases[i].method);
        quantization_config_fini(&c);
    }
}

// Quark's layers may have other schemes, but not of their weights.
static void test_quark(void **state) {
    (void)state;
#define QUARK(weight, more)                                                                        \
    "{\"quant_method\": \"quark\", \"global_quant_config\": {\"weight\": " weight                  \
    ", \"input_tensors\": {\"dtype\": \"fp8_e4m3\"}}, \"exclude\": [\"lm_head\"]" more "}"
#define TENSOR "{\"dtype\": \"fp8_e4m3\", \"qscheme\": \"per_tensor\", \"ch_axis\": null}"
    struct quantization_config c = quantization_read(QUARK(
        TENSOR, ", \"layer_quant_config\": {\"*k_proj\": {\"weight\": " TENSOR
                ", \"output_tensors\": {\"dtype\": \"fp8_e4m3\"}}}, \"algo_config\": [{\"name\": "
                "\"awq\"}]"));
    assert_int_equal(c.method, QUANTIZED_FP8);
    assert_int_equal(c.block_rows, 0);
    assert_true(c.rounds_inputs);
    assert_true(quantization_config_skips(&c, "lm_head"));
    quantization_config_fini(&c);
    quantization_refused(
        ERR_UNSUPPORTED,
        QUARK(TENSOR, ", \"layer_quant_config\": {\"*gate\": {\"weight\": {\"dtype\": \"int8\"}}}"),
        "*gate");
    quantization_refused(ERR_UNSUPPORTED,
                         QUARK(TENSOR, ", \"layer_quant_config\": {\"*gate\": {\"weight\": null}}"),
                         "*gate");
    quantization_refused(
        ERR_FORMAT,
        QUARK(TENSOR,
              ", \"layer_quant_config\": [[\"*gate\", {\"weight\": {\"dtype\": \"int8\"}}]]"),
        "\"layer_quant_config\" of \"quantization_config\" is a list");
    quantization_refused(ERR_UNSUPPORTED,
                         QUARK(TENSOR, ", \"algo_config\": {\"name\": \"rotation\"}"), "rotation");
    quantization_refused(ERR_UNSUPPORTED,
                         QUARK("{\"dtype\": \"int4\", \"qscheme\": \"per_group\"}", ""), "int4");
    quantization_refused(
        ERR_UNSUPPORTED,
        QUARK(
            "{\"dtype\": \"fp4\", \"qscheme\": \"per_group\", \"ch_axis\": -1, \"group_size\": 32}",
            ""),
        "fp4");
    quantization_refused(ERR_FORMAT, "{\"quant_method\": \"quark\"}", "\"weight\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_round),      cmocka_unit_test(test_auto_round_backend),
        cmocka_unit_test(test_kinds_of_floats), cmocka_unit_test(test_overrides_of_floats),
        cmocka_unit_test(test_quark),
    };
    return cmocka_run_group_tests_name("quantization_kinds", tests, NULL, NULL);
}
