/* Latent attention of a shape that the device has no kernels for is refused by the plan, which
 * reads no weights: so `inspect` says it too. */
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_list.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

// ---- in place of src/backend's: a GPU that computes as the CPU does ----

static enum status fake_available(struct err *err) {
    (void)err;
    return OK;
}

static enum status check_shape(const struct backend *backend, const struct latent_shape *shape,
                               struct err *err) {
    (void)backend;
    return err_set(err, ERR_UNSUPPORTED, "%u heads and latents of %u", shape->num_heads,
                   shape->rank);
}

static struct backend_latent latent; // has no `create`: it must not be called

static enum status fake_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    enum status status = cpu_backend_create(out, options, err);
    if (status) return status;
    latent = *(*out)->latent;
    latent.check_shape = check_shape;
    latent.create = NULL;
    (*out)->latent = &latent;
    return OK;
}

// Replaces the device of src/backend.
const struct device_kind device_cuda = {
    .name = "cuda", .title = "GPU", .available = fake_available, .create = fake_create};

// ---- tests ----

#define FOLDER "tests/reference/data/deepseek-v3"

static void test_the_plan_refuses(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    options.model = FOLDER;
    options.device = "cuda";
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_UNSUPPORTED);
    assert_string_equal(error.message, FOLDER "/config.json: 4 heads and latents of 48");
    char *text = NULL;
    error = (struct nvllm_error){0};
    assert_int_equal(nvllm_inspect(&options, &text, &error), NVLLM_ERR_UNSUPPORTED);
    assert_string_equal(error.message, FOLDER "/config.json: 4 heads and latents of 48");
}

static void test_other_models_run_there(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    options.device = "cuda";
    if (nvllm_engine_create(&engine, &options, &error)) fail_msg("%s", error.message);
    nvllm_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_plan_refuses),
        cmocka_unit_test(test_other_models_run_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
