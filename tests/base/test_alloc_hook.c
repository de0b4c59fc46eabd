// The hook that the fault-injection tests use: it counts allocations, fails the chosen one, and its
// sweep detects a leak and a swallowed failure.
#include "support/alloc_hook.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/cmocka_all.h"

// Keeps the compiler from removing an allocation that nobody reads.
static void *volatile sink;

static void test_counts_every_entry_point(void **state) {
    (void)state;
    void *aligned = NULL;
    long live = alloc_hook_live();
    alloc_hook_reset();
    void *a = sink = malloc(10);
    void *b = sink = calloc(3, 4);
    a = sink = realloc(a, 100000);
    assert_int_equal(posix_memalign(&aligned, 64, 100), 0);
    void *c = sink = aligned_alloc(64, 128);
    char *copy = sink = strdup("inside glibc");
    void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(alloc_hook_count(), 7);
    assert_int_equal(alloc_hook_count_thread(), 7);
    assert_int_equal(alloc_hook_live() - live, 6); // realloc moved one
    free(a);
    free(b);
    free(aligned);
    free(c);
    free(copy);
    munmap(map, 4096);
    assert_int_equal(alloc_hook_live(), live);
    assert_int_equal(alloc_hook_count(), 7);
}

static void *allocate_once(void *unused) {
    (void)unused;
    free(sink = malloc(1));
    return NULL;
}

static void test_tells_threads_apart(void **state) {
    (void)state;
    pthread_t thread;
    alloc_hook_reset();
    assert_int_equal(pthread_create(&thread, NULL, allocate_once, NULL), 0);
    size_t own = alloc_hook_count_thread(); // pthread_create's own
    pthread_join(thread, NULL);
    assert_int_equal(alloc_hook_count_thread(), own);
    assert_true(alloc_hook_count() > own);
}

static void test_fails_one_allocation(void **state) {
    (void)state;
    alloc_hook_fail_at(2, false);
    void *first = sink = malloc(1);
    void *second = sink = malloc(1);
    void *third = sink = malloc(1);
    alloc_hook_disarm();
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    assert_true(alloc_hook_has_failed());
    free(first);
    free(third);
}

static void test_fails_all_after(void **state) {
    (void)state;
    void *old = sink = malloc(1);
    void *aligned = NULL;
    alloc_hook_fail_at(1, true);
    void *a = sink = malloc(1);
    void *b = sink = calloc(1, 1);
    void *c = sink = realloc(old, 1 << 20);
    int d = posix_memalign(&aligned, 64, 64);
    void *e = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    alloc_hook_disarm();
    assert_null(a);
    assert_null(b);
    assert_null(c);
    assert_int_equal(d, ENOMEM);
    assert_ptr_equal(e, MAP_FAILED);
    free(c ? c : old);
    void *after = sink = malloc(1);
    assert_non_null(after);
    free(after);
}

static enum status two_blocks(void *context, struct err *err) {
    (void)context;
    char *a = sink = malloc(1);
    char *b = sink = a ? malloc(1) : NULL;
    free(a);
    if (!b) return err_nomem(err, "two blocks");
    free(b);
    return OK;
}

static void test_sweep_reaches_the_end(void **state) {
    (void)state;
    struct alloc_sweep sweep = {.work = two_blocks};
    assert_int_equal(alloc_sweep_run(&sweep), 2);
}

// The sweep reports a fault as a cmocka failure, so it runs in a group of its own and the group's
// result is checked.
static enum status leaks_on_failure(void *context, struct err *err) {
    char *a = sink = malloc(1);
    char *b = sink = a ? malloc(1) : NULL;
    if (a && !b) *(void **)context = a;
    if (!b) return err_nomem(err, "a leak");
    free(a);
    free(b);
    return OK;
}

static enum status swallows_failure(void *context, struct err *err) {
    (void)context;
    (void)err;
    free(sink = malloc(1));
    return OK;
}

static void *leaked;

static void sweep_of_a_leak(void **state) {
    (void)state;
    alloc_sweep_run(&(struct alloc_sweep){.work = leaks_on_failure, .context = &leaked});
}

static void sweep_of_a_swallowed_failure(void **state) {
    (void)state;
    alloc_sweep_run(&(struct alloc_sweep){.work = swallows_failure});
}

// Runs a test that must fail, without showing its failure.
static bool fails(const struct CMUnitTest *test) {
    FILE *err_before = stderr;
    FILE *out_before = stdout;
    FILE *nowhere = fopen("/dev/null", "w");
    assert_non_null(nowhere);
    stderr = stdout = nowhere;
    int num_failed = _cmocka_run_group_tests("expected to fail", test, 1, NULL, NULL);
    stderr = err_before;
    stdout = out_before;
    fclose(nowhere);
    return num_failed == 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_every_entry_point), cmocka_unit_test(test_tells_threads_apart),
        cmocka_unit_test(test_fails_one_allocation),     cmocka_unit_test(test_fails_all_after),
        cmocka_unit_test(test_sweep_reaches_the_end),
    };
    const struct CMUnitTest must_fail[] = {
        cmocka_unit_test(sweep_of_a_leak),
        cmocka_unit_test(sweep_of_a_swallowed_failure),
    };
    int num_failed = cmocka_run_group_tests_name("alloc_hook", tests, NULL, NULL);
    if (!fails(&must_fail[0])) {
        fprintf(stderr, "the sweep did not see a leak\n");
        num_failed++;
    }
    free(leaked);
    if (!fails(&must_fail[1])) {
        fprintf(stderr, "the sweep did not see a swallowed failure\n");
        num_failed++;
    }
    return num_failed;
}
