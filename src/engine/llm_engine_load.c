/* From options to an engine that can step: the plan, then the weights and the warm-up, with the
 * tokenizer beside them, then what lies around the model. */
#include <stdlib.h>

#include "base/os/clock.h"
#include "base/os/cpu.h"
#include "base/os/secret.h"
#include "engine/llm_engine_internal.h"
#include "engine/tokenizer_load.h"

static enum status create_scheduler(struct llm_engine *engine, struct err *err) {
    struct scheduler_config config = engine->plan.scheduler;
    engine->secret = secret_make(); // keys the hashes, so that nobody can forge a cached prefix
    config.hash_seed = engine->secret;
    return scheduler_create(&engine->scheduler, &config, err);
}

static enum status create_inflight_steps(struct llm_engine *engine, struct err *err) {
    const struct scheduler_config config = engine->plan.scheduler;
    enum status status =
        token_count_slots_init(&engine->token_count_slots, config.max_num_seqs, err);
    if (status) return status;
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        struct inflight_step *inflight = &engine->inflight_steps[i];
        inflight->slot = i;
        status = schedule_init(&inflight->schedule, config.max_num_seqs, err);
        if (status) return status;
        void *block = executor_batch(engine->executor, i);
        status =
            batch_init(&inflight->batch, engine->plan.backend, &engine->plan.runner.decoder.limits,
                       engine->plan.config.vocab_size, block, err);
        if (status) return status;
        inflight->batch.forms_are_late = engine->plan.is_async;
        inflight->batch.shares_prefixes = model_runner_shares_prefixes(&engine->plan.runner);
    }
    return OK;
}

static enum status create_row_buffers(struct llm_engine *engine, struct err *err) {
    struct row_buffers *buffers = &engine->row_buffers;
    size_t vocab_size = engine->plan.config.vocab_size;
    buffers->scratch = malloc(2 * vocab_size * sizeof *buffers->scratch);
    buffers->ranked = malloc(vocab_size * sizeof *buffers->ranked);
    if (!buffers->scratch || !buffers->ranked) return err_nomem(err, "engine");
    executor_set_row_fns(engine->executor, llm_engine_take_row, llm_engine_take_hidden, engine);
    return OK;
}

// A tokenizer with more ids than the vocabulary would make prompts whose ids have no embedding.
static enum status check_vocabulary(const struct llm_engine *engine, struct err *err) {
    if (!engine->tokenizer) return OK;
    uint32_t num_tokens = tokenizer_num_tokens(engine->tokenizer);
    uint32_t vocab_size = engine->plan.config.vocab_size;
    if (num_tokens <= vocab_size) return OK; // models pad their vocabulary
    return err_set(err, ERR_FORMAT,
                   "the tokenizer has %u token ids, but the model's vocab_size is %u", num_tokens,
                   vocab_size);
}

// The model's own template may be missing or broken: only chats are refused then. A template that
// the caller has named must work.
static enum status open_chat_template(struct llm_engine *engine,
                                      const struct nvllm_engine_options *options, struct err *err) {
    struct err why = {0};
    enum status status = chat_template_open(&engine->chat_template, engine->plan.checkpoint,
                                            options->chat_template, &why);
    if (status == ERR_NOMEM || (status && options->chat_template)) {
        if (err) *err = why;
        return status;
    }
    engine->template_status = status;
    engine->template_err = why;
    return OK;
}

static void init_stats(struct llm_engine *engine, double load_seconds, double warm_up_seconds) {
    const struct engine_plan *plan = &engine->plan;
    uint32_t max_model_len = engine_plan_context_len(plan);
    engine->stats = (struct nvllm_stats){
        .struct_size = sizeof engine->stats,
        .num_kv_blocks = plan->scheduler.num_blocks,
        .block_size = plan->scheduler.block_size,
        .num_kv_groups = plan->scheduler.groups.num_groups,
        .num_kv_blocks_each = (uint32_t)engine_plan_blocks_for(plan, max_model_len),
        .max_model_len = max_model_len,
        .vocab_size = plan->config.vocab_size,
        .load_seconds = load_seconds,
        .warm_up_seconds = warm_up_seconds,
        .weights_bytes = plan->weights_bytes,
        .workspace_bytes = plan->workspace_bytes + plan->state_bytes,
        .kv_cache_bytes = (uint64_t)plan->kv_block_bytes * plan->scheduler.num_blocks,
    };
    llm_engine_publish_stats(engine);
}

enum status llm_engine_plan(struct llm_engine **out, const struct nvllm_engine_options *options,
                            const struct llm_engine_shared *shared, struct err *err) {
    *out = NULL;
    struct llm_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return err_nomem(err, "engine");
    engine->start_seconds = clock_seconds();
    if (shared) engine->shared = *shared;
    enum status status = engine_plan_make(&engine->plan, options, engine->shared.index, 0, err);
    if (!status) status = engine_plan_check_memory(&engine->plan, err);
    if (status) {
        llm_engine_destroy(engine);
        return status;
    }
    *out = engine;
    return OK;
}

// What needs no tokenizer: the weights and the warm-up.
static enum status load_model(struct llm_engine *engine, const struct nvllm_engine_options *options,
                              double *warm_up_seconds, struct err *err) {
    const struct interrupt interrupt = llm_engine_interrupt(options->interrupt);
    enum status status = executor_load(engine->executor, options, err);
    if (status) return status;
    if ((status = create_inflight_steps(engine, err))) return status;
    if ((status = create_row_buffers(engine, err))) return status;
    if ((status = llm_engine_init_drafts(engine, err))) return status;
    if ((status = interrupt_check(&interrupt, err))) return status; // nothing ends a warm-up early
    double start = clock_seconds();
    status = executor_warm_up(engine->executor, &engine->inflight_steps[0].batch, err);
    *warm_up_seconds = clock_seconds() - start;
    return status;
}

// Why load_model may have to end early: the caller interrupts, or the tokenizer is broken.
struct load_end {
    const struct nvllm_interrupt *interrupt; // the caller's; NULL: none
    const struct tokenizer_load *tokenizer;
};

static int is_load_to_end(void *user_data) {
    const struct load_end *end = user_data;
    if (tokenizer_load_has_failed(end->tokenizer)) return 1;
    const struct interrupt interrupt = llm_engine_interrupt(end->interrupt);
    return interrupt_check(&interrupt, NULL) != OK;
}

static enum status load_beside(struct llm_engine *engine, const struct nvllm_engine_options *given,
                               struct tokenizer_load *tokenizer, double *warm_up_seconds,
                               struct err *err) {
    struct load_end end = {given->interrupt, tokenizer};
    const struct nvllm_interrupt interrupt = {.is_wanted = is_load_to_end, .user_data = &end};
    struct nvllm_engine_options options = *given;
    options.interrupt = &interrupt;
    enum status status = load_model(engine, &options, warm_up_seconds, err);
    bool is_model_at_fault = status && status != ERR_INTERRUPTED;
    enum status tokenizer_status =
        tokenizer_load_finish(tokenizer, &engine->tokenizer, is_model_at_fault ? NULL : err);
    return tokenizer_status && !is_model_at_fault ? tokenizer_status : status;
}

// The model, and beside it the tokenizer: that of Qwen3 takes 0.1 s.
static enum status load_both(struct llm_engine *engine, const struct nvllm_engine_options *options,
                             double *warm_up_seconds, struct err *err) {
    bool has_text = !engine->text_of;
    enum status status = has_text ? open_chat_template(engine, options, err) : OK;
    if (status) return status;
    struct tokenizer_load *load = calloc(1, sizeof *load);
    if (!load) return err_nomem(err, "engine");
    if (has_text && !options->skip_tokenizer_init) {
        status = tokenizer_load_start(load, engine->plan.checkpoint, err);
    }
    if (!status) status = load_beside(engine, options, load, warm_up_seconds, err);
    free(load);
    return status;
}

static enum status create_forms(struct llm_engine *engine, struct err *err) {
    const struct model_config *config = &engine->plan.config;
    const struct forms_options options = {.tokenizer = engine->tokenizer,
                                          .vocab_size = config->vocab_size,
                                          .ending = config->eos_token_ids,
                                          .num_ending = config->num_eos_token_ids};
    engine->forms = calloc(1, sizeof *engine->forms);
    return engine->forms ? forms_init(engine->forms, &options, err) : err_nomem(err, "engine");
}

enum status llm_engine_load(struct llm_engine *engine, const struct nvllm_engine_options *options,
                            const struct llm_engine *text_of, struct err *err) {
    enum status status = OK;
    engine->text_of = text_of;
    status = executor_create(&engine->executor, &engine->plan, options, err);
    if (status) return status;
    double warm_up_seconds = 0;
    if ((status = load_both(engine, options, &warm_up_seconds, err))) return status;
    if ((status = check_vocabulary(engine, err))) return status;
    if ((status = create_forms(engine, err))) return status;
    if (engine->plan.is_async) {
        engine->num_mask_threads =
            (uint32_t)(options->threads ? options->threads : cpu_core_count());
    }
    if ((status = create_scheduler(engine, err))) return status;
    const struct inbox_bounds bounds = {(uint32_t)options->max_num_waiting,
                                        (uint64_t)options->max_waiting_tokens};
    status = inbox_init(&engine->inbox, bounds, engine->shared.next_id, err);
    if (status) return status;
    init_stats(engine, clock_seconds() - engine->start_seconds, warm_up_seconds);
    return OK;
}
