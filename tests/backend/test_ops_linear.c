// Linears of every instruction set. They are compared with double precision and the scalar kernels
// over odd shapes. Their bits must be the same for any batch size and thread count. Weights are
// packed from every source type and alignment.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/ops_util.h"

// The summing error of float32 over a few thousand terms.
#define LINEAR_NMSE 1e-11

// A weight matrix as a checkpoint has it, and its elements once the backend has rounded them.
struct matrix {
    uint32_t rows, cols;
    enum dtype dtype;
    unsigned char *bytes; // one byte off every alignment
    unsigned char *base;
    double *value; // [rows][cols] as kept with bf16 weights
    double *exact; // [rows][cols] as stored
};

static uint16_t f32_to_f16(float value) {
    // The values are multiples of 2^-10 below 2 in magnitude: exact in f16.
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) == 0) return (uint16_t)(bits >> 16);
    uint32_t exponent = ((bits >> 23) & 0xff) - 112;
    return (uint16_t)((bits >> 16 & 0x8000u) | exponent << 10 | (bits >> 13 & 0x3ffu));
}

static struct matrix matrix_make(uint64_t seed, uint32_t rows, uint32_t cols, enum dtype dtype) {
    struct matrix m = {.rows = rows, .cols = cols, .dtype = dtype};
    size_t count = (size_t)rows * cols;
    m.base = malloc(count * 4 + 1);
    m.bytes = m.base + 1;
    m.value = malloc(count * sizeof *m.value);
    m.exact = malloc(count * sizeof *m.exact);
    struct ops_rng rng = ops_rng_of(seed);
    for (size_t i = 0; i < count; i++) {
        float value = rintf(ops_rng_float(&rng) * 1024.0f) / 1024.0f;
        uint16_t narrow = dtype == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
        if (dtype == DTYPE_F32) {
            memcpy(m.bytes + i * 4, &value, 4);
        } else {
            memcpy(m.bytes + i * 2, &narrow, 2);
        }
        m.exact[i] = (double)(dtype == DTYPE_BF16 ? bf16_to_f32(narrow) : value);
        m.value[i] = (double)bf16_to_f32(f32_to_bf16(value));
    }
    return m;
}

static void matrix_free(struct matrix *m) {
    free(m->base);
    free(m->value);
    free(m->exact);
}

static struct matrix_slice slice_of(const struct matrix *m) {
    return (struct matrix_slice){.source = {.data = m->bytes},
                                 .dtype = m->dtype,
                                 .rows = m->rows,
                                 .cols = m->cols,
                                 .row_stride = m->cols};
}

static struct linear *linear_as(struct backend *backend, struct weight_format format,
                                const struct matrix *weights, const struct matrix *bias) {
    struct matrix_slice part = slice_of(weights), bias_part = {0};
    if (bias) bias_part = slice_of(bias);
    struct linear_spec spec = {&part, bias ? &bias_part : NULL, 1, format};
    struct linear *linear = NULL;
    struct err err = {0};
    if (backend->ops->linear_create(backend, &spec, &linear, &err) != OK)
        fail_msg("%s", err.message);
    return linear;
}

static struct linear *linear_of(struct backend *backend, const struct matrix *weights,
                                const struct matrix *bias) {
    return linear_as(backend, WEIGHTS_NATIVE, weights, bias);
}

static void run(struct backend *backend, const struct linear *linear, const float *x, float *out,
                uint32_t rows) {
    struct linear_args args = {linear, x, out, rows, false};
    backend->ops->linear(backend, &args);
}

// The value of x that the backend multiplies by.
static double seen(const struct backend *backend, float x) {
    bool rounds =
        backend->weight_dtype == DTYPE_BF16 && cpu_backend_of_const(backend)->kernels.linear_pairs;
    return (double)(rounds ? bf16_to_f32(f32_to_bf16(x)) : x);
}

static double *oracle(const struct backend *backend, const struct matrix *weights,
                      const struct matrix *bias, const float *x, uint32_t rows) {
    bool rounded = backend->weight_dtype == DTYPE_BF16;
    double *want = malloc((size_t)rows * weights->rows * sizeof *want);
    const double *value = rounded ? weights->value : weights->exact;
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t n = 0; n < weights->rows; n++) {
            double sum = bias ? bias->exact[n] : 0;
            for (uint32_t k = 0; k < weights->cols; k++) {
                sum += value[(size_t)n * weights->cols + k] *
                       seen(backend, x[(size_t)row * weights->cols + k]);
            }
            want[(size_t)row * weights->rows + n] = sum;
        }
    }
    return want;
}

static const struct {
    uint32_t out, in, rows;
} shapes[] = {
    {1, 1, 1},      {1, 2, 3},     {16, 2, 1},     {17, 3, 5},     {15, 31, 4},  {1007, 64, 1},
    {1007, 33, 7},  {100, 33, 12}, {256, 512, 1},  {130, 771, 25}, {64, 514, 2}, {48, 257, 13},
    {16, 1024, 11}, {33, 40, 70},  {200, 300, 6},  {129, 96, 3},   {97, 64, 8},  {80, 64, 10},
    {20, 34, 1100}, {272, 32, 9},  {4096, 16, 40}, {8, 700, 29},   {48, 96, 31}, {40, 130, 63},
};

static void check_shapes(const char *isa, enum dtype weight_dtype) {
    struct backend *backend = ops_backend(isa, 2, weight_dtype);
    struct backend *scalar = ops_backend("scalar", 1, weight_dtype);
    const enum dtype sources[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        uint32_t out = shapes[i].out, in = shapes[i].in, rows = shapes[i].rows;
        struct matrix weights = matrix_make(i, out, in, sources[i % 3]);
        struct matrix bias = matrix_make(i + 100, 1, out, sources[(i + 1) % 3]);
        const struct matrix *with_bias = i % 2 ? &bias : NULL;
        struct linear *linear = linear_of(backend, &weights, with_bias);
        struct linear *reference = linear_of(scalar, &weights, with_bias);
        size_t count = (size_t)rows * out;
        float *x = ops_guard_alloc((size_t)rows * in);
        float *got = ops_guard_alloc(count), *same = ops_guard_alloc(count);
        struct ops_rng rng = ops_rng_of(i + 200);
        ops_rng_fill(&rng, x, (size_t)rows * in);
        run(backend, linear, x, got, rows);
        run(scalar, reference, x, same, rows);
        double *want = oracle(backend, &weights, with_bias, x, rows);
        assert_nmse(got, want, count, LINEAR_NMSE);
        free(want);
        want = oracle(scalar, &weights, with_bias, x, rows);
        assert_nmse(same, want, count, LINEAR_NMSE);
        ops_guard_free(x, (size_t)rows * in);
        ops_guard_free(got, count);
        ops_guard_free(same, count);
        free(want);
        backend->ops->linear_destroy(backend, linear);
        scalar->ops->linear_destroy(scalar, reference);
        matrix_free(&weights);
        matrix_free(&bias);
    }
    backend_destroy(scalar);
    backend_destroy(backend);
}

static void test_bf16_matches(void **state) {
    check_shapes(*state, DTYPE_BF16);
}

static void test_f32_matches(void **state) {
    check_shapes(*state, DTYPE_F32);
}

enum { BATCH = 70 };

// Runs every row of a batch of 70 again alone and in other batches, with 1, 2 and 3 threads.
static void check_same_bits(const char *isa, enum dtype weight_dtype, uint32_t out, uint32_t in) {
    struct matrix weights = matrix_make(out, out, in, DTYPE_F32);
    struct matrix bias = matrix_make(in, 1, out, DTYPE_F32);
    float *x = ops_guard_alloc((size_t)BATCH * in);
    float *want = ops_guard_alloc((size_t)BATCH * out);
    struct ops_rng rng = ops_rng_of(7);
    ops_rng_fill(&rng, x, (size_t)BATCH * in);
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *backend = ops_backend(isa, threads, weight_dtype);
        struct linear *linear = linear_of(backend, &weights, &bias);
        if (threads == 1) run(backend, linear, x, want, BATCH);
        const uint32_t batches[] = {1, 2, 3, 5, 12, 13, 24, 69, 70};
        for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
            float *got = ops_guard_alloc((size_t)BATCH * out);
            for (uint32_t row = 0; row < BATCH; row += batches[b]) {
                uint32_t rows = BATCH - row < batches[b] ? BATCH - row : batches[b];
                run(backend, linear, x + (size_t)row * in, got + (size_t)row * out, rows);
            }
            ops_assert_same_bits(got, want, BATCH, out, "another batch or thread count");
            ops_guard_free(got, (size_t)BATCH * out);
        }
        backend->ops->linear_destroy(backend, linear);
        backend_destroy(backend);
    }
    ops_guard_free(x, (size_t)BATCH * in);
    ops_guard_free(want, (size_t)BATCH * out);
    matrix_free(&weights);
    matrix_free(&bias);
}

static void test_same_bits_bf16(void **state) {
    check_same_bits(*state, DTYPE_BF16, 203, 600);
    check_same_bits(*state, DTYPE_BF16, 90, 65);
}

static void test_same_bits_f32(void **state) {
    check_same_bits(*state, DTYPE_F32, 101, 530);
}

// One call of `rows` rows has the same bits as calls of `part` rows.
static void check_calls(const char *isa, int threads, uint32_t out, uint32_t in, uint32_t rows,
                        uint32_t part) {
    struct backend *backend = ops_backend(isa, threads, DTYPE_BF16);
    struct matrix weights = matrix_make(6, out, in, DTYPE_BF16);
    struct matrix bias = matrix_make(8, 1, out, DTYPE_F32);
    struct linear *linear = linear_of(backend, &weights, &bias);
    size_t num_in = (size_t)rows * in, num_out = (size_t)rows * out;
    float *x = ops_guard_alloc(num_in);
    float *whole = ops_guard_alloc(num_out), *parts = ops_guard_alloc(num_out);
    struct ops_rng rng = ops_rng_of(13);
    ops_rng_fill(&rng, x, num_in);
    run(backend, linear, x, whole, rows);
    for (uint32_t row = 0; row < rows; row += part) {
        uint32_t count = rows - row < part ? rows - row : part;
        run(backend, linear, x + (size_t)row * in, parts + (size_t)row * out, count);
    }
    ops_assert_same_bits(parts, whole, rows, out, "calls of fewer rows");
    ops_guard_free(x, num_in);
    ops_guard_free(whole, num_out);
    ops_guard_free(parts, num_out);
    backend->ops->linear_destroy(backend, linear);
    backend_destroy(backend);
    matrix_free(&weights);
    matrix_free(&bias);
}

// More rows than one pass takes.
static void test_many_rows(void **state) {
    check_calls(*state, 2, 35, 40, 1030, 400);
}

// So many rows that an item turns weights into floats, in several slices.
static void test_wide_rows(void **state) {
    check_calls(*state, 1, 149, 530, 450, 90);
}

// Three stacked parts of different types, each a slice of a wider matrix and ending inside a block
// of 16. The identity as input gives back every weight, and rows of the table are the same numbers.
static void test_parts_and_embed(void **state) {
    enum { IN = 66, WIDE = 70, OUT = 21 + 3 + 40 };
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    const enum dtype dtypes[] = {DTYPE_F16, DTYPE_F32, DTYPE_BF16};
    const uint32_t rows[] = {21, 3, 40};
    struct matrix sources[3];
    struct matrix_slice parts[3];
    static double want[OUT][IN];
    for (uint32_t p = 0, n = 0; p < 3; p++) {
        sources[p] = matrix_make(p + 30, rows[p], WIDE, dtypes[p]);
        parts[p] = slice_of(&sources[p]);
        parts[p].source.data = sources[p].bytes + 4 * dtype_size(dtypes[p]);
        parts[p].cols = IN;
        for (uint32_t r = 0; r < rows[p]; r++, n++) {
            for (uint32_t k = 0; k < IN; k++) want[n][k] = sources[p].value[r * WIDE + 4 + k];
        }
    }
    struct linear_spec spec = {parts, NULL, 3, WEIGHTS_NATIVE};
    struct linear *linear = NULL;
    assert_int_equal(backend->ops->linear_create(backend, &spec, &linear, NULL), OK);

    float *x = ops_guard_alloc(IN * IN), *out = ops_guard_alloc(IN * OUT);
    for (uint32_t i = 0; i < IN * IN; i++) x[i] = i / IN == i % IN ? 1.0f : 0.0f;
    struct linear_args args = {linear, x, out, IN, true};
    backend->ops->linear(backend, &args);
    for (uint32_t k = 0; k < IN; k++) {
        for (uint32_t n = 0; n < OUT; n++) assert_true((double)out[k * OUT + n] == want[n][k]);
    }

    // Ids of this rank are 100 .. 100 + OUT - 1; others become zeros.
    int32_t tokens[OUT + 3];
    for (int32_t i = 0; i < OUT; i++) tokens[i] = 100 + OUT - 1 - i;
    tokens[OUT] = 99, tokens[OUT + 1] = 100 + OUT, tokens[OUT + 2] = -1;
    float *rows_out = ops_guard_alloc((OUT + 3) * IN);
    const struct step step = {.num_tokens = OUT + 3, .tokens = tokens};
    const struct embed_args embed = {&step, linear, 100, rows_out};
    backend->ops->embed(backend, &embed);
    for (uint32_t i = 0; i < OUT + 3; i++) {
        for (uint32_t k = 0; k < IN; k++) {
            double expected = i < OUT ? want[OUT - 1 - i][k] : 0;
            assert_true((double)rows_out[i * IN + k] == expected);
        }
    }
    ops_guard_free(x, IN * IN);
    ops_guard_free(out, IN * OUT);
    ops_guard_free(rows_out, (OUT + 3) * IN);
    backend->ops->linear_destroy(backend, linear);
    backend_destroy(backend);
    for (uint32_t p = 0; p < 3; p++) matrix_free(&sources[p]);
}

// All 65,536 half precision numbers, kept as float32: the conversion is exact.
static void test_every_f16(void **state) {
    enum { IN = 256, OUT = 256 };
    struct backend *backend = ops_backend(*state, 1, DTYPE_F32);
    static uint16_t source[OUT * IN];
    for (uint32_t i = 0; i < OUT * IN; i++) source[i] = (uint16_t)i;
    struct matrix_slice part = {
        .source = {.data = source}, .dtype = DTYPE_F16, .rows = OUT, .cols = IN, .row_stride = IN};
    struct linear_spec spec = {&part, NULL, 1, WEIGHTS_NATIVE};
    struct linear *linear = NULL;
    assert_int_equal(backend->ops->linear_create(backend, &spec, &linear, NULL), OK);
    static int32_t tokens[OUT];
    for (int32_t i = 0; i < OUT; i++) tokens[i] = i;
    float *out = ops_guard_alloc(OUT * IN);
    const struct step step = {.num_tokens = OUT, .tokens = tokens};
    const struct embed_args embed = {&step, linear, 0, out};
    backend->ops->embed(backend, &embed);
    for (uint32_t i = 0; i < OUT * IN; i++) {
        float want = f16_to_f32((uint16_t)i);
        if (isnan(want)) {
            assert_true(isnan(out[i]));
        } else if (memcmp(&out[i], &want, 4) != 0) {
            fail_msg("f16 %04x became %a, want %a", i, (double)out[i], (double)want);
        }
    }
    ops_guard_free(out, OUT * IN);
    backend->ops->linear_destroy(backend, linear);
    backend_destroy(backend);
}

// NaN and inf do no harm, and stay in their row and output.
static void test_nonfinite_rows(void **state) {
    enum { IN = 48, OUT = 40, ROWS = 5 };
    struct backend *backend = ops_backend(*state, 2, DTYPE_BF16);
    struct matrix weights = matrix_make(77, OUT, IN, DTYPE_BF16);
    struct linear *linear = linear_of(backend, &weights, NULL);
    float *x = ops_guard_alloc(ROWS * IN);
    float *clean = ops_guard_alloc(ROWS * OUT), *out = ops_guard_alloc(ROWS * OUT);
    struct ops_rng rng = ops_rng_of(3);
    ops_rng_fill(&rng, x, ROWS * IN);
    run(backend, linear, x, clean, ROWS);
    x[1 * IN + 7] = NAN;
    x[3 * IN + 9] = INFINITY;
    run(backend, linear, x, out, ROWS);
    for (uint32_t n = 0; n < OUT; n++) {
        assert_true(isnan(out[1 * OUT + n]));
        if (isfinite(out[3 * OUT + n])) fail_msg("output %u is finite", n);
    }
    ops_assert_same_bits(out, clean, 1, OUT, "row 0");
    ops_assert_same_bits(out + 2 * OUT, clean + 2 * OUT, 1, OUT, "row 2");
    ops_assert_same_bits(out + 4 * OUT, clean + 4 * OUT, 1, OUT, "row 4");
    ops_guard_free(x, ROWS * IN);
    ops_guard_free(clean, ROWS * OUT);
    ops_guard_free(out, ROWS * OUT);
    backend->ops->linear_destroy(backend, linear);
    backend_destroy(backend);
    matrix_free(&weights);
}

static const struct {
    uint32_t out, in, rows;
} narrow_shapes[] = {{1, 1, 1},      {17, 65, 3},  {48, 64, 1},   {33, 700, 20},
                     {160, 129, 40}, {130, 96, 8}, {64, 1100, 5}, {20, 33, 70},
                     {272, 513, 17}, {48, 96, 31}, {40, 130, 63}};

// The weights as the backend keeps them, read back as embeddings.
static float *kept_weights(struct backend *backend, const struct linear *linear, uint32_t out,
                           uint32_t in) {
    float *kept = ops_guard_alloc((size_t)out * in);
    int32_t *ids = malloc(out * sizeof *ids);
    for (uint32_t i = 0; i < out; i++) ids[i] = (int32_t)i;
    const struct step step = {.num_tokens = out, .tokens = ids};
    const struct embed_args args = {&step, linear, 0, kept};
    backend->ops->embed(backend, &args);
    free(ids);
    return kept;
}

// Bounds the error of quantization, as a share of the weights' energy. The error is uniform within
// a step of the scale.
static void check_kept(const struct matrix *weights, const float *kept,
                       struct weight_format format) {
    size_t count = (size_t)weights->rows * weights->cols;
    assert_nmse(kept, weights->exact, count, format.bits == 8 ? 3e-5 : 1e-2);
}

// x as 8-bit numbers times the row's scale; the sum of products is exact.
static double *narrow_oracle(const float *kept, const struct matrix *bias, const float *x,
                             uint32_t rows, uint32_t out, uint32_t in) {
    double *want = malloc((size_t)rows * out * sizeof *want);
    for (uint32_t row = 0; row < rows; row++) {
        const float *values = x + (size_t)row * in;
        float largest = 0;
        for (uint32_t k = 0; k < in; k++) largest = fmaxf(largest, fabsf(values[k]));
        for (uint32_t n = 0; n < out; n++) {
            double sum = 0;
            for (uint32_t k = 0; k < in; k++) {
                float rounded = rintf(values[k] * (127.0f / largest));
                sum += (double)rounded * (double)kept[(size_t)n * in + k];
            }
            want[(size_t)row * out + n] = sum * (double)(largest / 127.0f) + bias->exact[n];
        }
    }
    return want;
}

static void check_quantized(const char *isa, struct weight_format format) {
    struct backend *backend = ops_backend(isa, 2, DTYPE_BF16);
    struct backend *scalar = ops_backend("scalar", 1, DTYPE_BF16);
    for (size_t i = 0; i < ARRAY_LEN(narrow_shapes); i++) {
        uint32_t out = narrow_shapes[i].out, in = narrow_shapes[i].in, rows = narrow_shapes[i].rows;
        struct matrix weights = matrix_make(i, out, in, i % 2 ? DTYPE_BF16 : DTYPE_F32);
        struct matrix bias = matrix_make(i + 100, 1, out, DTYPE_F32);
        struct linear *linear = linear_as(backend, format, &weights, &bias);
        struct linear *reference = linear_as(scalar, format, &weights, &bias);
        size_t count = (size_t)rows * out;
        float *x = ops_guard_alloc((size_t)rows * in);
        float *got = ops_guard_alloc(count), *same = ops_guard_alloc(count);
        struct ops_rng rng = ops_rng_of(i + 200);
        ops_rng_fill(&rng, x, (size_t)rows * in);
        run(backend, linear, x, got, rows);
        run(scalar, reference, x, same, rows);
        ops_assert_same_bits(got, same, rows, out, "scalar");
        float *kept = kept_weights(backend, linear, out, in);
        check_kept(&weights, kept, format);
        double *want = narrow_oracle(kept, &bias, x, rows, out, in);
        assert_nmse(got, want, count, LINEAR_NMSE);
        for (uint32_t row = 0; row < rows; row++) { // each row alone
            run(backend, linear, x + (size_t)row * in, same + (size_t)row * out, 1);
        }
        ops_assert_same_bits(same, got, rows, out, "rows alone");
        free(want);
        ops_guard_free(kept, (size_t)out * in);
        ops_guard_free(x, (size_t)rows * in);
        ops_guard_free(got, count);
        ops_guard_free(same, count);
        backend->ops->linear_destroy(backend, linear);
        scalar->ops->linear_destroy(scalar, reference);
        matrix_free(&weights);
        matrix_free(&bias);
    }
    backend_destroy(scalar);
    backend_destroy(backend);
}

static void test_int8(void **state) {
    check_quantized(*state, WEIGHTS_INT8);
}

static void test_int4(void **state) {
    check_quantized(*state, WEIGHTS_INT4);
}

// A row with a number that is not finite gives NaN, and its neighbours do not change.
static void test_quantized_nonfinite(void **state) {
    enum { IN = 80, OUT = 40, ROWS = 3 };
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
    struct matrix weights = matrix_make(9, OUT, IN, DTYPE_BF16);
    struct linear *linear = linear_as(backend, WEIGHTS_INT8, &weights, NULL);
    float x[ROWS * IN], clean[ROWS * OUT], out[ROWS * OUT];
    struct ops_rng rng = ops_rng_of(4);
    ops_rng_fill(&rng, x, ROWS * IN);
    memset(x, 0, IN * sizeof *x); // a row of zeros
    run(backend, linear, x, clean, ROWS);
    for (uint32_t n = 0; n < OUT; n++) assert_true(clean[n] == 0);
    x[IN + 3] = INFINITY;
    run(backend, linear, x, out, ROWS);
    for (uint32_t n = 0; n < OUT; n++) assert_true(isnan(out[OUT + n]));
    ops_assert_same_bits(out + 2 * OUT, clean + 2 * OUT, 1, OUT, "row 2");
    backend->ops->linear_destroy(backend, linear);
    backend_destroy(backend);
    matrix_free(&weights);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"bf16 weights match double precision", test_bf16_matches, ISA_FLOAT_WEIGHTS},
        {"f32 weights match double precision", test_f32_matches, ISA_FLOAT_WEIGHTS},
        {"bf16: same bits in any batch, any thread count", test_same_bits_bf16, ISA_FLOAT_WEIGHTS},
        {"f32: same bits in any batch, any thread count", test_same_bits_f32, ISA_FLOAT_WEIGHTS},
        {"more rows than a pass takes", test_many_rows, ISA_FLOAT_WEIGHTS},
        {"so many rows that weights become floats", test_wide_rows, ISA_FLOAT_WEIGHTS},
        {"stacked parts and table rows", test_parts_and_embed, ISA_FLOAT_WEIGHTS},
        {"every f16 number", test_every_f16, ISA_FLOAT_WEIGHTS},
        {"non-finite rows stay alone", test_nonfinite_rows, ISA_FLOAT_WEIGHTS},
        {"int8 weights are exact sums of rounded numbers", test_int8, ISA_BYTE_WEIGHTS},
        {"int4 weights are exact sums of rounded numbers", test_int4, ISA_BYTE_WEIGHTS},
        {"int8: zeros and non-finite rows", test_quantized_nonfinite, ISA_BYTE_WEIGHTS},
    };
    return ops_run("linear", cases, ARRAY_LEN(cases));
}
