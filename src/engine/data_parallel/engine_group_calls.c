#include "base/os/clock.h"
#include "engine/data_parallel/engine_group_internal.h"

// ---- the caller's thread ----

// The engines' own threads do not enter, so that one flag serves for all.
enum status engine_group_enter(struct engine_group *group, struct err *err) {
    return llm_engine_enter(group->engines[0], err);
}

void engine_group_leave(struct engine_group *group) {
    llm_engine_leave(group->engines[0]);
}

// OK, or the loss, with which all engines have ended their requests.
static enum status check_lost(struct engine_group *group, struct err *err) {
    enum status status = engine_group_read_loss(group, err);
    while (status && engine_group_num_unfinished(group)) {
        event_turn_wait(&group->turn, &group->num_signals, -1);
    }
    return status;
}

static enum status step_alone(struct llm_engine *engine, struct err *err) {
    struct err why = {0};
    enum status status = llm_engine_step(engine, &why);
    if (!status) return OK;
    llm_engine_fail(engine, why.message);
    return err_set(err, status, "%s", why.message);
}

enum status engine_group_step(struct engine_group *group, struct err *err) {
    if (engine_group_is_alone(group)) return step_alone(group->engines[0], err);
    enum status status = check_lost(group, err);
    unsigned num_passed = event_turn_num_passed(&group->turn);
    while (!status && engine_group_num_unfinished(group) &&
           event_turn_num_passed(&group->turn) == num_passed) {
        event_turn_wait(&group->turn, &group->num_signals, -1);
        status = check_lost(group, err);
    }
    return status;
}

static uint32_t num_aborting(struct engine_group *group) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->num_engines; i++) {
        count += llm_engine_num_aborting(group->engines[i]);
    }
    return count;
}

enum status engine_group_wait(struct engine_group *group, double seconds, struct err *err) {
    if (engine_group_is_alone(group)) return llm_engine_wait(group->engines[0], seconds, err);
    double deadline = seconds < 0 ? -1 : clock_seconds() + seconds;
    bool has_aborted = num_aborting(group) > 0;
    for (;;) {
        enum status status = check_lost(group, err);
        if (status) return status;
        bool is_aborting = num_aborting(group) > 0;
        bool is_over = has_aborted || engine_group_num_unfinished(group) ||
                       atomic_exchange(&group->is_woken, false) ||
                       (deadline >= 0 && clock_seconds() >= deadline);
        if (is_over && !is_aborting) return OK;
        event_turn_wait(&group->turn, &group->num_signals, is_aborting ? -1 : deadline);
        has_aborted |= is_aborting;
    }
}

enum status engine_group_observe(struct engine_group *group, nvllm_step_fn on_step, void *user_data,
                                 struct err *err) {
    if (engine_group_is_alone(group))
        return llm_engine_observe(group->engines[0], on_step, user_data, err);
    if (!on_step) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "data_parallel_size is %u: steps can be observed where it is 1",
                   group->num_engines);
}

size_t engine_group_sequences(const struct engine_group *group, struct nvllm_sequence *out,
                              size_t max) {
    if (!engine_group_is_alone(group)) return 0; // their threads change them
    return llm_engine_sequences(group->engines[0], out, max);
}

// ---- any thread ----

enum status engine_group_build_request(const struct engine_group *group,
                                       const struct nvllm_request *in, bool is_rendered,
                                       struct request **out, struct err *err) {
    return llm_engine_build_request(group->engines[0], in, is_rendered, out, err);
}

// The engine that the router chooses, or where that has no room the next one that has.
static enum status submit(struct engine_group *group, struct request *request, uint64_t *id,
                          struct err *err) {
    uint64_t loads[NVLLM_ENGINES_MAX];
    const struct sequence *seq = request->seq;
    for (uint32_t i = 0; i < group->num_engines; i++) {
        loads[i] = llm_engine_num_tokens(group->engines[i]);
    }
    const int32_t *ids = seq->token_ids;
    uint32_t num_ids = seq->num_prompt_tokens;
    uint32_t first = request_router_choose(&group->router, loads, ids, num_ids, seq->cache_salt);
    enum status status = OK;
    for (uint32_t i = 0; i < group->num_engines; i++) {
        uint32_t chosen = (first + i) % group->num_engines;
        // Noted first: once it is submitted the request may end at any time.
        request_router_note(&group->router, chosen, ids, num_ids, seq->cache_salt);
        status = llm_engine_submit(group->engines[chosen], request, id, err);
        if (status != ERR_CAPACITY) break;
    }
    return status;
}

enum status engine_group_submit(struct engine_group *group, struct request *request, uint64_t *id,
                                struct err *err) {
    if (engine_group_is_alone(group)) return llm_engine_submit(group->engines[0], request, id, err);
    pthread_mutex_lock(&group->submitting);
    enum status status = submit(group, request, id, err);
    pthread_mutex_unlock(&group->submitting);
    pthread_mutex_lock(&group->mutex); // to threads that no longer step
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
    event_turn_signal(&group->turn); // to engine_group_wait
    return status;
}

enum status engine_group_check_open(struct engine_group *group, struct err *err) {
    enum status status = llm_engine_check_open(group->engines[0], err);
    for (uint32_t i = 1; i < group->num_engines && status; i++) {
        status = llm_engine_check_open(group->engines[i], err);
    }
    return status;
}

enum status engine_group_add_request(struct engine_group *group, const struct nvllm_request *in,
                                     bool is_rendered, uint64_t *request_id, struct err *err) {
    struct request *request = NULL;
    enum status status = engine_group_check_open(group, err);
    if (!status) status = engine_group_build_request(group, in, is_rendered, &request, err);
    if (!status) status = engine_group_submit(group, request, request_id, err);
    if (status) request_destroy(request);
    return status;
}

bool engine_group_abort(struct engine_group *group, uint64_t request_id) {
    for (uint32_t i = 0; i < group->num_engines; i++) {
        if (llm_engine_abort(group->engines[i], request_id)) return true;
    }
    return false;
}

void engine_group_drain(struct engine_group *group) {
    for (uint32_t i = 0; i < group->num_engines; i++) llm_engine_drain(group->engines[i]);
}

void engine_group_wake(struct engine_group *group) {
    if (engine_group_is_alone(group)) {
        llm_engine_wake(group->engines[0]);
        return;
    }
    atomic_store(&group->is_woken, true);
    event_turn_signal(&group->turn);
}

uint32_t engine_group_num_unfinished(struct engine_group *group) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->num_engines; i++) {
        count += llm_engine_num_unfinished(group->engines[i]);
    }
    return count;
}

bool engine_group_is_unfinished(struct engine_group *group, uint64_t request_id) {
    for (uint32_t i = 0; i < group->num_engines; i++) {
        if (llm_engine_is_unfinished(group->engines[i], request_id)) return true;
    }
    return false;
}

static void add_durations(struct nvllm_durations *sum, const struct nvllm_durations *more) {
    for (size_t i = 0; i < NVLLM_DURATION_BUCKETS; i++) sum->counts[i] += more->counts[i];
    sum->seconds += more->seconds;
}

static void add_stats(struct nvllm_stats *sum, const struct nvllm_stats *more) {
    sum->num_steps += more->num_steps;
    sum->num_prefill_tokens += more->num_prefill_tokens;
    sum->num_decode_tokens += more->num_decode_tokens;
    sum->num_generated_tokens += more->num_generated_tokens;
    sum->num_cached_tokens += more->num_cached_tokens;
    sum->num_preemptions += more->num_preemptions;
    sum->num_requests_added += more->num_requests_added;
    sum->num_requests_finished += more->num_requests_finished;
    sum->num_running += more->num_running;
    sum->num_waiting += more->num_waiting;
    sum->num_kv_blocks += more->num_kv_blocks;
    sum->num_kv_blocks_used += more->num_kv_blocks_used;
    sum->num_kv_blocks_peak += more->num_kv_blocks_peak;
    sum->num_refused_max_num_waiting += more->num_refused_max_num_waiting;
    sum->num_refused_max_waiting_tokens += more->num_refused_max_waiting_tokens;
    if (more->load_seconds > sum->load_seconds) sum->load_seconds = more->load_seconds;
    if (more->warm_up_seconds > sum->warm_up_seconds) sum->warm_up_seconds = more->warm_up_seconds;
    sum->schedule_seconds += more->schedule_seconds;
    sum->forward_seconds += more->forward_seconds;
    sum->sample_seconds += more->sample_seconds;
    sum->output_seconds += more->output_seconds;
    sum->weights_bytes += more->weights_bytes;
    sum->workspace_bytes += more->workspace_bytes;
    sum->kv_cache_bytes += more->kv_cache_bytes;
    sum->num_forms += more->num_forms;
    sum->num_forms_kept += more->num_forms_kept;
    sum->num_forms_refused += more->num_forms_refused;
    add_durations(&sum->form_compile, &more->form_compile);
    add_durations(&sum->form_mask, &more->form_mask);
    sum->num_drafts += more->num_drafts;
    sum->num_draft_tokens += more->num_draft_tokens;
    sum->num_accepted_tokens += more->num_accepted_tokens;
}

void engine_group_stats(struct engine_group *group, struct nvllm_stats *stats) {
    llm_engine_stats(group->engines[0], stats);
    for (uint32_t i = 1; i < group->num_engines; i++) {
        struct nvllm_stats more = {0};
        llm_engine_stats(group->engines[i], &more);
        add_stats(stats, &more);
    }
}

uint64_t engine_group_num_step_tokens(const struct engine_group *group) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < group->num_engines; i++) {
        sum += llm_engine_num_step_tokens(group->engines[i]);
    }
    return sum;
}

const struct llm_engine *engine_group_first(const struct engine_group *group) {
    return group->engines[0];
}
