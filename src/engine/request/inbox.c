#include "engine/request/inbox.h"

#include "base/check.h"
#include "base/os/clock.h"
#include "base/thread/timed_cond.h"

enum status inbox_init(struct inbox *inbox, struct inbox_bounds bounds, uint64_t *next_id,
                       struct err *err) {
    *inbox = (struct inbox){.bounds = bounds, .first_id = 1};
    inbox->next_id = next_id ? next_id : &inbox->first_id;
    enum status status = timed_cond_init(&inbox->changed, "inbox", err);
    if (status) return status;
    if (pthread_mutex_init(&inbox->mutex, NULL)) {
        pthread_cond_destroy(&inbox->changed);
        return err_nomem(err, "inbox");
    }
    inbox->is_ready = true;
    return OK;
}

void inbox_fini(struct inbox *inbox) {
    if (!inbox->is_ready) return;
    CHECK(!inbox->submitted && !inbox->aborted && !inbox->requests.count, "%zu requests",
          inbox->requests.count);
    request_table_fini(&inbox->requests);
    pthread_mutex_destroy(&inbox->mutex);
    pthread_cond_destroy(&inbox->changed);
    *inbox = (struct inbox){0};
}

static void lock(struct inbox *inbox) {
    int failed = pthread_mutex_lock(&inbox->mutex);
    CHECK(!failed, "error %d", failed);
}

static void unlock(struct inbox *inbox) {
    pthread_mutex_unlock(&inbox->mutex);
}

static enum status check_open(struct inbox *inbox, uint32_t num_outputs, uint64_t num_tokens,
                              struct err *err) {
    if (inbox->has_failed) {
        return err_set(err, ERR_DEVICE, "the engine has failed and must be destroyed");
    }
    if (inbox->is_draining) {
        return err_set(err, ERR_CAPACITY,
                       "the engine is draining: it finishes its requests and takes no others");
    }
    if (!inbox->num_waiting) return OK;
    const struct inbox_bounds *bounds = &inbox->bounds;
    if (bounds->max_num_waiting && inbox->num_waiting >= bounds->max_num_waiting) {
        inbox->num_refused_max_num_waiting++;
        return err_set(err, ERR_CAPACITY,
                       "%u requests are waiting, as many as max_num_waiting allows: try again "
                       "later",
                       inbox->num_waiting);
    }
    if (bounds->max_num_waiting && num_outputs > bounds->max_num_waiting - inbox->num_waiting) {
        inbox->num_refused_max_num_waiting++;
        return err_set(err, ERR_CAPACITY,
                       "%u requests are waiting, and with %u more they would exceed "
                       "max_num_waiting %u: try again later",
                       inbox->num_waiting, num_outputs, bounds->max_num_waiting);
    }
    uint64_t num_waiting_tokens = inbox->num_waiting_tokens + num_tokens;
    if (bounds->max_waiting_tokens && num_waiting_tokens > bounds->max_waiting_tokens) {
        inbox->num_refused_max_waiting_tokens++;
        return err_set(
            err, ERR_CAPACITY,
            "the waiting requests have %llu prompt tokens, and with %llu more they would "
            "exceed max_waiting_tokens %llu: try again later",
            (unsigned long long)inbox->num_waiting_tokens, (unsigned long long)num_tokens,
            (unsigned long long)bounds->max_waiting_tokens);
    }
    return OK;
}

enum status inbox_check_open(struct inbox *inbox, struct err *err) {
    lock(inbox);
    enum status status = check_open(inbox, 1, 0, err);
    unlock(inbox);
    return status;
}

static void append_submitted(struct inbox *inbox, struct request *request) {
    request->next_submitted = NULL;
    if (inbox->submitted) {
        inbox->last_submitted->next_submitted = request;
    } else {
        inbox->submitted = request;
    }
    inbox->last_submitted = request;
}

enum status inbox_submit(struct inbox *inbox, struct request *request, uint64_t *id,
                         struct err *err) {
    uint32_t num_outputs = request->num_outputs;
    uint64_t num_tokens = (uint64_t)num_outputs * request->seq->num_prompt_tokens;
    lock(inbox);
    enum status status = check_open(inbox, num_outputs, num_tokens, err);
    for (struct request *output = request; output; output = output->next_output) {
        output->seq->id = *inbox->next_id;
    }
    if (!status) status = request_table_add(&inbox->requests, request, err);
    if (!status) {
        *id = (*inbox->next_id)++;
        inbox->num_added += num_outputs;
        inbox->num_waiting += num_outputs;
        inbox->num_waiting_tokens += num_tokens;
        inbox->num_tokens += (uint64_t)num_outputs * request->seq->num_tokens_max;
        append_submitted(inbox, request);
        pthread_cond_signal(&inbox->changed);
    }
    unlock(inbox);
    return status;
}

bool inbox_abort(struct inbox *inbox, uint64_t id) {
    lock(inbox);
    struct request *request = request_table_find(&inbox->requests, id);
    bool is_aborted = request && !request->is_ending && !atomic_load(&request->is_aborted);
    if (is_aborted) {
        atomic_store(&request->is_aborted, true);
        request->next_aborted = inbox->aborted;
        inbox->aborted = request;
        inbox->num_aborting++;
    }
    unlock(inbox);
    return is_aborted;
}

void inbox_drain(struct inbox *inbox) {
    lock(inbox);
    inbox->is_draining = true;
    unlock(inbox);
}

void inbox_wake(struct inbox *inbox) {
    lock(inbox);
    inbox->is_woken = true;
    pthread_cond_signal(&inbox->changed);
    unlock(inbox);
}

static uint32_t num_unfinished(const struct inbox *inbox) {
    return (uint32_t)inbox->requests.count;
}

uint32_t inbox_num_unfinished(struct inbox *inbox) {
    lock(inbox);
    uint32_t count = num_unfinished(inbox);
    unlock(inbox);
    return count;
}

bool inbox_is_unfinished(struct inbox *inbox, uint64_t id) {
    lock(inbox);
    const struct request *request = request_table_find(&inbox->requests, id);
    bool is_unfinished = request && !request->is_ending;
    unlock(inbox);
    return is_unfinished;
}

uint64_t inbox_num_tokens(struct inbox *inbox) {
    lock(inbox);
    uint64_t num_tokens = inbox->num_tokens;
    unlock(inbox);
    return num_tokens;
}

uint32_t inbox_num_aborting(struct inbox *inbox) {
    lock(inbox);
    uint32_t count = inbox->num_aborting;
    unlock(inbox);
    return count;
}

void inbox_read_stats(struct inbox *inbox, struct nvllm_stats *stats) {
    lock(inbox);
    *stats = inbox->stats;
    stats->num_requests_added = inbox->num_added;
    stats->num_refused_max_num_waiting = inbox->num_refused_max_num_waiting;
    stats->num_refused_max_waiting_tokens = inbox->num_refused_max_waiting_tokens;
    unlock(inbox);
    uint64_t unfinished = stats->num_requests_added - stats->num_requests_finished;
    stats->num_waiting = (uint32_t)(unfinished - stats->num_running);
}

struct inbox_changes inbox_take(struct inbox *inbox) {
    lock(inbox);
    struct inbox_changes changes = {.submitted = inbox->submitted, .aborted = inbox->aborted};
    inbox->submitted = inbox->last_submitted = inbox->aborted = NULL;
    unlock(inbox);
    return changes;
}

void inbox_wait(struct inbox *inbox, double seconds) {
    const double deadline = seconds < 0 ? -1 : clock_seconds() + seconds;
    bool is_in_time = true;
    lock(inbox);
    while (!inbox->is_woken && !num_unfinished(inbox) && is_in_time) {
        is_in_time = timed_cond_wait(&inbox->changed, &inbox->mutex, deadline);
    }
    inbox->is_woken = false;
    unlock(inbox);
}

static void leave_waiting(struct inbox *inbox, uint32_t num_outputs, uint64_t num_tokens) {
    CHECK(num_outputs <= inbox->num_waiting && num_tokens <= inbox->num_waiting_tokens, "%u of %u",
          num_outputs, inbox->num_waiting);
    inbox->num_waiting -= num_outputs;
    inbox->num_waiting_tokens -= num_tokens;
}

void inbox_note_scheduled(struct inbox *inbox, uint32_t num_outputs, uint64_t num_tokens) {
    lock(inbox);
    leave_waiting(inbox, num_outputs, num_tokens);
    unlock(inbox);
}

bool inbox_begin_end(struct inbox *inbox, struct request *request) {
    struct request *first = request->first;
    lock(inbox);
    bool is_aborted = atomic_load(&first->is_aborted);
    if (!is_aborted) first->is_ending = first->num_unended == 1;
    unlock(inbox);
    return !is_aborted;
}

void inbox_begin_abort(struct inbox *inbox, struct request *request) {
    struct request *first = request->first;
    lock(inbox);
    first->is_ending = first->num_unended == 1;
    unlock(inbox);
}

void inbox_remove(struct inbox *inbox, struct request *request, bool was_waiting) {
    lock(inbox);
    inbox->num_tokens -= request->seq->num_tokens_max;
    if (--request->first->num_unended == 0) {
        inbox->num_aborting -= atomic_load(&request->first->is_aborted);
        request_table_remove(&inbox->requests, request->seq->id);
    }
    if (was_waiting) leave_waiting(inbox, 1, request->seq->num_prompt_tokens);
    unlock(inbox);
}

void inbox_fail(struct inbox *inbox) {
    lock(inbox);
    inbox->has_failed = true;
    unlock(inbox);
}

void inbox_publish(struct inbox *inbox, const struct nvllm_stats *stats) {
    lock(inbox);
    inbox->stats = *stats;
    unlock(inbox);
}
