#include "engine/executor/warm_up.h"

enum {
    GRANULE_BYTES = 2 << 20, // in which a device gives memory to a process
    // Stays free for kernels that no step of the warm-up runs, which a device loads when they are
    // first launched: all of a backend's can be 4 MB.
    LATER_BYTES = 16 << 20,
};

static const double gib = 1024.0 * 1024.0 * 1024.0;

// How much memory this process may still take, once `given_back` bytes are given back. Loaded
// kernels, recorded steps and the rounding of allocations are already subtracted.
static enum status find_left(const struct engine_plan *plan, size_t given_back, size_t *left,
                             struct err *err) {
    size_t free_bytes = 0, total = 0;
    enum status status = plan->backend->queue->memory(plan->backend, &free_bytes, &total, err);
    size_t before = plan->memory_left_bytes;
    size_t available = plan->memory_available_bytes + given_back;
    size_t taken = before > free_bytes ? before - free_bytes : 0;
    *left = available > taken ? available - taken : 0;
    return status;
}

// Estimates the memory of a recorded step. The smallest step is recorded before the largest, so
// that memory that only a first recording takes is not counted for all.
static enum status find_recording(const struct engine_plan *plan, struct model_runner *runner,
                                  struct batch *batch, size_t *bytes, struct err *err) {
    size_t before = 0, after = 0;
    *bytes = 0;
    if (!model_runner_num_sizes(runner)) return OK;
    enum status status = model_runner_record(runner, batch, 0, err);
    if (!status) status = find_left(plan, 0, &before, err);
    uint32_t num_sizes = model_runner_num_sizes(runner);
    if (!status && num_sizes) status = model_runner_record(runner, batch, num_sizes - 1, err);
    if (!status) status = find_left(plan, 0, &after, err);
    *bytes = GRANULE_BYTES + (before > after ? before - after : 0);
    return status;
}

// Gives the runner as many blocks as there is room for, beside `later` bytes.
static enum status fill(struct engine_plan *plan, struct model_runner *runner, size_t later,
                        struct err *err) {
    struct kv_cache_spec *cache = &plan->runner.kv_cache;
    size_t left = 0, block_bytes = plan->kv_block_bytes;
    enum status status = find_left(plan, block_bytes * cache->num_blocks, &left, err);
    if (status) return status;
    left = left > later ? left - later : 0;
    // Each rank has so many.
    uint64_t num_blocks = comm_minimum(model_runner_comm(runner), left / block_bytes);
    uint64_t one_sequence = engine_plan_blocks_for(plan, plan->max_model_len);
    if (num_blocks < one_sequence) {
        return err_set(
            err, ERR_NOMEM,
            "the KV cache of max_model_len %u needs %.2f GiB, but %.2f of %.2f GiB are left; a "
            "smaller max_model_len or a larger gpu_memory_utilization helps",
            plan->max_model_len, (double)(block_bytes * one_sequence) / gib, (double)left / gib,
            (double)plan->memory_available_bytes / gib);
    }
    uint64_t most_blocks = engine_plan_most_blocks(plan);
    if (num_blocks > most_blocks) num_blocks = most_blocks;
    plan->scheduler.num_blocks = cache->num_blocks = (uint32_t)num_blocks;
    return model_runner_set_cache(runner, cache, err);
}

static enum status fill_and_record(struct engine_plan *plan, struct model_runner *runner,
                                   struct batch *batch, struct err *err) {
    size_t recording = 0, left = 0;
    enum status status = find_recording(plan, runner, batch, &recording, err);
    size_t all = model_runner_num_sizes(runner) * recording;
    if (!status) status = fill(plan, runner, LATER_BYTES + all, err);
    if (!status) status = model_runner_record_first(runner, batch, err);
    if (!status) status = find_left(plan, 0, &left, err);
    size_t later = LATER_BYTES + model_runner_num_unrecorded(runner) * recording;
    if (status || comm_minimum(model_runner_comm(runner), left) >= later) return status;
    // The recordings took more than was assumed. Now they are there.
    status = fill(plan, runner, later, err);
    return status ? status : model_runner_record_first(runner, batch, err);
}

enum status warm_up_run(struct engine_plan *plan, struct model_runner *runner, struct batch *batch,
                        struct err *err) {
    enum status status = model_runner_warm_up(runner, batch, err);
    if (status) return status;
    if (plan->fills_memory) {
        status = fill_and_record(plan, runner, batch, err);
    } else {
        status = model_runner_record_first(runner, batch, err);
    }
    if (status || !plan->backend->queue) return status;
    comm_minimum(model_runner_comm(runner), 0); // all ranks are ready
    if (comm_is_alive(model_runner_comm(runner))) return OK;
    return err_set(err, ERR_DEVICE, "another rank was lost");
}

enum status warm_up_run_worker(struct engine_plan *plan, struct model_runner *runner,
                               struct err *err) {
    struct batch batch;
    enum status status = batch_init(&batch, plan->backend, &plan->runner.decoder.limits,
                                    plan->config.vocab_size, NULL, err);
    if (!status) status = warm_up_run(plan, runner, &batch, err);
    batch_fini(&batch, plan->backend);
    return status;
}
