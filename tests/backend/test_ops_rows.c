// Norms, SiLU and gathering of every instruction set, with guard bytes around every output. They
// are compared with double precision and the scalar kernels, and must have the same bits for any
// batch size and thread count.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops_util.h"
#include "support/odd_float_mode.h"

#define ROWS_NMSE 1e-12

enum { CUT_ROWS = 7, CUT_COLS = 160 }; // of test_cut_norm

static const struct {
    uint32_t rows, cols;
} shapes[] = {{1, 1},  {1, 7},    {3, 15},   {2, 16},    {5, 17},   {70, 64},
              {4, 63}, {1, 1024}, {9, 1000}, {17, 2048}, {33, 256}, {2, 5003}};

static void norm_oracle(const float *x, const float *residual, const float *weight, double *sum,
                        double *out, uint32_t rows, uint32_t cols, double eps) {
    for (uint32_t row = 0; row < rows; row++) {
        double mean = 0;
        for (uint32_t i = 0; i < cols; i++) {
            size_t at = (size_t)row * cols + i;
            // The sum is stored as float32, and the norm is that of the stored sum.
            sum[at] = residual ? (double)(residual[at] + x[at]) : (double)x[at];
            mean += sum[at] * sum[at];
        }
        mean /= cols;
        for (uint32_t i = 0; i < cols; i++) {
            size_t at = (size_t)row * cols + i;
            out[at] = sum[at] / sqrt(mean + eps) * (double)weight[i];
        }
    }
}

static void test_rms_norm(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    struct backend *scalar = ops_backend("scalar", 1, DTYPE_BF16);
    for (size_t i = 0; i < ARRAY_LEN(shapes) * 2; i++) {
        uint32_t rows = shapes[i / 2].rows, cols = shapes[i / 2].cols;
        bool with_residual = i % 2;
        size_t count = (size_t)rows * cols;
        float *x = ops_guard_alloc(count), *x_before = ops_guard_alloc(count);
        float *weight = ops_guard_alloc(cols);
        float *residual = ops_guard_alloc(count), *residual_scalar = ops_guard_alloc(count);
        float *out = ops_guard_alloc(count), *out_scalar = ops_guard_alloc(count);
        double *sum = malloc(count * sizeof *sum), *want = malloc(count * sizeof *want);
        struct ops_rng rng = ops_rng_of(i);
        ops_rng_fill(&rng, x, count);
        memcpy(x_before, x, count * sizeof *x);
        ops_rng_fill(&rng, weight, cols);
        ops_rng_fill(&rng, residual, count);
        memcpy(residual_scalar, residual, count * sizeof *residual);
        norm_oracle(x, with_residual ? residual : NULL, weight, sum, want, rows, cols, 1e-6);
        struct rms_norm_args args = {
            x, with_residual ? residual : NULL, weight, out, rows, cols, 1e-6f, 0, 0, NULL, false};
        backend->ops->rms_norm(backend, &args);
        args.residual = with_residual ? residual_scalar : NULL;
        args.out = out_scalar;
        scalar->ops->rms_norm(scalar, &args);
        assert_nmse(out, want, count, ROWS_NMSE);
        assert_true(ops_nmse_f32(out, out_scalar, count) <= ROWS_NMSE);
        ops_assert_same_bits(x, x_before, rows, cols, "the input (B17)");
        if (with_residual) assert_nmse(residual, sum, count, 0);
        ops_guard_free(x, count);
        ops_guard_free(x_before, count);
        ops_guard_free(weight, cols);
        ops_guard_free(residual, count);
        ops_guard_free(residual_scalar, count);
        ops_guard_free(out, count);
        ops_guard_free(out_scalar, count);
        free(sum);
        free(want);
    }
    backend_destroy(scalar);
    backend_destroy(backend);
}

// In place, alone or in a batch, with 1, 2, 3 threads: the same bits.
static void test_rms_norm_of_a_part_of_each_row(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { ROWS = 9, COLS = 40, STRIDE = 100 };
    float *x = ops_guard_alloc(ROWS * STRIDE), *want = ops_guard_alloc(ROWS * STRIDE);
    float weight[COLS];
    struct ops_rng rng = ops_rng_of(3);
    ops_rng_fill(&rng, x, ROWS * STRIDE);
    ops_rng_fill(&rng, weight, COLS);
    memcpy(want, x, ROWS * STRIDE * sizeof *x);
    for (uint32_t row = 0; row < ROWS; row++) {
        float *part = want + row * STRIDE;
        struct rms_norm_args args = {part, NULL, weight, part, 1, COLS, 1e-5f, 0, 0, NULL, false};
        backend->ops->rms_norm(backend, &args);
    }
    struct rms_norm_args args = {x, NULL, weight, x, ROWS, COLS, 1e-5f, STRIDE, 0, NULL, false};
    backend->ops->rms_norm(backend, &args);
    ops_assert_same_bits(x, want, ROWS, STRIDE, "parts of rows");
    ops_guard_free(x, ROWS * STRIDE);
    ops_guard_free(want, ROWS * STRIDE);
    backend_destroy(backend);
}

static void test_gelu_mul(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { ROWS = 3, COLS = 523 };
    float *gate_up = ops_guard_alloc(ROWS * 2 * COLS), *out = ops_guard_alloc(ROWS * COLS);
    double want[ROWS * COLS];
    struct ops_rng rng = ops_rng_of(4);
    ops_rng_fill(&rng, gate_up, ROWS * 2 * COLS);
    const float ends[] = {0, -0.0f, 40, -40, 3e4f, -3e4f, 1e30f, -1e30f};
    memcpy(gate_up, ends, sizeof ends);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) gate_up[COLS + i] = 1;
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        const float *row = gate_up + i / COLS * 2 * COLS;
        double v = (double)row[i % COLS], up = (double)row[COLS + i % COLS];
        double s = sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v);
        want[i] = 0.5 * v * (1 + tanh(s)) * up;
    }
    struct silu_mul_args args = {gate_up, out, ROWS, COLS, ACTIVATION_GELU_TANH};
    backend->ops->silu_mul(backend, &args);
    float *gate = ops_guard_alloc(ROWS * COLS), *apart = ops_guard_alloc(ROWS * COLS);
    for (uint32_t i = 0; i < ROWS * COLS; i++) gate[i] = gate_up[i / COLS * 2 * COLS + i % COLS];
    backend->ops->gelu_mul(
        backend, &(struct gelu_mul_args){gate, gate_up + COLS, apart, ROWS, COLS, 2 * COLS});
    ops_assert_same_bits(apart, out, ROWS, COLS, "gate and up apart");
    ops_guard_free(gate, ROWS * COLS);
    ops_guard_free(apart, ROWS * COLS);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        assert_true(fabs((double)out[i] - want[i]) <= 1e-6 * fabs(want[i]) + 1e-30);
        out[i] = (float)(want[i] = 0);
    }
    assert_nmse(out, want, ROWS * COLS, ROWS_NMSE);
    ops_guard_free(gate_up, ROWS * 2 * COLS);
    ops_guard_free(out, ROWS * COLS);
    backend_destroy(backend);
}

static void test_clamped_silu_mul(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { ROWS = 3, COLS = 523 };
    float *gate_up = ops_guard_alloc(ROWS * 2 * COLS), *out = ops_guard_alloc(ROWS * COLS);
    struct ops_rng rng = ops_rng_of(6);
    ops_rng_fill(&rng, gate_up, ROWS * 2 * COLS);
    const float ends[] = {7, 7.5f, -7.5f, 1e30f, -1e30f, 0, 6.5f, -100};
    memcpy(gate_up, ends, sizeof ends);
    memcpy(gate_up + COLS + 3, ends, sizeof ends);
    struct silu_mul_args args = {gate_up, out, ROWS, COLS, ACTIVATION_CLAMPED_SILU};
    backend->ops->silu_mul(backend, &args);
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        const float *row = gate_up + i / COLS * 2 * COLS;
        double gate = fmin((double)row[i % COLS], 7);
        double up = fmin(fmax((double)row[COLS + i % COLS], -7), 7);
        double want = gate / (1 + exp(-1.702 * gate)) * (up + 1);
        if (fabs((double)out[i] - want) <= 2e-6 * fabs(want) + 1e-30) continue;
        fail_msg("gate %g, up %g: %.9g, want %.9g", gate, up, (double)out[i], want);
    }
    ops_guard_free(gate_up, ROWS * 2 * COLS);
    ops_guard_free(out, ROWS * COLS);
    backend_destroy(backend);
}

static void test_scale(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { COUNT = 20000 };
    float *x = ops_guard_alloc(COUNT), *out = ops_guard_alloc(COUNT);
    struct ops_rng rng = ops_rng_of(5);
    ops_rng_fill(&rng, x, COUNT);
    struct scale_args args = {x, out, COUNT, 0.22f, false};
    backend->ops->scale(backend, &args);
    for (uint32_t i = 0; i < COUNT; i++) assert_true(out[i] == 0.22f * x[i]);
    args.adds = true;
    backend->ops->scale(backend, &args);
    for (uint32_t i = 0; i < COUNT; i++) {
        double want = 0.44 * (double)x[i];
        assert_true(fabs((double)out[i] - want) <= 1e-6 * fabs(want));
    }
    ops_guard_free(x, COUNT);
    ops_guard_free(out, COUNT);
    backend_destroy(backend);
}

static void test_softcap(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { COUNT = 20001 };
    float *x = ops_guard_alloc(COUNT);
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i - COUNT / 2) / 50;
    x[0] = INFINITY;
    backend->ops->softcap(backend, &(struct softcap_args){x, COUNT, 30});
    assert_true(x[0] == 30);
    for (int i = 1; i < COUNT; i++) {
        double want = 30 * tanh((double)((float)(i - COUNT / 2) / 50) / 30);
        assert_true(fabs((double)x[i] - want) <= 1e-6 * fabs(want));
    }
    ops_guard_free(x, COUNT);
    backend_destroy(backend);
}

// Each group of a row gets the bits that it has as a row of its own, and what is beside stays.
static void test_rms_norm_of_groups(void **state) {
    enum { ROWS = 5, GROUPS = 3, COLS = 32, STRIDE = 7 * COLS };
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    float *x = ops_guard_alloc(ROWS * STRIDE), one[COLS], weight[GROUPS * COLS];
    float before[ROWS * STRIDE];
    struct ops_rng rng = ops_rng_of(8);
    ops_rng_fill(&rng, weight, GROUPS * COLS);
    for (int has_own = 0; has_own < 2; has_own++) {
        ops_rng_fill(&rng, x, ROWS * STRIDE);
        memcpy(before, x, sizeof before);
        struct rms_norm_args args = {.x = x + 2 * COLS,
                                     .weight = weight,
                                     .out = x + 2 * COLS,
                                     .rows = ROWS,
                                     .cols = COLS,
                                     .eps = 1e-3f,
                                     .stride = STRIDE,
                                     .groups = GROUPS,
                                     .has_group_weights = has_own};
        backend->ops->rms_norm(backend, &args);
        for (int i = 0; i < ROWS * STRIDE; i += COLS) {
            int group = i % STRIDE / COLS - 2;
            bool is_normed = group >= 0 && group < GROUPS;
            struct rms_norm_args alone = {.x = before + i,
                                          .weight =
                                              weight + (is_normed && has_own ? group * COLS : 0),
                                          .out = one,
                                          .rows = 1,
                                          .cols = COLS,
                                          .eps = 1e-3f};
            backend->ops->rms_norm(backend, &alone);
            assert_memory_equal(x + i, is_normed ? one : before + i, sizeof one);
        }
    }
    ops_guard_free(x, ROWS * STRIDE);
    backend_destroy(backend);
}

static void test_rms_norm_same_bits(void **state) {
    enum { ROWS = 70, COLS = 1003 };
    float *x = ops_guard_alloc(ROWS * COLS), *weight = ops_guard_alloc(COLS);
    float *want = ops_guard_alloc(ROWS * COLS), *got = ops_guard_alloc(ROWS * COLS);
    struct ops_rng rng = ops_rng_of(1);
    ops_rng_fill(&rng, x, ROWS * COLS);
    ops_rng_fill(&rng, weight, COLS);
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *backend = ops_backend(*state, threads, DTYPE_BF16);
        if (threads == 1) {
            struct rms_norm_args args = {x,     NULL, weight, want, ROWS, COLS,
                                         1e-5f, 0,    0,      NULL, false};
            backend->ops->rms_norm(backend, &args);
        }
        for (uint32_t row = 0; row < ROWS; row++) {
            struct rms_norm_args args = {
                x + row * COLS, NULL, weight, got + row * COLS, 1, COLS, 1e-5f, 0, 0, NULL, false};
            backend->ops->rms_norm(backend, &args);
        }
        ops_assert_same_bits(got, want, ROWS, COLS, "rows alone");
        memcpy(got, x, ROWS * COLS * sizeof *x);
        struct rms_norm_args args = {got, NULL, weight, got, ROWS, COLS, 1e-5f, 0, 0, NULL, false};
        backend->ops->rms_norm(backend, &args);
        ops_assert_same_bits(got, want, ROWS, COLS, "in place");
        backend_destroy(backend);
    }
    ops_guard_free(x, ROWS * COLS);
    ops_guard_free(weight, COLS);
    ops_guard_free(want, ROWS * COLS);
    ops_guard_free(got, ROWS * COLS);
}

static void test_sigmoid_mul(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { ROWS = 3, COLS = 523, STRIDE = 530 };
    const float ends[] = {0, -0.0f, 40, -40, 3e4f, -3e4f, 1e-30f, 1e30f};
    for (int is_per_row = 0; is_per_row < 2; is_per_row++) {
        float *gate = ops_guard_alloc(ROWS * STRIDE), *x = ops_guard_alloc(ROWS * COLS);
        double want[ROWS * COLS];
        struct ops_rng rng = ops_rng_of(5);
        ops_rng_fill(&rng, gate, ROWS * STRIDE);
        ops_rng_fill(&rng, x, ROWS * COLS);
        memcpy(gate, ends, sizeof ends);
        for (uint32_t i = 0; i < ROWS * COLS; i++) {
            double g = (double)gate[i / COLS * STRIDE + (is_per_row ? 0 : i % COLS)];
            want[i] = (double)x[i] / (1 + exp(-g));
        }
        const struct sigmoid_mul_args args = {x, gate, ROWS, COLS, STRIDE, is_per_row};
        backend->ops->sigmoid_mul(backend, &args);
        assert_nmse(x, want, ROWS * COLS, ROWS_NMSE);
        ops_guard_free(gate, ROWS * STRIDE);
        ops_guard_free(x, ROWS * COLS);
    }
    backend_destroy(backend);
}

static void test_silu_mul(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    struct backend *scalar = ops_backend("scalar", 1, DTYPE_BF16);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        uint32_t rows = shapes[i].rows, cols = shapes[i].cols;
        size_t count = (size_t)rows * cols;
        float *gate_up = ops_guard_alloc(2 * count);
        float *out = ops_guard_alloc(count), *out_scalar = ops_guard_alloc(count);
        double *want = malloc(count * sizeof *want);
        struct ops_rng rng = ops_rng_of(i);
        ops_rng_fill(&rng, gate_up, 2 * count);
        for (size_t j = 0; j < 2 * count; j++) gate_up[j] *= 10.0f;
        for (size_t j = 0; j < count; j++) {
            size_t at = j / cols * 2 * cols + j % cols;
            double gate = (double)gate_up[at];
            want[j] = gate / (1 + exp(-gate)) * (double)gate_up[at + cols];
        }
        struct silu_mul_args args = {gate_up, out, rows, cols, ACTIVATION_SILU};
        backend->ops->silu_mul(backend, &args);
        args.out = out_scalar;
        scalar->ops->silu_mul(scalar, &args);
        assert_nmse(out, want, count, ROWS_NMSE);
        assert_true(ops_nmse_f32(out, out_scalar, count) <= ROWS_NMSE);
        ops_guard_free(gate_up, 2 * count);
        ops_guard_free(out, count);
        ops_guard_free(out_scalar, count);
        free(want);
    }
    backend_destroy(scalar);
    backend_destroy(backend);
}

// 2^20 gates from -120 to 120: the exponential's own error shows as a relative error of the result.
static void test_silu_accuracy(void **state) {
    enum { COUNT = 1 << 20 };
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
    float *gate_up = ops_guard_alloc(2 * COUNT), *out = ops_guard_alloc(COUNT);
    for (int i = 0; i < COUNT; i++) {
        gate_up[i] = (float)i * (240.0f / COUNT) - 120.0f;
        gate_up[COUNT + i] = 1.0f;
    }
    struct silu_mul_args args = {gate_up, out, 1, COUNT, ACTIVATION_SILU};
    backend->ops->silu_mul(backend, &args);
    double worst = 0;
    for (int i = 0; i < COUNT; i++) {
        double gate = (double)gate_up[i], want = gate / (1 + exp(-gate));
        // Below -87 e^-x leaves float32's range: any result down to 0 is right.
        double error = fabs((double)out[i] - want) / (gate < -87 ? 1e-30 : fabs(want) + 1e-30);
        if (error > worst) worst = error;
    }
    if (!(worst < 3e-7)) fail_msg("relative error %g", worst);
    ops_guard_free(gate_up, 2 * COUNT);
    ops_guard_free(out, COUNT);
    backend_destroy(backend);
}

// Gates around -95 have subnormal results, and every result is rounded.
static void test_same_bits_in_any_float_mode(void **state) {
    enum { ROWS = 40, COLS = 100 };
    float *gate_up = ops_guard_alloc(2 * ROWS * COLS);
    float *want = ops_guard_alloc(ROWS * COLS), *got = ops_guard_alloc(ROWS * COLS);
    struct ops_rng rng = ops_rng_of(3);
    ops_rng_fill(&rng, gate_up, 2 * ROWS * COLS);
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t j = 0; j < COLS; j += 2) gate_up[i * 2 * COLS + j] -= 95.0f;
    }
    for (int threads = 1; threads <= 3; threads += 2) {
        struct backend *backend = ops_backend(*state, threads, DTYPE_BF16);
        float_mode_set(ODD_FLOAT_MODE);
        struct backend *odd = ops_backend(*state, threads, DTYPE_BF16);
        float_mode_set(FLOAT_MODE_DEFAULT);
        for (uint32_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
            struct silu_mul_args args = {gate_up, want, rows, COLS, ACTIVATION_SILU};
            backend->ops->silu_mul(backend, &args);
            args.out = got;
            float_mode_set(ODD_FLOAT_MODE);
            odd->ops->silu_mul(odd, &args);
            float_mode_set(FLOAT_MODE_DEFAULT);
            ops_assert_same_bits(got, want, rows, COLS, "silu_mul");
        }
        backend_destroy(odd);
        backend_destroy(backend);
    }
    ops_guard_free(gate_up, 2 * ROWS * COLS);
    ops_guard_free(want, ROWS * COLS);
    ops_guard_free(got, ROWS * COLS);
}

// NaN, inf and huge values: no crash, and their neighbours do not change.
static void test_nonfinite(void **state) {
    enum { COLS = 37 };
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
    const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0.0f, -0.0f};
    float *gate_up = ops_guard_alloc(2 * COLS), *out = ops_guard_alloc(COLS);
    float *clean = ops_guard_alloc(COLS), *weight = ops_guard_alloc(COLS);
    struct silu_mul_args args = {gate_up, clean, 1, COLS, ACTIVATION_SILU};
    for (uint32_t i = 0; i < 2 * COLS; i++) gate_up[i] = 1.0f;
    for (uint32_t i = 0; i < COLS; i++) weight[i] = 1.0f;
    backend->ops->silu_mul(backend, &args);
    args.out = out;
    for (uint32_t i = 0; i < ARRAY_LEN(odd); i++) gate_up[i * 5] = odd[i];
    backend->ops->silu_mul(backend, &args);
    for (uint32_t i = 0; i < COLS; i++) {
        if (i % 5 || i / 5 >= ARRAY_LEN(odd)) assert_true(out[i] == clean[i]);
    }
    assert_true(isnan(out[0]));
    assert_true(out[5] == INFINITY && out[15] == 3e38f);
    assert_true(out[20] == 0 && out[25] == 0 && out[30] == 0);
    struct rms_norm_args norm = {gate_up, NULL, weight, out, 1, COLS, 1e-6f, 0, 0, NULL, false};
    backend->ops->rms_norm(backend, &norm);
    for (uint32_t i = 0; i < COLS; i++) assert_true(isnan(out[i]));
    ops_guard_free(gate_up, 2 * COLS);
    ops_guard_free(out, COLS);
    ops_guard_free(clean, COLS);
    ops_guard_free(weight, COLS);
    backend_destroy(backend);
}

// Norms the whole rows [ROWS][2 vectors] as `world_size` ranks do, each with its part of both.
static void norm_by_ranks(struct backend *backend, uint32_t world_size, const float *x,
                          const float *const weights[2], float *out) {
    enum { ROWS = CUT_ROWS, COLS = CUT_COLS, RANKS = 4, FILL = 16 };
    uint32_t q = 2 * COLS / world_size, k = COLS / world_size, stride = q + 2 * k;
    size_t count = (size_t)ROWS * world_size * CUT_NORM_SUMS + FILL;
    float *total = ops_guard_alloc(count), *parts[RANKS];
    for (size_t i = 0; i < count; i++) total[i] = 0;
    struct cut_norm_args args = {.rows = ROWS,
                                 .stride = stride,
                                 .cols = {q, k},
                                 .count = count,
                                 .world_size = world_size,
                                 .eps = 1e-6f};
    for (uint32_t r = 0; r < world_size; r++) {
        float *part = parts[r] = ops_guard_alloc(ROWS * stride), *sums = ops_guard_alloc(count);
        for (uint32_t row = 0; row < ROWS; row++) {
            const float *whole = x + row * 3 * COLS;
            memcpy(part + row * stride, whole + r * q, q * sizeof *part);
            memcpy(part + row * stride + q, whole + 2 * COLS + r * k, k * sizeof *part);
            memset(part + row * stride + q + k, 0, k * sizeof *part);
        }
        args.x = part;
        args.rank = r;
        args.sums = sums;
        backend->ops->square_sums(backend, &args);
        for (size_t i = 0; i < count; i++) {
            bool is_own = i < count - FILL && i / CUT_NORM_SUMS % world_size == r;
            assert_true(is_own || sums[i] == 0);
            total[i] += sums[i];
        }
        ops_guard_free(sums, count);
    }
    for (uint32_t r = 0; r < world_size; r++) {
        args.x = parts[r];
        args.rank = r;
        args.sums = total;
        args.weights[0] = weights[0] + r * q;
        args.weights[1] = weights[1] + r * k;
        backend->ops->cut_norm(backend, &args);
        for (uint32_t row = 0; row < ROWS; row++) {
            const float *part = parts[r] + row * stride;
            memcpy(out + row * 3 * COLS + r * q, part, q * sizeof *part);
            memcpy(out + row * 3 * COLS + 2 * COLS + r * k, part + q, k * sizeof *part);
            for (uint32_t i = q + k; i < stride; i++) assert_true(part[i] == 0);
        }
        ops_guard_free(parts[r], ROWS * stride);
    }
    ops_guard_free(total, count);
}

// Vectors that ranks have parts of are normed as a rank that has all of them would.
static void test_cut_norm(void **state) {
    enum { ROWS = CUT_ROWS, COLS = CUT_COLS, ALL = ROWS * 3 * COLS };
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    float x[ALL], out[ALL], q_weight[2 * COLS], k_weight[COLS];
    const float *const weights[] = {q_weight, k_weight};
    double want[ALL];
    struct ops_rng rng = ops_rng_of(11);
    ops_rng_fill(&rng, x, ALL);
    ops_rng_fill(&rng, q_weight, 2 * COLS);
    ops_rng_fill(&rng, k_weight, COLS);
    for (uint32_t row = 0; row < ROWS; row++) {
        const float *q = x + row * 3 * COLS, *k = q + 2 * COLS;
        double sums[2 * COLS], *norms = want + row * 3 * COLS;
        norm_oracle(q, NULL, q_weight, sums, norms, 1, 2 * COLS, 1e-6);
        norm_oracle(k, NULL, k_weight, sums, norms + 2 * COLS, 1, COLS, 1e-6);
    }
    for (uint32_t world_size = 2; world_size <= 4; world_size += 2) {
        norm_by_ranks(backend, world_size, x, weights, out);
        assert_nmse(out, want, ALL, ROWS_NMSE);
    }
    backend_destroy(backend);
}

static void test_gather_rows(void **state) {
    enum { ROWS = 50, COLS = 333, PICKED = 301 };
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    float *x = ops_guard_alloc(ROWS * COLS), *out = ops_guard_alloc(PICKED * COLS);
    int32_t index[PICKED];
    struct ops_rng rng = ops_rng_of(9);
    ops_rng_fill(&rng, x, ROWS * COLS);
    for (uint32_t i = 0; i < PICKED; i++) index[i] = (int32_t)ops_rng_below(&rng, ROWS);
    struct gather_rows_args args = {x, index, out, PICKED, COLS};
    backend->ops->gather_rows(backend, &args);
    for (uint32_t i = 0; i < PICKED; i++) {
        assert_memory_equal(out + i * COLS, x + index[i] * COLS, COLS * sizeof *x);
    }
    args.rows = 0;
    backend->ops->gather_rows(backend, &args);
    ops_guard_free(x, ROWS * COLS);
    ops_guard_free(out, PICKED * COLS);
    backend_destroy(backend);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"rms_norm matches double precision and scalar", test_rms_norm, ISA_ROWS},
        {"rms_norm: same bits in place, in any batch", test_rms_norm_same_bits, ISA_ROWS},
        {"rms_norm of a part of each row", test_rms_norm_of_a_part_of_each_row, ISA_ROWS},
        {"gelu_mul matches double precision", test_gelu_mul, ISA_ROWS},
        {"clamped silu_mul matches double precision", test_clamped_silu_mul, ISA_ROWS},
        {"scale multiplies and adds", test_scale, ISA_ROWS},
        {"soft limits match double precision", test_softcap, ISA_ROWS},
        {"groups of a row are normed one by one", test_rms_norm_of_groups, ISA_ROWS},
        {"norms over the parts of ranks", test_cut_norm, ISA_ROWS},
        {"sigmoid_mul matches double precision", test_sigmoid_mul, ISA_ROWS},
        {"silu_mul matches double precision and scalar", test_silu_mul, ISA_ROWS},
        {"silu_mul's relative error", test_silu_accuracy, ISA_ROWS},
        {"silu_mul: same bits in any floating-point mode", test_same_bits_in_any_float_mode,
         ISA_ROWS},
        {"non-finite values stay alone", test_nonfinite, ISA_ROWS},
        {"gather_rows copies", test_gather_rows, ISA_ROWS},
    };
    return ops_run("rows", cases, ARRAY_LEN(cases));
}
