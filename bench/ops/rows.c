// Ops on rows of activations.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "ops/ops.h"

static void rms_norm_op(struct bench *bench, void *arg) {
    bench->backend->ops->rms_norm(bench->backend, arg);
}

static void silu_mul_op(struct bench *bench, void *arg) {
    bench->backend->ops->silu_mul(bench->backend, arg);
}

static void bench_num_rows(struct bench *bench, uint32_t rows) {
    enum { HIDDEN = 1024, INTERMEDIATE = 3072 };
    float *x = bench_alloc(bench, (size_t)rows * 2 * INTERMEDIATE * sizeof *x);
    float *residual = bench_alloc(bench, (size_t)rows * HIDDEN * sizeof *residual);
    float *out = bench_alloc(bench, (size_t)rows * INTERMEDIATE * sizeof *out);
    float *weight = bench_alloc(bench, HIDDEN * sizeof *weight);
    struct rms_norm_args norm = {.x = x,
                                 .residual = residual,
                                 .weight = weight,
                                 .out = out,
                                 .rows = rows,
                                 .cols = HIDDEN,
                                 .eps = 1e-6f};
    struct silu_mul_args silu = {x, out, rows, INTERMEDIATE, false};
    char what[64];
    snprintf(what, sizeof what, "rms_norm + residual [%u][%d]", rows, HIDDEN);
    bench_report(bench, what, bench_time(bench, rms_norm_op, &norm), (double)rows * HIDDEN * 8, 0);
    snprintf(what, sizeof what, "silu_mul [%u][%d]", rows, INTERMEDIATE);
    bench_report(bench, what, bench_time(bench, silu_mul_op, &silu),
                 (double)rows * INTERMEDIATE * 8, 0);
    cpu_memory_free(x), cpu_memory_free(residual), cpu_memory_free(out), cpu_memory_free(weight);
}

void bench_rows(struct bench *bench) {
    bench_num_rows(bench, 1);
    bench_num_rows(bench, 512);
}
