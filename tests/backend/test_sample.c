// The sample op. Each rule agrees with a naive sampler that sorts in double precision, and draws
// have the right distribution. Results have the same bits for any threads, batch and ISA. Odd
// logits are harmless, and nothing is written beyond the arrays.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/sample/philox.h"
#include "backend/log_softmax.h"
#include "backend/sample_oracle.h"
#include "backend/sample_run.h"
#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/odd_float_mode.h"

static const struct sample_row plain_row = {
    .temperature = 1, .top_p = 1, .num_top = -1, .repetition_penalty = 1};

static int32_t run_one(struct backend *backend, const float *logits, uint32_t vocab_size,
                       struct sample_row row) {
    struct sample_result result;
    sample_run(backend, logits, vocab_size, &row, 1, NULL, &result);
    assert_in_range(result.token_id, 0, vocab_size - 1);
    return result.token_id;
}

static void test_greedy_takes_the_first_largest(void **state) {
    struct backend *backend = *state;
    static const uint32_t sizes[] = {1, 2, 15, 16, 17, 511, 512, 513, 1000, 4096, 4097, 151936};
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        uint32_t n = sizes[s];
        sample_random_seed(n);
        float *logits = sample_random_logits(1, n, 1);
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

// Draws 20 tokens by one rule; *num_close counts those that the oracle cannot judge.
static void check_rule(struct backend *backend, uint32_t vocab_size, uint32_t rule,
                       uint32_t *num_close) {
    float *logits = sample_random_logits(1, vocab_size, 2.5f);
    struct sample_row row = sample_rules[rule];
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
        for (uint32_t rule = 0; rule < ARRAY_LEN(sample_rules); rule++) {
            sample_random_seed(s * 100 + rule);
            check_rule(*state, sizes[s], rule, &num_close);
        }
    }
    // The oracle must be able to judge nearly all.
    assert_true(num_close * 20 < ARRAY_LEN(sizes) * ARRAY_LEN(sample_rules) * 20);
}

// The worst order for the bounds that selection starts from: sorted, and all in one chunk.
static void test_rules_hold_for_sorted_logits(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 30000 };
    float *logits = sample_random_logits(1, SIZE, 0);
    for (size_t r = 0; r < ARRAY_LEN(sample_rules); r++) {
        for (int descending = 0; descending < 2; descending++) {
            for (int i = 0; i < SIZE; i++) {
                logits[descending ? SIZE - 1 - i : i] = (float)i * 5e-4f;
            }
            struct sample_row row = sample_rules[r];
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

// Tokens with top_p's last mass lie far below the largest logit, so that many of them matter.
static void test_top_p_reaches_far_below_the_largest(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 30000, FIRST = 20000 };
    float *logits = sample_random_logits(1, SIZE, 0); // all equal
    logits[FIRST] = 14; // weighs 0.976 of all
    struct sample_row row = plain_row;
    row.top_p = 0.99f;
    uint32_t num_others = 0;
    for (row.draw = 0; row.draw < 1000; row.draw++) {
        int32_t token = run_one(backend, logits, SIZE, row);
        num_others += token != FIRST;
        assert_in_range(token, 0, FIRST); // 17,673 of the equal ones are kept, the first ones
    }
    assert_in_range(num_others, 3, 40); // 14.6 expected
    free(logits);
}

static void test_ties_keep_the_smaller_ids(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 2000 };
    float *logits = sample_random_logits(1, SIZE, 0); // all equal
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
    logits[1500] = 1; // the best; the second best is the first of the ties
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
    sample_random_seed(77);
    float *logits = sample_random_logits(1, SIZE, 1.5f);
    for (size_t r = 0; r < ARRAY_LEN(sample_rules); r++) {
        struct sample_row *rows = malloc(DRAWS / 10 * sizeof *rows);
        struct sample_result *results = malloc(DRAWS / 10 * sizeof *results);
        float *copies = malloc(DRAWS / 10 * SIZE * sizeof *copies);
        uint32_t counts[SIZE] = {0};
        for (uint32_t part = 0; part < 10; part++) {
            for (uint32_t i = 0; i < DRAWS / 10; i++) {
                rows[i] = sample_rules[r];
                rows[i].repetition_penalty = 1;
                rows[i].num_top = -1;
                rows[i].seed_high = 9;
                rows[i].draw = part * (DRAWS / 10) + i;
                memcpy(copies + (size_t)i * SIZE, logits, SIZE * sizeof *logits);
            }
            sample_run(backend, copies, SIZE, rows, DRAWS / 10, NULL, results);
            for (uint32_t i = 0; i < DRAWS / 10; i++) counts[results[i].token_id]++;
        }
        struct oracle oracle = oracle_make(logits, SIZE, sample_rules[r]);
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
        assert_int_equal(num_inside, DRAWS); // none outside the tokens that the rules keep
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

// Log-probabilities are those of the raw logits, whatever the row's other parameters are.
static void test_logprobs_agree_with_the_oracle(void **state) {
    static const uint32_t sizes[] = {1, 5, 20, 21, 777, 151936};
    const struct sample_bias bias = {.token_id = 0, .bias = 1};
    const int32_t seen = 0;
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        uint32_t n = sizes[s];
        sample_random_seed(1000 + n);
        float *logits = sample_random_logits(1, n, 3);
        for (uint32_t i = 0; i < n; i += 3) logits[i] = roundf(logits[i]); // many ties
        struct oracle oracle = oracle_make(logits, n, plain_row);
        const struct sample_extras extras = {.biases = &bias,
                                             .counts = sample_counts_create(*state, 1, n)};
        sample_counts_begin(*state, extras.counts, 1, &seen, 1, 1);
        for (int32_t num_top = 0; num_top <= SAMPLE_TOP_MAX; num_top += 5) {
            struct sample_row row = plain_row;
            row.num_top = num_top;
            row.temperature = num_top == 5 ? 0.0f : 0.7f;
            row.top_k = num_top;
            row.repetition_penalty = 1.3f;
            row.counts_slot = 1;
            row.bias_count = 1;
            struct sample_result result;
            sample_run(*state, logits, n, &row, 1, &extras, &result);
            check_logprobs(&result, &oracle, logits, n, (uint32_t)num_top);
        }
        sample_counts_destroy(*state, extras.counts);
        oracle_fini(&oracle);
        free(logits);
    }
}

// Given tokens are reported in their order, also one twice, and their biases are not read.
static void test_given_tokens(void **state) {
    enum { SIZE = 1500, NUM_GIVEN = 4 };
    float *logits = sample_random_logits(1, SIZE, 3);
    const struct sample_bias biases[] = {{9, 0, 0},   {7, 100, 0}, {1499, 50, 0},
                                         {7, -50, 0}, {3, NAN, 0}, {7, 1, 0}};
    struct oracle oracle = oracle_make(logits, SIZE, plain_row);
    double log_mass = log(oracle.mass) + oracle.entries[0].logit;
    struct sample_row row = plain_row;
    row.temperature = 0;
    row.bias_start = row.bias_count = 1; // the second one
    row.num_given = NUM_GIVEN;
    row.num_top = NUM_GIVEN;
    const struct sample_extras extras = {.biases = biases};
    struct sample_result result;
    sample_run(*state, logits, SIZE, &row, 1, &extras, &result);
    assert_int_equal(result.token_id, 7);
    for (uint32_t i = 0; i < NUM_GIVEN; i++) {
        int32_t id = biases[2 + i].token_id;
        assert_int_equal(result.top_id[i], id);
        assert_true(fabs((double)result.top_logprob[i] - ((double)logits[id] - log_mass)) < 1e-5);
    }
    assert_true(result.top_logprob[1] == result.logprob);
    oracle_fini(&oracle);
    free(logits);
}

static void test_top_lists_the_smaller_ids_of_ties(void **state) {
    enum { SIZE = 1500, NUM_TOP = 5 };
    float *logits = sample_random_logits(1, SIZE, 0); // all equal
    logits[1400] = 1;
    struct sample_row row = plain_row;
    row.num_top = NUM_TOP;
    struct sample_result result;
    sample_run(*state, logits, SIZE, &row, 1, NULL, &result);
    assert_int_equal(result.top_id[0], 1400);
    for (int i = 1; i < NUM_TOP; i++) assert_int_equal(result.top_id[i], i - 1);
    free(logits);
}

static void test_no_logprobs_leave_zero(void **state) {
    struct backend *backend = *state;
    const float logits[3] = {1, 2, 3};
    struct sample_result result;
    sample_run(backend, logits, 3, &plain_row, 1, NULL, &result);
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

// A whole row begins with the tokens that the op lists, to the bit, whatever the logits are. It has
// each token once.
static void test_whole_rows_begin_like_lists(void **state) {
    enum { SIZE = 1500, KINDS = 8 };
    float *logits = sample_random_logits(1, SIZE, 3);
    for (int kind = -2; kind < KINDS; kind++) {
        if (kind == -1) {
            for (uint32_t i = 0; i < SIZE; i++)
                logits[i] = roundf(logits[i]); // ties, and both zeros
        }
        if (kind >= 0) fill_odd(logits, SIZE, kind);
        struct sample_row row = plain_row;
        row.num_top = SAMPLE_TOP_MAX;
        struct sample_result listed;
        sample_run(*state, logits, SIZE, &row, 1, NULL, &listed);
        uint64_t scratch[2 * SIZE];
        struct ranked_token ranked[SIZE];
        bool is_there[SIZE] = {false};
        log_softmax_rank(logits, SIZE, scratch, ranked);
        for (int i = 0; i < SAMPLE_TOP_MAX; i++) {
            assert_int_equal(ranked[i].token_id, listed.top_id[i]);
            assert_memory_equal(&ranked[i].logprob, &listed.top_logprob[i], sizeof(float));
        }
        for (int i = 0; i < SIZE; i++) {
            assert_false(is_there[ranked[i].token_id]);
            is_there[ranked[i].token_id] = true;
            if (i) assert_true(ranked[i].logprob <= ranked[i - 1].logprob);
        }
    }
    free(logits);
}

static void test_odd_logits_give_a_valid_token_or_none(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 1300, NUM_KINDS = 9 };
    float logits[SIZE];
    const int32_t seen = 3;
    const struct sample_bias bias = {.token_id = 3, .bias = -INFINITY};
    const struct sample_extras extras = {.biases = &bias,
                                         .counts = sample_counts_create(backend, 1, SIZE)};
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        fill_odd(logits, SIZE, kind);
        for (size_t r = 0; r <= ARRAY_LEN(sample_rules); r++) {
            struct sample_row row = r < ARRAY_LEN(sample_rules) ? sample_rules[r] : plain_row;
            if (r == ARRAY_LEN(sample_rules)) row.temperature = 0;
            row.repetition_penalty = 1.5f;
            row.num_top = SAMPLE_TOP_MAX;
            row.counts_slot = 1;
            row.bias_count = 1;
            row.draw = (uint32_t)r;
            sample_counts_begin(backend, extras.counts, 1, &seen, 1, 1);
            struct sample_result result;
            sample_run(backend, logits, SIZE, &row, 1, &extras, &result);
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
    sample_counts_destroy(backend, extras.counts);
}

enum { MANY_SIZE = 10007, MANY_ROWS = ARRAY_LEN(sample_rules), MANY_WORDS = (MANY_SIZE + 31) / 32 };

// One row of each rule, with logprobs of different lengths. A third has no counts and no biases,
// every fourth has a mask.
struct many {
    float *logits; // [MANY_ROWS][MANY_SIZE]
    struct sample_row rows[MANY_ROWS];
    struct sample_bias biases[2 * MANY_ROWS];
    uint32_t masks[MANY_ROWS / 4 * MANY_WORDS];
    // Results of each row alone, by scalar code on one thread: of a first call, and of a second one
    // after its first token was counted.
    struct sample_result alone[2][MANY_ROWS];
};

// Samples rows [first, first + num_rows) twice.
static void run_many(const struct many *many, struct backend *backend, uint32_t first,
                     uint32_t num_rows, struct sample_result *results[2]) {
    const struct sample_extras extras = {
        .biases = many->biases,
        .masks = many->masks,
        .counts = sample_counts_create(backend, MANY_ROWS, MANY_SIZE),
    };
    for (uint32_t i = first; i < first + num_rows; i++) {
        if (!many->rows[i].counts_slot) continue;
        const int32_t id = (int32_t)(i * 7), ids[] = {id, id + 1, id + 1};
        sample_counts_begin(backend, extras.counts, i + 1, ids, 2, 3);
    }
    const float *logits = many->logits + (size_t)first * MANY_SIZE;
    for (int round = 0; round < 2; round++) {
        sample_run(backend, logits, MANY_SIZE, many->rows + first, num_rows, &extras,
                   results[round]);
    }
    sample_counts_destroy(backend, extras.counts);
}

static void make_many(struct many *many) {
    sample_random_seed(4711);
    many->logits = sample_random_logits(MANY_ROWS, MANY_SIZE, 3);
    for (uint32_t i = 0; i < MANY_ROWS; i++) {
        struct sample_row *row = &many->rows[i];
        *row = sample_rules[i];
        row->num_top = (int32_t)i - 1;
        row->repetition_penalty = 1.1f;
        row->frequency_penalty = 3;
        row->seed_low = i * 12345;
        row->draw = i;
        row->counts_slot = i % 3 ? i + 1 : 0;
        row->bias_start = 2 * i;
        row->bias_count = i % 3;
        row->mask = i % 4 == 1 ? i / 4 + 1 : 0;
        row->masks_logprobs = i % 8 == 1;
        for (uint32_t j = 0; j < 2; j++) {
            many->biases[2 * i + j] = (struct sample_bias){(int32_t)(i * 7 + j), 0.5f, 0};
        }
    }
    for (uint32_t i = 0; i < MANY_ROWS / 4 * MANY_WORDS; i++) {
        many->masks[i] = (uint32_t)(sample_random_uniform() * 0x1p32);
    }
    struct backend *backend = sample_open_backend("scalar", 1);
    assert_non_null(backend);
    uint32_t num_changed = 0;
    for (uint32_t i = 0; i < MANY_ROWS; i++) {
        struct sample_result *results[2] = {&many->alone[0][i], &many->alone[1][i]};
        run_many(many, backend, i, 1, results);
        num_changed += results[0]->token_id != results[1]->token_id;
    }
    assert_true(num_changed > 0); // by the first token, which was counted
    backend_destroy(backend);
}

static void expect_same(const struct sample_result *got, const struct sample_result *want,
                        int32_t num_top) {
    assert_int_equal(got->token_id, want->token_id);
    assert_memory_equal(&got->logprob, &want->logprob, sizeof(float));
    for (int32_t top = 0; top < num_top; top++) {
        assert_int_equal(got->top_id[top], want->top_id[top]);
        assert_memory_equal(&got->top_logprob[top], &want->top_logprob[top], sizeof(float));
    }
}

static void check_many(const struct many *many, struct backend *backend, uint32_t num_rows) {
    struct sample_result first[MANY_ROWS], again[MANY_ROWS], *results[2] = {first, again};
    run_many(many, backend, 0, num_rows, results);
    for (uint32_t i = 0; i < num_rows; i++) {
        expect_same(&first[i], &many->alone[0][i], many->rows[i].num_top);
        expect_same(&again[i], &many->alone[1][i], many->rows[i].num_top);
    }
}

static void test_same_bits_for_any_threads_batch_and_isa(void **state) {
    (void)state;
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    struct many many;
    make_many(&many);
    for (size_t isa = 0; isa < CPU_ISA_COUNT; isa++) {
        for (int threads = 1; threads <= 5; threads += 2) {
            struct backend *backend = sample_open_backend(table[isa].name, threads);
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
    sample_random_seed(3);
    float *logits =
        sample_random_logits(1, SIZE, 0.1f); // nearly even, so that equal tokens are no accident
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

// A row is shared by all threads, and the calling one combines what they found.
static void test_same_bits_in_any_float_mode(void **state) {
    struct backend *backend = *state;
    enum { SIZE = 4099 };
    float *logits = sample_random_logits(1, SIZE, 3);
    for (uint32_t rule = 0; rule < SAMPLE_NUM_RULES; rule++) {
        struct sample_row row = sample_rules[rule];
        row.repetition_penalty = 1;
        row.num_top = 5;
        struct sample_result want = {0}, got = {0};
        sample_run(backend, logits, SIZE, &row, 1, NULL, &want);
        float_mode_set(ODD_FLOAT_MODE);
        sample_run(backend, logits, SIZE, &row, 1, NULL, &got);
        uint64_t mode = float_mode_get();
        float_mode_set(FLOAT_MODE_DEFAULT);
        assert_int_equal(mode, ODD_FLOAT_MODE);
        assert_int_equal(got.token_id, want.token_id);
        assert_memory_equal(&got.logprob, &want.logprob, sizeof got.logprob);
        assert_memory_equal(got.top_logprob, want.top_logprob, 5 * sizeof *got.top_logprob);
    }
    free(logits);
}

static int open_default(void **state) {
    struct backend *backend = sample_open_backend("auto", 2);
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
        cmocka_unit_test(test_top_p_reaches_far_below_the_largest),
        cmocka_unit_test(test_ties_keep_the_smaller_ids),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_logprobs_agree_with_the_oracle),
        cmocka_unit_test(test_given_tokens),
        cmocka_unit_test(test_top_lists_the_smaller_ids_of_ties),
        cmocka_unit_test(test_no_logprobs_leave_zero),
        cmocka_unit_test(test_whole_rows_begin_like_lists),
        cmocka_unit_test(test_odd_logits_give_a_valid_token_or_none),
        cmocka_unit_test(test_same_bits_for_any_threads_batch_and_isa),
        cmocka_unit_test(test_a_seed_and_draw_decide_the_token),
        cmocka_unit_test(test_same_bits_in_any_float_mode),
    };
    return cmocka_run_group_tests_name("sample", tests, open_default, close_default);
}
