#include "engine/executor/executor.h"

#include <stdlib.h>

#include "engine/executor/executor_internal.h"
#include "engine/executor/mpi_executor.h"
#include "engine/executor/shm_executor.h"
#include "engine/executor/warm_up.h"

// ---- one rank, in this process ----

static enum status local_wait_ready(struct executor *executor, const struct interrupt *interrupt,
                                    struct err *err) {
    (void)executor;
    (void)interrupt;
    (void)err;
    return OK;
}

static struct batch_header *local_batch(struct executor *executor, uint32_t slot) {
    (void)executor;
    (void)slot;
    return NULL;
}

static enum status local_warm_up(struct executor *executor, struct batch *batch, struct err *err) {
    return warm_up_run(executor->plan, executor->runner, batch, err);
}

static void local_begin_counts(struct executor *executor, uint32_t slot, const int32_t *ids,
                               uint32_t num_prompt, uint32_t num_ids) {
    model_runner_begin_counts(executor->runner, slot, ids, num_prompt, num_ids);
}

static enum status local_launch(struct executor *executor, const struct batch *batch, uint32_t slot,
                                struct model_runner_times *times, struct err *err) {
    return model_runner_launch(executor->runner, batch->header, slot, times, err);
}

static enum status local_sample(struct executor *executor, const struct batch *batch, uint32_t slot,
                                struct model_runner_times *times, struct err *err) {
    return model_runner_sample(executor->runner, batch->header, slot, times, err);
}

static enum status local_wait(struct executor *executor, uint32_t slot,
                              const struct sample_result **results,
                              const struct sample_result **prompt_results, struct err *err) {
    return model_runner_wait(executor->runner, slot, results, prompt_results, err);
}

static enum status local_check(struct executor *executor, struct err *err) {
    (void)executor;
    (void)err;
    return OK;
}

static enum status local_blame(struct executor *executor, enum status status, struct err *err) {
    (void)executor;
    (void)err;
    return status;
}

static void local_stop(struct executor *executor) {
    free(executor);
}

static const struct executor_ops local_ops = {
    .wait_ready = local_wait_ready,
    .batch = local_batch,
    .warm_up = local_warm_up,
    .begin_counts = local_begin_counts,
    .launch = local_launch,
    .sample = local_sample,
    .wait = local_wait,
    .check = local_check,
    .blame = local_blame,
    .stop = local_stop,
};

static enum status local_create(struct executor **out, struct err *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return err_nomem(err, "engine");
    (*out)->ops = &local_ops;
    return OK;
}

// ---- every kind ----

enum status executor_create(struct executor **out, struct engine_plan *plan,
                            const struct nvllm_engine_options *options, struct err *err) {
    enum status status;
    *out = NULL;
    if (engine_plan_uses_mpi(options) && (plan->world_size > 1 || plan->first_process)) {
        status = mpi_executor_create(out, plan, options, err);
    } else if (plan->world_size > 1) {
        status = shm_executor_create(out, plan, options, err);
    } else {
        status = local_create(out, err);
    }
    if (status) return status;
    (*out)->plan = plan;
    bool has_gpu_ranks = plan->world_size > 1 && plan->backend->collective;
    (*out)->has_rows =
        !engine_plan_uses_mpi(options) || (options->data_parallel_size == 1 && !has_gpu_ranks);
    return OK;
}

// Why the load of the weights may have to end early: a rank was lost, or the caller interrupts.
struct load_end {
    struct executor *executor;
    const struct nvllm_interrupt *interrupt; // the caller's; NULL: none
};

static int is_load_to_end(void *user_data) {
    const struct load_end *ends = user_data;
    if (executor_check(ends->executor, NULL)) return 1;
    return ends->interrupt && ends->interrupt->is_wanted(ends->interrupt->user_data);
}

static enum status load_weights(struct executor *executor,
                                const struct nvllm_engine_options *options, struct err *err) {
    struct weights *weights = NULL;
    enum status status = engine_plan_open_weights(executor->plan, &weights, err);
    if (status) return status;
    struct load_end ends = {executor, options->interrupt};
    const struct interrupt interrupt = {.is_wanted = is_load_to_end, .user_data = &ends};
    struct model_runner_options runner = executor->plan->runner;
    runner.decoder.interrupt = &interrupt;
    const struct nvllm_load_progress *progress = options->load_progress;
    if (progress) {
        runner.decoder.progress = (struct load_progress){progress->on_loaded, progress->user_data};
    }
    runner.decoder.comm = executor->comm;
    runner.shared_results = executor->shared_results;
    status = model_runner_create(&executor->runner, &runner, weights, err);
    weights_close(weights);
    // If a rank was lost, that is why the load ended: report it instead.
    enum status lost = status ? executor_check(executor, err) : OK;
    return lost ? lost : status;
}

enum status executor_load(struct executor *executor, const struct nvllm_engine_options *options,
                          struct err *err) {
    enum status status = OK;
    struct interrupt interrupt = {0};
    if (options->interrupt) {
        interrupt.is_wanted = options->interrupt->is_wanted;
        interrupt.user_data = options->interrupt->user_data;
    }
    if (!executor->plan->first_process) status = load_weights(executor, options, err);
    return status ? status : executor->ops->wait_ready(executor, &interrupt, err);
}

struct batch_header *executor_batch(struct executor *executor, uint32_t slot) {
    return executor->ops->batch(executor, slot);
}

enum status executor_warm_up(struct executor *executor, struct batch *batch, struct err *err) {
    return executor->ops->warm_up(executor, batch, err);
}

void executor_record_later(struct executor *executor, struct batch *batch, uint32_t num_seqs,
                           bool drafts) {
    if (executor->plan->world_size > 1) return;
    if (executor->runner) model_runner_record_later(executor->runner, batch, num_seqs, drafts);
}

void executor_begin_counts(struct executor *executor, uint32_t slot, const int32_t *ids,
                           uint32_t num_prompt, uint32_t num_ids) {
    executor->ops->begin_counts(executor, slot, ids, num_prompt, num_ids);
}

enum status executor_launch(struct executor *executor, const struct batch *batch, uint32_t slot,
                            struct model_runner_times *times, struct err *err) {
    return executor->ops->launch(executor, batch, slot, times, err);
}

enum status executor_sample(struct executor *executor, const struct batch *batch, uint32_t slot,
                            struct model_runner_times *times, struct err *err) {
    return executor->ops->sample(executor, batch, slot, times, err);
}

void executor_set_row_fns(struct executor *executor, model_runner_row_fn on_row,
                          model_runner_hidden_fn on_hidden, void *user_data) {
    if (!executor->runner) return;
    model_runner_set_row_fns(executor->runner, on_row, on_hidden, user_data);
}

enum status executor_check_rows(const struct executor *executor, const char *what,
                                struct err *err) {
    if (executor->has_rows) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s are not supported under mpirun with GPUs or with several engines", what);
}

bool executor_computes_in_launch(const struct executor *executor) {
    return executor->runner && !executor->plan->backend->queue;
}

enum status executor_wait(struct executor *executor, uint32_t slot,
                          const struct sample_result **results,
                          const struct sample_result **prompt_results, struct err *err) {
    return executor->ops->wait(executor, slot, results, prompt_results, err);
}

enum status executor_check(struct executor *executor, struct err *err) {
    return executor->ops->check(executor, err);
}

enum status executor_blame(struct executor *executor, enum status status, struct err *err) {
    return executor->ops->blame(executor, status, err);
}

void executor_begin_end(struct executor *executor) {
    if (executor->ops->begin_end) executor->ops->begin_end(executor);
}

void executor_destroy(struct executor *executor) {
    if (!executor) return;
    model_runner_destroy(
        executor->runner); // a collective may wait until no recorded step has its operations
    executor->ops->stop(executor);
}
