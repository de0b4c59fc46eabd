// Every allocation of parameters, sampling, sequences and the scheduler failing in turn: ERR_NOMEM,
// nothing leaked; and a scheduler that exists steps without a single allocation.
#include "engine/params.h"
#include "engine/sampling.h"
#include "engine/scheduler.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static enum status set_lists(void *context, struct err *err) {
    (void)context;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    enum status status = params_set_sampling(&params, "stop", "[\"one\", \"and two\"]", err);
    if (!status) status = params_set_sampling(&params, "stop_token_ids", "[1, 2, 3]", err);
    if (!status) status = params_set_sampling(&params, "logit_bias", "{\"5\": -1.5}", err);
    if (!status) status = params_set_sampling(&params, "stop", "[\"a longer list\", \"b\"]", err);
    params_fini_sampling(&params);
    return status;
}

static enum status resolve_sampling(void *context, struct err *err) {
    (void)context;
    static const char *const stops[] = {"END", "\n\n"};
    static const int32_t ids[] = {7, 8};
    static const struct nvllm_logit_bias biases[] = {{3, 1.0f}, {4, -2.0f}};
    static const int32_t prompt[] = {1, 2, 3, 2, 1};
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    params.stop = stops;
    params.num_stop = 2;
    params.stop_token_ids = ids;
    params.num_stop_token_ids = 2;
    params.logit_bias = biases;
    params.num_logit_bias = 2;
    params.repetition_penalty = 1.2f;
    params.frequency_penalty = 0.5f;
    struct sampling sampling = {0};
    enum status status = sampling_init(&sampling, &params, NULL, 100, 1, prompt, 5, err);
    if (!status) sampling_count_output(&sampling, 9);
    sampling_fini(&sampling);
    return status;
}

static const struct scheduler_config config = {
    .policy = SCHEDULE_MIXED,
    .max_num_seqs = 4,
    .max_num_batched_tokens = 32,
    .num_blocks = 8,
    .block_size = 16,
    .enable_prefix_caching = true,
};

static enum status create_scheduler(void *context, struct err *err) {
    (void)context;
    struct scheduler *scheduler = NULL;
    enum status status = scheduler_create(&scheduler, &config, err);
    scheduler_destroy(scheduler);
    return status;
}

// Two sequences that share a prefix and do not fit together, run to their ends.
static enum status run_scheduler(void *context, struct err *err) {
    size_t *num_step_allocations = context;
    int32_t prompt[60];
    for (int32_t i = 0; i < 60; i++) prompt[i] = i;
    struct scheduler *scheduler = NULL;
    struct sequence *seqs[2] = {NULL, NULL};
    enum status status = scheduler_create(&scheduler, &config, err);
    for (uint32_t i = 0; i < 2 && !status; i++) {
        status = sequence_create(&seqs[i], i, prompt, 60 - 5 * i, 40, config.block_size, 0, err);
        if (!status) status = scheduler_add(scheduler, seqs[i], err);
    }
    size_t before = alloc_hook_count();
    while (!status && scheduler_has_unfinished(scheduler)) {
        const struct schedule *schedule = scheduler_schedule(scheduler);
        scheduler_advance(scheduler);
        for (uint32_t i = 0; i < schedule->num_items; i++) {
            struct sequence *seq = schedule->items[i].seq;
            if (!seq || !schedule->items[i].needs_token) continue;
            scheduler_append_token(scheduler, seq, 5);
            if (seq->num_tokens == seq->num_tokens_max) scheduler_finish(scheduler, seq);
        }
    }
    *num_step_allocations = alloc_hook_count() - before;
    for (uint32_t i = 0; i < 2; i++) {
        if (seqs[i] && seqs[i]->queued) scheduler_finish(scheduler, seqs[i]);
    }
    scheduler_destroy(scheduler);
    for (uint32_t i = 0; i < 2; i++) sequence_destroy(seqs[i]);
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

static void test_scheduler(void **state) {
    (void)state;
    sweep(create_scheduler);
}

static void test_scheduler_run(void **state) {
    (void)state;
    size_t num_step_allocations = 1;
    struct alloc_sweep run = {.work = run_scheduler, .context = &num_step_allocations};
    assert_true(alloc_sweep_run(&run) > 0);
    assert_int_equal(num_step_allocations, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_scheduler),
        cmocka_unit_test(test_scheduler_run),
    };
    return cmocka_run_group_tests_name("engine_faults", tests, NULL, NULL);
}
