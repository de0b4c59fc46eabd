// Kernels that wait for ever or read too early print why and end (wait.cuh, handover.cuh). Each
// runs in its own process, because it breaks the process's device.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/stuck.h"
#include "backend/device_list.h"
#include "support/cmocka_all.h"

enum { SKIPPED = 77, ENDED_WELL = 3, TEXT_MAX = 1 << 16 };

static void run_child(enum stuck_kind kind, int out) {
    dup2(out, STDOUT_FILENO);
    cudaError_t error = stuck_run(kind);
    fflush(stdout);
    _exit(error ? 0 : ENDED_WELL);
}

static void expect_said(enum stuck_kind kind, const char *words) {
    static char text[TEXT_MAX];
    int ends[2], status = 0;
    size_t length = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) run_child(kind, ends[1]);
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], text + length, sizeof text - 1 - length)) > 0;) {
        length += (size_t)n;
    }
    text[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    print_message("%s", text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    if (!strstr(text, words)) fail_msg("want \"%s\"", words);
}

static void test_a_barrier_that_nobody_arrives_at(void **state) {
    (void)state;
    expect_said(STUCK_BARRIER, "stuck.cu: block 0, warp 1, lane 0 waits for what nobody brings, 7: "
                               "wants 0x0, sees 0x");
}

static void test_a_value_that_nobody_stores(void **state) {
    (void)state;
    expect_said(STUCK_FLAGGED, "stuck.cu: block 0, warp 0, lane 0 waits for a split of unit 42: "
                               "wants 0x5, sees 0x0");
}

static void test_a_write_before_the_wait(void **state) {
    (void)state;
    expect_said(STUCK_HASTY, "stuck.cu: block 0, warp 0, lane 0 breaks rule 2: wants 0x1, sees 0x");
}

// The parent must not have initialised CUDA before it forks, so a child checks whether there is a
// device.
static bool has_device(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct err err = {0};
        enum status found = device_cuda.available(&err);
        if (found) print_message("skipped: %s\n", err.message);
        _exit(found ? 1 : 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_barrier_that_nobody_arrives_at),
        cmocka_unit_test(test_a_value_that_nobody_stores),
        cmocka_unit_test(test_a_write_before_the_wait),
    };
    if (!has_device()) return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
