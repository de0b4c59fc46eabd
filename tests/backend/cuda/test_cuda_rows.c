// Compares the CUDA backend's row ops with the scalar ones: embed, rms_norm, silu_mul, gather_rows.
// Shapes are odd and memory lies between guard bytes. A row's bits do not depend on the other rows.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"

#define RMS_NORM_NMSE (3 * BF16_NMSE) // the residual's sum, the result, and a margin
#define SILU_MUL_NMSE (3 * BF16_NMSE) // the result, with few numbers

enum { EPS_INVERSE = 1000000 };

static float *embed_on(struct backend *backend, const struct matrix_slice *part,
                       const int32_t *tokens, uint32_t num_tokens, int32_t vocab_start,
                       const struct sample_result *previous, size_t num_previous) {
    const struct linear_spec spec = {part, NULL, 1, WEIGHTS_NATIVE};
    struct linear *table = linear_of(backend, &spec);
    struct tensor ids = tensor_raw(backend, tokens, num_tokens * sizeof *tokens);
    struct tensor results = tensor_raw(backend, previous, num_previous * sizeof *previous);
    struct tensor out = tensor_nan(backend, (size_t)num_tokens * part->cols);
    const struct step step = {
        .num_tokens = num_tokens, .tokens = ids.dev, .previous = num_previous ? results.dev : NULL};
    backend->ops->embed(
        backend, &(struct embed_args){
                     .step = &step, .table = table, .vocab_start = vocab_start, .out = out.dev});
    float *values = tensor_read(&out);
    tensor_free(&out);
    tensor_free(&results);
    tensor_free(&ids);
    backend->ops->linear_destroy(backend, table);
    return values;
}

// Copies from and to pinned memory. Small ones use another way than large ones and than those not
// aligned to 16 bytes.
static void test_copies(void **state) {
    struct backend *backend = ((const struct device_pair *)*state)->device;
    static const size_t sizes[] = {0, 4, 12, 16, 20, 4100, 70003, 1 << 20, (1 << 20) + 4};
    enum { MOST = (1 << 20) + 64 };
    struct err err = {0};
    void *memory[2] = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(backend_alloc_host(backend, MOST, &memory[i], &err), OK);
    }
    unsigned char *from = memory[0], *to = memory[1];
    for (size_t i = 0; i < MOST; i++) from[i] = (unsigned char)(i * 37 >> 3);
    for (size_t i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        size_t bytes = sizes[i / 2], at = i % 2 * 4;
        struct tensor there = tensor_raw(backend, from, bytes);
        memset(to, 0, MOST);
        backend->ops->upload(backend, there.dev, from + 16 + at, bytes);
        backend->ops->download(backend, to + 16 + at, there.dev, bytes);
        assert_int_equal(backend->ops->synchronize(backend, &err), OK);
        assert_memory_equal(to + 16 + at, from + 16 + at, bytes);
        size_t num_others = 0;
        for (size_t j = 0; j < MOST; j++) {
            num_others += to[j] && (j < 16 + at || j >= 16 + at + bytes);
        }
        assert_int_equal(num_others, 0);
        tensor_free(&there);
    }
    for (int i = 0; i < 2; i++) backend_release_host(backend, memory[i]);
}

// Nothing is computed, so all bits must match. Rows of other ranks are zeros.
static void test_embed(void **state) {
    const struct device_pair *pair = *state;
    static const uint32_t widths[] = {8, 64, 1032, 4096};
    enum { VOCAB = 104, TOKENS = 70, PREVIOUS = 5, START = 16 };
    for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
        struct ops_rng rng = ops_rng_of(w);
        uint32_t hidden = widths[w];
        float *table = bf16_values(&rng, (size_t)VOCAB * hidden, 1);
        const struct matrix_slice part = {.source = {.data = table},
                                          .dtype = DTYPE_F32,
                                          .rows = VOCAB,
                                          .cols = hidden,
                                          .row_stride = hidden};
        int32_t tokens[TOKENS];
        struct sample_result previous[PREVIOUS] = {0};
        for (size_t i = 0; i < PREVIOUS; i++) previous[i].token_id = (int32_t)(START + 20 * i);
        for (size_t i = 0; i < TOKENS; i++) {
            tokens[i] = (int32_t)ops_rng_below(&rng, VOCAB + 2 * START);
        }
        tokens[0] = 0;
        tokens[1] = START;
        tokens[2] = START + VOCAB - 1;
        tokens[3] = START + VOCAB;
        tokens[4] = -1;
        tokens[5] = -PREVIOUS;
        float *want = embed_on(pair->scalar, &part, tokens, TOKENS, START, previous, PREVIOUS);
        float *got = embed_on(pair->device, &part, tokens, TOKENS, START, previous, PREVIOUS);
        ops_assert_same_bits(got, want, TOKENS, hidden, "embed");
        free(got);
        got = embed_on(pair->device, &part, tokens, 4, START, NULL, 0);
        ops_assert_same_bits(got, want, 4, hidden, "embed without a step before");
        free(got);
        free(want);
        free(table);
    }
}

struct norm_inputs {
    uint32_t rows, cols;
    const float *x, *residual; // [rows][cols]; residual may be NULL
    const float *weight; // [cols]
    bool in_place;
};

// Computes the norm. `sum`, if not NULL, receives the residual after it. The caller frees both.
static float *norm_on(struct backend *backend, const struct norm_inputs *in, float **sum) {
    size_t count = (size_t)in->rows * in->cols;
    struct tensor x = tensor_of(backend, in->x, count);
    struct tensor residual = tensor_of(backend, in->residual ? in->residual : in->x, count);
    struct tensor weight = tensor_raw(backend, in->weight, in->cols * sizeof *in->weight);
    struct tensor out = tensor_nan(backend, count);
    backend->ops->rms_norm(backend,
                           &(struct rms_norm_args){.x = x.dev,
                                                   .residual = in->residual ? residual.dev : NULL,
                                                   .weight = weight.dev,
                                                   .out = in->in_place ? x.dev : out.dev,
                                                   .rows = in->rows,
                                                   .cols = in->cols,
                                                   .eps = 1.0f / EPS_INVERSE});
    float *values = tensor_read(in->in_place ? &x : &out);
    if (!in->in_place) {
        float *after = tensor_read(&x);
        ops_assert_same_bits(after, in->x, in->rows, in->cols, "x, which is only read");
        free(after);
    }
    if (sum) *sum = tensor_read(&residual);
    tensor_free(&out);
    tensor_free(&weight);
    tensor_free(&residual);
    tensor_free(&x);
    return values;
}

static void check_norm(const struct device_pair *pair, struct norm_inputs in) {
    size_t count = (size_t)in.rows * in.cols;
    float *want_sum, *got_sum;
    float *want = norm_on(pair->scalar, &in, &want_sum);
    float *got = norm_on(pair->device, &in, &got_sum);
    double error = ops_nmse_f32(got, want, count);
    if (!(error <= RMS_NORM_NMSE)) fail_msg("%u x %u: nmse %g", in.rows, in.cols, error);
    // One addition and one rounding, so the bits must match.
    round_to_bf16(want_sum, count);
    round_to_bf16(got_sum, count); // for a device with a wider type
    ops_assert_same_bits(got_sum, want_sum, in.rows, in.cols, "residual");
    free(got_sum);
    for (uint32_t r = 0; r < in.rows; r += in.rows / 2 + 1) { // a row alone
        size_t first = (size_t)r * in.cols;
        struct norm_inputs one = in;
        one.rows = 1;
        one.x += first;
        if (one.residual) one.residual += first;
        float *alone = norm_on(pair->device, &one, NULL);
        ops_assert_same_bits(alone, got + first, 1, in.cols, "a row alone");
        free(alone);
    }
    free(got);
    free(want);
    free(want_sum);
}

static void test_rms_norm(void **state) {
    const struct device_pair *pair = *state;
    static const uint32_t widths[] = {8, 64, 136, 1024, 4096, 4104, 5120, 8200, 12288, 32768};
    static const uint32_t heights[] = {1, 3, 17};
    for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
        for (size_t h = 0; h < ARRAY_LEN(heights); h++) {
            struct ops_rng rng = ops_rng_of(w * 10 + h);
            size_t count = (size_t)heights[h] * widths[w];
            // Rows of very different sizes, so that a scale taken from the wrong row shows.
            float *x = bf16_values(&rng, count, 3), *residual = bf16_values(&rng, count, 5);
            for (size_t i = 0; i < count; i++) x[i] *= (float)(1u << i / widths[w] % 8);
            float *weight = bf16_values(&rng, widths[w], 2);
            check_norm(pair,
                       (struct norm_inputs){heights[h], widths[w], x, residual, weight, false});
            check_norm(pair, (struct norm_inputs){heights[h], widths[w], x, NULL, weight, false});
            check_norm(pair, (struct norm_inputs){heights[h], widths[w], x, NULL, weight, true});
            free(x);
            free(residual);
            free(weight);
        }
    }
}

// residual and out of a norm of residual += norm(x): by one op, or by a norm, a sum with a norm.
static void norm_sum_on(struct backend *backend, bool by_one, const struct norm_inputs *in,
                        const float *x_norm, float **sum, float **out) {
    size_t count = (size_t)in->rows * in->cols;
    struct tensor x = tensor_of(backend, in->x, count), y = tensor_nan(backend, count);
    struct tensor residual = tensor_of(backend, in->residual, count);
    struct tensor w = tensor_raw(backend, in->weight, in->cols * sizeof(float));
    struct tensor xw = tensor_raw(backend, x_norm, in->cols * sizeof(float));
    struct rms_norm_args args = {.x = x.dev,
                                 .residual = residual.dev,
                                 .weight = w.dev,
                                 .out = y.dev,
                                 .rows = in->rows,
                                 .cols = in->cols,
                                 .eps = 1.0f / EPS_INVERSE,
                                 .x_norm = by_one ? xw.dev : NULL};
    struct rms_norm_args first = args;
    first.residual = NULL, first.weight = xw.dev, first.out = x.dev;
    if (!by_one) backend->ops->rms_norm(backend, &first);
    backend->ops->rms_norm(backend, &args);
    *sum = tensor_read(&residual);
    *out = tensor_read(&y);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&residual);
    tensor_free(&w);
    tensor_free(&xw);
}

static void test_rms_norm_of_normed_sums(void **state) {
    struct backend *backend = ((const struct device_pair *)*state)->device;
    static const uint32_t widths[] = {8, 136, 2560, 5376, 16384};
    if (!backend->fusion || !backend->fusion->norms_sums) skip();
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        enum { ROWS = 5 };
        uint32_t cols = widths[i];
        struct ops_rng rng = ops_rng_of(i);
        float *x = bf16_values(&rng, ROWS * cols, 3), *residual = bf16_values(&rng, ROWS * cols, 5);
        float *weight = bf16_values(&rng, cols, 2), *x_norm = bf16_values(&rng, cols, 2);
        const struct norm_inputs in = {ROWS, cols, x, residual, weight, false};
        float *want[2], *got[2];
        norm_sum_on(backend, false, &in, x_norm, &want[0], &want[1]);
        norm_sum_on(backend, true, &in, x_norm, &got[0], &got[1]);
        for (int k = 0; k < 2; k++) {
            ops_assert_same_bits(got[k], want[k], ROWS, cols, k ? "normed" : "the sum");
            free(got[k]);
            free(want[k]);
        }
        free(x);
        free(residual);
        free(weight);
        free(x_norm);
    }
}

// Heads inside longer rows, normed one by one in place.
static float *norm_groups_on(struct backend *backend, const float *values, const float *weight,
                             bool has_group_weights) {
    enum { ROWS = 5, GROUPS = 3, COLS = 64, STRIDE = 7 * COLS };
    struct tensor x = tensor_of(backend, values, ROWS * STRIDE);
    struct tensor w = tensor_raw(backend, weight, GROUPS * COLS * sizeof *weight);
    char *first = (char *)x.dev + 2 * COLS * dtype_size(backend->activation_dtype);
    backend->ops->rms_norm(backend,
                           &(struct rms_norm_args){.x = first,
                                                   .weight = w.dev,
                                                   .out = first,
                                                   .rows = ROWS,
                                                   .cols = COLS,
                                                   .eps = 1.0f / EPS_INVERSE,
                                                   .stride = STRIDE,
                                                   .groups = GROUPS,
                                                   .has_group_weights = has_group_weights});
    float *out = tensor_read(&x);
    tensor_free(&w);
    tensor_free(&x);
    return out;
}

static void test_rms_norm_of_groups(void **state) {
    const struct device_pair *pair = *state;
    enum { COUNT = 5 * 7 * 64 };
    struct ops_rng rng = ops_rng_of(77);
    float *x = bf16_values(&rng, COUNT, 3), *weight = bf16_values(&rng, 3 * 64, 2);
    for (int has_own = 0; has_own < 2; has_own++) {
        float *want = norm_groups_on(pair->scalar, x, weight, has_own);
        float *got = norm_groups_on(pair->device, x, weight, has_own);
        double error = ops_nmse_f32(got, want, COUNT);
        if (!(error <= RMS_NORM_NMSE)) fail_msg("nmse %g", error);
        free(want);
        free(got);
    }
    free(weight);
    free(x);
}

static float *softcap_on(struct backend *backend, const float *values, size_t count) {
    struct tensor x = tensor_raw(backend, values, count * sizeof *values);
    backend->ops->softcap(backend, &(struct softcap_args){x.dev, count, 30});
    float *out = malloc(count * sizeof *out);
    backend->ops->download(backend, out, x.dev, count * sizeof *out);
    assert_int_equal(backend->ops->synchronize(backend, NULL), OK);
    tensor_free(&x);
    return out;
}

static void test_softcap(void **state) {
    const struct device_pair *pair = *state;
    enum { COUNT = 1003 };
    float x[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i - COUNT / 2) / 5;
    float *want = softcap_on(pair->scalar, x, COUNT), *got = softcap_on(pair->device, x, COUNT);
    for (int i = 0; i < COUNT; i++) {
        if (fabsf(got[i] - want[i]) <= 2e-6f * fabsf(want[i])) continue;
        fail_msg("%g becomes %.9g, want %.9g", (double)x[i], (double)got[i], (double)want[i]);
    }
    free(want);
    free(got);
}

enum { CUT_ROWS = 5, CUT_Q = 1536, CUT_K = 64, CUT_STRIDE = CUT_Q + 2 * CUT_K };

// The norms of rank 1 of 3, which all have the same x.
static float *cut_norm_on(struct backend *backend, const float *values, const float *weight) {
    enum { RANKS = 3, FILL = 24, SUMS = CUT_ROWS * RANKS * CUT_NORM_SUMS + FILL };
    struct tensor x = tensor_of(backend, values, (size_t)CUT_ROWS * CUT_STRIDE);
    struct tensor w = tensor_raw(backend, weight, CUT_Q * sizeof *weight);
    struct tensor sums = tensor_nan(backend, SUMS);
    struct cut_norm_args args = {.x = x.dev,
                                 .rows = CUT_ROWS,
                                 .stride = CUT_STRIDE,
                                 .cols = {CUT_Q, CUT_K},
                                 .weights = {w.dev, w.dev},
                                 .sums = sums.dev,
                                 .count = SUMS,
                                 .world_size = RANKS,
                                 .eps = 1.0f / EPS_INVERSE};
    float total[SUMS] = {0};
    for (args.rank = 0; args.rank < RANKS; args.rank++) {
        backend->ops->square_sums(backend, &args);
        float *part = tensor_read(&sums);
        for (int i = 0; i < SUMS; i++) total[i] += part[i];
        free(part);
    }
    struct tensor all = tensor_of(backend, total, SUMS);
    args.sums = all.dev;
    args.rank = 1;
    backend->ops->cut_norm(backend, &args);
    float *out = tensor_read(&x);
    tensor_free(&all);
    tensor_free(&sums);
    tensor_free(&w);
    tensor_free(&x);
    return out;
}

static void test_cut_norm(void **state) {
    const struct device_pair *pair = *state;
    enum { COUNT = CUT_ROWS * CUT_STRIDE };
    struct ops_rng rng = ops_rng_of(78);
    float *x = bf16_values(&rng, COUNT, 3), *weight = bf16_values(&rng, CUT_Q, 2);
    float *want = cut_norm_on(pair->scalar, x, weight);
    float *got = cut_norm_on(pair->device, x, weight);
    double error = ops_nmse_f32(got, want, COUNT);
    if (!(error <= RMS_NORM_NMSE)) fail_msg("nmse %g", error);
    free(want);
    free(got);
    free(weight);
    free(x);
}

// Rows of zeros stay zeros, because of eps.
static void test_rms_norm_of_zeros(void **state) {
    const struct device_pair *pair = *state;
    enum { COLS = 256 };
    float zeros[2 * COLS] = {0}, weight[COLS];
    for (size_t i = 0; i < COLS; i++) weight[i] = 1;
    float *got =
        norm_on(pair->device, &(struct norm_inputs){2, COLS, zeros, NULL, weight, false}, NULL);
    ops_assert_same_bits(got, zeros, 2, COLS, "norm of zeros");
    free(got);
}

static float *silu_mul_on(struct backend *backend, const float *gate_up, uint32_t rows,
                          uint32_t cols, enum activation activation) {
    size_t count = (size_t)rows * cols;
    struct tensor in = tensor_of(backend, gate_up, 2 * count);
    struct tensor out = tensor_nan(backend, count);
    const struct silu_mul_args args = {in.dev, out.dev, rows, cols, activation};
    backend->ops->silu_mul(backend, &args);
    float *values = tensor_read(&out);
    tensor_free(&out);
    tensor_free(&in);
    return values;
}

static void test_silu_mul(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        uint32_t rows, cols;
    } shapes[] = {{1, 8}, {3, 64}, {17, 1032}, {2, 3072}, {1, 25600}, {66000, 8}};
    static const enum activation activations[] = {ACTIVATION_SILU, ACTIVATION_GELU_TANH,
                                                  ACTIVATION_CLAMPED_SILU};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        uint32_t rows = shapes[s].rows, cols = shapes[s].cols;
        enum activation activation = activations[s % ARRAY_LEN(activations)];
        size_t count = (size_t)rows * cols;
        struct ops_rng rng = ops_rng_of(s);
        float *gate_up = bf16_values(&rng, 2 * count, 6);
        float *want = silu_mul_on(pair->scalar, gate_up, rows, cols, activation);
        float *got = silu_mul_on(pair->device, gate_up, rows, cols, activation);
        double error = ops_nmse_f32(got, want, count);
        if (!(error <= SILU_MUL_NMSE)) fail_msg("%u x %u: nmse %g", rows, cols, error);
        float *last = silu_mul_on(pair->device, gate_up + 2 * (count - cols), 1, cols, activation);
        ops_assert_same_bits(last, got + count - cols, 1, cols, "a row alone");
        free(last);
        free(got);
        free(want);
        free(gate_up);
    }
}

// exp(-gate) overflows or vanishes here. The product must still follow the formula.
static void test_silu_mul_of_large_gates(void **state) {
    const struct device_pair *pair = *state;
    const float gate_up[16] = {-1000, -200, -89, -88, 88, 200, 1000, 1e30f,
                               3,     -3,   2,   -2,  1,  -1,  0.5f, 1};
    float *want = silu_mul_on(pair->scalar, gate_up, 1, 8, ACTIVATION_SILU);
    float *got = silu_mul_on(pair->device, gate_up, 1, 8, ACTIVATION_SILU);
    for (size_t i = 0; i < 8; i++) {
        float size = want[i] < 0 ? -want[i] : want[i];
        float error = got[i] > want[i] ? got[i] - want[i] : want[i] - got[i];
        if (!(error <= size / 128 + 1e-30f)) {
            fail_msg("gate %g: %g, want %g", (double)gate_up[i], (double)got[i], (double)want[i]);
        }
    }
    free(got);
    free(want);
}

// Of gates, and of the first columns of longer rows.
static float *gelu_mul_on(struct backend *backend, const float *gate, const float *up,
                          uint32_t rows, uint32_t cols, uint32_t up_stride) {
    struct tensor gates = tensor_of(backend, gate, (size_t)rows * cols);
    struct tensor ups = tensor_of(backend, up, (size_t)rows * up_stride);
    struct tensor out = tensor_nan(backend, (size_t)rows * cols);
    backend->ops->gelu_mul(
        backend, &(struct gelu_mul_args){gates.dev, ups.dev, out.dev, rows, cols, up_stride});
    float *values = tensor_read(&out);
    tensor_free(&out);
    tensor_free(&ups);
    tensor_free(&gates);
    return values;
}

static void test_gelu_mul(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        uint32_t rows, cols, up_stride;
    } shapes[] = {{1, 8, 8}, {5, 256, 1280}, {66000, 8, 16}, {3, 1032, 1040}};
    if (!pair->device->ops->gelu_mul) skip();
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        uint32_t rows = shapes[s].rows, cols = shapes[s].cols, stride = shapes[s].up_stride;
        struct ops_rng rng = ops_rng_of(s);
        float *gate = bf16_values(&rng, (size_t)rows * cols, 6);
        float *up = bf16_values(&rng, (size_t)rows * stride, 6);
        float *want = gelu_mul_on(pair->scalar, gate, up, rows, cols, stride);
        float *got = gelu_mul_on(pair->device, gate, up, rows, cols, stride);
        double error = ops_nmse_f32(got, want, (size_t)rows * cols);
        if (!(error <= SILU_MUL_NMSE)) fail_msg("%u x %u: nmse %g", rows, cols, error);
        free(got);
        free(want);
        free(up);
        free(gate);
    }
}

static void test_gather_rows(void **state) {
    const struct device_pair *pair = *state;
    struct backend *device = pair->device;
    static const uint32_t widths[] = {8, 72, 1024, 5120};
    enum { ROWS_IN = 31 };
    static const int32_t index[] = {30, 0, 0, 7, 29, 30, 1};
    for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
        uint32_t cols = widths[w];
        struct ops_rng rng = ops_rng_of(w);
        float *x = bf16_values(&rng, (size_t)ROWS_IN * cols, 1);
        struct tensor in = tensor_of(device, x, (size_t)ROWS_IN * cols);
        struct tensor which = tensor_raw(device, index, sizeof index);
        struct tensor out = tensor_nan(device, ARRAY_LEN(index) * cols);
        device->ops->gather_rows(
            device, &(struct gather_rows_args){in.dev, which.dev, out.dev, ARRAY_LEN(index), cols});
        float *got = tensor_read(&out);
        for (size_t r = 0; r < ARRAY_LEN(index); r++) {
            ops_assert_same_bits(got + r * cols, x + (size_t)index[r] * cols, 1, cols, "gather");
        }
        free(got);
        tensor_free(&out);
        tensor_free(&which);
        tensor_free(&in);
        free(x);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_rms_norm_of_groups),
        cmocka_unit_test(test_rms_norm_of_normed_sums),
        cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_cut_norm),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_rms_norm_of_zeros),
        cmocka_unit_test(test_silu_mul),
        cmocka_unit_test(test_silu_mul_of_large_gates),
        cmocka_unit_test(test_gelu_mul),
        cmocka_unit_test(test_gather_rows),
    };
    return device_pair_run(argc, argv, "cuda rows", tests, ARRAY_LEN(tests));
}
