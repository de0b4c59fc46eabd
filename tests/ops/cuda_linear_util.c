#include "ops/cuda_linear_util.h"

#include <math.h>
#include <stdlib.h>

#include "base/compiler.h"

#define FUSED_EPS 1e-5f

enum { FUSED_OUT_MAX = 6144 };

uint32_t fused_columns(const struct fused_case *c) {
    return c->is_gated ? c->out / 2 : c->out;
}

// Row r of what linear_fused computes, in float64 but for x times the norm's weights.
static void fused_row(const struct fused_case *c, const struct fused_inputs *v, uint32_t r,
                      float *row) {
    uint32_t columns = fused_columns(c);
    const float *x = v->x + (size_t)r * c->in;
    double squares = 0, sums[FUSED_OUT_MAX];
    for (uint32_t i = 0; i < c->in; i++) squares += (double)x[i] * (double)x[i];
    double scale = c->has_norm ? 1 / sqrt(squares / c->in + (double)FUSED_EPS) : 1;
    for (uint32_t o = 0; o < c->out; o++) {
        const float *weight = v->weight + (size_t)o * c->in;
        sums[o] = 0;
        for (uint32_t i = 0; i < c->in; i++) {
            float one = c->has_norm ? bf16_to_f32(f32_to_bf16(x[i] * v->norm[i])) : x[i];
            sums[o] += (double)one * (double)weight[i];
        }
        sums[o] = sums[o] * scale + (c->has_bias ? (double)v->bias[o] : 0);
    }
    for (uint32_t o = 0; o < columns; o++) {
        double y = sums[o];
        if (c->is_gated) y = y / (1 + exp(-y)) * sums[o + columns];
        if (c->has_residual) y += (double)v->residual[(size_t)r * columns + o];
        row[o] = (float)y;
    }
}

struct fused_inputs fused_inputs_make(const struct fused_case *c, uint64_t seed, uint32_t rows) {
    uint32_t columns = fused_columns(c);
    struct ops_rng rng = ops_rng_of(seed);
    struct fused_inputs v = {.weight = bf16_values(&rng, (size_t)c->out * c->in, 0.1f),
                             .bias = bf16_values(&rng, c->out, 1),
                             .x = bf16_values(&rng, (size_t)rows * c->in, 2),
                             .norm = bf16_values(&rng, c->in, 1),
                             .residual = bf16_values(&rng, (size_t)rows * columns, 1),
                             .want = test_alloc((size_t)rows * columns * sizeof(float))};
    for (uint32_t r = 0; r < rows; r++) fused_row(c, &v, r, v.want + (size_t)r * columns);
    return v;
}

void fused_inputs_free(struct fused_inputs *v) {
    float *const all[] = {v->weight, v->bias, v->x, v->norm, v->residual, v->want};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

float *fused_on(struct backend *backend, const struct fused_case *c, const struct fused_inputs *v,
                uint32_t rows) {
    uint32_t columns = fused_columns(c);
    const struct matrix_slice part = {v->weight, DTYPE_F32, c->out, c->in, c->in};
    const struct matrix_slice bias = {v->bias, DTYPE_F32, 1, c->out, c->out};
    const struct linear_spec spec = {&part, c->has_bias ? &bias : NULL, 1};
    struct linear *linear = linear_of(backend, &spec);
    struct tensor x = tensor_of(backend, v->x, (size_t)rows * c->in);
    struct tensor norm = tensor_raw(backend, v->norm, c->in * sizeof *v->norm);
    struct tensor residual = tensor_of(backend, v->residual, (size_t)rows * columns);
    struct tensor out = tensor_nan(backend, (size_t)rows * columns);
    struct tensor scratch = tensor_nan(backend, (size_t)rows * c->out);
    backend->ops->linear_fused(
        backend, backend->stream,
        &(struct linear_fused_args){.linear = linear,
                                    .x = x.dev,
                                    .norm = c->has_norm ? norm.dev : NULL,
                                    .residual = c->has_residual ? residual.dev : NULL,
                                    .out = c->has_residual ? NULL : out.dev,
                                    .scratch = scratch.dev,
                                    .rows = rows,
                                    .is_gated = c->is_gated,
                                    .eps = FUSED_EPS});
    float *values = tensor_read(c->has_residual ? &residual : &out);
    tensor_free(&scratch);
    tensor_free(&out);
    tensor_free(&residual);
    tensor_free(&norm);
    tensor_free(&x);
    backend->ops->linear_destroy(backend, linear);
    return values;
}

void fused_check(const struct fused_case *c, const struct fused_inputs *v, const float *got,
                 uint32_t rows, double bound, const char *what) {
    uint32_t columns = fused_columns(c);
    for (uint32_t r = 0; r < rows; r++) {
        size_t at = (size_t)r * columns;
        double error = ops_nmse_f32(got + at, v->want + at, columns);
        if (error <= bound) continue;
        fail_msg("%s, [%u][%u] of %u rows: row %u has nmse %g", what, c->out, c->in, rows, r,
                 error);
    }
}
