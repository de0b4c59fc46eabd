#include "engine/ranks/rank_worker.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "engine/ranks/rank_segment.h"

struct worker {
    uint32_t rank;
    struct rank_segment *segment;
    struct shm_comm comm;
    struct engine_plan plan;
    struct model_runner *runner;
};

static struct rank_report *report_of(struct worker *worker) {
    return &worker->segment->reports[worker->rank];
}

static void report(struct worker *worker, enum rank_stage stage) {
    atomic_store(&report_of(worker)->stage, stage);
    bell_ring(&worker->segment->reported);
}

static enum status load(struct worker *worker, struct err *err) {
    struct nvllm_engine_options options;
    rank_segment_options(worker->segment, &options);
    enum status status = engine_plan_make(&worker->plan, &options, worker->rank, err);
    if (status) return status;
    struct weights *weights = NULL;
    if ((status = engine_plan_open_weights(&worker->plan, &options, &weights, err))) return status;
    struct model_runner_options runner = worker->plan.runner;
    rank_segment_comm(worker->segment, worker->rank, &worker->comm);
    runner.decoder.comm = &worker->comm.base;
    runner.shared_results = rank_segment_results(worker->segment);
    status = model_runner_create(&worker->runner, &runner, weights, err);
    weights_close(weights);
    return status;
}

static enum status launch(struct worker *worker, uint32_t slot, struct err *err) {
    struct model_runner_times times = {0};
    const struct sample_result *results, *prompt_results;
    const struct batch_header *batch = rank_segment_batch(worker->segment, slot);
    enum status status = model_runner_launch(worker->runner, batch, slot, &times, err);
    if (status) return status;
    return model_runner_wait(worker->runner, slot, &results, &prompt_results, err);
}

// Runs command number `number`. False: that was the last.
static bool run(struct worker *worker, uint32_t number, enum status *status, struct err *err) {
    uint32_t place = number % RANK_COMMANDS;
    const struct rank_command *command = &worker->segment->commands[place];
    switch (command->kind) {
    case RANK_LAUNCH:
        *status = launch(worker, command->slot, err);
        return !*status;
    case RANK_BEGIN_COUNTS:
        model_runner_begin_counts(worker->runner, command->slot,
                                  rank_segment_ids(worker->segment, place), command->num_prompt,
                                  command->num_ids);
        return true;
    case RANK_QUIT:
        break;
    }
    return false;
}

static enum status serve(struct worker *worker, struct err *err) {
    struct rank_segment *segment = worker->segment;
    enum status status = OK;
    for (uint32_t number = 0;; number++) {
        bell_wait(&segment->posted, number, worker->comm.spin_seconds);
        if (!run(worker, number, &status, err)) return status;
        atomic_store(&report_of(worker)->num_done, number + 1);
        if (atomic_load(&segment->is_awaited)) bell_ring(&segment->reported);
    }
}

int rank_worker_run(uint32_t rank, const char **message) {
    static struct err err; // the message outlives the call
    struct worker worker = {.rank = rank};
    *message = err.message;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enum status status = rank_segment_open(&worker.segment, RANK_WORKER_FD, &err);
    if (status) return 1;
    if (getppid() != worker.segment->parent) return 0; // it ended before we asked to hear of it
    if (rank < 1 || rank >= worker.segment->world_size) {
        err_set(&err, ERR_INVALID, "there are ranks 1 to %u only", worker.segment->world_size - 1);
        return 1;
    }
    *message = NULL;
    status = load(&worker, &err);
    if (!status) {
        report(&worker, RANK_READY);
        status = serve(&worker, &err);
    }
    if (status) {
        struct rank_report *report_here = report_of(&worker);
        report_here->status = status;
        memcpy(report_here->message, err.message, sizeof err.message);
        report(&worker, RANK_FAILED);
    }
    model_runner_destroy(worker.runner);
    engine_plan_fini(&worker.plan);
    rank_segment_close(worker.segment);
    return status != OK;
}
