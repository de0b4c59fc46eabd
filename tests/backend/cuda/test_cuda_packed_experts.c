// Packed experts on device cuda give what the decoded weights give in double: every kind of code
// and group, sizes that are no multiple of 128, biases and the clamped activation, few tokens and
// many. A token's bits are the same in any batch of few, or of many, tokens.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/coded_matrix.h"
#include "backend/cuda/cuda_experts_util.h"
#include "base/compiler.h"

// As in test_cuda_experts.c; weights of small groups are rounded to bf16 where there are many
// tokens.
#define PACKED_NMSE 8e-5

enum { EXPERTS = 5, TOP_K = 3, USED = 4, TOKENS_MAX = 300, FEW_TOKENS = 4 };

static const uint32_t token_counts[] = {1, 2, 3, 4, 5, 40, 100, TOKENS_MAX};

struct packed_case {
    struct matrix_form form;
    uint32_t hidden, intermediate;
    bool has_bias; // and the clamped activation
    bool is_gelu; // else silu
};

static const struct packed_case cases[] = {
    {{.code = WEIGHT_CODE_E2M1, .group = 32}, 160, 96, true, false},
    {{.code = WEIGHT_CODE_E2M1, .group = 32}, 384, 256, false, false},
    {{.code = WEIGHT_CODE_E2M1, .group = 16}, 144, 48, true, false},
    {{.code = WEIGHT_CODE_E4M3, .group = 128}, 256, 192, false, true},
    {{.code = WEIGHT_CODE_E4M3}, 200, 72, true, false},
    {{.code = WEIGHT_CODE_INT4, .group = 128}, 256, 128, false, false},
    {{.code = WEIGHT_CODE_INT4, .group = 64, .has_offsets = true}, 192, 320, true, false},
    {{.code = WEIGHT_CODE_INT4, .group = 32}, 160, 96, false, true},
    {{.code = WEIGHT_CODE_INT4, .group = 32, .has_offsets = true}, 96, 160, true, false},
    {{.code = WEIGHT_CODE_INT4, .group = 16, .has_offsets = true}, 144, 80, false, false},
    {{.code = WEIGHT_CODE_INT8}, 136, 264, false, false},
    {{.code = WEIGHT_CODE_INT8, .group = 128}, 128, 256, true, false},
    {{.code = WEIGHT_CODE_INT8, .group = 32}, 96, 160, false, false},
    {{.code = WEIGHT_CODE_INT8, .group = 32, .has_offsets = true}, 160, 96, true, false},
    {{.code = WEIGHT_CODE_INT8, .group = 16, .has_offsets = true}, 80, 144, false, false},
    {{.code = WEIGHT_CODE_IQ4, .group = 32}, 224, 32, true, false},
    {{.code = WEIGHT_CODE_IQ3, .group = 32}, 96, 160, false, false},
    {{.code = WEIGHT_CODE_IQ2, .group = 16}, 144, 80, true, false},
    {{.code = WEIGHT_CODE_ODD, .group = 32}, 160, 96, true, false},
    // So many outputs that warps of the first product of few tokens have units of their own.
    {{.code = WEIGHT_CODE_E2M1, .group = 32}, 192, 2880, true, false},
    {{.code = WEIGHT_CODE_E4M3}, 136, 2880, false, false},
    {{.code = WEIGHT_CODE_INT4, .group = 128}, 256, 2880, true, false},
};

// Experts on the device, and what they stand for.
struct packed_experts {
    struct experts_shape shape;
    enum activation activation;
    struct experts *experts;
    float *weight[3]; // gate, up, down of all experts: [EXPERTS][outputs][inputs]
    float *bias[3]; // [EXPERTS][outputs]
};

static uint32_t outputs_of(const struct packed_case *c, size_t part) {
    return part == 2 ? c->hidden : c->intermediate;
}
static uint32_t inputs_of(const struct packed_case *c, size_t part) {
    return part == 2 ? c->intermediate : c->hidden;
}

// Zeros of 4-bit codes in large groups are whole.
static struct coded coded_for(const struct packed_case *c, uint64_t seed, size_t part) {
    uint32_t rows = EXPERTS * outputs_of(c, part);
    struct coded m = coded_make(seed + part, rows, inputs_of(c, part), c->form);
    struct ops_rng rng = ops_rng_of(seed + 5);
    for (size_t i = 0; i < (size_t)rows * m.groups; i++) {
        bool has_minima = c->form.code == WEIGHT_CODE_INT8 || c->form.group <= 32;
        float zero = (float)ops_rng_below(&rng, 16) + (has_minima ? 0.25f : 0);
        m.offsets[i] = (8 - zero) * m.scales[i];
    }
    return m;
}

static struct packed_experts packed_make(struct backend *backend, const struct packed_case *c,
                                         uint64_t seed) {
    struct packed_experts p = {.shape = {.num_experts = EXPERTS,
                                         .hidden = c->hidden,
                                         .intermediate = c->intermediate,
                                         .has_bias = c->has_bias},
                               .activation = c->has_bias  ? ACTIVATION_CLAMPED_SILU
                                             : c->is_gelu ? ACTIVATION_GELU_TANH
                                                          : ACTIVATION_SILU};
    struct coded coded[3];
    struct matrix_slice slices[3][EXPERTS], biases[3][EXPERTS];
    struct ops_rng rng = ops_rng_of(seed + 9);
    for (size_t part = 0; part < 3; part++) {
        uint32_t out = outputs_of(c, part), in = inputs_of(c, part);
        coded[part] = coded_for(c, seed, part);
        const struct matrix_reader *reader = &coded[part].reader;
        p.weight[part] = test_alloc((size_t)EXPERTS * out * in * sizeof(float));
        p.bias[part] = bf16_values(&rng, (size_t)EXPERTS * out, 8); // beyond the activation's limit
        for (uint32_t row = 0; row < EXPERTS * out; row++) {
            float *to = p.weight[part] + (size_t)row * in;
            assert_int_equal(reader->read(reader, row, 0, in, to, NULL), OK);
        }
        for (uint32_t e = 0; e < EXPERTS; e++) {
            slices[part][e] = (struct matrix_slice){.rows = out,
                                                    .cols = in,
                                                    .dtype = DTYPE_F32,
                                                    .reader = reader,
                                                    .first_row = (uint64_t)e * out};
            biases[part][e] = (struct matrix_slice){.rows = 1,
                                                    .cols = out,
                                                    .dtype = DTYPE_F32,
                                                    .source = {.data = p.bias[part] + e * out},
                                                    .row_stride = out};
        }
    }
    struct weight_format format = weight_format_packed(c->form, 0);
    assert_true(backend->ops->has_format(backend, format));
    p.experts = experts_of(backend, &(struct experts_spec){p.shape, slices[0], slices[1], slices[2],
                                                           biases[0], biases[1], biases[2],
                                                           p.activation, format});
    for (size_t part = 0; part < 3; part++) coded_free(&coded[part]);
    return p;
}

static void packed_free(struct backend *backend, struct packed_experts *p) {
    backend->moe->experts_destroy(backend, p->experts);
    for (size_t part = 0; part < 3; part++) {
        free(p->weight[part]);
        free(p->bias[part]);
    }
}

static double product(const float *weight, const double *x, uint32_t in) {
    double sum = 0;
    for (uint32_t i = 0; i < in; i++) sum += x[i] * (double)weight[i];
    return sum;
}

static double activate(const struct packed_experts *p, double gate, double up) {
    double slope = 1.5957691216057308 * (1 + 0.044715 * gate * gate); // 2 sqrt(2 / pi)
    if (p->activation == ACTIVATION_GELU_TANH) return gate / (1 + exp(-gate * slope)) * up;
    if (p->activation == ACTIVATION_SILU) return gate / (1 + exp(-gate)) * up;
    double limit = (double)CLAMPED_SILU_LIMIT;
    gate = fmin(gate, limit), up = fmax(fmin(up, limit), -limit);
    return gate / (1 + exp(-(double)CLAMPED_SILU_ALPHA * gate)) * (up + 1);
}

// The value of output `row` of an expert's matrix.
static double output_of(const struct packed_experts *p, size_t part, uint32_t expert, uint32_t row,
                        const double *x) {
    uint32_t out = part == 2 ? p->shape.hidden : p->shape.intermediate;
    uint32_t in = part == 2 ? p->shape.intermediate : p->shape.hidden;
    size_t at = (size_t)expert * out + row;
    double bias = p->shape.has_bias ? (double)p->bias[part][at] : 0;
    return product(p->weight[part] + at * in, x, in) + bias;
}

static void want_token(const struct packed_experts *p, const struct experts_call *call,
                       uint32_t token, double *want) {
    uint32_t hidden = p->shape.hidden, size = p->shape.intermediate;
    double *x = test_alloc(hidden * sizeof *x), *activated = test_alloc(size * sizeof *activated);
    for (uint32_t i = 0; i < hidden; i++) {
        x[i] = (double)call->x[(size_t)token * hidden + i];
        want[i] = 0;
    }
    for (uint32_t slot = 0; slot < TOP_K; slot++) {
        size_t pair = (size_t)token * TOP_K + slot;
        uint32_t expert = (uint32_t)call->ids[pair];
        for (uint32_t i = 0; i < size; i++) {
            activated[i] =
                activate(p, output_of(p, 0, expert, i, x), output_of(p, 1, expert, i, x));
        }
        for (uint32_t i = 0; i < hidden; i++) {
            want[i] += (double)call->weights[pair] * output_of(p, 2, expert, i, activated);
        }
    }
    free(x);
    free(activated);
}

// before: what the sums were added to, or NULL.
static void check_call(const struct packed_case *c, const struct packed_experts *p,
                       const struct experts_call *call, const float *before, const float *got,
                       uint32_t count) {
    double *want = test_alloc(c->hidden * sizeof *want);
    for (uint32_t token = 0; token < count; token++) {
        if (token > 4 && token + 2 < count && token % 37) continue; // the others cost time
        want_token(p, call, token, want);
        for (uint32_t i = 0; before && i < c->hidden; i++) {
            want[i] += (double)before[(size_t)token * c->hidden + i];
        }
        double error = ops_nmse(got + (size_t)token * c->hidden, want, c->hidden);
        if (error <= PACKED_NMSE) continue;
        fail_msg("code %d, group %u, %u x %u, %u tokens: token %u has nmse %g", (int)c->form.code,
                 c->form.group, c->hidden, c->intermediate, count, token, error);
    }
    free(want);
}

static void test_match(void **state) {
    struct backend *backend = ((const struct device_pair *)*state)->device;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct packed_case *c = &cases[i];
        struct packed_experts p = packed_make(backend, c, 100 * i);
        struct experts_call call = experts_call_make(TOKENS_MAX, TOP_K, c->hidden, USED, i + 1);
        float *got = test_alloc((size_t)TOKENS_MAX * c->hidden * sizeof *got);
        for (size_t n = 0; n < ARRAY_LEN(token_counts); n++) {
            experts_run(backend, &p.shape, p.experts, &call, 0, token_counts[n], got);
            check_call(c, &p, &call, NULL, got, token_counts[n]);
        }
        struct ops_rng rng = ops_rng_of(i);
        float *before = bf16_values(&rng, (size_t)FEW_TOKENS * c->hidden, 1);
        for (uint32_t n = 1; backend->moe->adds_sums && n <= FEW_TOKENS; n += FEW_TOKENS - 1) {
            memcpy(got, before, (size_t)n * c->hidden * sizeof *got);
            experts_run_added(backend, &p.shape, p.experts, &call, 0, n, got);
            check_call(c, &p, &call, before, got, n);
        }
        free(before);
        free(got);
        experts_call_free(&call);
        packed_free(backend, &p);
    }
}

static void check_same_bits(struct backend *backend, const struct packed_case *c) {
    static const uint32_t batches[] = {1, 2, 3, 4, 60, 20, 5};
    enum { TOKENS = 60, FEW = 4 };
    struct packed_experts p = packed_make(backend, c, 1);
    uint32_t hidden = p.shape.hidden;
    struct experts_call call = experts_call_make(TOKENS, TOP_K, hidden, EXPERTS, 2);
    size_t count = (size_t)TOKENS * hidden;
    float *want = test_alloc(count * sizeof *want), *got = test_alloc(count * sizeof *got);
    for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
        uint32_t size = batches[b];
        for (uint32_t at = 0; at < TOKENS; at += size) {
            experts_run(backend, &p.shape, p.experts, &call, at, size, got);
        }
        bool is_first = b == 0 || (size > FEW && batches[b - 1] <= FEW);
        for (size_t i = 0; is_first && i < count; i++) want[i] = got[i];
        ops_assert_same_bits(got, want, TOKENS, hidden, "another batch");
    }
    free(want);
    free(got);
    experts_call_free(&call);
    packed_free(backend, &p);
}

static void test_same_bits(void **state) {
    struct backend *backend = ((const struct device_pair *)*state)->device;
    check_same_bits(backend, &cases[0]);
    check_same_bits(backend, &cases[16]); // warps with units of their own
}

// The plan counts codes and scales: of MXFP4 17 bytes for 32 weights, and inputs up to a multiple
// of 128.
static void test_bytes(void **state) {
    struct backend *backend = ((const struct device_pair *)*state)->device;
    const struct experts_shape shape = {EXPERTS, 160, 96, true, false};
    const struct weight_format format =
        weight_format_packed((struct matrix_form){.code = WEIGHT_CODE_E2M1, .group = 32}, 0);
    size_t codes = (2 * 96 * 256 + 160 * 128) * 17 / 32, biases = (2 * 96 + 160) * 2;
    size_t bytes = backend->moe->experts_bytes(backend, &shape, format);
    if (bytes == backend->moe->experts_bytes(backend, &shape, WEIGHTS_NATIVE)) {
        print_message("skipped: this device has no kernel for many tokens of packed experts\n");
        skip();
    }
    assert_int_equal(bytes, EXPERTS * (codes + biases));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_bytes),
    };
    return device_pair_run(argc, argv, "cuda packed experts", tests, ARRAY_LEN(tests));
}
