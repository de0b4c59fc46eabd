#include <pthread.h>
#include <stdlib.h>

#include "base/os/clock.h"
#include "base/os/secret.h"
#include "base/text/c_locale.h"
#include "base/thread/float_mode.h"
#include "base/thread/interrupt.h"
#include "base/thread/thread_start.h"
#include "engine/data_parallel/engine_group_internal.h"

// How often the caller's interrupt is asked while engines load.
static const double ask_seconds = 0.01;

// ---- an engine's thread ----

static void set_stage(struct member *member, enum member_stage stage) {
    struct engine_group *group = member->group;
    pthread_mutex_lock(&group->mutex);
    member->stage = stage;
    // Once: others read it from then on.
    if (stage == MEMBER_PLANNED) group->engines[member->index] = member->engine;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
    event_turn_signal(&group->turn);
}

// Every plan is made before any engine takes the memory that plans are checked against. False: some
// engine has none, and nobody is to load. The wait needs no deadline: each engine's thread sets its
// stage when its plan is made or has failed.
static bool wait_planned(struct engine_group *group) {
    bool has_all = false, goes_on = true;
    pthread_mutex_lock(&group->mutex);
    while (goes_on && !has_all) {
        has_all = true;
        for (uint32_t i = 0; i < group->num_engines; i++) {
            has_all &= group->members[i].stage >= MEMBER_PLANNED;
            goes_on &= group->members[i].stage != MEMBER_FAILED;
        }
        goes_on &= !group->is_ending;
        if (goes_on && !has_all) pthread_cond_wait(&group->changed, &group->mutex);
    }
    pthread_mutex_unlock(&group->mutex);
    return goes_on;
}

static int is_interrupted(void *user_data) {
    const struct engine_group *group = user_data;
    return atomic_load(&group->is_interrupted);
}

static enum status make_engine(struct member *member) {
    struct engine_group *group = member->group;
    struct err *err = &member->err;
    const struct llm_engine_shared shared = {
        .index = member->index, .turn = &group->turn, .next_id = &group->next_id};
    const struct nvllm_interrupt interrupt = {.is_wanted = is_interrupted, .user_data = group};
    struct nvllm_engine_options options = group->options;
    options.interrupt = &interrupt;
    if (member->index) options.load_progress = NULL; // all load alike, so one is enough
    enum status status = llm_engine_plan(&member->engine, &options, &shared, err);
    if (status) return status;
    set_stage(member, MEMBER_PLANNED);
    if (!wait_planned(group)) {
        return err_set(err, ERR_INTERRUPTED, "the other engines are not loaded either");
    }
    return llm_engine_load(member->engine, &options, member->index ? group->engines[0] : NULL, err);
}

// The first loss is the group's. The engines of the others end their requests with it too.
static void lose(struct member *member, enum status status, const struct err *why) {
    struct engine_group *group = member->group;
    pthread_mutex_lock(&group->mutex);
    if (!group->lost) {
        group->lost = err_set(&group->lost_err, status, "engine %u of %u: %s", member->index,
                              group->num_engines, why->message);
    }
    pthread_mutex_unlock(&group->mutex);
    for (uint32_t i = 0; i < group->num_engines; i++) llm_engine_wake(group->engines[i]);
}

enum status engine_group_read_loss(struct engine_group *group, struct err *err) {
    pthread_mutex_lock(&group->mutex);
    enum status status = group->lost;
    if (status && err) *err = group->lost_err;
    pthread_mutex_unlock(&group->mutex);
    return status;
}

static bool is_ending(struct engine_group *group) {
    pthread_mutex_lock(&group->mutex);
    bool is_ending = group->is_ending;
    pthread_mutex_unlock(&group->mutex);
    return is_ending;
}

// Steps while there are requests, until the group ends or is lost. Whoever sees the last event of a
// lost request finds the loss with it: it is noted before the events.
static void drive(struct member *member) {
    struct engine_group *group = member->group;
    struct llm_engine *engine = member->engine;
    struct err why = {0};
    while (!is_ending(group) && !engine_group_read_loss(group, NULL)) {
        enum status status = llm_engine_num_unfinished(engine) ? llm_engine_step(engine, &why)
                                                               : llm_engine_wait(engine, -1, &why);
        if (status) lose(member, status, &why);
        event_turn_signal(&group->turn);
    }
    if (engine_group_read_loss(group, &why)) llm_engine_fail(engine, why.message);
    event_turn_signal(&group->turn);
}

// Ends the engine's requests. The events of these may add requests, here and to other engines.
// Waits until the group's end asks this engine to go: others may still use its tokenizer.
static void wait_to_go(struct member *member) {
    struct engine_group *group = member->group;
    pthread_mutex_lock(&group->mutex);
    while (!member->may_go) {
        if (member->stage == MEMBER_LOADED && llm_engine_num_unfinished(member->engine)) {
            pthread_mutex_unlock(&group->mutex);
            llm_engine_abort_all(member->engine);
            event_turn_signal(&group->turn);
            pthread_mutex_lock(&group->mutex);
        } else {
            pthread_cond_wait(&group->changed, &group->mutex);
        }
    }
    pthread_mutex_unlock(&group->mutex);
}

static void *member_main(void *arg) {
    struct member *member = arg;
    member->status = make_engine(member);
    set_stage(member, member->status ? MEMBER_FAILED : MEMBER_LOADED);
    if (!member->status) drive(member);
    wait_to_go(member);
    llm_engine_destroy(member->engine);
    return NULL;
}

// ---- life ----

static enum status start_members(struct engine_group *group, struct err *err) {
    int error = 0;
    for (uint32_t i = 0; i < group->num_engines; i++) {
        group->members[i] = (struct member){.group = group, .index = i};
    }
    for (uint32_t i = 0; i < group->num_engines && !error; i++) {
        struct member *member = &group->members[i];
        error = thread_start(&member->thread, NULL, member_main, member);
        member->is_started = !error;
    }
    if (!error) return OK;
    return err_set(err, ERR_NOMEM, "no threads for %u engines: %s", group->num_engines,
                   c_locale_strerror(error));
}

// True: all have loaded, or failed to. *failed becomes the first that failed for a reason of its
// own.
static bool are_loaded(struct engine_group *group, const struct member **failed) {
    bool all = true;
    pthread_mutex_lock(&group->mutex);
    for (uint32_t i = 0; i < group->num_engines; i++) {
        const struct member *member = &group->members[i];
        all &= member->stage >= MEMBER_LOADED;
        if (member->stage != MEMBER_FAILED) continue;
        bool is_better = !*failed || (*failed)->status == ERR_INTERRUPTED;
        if (is_better) *failed = member;
    }
    pthread_mutex_unlock(&group->mutex);
    return all;
}

static enum status wait_loaded(struct engine_group *group, const struct interrupt *interrupt,
                               struct err *err) {
    const struct member *failed = NULL;
    enum status asked = OK;
    while (!are_loaded(group, &failed)) {
        if (!asked) asked = interrupt_check(interrupt, err);
        // A group that lacks an engine is no group: the others need not load on.
        if (failed || asked) atomic_store(&group->is_interrupted, true);
        event_turn_wait(&group->turn, &group->num_signals, clock_seconds() + ask_seconds);
    }
    if (asked || !failed) return asked;
    if (err) *err = failed->err;
    return failed->status;
}

static enum status create_router(struct engine_group *group, struct err *err) {
    struct nvllm_stats stats = {0};
    engine_group_stats(group, &stats);
    uint64_t num_blocks = llm_engine_caches_prefixes(group->engines[0]) ? stats.num_kv_blocks : 0;
    return request_router_init(&group->router, group->num_engines, stats.block_size, num_blocks,
                               secret_make(), err);
}

static enum status create_several(struct engine_group *group,
                                  const struct nvllm_engine_options *options, struct err *err) {
    const struct interrupt interrupt = llm_engine_interrupt(options->interrupt);
    enum status status = event_turn_init(&group->turn, err);
    if (status) return status;
    group->next_id = 1;
    group->options = *options;
    // Each engine has its share of the bounds, rounded up.
    int32_t n = (int32_t)group->num_engines;
    group->options.max_num_waiting = (int32_t)(((int64_t)options->max_num_waiting + n - 1) / n);
    group->options.max_waiting_tokens =
        options->max_waiting_tokens / n + (options->max_waiting_tokens % n != 0);
    if ((status = start_members(group, err))) return status;
    if ((status = wait_loaded(group, &interrupt, err))) return status;
    group->has_loaded = true;
    return create_router(group, err);
}

static enum status create(struct engine_group **out, const struct nvllm_engine_options *options,
                          struct err *err) {
    *out = NULL;
    struct engine_group *group = calloc(1, sizeof *group);
    if (!group) return err_nomem(err, "engine");
    group->num_engines = (uint32_t)options->data_parallel_size;
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->changed, NULL);
    pthread_mutex_init(&group->submitting, NULL);
    enum status status;
    if (engine_group_is_alone(group)) {
        status = llm_engine_plan(&group->engines[0], options, NULL, err);
        if (!status) status = llm_engine_load(group->engines[0], options, NULL, err);
    } else {
        status = create_several(group, options, err);
    }
    if (status) {
        engine_group_destroy(group);
        return status;
    }
    *out = group;
    return OK;
}

enum status engine_group_create(struct engine_group **out,
                                const struct nvllm_engine_options *options, struct err *err) {
    uint64_t mode = float_mode_enter(); // weights and tables are computed, and threads inherit it
    enum status status = create(out, options, err);
    float_mode_leave(mode);
    return status;
}

// Threads that drive an engine no longer do.
static void end_driving(struct engine_group *group) {
    bool is_driven[NVLLM_ENGINES_MAX] = {0};
    pthread_mutex_lock(&group->mutex);
    group->is_ending = true;
    for (uint32_t i = 0; i < group->num_engines; i++) {
        is_driven[i] = group->members[i].stage == MEMBER_LOADED;
    }
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
    for (uint32_t i = 0; i < group->num_engines; i++) {
        if (is_driven[i]) llm_engine_wake(group->engines[i]);
    }
}

static void end_several(struct engine_group *group) {
    if (!group->turn.is_ready) return;
    end_driving(group);
    while (group->has_loaded && engine_group_num_unfinished(group)) {
        event_turn_wait(&group->turn, &group->num_signals, -1);
    }
    if (group->has_loaded) engine_group_leave(group); // the engine's destroy enters it
    event_turn_open(&group->turn); // to steps that are still on their way
    // The last engine goes first, for all use the tokenizer of engine 0.
    for (uint32_t i = group->num_engines; i-- > 0;) {
        struct member *member = &group->members[i];
        if (!member->is_started) continue;
        pthread_mutex_lock(&group->mutex);
        member->may_go = true;
        pthread_cond_broadcast(&group->changed);
        pthread_mutex_unlock(&group->mutex);
        pthread_join(member->thread, NULL);
    }
    request_router_fini(&group->router);
    event_turn_fini(&group->turn);
}

void engine_group_destroy(struct engine_group *group) {
    if (!group) return;
    if (engine_group_is_alone(group)) {
        if (!llm_engine_destroy(group->engines[0])) return;
    } else {
        if (group->has_loaded && engine_group_enter(group, NULL)) return;
        end_several(group);
    }
    pthread_mutex_destroy(&group->mutex);
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->submitting);
    free(group);
}
