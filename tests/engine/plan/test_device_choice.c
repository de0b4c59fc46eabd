/* Which GPU each rank of each engine takes, from the name of the device on, and what is said where
 * there are too few. */
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_list.h"
#include "backend/gpu_choice.h"
#include "engine/plan/engine_plan.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

// ---- in place of src/backend's: GPUs that compute as the CPU does ----

static uint32_t num_gpus;
static atomic_uint last_gpu; // that was given to a plan
static const struct backend_collective *collective; // of the GPUs

static enum status fake_available(struct err *err) {
    (void)err;
    return OK;
}

static enum status fake_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    *out = NULL;
    struct gpu_choice gpus;
    uint32_t gpu = 0;
    assert_true(gpu_choice_parse(&gpus, "cuda", options->device));
    enum status status = gpu_choice_of_rank(&gpus, options->rank_on_host, num_gpus, &gpu, err);
    if (!status) atomic_store(&last_gpu, gpu);
    if (!status) status = cpu_backend_create(out, options, err);
    if (!status) (*out)->collective = collective;
    return status;
}

// Replaces the device of src/backend.
const struct device_kind device_cuda = {
    .name = "cuda",
    .title = "GPU",
    .has_numbers = true,
    .available = fake_available,
    .create = fake_create,
};

// ---- tests ----

static struct nvllm_engine_options options_of(const char *device, int32_t num_engines) {
    struct nvllm_engine_options options = small_options();
    options.device = device;
    options.data_parallel_size = num_engines;
    return options;
}

static void check_gpu(const char *device, int32_t num_engines, uint32_t engine, uint32_t rank,
                      int32_t world_size, uint32_t want) {
    struct nvllm_engine_options options = options_of(device, num_engines);
    struct engine_plan plan;
    struct err err = {0};
    options.tensor_parallel_size = world_size;
    num_gpus = 6;
    if (engine_plan_make(&plan, &options, engine, rank, &err)) fail_msg("%s", err.message);
    assert_int_equal(atomic_load(&last_gpu), want);
    engine_plan_fini(&plan);
}

static void test_gpus_are_taken_in_the_order_of_engines_and_ranks(void **state) {
    (void)state;
    check_gpu("cuda", 3, 0, 0, 1, 0);
    check_gpu("auto", 3, 2, 0, 1, 2);
    check_gpu("cuda:0", 3, 1, 0, 1, 1);
    check_gpu("cuda:3", 3, 0, 0, 1, 3);
    check_gpu("cuda", 3, 0, 1, 2, 1);
    check_gpu("cuda", 3, 2, 1, 2, 5);
    check_gpu("cuda:2", 3, 1, 0, 2, 4);
}

static void test_listed_gpus_are_taken_in_the_order_of_the_list(void **state) {
    (void)state;
    check_gpu("cuda:4,2", 1, 0, 0, 2, 4);
    check_gpu("cuda:4,2", 1, 0, 1, 2, 2);
    check_gpu("cuda:1,1,1,5", 2, 1, 1, 2, 5);
}

static void test_ranks_may_share_a_gpu(void **state) {
    (void)state;
    struct gpu_choice gpus;
    assert_true(gpu_choice_parse(&gpus, "cuda", "cuda:0,3,0"));
    assert_int_equal(gpu_choice_num_sharing(&gpus, 0), 2);
    assert_int_equal(gpu_choice_num_sharing(&gpus, 3), 1);
    assert_true(gpu_choice_parse(&gpus, "cuda", "cuda:0"));
    assert_int_equal(gpu_choice_num_sharing(&gpus, 0), 1);
}

static void check_refused(const char *device, int32_t num_engines, uint32_t count,
                          const char *want) {
    struct nvllm_engine_options options = options_of(device, num_engines);
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    num_gpus = count;
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_UNSUPPORTED);
    assert_null(engine);
    assert_string_equal(error.message, want);
}

static void test_too_few_gpus_are_refused(void **state) {
    (void)state;
    check_refused("cuda:1", 1, 1,
                  "device cuda: each rank needs a GPU of its own, and there is no GPU 1 (of 1)");
    check_refused("cuda", 2, 1,
                  "device cuda: each rank needs a GPU of its own, and there is no GPU 1 (of 1)");
    check_refused("cuda:0,4", 2, 1, "device cuda: there is no GPU 4 (of 1)");
}

static void test_a_list_has_a_gpu_for_each_rank(void **state) {
    (void)state;
    struct gpu_choice gpus;
    struct err err = {0};
    assert_true(gpu_choice_parse(&gpus, "cuda", "cuda:0,0"));
    assert_int_equal(gpu_choice_check(&gpus, 2, &err), OK);
    assert_int_equal(gpu_choice_check(&gpus, 1, &err), ERR_INVALID);
    assert_string_equal(err.message, "device cuda lists 2 GPUs, but this host has 1 rank");
    assert_int_equal(gpu_choice_check(&gpus, 3, &err), ERR_INVALID);
    assert_true(gpu_choice_parse(&gpus, "cuda", "cuda:5"));
    assert_int_equal(gpu_choice_check(&gpus, 3, &err), OK);
}

static enum status plan_with(const char *comm, struct err *err) {
    struct nvllm_engine_options options = options_of("cuda", 1);
    struct engine_plan plan;
    options.comm = comm;
    num_gpus = 1;
    *err = (struct err){0};
    enum status status = engine_plan_make(&plan, &options, 0, 0, err);
    if (!status) engine_plan_fini(&plan);
    return status;
}

static void test_a_device_has_its_own_library_for_ranks(void **state) {
    (void)state;
    static const struct backend_collective other = {.library = "other"}, same = {.library = "nccl"};
    struct err err;
    collective = &other;
    assert_int_equal(plan_with("nccl", &err), ERR_INVALID);
    assert_string_equal(err.message, "comm is nccl: the device cpu has other");
    assert_int_equal(plan_with("p2p", &err), OK);
    assert_int_equal(plan_with("auto", &err), OK);
    collective = &same;
    assert_int_equal(plan_with("nccl", &err), OK);
    collective = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_are_taken_in_the_order_of_engines_and_ranks),
        cmocka_unit_test(test_listed_gpus_are_taken_in_the_order_of_the_list),
        cmocka_unit_test(test_ranks_may_share_a_gpu),
        cmocka_unit_test(test_too_few_gpus_are_refused),
        cmocka_unit_test(test_a_list_has_a_gpu_for_each_rank),
        cmocka_unit_test(test_a_device_has_its_own_library_for_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
