/* A few threads for what takes too long for the loop: JSON, templates, tokenizing. Jobs run in the
 * order in which they came, several at a time, but small ones before large ones. One thread runs
 * small ones alone, so that a small one never waits for a large one to end; another one runs large
 * ones first, so that these get their turn too. */
#ifndef SERVER_WORK_POOL_H
#define SERVER_WORK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct work {
    struct work *next;
    void (*run)(struct work *work); // on a thread of the pool, which does not touch it afterwards
    bool is_large; // may take much longer than most
};

struct work_pool;

// At least two threads.
MUST_USE enum status work_pool_create(struct work_pool **out, uint32_t num_threads,
                                      struct err *err);
// Runs what waits, then ends the threads. NULL is fine.
void work_pool_destroy(struct work_pool *pool);
void work_pool_add(struct work_pool *pool, struct work *work);

#endif
