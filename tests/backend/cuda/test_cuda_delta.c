// Compares the CUDA backend's gated delta nets with the scalar ones, over steps that cut a
// sequence, with another one and padding beside it, token by token and in chunks; gates that the op
// computes with given ones; and sigmoid_mul.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"

// S^T q and the result, and a margin. States are compared by what later steps make of them.
#define TOKENS_NMSE (3 * BF16_NMSE)
// In chunks q, k, v, S, both sums over the tokens before, and what a token adds are rounded, too.
#define CHUNKS_NMSE (12 * BF16_NMSE)

enum { TOKENS = 223, SLOTS = 4, NUM_STEPS = 5 };

static const struct gated_delta_shape shapes[] = {
    {2, 2, 16, 16}, {1, 3, 48, 80}, {2, 4, 128, 128}, {1, 1, 192, 64}, {1, 1, 32, 256}};

// A step of three sequences: the first one's queries are in slot 2, the second's in slot 0, and the
// last one is padding.
static const struct {
    int32_t query_start[4], context_len[3];
    int32_t from_slot; // of the second sequence
    int32_t snapshot_token; // slot 3, or 1 for token 0, keeps the states behind it; -1: none does
} steps[NUM_STEPS] = {{{0, 1, 20, 21}, {1, 19, 0}, 0, -1},
                      {{0, 150, 151, 152}, {151, 20, 0}, 0, 124},
                      {{0, 1, 2, 3}, {152, 21, 0}, 0, -1},
                      {{0, 2, 40, 41}, {154, 38, 0}, 0, -1}, // the second one is new
                      {{0, 1, 222, 223}, {155, 347, 0}, 3, 0}}; // and goes on from the snapshot

static const int32_t slots[] = {2, 0, 2};

struct inputs {
    struct gated_delta_shape shape;
    size_t row, width;
    uint32_t max_query_len; // that steps tell: 1 lets all tokens go one by one
    float *qkvz, *gates; // [TOKENS][row] bfloat16 values, [TOKENS][2 heads]
    float *conv, *decay, *dt_bias, *norm;
};

struct results {
    float *out[NUM_STEPS]; // [tokens of the step][width]
};

static struct inputs make_inputs(const struct gated_delta_shape *shape) {
    struct ops_rng rng = ops_rng_of(shape->value_dim);
    uint32_t channels = gated_delta_channels(shape), heads = shape->num_heads;
    struct inputs in = {.shape = *shape, .width = (size_t)heads * shape->value_dim};
    in.row = channels + in.width;
    in.qkvz = bf16_values(&rng, TOKENS * in.row, 1);
    in.gates = bf16_values(&rng, (size_t)TOKENS * 2 * heads, 2);
    in.conv = bf16_values(&rng, (size_t)DELTA_TAPS * channels, 1);
    in.decay = bf16_values(&rng, heads, 1);
    in.dt_bias = bf16_values(&rng, heads, 1);
    in.norm = bf16_values(&rng, shape->value_dim, 1);
    for (uint32_t i = 0; i < heads; i++) in.decay[i] = 0.05f + 0.05f * (float)i;
    return in;
}

static void free_inputs(struct inputs *in) {
    float *all[] = {in->qkvz, in->gates, in->conv, in->decay, in->dt_bias, in->norm};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

static struct tensor scratch_of(struct backend *backend, const struct inputs *in) {
    const struct backend_recurrent *ops = backend->recurrent;
    size_t bytes = 64;
    if (ops->gated_delta_scratch_bytes) {
        bytes = ops->gated_delta_scratch_bytes(backend, &in->shape, TOKENS);
    }
    void *host = test_alloc(bytes);
    memset(host, 0xff, bytes); // NaN
    struct tensor scratch = tensor_raw(backend, host, bytes);
    free(host);
    return scratch;
}

static float *run_step(struct backend *backend, const struct inputs *in, int i, void *states,
                       struct tensor *const constants) {
    const int32_t *query_start = steps[i].query_start;
    uint32_t num_tokens = (uint32_t)query_start[3];
    struct tensor qkvz = tensor_of(backend, in->qkvz, num_tokens * in->row);
    size_t gates_bytes = (size_t)num_tokens * 2 * in->shape.num_heads * sizeof(float);
    struct tensor gates = tensor_raw(backend, in->gates, gates_bytes);
    struct tensor starts = tensor_raw(backend, query_start, 4 * sizeof *query_start);
    struct tensor lens = tensor_raw(backend, steps[i].context_len, 3 * sizeof(int32_t));
    struct tensor rows = tensor_raw(backend, slots, sizeof slots);
    struct tensor out = tensor_nan(backend, num_tokens * in->width);
    const int32_t from[] = {2, steps[i].from_slot, 2}, kept = steps[i].snapshot_token == 0 ? 1 : 3;
    struct tensor states_from = tensor_raw(backend, from, sizeof from);
    struct tensor token = tensor_raw(backend, &steps[i].snapshot_token, sizeof(int32_t));
    struct tensor slot = tensor_raw(backend, &kept, sizeof kept);
    struct tensor scratch = scratch_of(backend, in);
    const struct step step = {.num_tokens = num_tokens,
                              .num_seqs = 3,
                              .table_rows = SLOTS,
                              .max_query_len = in->max_query_len,
                              .query_start = starts.dev,
                              .context_len = lens.dev,
                              .table_row = rows.dev,
                              .state_row = states_from.dev,
                              .num_snapshots = steps[i].snapshot_token >= 0,
                              .snapshot_token = token.dev,
                              .snapshot_slot = slot.dev};
    const struct gated_delta_args args = {.step = &step,
                                          .states = states,
                                          .shape = in->shape,
                                          .qkvz = qkvz.dev,
                                          .gates = gates.dev,
                                          .out = out.dev,
                                          .conv = constants[0].dev,
                                          .decay = constants[1].dev,
                                          .dt_bias = constants[2].dev,
                                          .norm = constants[3].dev,
                                          .eps = 1e-2f,
                                          .scratch = scratch.dev};
    backend->recurrent->gated_delta(backend, &args);
    float *values = tensor_read(&out);
    struct tensor *all[] = {&qkvz, &gates,       &starts, &lens, &rows,
                            &out,  &states_from, &token,  &slot, &scratch};
    for (size_t k = 0; k < ARRAY_LEN(all); k++) tensor_free(all[k]);
    return values;
}

static struct results run_on(struct backend *backend, const struct inputs *in) {
    uint32_t heads = in->shape.num_heads;
    size_t channels = gated_delta_channels(&in->shape);
    struct tensor constants[] = {
        tensor_raw(backend, in->conv, DELTA_TAPS * channels * sizeof(float)),
        tensor_raw(backend, in->decay, heads * sizeof(float)),
        tensor_raw(backend, in->dt_bias, heads * sizeof(float)),
        tensor_raw(backend, in->norm, in->shape.value_dim * sizeof(float))};
    struct results results;
    size_t bytes = SLOTS * backend->recurrent->gated_delta_bytes(backend, &in->shape);
    void *nan = test_alloc(bytes);
    memset(nan, 0xff, bytes); // nobody clears slots
    struct tensor states = tensor_raw(backend, nan, bytes);
    free(nan);
    for (int i = 0; i < NUM_STEPS; i++) {
        results.out[i] = run_step(backend, in, i, states.dev, constants);
    }
    tensor_free(&states);
    for (size_t i = 0; i < ARRAY_LEN(constants); i++) tensor_free(&constants[i]);
    return results;
}

static void free_results(struct results *results) {
    for (int i = 0; i < NUM_STEPS; i++) free(results->out[i]);
}

static void check_shapes(const struct device_pair *pair, uint32_t max_query_len, double bound) {
    if (!pair->device->recurrent) skip();
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct inputs in = make_inputs(&shapes[i]);
        in.max_query_len = max_query_len;
        struct results want = run_on(pair->scalar, &in), got = run_on(pair->device, &in);
        for (int k = 0; k < NUM_STEPS; k++) {
            size_t count = (size_t)steps[k].query_start[2] * in.width; // without padding
            double nmse = ops_nmse_f32(got.out[k], want.out[k], count);
            print_message("shape %zu, step %d: %.2g\n", i, k, nmse);
            assert_true(nmse <= bound);
        }
        free_results(&want);
        free_results(&got);
        free_inputs(&in);
    }
}

static void test_token_by_token(void **state) {
    check_shapes(*state, 1, TOKENS_NMSE);
}

static void test_chunks(void **state) {
    check_shapes(*state, TOKENS, CHUNKS_NMSE);
}

enum { DECODES = 3, GATES_MAX = 8, HIDDEN_MAX = 2568 };

// A step of three decodes, on zero states. `linear` NULL: with `gates` [DECODES][2 heads].
static float *decode_on(struct backend *backend, const struct inputs *in, const float *gates,
                        const struct linear *linear, const float *x, const float *norm,
                        uint32_t hidden) {
    static const int32_t starts[] = {0, 1, 2, 3}, lens[] = {9, 5, 7}, rows[] = {2, 0, 1};
    uint32_t heads = in->shape.num_heads;
    size_t channels = gated_delta_channels(&in->shape);
    size_t bytes = SLOTS * backend->recurrent->gated_delta_bytes(backend, &in->shape);
    void *zeros = calloc(1, bytes);
    struct tensor states = tensor_raw(backend, zeros, bytes);
    free(zeros);
    struct tensor all[] = {tensor_raw(backend, starts, sizeof starts),
                           tensor_raw(backend, lens, sizeof lens),
                           tensor_raw(backend, rows, sizeof rows),
                           tensor_of(backend, in->qkvz, DECODES * in->row),
                           tensor_raw(backend, gates, (size_t)DECODES * 2 * heads * sizeof *gates),
                           tensor_of(backend, x, (size_t)DECODES * hidden),
                           tensor_raw(backend, norm, hidden * sizeof *norm),
                           tensor_raw(backend, in->conv, DELTA_TAPS * channels * sizeof(float)),
                           tensor_raw(backend, in->decay, heads * sizeof(float)),
                           tensor_raw(backend, in->dt_bias, heads * sizeof(float)),
                           tensor_raw(backend, in->norm, in->shape.value_dim * sizeof(float))};
    struct tensor out = tensor_nan(backend, DECODES * in->width);
    const struct step step = {.num_tokens = DECODES,
                              .num_seqs = DECODES,
                              .table_rows = SLOTS,
                              .max_query_len = 1,
                              .query_start = all[0].dev,
                              .context_len = all[1].dev,
                              .table_row = all[2].dev};
    const struct gated_delta_args args = {.step = &step,
                                          .states = states.dev,
                                          .shape = in->shape,
                                          .qkvz = all[3].dev,
                                          .gates = linear ? NULL : all[4].dev,
                                          .gates_linear = linear,
                                          .residual = all[5].dev,
                                          .input_norm = all[6].dev,
                                          .out = out.dev,
                                          .conv = all[7].dev,
                                          .decay = all[8].dev,
                                          .dt_bias = all[9].dev,
                                          .norm = all[10].dev,
                                          .eps = 1e-2f};
    if (linear) assert_true(backend->recurrent->computes_gates(backend, &args));
    backend->recurrent->gated_delta(backend, &args);
    float *values = tensor_read(&out);
    for (size_t k = 0; k < ARRAY_LEN(all); k++) tensor_free(&all[k]);
    tensor_free(&states);
    return values;
}

// gates = weight rms_norm(x), in double.
static void find_gates(float *gates, const float *weight, const float *x, const float *norm,
                       uint32_t count, uint32_t hidden) {
    for (size_t i = 0; i < (size_t)DECODES * count; i++) {
        const float *row = x + i / count * hidden, *w = weight + i % count * hidden;
        double squares = 0, sum = 0;
        for (uint32_t k = 0; k < hidden; k++) {
            squares += (double)row[k] * (double)row[k];
            sum += (double)w[k] * (double)norm[k] * (double)row[k];
        }
        gates[i] = (float)(sum / sqrt(squares / hidden + 1e-2));
    }
}

// Gates that the op computes are those that it is given otherwise. Rows of some and of more inputs
// than a block loads at once.
static void test_computed_gates(void **state) {
    const struct device_pair *pair = *state;
    struct backend *backend = pair->device;
    static const uint32_t hidden[] = {72, HIDDEN_MAX};
    if (!backend->recurrent || !backend->recurrent->computes_gates) skip();
    for (size_t i = 0; i < 6; i++) {
        uint32_t size = hidden[i % 2];
        struct inputs in = make_inputs(&shapes[i / 2]);
        struct ops_rng rng = ops_rng_of(77 + i);
        uint32_t count = 2 * in.shape.num_heads;
        assert_true(count <= GATES_MAX);
        float *weight = bf16_values(&rng, (size_t)count * size, 0.1f);
        float *x = bf16_values(&rng, (size_t)DECODES * size, 3), gates[DECODES * GATES_MAX];
        float *norm = bf16_values(&rng, size, 1);
        find_gates(gates, weight, x, norm, count, size);
        const struct matrix_slice part = {.source = {.data = weight},
                                          .dtype = DTYPE_F32,
                                          .rows = count,
                                          .cols = size,
                                          .row_stride = size};
        struct linear *linear =
            linear_of(backend, &(struct linear_spec){&part, NULL, 1, WEIGHTS_NATIVE});
        float *want = decode_on(backend, &in, gates, NULL, x, norm, size);
        float *got = decode_on(backend, &in, gates, linear, x, norm, size);
        assert_true(ops_nmse_f32(got, want, DECODES * in.width) <= BF16_NMSE);
        backend->ops->linear_destroy(backend, linear);
        float *all[] = {want, got, norm, x, weight};
        for (size_t k = 0; k < ARRAY_LEN(all); k++) free(all[k]);
        free_inputs(&in);
    }
}

static float *sigmoid_mul_on(struct backend *backend, const float *x, const float *gate,
                             uint32_t rows, uint32_t cols, bool is_per_row) {
    uint32_t stride = is_per_row ? 8 : cols;
    struct tensor values = tensor_of(backend, x, (size_t)rows * cols);
    struct tensor gates = tensor_of(backend, gate, (size_t)rows * stride);
    const struct sigmoid_mul_args args = {values.dev, gates.dev, rows, cols, stride, is_per_row};
    backend->ops->sigmoid_mul(backend, &args);
    float *out = tensor_read(&values);
    tensor_free(&values);
    tensor_free(&gates);
    return out;
}

static void test_sigmoid_mul(void **state) {
    const struct device_pair *pair = *state;
    enum { ROWS = 5, COLS = 1032 };
    struct ops_rng rng = ops_rng_of(1);
    float *x = bf16_values(&rng, ROWS * COLS, 2), *gate = bf16_values(&rng, ROWS * COLS, 20);
    gate[0] = 1e30f, gate[1] = -1e30f;
    round_to_bf16(gate, 2);
    for (int is_per_row = 0; is_per_row < 2; is_per_row++) {
        float *want = sigmoid_mul_on(pair->scalar, x, gate, ROWS, COLS, is_per_row);
        float *got = sigmoid_mul_on(pair->device, x, gate, ROWS, COLS, is_per_row);
        assert_true(ops_nmse_f32(got, want, ROWS * COLS) <= 2 * BF16_NMSE);
        free(want);
        free(got);
    }
    free(x);
    free(gate);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_by_token),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_computed_gates),
        cmocka_unit_test(test_sigmoid_mul),
    };
    return device_pair_run(argc, argv, "cuda_delta", tests, ARRAY_LEN(tests));
}
