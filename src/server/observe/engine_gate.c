#include "server/observe/engine_gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/os/clock.h"

struct engine_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool is_paused; // written with the lock
    uint64_t num_allowed; // steps that may run although it is paused
};

struct engine_gate *engine_gate_create(void) {
    struct engine_gate *gate = calloc(1, sizeof *gate);
    if (!gate) return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return gate;
}

void engine_gate_destroy(struct engine_gate *gate) {
    if (!gate) return;
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

static void set(struct engine_gate *gate, bool is_paused, uint32_t num_more) {
    pthread_mutex_lock(&gate->lock);
    gate->is_paused = is_paused;
    gate->num_allowed = num_more ? gate->num_allowed + num_more : 0;
    pthread_cond_signal(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

void engine_gate_pause(struct engine_gate *gate) {
    set(gate, true, 0);
}

void engine_gate_allow(struct engine_gate *gate, uint32_t num_steps) {
    set(gate, true, num_steps);
}

void engine_gate_open(struct engine_gate *gate) {
    set(gate, false, 0);
}

bool engine_gate_is_paused(struct engine_gate *gate) {
    return atomic_load(&gate->is_paused);
}

bool engine_gate_may_step(struct engine_gate *gate, bool has_work) {
    // Without work the engine waits for some, and no step is counted.
    if (!has_work || !atomic_load(&gate->is_paused)) return true;
    pthread_mutex_lock(&gate->lock);
    if (gate->is_paused && !gate->num_allowed) {
        struct timespec until = clock_timespec(clock_seconds() + ENGINE_GATE_MS * 1e-3);
        pthread_cond_timedwait(&gate->changed, &gate->lock, &until);
    }
    bool may_step = !gate->is_paused || gate->num_allowed;
    if (may_step && gate->num_allowed) gate->num_allowed--;
    pthread_mutex_unlock(&gate->lock);
    return may_step;
}
