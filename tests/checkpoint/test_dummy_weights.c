// Dummy weights: random numbers in a model's shapes, the same on every machine.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/quantized/quantized_matrix.h"
#include "checkpoint/weights.h"
#include "support/cmocka_all.h"

static enum status take(struct weights *weights, const char *name, uint32_t rank, uint64_t dim0,
                        uint64_t dim1, struct weight *out, struct err *err) {
    return weights_take(weights, name, rank, (const uint64_t[]){dim0, dim1}, out, err);
}

static void dummy_matrix(struct weights *weights, const char *name, uint64_t rows, uint64_t columns,
                         struct weight *out) {
    struct err err = {0};
    if (take(weights, name, 2, rows, columns, out, &err) != OK) fail_msg("%s", err.message);
    assert_int_equal(out->dtype, DTYPE_BF16);
}

static void test_dummy_statistics(void **state) {
    (void)state;
    struct weights *weights = NULL;
    struct err err = {0};
    assert_int_equal(weights_open_dummy(&weights, &err), OK);
    struct weight out;
    enum { COUNT = 1 << 20 };
    dummy_matrix(weights, "w", 1024, 1024, &out);
    double sum = 0;
    double squares = 0;
    double largest = 0;
    for (size_t i = 0; i < COUNT; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)out.source.data + 2 * i, sizeof bits);
        double value = (double)bf16_to_f32(bits);
        sum += value;
        squares += value * value;
        if (fabs(value) > largest) largest = fabs(value);
    }
    assert_true(fabs(sum / COUNT) < 2e-4);
    assert_true(fabs(sqrt(squares / COUNT) - 0.02) < 2e-4);
    assert_true(largest > 0.05 && largest < 0.08);
    weights_close(weights);
}

static void test_dummy_is_deterministic(void **state) {
    (void)state;
    struct weights *first = NULL;
    struct weights *second = NULL;
    struct err err = {0};
    assert_int_equal(weights_open_dummy(&first, &err), OK);
    assert_int_equal(weights_open_dummy(&second, &err), OK);
    struct weight a;
    struct weight b;
    struct weight other;
    dummy_matrix(first, "layers.0.q", 700, 300, &a);
    dummy_matrix(second, "layers.0.k", 5000, 2000, &other); // a larger one first
    dummy_matrix(second, "layers.0.q", 700, 300, &b);
    assert_memory_equal(a.source.data, b.source.data, (size_t)700 * 300 * 2);
    assert_int_not_equal(memcmp(a.source.data, other.source.data, 4096),
                         0); // names differ, values differ
    // The same on every machine and in every version: its beginning, and a sum of all.
    static const uint16_t golden[8] = {0x3ce9, 0x3c79, 0x3c24, 0xbb94,
                                       0xbb5f, 0xbc66, 0xbc99, 0x3d3b};
    uint64_t sum = 0;
    for (size_t i = 0; i < (size_t)700 * 300; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)a.source.data + 2 * i, sizeof bits);
        if (i < ARRAY_LEN(golden)) assert_int_equal(bits, golden[i]);
        sum = sum * 31 + bits;
    }
    assert_true(sum == 0x3aeb6c7d4542f69e);
    weights_close(first);
    weights_close(second);
}

// Matrices stay readable while larger ones are made after them.
static void test_dummy_grows(void **state) {
    (void)state;
    struct weights *weights = NULL;
    struct err err = {0};
    assert_int_equal(weights_open_dummy(&weights, &err), OK);
    struct weight small;
    struct weight large;
    dummy_matrix(weights, "small", 16, 16, &small);
    char copy[512];
    memcpy(copy, small.source.data, sizeof copy);
    for (uint64_t rows = 1000; rows <= 40000; rows *= 3) {
        dummy_matrix(weights, "large", rows, 1024, &large);
        assert_memory_not_equal((const char *)large.source.data + (rows * 1024 - 256) * 2, copy,
                                512);
    }
    assert_memory_equal(small.source.data, copy, sizeof copy);
    const uint64_t shape[2] = {3, 3};
    assert_int_equal(weights_ignore_copy(weights, "lm_head.weight", "embed", 2, shape, &err), OK);
    assert_int_equal(weights_finish(weights, &err), OK);
    weights_close(weights);
}

// KiB of memory that this process has mapped, shared pages counted once; 0: the kernel does not
// tell.
static unsigned long mapped_kib(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file) return 0;
    char line[128];
    unsigned long kib = 0;
    while (fgets(line, sizeof line, file) && sscanf(line, "Pss: %lu kB", &kib) != 1) kib = 0;
    fclose(file);
    return kib;
}

static void test_dummy_uses_no_memory(void **state) {
    (void)state;
    struct weights *weights = NULL;
    struct err err = {0};
    assert_int_equal(weights_open_dummy(&weights, &err), OK);
    unsigned long before = mapped_kib();
    if (!before) {
        weights_close(weights);
        print_message("no /proc/self/smaps_rollup here\n");
        skip();
    }
    struct weight out;
    dummy_matrix(weights, "embed", 151936, 1024, &out); // 297 MiB of address space
    unsigned sum = 0;
    for (size_t at = 0; at < (size_t)151936 * 1024 * 2; at += 4096) {
        sum += ((const unsigned char *)out.source.data)[at];
    }
    assert_true(sum > 0);
    assert_true(mapped_kib() < before + 16 * 1024);
    weights_close(weights);
}

static void test_dummy_vectors(void **state) {
    (void)state;
    struct weights *weights = NULL;
    struct err err = {0};
    assert_int_equal(weights_open_dummy(&weights, &err), OK);
    static const struct {
        const char *name;
        uint64_t len;
        uint16_t want;
    } cases[] = {
        {"model.norm.weight", 100, 0x3f80},
        {"model.layers.0.input_layernorm.weight", 3000, 0x3f80},
        {"model.layers.0.self_attn.q_norm.weight", 128, 0x3f80},
        {"model.layers.0.layer_scalar", 1, 0x3f80},
        {"model.layers.0.self_attn.q_proj.bias", 2000, 0},
        {"norm.weight.bias", 4000, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weight out;
        assert_int_equal(take(weights, cases[i].name, 1, cases[i].len, 0, &out, &err), OK);
        assert_int_equal(out.rank, 1);
        for (size_t k = 0; k < cases[i].len; k++) {
            assert_int_equal(((const uint16_t *)out.source.data)[k], cases[i].want);
        }
    }
    weights_close(weights);
}

static void test_dummy_too_large(void **state) {
    (void)state;
    struct weights *weights = NULL;
    struct err err = {0};
    assert_int_equal(weights_open_dummy(&weights, &err), OK);
    struct weight out;
    assert_int_equal(take(weights, "w", 2, UINT64_MAX, 2, &out, &err), ERR_NOMEM);
    assert_int_equal(take(weights, "w", 2, UINT64_MAX / 2, 1, &out, &err), ERR_NOMEM);
    assert_int_equal(take(weights, "w", 2, UINT32_MAX, UINT32_MAX / 8, &out, &err), ERR_NOMEM);
    assert_int_equal(take(weights, "b", 1, UINT64_MAX, 0, &out, &err), ERR_NOMEM);
    dummy_matrix(weights, "w", 64, 64, &out); // still works after the failure
    weights_close(weights);
}

// The linears of layers are in the format of the configuration, but for those that it leaves out,
// and give the same numbers as codes and as floats.
static void test_dummy_codes(void **state) {
    (void)state;
    char *skipped[] = {(char *)"model.layers.1"};
    const struct quantization_config methods[] = {
        {.method = QUANTIZED_FP8, .bits = 8, .block_rows = 128, .block_cols = 128},
        {.method = QUANTIZED_AWQ, .bits = 4, .block_rows = 1, .block_cols = 32},
        {.method = QUANTIZED_GPTQ, .bits = 8, .block_rows = 1, .is_symmetric = true},
    };
    const enum weight_code codes[] = {WEIGHT_CODE_E4M3, WEIGHT_CODE_INT4, WEIGHT_CODE_INT8};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        struct quantization_config config = methods[i];
        config.skipped = skipped;
        config.num_skipped = 1;
        struct weights *weights = NULL;
        struct err err = {0};
        assert_int_equal(weights_open_dummy(&weights, &err), OK);
        weights_set_quantization(weights, &config);
        struct weight out;
        dummy_matrix(weights, "model.embed_tokens.weight", 64, 256, &out);
        dummy_matrix(weights, "model.layers.1.mlp.up_proj.weight", 64, 256, &out);
        struct matrix_form form;
        const char *name = "model.layers.0.mlp.up_proj.weight";
        assert_int_equal(weights_form(weights, name, 64, 256, &form, &err), OK);
        assert_int_equal(form.code, codes[i]);
        assert_int_equal(form.group, config.block_cols);
        assert_int_equal(form.has_offsets, i == 1);
        assert_int_equal(take(weights, name, 2, 64, 256, &out, &err), OK);
        uint8_t row[256];
        float scales[8], offsets[8], values[256];
        const struct matrix_codes got = {
            .codes = row, .scales = scales, .offsets = form.has_offsets ? offsets : NULL};
        const struct matrix_reader *reader = out.reader;
        assert_int_equal(reader->read_codes(reader, 5, 0, 256, form.group, &got, &err), OK);
        assert_int_equal(reader->read(reader, 5, 0, 256, values, &err), OK);
        double squares = 0;
        for (size_t k = 0; k < 256; k++) {
            const float *table = weight_code_values(form.code);
            float value = table                           ? table[row[k]]
                          : form.code == WEIGHT_CODE_INT8 ? (float)(int8_t)row[k]
                                                          : e4m3_to_f32(row[k]);
            float offset = form.has_offsets ? offsets[k / 32] : 0;
            float want = value * scales[form.group ? k / form.group : 0] + offset;
            assert_true(fabsf(values[k] - want) < 1e-6f);
            squares += (double)(values[k] * values[k]);
        }
        assert_true(sqrt(squares / 256) > 0.01 && sqrt(squares / 256) < 0.04);
        weights_close(weights);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dummy_statistics), cmocka_unit_test(test_dummy_is_deterministic),
        cmocka_unit_test(test_dummy_grows),      cmocka_unit_test(test_dummy_uses_no_memory),
        cmocka_unit_test(test_dummy_vectors),    cmocka_unit_test(test_dummy_too_large),
        cmocka_unit_test(test_dummy_codes),
    };
    return cmocka_run_group_tests_name("dummy_weights", tests, NULL, NULL);
}
