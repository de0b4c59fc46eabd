// The choice of experts, on every instruction set: compared with double precision, also with ties
// and with rows of NaN or inf.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops_util.h"

static void route(struct backend *backend, float *logits, int32_t *ids, float *weights,
                  uint32_t num_tokens, uint32_t num_experts, uint32_t top_k, bool normalize) {
    struct route_args args = {.logits = logits,
                              .ids = ids,
                              .weights = weights,
                              .num_tokens = num_tokens,
                              .num_experts = num_experts,
                              .top_k = top_k,
                              .normalize = normalize,
                              .factor = 1};
    backend->moe->route(backend, &args);
}

// The oracle's choice for one token.
static void choose(const float *logits, uint32_t num_experts, uint32_t top_k, bool normalize,
                   int32_t *ids, double *weights) {
    double sum = 0, chosen = 0;
    for (uint32_t i = 0; i < num_experts; i++) sum += exp((double)logits[i]);
    for (uint32_t slot = 0; slot < top_k; slot++) {
        int32_t best = -1;
        for (int32_t i = 0; i < (int32_t)num_experts; i++) {
            bool taken = false;
            for (uint32_t k = 0; k < slot; k++) taken = taken || ids[k] == i;
            if (!taken && (best < 0 || logits[i] > logits[best])) best = i;
        }
        ids[slot] = best;
        weights[slot] = exp((double)logits[best]) / sum;
        chosen += weights[slot];
    }
    for (uint32_t slot = 0; normalize && slot < top_k; slot++) weights[slot] /= chosen;
}

static void check_route(const char *isa, uint32_t num_tokens, uint32_t num_experts, uint32_t top_k,
                        bool normalize) {
    struct backend *backend = ops_backend(isa, 2, DTYPE_BF16);
    size_t count = (size_t)num_tokens * num_experts, pairs = (size_t)num_tokens * top_k;
    float *logits = ops_guard_alloc(count), *weights = ops_guard_alloc(pairs);
    float *ids_memory = ops_guard_alloc(pairs);
    int32_t *ids = (int32_t *)(void *)ids_memory;
    float *copy = malloc(count * sizeof *copy);
    int32_t *want_ids = malloc(top_k * sizeof *want_ids);
    double *want = malloc(top_k * sizeof *want);
    struct ops_rng rng = ops_rng_of(num_tokens * 1000 + num_experts);
    for (size_t i = 0; i < count; i++) copy[i] = logits[i] = 8 * ops_rng_float(&rng);
    route(backend, logits, ids, weights, num_tokens, num_experts, top_k, normalize);
    for (uint32_t token = 0; token < num_tokens; token++) {
        choose(copy + (size_t)token * num_experts, num_experts, top_k, normalize, want_ids, want);
        for (uint32_t slot = 0; slot < top_k; slot++) {
            size_t pair = (size_t)token * top_k + slot;
            assert_int_equal(ids[pair], want_ids[slot]);
            if (!(fabs((double)weights[pair] - want[slot]) <= 1e-6 * want[slot])) {
                fail_msg("token %u slot %u: %.9g, want %.9g", token, slot, (double)weights[pair],
                         want[slot]);
            }
        }
    }
    ops_guard_free(logits, count);
    ops_guard_free(weights, pairs);
    ops_guard_free(ids_memory, pairs);
    free(copy);
    free(want_ids);
    free(want);
    backend_destroy(backend);
}

static void test_route_matches(void **state) {
    check_route(*state, 1, 1, 1, true);
    check_route(*state, 1, 128, 8, true);
    check_route(*state, 3, 7, 7, false);
    check_route(*state, 200, 60, 4, false);
    check_route(*state, 65, 33, 5, true);
    check_route(*state, 500, 2, 1, true);
}

static void test_ties_take_the_smaller_id(void **state) {
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
    enum { EXPERTS = 6, TOP = 4 };
    float logits[2 * EXPERTS] = {1, 3, 1, 3, 1, 0, -2, -2, -2, -2, -2, -2};
    int32_t ids[2 * TOP];
    float weights[2 * TOP];
    route(backend, logits, ids, weights, 2, EXPERTS, TOP, true);
    const int32_t want[2 * TOP] = {1, 3, 0, 2, 0, 1, 2, 3};
    assert_memory_equal(ids, want, sizeof want);
    assert_true(weights[0] == weights[1] && weights[2] == weights[3] && weights[4] == 0.25f);
    backend_destroy(backend);
}

// Probabilities 1/2, 1/4, 1/8 and 1/8 with a bias of the third: it is chosen first, and its weight
// is its probability.
static void test_probabilities_are_chosen_with_their_bias(void **state) {
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
    enum { EXPERTS = 4, TOP = 2 };
    const float bias[EXPERTS] = {0, 0, 0.5f, 0};
    float logits[EXPERTS] = {logf(4), logf(2), 0, 0}, weights[TOP];
    int32_t ids[TOP];
    backend->moe->route(backend, &(struct route_args){.logits = logits,
                                                      .bias = bias,
                                                      .ids = ids,
                                                      .weights = weights,
                                                      .num_tokens = 1,
                                                      .num_experts = EXPERTS,
                                                      .top_k = TOP,
                                                      .factor = 1});
    assert_true(ids[0] == 2 && ids[1] == 0);
    assert_float_equal(weights[0], 0.125f, 1e-6f);
    assert_float_equal(weights[1], 0.5f, 1e-6f);
    backend_destroy(backend);
}

// Groups of three experts. Of V3's kind (the sum of the two best, with their bias) the second and
// the third group are best; of V2's (the best one) the first and the third.
static void test_experts_are_chosen_in_the_best_groups(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { TOKENS = 2, EXPERTS = 9, TOP = 4, GROUPS = 3 };
    static const float token[EXPERTS] = {3, -5, -5, 1, 0.5f, -9, 1.5f, 1, -1};
    static const float bias[EXPERTS] = {0, 0, 0, 0, 0, 0.25f, 0, 0, 0};
    static const int32_t want[2][TOP] = {{0, 6, 7, 8}, {6, 3, 7, 4}};
    for (uint32_t best = 1; best <= 2; best++) {
        float logits[TOKENS * EXPERTS], weights[TOKENS * TOP];
        int32_t ids[TOKENS * TOP];
        for (int i = 0; i < TOKENS * EXPERTS; i++) logits[i] = i < EXPERTS ? token[i] : NAN;
        backend->moe->route(backend, &(struct route_args){.logits = logits,
                                                          .bias = best == 2 ? bias : NULL,
                                                          .ids = ids,
                                                          .weights = weights,
                                                          .num_tokens = TOKENS,
                                                          .num_experts = EXPERTS,
                                                          .top_k = TOP,
                                                          .num_groups = GROUPS,
                                                          .top_groups = 2,
                                                          .group_best = best,
                                                          .is_sigmoid = true,
                                                          .factor = 2});
        assert_memory_equal(ids, want[best - 1], sizeof want[0]);
        for (int k = 0; k < TOP; k++) {
            double score = 2 / (1 + exp(-(double)token[ids[k]]));
            assert_true(fabs((double)weights[k] - score) <= 1e-6);
            assert_int_equal(ids[TOP + k], k); // NaN: any that are distinct
        }
    }
    backend_destroy(backend);
}

// The largest score + bias is chosen, and the weight is the score. A bias as large as that of the
// last expert has it chosen first, though its score is the smallest.
static void test_sigmoids_are_chosen_with_their_bias(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { TOKENS = 3, EXPERTS = 5, TOP = 3 };
    const float bias[EXPERTS] = {0, -0.5f, 0.125f, 0, 2};
    float logits[TOKENS][EXPERTS] = {
        {0.5f, 3, 0.25f, -1, -4}, {-200, -200, -200, -200, -200}, {INFINITY, 0, 0, 0, -INFINITY}};
    const int32_t want_ids[TOKENS][TOP] = {{4, 2, 0}, {4, 2, 0}, {4, 0, 2}};
    const double want_scores[TOKENS][TOP] = {
        {1 / (1 + exp(4)), 1 / (1 + exp(-0.25)), 1 / (1 + exp(-0.5))}, {0, 0, 0}, {0, 1, 0.5}};
    for (int normalize = 0; normalize < 2; normalize++) {
        float copy[TOKENS][EXPERTS], weights[TOKENS][TOP];
        int32_t ids[TOKENS][TOP];
        memcpy(copy, logits, sizeof copy);
        backend->moe->route(backend, &(struct route_args){.logits = &copy[0][0],
                                                          .bias = bias,
                                                          .ids = &ids[0][0],
                                                          .weights = &weights[0][0],
                                                          .num_tokens = TOKENS,
                                                          .num_experts = EXPERTS,
                                                          .top_k = TOP,
                                                          .is_sigmoid = true,
                                                          .normalize = normalize != 0,
                                                          .factor = 2.5f});
        assert_memory_equal(ids, want_ids, sizeof ids);
        for (int t = 0; t < TOKENS; t++) {
            const double *score = want_scores[t];
            double sum = score[0] + score[1] + score[2];
            for (int k = 0; k < TOP; k++) {
                double want = 2.5 * score[k] / (normalize && sum > 0 ? sum : 1);
                assert_true(fabs((double)weights[t][k] - want) <= 1e-6 * want);
            }
        }
    }
    backend_destroy(backend);
}

// Whatever the logits are, the ids are valid, and other rows do not change.
static void test_route_of_non_numbers(void **state) {
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    enum { EXPERTS = 5, TOP = 3, TOKENS = 5 };
    const float bad[TOKENS][EXPERTS] = {
        {1, 2, 3, 4, 5},
        {NAN, NAN, NAN, NAN, NAN},
        {1, INFINITY, 0, NAN, INFINITY},
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY},
        {1, 2, 3, 4, 5},
    };
    float logits[TOKENS][EXPERTS], weights[TOKENS][TOP];
    int32_t ids[TOKENS][TOP];
    memcpy(logits, bad, sizeof bad);
    route(backend, &logits[0][0], &ids[0][0], &weights[0][0], TOKENS, EXPERTS, TOP, true);
    for (int token = 0; token < TOKENS; token++) {
        for (int slot = 0; slot < TOP; slot++) {
            assert_in_range(ids[token][slot], 0, EXPERTS - 1);
            for (int k = 0; k < slot; k++) assert_int_not_equal(ids[token][slot], ids[token][k]);
        }
    }
    assert_true(isnan(weights[1][0]) && isnan(weights[2][0]) && isnan(weights[3][0]));
    assert_memory_equal(ids[4], ids[0], sizeof ids[0]);
    assert_memory_equal(weights[4], weights[0], sizeof weights[0]);
    assert_int_equal(ids[0][0], 4);
    backend_destroy(backend);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"routing matches double precision", test_route_matches, ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"ties take the smaller id", test_ties_take_the_smaller_id, ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"probabilities are chosen with their bias", test_probabilities_are_chosen_with_their_bias,
         ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"experts are chosen in the best groups", test_experts_are_chosen_in_the_best_groups,
         ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"sigmoids are chosen with their bias", test_sigmoids_are_chosen_with_their_bias,
         ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"routing of non-numbers", test_route_of_non_numbers, ISA_FLOAT_WEIGHTS | ISA_ROWS},
    };
    return ops_run("route", cases, ARRAY_LEN(cases));
}
