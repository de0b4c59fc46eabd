/* Quantized checkpoints, whose weights stay packed or are decoded while they are loaded. A model in
 * FP8, or in 4 bits with groups in order or in any order, or whose experts alone are GPTQ's, gives
 * the very logits of the same model with the decoded values in BF16. All are made here from a
 * family's checkpoint. Scales are powers of two, so that BF16 holds every decoded value exactly.
 * The plain kernels are used: others round x to 16-bit integers (test_ops_packed). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json/jread.h"
#include "checkpoint/safetensors.h"
#include "reference/expected.h"
#include "support/cmocka_all.h"
#include "support/mini_engine.h"
#include "support/temp_folder.h"

// No multiple of what the model's sizes are multiples of.
enum { BLOCK_ROWS = 48, BLOCK_COLS = 80, PROMPT = 40, ANSWER = 8 };

enum stored {
    STORED_FP8,
    STORED_INT4, // groups of 32 inputs in order
    STORED_SPREAD, // groups of 24, spread over the inputs
    STORED_GPTQ, // Qwen3.5's published form: only experts, groups of 32
};

static uint32_t group_size(enum stored stored) {
    return stored == STORED_SPREAD ? 24 : 32;
}

// One checkpoint file that is being written.
struct writer {
    char *header;
    unsigned char *data;
    size_t header_bytes, data_bytes;
};

static void add(struct writer *w, const char *name, const char *dtype, const char *shape,
                const void *bytes, size_t size) {
    char entry[512];
    int len = snprintf(entry, sizeof entry,
                       "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                       w->header_bytes ? "," : "{", name, dtype, shape, w->data_bytes,
                       w->data_bytes + size);
    assert_true(len > 0 && len < (int)sizeof entry);
    w->header = realloc(w->header, w->header_bytes + (size_t)len + 1);
    w->data = realloc(w->data, w->data_bytes + size);
    assert_true(w->header && w->data);
    memcpy(w->header + w->header_bytes, entry, (size_t)len + 1);
    memcpy(w->data + w->data_bytes, bytes, size);
    w->header_bytes += (size_t)len;
    w->data_bytes += size;
}

static void finish(struct writer *w, const struct temp_folder *folder) {
    CHECK(w->header && w->data, "no tensors");
    size_t total = 8 + w->header_bytes + 1 + w->data_bytes;
    unsigned char *file = malloc(total);
    assert_non_null(file);
    uint64_t len = w->header_bytes + 1;
    memcpy(file, &len, sizeof len);
    memcpy(file + 8, w->header, w->header_bytes);
    file[8 + w->header_bytes] = '}';
    memcpy(file + 8 + len, w->data, w->data_bytes);
    temp_folder_write(folder, "model.safetensors", file, total);
    free(file);
    free(w->header);
    free(w->data);
}

static float e4m3_value(unsigned code) {
    int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    float value =
        exponent ? ldexpf(1 + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa / 8, -6);
    return code & 128 ? -value : value;
}

static uint8_t e4m3_nearest(float value) {
    unsigned low = 0, high = 126; // magnitudes rise with their codes
    float magnitude = fabsf(value);
    while (low < high) {
        unsigned middle = (low + high + 1) / 2;
        if (e4m3_value(middle) <= magnitude)
            low = middle;
        else
            high = middle - 1;
    }
    if (low < 126 && e4m3_value(low + 1) - magnitude < magnitude - e4m3_value(low)) low++;
    return (uint8_t)(low | (value < 0 ? 128u : 0));
}

// Adds a matrix to both checkpoints.
static void add_matrix(struct writer *fp8, struct writer *bf16, const struct tensor *t) {
    uint32_t rows = (uint32_t)t->shape[0], cols = (uint32_t)t->shape[1];
    uint32_t scale_cols = (cols + BLOCK_COLS - 1) / BLOCK_COLS;
    uint32_t scale_rows = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    size_t count = (size_t)rows * cols, num_scales = (size_t)scale_rows * scale_cols;
    uint16_t *values = malloc(t->size_bytes), *decoded = malloc(count * sizeof *decoded);
    uint8_t *codes = malloc(count);
    float *scales = calloc(num_scales, sizeof *scales);
    assert_true(values && decoded && codes && scales);
    const void *bytes = byte_source_get(&t->source, 0, t->size_bytes, values, NULL);
    assert_non_null(bytes);
    if (bytes != values) memcpy(values, bytes, t->size_bytes);
    for (size_t i = 0; i < count; i++) { // the largest magnitude of each block
        size_t block = i / cols / BLOCK_ROWS * scale_cols + i % cols / BLOCK_COLS;
        scales[block] = fmaxf(scales[block], fabsf(bf16_to_f32(values[i])));
    }
    for (size_t i = 0; i < num_scales; i++) {
        scales[i] = ldexpf(1, (int)ceilf(log2f(scales[i] / 448)));
    }
    for (size_t i = 0; i < count; i++) {
        float scale = scales[i / cols / BLOCK_ROWS * scale_cols + i % cols / BLOCK_COLS];
        codes[i] = e4m3_nearest(bf16_to_f32(values[i]) / scale);
        decoded[i] = f32_to_bf16(e4m3_value(codes[i]) * scale);
    }
    char shape[64], scale_shape[64], scale_name[256];
    snprintf(shape, sizeof shape, "%u,%u", rows, cols);
    snprintf(scale_shape, sizeof scale_shape, "%u,%u", scale_rows, scale_cols);
    snprintf(scale_name, sizeof scale_name, "%s_scale_inv", t->name);
    add(fp8, t->name, "F8_E4M3", shape, codes, count);
    add(fp8, scale_name, "F32", scale_shape, scales, num_scales * sizeof *scales);
    add(bf16, t->name, "BF16", shape, decoded, count * sizeof *decoded);
    free(values);
    free(decoded);
    free(codes);
    free(scales);
}

// The tensor `base`.SUFFIX, a matrix, or a vector without columns.
static void add_part(struct writer *w, const char *base, const char *suffix, const char *dtype,
                     uint32_t rows, uint32_t cols, const void *bytes, size_t size) {
    char name[256], shape[64];
    snprintf(name, sizeof name, "%.200s.%s", base, suffix);
    if (cols) {
        snprintf(shape, sizeof shape, "%u,%u", rows, cols);
    } else {
        snprintf(shape, sizeof shape, "%u", rows);
    }
    add(w, name, dtype, shape, bytes, size);
}

// The same as compressed-tensors' W4A16 with zeros. Where groups are spread over the inputs, a rank
// that has some of the columns has some of each group.
static void add_packed(struct writer *packed, struct writer *bf16, const struct tensor *t,
                       enum stored stored) {
    uint32_t rows = (uint32_t)t->shape[0], cols = (uint32_t)t->shape[1];
    uint32_t size = group_size(stored), groups = (cols + size - 1) / size, words = (cols + 7) / 8;
    uint32_t zero_words = (rows + 7) / 8;
    uint16_t *values = malloc(t->size_bytes);
    uint32_t *codes = calloc((size_t)rows * words, 4);
    uint32_t *zeros = calloc((size_t)zero_words * groups, 4);
    float *scales = calloc((size_t)rows * groups, sizeof *scales);
    int32_t *group_of = malloc(cols * sizeof *group_of);
    assert_true(values && codes && zeros && scales && group_of);
    const void *bytes = byte_source_get(&t->source, 0, t->size_bytes, values, NULL);
    assert_non_null(bytes);
    if (bytes != values) memcpy(values, bytes, t->size_bytes);
    for (uint32_t c = 0; c < cols; c++) {
        group_of[c] = (int32_t)(stored == STORED_SPREAD ? c % groups : c / size);
    }
    for (uint32_t i = 0; i < rows * groups; i++) {
        uint32_t r = i / groups, g = i % groups;
        scales[i] = ldexpf(1, -6 - (int)(i % 3));
        zeros[r / 8 * groups + g] |= (6 + i % 5) << (r % 8 * 4);
    }
    for (size_t i = 0; i < (size_t)rows * cols; i++) {
        uint32_t r = (uint32_t)(i / cols), c = (uint32_t)(i % cols), g = (uint32_t)group_of[c];
        int zero = 6 + (int)((r * groups + g) % 5);
        float scale = scales[r * groups + g];
        int code = (int)lrintf(bf16_to_f32(values[i]) / scale) + zero;
        code = code < 0 ? 0 : code > 15 ? 15 : code;
        codes[r * words + c / 8] |= (uint32_t)code << (c % 8 * 4);
        values[i] = f32_to_bf16((float)(code - zero) * scale);
    }
    char base[200];
    snprintf(base, sizeof base, "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
    const int64_t shape[2] = {rows, cols};
    add_part(packed, base, "weight_packed", "I32", rows, words, codes, (size_t)rows * words * 4);
    add_part(packed, base, "weight_scale", "F32", rows, groups, scales, (size_t)rows * groups * 4);
    add_part(packed, base, "weight_zero_point", "I32", zero_words, groups, zeros,
             (size_t)zero_words * groups * 4);
    if (stored == STORED_SPREAD) {
        add_part(packed, base, "weight_g_idx", "I32", cols, 0, group_of, cols * 4);
    }
    add_part(packed, base, "weight_shape", "I64", 2, 0, shape, sizeof shape);
    add_part(bf16, base, "weight", "BF16", rows, cols, values, t->size_bytes);
    free(values);
    free(codes);
    free(zeros);
    free(scales);
    free(group_of);
}

static void add_as_it_is(struct writer *w, const struct tensor *t) {
    char shape[64] = "";
    char *buffer = malloc(t->size_bytes);
    assert_non_null(buffer);
    const void *bytes = byte_source_get(&t->source, 0, t->size_bytes, buffer, NULL);
    assert_non_null(bytes);
    for (uint32_t i = 0, len = 0; i < t->rank; i++) {
        len += (uint32_t)snprintf(shape + len, sizeof shape - len, i ? ",%llu" : "%llu",
                                  (unsigned long long)t->shape[i]);
    }
    add(w, t->name, dtype_name(t->dtype), shape, bytes, t->size_bytes);
    free(buffer);
}

// A matrix as GPTQ's packages write it: words of 8 inputs, and zeros of 8, stored as 7. `values`
// become the decoded ones.
static void add_gptq(struct writer *w, const char *base, uint32_t rows, uint32_t cols,
                     uint16_t *values) {
    uint32_t size = group_size(STORED_GPTQ), groups = cols / size;
    uint32_t *words = calloc((size_t)cols / 8 * rows, 4);
    uint32_t *zeros = malloc((size_t)groups * rows / 8 * 4);
    uint16_t *scales = malloc((size_t)groups * rows * sizeof *scales); // float16
    int32_t *group_of = malloc(cols * sizeof *group_of);
    assert_true(words && zeros && scales && group_of);
    memset(zeros, 0x77, (size_t)groups * rows / 8 * 4);
    for (uint32_t c = 0; c < cols; c++) group_of[c] = (int32_t)(c / size);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < cols; c++) {
            uint32_t power = 4 + (r + c / size) % 3; // the scale is 2^-power
            int code = (int)lrintf(ldexpf(bf16_to_f32(values[r * cols + c]), (int)power)) + 8;
            code = code < 0 ? 0 : code > 15 ? 15 : code;
            words[c / 8 * rows + r] |= (uint32_t)code << (c % 8 * 4);
            scales[c / size * rows + r] = (uint16_t)((15 - power) << 10);
            values[r * cols + c] = f32_to_bf16(ldexpf((float)(code - 8), -(int)power));
        }
    }
    add_part(w, base, "qweight", "I32", cols / 8, rows, words, (size_t)cols / 8 * rows * 4);
    add_part(w, base, "qzeros", "I32", groups, rows / 8, zeros, (size_t)groups * rows / 8 * 4);
    add_part(w, base, "scales", "F16", groups, rows, scales, (size_t)groups * rows * 2);
    add_part(w, base, "g_idx", "I32", cols, 0, group_of, cols * 4);
    free(words);
    free(zeros);
    free(scales);
    free(group_of);
}

// Of all experts, gate_up or down: GPTQ's checkpoint has each matrix of each expert by itself.
static void add_gptq_stack(struct writer *gptq, struct writer *bf16, const struct tensor *t) {
    uint32_t cols = (uint32_t)t->shape[2], rows = (uint32_t)t->shape[1];
    bool is_down = strstr(t->name, "down_proj") != NULL;
    uint32_t parts = is_down ? 1 : 2;
    uint16_t *values = malloc(t->size_bytes);
    assert_non_null(values);
    const void *bytes = byte_source_get(&t->source, 0, t->size_bytes, values, NULL);
    assert_non_null(bytes);
    if (bytes != values) memcpy(values, bytes, t->size_bytes);
    int prefix = (int)(strrchr(t->name, '.') - t->name);
    for (uint32_t i = 0; i < t->shape[0] * parts; i++) {
        char base[200];
        const char *part = is_down ? "down_proj" : i % 2 ? "up_proj" : "gate_proj";
        snprintf(base, sizeof base, "%.*s.%u.%s", prefix, t->name, i / parts, part);
        add_gptq(gptq, base, rows / parts, cols, values + (size_t)i * (rows / parts) * cols);
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%u,%u,%u", (uint32_t)t->shape[0], rows, cols);
    add(bf16, t->name, "BF16", shape, values, t->size_bytes);
    free(values);
}

static json_t *format_of(enum stored stored) {
    if (stored == STORED_GPTQ) {
        return json_pack("{s:s, s:i, s:i, s:b, s:b, s:s, s:b, s:{s:{}, s:{}}}", "quant_method",
                         "gptq", "bits", 4, "group_size", (int)group_size(stored), "sym", 1,
                         "desc_act", 0, "checkpoint_format", "gptq", "lm_head", 0, "dynamic",
                         "-:.*attn.*", "-:.*shared_expert.*");
    }
    if (stored == STORED_FP8) {
        return json_pack("{s:s, s:s, s:[i, i]}", "quant_method", "fp8", "activation_scheme",
                         "dynamic", "weight_block_size", BLOCK_ROWS, BLOCK_COLS);
    }
    return json_pack("{s:s, s:s, s:{s:{s:[s], s:{s:i, s:s, s:s, s:i, s:b, s:s?}}}}", "quant_method",
                     "compressed-tensors", "format", "pack-quantized", "config_groups", "group_0",
                     "targets", "Linear", "weights", "num_bits", 4, "type", "int", "strategy",
                     "group", "group_size", (int)group_size(stored), "symmetric", 0, "actorder",
                     stored == STORED_SPREAD ? "group" : NULL);
}

// `format` is taken; NULL: the weights are BF16.
static void write_config(const struct temp_folder *folder, const char *family, json_t *format) {
    char path[256];
    json_t *config = NULL;
    struct err err = {0};
    snprintf(path, sizeof path, "tests/reference/data/%s/config.json", family);
    if (jread_file(&config, path, &err)) fail_msg("%s", err.message);
    if (format) assert_int_equal(json_object_set_new(config, "quantization_config", format), 0);
    char *text = json_dumps(config, 0);
    assert_non_null(text);
    temp_folder_write_text(folder, "config.json", text);
    free(text);
    json_decref(config);
}

static void write_both(const struct temp_folder *quantized, const struct temp_folder *bf16,
                       const char *family, enum stored stored) {
    char path[256];
    struct safetensors *file = NULL;
    struct err err = {0};
    struct writer in_quantized = {0}, in_bf16 = {0};
    snprintf(path, sizeof path, "tests/reference/data/%s/model.safetensors", family);
    if (safetensors_open(&file, path, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *t = safetensors_at(file, i);
        if (stored == STORED_GPTQ && t->rank == 3 && strstr(t->name, ".experts.")) {
            add_gptq_stack(&in_quantized, &in_bf16, t);
        } else if (stored == STORED_GPTQ || !strstr(t->name, "_proj.weight")) {
            add_as_it_is(&in_quantized, t);
            add_as_it_is(&in_bf16, t);
        } else if (stored == STORED_FP8) {
            add_matrix(&in_quantized, &in_bf16, t);
        } else {
            add_packed(&in_quantized, &in_bf16, t, stored);
        }
    }
    safetensors_close(file);
    finish(&in_quantized, quantized);
    finish(&in_bf16, bf16);
    write_config(quantized, family, format_of(stored));
    write_config(bf16, family, NULL);
}

// The logits of an answer: [ANSWER][vocab], which the caller frees.
static float *logits_of(const char *model, const char *quantization, const char *dtype,
                        enum weight_code want_code, size_t *count) {
    struct mini_engine engine;
    struct nvllm_engine_options options = mini_options(model);
    options.quantization = quantization;
    options.dtype = dtype;
    options.cpu_isa = "scalar";
    mini_open(&engine, &options);
    struct weight_format format = engine_plan_weight_format(&engine.plan);
    assert_int_equal(format.code, want_code);
    int32_t prompt[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = (10 + i * 7) % 61;
    *count = (size_t)ANSWER * engine.plan.config.vocab_size;
    float *logits = malloc(*count * sizeof *logits);
    assert_non_null(logits);
    struct mini_request request = {
        .prompt = prompt, .num_prompt = PROMPT, .max_new = ANSWER, .logits = logits};
    mini_run(&engine, &request, 1);
    mini_close(&engine);
    return logits;
}

// `code`: of weights that stay packed.
static void check_family(const char *family, enum stored stored, const char *quantization,
                         const char *dtype, enum weight_code code) {
    struct temp_folder quantized, bf16;
    temp_folder_create(&quantized);
    temp_folder_create(&bf16);
    write_both(&quantized, &bf16, family, stored);
    size_t count, want_count;
    float *want = logits_of(bf16.path, quantization, dtype, WEIGHT_CODE_NONE, &want_count);
    float *got = logits_of(quantized.path, quantization, dtype, code, &count);
    assert_int_equal(count, want_count);
    assert_memory_equal(got, want, count * sizeof *want);
    free(want);
    free(got);
    temp_folder_remove(&quantized);
    temp_folder_remove(&bf16);
}

static void test_packed(void **state) {
    (void)state;
    check_family("qwen3", STORED_FP8, "none", "auto", WEIGHT_CODE_E4M3);
    check_family("qwen2", STORED_INT4, "none", "auto", WEIGHT_CODE_INT4); // with biases
    // Its rows are reordered.
    check_family("glm4", STORED_FP8, "none", "auto", WEIGHT_CODE_E4M3);
    check_family("glm4", STORED_INT4, "none", "auto", WEIGHT_CODE_INT4);
}

static void test_packed_experts(void **state) {
    (void)state;
    check_family("qwen3-moe", STORED_FP8, "none", "auto", WEIGHT_CODE_E4M3);
    check_family("qwen3-moe", STORED_INT4, "none", "auto", WEIGHT_CODE_INT4);
    check_family("qwen3-5-moe", STORED_GPTQ, "none", "auto", WEIGHT_CODE_INT4);
}

// Because their groups cannot stay, or because an option says so.
static void test_decoded(void **state) {
    (void)state;
    check_family("qwen2", STORED_SPREAD, "none", "auto", WEIGHT_CODE_NONE);
    check_family("qwen3-moe", STORED_SPREAD, "none", "auto", WEIGHT_CODE_NONE);
    check_family("qwen3", STORED_FP8, "none", "bfloat16", WEIGHT_CODE_NONE);
    check_family("qwen3", STORED_INT4, "none", "float32", WEIGHT_CODE_NONE);
}

static void test_made_8_and_4_bits_wide(void **state) {
    (void)state;
    check_family("qwen3", STORED_FP8, "int8", "auto", WEIGHT_CODE_NONE);
    check_family("qwen3", STORED_SPREAD, "int8", "auto", WEIGHT_CODE_NONE);
    check_family("qwen3-moe", STORED_FP8, "int4", "auto", WEIGHT_CODE_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_packed_experts),
        cmocka_unit_test(test_decoded),
        cmocka_unit_test(test_made_8_and_4_bits_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
