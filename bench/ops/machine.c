// What the machine can do: reads of memory, and multiply-adds.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/cpu_memory.h"
#include "base/os/clock.h"
#include "ops/fma_peak.h"
#include "ops/ops.h"

enum {
    READ_BYTES = 512 << 20, // beyond any cache
    READ_ITEM = 1 << 20,
    READ_ITEMS_TURN = 32, // a few milliseconds: longer quiet gaps are rare on a busy machine
    FMA_ITEMS_THREAD = 4,
};

void *bench_checked(void *memory) {
    if (memory) return memory;
    fputs("bench_ops: out of memory\n", stderr);
    exit(1);
}

// Time. With one thread it is the thread's processor time, which other programs do not lengthen.
static double bench_seconds(const struct bench *bench) {
    struct timespec time;
    if (thread_pool_num_threads(bench->cpu->pool) > 1) return clock_seconds();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void *bench_alloc(struct bench *bench, size_t bytes) {
    void *dev = NULL;
    return bench->backend->ops->alloc(bench->backend, bytes, &dev, NULL) == OK
               ? dev
               : bench_checked(NULL);
}

static void touch_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    struct bench *bench = arg;
    memset((char *)bench->memory + (size_t)item * READ_ITEM, 1, READ_ITEM);
}

static void read_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    struct bench *bench = arg;
    // Four prefetched streams: the fastest way to read that was found.
    enum { QUARTER = READ_ITEM / 4 / 8 };
    size_t at = (bench->read_next + item) % (READ_BYTES / READ_ITEM);
    const uint64_t *p = bench->memory + at * (READ_ITEM / 8);
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < QUARTER; i += 8) {
        for (size_t q = 0; q < 4; q++) {
            const uint64_t *line = p + q * QUARTER + i;
            __builtin_prefetch(line + 128);
            for (size_t j = 0; j < 8; j++) sum[j] += line[j];
        }
    }
    for (size_t j = 1; j < 8; j++) sum[0] += sum[j];
    __atomic_fetch_add(&bench->sink, sum[0], __ATOMIC_RELAXED);
}

static void fma_item(void *arg, uint32_t item, uint32_t thread) {
    (void)item, (void)thread;
    struct bench *bench = arg;
    fma_peak_run(bench->isa);
}

// Measures the machine's two rates once, and keeps the best so far.
static void measure_machine(struct bench *bench) {
    double start = bench_seconds(bench);
    thread_pool_for(bench->cpu->pool, READ_ITEMS_TURN, read_item, bench);
    double rate = (double)READ_ITEMS_TURN * READ_ITEM / (bench_seconds(bench) - start);
    bench->read_next += READ_ITEMS_TURN;
    if (rate > bench->read_rate) bench->read_rate = rate;
    start = bench_seconds(bench);
    uint32_t items = FMA_ITEMS_THREAD * thread_pool_num_threads(bench->cpu->pool);
    thread_pool_for(bench->cpu->pool, items, fma_item, bench);
    rate = items * fma_peak_operations(bench->isa) / (bench_seconds(bench) - start);
    if (rate > bench->fma_rate) bench->fma_rate = rate;
}

double bench_time(struct bench *bench, void (*op)(struct bench *bench, void *arg), void *arg) {
    double best = 1e30;
    op(bench, arg);
    for (int turn = 0; turn < bench->turns; turn++) {
        measure_machine(bench);
        int calls = 0;
        double start = bench_seconds(bench), spent;
        do {
            op(bench, arg);
            calls++;
            spent = bench_seconds(bench) - start;
        } while (spent < 0.002);
        if (spent / calls < best) best = spent / calls;
    }
    return best;
}

void bench_report(const struct bench *bench, const char *what, double seconds, double bytes,
                  double operations) {
    double by_bytes = bytes / bench->read_rate, by_operations = operations / bench->fma_rate;
    double limit = by_bytes > by_operations ? by_bytes : by_operations;
    printf("%-44s %10.1f us %7.2f GB/s %8.1f GFLOP/s   %5.1f %% of %s\n", what, seconds * 1e6,
           bytes / seconds * 1e-9, operations / seconds * 1e-9, 100 * limit / seconds,
           by_bytes > by_operations ? "read bandwidth" : "FMA peak");
    fflush(stdout);
}

void bench_machine_init(struct bench *bench) {
    bench->memory = bench_checked(cpu_memory_alloc(READ_BYTES));
    thread_pool_for(bench->cpu->pool, READ_BYTES / READ_ITEM, touch_item, bench);
    for (int turn = 0; turn < bench->turns; turn++) measure_machine(bench);
}
