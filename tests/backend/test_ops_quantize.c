// How numbers become 8 and 4 bits: weights whose best 4-bit scales are known, read back as
// embeddings, and rows of x that are small, on every instruction set.
#include <math.h>
#include <stdlib.h>

#include "backend/ops_util.h"

static struct linear *linear_of(struct backend *backend, struct weight_format format,
                                const float *weights, uint32_t out, uint32_t in) {
    struct matrix_slice part = {
        .source = {.data = weights}, .dtype = DTYPE_F32, .rows = out, .cols = in, .row_stride = in};
    struct linear_spec spec = {&part, NULL, 1, format};
    struct linear *linear = NULL;
    struct err err = {0};
    if (backend->ops->linear_create(backend, &spec, &linear, &err) != OK)
        fail_msg("%s", err.message);
    return linear;
}

// One output of three groups, in units of its scale, which is largest magnitude / 126 = 1/128. The
// first group has the largest. `first` and `rest` make the others, and every group of 32 takes one
// factor of 1 .. 18.
static void check_group(const char *isa, float first, float rest, float kept_first,
                        float kept_rest) {
    enum { IN = 96, GROUP = 32 };
    struct backend *backend = ops_backend(isa, 1, DTYPE_BF16);
    float weights[IN], *kept = ops_guard_alloc(IN);
    for (int k = 0; k < IN; k++) {
        float units = k < GROUP ? 18.0f * (float)(k % 15 - 7) : k % GROUP ? rest : first;
        weights[k] = (k < 2 * GROUP ? units : -units) / 128;
    }
    struct linear *linear = linear_of(backend, WEIGHTS_INT4, weights, 1, IN);
    int32_t token = 0;
    const struct step step = {.num_tokens = 1, .tokens = &token};
    backend->ops->embed(backend, &(struct embed_args){&step, linear, 0, kept});
    for (int k = 0; k < IN; k++) {
        float want = k < GROUP ? weights[k] * 128 : k % GROUP ? kept_rest : kept_first;
        if (k >= 2 * GROUP) want = -want;
        if (kept[k] * 128 != want)
            fail_msg("weight %d is %g units, want %g", k, (double)(kept[k] * 128), (double)want);
    }
    ops_guard_free(kept, IN);
    backend->ops->linear_destroy(backend, linear);
    backend_destroy(backend);
}

static void test_int4_factors(void **state) {
    // The least factor that clips nothing is best: 4, 18.
    check_group(*state, 28, 8, 28, 8);
    check_group(*state, 126, 54, 126, 54);
    // The next one is: 3 clips 22 to 21 and keeps 9, 4 rounds 9 to 8.
    check_group(*state, 22, 9, 21, 9);
    // The one after that is: 16 clips 120 to 112 and keeps 48; 17 and 18 round it to 51 and 54.
    check_group(*state, 120, 48, 112, 48);
    // No further one is tried: 15 would clip 120 to 105 and keep 45; 16 rounds that to 48.
    check_group(*state, 120, 45, 112, 48);
}

// A power of two as a factor of x is one of the outputs too, down to 2^-120: below, x counts as 0.
static void test_small_rows(void **state) {
    enum { OUT = 20, IN = 70, ROWS = 5 };
    static const int exponents[ROWS] = {0, -30, -100, -119, -122};
    const struct weight_format formats[] = {WEIGHTS_INT8, WEIGHTS_INT4};
    for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
        struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
        float weights[OUT * IN], x[ROWS * IN], *out = ops_guard_alloc(ROWS * OUT);
        struct ops_rng rng = ops_rng_of(8);
        ops_rng_fill(&rng, weights, OUT * IN);
        ops_rng_fill(&rng, x, IN);
        for (int k = 0; k < IN; k++) x[k] = rintf(x[k] * 64) / 64; // so that none is subnormal
        x[5] = 1; // the largest
        for (int i = 0; i < ROWS * IN; i++) x[i] = ldexpf(x[i % IN], exponents[i / IN]);
        struct linear *linear = linear_of(backend, formats[f], weights, OUT, IN);
        backend->ops->linear(backend, &(struct linear_args){linear, x, out, ROWS, false});
        for (int i = OUT; i < ROWS * OUT; i++) {
            float want = i < 4 * OUT ? ldexpf(out[i % OUT], exponents[i / OUT]) : 0;
            // Subnormal factors of the sums have few bits.
            if (fabsf(out[i] - want) > 1e-4f * fabsf(want))
                fail_msg("row %d: %g, want %g", i / OUT, (double)out[i], (double)want);
        }
        assert_true(out[0] != 0);
        ops_guard_free(out, ROWS * OUT);
        backend->ops->linear_destroy(backend, linear);
        backend_destroy(backend);
    }
}

int main(void) {
    static const struct ops_case cases[] = {
        {"int4: each group has the best of three factors", test_int4_factors, ISA_BYTE_WEIGHTS},
        {"int8 and int4: small rows", test_small_rows, ISA_BYTE_WEIGHTS},
    };
    return ops_run("quantize", cases, ARRAY_LEN(cases));
}
