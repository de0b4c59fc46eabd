// Gated delta nets against double precision, with guard bytes around every output. Cut into steps,
// with other sequences beside it and with more threads they must give the same bits.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops_util.h"

enum { TOKENS_MAX = 40, SLOTS = 3 };

static const struct gated_delta_shape shapes[] = {{2, 2, 16, 16}, {1, 3, 48, 80}, {2, 4, 128, 128}};

static const float eps = 1e-2f;

struct run {
    struct gated_delta_shape shape;
    struct backend *backend;
    uint32_t channels;
    size_t stride, width, slot_floats; // floats of a row of qkvz, of out, of a slot
    float *qkvz, *gates, *out; // [TOKENS_MAX][..]
    float *conv, *decay, *dt_bias, *norm;
    float *states; // [SLOTS][slot_floats]
};

// The run's arrays and their lengths.
struct array {
    float **at;
    size_t count;
};

enum { NUM_ARRAYS = 8, NUM_INPUTS = 6 };

static void list_arrays(struct run *run, struct array out[NUM_ARRAYS]) {
    const struct array arrays[NUM_ARRAYS] = {
        {&run->qkvz, TOKENS_MAX * run->stride},
        {&run->gates, (size_t)TOKENS_MAX * 2 * run->shape.num_heads},
        {&run->conv, (size_t)DELTA_TAPS * run->channels},
        {&run->decay, run->shape.num_heads},
        {&run->dt_bias, run->shape.num_heads},
        {&run->norm, run->shape.value_dim},
        {&run->out, TOKENS_MAX * run->width},
        {&run->states, SLOTS * run->slot_floats}, // NaN: nobody clears slots
    };
    memcpy(out, arrays, sizeof arrays);
}

static struct run run_create(const struct gated_delta_shape *shape, const char *isa, int threads) {
    struct run run = {.shape = *shape, .backend = ops_backend(isa, threads, DTYPE_BF16)};
    run.channels = gated_delta_channels(shape);
    run.width = (size_t)shape->num_heads * shape->value_dim;
    run.stride = run.channels + run.width;
    size_t bytes = run.backend->recurrent->gated_delta_bytes(run.backend, shape);
    assert_int_equal(bytes % 64, 0);
    run.slot_floats = bytes / sizeof(float);
    struct array arrays[NUM_ARRAYS];
    list_arrays(&run, arrays);
    struct ops_rng rng = ops_rng_of(shape->value_dim);
    for (int i = 0; i < NUM_ARRAYS; i++) {
        *arrays[i].at = ops_guard_alloc(arrays[i].count);
        if (i < NUM_INPUTS) ops_rng_fill(&rng, *arrays[i].at, arrays[i].count);
    }
    // A state that lasts for some tokens.
    for (uint32_t i = 0; i < shape->num_heads; i++) run.decay[i] = 0.05f + 0.05f * (float)i;
    return run;
}

static void run_destroy(struct run *run) {
    struct array arrays[NUM_ARRAYS];
    list_arrays(run, arrays);
    for (int i = 0; i < NUM_ARRAYS; i++) ops_guard_free(*arrays[i].at, arrays[i].count);
    backend_destroy(run->backend);
}

// Of the next steps: the token behind which slot 2 keeps the states, and the slot that the only
// sequence goes on from; -1: none, its own.
static int32_t snapshot_token = -1, from_slot = -1;

// A step of sequences whose queries are rows of `qkvz` and `gates` in order; each begins at
// starts[s].
static void attend(struct run *run, const float *qkvz, const float *gates,
                   const int32_t *query_start, const int32_t *starts, const int32_t *slots,
                   uint32_t num_seqs) {
    int32_t context_len[SLOTS];
    for (uint32_t s = 0; s < num_seqs; s++) {
        context_len[s] = starts[s] < 0 ? 0 : starts[s] + query_start[s + 1] - query_start[s];
    }
    struct step step = {.num_tokens = (uint32_t)query_start[num_seqs],
                        .num_seqs = num_seqs,
                        .table_rows = SLOTS,
                        .query_start = (int32_t *)(uintptr_t)query_start,
                        .context_len = context_len,
                        .table_row = (int32_t *)(uintptr_t)slots};
    int32_t kept = 2;
    if (snapshot_token >= 0) {
        step.num_snapshots = 1;
        step.snapshot_token = &snapshot_token;
        step.snapshot_slot = &kept;
    }
    if (from_slot >= 0) step.state_row = &from_slot;
    const struct gated_delta_args args = {.step = &step,
                                          .states = run->states,
                                          .shape = run->shape,
                                          .qkvz = qkvz,
                                          .gates = gates,
                                          .out = run->out,
                                          .conv = run->conv,
                                          .decay = run->decay,
                                          .dt_bias = run->dt_bias,
                                          .norm = run->norm,
                                          .eps = eps};
    run->backend->recurrent->gated_delta(run->backend, &args);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

// silu of the convolution over a channel at token t.
static double convolved(const struct run *run, uint32_t t, uint32_t channel) {
    double sum = 0;
    for (uint32_t tap = 0; tap < DELTA_TAPS; tap++) {
        if (t + tap < DELTA_TAPS - 1) continue; // before the sequence
        size_t row = t + tap - (DELTA_TAPS - 1);
        sum += (double)run->conv[(size_t)tap * run->channels + channel] *
               (double)run->qkvz[row * run->stride + channel];
    }
    return sum * sigmoid(sum);
}

// A head of q or k at token t, of length `factor`.
static void unit_head(const struct run *run, uint32_t t, uint32_t channel, double factor,
                      double *out) {
    double square = 0;
    for (uint32_t i = 0; i < run->shape.key_dim; i++) {
        out[i] = convolved(run, t, channel + i);
        square += out[i] * out[i];
    }
    for (uint32_t i = 0; i < run->shape.key_dim; i++) out[i] *= factor / sqrt(square + 1e-6);
}

static void oracle_head(const struct run *run, uint32_t num_tokens, uint32_t head, double *out) {
    const struct gated_delta_shape *s = &run->shape;
    uint32_t keys = s->key_dim, values = s->value_dim, group = s->num_heads / s->num_key_heads;
    uint32_t q_at = head / group * keys, k_at = s->num_key_heads * keys + q_at;
    uint32_t v_at = 2 * s->num_key_heads * keys + head * values;
    double *state = calloc((size_t)keys * values, sizeof *state), q[256], k[256], result[256];
    assert_non_null(state);
    for (uint32_t t = 0; t < num_tokens; t++) {
        const float *gates = run->gates + (size_t)t * 2 * s->num_heads;
        double a = (double)gates[s->num_heads + head] + (double)run->dt_bias[head], mean = 0;
        double decay = exp(-(double)run->decay[head] * log1p(exp(a)));
        double beta = sigmoid((double)gates[head]);
        unit_head(run, t, q_at, 1 / sqrt(keys), q);
        unit_head(run, t, k_at, 1, k);
        for (uint32_t j = 0; j < values; j++) {
            double known = 0;
            for (uint32_t i = 0; i < keys; i++) known += k[i] * decay * state[i * values + j];
            double delta = beta * (convolved(run, t, v_at + j) - known);
            result[j] = 0;
            for (uint32_t i = 0; i < keys; i++) {
                double *at = &state[i * values + j];
                *at = decay * *at + k[i] * delta;
                result[j] += q[i] * *at;
            }
            mean += result[j] * result[j] / values;
        }
        for (uint32_t j = 0; j < values; j++) {
            size_t at = head * values + j;
            double z = (double)run->qkvz[t * run->stride + run->channels + at];
            out[t * run->width + at] =
                result[j] / sqrt(mean + (double)eps) * (double)run->norm[j] * z * sigmoid(z);
        }
    }
    free(state);
}

static void test_matches_double_precision(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct run run = run_create(&shapes[i], *state, 2);
        double *want = malloc(TOKENS_MAX * run.width * sizeof *want);
        assert_non_null(want);
        for (uint32_t h = 0; h < run.shape.num_heads; h++) oracle_head(&run, TOKENS_MAX, h, want);
        attend(&run, run.qkvz, run.gates, (const int32_t[]){0, TOKENS_MAX}, (const int32_t[]){0},
               (const int32_t[]){1}, 1);
        assert_nmse(run.out, want, TOKENS_MAX * run.width, 1e-11);
        free(want);
        run_destroy(&run);
    }
}

// The first tokens go through slot 2 in four steps, beside a sequence in slot 0 and padding that
// names slot 2 as well.
static void test_same_bits_however_steps_are_cut(void **state) {
    static const int32_t ends[] = {0, 1, 3, 20, 30};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct run whole = run_create(&shapes[i], *state, 1);
        struct run cut = run_create(&shapes[i], *state, 3);
        attend(&whole, whole.qkvz, whole.gates, (const int32_t[]){0, 30}, (const int32_t[]){0},
               (const int32_t[]){1}, 1);
        for (int step = 0; step < 4; step++) {
            int32_t begin = ends[step], num = ends[step + 1] - begin;
            attend(&cut, cut.qkvz + (size_t)begin * cut.stride,
                   cut.gates + (size_t)begin * 2 * cut.shape.num_heads,
                   (const int32_t[]){0, num, num + 1, num + 2}, (const int32_t[]){begin, 0, -1},
                   (const int32_t[]){2, 0, 2}, 3);
            ops_assert_same_bits(cut.out, whole.out + (size_t)begin * whole.width, (size_t)num,
                                 cut.width, "outputs");
        }
        assert_true(isfinite(whole.states[whole.slot_floats])); // it was in slot 1
        ops_assert_same_bits(cut.states + 2 * cut.slot_floats, whole.states + whole.slot_floats, 1,
                             whole.slot_floats, "states");
        run_destroy(&whole);
        run_destroy(&cut);
    }
}

// A sequence that goes on from a snapshot has the bits of one that was never cut, in another slot
// and beside the one that the snapshot is of. Slot 2 keeps the states behind token 20, on the way.
static void test_snapshots_have_the_same_bits(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct run whole = run_create(&shapes[i], *state, 1);
        struct run cut = run_create(&shapes[i], *state, 2);
        attend(&whole, whole.qkvz, whole.gates, (const int32_t[]){0, 30}, (const int32_t[]){0},
               (const int32_t[]){1}, 1);
        snapshot_token = 20;
        attend(&cut, cut.qkvz, cut.gates, (const int32_t[]){0, 25}, (const int32_t[]){0},
               (const int32_t[]){0}, 1);
        snapshot_token = -1;
        from_slot = 2;
        attend(&cut, cut.qkvz + 21 * cut.stride, cut.gates + (size_t)21 * 2 * cut.shape.num_heads,
               (const int32_t[]){0, 9}, (const int32_t[]){21}, (const int32_t[]){1}, 1);
        from_slot = -1;
        ops_assert_same_bits(cut.out, whole.out + 21 * whole.width, 9, cut.width, "outputs");
        ops_assert_same_bits(cut.states + cut.slot_floats, whole.states + whole.slot_floats, 1,
                             whole.slot_floats, "states");
        run_destroy(&whole);
        run_destroy(&cut);
    }
}

int main(void) {
    static const struct ops_case cases[] = {
        {"a gated delta net matches double precision", test_matches_double_precision, ISA_ROWS},
        {"gated delta net: snapshots have the same bits", test_snapshots_have_the_same_bits,
         ISA_ROWS},
        {"gated delta net: same bits however steps are cut", test_same_bits_however_steps_are_cut,
         ISA_ROWS},
    };
    return ops_run("delta", cases, ARRAY_LEN(cases));
}
