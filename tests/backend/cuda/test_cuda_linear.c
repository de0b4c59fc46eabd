// Compares the CUDA backend's linear, to activations and to logits, with the scalar one. Row counts
// lie on both sides of linear/few_rows.cu's limit, with and without bias; parts have several types
// and strides. Compares the fused project_in and project_out with float64.
#include <stdlib.h>

#include "backend/cuda/cuda_linear_util.h"
#include "base/compiler.h"

// float32 sums of exact products in another order.
#define LOGITS_NMSE 1e-9

enum { ROWS_MAX = 257 };

static const uint32_t row_counts[] = {1, 2, 3, 4, 5, 17, 64, ROWS_MAX};

static float *linear_on(struct backend *backend, const struct linear_spec *spec, const float *x,
                        uint32_t rows) {
    uint32_t in = spec->parts[0].cols, out = 0;
    for (uint32_t i = 0; i < spec->num_parts; i++) out += spec->parts[i].rows;
    struct linear *linear = linear_of(backend, spec);
    struct tensor from = tensor_of(backend, x, (size_t)rows * in);
    struct tensor to = tensor_nan(backend, (size_t)rows * out);
    backend->ops->linear(
        backend,
        &(struct linear_args){.linear = linear, .x = from.dev, .out = to.dev, .rows = rows});
    float *values = tensor_read(&to);
    tensor_free(&to);
    tensor_free(&from);
    backend->ops->linear_destroy(backend, linear);
    return values;
}

static float *logits_on(struct backend *backend, const struct linear_spec *spec, const float *x,
                        uint32_t rows) {
    uint32_t in = spec->parts[0].cols, out = spec->parts[0].rows;
    struct linear *linear = linear_of(backend, spec);
    struct tensor from = tensor_of(backend, x, (size_t)rows * in);
    struct tensor to = tensor_raw(backend, NULL, (size_t)rows * out * sizeof(float));
    backend->ops->linear(
        backend,
        &(struct linear_args){
            .linear = linear, .x = from.dev, .out = to.dev, .rows = rows, .out_is_float = true});
    float *values = test_alloc(to.bytes);
    tensor_read_raw(&to, values);
    tensor_free(&to);
    tensor_free(&from);
    backend->ops->linear_destroy(backend, linear);
    return values;
}

static void check(const struct device_pair *pair, const struct linear_spec *spec, const float *x,
                  uint32_t rows) {
    uint32_t in = spec->parts[0].cols, out = 0;
    for (uint32_t i = 0; i < spec->num_parts; i++) out += spec->parts[i].rows;
    float *want = linear_on(pair->scalar, spec, x, rows);
    float *got = linear_on(pair->device, spec, x, rows);
    for (uint32_t r = 0; r < rows; r++) { // per row, so that one wrong row is not lost
        double error = ops_nmse_f32(got + (size_t)r * out, want + (size_t)r * out, out);
        if (!(error <= LINEAR_NMSE)) {
            fail_msg("[%u][%u] of %u rows: row %u has nmse %g", out, in, rows, r, error);
        }
    }
    free(got);
    free(want);
}

// The same as float32, of a linear of one part: routers have biases.
static void check_floats(const struct device_pair *pair, const struct linear_spec *spec,
                         const float *x, uint32_t rows) {
    uint32_t out = spec->parts[0].rows;
    float *want = logits_on(pair->scalar, spec, x, rows);
    float *got = logits_on(pair->device, spec, x, rows);
    double error = ops_nmse_f32(got, want, (size_t)rows * out);
    if (!(error <= LINEAR_NMSE)) fail_msg("[%u] of %u rows as floats: nmse %g", out, rows, error);
    free(got);
    free(want);
}

static void test_linear(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        uint32_t out, in;
    } shapes[] = {{8, 8},      {64, 64},     {136, 72}, {1024, 256},
                  {520, 1096}, {2048, 1024}, {37, 64},  {1003, 136}};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        uint32_t out = shapes[s].out, in = shapes[s].in;
        struct ops_rng rng = ops_rng_of(s);
        float *weight = bf16_values(&rng, (size_t)out * in, 1);
        float *bias = bf16_values(&rng, out, 20);
        float *x = bf16_values(&rng, (size_t)ROWS_MAX * in, 2);
        const struct matrix_slice part = {.source = {.data = weight},
                                          .dtype = DTYPE_F32,
                                          .rows = out,
                                          .cols = in,
                                          .row_stride = in};
        const struct matrix_slice bias_part = {.source = {.data = bias},
                                               .dtype = DTYPE_F32,
                                               .rows = 1,
                                               .cols = out,
                                               .row_stride = out};
        for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
            check(pair, &(struct linear_spec){&part, NULL, 1, WEIGHTS_NATIVE}, x, row_counts[r]);
            check(pair, &(struct linear_spec){&part, &bias_part, 1, WEIGHTS_NATIVE}, x,
                  row_counts[r]);
            check_floats(pair, &(struct linear_spec){&part, &bias_part, 1, WEIGHTS_NATIVE}, x,
                         row_counts[r]);
        }
        free(x);
        free(bias);
        free(weight);
    }
}

// q, k and v as in checkpoints: different types, one of them a slice of wider rows.
static void test_stacked_parts(void **state) {
    const struct device_pair *pair = *state;
    enum { IN = 192, WIDE = 200, FIRST = 64, SECOND = 24, THIRD = 8 };
    struct ops_rng rng = ops_rng_of(3);
    float *first = bf16_values(&rng, FIRST * IN, 1), *third = bf16_values(&rng, THIRD * IN, 1);
    uint16_t *second = test_alloc(SECOND * WIDE * sizeof *second);
    for (size_t i = 0; i < (size_t)SECOND * WIDE; i++) second[i] = f32_to_bf16(ops_rng_float(&rng));
    uint16_t *halves = test_alloc(THIRD * IN * sizeof *halves);
    for (size_t i = 0; i < (size_t)THIRD * IN; i++) { // 1.0 to 2.0 with either sign
        halves[i] = (uint16_t)(0x3c00u + ops_rng_below(&rng, 0x400) + (i % 2 ? 0x8000u : 0));
    }
    float *bias = bf16_values(&rng, FIRST + SECOND + THIRD, 3);
    float *x = bf16_values(&rng, (size_t)ROWS_MAX * IN, 1);
    const struct matrix_slice parts[] = {{.source = {.data = first},
                                          .dtype = DTYPE_F32,
                                          .rows = FIRST,
                                          .cols = IN,
                                          .row_stride = IN},
                                         {.source = {.data = second + 5},
                                          .dtype = DTYPE_BF16,
                                          .rows = SECOND,
                                          .cols = IN,
                                          .row_stride = WIDE},
                                         {.source = {.data = halves},
                                          .dtype = DTYPE_F16,
                                          .rows = THIRD,
                                          .cols = IN,
                                          .row_stride = IN}};
    const struct matrix_slice biases[] = {{.source = {.data = bias},
                                           .dtype = DTYPE_F32,
                                           .rows = 1,
                                           .cols = FIRST,
                                           .row_stride = FIRST},
                                          {.source = {.data = bias + FIRST},
                                           .dtype = DTYPE_F32,
                                           .rows = 1,
                                           .cols = SECOND,
                                           .row_stride = SECOND},
                                          {.source = {.data = bias + FIRST + SECOND},
                                           .dtype = DTYPE_F32,
                                           .rows = 1,
                                           .cols = THIRD,
                                           .row_stride = THIRD}};
    for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
        check(pair, &(struct linear_spec){parts, NULL, 3, WEIGHTS_NATIVE}, x, row_counts[r]);
        check(pair, &(struct linear_spec){parts, biases, 3, WEIGHTS_NATIVE}, x, row_counts[r]);
    }
    free(first);
    free(second);
    free(third);
    free(halves);
    free(bias);
    free(x);
}

static void check_logits(const struct device_pair *pair, uint32_t out, uint32_t in,
                         const uint32_t *counts, size_t num_counts) {
    struct ops_rng rng = ops_rng_of(out);
    float *weight = bf16_values(&rng, (size_t)out * in, 1);
    float *x = bf16_values(&rng, (size_t)ROWS_MAX * in, 2);
    const struct matrix_slice part = {
        .source = {.data = weight}, .dtype = DTYPE_F32, .rows = out, .cols = in, .row_stride = in};
    const struct linear_spec spec = {&part, NULL, 1, WEIGHTS_NATIVE};
    for (size_t r = 0; r < num_counts; r++) {
        float *want = logits_on(pair->scalar, &spec, x, counts[r]);
        float *got = logits_on(pair->device, &spec, x, counts[r]);
        double error = ops_nmse_f32(got, want, (size_t)counts[r] * out);
        if (!(error <= LOGITS_NMSE)) {
            fail_msg("[%u][%u] of %u rows: nmse %g", out, in, counts[r], error);
        }
        free(got);
        free(want);
    }
    free(x);
    free(weight);
}

static void test_logits(void **state) {
    const struct device_pair *pair = *state;
    static const uint32_t counts_of_large[] = {8, 9, 16};
    check_logits(pair, 16, 32, row_counts, ARRAY_LEN(row_counts));
    check_logits(pair, 1000, 136, row_counts, ARRAY_LEN(row_counts));
    check_logits(pair, 8192, 512, row_counts, ARRAY_LEN(row_counts));
    check_logits(pair, 2051, 64, row_counts, ARRAY_LEN(row_counts));
    check_logits(pair, 8200, 2048, counts_of_large, ARRAY_LEN(counts_of_large));
}

// A linear with its surrounding work. On an H200, one to three of these matrices suit each kernel
// of linear/few_rows_sm90.cu: with as many tiles a block and input lines a warp as it has room for,
// or with fewer. The last five suit none.
static void test_fused(void **state) {
    const struct device_pair *pair = *state;
    static const struct fused_case cases[] = {
        {2112, 1024, true, false, false, false, ACTIVATION_SILU},
        {1064, 576, true, false, false, true, ACTIVATION_SILU},
        {48, 64, true, false, false, false, ACTIVATION_SILU},
        {4096, 1024, true, false, false, false, ACTIVATION_SILU},
        {3200, 896, true, false, false, true, ACTIVATION_SILU},
        {2400, 320, true, false, false, false, ACTIVATION_SILU},
        {4224, 1024, true, true, false, false, ACTIVATION_SILU},
        {1072, 448, true, true, false, false, ACTIVATION_SILU},
        {6144, 1024, true, true, false, false, ACTIVATION_SILU},
        {6000, 960, true, true, false, false, ACTIVATION_SILU},
        {1024, 1024, false, false, true, false, ACTIVATION_SILU},
        {24, 64, false, false, true, true, ACTIVATION_SILU},
        {1024, 2048, false, false, true, false, ACTIVATION_SILU},
        {520, 1088, false, false, false, true, ACTIVATION_SILU},
        {1024, 3072, false, false, true, true, ACTIVATION_SILU},
        {1056, 2112, false, false, false, false, ACTIVATION_SILU},
        {1064, 3072, false, false, true, false, ACTIVATION_SILU},
        {5200, 320, true, false, false, true, ACTIVATION_SILU},
        {3200, 1088, true, false, false, false, ACTIVATION_SILU},
        {2112, 576, true, true, false, true, ACTIVATION_SILU},
        {272, 1160, true, true, false, false, ACTIVATION_SILU}};
    static const uint32_t counts[] = {1, 3, 6, 8, 9, 16};
    if (!pair->device->fusion || !pair->device->fusion->project_in) skip();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t norm_rows =
            fused_check_ops(pair->device, &cases[i], 100 + i, counts, ARRAY_LEN(counts));
        assert_int_equal(norm_rows, 8);
    }
}

// The same for up to the most rows, with whatever kernel is found to be fastest.
static void test_fused_many(void **state) {
    const struct device_pair *pair = *state;
    static const struct fused_case cases[] = {
        {1024, 256, true, true, false, false, ACTIVATION_SILU},
        {1040, 200, true, true, false, true, ACTIVATION_SILU},
        {528, 640, false, false, true, false, ACTIVATION_SILU},
        {136, 72, false, false, true, true, ACTIVATION_SILU}};
    static const uint32_t counts[] = {1, 16, 17, 33, 130, 300, 600};
    if (!pair->device->fusion || !pair->device->fusion->project_in) skip();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)fused_check_ops(pair->device, &cases[i], 200 + i, counts, ARRAY_LEN(counts));
    }
}

// Up to four rows one kernel runs, so a row's bits do not depend on the others.
static void test_few_rows_are_independent(void **state) {
    const struct device_pair *pair = *state;
    enum { OUT = 264, IN = 1160, ROWS = 4 };
    struct ops_rng rng = ops_rng_of(11);
    float *weight = bf16_values(&rng, OUT * IN, 1), *x = bf16_values(&rng, ROWS * IN, 1);
    const struct matrix_slice part = {
        .source = {.data = weight}, .dtype = DTYPE_F32, .rows = OUT, .cols = IN, .row_stride = IN};
    const struct linear_spec spec = {&part, NULL, 1, WEIGHTS_NATIVE};
    float *all = logits_on(pair->device, &spec, x, ROWS);
    for (uint32_t r = 0; r < ROWS; r++) {
        float *alone = logits_on(pair->device, &spec, x + (size_t)r * IN, 1);
        ops_assert_same_bits(alone, all + (size_t)r * OUT, 1, OUT, "a row alone");
        free(alone);
    }
    free(all);
    free(x);
    free(weight);
}

// The algorithm chosen for a shape is kept.
static void test_same_call_twice_has_the_same_bits(void **state) {
    const struct device_pair *pair = *state;
    enum { OUT = 1024, IN = 512 };
    struct ops_rng rng = ops_rng_of(12);
    float *weight = bf16_values(&rng, OUT * IN, 1), *x = bf16_values(&rng, ROWS_MAX * IN, 1);
    const struct matrix_slice part = {
        .source = {.data = weight}, .dtype = DTYPE_F32, .rows = OUT, .cols = IN, .row_stride = IN};
    const struct linear_spec spec = {&part, NULL, 1, WEIGHTS_NATIVE};
    for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
        float *first = logits_on(pair->device, &spec, x, row_counts[r]);
        float *second = logits_on(pair->device, &spec, x, row_counts[r]);
        ops_assert_same_bits(second, first, row_counts[r], OUT, "once more");
        free(first);
        free(second);
    }
    free(x);
    free(weight);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_stacked_parts),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_fused_many),
        cmocka_unit_test(test_few_rows_are_independent),
        cmocka_unit_test(test_same_call_twice_has_the_same_bits),
    };
    return device_pair_run(argc, argv, "cuda linear", tests, ARRAY_LEN(tests));
}
