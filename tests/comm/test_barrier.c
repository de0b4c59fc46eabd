// Where ranks meet on the host: the smallest of their numbers, the end of waiting, wakeups with a
// limit.
#include <pthread.h>
#include <stdint.h>

#include "comm/barrier.h"
#include "support/cmocka_all.h"

enum { RANKS = 3, ROUNDS = 50 };

static struct barrier barrier;
static uint64_t found[RANKS][ROUNDS];

static uint64_t value_of(uint32_t rank, uint32_t round) {
    return 100 + (rank * 7 + round * 3) % 11;
}

static void *meet(void *arg) {
    uint32_t rank = *(uint32_t *)arg;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        found[rank][round] = barrier_minimum(&barrier, rank, RANKS, 0, value_of(rank, round));
    }
    return NULL;
}

static void test_all_get_the_smallest(void **state) {
    (void)state;
    pthread_t threads[RANKS];
    uint32_t ranks[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        ranks[rank] = rank;
        assert_int_equal(pthread_create(&threads[rank], NULL, meet, &ranks[rank]), 0);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) pthread_join(threads[rank], NULL);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t want = UINT64_MAX;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            if (value_of(rank, round) < want) want = value_of(rank, round);
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            assert_int_equal(found[rank][round], want);
        }
    }
}

static void *wait_alone(void *arg) {
    struct barrier *other = arg;
    (void)barrier_minimum(other, 0, RANKS, 0, 1);
    return NULL;
}

// The others never come.
static void test_a_failure_ends_waiting(void **state) {
    (void)state;
    static struct barrier other;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_alone, &other), 0);
    while (!atomic_load(&other.num_arrived)) continue;
    barrier_fail(&other);
    pthread_join(thread, NULL);
    assert_int_equal(barrier_minimum(&other, 1, RANKS, 0, 5) <= 5, 1);
}

static void test_a_bell_with_a_limit(void **state) {
    (void)state;
    struct wakeup wakeup = {0};
    assert_false(wakeup_wait_for(&wakeup, 0, 0, 1e-3));
    wakeup_signal(&wakeup);
    assert_true(wakeup_wait_for(&wakeup, 0, 0, 1e-3));
    assert_false(wakeup_wait_for(&wakeup, 1, 1e-4, 1e-3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_get_the_smallest),
        cmocka_unit_test(test_a_failure_ends_waiting),
        cmocka_unit_test(test_a_bell_with_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
