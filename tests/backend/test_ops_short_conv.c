// Gated short convolutions against double precision, with guard bytes around every output. Cut into
// steps, with other sequences beside it, from a snapshot and with more threads they must give the
// same bits.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops_util.h"

enum { TOKENS = 9, CHANNELS = 520, SLOTS = 3 };

struct run {
    struct backend *backend;
    float *bcx, *taps, *out, *states;
    size_t slot_floats;
};

static struct run run_create(const char *isa, int threads) {
    struct run run = {.backend = ops_backend(isa, threads, DTYPE_BF16),
                      .bcx = ops_guard_alloc((size_t)TOKENS * 3 * CHANNELS),
                      .taps = ops_guard_alloc(SHORT_CONV_TAPS * CHANNELS),
                      .out = ops_guard_alloc(TOKENS * CHANNELS),
                      .slot_floats = short_conv_floats(CHANNELS)};
    run.states = ops_guard_alloc(SLOTS * run.slot_floats); // NaN: nobody clears slots
    struct ops_rng rng = ops_rng_of(1);
    ops_rng_fill(&rng, run.bcx, (size_t)TOKENS * 3 * CHANNELS);
    ops_rng_fill(&rng, run.taps, SHORT_CONV_TAPS * CHANNELS);
    return run;
}

static void run_destroy(struct run *run) {
    ops_guard_free(run->bcx, (size_t)TOKENS * 3 * CHANNELS);
    ops_guard_free(run->taps, SHORT_CONV_TAPS * CHANNELS);
    ops_guard_free(run->out, TOKENS * CHANNELS);
    ops_guard_free(run->states, SLOTS * run->slot_floats);
    backend_destroy(run->backend);
}

// Runs sequences whose queries are the tokens of bcx from `first` on. Sequence s has
// query_start[s + 1] - query_start[s] of them, and ends at context_len[s].
static void convolve(struct run *run, int first, struct step step) {
    step.num_tokens = (uint32_t)step.query_start[step.num_seqs];
    run->backend->recurrent->short_conv(
        run->backend, &(struct short_conv_args){.step = &step,
                                                .states = run->states,
                                                .bcx = run->bcx + (size_t)first * 3 * CHANNELS,
                                                .taps = run->taps,
                                                .out = run->out + (size_t)first * CHANNELS,
                                                .channels = CHANNELS});
}

static void run_whole(struct run *run) {
    int32_t query_start[] = {0, TOKENS}, context_len[] = {TOKENS}, slot[] = {0};
    convolve(run, 0,
             (struct step){.num_seqs = 1,
                           .query_start = query_start,
                           .context_len = context_len,
                           .table_row = slot});
}

static void test_matches_double_precision(void **state) {
    struct run run = run_create(*state, 2);
    double want[TOKENS * CHANNELS];
    run_whole(&run);
    for (int i = 0; i < TOKENS * CHANNELS; i++) {
        int t = i / CHANNELS, channel = i % CHANNELS;
        want[i] = 0;
        for (int tap = 0; tap < SHORT_CONV_TAPS; tap++) {
            int from = t + tap - SHORT_CONV_TAPS + 1;
            if (from < 0) continue;
            const float *row = run.bcx + (size_t)from * 3 * CHANNELS + channel;
            want[i] += (double)run.taps[tap * CHANNELS + channel] * (double)row[0] *
                       (double)row[2 * CHANNELS];
        }
        want[i] *= (double)run.bcx[(t * 3 + 1) * CHANNELS + channel];
    }
    assert_nmse(run.out, want, TOKENS * CHANNELS, 1e-12);
    run_destroy(&run);
}

// Steps of 1, 1, 3 and 4 tokens, beside a padding sequence. The step of 3 leaves a snapshot behind
// its first token, from which the rest goes on again in another slot.
static void test_same_bits_however_steps_are_cut(void **state) {
    struct run whole = run_create(*state, 1), cut = run_create(*state, 3);
    static const int ends[] = {1, 2, 5, TOKENS};
    int32_t snapshot_token[] = {0}, snapshot_slot[] = {2}, from[] = {2, 0};
    run_whole(&whole);
    for (int i = 0, begin = 0; i < 4; begin = ends[i++]) {
        int32_t query_start[] = {0, ends[i] - begin, ends[i] - begin + (i < 3)};
        int32_t context_len[] = {ends[i], 0}, slots[] = {1, 0};
        struct step step = {.num_seqs = i < 3 ? 2 : 1,
                            .query_start = query_start,
                            .context_len = context_len,
                            .table_row = slots,
                            .num_snapshots = i == 2,
                            .snapshot_token = snapshot_token,
                            .snapshot_slot = snapshot_slot};
        convolve(&cut, begin, step);
    }
    ops_assert_same_bits(cut.out, whole.out, TOKENS, CHANNELS, "outputs");
    ops_assert_same_bits(cut.states + cut.slot_floats, whole.states, 1, whole.slot_floats,
                         "states");
    assert_true(isnan(cut.states[0])); // padding writes no slot
    int32_t query_start[] = {0, TOKENS - 3}, context_len[] = {TOKENS}, slots[] = {0};
    for (int i = 0; i < TOKENS * CHANNELS; i++) cut.out[i] = 0;
    convolve(&cut, 3,
             (struct step){.num_seqs = 1,
                           .query_start = query_start,
                           .context_len = context_len,
                           .table_row = slots,
                           .state_row = from});
    ops_assert_same_bits(cut.out + 3 * CHANNELS, whole.out + 3 * CHANNELS, TOKENS - 3, CHANNELS,
                         "behind a snapshot");
    ops_assert_same_bits(cut.states, whole.states, 1, whole.slot_floats, "states behind it");
    run_destroy(&whole);
    run_destroy(&cut);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"a short convolution matches double precision", test_matches_double_precision, ISA_ROWS},
        {"short convolution: same bits however steps are cut", test_same_bits_however_steps_are_cut,
         ISA_ROWS},
    };
    return ops_run("short_conv", cases, ARRAY_LEN(cases));
}
