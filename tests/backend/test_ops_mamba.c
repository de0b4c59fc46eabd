// Mamba-2 against double precision, with guard bytes around every output. Cut into steps, with
// other sequences beside it and with more threads it must give the same bits.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops_util.h"

enum { TOKENS_MAX = 40, SLOTS = 3 };

// The second one's groups have heads for more than one unit of work.
static const struct mamba_shape shapes[] = {{1, 2, 16, 48}, {2, 10, 32, 16}, {1, 3, 128, 64}};

static const float dt_min = 0.1f, dt_max = 1.5f;

struct run {
    struct mamba_shape shape;
    struct backend *backend;
    uint32_t channels;
    size_t stride, width, slot_floats; // floats of a row of xbcz, of out, of a slot
    float *xbcz, *dt, *out; // [TOKENS_MAX][..]
    float *conv, *conv_bias, *decay, *dt_bias, *skip;
    float *states; // [SLOTS][slot_floats]
};

// The run's arrays and their lengths.
struct array {
    float **at;
    size_t count;
};

enum { NUM_ARRAYS = 9, NUM_INPUTS = 7 };

static void list_arrays(struct run *run, struct array out[NUM_ARRAYS]) {
    uint32_t heads = run->shape.num_heads;
    const struct array arrays[NUM_ARRAYS] = {
        {&run->xbcz, TOKENS_MAX * run->stride},
        {&run->dt, (size_t)TOKENS_MAX * heads},
        {&run->conv, (size_t)DELTA_TAPS * run->channels},
        {&run->conv_bias, run->channels},
        {&run->decay, heads},
        {&run->dt_bias, heads},
        {&run->skip, heads},
        {&run->out, TOKENS_MAX * run->width},
        {&run->states, SLOTS * run->slot_floats}, // NaN: nobody clears slots
    };
    memcpy(out, arrays, sizeof arrays);
}

static struct run run_create(const struct mamba_shape *shape, const char *isa, int threads) {
    struct run run = {.shape = *shape, .backend = ops_backend(isa, threads, DTYPE_BF16)};
    run.channels = mamba_channels(shape);
    run.width = (size_t)shape->num_heads * shape->head_dim;
    run.stride = run.channels + run.width;
    size_t bytes = run.backend->recurrent->mamba_bytes(run.backend, shape);
    assert_int_equal(bytes % 64, 0);
    run.slot_floats = bytes / sizeof(float);
    struct array arrays[NUM_ARRAYS];
    list_arrays(&run, arrays);
    struct ops_rng rng = ops_rng_of(shape->head_dim);
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

// A step of sequences whose queries are the rows from `row` on; each begins at starts[s].
static void attend(struct run *run, size_t row, const int32_t *query_start, const int32_t *starts,
                   const int32_t *slots, uint32_t num_seqs) {
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
    const struct mamba_args args = {.step = &step,
                                    .states = run->states,
                                    .shape = run->shape,
                                    .xbcz = run->xbcz + row * run->stride,
                                    .dt = run->dt + row * run->shape.num_heads,
                                    .out = run->out,
                                    .conv = run->conv,
                                    .conv_bias = run->conv_bias,
                                    .decay = run->decay,
                                    .dt_bias = run->dt_bias,
                                    .skip = run->skip,
                                    .dt_min = dt_min,
                                    .dt_max = dt_max};
    run->backend->recurrent->mamba(run->backend, &args);
}

static double silu(double x) {
    return x / (1 + exp(-x));
}

// silu of the convolution over a channel at token t.
static double convolved(const struct run *run, uint32_t t, uint32_t channel) {
    double sum = (double)run->conv_bias[channel];
    for (uint32_t tap = 0; tap < DELTA_TAPS; tap++) {
        if (t + tap < DELTA_TAPS - 1) continue; // before the sequence
        size_t row = t + tap - (DELTA_TAPS - 1);
        sum += (double)run->conv[(size_t)tap * run->channels + channel] *
               (double)run->xbcz[row * run->stride + channel];
    }
    return silu(sum);
}

static void oracle_head(const struct run *run, uint32_t num_tokens, uint32_t head, double *out) {
    const struct mamba_shape *s = &run->shape;
    uint32_t states = s->state_dim, values = s->head_dim,
             group = head / (s->num_heads / s->num_groups);
    uint32_t b_at = s->num_heads * values + group * states, c_at = b_at + s->num_groups * states;
    double *state = calloc((size_t)states * values, sizeof *state);
    assert_non_null(state);
    for (uint32_t t = 0; t < num_tokens; t++) {
        double dt = (double)run->dt[(size_t)t * s->num_heads + head] + (double)run->dt_bias[head];
        dt = fmin(fmax(log1p(exp(dt)), (double)dt_min), (double)dt_max);
        double decay = exp(-(double)run->decay[head] * dt);
        for (uint32_t j = 0; j < values; j++) {
            double x = convolved(run, t, head * values + j), sum = (double)run->skip[head] * x;
            for (uint32_t i = 0; i < states; i++) {
                double *at = &state[i * values + j];
                *at = decay * *at + convolved(run, t, b_at + i) * dt * x;
                sum += convolved(run, t, c_at + i) * *at;
            }
            size_t at = head * values + j;
            double z = (double)run->xbcz[t * run->stride + run->channels + at];
            out[t * run->width + at] = sum * silu(z);
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
        attend(&run, 0, (const int32_t[]){0, TOKENS_MAX}, (const int32_t[]){0},
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
        attend(&whole, 0, (const int32_t[]){0, 30}, (const int32_t[]){0}, (const int32_t[]){1}, 1);
        for (int step = 0; step < 4; step++) {
            int32_t begin = ends[step], num = ends[step + 1] - begin;
            attend(&cut, (size_t)begin, (const int32_t[]){0, num, num + 1, num + 2},
                   (const int32_t[]){begin, 0, -1}, (const int32_t[]){2, 0, 2}, 3);
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
// The second step is shorter than the convolution.
static void test_snapshots_have_the_same_bits(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct run whole = run_create(&shapes[i], *state, 1);
        struct run cut = run_create(&shapes[i], *state, 2);
        attend(&whole, 0, (const int32_t[]){0, 30}, (const int32_t[]){0}, (const int32_t[]){1}, 1);
        snapshot_token = 20;
        attend(&cut, 0, (const int32_t[]){0, 25}, (const int32_t[]){0}, (const int32_t[]){0}, 1);
        snapshot_token = -1;
        from_slot = 2;
        attend(&cut, 21, (const int32_t[]){0, 2}, (const int32_t[]){21}, (const int32_t[]){1}, 1);
        from_slot = -1;
        ops_assert_same_bits(cut.out, whole.out + 21 * whole.width, 2, cut.width, "outputs");
        attend(&cut, 23, (const int32_t[]){0, 7}, (const int32_t[]){23}, (const int32_t[]){1}, 1);
        ops_assert_same_bits(cut.out, whole.out + 23 * whole.width, 7, cut.width, "outputs");
        ops_assert_same_bits(cut.states + cut.slot_floats, whole.states + whole.slot_floats, 1,
                             whole.slot_floats, "states");
        run_destroy(&whole);
        run_destroy(&cut);
    }
}

int main(void) {
    static const struct ops_case cases[] = {
        {"Mamba-2 matches double precision", test_matches_double_precision, ISA_ROWS},
        {"Mamba-2: snapshots have the same bits", test_snapshots_have_the_same_bits, ISA_ROWS},
        {"Mamba-2: same bits however steps are cut", test_same_bits_however_steps_are_cut,
         ISA_ROWS},
    };
    return ops_run("mamba", cases, ARRAY_LEN(cases));
}
