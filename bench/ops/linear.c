// Linears, and the packing of their weights.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "ops/ops.h"

struct linear_bench {
    struct linear_args args[24]; // so many copies that they do not fit the last cache level
    uint32_t num_copies, next;
    struct linear_spec spec;
};

static void linear_op(struct bench *bench, void *arg) {
    struct linear_bench *linear = arg;
    bench->backend->ops->linear(bench->backend, &linear->args[linear->next]);
    linear->next = (linear->next + 1) % linear->num_copies;
}

static void pack_op(struct bench *bench, void *arg) {
    struct linear_bench *linear = arg;
    struct linear *made = NULL;
    if (bench->backend->ops->linear_create(bench->backend, &linear->spec, &made, NULL) != OK) {
        bench_checked(NULL);
    }
    bench->backend->ops->linear_destroy(bench->backend, made);
}

// The bytes of the weights as the backend keeps them, without scales and sums of each output.
static double weight_bytes(const struct bench *bench, uint32_t out, uint32_t in) {
    struct weight_format format = bench->format;
    double bits = format.bits ? format.bits : 16;
    if (format.group) bits += 8.0 / format.group; // a byte for each
    return (double)out * in * bits / 8;
}

static void bench_linear_shape(struct bench *bench, uint32_t out, uint32_t in, uint32_t rows) {
    size_t weights = (size_t)out * in;
    uint16_t *source = bench_checked(malloc(weights * 2));
    float *x = bench_alloc(bench, (size_t)rows * in * sizeof *x);
    float *y = bench_alloc(bench, (size_t)rows * out * sizeof *y);
    for (size_t i = 0; i < weights; i++) source[i] = (uint16_t)(0x3c00 + i % 97);
    struct matrix_slice part = {
        .source = {.data = source}, .dtype = DTYPE_BF16, .rows = out, .cols = in, .row_stride = in};
    struct linear_bench linear = {.spec = {&part, NULL, 1, bench->format}};
    linear.num_copies = rows > 64 ? 1 : (uint32_t)((200u << 20) / (weights * 2)) + 1;
    if (linear.num_copies > 24) linear.num_copies = 24;
    for (uint32_t i = 0; i < linear.num_copies; i++) {
        struct linear *made = NULL;
        if (bench->backend->ops->linear_create(bench->backend, &linear.spec, &made, NULL) != OK) {
            bench_checked(NULL);
        }
        linear.args[i] = (struct linear_args){.linear = made, .x = x, .out = y, .rows = rows};
    }
    char what[64];
    snprintf(what, sizeof what, "linear [%u][%u], %u row%s", out, in, rows, rows == 1 ? "" : "s");
    double seconds = bench_time(bench, linear_op, &linear);
    bench_report(bench, what, seconds, weight_bytes(bench, out, in), 2.0 * (double)weights * rows);
    if (rows == 1 && weights > (64u << 20)) {
        snprintf(what, sizeof what, "packing [%u][%u] bf16 (read + write)", out, in);
        bench_report(bench, what, bench_time(bench, pack_op, &linear), (double)weights * 4, 0);
    }
    for (uint32_t i = 0; i < linear.num_copies; i++) {
        struct linear *made = NULL;
        memcpy(&made, &linear.args[i].linear, sizeof made); // without the const
        bench->backend->ops->linear_destroy(bench->backend, made);
    }
    free(source);
    cpu_memory_free(x);
    cpu_memory_free(y);
}

void bench_linears(struct bench *bench) {
    const uint32_t shapes[][2] = {{4096, 1024}, {6144, 1024}, {1024, 2048}, {1024, 3072}};
    const uint32_t rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            bench_linear_shape(bench, shapes[s][0], shapes[s][1], rows[r]);
        }
    }
    bench_linear_shape(bench, 151936, 1024, 1);
}
