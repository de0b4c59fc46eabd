#include "engine/plan/plan_drafts.h"

static struct draft_machine machine_of(const struct engine_plan *plan) {
    return (struct draft_machine){
        .has_queue = plan->backend->queue != NULL,
        .has_cheap_rows = plan->backend->has_cheap_rows,
        .is_packed = !weight_format_is(engine_plan_weight_format(plan), WEIGHTS_NATIVE),
        .has_experts = plan->config.moe.num_experts > 0,
        .prepares_apart = !layer_table_has_plain_heads(&plan->layers),
        .num_ranks = plan->world_size,
        .num_parameters = decoder_num_parameters(&plan->config, &plan->layers),
    };
}

// Where guesses may not pay, `auto` is off. Forms still skip certain text where steps overlap.
enum status plan_drafts(struct engine_plan *plan, const struct nvllm_engine_options *options,
                        struct err *err) {
    const struct draft_machine machine = machine_of(plan);
    bool has_states = layer_table_num_states(&plan->layers) > 0;
    enum status status = draft_options_read(&plan->drafts, options, has_states, err);
    if (status) return status;
    plan->draft_costs = draft_costs_of(&machine);
    if (plan->drafts.is_adaptive && !plan->draft_costs.seqs_max) {
        plan->drafts = (struct draft_options){0};
    }
    bool has_forms = plan->is_async && !has_states && !options->skip_tokenizer_init;
    if (has_forms && !plan->drafts.num_tokens) plan->drafts = draft_options_forced();
    return OK;
}
