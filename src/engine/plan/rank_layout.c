#include "engine/plan/rank_layout.h"

enum { ALIGN = 4096 };

struct shm_comm_shape rank_layout_comm_shape(const struct engine_plan *plan) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    struct shm_comm_shape shape = {
        .world_size = plan->world_size,
        .partial_bytes = (size_t)limits->max_num_tokens * plan->config.hidden_size *
                         dtype_size(plan->backend->activation_dtype),
        .max_num_logits = limits->max_num_seqs,
    };
    for (uint32_t rank = 0; rank <= plan->world_size; rank++) {
        shape.vocab_start[rank] = decoder_vocab_start(&plan->config, rank, plan->world_size);
    }
    return shape;
}

void rank_layout_collective_spec(const struct engine_plan *plan, struct collective_spec *out) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    *out = (struct collective_spec){
        .kind = plan->collective_kind,
        .is_one_host = plan->is_one_host,
        .rank = plan->rank,
        .world_size = plan->world_size,
        .hidden = plan->config.hidden_size,
        .max_num_tokens = limits->max_num_tokens,
        .max_num_logits = limits->max_num_seqs,
    };
    for (uint32_t rank = 0; rank <= plan->world_size; rank++) {
        out->vocab_start[rank] = decoder_vocab_start(&plan->config, rank, plan->world_size);
    }
}

// Hands out `bytes`, page-aligned, of a memory that so far has *size bytes.
static size_t take(size_t *size, size_t bytes) {
    size_t at = *size;
    *size += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

struct rank_layout rank_layout_make(const struct engine_plan *plan, size_t options_bytes) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    struct rank_layout layout = {.comm_shape = rank_layout_comm_shape(plan)};
    size_t *size = &layout.size_bytes;
    take(size, RANK_HEAD_BYTES);
    layout.options_at = take(size, options_bytes);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        layout.batch_at[i] = take(size, plan->runner.batch_bytes);
    }
    bool has_devices = plan->backend->collective != NULL;
    size_t num_results = (size_t)limits->max_num_seqs + limits->max_num_tokens;
    if (!has_devices) layout.results_at = take(size, num_results * sizeof(struct sample_result));
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
        layout.ids_at[i] = take(size, limits->max_positions * sizeof(int32_t));
    }
    size_t comm_bytes =
        has_devices ? COLLECTIVE_CARD_BYTES : shm_comm_rank_bytes(&layout.comm_shape);
    layout.comm_at = take(size, plan->world_size * comm_bytes);
    if (has_devices) rank_layout_collective_spec(plan, &layout.collective);
    return layout;
}

size_t rank_layout_share_bytes(const struct engine_plan *plan) {
    return rank_layout_make(plan, sizeof(struct nvllm_engine_options)).size_bytes /
           plan->world_size;
}
