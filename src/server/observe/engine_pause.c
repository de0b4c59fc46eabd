#include "server/observe/engine_pause.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/os/clock.h"
#include "base/thread/timed_cond.h"

struct engine_pause {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool is_paused; // written with the lock
    uint64_t num_allowed; // steps that may run although it is paused
};

struct engine_pause *engine_pause_create(void) {
    struct engine_pause *pause = calloc(1, sizeof *pause);
    if (!pause) return NULL;
    if (timed_cond_init(&pause->changed, "pause", NULL)) {
        free(pause);
        return NULL;
    }
    pthread_mutex_init(&pause->lock, NULL);
    return pause;
}

void engine_pause_destroy(struct engine_pause *pause) {
    if (!pause) return;
    pthread_cond_destroy(&pause->changed);
    pthread_mutex_destroy(&pause->lock);
    free(pause);
}

static void set(struct engine_pause *pause, bool is_paused, uint32_t num_more) {
    pthread_mutex_lock(&pause->lock);
    pause->is_paused = is_paused;
    pause->num_allowed = num_more ? pause->num_allowed + num_more : 0;
    pthread_cond_signal(&pause->changed);
    pthread_mutex_unlock(&pause->lock);
}

void engine_pause_begin(struct engine_pause *pause) {
    set(pause, true, 0);
}

void engine_pause_allow(struct engine_pause *pause, uint32_t num_steps) {
    set(pause, true, num_steps);
}

void engine_pause_end(struct engine_pause *pause) {
    set(pause, false, 0);
}

bool engine_pause_is_on(struct engine_pause *pause) {
    return atomic_load(&pause->is_paused);
}

bool engine_pause_may_step(struct engine_pause *pause, bool has_work) {
    // Without work the engine waits for some, and no step is counted.
    if (!has_work || !atomic_load(&pause->is_paused)) return true;
    pthread_mutex_lock(&pause->lock);
    if (pause->is_paused && !pause->num_allowed) {
        timed_cond_wait(&pause->changed, &pause->lock,
                        clock_seconds() + ENGINE_PAUSE_WAIT_MS * 1e-3);
    }
    bool may_step = !pause->is_paused || pause->num_allowed;
    if (may_step && pause->num_allowed) pause->num_allowed--;
    pthread_mutex_unlock(&pause->lock);
    return may_step;
}
