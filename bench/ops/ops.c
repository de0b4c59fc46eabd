/* Measures single ops of the CPU backend, compared with what the machine can do: the read bandwidth
 * of memory and the rate of fused multiply-adds. The same threads measure op and machine in turns,
 * so that other load on the machine slows both alike. Turns are short and the best one counts.
 *
 *   bench_ops [ISA [THREADS [TURNS [WHAT]]]]     defaults: auto, all cores, 40, all ops
 *
 * WHAT is linear, experts, attention, rows or sample, with bf16 weights. int8 or int4 measures
 * linears with such weights; their peak is still that of bf16. A line of attention names the kind
 * of the KV cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "ops/ops.h"

static bool is_wanted(const char *group, const char *name) {
    return !group || strcmp(group, name) == 0;
}

static void refuse(const char *argument, const char *want) {
    fprintf(stderr, "bench_ops: \"%s\", want %s\n", argument, want);
    exit(2);
}

static int number_of(const char *text, long least, const char *want) {
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (!*text || *end || number < least || number > INT32_MAX) refuse(text, want);
    return (int)number;
}

static void check_group(const char *group) {
    static const char *const groups[] = {"linear", "experts", "attention", "rows",
                                         "sample", "int8",    "int4"};
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        if (strcmp(group, groups[i]) == 0) return;
    }
    refuse(group, "linear, experts, attention, rows, sample, int8 or int4");
}

int main(int argc, char **argv) {
    struct backend_options options = {
        .device = "cpu",
        .cpu_isa = argc > 1 ? argv[1] : "auto",
        .threads = argc > 2 ? number_of(argv[2], 0, "a number of threads, 0 for all cores") : 0,
        .weight_dtype = DTYPE_BF16,
    };
    struct bench bench = {.turns = argc > 3 ? number_of(argv[3], 1, "at least 1 turn") : 40};
    const char *group = argc > 4 ? argv[4] : NULL;
    if (group) check_group(group);
    if (group && strcmp(group, "int8") == 0) bench.format = WEIGHTS_INT8;
    if (group && strcmp(group, "int4") == 0) bench.format = WEIGHTS_INT4;
    if (bench.format.bits) group = "linear";
    struct err err = {0};
    if (backend_create(&bench.backend, &options, &err) != OK) {
        fprintf(stderr, "bench_ops: %s\n", err.message);
        return 1;
    }
    bench.cpu = cpu_backend_of(bench.backend);
    bench.isa = bench.cpu->kernels.isa;
    bench_machine_init(&bench);
    printf("%s: read %.2f GB/s, FMA %.1f GFLOP/s\n", bench.backend->description,
           bench.read_rate * 1e-9, bench.fma_rate * 1e-9);

    if (is_wanted(group, "linear")) bench_linears(&bench);
    if (is_wanted(group, "experts")) bench_experts(&bench);
    if (is_wanted(group, "attention")) bench_attention(&bench);
    if (is_wanted(group, "rows")) bench_rows(&bench);
    if (is_wanted(group, "sample")) bench_samples(&bench);
    printf("at the end: read %.2f GB/s, FMA %.1f GFLOP/s\n", bench.read_rate * 1e-9,
           bench.fma_rate * 1e-9);
    cpu_memory_free(bench.memory);
    backend_destroy(bench.backend);
    return 0;
}
