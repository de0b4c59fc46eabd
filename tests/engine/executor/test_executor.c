/* The executor over processes of its own: a rank that lives and does nothing keeps it neither from
 * ending nor from being interrupted. The other ranks are this program itself, called as `rank`. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "engine/executor/executor_internal.h"
#include "engine/executor/rank_segment.h"
#include "engine/executor/shm_worker.h"
#include "support/children.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

static const char loads_for_ever[] = "TEST_EXECUTOR_LOADS_FOR_EVER"; // what such a rank finds set

// A rank that says it has loaded, or does not, and then does no command.
static int run_stuck_rank(uint32_t rank) {
    struct rank_segment *segment = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL); // it would outlive a test that is killed
    if (rank_segment_open(&segment, SHM_WORKER_FD, NULL)) return 1;
    while (getenv(loads_for_ever)) pause();
    atomic_store(&segment->reports[rank].stage, RANK_READY);
    wakeup_signal(&segment->reported);
    for (;;) pause();
}

static void test_a_stuck_rank_does_not_keep_the_executor(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.tensor_parallel_size = 2;
    options.worker_program = "/proc/self/exe";
    struct engine_plan plan;
    struct executor *executor = NULL;
    struct err err = {0};
    if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
    if (executor_create(&executor, &plan, &options, &err)) fail_msg("%s", err.message);
    if (executor_load(executor, &options, &err)) fail_msg("%s", err.message);
    // As many commands as may be unfinished: the command to quit has no place.
    const int32_t id = 1;
    for (uint32_t slot = 1; slot <= RANK_COMMANDS; slot++) {
        executor_begin_counts(executor, slot, &id, 1, 1);
    }
    executor_destroy(executor);
    engine_plan_fini(&plan);
    assert_no_children();
}

// Wants an end once this rank has loaded.
static int has_loaded(void *user_data) {
    struct executor *const *executor = user_data;
    return *executor && (*executor)->runner;
}

static void test_loading_is_interrupted_while_another_rank_loads(void **state) {
    (void)state;
    struct executor *executor = NULL;
    const struct nvllm_interrupt interrupt = {.is_wanted = has_loaded, .user_data = &executor};
    struct nvllm_engine_options options = small_options();
    options.tensor_parallel_size = 2;
    options.worker_program = "/proc/self/exe";
    options.interrupt = &interrupt;
    struct engine_plan plan;
    struct err err = {0};
    assert_int_equal(setenv(loads_for_ever, "1", 1), 0);
    if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
    if (executor_create(&executor, &plan, &options, &err)) fail_msg("%s", err.message);
    assert_int_equal(executor_load(executor, &options, &err), ERR_INTERRUPTED);
    executor_destroy(executor);
    engine_plan_fini(&plan);
    assert_int_equal(unsetenv(loads_for_ever), 0);
    assert_no_children();
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "rank") == 0) return run_stuck_rank((uint32_t)atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stuck_rank_does_not_keep_the_executor),
        cmocka_unit_test(test_loading_is_interrupted_while_another_rank_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
