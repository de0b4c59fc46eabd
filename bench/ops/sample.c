// Sampling.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "ops/ops.h"

// Qwen3's vocabulary; the length of a penalized sequence.
enum { SAMPLE_VOCAB = 151936, SAMPLE_ROWS = 32, SAMPLE_PROMPT = 1000 };

static void sample_op(struct bench *bench, void *arg) {
    bench->backend->sampler->sample(bench->backend, arg);
}

// A sampled row's bound is reading its logits once.
static void bench_case(struct bench *bench, struct token_counts *counts, const float *logits,
                       uint32_t num_rows, const char *name, struct sample_row how) {
    struct sample_row rows[SAMPLE_ROWS];
    struct sample_result results[SAMPLE_ROWS];
    size_t floats = bench->backend->sampler->scratch_floats(bench->backend, SAMPLE_VOCAB, num_rows);
    struct sample_args args = {.logits = logits,
                               .rows = rows,
                               .counts = counts,
                               .results = results,
                               .num_rows = num_rows,
                               .vocab_size = SAMPLE_VOCAB,
                               .scratch = bench_alloc(bench, floats * sizeof(float))};
    for (uint32_t row = 0; row < num_rows; row++) {
        rows[row] = how;
        rows[row].seed_low = row;
        if (how.counts_slot) rows[row].counts_slot = row + 1;
    }
    char what[64];
    snprintf(what, sizeof what, "sample %u x %d, %s", num_rows, SAMPLE_VOCAB, name);
    bench_report(bench, what, bench_time(bench, sample_op, &args),
                 (double)num_rows * SAMPLE_VOCAB * 4, 0);
    cpu_memory_free(args.scratch);
}

// Logits as of a trained model: nearly a normal distribution, and a few far above it.
static void fill_logits(float *logits, size_t count) {
    uint32_t random = 1;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int part = 0; part < 4; part++) {
            random = random * 1664525u + 1013904223u;
            sum += (float)(random >> 8) * 0x1p-24f - 0.5f;
        }
        logits[i] = 4.0f * sum;
        if (i % 9973 == 17) logits[i] += 12.0f;
    }
}

void bench_samples(struct bench *bench) {
    static const struct {
        const char *name;
        struct sample_row how;
    } cases[] = {
        {"greedy", {.top_p = 1, .num_top = -1}},
        {"greedy, 5 logprobs", {.top_p = 1, .num_top = 5}},
        {"temperature", {.temperature = 0.7f, .top_p = 1, .num_top = -1}},
        {"top_k 20", {.temperature = 0.7f, .top_p = 1, .top_k = 20, .num_top = -1}},
        {"top_k 20, top_p", {.temperature = 0.7f, .top_p = 0.8f, .top_k = 20, .num_top = -1}},
        {"top_p", {.temperature = 0.7f, .top_p = 0.8f, .num_top = -1}},
        {"penalties",
         {.top_p = 1,
          .num_top = -1,
          .counts_slot = 1,
          .repetition_penalty = 1.1f,
          .presence_penalty = 0.5f}},
    };
    const uint32_t num_rows[] = {1, SAMPLE_ROWS};
    float *logits = bench_alloc(bench, (size_t)SAMPLE_ROWS * SAMPLE_VOCAB * sizeof *logits);
    fill_logits(logits, (size_t)SAMPLE_ROWS * SAMPLE_VOCAB);
    struct token_counts *counts = NULL;
    const struct backend_sampler *sampler = bench->backend->sampler;
    if (sampler->counts_create(bench->backend, SAMPLE_ROWS, SAMPLE_VOCAB, SAMPLE_PROMPT, &counts,
                               NULL) != OK) {
        bench_checked(NULL);
    }
    int32_t ids[SAMPLE_PROMPT];
    for (int32_t i = 0; i < SAMPLE_PROMPT; i++) ids[i] = i * 149;
    for (uint32_t slot = 1; slot <= SAMPLE_ROWS; slot++) {
        sampler->counts_begin(bench->backend, counts, slot, ids, SAMPLE_PROMPT / 2, SAMPLE_PROMPT);
    }
    for (size_t r = 0; r < ARRAY_LEN(num_rows); r++) {
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            bench_case(bench, counts, logits, num_rows[r], cases[i].name, cases[i].how);
        }
    }
    sampler->counts_destroy(bench->backend, counts);
    cpu_memory_free(logits);
}
