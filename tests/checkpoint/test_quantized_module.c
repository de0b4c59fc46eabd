// Tensors of quantized linears that are not what their format says, each refused with a sentence
// that names the tensor.
#include "checkpoint/quantized/quantized_module.h"

#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

enum { OUT = 16, IN = 32, GROUP = 16, GROUPS = IN / GROUP };

static char bytes[4096]; // of every tensor: zeros

// A tensor of a format, and what is wrong with it in a case.
struct part {
    enum module_part part;
    enum dtype dtype;
    uint32_t rank;
    uint64_t shape[2];
};

static const struct part gptq[] = {{PART_QWEIGHT, DTYPE_I32, 2, {IN / 8, OUT}},
                                   {PART_QZEROS, DTYPE_I32, 2, {GROUPS, OUT / 8}},
                                   {PART_SCALES, DTYPE_F16, 2, {GROUPS, OUT}},
                                   {PART_G_IDX, DTYPE_I32, 1, {IN}}};
static const struct part awq[] = {{PART_QWEIGHT, DTYPE_I32, 2, {IN, OUT / 8}},
                                  {PART_QZEROS, DTYPE_I32, 2, {GROUPS, OUT / 8}},
                                  {PART_SCALES, DTYPE_F16, 2, {GROUPS, OUT}}};
static const struct part packed[] = {{PART_WEIGHT_PACKED, DTYPE_I32, 2, {OUT, IN / 8}},
                                     {PART_WEIGHT_SCALE, DTYPE_BF16, 2, {OUT, GROUPS}},
                                     {PART_WEIGHT_ZERO_POINT, DTYPE_I32, 2, {OUT / 8, GROUPS}},
                                     {PART_WEIGHT_G_IDX, DTYPE_I32, 1, {IN}}};
static const struct part nvfp4[] = {{PART_WEIGHT_PACKED, DTYPE_U8, 2, {OUT, IN / 2}},
                                    {PART_WEIGHT_SCALE, DTYPE_F8_E4M3, 2, {OUT, IN / 16}},
                                    {PART_WEIGHT_SCALE_2, DTYPE_F32, 1, {1}}};
static const struct part mxfp4[] = {{PART_WEIGHT_PACKED, DTYPE_U8, 2, {OUT, IN / 2}},
                                    {PART_WEIGHT_SCALE, DTYPE_U8, 2, {OUT, 1}}};
static const struct part int8[] = {{PART_WEIGHT, DTYPE_I8, 2, {OUT, IN}},
                                   {PART_WEIGHT_SCALE, DTYPE_F32, 2, {OUT, GROUPS}}};
static const struct part mlx[] = {{PART_WEIGHT, DTYPE_U32, 2, {OUT, IN / 8}},
                                  {PART_SCALES, DTYPE_BF16, 2, {OUT, GROUPS}},
                                  {PART_BIASES, DTYPE_BF16, 2, {OUT, GROUPS}}};
static const struct part mlx_nvfp4[] = {{PART_WEIGHT, DTYPE_U32, 2, {OUT, IN / 8}},
                                        {PART_SCALES, DTYPE_U8, 2, {OUT, GROUPS}},
                                        {PART_GLOBAL_SCALE, DTYPE_F32, 1, {1}}};
static const struct part bnb8[] = {{PART_WEIGHT, DTYPE_I8, 2, {OUT, IN}},
                                   {PART_SCB, DTYPE_F32, 1, {OUT}}};

static const struct {
    enum quantization_method method;
    const struct part *parts;
    size_t num_parts;
} formats[] = {
    {QUANTIZED_GPTQ, gptq, ARRAY_LEN(gptq)},
    {QUANTIZED_AWQ, awq, ARRAY_LEN(awq)},
    {QUANTIZED_PACKED, packed, ARRAY_LEN(packed)},
    {QUANTIZED_NVFP4, nvfp4, ARRAY_LEN(nvfp4)},
    {QUANTIZED_MXFP4, mxfp4, ARRAY_LEN(mxfp4)},
    {QUANTIZED_INT8, int8, ARRAY_LEN(int8)},
    {QUANTIZED_MLX, mlx, ARRAY_LEN(mlx)},
    {QUANTIZED_BNB8, bnb8, ARRAY_LEN(bnb8)},
    {QUANTIZED_MLX_FLOATS, mlx_nvfp4, ARRAY_LEN(mlx_nvfp4)},
};

static enum status open_parts(size_t format, const struct part *parts, size_t num_parts,
                              struct err *err) {
    const struct quantization_config config = {.method = formats[format].method,
                                               .bits = 4,
                                               .block_rows = 1,
                                               .block_cols = GROUP,
                                               .has_global_scale =
                                                   formats[format].method == QUANTIZED_MLX_FLOATS};
    struct tensor tensors[NUM_MODULE_PARTS];
    struct quantized_module module = {.name = "m", .out = OUT, .in = IN};
    struct matrix_reader *reader = NULL;
    for (size_t i = 0; i < num_parts; i++) {
        size_t size = dtype_size(parts[i].dtype);
        for (uint32_t k = 0; k < parts[i].rank; k++) size *= parts[i].shape[k];
        tensors[i] = (struct tensor){.name = module_part_name(parts[i].part),
                                     .path = "file",
                                     .dtype = parts[i].dtype,
                                     .rank = parts[i].rank,
                                     .shape = {parts[i].shape[0], parts[i].shape[1]},
                                     .size_bytes = size,
                                     .source = {.data = bytes}};
        assert_true(size <= sizeof bytes);
        module.parts[parts[i].part] = &tensors[i];
    }
    enum status status = quantized_module_open(&reader, &module, &config, err);
    for (size_t i = 0; i < num_parts && !status; i++) {
        if (!module.is_used[parts[i].part]) fail_msg("%s is not used", tensors[i].name);
    }
    if (reader) {
        float row[IN];
        assert_int_equal(reader->read(reader, OUT - 1, 0, IN, row, NULL), OK);
        reader->close(reader);
    }
    return status;
}

static void test_good_parts(void **state) {
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
        struct err err = {0};
        if (open_parts(f, formats[f].parts, formats[f].num_parts, &err)) {
            fail_msg("%zu: %s", f, err.message);
        }
    }
}

static void expect_refusal(size_t format, const struct part *parts, size_t num_parts,
                           enum module_part part, const char *what) {
    struct err err = {0};
    enum status status = open_parts(format, parts, num_parts, &err);
    if (status != ERR_FORMAT && status != ERR_UNSUPPORTED) {
        fail_msg("format %zu, %s %s: %s", format, module_part_name(part), what,
                 status_name(status));
    }
    if (!strstr(err.message, module_part_name(part))) fail_msg("%s: %s", what, err.message);
}

// Each tensor with another type, one row more, one dimension less, or missing.
static void test_bad_parts(void **state) {
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
        for (size_t i = 0; i < formats[f].num_parts; i++) {
            struct part parts[8];
            size_t count = formats[f].num_parts;
            memcpy(parts, formats[f].parts, count * sizeof *parts);
            enum module_part part = parts[i].part;
            parts[i].dtype = DTYPE_BOOL;
            expect_refusal(f, parts, count, part, "of another type");
            parts[i] = formats[f].parts[i];
            parts[i].shape[0]++;
            expect_refusal(f, parts, count, part, "with a row more");
            parts[i] = formats[f].parts[i];
            if (parts[i].rank == 2) {
                parts[i].rank = 1;
                expect_refusal(f, parts, count, part, "of one dimension");
                parts[i] = formats[f].parts[i];
                parts[i].shape[1]++;
                expect_refusal(f, parts, count, part, "with a column more");
            }
            if (part == PART_G_IDX || part == PART_WEIGHT_G_IDX) continue; // it may be missing
            bool is_fp4 = formats[f].parts == nvfp4 || formats[f].parts == mxfp4;
            // One of two names.
            if (is_fp4 && part == PART_WEIGHT_PACKED) part = PART_WEIGHT;
            if (part == PART_WEIGHT_SCALE_2) part = PART_WEIGHT_GLOBAL_SCALE;
            memcpy(parts, formats[f].parts, count * sizeof *parts);
            memmove(&parts[i], &parts[i + 1], (count - i - 1) * sizeof *parts);
            expect_refusal(f, parts, count - 1, part, "missing");
        }
    }
}

static void test_groups_beyond_the_last_are_refused(void **state) {
    (void)state;
    const int32_t groups[] = {GROUPS, -1};
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        memcpy(bytes + (IN - 1) * sizeof groups[i], &groups[i], sizeof groups[i]);
        expect_refusal(0, gptq, ARRAY_LEN(gptq), PART_G_IDX, "out of range");
        memset(bytes, 0, sizeof bytes);
    }
}

// GPTQ's first version stores zeros - 1 in 4 bits, so a zero of 0 is stored as 15.
static void test_zeros_less_one_wrap_round(void **state) {
    (void)state;
    for (int32_t stored = -1; stored <= 0; stored++) { // words of 15s, or of 0s
        int32_t zeros[GROUPS * OUT / 8];
        uint16_t ones[GROUPS * OUT];
        for (size_t i = 0; i < ARRAY_LEN(zeros); i++) zeros[i] = stored;
        for (size_t i = 0; i < ARRAY_LEN(ones); i++) ones[i] = 0x3c00; // 1.0
        const struct quantization_config config = {.method = QUANTIZED_GPTQ,
                                                   .bits = 4,
                                                   .block_rows = 1,
                                                   .block_cols = GROUP,
                                                   .is_zero_less_one = true};
        const struct tensor tensors[] = {{.name = "qweight",
                                          .path = "file",
                                          .dtype = DTYPE_I32,
                                          .rank = 2,
                                          .shape = {IN / 8, OUT},
                                          .size_bytes = IN / 8 * OUT * 4,
                                          .source = {.data = bytes}},
                                         {.name = "qzeros",
                                          .path = "file",
                                          .dtype = DTYPE_I32,
                                          .rank = 2,
                                          .shape = {GROUPS, OUT / 8},
                                          .size_bytes = sizeof zeros,
                                          .source = {.data = zeros}},
                                         {.name = "scales",
                                          .path = "file",
                                          .dtype = DTYPE_F16,
                                          .rank = 2,
                                          .shape = {GROUPS, OUT},
                                          .size_bytes = sizeof ones,
                                          .source = {.data = ones}}};
        struct quantized_module module = {.name = "m", .out = OUT, .in = IN};
        module.parts[PART_QWEIGHT] = &tensors[0];
        module.parts[PART_QZEROS] = &tensors[1];
        module.parts[PART_SCALES] = &tensors[2];
        struct matrix_reader *reader = NULL;
        float row[IN];
        assert_int_equal(quantized_module_open(&reader, &module, &config, NULL), OK);
        assert_int_equal(reader->read(reader, OUT - 1, 0, IN, row, NULL), OK);
        for (size_t i = 0; i < IN; i++) assert_true(row[i] == (stored ? 0 : -1));
        reader->close(reader);
    }
}

// Opens bitsandbytes' 4 bits with one tensor missing, or of one element less.
// NUM_MODULE_PARTS: none.
static enum status open_bnb4(const char *text, enum module_part bad, bool is_missing,
                             struct err *err) {
    enum { BLOCKS = OUT * IN / 16 };
    const struct {
        enum module_part part;
        enum dtype dtype;
        uint64_t count;
    } parts[] = {{PART_WEIGHT_STATE_NF4, DTYPE_U8, strlen(text)},
                 {PART_WEIGHT_ABSMAX, DTYPE_U8, BLOCKS},
                 {PART_WEIGHT_MAP, DTYPE_F32, 16},
                 {PART_WEIGHT_NESTED_ABSMAX, DTYPE_F32, 1},
                 {PART_WEIGHT_NESTED_MAP, DTYPE_F32, 256},
                 {PART_WEIGHT, DTYPE_U8, OUT * IN / 2}};
    const struct quantization_config config = {
        .method = QUANTIZED_BNB4, .bits = 4, .block_rows = 1};
    struct tensor tensors[ARRAY_LEN(parts)];
    struct quantized_module module = {.name = "m", .out = OUT, .in = IN};
    struct matrix_reader *reader = NULL;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (parts[i].part == bad && is_missing) continue;
        uint64_t count = parts[i].count - (parts[i].part == bad);
        tensors[i] = (struct tensor){.name = module_part_name(parts[i].part),
                                     .path = "file",
                                     .dtype = parts[i].dtype,
                                     .rank = parts[i].part == PART_WEIGHT ? 2 : 1,
                                     .shape = {count, 1},
                                     .size_bytes = count * dtype_size(parts[i].dtype),
                                     .source = {.data = i ? bytes : text}};
        module.parts[parts[i].part] = &tensors[i];
    }
    enum status status = quantized_module_open(&reader, &module, &config, err);
    if (reader) reader->close(reader);
    return status;
}

static void test_bitsandbytes(void **state) {
    (void)state;
    static const char good[] =
        "{\"blocksize\": 16, \"nested_blocksize\": 256, \"nested_offset\": 0.5}";
    static const enum module_part parts[] = {PART_WEIGHT_STATE_NF4,  PART_WEIGHT_ABSMAX,
                                             PART_WEIGHT_MAP,        PART_WEIGHT_NESTED_ABSMAX,
                                             PART_WEIGHT_NESTED_MAP, PART_WEIGHT};
    struct err err = {0};
    if (open_bnb4(good, NUM_MODULE_PARTS, false, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < 2 * ARRAY_LEN(parts); i++) {
        err = (struct err){0};
        enum module_part part = parts[i / 2];
        if (!open_bnb4(good, part, i % 2, &err)) fail_msg("%s", module_part_name(part));
        // Without scales of scales, the scales themselves should be floats.
        if (part == PART_WEIGHT_NESTED_ABSMAX && i % 2) part = PART_WEIGHT_ABSMAX;
        if (!strstr(err.message, module_part_name(part))) fail_msg("%s", err.message);
    }
    static const char *const states[] = {"",
                                         "[]",
                                         "{}",
                                         "{\"blocksize\": 0}",
                                         "{\"blocksize\": 12}",
                                         "{\"blocksize\": 16, \"nested_blocksize\": 256}",
                                         ("{\"blocksize\": 16, \"nested_blocksize\": -1, "
                                          "\"nested_offset\": 0.5}")};
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        assert_int_not_equal(open_bnb4(states[i], NUM_MODULE_PARTS, false, &err), OK);
    }
}

// What "quant_state" says besides must agree with the tensors, and is refused by its key if not.
static void test_bitsandbytes_states_fit_the_tensors(void **state) {
    (void)state;
    static const struct {
        const char *key, *good, *bad[6];
    } cases[] = {{"quant_type", "\"nf4\"", {"\"fp4\"", "\"int8\"", "4"}},
                 {"shape", "[16, 32]", {"[32, 16]", "[16]", "[16, 32, 1]", "512", "[16, 32.0]"}},
                 {"dtype", "\"float16\"", {"\"int8\"", "16"}},
                 {"nested_dtype", "\"float32\"", {"\"float16\"", "{}"}},
                 {"order", "null", {"1"}}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t k = 0; k == 0 || cases[i].bad[k - 1]; k++) {
            const char *value = k ? cases[i].bad[k - 1] : cases[i].good;
            struct err err = {0};
            char text[200];
            snprintf(text, sizeof text, "{\"%s\": %s, \"blocksize\": 16, \"nested_offset\": 0.5}",
                     cases[i].key, value);
            enum status status = open_bnb4(text, NUM_MODULE_PARTS, false, &err);
            if (!status != !k) fail_msg("%s: %s", text, err.message);
            if (k && !strstr(err.message, cases[i].key)) fail_msg("%s: %s", text, err.message);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeros_less_one_wrap_round),
        cmocka_unit_test(test_bitsandbytes),
        cmocka_unit_test(test_bitsandbytes_states_fit_the_tensors),
        cmocka_unit_test(test_good_parts),
        cmocka_unit_test(test_bad_parts),
        cmocka_unit_test(test_groups_beyond_the_last_are_refused),
    };
    return cmocka_run_group_tests_name("quantized_module", tests, NULL, NULL);
}
