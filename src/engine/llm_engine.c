#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/secret.h"
#include "engine/llm_engine_internal.h"

static enum status land(struct llm_engine *engine, struct flight *flight, struct err *err);
static void end_all(struct llm_engine *engine, enum nvllm_finish_reason reason, const char *why);
static void publish_stats(struct llm_engine *engine);

// tokenizer.json is read on a thread of its own beside the weights.
struct tokenizer_load {
    char path[FILE_PATH_MAX];
    struct tokenizer *tokenizer;
    enum status status;
    struct err err;
    pthread_t thread;
    bool started;
};

static void *run_tokenizer_load(void *arg) {
    struct tokenizer_load *load = arg;
    load->status = tokenizer_open(&load->tokenizer, load->path, &load->err);
    return NULL;
}

static enum status start_tokenizer_load(struct tokenizer_load *load, const char *model,
                                        struct err *err) {
    *load = (struct tokenizer_load){0};
    enum status status = file_join(load->path, sizeof load->path, model, "tokenizer.json", err);
    bool present = false;
    if (!status) status = tokenizer_check_present(load->path, &present, err);
    if (status) return status;
    if (!present) {
        return err_set(err, ERR_IO,
                       "%s is missing (skip_tokenizer_init runs token ids without a tokenizer)",
                       load->path);
    }
    sigset_t all, before; // the program's signals are for the program's own threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    load->started = pthread_create(&load->thread, NULL, run_tokenizer_load, load) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!load->started) run_tokenizer_load(load); // no thread to be had: load it here
    return OK;
}

static enum status finish_tokenizer_load(struct tokenizer_load *load, struct tokenizer **out,
                                         struct err *err) {
    if (load->started) pthread_join(load->thread, NULL);
    *out = load->tokenizer;
    if (load->status && err) *err = load->err;
    return load->status;
}

struct interrupt llm_engine_interrupt(const struct nvllm_interrupt *given) {
    if (!given) return (struct interrupt){0};
    return (struct interrupt){.is_wanted = given->is_wanted, .user_data = given->user_data};
}

// What ends the load of the weights early.
struct load_end {
    struct rank_group *ranks; // NULL: none
    struct interrupt interrupt; // the caller's
};

static int is_load_to_end(void *user_data) {
    const struct load_end *ends = user_data;
    if (ends->ranks && rank_group_check(ends->ranks, NULL)) return 1;
    return interrupt_check(&ends->interrupt, NULL) != OK;
}

static enum status load_weights(struct llm_engine *engine,
                                const struct nvllm_engine_options *options, struct err *err) {
    struct weights *weights = NULL;
    enum status status = engine_plan_open_weights(&engine->plan, options, &weights, err);
    if (status) return status;
    struct load_end ends = {engine->ranks, llm_engine_interrupt(options->interrupt)};
    const struct interrupt interrupt = {.is_wanted = is_load_to_end, .user_data = &ends};
    struct model_runner_options runner = engine->plan.runner;
    runner.decoder.interrupt = &interrupt;
    if (engine->ranks) {
        runner.decoder.comm = rank_group_comm(engine->ranks);
        runner.shared_results = rank_group_results(engine->ranks);
    }
    status = model_runner_create(&engine->runner, &runner, weights, err);
    weights_close(weights);
    // A lost rank ended the load, and is the reason.
    enum status lost = status && engine->ranks ? rank_group_check(engine->ranks, err) : OK;
    return lost ? lost : status;
}

static enum status create_scheduler(struct llm_engine *engine, struct err *err) {
    struct scheduler_config config = engine->plan.scheduler;
    engine->secret = secret_make(); // cached prefixes are found by hash: nobody is to forge one
    config.hash_seed = engine->secret;
    return scheduler_create(&engine->scheduler, &config, err);
}

static enum status create_flights(struct llm_engine *engine, struct err *err) {
    const struct scheduler_config config = engine->plan.scheduler;
    enum status status = count_slots_init(&engine->count_slots, config.max_num_seqs, err);
    if (status) return status;
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        struct flight *flight = &engine->flights[i];
        flight->slot = i;
        status = schedule_init(&flight->schedule, config.max_num_seqs, err);
        if (status) return status;
        void *block = engine->ranks ? rank_group_batch(engine->ranks, i) : NULL;
        status =
            batch_init(&flight->batch, engine->plan.backend, &engine->plan.runner.decoder.limits,
                       engine->plan.config.vocab_size, block, err);
        if (status) return status;
    }
    return OK;
}

// And then the KV cache, where it fills the memory that all else leaves.
static enum status warm_up(struct llm_engine *engine, struct err *err) {
    struct engine_plan *plan = &engine->plan;
    struct batch *batch = &engine->flights[0].batch;
    enum status status = model_runner_warm_up(engine->runner, batch, err);
    if (status || !plan->fills_memory) return status;
    if ((status = engine_plan_fill_memory(plan, err))) return status;
    return model_runner_set_cache(engine->runner, &plan->runner.kv_cache, batch, err);
}

// A token beyond the model's output would be sampled and then have no text; the other way round,
// ids of prompts would be outside the embedding.
static enum status check_vocabulary(const struct llm_engine *engine, struct err *err) {
    if (!engine->tokenizer) return OK;
    uint32_t num_tokens = tokenizer_num_tokens(engine->tokenizer);
    uint32_t vocab_size = engine->plan.config.vocab_size;
    if (num_tokens <= vocab_size) return OK; // models pad their vocabulary
    return err_set(err, ERR_FORMAT,
                   "tokenizer.json has %u token ids, but the model's vocab_size is %u", num_tokens,
                   vocab_size);
}

// A model may have no template, or one that is broken: what it is said to the first chat. One that
// the caller has named must work.
static enum status open_chat_template(struct llm_engine *engine,
                                      const struct nvllm_engine_options *options, struct err *err) {
    struct err why = {0};
    enum status status =
        chat_template_open(&engine->chat_template, options->model, options->chat_template, &why);
    if (status == ERR_NOMEM || (status && options->chat_template)) {
        if (err) *err = why;
        return status;
    }
    engine->template_status = status;
    engine->template_err = why;
    return OK;
}

static void init_stats(struct llm_engine *engine, double load_seconds) {
    const struct engine_plan *plan = &engine->plan;
    engine->stats = (struct nvllm_stats){
        .struct_size = sizeof engine->stats,
        .num_kv_blocks = plan->scheduler.num_blocks,
        .block_size = plan->scheduler.block_size,
        .max_model_len = plan->max_model_len,
        .load_seconds = load_seconds,
        .weights_bytes = plan->weights_bytes,
        .workspace_bytes = plan->workspace_bytes,
        .kv_cache_bytes = (uint64_t)plan->kv_block_bytes * plan->scheduler.num_blocks,
    };
    publish_stats(engine);
}

enum status llm_engine_create(struct llm_engine **out, const struct nvllm_engine_options *options,
                              struct err *err) {
    *out = NULL;
    double start = clock_seconds();
    struct llm_engine *engine = calloc(1, sizeof *engine);
    struct tokenizer_load *load = calloc(1, sizeof *load);
    enum status status = OK;
    if (!engine || !load) {
        status = err_nomem(err, "engine");
        goto fail;
    }
    if ((status = engine_plan_make(&engine->plan, options, 0, err))) goto fail;
    if ((status = engine_plan_check_memory(&engine->plan, err))) goto fail;
    if (engine->plan.world_size > 1) {
        const char *program = options->worker_program;
        status = rank_group_start(&engine->ranks, &engine->plan, options, program, err);
        if (status) goto fail;
    }
    if ((status = open_chat_template(engine, options, err))) goto fail;
    if (!options->skip_tokenizer_init) {
        if ((status = start_tokenizer_load(load, options->model, err))) goto fail;
    }
    status = load_weights(engine, options, err);
    enum status tokenizer_status =
        finish_tokenizer_load(load, &engine->tokenizer, status ? NULL : err);
    if (!status) status = tokenizer_status;
    if (status) goto fail;
    if (engine->ranks && (status = rank_group_wait_ready(engine->ranks, err))) goto fail;
    if ((status = check_vocabulary(engine, err))) goto fail;
    if ((status = create_flights(engine, err))) goto fail;
    if ((status = warm_up(engine, err))) goto fail;
    if ((status = create_scheduler(engine, err))) goto fail;
    const struct inbox_bounds bounds = {(uint32_t)options->max_num_waiting,
                                        (uint64_t)options->max_waiting_tokens};
    if ((status = inbox_init(&engine->inbox, bounds, err))) goto fail;
    init_stats(engine, clock_seconds() - start);
    free(load);
    *out = engine;
    return OK;
fail:
    free(load);
    llm_engine_destroy(engine);
    return status;
}

void llm_engine_destroy(struct llm_engine *engine) {
    if (!engine || llm_engine_enter(engine, NULL)) return;
    if (engine->inbox.is_ready) end_all(engine, NVLLM_FINISH_ABORT, NULL);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        // Until the device no longer reads what is freed below.
        if (engine->flights[i].is_launched) (void)!land(engine, &engine->flights[i], NULL);
    }
    llm_engine_tell_ends(engine);
    inbox_fini(&engine->inbox);
    count_slots_fini(&engine->count_slots);
    scheduler_destroy(engine->scheduler);
    step_observer_fini(&engine->observer);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        batch_fini(&engine->flights[i].batch, engine->plan.backend);
        schedule_fini(&engine->flights[i].schedule);
    }
    rank_group_stop(engine->ranks);
    model_runner_destroy(engine->runner);
    engine_plan_fini(&engine->plan);
    tokenizer_close(engine->tokenizer);
    chat_template_close(engine->chat_template);
    free(engine);
}

static struct batch_row row_of(const struct sequence *seq) {
    const struct request *request = seq->user;
    return (struct batch_row){&request->sampling, request->counts_slot};
}

// Token counts for the rows that need them and have none: new ones, and preempted ones whose slot
// another took. All tokens of such a sequence are known.
static void begin_counts(struct llm_engine *engine, const struct schedule *schedule) {
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct sequence *seq = schedule->items[i].seq;
        struct request *request = seq->user;
        bool is_wanted = schedule->items[i].needs_token && request->sampling.has_penalties;
        if (!is_wanted || request->counts_slot) continue;
        CHECK(!seq->has_pending_token, "request %llu", (unsigned long long)seq->id);
        count_slots_take(&engine->count_slots, request);
        if (engine->ranks) {
            rank_group_begin_counts(engine->ranks, request->counts_slot, seq->token_ids,
                                    seq->num_prompt_tokens, seq->num_tokens);
        }
        model_runner_begin_counts(engine->runner, request->counts_slot, seq->token_ids,
                                  seq->num_prompt_tokens, seq->num_tokens);
    }
}

// Rows of prompts whose log-probabilities are wanted. A request that is preempted before its prompt is
// through computes them again; one that is preempted later has them, and may read the cache.
static void want_prompt_rows(const struct schedule *schedule) {
    for (uint32_t i = schedule->num_decode_tokens; i < schedule->num_items; i++) {
        struct scheduled *item = &schedule->items[i];
        struct request *request = item->seq->user;
        if (request->num_rows_launched == request->num_prompt_rows) continue;
        uint32_t end = item->start + item->num_tokens;
        if (end > request->num_prompt_rows) end = request->num_prompt_rows;
        if (item->start >= end) continue;
        item->num_prompt_rows = end - item->start;
        request->num_rows_launched = end;
        if (end == request->num_prompt_rows) request->seq->skips_cache = false;
    }
}

// Those that are scheduled for the first time no longer wait.
static void note_scheduled(struct llm_engine *engine, const struct schedule *schedule, double now) {
    uint32_t num_outputs = 0;
    uint64_t num_tokens = 0;
    for (uint32_t i = schedule->num_decode_tokens; i < schedule->num_items; i++) {
        struct request *request = schedule->items[i].seq->user;
        if (request->times.first_scheduled > 0) continue;
        request->times.first_scheduled = now;
        num_outputs++;
        num_tokens += request->seq->num_prompt_tokens;
    }
    if (num_outputs) inbox_note_scheduled(&engine->inbox, num_outputs, num_tokens);
}

// Batch and launch of what the scheduler picked.
static enum status launch(struct llm_engine *engine, struct flight *flight, double start,
                          struct err *err) {
    const struct schedule *schedule = &flight->schedule;
    uint32_t padded_seqs = 0;
    if (schedule->num_prefill_tokens == 0) {
        padded_seqs = model_runner_padded_seqs(engine->runner, schedule->num_items);
    }
    begin_counts(engine, schedule);
    want_prompt_rows(schedule);
    batch_build(&flight->batch, schedule, engine->plan.scheduler.block_size, row_of, padded_seqs);
    double launch_begin = clock_seconds();
    engine->stats.schedule_seconds += launch_begin - start;

    struct model_runner_times times = {0};
    if (engine->ranks) rank_group_launch(engine->ranks, flight->slot);
    enum status status =
        model_runner_launch(engine->runner, flight->batch.header, flight->slot, &times, err);
    if (!status && engine->ranks) status = rank_group_check(engine->ranks, err);
    if (status) return status;
    double launch_end = clock_seconds();
    flight->times = (struct nvllm_step_times){.schedule_begin = start,
                                              .launch_begin = launch_begin,
                                              .sample_begin = launch_end - times.sample_seconds,
                                              .launch_end = launch_end};
    engine->stats.forward_seconds += times.forward_seconds;
    engine->stats.sample_seconds += times.sample_seconds;
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        struct request *request = schedule->items[i].seq->user;
        request->num_flights++;
    }
    flight->is_launched = true;
    engine->next_slot = (engine->next_slot + 1) % MODEL_RUNNER_SLOTS;
    return OK;
}

// The step counts as done for the scheduler: whatever is launched next runs after it. Each token
// that it samples gets a placeholder; land() fills in the ids.
static void advance(struct llm_engine *engine, struct flight *flight) {
    scheduler_advance(engine->scheduler);
    uint32_t row = 0;
    for (uint32_t i = 0; i < flight->schedule.num_items; i++) {
        const struct scheduled *item = &flight->schedule.items[i];
        if (!item->needs_token) continue;
        if (item->seq->status != SEQUENCE_FINISHED) {
            scheduler_append_pending(engine->scheduler, item->seq, row);
        }
        row++;
    }
}

// The step no longer points to the request.
static void leave_flight(struct request *request) {
    request->num_flights--;
    if (request->has_ended) llm_engine_let_go(request);
}

// Hands out a step's results, and notes its items for the observer: what they came to is known now.
static void take_results(struct llm_engine *engine, struct flight *flight,
                         const struct sample_result *results,
                         const struct sample_result *prompt_results) {
    const struct schedule *schedule = &flight->schedule;
    const struct step step = batch_bind(flight->batch.header, flight->batch.header);
    uint32_t row = 0;
    if (engine->observer.on_step) step_observer_begin(&engine->observer);
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        struct request *request = item->seq->user;
        int32_t token_id = -1;
        llm_engine_take_prompt(request, item, prompt_results);
        prompt_results += item->num_prompt_rows;
        if (item->needs_token && !request->has_ended) {
            token_id =
                llm_engine_take_token(engine, request, &results[row], flight->times.output_begin);
        }
        row += item->needs_token;
        if (!engine->observer.on_step) continue;
        step_observer_add(&engine->observer, schedule, &step, engine->plan.scheduler.block_size,
                          token_id);
    }
}

// Waits for a step's results and hands them out. nano-vllm: the second half of postprocess.
static enum status land(struct llm_engine *engine, struct flight *flight, struct err *err) {
    const struct schedule *schedule = &flight->schedule;
    struct nvllm_step_times *times = &flight->times;
    const struct sample_result *results = NULL, *prompt_results = NULL;
    flight->is_launched = false;
    times->wait_begin = clock_seconds();
    enum status status =
        model_runner_wait(engine->runner, flight->slot, &results, &prompt_results, err);
    times->output_begin = clock_seconds();
    engine->stats.forward_seconds += times->output_begin - times->wait_begin;
    if (!status) {
        // Not at the launch: rates are taken over the call that waited for the tokens.
        engine->stats.num_steps++;
        engine->stats.num_prefill_tokens += schedule->num_prefill_tokens;
        engine->stats.num_decode_tokens += schedule->num_decode_tokens;
        take_results(engine, flight, results, prompt_results);
    }
    times->output_end = clock_seconds();
    engine->stats.output_seconds += times->output_end - times->output_begin;
    if (!status) llm_engine_tell(engine, flight);
    for (uint32_t i = 0; i < schedule->num_items; i++) leave_flight(schedule->items[i].seq->user);
    return status;
}

// One step, or in asynchronous operation the launch of one and the results of the one before.
static enum status step(struct llm_engine *engine, struct err *err) {
    double start = clock_seconds();
    struct flight *now = &engine->flights[engine->next_slot];
    struct flight *before = &engine->flights[(engine->next_slot + 1) % MODEL_RUNNER_SLOTS];
    if (before->is_launched) advance(engine, before);
    scheduler_schedule(engine->scheduler, &now->schedule);
    note_scheduled(engine, &now->schedule, start);
    if (now->schedule.num_items > 0) {
        enum status status = launch(engine, now, start, err);
        if (status) return status;
    }
    if (before->is_launched) return land(engine, before, err);
    if (engine->plan.is_async || !now->is_launched) return OK;
    advance(engine, now);
    return land(engine, now, err);
}

// What other threads, and events, have told since the last time. True: some request was aborted.
static bool take_in(struct llm_engine *engine) {
    struct inbox_news news = inbox_take(&engine->inbox);
    for (struct request *request = news.submitted, *next; request; request = next) {
        next = request->next_submitted;
        llm_engine_accept(engine, request);
    }
    for (struct request *request = news.aborted, *next; request; request = next) {
        next = request->next_aborted;
        llm_engine_end_aborted(engine, request);
    }
    return news.aborted != NULL;
}

// An event may submit and abort others while they end: until nothing is left.
static void end_all(struct llm_engine *engine, enum nvllm_finish_reason reason, const char *why) {
    for (;;) {
        take_in(engine);
        struct sequence *seq = scheduler_first(engine->scheduler);
        if (!seq) return;
        llm_engine_end_request(engine, seq->user, reason, why);
    }
}

static void publish_stats(struct llm_engine *engine) {
    struct nvllm_stats stats = engine->stats;
    stats.num_cached_tokens = scheduler_num_cached_tokens(engine->scheduler);
    stats.num_preemptions = scheduler_num_preemptions(engine->scheduler);
    stats.num_running = scheduler_num_running(engine->scheduler);
    stats.num_kv_blocks_used = scheduler_num_blocks_used(engine->scheduler);
    stats.num_kv_blocks_peak = scheduler_num_blocks_peak(engine->scheduler);
    inbox_publish(&engine->inbox, &stats);
}

enum status llm_engine_enter(struct llm_engine *engine, struct err *err) {
    if (!atomic_exchange(&engine->is_entered, true)) return OK;
    return err_set(err, ERR_INVALID,
                   "the engine is in use, by another thread or by the call that delivers this "
                   "event");
}

void llm_engine_leave(struct llm_engine *engine) {
    atomic_store(&engine->is_entered, false);
}

static enum status check_alive(const struct llm_engine *engine, struct err *err) {
    if (!engine->failed) return OK;
    return err_set(err, ERR_DEVICE, "the engine has failed and must be destroyed");
}

enum status llm_engine_step(struct llm_engine *engine, struct err *err) {
    struct err why = {0};
    enum status status = check_alive(engine, err);
    if (status) return status;
    take_in(engine);
    status = step(engine, &why);
    if (status) {
        engine->failed = true;
        inbox_fail(&engine->inbox);
        end_all(engine, NVLLM_FINISH_ERROR, why.message);
        err_set(err, status, "%s", why.message);
    }
    llm_engine_tell_ends(engine);
    publish_stats(engine);
    return status;
}

enum status llm_engine_wait(struct llm_engine *engine, double seconds, struct err *err) {
    enum status status = check_alive(engine, err);
    if (status) return status;
    bool has_ended = take_in(engine);
    llm_engine_tell_ends(engine);
    publish_stats(engine);
    if (!has_ended) inbox_wait(&engine->inbox, seconds);
    return OK;
}

void llm_engine_wake(struct llm_engine *engine) {
    inbox_wake(&engine->inbox);
}

void llm_engine_drain(struct llm_engine *engine) {
    inbox_drain(&engine->inbox);
}

bool llm_engine_abort(struct llm_engine *engine, uint64_t request_id) {
    return inbox_abort(&engine->inbox, request_id);
}

uint32_t llm_engine_num_unfinished(struct llm_engine *engine) {
    return inbox_num_unfinished(&engine->inbox);
}

bool llm_engine_is_unfinished(struct llm_engine *engine, uint64_t request_id) {
    return inbox_is_unfinished(&engine->inbox, request_id);
}

void llm_engine_stats(struct llm_engine *engine, struct nvllm_stats *stats) {
    inbox_read_stats(&engine->inbox, stats);
    stats->peak_rss_bytes = cpu_peak_rss_bytes();
}

const struct tokenizer *llm_engine_tokenizer(const struct llm_engine *engine) {
    return engine->tokenizer;
}
