#include "engine/event_turn.h"

#include "base/thread/timed_cond.h"

enum status event_turn_init(struct event_turn *turn, struct err *err) {
    *turn = (struct event_turn){0};
    enum status status = timed_cond_init(&turn->changed, "engines", err);
    if (status) return status;
    if (pthread_mutex_init(&turn->mutex, NULL)) {
        pthread_cond_destroy(&turn->changed);
        return err_nomem(err, "engines");
    }
    turn->is_ready = true;
    return OK;
}

void event_turn_fini(struct event_turn *turn) {
    if (!turn->is_ready) return;
    pthread_mutex_destroy(&turn->mutex);
    pthread_cond_destroy(&turn->changed);
    *turn = (struct event_turn){0};
}

void event_turn_enter(struct event_turn *turn) {
    if (!turn) return;
    pthread_mutex_lock(&turn->mutex);
    while (!turn->is_open || turn->is_taken) pthread_cond_wait(&turn->changed, &turn->mutex);
    turn->is_taken = true;
    pthread_mutex_unlock(&turn->mutex);
}

void event_turn_leave(struct event_turn *turn) {
    if (!turn) return;
    pthread_mutex_lock(&turn->mutex);
    turn->is_taken = false;
    turn->is_open = turn->stays_open;
    turn->num_passed++;
    turn->num_signals++;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->mutex);
}

void event_turn_signal(struct event_turn *turn) {
    pthread_mutex_lock(&turn->mutex);
    turn->num_signals++;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->mutex);
}

void event_turn_wait(struct event_turn *turn, unsigned *num_signals, double deadline) {
    bool is_in_time = true;
    pthread_mutex_lock(&turn->mutex);
    turn->is_open = true;
    pthread_cond_broadcast(&turn->changed);
    while (turn->num_signals == *num_signals && is_in_time) {
        is_in_time = timed_cond_wait(&turn->changed, &turn->mutex, deadline);
    }
    turn->is_open = false;
    while (turn->is_taken) pthread_cond_wait(&turn->changed, &turn->mutex);
    *num_signals = turn->num_signals;
    pthread_mutex_unlock(&turn->mutex);
}

unsigned event_turn_num_passed(struct event_turn *turn) {
    pthread_mutex_lock(&turn->mutex);
    unsigned num_passed = turn->num_passed;
    pthread_mutex_unlock(&turn->mutex);
    return num_passed;
}

void event_turn_open(struct event_turn *turn) {
    pthread_mutex_lock(&turn->mutex);
    turn->is_open = turn->stays_open = true;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->mutex);
}
