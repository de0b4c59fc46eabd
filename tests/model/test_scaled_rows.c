/* Rows times a factor: plain elements of each type, in memory and in files, those of a reader, and
 * codes, of which the scales and offsets are multiplied. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/os/file.h"
#include "model/load/scaled_rows.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

enum { ROWS = 3, COLS = 5, SKIPPED = 1, STRIDE = (1 + SKIPPED) * COLS };
static const float factor = 0.75f;

static float element(uint64_t row, uint64_t col) {
    return (float)(row * 8 + col) - 3.5f;
}

// Of a value that is a normal number of half precision.
static uint16_t f16_of(float value) {
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent); // [0.5, 1)
    uint32_t bits = (uint32_t)(exponent + 14) << 10 | (uint32_t)((2 * fraction - 1) * 1024);
    return (uint16_t)(bits | (value < 0 ? 1u << 15 : 0));
}

// Every second row of a matrix of such elements.
static void fill(char *out, enum dtype dtype) {
    for (uint64_t i = 0; i < ROWS * STRIDE; i++) {
        float value = element(i / COLS, i % COLS);
        uint16_t half = dtype == DTYPE_BF16 ? f32_to_bf16(value) : f16_of(value);
        if (dtype == DTYPE_F32) memcpy(out + i * sizeof value, &value, sizeof value);
        if (dtype != DTYPE_F32) memcpy(out + i * sizeof half, &half, sizeof half);
    }
}

// The slice reads by `rows` from then on.
static void expect_rows(struct matrix_slice *slice, struct scaled_rows *rows) {
    struct err err = {0};
    scaled_rows_init(rows, slice, factor);
    assert_ptr_equal(slice->reader, &rows->base);
    assert_int_equal(slice->dtype, DTYPE_F32);
    for (uint64_t row = 0; row < ROWS; row++) {
        float out[COLS - 1];
        if (rows->base.read(&rows->base, matrix_slice_row(slice, row), 1, COLS - 1, out, &err)) {
            fail_msg("%s", err.message);
        }
        for (uint64_t i = 0; i < COLS - 1; i++) {
            float want = factor * element(row * (1 + SKIPPED), i + 1);
            if (out[i] != want) fail_msg("%g, want %g", (double)out[i], (double)want);
        }
    }
}

static void test_plain_elements(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    struct temp_folder folder;
    char path[256];
    struct err err = {0};
    temp_folder_create(&folder);
    assert_int_equal(file_join(path, sizeof path, folder.path, "matrix", NULL), OK);
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        char bytes[ROWS * STRIDE * sizeof(float)] = {0};
        struct scaled_rows rows;
        fill(bytes, dtypes[i]);
        struct matrix_slice slice = {.rows = ROWS,
                                     .cols = COLS,
                                     .dtype = dtypes[i],
                                     .row_stride = STRIDE,
                                     .skipped_rows = SKIPPED,
                                     .source = {.data = bytes}};
        struct matrix_slice in_file = slice;
        struct file file;
        expect_rows(&slice, &rows);
        temp_folder_write(&folder, "matrix", bytes, sizeof bytes);
        if (file_open(&file, path, &err)) fail_msg("%s", err.message);
        in_file.source = (struct byte_source){.file = &file};
        expect_rows(&in_file, &rows);
        file_close(&file);
    }
    temp_folder_remove(&folder);
}

static enum status read(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                        size_t count, float *out, struct err *err) {
    (void)reader, (void)err;
    for (size_t i = 0; i < count; i++) out[i] = element(row - 4, col + i); // from row 4 on
    return OK;
}

static enum status read_codes(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    (void)err;
    for (size_t i = 0; i < count; i++) out->codes[i] = (uint8_t)(row + col + i);
    if (out->scale_multiples) memset(out->scale_multiples, 3, (count + group - 1) / group);
    if (out->scale_multiples) group = out->unit;
    for (size_t i = 0; i < (count + group - 1) / group; i++) {
        out->scales[i] = 2.0f + (float)i;
        if (reader->form.has_offsets) out->offsets[i] = -1.0f;
    }
    return OK;
}

static void test_a_reader(void **state) {
    (void)state;
    const struct matrix_reader own = {.read = read};
    struct scaled_rows rows;
    struct matrix_slice slice = {.rows = ROWS,
                                 .cols = COLS,
                                 .dtype = DTYPE_F32,
                                 .reader = &own,
                                 .first_row = 4,
                                 .skipped_rows = SKIPPED};
    expect_rows(&slice, &rows);
    assert_int_equal(slice.reader->form.code, WEIGHT_CODE_NONE);
}

static void test_codes(void **state) {
    (void)state;
    for (int has_offsets = 0; has_offsets < 2; has_offsets++) {
        const struct matrix_reader own = {
            .read = read,
            .read_codes = read_codes,
            .form = {.code = WEIGHT_CODE_INT8, .group = 16, .has_offsets = has_offsets}};
        struct matrix_slice slice = {.reader = &own, .first_row = 4, .rows = ROWS, .cols = 40};
        struct scaled_rows rows;
        uint8_t codes[40];
        float scales[3], offsets[3] = {9, 9, 9};
        const struct matrix_codes out = {
            .codes = codes, .scales = scales, .offsets = has_offsets ? offsets : NULL};
        scaled_rows_init(&rows, &slice, factor);
        assert_memory_equal(&slice.reader->form, &own.form, sizeof own.form);
        assert_int_equal(slice.reader->read_codes(slice.reader, 1, 0, 40, 16, &out, NULL), OK);
        for (int i = 0; i < 40; i++) assert_int_equal(codes[i], 5 + i);
        for (int i = 0; i < 3; i++) {
            assert_true(scales[i] == factor * (2.0f + (float)i));
            assert_true(offsets[i] == (has_offsets ? -factor : 9));
        }
    }
}

// Of units and multiples the units are scaled.
static void test_units(void **state) {
    (void)state;
    const struct matrix_reader own = {
        .read = read,
        .read_codes = read_codes,
        .form = {.code = WEIGHT_CODE_INT8, .group = 16, .has_offsets = true, .unit = 32}};
    struct matrix_slice slice = {.reader = &own, .first_row = 4, .rows = ROWS, .cols = 64};
    struct scaled_rows rows;
    uint8_t codes[64];
    float scales[3] = {9, 9, 9}, offsets[3] = {9, 9, 9};
    int8_t multiples[4] = {0}, offset_multiples[4] = {0};
    const struct matrix_codes out = {.codes = codes,
                                     .scales = scales,
                                     .offsets = offsets,
                                     .scale_multiples = multiples,
                                     .offset_multiples = offset_multiples,
                                     .unit = 32};
    scaled_rows_init(&rows, &slice, factor);
    assert_int_equal(slice.reader->read_codes(slice.reader, 1, 0, 64, 16, &out, NULL), OK);
    for (int i = 0; i < 3; i++) {
        assert_true(scales[i] == (i < 2 ? factor * (2.0f + (float)i) : 9));
        assert_true(offsets[i] == (i < 2 ? -factor : 9));
    }
    for (int i = 0; i < 4; i++) assert_int_equal(multiples[i], 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_elements),
        cmocka_unit_test(test_a_reader),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
