// Which packed format suits a rank's columns.
#include "backend/weight_format.h"

#include "support/cmocka_all.h"

static uint32_t group_of(uint32_t group, uint64_t first_col) {
    struct matrix_form form = {.code = WEIGHT_CODE_INT4, .group = group, .has_offsets = true};
    struct weight_format format = weight_format_packed(form, first_col);
    if (!weight_format_is_packed(format)) return UINT32_MAX;
    assert_int_equal(format.bits, 4);
    assert_int_equal(format.code, WEIGHT_CODE_INT4);
    assert_true(format.has_offsets);
    return format.group;
}

static void test_groups(void **state) {
    (void)state;
    assert_int_equal(group_of(16, 0), 16);
    assert_int_equal(group_of(128, 0), 128);
    assert_int_equal(group_of(256, 0), 128); // the largest
    assert_int_equal(group_of(96, 0), 32); // of three groups of 32
    assert_int_equal(group_of(24, 0), UINT32_MAX); // 8 is too small
    assert_int_equal(group_of(0, 0), 0);
    assert_int_equal(group_of(0, 7), 0); // wherever columns begin, they are in one group
    assert_int_equal(group_of(128, 128), 128);
    assert_int_equal(group_of(128, 96), 32); // a rank's columns begin within a group
    assert_int_equal(group_of(128, 8), UINT32_MAX);
    struct matrix_form none = {.code = WEIGHT_CODE_NONE};
    assert_true(weight_format_is(weight_format_packed(none, 0), WEIGHTS_NATIVE));
}

static uint32_t unit_of(uint32_t unit, uint32_t group, uint64_t first_col) {
    struct matrix_form form = {
        .code = WEIGHT_CODE_INT4, .group = group, .has_offsets = true, .unit = unit, .shift = 8};
    struct weight_format format = weight_format_packed(form, first_col);
    assert_int_equal(format.shift, format.unit ? 8 : 0);
    return format.unit;
}

static void test_units(void **state) {
    (void)state;
    assert_int_equal(unit_of(0, 32, 0), 0);
    assert_int_equal(unit_of(256, 32, 0), 256);
    assert_int_equal(unit_of(256, 32, 512), 256);
    assert_int_equal(unit_of(256, 32, 128), 128); // a rank's columns begin within a unit
    assert_int_equal(unit_of(256, 32, 96), 32);
    assert_int_equal(unit_of(256, 16, 48), 0); // no chunk of 32 has one unit
    assert_int_equal(unit_of(256, 16, 8), 0); // no codes
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
