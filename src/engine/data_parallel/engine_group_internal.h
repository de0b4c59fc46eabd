/* The group's own struct, shared by engine_group.c (its life, the engines' threads) and
 * engine_group_calls.c (what its callers do). */
#ifndef ENGINE_DATA_PARALLEL_ENGINE_GROUP_INTERNAL_H
#define ENGINE_DATA_PARALLEL_ENGINE_GROUP_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/data_parallel/engine_group.h"
#include "engine/data_parallel/request_router.h"
#include "engine/event_turn.h"

enum member_stage { MEMBER_STARTING, MEMBER_PLANNED, MEMBER_LOADED, MEMBER_FAILED };

// An engine and its thread.
struct member {
    struct engine_group *group;
    uint32_t index;
    struct llm_engine *engine; // its thread alone makes and destroys it
    pthread_t thread;
    bool is_started;
    enum member_stage stage; // under the group's mutex, as is:
    bool may_go; // nobody uses the engine any more
    enum status status; // why it failed to load
    struct err err;
};

struct engine_group {
    uint32_t num_engines;
    struct llm_engine *engines[NVLLM_ENGINES_MAX]; // [num_engines]

    // From here on: used with several engines only.
    struct nvllm_engine_options options; // of each
    struct member members[NVLLM_ENGINES_MAX];
    struct event_turn turn;
    unsigned num_signals; // that the caller's thread has seen
    atomic_bool is_woken, is_interrupted;

    pthread_mutex_t mutex; // for what the members tell each other
    pthread_cond_t changed; // one of them
    bool is_ending; // requests end, then the engines
    enum status lost; // an engine is lost, because of
    struct err lost_err;

    pthread_mutex_t submitting; // for the router and the ids
    struct request_router router;
    uint64_t next_id;
    bool has_loaded; // all engines have
};

static inline bool engine_group_is_alone(const struct engine_group *group) {
    return group->num_engines == 1;
}

// OK, or why an engine is lost.
MUST_USE enum status engine_group_read_loss(struct engine_group *group, struct err *err);

#endif
