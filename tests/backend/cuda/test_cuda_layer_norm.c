// Compares the CUDA backend's LayerNorm, activations without a gate and short convolutions with the
// scalar ones.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"

#define NORM_NMSE (3 * BF16_NMSE) // the residual's sum, the result, and a margin
#define RESULT_NMSE (3 * BF16_NMSE) // the result, with few numbers

struct norm_case {
    uint32_t rows, cols;
    const float *x, *residual, *weight, *bias; // residual and bias may be NULL
};

// The norm, and in *sum the residual behind it. The caller frees both.
static float *norm_on(struct backend *backend, const struct norm_case *c, float **sum) {
    size_t count = (size_t)c->rows * c->cols;
    struct tensor x = tensor_of(backend, c->x, count), out = tensor_nan(backend, count);
    struct tensor residual = tensor_of(backend, c->residual ? c->residual : c->x, count);
    struct tensor weight = tensor_raw(backend, c->weight, c->cols * sizeof(float));
    struct tensor bias =
        tensor_raw(backend, c->bias ? c->bias : c->weight, c->cols * sizeof(float));
    backend->ops->layer_norm(
        backend, &(struct layer_norm_args){.x = x.dev,
                                           .residual = c->residual ? residual.dev : NULL,
                                           .weight = weight.dev,
                                           .bias = c->bias ? bias.dev : NULL,
                                           .out = out.dev,
                                           .rows = c->rows,
                                           .cols = c->cols,
                                           .eps = 1e-5f});
    float *values = tensor_read(&out);
    *sum = tensor_read(&residual);
    tensor_free(&bias);
    tensor_free(&weight);
    tensor_free(&residual);
    tensor_free(&out);
    tensor_free(&x);
    return values;
}

static void check_norm(const struct device_pair *pair, const struct norm_case *c) {
    size_t count = (size_t)c->rows * c->cols;
    float *want_sum, *got_sum, *alone_sum;
    float *want = norm_on(pair->scalar, c, &want_sum), *got = norm_on(pair->device, c, &got_sum);
    double error = ops_nmse_f32(got, want, count);
    if (!(error <= NORM_NMSE)) fail_msg("%u x %u: nmse %g", c->rows, c->cols, error);
    round_to_bf16(want_sum, count);
    round_to_bf16(got_sum, count);
    ops_assert_same_bits(got_sum, want_sum, c->rows, c->cols, "residual");
    struct norm_case last = *c;
    last.rows = 1;
    last.x += count - c->cols;
    if (last.residual) last.residual += count - c->cols;
    float *alone = norm_on(pair->device, &last, &alone_sum);
    ops_assert_same_bits(alone, got + count - c->cols, 1, c->cols, "a row alone");
    free(alone);
    free(alone_sum);
    free(got);
    free(got_sum);
    free(want);
    free(want_sum);
}

static void test_layer_norm(void **state) {
    const struct device_pair *pair = *state;
    static const uint32_t widths[] = {8, 64, 136, 4096, 4104, 12288, 32768};
    for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
        enum { ROWS = 5 };
        uint32_t cols = widths[w];
        size_t count = (size_t)ROWS * cols;
        struct ops_rng rng = ops_rng_of(w);
        float *x = bf16_values(&rng, count, 3), *residual = bf16_values(&rng, count, 5);
        float *weight = bf16_values(&rng, cols, 2), *bias = bf16_values(&rng, cols, 2);
        for (size_t i = 0; i < count; i++) x[i] += 4; // a mean that is not 0
        round_to_bf16(x, count);
        check_norm(pair, &(struct norm_case){ROWS, cols, x, residual, weight, NULL});
        check_norm(pair, &(struct norm_case){ROWS, cols, x, residual, weight, bias});
        check_norm(pair, &(struct norm_case){ROWS, cols, x, NULL, weight, bias});
        free(x);
        free(residual);
        free(weight);
        free(bias);
    }
}

// Norms of the heads at the begin of each row, in place. The caller frees the rows.
static float *norm_heads_on(struct backend *backend, const float *values, const float *weights,
                            const struct layer_norm_args *shape) {
    struct tensor x = tensor_of(backend, values, (size_t)shape->rows * shape->stride);
    struct tensor weight =
        tensor_raw(backend, weights, (size_t)shape->groups * shape->cols * sizeof *weights);
    struct layer_norm_args args = *shape;
    args.x = args.out = x.dev;
    args.weight = weight.dev;
    backend->ops->layer_norm(backend, &args);
    float *normed = tensor_read(&x);
    tensor_free(&weight);
    tensor_free(&x);
    return normed;
}

// As q and k beside v, which stays as it is.
static void test_layer_norms_of_heads(void **state) {
    const struct device_pair *pair = *state;
    static const uint32_t dims[] = {8, 32, 80, 128, 256, 512};
    for (size_t d = 0; d < ARRAY_LEN(dims); d++) {
        const struct layer_norm_args shape = {
            .rows = 7, .cols = dims[d], .groups = 5, .stride = 7 * dims[d], .eps = 1e-5f};
        size_t count = (size_t)shape.rows * shape.stride;
        struct ops_rng rng = ops_rng_of(d);
        float *x = bf16_values(&rng, count, 3);
        float *weights = bf16_values(&rng, (size_t)shape.groups * shape.cols, 2);
        for (size_t i = 0; i < count; i++) x[i] += 4; // a mean that is not 0
        round_to_bf16(x, count);
        float *want = norm_heads_on(pair->scalar, x, weights, &shape);
        float *got = norm_heads_on(pair->device, x, weights, &shape);
        for (uint32_t row = 0; row < shape.rows; row++) {
            size_t at = (size_t)row * shape.stride, heads = (size_t)shape.groups * shape.cols;
            double error = ops_nmse_f32(got + at, want + at, heads);
            if (!(error <= NORM_NMSE)) fail_msg("heads of %u: nmse %g", shape.cols, error);
            assert_memory_equal(got + at + heads, x + at + heads,
                                (shape.stride - heads) * sizeof *x);
        }
        free(got);
        free(want);
        free(weights);
        free(x);
    }
}

static float *activate_on(struct backend *backend, const float *values, size_t count,
                          enum activation activation) {
    struct tensor x = tensor_of(backend, values, count);
    const struct activate_args args = {x.dev, count, activation, 0.7f, 1.3f};
    backend->ops->activate(backend, &args);
    float *out = tensor_read(&x);
    tensor_free(&x);
    return out;
}

static void test_activate(void **state) {
    const struct device_pair *pair = *state;
    static const enum activation all[] = {ACTIVATION_GELU_TANH, ACTIVATION_RELU_SQUARED,
                                          ACTIVATION_XIELU};
    enum { COUNT = 4104 };
    struct ops_rng rng = ops_rng_of(5);
    float *x = bf16_values(&rng, COUNT, 6);
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        float *want = activate_on(pair->scalar, x, COUNT, all[k]);
        float *got = activate_on(pair->device, x, COUNT, all[k]);
        double error = ops_nmse_f32(got, want, COUNT);
        if (!(error <= RESULT_NMSE)) fail_msg("activation %zu: nmse %g", k, error);
        free(got);
        free(want);
    }
    free(x);
}

// A number in its place would hide a broken model.
static void test_activate_keeps_nan(void **state) {
    const struct device_pair *pair = *state;
    static const enum activation all[] = {ACTIVATION_GELU_TANH, ACTIVATION_RELU_SQUARED,
                                          ACTIVATION_XIELU};
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        const float x[8] = {1, NAN, -1};
        float *got = activate_on(pair->device, x, 8, all[k]);
        assert_false(isnan(got[0]) || isnan(got[2]));
        assert_true(isnan(got[1]));
        free(got);
    }
}

static float *scale_rows_on(struct backend *backend, const float *values, const float *factors,
                            uint32_t rows, uint32_t cols) {
    struct tensor x = tensor_of(backend, values, (size_t)rows * cols);
    struct tensor f = tensor_raw(backend, factors, rows * sizeof *factors);
    backend->ops->scale_rows(backend, &(struct scale_rows_args){x.dev, f.dev, rows, cols});
    float *out = tensor_read(&x);
    tensor_free(&f);
    tensor_free(&x);
    return out;
}

static void test_scale_rows(void **state) {
    const struct device_pair *pair = *state;
    enum { ROWS = 37, COLS = 136 };
    struct ops_rng rng = ops_rng_of(7);
    float *x = bf16_values(&rng, ROWS * COLS, 3), factors[ROWS];
    for (int i = 0; i < ROWS; i++) factors[i] = (float)(i - 9) / 7;
    float *want = scale_rows_on(pair->scalar, x, factors, ROWS, COLS);
    float *got = scale_rows_on(pair->device, x, factors, ROWS, COLS);
    double error = ops_nmse_f32(got, want, ROWS * COLS);
    if (!(error <= RESULT_NMSE)) fail_msg("nmse %g", error);
    free(got);
    free(want);
    free(x);
}

enum { CONV_TOKENS = 40, CHANNELS = 1032, SLOTS = 4, NUM_STEPS = 4 };

// Steps of three sequences, as in test_cuda_delta.c: the first has slot 2, the second slot 0, and
// the last one is padding. The third step's snapshot, in slot 3, is where the last step's second
// sequence begins.
static const struct {
    int32_t query_start[4], context_len[3], from_slot, snapshot_token;
} steps[NUM_STEPS] = {{{0, 1, 20, 21}, {1, 19, 0}, 0, -1},
                      {{0, 38, 39, 40}, {39, 20, 0}, 0, -1},
                      {{0, 1, 2, 3}, {40, 21, 0}, 0, 1},
                      {{0, 2, 9, 10}, {42, 28, 0}, 3, -1}};

static float *convolve_on(struct backend *backend, const float *bcx, void *states, void *taps,
                          int i) {
    static const int32_t slots[] = {2, 0, 2}, kept = 3;
    const int32_t from[] = {2, steps[i].from_slot, 2};
    uint32_t num_tokens = (uint32_t)steps[i].query_start[3];
    struct tensor x = tensor_of(backend, bcx, (size_t)num_tokens * 3 * CHANNELS);
    struct tensor out = tensor_nan(backend, (size_t)num_tokens * CHANNELS);
    struct tensor starts = tensor_raw(backend, steps[i].query_start, sizeof steps[i].query_start);
    struct tensor lens = tensor_raw(backend, steps[i].context_len, sizeof steps[i].context_len);
    struct tensor rows = tensor_raw(backend, slots, sizeof slots);
    struct tensor states_from = tensor_raw(backend, from, sizeof from);
    struct tensor token = tensor_raw(backend, &steps[i].snapshot_token, sizeof(int32_t));
    struct tensor slot = tensor_raw(backend, &kept, sizeof kept);
    const struct step step = {.num_tokens = num_tokens,
                              .num_seqs = 3,
                              .query_start = starts.dev,
                              .context_len = lens.dev,
                              .table_row = rows.dev,
                              .state_row = states_from.dev,
                              .num_snapshots = steps[i].snapshot_token >= 0,
                              .snapshot_token = token.dev,
                              .snapshot_slot = slot.dev};
    backend->recurrent->short_conv(backend, &(struct short_conv_args){.step = &step,
                                                                      .states = states,
                                                                      .bcx = x.dev,
                                                                      .taps = taps,
                                                                      .out = out.dev,
                                                                      .channels = CHANNELS});
    float *values = tensor_read(&out);
    struct tensor *const all[] = {&x, &out, &starts, &lens, &rows, &states_from, &token, &slot};
    for (size_t k = 0; k < ARRAY_LEN(all); k++) tensor_free(all[k]);
    return values;
}

// All steps, one after the other, over slots that begin as NaN.
static void run_steps(struct backend *backend, const float *bcx, const float *weights,
                      float *out[NUM_STEPS]) {
    size_t bytes = SLOTS * short_conv_floats(CHANNELS) * sizeof(float);
    void *host = test_alloc(bytes);
    memset(host, 0xff, bytes);
    struct tensor states = tensor_raw(backend, host, bytes);
    struct tensor taps = tensor_raw(backend, weights, SHORT_CONV_TAPS * CHANNELS * sizeof(float));
    for (int i = 0; i < NUM_STEPS; i++) {
        out[i] = convolve_on(backend, bcx, states.dev, taps.dev, i);
    }
    tensor_free(&taps);
    tensor_free(&states);
    free(host);
}

static void test_short_conv(void **state) {
    const struct device_pair *pair = *state;
    struct ops_rng rng = ops_rng_of(9);
    float *bcx = bf16_values(&rng, (size_t)CONV_TOKENS * 3 * CHANNELS, 1);
    float *weights = bf16_values(&rng, SHORT_CONV_TAPS * CHANNELS, 1);
    float *want[NUM_STEPS], *got[NUM_STEPS];
    run_steps(pair->scalar, bcx, weights, want);
    run_steps(pair->device, bcx, weights, got);
    for (int i = 0; i < NUM_STEPS; i++) {
        size_t count = (size_t)steps[i].query_start[2] * CHANNELS; // without padding
        double error = ops_nmse_f32(got[i], want[i], count);
        if (!(error <= RESULT_NMSE)) fail_msg("step %d: nmse %g", i, error);
        free(want[i]);
        free(got[i]);
    }
    free(weights);
    free(bcx);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_norm), cmocka_unit_test(test_layer_norms_of_heads),
        cmocka_unit_test(test_activate),   cmocka_unit_test(test_activate_keeps_nan),
        cmocka_unit_test(test_scale_rows), cmocka_unit_test(test_short_conv),
    };
    return device_pair_run(argc, argv, "cuda layer norm", tests, ARRAY_LEN(tests));
}
