/* Pause, step, go on. No threads: what a waiting engine's thread is told is asked for directly. */
#include "server/observe/engine_gate.h"
#include "support/cmocka_all.h"

static uint32_t count_steps(struct engine_gate *gate, uint32_t max) {
    uint32_t count = 0;
    while (count < max && engine_gate_may_step(gate, true)) count++;
    return count;
}

static void test_open_until_paused(void **state) {
    (void)state;
    struct engine_gate *gate = engine_gate_create();
    assert_non_null(gate);
    assert_int_equal(count_steps(gate, 5), 5);
    assert_false(engine_gate_is_paused(gate));
    engine_gate_pause(gate);
    assert_true(engine_gate_is_paused(gate));
    assert_int_equal(count_steps(gate, 5), 0);
    engine_gate_open(gate);
    assert_int_equal(count_steps(gate, 5), 5);
    engine_gate_destroy(gate);
}

static void test_allowed_steps_add_up(void **state) {
    (void)state;
    struct engine_gate *gate = engine_gate_create();
    assert_non_null(gate);
    engine_gate_allow(gate, 2); // also pauses
    engine_gate_allow(gate, 1);
    assert_int_equal(count_steps(gate, 9), 3);
    engine_gate_allow(gate, 4);
    engine_gate_pause(gate); // takes back what was not used
    assert_int_equal(count_steps(gate, 9), 0);
    engine_gate_destroy(gate);
}

// An engine without work waits for some, however long: it neither spins nor uses up steps.
static void test_without_work_no_step_is_counted(void **state) {
    (void)state;
    struct engine_gate *gate = engine_gate_create();
    assert_non_null(gate);
    engine_gate_allow(gate, 1);
    for (int i = 0; i < 3; i++) assert_true(engine_gate_may_step(gate, false));
    assert_int_equal(count_steps(gate, 9), 1);
    assert_true(engine_gate_may_step(gate, false));
    engine_gate_destroy(gate);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_until_paused),
        cmocka_unit_test(test_allowed_steps_add_up),
        cmocka_unit_test(test_without_work_no_step_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
