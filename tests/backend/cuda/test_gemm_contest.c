// Which way wins, with made-up times and noise. The winner is seldom much slower than the best, and
// is found in few runs.
#include "backend/cuda/gemm/gemm_contest.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "support/cmocka_all.h"

enum { WAYS = 13, CONTESTS = 3000 };

// Times in milliseconds. Noise makes a run up to some per cent slower. Runs timed together take
// OVERHEAD more in total.
struct ways {
    double ms[WAYS], noise;
    bool runs[WAYS];
    uint64_t random;
    int num_runs[WAYS];
};
#define OVERHEAD 0.003

static double draw(struct ways *w) {
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(w->random >> 11) / 9007199254740992.0;
}

static float run(void *context, int way, int count) {
    struct ways *w = context;
    if (!w->runs[way]) return GEMM_NEVER_MS;
    double all = OVERHEAD;
    for (int i = 0; i < count; i++) all += w->ms[way] * (1 - log(1 - draw(w)) * w->noise);
    w->num_runs[way] += count;
    return (float)all;
}

static struct gemm_contest contest_of(struct ways *w) {
    return (struct gemm_contest){.num_ways = WAYS, .run = run, .context = w};
}

// The best takes about `ms`, most others up to a third more.
static struct ways ways_make(double ms, double noise, uint64_t seed) {
    struct ways w = {.noise = noise, .random = seed * 2654435761u + 1};
    for (int i = 0; i < WAYS; i++) {
        w.ms[i] = ms * (1 - log(1 - draw(&w)) / 4);
        w.runs[i] = true;
    }
    return w;
}

static double best_of(const struct ways *w) {
    double best = 1e9;
    for (int i = 0; i < WAYS; i++) {
        if (w->runs[i] && w->ms[i] < best) best = w->ms[i];
    }
    return best;
}

static void test_the_winner_is_near_the_best(void **state) {
    (void)state;
    static const double ms[] = {0.005, 0.02, 0.07, 0.3, 5};
    for (size_t k = 0; k < sizeof ms / sizeof *ms; k++) {
        double sum = 0, worst = 0;
        for (uint64_t i = 0; i < CONTESTS; i++) {
            struct ways w = ways_make(ms[k], 0.02, i);
            struct gemm_contest contest = contest_of(&w);
            contest.is_long = ms[k] > 1;
            double behind = w.ms[gemm_contest_winner(&contest)] / best_of(&w) - 1;
            sum += behind;
            if (behind > worst) worst = behind;
        }
        print_message("%g ms: %.2f %% behind the best, at worst %.1f\n", ms[k],
                      100 * sum / CONTESTS, 100 * worst);
        assert_true(sum / CONTESTS < 0.005);
        assert_true(worst < 0.07);
    }
}

// Runs are timed together for up to a tenth of a millisecond, and slow ways drop out.
static void test_few_runs_are_enough(void **state) {
    (void)state;
    static const struct {
        double ms;
        int runs_max; // on average over all ways
    } cases[] = {{0.005, 180}, {0.02, 180}, {0.07, 110}, {0.3, 65}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int num_runs = 0;
        for (uint64_t i = 0; i < CONTESTS; i++) {
            struct ways w = ways_make(cases[k].ms, 0.02, i);
            struct gemm_contest contest = contest_of(&w);
            gemm_contest_winner(&contest);
            for (int j = 0; j < WAYS; j++) num_runs += w.num_runs[j];
        }
        print_message("%g ms: %d runs\n", cases[k].ms, num_runs / CONTESTS);
        assert_true(num_runs / CONTESTS <= cases[k].runs_max);
    }
}

static void test_a_way_far_behind_runs_twice(void **state) {
    (void)state;
    struct ways w = ways_make(0.2, 0.01, 5);
    w.ms[7] = 10 * best_of(&w);
    struct gemm_contest contest = contest_of(&w);
    assert_int_not_equal(gemm_contest_winner(&contest), 7);
    assert_int_equal(w.num_runs[7], 2);
}

// The first way determines how many runs are timed together. If it is slow, the others still get as
// many as they need.
static void test_a_slow_first_way(void **state) {
    (void)state;
    double sum = 0;
    for (uint64_t i = 0; i < CONTESTS; i++) {
        struct ways w = ways_make(0.006, 0.02, i);
        w.ms[0] = 0.4;
        struct gemm_contest contest = contest_of(&w);
        sum += w.ms[gemm_contest_winner(&contest)] / best_of(&w) - 1;
        assert_true(w.num_runs[0] <= 1 + 4 + 1);
    }
    assert_true(sum / CONTESTS < 0.005);
}

static void test_ways_that_do_not_run(void **state) {
    (void)state;
    for (int first = 0; first < WAYS; first++) {
        struct ways w = ways_make(0.02, 0.01, 9);
        for (int i = 0; i < WAYS; i++) w.runs[i] = i == first;
        struct gemm_contest contest = contest_of(&w);
        assert_int_equal(gemm_contest_winner(&contest), first);
    }
    struct ways none = ways_make(0.02, 0.01, 9);
    for (int i = 0; i < WAYS; i++) none.runs[i] = false;
    struct gemm_contest contest = contest_of(&none);
    assert_int_equal(gemm_contest_winner(&contest), -1);
    contest.num_ways = 0;
    assert_int_equal(gemm_contest_winner(&contest), -1);
}

// A way's extra cost counts once per run. Ties go to the first.
static void test_late_ways_and_ties(void **state) {
    (void)state;
    struct ways w = ways_make(0.006, 0, 3);
    for (int i = 0; i < WAYS; i++) w.ms[i] = 0.0060;
    w.ms[4] = 0.0053;
    struct gemm_contest contest = contest_of(&w);
    assert_int_equal(gemm_contest_winner(&contest), 4);
    contest.late_ms[4] = 0.001f;
    assert_int_equal(gemm_contest_winner(&contest), 0);
    w.ms[4] = 0.0060, w.ms[9] = 0.0059;
    assert_int_equal(gemm_contest_winner(&contest), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_winner_is_near_the_best),
        cmocka_unit_test(test_few_runs_are_enough),
        cmocka_unit_test(test_a_way_far_behind_runs_twice),
        cmocka_unit_test(test_a_slow_first_way),
        cmocka_unit_test(test_ways_that_do_not_run),
        cmocka_unit_test(test_late_ways_and_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
