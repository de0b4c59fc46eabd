// What changes a row's logits before the draw: penalties for the tokens that its sequence has seen,
// biases and masks. The op also counts the new token; a naive model checks that over many steps.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/sample_run.h"
#include "base/compiler.h"
#include "support/cmocka_all.h"

static const struct sample_row greedy_row = {.top_p = 1, .num_top = -1, .repetition_penalty = 1};

// The token that a greedy row takes if its sequence, in slot 2 of 3, has these ids.
static int32_t run_penalized(struct backend *backend, const float *logits, uint32_t vocab_size,
                             struct sample_row row, const int32_t *ids, uint32_t num_prompt,
                             uint32_t num_ids) {
    struct sample_extras extras = {.counts = sample_counts_create(backend, 3, vocab_size)};
    struct sample_result result;
    sample_counts_begin(backend, extras.counts, 2, ids, num_prompt, num_ids);
    row.counts_slot = 2;
    sample_run(backend, logits, vocab_size, &row, 1, &extras, &result);
    sample_counts_destroy(backend, extras.counts);
    return result.token_id;
}

static void test_penalties(void **state) {
    struct backend *backend = *state;
    const float logits[6] = {4.0f, 3.0f, -1.0f, -1.5f, 2.9f, -8.0f};
    static const int32_t zeros[5] = {0};
    struct sample_row row = greedy_row;
    row.repetition_penalty = 2; // 4 -> 2, below 3
    assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 1, 1), 1); // in the prompt
    assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 0, 1), 1); // in the output
    assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 1, 2), 1); // once for both
    assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 0, 0), 0); // not seen

    // A negative logit is multiplied: -1 -> -2, below -1.5.
    const float negative[2] = {-1.0f, -1.5f};
    assert_int_equal(run_penalized(backend, negative, 2, row, zeros, 1, 1), 1);

    row.repetition_penalty = 1;
    row.presence_penalty = 1.05f; // 4 - 1.05 < 3, however often it came
    assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 0, 1), 1);
    row.presence_penalty = 0.9f;
    assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 0, 4), 0);
    row.presence_penalty = 1.05f;
    assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 1, 1), 0); // not the prompt

    row.presence_penalty = 0;
    row.frequency_penalty = 0.4f;
    for (uint32_t count = 0; count < 5; count++) { // 4 - 0.4 count against 3
        assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 0, count),
                         count < 3 ? 0 : 1);
    }
    assert_int_equal(run_penalized(backend, logits, 6, row, zeros, 3, 5), 0); // two of them count
}

static void test_biases(void **state) {
    struct backend *backend = *state;
    const float logits[6] = {4.0f, 3.0f, -1.0f, -1.5f, 2.9f, -8.0f};
    // Entry 0 belongs to no row of this test.
    const struct sample_bias biases[4] = {
        {4, INFINITY, 0}, {0, -INFINITY, 0}, {5, 11, 0}, {1, -0.05f, 0}};
    const struct sample_extras extras = {.biases = biases};
    struct sample_row row = greedy_row;
    struct sample_result result;
    row.repetition_penalty = 2; // no effect: without counts no token was seen
    row.bias_start = 1;
    row.bias_count = 3;
    sample_run(backend, logits, 6, &row, 1, &extras, &result);
    assert_int_equal(result.token_id, 5);
    row.bias_count = 1;
    sample_run(backend, logits, 6, &row, 1, &extras, &result);
    assert_int_equal(result.token_id, 1);
    row.bias_count = 0;
    sample_run(backend, logits, 6, &row, 1, &extras, &result);
    assert_int_equal(result.token_id, 0);
}

// Penalties apply before biases: 4 / 2 + 1.5 is above 3, (4 + 1.5) / 2 is not.
static void test_biases_come_after_penalties(void **state) {
    struct backend *backend = *state;
    const float logits[2] = {4.0f, 3.0f};
    const int32_t seen = 0;
    const struct sample_bias bias = {0, 1.5f, 0};
    struct sample_extras extras = {.biases = &bias, .counts = sample_counts_create(backend, 1, 2)};
    sample_counts_begin(backend, extras.counts, 1, &seen, 1, 1);
    struct sample_row row = greedy_row;
    struct sample_result result;
    row.repetition_penalty = 2;
    row.counts_slot = 1;
    row.bias_count = 1;
    sample_run(backend, logits, 2, &row, 1, &extras, &result);
    assert_int_equal(result.token_id, 0);
    sample_counts_destroy(backend, extras.counts);
}

// Rows behind drafts: each sees the counts and the drafts before it, and none counts its token in.
static void test_tokens_that_a_row_counts_besides(void **state) {
    struct backend *backend = *state;
    const float logits[2 * 3] = {4, 3, -9, 4, 3, -9};
    const int32_t seen = 0;
    const struct sample_bias biases[] = {{0, 0.4f, 1}, {1, -4, 0}, {0, 0.4f, 2}};
    struct sample_extras extras = {.biases = biases, .counts = sample_counts_create(backend, 1, 3)};
    sample_counts_begin(backend, extras.counts, 1, &seen, 0, 1);
    struct sample_row rows[2] = {greedy_row, greedy_row};
    struct sample_result results[2];
    for (uint32_t i = 0; i < 2; i++) {
        rows[i].frequency_penalty = 0.5f;
        rows[i].counts_slot = 1;
        rows[i].is_tentative = 1;
        rows[i].bias_start = 2 * i;
        rows[i].bias_count = 1;
    }
    // 4 - 2 * 0.5 + 0.4 and 4 - 3 * 0.5 + 0.4 against 3
    for (uint32_t num_rows = 1; num_rows <= 2; num_rows++) {
        sample_run(backend, logits, 3, rows, num_rows, &extras, results);
        assert_int_equal(results[0].token_id, 0);
    }
    assert_int_equal(results[1].token_id, 1);
    sample_counts_destroy(backend, extras.counts);
}

static void test_a_banned_token_never_comes(void **state) {
    struct backend *backend = *state;
    float logits[600];
    for (int i = 0; i < 600; i++) logits[i] = i == 550 ? 30.0f : 0.0f;
    const struct sample_bias ban = {.token_id = 550, .bias = -INFINITY};
    const struct sample_extras extras = {.biases = &ban};
    for (uint32_t r = 0; r < SAMPLE_NUM_RULES; r++) {
        struct sample_row row = sample_rules[r];
        row.repetition_penalty = 1;
        row.num_top = 1;
        row.bias_count = 1;
        for (row.draw = 0; row.draw < 10; row.draw++) {
            struct sample_result result;
            sample_run(backend, logits, 600, &row, 1, &extras, &result);
            assert_int_not_equal(result.token_id, 550);
            assert_int_equal(result.top_id[0], 550); // raw logits ignore the bias
        }
    }
}

// A naive model of the sequences' counts.
enum { MODEL_VOCAB = 77, MODEL_SLOTS = 5 };

struct model {
    bool in_prompt[MODEL_SLOTS][MODEL_VOCAB];
    uint32_t times[MODEL_SLOTS][MODEL_VOCAB]; // generated
};

static void model_begin(struct model *model, uint32_t slot, const int32_t *ids, uint32_t num_prompt,
                        uint32_t num_ids) {
    memset(model->in_prompt[slot - 1], 0, sizeof *model->in_prompt);
    memset(model->times[slot - 1], 0, sizeof *model->times);
    for (uint32_t i = 0; i < num_ids; i++) {
        if (i < num_prompt) model->in_prompt[slot - 1][ids[i]] = true;
        if (i >= num_prompt) model->times[slot - 1][ids[i]]++;
    }
}

// Returns the greedy token, and counts it if the row has a slot.
static int32_t model_sample(struct model *model, const float *logits,
                            const struct sample_row *row) {
    int32_t best = 0;
    float best_logit = -INFINITY;
    uint32_t slot = row->counts_slot;
    for (int32_t id = 0; id < MODEL_VOCAB; id++) {
        float logit = logits[id];
        uint32_t times = slot ? model->times[slot - 1][id] : 0;
        if (times || (slot && model->in_prompt[slot - 1][id])) {
            logit = logit > 0 ? logit / row->repetition_penalty : logit * row->repetition_penalty;
        }
        if (times) logit -= row->presence_penalty + row->frequency_penalty * (float)times;
        if (logit > best_logit) best = id, best_logit = logit;
    }
    if (slot) model->times[slot - 1][best]++;
    return best;
}

static uint32_t random_below(uint32_t limit) {
    return (uint32_t)(sample_random_uniform() * limit);
}

// Gives the slot to a random new sequence.
static void begin_random(struct backend *backend, struct token_counts *counts, struct model *model,
                         uint32_t slot) {
    int32_t ids[12];
    uint32_t num_ids = random_below(ARRAY_LEN(ids) + 1), num_prompt = random_below(num_ids + 1);
    for (uint32_t i = 0; i < num_ids; i++) ids[i] = (int32_t)random_below(MODEL_VOCAB);
    sample_counts_begin(backend, counts, slot, ids, num_prompt, num_ids);
    model_begin(model, slot, ids, num_prompt, num_ids);
    memset(ids, 0x7f, sizeof ids); // counts_begin has copied them
}

// Rows with and without slots come and go, and slots get new sequences. Slots are independent of
// each other, a new token is counted in its row's slot only, and beginning clears the slot.
static void test_new_tokens_are_counted_in(void **state) {
    struct backend *backend = *state;
    sample_random_seed(31);
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    const struct sample_extras extras = {
        .counts = sample_counts_create(backend, MODEL_SLOTS, MODEL_VOCAB)};
    for (uint32_t slot = 1; slot <= MODEL_SLOTS; slot++) {
        begin_random(backend, extras.counts, model, slot);
    }
    float *logits = sample_random_logits(MODEL_SLOTS + 1, MODEL_VOCAB, 2);
    for (int step = 0; step < 300; step++) {
        struct sample_row rows[MODEL_SLOTS + 1];
        struct sample_result results[ARRAY_LEN(rows)];
        uint32_t num_rows = 0;
        if (step % 20 == 19) {
            begin_random(backend, extras.counts, model, 1 + random_below(MODEL_SLOTS));
        }
        for (uint32_t slot = 0; slot <= MODEL_SLOTS; slot++) { // 0: a row without a slot
            if (random_below(3) == 0) continue;
            struct sample_row *row = &rows[num_rows++];
            *row = greedy_row;
            row->counts_slot = slot;
            row->repetition_penalty = slot % 2 ? 1.4f : 1;
            row->presence_penalty = slot % 3 ? 0.25f : 0;
            row->frequency_penalty = slot > 1 ? 0.125f : 0; // exact, also when fused
        }
        sample_run(backend, logits, MODEL_VOCAB, rows, num_rows, &extras, results);
        for (uint32_t i = 0; i < num_rows; i++) {
            int32_t want = model_sample(model, logits + (size_t)i * MODEL_VOCAB, &rows[i]);
            assert_int_equal(results[i].token_id, want);
        }
    }
    sample_counts_destroy(backend, extras.counts);
    free(logits);
    free(model);
}

// Nor in the last entry of the slot before, which is where index -1 would be.
static void test_a_row_without_a_token_counts_nothing(void **state) {
    struct backend *backend = *state;
    const float none[3] = {-INFINITY, NAN, -INFINITY}, logits[3] = {1, 2, 3};
    const struct sample_extras extras = {.counts = sample_counts_create(backend, 3, 3)};
    struct sample_row row = greedy_row;
    struct sample_result result;
    row.frequency_penalty = 1.5f;
    for (row.counts_slot = 1; row.counts_slot <= 3; row.counts_slot++) {
        sample_counts_begin(backend, extras.counts, row.counts_slot, NULL, 0, 0);
    }
    for (row.counts_slot = 1; row.counts_slot <= 3; row.counts_slot++) {
        sample_run(backend, none, 3, &row, 1, &extras, &result);
        assert_int_equal(result.token_id, -1);
    }
    static const int32_t want[] = {2, 1, 2, 0}; // 3, 2, 3 - 1.5, 1
    for (row.counts_slot = 1; row.counts_slot <= 3; row.counts_slot++) {
        for (size_t i = 0; i < ARRAY_LEN(want); i++) {
            sample_run(backend, logits, 3, &row, 1, &extras, &result);
            assert_int_equal(result.token_id, want[i]);
        }
    }
    sample_counts_destroy(backend, extras.counts);
}

// Random words; the bits beyond the vocabulary are random too. Of 120 words 40 are empty, so that
// some tiles of the sampler have no allowed token.
static uint32_t *random_masks(uint32_t num_masks, uint32_t vocab_size) {
    size_t num_words = (size_t)num_masks * ((vocab_size + 31) / 32);
    uint32_t *masks = malloc(num_words * sizeof *masks);
    assert_non_null(masks);
    for (size_t i = 0; i < num_words; i++) {
        masks[i] = i / 40 % 3 == 1 ? 0 : random_below(1u << 31) << 1 | i % 2;
    }
    return masks;
}

static bool is_allowed(const uint32_t *mask, uint32_t id) {
    return mask[id / 32] >> (id % 32) & 1;
}

enum { MASKED_ROWS = 3 };

// Rows of one rule, with masks in another order than the rows. They must agree with logits that are
// -inf where the mask forbids. Log-probabilities are those of the logits without the mask.
static void check_masks(struct backend *backend, uint32_t vocab_size, struct sample_row row) {
    enum { NUM_TOP = 7 };
    float *logits = sample_random_logits(MASKED_ROWS, vocab_size, 3);
    float *masked = sample_random_logits(MASKED_ROWS, vocab_size, 0);
    uint32_t *masks = random_masks(MASKED_ROWS, vocab_size), words = (vocab_size + 31) / 32;
    const struct sample_extras extras = {.masks = masks};
    struct sample_row rows[MASKED_ROWS], plain_rows[MASKED_ROWS];
    struct sample_result got[MASKED_ROWS], want[MASKED_ROWS], raw[MASKED_ROWS];
    for (uint32_t i = 0; i < MASKED_ROWS; i++) {
        rows[i] = plain_rows[i] = row;
        rows[i].mask = MASKED_ROWS - i;
        rows[i].num_top = plain_rows[i].num_top = NUM_TOP;
        const uint32_t *mask = masks + (rows[i].mask - 1) * words;
        for (uint32_t id = 0; id < vocab_size; id++) {
            size_t at = (size_t)i * vocab_size + id;
            masked[at] = is_allowed(mask, id) ? logits[at] : -INFINITY;
        }
    }
    sample_run(backend, logits, vocab_size, rows, MASKED_ROWS, &extras, got);
    sample_run(backend, masked, vocab_size, plain_rows, MASKED_ROWS, NULL, want);
    sample_run(backend, logits, vocab_size, plain_rows, MASKED_ROWS, NULL, raw);
    for (uint32_t i = 0; i < MASKED_ROWS; i++) {
        assert_int_equal(got[i].token_id, want[i].token_id);
        assert_memory_equal(got[i].top_id, raw[i].top_id, NUM_TOP * sizeof *raw[i].top_id);
        assert_memory_equal(got[i].top_logprob, raw[i].top_logprob,
                            NUM_TOP * sizeof *raw[i].top_logprob);
        if (got[i].token_id < 0) continue; // a small vocabulary may have no allowed token
        const float *own = logits + (size_t)i * vocab_size;
        double off = (double)own[got[i].token_id] - (double)own[raw[i].top_id[0]];
        double logprob = (double)raw[i].top_logprob[0] + off;
        assert_true(fabs((double)got[i].logprob - logprob) < 1e-5);
    }
    for (uint32_t i = 0; i < MASKED_ROWS; i++) rows[i].num_top = -1;
    sample_run(backend, logits, vocab_size, rows, MASKED_ROWS, &extras, got);
    for (uint32_t i = 0; i < MASKED_ROWS; i++) {
        assert_int_equal(got[i].token_id, want[i].token_id);
    }
    free(logits);
    free(masked);
    free(masks);
}

static void test_masks_leave_out_what_they_forbid(void **state) {
    static const uint32_t sizes[] = {1, 2, 31, 32, 33, 63, 65, 511, 513, 1000, 4097, 20011};
    sample_random_seed(9);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        check_masks(*state, sizes[s], greedy_row);
        for (uint32_t rule = 0; rule < SAMPLE_NUM_RULES; rule++) {
            struct sample_row row = sample_rules[rule];
            row.repetition_penalty = 1;
            row.draw = rule;
            check_masks(*state, sizes[s], row);
        }
    }
}

static void test_a_mask_of_one_token_gives_it(void **state) {
    enum { SIZE = 1001, WORDS = (SIZE + 31) / 32 };
    sample_random_seed(10);
    float *logits = sample_random_logits(1, SIZE, 3);
    for (int32_t id = 0; id < SIZE; id += 40) {
        uint32_t mask[WORDS] = {0};
        mask[id / 32] = 1u << (id % 32);
        const struct sample_extras extras = {.masks = mask};
        for (uint32_t rule = 0; rule <= SAMPLE_NUM_RULES; rule++) {
            struct sample_row row = rule < SAMPLE_NUM_RULES ? sample_rules[rule] : greedy_row;
            row.num_top = -1;
            row.mask = 1;
            struct sample_result result;
            sample_run(*state, logits, SIZE, &row, 1, &extras, &result);
            assert_int_equal(result.token_id, id);
        }
    }
    free(logits);
}

// Bits beyond the vocabulary allow nothing.
static void test_a_mask_that_forbids_everything_gives_no_token(void **state) {
    enum { SIZE = 45, NUM_TOP = 3 };
    const uint32_t mask[2] = {0, 0xffffffffu << (SIZE - 32)};
    sample_random_seed(11);
    float *logits = sample_random_logits(1, SIZE, 3);
    const struct sample_extras extras = {.masks = mask};
    for (uint32_t rule = 0; rule <= SAMPLE_NUM_RULES; rule++) {
        struct sample_row row = rule < SAMPLE_NUM_RULES ? sample_rules[rule] : greedy_row;
        struct sample_result result, raw;
        row.num_top = NUM_TOP;
        sample_run(*state, logits, SIZE, &row, 1, NULL, &raw);
        row.mask = 1;
        sample_run(*state, logits, SIZE, &row, 1, &extras, &result);
        assert_int_equal(result.token_id, -1);
        assert_true(isinf(result.logprob) && result.logprob < 0);
        assert_memory_equal(result.top_id, raw.top_id, NUM_TOP * sizeof *raw.top_id);
        row.num_top = -1;
        sample_run(*state, logits, SIZE, &row, 1, &extras, &result);
        assert_int_equal(result.token_id, -1);
        assert_true(result.logprob == 0);
    }
    free(logits);
}

// Neither a bias nor a penalty brings back a forbidden token, and a ban holds under a mask too.
static void test_masks_come_after_penalties_and_biases(void **state) {
    struct backend *backend = *state;
    const float logits[4] = {9, 8, 7, 6};
    const uint32_t mask = 0xe; // all but token 0
    const struct sample_bias biases[] = {{0, 100, 0}, {2, -INFINITY, 0}};
    const int32_t seen[] = {0, 1};
    const struct sample_extras extras = {
        .biases = biases, .masks = &mask, .counts = sample_counts_create(backend, 1, 4)};
    sample_counts_begin(backend, extras.counts, 1, seen, 2, 2);
    struct sample_row row = greedy_row;
    row.mask = 1;
    row.counts_slot = 1;
    row.bias_count = 2;
    struct sample_result result;
    sample_run(backend, logits, 4, &row, 1, &extras, &result);
    assert_int_equal(result.token_id, 1);
    row.repetition_penalty = 2; // 8 -> 4
    sample_run(backend, logits, 4, &row, 1, &extras, &result);
    assert_int_equal(result.token_id, 3);
    row.repetition_penalty = 0.01f; // would favour token 0, which is forbidden
    row.bias_count = 0;
    sample_run(backend, logits, 4, &row, 1, &extras, &result);
    assert_int_not_equal(result.token_id, 0);
    sample_counts_destroy(backend, extras.counts);
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

// A row whose mask counts for its log-probabilities: only what is allowed is listed, and weighs.
static void test_masked_logprobs(void **state) {
    enum { SIZE = 1500, NUM_TOP = 5, NUM_ALLOWED = 3 };
    static const uint32_t allowed[NUM_ALLOWED] = {4, 700, 1499};
    const struct sample_bias given[] = {{3, 0, 0}, {700, 0, 0}};
    float *logits = sample_random_logits(1, SIZE, 3);
    uint32_t mask[(SIZE + 31) / 32] = {0};
    double mass = 0, sum = 0;
    for (size_t i = 0; i < NUM_ALLOWED; i++) {
        mask[allowed[i] / 32] |= 1u << allowed[i] % 32;
        mass += exp((double)logits[allowed[i]]);
    }
    struct sample_row row = greedy_row;
    row.num_top = NUM_TOP;
    row.mask = row.masks_logprobs = 1;
    const struct sample_extras extras = {.masks = mask, .biases = given};
    struct sample_result result;
    sample_run(*state, logits, SIZE, &row, 1, &extras, &result);
    for (size_t i = 0; i < NUM_TOP; i++) {
        assert_int_equal(result.top_id[i] >= 0, i < NUM_ALLOWED);
        if (i >= NUM_ALLOWED) continue;
        double want = (double)logits[result.top_id[i]] - log(mass);
        assert_true(mask[result.top_id[i] / 32] >> result.top_id[i] % 32 & 1);
        assert_true(fabs((double)result.top_logprob[i] - want) < 1e-5);
        sum += exp((double)result.top_logprob[i]);
        if (result.top_id[i] == result.token_id) {
            assert_true(result.logprob == result.top_logprob[i]);
        }
    }
    assert_true(fabs(sum - 1) < 1e-5);
    row.num_given = 2;
    row.num_top = 2;
    sample_run(*state, logits, SIZE, &row, 1, &extras, &result);
    assert_int_equal(result.top_id[0], 3);
    assert_true(result.top_logprob[0] == -INFINITY);
    assert_true(fabs((double)result.top_logprob[1] - (double)logits[700] + log(mass)) < 1e-5);
    free(logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_biases_come_after_penalties),
        cmocka_unit_test(test_tokens_that_a_row_counts_besides),
        cmocka_unit_test(test_a_banned_token_never_comes),
        cmocka_unit_test(test_new_tokens_are_counted_in),
        cmocka_unit_test(test_a_row_without_a_token_counts_nothing),
        cmocka_unit_test(test_masks_leave_out_what_they_forbid),
        cmocka_unit_test(test_a_mask_of_one_token_gives_it),
        cmocka_unit_test(test_a_mask_that_forbids_everything_gives_no_token),
        cmocka_unit_test(test_masks_come_after_penalties_and_biases),
        cmocka_unit_test(test_masked_logprobs),
    };
    return cmocka_run_group_tests_name("sample_counts", tests, open_default, close_default);
}
