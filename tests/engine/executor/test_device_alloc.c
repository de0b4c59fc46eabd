/* What only a device with recorded steps makes the model runner allocate may fail like the rest. */
#include "engine/plan/engine_plan.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"

static enum status create_runner(void *context, struct err *err) {
    const struct engine_plan *plan = context;
    struct weights *weights = NULL;
    struct model_runner *runner = NULL;
    enum status status = weights_open_dummy(&weights, err);
    if (status) return status;
    status = model_runner_create(&runner, &plan->runner, weights, err);
    weights_close(weights);
    model_runner_destroy(runner);
    return status;
}

static void test_runner_when_allocations_fail(void **state) {
    (void)state;
    fake_device_reset();
    struct nvllm_engine_options options = small_options();
    options.device = "cuda";
    options.load_format = "dummy";
    struct engine_plan plan;
    struct err err = {0};
    if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
    const struct alloc_sweep sweep = {.work = create_runner, .context = &plan};
    assert_true(alloc_sweep_run(&sweep) > 50);
    assert_int_equal(fake_device_counts().live, 0);
    engine_plan_fini(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runner_when_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
