/* Shared by the files of bench_ops: the machine's two rates, which are measured in turns with each
 * op, and a line of the result. */
#ifndef BENCH_OPS_H
#define BENCH_OPS_H

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"

struct bench {
    struct backend *backend;
    struct weight_format format; // of linears
    struct cpu_backend *cpu;
    const char *isa;
    uint64_t *memory; // [READ_BYTES / 8] to measure reading
    uint32_t read_next; // where the next turn continues
    uint64_t sink;
    int turns;
    enum dtype kv_dtype; // of KV caches
    double read_rate; // bytes per second
    double fma_rate; // operations per second
};

// ---- machine.c ----

// Takes the memory and measures the machine. The caller frees bench->memory.
void bench_machine_init(struct bench *bench);
void *bench_checked(void *memory); // ends the program if it is NULL
// Zeroed memory from the backend, so on huge pages as in an engine.
void *bench_alloc(struct bench *bench, size_t bytes);
// The best seconds of one call over all turns, each of at least 2 ms.
double bench_time(struct bench *bench, void (*op)(struct bench *bench, void *arg), void *arg);
// Prints a line: the time, the rates, and the share of the bound that `bytes` and `operations` set.
void bench_report(const struct bench *bench, const char *what, double seconds, double bytes,
                  double operations);

// ---- a group of ops each, in files of their names ----

void bench_linears(struct bench *bench);
void bench_experts(struct bench *bench);
void bench_attention(struct bench *bench);
void bench_rows(struct bench *bench);
void bench_samples(struct bench *bench);

#endif
