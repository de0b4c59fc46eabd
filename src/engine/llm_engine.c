/* The engine's steps: what the scheduler picked is launched, waited for, and taken to its requests;
 * and the engine's end. */
#include <stdlib.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "base/thread/thread_pool.h"
#include "engine/llm_engine_internal.h"
#include "engine/plan/target_itl.h"

static enum status finish_step(struct llm_engine *engine, struct inflight_step *inflight,
                               struct err *err);
static void end_all(struct llm_engine *engine, enum nvllm_finish_reason reason, const char *why);

struct interrupt llm_engine_interrupt(const struct nvllm_interrupt *given) {
    if (!given) return (struct interrupt){0};
    return (struct interrupt){.is_wanted = given->is_wanted, .user_data = given->user_data};
}

// Starts the threads that make masks, when the first request with a form comes. If they cannot be
// created, the engine's thread makes all masks. Without overlapping steps it does so anyway, while
// it builds a step.
static void start_mask_threads(struct llm_engine *engine) {
    enum { THREADS_MAX = 16 };
    uint32_t num_threads = engine->num_mask_threads;
    engine->num_mask_threads = 0; // tried once
    if (num_threads > THREADS_MAX) num_threads = THREADS_MAX;
    if (num_threads > 1) (void)!thread_pool_create(&engine->mask_threads, num_threads, NULL);
}

// Ends all requests and steps. The observer is told of the ends and may add requests: these end
// too.
static void end_work(struct llm_engine *engine) {
    do {
        end_all(engine, NVLLM_FINISH_ABORT, NULL);
        for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
            // Wait: the device still reads what destroy frees.
            if (engine->inflight_steps[i].is_launched)
                (void)!finish_step(engine, &engine->inflight_steps[i], NULL);
        }
        llm_engine_tell_ends(engine);
    } while (inbox_num_unfinished(&engine->inbox));
}

bool llm_engine_destroy(struct llm_engine *engine) {
    if (!engine) return true;
    if (llm_engine_enter(engine, NULL)) return false;
    if (engine->executor) executor_begin_end(engine->executor);
    if (engine->inbox.is_ready) end_work(engine);
    inbox_fini(&engine->inbox);
    token_count_slots_fini(&engine->token_count_slots);
    free(engine->row_buffers.scratch);
    free(engine->row_buffers.ranked);
    free(engine->draft_offers);
    draft_pool_fini(&engine->draft_pool);
    scheduler_destroy(engine->scheduler);
    step_observer_fini(&engine->observer);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        batch_fini(&engine->inflight_steps[i].batch, engine->plan.backend);
        schedule_fini(&engine->inflight_steps[i].schedule);
    }
    executor_destroy(engine->executor);
    thread_pool_destroy(engine->mask_threads);
    engine_plan_fini(&engine->plan);
    if (engine->forms) forms_fini(engine->forms);
    free(engine->forms);
    tokenizer_close(engine->tokenizer);
    chat_template_close(engine->chat_template);
    free(engine);
    return true;
}

static struct batch_row row_of(const struct sequence *seq) {
    struct request *request = seq->user;
    return (struct batch_row){&request->sampling, request->counts_slot};
}

// Gives a slot of the token counts to each row that needs one and has none. Such a request is new,
// or was preempted and another took its slot. Its sequence has no pending token.
static void begin_counts(struct llm_engine *engine, const struct schedule *schedule) {
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct sequence *seq = schedule->items[i].seq;
        struct request *request = seq->user;
        bool is_wanted = schedule->items[i].needs_token && request->sampling.has_penalties;
        if (!is_wanted || request->counts_slot) continue;
        CHECK(!seq->has_pending_token, "request %llu", (unsigned long long)seq->id);
        token_count_slots_take(&engine->token_count_slots, request);
        executor_begin_counts(engine->executor, request->counts_slot, seq->token_ids,
                              seq->num_prompt_tokens, seq->num_tokens);
    }
}

// Marks the rows of prompts whose log-probabilities are wanted. A request that is preempted within
// its prompt computes them again. After its prompt it has them all, and may read the prefix cache.
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

// Notes the outputs that are scheduled for the first time: they no longer wait.
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

// Builds and launches the batch that the scheduler picked.
static enum status launch(struct llm_engine *engine, struct inflight_step *inflight, double start,
                          struct err *err) {
    const struct schedule *schedule = &inflight->schedule;
    uint32_t padded_seqs = 0;
    if (schedule->num_prefill_tokens == 0) {
        padded_seqs = model_runner_padded_seqs(&engine->plan.runner, schedule->num_tokens);
        executor_record_later(engine->executor, &inflight->batch, padded_seqs,
                              schedule->num_draft_tokens > 0);
    }
    begin_counts(engine, schedule);
    want_prompt_rows(schedule);
    llm_engine_want_pooled(schedule);
    uint32_t block_size = engine->plan.scheduler.block_size;
    batch_build(&inflight->batch, schedule, block_size, row_of, padded_seqs);
    if (engine->observer.on_step) {
        step_observer_note_launch(&engine->observer, inflight->slot, schedule, block_size);
    }
    double launch_begin = clock_seconds();
    engine->stats.schedule_seconds += launch_begin - start;

    struct model_runner_times times = {0};
    enum status status =
        executor_launch(engine->executor, &inflight->batch, inflight->slot, &times, err);
    if (status) return status;
    double launch_end = clock_seconds();
    inflight->times = (struct nvllm_step_times){.schedule_begin = start,
                                                .launch_begin = launch_begin,
                                                .sample_begin = launch_end - times.sample_seconds,
                                                .launch_end = launch_end};
    engine->stats.forward_seconds += times.forward_seconds;
    engine->stats.sample_seconds += times.sample_seconds;
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        struct request *request = schedule->items[i].seq->user;
        request->num_inflight++;
    }
    inflight->is_launched = true;
    engine->next_slot = (engine->next_slot + 1) % MODEL_RUNNER_SLOTS;
    return OK;
}

// Tells the scheduler that the launched step is done: whatever is launched next runs after it. Each
// sampled token is appended as pending; finish_step() brings its id.
static void advance(struct llm_engine *engine, struct inflight_step *inflight) {
    scheduler_advance(engine->scheduler);
    uint32_t row = 0;
    for (uint32_t i = 0; i < inflight->schedule.num_items; i++) {
        const struct scheduled *item = &inflight->schedule.items[i];
        if (!item->needs_token && !item->ends_pooling) continue;
        if (item->seq->status != SEQUENCE_FINISHED) {
            scheduler_append_pending(engine->scheduler, item->seq, row);
        }
        row += scheduled_num_rows(item);
    }
}

// The step no longer points to the request.
static void leave_inflight(struct request *request) {
    request->num_inflight--;
    if (request->has_ended) llm_engine_free_if_unneeded(request);
}

// Hands out a step's results, and notes its items with them for the observer.
static void take_results(struct llm_engine *engine, struct inflight_step *inflight,
                         const struct sample_result *results,
                         const struct sample_result *prompt_results) {
    const struct schedule *schedule = &inflight->schedule;
    const struct batch_header *header = inflight->batch.header;
    const int32_t *ran = batch_bind(header, inflight->batch.header).tokens;
    uint32_t row = 0;
    if (engine->observer.on_step) step_observer_begin(&engine->observer, inflight->slot);
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        struct request *request = item->seq->user;
        uint32_t num_tokens = 0;
        llm_engine_take_prompt(request, item, prompt_results);
        prompt_results += item->num_prompt_rows;
        if (item->needs_token && !request->has_ended) {
            uint32_t num_right = llm_engine_verify_drafts(engine, item, ran, &results[row]);
            num_tokens = llm_engine_take_tokens(engine, request, &results[row], 1 + num_right,
                                                inflight->times.output_begin);
            llm_engine_count_drafts(engine, item, num_right, num_tokens);
        }
        if (item->ends_pooling && !request->has_ended) {
            llm_engine_end_pooled(engine, request, inflight->times.output_begin);
        }
        row += scheduled_num_rows(item);
        if (engine->observer.on_step) {
            step_observer_add(&engine->observer, schedule, engine->plan.scheduler.block_size, ran,
                              num_tokens);
        }
        ran += item->num_tokens;
    }
}

// Call it after events. Publishes the statistics first, so that they include the events that other
// threads have seen.
static void leave_turn(struct llm_engine *engine) {
    if (!engine->shared.turn) return;
    llm_engine_publish_stats(engine);
    event_turn_leave(engine->shared.turn);
}

// When the step was done. If steps overlap and a launch computes, the next step has run too by the
// time this one's results are taken, so the end of the launch counts.
static double done_seconds(const struct llm_engine *engine, const struct inflight_step *inflight) {
    return executor_computes_in_launch(engine->executor) ? inflight->times.launch_end
                                                         : inflight->times.output_begin;
}

// Notes how long a step took, from the end of the step before. Without a step before, its time
// counts from its schedule.
static void measure(struct llm_engine *engine, const struct inflight_step *inflight) {
    double now = done_seconds(engine, inflight), before = engine->last_done;
    engine->last_done = now;
    if (!(before > 0)) before = inflight->times.schedule_begin;
    double missed = scheduler_measure(engine->scheduler, &inflight->schedule, now - before);
    if (missed > 0) target_itl_tell_missed(&engine->plan.scheduler.pace, missed);
}

// Waits for a step's results and hands them out. nano-vllm: the second half of postprocess.
static enum status finish_step(struct llm_engine *engine, struct inflight_step *inflight,
                               struct err *err) {
    const struct schedule *schedule = &inflight->schedule;
    struct nvllm_step_times *times = &inflight->times;
    const struct sample_result *results = NULL, *prompt_results = NULL;
    inflight->is_launched = false;
    times->wait_begin = clock_seconds();
    enum status status =
        executor_wait(engine->executor, inflight->slot, &results, &prompt_results, err);
    times->output_begin = clock_seconds();
    engine->stats.forward_seconds += times->output_begin - times->wait_begin;
    if (!status) event_turn_enter(engine->shared.turn);
    double inside = clock_seconds(); // the wait at the turn is not this engine's work
    if (!status) {
        // Counted here and not at the launch, so that a step counts once its tokens are there.
        engine->stats.num_steps++;
        engine->stats.num_prefill_tokens += schedule->num_prefill_tokens;
        engine->stats.num_decode_tokens += schedule->num_decode_tokens;
        measure(engine, inflight);
        llm_engine_count_draft_step(engine, schedule, inflight->has_waited);
        take_results(engine, inflight, results, prompt_results);
    }
    atomic_store(&engine->num_step_tokens,
                 engine->stats.num_prefill_tokens + engine->stats.num_decode_tokens);
    times->output_end = clock_seconds();
    engine->stats.output_seconds += times->output_end - inside;
    if (!status) {
        llm_engine_tell(engine, inflight);
        leave_turn(engine);
    }
    for (uint32_t i = 0; i < schedule->num_items; i++) leave_inflight(schedule->items[i].seq->user);
    return status;
}

// Samples a launched step that waits for masks. The tokens that they depend on have come.
static enum status sample(struct llm_engine *engine, struct inflight_step *inflight,
                          struct err *err) {
    if (!inflight->is_launched || !inflight->batch.header->num_late_masks) return OK;
    struct model_runner_times times = {0};
    batch_write_late_masks(&inflight->batch, &inflight->schedule, row_of, engine->mask_threads);
    enum status status =
        executor_sample(engine->executor, &inflight->batch, inflight->slot, &times, err);
    engine->stats.sample_seconds += times.sample_seconds;
    return status;
}

// Runs one step. With async scheduling, launches one and takes the results of the one before. While
// the launched step's forward pass runs, these results become events and late masks. A step with
// drafts runs alone: they begin behind the last token, and the step after must know how many were
// right.
static enum status step(struct llm_engine *engine, struct err *err) {
    double start = clock_seconds();
    struct inflight_step *now = &engine->inflight_steps[engine->next_slot];
    struct inflight_step *before =
        &engine->inflight_steps[(engine->next_slot + 1) % MODEL_RUNNER_SLOTS];
    if (before->is_launched) advance(engine, before);
    now->has_waited = false;
    if (before->is_launched &&
        (before->schedule.num_draft_tokens || llm_engine_awaits_drafts(engine))) {
        enum status status = finish_step(engine, before, err);
        if (status) return status;
        now->has_waited = true;
        start = clock_seconds();
    }
    scheduler_schedule(engine->scheduler, &now->schedule);
    if (!before->is_launched) llm_engine_add_drafts(engine, &now->schedule);
    note_scheduled(engine, &now->schedule, start);
    if (now->schedule.num_items > 0) {
        enum status status = launch(engine, now, start, err);
        if (status) return status;
    }
    if (before->is_launched) {
        enum status status = finish_step(engine, before, err);
        // Also after an error: nothing may be launched and not sampled.
        enum status sampled = sample(engine, now, status ? NULL : err);
        return status ? status : sampled;
    }
    if (engine->plan.is_async) return sample(engine, now, err);
    if (!now->is_launched) return OK;
    advance(engine, now);
    return finish_step(engine, now, err);
}

// Takes in what was submitted and aborted since the last call. True: some request was aborted.
static bool take_inbox(struct llm_engine *engine) {
    struct inbox_changes changes = inbox_take(&engine->inbox);
    for (struct request *request = changes.submitted, *next; request; request = next) {
        next = request->next_submitted;
        bool has_form = request->sampling.mask.constraint != NULL;
        if (has_form && engine->num_mask_threads) start_mask_threads(engine);
        llm_engine_accept(engine, request);
    }
    if (!changes.aborted) return false;
    event_turn_enter(engine->shared.turn);
    for (struct request *request = changes.aborted, *next; request; request = next) {
        next = request->next_aborted;
        llm_engine_end_aborted(engine, request);
    }
    leave_turn(engine);
    return true;
}

// Ends all requests. Repeats until none is left, because an event may submit and abort others.
static void end_all(struct llm_engine *engine, enum nvllm_finish_reason reason, const char *why) {
    for (;;) {
        bool has_aborted = take_inbox(engine);
        struct sequence *seq = scheduler_first(engine->scheduler);
        if (!seq && !has_aborted) return;
        if (!seq) continue;
        event_turn_enter(engine->shared.turn);
        llm_engine_end_request(engine, seq->user, reason, why);
        leave_turn(engine);
    }
}

void llm_engine_publish_stats(struct llm_engine *engine) {
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

void llm_engine_fail(struct llm_engine *engine, const char *why) {
    engine->failed = true;
    inbox_fail(&engine->inbox);
    end_all(engine, NVLLM_FINISH_ERROR, why);
    llm_engine_tell_ends(engine);
    llm_engine_publish_stats(engine);
}

void llm_engine_abort_all(struct llm_engine *engine) {
    end_all(engine, NVLLM_FINISH_ABORT, NULL);
    llm_engine_publish_stats(engine);
}

enum status llm_engine_step(struct llm_engine *engine, struct err *err) {
    struct err why = {0};
    enum status status = check_alive(engine, err);
    if (status) return status;
    take_inbox(engine);
    status = step(engine, &why);
    if (status) status = executor_blame(engine->executor, status, &why);
    if (status) return err_set(err, status, "%s", why.message);
    llm_engine_tell_ends(engine);
    llm_engine_publish_stats(engine);
    return OK;
}

enum status llm_engine_wait(struct llm_engine *engine, double seconds, struct err *err) {
    enum status status = check_alive(engine, err);
    if (status) return status;
    bool has_ended = take_inbox(engine);
    engine->last_done = 0;
    llm_engine_tell_ends(engine);
    llm_engine_publish_stats(engine);
    if (!has_ended) inbox_wait(&engine->inbox, seconds);
    return OK;
}
