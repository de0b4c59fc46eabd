/* Codes brought into those of a linear of several matrices keep every value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/code_reader.h"
#include "support/cmocka_all.h"

enum { COUNT = 48, GROUP = 16, UNIT = 32 };

static const struct weight_format wide = {
    .bits = 8, .group = GROUP, .code = WEIGHT_CODE_INT8, .has_offsets = true};

// Every code, again and again; the scales of the groups are 1.5, 2.5 and 3.5.
static enum status read_codes(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    (void)row, (void)col, (void)err;
    for (size_t i = 0; i < count; i++) out->codes[i] = (uint8_t)(i % 16);
    for (size_t i = 0; i < count / group; i++) {
        out->scales[i] = 1.5f + (float)i;
        if (reader->form.has_offsets) out->offsets[i] = 0.25f;
        if (!reader->form.has_offsets) assert_null(out->offsets);
    }
    return OK;
}

// Rows that differ in their first code.
static enum status read_code_rows(const struct matrix_reader *reader, uint64_t row,
                                  uint32_t num_rows, uint64_t col, size_t count, uint32_t group,
                                  const struct matrix_codes *out, struct err *err) {
    for (uint32_t i = 0; i < num_rows; i++) {
        enum status status = read_codes(reader, row + i, col, count, group, &out[i], err);
        if (status) return status;
        out[i].codes[0] = (uint8_t)((row + i) % 16);
    }
    return OK;
}

static void check(enum weight_code code, bool has_offsets) {
    const struct matrix_reader own = {
        .read_codes = read_codes, .form = {.code = code, .group = 32, .has_offsets = has_offsets}};
    struct matrix_slice slice = {.reader = &own};
    struct code_reader *readers = NULL;
    uint8_t codes[COUNT];
    float scales[COUNT / GROUP], offsets[COUNT / GROUP];
    const struct matrix_codes out = {.codes = codes, .scales = scales, .offsets = offsets};
    assert_int_equal(code_readers_make(&readers, &slice, 1, wide, NULL), OK);
    assert_ptr_not_equal(slice.reader, &own);
    assert_int_equal(slice.reader->form.code, WEIGHT_CODE_INT8);
    assert_int_equal(slice.reader->read_codes(slice.reader, 0, 0, COUNT, GROUP, &out, NULL), OK);
    for (size_t i = 0; i < COUNT; i++) {
        size_t group = i / GROUP;
        float want = weight_code_values(code)[i % 16] * (1.5f + (float)group);
        if (has_offsets) want += 0.25f;
        float got = fmaf((float)(int8_t)codes[i], scales[i / GROUP], offsets[i / GROUP]);
        if (got != want) fail_msg("%zu: %g, want %g", i, (double)got, (double)want);
    }
    free(readers);
}

static void test_values_stay(void **state) {
    (void)state;
    check(WEIGHT_CODE_INT4, false);
    check(WEIGHT_CODE_INT4, true);
    check(WEIGHT_CODE_IQ4, false);
    check(WEIGHT_CODE_E2M1, false);
    check(WEIGHT_CODE_IQ3, false);
    check(WEIGHT_CODE_IQ2, false);
    check(WEIGHT_CODE_ODD, false);
}

static void test_rows_together(void **state) {
    (void)state;
    enum { ROWS = 37, FIRST = 3 };
    const struct matrix_reader own = {.read_codes = read_codes,
                                      .read_code_rows = read_code_rows,
                                      .form = {.code = WEIGHT_CODE_INT4, .group = 32}};
    struct matrix_slice slice = {.reader = &own};
    struct code_reader *readers = NULL;
    uint8_t codes[ROWS][COUNT];
    float scales[ROWS][COUNT / GROUP], offsets[ROWS][COUNT / GROUP];
    struct matrix_codes out[ROWS];
    for (int i = 0; i < ROWS; i++)
        out[i] =
            (struct matrix_codes){.codes = codes[i], .scales = scales[i], .offsets = offsets[i]};
    assert_int_equal(code_readers_make(&readers, &slice, 1, wide, NULL), OK);
    const struct matrix_reader *reader = slice.reader;
    assert_int_equal(reader->read_code_rows(reader, FIRST, ROWS, 0, COUNT, GROUP, out, NULL), OK);
    for (int i = 0; i < ROWS; i++) {
        for (size_t k = 0; k < COUNT; k++) {
            int code = k ? (int)(k % 16) : (FIRST + i) % 16;
            assert_int_equal((int8_t)codes[i][k], code - 8);
            float offset = offsets[i][k / GROUP];
            assert_true(offset == 0 && signbit(offset));
        }
    }
    free(readers);
}

static void test_readers_that_suit_stay(void **state) {
    (void)state;
    const struct matrix_reader own = {
        .read_codes = read_codes,
        .form = {.code = WEIGHT_CODE_INT8, .group = 32, .has_offsets = true}};
    const struct matrix_reader floats = {0};
    struct matrix_slice slices[2] = {{.reader = &own}, {.reader = NULL}};
    struct code_reader *readers = NULL;
    assert_int_equal(code_readers_make(&readers, slices, 2, wide, NULL), OK);
    assert_null(readers);
    assert_ptr_equal(slices[0].reader, &own);
    slices[1].reader = &floats; // of a linear that is kept in floats
    assert_int_equal(code_readers_make(&readers, slices, 2, WEIGHTS_NATIVE, NULL), OK);
    assert_null(readers);
}

// Units and multiples of every code: a shift becomes a part of the codes, and nothing is added
// where there are no offsets.
static enum status read_units(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    (void)row, (void)col, (void)err;
    bool has_offsets = reader->form.has_offsets;
    assert_int_equal(out->unit, UNIT);
    assert_int_equal(out->offsets != NULL, has_offsets);
    assert_int_equal(out->offset_multiples != NULL, has_offsets);
    for (size_t i = 0; i < count; i++) out->codes[i] = (uint8_t)(i % 16);
    for (size_t i = 0; i < (count + UNIT - 1) / UNIT; i++) {
        out->scales[i] = 1.5f + (float)i;
        if (has_offsets) out->offsets[i] = -0.25f;
    }
    for (size_t i = 0; i < count / group; i++) {
        out->scale_multiples[i] = (int8_t)(i + 2);
        if (has_offsets) out->offset_multiples[i] = (int8_t)(i + 5);
    }
    return OK;
}

static void check_units(enum weight_code code, bool has_offsets, uint32_t shift) {
    struct weight_format format = wide;
    const struct matrix_reader own = {
        .read_codes = read_units,
        .form = {
            .code = code, .group = 32, .has_offsets = has_offsets, .unit = 256, .shift = shift}};
    struct matrix_slice slice = {.reader = &own};
    struct code_reader *readers = NULL;
    uint8_t codes[COUNT];
    float scales[2], offsets[2];
    int8_t multiples[COUNT / GROUP], offset_multiples[COUNT / GROUP];
    const struct matrix_codes out = {.codes = codes,
                                     .scales = scales,
                                     .offsets = offsets,
                                     .scale_multiples = multiples,
                                     .offset_multiples = offset_multiples,
                                     .unit = UNIT};
    format.unit = UNIT;
    memset(offset_multiples, -3, sizeof offset_multiples); // times -0 it would be 0
    assert_int_equal(code_readers_make(&readers, &slice, 1, format, NULL), OK);
    assert_int_equal(slice.reader->form.unit, 256);
    assert_int_equal(slice.reader->form.shift, 0);
    assert_int_equal(slice.reader->read_codes(slice.reader, 0, 0, COUNT, GROUP, &out, NULL), OK);
    for (size_t i = 0; i < COUNT; i++) {
        float group = (float)(i / GROUP), unit = (float)(i / UNIT);
        float want =
            (weight_code_values(code)[i % 16] + (float)shift) * (1.5f + unit) * (2 + group);
        if (has_offsets) want -= 0.25f * (5 + group);
        float got = (float)(int8_t)codes[i] * scales[i / UNIT] * multiples[i / GROUP];
        got += offsets[i / UNIT] * offset_multiples[i / GROUP];
        if (got != want) fail_msg("%zu: %g, want %g", i, (double)got, (double)want);
        assert_true(has_offsets || signbit(offsets[i / UNIT] * offset_multiples[i / GROUP]));
    }
    free(readers);
}

static void test_units_stay(void **state) {
    (void)state;
    check_units(WEIGHT_CODE_INT4, true, 8);
    check_units(WEIGHT_CODE_INT4, true, 0);
    check_units(WEIGHT_CODE_INT4, false, 0);
    check_units(WEIGHT_CODE_IQ4, false, 0);
}

static void test_codes_of_both(void **state) {
    (void)state;
    assert_int_equal(weight_code_of_both(WEIGHT_CODE_INT4, WEIGHT_CODE_INT4), WEIGHT_CODE_INT4);
    assert_int_equal(weight_code_of_both(WEIGHT_CODE_INT4, WEIGHT_CODE_INT8), WEIGHT_CODE_INT8);
    assert_int_equal(weight_code_of_both(WEIGHT_CODE_IQ4, WEIGHT_CODE_E2M1), WEIGHT_CODE_INT8);
    assert_int_equal(weight_code_of_both(WEIGHT_CODE_ODD, WEIGHT_CODE_IQ2), WEIGHT_CODE_INT8);
    assert_int_equal(weight_code_of_both(WEIGHT_CODE_E4M3, WEIGHT_CODE_INT8), WEIGHT_CODE_NONE);
    assert_int_equal(weight_code_of_both(WEIGHT_CODE_NONE, WEIGHT_CODE_INT8), WEIGHT_CODE_NONE);
}

static struct weight_format format_of(enum weight_code code, uint32_t group, bool has_offsets) {
    return weight_format_packed(
        (struct matrix_form){.code = code, .group = group, .has_offsets = has_offsets}, 0);
}

static void test_formats_of_several(void **state) {
    (void)state;
    struct weight_format all = format_of(WEIGHT_CODE_E4M3, 0, false);
    struct weight_format large = format_of(WEIGHT_CODE_E4M3, 128, false);
    struct weight_format small = format_of(WEIGHT_CODE_E4M3, 16, false);
    assert_true(weight_format_is(weight_format_of_both(large, large), large));
    assert_true(weight_format_is(weight_format_of_both(large, small), small));
    assert_true(weight_format_is(weight_format_of_both(small, large), small));
    assert_true(weight_format_is(weight_format_of_both(all, large), large));
    assert_true(weight_format_is(weight_format_of_both(large, all), large));
    struct weight_format other = format_of(WEIGHT_CODE_INT8, 128, false);
    struct weight_format offsets = format_of(WEIGHT_CODE_E4M3, 128, true);
    struct weight_format four = format_of(WEIGHT_CODE_INT4, 32, true);
    struct weight_format eight = format_of(WEIGHT_CODE_INT8, 32, true);
    assert_true(weight_format_is(weight_format_of_both(large, other), WEIGHTS_NATIVE));
    assert_true(weight_format_is(weight_format_of_both(large, offsets), offsets));
    assert_true(weight_format_is(weight_format_of_both(four, other), eight));
    assert_true(weight_format_is(weight_format_of_both(large, WEIGHTS_NATIVE), WEIGHTS_NATIVE));
    assert_true(weight_format_is(weight_format_of_both(WEIGHTS_NATIVE, large), WEIGHTS_NATIVE));
}

static struct weight_format units_of(enum weight_code code, uint32_t group, bool has_offsets,
                                     uint32_t shift) {
    struct matrix_form form = {
        .code = code, .group = group, .has_offsets = has_offsets, .unit = 256, .shift = shift};
    return weight_format_packed(form, 0);
}

static void test_units_of_both(void **state) {
    (void)state;
    struct weight_format q2_k = units_of(WEIGHT_CODE_INT4, 16, true, 0);
    struct weight_format q3_k = units_of(WEIGHT_CODE_INT4, 16, false, 0);
    struct weight_format q4_k = units_of(WEIGHT_CODE_INT4, 32, true, 8);
    struct weight_format q6_k = units_of(WEIGHT_CODE_INT8, 16, false, 0);
    struct weight_format q8_0 = format_of(WEIGHT_CODE_INT8, 32, false);
    struct weight_format eight = units_of(WEIGHT_CODE_INT8, 16, true, 0);
    assert_true(weight_format_is(weight_format_of_both(q4_k, q4_k), q4_k));
    assert_true(weight_format_is(weight_format_of_both(q4_k, q6_k), eight));
    assert_true(weight_format_is(weight_format_of_both(q6_k, q4_k), eight));
    assert_true(weight_format_is(weight_format_of_both(q2_k, q3_k), q2_k));
    // Without units: one has none, or the shift of one would be wrong for the other.
    struct weight_format four = format_of(WEIGHT_CODE_INT4, 16, true);
    eight = format_of(WEIGHT_CODE_INT8, 32, true);
    assert_true(weight_format_is(weight_format_of_both(q4_k, q8_0), eight));
    assert_true(weight_format_is(weight_format_of_both(q8_0, q4_k), eight));
    assert_true(weight_format_is(weight_format_of_both(q4_k, q3_k), four));
    assert_true(weight_format_is(weight_format_of_both(q3_k, q4_k), four));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_of_several), cmocka_unit_test(test_values_stay),
        cmocka_unit_test(test_rows_together),      cmocka_unit_test(test_readers_that_suit_stay),
        cmocka_unit_test(test_codes_of_both),      cmocka_unit_test(test_units_stay),
        cmocka_unit_test(test_units_of_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
