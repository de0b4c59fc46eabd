// LayerNorm and activations without a gate against double precision, with guard bytes around every
// output, and the same bits for any batch size and thread count.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops_util.h"

#define NORM_NMSE 1e-12

static const float eps = 1e-3f;

// The norm of one row, whose mean is far from 0.
static void oracle(const float *x, const float *weight, const float *bias, uint32_t cols,
                   double *out) {
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < cols; i++) mean += (double)x[i] / cols;
    for (uint32_t i = 0; i < cols; i++) variance += pow((double)x[i] - mean, 2) / cols;
    for (uint32_t i = 0; i < cols; i++) {
        out[i] = ((double)x[i] - mean) / sqrt(variance + (double)eps) * (double)weight[i];
        if (bias) out[i] += (double)bias[i];
    }
}

static void check_shape(const char *isa, uint32_t rows, uint32_t cols, bool has_bias,
                        bool has_residual) {
    size_t count = (size_t)rows * cols;
    float *x = ops_guard_alloc(count), *residual = ops_guard_alloc(count);
    float *out = ops_guard_alloc(count), *sum = ops_guard_alloc(count);
    float *weight = ops_guard_alloc(cols), *bias = ops_guard_alloc(cols);
    double *want = malloc(count * sizeof *want);
    struct ops_rng rng = ops_rng_of(cols);
    ops_rng_fill(&rng, x, count);
    ops_rng_fill(&rng, residual, count);
    ops_rng_fill(&rng, weight, cols);
    ops_rng_fill(&rng, bias, cols);
    for (size_t i = 0; i < count; i++) {
        x[i] += 3;
        sum[i] = has_residual ? residual[i] + x[i] : x[i];
    }
    for (uint32_t row = 0; row < rows; row++) {
        size_t at = (size_t)row * cols;
        oracle(sum + at, weight, has_bias ? bias : NULL, cols, want + at);
    }
    for (int threads = 1; threads <= 3; threads += 2) {
        struct backend *backend = ops_backend(isa, threads, DTYPE_BF16);
        float *kept = ops_guard_alloc(count);
        memcpy(kept, residual, count * sizeof *kept);
        struct layer_norm_args args = {.x = x,
                                       .residual = has_residual ? kept : NULL,
                                       .weight = weight,
                                       .bias = has_bias ? bias : NULL,
                                       .out = out,
                                       .rows = rows,
                                       .cols = cols,
                                       .eps = eps};
        backend->ops->layer_norm(backend, &args);
        assert_nmse(out, want, count, NORM_NMSE);
        if (has_residual) ops_assert_same_bits(kept, sum, rows, cols, "the residual");
        float *alone = ops_guard_alloc(cols);
        args = (struct layer_norm_args){.x = sum + count - cols,
                                        .weight = weight,
                                        .bias = has_bias ? bias : NULL,
                                        .out = alone,
                                        .rows = 1,
                                        .cols = cols,
                                        .eps = eps};
        backend->ops->layer_norm(backend, &args);
        ops_assert_same_bits(alone, out + count - cols, 1, cols, "a row alone");
        ops_guard_free(alone, cols);
        ops_guard_free(kept, count);
        backend_destroy(backend);
    }
    ops_guard_free(x, count);
    ops_guard_free(residual, count);
    ops_guard_free(out, count);
    ops_guard_free(sum, count);
    ops_guard_free(weight, cols);
    ops_guard_free(bias, cols);
    free(want);
}

static void test_layer_norm(void **state) {
    static const uint32_t shapes[][2] = {{1, 1}, {3, 15}, {5, 17}, {70, 64}, {9, 1000}, {2, 5003}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        check_shape(*state, shapes[i][0], shapes[i][1], i % 2, i % 3 == 0);
        check_shape(*state, shapes[i][0], shapes[i][1], i % 2 == 0, i % 3 == 1);
    }
}

// Vectors of a row with weights of their own, in place; what is behind them stays.
static void test_groups(void **state) {
    enum { ROWS = 5, GROUPS = 3, COLS = 24, STRIDE = GROUPS * COLS + 7 };
    struct ops_rng rng = ops_rng_of(3);
    float *x = ops_guard_alloc(ROWS * STRIDE), before[ROWS * STRIDE];
    float *weight = ops_guard_alloc(GROUPS * COLS);
    ops_rng_fill(&rng, weight, GROUPS * COLS);
    ops_rng_fill(&rng, x, ROWS * STRIDE);
    memcpy(before, x, sizeof before);
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    backend->ops->layer_norm(backend, &(struct layer_norm_args){.x = x,
                                                                .weight = weight,
                                                                .out = x,
                                                                .rows = ROWS,
                                                                .cols = COLS,
                                                                .groups = GROUPS,
                                                                .stride = STRIDE,
                                                                .eps = eps});
    for (int row = 0; row < ROWS; row++) {
        for (int group = 0; group < GROUPS; group++) {
            double want[COLS];
            int at = row * STRIDE + group * COLS;
            oracle(before + at, weight + group * COLS, NULL, COLS, want);
            assert_nmse(x + at, want, COLS, NORM_NMSE);
        }
        int end = row * STRIDE + GROUPS * COLS;
        ops_assert_same_bits(x + end, before + end, 1, STRIDE - GROUPS * COLS, "behind them");
    }
    ops_guard_free(weight, GROUPS * COLS);
    ops_guard_free(x, ROWS * STRIDE);
    backend_destroy(backend);
}

static double activated(enum activation activation, double v) {
    const double positive = 0.7, negative = 1.3;
    switch (activation) {
    case ACTIVATION_GELU_TANH:
        return 0.5 * v * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
    case ACTIVATION_RELU_SQUARED:
        return v > 0 ? v * v : 0;
    default:
        if (v > 0) return v / 2 + positive * v * v;
        return v / 2 + negative * (expm1(fmin(v, (double)XIELU_EPS)) - v);
    }
}

static void test_activate(void **state) {
    enum { COUNT = 20003 };
    static const enum activation all[] = {ACTIVATION_GELU_TANH, ACTIVATION_RELU_SQUARED,
                                          ACTIVATION_XIELU};
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    float *x = ops_guard_alloc(COUNT), *before = ops_guard_alloc(COUNT);
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        for (int i = 0; i < COUNT; i++) x[i] = before[i] = (float)(i - COUNT / 2) / 1000;
        const struct activate_args args = {x, COUNT, all[k], 0.7f, 1.3f};
        backend->ops->activate(backend, &args);
        for (int i = 0; i < COUNT; i++) {
            double want = activated(all[k], (double)before[i]);
            double off = fabs((double)x[i] - want);
            if (off <= 2e-6 * fabs(want) + 1e-6) continue;
            fail_msg("%zu of %g: %.9g, want %.9g", k, (double)before[i], (double)x[i], want);
        }
    }
    ops_guard_free(x, COUNT);
    ops_guard_free(before, COUNT);
    backend_destroy(backend);
}

// A number in its place would hide a broken model.
static void test_activate_keeps_nan(void **state) {
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
    for (enum activation a = ACTIVATION_GELU_TANH; a <= ACTIVATION_XIELU; a++) {
        float x[3] = {1, NAN, -1};
        if (a == ACTIVATION_CLAMPED_SILU) continue; // has a gate
        backend->ops->activate(backend, &(struct activate_args){x, 3, a, 0.7f, 1.3f});
        assert_false(isnan(x[0]) || isnan(x[2]));
        assert_true(isnan(x[1]));
    }
    backend_destroy(backend);
}

static void test_scale_rows(void **state) {
    enum { ROWS = 5, COLS = 40 };
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    float *x = ops_guard_alloc(ROWS * COLS), before[ROWS * COLS];
    const float factors[ROWS] = {0, 1, 0.5f, -2, 3};
    struct ops_rng rng = ops_rng_of(2);
    ops_rng_fill(&rng, x, ROWS * COLS);
    memcpy(before, x, sizeof before);
    backend->ops->scale_rows(backend, &(struct scale_rows_args){x, factors, ROWS, COLS});
    for (int i = 0; i < ROWS * COLS; i++) assert_true(x[i] == before[i] * factors[i / COLS]);
    ops_guard_free(x, ROWS * COLS);
    backend_destroy(backend);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"layer_norm matches double precision", test_layer_norm, ISA_ROWS},
        {"vectors of a row have weights of their own", test_groups, ISA_ROWS},
        {"rows are scaled", test_scale_rows, ISA_ROWS},
        {"activations without a gate match double precision", test_activate, ISA_ROWS},
        {"activations without a gate keep NaN", test_activate_keeps_nan, ISA_ROWS},
    };
    return ops_run("layer_norm", cases, ARRAY_LEN(cases));
}
