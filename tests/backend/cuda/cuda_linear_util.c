#include "backend/cuda/cuda_linear_util.h"

#include <math.h>
#include <stdlib.h>

#include "base/compiler.h"

enum { FUSED_OUT_MAX = 6144, NORM_ROWS_MAX = 9 };

uint32_t fused_columns(const struct fused_case *c) {
    return c->is_gated ? c->out / 2 : c->out;
}

// Row r of x as the product uses it, and the factor for its sums. A fused norm rounds x times its
// weights. A separate norm rounds its result.
static double fused_x(const struct fused_case *c, const struct fused_inputs *v, uint32_t r,
                      bool normed_first, double *row) {
    const float *x = v->x + (size_t)r * c->in;
    double squares = 0;
    for (uint32_t i = 0; i < c->in; i++) squares += (double)x[i] * (double)x[i];
    double scale = c->has_norm ? 1 / sqrt(squares / c->in + (double)FUSED_EPS) : 1;
    for (uint32_t i = 0; i < c->in; i++) {
        float one = x[i];
        if (c->has_norm && !normed_first) one = x[i] * v->norm[i];
        if (c->has_norm && normed_first) one = (float)((double)x[i] * scale * (double)v->norm[i]);
        row[i] = (double)(c->has_norm ? bf16_to_f32(f32_to_bf16(one)) : one);
    }
    return normed_first ? 1 : scale;
}

static double fused_activated(enum activation activation, double gate, double up) {
    double slope = 2 * sqrt(2 / acos(-1)) * (1 + 0.044715 * gate * gate); // of GELU
    return gate / (1 + exp(-gate * (activation == ACTIVATION_GELU_TANH ? slope : 1))) * up;
}

// The result of a case's op for row r, in float64 except for fused_x.
static void fused_row(const struct fused_case *c, const struct fused_inputs *v, uint32_t r,
                      bool normed_first, float *row) {
    uint32_t columns = fused_columns(c);
    double sums[FUSED_OUT_MAX], *x = test_alloc(c->in * sizeof *x);
    double scale = fused_x(c, v, r, normed_first, x);
    for (uint32_t o = 0; o < c->out; o++) {
        const float *weight = v->weight + (size_t)o * c->in;
        sums[o] = 0;
        for (uint32_t i = 0; i < c->in; i++) sums[o] += x[i] * (double)weight[i];
        sums[o] = sums[o] * scale + (c->has_bias ? (double)v->bias[o] : 0);
    }
    for (uint32_t o = 0; o < columns; o++) {
        double y = sums[o];
        if (c->is_gated) y = fused_activated(c->activation, y, sums[o + columns]);
        if (c->has_residual) y += (double)v->residual[(size_t)r * columns + o];
        row[o] = (float)y;
    }
    free(x);
}

struct fused_inputs fused_inputs_make(const struct fused_case *c, uint64_t seed, uint32_t rows) {
    size_t columns = fused_columns(c), num_results = rows * columns;
    struct ops_rng rng = ops_rng_of(seed);
    struct fused_inputs v = {.weight = bf16_values(&rng, (size_t)c->out * c->in, 0.1f),
                             .bias = bf16_values(&rng, c->out, 1),
                             .x = bf16_values(&rng, (size_t)rows * c->in, 2),
                             .norm = bf16_values(&rng, c->in, 1),
                             .residual = bf16_values(&rng, num_results, 1),
                             .want = test_alloc(num_results * sizeof(float))};
    for (uint32_t r = 0; r < rows; r++) fused_row(c, &v, r, false, v.want + r * columns);
    if (!c->has_norm) return v;
    v.want_normed_first = test_alloc(num_results * sizeof(float));
    for (uint32_t r = 0; r < rows; r++) {
        fused_row(c, &v, r, true, v.want_normed_first + r * columns);
    }
    return v;
}

void fused_inputs_free(struct fused_inputs *v) {
    float *const all[] = {v->weight,           v->bias, v->x, v->norm, v->residual, v->want,
                          v->want_normed_first};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

static struct linear *matrix_on(struct backend *backend, const struct fused_case *c,
                                const struct fused_inputs *v) {
    const struct matrix_slice part = {.source = {.data = v->weight},
                                      .dtype = DTYPE_F32,
                                      .rows = c->out,
                                      .cols = c->in,
                                      .row_stride = c->in};
    const struct matrix_slice bias = {.source = {.data = v->bias},
                                      .dtype = DTYPE_F32,
                                      .rows = 1,
                                      .cols = c->out,
                                      .row_stride = c->out};
    return linear_of(backend,
                     &(struct linear_spec){&part, c->has_bias ? &bias : NULL, 1, WEIGHTS_NATIVE});
}

static bool is_untouched(const struct tensor *tensor) {
    unsigned char *bytes = test_alloc(tensor->bytes);
    bool is_same = true;
    tensor_read_raw(tensor, bytes);
    for (size_t i = 0; i < tensor->bytes; i++) is_same &= bytes[i] == 0xff;
    free(bytes);
    return is_same;
}

// One call of project_in on the device.
struct projection {
    struct tensor residual, unadded, norm, out, hidden, gate_up;
};

static struct projection projection_run(struct backend *backend, const struct fused_case *c,
                                        const struct linear *linear, const float *residual,
                                        const float *unadded, const float *norm, uint32_t rows) {
    size_t count = (size_t)rows * c->in;
    struct projection p = {
        .residual = tensor_of(backend, residual, count),
        .unadded = tensor_of(backend, unadded ? unadded : residual, count),
        .norm = tensor_raw(backend, norm, c->in * sizeof *norm),
        .out = tensor_nan(backend, (size_t)rows * fused_columns(c)),
        .hidden = tensor_nan(backend, count),
        .gate_up = tensor_nan(backend, (size_t)rows * c->out),
    };
    assert_true(backend->fusion->project_in(
        backend, &(struct project_in_args){.linear = linear,
                                           .residual = p.residual.dev,
                                           .unadded = unadded ? p.unadded.dev : NULL,
                                           .norm = p.norm.dev,
                                           .out = p.out.dev,
                                           .hidden = p.hidden.dev,
                                           .gate_up = c->is_gated ? p.gate_up.dev : NULL,
                                           .rows = rows,
                                           .is_gated = c->is_gated,
                                           .activation = c->activation,
                                           .eps = FUSED_EPS}));
    return p;
}

static void projection_free(struct projection *p) {
    tensor_free(&p->gate_up);
    tensor_free(&p->hidden);
    tensor_free(&p->out);
    tensor_free(&p->norm);
    tensor_free(&p->unadded);
    tensor_free(&p->residual);
}

// Bit n tells whether project_in of n rows fuses the norm.
static uint32_t norm_rows_of(struct backend *backend, const struct fused_case *c,
                             const struct fused_inputs *v) {
    struct linear *linear = matrix_on(backend, c, v);
    float *zeros = test_alloc((size_t)NORM_ROWS_MAX * c->in * sizeof *zeros);
    uint32_t fused = 0;
    for (uint32_t rows = 1; rows <= NORM_ROWS_MAX; rows++) {
        struct projection p = projection_run(backend, c, linear, zeros, NULL, v->norm, rows);
        if (is_untouched(&p.hidden)) fused |= 1u << rows;
        projection_free(&p);
    }
    free(zeros);
    backend->ops->linear_destroy(backend, linear);
    return fused;
}

// The residual is -x and `unadded` is 2 x. Their sum is x without rounding, so a term left out or
// added twice shows.
static float *project_in_on(struct backend *backend, const struct fused_case *c,
                            const struct fused_inputs *v, const struct linear *linear,
                            uint32_t rows, bool has_unadded, bool norm_is_fused) {
    size_t count = (size_t)rows * c->in;
    float *residual = test_alloc(count * sizeof *residual);
    float *unadded = test_alloc(count * sizeof *unadded);
    for (size_t i = 0; i < count; i++) {
        residual[i] = has_unadded ? -v->x[i] : v->x[i];
        unadded[i] = 2 * v->x[i];
    }
    struct projection p =
        projection_run(backend, c, linear, residual, has_unadded ? unadded : NULL, v->norm, rows);
    float *values = tensor_read(&p.out), *sum = tensor_read(&p.residual);
    ops_assert_same_bits(sum, v->x, rows, c->in, "the residual after project_in");
    if (norm_is_fused) assert_true(is_untouched(&p.hidden));
    projection_free(&p);
    free(sum);
    free(unadded);
    free(residual);
    return values;
}

static float *project_out_on(struct backend *backend, const struct fused_case *c,
                             const struct fused_inputs *v, const struct linear *linear,
                             uint32_t rows) {
    struct tensor x = tensor_of(backend, v->x, (size_t)rows * c->in);
    struct tensor residual = tensor_of(backend, v->residual, (size_t)rows * c->out);
    struct tensor projected = tensor_nan(backend, (size_t)rows * c->out);
    assert_true(
        backend->fusion->project_out(backend, &(struct project_out_args){.linear = linear,
                                                                         .x = x.dev,
                                                                         .residual = residual.dev,
                                                                         .projected = projected.dev,
                                                                         .rows = rows}));
    float *values = tensor_read(&residual);
    tensor_free(&projected);
    tensor_free(&residual);
    tensor_free(&x);
    return values;
}

static float *plain_on(struct backend *backend, const struct fused_case *c,
                       const struct fused_inputs *v, const struct linear *linear, uint32_t rows) {
    struct tensor x = tensor_of(backend, v->x, (size_t)rows * c->in);
    struct tensor out = tensor_nan(backend, (size_t)rows * c->out);
    assert_false(c->is_gated);
    backend->ops->linear(
        backend, &(struct linear_args){.linear = linear, .x = x.dev, .out = out.dev, .rows = rows});
    float *values = tensor_read(&out);
    tensor_free(&out);
    tensor_free(&x);
    return values;
}

void fused_check(const struct fused_case *c, const float *want, const float *got, uint32_t rows,
                 double bound, const char *what) {
    uint32_t columns = fused_columns(c);
    for (uint32_t r = 0; r < rows; r++) {
        size_t at = (size_t)r * columns;
        double error = ops_nmse_f32(got + at, want + at, columns);
        if (error <= bound) continue;
        fail_msg("%s, [%u][%u] of %u rows: row %u has nmse %g", what, c->out, c->in, rows, r,
                 error);
    }
}

static void fused_check_op(struct backend *backend, const struct fused_case *c,
                           const struct fused_inputs *v, uint32_t rows, uint32_t norm_rows,
                           bool has_unadded) {
    bool is_few = rows <= NORM_ROWS_MAX && norm_rows >> rows & 1; // else cuBLASLt may run
    bool norm_is_fused = is_few && !has_unadded;
    struct linear *linear = matrix_on(backend, c, v);
    const float *want = v->want;
    const char *what = "linear";
    float *got = NULL;
    if (c->has_norm) {
        got = project_in_on(backend, c, v, linear, rows, has_unadded, norm_is_fused);
        if (!norm_is_fused) want = v->want_normed_first;
        what = has_unadded ? "project_in with a part not yet added" : "project_in";
    } else if (c->has_residual) {
        got = project_out_on(backend, c, v, linear, rows);
        what = "project_out";
    } else {
        got = plain_on(backend, c, v, linear, rows);
    }
    fused_check(c, want, got, rows, c->is_gated && !is_few ? GATED_TWICE_NMSE : LINEAR_NMSE, what);
    free(got);
    backend->ops->linear_destroy(backend, linear);
}

uint32_t fused_check_ops(struct backend *backend, const struct fused_case *c, uint64_t seed,
                         const uint32_t *counts, size_t num_counts) {
    struct fused_inputs v = fused_inputs_make(c, seed, counts[num_counts - 1]);
    uint32_t norm_rows = norm_rows_of(backend, c, &v);
    for (size_t i = 0; i < num_counts; i++) {
        fused_check_op(backend, c, &v, counts[i], norm_rows, false);
        if (c->has_norm) fused_check_op(backend, c, &v, counts[i], norm_rows, true);
    }
    fused_inputs_free(&v);
    return (uint32_t)__builtin_popcount(norm_rows);
}
