// Every allocation of setting and resolving parameters failing in turn: ERR_NOMEM, nothing leaked.
#include "base/json/jread.h"
#include "engine/params/params.h"
#include "engine/step/sampling.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static const struct model_config config = {
    .vocab_size = 100, .eos_token_ids = (int32_t[]){5}, .num_eos_token_ids = 1};

static enum status set_lists(void *context, struct err *err) {
    (void)context;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    enum status status = params_set_sampling(&params, "stop", "[\"one\", \"and two\"]", err);
    if (!status) status = params_set_sampling(&params, "stop_token_ids", "[1, 2, 3]", err);
    if (!status) status = params_set_sampling(&params, "logit_bias", "{\"5\": -1.5}", err);
    if (!status) status = params_set_sampling(&params, "stop", "[\"a longer list\", \"b\"]", err);
    json_t *json = NULL;
    if (!status) status = jread_request(&json, "[\"x\", 7]", 8, "a list", err);
    if (!status) status = params_set_sampling_json(&params, "stop", json_array_get(json, 0), err);
    // Refused: the sentence and the length need the text.
    if (!status) {
        status = params_set_sampling_json(&params, "stop", json_array_get(json, 1), err);
        if (status == ERR_INVALID) status = OK;
    }
    json_decref(json);
    params_fini_sampling(&params);
    return status;
}

static enum status resolve_sampling(void *context, struct err *err) {
    (void)context;
    static const char *const stops[] = {"END", "\n\n"};
    static const int32_t ids[] = {7, 8};
    static const struct nvllm_logit_bias biases[] = {{3, 1.0f}, {4, -2.0f}};
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    params.stop = stops;
    params.num_stop = 2;
    params.stop_token_ids = ids;
    params.num_stop_token_ids = 2;
    params.logit_bias = biases;
    params.num_logit_bias = 2;
    params.repetition_penalty = 1.2f;
    params.min_tokens = 2;
    params.frequency_penalty = 0.5f;
    struct sampling sampling = {0};
    enum status status = sampling_init(&sampling, &params, NULL, &config, NULL, err);
    sampling_fini(&sampling);
    return status;
}

static void sweep(alloc_sweep_fn work) {
    assert_true(alloc_sweep_run(&(struct alloc_sweep){.work = work}) > 0);
}

static void test_params(void **state) {
    (void)state;
    sweep(set_lists);
}

static void test_sampling(void **state) {
    (void)state;
    sweep(resolve_sampling);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_sampling),
    };
    return cmocka_run_group_tests_name("params_faults", tests, NULL, NULL);
}
