// Compares mixture of experts on a CUDA device with the scalar CPU kernels. Routing: ties, and rows
// that are not numbers. Experts: odd shapes, every tile size, experts without tokens, all tokens at
// one expert. The bits must be the same in any batch, when repeated, and from a recorded graph.
// Everything the device writes lies between guard bytes.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops_util.h"

// The device rounds to bf16 three times: the activated values, each expert's output and the sum. A
// number 1 <= m < 2 is rounded to a multiple of 2^-7, so its mean square relative error is 2^-14 /
// 12 / m^2, 2.8e-6 over all m. Errors of many terms are independent, so the sum's error is the
// same. Three of them give 8.3e-6. Small outputs have few numbers and scatter around that, so five
// times is allowed.
#define EXPERTS_NMSE 4e-5

enum { GUARD_BYTES = 512, GUARD_VALUE = 0xa5 };

// The two backends. main creates them.
static struct backend *cpu, *cuda;

// Device memory between guard bytes. It starts with all bits set, which is NaN in bf16 and float.
struct device_memory {
    char *base, *data;
    size_t bytes;
};

static void synchronize(void) {
    struct err err = {0};
    if (cuda->ops->synchronize(cuda, &err)) fail_msg("%s", err.message);
}

static void upload(const struct device_memory *m, const void *host, size_t bytes) {
    cuda->ops->upload(cuda, m->data, host, bytes);
    synchronize();
}

static struct device_memory device_alloc(size_t bytes) {
    struct device_memory m = {.bytes = bytes};
    struct err err = {0};
    void *dev = NULL;
    size_t all = bytes + 2 * GUARD_BYTES;
    if (cuda->ops->alloc(cuda, all, &dev, &err)) fail_msg("%s", err.message);
    m.base = dev;
    m.data = m.base + GUARD_BYTES;
    unsigned char *host = malloc(all);
    memset(host, GUARD_VALUE, all);
    memset(host + GUARD_BYTES, 0xff, bytes);
    cuda->ops->upload(cuda, m.base, host, all);
    synchronize();
    free(host);
    return m;
}

// Copies the data to `out` (may be NULL). Fails if a guard byte changed.
static void download(const struct device_memory *m, void *out, const char *what) {
    size_t all = m->bytes + 2 * GUARD_BYTES;
    unsigned char *host = malloc(all);
    cuda->ops->download(cuda, host, m->base, all);
    synchronize();
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (host[i] != GUARD_VALUE) fail_msg("%s: byte %zu before it", what, GUARD_BYTES - i);
        if (host[GUARD_BYTES + m->bytes + i] != GUARD_VALUE) {
            fail_msg("%s: byte %zu behind it", what, i);
        }
    }
    if (out) memcpy(out, host + GUARD_BYTES, m->bytes);
    free(host);
}

static void device_free(struct device_memory *m) {
    cuda->ops->release(cuda, m->base);
    *m = (struct device_memory){0};
}

static struct route_args route_shape(uint32_t num_tokens, uint32_t num_experts, uint32_t top_k,
                                     bool normalize) {
    return (struct route_args){.num_tokens = num_tokens,
                               .num_experts = num_experts,
                               .top_k = top_k,
                               .normalize = normalize,
                               .factor = 1};
}

// Runs route on the device for the host's logits. `args` has the shape.
static void route(struct route_args args, const float *logits, int32_t *ids, float *weights) {
    size_t bytes = (size_t)args.num_tokens * args.num_experts * sizeof *logits;
    size_t pairs = (size_t)args.num_tokens * args.top_k;
    struct device_memory l = device_alloc(bytes), i = device_alloc(pairs * sizeof *ids),
                         w = device_alloc(pairs * sizeof *weights);
    upload(&l, logits, bytes);
    args.logits = (float *)(void *)l.data;
    args.ids = (int32_t *)(void *)i.data;
    args.weights = (float *)(void *)w.data;
    struct device_memory b = device_alloc(args.num_experts * sizeof *args.bias);
    if (args.bias) {
        upload(&b, args.bias, args.num_experts * sizeof *args.bias);
        args.bias = (const float *)(const void *)b.data;
    }
    cuda->moe->route(cuda, &args);
    download(&b, NULL, "bias");
    device_free(&b);
    download(&l, NULL, "logits");
    download(&i, ids, "ids");
    download(&w, weights, "weights");
    device_free(&l);
    device_free(&i);
    device_free(&w);
}

// Compares with the CPU: ids, and weights within the relative `tolerance`. Two NaN are equal.
static void check_route(struct route_args args, const float *logits, double tolerance) {
    size_t count = (size_t)args.num_tokens * args.num_experts;
    size_t pairs = (size_t)args.num_tokens * args.top_k;
    int32_t *ids = malloc(pairs * sizeof *ids), *want_ids = malloc(pairs * sizeof *want_ids);
    float *weights = malloc(pairs * sizeof *weights), *want = malloc(pairs * sizeof *want);
    float *copy = malloc(count * sizeof *copy);
    memcpy(copy, logits, count * sizeof *copy); // the op overwrites its input
    struct route_args on_cpu = args;
    on_cpu.logits = copy;
    on_cpu.ids = want_ids;
    on_cpu.weights = want;
    cpu->moe->route(cpu, &on_cpu);
    route(args, logits, ids, weights);
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
    free(copy);
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
static void test_routing_matches(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        struct route_args args = route_shape(routes[i].num_tokens, routes[i].num_experts,
                                             routes[i].top_k, routes[i].normalize);
        size_t count = (size_t)args.num_tokens * args.num_experts;
        float *logits = malloc(count * sizeof *logits);
        struct ops_rng rng = ops_rng_of(i + 1);
        for (size_t k = 0; k < count; k++) {
            logits[k] = (float)((int)ops_rng_below(&rng, 4096) - 2048) / 256.0f;
        }
        check_route(args, logits, 2e-6);
        float *bias = malloc(args.num_experts * sizeof *bias);
        for (uint32_t k = 0; k < args.num_experts; k++) {
            bias[k] = 2.0f * (float)ops_rng_below(&rng, 3);
        }
        // Ranks are equal, or differ by more than rounding: sigmoids are flat far from 0.
        for (size_t k = 0; k < count; k++) logits[k] /= 4;
        args.bias = bias;
        args.factor = 2.5f;
        check_route(args, logits, 2e-6);
        free(bias);
        free(logits);
    }
}

static void test_routing_of_non_numbers(void **state) {
    (void)state;
    enum { EXPERTS = 40, TOP = 35, TOKENS = 6 };
    float logits[TOKENS][EXPERTS];
    for (int i = 0; i < EXPERTS; i++) {
        logits[0][i] = logits[5][i] = (float)(i % 7);
        logits[1][i] = NAN;
        logits[2][i] = i == 33 ? NAN : (float)i;
        logits[3][i] = -INFINITY;
        logits[4][i] = i == 3 || i == 35 ? INFINITY : 1.0f;
    }
    check_route(route_shape(TOKENS, EXPERTS, TOP, true), &logits[0][0], 2e-6);
    // -inf among numbers has the probability 0 and ranks like any other 0.
    for (int i = 0; i < EXPERTS; i++) logits[0][i] = i == 30 ? 2.0f : -INFINITY;
    check_route(route_shape(1, EXPERTS, TOP, false), &logits[0][0], 2e-6);
    float bias[EXPERTS];
    for (int i = 0; i < EXPERTS; i++) bias[i] = (float)(i % 3);
    struct route_args args = route_shape(TOKENS, EXPERTS, TOP, true);
    args.bias = bias;
    check_route(args, &logits[0][0], 2e-6);
}

// The weights of all experts, as in a checkpoint.
struct model {
    struct experts_shape shape;
    uint16_t *gate, *up, *down; // [experts][intermediate][hidden], down [experts][hidden][...]
    uint16_t *bias[3]; // of the three, with has_bias: [experts][outputs]
};

static uint16_t *random_bf16(size_t count, uint64_t seed) {
    uint16_t *bits = malloc(count * sizeof *bits);
    struct ops_rng rng = ops_rng_of(seed);
    for (size_t i = 0; i < count; i++) bits[i] = f32_to_bf16(ops_rng_float(&rng));
    return bits;
}

static struct model model_make(struct experts_shape shape, uint64_t seed) {
    size_t count = (size_t)shape.num_experts * shape.hidden * shape.intermediate;
    struct model model = {.shape = shape,
                          .gate = random_bf16(count, 3 * seed),
                          .up = random_bf16(count, 3 * seed + 1),
                          .down = random_bf16(count, 3 * seed + 2)};
    for (size_t part = 0; part < 3; part++) {
        size_t outputs = part == 2 ? shape.hidden : shape.intermediate;
        model.bias[part] = random_bf16(shape.num_experts * outputs, 5 * seed + part);
        // Some are beyond the limits of the clamped activation.
        for (size_t i = 0; i < shape.num_experts * outputs; i++) {
            model.bias[part][i] = f32_to_bf16(8 * bf16_to_f32(model.bias[part][i]));
        }
    }
    return model;
}

static void model_free(struct model *model) {
    free(model->gate);
    free(model->up);
    free(model->down);
    for (int part = 0; part < 3; part++) free(model->bias[part]);
}

static struct experts *experts_of(struct backend *backend, const struct model *model) {
    uint32_t hidden = model->shape.hidden, size = model->shape.intermediate;
    uint32_t count = model->shape.num_experts;
    struct matrix_slice *slices = calloc(count, 6 * sizeof *slices);
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)i * hidden * size;
        slices[i] = (struct matrix_slice){.source = {.data = model->gate + at},
                                          .dtype = DTYPE_BF16,
                                          .rows = size,
                                          .cols = hidden,
                                          .row_stride = hidden};
        slices[count + i] = (struct matrix_slice){.source = {.data = model->up + at},
                                                  .dtype = DTYPE_BF16,
                                                  .rows = size,
                                                  .cols = hidden,
                                                  .row_stride = hidden};
        slices[2 * count + i] = (struct matrix_slice){.source = {.data = model->down + at},
                                                      .dtype = DTYPE_BF16,
                                                      .rows = hidden,
                                                      .cols = size,
                                                      .row_stride = size};
        for (size_t part = 0; part < 3; part++) {
            uint32_t outputs = part == 2 ? hidden : size;
            slices[(3 + part) * count + i] =
                (struct matrix_slice){.source = {.data = model->bias[part] + (size_t)i * outputs},
                                      .dtype = DTYPE_BF16,
                                      .rows = 1,
                                      .cols = outputs,
                                      .row_stride = outputs};
        }
    }
    const struct experts_spec spec = {.shape = model->shape,
                                      .gate = slices,
                                      .up = slices + count,
                                      .down = slices + 2 * count,
                                      .gate_bias = slices + 3 * (size_t)count,
                                      .up_bias = slices + 4 * (size_t)count,
                                      .down_bias = slices + 5 * (size_t)count,
                                      .activation = model->shape.has_bias ? ACTIVATION_CLAMPED_SILU
                                                                          : ACTIVATION_SILU,
                                      .format = WEIGHTS_NATIVE};
    struct experts *experts = NULL;
    struct err err = {0};
    enum status status = backend->moe->experts_create(backend, &spec, &experts, &err);
    if (!status && backend->queue) status = backend->queue->weights_finish(backend, &err);
    if (status) fail_msg("%s", err.message);
    free(slices);
    return experts;
}

// Tokens and their routing. Only the first `num_used` experts get any.
struct call {
    uint32_t num_tokens, top_k, hidden;
    uint16_t *x; // [num_tokens][hidden] bf16
    int32_t *ids; // [num_tokens][top_k]
    float *weights;
};

static struct call call_make(uint32_t num_tokens, uint32_t top_k, uint32_t hidden,
                             uint32_t num_used, uint64_t seed) {
    size_t pairs = (size_t)num_tokens * top_k;
    struct call call = {.num_tokens = num_tokens, .top_k = top_k, .hidden = hidden};
    struct ops_rng rng = ops_rng_of(seed);
    call.x = random_bf16((size_t)num_tokens * hidden, seed + 1);
    call.ids = malloc(pairs * sizeof *call.ids);
    call.weights = malloc(pairs * sizeof *call.weights);
    ops_rng_fill(&rng, call.weights, pairs);
    for (uint32_t token = 0; token < num_tokens; token++) {
        uint32_t first = ops_rng_below(&rng, num_used); // distinct ids: from here on, cyclically
        for (uint32_t slot = 0; slot < top_k; slot++) {
            call.ids[(size_t)token * top_k + slot] = (int32_t)((first + slot) % num_used);
        }
    }
    return call;
}

static void call_free(struct call *call) {
    free(call->x);
    free(call->ids);
    free(call->weights);
}

static void run_cpu(const struct model *model, const struct experts *experts,
                    const struct call *call, float *out) {
    size_t count = (size_t)call->num_tokens * call->hidden;
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = bf16_to_f32(call->x[i]);
    void *scratch = calloc(
        1, cpu->moe->experts_scratch_bytes(cpu, &model->shape, call->num_tokens, call->top_k));
    const struct experts_args args = {experts, x,       call->ids,        call->weights,
                                      out,     scratch, call->num_tokens, call->top_k};
    cpu->moe->experts(cpu, &args);
    free(scratch);
    free(x);
}

// The device memory of one call, kept so that a test can record the call.
struct device_call {
    struct device_memory x, ids, weights, out, scratch;
    struct experts_args args;
};

static struct device_call device_call_make(const struct model *model, const struct experts *experts,
                                           uint32_t num_tokens, uint32_t top_k) {
    size_t row = model->shape.hidden * sizeof(uint16_t), pairs = (size_t)num_tokens * top_k;
    struct device_call d = {
        .x = device_alloc(num_tokens * row),
        .ids = device_alloc(pairs * sizeof(int32_t)),
        .weights = device_alloc(pairs * sizeof(float)),
        .out = device_alloc(num_tokens * row),
        .scratch =
            device_alloc(cuda->moe->experts_scratch_bytes(cuda, &model->shape, num_tokens, top_k)),
    };
    d.args = (struct experts_args){.experts = experts,
                                   .x = d.x.data,
                                   .ids = (const int32_t *)(void *)d.ids.data,
                                   .weights = (const float *)(void *)d.weights.data,
                                   .out = d.out.data,
                                   .scratch = d.scratch.data,
                                   .num_tokens = num_tokens,
                                   .top_k = top_k};
    return d;
}

// Copies the tokens of `call` from `first` on, as many as the device's call has.
static void device_call_fill(const struct device_call *d, const struct call *call, uint32_t first) {
    size_t pair = (size_t)first * call->top_k;
    upload(&d->x, call->x + (size_t)first * call->hidden, d->x.bytes);
    upload(&d->ids, call->ids + pair, d->ids.bytes);
    upload(&d->weights, call->weights + pair, d->weights.bytes);
}

static void device_call_read(const struct device_call *d, uint16_t *out) {
    download(&d->scratch, NULL, "scratch");
    download(&d->out, out, "out");
}

static void device_call_free(struct device_call *d) {
    device_free(&d->x);
    device_free(&d->ids);
    device_free(&d->weights);
    device_free(&d->out);
    device_free(&d->scratch);
}

static void run_cuda(const struct model *model, const struct experts *experts,
                     const struct call *call, uint32_t first, uint32_t count, uint16_t *out) {
    struct device_call d = device_call_make(model, experts, count, call->top_k);
    device_call_fill(&d, call, first);
    cuda->moe->experts(cuda, &d.args);
    device_call_read(&d, out + (size_t)first * call->hidden);
    device_call_free(&d);
}

static void assert_same_rows(const uint16_t *got, const uint16_t *want, size_t rows, size_t cols,
                             const char *what) {
    for (size_t i = 0; i < rows * cols; i++) {
        if (got[i] != want[i]) {
            fail_msg("%s: row %zu column %zu is %04x, want %04x", what, i / cols, i % cols, got[i],
                     want[i]);
        }
    }
}

// 1 to 4 tokens use kernels of their own. Above that, the mean number of rows per expert chooses
// tiles of 16 (below 8), 32 (below 24), 64 (below 64) or 128 rows.
static const struct {
    struct experts_shape shape;
    uint32_t num_tokens, top_k, num_used;
} shapes[] = {
    {{1, 8, 8, false}, 1, 1, 1},        {{3, 24, 40, true}, 2, 2, 3},
    {{16, 200, 88, false}, 1, 9, 16},   {{16, 72, 136, true}, 3, 4, 16},
    {{9, 520, 264, false}, 4, 3, 9},    {{1, 8, 8, false}, 7, 1, 1},
    {{60, 64, 72, true}, 7, 4, 60},     {{16, 200, 88, false}, 7, 4, 16},
    {{128, 32, 16, false}, 64, 8, 128}, {{16, 136, 72, false}, 64, 4, 16},
    {{5, 264, 200, true}, 64, 2, 5},    {{16, 72, 136, true}, 200, 4, 16},
    {{16, 136, 72, true}, 513, 4, 16},  {{40, 40, 24, false}, 513, 4, 13},
    {{4, 24, 40, false}, 513, 1, 1},    {{128, 16, 8, false}, 513, 8, 128},
    {{300, 24, 16, false}, 64, 2, 300}, {{2, 72, 40, false}, 513, 2, 2},
    {{12, 2048, 768, true}, 1, 8, 12},  {{12, 2048, 768, false}, 2, 8, 12},
    {{12, 2048, 768, true}, 7, 8, 12},
};

static void check_shape(size_t i) {
    const struct experts_shape *shape = &shapes[i].shape;
    uint32_t num_tokens = shapes[i].num_tokens, top_k = shapes[i].top_k;
    struct model model = model_make(*shape, i);
    struct experts *on_cpu = experts_of(cpu, &model), *on_cuda = experts_of(cuda, &model);
    struct call call = call_make(num_tokens, top_k, shape->hidden, shapes[i].num_used, i + 100);
    size_t count = (size_t)num_tokens * shape->hidden;
    uint16_t *bits = malloc(count * sizeof *bits);
    float *got = malloc(count * sizeof *got), *want = malloc(count * sizeof *want);
    run_cpu(&model, on_cpu, &call, want);
    run_cuda(&model, on_cuda, &call, 0, num_tokens, bits);
    for (size_t k = 0; k < count; k++) got[k] = bf16_to_f32(bits[k]);
    double nmse = ops_nmse_f32(got, want, count);
    if (!(nmse <= EXPERTS_NMSE)) {
        fail_msg("%u experts, %u x %u, %u tokens of %u: nmse %g", shape->num_experts, shape->hidden,
                 shape->intermediate, num_tokens, top_k, nmse);
    }
    free(bits);
    free(got);
    free(want);
    call_free(&call);
    cpu->moe->experts_destroy(cpu, on_cpu);
    cuda->moe->experts_destroy(cuda, on_cuda);
    model_free(&model);
}

static void test_experts_match(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) check_shape(i);
}

// Above 4 tokens every batch size gives the same bits, whatever its tiles. So do batches of 1 to 4.
static void test_same_bits(void **state) {
    (void)state;
    enum { TOKENS = 520, TOP = 4 };
    const uint32_t batches[] = {TOKENS, 5, 64, 200, TOKENS, 1, 4, 2, 3};
    const struct experts_shape shape = {16, 136, 72, true};
    struct model model = model_make(shape, 1);
    struct experts *experts = experts_of(cuda, &model);
    struct call call = call_make(TOKENS, TOP, shape.hidden, shape.num_experts, 2);
    size_t count = (size_t)TOKENS * shape.hidden;
    uint16_t *want = malloc(count * sizeof *want), *got = malloc(count * sizeof *got);
    for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
        // A part of the tokens is enough for small batches
        uint32_t rows = batches[b] > 4 ? TOKENS : 24;
        memset(got, 0, count * sizeof *got);
        for (uint32_t first = 0; first < rows; first += batches[b]) {
            uint32_t left = TOKENS - first; // the last batch is moved back, so that it stays large
            uint32_t at = left < batches[b] ? TOKENS - batches[b] : first;
            run_cuda(&model, experts, &call, at, batches[b], got);
        }
        if (b == 0 || batches[b] == 1) memcpy(want, got, count * sizeof *want);
        assert_same_rows(got, want, rows, shape.hidden, "another batch");
    }
    free(want);
    free(got);
    call_free(&call);
    cuda->moe->experts_destroy(cuda, experts);
    model_free(&model);
}

// A call that is split, where the last part has few tokens.
static void test_many_tokens(void **state) {
    (void)state;
    enum { TOKENS = 8192 + 3, TOP = 2 };
    const struct experts_shape shape = {4, 16, 8, false};
    struct model model = model_make(shape, 7);
    struct experts *experts = experts_of(cuda, &model);
    struct call call = call_make(TOKENS, TOP, shape.hidden, shape.num_experts, 8);
    size_t count = (size_t)TOKENS * shape.hidden;
    uint16_t *all = malloc(count * sizeof *all), *parts = malloc(count * sizeof *parts);
    run_cuda(&model, experts, &call, 0, TOKENS, all);
    run_cuda(&model, experts, &call, 0, 5000, parts);
    run_cuda(&model, experts, &call, 5000, TOKENS - 5000, parts);
    assert_same_rows(all, parts, TOKENS, shape.hidden, "in other parts");
    free(all);
    free(parts);
    call_free(&call);
    cuda->moe->experts_destroy(cuda, experts);
    model_free(&model);
}

// The weights of experts without tokens are not read, and a NaN token does not affect the others.
static void check_isolation(uint32_t num_tokens) {
    enum { TOP = 2, USED = 4, BAD = 1 };
    const struct experts_shape shape = {6, 24, 40, false};
    struct model model = model_make(shape, 3);
    struct call call = call_make(num_tokens, TOP, shape.hidden, USED, 4);
    size_t count = (size_t)num_tokens * shape.hidden;
    size_t matrix = (size_t)shape.hidden * shape.intermediate;
    uint16_t *want = malloc(count * sizeof *want), *got = malloc(count * sizeof *got);
    struct experts *experts = experts_of(cuda, &model);
    run_cuda(&model, experts, &call, 0, num_tokens, want);
    cuda->moe->experts_destroy(cuda, experts);
    for (size_t i = USED * matrix; i < shape.num_experts * matrix; i++) {
        model.gate[i] = model.up[i] = model.down[i] = 0x7fc0; // NaN
    }
    for (uint32_t k = 0; k < shape.hidden; k++) call.x[BAD * shape.hidden + k] = 0x7fc0;
    experts = experts_of(cuda, &model);
    run_cuda(&model, experts, &call, 0, num_tokens, got);
    assert_true(isnan(bf16_to_f32(got[BAD * shape.hidden])));
    memcpy(got + BAD * shape.hidden, want + BAD * shape.hidden, shape.hidden * sizeof *got);
    assert_same_rows(got, want, num_tokens, shape.hidden, "beside what is no number");
    cuda->moe->experts_destroy(cuda, experts);
    free(want);
    free(got);
    call_free(&call);
    model_free(&model);
}

static void test_other_experts_and_tokens_do_not_matter(void **state) {
    (void)state;
    check_isolation(3);
    check_isolation(20);
    check_isolation(150);
}

// A recorded call runs with other tokens and other experts than when it was recorded.
static void check_graph(uint32_t num_tokens) {
    enum { TOP = 4 };
    const struct experts_shape shape = {16, 72, 40, false};
    struct model model = model_make(shape, 5);
    struct experts *experts = experts_of(cuda, &model);
    struct call call = call_make(2 * num_tokens, TOP, shape.hidden, shape.num_experts, 6);
    struct device_call d = device_call_make(&model, experts, num_tokens, TOP);
    size_t count = (size_t)num_tokens * shape.hidden;
    uint16_t *want = malloc(2 * count * sizeof *want), *got = malloc(count * sizeof *got);
    run_cuda(&model, experts, &call, 0, num_tokens, want);
    run_cuda(&model, experts, &call, num_tokens, num_tokens, want);
    struct backend_graph *graph = NULL;
    struct err err = {0};
    enum status status = cuda->queue->graph_begin(cuda, &err);
    if (status) fail_msg("%s", err.message);
    cuda->moe->experts(cuda, &d.args);
    status = cuda->queue->graph_end(cuda, &graph, &err);
    if (status) fail_msg("%s", err.message);
    for (uint32_t i = 0; i < 2; i++) {
        device_call_fill(&d, &call, i * num_tokens);
        cuda->queue->graph_launch(cuda, graph);
        device_call_read(&d, got);
        assert_same_rows(got, want + i * count, num_tokens, shape.hidden, "from a graph");
    }
    cuda->queue->graph_destroy(cuda, graph);
    free(want);
    free(got);
    device_call_free(&d);
    call_free(&call);
    cuda->moe->experts_destroy(cuda, experts);
    model_free(&model);
}

static void test_recorded_calls(void **state) {
    (void)state;
    if (!cuda->queue) {
        print_message("skipped: this backend records no graphs\n");
        skip();
    }
    check_graph(2);
    check_graph(16);
    check_graph(300);
}

static void test_bad_specs(void **state) {
    (void)state;
    static const uint16_t data[64 * 64];
    const struct matrix_slice gate = {.source = {.data = data},
                                      .dtype = DTYPE_BF16,
                                      .rows = 8,
                                      .cols = 16,
                                      .row_stride = 16},
                              up = gate;
    const struct matrix_slice down = {
        .source = {.data = data}, .dtype = DTYPE_BF16, .rows = 16, .cols = 8, .row_stride = 8};
    const struct matrix_slice narrow = {
        .source = {.data = data}, .dtype = DTYPE_BF16, .rows = 8, .cols = 12, .row_stride = 12};
    const struct matrix_slice integers = {
        .source = {.data = data}, .dtype = DTYPE_I8, .rows = 16, .cols = 8, .row_stride = 8};
    const struct experts_shape shape = {1, 16, 8, false}, odd = {1, 12, 8, false},
                               many = {5000, 16, 8, false};
    const struct {
        struct experts_spec spec;
        enum status status;
        const char *says;
    } cases[] = {
        {{.shape = shape, .gate = &gate, .up = &narrow, .down = &down},
         ERR_INVALID,
         "up weights are [8][12], want [8][16]"},
        {{.shape = shape, .gate = &narrow, .up = &up, .down = &down},
         ERR_INVALID,
         "gate weights are [8][12], want [8][16]"},
        {{.shape = shape, .gate = &gate, .up = &up, .down = &gate},
         ERR_INVALID,
         "down weights are [8][16], want [16][8]"},
        {{.shape = shape, .gate = &gate, .up = &up, .down = &integers}, ERR_INVALID, "I8"},
        {{.shape = odd, .gate = &narrow, .up = &narrow, .down = &down},
         ERR_UNSUPPORTED,
         "multiples of 8"},
        {{.shape = many, .gate = &gate, .up = &up, .down = &down}, ERR_UNSUPPORTED, "5000 experts"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct experts *experts = NULL;
        struct err err = {0};
        enum status status = cuda->moe->experts_create(cuda, &cases[i].spec, &experts, &err);
        assert_int_equal(status, cases[i].status);
        assert_null(experts);
        if (!strstr(err.message, cases[i].says)) fail_msg("%s", err.message);
    }
    cuda->moe->experts_destroy(cuda, NULL);
    assert_int_equal(cuda->moe->experts_bytes(cuda, &shape, WEIGHTS_NATIVE),
                     3 * 16 * 8 * sizeof(uint16_t));
}

int main(void) {
    enum { SKIPPED = 77 }; // for ctest
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routing_matches),
        cmocka_unit_test(test_routing_of_non_numbers),
        cmocka_unit_test(test_experts_match),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_many_tokens),
        cmocka_unit_test(test_other_experts_and_tokens_do_not_matter),
        cmocka_unit_test(test_recorded_calls),
        cmocka_unit_test(test_bad_specs),
    };
    const struct backend_options options = {
        .device = "cuda", .threads = 2, .weight_dtype = DTYPE_BF16};
    struct err err = {0};
    enum status status = backend_create(&cuda, &options, &err);
    if (status) {
        printf("skipped: %s\n", err.message);
        return status == ERR_UNSUPPORTED || status == ERR_DEVICE ? SKIPPED : 1;
    }
    cpu = ops_backend("scalar", 2, DTYPE_BF16);
    int failures = cmocka_run_group_tests_name("cuda experts", tests, NULL, NULL);
    backend_destroy(cpu);
    backend_destroy(cuda);
    return failures;
}
