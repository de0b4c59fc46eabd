// Compares mixture of experts on a CUDA device with the scalar CPU kernels: odd shapes, every tile
// size, experts without tokens, all tokens at one expert. The bits must be the same in any batch,
// when repeated, and from a recorded graph.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_experts_util.h"
#include "base/compiler.h"

// The device rounds to bf16 three times: the activated values, each expert's output and the sum. A
// number 1 <= m < 2 is rounded to a multiple of 2^-7, so its mean square relative error is 2^-14 /
// 12 / m^2, 2.8e-6 over all m. Errors of many terms are independent, so the sum's error is the
// same. Three of them give 8.3e-6. Small outputs have few numbers and scatter around that, so five
// times is allowed.
#define EXPERTS_NMSE 4e-5

// The weights of all experts, as in a checkpoint.
struct model {
    struct experts_shape shape;
    enum activation activation;
    uint16_t *gate, *up, *down; // [experts][intermediate][hidden], down [experts][hidden][...]
    uint16_t *bias[3]; // of the three, with has_bias: [experts][outputs]
};

static uint16_t *random_bf16(size_t count, uint64_t seed) {
    uint16_t *bits = test_alloc(count * sizeof *bits);
    struct ops_rng rng = ops_rng_of(seed);
    for (size_t i = 0; i < count; i++) bits[i] = f32_to_bf16(ops_rng_float(&rng));
    return bits;
}

static struct model model_make(struct experts_shape shape, uint64_t seed) {
    size_t count = (size_t)shape.num_experts * shape.hidden * shape.intermediate;
    struct model model = {.shape = shape,
                          .activation = shape.lacks_gate ? ACTIVATION_RELU_SQUARED
                                        : shape.has_bias ? ACTIVATION_CLAMPED_SILU
                                                         : ACTIVATION_SILU,
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

static struct experts *model_experts(struct backend *backend, const struct model *model) {
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
                                      .gate = model->shape.lacks_gate ? NULL : slices,
                                      .up = slices + count,
                                      .down = slices + 2 * count,
                                      .gate_bias = slices + 3 * (size_t)count,
                                      .up_bias = slices + 4 * (size_t)count,
                                      .down_bias = slices + 5 * (size_t)count,
                                      .activation = model->activation,
                                      .format = WEIGHTS_NATIVE};
    struct experts *experts = experts_of(backend, &spec);
    free(slices);
    return experts;
}

// 1 to 4 tokens use kernels of their own. Above that, the mean number of rows per expert chooses
// tiles: of 16 (below 8), 32 (below 24), 64 (below 64) or 128 rows, and on sm_90 of 64 (below 40),
// 128 (below 100) or 256.
static const struct {
    struct experts_shape shape;
    uint32_t num_tokens, top_k, num_used;
} shapes[] = {
    {{1, 8, 8, false, false}, 1, 1, 1},        {{3, 24, 40, true, false}, 2, 2, 3},
    {{16, 200, 88, false, false}, 1, 9, 16},   {{16, 72, 136, true, false}, 3, 4, 16},
    {{9, 520, 264, false, false}, 4, 3, 9},    {{1, 8, 8, false, false}, 7, 1, 1},
    {{60, 64, 72, true, false}, 7, 4, 60},     {{16, 200, 88, false, false}, 7, 4, 16},
    {{128, 32, 16, false, false}, 64, 8, 128}, {{16, 136, 72, false, false}, 64, 4, 16},
    {{5, 264, 200, true, false}, 64, 2, 5},    {{16, 72, 136, true, false}, 200, 4, 16},
    {{16, 136, 72, true, false}, 513, 4, 16},  {{40, 40, 24, false, false}, 513, 4, 13},
    {{4, 24, 40, false, false}, 513, 1, 1},    {{128, 16, 8, false, false}, 513, 8, 128},
    {{300, 24, 16, false, false}, 64, 2, 300}, {{2, 72, 40, false, false}, 513, 2, 2},
    {{12, 2048, 768, true, false}, 1, 8, 12},  {{12, 2048, 768, false, false}, 2, 8, 12},
    {{12, 2048, 768, true, false}, 7, 8, 12},  {{3, 264, 200, true, false}, 700, 1, 3},
    {{2, 136, 328, false, false}, 600, 1, 2},  {{8, 200, 136, true, false}, 460, 2, 8},
    {{7, 328, 200, false, false}, 150, 3, 7},  {{2, 264, 136, true, false}, 190, 1, 2},
    {{16, 200, 88, false, true}, 1, 6, 16},    {{12, 2048, 768, false, true}, 4, 6, 12},
    {{16, 136, 72, false, true}, 64, 4, 16},   {{5, 264, 200, false, true}, 64, 2, 5},
    {{8, 200, 136, false, true}, 460, 2, 8},   {{7, 328, 200, false, true}, 700, 3, 7},
};

static void check_shape(const struct device_pair *pair, size_t i, bool is_gelu) {
    const struct experts_shape *shape = &shapes[i].shape;
    uint32_t num_tokens = shapes[i].num_tokens, top_k = shapes[i].top_k;
    struct model model = model_make(*shape, i);
    if (is_gelu) model.activation = ACTIVATION_GELU_TANH;
    struct experts *on_cpu = model_experts(pair->scalar, &model);
    struct experts *on_cuda = model_experts(pair->device, &model);
    struct experts_call call =
        experts_call_make(num_tokens, top_k, shape->hidden, shapes[i].num_used, i + 100);
    size_t count = (size_t)num_tokens * shape->hidden;
    float *got = test_alloc(count * sizeof *got), *want = test_alloc(count * sizeof *want);
    experts_run(pair->scalar, shape, on_cpu, &call, 0, num_tokens, want);
    experts_run(pair->device, shape, on_cuda, &call, 0, num_tokens, got);
    double nmse = ops_nmse_f32(got, want, count);
    if (!(nmse <= EXPERTS_NMSE)) {
        fail_msg("%u experts, %u x %u, %u tokens of %u: nmse %g", shape->num_experts, shape->hidden,
                 shape->intermediate, num_tokens, top_k, nmse);
    }
    free(got);
    free(want);
    experts_call_free(&call);
    pair->scalar->moe->experts_destroy(pair->scalar, on_cpu);
    pair->device->moe->experts_destroy(pair->device, on_cuda);
    model_free(&model);
}

// Sums that are added to what `out` has.
static void test_added(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        struct experts_shape shape;
        uint32_t num_tokens, top_k;
    } added[] = {{{12, 2048, 768, false, false}, 1, 8}, {{6, 264, 136, true, false}, 4, 3}};
    if (!pair->device->moe->adds_sums) skip();
    for (size_t i = 0; i < ARRAY_LEN(added); i++) {
        const struct experts_shape *shape = &added[i].shape;
        uint32_t num_tokens = added[i].num_tokens;
        size_t count = (size_t)num_tokens * shape->hidden;
        struct model model = model_make(*shape, i);
        struct experts *on_cpu = model_experts(pair->scalar, &model);
        struct experts *on_cuda = model_experts(pair->device, &model);
        struct experts_call call =
            experts_call_make(num_tokens, added[i].top_k, shape->hidden, shape->num_experts, i);
        struct ops_rng rng = ops_rng_of(i);
        float *got = bf16_values(&rng, count, 1), *want = test_alloc(count * sizeof *want);
        experts_run(pair->scalar, shape, on_cpu, &call, 0, num_tokens, want);
        for (size_t k = 0; k < count; k++) want[k] += got[k];
        experts_run_added(pair->device, shape, on_cuda, &call, 0, num_tokens, got);
        double nmse = ops_nmse_f32(got, want, count);
        if (!(nmse <= EXPERTS_NMSE)) fail_msg("%u tokens, added: nmse %g", num_tokens, nmse);
        free(got);
        free(want);
        experts_call_free(&call);
        pair->scalar->moe->experts_destroy(pair->scalar, on_cpu);
        pair->device->moe->experts_destroy(pair->device, on_cuda);
        model_free(&model);
    }
}

// While it is gone, the device runs what GPUs before sm_90 do.
static void *hidden_encode_tensor_map;

static int hide_tensor_maps(void **state) {
    struct cuda_device_info *info =
        &cuda_backend_of(((const struct device_pair *)*state)->device)->info;
    hidden_encode_tensor_map = info->encode_tensor_map;
    info->encode_tensor_map = NULL;
    return 0;
}

static int show_tensor_maps(void **state) {
    cuda_backend_of(((const struct device_pair *)*state)->device)->info.encode_tensor_map =
        hidden_encode_tensor_map;
    return 0;
}

static void test_experts_match(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) check_shape(*state, i, false);
}

static void test_experts_match_elsewhere(void **state) {
    test_experts_match(state);
}

// Every second shape has few tokens, tiles of each size and those of sm_90 too.
static void test_experts_with_gelu(void **state) {
    const struct device_pair *pair = *state;
    if (!pair->device->moe->has_branches) skip();
    for (size_t i = 0; i < ARRAY_LEN(shapes); i += 2) {
        if (!shapes[i].shape.lacks_gate) check_shape(pair, i, true);
    }
}

// A linear of `parts` matrices of bf16 with the same shape. Biases are the parts' first numbers.
static struct linear *linear_of_bf16(struct backend *backend, uint16_t *const *parts,
                                     uint32_t num_parts, uint32_t rows, uint32_t cols,
                                     bool has_bias) {
    struct matrix_slice slices[2], biases[2];
    for (uint32_t i = 0; i < num_parts; i++) {
        slices[i] = (struct matrix_slice){.source = {.data = parts[i]},
                                          .dtype = DTYPE_BF16,
                                          .rows = rows,
                                          .cols = cols,
                                          .row_stride = cols};
        biases[i] = slices[i];
        biases[i].rows = 1, biases[i].cols = rows, biases[i].row_stride = rows;
    }
    return linear_of(backend, &(struct linear_spec){.parts = slices,
                                                    .biases = has_bias ? biases : NULL,
                                                    .num_parts = num_parts,
                                                    .format = WEIGHTS_NATIVE});
}

// The call with another expert as the last slot of every token: `id`, whose weight is the sigmoid
// of the product with `gate`, or 1.
static struct experts_call with_shared(const struct experts_call *call, int32_t id,
                                       const uint16_t *gate) {
    uint32_t top_k = call->top_k;
    struct experts_call all = *call;
    all.top_k = top_k + 1;
    all.x = test_alloc((size_t)call->num_tokens * call->hidden * sizeof *all.x);
    memcpy(all.x, call->x, (size_t)call->num_tokens * call->hidden * sizeof *all.x);
    all.ids = test_alloc((size_t)call->num_tokens * all.top_k * sizeof *all.ids);
    all.weights = test_alloc((size_t)call->num_tokens * all.top_k * sizeof *all.weights);
    for (uint32_t token = 0; token < call->num_tokens; token++) {
        double sum = 0;
        for (uint32_t i = 0; i < call->hidden; i++) {
            double x = (double)call->x[(size_t)token * call->hidden + i];
            if (gate) sum += x * (double)bf16_to_f32(gate[i]);
        }
        for (uint32_t slot = 0; slot < all.top_k; slot++) {
            size_t to = (size_t)token * all.top_k + slot, from = (size_t)token * top_k + slot;
            all.ids[to] = slot < top_k ? call->ids[from] : id;
            float weight = gate ? (float)(1 / (1 + exp(-sum))) : 1;
            all.weights[to] = slot < top_k ? call->weights[from] : weight;
        }
    }
    return all;
}

// The last of the model's experts is the shared one.
static void check_shared(const struct device_pair *pair, struct experts_shape all, uint32_t tokens,
                         uint32_t top_k, bool has_gate) {
    struct backend *device = pair->device;
    uint32_t hidden = all.hidden, size = all.intermediate, last = all.num_experts - 1;
    size_t matrix = (size_t)last * hidden * size, count = (size_t)tokens * hidden;
    struct model model = model_make(all, 11), routed = model;
    routed.shape.num_experts = last;
    uint16_t *gate = random_bf16((size_t)8 * hidden, 12); // the first row counts
    for (uint32_t i = 0; i < 8 * hidden; i++) gate[i] = f32_to_bf16(bf16_to_f32(gate[i]) / 16);
    uint16_t *const gate_up[] = {model.gate + matrix, model.up + matrix};
    uint16_t *const down[] = {model.down + matrix};
    struct linear *linears[] = {linear_of_bf16(device, gate_up, 2, size, hidden, false),
                                linear_of_bf16(device, down, 1, hidden, size, false),
                                linear_of_bf16(device, &gate, 1, 8, hidden, false)};
    struct experts *on_cpu = model_experts(pair->scalar, &model);
    struct experts *on_cuda = model_experts(device, &routed);
    struct experts_call call = experts_call_make(tokens, top_k, hidden, last, 13);
    struct experts_call both = with_shared(&call, (int32_t)last, has_gate ? gate : NULL);
    struct experts_buffers b = experts_buffers_make(device, &routed.shape, on_cuda, tokens, top_k);
    float *want = test_alloc(count * sizeof *want);
    experts_run(pair->scalar, &all, on_cpu, &both, 0, tokens, want);
    experts_buffers_fill(&b, &call, 0);
    b.args.shared = (struct shared_expert){linears[0], linears[1], has_gate ? linears[2] : NULL};
    assert_true(device->moe->takes_shared(device, &b.args));
    device->moe->experts(device, &b.args);
    float *got = tensor_read(&b.out);
    double nmse = ops_nmse_f32(got, want, count);
    if (!(nmse <= EXPERTS_NMSE)) {
        fail_msg("%u x %u, %u tokens of %u and a shared expert: nmse %g", hidden, size, tokens,
                 top_k, nmse);
    }
    free(got);
    free(want);
    experts_buffers_free(&b);
    experts_call_free(&both);
    experts_call_free(&call);
    pair->scalar->moe->experts_destroy(pair->scalar, on_cpu);
    device->moe->experts_destroy(device, on_cuda);
    for (size_t i = 0; i < ARRAY_LEN(linears); i++) device->ops->linear_destroy(device, linears[i]);
    free(gate);
    model_free(&model);
}

static void test_shared_expert(void **state) {
    const struct device_pair *pair = *state;
    if (!pair->device->moe->takes_shared) skip();
    check_shared(pair, (struct experts_shape){6, 72, 40, false, false}, 1, 2, true);
    check_shared(pair, (struct experts_shape){12, 2048, 512, false, false}, 1, 8, true);
    check_shared(pair, (struct experts_shape){12, 520, 136, false, false}, 4, 8, true);
    check_shared(pair, (struct experts_shape){12, 136, 520, false, false}, 3, 10, false);
}

// Takes the shared expert only where few_tokens.cu runs and has room for one more slot.
static void test_shared_expert_refused(void **state) {
    struct backend *device = ((const struct device_pair *)*state)->device;
    if (!device->moe->takes_shared) skip();
    static const struct {
        struct experts_shape shape;
        uint32_t num_tokens, top_k, size; // size: of the shared expert
        bool has_linear_bias, is_taken;
    } cases[] = {
        {{6, 72, 40, false, false}, 1, 2, 40, false, true},
        {{6, 72, 40, false, false}, 4, 2, 40, false, true},
        {{6, 72, 40, false, false}, 5, 2, 40, false, false}, // sorted by expert
        {{6, 72, 40, false, false}, 0, 2, 40, false, false},
        {{6, 72, 40, false, false}, 1, 2, 48, false, false}, // another size
        {{6, 72, 40, true, false}, 1, 2, 40, false, false}, // another activation
        {{6, 72, 40, false, false}, 1, 2, 40, true, false},
        {{6, 40, 80, false, false}, 1, 2, 80, false, true},
        {{6, 40, 88, false, false},
         1,
         2,
         88,
         false,
         false}, // more activated values than scratch memory
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct experts_shape *shape = &cases[i].shape;
        struct model model = model_make(*shape, i);
        struct experts *experts = model_experts(device, &model);
        uint32_t hidden = shape->hidden, size = cases[i].size;
        uint16_t *weights = random_bf16((size_t)hidden * size, i);
        uint16_t *const gate_up[] = {weights, weights}, *const down[] = {weights};
        struct linear *linears[] = {
            linear_of_bf16(device, gate_up, 2, size, hidden, cases[i].has_linear_bias),
            linear_of_bf16(device, down, 1, hidden, size, false)};
        const struct experts_args args = {.experts = experts,
                                          .num_tokens = cases[i].num_tokens,
                                          .top_k = cases[i].top_k,
                                          .shared = {linears[0], linears[1], NULL}};
        if (device->moe->takes_shared(device, &args) != cases[i].is_taken) {
            fail_msg("case %zu is taken or not, want the other", i);
        }
        for (size_t j = 0; j < 2; j++) device->ops->linear_destroy(device, linears[j]);
        device->moe->experts_destroy(device, experts);
        free(weights);
        model_free(&model);
    }
}

// Above 4 tokens every batch size gives the same bits, whatever its tiles. So do batches of 1 to 4.
static void test_same_bits(void **state) {
    struct backend *cuda = ((const struct device_pair *)*state)->device;
    enum { TOKENS = 520, TOP = 4 };
    const uint32_t batches[] = {TOKENS, 5, 64, 200, TOKENS, 1, 4, 2, 3};
    const struct experts_shape shape = {16, 136, 72, true, false};
    struct model model = model_make(shape, 1);
    struct experts *experts = model_experts(cuda, &model);
    struct experts_call call = experts_call_make(TOKENS, TOP, shape.hidden, shape.num_experts, 2);
    size_t count = (size_t)TOKENS * shape.hidden;
    float *want = test_alloc(count * sizeof *want), *got = test_alloc(count * sizeof *got);
    for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
        // A part of the tokens is enough for small batches
        uint32_t rows = batches[b] > 4 ? TOKENS : 24;
        memset(got, 0, count * sizeof *got);
        for (uint32_t first = 0; first < rows; first += batches[b]) {
            uint32_t left = TOKENS - first; // the last batch is moved back, so that it stays large
            uint32_t at = left < batches[b] ? TOKENS - batches[b] : first;
            experts_run(cuda, &shape, experts, &call, at, batches[b], got);
        }
        if (b == 0 || batches[b] == 1) memcpy(want, got, count * sizeof *want);
        ops_assert_same_bits(got, want, rows, shape.hidden, "another batch");
    }
    free(want);
    free(got);
    experts_call_free(&call);
    cuda->moe->experts_destroy(cuda, experts);
    model_free(&model);
}

static void test_same_bits_elsewhere(void **state) {
    test_same_bits(state);
}

// A call that is split, where the last part has few tokens.
static void check_many_tokens(struct backend *cuda, uint32_t num_experts, uint32_t top_k) {
    enum { TOKENS = 8192 + 3 };
    const struct experts_shape shape = {num_experts, 16, 8, false, false};
    struct model model = model_make(shape, 7);
    struct experts *experts = model_experts(cuda, &model);
    struct experts_call call = experts_call_make(TOKENS, top_k, shape.hidden, num_experts, 8);
    size_t count = (size_t)TOKENS * shape.hidden;
    float *all = test_alloc(count * sizeof *all), *parts = test_alloc(count * sizeof *parts);
    experts_run(cuda, &shape, experts, &call, 0, TOKENS, all);
    experts_run(cuda, &shape, experts, &call, 0, 5000, parts);
    experts_run(cuda, &shape, experts, &call, 5000, TOKENS - 5000, parts);
    ops_assert_same_bits(all, parts, TOKENS, shape.hidden, "in other parts");
    free(all);
    free(parts);
    experts_call_free(&call);
    cuda->moe->experts_destroy(cuda, experts);
    model_free(&model);
}

// With 40 of a token the sort takes more shared memory than a launch has without asking.
static void test_many_tokens(void **state) {
    struct backend *cuda = ((const struct device_pair *)*state)->device;
    check_many_tokens(cuda, 4, 2);
    check_many_tokens(cuda, 64, 40);
}

// The weights of experts without tokens are not read, and a NaN token does not affect the others.
static void check_isolation(struct backend *cuda, uint32_t num_tokens) {
    enum { TOP = 2, USED = 4, BAD = 1 };
    const struct experts_shape shape = {6, 24, 40, false, false};
    struct model model = model_make(shape, 3);
    struct experts_call call = experts_call_make(num_tokens, TOP, shape.hidden, USED, 4);
    size_t count = (size_t)num_tokens * shape.hidden;
    size_t matrix = (size_t)shape.hidden * shape.intermediate;
    float *want = test_alloc(count * sizeof *want), *got = test_alloc(count * sizeof *got);
    struct experts *experts = model_experts(cuda, &model);
    experts_run(cuda, &shape, experts, &call, 0, num_tokens, want);
    cuda->moe->experts_destroy(cuda, experts);
    for (size_t i = USED * matrix; i < shape.num_experts * matrix; i++) {
        model.gate[i] = model.up[i] = model.down[i] = 0x7fc0; // NaN
    }
    for (uint32_t k = 0; k < shape.hidden; k++) call.x[BAD * shape.hidden + k] = NAN;
    experts = model_experts(cuda, &model);
    experts_run(cuda, &shape, experts, &call, 0, num_tokens, got);
    assert_true(isnan(got[BAD * shape.hidden]));
    memcpy(got + BAD * shape.hidden, want + BAD * shape.hidden, shape.hidden * sizeof *got);
    ops_assert_same_bits(got, want, num_tokens, shape.hidden, "beside what is no number");
    cuda->moe->experts_destroy(cuda, experts);
    free(want);
    free(got);
    experts_call_free(&call);
    model_free(&model);
}

static void test_other_experts_and_tokens_do_not_matter(void **state) {
    struct backend *cuda = ((const struct device_pair *)*state)->device;
    check_isolation(cuda, 3);
    check_isolation(cuda, 20);
    check_isolation(cuda, 150);
}

// A recorded call runs with other tokens and other experts than when it was recorded.
static void check_graph(struct backend *cuda, uint32_t num_tokens) {
    enum { TOP = 4 };
    const struct experts_shape shape = {16, 72, 40, false, false};
    struct model model = model_make(shape, 5);
    struct experts *experts = model_experts(cuda, &model);
    struct experts_call call =
        experts_call_make(2 * num_tokens, TOP, shape.hidden, shape.num_experts, 6);
    struct experts_buffers d = experts_buffers_make(cuda, &shape, experts, num_tokens, TOP);
    size_t count = (size_t)num_tokens * shape.hidden;
    float *want = test_alloc(2 * count * sizeof *want);
    experts_run(cuda, &shape, experts, &call, 0, num_tokens, want);
    experts_run(cuda, &shape, experts, &call, num_tokens, num_tokens, want);
    struct backend_graph *graph = NULL;
    struct err err = {0};
    enum status status = cuda->queue->graph_begin(cuda, &err);
    if (status) fail_msg("%s", err.message);
    cuda->moe->experts(cuda, &d.args);
    status = cuda->queue->graph_end(cuda, &graph, &err);
    if (status) fail_msg("%s", err.message);
    for (uint32_t i = 0; i < 2; i++) {
        experts_buffers_fill(&d, &call, i * num_tokens);
        cuda->queue->graph_launch(cuda, graph);
        float *got = tensor_read(&d.out);
        ops_assert_same_bits(got, want + i * count, num_tokens, shape.hidden, "from a graph");
        free(got);
    }
    cuda->queue->graph_destroy(cuda, graph);
    free(want);
    experts_buffers_free(&d);
    experts_call_free(&call);
    cuda->moe->experts_destroy(cuda, experts);
    model_free(&model);
}

static void test_recorded_calls(void **state) {
    struct backend *cuda = ((const struct device_pair *)*state)->device;
    if (!cuda->queue) {
        print_message("skipped: this backend records no graphs\n");
        skip();
    }
    check_graph(cuda, 2);
    check_graph(cuda, 16);
    check_graph(cuda, 300);
}

static void test_bad_specs(void **state) {
    struct backend *cuda = ((const struct device_pair *)*state)->device;
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
    const struct experts_shape shape = {1, 16, 8, false, false}, odd = {1, 12, 8, false, false},
                               many = {5000, 16, 8, false, false};
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

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_match),
        cmocka_unit_test(test_experts_with_gelu),
        cmocka_unit_test_setup_teardown(test_experts_match_elsewhere, hide_tensor_maps,
                                        show_tensor_maps),
        cmocka_unit_test(test_added),
        cmocka_unit_test(test_shared_expert),
        cmocka_unit_test(test_shared_expert_refused),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test_setup_teardown(test_same_bits_elsewhere, hide_tensor_maps,
                                        show_tensor_maps),
        cmocka_unit_test(test_many_tokens),
        cmocka_unit_test(test_other_experts_and_tokens_do_not_matter),
        cmocka_unit_test(test_recorded_calls),
        cmocka_unit_test(test_bad_specs),
    };
    return device_pair_run(argc, argv, "cuda experts", tests, ARRAY_LEN(tests));
}
