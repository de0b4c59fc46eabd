#include "server/loop/work_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/text/c_locale.h"

// First come first served.
struct work_list {
    struct work *first, *last;
};

struct worker {
    struct work_pool *pool;
    pthread_t thread;
    // The list that it takes from first, and the other one; NULL: it takes from no other.
    struct work_list *first, *second;
};

struct work_pool {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct work_list small, large;
    bool is_ending;
    uint32_t num_workers;
    struct worker workers[];
};

static struct work *list_take(struct work_list *list) {
    struct work *work = list ? list->first : NULL;
    if (!work) return NULL;
    list->first = work->next;
    if (!list->first) list->last = NULL;
    return work;
}

static void list_add(struct work_list *list, struct work *work) {
    work->next = NULL;
    if (list->last) {
        list->last->next = work;
    } else {
        list->first = work;
    }
    list->last = work;
}

// NULL: the pool ends.
static struct work *take(struct worker *worker) {
    struct work_pool *pool = worker->pool;
    struct work *work;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        work = list_take(worker->first);
        if (!work) work = list_take(worker->second);
        // The worker of small jobs may have added a large one when the others had ended.
        if (!work && pool->is_ending) work = list_take(&pool->large);
        if (work || pool->is_ending) break;
        pthread_cond_wait(&pool->more, &pool->lock); // until there is work, or the end
    }
    pthread_mutex_unlock(&pool->lock);
    return work;
}

static void *run_thread(void *arg) {
    struct work *work;
    while ((work = take(arg))) work->run(work);
    return NULL;
}

// One worker takes small jobs alone, so that no number of large ones makes a small one wait for
// their end. Another takes large ones first, so that these are never starved.
static void choose_lists(struct work_pool *pool, uint32_t index) {
    struct worker *worker = &pool->workers[index];
    worker->first = index == 1 ? &pool->large : &pool->small;
    worker->second = index == 0 ? NULL : index == 1 ? &pool->small : &pool->large;
}

enum status work_pool_create(struct work_pool **out, uint32_t num_threads, struct err *err) {
    CHECK(num_threads >= 2, "num_threads=%u", num_threads);
    struct work_pool *pool = calloc(1, sizeof *pool + num_threads * sizeof pool->workers[0]);
    if (!pool) return err_nomem(err, "threads");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    for (; pool->num_workers < num_threads; pool->num_workers++) {
        struct worker *worker = &pool->workers[pool->num_workers];
        worker->pool = pool;
        choose_lists(pool, pool->num_workers);
        int fault = pthread_create(&worker->thread, NULL, run_thread, worker);
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
    for (uint32_t i = 0; i < pool->num_workers; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void work_pool_add(struct work_pool *pool, struct work *work) {
    pthread_mutex_lock(&pool->lock);
    list_add(work->is_large ? &pool->large : &pool->small, work);
    pthread_cond_broadcast(&pool->more); // not every worker takes every job
    pthread_mutex_unlock(&pool->lock);
}
