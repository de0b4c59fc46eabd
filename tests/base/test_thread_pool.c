// The thread pool: every item exactly once, loops one after the other, more threads than cores,
// several pools at a time, what threads fetch while they wait.
#include "base/thread/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/os/cpu.h"
#include "base/thread/futex.h"
#include "support/cmocka_all.h"
#include "support/odd_float_mode.h"

enum { ITEMS = 1000, THREADS_MAX = 9 };

struct tally {
    atomic_uint runs[ITEMS];
    atomic_uint busy[THREADS_MAX]; // items inside, by thread: never above 1
    atomic_uint overlaps, bad_threads;
    uint32_t num_threads;
};

static void tally_item(void *arg, uint32_t item, uint32_t thread) {
    struct tally *tally = arg;
    if (thread >= tally->num_threads) {
        atomic_fetch_add(&tally->bad_threads, 1);
        return;
    }
    if (atomic_fetch_add(&tally->busy[thread], 1)) atomic_fetch_add(&tally->overlaps, 1);
    atomic_fetch_add(&tally->runs[item], 1);
    atomic_fetch_sub(&tally->busy[thread], 1);
}

static struct thread_pool *pool_of(uint32_t num_threads) {
    struct thread_pool *pool = NULL;
    struct err err = {0};
    if (thread_pool_create(&pool, num_threads, &err) != OK) fail_msg("%s", err.message);
    return pool;
}

static void check_loops(struct thread_pool *pool, uint32_t num_loops, uint32_t num_items) {
    struct tally *tally = calloc(1, sizeof *tally);
    tally->num_threads = thread_pool_num_threads(pool);
    for (uint32_t loop = 0; loop < num_loops; loop++) {
        thread_pool_for(pool, num_items, tally_item, tally);
        for (uint32_t i = 0; i < num_items; i++) {
            if (atomic_load(&tally->runs[i]) != loop + 1) {
                fail_msg("item %u ran %u times in %u loops", i, atomic_load(&tally->runs[i]),
                         loop + 1);
            }
        }
    }
    assert_int_equal(atomic_load(&tally->overlaps), 0);
    assert_int_equal(atomic_load(&tally->bad_threads), 0);
    free(tally);
}

static void test_every_item_once(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
        struct thread_pool *pool = pool_of(threads);
        assert_int_equal(thread_pool_num_threads(pool), threads);
        check_loops(pool, 30, 0);
        check_loops(pool, 30, 1);
        check_loops(pool, 100, 2);
        check_loops(pool, 30, ITEMS);
        thread_pool_destroy(pool);
    }
    thread_pool_destroy(NULL);
}

// Loops after a pause find sleeping workers.
static void test_wakes_sleepers(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(3);
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        check_loops(pool, 2, 64);
    }
    thread_pool_destroy(pool);
}

static void test_created_and_destroyed_idle(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++) thread_pool_destroy(pool_of(4));
}

static void *run_own_pool(void *arg) {
    (void)arg;
    struct thread_pool *pool = pool_of(3);
    check_loops(pool, 200, 50);
    thread_pool_destroy(pool);
    return NULL;
}

static void test_several_pools(void **state) {
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_own_pool, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

struct modes {
    uint64_t of_item[ITEMS];
    atomic_uint num_met; // threads that have come, each to an item of its own
    uint32_t num_threads;
};

static void note_mode(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    struct modes *modes = arg;
    modes->of_item[item] = float_mode_get();
    atomic_fetch_add(&modes->num_met, 1);
    if (item >= modes->num_threads) return;
    while (atomic_load(&modes->num_met) < modes->num_threads) sched_yield();
}

// Of the caller alone and of all threads. Workers inherit the mode of the thread that starts them.
static void test_items_compute_in_the_default_mode(void **state) {
    (void)state;
    static struct modes modes;
    float_mode_set(ODD_FLOAT_MODE);
    bool is_kept = float_mode_get() == ODD_FLOAT_MODE;
    float_mode_set(FLOAT_MODE_DEFAULT);
    if (!is_kept) { // valgrind's processor has no such mode
        print_message("skipped: this processor does not keep the mode\n");
        skip();
    }
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        float_mode_set(ODD_FLOAT_MODE);
        struct thread_pool *pool = pool_of(threads);
        for (uint32_t num_items = 1; num_items < 20; num_items += 9) {
            modes.num_threads = num_items == 1 ? 1 : threads;
            atomic_store(&modes.num_met, 0);
            thread_pool_for(pool, num_items, note_mode, &modes);
            assert_int_equal(float_mode_get(), ODD_FLOAT_MODE);
            for (uint32_t i = 0; i < num_items; i++) {
                assert_int_equal(modes.of_item[i], FLOAT_MODE_DEFAULT);
            }
        }
        thread_pool_destroy(pool);
        float_mode_set(FLOAT_MODE_DEFAULT);
    }
}

enum { SHARE_STEPS = 8 };

// Two threads. The worker is held while it fetches ahead, so that it is late for the next loop.
static struct {
    char shares[2][SHARE_STEPS * THREAD_POOL_AHEAD_STEP];
    atomic_uint fetched[2]; // steps, by share
    atomic_uint met;
    atomic_bool may_go;
    atomic_uint runs[3], thread[3]; // of the loop that the worker is late for, by item
} held;

static void fetch_held(const char *at) {
    bool is_worker = at >= held.shares[1];
    atomic_fetch_add(&held.fetched[is_worker], 1);
    while (is_worker && !atomic_load(&held.may_go)) sched_yield();
}

// Each thread takes one. The worker's ends when the caller has fetched its whole share.
static void meet_item(void *arg, uint32_t item, uint32_t thread) {
    (void)arg, (void)item;
    atomic_fetch_add(&held.met, 1);
    while (atomic_load(&held.met) < 2) sched_yield();
    while (thread == 1 && atomic_load(&held.fetched[0]) < SHARE_STEPS) sched_yield();
}

// Item 1 is the worker's, whom it sets free. It ends when item 2 has begun.
static void late_item(void *arg, uint32_t item, uint32_t thread) {
    (void)arg;
    atomic_store(&held.thread[item], thread);
    atomic_fetch_add(&held.runs[item], 1);
    if (item > 0) atomic_store(&held.may_go, true);
    while (item == 1 && !atomic_load(&held.runs[2])) sched_yield();
}

// Waiting threads fetch, the caller too. A worker stops fetching when a loop begins. Its first
// item, which another thread has taken, runs once.
static void test_fetches_ahead(void **state) {
    (void)state;
    if (cpu_count() < 2) {
        print_message("needs two CPUs\n");
        skip();
    }
    struct thread_pool *pool = pool_of(2);
    struct thread_pool_ahead ahead = {.fetch = fetch_held,
                                      .begin = {held.shares[0]},
                                      .stride = sizeof held.shares[0],
                                      .bytes = sizeof held.shares[0],
                                      .threads_per_share = 1,
                                      .num_threads = 2};
    thread_pool_set_ahead(pool, &ahead);
    thread_pool_for(pool, 2, meet_item, NULL);
    while (!atomic_load(&held.fetched[1])) sched_yield();
    thread_pool_set_ahead(pool, &(struct thread_pool_ahead){0});
    thread_pool_for(pool, 3, late_item, NULL);
    thread_pool_destroy(pool);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(atomic_load(&held.runs[i]), 1);
    assert_int_equal(atomic_load(&held.thread[1]), 0);
    assert_int_equal(atomic_load(&held.thread[2]), 1);
    assert_int_equal(atomic_load(&held.fetched[0]), SHARE_STEPS);
    assert_int_equal(atomic_load(&held.fetched[1]), 1);
}

// A thread spins longer while that pays, and briefly after it did not.
static void test_patience(void **state) {
    (void)state;
    atomic_uint word = 1;
    struct futex_patience patience = {.seconds_max = 7e-6};
    assert_true(futex_spin_patiently(&word, 0, &patience)); // has changed already
    assert_true(patience.seconds == 4e-6);
    assert_true(futex_spin_patiently(&word, 0, &patience));
    assert_true(patience.seconds == 7e-6);
    assert_false(futex_spin_patiently(&word, 1, &patience));
    assert_true(patience.seconds == 2e-6);
    struct futex_patience none = {0};
    assert_true(futex_spin_patiently(&word, 0, &none));
    assert_true(none.seconds == 0);
}

// The items of a grain cover the units, and no item is smaller than asked for.
static void test_grain(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(2);
    assert_int_equal(thread_pool_grain(pool, 160, 1), 10);
    assert_int_equal(thread_pool_grain(pool, 161, 1), 11);
    assert_int_equal(thread_pool_grain(pool, 160, 32), 32);
    assert_int_equal(thread_pool_grain(pool, 0, 0), 1);
    assert_int_equal(thread_pool_grain(pool, 1, 0), 1);
    thread_pool_destroy(pool);
    pool = pool_of(1);
    assert_int_equal(thread_pool_grain(pool, 160, 1), 160);
    thread_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once),
        cmocka_unit_test(test_wakes_sleepers),
        cmocka_unit_test(test_created_and_destroyed_idle),
        cmocka_unit_test(test_several_pools),
        cmocka_unit_test(test_items_compute_in_the_default_mode),
        cmocka_unit_test(test_fetches_ahead),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_grain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
