#include "backend/sample_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

enum { GUARD_FLOATS = 16, GUARD_BYTE = 0xa5, IDS_MAX = 64 };

const struct sample_row sample_rules[SAMPLE_NUM_RULES] = {
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.3f, .top_p = 1},
    {.temperature = 100, .top_p = 1},
    {.temperature = 1, .top_p = 1, .min_p = 0.2f},
    {.temperature = 1, .top_p = 1, .min_p = 1},
    {.temperature = 1, .top_p = 1, .top_k = 1},
    {.temperature = 2, .top_p = 1, .top_k = 20},
    {.temperature = 1, .top_p = 1, .top_k = 400},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 1, .top_p = 0.05f},
    {.temperature = 1, .top_p = 1e-6f},
    {.temperature = 1, .top_p = 0.9999f},
    {.temperature = 100, .top_p = 0.5f},
    {.temperature = 0.6f, .top_p = 0.95f, .top_k = 20},
    {.temperature = 3, .top_p = 0.7f, .top_k = 600, .min_p = 0.01f},
    {.temperature = 1, .top_p = 0.5f, .min_p = 0.3f},
};

static uint64_t random_state;

void sample_random_seed(uint64_t seed) {
    random_state = seed;
}

double sample_random_uniform(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static float random_normal(void) {
    double radius = sqrt(-2 * log(1 - sample_random_uniform()));
    return (float)(radius * cos(6.283185307179586 * sample_random_uniform()));
}

float *sample_random_logits(uint32_t rows, uint32_t vocab_size, float spread) {
    float *logits = malloc((size_t)rows * vocab_size * sizeof *logits);
    assert_non_null(logits);
    for (size_t i = 0; i < (size_t)rows * vocab_size; i++) logits[i] = spread * random_normal();
    return logits;
}

struct backend *sample_open_backend(const char *isa, int threads) {
    struct backend *backend = NULL;
    struct backend_options options = {
        .device = "cpu", .cpu_isa = isa, .threads = threads, .weight_dtype = DTYPE_BF16};
    struct err err = {0};
    if (backend_create(&backend, &options, &err) != OK) print_message("%s\n", err.message);
    return backend;
}

void sample_run(struct backend *backend, const float *logits, uint32_t vocab_size,
                const struct sample_row *rows, uint32_t num_rows,
                const struct sample_extras *extras, struct sample_result *results) {
    static const struct sample_extras nothing;
    if (!extras) extras = &nothing;
    size_t floats = backend->sampler->scratch_floats(backend, vocab_size, num_rows);
    size_t scratch_bytes = (floats + 2 * GUARD_FLOATS) * sizeof(float);
    size_t result_bytes = (num_rows + 2) * sizeof *results;
    float *scratch = aligned_alloc(64, (scratch_bytes + 63) / 64 * 64);
    struct sample_result *guarded = malloc(result_bytes);
    assert_non_null(scratch);
    assert_non_null(guarded);
    memset(scratch, GUARD_BYTE, scratch_bytes);
    memset(guarded, GUARD_BYTE, result_bytes);
    const struct sample_args args = {
        .logits = logits,
        .rows = rows,
        .biases = extras->biases,
        .masks = extras->masks,
        .counts = extras->counts,
        .results = guarded + 1,
        .num_rows = num_rows,
        .vocab_size = vocab_size,
        .scratch = scratch + GUARD_FLOATS,
    };
    backend->sampler->sample(backend, &args);
    assert_int_equal(backend->ops->synchronize(backend, NULL), OK);
    unsigned char guard[sizeof *results];
    memset(guard, GUARD_BYTE, sizeof guard);
    assert_memory_equal(scratch, guard, GUARD_FLOATS * sizeof(float));
    assert_memory_equal(scratch + GUARD_FLOATS + floats, guard, GUARD_FLOATS * sizeof(float));
    assert_memory_equal(guarded, guard, sizeof *guarded);
    assert_memory_equal(guarded + num_rows + 1, guard, sizeof *guarded);
    memcpy(results, guarded + 1, num_rows * sizeof *results);
    free(scratch);
    free(guarded);
}

struct token_counts *sample_counts_create(struct backend *backend, uint32_t num_slots,
                                          uint32_t vocab_size) {
    struct token_counts *counts = NULL;
    struct err err = {0};
    if (backend->sampler->counts_create(backend, num_slots, vocab_size, IDS_MAX, &counts, &err)) {
        fail_msg("%s", err.message);
    }
    return counts;
}

void sample_counts_destroy(struct backend *backend, struct token_counts *counts) {
    backend->sampler->counts_destroy(backend, counts);
}

void sample_counts_begin(struct backend *backend, struct token_counts *counts, uint32_t slot,
                         const int32_t *ids, uint32_t num_prompt, uint32_t num_ids) {
    assert_true(num_ids <= IDS_MAX);
    backend->sampler->counts_begin(backend, counts, slot, ids, num_prompt, num_ids);
}
