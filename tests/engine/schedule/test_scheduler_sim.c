/* The KV-simulating fuzz of scheduler and block manager: see scheduler_sim.h.
 * Usage: test_scheduler_sim [cases] [first seed]; 1,000 cases by default, a quarter for each policy
 * with and without the prefix cache. A failure names the seed that repeats it. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/schedule/scheduler_sim.h"
#include "support/cmocka_all.h"

struct fuzz {
    uint64_t num_cases, first_seed;
    enum schedule_policy policy;
    bool enable_prefix_caching;
};

static void print_totals(const struct sim_totals *t) {
    print_message(
        "%llu cases, %llu steps, %llu requests (%llu finished, %llu aborted, %llu of them in a "
        "step, %llu refused), %llu tokens\n",
        (unsigned long long)t->num_cases, (unsigned long long)t->num_steps,
        (unsigned long long)t->num_requests, (unsigned long long)t->num_finished,
        (unsigned long long)t->num_aborts, (unsigned long long)t->num_midstep_aborts,
        (unsigned long long)t->num_refused, (unsigned long long)t->num_tokens);
    print_message("%llu preemptions, %llu cached tokens, %llu deferrals, %llu duplicates, %llu "
                  "evictions, %llu collisions, %llu shared prompts, at most %.3f steps per token\n",
                  (unsigned long long)t->num_preemptions, (unsigned long long)t->num_cached_tokens,
                  (unsigned long long)t->num_deferrals, (unsigned long long)t->num_duplicates,
                  (unsigned long long)t->num_evictions, (unsigned long long)t->num_collisions,
                  (unsigned long long)t->num_shared_prompts, t->worst_step_ratio);
}

static void test_sim(void **state) {
    const struct fuzz *fuzz = *state;
    struct sim_totals totals = {0};
    for (uint64_t i = 0; i < fuzz->num_cases; i++) {
        uint64_t seed = fuzz->first_seed + i;
        const char *fault =
            scheduler_sim_run(seed, fuzz->policy, fuzz->enable_prefix_caching, &totals);
        if (fault) fail_msg("seed %llu: %s", (unsigned long long)seed, fault);
    }
    print_totals(&totals);
    if (fuzz->num_cases < 100) return; // too few to meet everything
    assert_true(totals.num_preemptions > 0 && totals.num_aborts > 0 && totals.num_refused > 0);
    assert_true(totals.num_midstep_aborts > 0 && totals.num_shared_prompts > 0);
    assert_true(totals.num_right > 0 && totals.num_drafts > totals.num_right);
    if (!fuzz->enable_prefix_caching) {
        assert_int_equal(totals.num_cached_tokens, 0);
        return;
    }
    assert_true(totals.num_cached_tokens > 0 && totals.num_deferrals > 0);
    assert_true(totals.num_duplicates > 0 && totals.num_evictions > 0 && totals.num_collisions > 0);
}

int main(int argc, char **argv) {
    uint64_t num_cases = (argc > 1 ? strtoull(argv[1], NULL, 10) : 2000) / 4;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (num_cases == 0) {
        fprintf(stderr, "usage: test_scheduler_sim [cases, at least 4] [first seed]\n");
        return 2;
    }
    struct fuzz fuzzes[] = {
        {num_cases, seed, SCHEDULE_MIXED, true},
        {num_cases, seed, SCHEDULE_MIXED, false},
        {num_cases, seed, SCHEDULE_PREFILL_FIRST, true},
        {num_cases, seed, SCHEDULE_PREFILL_FIRST, false},
    };
    const struct CMUnitTest tests[] = {
        {"mixed with prefix cache", test_sim, NULL, NULL, &fuzzes[0]},
        {"mixed without prefix cache", test_sim, NULL, NULL, &fuzzes[1]},
        {"prefill-first with prefix cache", test_sim, NULL, NULL, &fuzzes[2]},
        {"prefill-first without prefix cache", test_sim, NULL, NULL, &fuzzes[3]},
    };
    return cmocka_run_group_tests_name("scheduler_sim", tests, NULL, NULL);
}
