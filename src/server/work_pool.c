#include "server/work_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/c_locale.h"

struct work_pool {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct work *first, *last;
    bool is_ending;
    uint32_t num_threads;
    pthread_t threads[];
};

// NULL: the pool ends.
static struct work *take(struct work_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    while (!pool->first && !pool->is_ending) pthread_cond_wait(&pool->more, &pool->lock);
    struct work *work = pool->first;
    if (work) {
        pool->first = work->next;
        if (!pool->first) pool->last = NULL;
    }
    pthread_mutex_unlock(&pool->lock);
    return work;
}

static void *run_thread(void *arg) {
    struct work *work;
    while ((work = take(arg))) work->run(work);
    return NULL;
}

enum status work_pool_create(struct work_pool **out, uint32_t num_threads, struct err *err) {
    struct work_pool *pool = calloc(1, sizeof *pool + num_threads * sizeof pool->threads[0]);
    if (!pool) return err_nomem(err, "threads");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    for (; pool->num_threads < num_threads; pool->num_threads++) {
        int fault = pthread_create(&pool->threads[pool->num_threads], NULL, run_thread, pool);
        if (!fault) continue;
        work_pool_destroy(pool);
        return err_set(err, ERR_IO, "cannot start a thread: %s", c_locale_strerror(fault));
    }
    *out = pool;
    return OK;
}

void work_pool_destroy(struct work_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->is_ending = true;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->num_threads; i++) pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void work_pool_add(struct work_pool *pool, struct work *work) {
    work->next = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->last) {
        pool->last->next = work;
    } else {
        pool->first = work;
    }
    pool->last = work;
    pthread_cond_signal(&pool->more);
    pthread_mutex_unlock(&pool->lock);
}
