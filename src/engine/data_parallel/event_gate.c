#include "engine/data_parallel/event_gate.h"

#include <errno.h>

#include "base/os/clock.h"

// Later deadlines do not exist: a time_t could not hold their seconds.
static const double deadline_max = 1e9;

enum status event_gate_init(struct event_gate *gate, struct err *err) {
    *gate = (struct event_gate){0};
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes)) return err_nomem(err, "engines");
    int failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!failed) failed = pthread_cond_init(&gate->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (failed) return err_nomem(err, "engines");
    if (pthread_mutex_init(&gate->mutex, NULL)) {
        pthread_cond_destroy(&gate->changed);
        return err_nomem(err, "engines");
    }
    gate->is_ready = true;
    return OK;
}

void event_gate_fini(struct event_gate *gate) {
    if (!gate->is_ready) return;
    pthread_mutex_destroy(&gate->mutex);
    pthread_cond_destroy(&gate->changed);
    *gate = (struct event_gate){0};
}

void event_gate_enter(struct event_gate *gate) {
    if (!gate) return;
    pthread_mutex_lock(&gate->mutex);
    while (!gate->is_open || gate->is_taken) pthread_cond_wait(&gate->changed, &gate->mutex);
    gate->is_taken = true;
    pthread_mutex_unlock(&gate->mutex);
}

void event_gate_leave(struct event_gate *gate) {
    if (!gate) return;
    pthread_mutex_lock(&gate->mutex);
    gate->is_taken = false;
    gate->is_open = gate->stays_open;
    gate->num_passed++;
    gate->num_rings++;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

void event_gate_ring(struct event_gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    gate->num_rings++;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

void event_gate_wait(struct event_gate *gate, unsigned *num_rings, double deadline) {
    bool has_end = deadline >= 0 && deadline < deadline_max;
    const struct timespec until = clock_timespec(has_end ? deadline : 0);
    int error = 0;
    pthread_mutex_lock(&gate->mutex);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->changed);
    while (gate->num_rings == *num_rings && error != ETIMEDOUT) {
        error = has_end ? pthread_cond_timedwait(&gate->changed, &gate->mutex, &until)
                        : pthread_cond_wait(&gate->changed, &gate->mutex);
    }
    gate->is_open = false;
    while (gate->is_taken) pthread_cond_wait(&gate->changed, &gate->mutex);
    *num_rings = gate->num_rings;
    pthread_mutex_unlock(&gate->mutex);
}

unsigned event_gate_num_passed(struct event_gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    unsigned num_passed = gate->num_passed;
    pthread_mutex_unlock(&gate->mutex);
    return num_passed;
}

void event_gate_open(struct event_gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    gate->is_open = gate->stays_open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}
