#include "base/thread/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/os/cpu.h"
#include "base/thread/float_mode.h"
#include "base/thread/futex.h"
#include "base/thread/thread_start.h"

// Longer than the gap between two ops or two steps, too short for a person to notice.
#define SPIN_SECONDS_MAX 200e-6

enum { FIRST_BITS = 64 };

struct worker {
    struct thread_pool *pool;
    pthread_t handle;
    uint32_t thread; // 1 .. num_threads-1
};

/* A loop's life: the caller fills the plain fields, opens the gate, bumps `epoch` (which wakes
 * sleepers), takes items itself, closes the gate and waits until the workers inside have left. A
 * worker enters only through the open gate, so the fields never change while it reads them. */
struct thread_pool {
    uint32_t num_threads;
    uint32_t num_started; // workers whose thread exists
    double spin_seconds_max; // 0: waiting threads sleep at once
    struct futex_patience patience; // of the caller
    struct worker *workers; // [num_threads - 1]

    void (*fn)(void *arg, uint32_t item, uint32_t thread);
    void *arg;
    uint32_t num_items;
    uint32_t num_first; // items that a thread takes by its number
    struct thread_pool_ahead ahead; // workers read it inside the gate

    CACHE_ALIGNED atomic_uint next; // the next item to take
    atomic_ullong first[THREAD_POOL_THREADS_MAX / FIRST_BITS]; // bits: the first items taken
    CACHE_ALIGNED atomic_uint gate; // bit 0: open; above: the number of workers inside
    CACHE_ALIGNED atomic_uint epoch; // futex: counts loops
    atomic_uint num_sleeping; // workers in, or about to enter, futex_wait on epoch
    atomic_bool caller_sleeping; // the caller is in, or about to enter, futex_wait on gate
    atomic_bool stop;
};

enum { GATE_OPEN = 1, GATE_WORKER = 2 };

// Takes a first item. False: another thread has it.
static bool take_first(struct thread_pool *pool, uint32_t item) {
    unsigned long long bit = 1ull << item % FIRST_BITS;
    return !(atomic_fetch_or_explicit(&pool->first[item / FIRST_BITS], bit, memory_order_relaxed) &
             bit);
}

// The first items of threads that have not come.
static void take_first_of_others(struct thread_pool *pool, uint32_t thread) {
    for (uint32_t begin = 0; begin < pool->num_first; begin += FIRST_BITS) {
        atomic_ullong *word = &pool->first[begin / FIRST_BITS];
        uint32_t left = pool->num_first - begin;
        unsigned long long all = left < FIRST_BITS ? (1ull << left) - 1 : ~0ull, missing;
        while ((missing = all & ~atomic_load_explicit(word, memory_order_relaxed)) != 0) {
            uint32_t item = begin + (uint32_t)__builtin_ctzll(missing);
            if (take_first(pool, item)) pool->fn(pool->arg, item, thread);
        }
    }
}

static void take_items(struct thread_pool *pool, uint32_t thread) {
    if (thread < pool->num_first && take_first(pool, thread)) {
        pool->fn(pool->arg, thread, thread);
    }
    take_first_of_others(pool, thread);
    for (;;) {
        uint32_t item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (item >= pool->num_items) return;
        pool->fn(pool->arg, item, thread);
    }
}

// Fetches a step of a thread's share. False when all is fetched.
static bool fetch_step(const struct thread_pool_ahead *ahead, uint32_t thread, size_t *done) {
    if (!ahead->fetch || thread >= ahead->num_threads || *done >= ahead->bytes) return false;
    size_t at = thread / ahead->threads_per_share * ahead->stride + *done;
    for (int i = 0; i < 2 && ahead->begin[i]; i++) ahead->fetch(ahead->begin[i] + at);
    *done += THREAD_POOL_AHEAD_STEP;
    return true;
}

static bool enter_gate(struct thread_pool *pool) {
    unsigned gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
    while (gate & GATE_OPEN) {
        if (atomic_compare_exchange_weak_explicit(&pool->gate, &gate, gate + GATE_WORKER,
                                                  memory_order_acquire, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

static void leave_gate(struct thread_pool *pool) {
    unsigned gate = atomic_fetch_sub(&pool->gate, GATE_WORKER) - GATE_WORKER;
    if (gate == 0 && atomic_load(&pool->caller_sleeping))
        futex_wake(&pool->gate, 1, FUTEX_IN_PROCESS);
}

// Returns the epoch that replaced `seen`.
static unsigned wait_epoch(struct thread_pool *pool, unsigned seen,
                           struct futex_patience *patience) {
    while (!futex_spin_patiently(&pool->epoch, seen, patience)) {
        // This thread adds itself before the kernel compares epoch; the caller bumps epoch before
        // it reads num_sleeping. One of the two sees the other, so no wake-up is lost.
        atomic_fetch_add(&pool->num_sleeping, 1);
        futex_wait(&pool->epoch, seen, -1, FUTEX_IN_PROCESS); // until there is work, or the end
        atomic_fetch_sub(&pool->num_sleeping, 1);
    }
    return atomic_load(&pool->epoch);
}

static void *worker_main(void *arg) {
    struct worker *worker = arg;
    struct thread_pool *pool = worker->pool;
    struct futex_patience patience = {.seconds_max = pool->spin_seconds_max};
    unsigned seen = 0;
    float_mode_enter(); // this thread has that of its creator, and computes for nobody else
    for (;;) {
        seen = wait_epoch(pool, seen, &patience);
        if (atomic_load(&pool->stop)) return NULL;
        if (!enter_gate(pool)) continue; // woke up too late: the loop is over
        take_items(pool, worker->thread);
        struct thread_pool_ahead ahead = pool->ahead;
        size_t fetched = 0;
        leave_gate(pool);
        while (atomic_load_explicit(&pool->epoch, memory_order_relaxed) == seen &&
               fetch_step(&ahead, worker->thread, &fetched))
            continue;
    }
}

static void bump_epoch(struct thread_pool *pool, uint32_t num_wanted) {
    atomic_fetch_add(&pool->epoch, 1);
    uint32_t num_sleeping = atomic_load(&pool->num_sleeping);
    if (num_sleeping == 0) return;
    uint32_t count = num_sleeping < num_wanted ? num_sleeping : num_wanted;
    futex_wake(&pool->epoch, count, FUTEX_IN_PROCESS);
}

static void wait_gate(struct thread_pool *pool) {
    unsigned gate;
    while ((gate = atomic_load(&pool->gate)) != 0) {
        if (futex_spin_patiently(&pool->gate, gate, &pool->patience)) continue;
        atomic_store(&pool->caller_sleeping, true);
        // Returns at once when a worker left meanwhile. Without a deadline: items are computations,
        // which end, and the caller's memory must stay until they do.
        futex_wait(&pool->gate, gate, -1, FUTEX_IN_PROCESS);
        atomic_store(&pool->caller_sleeping, false);
    }
}

// With the workers' help.
static void run_shared(struct thread_pool *pool, uint32_t num_items,
                       void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg) {
    CHECK(atomic_load_explicit(&pool->gate, memory_order_relaxed) == 0,
          "a loop is already running, num_items=%u", num_items);
    pool->fn = fn;
    pool->arg = arg;
    pool->num_items = num_items;
    pool->num_first = num_items < pool->num_threads ? num_items : pool->num_threads;
    for (uint32_t i = 0; i < pool->num_first; i += FIRST_BITS) {
        atomic_store_explicit(&pool->first[i / FIRST_BITS], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&pool->next, pool->num_first, memory_order_relaxed);
    atomic_store(&pool->gate, GATE_OPEN);
    bump_epoch(pool, num_items - 1);
    take_items(pool, 0);
    atomic_fetch_and(&pool->gate, ~(unsigned)GATE_OPEN);
    size_t fetched = 0;
    while (atomic_load_explicit(&pool->gate, memory_order_relaxed) != 0 &&
           fetch_step(&pool->ahead, 0, &fetched))
        continue;
    wait_gate(pool);
}

void thread_pool_for(struct thread_pool *pool, uint32_t num_items,
                     void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg) {
    uint64_t mode = float_mode_enter();
    if (pool->num_started == 0 || num_items <= 1) {
        for (uint32_t item = 0; item < num_items; item++) fn(arg, item, 0);
    } else {
        run_shared(pool, num_items, fn, arg);
    }
    float_mode_leave(mode);
}

void thread_pool_set_ahead(struct thread_pool *pool, const struct thread_pool_ahead *ahead) {
    pool->ahead = pool->spin_seconds_max > 0 ? *ahead : (struct thread_pool_ahead){0};
}

uint32_t thread_pool_num_threads(const struct thread_pool *pool) {
    return pool->num_threads;
}

uint32_t thread_pool_grain(const struct thread_pool *pool, uint32_t count, uint32_t min_units) {
    uint32_t num_items = pool->num_threads * 8;
    uint32_t grain = count / num_items + (count % num_items != 0);
    if (pool->num_threads == 1) grain = count;
    if (grain < min_units) grain = min_units;
    return grain ? grain : 1;
}

static enum status start_workers(struct thread_pool *pool, struct err *err) {
    int failed = 0;
    while (!failed && pool->num_started + 1 < pool->num_threads) {
        struct worker *worker = &pool->workers[pool->num_started];
        *worker = (struct worker){.pool = pool, .thread = pool->num_started + 1};
        failed = thread_start(&worker->handle, NULL, worker_main, worker);
        if (!failed) pool->num_started++;
    }
    if (!failed) return OK;
    return err_set(err, ERR_NOMEM, "thread %u of %u could not be started", pool->num_started + 1,
                   pool->num_threads);
}

enum status thread_pool_create(struct thread_pool **out, uint32_t num_threads, struct err *err) {
    CHECK(num_threads >= 1 && num_threads <= THREAD_POOL_THREADS_MAX, "num_threads=%u",
          num_threads);
    // CACHE_ALIGNED members need more than malloc's 16 bytes. sizeof *pool is a multiple of 64.
    struct thread_pool *pool = aligned_alloc(_Alignof(struct thread_pool), sizeof *pool);
    if (!pool) return err_nomem(err, "thread pool");
    *pool = (struct thread_pool){.num_threads = num_threads};
    enum status status = OK;
    if (num_threads > 1) {
        if (num_threads <= (uint32_t)cpu_count()) pool->spin_seconds_max = SPIN_SECONDS_MAX;
        pool->patience.seconds_max = pool->spin_seconds_max;
        pool->workers = calloc(num_threads - 1, sizeof *pool->workers);
        status = pool->workers ? start_workers(pool, err) : err_nomem(err, "thread pool");
    }
    if (status != OK) {
        thread_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return OK;
}

void thread_pool_destroy(struct thread_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    bump_epoch(pool, UINT32_MAX >> 1);
    for (uint32_t i = 0; i < pool->num_started; i++) pthread_join(pool->workers[i].handle, NULL);
    free(pool->workers);
    free(pool);
}

void thread_pool_fault_set(struct thread_pool_fault *fault, enum status status,
                           const struct err *err) {
    if (atomic_exchange(&fault->is_set, true)) return;
    fault->status = status;
    fault->err = *err;
}
