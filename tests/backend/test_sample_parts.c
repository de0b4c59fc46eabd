// The parts of sampling. The random numbers are Philox's. The weights of every ISA have the same
// bits and are near exp. The selection finds the same boundary as a sort.
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/sample/philox.h"
#include "backend/cpu/sample/sample_select.h"
#include "backend/cpu/sample/sample_weigh.h"
#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { SIZE_MAX_TESTED = 6000, NUM_SHAPES = 7 };

static uint32_t random_bits(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static void test_philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } cases[] = {
        // The authors' known answers (Random123, kat_vectors).
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t out[4];
        philox4x32_10(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].out, sizeof out);
    }
}

static void test_philox_uniform_is_open_and_even(void **state) {
    (void)state;
    enum { DRAWS = 100000, BINS = 100 };
    uint32_t counts[BINS] = {0};
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        double u = philox_uniform(5, 7, draw);
        assert_true(u > 0 && u < 1);
        counts[(int)(u * BINS)]++;
    }
    double chi2 = 0, expected = (double)DRAWS / BINS;
    for (int i = 0; i < BINS; i++) {
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    assert_true(chi2 < 150); // 99 degrees of freedom: 1 in 2000
    assert_true(philox_uniform(5, 7, 1) != philox_uniform(7, 5, 1));
    assert_true(philox_uniform(5, 7, 1) != philox_uniform(5, 8, 1));
}

static void test_weights_are_near_exp(void **state) {
    (void)state;
    float logits[1024], weights[1024];
    struct sample_weigh how = {.max = 3, .inverse_temperature = 1, .weight_min = SAMPLE_WEIGHT_MIN};
    for (int part = 0; part < 100; part++) {
        for (int i = 0; i < 1024; i++) logits[i] = 3 - 0.00084f * (float)(part * 1024 + i);
        double want_sum = 0;
        double sum = sample_weigh_scalar(logits, weights, 1024, &how);
        for (int i = 0; i < 1024; i++) {
            double want = exp((double)(logits[i] - 3));
            want_sum += want;
            assert_true(fabs((double)weights[i] - want) <= 2.4e-7 * want);
        }
        assert_true(fabs(sum - want_sum) <= 1e-5 * want_sum);
    }
}

static void test_weights_of_odd_logits(void **state) {
    (void)state;
    const float logits[6] = {5, NAN, INFINITY, -INFINITY, -82.5f, -81.5f};
    float weights[6];
    struct sample_weigh how = {.max = 5, .inverse_temperature = 1, .weight_min = SAMPLE_WEIGHT_MIN};
    sample_weigh_scalar(logits, weights, 6, &how);
    assert_true(weights[0] == 1.0f);
    assert_true(weights[1] == 0.0f);
    assert_true(weights[2] == 1.0f);
    assert_true(weights[3] == 0.0f);
    assert_true(weights[4] == 0.0f); // exp(-87.5)
    assert_true(weights[5] > 0.0f);
    how.weight_min = 1.0f;
    sample_weigh_scalar(logits, weights, 6, &how);
    assert_true(weights[0] == 1.0f);
    assert_true(weights[5] == 0.0f);
}

static void test_every_isa_weighs_alike(void **state) {
    (void)state;
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    uint64_t random = 1;
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        if (!table[isa].is_here) {
            print_message("%s: not on this machine, skipped\n", table[isa].name);
            continue;
        }
        for (uint32_t count = 0; count < 200; count++) {
            float logits[200], want[200 + 8], got[200 + 8];
            for (uint32_t i = 0; i < count; i++) {
                logits[i] = (float)random_bits(&random) * 0x1p-32f * 120.0f - 110.0f;
                if (i % 17 == 5) logits[i] = NAN;
                if (i % 19 == 6) logits[i] = i % 2 ? INFINITY : -INFINITY;
            }
            struct sample_weigh how = {10, 1.7f, count % 2 ? SAMPLE_WEIGHT_MIN : 0.01f};
            memset(want, 0x5a, sizeof want);
            memset(got, 0x5a, sizeof got);
            double want_sum = sample_weigh_scalar(logits, want, count, &how);
            double sum = table[isa].kernels.sample_weigh(logits, got, count, &how);
            assert_memory_equal(&sum, &want_sum, sizeof sum);
            assert_memory_equal(got, want, sizeof got); // and the guard bytes after them
        }
    }
}

static void test_every_isa_finds_the_largest(void **state) {
    (void)state;
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        if (!table[isa].is_here) continue;
        float logits[101];
        for (uint32_t count = 0; count <= 100; count++) {
            for (uint32_t i = 0; i <= count; i++) logits[i] = i % 3 ? NAN : -INFINITY;
            logits[count] = 5; // the guard: must not be read as one of them
            assert_true(table[isa].kernels.sample_max(logits, count) == -INFINITY);
            for (uint32_t at = 0; at < count; at++) {
                float before = logits[at];
                logits[at] = -7;
                assert_true(table[isa].kernels.sample_max(logits, count) == -7);
                logits[at] = before;
            }
        }
    }
}

static void test_keys_order_logits_and_ids(void **state) {
    (void)state;
    const float descending[] = {INFINITY, 1e30f, 2, 1, 1e-40f, 0, -1e-40f, -1, -1e30f, -INFINITY};
    for (uint32_t i = 0; i < ARRAY_LEN(descending); i++) {
        uint64_t key = sample_key(descending[i], 7);
        assert_true(sample_key_logit(key) == descending[i]);
        assert_int_equal(sample_key_id(key), 7);
        assert_true(key < sample_key(descending[i], 8));
        if (i) assert_true(sample_key(descending[i - 1], UINT32_MAX) < key);
    }
    assert_true(sample_key(sample_clean(-0.0f), 1) == sample_key(0.0f, 1));
    assert_true(isinf(sample_clean(NAN)) && sample_clean(NAN) < 0);
    assert_true(sample_clean(INFINITY) == FLT_MAX);
}

static int compare_keys(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static float shaped_logit(int shape, uint32_t i, uint64_t *random) {
    switch (shape) {
    case 0:
        return 0; // all equal
    case 1:
        return (float)(random_bits(random) % 3); // three values
    case 2:
        return (float)i; // ascending
    case 3:
        return -(float)i; // descending
    case 4:
        return ldexpf(1, (int)(i % 250) - 125); // all exponents
    case 5:
        return i ? -1e30f : 1e30f; // one outlier
    default:
        return (float)random_bits(random) * 0x1p-30f - 2.0f; // even
    }
}

struct selection {
    uint64_t keys[SIZE_MAX_TESTED], sorted[SIZE_MAX_TESTED], spare[SIZE_MAX_TESTED];
    float weights[SIZE_MAX_TESTED]; // whole numbers: their sums are exact
    uint32_t n;
};

static void expect_end(struct selection *s, const float *weights, double target, uint64_t want) {
    assert_true(sample_prefix_end(s->keys, s->spare, s->n, weights, target) == want);
}

static void check_selection(struct selection *s, int shape, uint32_t n, uint64_t *random) {
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        s->keys[i] = sample_key(shaped_logit(shape, i, random), i);
        s->weights[i] = (float)(random_bits(random) % 1024);
    }
    memcpy(s->sorted, s->keys, n * sizeof *s->keys);
    qsort(s->sorted, n, sizeof *s->sorted, compare_keys);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        float weight = s->weights[sample_key_id(s->sorted[i])];
        sum += (double)weight;
        if (n > 1000 && i % 89) continue;
        expect_end(s, NULL, i + 1.0, s->sorted[i]);
        if (!(weight > 0)) continue;
        expect_end(s, s->weights, sum, s->sorted[i]);
        expect_end(s, s->weights, sum - 0.5, s->sorted[i]);
    }
    expect_end(s, NULL, n + 10.0, s->sorted[n - 1]);
}

static void test_selection_agrees_with_sorting(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 31, 32, 33, 100, 1000, SIZE_MAX_TESTED};
    struct selection *selection = malloc(sizeof *selection);
    assert_non_null(selection);
    uint64_t random = 99;
    for (int shape = 0; shape < NUM_SHAPES; shape++) {
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
            check_selection(selection, shape, sizes[s], &random);
        }
    }
    free(selection);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_philox_uniform_is_open_and_even),
        cmocka_unit_test(test_weights_are_near_exp),
        cmocka_unit_test(test_weights_of_odd_logits),
        cmocka_unit_test(test_every_isa_weighs_alike),
        cmocka_unit_test(test_every_isa_finds_the_largest),
        cmocka_unit_test(test_keys_order_logits_and_ids),
        cmocka_unit_test(test_selection_agrees_with_sorting),
    };
    return cmocka_run_group_tests_name("sample_parts", tests, NULL, NULL);
}
