#include "base/thread/background.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "base/thread/thread_start.h"
#include "base/thread/timed_cond.h"

struct background {
    background_fn run;
    void *context;
    size_t job_bytes;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed, ended; // a job was added, a pause or the end has come; a job has ended
    double paused_until; // of clock_seconds
    char *jobs; // [capacity][job_bytes], in the order in which they came
    uint32_t *ranks; // [capacity]
    char *current; // [job_bytes]: what runs
    uint32_t num_jobs, capacity;
    bool is_running, is_stopped;
};

// Moves the next job to `current`. There is one.
static void take(struct background *b) {
    uint32_t next = 0;
    for (uint32_t i = 1; i < b->num_jobs; i++) {
        if (b->ranks[i] < b->ranks[next]) next = i;
    }
    char *job = b->jobs + next * b->job_bytes;
    uint32_t num_behind = --b->num_jobs - next;
    memcpy(b->current, job, b->job_bytes);
    memmove(job, job + b->job_bytes, num_behind * b->job_bytes);
    memmove(b->ranks + next, b->ranks + next + 1, num_behind * sizeof *b->ranks);
}

static void *run(void *arg) {
    struct background *b = arg;
    pthread_mutex_lock(&b->mutex);
    while (!b->is_stopped) {
        if (!b->num_jobs) {
            pthread_cond_wait(&b->changed, &b->mutex); // until there is work, or the end
            continue;
        }
        if (clock_seconds() < b->paused_until) {
            timed_cond_wait(&b->changed, &b->mutex, b->paused_until);
            continue;
        }
        take(b);
        b->is_running = true;
        pthread_mutex_unlock(&b->mutex);
        b->run(b->context, b->current);
        pthread_mutex_lock(&b->mutex);
        b->is_running = false;
        pthread_cond_broadcast(&b->ended);
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

static void release(struct background *b) {
    pthread_cond_destroy(&b->ended);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
    free(b->jobs);
    free(b->ranks);
    free(b->current);
    free(b);
}

struct background *background_create(background_fn fn, void *context, size_t job_bytes) {
    struct background *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    *b = (struct background){.run = fn, .context = context, .job_bytes = job_bytes};
    if (timed_cond_init(&b->changed, "thread", NULL)) {
        free(b);
        return NULL;
    }
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->ended, NULL);
    b->current = malloc(job_bytes);
    if (b->current && thread_start(&b->thread, NULL, run, b) == 0) return b;
    release(b);
    return NULL;
}

void background_destroy(struct background *b) {
    if (!b) return;
    pthread_mutex_lock(&b->mutex);
    b->is_stopped = true;
    b->num_jobs = 0;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->mutex);
    pthread_join(b->thread, NULL);
    release(b);
}

static bool grow(struct background *b) {
    uint32_t capacity = b->capacity ? 2 * b->capacity : 64;
    char *jobs = realloc(b->jobs, capacity * b->job_bytes);
    if (!jobs) return false;
    b->jobs = jobs;
    uint32_t *ranks = realloc(b->ranks, capacity * sizeof *ranks);
    if (!ranks) return false;
    b->ranks = ranks;
    b->capacity = capacity;
    return true;
}

bool background_add(struct background *b, uint32_t rank, const void *job) {
    pthread_mutex_lock(&b->mutex);
    bool has_room = b->num_jobs < b->capacity || grow(b);
    if (has_room) {
        memcpy(b->jobs + b->num_jobs * b->job_bytes, job, b->job_bytes);
        b->ranks[b->num_jobs++] = rank;
        pthread_cond_signal(&b->changed);
    }
    pthread_mutex_unlock(&b->mutex);
    return has_room;
}

void background_pause(struct background *b, double seconds) {
    pthread_mutex_lock(&b->mutex);
    b->paused_until = clock_seconds() + seconds;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

uint32_t background_num_left(struct background *b) {
    pthread_mutex_lock(&b->mutex);
    uint32_t num_left = b->num_jobs + b->is_running;
    pthread_mutex_unlock(&b->mutex);
    return num_left;
}

void background_wait(struct background *b) {
    pthread_mutex_lock(&b->mutex);
    while (b->num_jobs || b->is_running) pthread_cond_wait(&b->ended, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
}
