// How many tokens are drafted, by what steps cost and how often drafts were right.
#include "engine/draft/drafter.h"

#include "support/cmocka_all.h"

static const struct draft_options adaptive = {
    .num_tokens = DRAFT_TOKENS_MAX, .is_adaptive = true, .min_len = 1, .max_len = 16};

// A drafter to which each token of a draft costs `token` steps, and waiting `wait`.
static struct drafter priced(double token, double wait) {
    const struct draft_costs costs = {.seqs_max = 63, .price = {.wait = wait, .token = token}};
    struct drafter drafter;
    drafter_init(&drafter, &adaptive, &costs, 256);
    return drafter;
}

// A draft whose tokens are as probable as each other.
static struct draft_offer offer_of(uint32_t num_tokens, float right) {
    struct draft_offer offer = {.num_tokens = num_tokens};
    for (int i = 0; i <= DRAFT_TOKENS_MAX; i++) offer.right[i] = right;
    return offer;
}

static uint32_t choose(struct drafter *drafter, uint32_t num_seqs, float right) {
    struct draft_offer offers[256];
    uint32_t sum = 0;
    for (uint32_t i = 0; i < num_seqs; i++) {
        offers[i] = offer_of(DRAFT_TOKENS_MAX, right);
    }
    uint32_t num = drafter_choose(drafter, num_seqs, offers, num_seqs, 0);
    for (uint32_t i = 0; i < num_seqs; i++) sum += offers[i].num_tokens;
    assert_int_equal(num, sum);
    return num;
}

static void test_likelier_drafts_are_longer(void **state) {
    (void)state;
    struct drafter drafter = priced(0.02, 0);
    assert_int_equal(choose(&drafter, 1, 0.97f), 15);
    uint32_t some = choose(&drafter, 1, 0.5f);
    assert_true(some >= 3 && some < 15);
    assert_int_equal(choose(&drafter, 1, 0.01f), 0);
}

static void test_drafts_that_cost_too_much(void **state) {
    (void)state;
    struct drafter drafter = priced(1, 0); // 16 rows take 16 times as long
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(choose(&drafter, 1, 0.9f), 0);
        drafter_count_step(&drafter, 1, 0, false);
    }
}

static void test_many_sequences(void **state) {
    (void)state;
    struct drafter drafter = priced(0.01, 0);
    assert_int_equal(choose(&drafter, 32, 0.9f), 224); // up to 256 rows
    drafter = priced(0.05, 0);
    assert_int_equal(choose(&drafter, 32, 0.3f), 0);
    assert_true(drafter_may_guess(&drafter, 63));
    assert_false(drafter_may_guess(&drafter, 64)); // by the table
    drafter.costs.seqs_max = 0;
    assert_false(drafter_may_guess(&drafter, 1));
}

// A step that waits costs more, so it must bring more.
static void test_waiting_has_a_price(void **state) {
    (void)state;
    struct drafter drafter = priced(0.1, 0.5);
    struct draft_offer offer = offer_of(2, 0.5f);
    assert_true(drafter_choose(&drafter, 1, &offer, 1, 0) > 0); // it has waited already
    offer = offer_of(2, 0.6f);
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 1), 0);
    drafter = priced(0.1, 0);
    offer = offer_of(2, 0.6f);
    assert_true(drafter_choose(&drafter, 1, &offer, 1, 1) > 0);
}

// What drafts cost above what they bring is bounded; right ones pay it back.
static void test_losses_are_bounded(void **state) {
    (void)state;
    struct drafter drafter = priced(0.3, 0.2);
    double lost = 0;
    uint32_t num_steps = 0;
    while (drafter_may_guess(&drafter, 4)) { // one of two drafts of each step is right
        drafter_count_step(&drafter, 4, 2, false);
        drafter_gain(&drafter, 1);
        lost += 0.6 - 0.25;
        assert_true(++num_steps < 20);
    }
    assert_true(lost < 4.5 && num_steps > 1);
    num_steps = 0;
    for (; num_steps < 100 && !drafter_may_guess(&drafter, 4); num_steps++) {
        drafter_count_step(&drafter, 4, 0, false);
    }
    assert_true(num_steps >= 2 && num_steps < 100);
    drafter_count_step(&drafter, 4, 2, false);
    drafter_gain(&drafter, 8);
    assert_true(drafter_may_guess(&drafter, 4));
    // Waiting for drafts that do not come is such a loss too.
    for (int i = 0; i < 40; i++) drafter_count_step(&drafter, 4, 0, true);
    assert_false(drafter_may_guess(&drafter, 4));
    // An engine of a fixed number of drafts takes them whatever they cost.
    struct draft_options fixed = {.num_tokens = 4, .min_len = 3, .max_len = 16};
    drafter.options = fixed;
    assert_true(drafter_may_guess(&drafter, 4));
}

// Short matches may take only a part of the balance; long ones take the rest.
static void test_a_part_is_kept_for_long_matches(void **state) {
    (void)state;
    struct drafter drafter = priced(0.1, 0);
    assert_true(drafter_may_follow(&drafter, 2) && drafter_may_follow(&drafter, 12));
    drafter.balance = 1;
    assert_false(drafter_may_follow(&drafter, 2));
    assert_true(drafter_may_follow(&drafter, 12) && drafter_may_guess(&drafter, 1));
}

// Drafts that were wrong, and are not run for that, are run again when they would have been right.
static void test_drafts_that_became_better_are_noticed(void **state) {
    (void)state;
    struct drafter drafter = priced(0.1, 0.3);
    struct draft_record record = {{0}};
    for (int i = 0; i < 200; i++) drafter_learn(&drafter, &record, 12, 4, 0);
    uint32_t num_seen = 0;
    for (;; num_seen++) {
        struct draft_offer offer = offer_of(8, drafter_right(&drafter, &record, 12));
        if (drafter_choose(&drafter, 1, &offer, 1, 1)) break;
        drafter_learn_seen(&drafter, &record, 12, true);
        assert_true(num_seen < 400);
    }
    assert_true(num_seen > 8);
}

// Drafts that are right for certain come whatever the balance and seqs_max are, where they pay.
static void test_certain_drafts(void **state) {
    (void)state;
    struct drafter drafter = priced(0.1, 0);
    drafter.balance = -1;
    drafter.costs.seqs_max = 1;
    assert_false(drafter_may_guess(&drafter, 2));
    assert_true(choose(&drafter, 2, 1) > 0);
    drafter = priced(1, 0);
    assert_int_equal(choose(&drafter, 2, 1), 0);
}

// A long good time does not save up for a long bad one.
static void test_gains_are_not_saved_up(void **state) {
    (void)state;
    struct drafter drafter = priced(0.125, 0);
    for (int i = 0; i < 1000; i++) {
        drafter_count_step(&drafter, 1, 4, false);
        drafter_gain(&drafter, 4);
    }
    uint32_t num_steps = 0;
    for (; num_steps < 100 && drafter_may_guess(&drafter, 1); num_steps++) {
        drafter_count_step(&drafter, 1, 4, false);
    }
    assert_true(num_steps < 20); // each loses half a step
}

static void test_the_best_offers_are_taken(void **state) {
    (void)state;
    struct drafter drafter = priced(0.1, 0);
    struct draft_offer offers[] = {offer_of(15, 0.2f), offer_of(15, 0.95f)};
    assert_true(drafter_choose(&drafter, 2, offers, 2, 0) > 0);
    assert_true(offers[1].num_tokens >= 6 && offers[0].num_tokens <= 1);
}

// A likely token of a long draft comes before an unlikely one of a short draft.
static void test_the_best_tokens_are_drafted(void **state) {
    (void)state;
    struct drafter drafter = priced(0.001, 0);
    drafter.rows_max = 8;
    struct draft_offer offers[] = {offer_of(4, 1), offer_of(1, 0.5f), offer_of(1, 0.5f),
                                   offer_of(0, 0)};
    assert_int_equal(drafter_choose(&drafter, 4, offers, 4, 0), 4);
    assert_int_equal(offers[0].num_tokens, 4);
    struct draft_offer equal[] = {offer_of(3, 1), offer_of(4, 0.5f), offer_of(4, 0.5f),
                                  offer_of(4, 0.01f)};
    assert_int_equal(drafter_choose(&drafter, 4, equal, 4, 0), 4);
    assert_int_equal(equal[0].num_tokens, 3);
    assert_int_equal(equal[1].num_tokens + equal[2].num_tokens, 1);
}

// A step that must wait for pending tokens drafts only what comes behind them.
static void test_tokens_that_are_pending(void **state) {
    (void)state;
    struct drafter drafter = priced(0.3, 0);
    struct draft_offer offer = offer_of(15, 0.5f);
    assert_true(drafter_choose(&drafter, 1, &offer, 1, 0) > 0);
    offer = offer_of(15, 0.5f);
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 1), 0);
}

// Drafts of many sequences whose records are lucky: fewer tokens are right than all records say.
static void test_overestimated_drafts(void **state) {
    (void)state;
    struct drafter drafter = priced(0.3, 0);
    struct draft_offer offer = offer_of(4, 0.6f);
    assert_true(drafter_choose(&drafter, 1, &offer, 1, 0) > 0);
    for (int i = 0; i < 400; i++) {
        struct draft_record record = drafter.common;
        record.right[DRAFT_CLASSES - 1] = 0.9f;
        drafter_learn(&drafter, &record, 12, 1, i % 5 < 2);
    }
    offer = offer_of(4, 0.6f);
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 0), 0);
    // While drafts are seen only, that is forgotten slowly.
    struct draft_record record = drafter.common;
    for (int i = 0; i < 100; i++) drafter_learn_seen(&drafter, &record, 2, i % 5 < 2);
    offer = offer_of(4, 0.6f);
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 0), 0);
    for (int i = 0; i < 900; i++) drafter_learn_seen(&drafter, &record, 2, i % 5 < 2);
    offer = offer_of(4, 0.6f);
    assert_true(drafter_choose(&drafter, 1, &offer, 1, 0) > 0);
}

// Drafts that are right more often than expected do not make others likelier than they are.
static void test_underestimated_drafts(void **state) {
    (void)state;
    struct drafter drafter = priced(0.4, 0);
    for (int i = 0; i < 400; i++) {
        struct draft_record record = drafter.common;
        record.right[DRAFT_CLASSES - 1] = 0.3f;
        drafter_learn(&drafter, &record, 12, 4, 4);
    }
    struct draft_offer offer = offer_of(4, 0.3f);
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 0), 0);
}

// A sequence whose drafts were not verified yet believes what others' showed, however few they are.
static void test_new_sequences_learn_from_others(void **state) {
    (void)state;
    struct drafter drafter = priced(0.1, 0);
    struct draft_record fresh = {{0}}, own = {{0}};
    float before = drafter_right(&drafter, &fresh, 4);
    for (int i = 0; i < 16; i++) {
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
    // Also drafts that were seen and not run.
    before = drafter_right(&drafter, &fresh, 12);
    for (int i = 0; i < 64; i++) {
        struct draft_record other = {{0}};
        drafter_learn_seen(&drafter, &other, 12, false);
    }
    assert_true(drafter_right(&drafter, &fresh, 12) < 0.6f * before);
}

static void test_records(void **state) {
    (void)state;
    struct drafter drafter = priced(0.1, 0);
    struct draft_record record = drafter.common;
    float before = drafter_right(&drafter, &record, 2),
          longer = drafter_right(&drafter, &record, 12);
    assert_true(longer > before);
    drafter_learn(&drafter, &record, 2, 5, 0);
    assert_true(drafter_right(&drafter, &record, 2) < before);
    assert_true(drafter_right(&drafter, &record, 12) == longer); // of its own class
    for (int i = 0; i < 60; i++) drafter_learn(&drafter, &record, 2, 8, 8);
    assert_true(drafter_right(&drafter, &record, 2) > 0.95f);
    // Other sequences begin with what was learned, more slowly.
    assert_true(drafter_right(&drafter, &drafter.common, 2) > before);
    assert_true(drafter_right(&drafter, &drafter.common, 2) < drafter_right(&drafter, &record, 2));
}

// Each right token of a draft makes the match longer, so the next one is of that length's class.
static void test_right_tokens_make_the_match_longer(void **state) {
    (void)state;
    struct drafter drafter = priced(0.1, 0);
    struct draft_record record = {{0}};
    for (int i = 0; i < 50; i++) drafter_learn(&drafter, &record, 1, 4, 2);
    assert_true(drafter_right(&drafter, &record, 1) > 0.9f);
    assert_true(drafter_right(&drafter, &record, 2) > 0.9f);
    assert_true(drafter_right(&drafter, &record, 3) < 0.1f);
    assert_true(drafter_right(&drafter, &record, 4) == drafter_right(&drafter, &drafter.common, 4));
    struct draft_offer offer = drafter_offer(&drafter, &record, 1, 14, 1);
    assert_true(offer.right[0] == drafter_right(&drafter, &record, 1));
    assert_true(offer.right[1] == drafter_right(&drafter, &record, 2));
    assert_true(offer.right[14] == drafter_right(&drafter, &record, 15));
    // The two likely ones, up to the next size of a step.
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 0), 3);
    // A step that skips the first one has the second.
    offer = drafter_offer(&drafter, &record, 1, 14, 1);
    assert_int_equal(drafter_choose(&drafter, 1, &offer, 1, 1), 1);
}

static void test_a_fixed_number(void **state) {
    (void)state;
    const struct draft_options fixed = {.num_tokens = 4, .min_len = 3, .max_len = 16};
    struct drafter drafter;
    drafter_init(&drafter, &fixed, &(struct draft_costs){0}, 8);
    struct draft_offer offers[] = {offer_of(4, 0.01f), offer_of(0, 0), offer_of(4, 0.01f)};
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
    drafter_init(&drafter, &options, &(struct draft_costs){0}, 64);
    for (int step = 0; step < 15; step++) {
        for (uint32_t i = 0; i < 30; i++) offers[i] = offer_of(i == 7 ? 0 : 15, 1);
        assert_int_equal(drafter_choose(&drafter, 30, offers, 30, 0), 34);
        for (uint32_t i = 0; i < 30; i++) sums[i] += offers[i].num_tokens;
    }
    for (uint32_t i = 0; i < 30; i++) assert_in_range(sums[i], i == 7 ? 0 : 17, i == 7 ? 0 : 18);
}

// Where rows may cost as much as steps, nothing is guessed.
static void test_machines_on_which_guesses_may_not_pay(void **state) {
    (void)state;
    const struct draft_machine cpu = {.has_cheap_rows = true, .num_parameters = 8000000000};
    struct draft_machine other = cpu;
    assert_int_equal(draft_costs_of(&cpu).seqs_max, 4);
    other.is_packed = true;
    assert_int_equal(draft_costs_of(&other).seqs_max, 2);
    other.has_queue = true;
    assert_int_equal(draft_costs_of(&other).seqs_max, 0);
    other.is_packed = false;
    assert_int_equal(draft_costs_of(&other).seqs_max, 32);
    other.num_ranks = 2;
    assert_int_equal(draft_costs_of(&other).seqs_max, 0);
    other.num_ranks = 1;
    other.num_parameters = 600000000;
    assert_int_equal(draft_costs_of(&other).seqs_max, 8);
    other.num_parameters = 500000000;
    assert_int_equal(draft_costs_of(&other).seqs_max, 0);
    other = cpu;
    other.has_experts = true;
    assert_int_equal(draft_costs_of(&other).seqs_max, 0);
    other = cpu;
    other.has_cheap_rows = false;
    assert_int_equal(draft_costs_of(&other).seqs_max, 0);
}

// Waiting takes as long for a large model as for a small one, and a row of many is a small share.
static void test_costs_are_shares_of_a_step(void **state) {
    (void)state;
    const struct draft_machine small = {.has_queue = true, .num_parameters = 600000000},
                               large = {.has_queue = true, .num_parameters = 8000000000};
    const struct draft_costs costs = draft_costs_of(&small), less = draft_costs_of(&large);
    assert_true(draft_costs_more(&costs, 1, 0, false) == 0);
    assert_true(draft_costs_more(&costs, 1, 0, true) > 5 * draft_costs_more(&less, 1, 0, true));
    assert_true(draft_costs_more(&costs, 8, 8, false) < draft_costs_more(&costs, 1, 8, false));
    // A sequence more adds little to a large model's step.
    assert_true(draft_costs_more(&less, 8, 8, false) > 0.6 * draft_costs_more(&less, 1, 8, false));
    assert_true(draft_costs_more(&costs, 1, 8, true) > draft_costs_more(&costs, 1, 8, false));
    struct draft_machine apart = small;
    apart.prepares_apart = true;
    const struct draft_costs more = draft_costs_of(&apart);
    assert_true(draft_costs_more(&more, 1, 1, false) > draft_costs_more(&costs, 1, 1, false) + 0.2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_shared_evenly),
        cmocka_unit_test(test_likelier_drafts_are_longer),
        cmocka_unit_test(test_drafts_that_cost_too_much),
        cmocka_unit_test(test_many_sequences),
        cmocka_unit_test(test_waiting_has_a_price),
        cmocka_unit_test(test_losses_are_bounded),
        cmocka_unit_test(test_a_part_is_kept_for_long_matches),
        cmocka_unit_test(test_drafts_that_became_better_are_noticed),
        cmocka_unit_test(test_machines_on_which_guesses_may_not_pay),
        cmocka_unit_test(test_costs_are_shares_of_a_step),
        cmocka_unit_test(test_certain_drafts),
        cmocka_unit_test(test_gains_are_not_saved_up),
        cmocka_unit_test(test_the_best_offers_are_taken),
        cmocka_unit_test(test_the_best_tokens_are_drafted),
        cmocka_unit_test(test_overestimated_drafts),
        cmocka_unit_test(test_underestimated_drafts),
        cmocka_unit_test(test_new_sequences_learn_from_others),
        cmocka_unit_test(test_tokens_that_are_pending),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_right_tokens_make_the_match_longer),
        cmocka_unit_test(test_a_fixed_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
