#include "engine/ranks/mpi_group.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/log.h"
#include "engine/ranks/mpi_message.h"
#include "engine/ranks/rank_options.h"
#include "engine/ranks/rank_segment.h"

// A step of another process may take its time, but seldom this long. A GPU's step is taken to be
// lost then.
static const double step_patience_seconds = 60;
// Most steps of GPUs end sooner.
static const double step_spin_seconds = 0.05;

// A command on its way: its bytes stay until all ranks have them.
struct place {
    struct mpi_command *command; // the payload follows
    struct mpi_request requests[COMM_RANKS_MAX]; // by rank
};

struct mpi_group {
    const struct mpi_wire *wire;
    struct mpi_world world;
    uint32_t first, world_size;
    uint32_t first_rank; // that is told what to run: 1, or 0 where rank 0 is another process
    struct comm *comm; // NULL: rank 0 is another process
    struct backend *backend;
    bool fills_memory; // the plan: the number of blocks is to be measured
    bool is_connected; // devices
    bool is_warm; // devices: from here on a command or a step that takes long is lost
    size_t payload_max; // bytes
    struct place places[RANK_COMMANDS]; // used in turn
    uint32_t num_posted;
    struct batch_header *batches[MODEL_RUNNER_SLOTS]; // [batch_bytes]
    struct sample_result *results; // [max_num_seqs + max_num_tokens]; NULL: ranks have devices
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

bool mpi_group_is_wanted(const struct nvllm_engine_options *options) {
    return strcmp(options->distributed_executor_backend, "mpi") == 0;
}

// Nothing can interrupt a GPU that waits for another one, so the processes end with it.
static void give_up(const struct mpi_group *group, double seconds) {
    log_warning("a step of ranks %u to %u has not ended for %.0f seconds: a process is stopped, or "
                "its host lost; all ranks end",
                group->first, group->first + group->world_size - 1, seconds);
    group->wire->end_all(1);
}

static void wait_done(const struct mpi_group *group, struct mpi_request *request) {
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(&group->world)};
    while (!group->wire->is_done(request)) {
        double waited = mpi_pause_wait(&pause);
        if (group->is_warm && waited >= step_patience_seconds) give_up(group, waited);
    }
}

// Where the next command goes, once the ranks have what was there before.
static struct mpi_command *next_command(struct mpi_group *group) {
    struct place *place = &group->places[group->num_posted % RANK_COMMANDS];
    for (uint32_t rank = group->first_rank; rank < group->world_size; rank++) {
        wait_done(group, &place->requests[rank]);
    }
    *place->command = (struct mpi_command){0};
    return place->command;
}

// Sends what next_command has given, and its payload.
static void post(struct mpi_group *group, size_t payload_bytes) {
    struct place *place = &group->places[group->num_posted++ % RANK_COMMANDS];
    CHECK(payload_bytes <= group->payload_max, "%zu > %zu", payload_bytes, group->payload_max);
    for (uint32_t rank = group->first_rank; rank < group->world_size; rank++) {
        group->wire->send(place->command, sizeof *place->command + payload_bytes,
                          group->first + rank, MPI_CHANNEL_COMMANDS, &place->requests[rank]);
    }
}

static size_t largest_payload(const struct engine_plan *plan,
                              const struct nvllm_engine_options *options) {
    size_t most = rank_options_bytes(*options);
    size_t ids_bytes = plan->runner.decoder.limits.max_positions * sizeof(int32_t);
    if (ids_bytes > most) most = ids_bytes;
    return plan->runner.batch_bytes > most ? plan->runner.batch_bytes : most;
}

static enum status allocate(struct mpi_group *group, const struct engine_plan *plan,
                            struct err *err) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    size_t num_results = (size_t)limits->max_num_seqs + limits->max_num_tokens;
    bool has_all = true;
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
        group->places[i].command = calloc(1, sizeof(struct mpi_command) + group->payload_max);
        has_all &= group->places[i].command != NULL;
    }
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        void *batch = NULL; // which devices copy by themselves
        enum status status =
            backend_alloc_host(group->backend, plan->runner.batch_bytes, &batch, err);
        if (status) return status;
        group->batches[i] = batch;
        group->step_results[i] = calloc(num_results, sizeof *group->results);
        has_all &= group->step_results[i] != NULL;
    }
    if (!group->backend->collective) {
        group->results = calloc(num_results, sizeof *group->results);
        has_all &= group->results != NULL;
    }
    return has_all ? OK : err_nomem(err, "ranks");
}

static void post_start(struct mpi_group *group, struct nvllm_engine_options options,
                       uint32_t num_blocks, uint64_t fingerprint) {
    struct mpi_command *command = next_command(group);
    *command = (struct mpi_command){
        .kind = MPI_COMMAND_START,
        .version = {NVLLM_VERSION_MAJOR, NVLLM_VERSION_MINOR, NVLLM_VERSION_PATCH},
        .options_bytes = sizeof options,
        .batch_header_bytes = sizeof(struct batch_header),
        .first = group->first,
        .world_size = group->world_size,
        .fingerprint = fingerprint,
    };
    if (!group->fills_memory) options.num_kvcache_blocks = (int32_t)num_blocks;
    rank_options_write((char *)(command + 1), options);
    for (uint32_t rank = group->first_rank; rank < group->world_size; rank++) {
        group->wire->receive(&group->reports[rank], sizeof group->reports[rank],
                             group->first + rank, MPI_CHANNEL_REPORTS,
                             &group->report_requests[rank]);
    }
    post(group, rank_options_bytes(options));
}

enum status mpi_group_start(struct mpi_group **out, const struct engine_plan *plan,
                            const struct nvllm_engine_options *options, struct err *err) {
    *out = NULL;
    struct mpi_group *group = calloc(1, sizeof *group);
    if (!group) return err_nomem(err, "ranks");
    group->backend = plan->backend;
    group->fills_memory = plan->fills_memory;
    group->payload_max = largest_payload(plan, options);
    group->world_size = plan->world_size;
    group->first = plan->first_process;
    group->first_rank = group->first ? 0 : 1;
    group->max_num_seqs = plan->runner.decoder.limits.max_num_seqs;
    uint64_t fingerprint = 0;
    enum status status = mpi_wire_open(&group->wire, &group->world, err);
    if (!status) status = allocate(group, plan, err);
    if (!status && !group->first) {
        status =
            mpi_message_comm(plan, group->wire, &group->world, group->first, &group->comm, err);
    }
    if (!status) status = mpi_message_fingerprint(plan, options, &fingerprint, err);
    if (status) {
        group->world_size = 0; // nobody was told
        mpi_group_stop(group);
        return status;
    }
    post_start(group, *options, plan->scheduler.num_blocks, fingerprint);
    *out = group;
    return OK;
}

// Takes in the reports that have come. True: all have.
static bool take_reports(struct mpi_group *group) {
    bool has_all = true;
    for (uint32_t rank = group->first_rank; rank < group->world_size; rank++) {
        if (group->has_reported[rank]) continue;
        group->has_reported[rank] = group->wire->is_done(&group->report_requests[rank]);
        has_all &= group->has_reported[rank];
        const struct mpi_report *report = &group->reports[rank];
        if (!group->has_reported[rank] || !report->status || group->status) continue;
        group->status =
            err_set(&group->failure, report->status, "rank %u: %s", rank, report->message);
    }
    return has_all;
}

enum status mpi_group_check(struct mpi_group *group, struct err *err) {
    (void)take_reports(group);
    if (group->status && err) *err = group->failure;
    return group->status;
}

enum status mpi_group_wait_ready(struct mpi_group *group, struct err *err) {
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(&group->world)};
    while (!take_reports(group) && !group->status) (void)mpi_pause_wait(&pause);
    enum status status = mpi_group_check(group, err);
    if (status || !group->backend->collective) return status;
    next_command(group)->kind = MPI_COMMAND_CONNECT;
    post(group, 0);
    if (!group->comm) return OK;
    status = comm_connect(group->comm, err);
    group->is_connected = !status;
    return status ? mpi_group_blame(group, status, err) : OK;
}

void mpi_group_warm_up(struct mpi_group *group) {
    if (!group->backend->collective) return; // there is nothing to do
    next_command(group)->kind = MPI_COMMAND_WARM_UP;
    post(group, 0);
}

void mpi_group_wait_warm(struct mpi_group *group, struct engine_plan *plan) {
    struct mpi_report report;
    struct mpi_request request;
    if (!group->backend->collective) return;
    group->wire->receive(&report, sizeof report, group->first, MPI_CHANNEL_REPORTS, &request);
    wait_done(group, &request);
    group->is_warm = true;
    plan->scheduler.num_blocks = plan->runner.kv_cache.num_blocks = report.num_blocks;
}

enum status mpi_group_blame(struct mpi_group *group, enum status status, const struct err *err) {
    log_warning("%s; all ranks end", err ? err->message : status_name(status));
    group->wire->end_all(1);
    return status;
}

struct comm *mpi_group_comm(struct mpi_group *group) {
    return group->comm;
}

struct batch_header *mpi_group_batch(struct mpi_group *group, uint32_t slot) {
    return group->batches[slot];
}

struct sample_result *mpi_group_results(struct mpi_group *group) {
    return group->results;
}

// A large batch is on its way only while this process calls MPI.
static void send_on(struct mpi_group *group) {
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
        for (uint32_t rank = group->first_rank; rank < group->world_size; rank++) {
            (void)group->wire->is_done(&group->places[i].requests[rank]);
        }
    }
}

void mpi_group_wait_step(struct mpi_group *group, const struct model_runner *runner,
                         uint32_t slot) {
    bool may_spin = mpi_spin_seconds(&group->world) > 0;
    struct mpi_pause pause = {.spin_seconds = may_spin ? step_spin_seconds : 0};
    group->is_warm = group->backend->queue != NULL;
    while (!model_runner_is_done(runner, slot)) {
        send_on(group);
        double waited = mpi_pause_wait(&pause);
        if (waited >= step_patience_seconds) give_up(group, waited);
    }
}

// What rank 0 of another process will send when the step is done.
static void receive_results(struct mpi_group *group, uint32_t slot,
                            const struct batch_header *batch) {
    struct sample_result *results = group->step_results[slot];
    const struct step step = batch_bind(batch, (void *)(uintptr_t)batch);
    const uint32_t counts[] = {step.num_logits, step.num_prompt_logits};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        if (counts[i]) {
            group->wire->receive(results, counts[i] * sizeof *results, group->first,
                                 MPI_CHANNEL_RESULTS, &group->result_requests[slot][i]);
        }
        results += group->max_num_seqs;
    }
}

void mpi_group_launch(struct mpi_group *group, uint32_t slot) {
    const struct batch_header *batch = group->batches[slot];
    struct mpi_command *command = next_command(group);
    command->kind = MPI_COMMAND_LAUNCH;
    command->slot = slot;
    memcpy(command + 1, batch, batch->size_bytes);
    post(group, batch->size_bytes);
    if (group->first) receive_results(group, slot, batch);
}

void mpi_group_wait_results(struct mpi_group *group, uint32_t slot,
                            const struct sample_result **results,
                            const struct sample_result **prompt_results) {
    *results = group->step_results[slot];
    *prompt_results = *results + group->max_num_seqs;
    struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(&group->world)};
    double warn_at = step_patience_seconds;
    for (size_t i = 0; i < ARRAY_LEN(group->result_requests[slot]); i++) {
        while (!group->wire->is_done(&group->result_requests[slot][i])) {
            double waited = mpi_pause_wait(&pause);
            if (waited < warn_at) continue;
            if (group->backend->queue) give_up(group, waited);
            log_warning("still waiting for the results of rank %u, for %.0f seconds now: is its "
                        "process stopped, or its host lost?",
                        group->first, waited);
            warn_at *= 10;
        }
    }
}

void mpi_group_begin_counts(struct mpi_group *group, uint32_t slot, const int32_t *ids,
                            uint32_t num_prompt, uint32_t num_ids) {
    struct mpi_command *command = next_command(group);
    command->kind = MPI_COMMAND_BEGIN_COUNTS;
    command->slot = slot;
    command->num_prompt = num_prompt;
    command->num_ids = num_ids;
    memcpy(command + 1, ids, num_ids * sizeof *ids);
    post(group, num_ids * sizeof *ids);
}

void mpi_group_stop(struct mpi_group *group) {
    if (!group) return;
    if (group->world_size) {
        next_command(group)->kind = MPI_COMMAND_QUIT;
        post(group, 0);
        // Also of the ranks that were still loading: their reports are received here.
        for (uint32_t rank = group->first_rank; rank < group->world_size; rank++) {
            if (!group->has_reported[rank]) wait_done(group, &group->report_requests[rank]);
            for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
                wait_done(group, &group->places[i].requests[rank]);
            }
        }
    }
    // No device still reads another's memory when all ranks have come here.
    if (group->is_connected) (void)comm_minimum(group->comm, 0);
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) free(group->places[i].command);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        if (group->batches[i]) backend_release_host(group->backend, group->batches[i]);
        free(group->step_results[i]);
    }
    free(group->results);
    comm_destroy(group->comm);
    free(group);
}

void mpi_group_leave(const struct mpi_wire *wire, const struct mpi_world *world) {
    const struct mpi_command command = {.kind = MPI_COMMAND_EXIT};
    for (uint32_t rank = 1; rank < world->size; rank++) {
        struct mpi_request request;
        struct mpi_pause pause = {.spin_seconds = mpi_spin_seconds(world)};
        wire->send(&command, sizeof command, rank, MPI_CHANNEL_COMMANDS, &request);
        while (!wire->is_done(&request)) (void)mpi_pause_wait(&pause);
    }
    wire->stop();
}
