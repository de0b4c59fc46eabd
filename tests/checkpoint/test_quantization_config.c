// "quantization_config": what each method's keys mean, and that other keys and kinds are refused by
// name.
#include "checkpoint/quantized/quantization_config.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/quantization_text.h"

static void test_methods(void **state) {
    (void)state;
    struct quantization_config c = quantization_read(
        "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"sym\": false, "
        "\"desc_act\": true, \"meta\": {\"x\": 1}, \"dynamic\": {\"-:lm_head\": {}}}");
    assert_int_equal(c.method, QUANTIZED_GPTQ);
    assert_int_equal(c.block_rows, 1);
    assert_int_equal(c.block_cols, 128);
    assert_false(c.is_symmetric);
    assert_true(c.is_zero_less_one);
    quantization_config_fini(&c);
    c = quantization_read("{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": -1, "
                          "\"checkpoint_format\": \"gptq_v2\"}");
    assert_int_equal(c.bits, 8);
    assert_int_equal(c.block_cols, 0);
    assert_true(c.is_symmetric);
    assert_false(c.is_zero_less_one);
    quantization_config_fini(&c);
    c = quantization_read(
        "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 64, \"zero_point\": true, "
        "\"version\": \"gemm\", \"modules_to_not_convert\": null}");
    assert_int_equal(c.method, QUANTIZED_AWQ);
    assert_int_equal(c.block_cols, 64);
    quantization_config_fini(&c);
    c = quantization_read(
        "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"static\", "
        "\"weight_block_size\": null, \"modules_to_not_convert\": [\"lm_head\"]}");
    assert_int_equal(c.method, QUANTIZED_FP8);
    assert_int_equal(c.block_rows, 0);
    assert_int_equal(c.num_skipped, 1);
    quantization_config_fini(&c);
}

#define FLOATS_WITH(inputs)                                                                        \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "                 \
    "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": "    \
    "8, \"type\": \"float\", \"strategy\": \"channel\"}, \"input_activations\": " inputs "}}}"

// Whether inputs of linears are rounded to 8-bit floats.
static void test_rounded_inputs(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool rounds;
    } cases[] = {
        {"{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\"}", true},
        {"{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"}", true},
        {"{\"quant_method\": \"fp8\"}", true},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}", true},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}", false},
        {"{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 64}", false},
        {FLOATS_WITH("{\"num_bits\": 8, \"type\": \"float\", \"dynamic\": true}"), true},
        {FLOATS_WITH("{\"num_bits\": 8, \"type\": \"int\"}"), false},
        {FLOATS_WITH("null"), false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct quantization_config c = quantization_read(cases[i].text);
        if (c.rounds_inputs != cases[i].rounds) fail_msg("%s", cases[i].text);
        quantization_config_fini(&c);
    }
    quantization_refused(ERR_UNSUPPORTED,
                         "{\"quant_method\": \"fp8\", \"activation_scheme\": \"other\"}",
                         "activation_scheme");
}

static void test_modelopt(void **state) {
    (void)state;
    struct quantization_config c = quantization_read(
        "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"ignore\": "
        "[\"lm_head\"], \"producer\": {\"name\": \"modelopt\"}, \"kv_cache_scheme\": "
        "{\"num_bits\": 8}}");
    assert_int_equal(c.method, QUANTIZED_NVFP4);
    assert_true(quantization_config_skips(&c, "lm_head"));
    quantization_config_fini(&c);
    c = quantization_read("{\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": "
                          "[\"lm_head\", \"model.layers.*.self_attn\"]}");
    assert_int_equal(c.method, QUANTIZED_MXFP4);
    assert_true(quantization_config_skips(&c, "lm_head"));
    assert_true(quantization_config_skips(&c, "model.layers.11.self_attn.q_proj"));
    assert_false(quantization_config_skips(&c, "model.layers.11.mlp.self_attn"));
    assert_false(quantization_config_skips(&c, "model.layers.1.self_attn2"));
    quantization_config_fini(&c);
    quantization_refused(ERR_UNSUPPORTED, "{\"quant_method\": \"mxfp4\", \"group_size\": 16}",
                         "group_size");
    c = quantization_read("{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}");
    assert_int_equal(c.method, QUANTIZED_FP8);
    assert_int_equal(c.block_rows, 0);
    quantization_refused(ERR_UNSUPPORTED,
                         "{\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A8_AWQ\"}",
                         "W4A8_AWQ");
    quantization_refused(ERR_FORMAT, "{\"quant_method\": \"modelopt\"}", "\"quant_algo\"");
    c = quantization_read(
        "{\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A16_NVFP4\", \"group_size\": 16}");
    assert_int_equal(c.method, QUANTIZED_NVFP4);
    // Each module's tensors say which of the two it is.
    c = quantization_read(
        "{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", \"ignore\": "
        "[\"mtp*\"], \"quantized_layers\": {\"a\": {\"quant_algo\": \"FP8\"}}}");
    const struct quantization_config *found = NULL;
    assert_int_equal(quantization_config_of(&found, &c, "b", "b", NULL), OK);
    assert_int_equal(quantization_config_kind(found, true)->method, QUANTIZED_FP8);
    assert_int_equal(quantization_config_kind(found, false)->method, QUANTIZED_NVFP4);
    assert_int_equal(quantization_config_of(&found, &c, "mtp.b", "mtp.b", NULL), OK);
    assert_null(found);
    quantization_config_fini(&c);
}

#define COMPRESSED(format, weights)                                                                \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"" format "\", \"config_groups\": "   \
    "{\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {" weights "}}}}"

#define INT4(targets)                                                                              \
    "{\"targets\": " targets ", \"format\": \"pack-quantized\", \"weights\": {\"num_bits\": 4, "   \
    "\"type\": \"int\", \"strategy\": \"group\", \"group_size\": 32}}"
#define FLOAT8(targets)                                                                            \
    "{\"targets\": " targets ", \"format\": \"float-quantized\", \"weights\": {\"num_bits\": 8, "  \
    "\"type\": \"float\", \"strategy\": \"channel\"}}"
#define GROUPS(first, second)                                                                      \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"mixed-precision\", "                 \
    "\"config_groups\": {\"group_0\": " first ", \"group_1\": " second "}, "                       \
    "\"ignore\": [\"lm_head\", \"re:v[.]\"]}"

static void test_compressed_tensors(void **state) {
    (void)state;
    struct quantization_config c = quantization_read(
        COMPRESSED("float-quantized", "\"num_bits\": 8, \"type\": \"float\", "
                                      "\"strategy\": \"block\", \"block_structure\": "
                                      "[128, 64], \"observer\": \"minmax\""));
    assert_int_equal(c.method, QUANTIZED_FP8);
    assert_int_equal(c.block_rows, 128);
    assert_int_equal(c.block_cols, 64);
    c = quantization_read(COMPRESSED(
        "int-quantized", "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\""));
    assert_int_equal(c.method, QUANTIZED_INT8);
    assert_int_equal(c.block_rows, 1);
    assert_int_equal(c.block_cols, 0);
    c = quantization_read(COMPRESSED("pack-quantized",
                                     "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", "
                                     "\"group_size\": 32, \"symmetric\": false"));
    assert_int_equal(c.method, QUANTIZED_PACKED);
    assert_false(c.is_symmetric);
    // The strategy follows from the size of groups where it is missing.
    c = quantization_read(COMPRESSED("pack-quantized",
                                     "\"num_bits\": 4, \"type\": \"int\", \"group_size\": 64, "
                                     "\"actorder\": \"dynamic\""));
    assert_int_equal(c.block_rows, 1);
    assert_int_equal(c.block_cols, 64);
    c = quantization_read(
        COMPRESSED("int-quantized", "\"num_bits\": 8, \"type\": \"int\", \"group_size\": -1"));
    assert_int_equal(c.block_rows, 1);
    assert_int_equal(c.block_cols, 0);
    c = quantization_read(COMPRESSED("float-quantized", "\"num_bits\": 8, \"type\": \"float\""));
    assert_int_equal(c.block_rows, 0);
}

// AutoRound writes its name of the packing into GPTQ's and AWQ's configurations too.
static void test_packing_names(void **state) {
    (void)state;
    static const struct {
        const char *method, *known, *unknown;
    } cases[] = {{"gptq", "auto_round:auto_gptq", "auto_round:gptqmodel"},
                 {"gptq", "gptq", "gptq_marlin"},
                 {"awq", "auto_round:auto_awq", "auto_round:auto_gptq"},
                 {"awq", "awq", "ipex"}};
    static const char form[] =
        "{\"quant_method\": \"%s\", \"bits\": 4, \"packing_format\": \"%s\"}";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, form, cases[i].method, cases[i].known);
        struct quantization_config c = quantization_read(text);
        assert_int_equal(c.bits, 4);
        quantization_config_fini(&c);
        snprintf(text, sizeof text, form, cases[i].method, cases[i].unknown);
        quantization_refused(ERR_UNSUPPORTED, text, cases[i].unknown);
    }
}

static void test_refused(void **state) {
    (void)state;
    quantization_refused(ERR_UNSUPPORTED, "{\"quant_method\": \"hqq\"}", "hqq");
    quantization_refused(ERR_UNSUPPORTED, "{\"quant_method\": \"fp8\", \"twist\": 1}", "\"twist\"");
    quantization_refused(ERR_UNSUPPORTED, "{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}", "e5m2");
    quantization_refused(ERR_UNSUPPORTED, "{\"quant_method\": \"gptq\", \"bits\": 9}", "\"bits\"");
    quantization_refused(ERR_FORMAT, "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 0}",
                         "\"group_size\"");
    quantization_refused(
        ERR_UNSUPPORTED,
        "{\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"marlin\"}", "marlin");
    quantization_refused(
        ERR_UNSUPPORTED,
        "{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"+:.*down\": {\"bits\": 1}}}",
        "\"bits\"");
    quantization_refused(
        ERR_UNSUPPORTED,
        "{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"a\": {\"twist\": 1}}}",
        "\"twist\"");
    quantization_refused(
        ERR_FORMAT, "{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"(a\": {}}}", "(a");
    quantization_refused(ERR_FORMAT,
                         "{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"a\": 8}}",
                         "\"dynamic\"");
    quantization_refused(ERR_FORMAT, "{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": [1]}",
                         "\"dynamic\"");
    quantization_refused(ERR_UNSUPPORTED,
                         "{\"quant_method\": \"gptq\", \"bits\": 4, \"format\": \"marlin\"}",
                         "marlin");
    quantization_refused(ERR_UNSUPPORTED,
                         "{\"quant_method\": \"awq\", \"bits\": 4, \"format\": \"gemv\"}", "gemv");
    quantization_refused(
        ERR_UNSUPPORTED,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
        "\"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}}",
        "\"sparsity_config\"");
    quantization_refused(ERR_UNSUPPORTED, "{\"quant_method\": \"gptq\", \"bits\": 4, \"twist\": 1}",
                         "\"twist\"");
    quantization_refused(ERR_UNSUPPORTED, "{\"quant_method\": \"awq\", \"bits\": 8}", "\"bits\"");
    quantization_refused(ERR_UNSUPPORTED,
                         "{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemv\"}", "gemv");
    quantization_refused(
        ERR_FORMAT,
        "{\"quant_method\": \"awq\", \"bits\": 4, \"modules_to_not_convert\": [\"a\", 1]}",
        "modules_to_not_convert");
    quantization_refused(
        ERR_UNSUPPORTED,
        COMPRESSED("marlin-24", "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"channel\""),
        "marlin-24");
    quantization_refused(
        ERR_UNSUPPORTED,
        COMPRESSED("pack-quantized",
                   "\"num_bits\": 1, \"type\": \"int\", \"strategy\": \"channel\""),
        "integers of 1 bits");
    quantization_refused(ERR_UNSUPPORTED,
                         COMPRESSED("int-quantized",
                                    "\"num_bits\": 8, \"type\": \"int\", \"strategy\": "
                                    "\"channel\", \"symmetric\": false"),
                         "\"symmetric\"");
    quantization_refused(
        ERR_FORMAT,
        COMPRESSED("pack-quantized", "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\""),
        "\"strategy\" group");
    quantization_refused(ERR_UNSUPPORTED,
                         COMPRESSED("pack-quantized",
                                    "\"num_bits\": 4, \"type\": \"int\", \"strategy\": "
                                    "\"channel\", \"twist\": 1"),
                         "\"twist\"");
    quantization_refused(
        ERR_UNSUPPORTED,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
        "\"transform_config\": {\"config_groups\": {}}}",
        "\"transform_config\"");
    quantization_refused(
        ERR_UNSUPPORTED,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
        "\"config_groups\": {}}",
        "0 groups");
    quantization_refused(ERR_FORMAT, GROUPS(INT4("[]"), FLOAT8("[\"Linear\"]")), "\"targets\"");
    quantization_refused(ERR_FORMAT, GROUPS(INT4("[\"re:.*(down\"]"), FLOAT8("[\"Linear\"]")),
                         "(down");
    quantization_refused(ERR_FORMAT, GROUPS(INT4("[1]"), FLOAT8("[\"Linear\"]")), "\"targets\"");
}

// How the module is stored; NOT: it is not quantized.
static enum quantization_method method_of(const struct quantization_config *c, const char *module) {
    const struct quantization_config *found = NULL;
    assert_int_equal(quantization_config_of(&found, c, module, module, NULL), OK);
    return found ? found->method : QUANTIZED_NOT;
}

static void test_groups(void **state) {
    (void)state;
    struct quantization_config c = quantization_read(
        GROUPS(INT4("[\"re:.*mlp\", \"Linear\"]"),
               FLOAT8("[\"re:.*mlp\\\\.(down|gate)_proj$\", \"re:model.a\", \"x.q\"]")));
    // A whole name before a pattern, and a pattern before a class.
    assert_int_equal(method_of(&c, "x.q"), QUANTIZED_FP8);
    assert_int_equal(method_of(&c, "x.q_proj"), QUANTIZED_PACKED);
    assert_int_equal(method_of(&c, "model.attn"), QUANTIZED_FP8);
    // A pattern is the begin of a name, and of two the first in their order counts.
    assert_int_equal(method_of(&c, "old.model.attn"), QUANTIZED_PACKED);
    assert_int_equal(method_of(&c, "x.mlp.down_proj"), QUANTIZED_PACKED);
    assert_int_equal(method_of(&c, "x.mlp.up_proj"), QUANTIZED_PACKED);
    // What is ignored comes before.
    assert_int_equal(method_of(&c, "lm_head"), QUANTIZED_NOT);
    assert_int_equal(method_of(&c, "v.mlp"), QUANTIZED_NOT);
    // Each group has its own sizes.
    const struct quantization_config *found = NULL;
    assert_int_equal(quantization_config_of(&found, &c, "x.q", "x.q", NULL), OK);
    assert_int_equal(found->block_rows, 1);
    assert_int_equal(found->block_cols, 0);
    assert_int_equal(quantization_config_of(&found, &c, "x", "x", NULL), OK);
    assert_int_equal(found->block_cols, 32);
    quantization_config_fini(&c);
    // Targets may have the names of a wrapper's checkpoint. The nearer of the two names counts.
    c = quantization_read(GROUPS(INT4("[\"Linear\"]"), FLOAT8("[\"re:model.language_model.x\"]")));
    assert_int_equal(quantization_config_of(&found, &c, "model.x", "model.language_model.x", NULL),
                     OK);
    assert_int_equal(found->method, QUANTIZED_FP8);
    assert_int_equal(quantization_config_of(&found, &c, "model.y", "model.language_model.y", NULL),
                     OK);
    assert_int_equal(found->method, QUANTIZED_PACKED);
    quantization_config_fini(&c);
    // Of two groups that have a target the later one gets it; without a class others have none.
    c = quantization_read(GROUPS(INT4("[\"re:.*mlp\"]"), FLOAT8("[\"re:.*mlp\"]")));
    assert_int_equal(method_of(&c, "x.mlp"), QUANTIZED_FP8);
    assert_int_equal(method_of(&c, "x.attn"), QUANTIZED_NOT);
    quantization_config_fini(&c);
}

// GPTQModel's other sizes for some modules. Of two patterns the first in the text counts, whatever
// their letters; what is not quantized has no such tensors.
static void test_dynamic(void **state) {
    (void)state;
    struct quantization_config c = quantization_read(
        "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"dynamic\": "
        "{\"-:.*o_proj\": {}, \".*z[.]down\": {\"bits\": 8, \"group_size\": -1}, "
        "\"+:.*down\": {\"group_size\": 32, \"sym\": false, \"desc_act\": true}}}");
    static const struct {
        const char *module;
        uint32_t bits, block_cols;
        bool is_symmetric;
    } cases[] = {{"m.up", 4, 128, true},
                 {"m.down", 4, 32, false},
                 {"m.z.down", 8, 0, true},
                 {"m.o_proj", 4, 128, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct quantization_config *found = NULL;
        const char *module = cases[i].module;
        assert_int_equal(quantization_config_of(&found, &c, module, module, NULL), OK);
        assert_int_equal(found->method, QUANTIZED_GPTQ);
        assert_int_equal(found->bits, cases[i].bits);
        assert_int_equal(found->block_cols, cases[i].block_cols);
        assert_int_equal(found->is_symmetric, cases[i].is_symmetric);
        assert_true(found->is_zero_less_one);
    }
    quantization_config_fini(&c);
}

// Keys that packages of several years wrote, which do not change what the numbers mean.
static void test_keys_of_other_versions(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum quantization_method method;
    } cases[] = {
        {"{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\", \"ignored_layers\": [], "
         "\"kv_cache_scheme\": \"static\"}",
         QUANTIZED_FP8},
        {"{\"quant_method\": \"gptq\", \"bits\": 4, \"method\": \"gptq\", \"format\": \"gptq\", "
         "\"act_group_aware\": true, \"hyb_act\": false, \"offload_to_disk\": true, \"pack_impl\": "
         "\"cpu\"}",
         QUANTIZED_GPTQ},
        {"{\"quant_method\": \"awq\", \"bits\": 4, \"method\": \"awq\", \"format\": \"gemm\", "
         "\"checkpoint_format\": \"gemm\", \"pack_dtype\": \"int32\", \"desc_act\": false, "
         "\"lm_head\": false, \"to_quant_block_names\": \"model.layers\", \"act_bits\": 16}",
         QUANTIZED_AWQ},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"naive-quantized\", "
         "\"quantization_status\": \"frozen\", \"sparsity_config\": {\"format\": \"dense\"}, "
         "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": "
         "8, "
         "\"type\": \"float\", \"strategy\": \"tensor\"}}}}",
         QUANTIZED_FP8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct quantization_config c = quantization_read(cases[i].text);
        assert_int_equal(c.method, cases[i].method);
        quantization_config_fini(&c);
    }
    struct quantization_config c =
        quantization_read("{\"quant_method\": \"gptq\", \"bits\": 4, \"format\": \"gptq_v2\"}");
    assert_false(c.is_zero_less_one);
    quantization_config_fini(&c);
}

// compressed-tensors' first name of the section.
static void test_compression_config(void **state) {
    (void)state;
    struct quantization_config c;
    struct err err = {0};
    json_t *root = json_pack("{s:{s:s, s:s, s:{s:{s:[s], s:{s:i, s:s, s:s}}}}}",
                             "compression_config", "quant_method", "compressed-tensors", "format",
                             "int-quantized", "config_groups", "group_0", "targets", "Linear",
                             "weights", "num_bits", 8, "type", "int", "strategy", "channel");
    assert_non_null(root);
    if (quantization_config_read(&c, root, "config.json", &err)) fail_msg("%s", err.message);
    assert_int_equal(c.method, QUANTIZED_INT8);
    quantization_config_fini(&c);
    json_decref(root);
}

static void test_skipped_modules_are_whole_components(void **state) {
    (void)state;
    struct quantization_config c =
        quantization_read("{\"quant_method\": \"awq\", \"bits\": 4, \"modules_to_not_convert\": "
                          "[\"lm_head\", \"mlp.gate\", \"model.layers.1\", \"\"]}");
    assert_true(quantization_config_skips(&c, "lm_head"));
    assert_true(quantization_config_skips(&c, "model.layers.3.mlp.gate"));
    assert_true(quantization_config_skips(&c, "model.layers.1.mlp.up_proj"));
    assert_false(quantization_config_skips(&c, "model.layers.3.mlp.gate_proj"));
    assert_false(quantization_config_skips(&c, "model.layers.11.mlp.up_proj"));
    assert_false(quantization_config_skips(&c, "model.layers.3.self_mlp.gate"));
    quantization_config_fini(&c);
}

#define BNB(keys) "{\"quant_method\": \"bitsandbytes\", " keys "}"

static void test_bitsandbytes(void **state) {
    (void)state;
    struct quantization_config c = quantization_read(
        BNB("\"load_in_4bit\": true, \"load_in_8bit\": false, \"bnb_4bit_quant_type\": "
            "\"fp4\", \"llm_int8_skip_modules\": [\"lm_head\", \"vision_tower\"]"));
    assert_int_equal(method_of(&c, "model.layers.0.mlp.up_proj"), QUANTIZED_BNB4);
    assert_int_equal(method_of(&c, "lm_head"), QUANTIZED_NOT);
    assert_int_equal(method_of(&c, "model.vision_tower.a"), QUANTIZED_NOT);
    quantization_config_fini(&c);
    c = quantization_read(BNB("\"load_in_8bit\": true, \"llm_int8_skip_modules\": null"));
    assert_int_equal(method_of(&c, "lm_head"), QUANTIZED_BNB8);
    quantization_config_fini(&c);
    quantization_refused(ERR_UNSUPPORTED, BNB("\"load_in_4bit\": false"), "\"load_in_4bit\"");
    quantization_refused(ERR_UNSUPPORTED, BNB("\"load_in_4bit\": true, \"load_in_8bit\": true"),
                         "one of");
    quantization_refused(ERR_UNSUPPORTED, BNB("\"load_in_4bit\": true, \"twist\": 1"), "\"twist\"");
    quantization_refused(ERR_UNSUPPORTED,
                         BNB("\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf3\""), "nf3");
    quantization_refused(ERR_UNSUPPORTED,
                         BNB("\"load_in_4bit\": true, \"bnb_4bit_quant_storage\": \"bfloat16\""),
                         "bfloat16");
    quantization_refused(ERR_UNSUPPORTED,
                         BNB("\"load_in_8bit\": true, \"llm_int8_has_fp16_weight\": true"), "fp16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bitsandbytes),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_rounded_inputs),
        cmocka_unit_test(test_modelopt),
        cmocka_unit_test(test_compressed_tensors),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_packing_names),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_dynamic),
        cmocka_unit_test(test_keys_of_other_versions),
        cmocka_unit_test(test_compression_config),
        cmocka_unit_test(test_skipped_modules_are_whole_components),
    };
    return cmocka_run_group_tests_name("quantization_config", tests, NULL, NULL);
}
