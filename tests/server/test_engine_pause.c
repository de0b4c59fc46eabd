/* Pause, step, go on. No threads: what a waiting engine's thread is told is asked for directly. */
#include "server/observe/engine_pause.h"
#include "support/cmocka_all.h"

static uint32_t count_steps(struct engine_pause *pause, uint32_t max) {
    uint32_t count = 0;
    while (count < max && engine_pause_may_step(pause, true)) count++;
    return count;
}

static void test_open_until_paused(void **state) {
    (void)state;
    struct engine_pause *pause = engine_pause_create();
    assert_non_null(pause);
    assert_int_equal(count_steps(pause, 5), 5);
    assert_false(engine_pause_is_on(pause));
    engine_pause_begin(pause);
    assert_true(engine_pause_is_on(pause));
    assert_int_equal(count_steps(pause, 5), 0);
    engine_pause_end(pause);
    assert_int_equal(count_steps(pause, 5), 5);
    engine_pause_destroy(pause);
}

static void test_allowed_steps_add_up(void **state) {
    (void)state;
    struct engine_pause *pause = engine_pause_create();
    assert_non_null(pause);
    engine_pause_allow(pause, 2); // also pauses
    engine_pause_allow(pause, 1);
    assert_int_equal(count_steps(pause, 9), 3);
    engine_pause_allow(pause, 4);
    engine_pause_begin(pause); // takes back what was not used
    assert_int_equal(count_steps(pause, 9), 0);
    engine_pause_destroy(pause);
}

// An engine without work waits for some, however long: it neither spins nor uses up steps.
static void test_without_work_no_step_is_counted(void **state) {
    (void)state;
    struct engine_pause *pause = engine_pause_create();
    assert_non_null(pause);
    engine_pause_allow(pause, 1);
    for (int i = 0; i < 3; i++) assert_true(engine_pause_may_step(pause, false));
    assert_int_equal(count_steps(pause, 9), 1);
    assert_true(engine_pause_may_step(pause, false));
    engine_pause_destroy(pause);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_until_paused),
        cmocka_unit_test(test_allowed_steps_add_up),
        cmocka_unit_test(test_without_work_no_step_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
