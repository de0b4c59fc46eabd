/* A persistent pool of threads that share the items of one parallel loop at a time.
 *
 * A thread first takes the item of its own number, unless another thread has. So it can fetch what
 * that item reads before the loop begins (thread_pool_set_ahead). Then it takes the first items of
 * threads that have not come, and then items one by one from a counter. So a thread that the system
 * holds back delays a loop by one item at most. A thread that wakes up late finds the loop closed
 * and delays nobody.
 *
 * An item's result must therefore not depend on the thread that runs it. Items compute in the
 * default floating-point mode (float_mode.h), whatever mode the caller has. Waiting threads spin
 * briefly, because ops follow each other within microseconds, and then sleep in the kernel. A wait
 * that spinning did not end makes the next ones shorter: on a busy machine it only keeps others
 * from running, and the scheduler lets a thread that has slept run sooner. With more threads than
 * cores they sleep at once.
 *
 * Threads are not pinned. The caller is one of them, and its placement is not ours to decide. A
 * worker pinned to the caller's core would wait behind it while another core idles. */
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/err.h"

struct thread_pool;

enum { THREAD_POOL_THREADS_MAX = 1024 };

// `num_threads` counts the caller: 1 makes no thread at all. 1 .. THREAD_POOL_THREADS_MAX.
MUST_USE enum status thread_pool_create(struct thread_pool **out, uint32_t num_threads,
                                        struct err *err);
void thread_pool_destroy(struct thread_pool *pool); // NULL is fine; no loop may be running

uint32_t thread_pool_num_threads(const struct thread_pool *pool);

// Calls fn(arg, item, thread) exactly once for each item of 0 .. num_items-1, begun about in that
// order, and returns when all are done. No two calls at the same time have the same `thread` <
// num_threads, so that it can index scratch memory; 0 is the caller. One loop at a time per pool;
// fn must not start another.
void thread_pool_for(struct thread_pool *pool, uint32_t num_items,
                     void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg);

enum { THREAD_POOL_AHEAD_STEP = 1024 };

/* What threads fetch into their caches while they wait: the beginning of what their first items
 * will probably read. Memory lies in shares; so many threads in a row fetch the same share. */
struct thread_pool_ahead {
    void (*fetch)(const char *at); // THREAD_POOL_AHEAD_STEP bytes; NULL: nothing is fetched
    const char *begin[2]; // the first share, of one or two arrays; NULL: no second array
    size_t stride; // from a share to the next one
    size_t bytes; // fetched of a share
    uint32_t threads_per_share;
    uint32_t num_threads; // that fetch, from thread 0 on
};

// Takes effect with the next loop: after it, and after each later loop until the next call of this
// function, threads that wait fetch. A thread stops when a loop begins. `fetch` may still run when
// the memory is gone. Threads that must not spin do not fetch.
void thread_pool_set_ahead(struct thread_pool *pool, const struct thread_pool_ahead *ahead);

// The first fault of a loop's items, from any thread; all-zero before the loop.
struct thread_pool_fault {
    atomic_bool is_set;
    enum status status; // read this and `err` only after the loop
    struct err err;
};
void thread_pool_fault_set(struct thread_pool_fault *fault, enum status status,
                           const struct err *err);

// How many of `count` units (rows, blocks) an item should have: about 8 items per thread, so that
// all threads end together, but at least `min_units` units per item. >= 1.
uint32_t thread_pool_grain(const struct thread_pool *pool, uint32_t count, uint32_t min_units);

#endif
