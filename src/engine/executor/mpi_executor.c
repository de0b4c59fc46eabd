#include "engine/executor/mpi_executor.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/log.h"
#include "comm/device_comm.h"
#include "engine/executor/executor_internal.h"
#include "engine/executor/mpi_message.h"
#include "engine/executor/rank_options.h"
#include "engine/executor/rank_segment.h"
#include "engine/executor/warm_up.h"

// Most steps of GPUs end sooner.
static const double step_spin_seconds = 0.05;

// A command on its way: its bytes stay until all ranks have them.
struct place {
    struct mpi_command *command; // the payload follows
    struct mpi_request requests[COMM_RANKS_MAX]; // by rank
};

struct mpi_executor {
    struct executor base; // comm NULL: rank 0 is another process
    const struct mpi_wire *wire;
    struct mpi_world world;
    uint32_t first, world_size;
    uint32_t first_rank; // that is told what to run: 1, or 0 where rank 0 is another process
    struct backend *backend;
    bool fills_memory; // the plan: the number of blocks is to be measured
    bool is_connected; // devices
    bool has_deadline; // a command that takes longer than MPI_PATIENCE_SECONDS is lost
    bool is_ending; // every wait of this process has that deadline
    size_t payload_max; // bytes
    struct place places[RANK_COMMANDS]; // used in turn
    uint32_t num_posted;
    struct batch_header *batches[MODEL_RUNNER_SLOTS]; // [batch_bytes]
    // By slot, of another process's rank 0: [max_num_seqs + max_num_tokens] as model_runner_wait's.
    struct sample_result *step_results[MODEL_RUNNER_SLOTS];
    struct mpi_request result_requests[MODEL_RUNNER_SLOTS][2];
    uint32_t max_num_seqs;
    struct mpi_report reports[COMM_RANKS_MAX]; // by rank
    struct mpi_request report_requests[COMM_RANKS_MAX];
    bool has_reported[COMM_RANKS_MAX];
    enum status status;
    struct err failure;
};

static struct mpi_executor *mpi_of(struct executor *executor) {
    return (struct mpi_executor *)executor;
}

// Nothing can interrupt a GPU that waits for another one, and a message cannot be taken back from
// MPI. So the processes end with it.
static void give_up(const struct mpi_executor *mpi, double seconds) {
    uint32_t last = mpi->first + mpi->world_size - 1;
    if (mpi->is_ending) {
        log_warning("ranks %u to %u have not ended for %.0f seconds: a process is stopped, or its "
                    "host lost; all ranks end",
                    mpi->first, last, seconds);
    } else {
        log_warning("a step of ranks %u to %u has not ended for %.0f seconds: a process is "
                    "stopped, or its host lost; all ranks end",
                    mpi->first, last, seconds);
    }
    mpi->wire->end_all(1);
}

static void wait_done(const struct mpi_executor *mpi, struct mpi_request *request) {
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(&mpi->world)};
    while (!mpi->wire->is_done(request)) {
        double waited = mpi_pause_wait(&pause);
        bool has_deadline = mpi->has_deadline || mpi->is_ending;
        if (has_deadline && waited >= MPI_PATIENCE_SECONDS) give_up(mpi, waited);
    }
}

// Where the next command goes, once the ranks have what was there before.
static struct mpi_command *next_command(struct mpi_executor *mpi) {
    struct place *place = &mpi->places[mpi->num_posted % RANK_COMMANDS];
    for (uint32_t rank = mpi->first_rank; rank < mpi->world_size; rank++) {
        wait_done(mpi, &place->requests[rank]);
    }
    *place->command = (struct mpi_command){0};
    return place->command;
}

// Sends what next_command has given, and its payload.
static void post(struct mpi_executor *mpi, size_t payload_bytes) {
    struct place *place = &mpi->places[mpi->num_posted++ % RANK_COMMANDS];
    CHECK(payload_bytes <= mpi->payload_max, "%zu > %zu", payload_bytes, mpi->payload_max);
    for (uint32_t rank = mpi->first_rank; rank < mpi->world_size; rank++) {
        mpi->wire->send(place->command, sizeof *place->command + payload_bytes, mpi->first + rank,
                        MPI_CHANNEL_COMMANDS, &place->requests[rank]);
    }
}

static size_t largest_payload(const struct engine_plan *plan,
                              const struct nvllm_engine_options *options) {
    size_t most = rank_options_bytes(*options);
    size_t ids_bytes = plan->runner.decoder.limits.max_positions * sizeof(int32_t);
    if (ids_bytes > most) most = ids_bytes;
    return plan->runner.batch_bytes > most ? plan->runner.batch_bytes : most;
}

static enum status allocate(struct mpi_executor *mpi, const struct engine_plan *plan,
                            struct err *err) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    size_t num_results = (size_t)limits->max_num_seqs + limits->max_num_tokens;
    bool has_all = true;
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
        mpi->places[i].command = calloc(1, sizeof(struct mpi_command) + mpi->payload_max);
        has_all &= mpi->places[i].command != NULL;
    }
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        void *batch = NULL; // which devices copy by themselves
        enum status status =
            backend_alloc_host(mpi->backend, plan->runner.batch_bytes, &batch, err);
        if (status) return status;
        mpi->batches[i] = batch;
        mpi->step_results[i] = calloc(num_results, sizeof *mpi->base.shared_results);
        has_all &= mpi->step_results[i] != NULL;
    }
    if (!mpi->backend->collective) {
        mpi->base.shared_results = calloc(num_results, sizeof *mpi->base.shared_results);
        has_all &= mpi->base.shared_results != NULL;
    }
    return has_all ? OK : err_nomem(err, "ranks");
}

static void post_start(struct mpi_executor *mpi, struct nvllm_engine_options options,
                       uint32_t num_blocks, uint64_t fingerprint) {
    struct mpi_command *command = next_command(mpi);
    *command = (struct mpi_command){
        .kind = MPI_COMMAND_START,
        .version = {NVLLM_VERSION_MAJOR, NVLLM_VERSION_MINOR, NVLLM_VERSION_PATCH},
        .options_bytes = sizeof options,
        .batch_header_bytes = sizeof(struct batch_header),
        .first = mpi->first,
        .world_size = mpi->world_size,
        .fingerprint = fingerprint,
    };
    if (!mpi->fills_memory) options.num_kvcache_blocks = (int32_t)num_blocks;
    rank_options_write((char *)(command + 1), options);
    for (uint32_t rank = mpi->first_rank; rank < mpi->world_size; rank++) {
        mpi->wire->receive(&mpi->reports[rank], sizeof mpi->reports[rank], mpi->first + rank,
                           MPI_CHANNEL_REPORTS, &mpi->report_requests[rank]);
    }
    post(mpi, rank_options_bytes(options));
}

// Takes in the reports that have come. True: all have.
static bool take_reports(struct mpi_executor *mpi) {
    bool has_all = true;
    for (uint32_t rank = mpi->first_rank; rank < mpi->world_size; rank++) {
        if (mpi->has_reported[rank]) continue;
        mpi->has_reported[rank] = mpi->wire->is_done(&mpi->report_requests[rank]);
        has_all &= mpi->has_reported[rank];
        const struct mpi_report *report = &mpi->reports[rank];
        if (!mpi->has_reported[rank] || !report->status || mpi->status) continue;
        mpi->status = err_set(&mpi->failure, report->status, "rank %u: %s", rank, report->message);
    }
    return has_all;
}

static enum status mpi_check(struct executor *executor, struct err *err) {
    struct mpi_executor *mpi = mpi_of(executor);
    (void)take_reports(mpi);
    if (mpi->status && err) *err = mpi->failure;
    return mpi->status;
}

// After an error of rank 0 in something that all ranks do: the others wait for it, and MPI cannot
// take that back. So it ends all processes, once it has said why.
static enum status mpi_blame(struct executor *executor, enum status status, struct err *err) {
    log_warning("%s; all ranks end", err ? err->message : status_name(status));
    mpi_of(executor)->wire->end_all(1);
    return status;
}

static enum status mpi_wait_ready(struct executor *executor, const struct interrupt *interrupt,
                                  struct err *err) {
    struct mpi_executor *mpi = mpi_of(executor);
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(&mpi->world)};
    enum status status = OK;
    while (!status && !take_reports(mpi) && !mpi->status) {
        (void)mpi_pause_wait(&pause);
        status = interrupt_check(interrupt, err);
    }
    if (!status) status = mpi_check(executor, err);
    if (status || !mpi->backend->collective) return status;
    next_command(mpi)->kind = MPI_COMMAND_CONNECT;
    post(mpi, 0);
    if (!mpi->base.comm) return OK;
    status = comm_connect(mpi->base.comm, err);
    mpi->is_connected = !status;
    return status ? mpi_blame(executor, status, err) : OK;
}

// Rank 0 of another process tells how many blocks there are.
static void receive_num_blocks(struct mpi_executor *mpi, struct engine_plan *plan) {
    struct mpi_report report;
    struct mpi_request request;
    mpi->wire->receive(&report, sizeof report, mpi->first, MPI_CHANNEL_REPORTS, &request);
    wait_done(mpi, &request);
    mpi->has_deadline = true;
    plan->scheduler.num_blocks = plan->runner.kv_cache.num_blocks = report.num_blocks;
}

static enum status mpi_warm_up(struct executor *executor, struct batch *batch, struct err *err) {
    struct mpi_executor *mpi = mpi_of(executor);
    if (mpi->backend->collective) { // CPUs have nothing to do
        next_command(mpi)->kind = MPI_COMMAND_WARM_UP;
        post(mpi, 0);
        if (mpi->first) receive_num_blocks(mpi, executor->plan);
    }
    if (mpi->first) return OK;
    enum status status = warm_up_run(executor->plan, executor->runner, batch, err);
    return status ? mpi_blame(executor, status, err) : OK;
}

static struct batch_header *mpi_batch(struct executor *executor, uint32_t slot) {
    return mpi_of(executor)->batches[slot];
}

// A large batch is on its way only while this process calls MPI.
static void send_on(struct mpi_executor *mpi) {
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
        for (uint32_t rank = mpi->first_rank; rank < mpi->world_size; rank++) {
            (void)mpi->wire->is_done(&mpi->places[i].requests[rank]);
        }
    }
}

// Waits until this process's rank has done its step, and ends all processes where that takes so
// long that another rank must be lost.
static void wait_step(struct mpi_executor *mpi, uint32_t slot) {
    bool may_spin = mpi_spin_seconds(&mpi->world) > 0;
    struct mpi_pause pause = {.spin_seconds = may_spin ? step_spin_seconds : 0};
    mpi->has_deadline = mpi->backend->queue != NULL;
    while (!model_runner_is_done(mpi->base.runner, slot)) {
        send_on(mpi);
        double waited = mpi_pause_wait(&pause);
        if (waited >= MPI_PATIENCE_SECONDS) give_up(mpi, waited);
    }
}

// What rank 0 of another process will send when the step is done.
static void receive_results(struct mpi_executor *mpi, uint32_t slot,
                            const struct batch_header *batch) {
    struct sample_result *results = mpi->step_results[slot];
    const struct step step = batch_bind(batch, (void *)(uintptr_t)batch);
    const uint32_t counts[] = {step.num_logits, step.num_prompt_logits};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        if (counts[i]) {
            mpi->wire->receive(results, counts[i] * sizeof *results, mpi->first,
                               MPI_CHANNEL_RESULTS, &mpi->result_requests[slot][i]);
        }
        results += mpi->max_num_seqs;
    }
}

static enum status mpi_launch(struct executor *executor, const struct batch *to_run, uint32_t slot,
                              struct model_runner_times *times, struct err *err) {
    struct mpi_executor *mpi = mpi_of(executor);
    const struct batch_header *batch = to_run->header;
    enum status status = OK;
    struct mpi_command *command = next_command(mpi);
    command->kind = MPI_COMMAND_LAUNCH;
    command->slot = slot;
    memcpy(command + 1, batch, batch_launch_bytes(batch));
    post(mpi, batch_launch_bytes(batch));
    if (mpi->first) {
        receive_results(mpi, slot, batch);
    } else {
        status = model_runner_launch(executor->runner, batch, slot, times, err);
    }
    return status ? status : mpi_check(executor, err);
}

static enum status mpi_sample(struct executor *executor, const struct batch *batch, uint32_t slot,
                              struct model_runner_times *times, struct err *err) {
    struct mpi_executor *mpi = mpi_of(executor);
    const struct batch_header *header = batch->header;
    size_t masks_bytes = header->size_bytes - header->masks_at;
    enum status status = OK;
    struct mpi_command *command = next_command(mpi);
    command->kind = MPI_COMMAND_SAMPLE;
    command->slot = slot;
    memcpy(command + 1, (const char *)header + header->masks_at, masks_bytes);
    post(mpi, masks_bytes);
    if (!mpi->first) status = model_runner_sample(executor->runner, header, slot, times, err);
    return status ? status : mpi_check(executor, err);
}

// Waits for a step's results of another process's rank 0.
static void wait_results(struct mpi_executor *mpi, uint32_t slot,
                         const struct sample_result **results,
                         const struct sample_result **prompt_results) {
    *results = mpi->step_results[slot];
    *prompt_results = *results + mpi->max_num_seqs;
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(&mpi->world)};
    double warn_at = MPI_PATIENCE_SECONDS;
    for (size_t i = 0; i < ARRAY_LEN(mpi->result_requests[slot]); i++) {
        while (!mpi->wire->is_done(&mpi->result_requests[slot][i])) {
            double waited = mpi_pause_wait(&pause);
            if (waited < warn_at) continue;
            if (mpi->backend->queue || mpi->is_ending) give_up(mpi, waited);
            log_warning("still waiting for the results of rank %u, for %.0f seconds now: is its "
                        "process stopped, or its host lost?",
                        mpi->first, waited);
            warn_at *= 10;
        }
    }
}

static enum status mpi_wait(struct executor *executor, uint32_t slot,
                            const struct sample_result **results,
                            const struct sample_result **prompt_results, struct err *err) {
    struct mpi_executor *mpi = mpi_of(executor);
    enum status status = OK;
    if (mpi->first) {
        wait_results(mpi, slot, results, prompt_results);
    } else {
        wait_step(mpi, slot);
        status = model_runner_wait(executor->runner, slot, results, prompt_results, err);
    }
    return status ? status : mpi_check(executor, err);
}

static void mpi_begin_counts(struct executor *executor, uint32_t slot, const int32_t *ids,
                             uint32_t num_prompt, uint32_t num_ids) {
    struct mpi_executor *mpi = mpi_of(executor);
    struct mpi_command *command = next_command(mpi);
    command->kind = MPI_COMMAND_BEGIN_COUNTS;
    command->slot = slot;
    command->num_prompt = num_prompt;
    command->num_ids = num_ids;
    memcpy(command + 1, ids, num_ids * sizeof *ids);
    post(mpi, num_ids * sizeof *ids);
    if (mpi->first) return;
    model_runner_begin_counts(executor->runner, slot, ids, num_prompt, num_ids);
}

static void mpi_begin_end(struct executor *executor) {
    mpi_of(executor)->is_ending = true;
}

static void mpi_stop(struct executor *executor) {
    struct mpi_executor *mpi = mpi_of(executor);
    mpi->is_ending = true;
    if (mpi->world_size) {
        next_command(mpi)->kind = MPI_COMMAND_QUIT;
        post(mpi, 0);
        // A rank that still loads ends its load when the command is there, and reports.
        for (uint32_t rank = mpi->first_rank; rank < mpi->world_size; rank++) {
            if (!mpi->has_reported[rank]) wait_done(mpi, &mpi->report_requests[rank]);
            for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
                wait_done(mpi, &mpi->places[i].requests[rank]);
            }
        }
    }
    if (mpi->is_connected) device_comm_end(mpi->base.comm, MPI_PATIENCE_SECONDS);
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) free(mpi->places[i].command);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        if (mpi->batches[i]) backend_release_host(mpi->backend, mpi->batches[i]);
        free(mpi->step_results[i]);
    }
    free(mpi->base.shared_results);
    comm_destroy(mpi->base.comm);
    free(mpi);
}

static const struct executor_ops mpi_ops = {
    .wait_ready = mpi_wait_ready,
    .batch = mpi_batch,
    .warm_up = mpi_warm_up,
    .begin_counts = mpi_begin_counts,
    .launch = mpi_launch,
    .sample = mpi_sample,
    .wait = mpi_wait,
    .check = mpi_check,
    .blame = mpi_blame,
    .begin_end = mpi_begin_end,
    .stop = mpi_stop,
};

enum status mpi_executor_create(struct executor **out, const struct engine_plan *plan,
                                const struct nvllm_engine_options *options, struct err *err) {
    struct mpi_executor *mpi = calloc(1, sizeof *mpi);
    if (!mpi) return err_nomem(err, "ranks");
    mpi->base.ops = &mpi_ops;
    mpi->backend = plan->backend;
    mpi->fills_memory = plan->fills_memory;
    mpi->payload_max = largest_payload(plan, options);
    mpi->world_size = plan->world_size;
    mpi->first = plan->first_process;
    mpi->first_rank = mpi->first ? 0 : 1;
    mpi->max_num_seqs = plan->runner.decoder.limits.max_num_seqs;
    uint64_t fingerprint = 0;
    enum status status = mpi_wire_open(&mpi->wire, &mpi->world, err);
    if (!status) status = allocate(mpi, plan, err);
    if (!status && !mpi->first) {
        status = mpi_message_comm(plan, mpi->wire, &mpi->world, mpi->first, &mpi->base.comm, err);
    }
    if (!status) status = mpi_message_fingerprint(plan, &fingerprint, err);
    if (status) {
        mpi->world_size = 0; // nobody was told
        mpi_stop(&mpi->base);
        return status;
    }
    post_start(mpi, *options, plan->scheduler.num_blocks, fingerprint);
    *out = &mpi->base;
    return OK;
}

static void await_end(const struct mpi_wire *wire, const struct mpi_world *world, uint32_t rank,
                      double patience_seconds, struct mpi_request *request) {
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(world)};
    while (!wire->is_done(request)) {
        double waited = mpi_pause_wait(&pause);
        if (waited < patience_seconds) continue;
        log_warning("process %u has not ended for %.0f seconds: it is stopped, or its host lost; "
                    "all processes end",
                    rank, waited);
        wire->end_all(1);
    }
}

void mpi_executor_leave(const struct mpi_wire *wire, const struct mpi_world *world,
                        double patience_seconds) {
    const struct mpi_command command = {.kind = MPI_COMMAND_EXIT};
    struct mpi_request request;
    for (uint32_t rank = 1; rank < world->size; rank++) {
        wire->send(&command, sizeof command, rank, MPI_CHANNEL_COMMANDS, &request);
        await_end(wire, world, rank, patience_seconds, &request);
    }
    // MPI's own end waits for all processes without a deadline. So they answer first.
    for (uint32_t rank = 1; rank < world->size; rank++) {
        struct mpi_report report;
        wire->receive(&report, sizeof report, rank, MPI_CHANNEL_REPORTS, &request);
        await_end(wire, world, rank, patience_seconds, &request);
    }
    wire->stop();
}
