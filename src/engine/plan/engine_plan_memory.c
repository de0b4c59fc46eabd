/* How much memory there is for a plan, whether it fits, and what to change where it does not. */
#include "base/os/cpu.h"
#include "base/text/c_locale.h"
#include "engine/plan/engine_plan.h"

static const double gib = 1024.0 * 1024.0 * 1024.0;

enum status engine_plan_find_memory(struct engine_plan *plan, double utilization, struct err *err) {
    plan->memory_available_bytes = cpu_memory_available_bytes() / plan->num_on_host;
    if (!plan->backend->queue) return OK;
    size_t left = 0, total = 0;
    enum status status = plan->backend->queue->memory(plan->backend, &left, &total, err);
    size_t share = (size_t)(utilization * (double)total);
    plan->memory_available_bytes = left < share ? left : share;
    plan->memory_left_bytes = left;
    return status;
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
