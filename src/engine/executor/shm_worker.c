#include "engine/executor/shm_worker.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/executor/rank_segment.h"
#include "engine/executor/warm_up.h"

// How often a worker that has nothing to do looks whether its device has failed: another rank may
// be waiting for it.
static const double poll_seconds = 0.05;

struct worker {
    uint32_t rank;
    struct rank_segment *segment;
    bool is_registered; // the segment, with the device
    struct comm *comm;
    struct engine_plan plan;
    struct model_runner *runner;
    bool is_launched[MODEL_RUNNER_SLOTS]; // and has not been waited for
};

static struct rank_report *report_of(struct worker *worker) {
    return &worker->segment->reports[worker->rank];
}

static void report(struct worker *worker, enum rank_stage stage) {
    atomic_store(&report_of(worker)->stage, stage);
    wakeup_signal(&worker->segment->reported);
}

// The segment's batches are to be copied by the device, and its kernels look whether a rank is
// lost.
static enum status register_segment(struct worker *worker, struct err *err) {
    struct backend *backend = worker->plan.backend;
    if (!backend->queue) return OK;
    enum status status = backend->queue->register_host(backend, worker->segment,
                                                       worker->segment->layout.size_bytes, err);
    worker->is_registered = !status;
    return status;
}

static enum status load(struct worker *worker, struct err *err) {
    struct nvllm_engine_options options;
    rank_segment_options(worker->segment, &options);
    enum status status =
        engine_plan_make(&worker->plan, &options, worker->segment->engine, worker->rank, err);
    if (status) return status;
    // Of CPU ranks rank 0 has checked the memory that all share.
    if (worker->plan.backend->queue) status = engine_plan_check_memory(&worker->plan, err);
    if (!status) status = register_segment(worker, err);
    if (status) return status;
    status =
        rank_segment_comm(worker->segment, worker->rank, worker->plan.backend, &worker->comm, err);
    if (status) return status;
    struct weights *weights = NULL;
    if ((status = engine_plan_open_weights(&worker->plan, &weights, err))) return status;
    struct model_runner_options runner = worker->plan.runner;
    runner.decoder.comm = worker->comm;
    runner.shared_results = rank_segment_results(worker->segment);
    status = model_runner_create(&worker->runner, &runner, weights, err);
    weights_close(weights);
    return status;
}

// Steps on a device overlap as on rank 0: a step is waited for before its slot is used again.
static enum status launch(struct worker *worker, uint32_t slot, struct err *err) {
    struct model_runner_times times = {0};
    const struct sample_result *results, *prompt_results;
    const struct batch_header *batch = rank_segment_batch(worker->segment, slot);
    enum status status = OK;
    if (worker->is_launched[slot]) {
        status = model_runner_wait(worker->runner, slot, &results, &prompt_results, err);
    }
    if (!status) status = model_runner_launch(worker->runner, batch, slot, &times, err);
    worker->is_launched[slot] = !status;
    return status;
}

// Runs command number `number`. False: that was the last.
static bool run(struct worker *worker, uint32_t number, enum status *status, struct err *err) {
    uint32_t place = number % RANK_COMMANDS;
    const struct rank_command *command = &worker->segment->commands[place];
    switch (command->kind) {
    case RANK_LAUNCH:
        *status = launch(worker, command->slot, err);
        return !*status;
    case RANK_SAMPLE:
        *status =
            model_runner_sample(worker->runner, rank_segment_batch(worker->segment, command->slot),
                                command->slot, &(struct model_runner_times){0}, err);
        return !*status;
    case RANK_WARM_UP:
        *status = warm_up_run_worker(&worker->plan, worker->runner, err);
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

static enum status wait_for_command(struct worker *worker, uint32_t number, struct err *err) {
    const struct backend_queue *queue = worker->plan.backend->queue;
    double spin_seconds = barrier_spin_seconds(worker->segment->world_size);
    struct wakeup *posted = &worker->segment->posted;
    enum status status = OK;
    if (!queue) {
        wakeup_wait(posted, number, spin_seconds);
        return OK;
    }
    while (!status && !wakeup_wait_for(posted, number, spin_seconds, poll_seconds)) {
        status = queue->poll(worker->plan.backend, err);
    }
    return status;
}

static enum status serve(struct worker *worker, struct err *err) {
    struct rank_segment *segment = worker->segment;
    enum status status = OK;
    for (uint32_t number = 0;; number++) {
        status = wait_for_command(worker, number, err);
        if (status) return status;
        if (!run(worker, number, &status, err)) return status;
        atomic_store(&report_of(worker)->num_done, number + 1);
        if (atomic_load(&segment->is_awaited)) wakeup_signal(&segment->reported);
    }
}

int shm_worker_run(uint32_t rank, const char **message) {
    static struct err err; // the message outlives the call
    struct worker worker = {.rank = rank};
    *message = err.message;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    log_set_level(LOG_QUIET); // rank 0 says what there is to say
    enum status status = rank_segment_open(&worker.segment, SHM_WORKER_FD, &err);
    if (status) return 1;
    if (getppid() != worker.segment->parent) return 0; // rank 0 ended before prctl was called
    if (rank < 1 || rank >= worker.segment->world_size) {
        err_set(&err, ERR_INVALID, "there are ranks 1 to %u only", worker.segment->world_size - 1);
        return 1;
    }
    *message = NULL;
    status = load(&worker, &err);
    if (!status) {
        report(&worker, RANK_READY);
        status = comm_connect(worker.comm, &err);
    }
    if (!status) status = serve(&worker, &err);
    if (status) {
        struct rank_report *report_here = report_of(&worker);
        report_here->status = status;
        memcpy(report_here->message, err.message, sizeof err.message);
        report(&worker, RANK_FAILED);
    }
    model_runner_destroy(worker.runner);
    comm_destroy(worker.comm);
    if (worker.is_registered) {
        worker.plan.backend->queue->unregister_host(worker.plan.backend, worker.segment);
    }
    engine_plan_fini(&worker.plan);
    rank_segment_close(worker.segment);
    return status != OK;
}
