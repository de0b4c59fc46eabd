#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/executor/executor_internal.h"
#include "support/mini_engine.h"
#include "support/ranks.h"

static void check(enum status status, const struct err *err) {
    if (status) fail_msg("%s: %s", status_name(status), err->message);
}

static bool has_gpu(uint32_t number) {
    struct backend *backend = NULL;
    struct err err = {0};
    const struct backend_options options = {
        .device = "cuda", .cpu_isa = "auto", .weight_dtype = DTYPE_BF16, .rank_on_host = number};
    if (backend_create(&backend, &options, &err)) print_message("%s\n", err.message);
    backend_destroy(backend);
    return err.message[0] == '\0';
}

const char *mini_gpus(void) {
    static char shared[64] = "cuda:0";
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    use_test_ranks(&options);
    if (!has_gpu(0)) return NULL;
    if (has_gpu((uint32_t)options.tensor_parallel_size - 1)) return "cuda";
    size_t len = strlen(shared);
    for (int32_t r = 1; r < options.tensor_parallel_size && len + 2 < sizeof shared; r++) {
        memcpy(shared + len, ",0", 3);
        len += 2;
    }
    return shared;
}

struct nvllm_engine_options mini_options(const char *model) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = model;
    options.device = "cpu"; // even where there is a GPU: most tests are about the CPU
    options.threads = 1;
    options.num_kvcache_blocks = 512;
    options.max_num_seqs = 80;
    options.max_num_batched_tokens = 512;
    use_test_ranks(&options);
    return options;
}

void mini_open(struct mini_engine *e, const struct nvllm_engine_options *options) {
    *e = (struct mini_engine){0};
    struct err err = {0};
    check(engine_plan_make(&e->plan, options, 0, 0, &err), &err);
    check(executor_create(&e->executor, &e->plan, options, &err), &err);
    check(executor_load(e->executor, options, &err), &err);
    check(scheduler_create(&e->scheduler, &e->plan.scheduler, &err), &err);
    const struct step_limits *limits = &e->plan.runner.decoder.limits;
    check(schedule_init(&e->schedule, e->plan.scheduler.max_num_seqs, &err), &err);
    void *block = executor_batch(e->executor, 0);
    check(batch_init(&e->batch, e->plan.backend, limits, e->plan.config.vocab_size, block, &err),
          &err);
    e->batch.shares_prefixes = model_runner_shares_prefixes(&e->plan.runner);
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    params.temperature = 0;
    params.repetition_penalty = 1;
    check(sampling_init(&e->greedy, &params, &e->plan.generation, &e->plan.config, NULL, &err),
          &err);
    size_t floats = (size_t)limits->max_num_seqs * e->plan.config.vocab_size;
    e->step_logits = malloc(floats * sizeof(float));
    assert_non_null(e->step_logits);
}

void mini_warm_up(struct mini_engine *e) {
    struct engine_plan *plan = &e->plan;
    struct err err = {0};
    check(executor_warm_up(e->executor, &e->batch, &err), &err);
    if (!plan->fills_memory) return;
    scheduler_destroy(e->scheduler);
    check(scheduler_create(&e->scheduler, &plan->scheduler, &err), &err);
}

static struct batch_row greedy_of(const struct sequence *seq) {
    struct sampling *const *greedy = seq->user;
    return (struct batch_row){*greedy, 0};
}

// A sequence's user pointer. `greedy` comes first, where greedy_of finds it.
struct mini_user {
    struct sampling *greedy;
    struct mini_request *request;
};

static void take_row(struct mini_engine *e, struct sequence *seq, uint32_t row, int32_t sampled) {
    const struct mini_user *user = seq->user;
    struct mini_request *request = user->request;
    uint32_t vocab = e->plan.config.vocab_size;
    uint32_t i = request->num_tokens++;
    if (request->logits) {
        memcpy(request->logits + (size_t)i * vocab, e->step_logits + (size_t)row * vocab,
               vocab * sizeof(float));
    }
    request->tokens[i] = request->forced ? request->forced[i] : sampled;
    scheduler_append_token(e->scheduler, seq, request->tokens[i]);
    if (request->num_tokens == request->max_new) scheduler_finish(e->scheduler, seq);
}

static void step(struct mini_engine *e) {
    struct err err = {0};
    const struct schedule *schedule = &e->schedule;
    scheduler_schedule(e->scheduler, &e->schedule);
    assert_true(schedule->num_items > 0);
    uint32_t padded_seqs = schedule->num_prefill_tokens == 0
                               ? model_runner_padded_seqs(&e->plan.runner, schedule->num_items)
                               : 0;
    if (padded_seqs) executor_record_later(e->executor, &e->batch, padded_seqs, false);
    batch_build(&e->batch, schedule, e->plan.scheduler.block_size, greedy_of, padded_seqs);
    const struct sample_result *results = NULL, *prompt_results = NULL;
    struct model_runner_times times = {0};
    struct model_runner *runner = e->executor->runner;
    check(executor_launch(e->executor, &e->batch, 0, &times, &err), &err);
    while (!model_runner_is_done(runner, 0)) (void)0;
    check(executor_wait(e->executor, 0, &results, &prompt_results, &err), &err);
    uint32_t num_logits = e->batch.header->num_logits;
    uint32_t num_shared_seqs = e->batch.header->num_shared_seqs;
    if (num_shared_seqs > e->most_shared_seqs) e->most_shared_seqs = num_shared_seqs;
    if (num_logits) {
        check(model_runner_read_logits(runner, e->step_logits, num_logits, &err), &err);
    }
    scheduler_advance(e->scheduler);
    uint32_t row = 0;
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        if (!schedule->items[i].needs_token) continue;
        take_row(e, schedule->items[i].seq, row, results[row].token_id);
        row++;
    }
}

void mini_run(struct mini_engine *e, struct mini_request *requests, uint32_t num_requests) {
    struct err err = {0};
    struct mini_user *users = calloc(num_requests, sizeof *users);
    assert_non_null(users);
    for (uint32_t i = 0; i < num_requests; i++) {
        struct mini_request *request = &requests[i];
        request->num_tokens = 0;
        check(sequence_create(&request->seq, i + 1, request->prompt, request->num_prompt,
                              request->max_new, e->plan.scheduler.block_size,
                              e->plan.scheduler.groups.num_groups, &err),
              &err);
        users[i] = (struct mini_user){&e->greedy, request};
        request->seq->user = &users[i];
        check(scheduler_add(e->scheduler, request->seq, &err), &err);
    }
    while (scheduler_has_unfinished(e->scheduler)) step(e);
    for (uint32_t i = 0; i < num_requests; i++) sequence_destroy(requests[i].seq);
    free(users);
}

void mini_close(struct mini_engine *e) {
    free(e->step_logits);
    sampling_fini(&e->greedy);
    batch_fini(&e->batch, e->plan.backend);
    schedule_fini(&e->schedule);
    scheduler_destroy(e->scheduler);
    executor_destroy(e->executor);
    engine_plan_fini(&e->plan);
}
