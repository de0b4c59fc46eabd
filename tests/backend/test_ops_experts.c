// Mixture of experts on every instruction set, compared with double precision over odd shapes,
// experts without tokens, and more rows than a wave. They must have the same bits in any batch, for
// any thread count, and as the ops that they consist of.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/ops_util.h"

// The summing error of float32 over a few hundred terms, twice, and the error of exp.
#define EXPERTS_NMSE 1e-10
// Where x and the second linear's input are rounded to bf16: each is off by at most 2^-8, squared.
#define EXPERTS_NMSE_BF16 3e-5

// The weights of all experts as a checkpoint has them, and their values once rounded.
struct model {
    struct experts_shape shape;
    uint16_t *bits[3]; // gate, up [experts][intermediate][hidden], down [experts][hidden][...]
    double *value[3];
    float *bias[3]; // [experts][intermediate], down [experts][hidden]; with has_bias
};

static uint32_t outputs(const struct experts_shape *shape, int part) {
    return part == 2 ? shape->hidden : shape->intermediate;
}

static struct model model_make(struct experts_shape shape, uint64_t seed) {
    struct model model = {.shape = shape};
    size_t count = (size_t)shape.num_experts * shape.hidden * shape.intermediate;
    struct ops_rng rng = ops_rng_of(seed);
    for (int part = 0; part < 3; part++) {
        model.bits[part] = malloc(count * sizeof *model.bits[part]);
        model.value[part] = malloc(count * sizeof *model.value[part]);
        for (size_t i = 0; i < count; i++) {
            model.bits[part][i] = f32_to_bf16(ops_rng_float(&rng));
            model.value[part][i] = (double)bf16_to_f32(model.bits[part][i]);
        }
        size_t biases = (size_t)shape.num_experts * outputs(&shape, part);
        model.bias[part] = malloc(biases * sizeof(float));
        ops_rng_fill(&rng, model.bias[part], biases);
        // Some are beyond the limits of the clamped activation.
        for (size_t i = 0; i < biases; i++) model.bias[part][i] *= 8;
    }
    return model;
}

static void model_free(struct model *model) {
    for (int part = 0; part < 3; part++) {
        free(model->bits[part]);
        free(model->value[part]);
        free(model->bias[part]);
    }
}

// Experts of rows (of down: columns) begin .. end-1 of the intermediate size.
static struct experts *experts_in(struct backend *backend, const struct model *model,
                                  uint32_t begin, uint32_t end, struct weight_format format) {
    uint32_t hidden = model->shape.hidden, size = model->shape.intermediate;
    struct matrix_slice *slices = calloc(model->shape.num_experts, 6 * sizeof *slices);
    struct matrix_slice *parts[3], *biases[3];
    for (uint32_t part = 0; part < 3; part++) {
        parts[part] = slices + (size_t)part * model->shape.num_experts;
        biases[part] = parts[part] + 3 * (size_t)model->shape.num_experts;
        for (uint32_t i = 0; i < model->shape.num_experts; i++) {
            const uint16_t *bits = model->bits[part] + (size_t)i * hidden * size;
            parts[part][i] =
                part == 2 ? (struct matrix_slice){.source = {.data = bits + begin},
                                                  .dtype = DTYPE_BF16,
                                                  .rows = hidden,
                                                  .cols = end - begin,
                                                  .row_stride = size}
                          : (struct matrix_slice){.source = {.data = bits + (size_t)begin * hidden},
                                                  .dtype = DTYPE_BF16,
                                                  .rows = end - begin,
                                                  .cols = hidden,
                                                  .row_stride = hidden};
            uint32_t all = outputs(&model->shape, (int)part);
            const float *bias = model->bias[part] + (size_t)i * all;
            biases[part][i] =
                (struct matrix_slice){.source = {.data = part == 2 ? bias : bias + begin},
                                      .dtype = DTYPE_F32,
                                      .rows = 1,
                                      .cols = part == 2 ? all : end - begin,
                                      .row_stride = all};
        }
    }
    const struct experts_shape shape = {model->shape.num_experts, hidden, end - begin,
                                        model->shape.has_bias, model->shape.lacks_gate};
    const struct experts_spec spec = {.shape = shape,
                                      .gate = shape.lacks_gate ? NULL : parts[0],
                                      .up = parts[1],
                                      .down = parts[2],
                                      .gate_bias = biases[0],
                                      .up_bias = biases[1],
                                      .down_bias =
                                          begin == 0 ? biases[2] : NULL, // of the first rank alone
                                      .activation = shape.lacks_gate ? ACTIVATION_RELU_SQUARED
                                                    : shape.has_bias ? ACTIVATION_CLAMPED_SILU
                                                                     : ACTIVATION_SILU,
                                      .format = format};
    struct experts *experts = NULL;
    struct err err = {0};
    if (backend->moe->experts_create(backend, &spec, &experts, &err)) fail_msg("%s", err.message);
    free(slices);
    return experts;
}

static struct experts *slice_of(struct backend *backend, const struct model *model, uint32_t begin,
                                uint32_t end) {
    return experts_in(backend, model, begin, end, WEIGHTS_NATIVE);
}

static struct experts *experts_of(struct backend *backend, const struct model *model) {
    return slice_of(backend, model, 0, model->shape.intermediate);
}

static double dot(const double *w, const double *x, uint32_t count) {
    double sum = 0;
    for (uint32_t k = 0; k < count; k++) sum += w[k] * x[k];
    return sum;
}

static void oracle_token(const struct model *model, const float *x, const int32_t *ids,
                         const float *weights, uint32_t top_k, double *out) {
    uint32_t hidden = model->shape.hidden, size = model->shape.intermediate;
    double *wide = malloc(hidden * sizeof *wide), *activated = malloc(size * sizeof *activated);
    for (uint32_t i = 0; i < hidden; i++) {
        wide[i] = (double)x[i];
        out[i] = 0;
    }
    for (uint32_t slot = 0; slot < top_k; slot++) {
        size_t at = (size_t)ids[slot] * hidden * size;
        for (uint32_t n = 0; n < size; n++) {
            double gate = dot(model->value[0] + at + (size_t)n * hidden, wide, hidden);
            double up = dot(model->value[1] + at + (size_t)n * hidden, wide, hidden);
            if (model->shape.has_bias) {
                size_t bias = (size_t)ids[slot] * size + n;
                gate = fmin(gate + (double)model->bias[0][bias], 7);
                up = fmin(fmax(up + (double)model->bias[1][bias], -7), 7);
                activated[n] = gate / (1 + exp(-1.702 * gate)) * (up + 1);
                continue;
            }
            double positive = fmax(up, 0);
            activated[n] =
                model->shape.lacks_gate ? positive * positive : gate / (1 + exp(-gate)) * up;
        }
        for (uint32_t n = 0; n < hidden; n++) {
            const double *row = model->value[2] + at + (size_t)n * size;
            double bias =
                model->shape.has_bias ? (double)model->bias[2][(size_t)ids[slot] * hidden + n] : 0;
            out[n] += (double)weights[slot] * (dot(row, activated, size) + bias);
        }
    }
    free(wide);
    free(activated);
}

// Tokens with their routing, and memory for the result, all between guard bytes.
struct call {
    uint32_t num_tokens, top_k, hidden;
    float *x, *weights, *ids_memory, *out;
    int32_t *ids;
};

// Only the first `num_used` experts get tokens.
static struct call call_make(uint32_t num_tokens, uint32_t top_k, uint32_t hidden,
                             uint32_t num_used, uint64_t seed) {
    size_t pairs = (size_t)num_tokens * top_k;
    struct call call = {.num_tokens = num_tokens, .top_k = top_k, .hidden = hidden};
    struct ops_rng rng = ops_rng_of(seed);
    call.x = ops_guard_alloc((size_t)num_tokens * hidden);
    call.out = ops_guard_alloc((size_t)num_tokens * hidden);
    call.weights = ops_guard_alloc(pairs);
    call.ids_memory = ops_guard_alloc(pairs);
    call.ids = (int32_t *)(void *)call.ids_memory;
    ops_rng_fill(&rng, call.x, (size_t)num_tokens * hidden);
    ops_rng_fill(&rng, call.weights, pairs);
    for (uint32_t token = 0; token < num_tokens; token++) {
        uint32_t first = ops_rng_below(&rng, num_used); // consecutive: distinct
        for (uint32_t slot = 0; slot < top_k; slot++) {
            call.ids[(size_t)token * top_k + slot] = (int32_t)((first + slot) % num_used);
        }
    }
    return call;
}

static void call_free(struct call *call) {
    size_t pairs = (size_t)call->num_tokens * call->top_k;
    ops_guard_free(call->x, (size_t)call->num_tokens * call->hidden);
    ops_guard_free(call->out, (size_t)call->num_tokens * call->hidden);
    ops_guard_free(call->weights, pairs);
    ops_guard_free(call->ids_memory, pairs);
}

// Runs `count` tokens from `first` on, with exactly as much scratch memory as the op asks for.
static void run(struct backend *backend, const struct experts *experts,
                const struct experts_shape *shape, const struct call *call, uint32_t first,
                uint32_t count) {
    size_t bytes = backend->moe->experts_scratch_bytes(backend, shape, count, call->top_k);
    size_t floats = bytes / sizeof(float);
    float *scratch = ops_guard_alloc(floats);
    size_t pair = (size_t)first * call->top_k, at = (size_t)first * call->hidden;
    struct experts_args args = {.experts = experts,
                                .x = call->x + at,
                                .ids = call->ids + pair,
                                .weights = call->weights + pair,
                                .out = call->out + at,
                                .scratch = scratch,
                                .num_tokens = count,
                                .top_k = call->top_k};
    backend->moe->experts(backend, &args);
    ops_guard_free(scratch, floats);
}

static const struct {
    struct experts_shape shape;
    uint32_t num_tokens, top_k, num_used;
} shapes[] = {
    {{1, 1, 1, false, false}, 1, 1, 1},     {{3, 17, 5, true, false}, 7, 2, 3},
    {{8, 33, 24, true, false}, 1, 3, 8},    {{5, 64, 40, true, false}, 40, 5, 5},
    {{16, 40, 31, false, false}, 2, 1, 16}, {{40, 20, 9, false, false}, 60, 4, 13},
    {{4, 35, 18, true, false}, 700, 2, 4},  {{3, 16, 16, false, false}, 1500, 1, 1},
    {{2, 8, 19, false, false}, 1100, 2, 2}, {{9, 600, 33, true, false}, 13, 3, 9},
    {{6, 48, 530, false, false}, 13, 2, 5}, {{128, 32, 16, false, false}, 130, 8, 128},
    {{5, 70, 48, true, false}, 50, 3, 5},   {{3, 64, 112, false, false}, 200, 2, 3},
    {{5, 70, 48, false, true}, 50, 3, 5},   {{6, 33, 41, false, true}, 700, 2, 4},
    {{3, 64, 112, false, true}, 1, 2, 3},
};

static void check_shapes(const char *isa, enum dtype weight_dtype) {
    struct backend *backend = ops_backend(isa, 2, weight_dtype);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const struct experts_shape *shape = &shapes[i].shape;
        uint32_t num_tokens = shapes[i].num_tokens, top_k = shapes[i].top_k;
        struct model model = model_make(*shape, i);
        struct experts *experts = experts_of(backend, &model);
        struct call call = call_make(num_tokens, top_k, shape->hidden, shapes[i].num_used, i + 100);
        run(backend, experts, shape, &call, 0, num_tokens);
        size_t count = (size_t)num_tokens * shape->hidden;
        double *want = malloc(count * sizeof *want);
        for (uint32_t token = 0; token < num_tokens; token++) {
            size_t at = (size_t)token * shape->hidden, pair = (size_t)token * top_k;
            oracle_token(&model, call.x + at, call.ids + pair, call.weights + pair, top_k,
                         want + at);
        }
        bool rounds = weight_dtype == DTYPE_BF16 && cpu_backend_of(backend)->kernels.linear_pairs;
        assert_nmse(call.out, want, count, rounds ? EXPERTS_NMSE_BF16 : EXPERTS_NMSE);
        free(want);
        call_free(&call);
        backend->moe->experts_destroy(backend, experts);
        model_free(&model);
    }
    backend_destroy(backend);
}

static void test_bf16_matches(void **state) {
    check_shapes(*state, DTYPE_BF16);
}

static void test_f32_matches(void **state) {
    check_shapes(*state, DTYPE_F32);
}

// Runs every token of a batch again alone and in other batches, with 1, 2 and 3 threads.
static void check_same_bits(const char *isa, struct experts_shape shape) {
    enum { TOKENS = 90, TOP = 3 };
    struct model model = model_make(shape, 1);
    struct call call = call_make(TOKENS, TOP, shape.hidden, shape.num_experts, 2);
    size_t count = (size_t)TOKENS * shape.hidden;
    float *want = ops_guard_alloc(count);
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *backend = ops_backend(isa, threads, DTYPE_BF16);
        struct experts *experts = experts_of(backend, &model);
        const uint32_t batches[] = {TOKENS, 1, 2, 13, 40};
        for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
            for (uint32_t first = 0; first < TOKENS; first += batches[b]) {
                uint32_t left = TOKENS - first;
                run(backend, experts, &shape, &call, first, left < batches[b] ? left : batches[b]);
            }
            if (threads == 1 && b == 0) memcpy(want, call.out, count * sizeof *want);
            ops_assert_same_bits(call.out, want, TOKENS, shape.hidden, "another batch");
        }
        backend->moe->experts_destroy(backend, experts);
        backend_destroy(backend);
    }
    ops_guard_free(want, count);
    call_free(&call);
    model_free(&model);
}

static void test_same_bits(void **state) {
    check_same_bits(*state, (struct experts_shape){7, 130, 41, true, false});
    check_same_bits(*state, (struct experts_shape){7, 130, 48, true, false}); // of whole blocks
    check_same_bits(*state, (struct experts_shape){7, 130, 48, false, true});
}

// The one expert of `model` as two linears and an activation.
static void run_linears(struct backend *backend, const struct model *model,
                        struct weight_format format, const float *x, uint32_t rows, float *out) {
    uint32_t hidden = model->shape.hidden, size = model->shape.intermediate;
    struct matrix_slice parts[3], biases[3];
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t outs = outputs(&model->shape, (int)i), ins = i == 2 ? size : hidden;
        parts[i] = (struct matrix_slice){.source = {.data = model->bits[i]},
                                         .dtype = DTYPE_BF16,
                                         .rows = outs,
                                         .cols = ins,
                                         .row_stride = ins};
        biases[i] = (struct matrix_slice){.source = {.data = model->bias[i]},
                                          .dtype = DTYPE_F32,
                                          .rows = 1,
                                          .cols = outs,
                                          .row_stride = outs};
    }
    const struct linear_spec specs[] = {{parts, biases, 2, format},
                                        {parts + 2, biases + 2, 1, format}};
    struct linear *linears[2];
    struct err err = {0};
    for (int i = 0; i < 2; i++) {
        if (backend->ops->linear_create(backend, &specs[i], &linears[i], &err)) {
            fail_msg("%s", err.message);
        }
    }
    float *gate_up = malloc((size_t)rows * 2 * size * sizeof *gate_up);
    float *activated = malloc((size_t)rows * size * sizeof *activated);
    backend->ops->linear(
        backend, &(struct linear_args){.linear = linears[0], .x = x, .out = gate_up, .rows = rows});
    backend->ops->silu_mul(backend, &(struct silu_mul_args){.gate_up = gate_up,
                                                            .out = activated,
                                                            .rows = rows,
                                                            .cols = size,
                                                            .activation = ACTIVATION_CLAMPED_SILU});
    backend->ops->linear(
        backend,
        &(struct linear_args){.linear = linears[1], .x = activated, .out = out, .rows = rows});
    free(gate_up);
    free(activated);
    for (int i = 0; i < 2; i++) backend->ops->linear_destroy(backend, linears[i]);
}

// An expert has the bits of the ops that it consists of, though gate and up may run side by side.
static void test_an_expert_is_its_linears(void **state) {
    const struct weight_format formats[] = {WEIGHTS_NATIVE, WEIGHTS_INT8, WEIGHTS_INT4};
    // Hidden and intermediate. The last is cut into many items.
    const uint32_t sizes[][2] = {{96, 41}, {96, 160}, {2080, 48}}, rows[] = {1, 3, 70};
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    for (size_t i = 0; i < ARRAY_LEN(formats) * ARRAY_LEN(sizes) * ARRAY_LEN(rows); i++) {
        const struct experts_shape shape = {1, sizes[i % 3][0], sizes[i % 3][1], true, false};
        struct weight_format format = formats[i / 9];
        uint32_t count = rows[i / 3 % 3];
        struct model model = model_make(shape, i);
        struct call call = call_make(count, 1, shape.hidden, 1, i);
        for (uint32_t token = 0; token < count; token++) call.weights[token] = 1;
        struct experts *experts = experts_in(backend, &model, 0, shape.intermediate, format);
        float *want = ops_guard_alloc((size_t)count * shape.hidden);
        run(backend, experts, &shape, &call, 0, count);
        run_linears(backend, &model, format, call.x, count, want);
        ops_assert_same_bits(call.out, want, count, shape.hidden, "an expert");
        ops_guard_free(want, (size_t)count * shape.hidden);
        backend->moe->experts_destroy(backend, experts);
        call_free(&call);
        model_free(&model);
    }
    backend_destroy(backend);
}

// Weights of experts without tokens are not read, and a token of NaN changes no other token.
static void test_other_experts_and_tokens_do_not_matter(void **state) {
    enum { TOKENS = 20, TOP = 2 };
    const struct experts_shape shape = {6, 24, 20, false, false};
    struct model model = model_make(shape, 3);
    struct call call = call_make(TOKENS, TOP, shape.hidden, 4, 4);
    size_t count = (size_t)TOKENS * shape.hidden,
           expert = (size_t)shape.hidden * shape.intermediate;
    float *want = ops_guard_alloc(count);
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    struct experts *experts = experts_of(backend, &model);
    run(backend, experts, &shape, &call, 0, TOKENS);
    memcpy(want, call.out, count * sizeof *want);
    backend->moe->experts_destroy(backend, experts);
    for (int part = 0; part < 3; part++) {
        for (size_t i = 4 * expert; i < 6 * expert; i++) model.bits[part][i] = 0x7fc0; // NaN
    }
    for (uint32_t k = 0; k < shape.hidden; k++) call.x[7 * shape.hidden + k] = NAN;
    experts = experts_of(backend, &model);
    run(backend, experts, &shape, &call, 0, TOKENS);
    assert_true(isnan(call.out[(size_t)7 * shape.hidden]));
    memcpy(call.out + (size_t)7 * shape.hidden, want + (size_t)7 * shape.hidden,
           shape.hidden * sizeof *want);
    ops_assert_same_bits(call.out, want, TOKENS, shape.hidden, "beside what is no number");
    backend->moe->experts_destroy(backend, experts);
    backend_destroy(backend);
    ops_guard_free(want, count);
    call_free(&call);
    model_free(&model);
}

// Two ranks of a tensor-parallel group, each with its share of every expert.
static void test_parts_of_experts_add_up(void **state) {
    enum { TOKENS = 30, TOP = 2, CUT = 17 };
    const struct experts_shape shape = {5, 40, 36, true, false};
    struct model model = model_make(shape, 5);
    struct call call = call_make(TOKENS, TOP, shape.hidden, shape.num_experts, 6);
    size_t count = (size_t)TOKENS * shape.hidden;
    double *want = calloc(count, sizeof *want);
    float *sum = calloc(count, sizeof *sum);
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    const uint32_t cuts[] = {0, CUT, 36, 0, 36}; // two parts, then the whole
    for (size_t i = 0; i < ARRAY_LEN(cuts) - 1; i++) {
        if (cuts[i] > cuts[i + 1]) continue;
        struct experts *experts = slice_of(backend, &model, cuts[i], cuts[i + 1]);
        const struct experts_shape part = {5, 40, cuts[i + 1] - cuts[i], true, false};
        run(backend, experts, &part, &call, 0, TOKENS);
        for (size_t k = 0; k < count && i < 2; k++) sum[k] += call.out[k];
        backend->moe->experts_destroy(backend, experts);
    }
    for (size_t k = 0; k < count; k++) want[k] = (double)call.out[k];
    assert_nmse(sum, want, count, EXPERTS_NMSE);
    backend_destroy(backend);
    free(want);
    free(sum);
    call_free(&call);
    model_free(&model);
}

static void test_bad_specs(void **state) {
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
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
    const struct matrix_slice bias = {
        .source = {.data = data}, .dtype = DTYPE_BF16, .rows = 1, .cols = 8, .row_stride = 8};
    const struct experts_shape shape = {1, 16, 8, false, false},
                               with_bias = {1, 16, 8, true, false};
    const struct {
        struct experts_spec spec;
        const char *says;
    } cases[] = {
        {{.shape = shape, .gate = &gate, .up = &narrow, .down = &down}, "[8][12]"},
        {{.shape = shape, .gate = &narrow, .up = &narrow, .down = &down},
         "gate and up weights are [16][12], want [16][16]"},
        {{.shape = shape, .gate = &gate, .up = &up, .down = &gate},
         "down weights are [8][16], want [16][8]"},
        {{.shape = shape, .gate = &gate, .up = &up, .down = &integers}, "I8"},
        {{.shape = with_bias,
          .gate = &gate,
          .up = &up,
          .down = &down,
          .gate_bias = &bias,
          .up_bias = &narrow},
         "a bias is BF16 [8][12], want BF16, F16 or F32 [1][8]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct experts *experts = NULL;
        struct err err = {0};
        enum status status = backend->moe->experts_create(backend, &cases[i].spec, &experts, &err);
        assert_int_equal(status, ERR_INVALID);
        assert_null(experts);
        if (!strstr(err.message, cases[i].says)) fail_msg("%s", err.message);
    }
    backend->moe->experts_destroy(backend, NULL);
    assert_int_equal(backend->moe->experts_bytes(backend, &shape, WEIGHTS_NATIVE),
                     backend->ops->linear_bytes(backend, 16, 16, false, WEIGHTS_NATIVE) +
                         backend->ops->linear_bytes(backend, 16, 8, false, WEIGHTS_NATIVE));
    backend_destroy(backend);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"bf16 experts match double precision", test_bf16_matches, ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"f32 experts match double precision", test_f32_matches, ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"same bits in any batch, any thread count", test_same_bits, ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"an expert has the bits of its linears", test_an_expert_is_its_linears,
         ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"other experts and tokens do not matter", test_other_experts_and_tokens_do_not_matter,
         ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"parts of experts add up", test_parts_of_experts_add_up, ISA_FLOAT_WEIGHTS | ISA_ROWS},
        {"bad specs", test_bad_specs, ISA_FLOAT_WEIGHTS | ISA_ROWS},
    };
    return ops_run("experts", cases, ARRAY_LEN(cases));
}
