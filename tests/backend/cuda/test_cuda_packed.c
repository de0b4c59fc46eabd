// Packed weights on device cuda: linears, project_in, project_out and embeddings give what the
// decoded weights give in double. Of two parts, from columns within a matrix, with few rows and
// with many, and in every kind of code and group. Where inputs are rounded to e4m3 too, the oracle
// rounds them.
#include <math.h>
#include <stdlib.h>

#include "backend/coded_matrix.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_linear_util.h"
#include "backend/cuda/linear/e4m3.h"
#include "base/compiler.h"

// Weights written as bf16 add a rounding of each, and so does x times a norm's weights.
#define PACKED_NMSE (LINEAR_NMSE + 2 * BF16_NMSE)

enum { ROWS_MAX = 805, FIRST_ROW = 1, FIRST_COL = 128 };

static const uint32_t row_counts[] = {1, 2, 3, 8, 9, 50, 64, 80, 120, 300, ROWS_MAX};

struct packed_case {
    struct matrix_form form;
    uint32_t out[2], in;
    bool shares; // 128 rows share their scales
};

static const struct packed_case cases[] = {
    {{.code = WEIGHT_CODE_E4M3, .group = 128}, {64, 80}, 512, true},
    {{.code = WEIGHT_CODE_E4M3, .group = 128}, {256, 16}, 1024, false},
    {{.code = WEIGHT_CODE_E4M3}, {96, 48}, 640, false},
    {{.code = WEIGHT_CODE_E4M3, .group = 128, .rounds_inputs = true}, {256, 128}, 1024, true},
    {{.code = WEIGHT_CODE_E4M3, .group = 128, .rounds_inputs = true}, {80, 128}, 640, false},
    {{.code = WEIGHT_CODE_E4M3, .rounds_inputs = true}, {160, 96}, 512, false},
    {{.code = WEIGHT_CODE_E4M3, .rounds_inputs = true}, {48, 48}, 512, false},
    {{.code = WEIGHT_CODE_E4M3, .group = 128, .rounds_inputs = true}, {128, 128}, 8192, true},
    {{.code = WEIGHT_CODE_E4M3, .group = 128, .rounds_inputs = true},
     {8576, 128},
     256,
     true}, // no block shares its inputs
    {{.code = WEIGHT_CODE_INT4, .group = 128}, {128, 128}, 1024, false},
    {{.code = WEIGHT_CODE_INT4, .group = 128, .has_offsets = true}, {80, 64}, 512, false},
    {{.code = WEIGHT_CODE_INT4, .group = 64, .has_offsets = true}, {64, 80}, 384, false},
    {{.code = WEIGHT_CODE_INT4, .group = 32}, {48, 208}, 1152, false},
    {{.code = WEIGHT_CODE_INT4, .group = 32, .has_offsets = true}, {64, 80}, 640, false},
    {{.code = WEIGHT_CODE_INT4, .group = 16}, {64, 80}, 384, false},
    {{.code = WEIGHT_CODE_INT4, .group = 16, .has_offsets = true}, {48, 96}, 512, false},
    {{.code = WEIGHT_CODE_INT8}, {96, 48}, 640, false},
    {{.code = WEIGHT_CODE_INT8, .group = 128}, {80, 64}, 1024, false},
    {{.code = WEIGHT_CODE_INT8, .group = 64}, {64, 64}, 384, false},
    {{.code = WEIGHT_CODE_INT8, .group = 32}, {48, 208}, 1152, false},
    {{.code = WEIGHT_CODE_INT8, .group = 16}, {64, 80}, 512, false},
    {{.code = WEIGHT_CODE_INT8, .group = 32, .has_offsets = true}, {64, 80}, 640, false},
    {{.code = WEIGHT_CODE_INT8, .group = 16, .has_offsets = true}, {48, 96}, 384, false},
    {{.code = WEIGHT_CODE_E2M1, .group = 32}, {64, 80}, 1024, false},
    {{.code = WEIGHT_CODE_E2M1, .group = 16}, {48, 96}, 640, false},
    {{.code = WEIGHT_CODE_IQ4, .group = 32}, {64, 80}, 512, false},
    {{.code = WEIGHT_CODE_IQ3, .group = 32}, {64, 80}, 512, false},
    {{.code = WEIGHT_CODE_IQ2, .group = 32}, {48, 96}, 384, false},
    {{.code = WEIGHT_CODE_IQ2, .group = 16}, {64, 80}, 640, false},
    {{.code = WEIGHT_CODE_ODD, .group = 32}, {80, 64}, 512, false},
    {{.code = WEIGHT_CODE_ODD, .group = 16}, {64, 80}, 384, false},
};

static bool keeps_plain = true; // codes as plain rows

// A linear on the device, and the values that it stands for.
struct packed_linear {
    struct linear *linear;
    float *weight, *bias; // [out][in], [out]
    uint32_t out, in;
};

// Zeros of 4-bit codes in large groups are whole. Scales are small, so that sums are no larger than
// a few units.
static struct coded coded_for(const struct packed_case *c, uint64_t seed, uint32_t part) {
    uint32_t rows = FIRST_ROW + c->out[part], cols = FIRST_COL + c->in;
    struct coded m = coded_make(seed + part, rows, cols, c->form);
    struct ops_rng rng = ops_rng_of(seed + 5);
    for (size_t i = 0; i < (size_t)rows * m.groups; i++) {
        if (c->shares) m.scales[i] = m.scales[i % m.groups];
        bool has_minima = c->form.code == WEIGHT_CODE_INT8 || c->form.group <= 32;
        float zero = (float)ops_rng_below(&rng, 16) + (has_minima ? 0.25f : 0);
        m.offsets[i] = (8 - zero) * m.scales[i];
    }
    return m;
}

static struct packed_linear packed_make(struct backend *backend, const struct packed_case *c,
                                        uint64_t seed) {
    struct packed_linear p = {.out = c->out[0] + c->out[1], .in = c->in};
    struct coded parts[2] = {coded_for(c, seed, 0), coded_for(c, seed, 1)};
    struct matrix_slice slices[2], biases[2];
    struct ops_rng rng = ops_rng_of(seed + 9);
    p.weight = test_alloc((size_t)p.out * p.in * sizeof *p.weight);
    p.bias = bf16_values(&rng, p.out, 1);
    float *to = p.weight, *bias = p.bias;
    for (uint32_t i = 0; i < 2; i++) {
        const struct matrix_reader *reader = &parts[i].reader;
        slices[i] = (struct matrix_slice){.rows = c->out[i],
                                          .cols = p.in,
                                          .dtype = DTYPE_F32,
                                          .reader = reader,
                                          .first_row = FIRST_ROW,
                                          .first_col = FIRST_COL};
        biases[i] = (struct matrix_slice){.rows = 1,
                                          .cols = c->out[i],
                                          .dtype = DTYPE_F32,
                                          .source = {.data = bias},
                                          .row_stride = c->out[i]};
        bias += c->out[i];
        for (uint32_t row = 0; row < c->out[i]; row++, to += p.in) {
            assert_int_equal(reader->read(reader, FIRST_ROW + row, FIRST_COL, p.in, to, NULL), OK);
        }
    }
    struct weight_format format = weight_format_packed(c->form, FIRST_COL);
    assert_true(backend->ops->has_format(backend, format));
    struct err err = {0};
    const struct linear_spec spec = {slices, biases, 2, format};
    assert_int_equal(backend->ops->linear_create(backend, &spec, &p.linear, &err), OK);
    if (!keeps_plain && backend->queue) cuda_backend_of(backend)->waiting = NULL;
    assert_true(!backend->queue || !backend->queue->weights_finish(backend, SIZE_MAX, &err));
    size_t bytes = backend->ops->linear_bytes(backend, p.out, p.in, false, format);
    assert_true(bytes < (size_t)p.out * p.in * sizeof(uint16_t)); // it stays packed
    coded_free(&parts[0]);
    coded_free(&parts[1]);
    return p;
}

static void packed_free(struct backend *backend, struct packed_linear *p) {
    backend->ops->linear_destroy(backend, p->linear);
    free(p->weight);
    free(p->bias);
}

// To the nearest number of e4m3, of two the even one.
static float rounded_to_e4m3(float x) {
    int exponent = x == 0 ? -6 : ilogbf(x);
    float step = ldexpf(1, (exponent < -6 ? -6 : exponent) - 3);
    return fminf(fmaxf(rintf(x / step) * step, -448), 448);
}

// Rounds a row of x where the device multiplies codes by codes.
static void round_inputs(struct backend *backend, const struct packed_case *c, uint32_t rows,
                         float *x) {
    uint32_t group = c->form.group ? c->form.group : c->in;
    bool has_kernel = backend->queue && cuda_backend_of(backend)->info.encode_tensor_map;
    bool has_scales = !c->form.group || c->shares;
    uint32_t rows_min = cuda_e4m3_rows_min(keeps_plain);
    if (!c->form.rounds_inputs || rows < rows_min || !has_kernel || !has_scales) return;
    for (uint32_t begin = 0; begin < c->in; begin += group) {
        float largest = 0;
        for (uint32_t i = begin; i < begin + group; i++) largest = fmaxf(largest, fabsf(x[i]));
        if (largest == 0) continue;
        for (uint32_t i = begin; i < begin + group; i++) {
            x[i] = rounded_to_e4m3(x[i] * (448 / largest)) * (largest / 448);
        }
    }
}

static double product(const struct packed_linear *p, const float *x, uint32_t output) {
    double sum = (double)p->bias[output];
    const float *weight = p->weight + (size_t)output * p->in;
    for (uint32_t i = 0; i < p->in; i++) sum += (double)x[i] * (double)weight[i];
    return sum;
}

static void check_row(const struct packed_case *c, uint32_t rows, uint32_t row, const float *got,
                      const double *want, uint32_t count, double bound, const char *what) {
    double error = ops_nmse(got, want, count);
    if (error <= bound) return;
    fail_msg("%s: code %d, group %u, [%u][%u], %u rows: row %u has nmse %g", what,
             (int)c->form.code, c->form.group, c->out[0] + c->out[1], c->in, rows, row, error);
}

// A few of the rows, the last among them: the others cost time in double.
static bool is_checked(uint32_t row, uint32_t rows) {
    return row < 3 || row + 2 >= rows || row % 61 == 0;
}

static void check_plain(struct backend *backend, const struct packed_case *c,
                        const struct packed_linear *p, uint32_t rows, bool is_float) {
    struct ops_rng rng = ops_rng_of(rows);
    float *x = bf16_values(&rng, (size_t)rows * p->in, 1), *got;
    double *want = test_alloc(p->out * sizeof *want);
    struct tensor from = tensor_of(backend, x, (size_t)rows * p->in);
    size_t count = (size_t)rows * p->out;
    struct tensor to =
        is_float ? tensor_raw(backend, NULL, count * sizeof(float)) : tensor_nan(backend, count);
    backend->ops->linear(backend,
                         &(struct linear_args){p->linear, from.dev, to.dev, rows, is_float});
    if (is_float) {
        got = test_alloc(to.bytes);
        tensor_read_raw(&to, got);
    } else {
        got = tensor_read(&to);
    }
    for (uint32_t row = 0; row < rows; row++) {
        if (!is_checked(row, rows)) continue;
        if (!is_float) round_inputs(backend, c, rows, x + (size_t)row * p->in);
        for (uint32_t i = 0; i < p->out; i++) want[i] = product(p, x + (size_t)row * p->in, i);
        // Few rows round no weight there.
        bool is_exact = is_float && rows <= 8 && backend->activation_dtype == DTYPE_BF16;
        double bound = is_exact ? 1e-9 : PACKED_NMSE;
        check_row(c, rows, row, got + (size_t)row * p->out, want, p->out, bound,
                  is_float ? "to floats" : "plain");
    }
    free(got);
    free(want);
    free(x);
    tensor_free(&to);
    tensor_free(&from);
}

static void test_plain(void **state) {
    const struct device_pair *pair = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct packed_linear p = packed_make(pair->device, &cases[i], 100 * i);
        for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
            check_plain(pair->device, &cases[i], &p, row_counts[r], false);
            // Of more rows cuBLASLt makes floats. It adds no bf16 bias to them, as no model asks.
            if (row_counts[r] > 300) continue;
            check_plain(pair->device, &cases[i], &p, row_counts[r], true);
        }
        packed_free(pair->device, &p);
    }
}

static double silu(double x) {
    return x / (1 + exp(-x));
}

// A norm in front, and SiLU of the first half times the second.
static void check_in(struct backend *backend, const struct packed_case *c,
                     const struct packed_linear *p, uint32_t rows) {
    struct ops_rng rng = ops_rng_of(rows + 1);
    uint32_t in = p->in, half = p->out / 2;
    float *x = bf16_values(&rng, (size_t)rows * in, 1), *norm = bf16_values(&rng, in, 0.2f);
    float *normed = test_alloc(in * sizeof *normed);
    double *want = test_alloc(half * sizeof *want);
    struct tensor residual = tensor_of(backend, x, (size_t)rows * in);
    struct tensor weights = tensor_raw(backend, norm, in * sizeof *norm);
    struct tensor hidden = tensor_nan(backend, (size_t)rows * in);
    struct tensor both = tensor_nan(backend, (size_t)rows * p->out);
    struct tensor to = tensor_nan(backend, (size_t)rows * half);
    assert_true(
        backend->fusion->project_in(backend, &(struct project_in_args){.linear = p->linear,
                                                                       .residual = residual.dev,
                                                                       .norm = weights.dev,
                                                                       .out = to.dev,
                                                                       .hidden = hidden.dev,
                                                                       .gate_up = both.dev,
                                                                       .rows = rows,
                                                                       .is_gated = true,
                                                                       .eps = 1e-6f}));
    float *got = tensor_read(&to);
    for (uint32_t row = 0; row < rows; row++) {
        if (!is_checked(row, rows)) continue;
        double squares = 0;
        const float *own = x + (size_t)row * in;
        for (uint32_t i = 0; i < in; i++) squares += (double)own[i] * (double)own[i];
        double root = sqrt(squares / in + 1e-6);
        for (uint32_t i = 0; i < in; i++) {
            normed[i] = (float)((double)own[i] * (double)norm[i] / root);
        }
        if (c->form.rounds_inputs && rows > 8) round_to_bf16(normed, in); // as the device does
        round_inputs(backend, c, rows, normed);
        for (uint32_t i = 0; i < half; i++) {
            want[i] = silu(product(p, normed, i)) * product(p, normed, i + half);
        }
        check_row(c, rows, row, got + (size_t)row * half, want, half, GATED_TWICE_NMSE,
                  "project_in");
    }
    free(got);
    free(want);
    free(normed);
    free(norm);
    free(x);
    tensor_free(&to);
    tensor_free(&both);
    tensor_free(&hidden);
    tensor_free(&weights);
    tensor_free(&residual);
}

static void check_out(struct backend *backend, const struct packed_case *c,
                      const struct packed_linear *p, uint32_t rows) {
    struct ops_rng rng = ops_rng_of(rows + 2);
    float *x = bf16_values(&rng, (size_t)rows * p->in, 1);
    float *before = bf16_values(&rng, (size_t)rows * p->out, 4);
    double *want = test_alloc(p->out * sizeof *want);
    struct tensor from = tensor_of(backend, x, (size_t)rows * p->in);
    struct tensor residual = tensor_of(backend, before, (size_t)rows * p->out);
    struct tensor projected = tensor_nan(backend, (size_t)rows * p->out);
    assert_true(backend->fusion->project_out(
        backend,
        &(struct project_out_args){p->linear, from.dev, residual.dev, projected.dev, rows}));
    float *got = tensor_read(&residual);
    for (uint32_t row = 0; row < rows; row++) {
        if (!is_checked(row, rows)) continue;
        round_inputs(backend, c, rows, x + (size_t)row * p->in);
        for (uint32_t i = 0; i < p->out; i++) {
            want[i] =
                (double)before[(size_t)row * p->out + i] + product(p, x + (size_t)row * p->in, i);
        }
        check_row(c, rows, row, got + (size_t)row * p->out, want, p->out, 2 * PACKED_NMSE,
                  "project_out");
    }
    free(got);
    free(want);
    free(before);
    free(x);
    tensor_free(&projected);
    tensor_free(&residual);
    tensor_free(&from);
}

static void test_fused(void **state) {
    const struct device_pair *pair = *state;
    if (!pair->device->fusion || !pair->device->fusion->project_in) skip();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct packed_linear p = packed_make(pair->device, &cases[i], 100 * i + 50);
        for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
            check_in(pair->device, &cases[i], &p, row_counts[r]);
            check_out(pair->device, &cases[i], &p, row_counts[r]);
        }
        packed_free(pair->device, &p);
    }
}

// Codes that are written as plain rows each time.
static void test_codes_not_kept_plain(void **state) {
    const struct device_pair *pair = *state;
    keeps_plain = false; // as if there were no memory
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (!cases[i].form.rounds_inputs) continue;
        struct packed_linear p = packed_make(pair->device, &cases[i], 100 * i + 30);
        for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
            check_plain(pair->device, &cases[i], &p, row_counts[r], false);
            if (!pair->device->fusion || !pair->device->fusion->project_in) continue;
            check_in(pair->device, &cases[i], &p, row_counts[r]);
            check_out(pair->device, &cases[i], &p, row_counts[r]);
        }
        packed_free(pair->device, &p);
    }
    keeps_plain = true;
}

// A gated linear and the only reader of its result have the same bits as without that knowledge.
static void test_reader(void **state) {
    const struct device_pair *pair = *state;
    struct backend *b = pair->device;
    if (!b->fusion || !b->fusion->project_in) skip();
    const struct packed_case wide[] = {
        {{.code = WEIGHT_CODE_E4M3, .group = 128, .rounds_inputs = true}, {512, 512}, 256, true},
        {{.code = WEIGHT_CODE_E4M3, .rounds_inputs = true}, {512, 512}, 256, false}};
    const struct packed_case back[] = {
        {{.code = WEIGHT_CODE_E4M3, .group = 128, .rounds_inputs = true}, {128, 128}, 512, true},
        {{.code = WEIGHT_CODE_E4M3, .rounds_inputs = true}, {128, 128}, 512, false}};
    for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
        struct packed_linear up = packed_make(b, &wide[i], 7), down = packed_make(b, &back[i], 8);
        for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
            uint32_t rows = row_counts[r];
            struct ops_rng rng = ops_rng_of(rows + 3);
            float *x = bf16_values(&rng, (size_t)rows * up.in, 1), *got[2];
            float *norm = bf16_values(&rng, up.in, 0.2f);
            struct tensor weights = tensor_raw(b, norm, up.in * sizeof *norm);
            for (int knows = 0; knows < 2; knows++) {
                struct tensor residual = tensor_of(b, x, (size_t)rows * up.in);
                struct tensor hidden = tensor_nan(b, (size_t)rows * up.in);
                struct tensor both = tensor_nan(b, (size_t)rows * up.out);
                struct tensor to = tensor_nan(b, (size_t)rows * down.in);
                const struct project_in_args in = {.linear = up.linear,
                                                   .residual = residual.dev,
                                                   .norm = weights.dev,
                                                   .out = to.dev,
                                                   .hidden = hidden.dev,
                                                   .gate_up = both.dev,
                                                   .rows = rows,
                                                   .is_gated = true,
                                                   .reader = knows ? down.linear : NULL,
                                                   .eps = 1e-6f};
                assert_true(b->fusion->project_in(b, &in));
                const struct project_out_args out = {.linear = down.linear,
                                                     .x = to.dev,
                                                     .residual = residual.dev,
                                                     .projected = hidden.dev,
                                                     .rows = rows};
                assert_true(b->fusion->project_out(b, &out));
                got[knows] = tensor_read(&residual);
                tensor_free(&to);
                tensor_free(&both);
                tensor_free(&hidden);
                tensor_free(&residual);
            }
            ops_assert_same_bits(got[1], got[0], rows, up.in, "with a reader");
            free(got[0]);
            free(got[1]);
            free(norm);
            free(x);
            tensor_free(&weights);
        }
        packed_free(b, &up);
        packed_free(b, &down);
    }
}

// Rows of the table are the decoded values as bf16; rows of other ranks are 0.
static void test_embeddings(void **state) {
    const struct device_pair *pair = *state;
    struct backend *backend = pair->device;
    enum { TOKENS = 4, START = 10 };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct packed_linear p = packed_make(backend, &cases[i], 100 * i + 70);
        const int32_t ids[TOKENS] = {START, START + 77, (int32_t)(START + p.out) - 1, START - 1};
        struct tensor tokens = tensor_raw(backend, ids, sizeof ids);
        struct tensor to = tensor_nan(backend, (size_t)TOKENS * p.in);
        const struct step step = {.num_tokens = TOKENS, .tokens = tokens.dev};
        backend->ops->embed(backend, &(struct embed_args){&step, p.linear, START, to.dev});
        float *got = tensor_read(&to), *want = test_alloc((size_t)TOKENS * p.in * sizeof *want);
        for (size_t t = 0; t < TOKENS - 1; t++) {
            for (size_t k = 0; k < p.in; k++) {
                want[t * p.in + k] = p.weight[(size_t)(ids[t] - START) * p.in + k];
            }
        }
        round_to_bf16(want, (size_t)TOKENS * p.in);
        ops_assert_same_bits(got, want, TOKENS, p.in, "embeddings");
        free(got);
        free(want);
        tensor_free(&to);
        tensor_free(&tokens);
        packed_free(backend, &p);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_codes_not_kept_plain),
        cmocka_unit_test(test_reader),
        cmocka_unit_test(test_embeddings),
    };
    return device_pair_run(argc, argv, "cuda packed", tests, ARRAY_LEN(tests));
}
