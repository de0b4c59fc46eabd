// Which linears of few rows linear/few_rows_sm90.cu takes. Host arithmetic only, for an H200 and
// other devices.
#include "backend/cuda/kernels.h"
#include "base/compiler.h"
#include "support/cmocka_all.h"

enum work { PLAIN, ADDED, NORMED, GATED };

static const struct cuda_device_info h200 = {
    .num_sms = 132, .major = 9, .shared_bytes_max = 227 << 10};

static struct cuda_few_rows_linear linear_of(uint32_t out, uint32_t in, enum work work) {
    static const float norm[1];
    static uint16_t residual[1];
    return (struct cuda_few_rows_linear){
        .linear = {.out = out, .in = in},
        .norm = work == NORMED || work == GATED ? norm : NULL,
        .residual = work == ADDED ? residual : NULL,
        .rows = CUDA_FEW_ROWS,
        .is_gated = work == GATED,
    };
}

static bool takes(const struct cuda_device_info *info, uint32_t out, uint32_t in, enum work work) {
    const struct cuda_few_rows_linear linear = linear_of(out, in, work);
    return cuda_linear_few_rows_is_sm90(&linear, info);
}

// Each size is the largest that is taken: with 8 outputs or 64 inputs more it is not.
static void test_sizes_up_to_which_it_takes(void **state) {
    (void)state;
    static const struct {
        enum work work;
        uint32_t out, in, unit; // unit: the next larger number of outputs
    } largest[] = {{NORMED, 132 * 32, 1024, 8},
                   {GATED, 2 * 132 * 24, 1024, 16},
                   {PLAIN, 132 * 8, 3072, 8},
                   {ADDED, 132 * 8, 3072, 8}};
    for (size_t i = 0; i < ARRAY_LEN(largest); i++) {
        uint32_t out = largest[i].out, in = largest[i].in;
        enum work work = largest[i].work;
        for (uint32_t less = 64; less <= in; less += 64) assert_true(takes(&h200, out, less, work));
        for (uint32_t less = largest[i].unit; less <= out; less += largest[i].unit) {
            assert_true(takes(&h200, less, in, work));
        }
        assert_false(takes(&h200, out + largest[i].unit, in, work));
        assert_false(takes(&h200, out, in + 64, work));
    }
}

// linear/few_rows.cu has them all.
static void test_what_it_leaves(void **state) {
    (void)state;
    static const uint16_t bias[1];
    static uint16_t residual[1];
    assert_false(takes(&h200, 1024, 1000, PLAIN)); // no whole lines
    assert_false(takes(&h200, 1020, 1024, PLAIN)); // no whole tiles
    assert_false(takes(&h200, 0, 1024, PLAIN));
    struct cuda_few_rows_linear linear = linear_of(1024, 1024, GATED);
    linear.norm = NULL;
    assert_false(cuda_linear_few_rows_is_sm90(&linear, &h200));
    linear = linear_of(1024, 1024, GATED);
    linear.linear.bias = bias;
    assert_false(cuda_linear_few_rows_is_sm90(&linear, &h200));
    linear.is_gated = false;
    assert_true(cuda_linear_few_rows_is_sm90(&linear, &h200));
    linear.residual = residual;
    assert_false(cuda_linear_few_rows_is_sm90(&linear, &h200));
}

static void test_devices(void **state) {
    (void)state;
    struct cuda_device_info older = h200, small = h200, fewer = h200;
    older.major = 8;
    small.shared_bytes_max = 99 << 10;
    fewer.num_sms = 114;
    assert_false(takes(&older, 1024, 1024, PLAIN));
    assert_true(takes(&small, 1024, 3072, PLAIN));
    assert_false(takes(&small, 6144, 1024, GATED));
    assert_true(takes(&fewer, 114 * 32, 1024, NORMED));
    assert_false(takes(&fewer, 4096, 1024, NORMED));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_up_to_which_it_takes),
        cmocka_unit_test(test_what_it_leaves),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
