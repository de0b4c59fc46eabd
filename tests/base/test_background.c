// A thread that runs jobs: which comes first, waiting for all of them, a pause, and an end before
// they have run.
#include "base/thread/background.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

#include "support/cmocka_all.h"

enum { JOBS_MAX = 300 };

struct job {
    int number;
    bool waits; // for `gate`, after a post to `begun`
};

struct notes {
    struct background *background;
    sem_t gate, begun;
    int numbers[JOBS_MAX]; // in the order in which the jobs ran
    uint32_t num_run;
};

static void run(void *context, const void *bytes) {
    struct notes *notes = context;
    const struct job *job = bytes;
    if (job->waits) {
        sem_post(&notes->begun);
        sem_wait(&notes->gate);
    }
    notes->numbers[notes->num_run++] = job->number;
}

static void add(struct notes *notes, uint32_t rank, int number, bool waits) {
    const struct job job = {number, waits};
    assert_true(background_add(notes->background, rank, &job));
}

// A job runs, and ends when `gate` is posted. What is added until then has to wait.
static struct notes *begin(void) {
    struct notes *notes = calloc(1, sizeof *notes);
    assert_non_null(notes);
    sem_init(&notes->gate, 0, 0);
    sem_init(&notes->begun, 0, 0);
    notes->background = background_create(run, notes, sizeof(struct job));
    assert_non_null(notes->background);
    assert_int_equal(background_num_left(notes->background), 0);
    background_wait(notes->background); // there is nothing to wait for
    add(notes, 7, 0, true);
    sem_wait(&notes->begun);
    return notes;
}

static void end(struct notes *notes) {
    background_destroy(notes->background);
    sem_destroy(&notes->gate);
    sem_destroy(&notes->begun);
    free(notes);
}

static void test_least_rank_first(void **state) {
    (void)state;
    static const uint32_t ranks[] = {5, 3, 9, 3, 5, 1};
    static const int expected[] = {0, 6, 2, 4, 1, 5, 3}; // of equal ranks the oldest
    struct notes *notes = begin();
    for (int i = 0; i < 6; i++) add(notes, ranks[i], i + 1, false);
    assert_int_equal(background_num_left(notes->background), 7);
    sem_post(&notes->gate);
    background_wait(notes->background);
    assert_int_equal(background_num_left(notes->background), 0);
    assert_int_equal(notes->num_run, 7);
    assert_memory_equal(notes->numbers, expected, sizeof expected);
    add(notes, 0, 8, false); // after a wait it still runs jobs
    background_wait(notes->background);
    assert_int_equal(notes->numbers[7], 8);
    end(notes);
}

static void test_many_jobs_each_once(void **state) {
    (void)state;
    struct notes *notes = begin();
    for (int i = 1; i < JOBS_MAX; i++) add(notes, (uint32_t)i, i, false);
    sem_post(&notes->gate);
    background_wait(notes->background);
    assert_int_equal(notes->num_run, JOBS_MAX);
    for (int i = 0; i < JOBS_MAX; i++) assert_int_equal(notes->numbers[i], i);
    end(notes);
}

// The pause ends when a shorter one begins.
static void test_a_pause(void **state) {
    (void)state;
    enum { LONG = 3600 };
    struct notes *notes = begin();
    background_pause(notes->background, LONG);
    sem_post(&notes->gate);
    while (background_num_left(notes->background)) sched_yield(); // the job goes on
    add(notes, 1, 1, false);
    add(notes, 1, 2, false);
    for (int i = 0; i < 1000; i++) sched_yield();
    assert_int_equal(background_num_left(notes->background), 2);
    background_pause(notes->background, 0);
    background_wait(notes->background);
    assert_int_equal(notes->num_run, 3);
    background_pause(notes->background, LONG);
    add(notes, 1, 3, false);
    end(notes); // does not wait for the pause's end
}

static void *destroy(void *arg) {
    background_destroy(arg);
    return NULL;
}

// The end has begun when only the running job is left. That one ends, and no other begins.
static void test_an_end_drops_what_waits(void **state) {
    (void)state;
    struct notes *notes = begin();
    pthread_t thread;
    add(notes, 1, 1, false);
    add(notes, 2, 2, false);
    assert_int_equal(background_num_left(notes->background), 3);
    assert_int_equal(pthread_create(&thread, NULL, destroy, notes->background), 0);
    while (background_num_left(notes->background) > 1) sched_yield();
    assert_int_equal(notes->num_run, 0);
    sem_post(&notes->gate);
    pthread_join(thread, NULL);
    assert_int_equal(notes->num_run, 1);
    notes->background = NULL;
    end(notes); // NULL is fine
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_rank_first),
        cmocka_unit_test(test_many_jobs_each_once),
        cmocka_unit_test(test_a_pause),
        cmocka_unit_test(test_an_end_drops_what_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
