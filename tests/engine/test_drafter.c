// How many tokens are drafted, by what steps cost and how often drafts were right.
#include "engine/draft/drafter.h"

#include "support/cmocka_all.h"

static const struct draft_options adaptive = {
    .num_tokens = DRAFT_TOKENS_MAX, .is_adaptive = true, .min_len = 2, .max_len = 16};

// A time is known after two steps.
static void measure_alone(struct drafter *drafter, uint32_t num_seqs, double seconds) {
    for (int i = 0; i < 2; i++) drafter_measure(drafter, num_seqs, 0, seconds);
}

// The share of the drafts that were right is such that the steps cost nothing.
static void measure_drafts(struct drafter *drafter, uint32_t num_seqs, uint32_t num_drafts,
                           double seconds) {
    for (int i = 0; i < 2; i++) {
        drafter_measure(drafter, num_seqs, num_drafts, seconds);
        drafter->balance = 1;
    }
}

// A drafter that has measured steps: one without drafts of num_seqs rows takes `base` seconds, one
// with drafts that much for each row more.
static struct drafter measured(uint32_t num_seqs, double base, double row) {
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, 256);
    measure_alone(&drafter, num_seqs, base);
    for (uint32_t rows = 2; rows <= 256; rows *= 2) {
        if (rows <= num_seqs) continue;
        measure_drafts(&drafter, num_seqs, rows - num_seqs, base + row * (rows - num_seqs));
    }
    return drafter;
}

static uint32_t choose(struct drafter *drafter, uint32_t num_seqs, float right) {
    struct draft_offer offers[256];
    uint32_t sum = 0;
    for (uint32_t i = 0; i < num_seqs; i++) {
        offers[i] = (struct draft_offer){DRAFT_TOKENS_MAX, right};
    }
    uint32_t num = drafter_choose(drafter, num_seqs, offers, num_seqs, 0);
    for (uint32_t i = 0; i < num_seqs; i++) sum += offers[i].num_tokens;
    assert_int_equal(num, sum);
    return num;
}

static void test_nothing_before_a_step_was_measured(void **state) {
    (void)state;
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, 256);
    assert_int_equal(choose(&drafter, 1, 1), 0);
    measure_alone(&drafter, 1, 1);
    assert_int_equal(choose(&drafter, 1, 1), 1);
}

// No step is much longer than one that was measured: where rows are expensive, none is.
static void test_sizes_are_tried_one_after_the_other(void **state) {
    (void)state;
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, 256);
    measure_alone(&drafter, 1, 1);
    for (uint32_t num = 1; num <= DRAFT_TOKENS_MAX; num = 2 * num + 1) {
        assert_int_equal(choose(&drafter, 1, 1), num);
        measure_drafts(&drafter, 1, num, 1 + 0.01 * num);
    }
    drafter_init(&drafter, &adaptive, 256);
    measure_alone(&drafter, 1, 1);
    assert_int_equal(choose(&drafter, 1, 1), 1);
    measure_drafts(&drafter, 1, 1, 4);
    assert_int_equal(choose(&drafter, 1, 1), 0);
}

// Many rows are not thought to be cheaper than few: 128 are not tried where 64 do not pay.
static void test_many_rows_are_not_tried_on_trust(void **state) {
    (void)state;
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, 256);
    measure_alone(&drafter, 32, 1);
    assert_int_equal(choose(&drafter, 32, 0.7f), 32);
    measure_drafts(&drafter, 32, 32, 1.8);
    assert_int_equal(choose(&drafter, 32, 0.7f), 0);
}

// What a few rows more cost says what many cost: at 8 sequences a step of 10 rows is of the size of
// one of 16, and half a draft token right for each row is no gain where a row costs as much as one
// of a sequence.
static void test_rows_of_a_size_are_not_one_price(void **state) {
    (void)state;
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, 256);
    measure_alone(&drafter, 8, 8);
    measure_drafts(&drafter, 8, 2, 10);
    assert_int_equal(choose(&drafter, 8, 0.5f), 0);
}

static void test_likelier_drafts_are_longer(void **state) {
    (void)state;
    struct drafter drafter = measured(1, 1, 0.02);
    assert_int_equal(choose(&drafter, 1, 0.97f), 15);
    uint32_t some = choose(&drafter, 1, 0.5f);
    assert_true(some >= 3 && some < 15);
    assert_int_equal(choose(&drafter, 1, 0.01f), 0);
}

static void test_drafts_that_cost_too_much(void **state) {
    (void)state;
    struct drafter drafter = measured(1, 1, 1); // 16 rows take 16 times as long
    assert_int_equal(choose(&drafter, 1, 0.9f), 0);
    // What was slow is tried again some day.
    uint32_t num_steps = 0;
    while (!choose(&drafter, 1, 0.9f)) assert_true(++num_steps < 1000);
    assert_true(num_steps > 10);
}

static void test_many_sequences(void **state) {
    (void)state;
    struct drafter drafter = measured(32, 1, 0.01);
    assert_int_equal(choose(&drafter, 32, 0.9f), 224); // up to 256 rows
    drafter = measured(32, 1, 0.05);
    assert_int_equal(choose(&drafter, 32, 0.3f), 0);
    assert_int_equal(choose(&drafter, 64, 1), 0);
}

static void test_the_best_offers_are_taken(void **state) {
    (void)state;
    struct drafter drafter = measured(2, 1, 0.1);
    struct draft_offer offers[] = {{15, 0.2f}, {15, 0.95f}};
    assert_true(drafter_choose(&drafter, 2, offers, 2, 0) > 0);
    assert_true(offers[1].num_tokens >= 6 && offers[0].num_tokens <= 1);
}

// A likely token of a long draft comes before an unlikely one of a short draft.
static void test_the_best_tokens_are_drafted(void **state) {
    (void)state;
    struct drafter drafter = measured(4, 1, 0.001);
    drafter.rows_max = 8;
    struct draft_offer offers[] = {{4, 1}, {1, 0.5f}, {1, 0.5f}, {0, 0}};
    assert_int_equal(drafter_choose(&drafter, 4, offers, 4, 0), 4);
    assert_int_equal(offers[0].num_tokens, 4);
    struct draft_offer equal[] = {{3, 1}, {4, 0.5f}, {4, 0.5f}, {4, 0.01f}};
    assert_int_equal(drafter_choose(&drafter, 4, equal, 4, 0), 4);
    assert_int_equal(equal[0].num_tokens, 3);
    assert_int_equal(equal[1].num_tokens + equal[2].num_tokens, 1);
}

// Steps with short drafts say nothing about the price of long ones.
static void test_sizes_that_are_not_on_offer_are_not_doubted(void **state) {
    (void)state;
    struct drafter drafter = measured(1, 1, 1);
    for (int step = 0; step < 4000; step++) {
        struct draft_offer offer = {1, 0.9f};
        if (drafter_choose(&drafter, 1, &offer, 1, 0)) drafter_measure(&drafter, 1, 1, 2);
    }
    for (int size = 2; size <= 6; size++) assert_true(drafter.costs[size].doubt == 1);
}

// 5 drafts and their sequence are 6 rows, of the size of 8.
static void test_the_size_that_a_step_would_have_is_doubted(void **state) {
    (void)state;
    struct drafter drafter = measured(1, 1, 1);
    struct draft_offer offer = {5, 0.5f};
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 0), 0);
    for (int size = 1; size <= 3; size++) assert_true(drafter.costs[size].doubt < 1);
    for (int size = 4; size <= 6; size++) assert_true(drafter.costs[size].doubt == 1);
    // A try of a larger step costs more, so it comes later.
    assert_true(drafter.costs[3].doubt > drafter.costs[1].doubt);
}

// A step that must wait for pending tokens drafts only what comes behind them.
static void test_tokens_that_are_pending(void **state) {
    (void)state;
    struct drafter drafter = measured(1, 1, 0.3);
    struct draft_offer offer = {15, 0.5f};
    assert_true(drafter_choose(&drafter, 1, &offer, 1, 0) > 0);
    offer = (struct draft_offer){15, 0.5f};
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 1), 0);
}

// What steps lose that wait for nothing is paid by the next draft, and keeps others from waiting.
static void test_waiting_is_a_price_of_drafts(void **state) {
    (void)state;
    struct drafter drafter = measured(1, 1, 0.1);
    struct draft_offer offer = {1, 0.5f};
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 0), 1);
    for (int i = 0; i < 8; i++) drafter_measure_waiting(&drafter, 1, 1.3);
    drafter_measure(&drafter, 1, 1, 1.1);
    offer = (struct draft_offer){1, 0.5f};
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 0), 0);

    drafter = measured(1, 1, 0.1);
    offer = (struct draft_offer){2, 0.9f};
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 1), 2);
    for (int i = 0; i < 6; i++) drafter_measure_waiting(&drafter, 1, 1.3);
    offer = (struct draft_offer){2, 0.9f};
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 1), 0);
    // Some day it is tried again.
    for (int i = 0; i < 200; i++) measure_alone(&drafter, 1, 1);
    offer = (struct draft_offer){2, 0.9f};
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 1), 2);
}

// Drafts of many sequences whose records are lucky: fewer tokens are right than all records say.
static void test_overestimated_drafts(void **state) {
    (void)state;
    struct drafter drafter = measured(1, 1, 0.3);
    struct draft_offer offer = {4, 0.6f};
    assert_true(drafter_choose(&drafter, 1, &offer, 1, 0) > 0);
    for (int i = 0; i < 400; i++) {
        struct draft_record record = drafter.common;
        record.right[4] = 0.9f;
        drafter_learn(&drafter, &record, 12, 1, i % 5 < 2);
    }
    offer = (struct draft_offer){4, 0.6f};
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 0), 0);
}

// What drafts cost above what they bring is bounded; right ones pay it back.
static void test_losses_are_bounded(void **state) {
    (void)state;
    struct drafter drafter = measured(4, 1, 0.3);
    double lost = 0;
    uint32_t num_steps = 0;
    while (drafter_may_guess(&drafter)) { // one of two drafts of each step is right
        drafter_measure(&drafter, 4, 2, 1.6);
        drafter_gain(&drafter, 1);
        lost += 1.6 - 1.25;
        assert_true(++num_steps < 20);
    }
    assert_true(lost < 1.5 && num_steps > 1);
    num_steps = 0;
    for (; num_steps < 100 && !drafter_may_guess(&drafter); num_steps++) {
        drafter_measure(&drafter, 4, 0, 1);
    }
    assert_true(num_steps >= 2 && num_steps < 100);
    drafter_measure(&drafter, 4, 2, 1.6);
    drafter_gain(&drafter, 8);
    assert_true(drafter_may_guess(&drafter));
    // Waiting for drafts that do not come is such a loss too.
    for (int i = 0; i < 40; i++) drafter_measure_waiting(&drafter, 4, 1.2);
    assert_false(drafter_may_guess(&drafter));
    // An engine of a fixed number of drafts takes them whatever they cost.
    struct draft_options fixed = {.num_tokens = 4, .min_len = 3, .max_len = 16};
    drafter.options = fixed;
    assert_true(drafter_may_guess(&drafter));
}

// Drafts that are right for certain come whatever the balance is, where they pay, and when a step
// without them was measured.
static void test_certain_drafts(void **state) {
    (void)state;
    struct drafter drafter = measured(2, 1, 0.1);
    drafter.balance = -1;
    assert_false(drafter_may_guess(&drafter));
    assert_true(choose(&drafter, 2, 1) > 0);
    assert_int_equal(choose(&drafter, 3, 1), 0); // of 3 sequences none was measured
    drafter = measured(2, 1, 1);
    assert_int_equal(choose(&drafter, 2, 1), 0);
}

// A long good time does not save up for a long bad one.
static void test_gains_are_not_saved_up(void **state) {
    (void)state;
    struct drafter drafter = measured(1, 1, 0.3);
    for (int i = 0; i < 1000; i++) {
        drafter_measure(&drafter, 1, 4, 1.5);
        drafter_gain(&drafter, 4);
    }
    measure_alone(&drafter, 1, 1);
    uint32_t num_steps = 0;
    for (; num_steps < 100 && drafter_may_guess(&drafter); num_steps++) {
        drafter_measure(&drafter, 1, 4, 1.5);
    }
    assert_true(num_steps < 12);
}

// Contexts grow, so an old time without drafts is measured again; so is that of another number of
// sequences.
static void test_steps_without_drafts_are_measured_again(void **state) {
    (void)state;
    struct drafter drafter = measured(2, 1, 0.1);
    uint32_t num_steps = 0;
    for (; choose(&drafter, 2, 0.9f); num_steps++) {
        assert_true(num_steps < 300);
        drafter_measure(&drafter, 2, 6, 1.1);
        drafter_gain(&drafter, 6);
    }
    assert_true(num_steps > 100);
    drafter_measure(&drafter, 2, 0, 1.1); // much the same: one step is enough
    assert_true(choose(&drafter, 2, 0.9f) > 0);
    for (int i = 0; i < 300; i++) drafter_measure(&drafter, 1, 0, 1);
    drafter_measure(&drafter, 2, 0, 2);
    assert_int_equal(choose(&drafter, 2, 0.9f), 0);
    drafter_measure(&drafter, 2, 0, 1.9);
    assert_true(drafter.alone[2].seconds == 1.9 && choose(&drafter, 2, 0.9f) > 0);
    assert_int_equal(choose(&drafter, 3, 0.9f), 0);
}

// The machine has become faster: steps with drafts take less than those without took.
static void test_a_faster_machine_is_noticed(void **state) {
    (void)state;
    struct drafter drafter = measured(2, 1, 0.2);
    for (int i = 0; i < 20; i++) drafter_measure(&drafter, 2, 2, 0.5);
    assert_true(drafter.alone[2].seconds < 0.51);
}

// The first step of a size may load a kernel. It says nothing about the next ones.
static void test_one_slow_step_of_a_size_is_forgiven(void **state) {
    (void)state;
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, 256);
    drafter_measure(&drafter, 1, 0, 9);
    measure_alone(&drafter, 1, 1);
    assert_int_equal(choose(&drafter, 1, 0.9f), 1);
    drafter_measure(&drafter, 1, 1, 2.9);
    assert_int_equal(choose(&drafter, 1, 0.9f), 1);
    drafter_measure(&drafter, 1, 1, 1.1);
    assert_true(choose(&drafter, 1, 0.9f) > 1);
}

// A sequence whose drafts were not verified yet believes what others' showed, however few they are.
static void test_new_sequences_learn_from_others(void **state) {
    (void)state;
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, 256);
    struct draft_record fresh = {{0}}, own = {{0}};
    float before = drafter_right(&drafter, &fresh, 4);
    for (int i = 0; i < 8; i++) {
        struct draft_record other = {{0}};
        drafter_learn(&drafter, &other, 4, 4, 0);
    }
    assert_true(drafter_right(&drafter, &fresh, 4) < 0.6f * before);
    drafter_learn(&drafter, &own, 4, 4, 4);
    float held = drafter_right(&drafter, &own, 4);
    for (int i = 0; i < 8; i++) {
        struct draft_record other = {{0}};
        drafter_learn(&drafter, &other, 4, 4, 0);
    }
    assert_true(drafter_right(&drafter, &own, 4) == held);
}

static void test_records(void **state) {
    (void)state;
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, 256);
    struct draft_record record = drafter.common;
    float before = drafter_right(&drafter, &record, 2),
          longer = drafter_right(&drafter, &record, 12);
    assert_true(longer > before);
    drafter_learn(&drafter, &record, 2, 5, 0);
    assert_true(drafter_right(&drafter, &record, 2) < before);
    assert_true(drafter_right(&drafter, &record, 12) == longer); // of its own class
    for (int i = 0; i < 10; i++) drafter_learn(&drafter, &record, 2, 8, 8);
    assert_true(drafter_right(&drafter, &record, 2) > 0.95f);
    // Other sequences begin with what was learned, more slowly.
    assert_true(drafter_right(&drafter, &drafter.common, 2) > before);
    assert_true(drafter_right(&drafter, &drafter.common, 2) < drafter_right(&drafter, &record, 2));
}

static void test_a_fixed_number(void **state) {
    (void)state;
    const struct draft_options fixed = {.num_tokens = 4, .min_len = 3, .max_len = 16};
    struct drafter drafter;
    drafter_init(&drafter, &fixed, 8);
    struct draft_offer offers[] = {{4, 0.01f}, {0, 0}, {4, 0.01f}};
    assert_int_equal(drafter_choose(&drafter, 3, offers, 3, 0), 5); // up to 8 rows
    assert_int_equal(offers[0].num_tokens, 3);
    assert_int_equal(offers[2].num_tokens, 2);
}

// Where rows are short, each sequence gets as many, and the few left over go round.
static void test_rows_are_shared_evenly(void **state) {
    (void)state;
    static const struct draft_options options = {.num_tokens = 15, .min_len = 3, .max_len = 16};
    struct drafter drafter;
    struct draft_offer offers[30];
    uint32_t sums[30] = {0};
    drafter_init(&drafter, &options, 64);
    for (int step = 0; step < 15; step++) {
        for (uint32_t i = 0; i < 30; i++) offers[i] = (struct draft_offer){i == 7 ? 0 : 15, 1};
        assert_int_equal(drafter_choose(&drafter, 30, offers, 30, 0), 34);
        for (uint32_t i = 0; i < 30; i++) sums[i] += offers[i].num_tokens;
    }
    for (uint32_t i = 0; i < 30; i++) assert_in_range(sums[i], i == 7 ? 0 : 17, i == 7 ? 0 : 18);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_before_a_step_was_measured),
        cmocka_unit_test(test_rows_are_shared_evenly),
        cmocka_unit_test(test_sizes_are_tried_one_after_the_other),
        cmocka_unit_test(test_many_rows_are_not_tried_on_trust),
        cmocka_unit_test(test_rows_of_a_size_are_not_one_price),
        cmocka_unit_test(test_likelier_drafts_are_longer),
        cmocka_unit_test(test_drafts_that_cost_too_much),
        cmocka_unit_test(test_many_sequences),
        cmocka_unit_test(test_the_best_offers_are_taken),
        cmocka_unit_test(test_the_best_tokens_are_drafted),
        cmocka_unit_test(test_sizes_that_are_not_on_offer_are_not_doubted),
        cmocka_unit_test(test_the_size_that_a_step_would_have_is_doubted),
        cmocka_unit_test(test_waiting_is_a_price_of_drafts),
        cmocka_unit_test(test_overestimated_drafts),
        cmocka_unit_test(test_losses_are_bounded),
        cmocka_unit_test(test_certain_drafts),
        cmocka_unit_test(test_gains_are_not_saved_up),
        cmocka_unit_test(test_steps_without_drafts_are_measured_again),
        cmocka_unit_test(test_a_faster_machine_is_noticed),
        cmocka_unit_test(test_one_slow_step_of_a_size_is_forgiven),
        cmocka_unit_test(test_new_sequences_learn_from_others),
        cmocka_unit_test(test_tokens_that_are_pending),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_a_fixed_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
