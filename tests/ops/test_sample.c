// The sample op: each rule against a naive sampler in double that sorts, the distribution of its
// draws, the same bits for any threads, batch and ISA, odd logits, and nothing written beyond its
// arrays.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/philox.h"
#include "base/compiler.h"
#include "ops/sample_oracle.h"
#include "support/cmocka_all.h"

enum { GUARD_FLOATS = 16, GUARD_BYTE = 0xa5 };

static const struct sample_row plain_row = {
    .temperature = 1, .top_p = 1, .num_top = -1, .repetition_penalty = 1};

static uint64_t random_state;

static double random_uniform(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static float random_normal(void) {
    double radius = sqrt(-2 * log(1 - random_uniform()));
    return (float)(radius * cos(6.283185307179586 * random_uniform()));
}

static float *random_logits(uint32_t rows, uint32_t vocab_size, float spread) {
    float *logits = malloc((size_t)rows * vocab_size * sizeof *logits);
    assert_non_null(logits);
    for (size_t i = 0; i < (size_t)rows * vocab_size; i++) logits[i] = spread * random_normal();
    return logits;
}

static struct backend *open_backend(const char *isa, int threads) {
    struct backend *backend = NULL;
    struct backend_options options = {"cpu", isa, threads, DTYPE_BF16, NULL};
    struct err err = {0};
    if (backend_create(&backend, &options, &err) != OK) print_message("%s\n", err.message);
    return backend;
}

// Runs the op with guards around everything it may write, and checks them.
static void run(struct backend *backend, const float *logits, uint32_t vocab_size,
                const struct sample_row *rows, uint32_t num_rows,
                const struct sample_adjust *adjusts, struct sample_result *results) {
    size_t floats = backend->ops->sample_scratch_floats(backend, vocab_size, num_rows);
    size_t scratch_bytes = (floats + 2 * GUARD_FLOATS) * sizeof(float);
    size_t result_bytes = (num_rows + 2) * sizeof *results;
    float *scratch = aligned_alloc(64, (scratch_bytes + 63) / 64 * 64);
    struct sample_result *guarded = malloc(result_bytes);
    assert_non_null(scratch);
    assert_non_null(guarded);
    memset(scratch, GUARD_BYTE, scratch_bytes);
    memset(guarded, GUARD_BYTE, result_bytes);
    struct sample_args args = {
        logits, rows, adjusts, guarded + 1, num_rows, vocab_size, scratch + GUARD_FLOATS};
    backend->ops->sample(backend, backend->stream, &args);
    assert_int_equal(backend->ops->synchronize(backend, backend->stream, NULL), OK);
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

static int32_t run_one(struct backend *backend, const float *logits, uint32_t vocab_size,
                       struct sample_row row) {
    struct sample_result result;
    run(backend, logits, vocab_size, &row, 1, NULL, &result);
    assert_in_range(result.token_id, 0, vocab_size - 1);
    return result.token_id;
}

static void test_greedy_takes_the_first_largest(void **state) {
    struct backend *backend = *state;
    static const uint32_t sizes[] = {1, 2, 15, 16, 17, 511, 512, 513, 1000, 4096, 4097, 151936};
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        uint32_t n = sizes[s];
        random_state = n;
        float *logits = random_logits(1, n, 1);
        struct sample_row row = plain_row;
        row.temperature = 0;
        const uint32_t places[] = {0, n / 3, n / 2, n - 1};
        for (size_t p = 0; p < ARRAY_LEN(places); p++) {
            uint32_t place = places[p];
            float before = logits[place];
            logits[place] = 20;
            float last = logits[n - 1];
            logits[n - 1] = 20; // a tie further on
            assert_int_equal(run_one(backend, logits, n, row), place);
            logits[n - 1] = last;
            logits[place] = before;
        }
        for (uint32_t i = 0; i < n; i++) logits[i] = i % 2 ? 0.0f : -0.0f; // equal values
        assert_int_equal(run_one(backend, logits, n, row), 0);
        free(logits);
    }
}

static const struct sample_row rule_rows[] = {
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

// Draws 20 tokens by one rule; *num_close counts those that the oracle cannot judge.
static void check_rule(struct backend *backend, uint32_t vocab_size, uint32_t rule,
                       uint32_t *num_close) {
    float *logits = random_logits(1, vocab_size, 2.5f);
    struct sample_row row = rule_rows[rule];
    row.repetition_penalty = 1;
    row.num_top = -1;
    row.seed_low = rule;
    struct oracle oracle = oracle_make(logits, vocab_size, row);
    bool close = oracle.close;
    for (row.draw = 0; row.draw < 20; row.draw++) {
        oracle.close = close;
        double uniform = philox_uniform(row.seed_low, row.seed_high, row.draw);
        uint32_t want = oracle_draw(&oracle, uniform);
        int32_t got = run_one(backend, logits, vocab_size, row);
        *num_close += oracle.close;
        if (oracle.close || (uint32_t)got == want) continue;
        fail_msg("vocab %u, rule %u, draw %u: %d, want %u", vocab_size, rule, row.draw, got, want);
    }
    oracle_fini(&oracle);
    free(logits);
}

static void test_rules_agree_with_the_oracle(void **state) {
    static const uint32_t sizes[] = {1, 7, 300, 513, 4096, 20011};
    uint32_t num_close = 0;
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        for (uint32_t rule = 0; rule < ARRAY_LEN(rule_rows); rule++) {
            random_state = s * 100 + rule;
            check_rule(*state, sizes[s], rule, &num_close);
        }
    }
    // The oracle must be able to judge nearly all.
    assert_true(num_close * 20 < ARRAY_LEN(sizes) * ARRAY_LEN(rule_rows) * 20);
}

// The most adverse order for the bounds that selection starts from: sorted, and all in one chunk.
static void test_rules_hold_for_sorted_logits(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 30000 };
    float *logits = random_logits(1, SIZE, 0);
    for (size_t r = 0; r < ARRAY_LEN(rule_rows); r++) {
        for (int descending = 0; descending < 2; descending++) {
            for (int i = 0; i < SIZE; i++) {
                logits[descending ? SIZE - 1 - i : i] = (float)i * 5e-4f;
            }
            struct sample_row row = rule_rows[r];
            row.repetition_penalty = 1;
            row.num_top = -1;
            row.draw = (uint32_t)r;
            struct oracle oracle = oracle_make(logits, SIZE, row);
            uint32_t want = oracle_draw(&oracle, philox_uniform(0, 0, row.draw));
            int32_t got = run_one(backend, logits, SIZE, row);
            if (!oracle.close) assert_int_equal(got, want);
            oracle_fini(&oracle);
        }
    }
    free(logits);
}

static void test_ties_keep_the_smaller_ids(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 2000 };
    float *logits = random_logits(1, SIZE, 0); // all equal
    struct sample_row row = plain_row;
    bool seen[SIZE] = {false};
    row.top_k = 5;
    for (row.draw = 0; row.draw < 100; row.draw++) {
        int32_t token = run_one(backend, logits, SIZE, row);
        assert_in_range(token, 0, 4);
        seen[token] = true;
    }
    for (int i = 0; i < 5; i++) assert_true(seen[i]);
    row.top_k = 0;
    row.top_p = 0.0031f; // 6.2 of 2000 equal tokens: 7 of them
    for (row.draw = 0; row.draw < 200; row.draw++) {
        int32_t token = run_one(backend, logits, SIZE, row);
        assert_in_range(token, 0, 6);
        seen[token] = true;
    }
    for (int i = 0; i < 7; i++) assert_true(seen[i]);
    logits[1500] = 1; // better than the ties; of them, the first
    row.top_p = 1;
    row.top_k = 2;
    for (row.draw = 0; row.draw < 50; row.draw++) {
        int32_t token = run_one(backend, logits, SIZE, row);
        assert_true(token == 0 || token == 1500);
    }
    free(logits);
}

static void test_draws_follow_the_distribution(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 40, DRAWS = 20000 };
    random_state = 77;
    float *logits = random_logits(1, SIZE, 1.5f);
    for (size_t r = 0; r < ARRAY_LEN(rule_rows); r++) {
        struct sample_row *rows = malloc(DRAWS / 10 * sizeof *rows);
        struct sample_result *results = malloc(DRAWS / 10 * sizeof *results);
        float *copies = malloc(DRAWS / 10 * SIZE * sizeof *copies);
        uint32_t counts[SIZE] = {0};
        for (uint32_t part = 0; part < 10; part++) {
            for (uint32_t i = 0; i < DRAWS / 10; i++) {
                rows[i] = rule_rows[r];
                rows[i].repetition_penalty = 1;
                rows[i].num_top = -1;
                rows[i].seed_high = 9;
                rows[i].draw = part * (DRAWS / 10) + i;
                memcpy(copies + (size_t)i * SIZE, logits, SIZE * sizeof *logits);
            }
            run(backend, copies, SIZE, rows, DRAWS / 10, NULL, results);
            for (uint32_t i = 0; i < DRAWS / 10; i++) counts[results[i].token_id]++;
        }
        struct oracle oracle = oracle_make(logits, SIZE, rule_rows[r]);
        double chi2 = 0;
        uint32_t num_inside = 0, degrees = 0;
        for (uint32_t i = 0; i < oracle.num_kept; i++) {
            double expected = oracle.entries[i].weight / oracle.mass * DRAWS;
            double off = counts[oracle.entries[i].id] - expected;
            num_inside += counts[oracle.entries[i].id];
            if (expected < 5) continue; // too few for the statistic
            chi2 += off * off / expected;
            degrees++;
        }
        assert_int_equal(num_inside, DRAWS); // nothing outside what the rules keep
        if (chi2 > degrees + 4 * sqrt(2.0 * degrees)) {
            fail_msg("rule %zu: chi2 %.1f of %u degrees", r, chi2, degrees);
        }
        oracle_fini(&oracle);
        free(rows);
        free(results);
        free(copies);
    }
    free(logits);
}

static void test_penalties(void **state) {
    struct backend *backend = *state;
    const float logits[6] = {4.0f, 3.0f, -1.0f, -1.5f, 2.9f, -8.0f};
    struct sample_row row = plain_row;
    struct sample_result result;
    row.temperature = 0;
    row.repetition_penalty = 2; // 4 -> 2, below 3
    row.adjust_start = 1; // entry 0 belongs to nobody here
    row.adjust_count = 1;
    struct sample_adjust adjusts[4] = {{1, 0, 0, -INFINITY}, {.token_id = 0, .in_prompt = 1}};
    run(backend, logits, 6, &row, 1, adjusts, &result);
    assert_int_equal(result.token_id, 1);
    adjusts[1] = (struct sample_adjust){.token_id = 0, .output_count = 1}; // seen in the output
    run(backend, logits, 6, &row, 1, adjusts, &result);
    assert_int_equal(result.token_id, 1);
    adjusts[1] = (struct sample_adjust){.token_id = 0}; // not seen: only here for its bias
    run(backend, logits, 6, &row, 1, adjusts, &result);
    assert_int_equal(result.token_id, 0);

    // A negative logit is multiplied: -1 -> -2, below -1.5.
    const float negative[2] = {-1.0f, -1.5f};
    adjusts[1] = (struct sample_adjust){.token_id = 0, .in_prompt = 1};
    run(backend, negative, 2, &row, 1, adjusts, &result);
    assert_int_equal(result.token_id, 1);

    row.repetition_penalty = 1;
    row.presence_penalty = 1.05f; // 4 - 1.05 < 3, however often it came
    adjusts[1] = (struct sample_adjust){.token_id = 0, .output_count = 1};
    run(backend, logits, 6, &row, 1, adjusts, &result);
    assert_int_equal(result.token_id, 1);
    adjusts[1] = (struct sample_adjust){.token_id = 0, .in_prompt = 1}; // prompts do not count
    run(backend, logits, 6, &row, 1, adjusts, &result);
    assert_int_equal(result.token_id, 0);

    row.presence_penalty = 0;
    row.frequency_penalty = 0.4f;
    for (uint32_t count = 0; count < 5; count++) { // 4 - 0.4 count against 3
        adjusts[1] = (struct sample_adjust){.token_id = 0, .output_count = count};
        run(backend, logits, 6, &row, 1, adjusts, &result);
        assert_int_equal(result.token_id, count < 3 ? 0 : 1);
    }

    row.frequency_penalty = 0;
    row.adjust_count = 3;
    adjusts[1] = (struct sample_adjust){.token_id = 0, .bias = -INFINITY};
    adjusts[2] = (struct sample_adjust){.token_id = 5, .bias = 11};
    adjusts[3] = (struct sample_adjust){.token_id = 1, .bias = -0.05f};
    run(backend, logits, 6, &row, 1, adjusts, &result);
    assert_int_equal(result.token_id, 5);
}

static void test_a_banned_token_never_comes(void **state) {
    struct backend *backend = *state;
    float logits[600];
    for (int i = 0; i < 600; i++) logits[i] = i == 550 ? 30.0f : 0.0f;
    const struct sample_adjust ban = {.token_id = 550, .bias = -INFINITY};
    for (size_t r = 0; r < ARRAY_LEN(rule_rows); r++) {
        struct sample_row row = rule_rows[r];
        row.repetition_penalty = 1;
        row.num_top = 1;
        row.adjust_count = 1;
        for (row.draw = 0; row.draw < 10; row.draw++) {
            struct sample_result result;
            run(backend, logits, 600, &row, 1, &ban, &result);
            assert_int_not_equal(result.token_id, 550);
            assert_int_equal(result.top_id[0], 550); // raw logits do not know of it
        }
    }
}

static void check_logprobs(const struct sample_result *result, const struct oracle *oracle,
                           const float *logits, uint32_t vocab_size, uint32_t num_top) {
    double log_mass = log(oracle->mass) + oracle->entries[0].logit;
    double want = (double)logits[result->token_id] - log_mass;
    assert_true(fabs((double)result->logprob - want) < 1e-5);
    for (uint32_t i = 0; i < num_top; i++) {
        if (i >= vocab_size) {
            assert_int_equal(result->top_id[i], -1);
            assert_true(isinf(result->top_logprob[i]));
            continue;
        }
        assert_int_equal(result->top_id[i], oracle->entries[i].id);
        want = oracle->entries[i].logit - log_mass;
        assert_true(fabs((double)result->top_logprob[i] - want) < 1e-5);
    }
}

// Log-probabilities are those of the raw logits, whatever happens to the draw.
static void test_logprobs_agree_with_the_oracle(void **state) {
    static const uint32_t sizes[] = {1, 5, 20, 21, 777, 151936};
    const struct sample_adjust adjust = {.token_id = 0, .in_prompt = 1, .bias = 1};
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        uint32_t n = sizes[s];
        random_state = 1000 + n;
        float *logits = random_logits(1, n, 3);
        for (uint32_t i = 0; i < n; i += 3) logits[i] = roundf(logits[i]); // many ties
        struct oracle oracle = oracle_make(logits, n, plain_row);
        for (int32_t num_top = 0; num_top <= SAMPLE_TOP_MAX; num_top += 5) {
            struct sample_row row = plain_row;
            row.num_top = num_top;
            row.temperature = num_top == 5 ? 0.0f : 0.7f;
            row.top_k = num_top;
            row.repetition_penalty = 1.3f;
            row.adjust_count = 1;
            struct sample_result result;
            run(*state, logits, n, &row, 1, &adjust, &result);
            check_logprobs(&result, &oracle, logits, n, (uint32_t)num_top);
        }
        oracle_fini(&oracle);
        free(logits);
    }
}

static void test_top_lists_the_smaller_ids_of_ties(void **state) {
    enum { SIZE = 1500, NUM_TOP = 5 };
    float *logits = random_logits(1, SIZE, 0); // all equal
    logits[1400] = 1;
    struct sample_row row = plain_row;
    row.num_top = NUM_TOP;
    struct sample_result result;
    run(*state, logits, SIZE, &row, 1, NULL, &result);
    assert_int_equal(result.top_id[0], 1400);
    for (int i = 1; i < NUM_TOP; i++) assert_int_equal(result.top_id[i], i - 1);
    free(logits);
}

static void test_no_logprobs_leave_zero(void **state) {
    struct backend *backend = *state;
    const float logits[3] = {1, 2, 3};
    struct sample_result result;
    run(backend, logits, 3, &plain_row, 1, NULL, &result);
    assert_true(result.logprob == 0.0f);
}

static void fill_odd(float *logits, uint32_t n, int kind) {
    for (uint32_t i = 0; i < n; i++) {
        switch (kind) {
        case 0:
            logits[i] = -INFINITY;
            break;
        case 1:
            logits[i] = NAN;
            break;
        case 2:
            logits[i] = INFINITY;
            break;
        case 3:
            logits[i] = i % 2 ? -INFINITY : NAN;
            break;
        case 4:
            logits[i] = i % 3 ? NAN : (float)(i % 7);
            break;
        case 5:
            logits[i] = i % 5 ? 1.0f : INFINITY;
            break;
        case 6:
            logits[i] = i % 2 ? FLT_MAX : -FLT_MAX;
            break;
        case 7:
            logits[i] = i == n / 2 ? -50.0f : -INFINITY;
            break;
        default:
            logits[i] = 1e-42f * (float)i;
            break;
        }
    }
}

static void test_odd_logits_give_a_valid_token_or_none(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 1300, NUM_KINDS = 9 };
    float logits[SIZE];
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        fill_odd(logits, SIZE, kind);
        for (size_t r = 0; r <= ARRAY_LEN(rule_rows); r++) {
            struct sample_row row = r < ARRAY_LEN(rule_rows) ? rule_rows[r] : plain_row;
            if (r == ARRAY_LEN(rule_rows)) row.temperature = 0;
            row.repetition_penalty = 1.5f;
            row.num_top = SAMPLE_TOP_MAX;
            row.adjust_count = 1;
            row.draw = (uint32_t)r;
            const struct sample_adjust adjust = {.token_id = 3, .in_prompt = 1, .bias = -INFINITY};
            struct sample_result result;
            run(backend, logits, SIZE, &row, 1, &adjust, &result);
            if (kind == 0 || kind == 1 || kind == 3) {
                assert_int_equal(result.token_id, -1); // nothing to choose from
            } else {
                assert_in_range(result.token_id, 0, SIZE - 1);
            }
            assert_true(result.logprob <= 0); // not NaN
            for (int i = 0; i < SAMPLE_TOP_MAX; i++) {
                assert_in_range(result.top_id[i], 0, SIZE - 1);
                assert_true(result.top_logprob[i] <= 0); // not NaN
            }
            if (kind == 4) assert_int_equal(result.token_id % 3, 0); // NaN is never drawn
            if (kind == 5) assert_int_equal(result.token_id % 5, 0); // infinity always is
            if (kind == 7) assert_int_equal(result.token_id, SIZE / 2);
        }
    }
}

enum { MANY_SIZE = 10007, MANY_ROWS = ARRAY_LEN(rule_rows) };

// One row of each rule, with adjusts and logprobs of different lengths.
struct many {
    float *logits; // [MANY_ROWS][MANY_SIZE]
    struct sample_row rows[MANY_ROWS];
    struct sample_adjust adjusts[2 * MANY_ROWS];
    struct sample_result alone[MANY_ROWS]; // each row by itself, scalar, on one thread
};

static void make_many(struct many *many) {
    random_state = 4711;
    many->logits = random_logits(MANY_ROWS, MANY_SIZE, 3);
    for (uint32_t i = 0; i < MANY_ROWS; i++) {
        many->rows[i] = rule_rows[i];
        many->rows[i].num_top = (int32_t)i - 1;
        many->rows[i].repetition_penalty = 1.1f;
        many->rows[i].seed_low = i * 12345;
        many->rows[i].draw = i;
        many->rows[i].adjust_start = 2 * i;
        many->rows[i].adjust_count = i % 3;
        for (uint32_t j = 0; j < 2; j++) {
            many->adjusts[2 * i + j] = (struct sample_adjust){
                .token_id = (int32_t)(i * 7 + j), .output_count = j, .in_prompt = 1, .bias = 0.5f};
        }
    }
    struct backend *backend = open_backend("scalar", 1);
    assert_non_null(backend);
    for (uint32_t i = 0; i < MANY_ROWS; i++) {
        const float *logits = many->logits + (size_t)i * MANY_SIZE;
        run(backend, logits, MANY_SIZE, &many->rows[i], 1, many->adjusts, &many->alone[i]);
    }
    backend_destroy(backend);
}

static void check_many(const struct many *many, struct backend *backend, uint32_t num_rows) {
    struct sample_result results[MANY_ROWS];
    run(backend, many->logits, MANY_SIZE, many->rows, num_rows, many->adjusts, results);
    for (uint32_t i = 0; i < num_rows; i++) {
        const struct sample_result *got = &results[i], *want = &many->alone[i];
        assert_int_equal(got->token_id, want->token_id);
        assert_memory_equal(&got->logprob, &want->logprob, sizeof(float));
        for (int32_t top = 0; top < many->rows[i].num_top; top++) {
            assert_int_equal(got->top_id[top], want->top_id[top]);
            assert_memory_equal(&got->top_logprob[top], &want->top_logprob[top], sizeof(float));
        }
    }
}

static void test_same_bits_for_any_threads_batch_and_isa(void **state) {
    (void)state;
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    struct many many;
    make_many(&many);
    for (size_t isa = 0; isa < ARRAY_LEN(isas); isa++) {
        for (int threads = 1; threads <= 5; threads += 2) {
            struct backend *backend = open_backend(isas[isa], threads);
            if (!backend) continue; // has said why
            for (uint32_t rows = 1; rows <= MANY_ROWS; rows += 5) check_many(&many, backend, rows);
            backend_destroy(backend);
        }
    }
    free(many.logits);
}

static void test_a_seed_and_draw_decide_the_token(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 5000 };
    random_state = 3;
    float *logits = random_logits(1, SIZE, 0.1f); // nearly even: equal tokens are no accident
    struct sample_row row = plain_row;
    row.seed_low = 42;
    int32_t first = run_one(backend, logits, SIZE, row);
    assert_int_equal(run_one(backend, logits, SIZE, row), first);
    row.draw = 1;
    assert_int_not_equal(run_one(backend, logits, SIZE, row), first);
    row.draw = 0;
    row.seed_high = 1;
    assert_int_not_equal(run_one(backend, logits, SIZE, row), first);
    free(logits);
}

static int open_default(void **state) {
    struct backend *backend = open_backend("auto", 2);
    *state = backend;
    return backend ? 0 : -1;
}

static int close_default(void **state) {
    backend_destroy(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_first_largest),
        cmocka_unit_test(test_rules_agree_with_the_oracle),
        cmocka_unit_test(test_rules_hold_for_sorted_logits),
        cmocka_unit_test(test_ties_keep_the_smaller_ids),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_a_banned_token_never_comes),
        cmocka_unit_test(test_logprobs_agree_with_the_oracle),
        cmocka_unit_test(test_top_lists_the_smaller_ids_of_ties),
        cmocka_unit_test(test_no_logprobs_leave_zero),
        cmocka_unit_test(test_odd_logits_give_a_valid_token_or_none),
        cmocka_unit_test(test_same_bits_for_any_threads_batch_and_isa),
        cmocka_unit_test(test_a_seed_and_draw_decide_the_token),
    };
    return cmocka_run_group_tests_name("sample", tests, open_default, close_default);
}
