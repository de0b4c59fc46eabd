/* The memory of a plan: how much there is, how much each part takes, whether that fits, and what to
 * change where it does not. */
#include "base/log.h"
#include "base/os/cpu.h"
#include "base/text/c_locale.h"
#include "comm/mpi_comm.h"
#include "engine/plan/engine_plan.h"
#include "engine/plan/rank_layout.h"
#include "engine/step/rank_sampling.h"

static const double gib = 1024.0 * 1024.0 * 1024.0;

// Finds the memory that this process may take. On a device that is its share, or what is free if
// that is less.
static enum status find_available(struct engine_plan *plan, double utilization, struct err *err) {
    plan->memory_available_bytes = cpu_memory_available_bytes() / plan->num_on_host;
    if (!plan->backend->queue) return OK;
    size_t left = 0, total = 0;
    enum status status = plan->backend->queue->memory(plan->backend, &left, &total, err);
    size_t share = (size_t)(utilization * (double)total);
    plan->memory_available_bytes = left < share ? left : share;
    plan->memory_left_bytes = left;
    return status;
}

// Memory that a rank needs only because there are other ranks.
static size_t bytes_for_ranks(const struct engine_plan *plan,
                              const struct nvllm_engine_options *options) {
    if (plan->backend->collective) {
        struct collective_spec spec;
        rank_layout_collective_spec(plan, &spec);
        return plan->backend->collective->bytes(plan->backend, &spec);
    }
    uint32_t max_num_seqs = plan->runner.decoder.limits.max_num_seqs;
    size_t bytes = rank_sampling_bytes(max_num_seqs, plan->config.vocab_size);
    if (!engine_plan_uses_mpi(options)) return bytes + rank_layout_share_bytes(plan);
    const struct shm_comm_shape shape = rank_layout_comm_shape(plan);
    return bytes + mpi_comm_bytes(&shape);
}

// Where the options are at their defaults, states of recurrent layers take at most a quarter of the
// memory that the weights leave: fewer sequences run at once, and fewer snapshots are kept. Several
// ranks would have to agree on that; there the options stand, and too much is refused.
static void fit_states(struct engine_plan *plan, const struct nvllm_engine_options *options) {
    static const struct nvllm_engine_options usual = NVLLM_ENGINE_OPTIONS_INIT;
    struct step_limits *limits = &plan->runner.decoder.limits;
    size_t slot = decoder_state_bytes(&plan->layers, &plan->shape, plan->backend);
    size_t available = plan->memory_available_bytes;
    if (!slot || !available || engine_plan_num_ranks(options) > 1) return;
    size_t weights = plan->weights_bytes;
    size_t num_slots = available > weights ? (available - weights) / 4 / slot : 0;
    uint32_t seqs = limits->max_num_seqs, snapshots = limits->num_snapshots;
    if (seqs + (size_t)snapshots <= num_slots) return;
    if (snapshots && options->num_state_snapshots == usual.num_state_snapshots) {
        snapshots = num_slots / 5 ? (uint32_t)(num_slots / 5) : 1;
        if (snapshots > limits->num_snapshots) snapshots = limits->num_snapshots;
    }
    if (options->max_num_seqs == usual.max_num_seqs) {
        size_t most = num_slots > snapshots ? num_slots - snapshots : 1;
        if (seqs > most) seqs = (uint32_t)most;
    }
    log_write(LOG_NOTICE,
              "a sequence's state takes %.1f MiB: max_num_seqs is %u, num_state_snapshots %u",
              (double)slot / (1 << 20), seqs, snapshots);
    limits->max_num_seqs = plan->scheduler.max_num_seqs = seqs;
    limits->num_snapshots = plan->scheduler.num_snapshots = snapshots;
}

enum status engine_plan_find_memory(struct engine_plan *plan,
                                    const struct nvllm_engine_options *options, struct err *err) {
    struct decoder_options *decoder = &plan->runner.decoder;
    enum status status = find_available(plan, options->gpu_memory_utilization, err);
    if (status) return status;
    plan->weights_bytes = decoder_weights_bytes(&plan->config, &plan->layers, &plan->shape,
                                                plan->backend, &decoder->formats);
    fit_states(plan, options);
    plan->runner.batch_bytes = batch_capacity_bytes(&decoder->limits, plan->config.vocab_size);
    plan->runner.enforce_eager = options->enforce_eager != 0;
    // Ranks record their steps at the same time, before the first request.
    plan->runner.full_warm_up = options->full_warm_up || plan->world_size > 1;
    plan->runner.max_num_seqs = plan->scheduler.max_num_seqs;
    if (plan->drafts.num_tokens) {
        uint32_t rows = decoder->limits.max_num_seqs;
        plan->runner.draft_rows = rows < DRAFT_ROWS_MAX ? rows : DRAFT_ROWS_MAX;
    }
    plan->workspace_bytes = model_runner_workspace_bytes(&plan->runner);
    if (plan->world_size > 1) plan->workspace_bytes += bytes_for_ranks(plan, options);
    plan->state_bytes = ((size_t)decoder->limits.max_num_seqs + decoder->limits.num_snapshots) *
                        decoder_state_bytes(&plan->layers, &plan->shape, plan->backend);
    return OK;
}

size_t engine_plan_scheduler_bytes(const struct engine_plan *plan) {
    return plan->backend->queue || plan->rank > 0 ? 0 : scheduler_bytes(&plan->scheduler);
}

size_t engine_plan_total_bytes(const struct engine_plan *plan) {
    return engine_plan_scheduler_bytes(plan) + plan->weights_bytes + plan->workspace_bytes +
           plan->state_bytes + plan->kv_block_bytes * plan->scheduler.num_blocks;
}

// What makes the largest part of the memory smaller.
static const char *smaller_part(const struct engine_plan *plan, size_t kv_bytes) {
    bool is_gpu = plan->backend->queue != NULL;
    size_t weights = plan->weights_bytes, workspace = plan->workspace_bytes;
    size_t states = plan->state_bytes, others = engine_plan_total_bytes(plan) - states;
    bool is_largest = states > kv_bytes && states > weights && states > workspace;
    if (is_largest || (states && others < plan->memory_available_bytes)) {
        return "a smaller max_num_seqs or num_state_snapshots needs less";
    }
    if (kv_bytes > weights && kv_bytes > workspace) {
        return "a smaller kv_cache_gib, num_kvcache_blocks or max_model_len needs less, and so "
               "does kv_cache_dtype fp8 or int8";
    }
    if (workspace > weights) return "a smaller max_num_batched_tokens or max_num_seqs needs less";
    if (is_gpu) return "tensor_parallel_size shares the weights among several GPUs";
    uint32_t bits = engine_plan_weight_format(plan).bits;
    if (bits == WEIGHTS_INT4.bits) return "only a smaller model needs less";
    return bits == WEIGHTS_INT8.bits ? "quantization int4 makes the weights smaller"
                                     : "quantization int8 or int4 makes the weights smaller";
}

size_t engine_plan_spare_bytes(const struct engine_plan *plan) {
    uint64_t num_blocks = plan->fills_memory ? engine_plan_blocks_for(plan, plan->max_model_len)
                                             : plan->scheduler.num_blocks;
    size_t needed = plan->weights_bytes + plan->workspace_bytes + plan->state_bytes +
                    plan->kv_block_bytes * num_blocks;
    return plan->memory_available_bytes > needed ? plan->memory_available_bytes - needed : 0;
}

enum status engine_plan_check_memory(const struct engine_plan *plan, struct err *err) {
    if (plan->fills_memory && plan->num_on_gpu > 1) {
        return err_set(err, ERR_INVALID,
                       "%u ranks share a GPU, and the KV cache of each would take what is left of "
                       "its memory; num_kvcache_blocks or kv_cache_gib says how large each is",
                       plan->num_on_gpu);
    }
    size_t needed = engine_plan_total_bytes(plan);
    size_t available = plan->memory_available_bytes;
    if (!available || needed <= available) return OK;
    size_t kv_bytes = plan->kv_block_bytes * plan->scheduler.num_blocks;
    size_t workspace = plan->workspace_bytes + engine_plan_scheduler_bytes(plan);
    char states[100] = "";
    if (plan->state_bytes) {
        c_locale_snprintf(states, sizeof states, ", states of %u sequences and %u snapshots %.2f",
                          plan->scheduler.max_num_seqs, plan->scheduler.num_snapshots,
                          (double)plan->state_bytes / gib);
    }
    return err_set(err, ERR_NOMEM,
                   "the model needs %.2f GiB (weights %.2f, workspace %.2f, KV cache %.2f%s), but "
                   "%.2f are free; %s",
                   (double)needed / gib, (double)plan->weights_bytes / gib, (double)workspace / gib,
                   (double)kv_bytes / gib, states, (double)available / gib,
                   smaller_part(plan, kv_bytes));
}
