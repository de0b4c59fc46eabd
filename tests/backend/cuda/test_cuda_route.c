// Compares the choice of experts on a CUDA device with the scalar CPU kernels: ties, and rows that
// are not numbers; and the op that does the norm and the router's product too.
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

// The tensors of a norm, a router and a choice.
struct norm_route {
    struct backend *backend;
    struct linear *router;
    struct tensor residual, norm, hidden, logits, ids, weights, choice_bias;
    struct norm_route_args args;
};

static struct norm_route norm_route_make(struct backend *backend, const struct linear_spec *router,
                                         const float *residual, const float *norm,
                                         struct route_args route) {
    uint32_t in = router->parts[0].cols;
    size_t tokens = route.num_tokens, pairs = tokens * route.top_k;
    struct norm_route r = {
        .backend = backend,
        .router = linear_of(backend, router),
        .residual = tensor_of(backend, residual, tokens * in),
        .norm = tensor_raw(backend, norm, in * sizeof *norm),
        .hidden = tensor_nan(backend, tokens * in),
        .logits = tensor_raw(backend, NULL, tokens * route.num_experts * sizeof(float)),
        .ids = tensor_raw(backend, NULL, pairs * sizeof(int32_t)),
        .weights = tensor_raw(backend, NULL, pairs * sizeof(float)),
        .choice_bias = tensor_raw(backend, route.bias, route.num_experts * sizeof(float)),
    };
    r.args = (struct norm_route_args){.router = r.router,
                                      .norm = r.norm.dev,
                                      .residual = r.residual.dev,
                                      .hidden = r.hidden.dev,
                                      .route = route,
                                      .eps = 1e-6f};
    r.args.route.logits = r.logits.dev;
    r.args.route.ids = r.ids.dev;
    r.args.route.weights = r.weights.dev;
    if (route.bias) r.args.route.bias = r.choice_bias.dev;
    return r;
}

static void norm_route_free(struct norm_route *r) {
    struct tensor *all[] = {&r->residual, &r->norm,    &r->hidden,     &r->logits,
                            &r->ids,      &r->weights, &r->choice_bias};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) tensor_free(all[i]);
    r->backend->ops->linear_destroy(r->backend, r->router);
}

// As three ops.
static void norm_route_composed(const struct norm_route *r) {
    const struct norm_route_args *args = &r->args;
    const struct backend_ops *ops = r->backend->ops;
    uint32_t tokens = args->route.num_tokens;
    size_t row = r->residual.bytes / dtype_size(r->backend->activation_dtype) / tokens;
    ops->rms_norm(r->backend, &(struct rms_norm_args){.x = args->residual,
                                                      .weight = args->norm,
                                                      .out = args->hidden,
                                                      .rows = tokens,
                                                      .cols = (uint32_t)row,
                                                      .eps = args->eps});
    ops->linear(r->backend, &(struct linear_args){.linear = args->router,
                                                  .x = args->hidden,
                                                  .out = args->route.logits,
                                                  .rows = tokens,
                                                  .out_is_float = true});
    r->backend->moe->route(r->backend, &args->route);
}

static void compare_norm_routes(const struct norm_route *got, const struct norm_route *want) {
    const struct route_args *shape = &got->args.route;
    size_t pairs = (size_t)shape->num_tokens * shape->top_k;
    int32_t *ids = test_alloc(pairs * sizeof *ids), *want_ids = test_alloc(pairs * sizeof *ids);
    float *weights = test_alloc(got->weights.bytes), *want_weights = test_alloc(got->weights.bytes);
    float *hidden = tensor_read(&got->hidden), *want_hidden = tensor_read(&want->hidden);
    tensor_read_raw(&got->ids, ids);
    tensor_read_raw(&want->ids, want_ids);
    tensor_read_raw(&got->weights, weights);
    tensor_read_raw(&want->weights, want_weights);
    size_t count = got->hidden.bytes / dtype_size(got->backend->activation_dtype);
    double nmse = ops_nmse_f32(hidden, want_hidden, count);
    if (!(nmse <= 2 * BF16_NMSE)) fail_msg("%u experts: nmse %g", shape->num_experts, nmse);
    for (size_t i = 0; i < pairs; i++) {
        double difference = fabs((double)weights[i] - (double)want_weights[i]);
        if (ids[i] != want_ids[i] || !(difference <= 0.02 * (double)want_weights[i])) {
            fail_msg("%u experts: slot %zu is %d with %g, want %d with %g", shape->num_experts, i,
                     ids[i], (double)weights[i], want_ids[i], (double)want_weights[i]);
        }
    }
    free(ids);
    free(want_ids);
    free(weights);
    free(want_weights);
    free(hidden);
    free(want_hidden);
}

static const struct {
    uint32_t num_tokens, num_experts, top_k, in;
    bool has_bias, is_sigmoid, has_choice_bias, is_taken;
} norm_routes[] = {
    {1, 128, 8, 2048, false, false, false, true},  {4, 128, 8, 2048, false, true, true, true},
    {1, 256, 8, 2048, false, false, false, true},  {2, 32, 4, 2880, true, false, false, true},
    {3, 256, 8, 3072, true, true, false, true},    {1, 16, 16, 8, true, false, true, true},
    {2, 144, 6, 328, false, false, false, true},   {5, 128, 8, 2048, false, false, false, false},
    {1, 60, 4, 2048, false, false, false, true},   {1, 272, 8, 2048, false, false, false, false},
    {1, 128, 8, 3080, false, false, false, false},
};

// The product of an expert's row with a token is a number of the expert and the token, which
// differs by more than rounding from those of other experts: token t has inputs t, t + tokens, ...
static void check_norm_route(const struct device_pair *pair, size_t number) {
    uint32_t tokens = norm_routes[number].num_tokens, experts = norm_routes[number].num_experts;
    uint32_t in = norm_routes[number].in;
    struct ops_rng rng = ops_rng_of(number + 1);
    float *residual = test_alloc((size_t)tokens * in * sizeof *residual);
    float *norm = test_alloc(in * sizeof *norm), *choice_bias = test_alloc(experts * sizeof *norm);
    uint16_t *router = test_alloc((size_t)experts * in * sizeof *router);
    uint16_t *biases = test_alloc(experts * sizeof *biases);
    for (uint32_t i = 0; i < in; i++) {
        float sign = ops_rng_below(&rng, 2) ? 1.0f : -1.0f;
        norm[i] = 0.5f + (float)ops_rng_below(&rng, 5) / 4;
        residual[(size_t)(i % tokens) * in + i] = sign * 0.75f;
        for (uint32_t e = 0; e < experts; e++) {
            uint32_t place = (e * 7 + i % tokens * 5) % experts; // 7: no divisor of any count
            double logit = (1 + place % 128 / 128.0) / (place < 128 ? 1 : 2);
            double weight = logit * sqrt(tokens) / in; // in / tokens inputs of sqrt(tokens) * norm
            router[(size_t)e * in + i] = f32_to_bf16(sign * (float)weight / norm[i]);
        }
    }
    for (uint32_t e = 0; e < experts; e++) {
        biases[e] = f32_to_bf16((float)(e % 2) * 0.50390625f);
        choice_bias[e] = (float)(e % 4);
    }
    const struct matrix_slice part = {.source = {.data = router},
                                      .dtype = DTYPE_BF16,
                                      .rows = experts,
                                      .cols = in,
                                      .row_stride = in};
    const struct matrix_slice bias = {.source = {.data = biases},
                                      .dtype = DTYPE_BF16,
                                      .rows = 1,
                                      .cols = experts,
                                      .row_stride = experts};
    const struct linear_spec spec = {&part, norm_routes[number].has_bias ? &bias : NULL, 1,
                                     WEIGHTS_NATIVE};
    struct route_args route = route_shape(tokens, experts, norm_routes[number].top_k, true);
    route.is_sigmoid = norm_routes[number].is_sigmoid;
    if (norm_routes[number].has_choice_bias) route.bias = choice_bias;
    struct norm_route got = norm_route_make(pair->device, &spec, residual, norm, route);
    struct norm_route want = norm_route_make(pair->scalar, &spec, residual, norm, route);
    bool is_done = pair->device->moe->norm_route(pair->device, &got.args);
    assert_int_equal(is_done, norm_routes[number].is_taken);
    if (!is_done) norm_route_composed(&got);
    norm_route_composed(&want);
    compare_norm_routes(&got, &want);
    norm_route_free(&got);
    norm_route_free(&want);
    free(residual);
    free(norm);
    free(choice_bias);
    free(router);
    free(biases);
}

static void test_norm_route(void **state) {
    const struct device_pair *pair = *state;
    if (!pair->device->moe->norm_route) skip();
    for (size_t i = 0; i < ARRAY_LEN(norm_routes); i++) check_norm_route(pair, i);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_non_numbers),
        cmocka_unit_test(test_norm_route),
    };
    return device_pair_run(argc, argv, "cuda route", tests, ARRAY_LEN(tests));
}
