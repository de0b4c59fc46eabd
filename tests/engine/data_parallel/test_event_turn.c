// Who may deliver events when several engines want to. A turn that is broken lets somebody in
// early; one that works passes however slow the machine is.
#include "engine/event_turn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "support/cmocka_all.h"

enum { NUM_THREADS = 4, A_WHILE_US = 20000 };

static struct event_turn turn;
static atomic_int num_inside, num_passed;

static void *pass(void *unused) {
    (void)unused;
    event_turn_enter(&turn);
    assert_int_equal(atomic_fetch_add(&num_inside, 1), 0); // one at a time
    usleep(1000);
    atomic_fetch_sub(&num_inside, 1);
    atomic_fetch_add(&num_passed, 1);
    event_turn_leave(&turn);
    return NULL;
}

static void start(pthread_t threads[NUM_THREADS]) {
    assert_int_equal(event_turn_init(&turn, NULL), OK);
    atomic_store(&num_passed, 0);
    for (int i = 0; i < NUM_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, pass, NULL), 0);
    }
}

static void end(pthread_t threads[NUM_THREADS]) {
    for (int i = 0; i < NUM_THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&num_passed), NUM_THREADS);
    event_turn_fini(&turn);
}

static void test_one_passes_each_time_somebody_waits(void **state) {
    (void)state;
    pthread_t threads[NUM_THREADS];
    unsigned num_signals = 0;
    start(threads);
    for (int i = 0; i < NUM_THREADS; i++) {
        usleep(A_WHILE_US);
        assert_int_equal(atomic_load(&num_passed), i);
        assert_int_equal(event_turn_num_passed(&turn), i);
        event_turn_wait(&turn, &num_signals, -1);
        assert_int_equal(atomic_load(&num_inside), 0);
        assert_int_equal(event_turn_num_passed(&turn), i + 1);
    }
    end(threads);
}

static void test_an_open_gate_lets_all_pass_one_by_one(void **state) {
    (void)state;
    pthread_t threads[NUM_THREADS];
    start(threads);
    event_turn_open(&turn);
    end(threads);
}

static void *ring(void *unused) {
    (void)unused;
    event_turn_signal(&turn);
    return NULL;
}

static void test_waits_end_by_a_ring_or_the_deadline(void **state) {
    (void)state;
    unsigned num_signals = 0;
    pthread_t thread;
    assert_int_equal(event_turn_init(&turn, NULL), OK);
    assert_int_equal(pthread_create(&thread, NULL, ring, NULL), 0);
    event_turn_wait(&turn, &num_signals, -1);
    assert_int_equal(num_signals, 1);
    pthread_join(thread, NULL);
    event_turn_signal(&turn); // before the wait
    event_turn_wait(&turn, &num_signals, -1);
    assert_int_equal(num_signals, 2);
    double begin = clock_seconds();
    event_turn_wait(&turn, &num_signals, begin + 0.01);
    assert_int_equal(num_signals, 2);
    assert_true(clock_seconds() >= begin + 0.01);
    event_turn_fini(&turn);
}

static void test_an_engine_alone_has_no_gate(void **state) {
    (void)state;
    assert_int_equal(event_turn_init(&turn, NULL), OK); // another's, which is closed
    event_turn_enter(NULL);
    event_turn_enter(NULL); // nobody waits for the one inside
    event_turn_leave(NULL);
    event_turn_leave(NULL);
    assert_int_equal(event_turn_num_passed(&turn), 0);
    event_turn_fini(&turn);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_passes_each_time_somebody_waits),
        cmocka_unit_test(test_an_open_gate_lets_all_pass_one_by_one),
        cmocka_unit_test(test_waits_end_by_a_ring_or_the_deadline),
        cmocka_unit_test(test_an_engine_alone_has_no_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
