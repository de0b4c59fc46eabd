#include "backend/cuda/gemm/gemm_contest.h"

enum { ROUNDS = 5, RUNS_MAX = 4 };

// Short runs are timed back to back until they take about this long together. A single short run
// would mostly measure its start, and our kernels start before the previous one has ended. Longer
// runs are timed one by one.
static const float runs_ms = 0.1f;

// After each round, a way that is slower than the best by this factor drops out. It is unlikely to
// be the fastest, and with each round less of the difference is noise.
static const float margins[ROUNDS] = {1.3f, 1.15f, 1.07f, 1.07f, 1.07f};

// Per way. Short task: the least time of a run. Long task: the sum of all rounds so far.
struct standings {
    float ms[GEMM_WAYS_MAX];
};

static float least(const struct gemm_contest *c, const struct standings *s) {
    float best = GEMM_NEVER_MS;
    for (int i = 0; i < c->num_ways; i++) best = s->ms[i] < best ? s->ms[i] : best;
    return best;
}

static int runs_for(const struct gemm_contest *c, float ms) {
    if (c->is_long || ms >= runs_ms) return 1;
    int count = (int)(runs_ms / ms) + 1;
    return count < RUNS_MAX ? count : RUNS_MAX;
}

// Runs each way once, which loads its code. Returns how many runs to time together, judged by the
// first way that runs. 0: no way runs.
static int warm_up(const struct gemm_contest *c, struct standings *s) {
    int count = 0;
    for (int i = 0; i < c->num_ways; i++) {
        s->ms[i] = c->run(c->context, i, 1);
        if (s->ms[i] >= GEMM_NEVER_MS || count) continue;
        count = runs_for(c, c->run(c->context, i, RUNS_MAX) / RUNS_MAX);
    }
    return count;
}

// Runs each way in turn, so that slow changes, of clocks above all, affect all of them alike. For a
// short task the least time counts: nothing makes a run too fast, and there are too few runs for a
// median. `anew`: discard earlier times.
static void run_round(const struct gemm_contest *c, struct standings *s, int count, bool anew) {
    for (int i = 0; i < c->num_ways; i++) {
        if (s->ms[i] >= GEMM_NEVER_MS) continue;
        float all = c->run(c->context, i, count), ms = all / (float)count + c->late_ms[i];
        if (all >= GEMM_NEVER_MS) {
            s->ms[i] = GEMM_NEVER_MS;
        } else if (anew) {
            s->ms[i] = ms;
        } else if (c->is_long) {
            s->ms[i] += ms;
        } else if (ms < s->ms[i]) {
            s->ms[i] = ms;
        }
    }
}

// Returns how many ways are left.
static int drop_slow(const struct gemm_contest *c, struct standings *s, float margin) {
    float best = least(c, s);
    int num_left = 0;
    for (int i = 0; i < c->num_ways; i++) {
        if (s->ms[i] > best * margin) s->ms[i] = GEMM_NEVER_MS;
        num_left += s->ms[i] < GEMM_NEVER_MS;
    }
    return num_left;
}

static int first_of_the_best(const struct gemm_contest *c, const struct standings *s) {
    float best = GEMM_NEVER_MS;
    int winner = -1;
    for (int i = 0; i < c->num_ways; i++) {
        if (s->ms[i] >= best * 0.98f) continue;
        best = s->ms[i];
        winner = i;
    }
    return winner;
}

int gemm_contest_winner(const struct gemm_contest *c) {
    struct standings s;
    bool anew = true;
    int count = warm_up(c, &s);
    if (!count) return -1;
    for (int round = 0; round < ROUNDS; round++) {
        run_round(c, &s, count, anew);
        int wanted = runs_for(c, least(c, &s));
        // The first way was so slow that the faster ones were timed too coarsely.
        anew = wanted > count;
        if (anew) count = wanted;
        if (drop_slow(c, &s, margins[round]) <= 1) break;
    }
    return first_of_the_best(c, &s);
}
