// The pool's order: small jobs run beside any number of large ones, large ones beside any number of
// small ones.
#include <semaphore.h>
#include <unistd.h>

#include "server/loop/work_pool.h"
#include "support/cmocka_all.h"

enum { THREADS = 4, JOBS = 16 };

struct job {
    struct work work;
    struct fixture *fixture;
    sem_t gate; // it may wait here
};

struct fixture {
    struct work_pool *pool;
    struct job jobs[JOBS];
    sem_t arrived; // a job waits at its gate
    sem_t told; // a job has run
};

static void start(struct fixture *fixture) {
    assert_int_equal(work_pool_create(&fixture->pool, THREADS, NULL), OK);
    assert_int_equal(sem_init(&fixture->arrived, 0, 0), 0);
    assert_int_equal(sem_init(&fixture->told, 0, 0), 0);
    for (size_t i = 0; i < JOBS; i++) sem_init(&fixture->jobs[i].gate, 0, 0);
}

// Runs what waits.
static void stop(struct fixture *fixture) {
    work_pool_destroy(fixture->pool);
    sem_destroy(&fixture->arrived);
    sem_destroy(&fixture->told);
    for (size_t i = 0; i < JOBS; i++) sem_destroy(&fixture->jobs[i].gate);
}

static void add(struct fixture *fixture, size_t index, bool is_large, void (*run)(struct work *)) {
    struct job *job = &fixture->jobs[index];
    job->work = (struct work){.run = run, .is_large = is_large};
    job->fixture = fixture;
    work_pool_add(fixture->pool, &job->work);
}

static void wait_at_gate(struct work *work) {
    struct job *job = (struct job *)(void *)work;
    sem_post(&job->fixture->arrived);
    sem_wait(&job->gate);
}

static void tell(struct work *work) {
    sem_post(&((struct job *)(void *)work)->fixture->told);
}

static void test_small_does_not_wait_for_large(void **state) {
    (void)state;
    static struct fixture fixture;
    start(&fixture);
    for (size_t i = 0; i < 2 * THREADS; i++) add(&fixture, i, true, wait_at_gate);
    for (size_t i = 0; i + 1 < THREADS; i++) sem_wait(&fixture.arrived);
    usleep(20000); // for a large job to take the last thread, if it does
    assert_int_equal(sem_trywait(&fixture.arrived), -1);
    add(&fixture, 2 * THREADS, false, tell);
    sem_wait(&fixture.told);
    for (size_t i = 0; i < 2 * THREADS; i++) sem_post(&fixture.jobs[i].gate);
    stop(&fixture);
}

// Each thread has a small job, and others wait. After the first, one thread runs the large job.
// Hangs where small ones are always first.
static void test_large_is_not_starved(void **state) {
    (void)state;
    static struct fixture fixture;
    start(&fixture);
    for (size_t i = 0; i < THREADS; i++) add(&fixture, i, false, wait_at_gate);
    for (size_t i = 0; i < THREADS; i++) sem_wait(&fixture.arrived);
    for (size_t i = THREADS; i < 2 * THREADS; i++) add(&fixture, i, false, wait_at_gate);
    add(&fixture, 2 * THREADS, true, tell);
    for (size_t i = 0; i < THREADS; i++) sem_post(&fixture.jobs[i].gate);
    sem_wait(&fixture.told);
    for (size_t i = THREADS; i < 2 * THREADS; i++) sem_post(&fixture.jobs[i].gate);
    stop(&fixture);
}

// All threads wait: one that takes large jobs is woken, too.
static void test_large_wakes_a_thread(void **state) {
    (void)state;
    static struct fixture fixture;
    start(&fixture);
    for (size_t i = 0; i < 1000; i++) {
        add(&fixture, 0, true, tell);
        sem_wait(&fixture.told);
    }
    stop(&fixture);
}

static void test_end_runs_what_waits(void **state) {
    (void)state;
    static struct fixture fixture;
    start(&fixture);
    for (size_t i = 0; i < JOBS; i++) add(&fixture, i, i % 2 == 0, tell);
    work_pool_destroy(fixture.pool);
    for (size_t i = 0; i < JOBS; i++) assert_int_equal(sem_trywait(&fixture.told), 0);
    fixture.pool = NULL;
    stop(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_does_not_wait_for_large),
        cmocka_unit_test(test_large_is_not_starved),
        cmocka_unit_test(test_large_wakes_a_thread),
        cmocka_unit_test(test_end_runs_what_waits),
    };
    return cmocka_run_group_tests_name("work_pool", tests, NULL, NULL);
}
