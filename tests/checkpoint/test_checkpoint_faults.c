// Reading a checkpoint while each of its allocations and mappings fails in turn: ERR_NOMEM, and
// nothing leaks.
#include "checkpoint/model_config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"

static const char model[] = "models/tiny-qwen3";

static enum status load_config(void *context, struct err *err) {
    (void)context;
    struct model_config config = {0};
    struct generation_config generation = {0};
    enum status status = folder_model_config(&config, &generation, model, err);
    model_config_fini(&config);
    return status;
}

static enum status open_file(void *context, struct err *err) {
    (void)context;
    struct safetensors *file = NULL;
    const char *path = "models/tiny-qwen3/model-00002-of-00002.safetensors";
    enum status status = safetensors_open(&file, path, err);
    safetensors_close(file);
    return status;
}

static enum status open_shards(void *context, struct err *err) {
    (void)context;
    struct weights *weights = NULL;
    enum status status = folder_model_weights(&weights, model, err);
    weights_close(weights);
    return status;
}

static enum status take_from_dummy(void *context, struct err *err) {
    (void)context;
    struct weights *weights = NULL;
    struct weight weight;
    const uint64_t shape[2] = {100, 64};
    enum status status = weights_open_dummy(&weights, err);
    if (!status) status = weights_take(weights, "lm_head.weight", 2, shape, &weight, err);
    if (!status) status = weights_take(weights, "model.norm.weight", 1, shape, &weight, err);
    if (!status) status = weights_finish(weights, err);
    weights_close(weights);
    return status;
}

static void sweep(alloc_sweep_fn work) {
    assert_true(alloc_sweep_run(&(struct alloc_sweep){.work = work}) > 0);
}

static void test_model_config(void **state) {
    (void)state;
    sweep(load_config);
}

static void test_safetensors(void **state) {
    (void)state;
    sweep(open_file);
}

static void test_weights(void **state) {
    (void)state;
    sweep(open_shards);
}

static void test_dummy_weights(void **state) {
    (void)state;
    sweep(take_from_dummy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_config),
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_dummy_weights),
    };
    return cmocka_run_group_tests_name("checkpoint_faults", tests, NULL, NULL);
}
