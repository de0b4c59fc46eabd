// Routers and experts of mixtures.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "ops/ops.h"

// Qwen3-30B-A3B's experts, half as many.
enum { EXPERTS = 64, EXPERT_HIDDEN = 2048, EXPERT_SIZE = 768, EXPERT_TOP = 8, EXPERT_ROUTINGS = 8 };

struct experts_bench {
    struct experts_args args;
    int32_t *ids; // [EXPERT_ROUTINGS][num_tokens][EXPERT_TOP]: other experts in every call
    uint32_t next;
    struct route_args route;
};

static void experts_op(struct bench *bench, void *arg) {
    struct experts_bench *experts = arg;
    size_t pairs = (size_t)experts->args.num_tokens * EXPERT_TOP;
    experts->args.ids = experts->ids + experts->next++ % EXPERT_ROUTINGS * pairs;
    bench->backend->moe->experts(bench->backend, &experts->args);
}

static void route_op(struct bench *bench, void *arg) {
    struct experts_bench *experts = arg;
    bench->backend->moe->route(bench->backend, &experts->route);
}

static struct experts *make_experts(struct bench *bench) {
    const size_t weights = (size_t)EXPERT_HIDDEN * EXPERT_SIZE;
    uint16_t *source = bench_checked(malloc(weights * 2));
    for (size_t i = 0; i < weights; i++) source[i] = (uint16_t)(0x3c00 + i % 97);
    struct matrix_slice in[EXPERTS], out[EXPERTS];
    for (int i = 0; i < EXPERTS; i++) {
        in[i] = (struct matrix_slice){.source = {.data = source},
                                      .dtype = DTYPE_BF16,
                                      .rows = EXPERT_SIZE,
                                      .cols = EXPERT_HIDDEN,
                                      .row_stride = EXPERT_HIDDEN};
        out[i] = (struct matrix_slice){.source = {.data = source},
                                       .dtype = DTYPE_BF16,
                                       .rows = EXPERT_HIDDEN,
                                       .cols = EXPERT_SIZE,
                                       .row_stride = EXPERT_SIZE};
    }
    const struct experts_spec spec = {
        .shape = {.num_experts = EXPERTS, .hidden = EXPERT_HIDDEN, .intermediate = EXPERT_SIZE},
        .gate = in,
        .up = in,
        .down = out,
        .format = bench->format};
    struct experts *experts = NULL;
    if (bench->backend->moe->experts_create(bench->backend, &spec, &experts, NULL) != OK) {
        bench_checked(NULL);
    }
    free(source);
    return experts;
}

// Fills routings that look random. Returns how many experts a call reads, on average.
static double fill_routings(int32_t *ids, uint32_t num_tokens) {
    uint32_t random = 1;
    double num_read = 0;
    for (uint32_t routing = 0; routing < EXPERT_ROUTINGS; routing++) {
        uint64_t used = 0;
        for (uint32_t token = 0; token < num_tokens; token++) {
            random = random * 1664525u + 1013904223u;
            for (uint32_t slot = 0; slot < EXPERT_TOP; slot++) {
                uint32_t id = ((random >> 16) + slot * (2 * (random >> 8) + 1)) % EXPERTS;
                *ids++ = (int32_t)id;
                used |= (uint64_t)1 << id;
            }
        }
        num_read += __builtin_popcountll(used);
    }
    return num_read / EXPERT_ROUTINGS;
}

static void bench_num_tokens(struct bench *bench, struct experts *experts, uint32_t num_tokens) {
    const struct experts_shape shape = {
        .num_experts = EXPERTS, .hidden = EXPERT_HIDDEN, .intermediate = EXPERT_SIZE};
    size_t pairs = (size_t)num_tokens * EXPERT_TOP, values = (size_t)num_tokens * EXPERT_HIDDEN;
    size_t scratch =
        bench->backend->moe->experts_scratch_bytes(bench->backend, &shape, num_tokens, EXPERT_TOP);
    struct experts_bench run = {
        .ids = bench_checked(malloc(EXPERT_ROUTINGS * pairs * sizeof *run.ids))};
    double num_read = fill_routings(run.ids, num_tokens);
    float *weights = bench_alloc(bench, pairs * sizeof *weights);
    run.args = (struct experts_args){.experts = experts,
                                     .x = bench_alloc(bench, values * sizeof(float)),
                                     .weights = weights,
                                     .out = bench_alloc(bench, values * sizeof(float)),
                                     .scratch = bench_alloc(bench, scratch),
                                     .num_tokens = num_tokens,
                                     .top_k = EXPERT_TOP};
    run.route = (struct route_args){.logits = run.args.out,
                                    .ids = run.ids,
                                    .weights = weights,
                                    .num_tokens = num_tokens,
                                    .num_experts = EXPERTS,
                                    .top_k = EXPERT_TOP,
                                    .normalize = true,
                                    .factor = 1};
    double expert = 3.0 * EXPERT_HIDDEN * EXPERT_SIZE;
    char what[64];
    snprintf(what, sizeof what, "experts, %u tokens, %.0f of %d", num_tokens, num_read, EXPERTS);
    bench_report(bench, what, bench_time(bench, experts_op, &run), num_read * expert * 2,
                 2 * expert * (double)pairs);
    snprintf(what, sizeof what, "route %u tokens to %d of %d", num_tokens, EXPERT_TOP, EXPERTS);
    bench_report(bench, what, bench_time(bench, route_op, &run), (double)num_tokens * EXPERTS * 4,
                 0);
    void *x = NULL;
    memcpy(&x, &run.args.x, sizeof x); // without the const
    cpu_memory_free(x), cpu_memory_free(run.args.out), cpu_memory_free(run.args.scratch);
    cpu_memory_free(weights);
    free(run.ids);
}

void bench_experts(struct bench *bench) {
    struct experts *experts = make_experts(bench);
    const uint32_t num_tokens[] = {1, 2, 8, 64, 512, 2048};
    for (size_t i = 0; i < ARRAY_LEN(num_tokens); i++)
        bench_num_tokens(bench, experts, num_tokens[i]);
    bench->backend->moe->experts_destroy(bench->backend, experts);
}
