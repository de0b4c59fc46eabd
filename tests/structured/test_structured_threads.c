// Sequences of one automaton in several threads: each follows its own text and sees the masks that
// it would see alone.
#include <pthread.h>
#include <string.h>

#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

enum { NUM_THREADS = 4, NUM_ROUNDS = 30, STEPS_MAX = 30 };

struct worker {
    struct automaton *automaton;
    uint64_t random_state;
    size_t num_faults, num_steps;
};

// The mask has a bit where the token can be taken.
static void follow(struct worker *worker) {
    const struct vocabulary *vocabulary = automaton_vocabulary(worker->automaton);
    struct matcher matcher;
    if (matcher_init(&matcher, worker->automaton, NULL)) {
        worker->num_faults++;
        return;
    }
    for (int step = 0; step < STEPS_MAX && !matcher.ended; step++) {
        uint32_t words[16];
        worker->num_faults += matcher_mask(&matcher, words, NULL, NULL) != OK;
        for (int tries = 0; tries < 200; tries++) {
            uint32_t token = fixture_below(&worker->random_state, vocabulary->num_tokens);
            bool allowed = words[token / 32] >> (token % 32) & 1;
            if (!allowed && tries % 8) continue;
            bool taken = matcher_take(&matcher, (int32_t)token, NULL) == OK;
            worker->num_faults += taken != allowed;
            worker->num_steps += taken;
            if (taken) break;
        }
    }
    matcher_fini(&matcher);
}

static void *run(void *arg) {
    struct worker *worker = arg;
    for (int round = 0; round < NUM_ROUNDS; round++) follow(worker);
    automaton_release(worker->automaton);
    return NULL;
}

static void shared_automaton(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    struct automaton *automaton = fixture_run(fixture_json_grammar(0, 40, 9), vocabulary);
    struct worker workers[NUM_THREADS];
    pthread_t threads[NUM_THREADS];
    for (size_t i = 0; i < NUM_THREADS; i++) {
        workers[i] = (struct worker){.automaton = automaton, .random_state = i};
        automaton_hold(automaton);
        assert_int_equal(pthread_create(&threads[i], NULL, run, &workers[i]), 0);
    }
    automaton_release(automaton); // the last thread destroys it
    for (size_t i = 0; i < NUM_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].num_faults, 0);
        assert_in_range(workers[i].num_steps, 50, NUM_ROUNDS * STEPS_MAX);
    }
    vocabulary_destroy(vocabulary);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_automaton)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
