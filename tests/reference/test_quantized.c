/* Quantized checkpoints that are decoded while they are loaded: a model in FP8 gives the very
 * logits of the same model with the decoded values in BF16. Both are made here from a family's
 * checkpoint. Scales are powers of two, so that BF16 holds every decoded value exactly. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "checkpoint/safetensors.h"
#include "reference/expected.h"
#include "support/cmocka_all.h"
#include "support/mini_engine.h"
#include "support/temp_folder.h"

// No multiple of what the model's sizes are multiples of.
enum { BLOCK_ROWS = 48, BLOCK_COLS = 80, PROMPT = 40, ANSWER = 8 };

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

static void add_as_it_is(struct writer *w, const struct tensor *t) {
    char shape[64];
    char *room = malloc(t->size_bytes);
    assert_non_null(room);
    const void *bytes = byte_source_get(&t->source, 0, t->size_bytes, room, NULL);
    assert_non_null(bytes);
    int len = snprintf(shape, sizeof shape, "%llu", (unsigned long long)t->shape[0]);
    if (t->rank == 2) {
        snprintf(shape + len, sizeof shape - (size_t)len, ",%llu", (unsigned long long)t->shape[1]);
    }
    add(w, t->name, dtype_name(t->dtype), shape, bytes, t->size_bytes);
    free(room);
}

static void write_config(const struct temp_folder *folder, const char *family, bool is_fp8) {
    char path[256];
    json_t *config = NULL;
    struct err err = {0};
    snprintf(path, sizeof path, "tests/reference/data/%s/config.json", family);
    if (jread_file(&config, path, &err)) fail_msg("%s", err.message);
    if (is_fp8) {
        json_t *format =
            json_pack("{s:s, s:s, s:[i, i]}", "quant_method", "fp8", "activation_scheme", "dynamic",
                      "weight_block_size", BLOCK_ROWS, BLOCK_COLS);
        assert_int_equal(json_object_set_new(config, "quantization_config", format), 0);
    }
    char *text = json_dumps(config, 0);
    assert_non_null(text);
    temp_folder_write_text(folder, "config.json", text);
    free(text);
    json_decref(config);
}

static void write_both(const struct temp_folder *fp8, const struct temp_folder *bf16,
                       const char *family) {
    char path[256];
    struct safetensors *file = NULL;
    struct err err = {0};
    struct writer in_fp8 = {0}, in_bf16 = {0};
    snprintf(path, sizeof path, "tests/reference/data/%s/model.safetensors", family);
    if (safetensors_open(&file, path, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *t = safetensors_at(file, i);
        if (strstr(t->name, "_proj.weight")) {
            add_matrix(&in_fp8, &in_bf16, t);
        } else {
            add_as_it_is(&in_fp8, t);
            add_as_it_is(&in_bf16, t);
        }
    }
    safetensors_close(file);
    finish(&in_fp8, fp8);
    finish(&in_bf16, bf16);
    write_config(fp8, family, true);
    write_config(bf16, family, false);
}

// The logits of an answer: [ANSWER][vocab], which the caller frees.
static float *logits_of(const char *model, const char *quantization, size_t *count) {
    struct mini_engine engine;
    struct nvllm_engine_options options = mini_options(model);
    options.quantization = quantization;
    mini_open(&engine, &options);
    int32_t prompt[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = 10 + i * 7;
    *count = (size_t)ANSWER * engine.plan.config.vocab_size;
    float *logits = malloc(*count * sizeof *logits);
    assert_non_null(logits);
    struct mini_request request = {
        .prompt = prompt, .num_prompt = PROMPT, .max_new = ANSWER, .logits = logits};
    mini_run(&engine, &request, 1);
    mini_close(&engine);
    return logits;
}

static void check_family(const char *family, const char *quantization) {
    struct temp_folder fp8, bf16;
    temp_folder_create(&fp8);
    temp_folder_create(&bf16);
    write_both(&fp8, &bf16, family);
    size_t count, want_count;
    float *want = logits_of(bf16.path, quantization, &want_count);
    float *got = logits_of(fp8.path, quantization, &count);
    assert_int_equal(count, want_count);
    assert_memory_equal(got, want, count * sizeof *want);
    free(want);
    free(got);
    temp_folder_remove(&fp8);
    temp_folder_remove(&bf16);
}

static void test_dense_model_in_fp8(void **state) {
    (void)state;
    check_family("qwen3", "none");
}

static void test_fp8_made_8_and_4_bits_wide(void **state) {
    (void)state;
    check_family("qwen3", "int8");
    check_family("qwen3-moe", "int4");
}

static void test_experts_in_fp8(void **state) {
    (void)state;
    check_family("qwen3-moe", "none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_model_in_fp8),
        cmocka_unit_test(test_experts_in_fp8),
        cmocka_unit_test(test_fp8_made_8_and_4_bits_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
