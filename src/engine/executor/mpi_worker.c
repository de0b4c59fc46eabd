#include "engine/executor/mpi_worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/thread/float_mode.h"
#include "base/thread/interrupt.h"
#include "comm/device_comm.h"
#include "engine/executor/mpi_executor.h"
#include "engine/executor/mpi_message.h"
#include "engine/executor/rank_options.h"
#include "engine/executor/warm_up.h"

// How long a rank that has nothing to do waits before it looks whether its device has failed.
static const double poll_seconds = 0.05;

struct worker {
    const struct mpi_wire *wire;
    const struct mpi_world *world;
    struct mpi_command *command; // the last one, its payload behind it
    size_t capacity; // bytes, of its allocation

    // Of the engine that runs:
    uint32_t first; // the group's rank 0
    struct engine_plan plan;
    struct comm *comm;
    bool is_connected; // devices
    struct sample_result *results; // [max_num_seqs + max_num_tokens]
    struct batch_header *batches[MODEL_RUNNER_SLOTS]; // [batch_bytes]; devices copy them
    bool is_launched[MODEL_RUNNER_SLOTS]; // and has not been waited for
    uint32_t last_slot; // of the last launch
    struct model_runner *runner;
};

// Of a group whose rank 0 this is.
static void send_results(struct worker *worker, const struct sample_result *results,
                         uint32_t count) {
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(worker->world)};
    struct mpi_request request = {0};
    if (!count) return;
    worker->wire->send(results, count * sizeof *results, 0, MPI_CHANNEL_RESULTS, &request);
    while (!worker->wire->is_done(&request)) (void)mpi_pause_wait(&pause);
}

// Steps on a device overlap: one is waited for before its slot is used again.
static enum status wait_step(struct worker *worker, uint32_t slot, struct err *err) {
    const struct sample_result *results, *prompt_results;
    if (!worker->is_launched[slot]) return OK;
    worker->is_launched[slot] = false;
    enum status status = model_runner_wait(worker->runner, slot, &results, &prompt_results, err);
    if (status || worker->plan.rank > 0) return status;
    const struct batch_header *batch = worker->batches[slot];
    const struct step step = batch_bind(batch, (void *)(uintptr_t)batch);
    send_results(worker, results, step.num_logits);
    send_results(worker, prompt_results, step.num_prompt_logits);
    return OK;
}

// Waits for the steps that are done. *awaits_step: one is not, and this is rank 0.
static enum status finish_steps(struct worker *worker, bool *awaits_step, struct err *err) {
    for (uint32_t i = 1; i <= MODEL_RUNNER_SLOTS; i++) { // the older one first
        uint32_t slot = (worker->last_slot + i) % MODEL_RUNNER_SLOTS;
        if (!worker->is_launched[slot]) continue;
        if (!model_runner_is_done(worker->runner, slot)) {
            *awaits_step = worker->plan.rank == 0;
            return OK;
        }
        enum status status = wait_step(worker, slot, err);
        if (status) return status;
    }
    return OK;
}

// Waits for the next command. Meanwhile, sends the results of steps that end.
static enum status receive(struct worker *worker, struct err *err) {
    const uint32_t from = 0;
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(worker->world)};
    size_t bytes;
    const struct backend *backend = worker->plan.backend;
    for (;;) {
        bool awaits_step = false;
        enum status finished = finish_steps(worker, &awaits_step, err);
        if (finished) return finished;
        if (worker->wire->has_message(from, MPI_CHANNEL_COMMANDS, &bytes)) break;
        if (awaits_step) pause.waited = 0; // process 0 waits for the results
        // Another rank may be waiting for this one's device.
        bool is_idle = mpi_pause_wait(&pause) > poll_seconds;
        if (!is_idle || !backend || !backend->queue) continue;
        enum status status = backend->queue->poll(worker->plan.backend, err);
        if (status) return status;
    }
    if (bytes > worker->capacity) {
        free(worker->command);
        worker->capacity = 0;
        worker->command = malloc(bytes);
        if (!worker->command) return err_nomem(err, "ranks");
        worker->capacity = bytes;
    }
    struct mpi_request request;
    worker->wire->receive(worker->command, bytes, from, MPI_CHANNEL_COMMANDS, &request);
    while (!worker->wire->is_done(&request)) (void)mpi_pause_wait(&pause);
    if (bytes >= sizeof *worker->command) return OK;
    return err_set(err, ERR_FORMAT, "process 0 has sent a command of %zu bytes", bytes);
}

// Rank 0 says nothing while the others load, unless the engine is to end.
static int is_load_to_end(void *user_data) {
    const struct worker *worker = user_data;
    size_t bytes;
    return worker->wire->has_message(0, MPI_CHANNEL_COMMANDS, &bytes);
}

static enum status check_version(const struct mpi_command *command, struct err *err) {
    static const uint32_t version[] = {NVLLM_VERSION_MAJOR, NVLLM_VERSION_MINOR,
                                       NVLLM_VERSION_PATCH};
    if (memcmp(command->version, version, sizeof version) == 0 &&
        command->options_bytes == sizeof(struct nvllm_engine_options) &&
        command->batch_header_bytes == sizeof(struct batch_header)) {
        return OK;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "the programs that mpirun has started are not of one version");
}

// Hosts may have different models in folders of the same name.
static enum status check_model(const struct worker *worker,
                               const struct nvllm_engine_options *options, struct err *err) {
    uint64_t fingerprint = 0;
    enum status status = mpi_message_fingerprint(&worker->plan, &fingerprint, err);
    if (status || fingerprint == worker->command->fingerprint) return status;
    return err_set(err, ERR_INVALID, "%s is not the model that rank 0 has", options->model);
}

static enum status allocate_batches(struct worker *worker, struct err *err) {
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        void *batch = NULL;
        enum status status =
            backend_alloc_host(worker->plan.backend, worker->plan.runner.batch_bytes, &batch, err);
        if (status) return status;
        worker->batches[i] = batch;
    }
    return OK;
}

static enum status load(struct worker *worker, struct err *err) {
    enum status status = check_version(worker->command, err);
    if (status) return status;
    struct nvllm_engine_options options;
    rank_options_read((const char *)(worker->command + 1), &options);
    uint32_t rank = worker->world->rank - worker->first;
    uint32_t engine = worker->first / worker->command->world_size;
    if ((status = engine_plan_make(&worker->plan, &options, engine, rank, err))) return status;
    if ((status = engine_plan_check_memory(&worker->plan, err))) return status;
    if ((status = check_model(worker, &options, err))) return status;
    // A step that waits for another rank of the group says so.
    log_set_level(rank == 0 ? LOG_WARNING : LOG_QUIET);
    if (options.tensor_parallel_size > 1) {
        status = mpi_message_comm(&worker->plan, worker->wire, worker->world, worker->first,
                                  &worker->comm, err);
    }
    if (status || (status = allocate_batches(worker, err))) return status;
    const struct step_limits *limits = &worker->plan.runner.decoder.limits;
    worker->results =
        calloc((size_t)limits->max_num_seqs + limits->max_num_tokens, sizeof *worker->results);
    if (!worker->results) return err_nomem(err, "ranks");
    struct weights *weights = NULL;
    if ((status = engine_plan_open_weights(&worker->plan, &weights, err))) return status;
    const struct interrupt interrupt = {.is_wanted = is_load_to_end, .user_data = worker};
    struct model_runner_options runner = worker->plan.runner;
    runner.decoder.interrupt = &interrupt;
    runner.decoder.comm = worker->comm;
    bool shares_results = worker->comm && !worker->plan.backend->collective;
    runner.shared_results = shares_results ? worker->results : NULL;
    status = model_runner_create(&worker->runner, &runner, weights, err);
    weights_close(weights);
    return status;
}

static void unload(struct worker *worker) {
    model_runner_destroy(worker->runner);
    if (worker->is_connected) device_comm_end(worker->comm, MPI_PATIENCE_SECONDS);
    comm_destroy(worker->comm);
    free(worker->results);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        if (worker->batches[i]) backend_release_host(worker->plan.backend, worker->batches[i]);
    }
    engine_plan_fini(&worker->plan);
    *worker = (struct worker){.wire = worker->wire,
                              .world = worker->world,
                              .command = worker->command,
                              .capacity = worker->capacity};
}

static void report(const struct worker *worker, enum status status, const struct err *why) {
    struct mpi_report report = {.status = status,
                                .num_blocks = worker->plan.runner.kv_cache.num_blocks};
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(worker->world)};
    struct mpi_request request;
    if (why) memcpy(report.message, why->message, sizeof report.message);
    worker->wire->send(&report, sizeof report, 0, MPI_CHANNEL_REPORTS, &request);
    while (!worker->wire->is_done(&request)) (void)mpi_pause_wait(&pause);
}

static enum status launch(struct worker *worker, struct err *err) {
    struct model_runner_times times = {0};
    uint32_t slot = worker->command->slot;
    const struct batch_header *batch = (const void *)(worker->command + 1);
    enum status status = wait_step(worker, slot, err);
    if (status) return status;
    memcpy(worker->batches[slot], batch, batch_launch_bytes(batch));
    status = model_runner_launch(worker->runner, worker->batches[slot], slot, &times, err);
    worker->is_launched[slot] = !status;
    worker->last_slot = slot;
    return status;
}

static enum status sample(struct worker *worker, struct err *err) {
    struct model_runner_times times = {0};
    uint32_t slot = worker->command->slot;
    struct batch_header *batch = worker->batches[slot];
    memcpy((char *)batch + batch->masks_at, worker->command + 1,
           batch->size_bytes - batch->masks_at);
    return model_runner_sample(worker->runner, batch, slot, &times, err);
}

// Runs an engine's commands, to its end.
static enum status serve(struct worker *worker, struct err *err) {
    enum status status = OK;
    while (!status && !(status = receive(worker, err))) {
        const struct mpi_command *command = worker->command;
        switch ((enum mpi_command_kind)command->kind) {
        case MPI_COMMAND_CONNECT:
            if (worker->comm) status = comm_connect(worker->comm, err);
            worker->is_connected = worker->comm && !status;
            break;
        case MPI_COMMAND_WARM_UP:
            status = warm_up_run_worker(&worker->plan, worker->runner, err);
            if (!status && worker->plan.rank == 0) report(worker, OK, NULL);
            break;
        case MPI_COMMAND_LAUNCH:
            status = launch(worker, err);
            break;
        case MPI_COMMAND_SAMPLE:
            status = sample(worker, err);
            break;
        case MPI_COMMAND_BEGIN_COUNTS:
            model_runner_begin_counts(worker->runner, command->slot,
                                      (const int32_t *)(const void *)(command + 1),
                                      command->num_prompt, command->num_ids);
            break;
        case MPI_COMMAND_START:
        case MPI_COMMAND_QUIT:
        case MPI_COMMAND_EXIT:
            return OK;
        }
    }
    return status;
}

// An engine, from its START in worker->command to its QUIT.
static enum status run_engine(struct worker *worker, struct err *err) {
    struct err why = {0};
    worker->first = worker->command->first;
    enum status status = load(worker, &why);
    report(worker, status, &why);
    // Without its slice it only waits for the end.
    status = status ? receive(worker, err) : serve(worker, err);
    // After an error the caller ends all processes. Devices that wait for others would not end
    // before.
    if (!status) unload(worker);
    return status;
}

enum status mpi_worker_run(const struct mpi_wire *wire, const struct mpi_world *world,
                           struct err *err) {
    struct worker worker = {.wire = wire, .world = world};
    uint64_t mode = float_mode_enter();
    enum status status = OK;
    while (!(status = receive(&worker, err))) {
        if (worker.command->kind == MPI_COMMAND_EXIT) {
            report(&worker, OK, NULL);
            break;
        }
        if (worker.command->kind == MPI_COMMAND_START) status = run_engine(&worker, err);
        if (status) break;
    }
    free(worker.command);
    float_mode_leave(mode);
    return status;
}
