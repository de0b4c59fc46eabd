// The sample op of the CUDA backend against the CPU's scalar one on the same data: the same tokens
// for the same seeds but where rounding may decide a draw, which is computed, not assumed; the same
// top lists; nothing written beyond its arrays; the same bits alone, in a batch and again.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/philox.h"
#include "backend/cpu/sample_select.h"
#include "base/compiler.h"
#include "ops/sample_oracle.h"
#include "support/cmocka_all.h"

enum {
    GUARD_FLOATS = 16, // 64 bytes: what lies between guards stays aligned
    GUARD_BYTE = 0xa5,
    POISON_BYTES_MAX = 64 << 20, // larger scratch memories are not filled
    POOL_SIZE = 1 << 20,
    ADJUSTS_MAX = 3000, // of one row
};

struct fixture {
    struct backend *cuda, *cpu;
    float *pool; // [POOL_SIZE] normal numbers
};

struct batch {
    uint32_t num_rows, vocab_size, num_adjusts;
    float *logits; // [num_rows][vocab_size]
    struct sample_row *rows; // [num_rows]
    struct sample_adjust *adjusts; // [num_adjusts]
};

// What rows do, in turn; penalties, logprobs and seeds are added by their index.
static const struct sample_row recipes[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.6f, .top_p = 0.95f, .top_k = 20},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 1, .top_p = 1, .min_p = 0.1f},
    {.temperature = 0.3f, .top_p = 1},
    {.temperature = 100, .top_p = 1},
    {.temperature = 1, .top_p = 1, .top_k = 1},
    {.temperature = 1, .top_p = 1, .top_k = 400},
    {.temperature = 1, .top_p = 0.05f},
    {.temperature = 1, .top_p = 1e-6f},
    {.temperature = 1, .top_p = 0.9999f},
    {.temperature = 100, .top_p = 0.5f},
    {.temperature = 3, .top_p = 0.7f, .top_k = 600, .min_p = 0.01f},
    {.temperature = 1, .top_p = 0.5f, .min_p = 0.3f},
    {.temperature = 1, .top_p = 1, .min_p = 1},
    {.temperature = 1e-3f, .top_p = 0.8f, .top_k = 1000000},
};

static const int32_t top_counts[] = {-1, 0, 5, SAMPLE_TOP_MAX};

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((random_state >> 32) * limit) >> 32);
}

static float random_normal(void) {
    double radius = sqrt(-2 * log((random_below(1 << 30) + 0.5) / (1 << 30)));
    return (float)(radius * cos(6.283185307179586 * random_below(1 << 30) / (1 << 30)));
}

enum logits_kind {
    KIND_NORMAL,
    KIND_PEAKED, // as a model that is sure of a few tokens
    KIND_TIES,
    KIND_EQUAL,
    KIND_ONE_HUGE,
    KIND_SOME_NAN,
    KIND_ASCENDING,
    KIND_EXTREMES, // the largest and smallest numbers, +inf among them
    KIND_TINY,
    KIND_ONE_NUMBER, // the others -inf
    KIND_ALL_NAN,
    KIND_ALL_BANNED, // -inf
    NUM_KINDS,
};

static float odd_logit(enum logits_kind kind, uint32_t i, uint32_t n) {
    switch (kind) {
    case KIND_EQUAL:
        return -3.5f;
    case KIND_ASCENDING:
        return (float)i * 5e-4f - 20;
    case KIND_EXTREMES:
        return i % 1000 == 999 ? INFINITY : i % 2 ? FLT_MAX : -FLT_MAX;
    case KIND_TINY:
        return 1e-42f * (float)(i % 4001) * (i % 3 ? 1.0f : -1.0f);
    case KIND_ONE_NUMBER:
        return i == n / 2 ? -50.0f : -INFINITY;
    case KIND_ALL_NAN:
        return NAN;
    default:
        return -INFINITY;
    }
}

static void fill_logits(const struct fixture *f, float *logits, uint32_t n, enum logits_kind kind) {
    uint32_t start = random_below(POOL_SIZE);
    for (uint32_t i = 0; i < n; i++) {
        float x = 2.5f * f->pool[(start + i) % POOL_SIZE];
        if (kind > KIND_SOME_NAN || kind == KIND_EQUAL) x = odd_logit(kind, i, n);
        if (kind == KIND_TIES) x = roundf(x);
        if (kind == KIND_SOME_NAN && i % 3 == 1) x = i % 2 ? NAN : -INFINITY;
        logits[i] = x;
    }
    if (kind == KIND_ONE_HUGE) logits[random_below(n)] = 1e30f;
    for (int i = 0; kind == KIND_PEAKED && i < 4; i++) {
        logits[random_below(n)] = 14.0f + (float)i;
    }
}

// Distinct ids: every `stride`-th.
static void add_adjusts(struct batch *batch, struct sample_row *row, uint32_t count) {
    uint32_t stride = batch->vocab_size / (count ? count : 1);
    if (stride == 0) {
        stride = 1;
        count = batch->vocab_size;
    }
    row->adjust_start = batch->num_adjusts;
    row->adjust_count = count;
    row->repetition_penalty = 1.2f;
    row->presence_penalty = 0.3f;
    row->frequency_penalty = 0.1f;
    uint32_t offset = random_below(stride);
    for (uint32_t i = 0; i < count; i++) {
        batch->adjusts[batch->num_adjusts++] = (struct sample_adjust){
            .token_id = (int32_t)(i * stride + offset),
            .output_count = i % 3,
            .in_prompt = i % 2,
            .bias = i % 7 == 3   ? -INFINITY
                    : i % 5 == 1 ? 2.0f
                                 : 0.0f,
        };
    }
}

static struct batch make_batch(const struct fixture *f, uint32_t num_rows, uint32_t vocab_size) {
    static const uint32_t adjust_counts[] = {0, 0, 1, 40, 0, ADJUSTS_MAX};
    struct batch batch = {.num_rows = num_rows, .vocab_size = vocab_size};
    batch.logits = malloc((size_t)num_rows * vocab_size * sizeof *batch.logits);
    batch.rows = calloc(num_rows, sizeof *batch.rows);
    batch.adjusts = malloc((size_t)num_rows * ADJUSTS_MAX * sizeof *batch.adjusts);
    assert_non_null(batch.logits);
    assert_non_null(batch.rows);
    assert_non_null(batch.adjusts);
    random_state = num_rows * 1000003u + vocab_size;
    for (uint32_t i = 0; i < num_rows; i++) {
        struct sample_row *row = &batch.rows[i];
        *row = recipes[(i + num_rows) % ARRAY_LEN(recipes)];
        row->repetition_penalty = 1;
        row->seed_low = random_below(1u << 31);
        row->seed_high = i % 2;
        row->draw = i;
        row->num_top = top_counts[i / 2 % ARRAY_LEN(top_counts)];
        add_adjusts(&batch, row, adjust_counts[i % ARRAY_LEN(adjust_counts)]);
        // Every second row is ordinary: of two kinds.
        enum logits_kind kind = i % 2 ? i / 2 % 2 : i / 2 % NUM_KINDS;
        fill_logits(f, batch.logits + (size_t)i * vocab_size, vocab_size, kind);
    }
    return batch;
}

static void batch_fini(struct batch *batch) {
    free(batch->logits);
    free(batch->rows);
    free(batch->adjusts);
}

static void *device_copy(struct backend *backend, const void *data, size_t bytes) {
    void *dev = NULL;
    assert_int_equal(backend->ops->alloc(backend, bytes ? bytes : 1, &dev, NULL), OK);
    backend->ops->upload(backend, backend->stream, dev, data, bytes);
    return dev;
}

static void *guard_bytes(size_t bytes) {
    void *data = malloc(bytes);
    assert_non_null(data);
    memset(data, GUARD_BYTE, bytes);
    return data;
}

static void check_guard(struct backend *backend, const void *dev, size_t bytes) {
    unsigned char found[sizeof(struct sample_result)], want[sizeof found];
    assert_true(bytes <= sizeof found);
    memset(want, GUARD_BYTE, sizeof want);
    backend->ops->download(backend, backend->stream, found, dev, bytes);
    assert_int_equal(backend->ops->synchronize(backend, backend->stream, NULL), OK);
    assert_memory_equal(found, want, bytes);
}

// Scratch memory of `floats` between guards; as far as that is cheap, full of them.
static float *scratch_create(struct backend *backend, size_t floats) {
    size_t bytes = (floats + 2 * GUARD_FLOATS) * sizeof(float);
    size_t filled = bytes < POISON_BYTES_MAX ? bytes : GUARD_FLOATS * sizeof(float);
    void *bytes_of_guard = guard_bytes(filled), *dev = NULL;
    assert_int_equal(backend->ops->alloc(backend, bytes, &dev, NULL), OK);
    backend->ops->upload(backend, backend->stream, dev, bytes_of_guard, filled);
    backend->ops->upload(backend, backend->stream, (float *)dev + GUARD_FLOATS + floats,
                         bytes_of_guard, GUARD_FLOATS * sizeof(float));
    assert_int_equal(backend->ops->synchronize(backend, backend->stream, NULL), OK);
    free(bytes_of_guard);
    return dev;
}

// Samples `num_rows` rows from `first` on.
static void run(struct backend *backend, const struct batch *batch, uint32_t first,
                uint32_t num_rows, struct sample_result *results) {
    size_t row_floats = batch->vocab_size, num_results = num_rows + 2;
    size_t floats = backend->ops->sample_scratch_floats(backend, batch->vocab_size, num_rows);
    struct sample_result *guarded = guard_bytes(num_results * sizeof *guarded);
    void *logits = device_copy(backend, batch->logits + first * row_floats,
                               num_rows * row_floats * sizeof(float));
    void *rows = device_copy(backend, batch->rows + first, num_rows * sizeof *batch->rows);
    void *adjusts =
        device_copy(backend, batch->adjusts, batch->num_adjusts * sizeof *batch->adjusts);
    struct sample_result *out = device_copy(backend, guarded, num_results * sizeof *guarded);
    float *scratch = scratch_create(backend, floats);
    const struct sample_args args = {
        .logits = logits,
        .rows = rows,
        .adjusts = adjusts,
        .results = out + 1,
        .num_rows = num_rows,
        .vocab_size = batch->vocab_size,
        .scratch = scratch + GUARD_FLOATS,
    };
    backend->ops->sample(backend, backend->stream, &args);
    backend->ops->download(backend, backend->stream, results, out + 1, num_rows * sizeof *results);
    struct err err = {0};
    if (backend->ops->synchronize(backend, backend->stream, &err)) fail_msg("%s", err.message);
    check_guard(backend, out, sizeof *out);
    check_guard(backend, out + 1 + num_rows, sizeof *out);
    check_guard(backend, scratch, GUARD_FLOATS * sizeof(float));
    check_guard(backend, scratch + GUARD_FLOATS + floats, GUARD_FLOATS * sizeof(float));
    backend->ops->release(backend, logits);
    backend->ops->release(backend, rows);
    backend->ops->release(backend, adjusts);
    backend->ops->release(backend, out);
    backend->ops->release(backend, scratch);
    free(guarded);
}

static float adjusted_logit(const struct sample_row *row, const struct sample_adjust *adjust,
                            float logit) {
    if (adjust->in_prompt || adjust->output_count) {
        logit = logit > 0 ? logit / row->repetition_penalty : logit * row->repetition_penalty;
    }
    if (adjust->output_count) {
        logit -= row->presence_penalty + row->frequency_penalty * (float)adjust->output_count;
    }
    return logit + adjust->bias;
}

// Whether rounding may make `token` the row's draw: its part of the distribution, ids ascending, is
// within 1e-5 of the draw, or a rule's border is within 1e-6 of a token's.
static bool is_nearly_drawn(const struct batch *batch, uint32_t index, uint32_t token) {
    const struct sample_row *row = &batch->rows[index];
    uint32_t n = batch->vocab_size;
    if (!(row->temperature > 0)) return false;
    float *logits = malloc(n * sizeof *logits);
    assert_non_null(logits);
    memcpy(logits, batch->logits + (size_t)index * n, n * sizeof *logits);
    for (uint32_t i = 0; i < row->adjust_count; i++) {
        const struct sample_adjust *adjust = &batch->adjusts[row->adjust_start + i];
        logits[adjust->token_id] = adjusted_logit(row, adjust, logits[adjust->token_id]);
    }
    for (uint32_t i = 0; i < n; i++) logits[i] = sample_clean(logits[i]);
    struct oracle oracle = oracle_make(logits, n, *row);
    double uniform = philox_uniform(row->seed_low, row->seed_high, row->draw), sum = 0;
    oracle_draw(&oracle, uniform); // leaves the kept ones in the order of their ids
    bool close = oracle.close;
    for (uint32_t i = 0; i < oracle.num_kept; i++) {
        double before = sum;
        sum += oracle.entries[i].weight / oracle.mass;
        if (oracle.entries[i].id != token) continue;
        close |= before - 1e-5 < uniform && uniform < sum + 1e-5;
    }
    oracle_fini(&oracle);
    free(logits);
    return close;
}

static bool floats_agree(float got, float want) {
    if (isinf(want)) return got == want;
    return fabsf(got - want) <= 1e-4f * fmaxf(1, fabsf(want) * 1e-2f);
}

// Returns whether the tokens differ, which must be rounding's doing.
static bool check_row(const struct batch *batch, uint32_t index, const struct sample_result *got,
                      const struct sample_result *want) {
    const struct sample_row *row = &batch->rows[index];
    for (int32_t i = 0; i < row->num_top; i++) {
        if (got->top_id[i] != want->top_id[i] ||
            !floats_agree(got->top_logprob[i], want->top_logprob[i])) {
            fail_msg("%u x %u, row %u, top %d: %d (%g), want %d (%g)", batch->num_rows,
                     batch->vocab_size, index, i, got->top_id[i], (double)got->top_logprob[i],
                     want->top_id[i], (double)want->top_logprob[i]);
        }
    }
    if (got->token_id == want->token_id) {
        if (!floats_agree(got->logprob, want->logprob)) {
            fail_msg("%u x %u, row %u: logprob %g, want %g", batch->num_rows, batch->vocab_size,
                     index, (double)got->logprob, (double)want->logprob);
        }
        return false;
    }
    bool both = got->token_id >= 0 && want->token_id >= 0;
    if (!both || (uint32_t)got->token_id >= batch->vocab_size ||
        !is_nearly_drawn(batch, index, (uint32_t)got->token_id)) {
        fail_msg("%u x %u, row %u (temperature %g, top_k %d, top_p %g, min_p %g): %d, want %d",
                 batch->num_rows, batch->vocab_size, index, (double)row->temperature, row->top_k,
                 (double)row->top_p, (double)row->min_p, got->token_id, want->token_id);
    }
    return true;
}

static void check_size(const struct fixture *f, uint32_t num_rows, uint32_t vocab_size) {
    struct batch batch = make_batch(f, num_rows, vocab_size);
    struct sample_result *got = calloc(num_rows, sizeof *got);
    struct sample_result *want = calloc(num_rows, sizeof *want);
    assert_non_null(got);
    assert_non_null(want);
    run(f->cuda, &batch, 0, num_rows, got);
    run(f->cpu, &batch, 0, num_rows, want);
    uint32_t num_different = 0;
    for (uint32_t i = 0; i < num_rows; i++) {
        num_different += check_row(&batch, i, &got[i], &want[i]);
    }
    if (num_different)
        print_message("%u x %u: %u close draws\n", num_rows, vocab_size, num_different);
    assert_true(num_different <= num_rows / 20 + 1); // draws are rarely that close
    free(got);
    free(want);
    batch_fini(&batch);
}

static const uint32_t row_counts[] = {1, 3, 64, 257};

static void check_vocab(const struct fixture *f, uint32_t vocab_size) {
    for (size_t i = 0; i < ARRAY_LEN(row_counts); i++) check_size(f, row_counts[i], vocab_size);
}

static void test_small_vocabularies_agree(void **state) {
    check_vocab(*state, 1);
    check_vocab(*state, 7);
    check_vocab(*state, 1007); // no multiple of 4: rows that start at any float
}

static void test_32000_tokens_agree(void **state) {
    check_vocab(*state, 32000);
}

static void test_151936_tokens_agree(void **state) {
    check_vocab(*state, 151936);
}

// More tiles than a warp's lanes look at in one go each.
static void test_600001_tokens_agree(void **state) {
    check_size(*state, 3, 600001);
}

// Every recipe with every kind of logits, by a call of its own: few rows are worked on otherwise
// than many.
static void test_every_rule_holds_for_every_kind_alone(void **state) {
    const struct fixture *f = *state;
    enum { VOCAB = 20011 };
    struct batch batch = make_batch(f, ARRAY_LEN(recipes) * NUM_KINDS, VOCAB);
    uint32_t num_different = 0;
    for (uint32_t i = 0; i < batch.num_rows; i++) {
        float *logits = batch.logits + (size_t)i * VOCAB;
        enum logits_kind kind = i / ARRAY_LEN(recipes);
        fill_logits(f, logits, VOCAB, kind); // rows take the recipes in turn
        struct sample_result got = {0}, want = {0};
        run(f->cuda, &batch, i, 1, &got);
        run(f->cpu, &batch, i, 1, &want);
        num_different += check_row(&batch, i, &got, &want);
    }
    assert_true(num_different <= batch.num_rows / 20);
    batch_fini(&batch);
}

static void assert_same(const struct batch *batch, uint32_t index, const struct sample_result *got,
                        const struct sample_result *want) {
    size_t num_top = batch->rows[index].num_top > 0 ? (size_t)batch->rows[index].num_top : 0;
    assert_int_equal(got->token_id, want->token_id);
    assert_memory_equal(&got->logprob, &want->logprob, sizeof got->logprob);
    assert_memory_equal(got->top_id, want->top_id, num_top * sizeof *got->top_id);
    assert_memory_equal(got->top_logprob, want->top_logprob, num_top * sizeof *got->top_logprob);
}

static void test_a_row_has_the_same_bits_in_any_batch_and_again(void **state) {
    static const uint32_t sizes[] = {1, 5, 40, 100, 200};
    const struct fixture *f = *state;
    enum { ROWS = 200, VOCAB = 20012 };
    struct batch batch = make_batch(f, ROWS, VOCAB);
    struct sample_result *all = calloc(ROWS, sizeof *all), *some = calloc(ROWS, sizeof *some);
    assert_non_null(all);
    assert_non_null(some);
    run(f->cuda, &batch, 0, ROWS, all);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        uint32_t last = sizes[s] == 1 ? 34 : ROWS; // alone: two rounds of the recipes
        for (uint32_t first = 0; first + sizes[s] <= last; first += sizes[s]) {
            run(f->cuda, &batch, first, sizes[s], some);
            for (uint32_t i = 0; i < sizes[s]; i++) {
                assert_same(&batch, first + i, &some[i], &all[first + i]);
            }
        }
    }
    free(all);
    free(some);
    batch_fini(&batch);
}

static int setup(void **state) {
    static struct fixture fixture;
    const struct backend_options cpu = {
        .device = "cpu", .cpu_isa = "scalar", .weight_dtype = DTYPE_BF16};
    const struct backend_options cuda = {
        .device = "cuda", .cpu_isa = "auto", .weight_dtype = DTYPE_BF16};
    *state = &fixture;
    fixture.pool = malloc(POOL_SIZE * sizeof *fixture.pool);
    if (!fixture.pool || backend_create(&fixture.cpu, &cpu, NULL)) return -1;
    if (backend_create(&fixture.cuda, &cuda, NULL)) return -1;
    random_state = 1;
    for (uint32_t i = 0; i < POOL_SIZE; i++) fixture.pool[i] = random_normal();
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    backend_destroy(f->cuda);
    backend_destroy(f->cpu);
    free(f->pool);
    return 0;
}

// False where this build or machine has no device, which is no failure.
static bool has_device(void) {
    struct backend *backend = NULL;
    const struct backend_options cuda = {
        .device = "cuda", .cpu_isa = "auto", .weight_dtype = DTYPE_BF16};
    struct err err = {0};
    enum status status = backend_create(&backend, &cuda, &err);
    if (status == ERR_UNSUPPORTED || status == ERR_DEVICE) {
        print_message("skipped: %s\n", err.message);
        return false;
    }
    if (status) print_message("%s\n", err.message); // the tests will fail
    backend_destroy(status ? NULL : backend);
    return true;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_vocabularies_agree),
        cmocka_unit_test(test_32000_tokens_agree),
        cmocka_unit_test(test_151936_tokens_agree),
        cmocka_unit_test(test_600001_tokens_agree),
        cmocka_unit_test(test_every_rule_holds_for_every_kind_alone),
        cmocka_unit_test(test_a_row_has_the_same_bits_in_any_batch_and_again),
    };
    if (!has_device()) return 77; // skipped, for ctest
    return cmocka_run_group_tests_name("cuda_sample", tests, setup, teardown);
}
