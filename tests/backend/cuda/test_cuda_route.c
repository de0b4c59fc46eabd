// Compares the choice of experts on a CUDA device with the scalar CPU kernels: ties, and rows that
// are not numbers.
#include <math.h>
#include <stdlib.h>

#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"

static struct route_args route_shape(uint32_t num_tokens, uint32_t num_experts, uint32_t top_k,
                                     bool normalize) {
    return (struct route_args){.num_tokens = num_tokens,
                               .num_experts = num_experts,
                               .top_k = top_k,
                               .normalize = normalize,
                               .factor = 1};
}

// Runs route for the host's logits. `args` has the shape.
static void route(struct backend *backend, struct route_args args, const float *logits,
                  int32_t *ids, float *weights) {
    size_t pairs = (size_t)args.num_tokens * args.top_k;
    struct tensor l =
        tensor_raw(backend, logits, (size_t)args.num_tokens * args.num_experts * sizeof *logits);
    struct tensor i = tensor_raw(backend, NULL, pairs * sizeof *ids);
    struct tensor w = tensor_raw(backend, NULL, pairs * sizeof *weights);
    struct tensor b = tensor_raw(backend, args.bias, args.num_experts * sizeof *args.bias);
    struct tensor s = tensor_raw(backend, args.scales, args.num_experts * sizeof *args.scales);
    args.logits = l.dev;
    if (args.scales) args.scales = s.dev;
    if (args.bias) args.bias = b.dev;
    args.ids = i.dev;
    args.weights = w.dev;
    backend->moe->route(backend, &args);
    tensor_read_raw(&i, ids);
    tensor_read_raw(&w, weights);
    tensor_free(&l);
    tensor_free(&s);
    tensor_free(&b);
    tensor_free(&i);
    tensor_free(&w);
}

// Compares with the CPU: ids, and weights within the relative `tolerance`. Two NaN are equal.
static void check_route(const struct device_pair *pair, struct route_args args, const float *logits,
                        double tolerance) {
    size_t pairs = (size_t)args.num_tokens * args.top_k;
    int32_t *ids = test_alloc(pairs * sizeof *ids), *want_ids = test_alloc(pairs * sizeof *ids);
    float *weights = test_alloc(pairs * sizeof *weights), *want = test_alloc(pairs * sizeof *want);
    route(pair->scalar, args, logits, want_ids, want);
    route(pair->device, args, logits, ids, weights);
    for (size_t i = 0; i < pairs; i++) {
        if (ids[i] != want_ids[i]) {
            fail_msg("%u experts: token %zu slot %zu is %d, want %d", args.num_experts,
                     i / args.top_k, i % args.top_k, ids[i], want_ids[i]);
        }
        double difference = fabs((double)weights[i] - (double)want[i]);
        bool is_same =
            isnan(want[i]) ? isnan(weights[i]) : difference <= tolerance * (double)want[i];
        if (!is_same) {
            fail_msg("%u experts: token %zu slot %zu weighs %.9g, want %.9g", args.num_experts,
                     i / args.top_k, i % args.top_k, (double)weights[i], (double)want[i]);
        }
    }
    free(ids);
    free(want_ids);
    free(weights);
    free(want);
}

static const struct {
    uint32_t num_tokens, num_experts, top_k;
    bool normalize;
} routes[] = {
    {1, 1, 1, true},    {1, 128, 8, true}, {2, 128, 8, false},  {3, 7, 7, false},
    {64, 60, 4, false}, {65, 33, 5, true}, {513, 128, 8, true}, {7, 2048, 40, true},
};

// Logits are multiples of 1/256, so there are many ties, and different logits differ by more than
// exp's rounding error.
static void test_matches(void **state) {
    const struct device_pair *pair = *state;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        struct route_args args = route_shape(routes[i].num_tokens, routes[i].num_experts,
                                             routes[i].top_k, routes[i].normalize);
        size_t count = (size_t)args.num_tokens * args.num_experts;
        float *logits = test_alloc(count * sizeof *logits);
        struct ops_rng rng = ops_rng_of(i + 1);
        for (size_t k = 0; k < count; k++) {
            logits[k] = (float)((int)ops_rng_below(&rng, 4096) - 2048) / 256.0f;
        }
        check_route(pair, args, logits, 2e-6);
        float *bias = test_alloc(args.num_experts * sizeof *bias);
        for (uint32_t k = 0; k < args.num_experts; k++) {
            bias[k] = 2.0f * (float)ops_rng_below(&rng, 3);
        }
        // Ranks are equal, or differ by more than rounding: sigmoids are flat far from 0.
        for (size_t k = 0; k < count; k++) logits[k] /= 4;
        args.bias = bias;
        args.factor = 2.5f;
        check_route(pair, args, logits, 2e-6);
        args.is_sigmoid = true;
        check_route(pair, args, logits, 2e-6);
        for (uint32_t k = 0; k < args.num_experts; k++) bias[k] = 0.5f + (float)(k % 7);
        args.bias = NULL;
        args.is_sigmoid = false;
        args.scales = bias;
        if (pair->device->moe->has_branches) check_route(pair, args, logits, 2e-6);
        free(bias);
        free(logits);
    }
}

// A token's groups, also of experts that are spread over several warps' registers.
static void test_groups(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        uint32_t num_tokens, num_experts, top_k, num_groups, top_groups;
    } cases[] = {{64, 256, 8, 8, 4}, {33, 64, 6, 8, 3}, {5, 20, 4, 4, 2},
                 {7, 128, 8, 32, 5}, {3, 160, 6, 8, 3}, {2, 1024, 9, 2, 1}};
    if (!pair->device->moe->has_groups) skip();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct route_args args =
            route_shape(cases[i].num_tokens, cases[i].num_experts, cases[i].top_k, true);
        struct ops_rng rng = ops_rng_of(i + 1);
        size_t count = (size_t)args.num_tokens * args.num_experts;
        float *logits = test_alloc(count * sizeof *logits);
        float *bias = test_alloc(args.num_experts * sizeof *bias);
        for (size_t k = 0; k < count; k++) logits[k] = 3 * ops_rng_float(&rng);
        for (uint32_t k = 0; k < args.num_experts; k++) bias[k] = ops_rng_float(&rng);
        logits[count - 1] = NAN; // the last token's
        args.num_groups = cases[i].num_groups;
        args.top_groups = cases[i].top_groups;
        args.group_best = 1;
        check_route(pair, args, logits, 4e-6);
        args.group_best = 2;
        args.is_sigmoid = true;
        args.bias = bias;
        check_route(pair, args, logits, 4e-6);
        free(bias);
        free(logits);
    }
}

static void test_non_numbers(void **state) {
    enum { EXPERTS = 40, TOP = 35, TOKENS = 6 };
    float logits[TOKENS][EXPERTS];
    for (int i = 0; i < EXPERTS; i++) {
        logits[0][i] = logits[5][i] = (float)(i % 7);
        logits[1][i] = NAN;
        logits[2][i] = i == 33 ? NAN : (float)i;
        logits[3][i] = -INFINITY;
        logits[4][i] = i == 3 || i == 35 ? INFINITY : 1.0f;
    }
    check_route(*state, route_shape(TOKENS, EXPERTS, TOP, true), &logits[0][0], 2e-6);
    // -inf among numbers has the probability 0 and ranks like any other 0.
    for (int i = 0; i < EXPERTS; i++) logits[0][i] = i == 30 ? 2.0f : -INFINITY;
    check_route(*state, route_shape(1, EXPERTS, TOP, false), &logits[0][0], 2e-6);
    float bias[EXPERTS];
    for (int i = 0; i < EXPERTS; i++) bias[i] = (float)(i % 3);
    struct route_args args = route_shape(TOKENS, EXPERTS, TOP, true);
    args.bias = bias;
    check_route(*state, args, &logits[0][0], 2e-6);
    args.is_sigmoid = true;
    check_route(*state, args, &logits[0][0], 2e-6);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_non_numbers),
    };
    return device_pair_run(argc, argv, "cuda route", tests, ARRAY_LEN(tests));
}
