// Compares the CUDA backend's sample op with the CPU's scalar one on the same data. The same seeds
// give the same tokens unless rounding may decide a draw, which the test computes. The top lists
// are the same, nothing is written beyond the arrays, and the bits are the same alone, in a batch
// and when repeated. Rows have penalties, biases and masks. They are sampled twice, so that the
// first token's count matters.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/sample/philox.h"
#include "backend/cpu/sample/sample_select.h"
#include "backend/sample_oracle.h"
#include "base/compiler.h"
#include "support/cmocka_all.h"

enum {
    GUARD_FLOATS = 16, // 64 bytes: keeps the memory between guards aligned
    GUARD_BYTE = 0xa5,
    POISON_BYTES_MAX = 64 << 20, // larger scratch memory is not filled
    POOL_SIZE = 1 << 20,
    CHANGED_MAX = 3000, // most tokens of a row with penalties or biases
    ROUNDS = 2,
};

struct fixture {
    struct backend *cuda, *cpu;
    float *pool; // [POOL_SIZE] normally distributed numbers
};

// A row's sequence, as its part of the batch's ids.
struct history {
    uint32_t start, num_prompt, num_ids;
};

struct batch {
    uint32_t num_rows, vocab_size, num_biases, num_masks, num_ids;
    float *logits; // [num_rows][vocab_size]
    struct sample_row *rows; // [num_rows]; row i has slot i + 1 or none
    struct sample_bias *biases; // [num_biases]
    uint32_t *masks; // [num_masks][words]
    struct history *histories; // [num_rows], for rows with a slot
    int32_t *ids; // [num_ids]
};

static uint32_t mask_words(const struct batch *batch) {
    return (batch->vocab_size + 31) / 32;
}

// Parameters that the rows use in turn. Penalties, logprobs and seeds are added by row index.
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
    KIND_PEAKED, // a few tokens are likely, as for a confident model
    KIND_TIES,
    KIND_EQUAL,
    KIND_ONE_HUGE,
    KIND_SOME_NAN,
    KIND_ASCENDING,
    KIND_EXTREMES, // the largest and smallest numbers, including +inf
    KIND_TINY,
    KIND_ONE_NUMBER, // all others are -inf
    KIND_ALL_NAN,
    KIND_ALL_BANNED, // all are -inf
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

// Distinct ids, every `stride`-th: some in the prompt, some in the output, some in both; some have
// biases.
static void add_changes(struct batch *batch, uint32_t index, uint32_t count) {
    struct sample_row *row = &batch->rows[index];
    if (!count) return;
    uint32_t stride = batch->vocab_size / count;
    if (stride == 0) stride = 1, count = batch->vocab_size;
    row->repetition_penalty = 1.2f;
    row->presence_penalty = 0.3f;
    row->frequency_penalty = 0.1f;
    row->counts_slot = index + 1;
    row->is_tentative = index % 4 == 1;
    row->bias_start = batch->num_biases;
    uint32_t offset = random_below(stride);
    struct history history = {.start = batch->num_ids};
    for (uint32_t i = 1; i < count; i += 2) {
        batch->ids[batch->num_ids++] = (int32_t)(i * stride + offset);
    }
    history.num_prompt = batch->num_ids - history.start;
    for (uint32_t i = 0; i < count; i++) {
        int32_t id = (int32_t)(i * stride + offset);
        for (uint32_t times = 0; times < i % 3; times++) batch->ids[batch->num_ids++] = id;
        if (i % 7 != 3 && i % 5 != 1) continue;
        batch->biases[batch->num_biases++] =
            (struct sample_bias){id, i % 7 == 3 ? -INFINITY : 2.0f, i % 4};
    }
    history.num_ids = batch->num_ids - history.start;
    batch->histories[index] = history;
    row->bias_count = batch->num_biases - row->bias_start;
}

// One more token whose log-probability is reported.
static void add_given(struct batch *batch, struct sample_row *row) {
    if (!row->bias_count && !row->num_given) row->bias_start = batch->num_biases;
    batch->biases[batch->num_biases++].token_id = (int32_t)random_below(batch->vocab_size);
    row->num_top = (int32_t)++row->num_given;
}

// Allows half of the ids, almost all, one, or none. Bits past the vocabulary are random.
static void add_mask(struct batch *batch, uint32_t index) {
    uint32_t words = mask_words(batch), kind = random_below(4);
    uint32_t *mask = batch->masks + (size_t)batch->num_masks * words;
    for (uint32_t i = 0; i < words; i++) {
        uint32_t bits = random_below(1u << 31) << 1 | random_below(2);
        mask[i] = kind == 0 ? bits : kind == 1 ? bits | 0xffffffefu : 0;
    }
    uint32_t last = batch->vocab_size % 32;
    if (last) mask[words - 1] |= 0xffffffffu << last;
    uint32_t one = random_below(batch->vocab_size);
    if (kind == 2) mask[one / 32] |= 1u << (one % 32);
    batch->rows[index].mask = ++batch->num_masks;
    batch->rows[index].masks_logprobs = index % 10 == 1;
}

static void *take(size_t count, size_t size) {
    void *memory = calloc(count, size);
    assert_non_null(memory);
    return memory;
}

static struct batch make_batch(const struct fixture *f, uint32_t num_rows, uint32_t vocab_size) {
    static const uint32_t change_counts[] = {0, 0, 1, 40, 0, CHANGED_MAX};
    struct batch batch = {.num_rows = num_rows, .vocab_size = vocab_size};
    size_t num_changed = (size_t)num_rows * CHANGED_MAX;
    batch.logits = take((size_t)num_rows * vocab_size, sizeof *batch.logits);
    batch.rows = take(num_rows, sizeof *batch.rows);
    batch.biases = take(num_changed + num_rows * SAMPLE_TOP_MAX, sizeof *batch.biases);
    batch.masks = take((size_t)num_rows * mask_words(&batch), sizeof *batch.masks);
    batch.histories = take(num_rows, sizeof *batch.histories);
    batch.ids = take(2 * num_changed, sizeof *batch.ids); // one and a half on average
    random_state = num_rows * 1000003u + vocab_size;
    for (uint32_t i = 0; i < num_rows; i++) {
        struct sample_row *row = &batch.rows[i];
        *row = recipes[(i + num_rows) % ARRAY_LEN(recipes)];
        row->repetition_penalty = 1;
        row->seed_low = random_below(1u << 31);
        row->seed_high = i % 2;
        row->draw = i;
        row->num_top = top_counts[i / 2 % ARRAY_LEN(top_counts)];
        add_changes(&batch, i, change_counts[i % ARRAY_LEN(change_counts)]);
        for (uint32_t k = 0; i % 7 == 2 && k < SAMPLE_TOP_MAX; k++) add_given(&batch, row);
        if (i % 5 == 1 || i % 5 == 3) add_mask(&batch, i);
        // Every second row has ordinary logits, of two kinds.
        enum logits_kind kind = i % 2 ? i / 2 % 2 : i / 2 % NUM_KINDS;
        fill_logits(f, batch.logits + (size_t)i * vocab_size, vocab_size, kind);
    }
    return batch;
}

static void batch_fini(struct batch *batch) {
    free(batch->logits);
    free(batch->rows);
    free(batch->biases);
    free(batch->masks);
    free(batch->histories);
    free(batch->ids);
}

static void *device_copy(struct backend *backend, const void *data, size_t bytes) {
    void *dev = NULL;
    assert_int_equal(backend->ops->alloc(backend, bytes ? bytes : 1, &dev, NULL), OK);
    backend->ops->upload(backend, dev, data, bytes);
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
    backend->ops->download(backend, found, dev, bytes);
    assert_int_equal(backend->ops->synchronize(backend, NULL), OK);
    assert_memory_equal(found, want, bytes);
}

// Scratch memory of `floats` between guards. If it is small enough, it is filled with the guard
// byte.
static float *scratch_create(struct backend *backend, size_t floats) {
    size_t bytes = (floats + 2 * GUARD_FLOATS) * sizeof(float);
    size_t filled = bytes < POISON_BYTES_MAX ? bytes : GUARD_FLOATS * sizeof(float);
    void *bytes_of_guard = guard_bytes(filled), *dev = NULL;
    assert_int_equal(backend->ops->alloc(backend, bytes, &dev, NULL), OK);
    backend->ops->upload(backend, dev, bytes_of_guard, filled);
    backend->ops->upload(backend, (float *)dev + GUARD_FLOATS + floats, bytes_of_guard,
                         GUARD_FLOATS * sizeof(float));
    assert_int_equal(backend->ops->synchronize(backend, NULL), OK);
    free(bytes_of_guard);
    return dev;
}

// Makes the counts for the rows from `first` on, before the first round.
static struct token_counts *begin_counts(struct backend *backend, const struct batch *batch,
                                         uint32_t first, uint32_t num_rows) {
    struct token_counts *counts = NULL;
    struct err err = {0};
    if (backend->sampler->counts_create(backend, batch->num_rows, batch->vocab_size,
                                        batch->num_ids + 2, &counts, &err)) {
        fail_msg("%s", err.message);
    }
    for (uint32_t i = first; i < first + num_rows; i++) {
        const struct history *history = &batch->histories[i];
        uint32_t slot = batch->rows[i].counts_slot;
        if (!slot) continue;
        static const int32_t other[2] = {0}; // earlier counts must be cleared
        backend->sampler->counts_begin(backend, counts, slot, other, 1, 2);
        backend->sampler->counts_begin(backend, counts, slot, batch->ids + history->start,
                                       history->num_prompt, history->num_ids);
    }
    return counts;
}

// Samples `num_rows` rows from `first` on, ROUNDS times. results: [ROUNDS][num_rows].
static void run(struct backend *backend, const struct batch *batch, uint32_t first,
                uint32_t num_rows, struct sample_result *results) {
    size_t row_floats = batch->vocab_size, num_results = num_rows + 2;
    size_t floats = backend->sampler->scratch_floats(backend, batch->vocab_size, num_rows);
    struct sample_result *guarded = guard_bytes(num_results * sizeof *guarded);
    void *logits = device_copy(backend, batch->logits + first * row_floats,
                               num_rows * row_floats * sizeof(float));
    void *rows = device_copy(backend, batch->rows + first, num_rows * sizeof *batch->rows);
    void *biases = device_copy(backend, batch->biases, batch->num_biases * sizeof *batch->biases);
    void *masks = device_copy(backend, batch->masks,
                              batch->num_masks * mask_words(batch) * sizeof *batch->masks);
    struct sample_result *out = device_copy(backend, guarded, num_results * sizeof *guarded);
    float *scratch = scratch_create(backend, floats);
    struct token_counts *counts = begin_counts(backend, batch, first, num_rows);
    const struct sample_args args = {
        .logits = logits,
        .rows = rows,
        .biases = biases,
        .masks = masks,
        .counts = counts,
        .results = out + 1,
        .num_rows = num_rows,
        .vocab_size = batch->vocab_size,
        .scratch = scratch + GUARD_FLOATS,
    };
    for (uint32_t round = 0; round < ROUNDS; round++) {
        backend->sampler->sample(backend, &args);
        backend->ops->download(backend, results + (size_t)round * num_rows, out + 1,
                               num_rows * sizeof *results);
    }
    struct err err = {0};
    if (backend->ops->synchronize(backend, &err)) fail_msg("%s", err.message);
    check_guard(backend, out, sizeof *out);
    check_guard(backend, out + 1 + num_rows, sizeof *out);
    check_guard(backend, scratch, GUARD_FLOATS * sizeof(float));
    check_guard(backend, scratch + GUARD_FLOATS + floats, GUARD_FLOATS * sizeof(float));
    backend->ops->release(backend, logits);
    backend->ops->release(backend, rows);
    backend->ops->release(backend, biases);
    backend->ops->release(backend, masks);
    backend->ops->release(backend, out);
    backend->ops->release(backend, scratch);
    backend->sampler->counts_destroy(backend, counts);
    free(guarded);
}

// Counts how often tokens were generated, and also `also` (-1: none), and which the prompt has.
static void count_history(const struct batch *batch, uint32_t index, int32_t also, uint32_t *times,
                          bool *in_prompt) {
    const struct history *history = &batch->histories[index];
    for (uint32_t i = 0; i < history->num_ids; i++) {
        int32_t id = batch->ids[history->start + i];
        if (i < history->num_prompt) in_prompt[id] = true;
        if (i >= history->num_prompt) times[id]++;
    }
    const struct sample_row *row = &batch->rows[index];
    const struct sample_bias *biases = batch->biases + row->bias_start;
    for (uint32_t i = 0; i < row->bias_count; i++) times[biases[i].token_id] += biases[i].count;
    if (also >= 0 && !row->is_tentative) times[also]++;
}

// The row's logits after penalties, biases and masks. The caller frees them.
static float *changed_logits(const struct batch *batch, uint32_t index, int32_t also) {
    const struct sample_row *row = &batch->rows[index];
    uint32_t n = batch->vocab_size;
    float *logits = take(n, sizeof *logits);
    uint32_t *times = take(n, sizeof *times);
    bool *in_prompt = take(n, sizeof *in_prompt);
    memcpy(logits, batch->logits + (size_t)index * n, n * sizeof *logits);
    if (row->counts_slot) count_history(batch, index, also, times, in_prompt);
    for (uint32_t i = 0; i < n; i++) {
        float *x = &logits[i];
        if (in_prompt[i] || times[i]) {
            *x = *x > 0 ? *x / row->repetition_penalty : *x * row->repetition_penalty;
        }
        if (times[i]) *x -= row->presence_penalty + row->frequency_penalty * (float)times[i];
    }
    const struct sample_bias *biases = batch->biases + row->bias_start;
    for (uint32_t i = 0; i < row->bias_count; i++) logits[biases[i].token_id] += biases[i].bias;
    const uint32_t *mask =
        row->mask ? batch->masks + (size_t)(row->mask - 1) * mask_words(batch) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        logits[i] = sample_clean(logits[i]);
        if (mask && !(mask[i / 32] >> (i % 32) & 1)) logits[i] = -INFINITY;
    }
    free(times);
    free(in_prompt);
    return logits;
}

// Whether rounding may make `token` the row's draw: the draw lies within 1e-5 of its part of the
// distribution, ids ascending, or a filter's limit is within 1e-6 of a token. also: the token
// counted in the round before, or -1.
static bool is_nearly_drawn(const struct batch *batch, uint32_t index, int32_t also,
                            uint32_t token) {
    const struct sample_row *row = &batch->rows[index];
    uint32_t n = batch->vocab_size;
    if (!(row->temperature > 0)) return false;
    float *logits = changed_logits(batch, index, also);
    struct oracle oracle = oracle_make(logits, n, *row);
    double uniform = philox_uniform(row->seed_low, row->seed_high, row->draw), sum = 0;
    oracle_draw(&oracle, uniform); // leaves the kept tokens in ascending order of id
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

// Returns whether the tokens differ, which only rounding may cause.
static bool check_row(const struct batch *batch, uint32_t index, int32_t also,
                      const struct sample_result *got, const struct sample_result *want) {
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
        !is_nearly_drawn(batch, index, also, (uint32_t)got->token_id)) {
        fail_msg("%u x %u, row %u (temperature %g, top_k %d, top_p %g, min_p %g): %d, want %d",
                 batch->num_rows, batch->vocab_size, index, (double)row->temperature, row->top_k,
                 (double)row->top_p, (double)row->min_p, got->token_id, want->token_id);
    }
    return true;
}

// Checks both rounds of `num_rows` rows from `first` on. Returns how many rows have another token
// than the CPU's. After that their counts differ too.
static uint32_t check_rows(const struct fixture *f, const struct batch *batch, uint32_t first,
                           uint32_t num_rows) {
    struct sample_result *got = take(ROUNDS * (size_t)num_rows, sizeof *got);
    struct sample_result *want = take(ROUNDS * (size_t)num_rows, sizeof *want);
    run(f->cuda, batch, first, num_rows, got);
    run(f->cpu, batch, first, num_rows, want);
    uint32_t num_different = 0;
    for (uint32_t i = 0; i < num_rows; i++) {
        int32_t also = -1;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            size_t at = (size_t)round * num_rows + i;
            bool differs = check_row(batch, first + i, also, &got[at], &want[at]);
            num_different += differs;
            if (differs) break;
            also = got[at].token_id;
        }
    }
    free(got);
    free(want);
    return num_different;
}

static void check_size(const struct fixture *f, uint32_t num_rows, uint32_t vocab_size) {
    struct batch batch = make_batch(f, num_rows, vocab_size);
    uint32_t num_different = check_rows(f, &batch, 0, num_rows);
    if (num_different)
        print_message("%u x %u: %u close draws\n", num_rows, vocab_size, num_different);
    assert_true(num_different <= num_rows / 20 + 1); // draws are rarely that close
    batch_fini(&batch);
}

static const uint32_t row_counts[] = {1, 3, 64, 257};

static void check_vocab(const struct fixture *f, uint32_t vocab_size) {
    for (size_t i = 0; i < ARRAY_LEN(row_counts); i++) check_size(f, row_counts[i], vocab_size);
}

static void test_small_vocabularies_agree(void **state) {
    check_vocab(*state, 1);
    check_vocab(*state, 7);
    check_vocab(*state, 1007); // not a multiple of 4: rows start at any float
}

static void test_32000_tokens_agree(void **state) {
    check_vocab(*state, 32000);
}

static void test_151936_tokens_agree(void **state) {
    check_vocab(*state, 151936);
}

// So many tiles that each lane of pick_tile has several.
static void test_600001_tokens_agree(void **state) {
    check_size(*state, 3, 600001);
}

// Every recipe with every kind of logits, one row per call: few rows use other code than many.
static void test_every_rule_holds_for_every_kind_alone(void **state) {
    const struct fixture *f = *state;
    enum { VOCAB = 20011 };
    struct batch batch = make_batch(f, ARRAY_LEN(recipes) * NUM_KINDS, VOCAB);
    uint32_t num_different = 0;
    for (uint32_t i = 0; i < batch.num_rows; i++) {
        float *logits = batch.logits + (size_t)i * VOCAB;
        enum logits_kind kind = i / ARRAY_LEN(recipes);
        fill_logits(f, logits, VOCAB, kind); // rows use the recipes in turn
        num_different += check_rows(f, &batch, i, 1);
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
    struct sample_result *all = take(ROUNDS * ROWS, sizeof *all);
    struct sample_result *some = take(ROUNDS * ROWS, sizeof *some);
    run(f->cuda, &batch, 0, ROWS, all);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        uint32_t last = sizes[s] == 1 ? 34 : ROWS; // for single rows: two rounds of the recipes
        for (uint32_t first = 0; first + sizes[s] <= last; first += sizes[s]) {
            run(f->cuda, &batch, first, sizes[s], some);
            for (uint32_t i = 0; i < ROUNDS * sizes[s]; i++) {
                uint32_t row = first + i % sizes[s], round = i / sizes[s];
                assert_same(&batch, row, &some[i], &all[round * ROWS + row]);
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

// False if this build or machine has no device, which is not a failure.
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
    if (!has_device()) return 77; // tells ctest: skipped
    return cmocka_run_group_tests_name("cuda_sample", tests, setup, teardown);
}
