/* Layers whose keys and values have different shapes on a device without them, which
 * plain_backend.c is. */
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

static void test_a_device_without_them_refuses_by_name(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    options.device = "cuda"; // the plain backend replaces it
    options.max_model_len = 40; // the windows have no effect, which plain has not either
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_UNSUPPORTED);
    assert_string_equal(error.message,
                        "models/tiny-qwen3/config.json: layers whose keys and values have "
                        "different shapes are not supported on the device plain");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_device_without_them_refuses_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
