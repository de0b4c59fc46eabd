// Weights that stay in a checkpoint's codes give the very bits of the same weights decoded before:
// to bf16 where an instruction set multiplies bf16, else to float32. Where sums of codes' values
// are scaled instead, results differ from those by the decoded weights' rounding at most. Where x
// becomes 16-bit integers, they differ by its rounding. For every kind of code and group, any shape
// and number of rows, and columns from within a matrix. Each row has the bits that it has alone.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/coded_matrix.h"
#include "backend/cpu/ops.h"
#include "backend/ops_util.h"

// A linear of two parts, which have scales of their own, and of columns from first_col on.
struct shape {
    uint32_t out[2], in, first_col, rows;
};

static struct linear *linear_of(struct backend *backend, const struct coded parts[2],
                                const struct shape *shape, const float *bias,
                                struct weight_format format) {
    struct matrix_slice slices[2], biases[2];
    for (uint32_t i = 0; i < 2; i++) {
        slices[i] = (struct matrix_slice){.rows = shape->out[i],
                                          .cols = shape->in,
                                          .dtype = DTYPE_F32,
                                          .reader = &parts[i].reader,
                                          .first_row = 1,
                                          .first_col = shape->first_col};
        biases[i] = (struct matrix_slice){.rows = 1,
                                          .cols = shape->out[i],
                                          .dtype = DTYPE_F32,
                                          .source = {.data = bias + i * shape->out[0]},
                                          .row_stride = shape->out[i]};
    }
    struct linear_spec spec = {slices, biases, 2, format};
    struct linear *linear = NULL;
    struct err err = {0};
    if (backend->ops->linear_create(backend, &spec, &linear, &err)) fail_msg("%s", err.message);
    return linear;
}

static void run(struct backend *backend, const struct linear *linear, const float *x, float *out,
                uint32_t rows) {
    backend->ops->linear(backend, &(struct linear_args){linear, x, out, rows, false});
}

static void embed(struct backend *backend, const struct linear *linear, uint32_t out, float *kept) {
    for (uint32_t i = 0; i < out; i++) {
        int32_t token = (int32_t)i;
        const struct step step = {.num_tokens = 1, .tokens = &token};
        float *row = kept + (size_t)i * linear->in;
        backend->ops->embed(backend, &(struct embed_args){&step, linear, 0, row});
    }
}

// Whether the kernels scale sums of values: of groups of 32 or more without offsets. avx512-bf16
// does it of 4-bit codes, amx of all.
static bool is_unscaled(const struct backend *backend, struct weight_format format) {
    const struct cpu_kernels *kernels = &cpu_backend_of_const(backend)->kernels;
    bool has_tiles = strcmp(kernels->isa, "amx") == 0;
    if (!has_tiles && strcmp(kernels->isa, "avx512-bf16") != 0) return false;
    return (has_tiles || format.bits == 4) && !format.has_offsets && format.group != 16;
}

static void check_shape(const char *isa, const struct shape *shape, struct matrix_form form,
                        uint64_t seed) {
    struct backend *backend = ops_backend(isa, 2, DTYPE_BF16);
    const struct cpu_kernels *kernels = &cpu_backend_of(backend)->kernels;
    struct weight_format format = weight_format_packed(form, shape->first_col);
    struct packed_shape packed = packed_shape_of(format);
    bool is_spans = kernels->linear_spans && spans_suit(&packed);
    bool is_fixed = is_spans || (kernels->linear_fixed && fixed_suits(form.code));
    bool is_narrow = kernels->linear_pairs && !is_fixed;
    struct backend *decoded = ops_backend(isa, 1, is_narrow ? DTYPE_BF16 : DTYPE_F32);
    uint32_t out = shape->out[0] + shape->out[1], in = shape->in, rows = shape->rows;
    struct coded parts[2];
    for (uint32_t i = 0; i < 2; i++) {
        parts[i] = coded_make(seed + i, shape->out[i] + 1, shape->first_col + in, form);
    }
    float *bias = ops_guard_alloc(out), *x = ops_guard_alloc((size_t)rows * in);
    struct ops_rng rng = ops_rng_of(seed + 2);
    ops_rng_fill(&rng, bias, out);
    ops_rng_fill(&rng, x, (size_t)rows * in);
    assert_true(weight_format_is_packed(format));
    assert_true(backend->ops->has_format(backend, format));
    struct linear *linear = linear_of(backend, parts, shape, bias, format);
    struct linear *oracle = linear_of(decoded, parts, shape, bias, WEIGHTS_NATIVE);
    size_t count = (size_t)rows * out, size = (size_t)out * in;
    float *got = ops_guard_alloc(count), *want = ops_guard_alloc(count);
    struct cpu_backend *cpu = cpu_backend_of(backend);
    // Of what x does not fill nothing may reach a result. As floats these bytes are NaN.
    memset(cpu->linear_scratch, 0xff, (size_t)cpu->linear_scratch_in * LINEAR_SCRATCH_BYTES);
    run(backend, linear, x, got, rows);
    run(decoded, oracle, x, want, rows);
    assert_int_equal(linear_is_spans(cpu_backend_of(backend), linear), is_spans);
    if (is_fixed) {
        // Numbers of x, evenly spread up to the largest of 32 or 128, are off by 2^-15 / sqrt(12).
        double nmse = ops_nmse_f32(got, want, count);
        if (!(nmse <= 1e-9)) fail_msg("nmse %g of x in float32", nmse);
    } else if (is_unscaled(backend, format)) {
        // Weights of 8 bits of precision are off by 2^-9 / sqrt(3) of their size; so are the sums.
        double nmse = ops_nmse_f32(got, want, count);
        if (!(nmse <= 4e-6)) fail_msg("nmse %g of decoded weights", nmse);
    } else {
        ops_assert_same_bits(got, want, rows, out, "decoded");
    }
    for (uint32_t row = 0; row < rows; row++) { // each row alone
        run(backend, linear, x + (size_t)row * in, want + (size_t)row * out, 1);
    }
    ops_assert_same_bits(want, got, rows, out, "rows alone");
    float *kept = ops_guard_alloc(size), *wanted = ops_guard_alloc(size);
    embed(backend, linear, out, kept);
    embed(decoded, oracle, out, wanted);
    ops_assert_same_bits(kept, wanted, out, in, "embeddings");
    ops_guard_free(kept, size);
    ops_guard_free(wanted, size);
    ops_guard_free(got, count);
    ops_guard_free(want, count);
    ops_guard_free(x, (size_t)rows * in);
    ops_guard_free(bias, out);
    backend->ops->linear_destroy(backend, linear);
    decoded->ops->linear_destroy(decoded, oracle);
    coded_free(&parts[0]);
    coded_free(&parts[1]);
    backend_destroy(backend);
    backend_destroy(decoded);
}

static void check_code(const char *isa, enum weight_code code) {
    static const struct shape shapes[] = {
        {{1, 1}, 5, 0, 1},      {{17, 24}, 65, 0, 3},
        {{48, 16}, 128, 16, 2}, {{70, 74}, 200, 0, 4},
        {{33, 3}, 300, 32, 9},  {{24, 40}, 96, 48, 8},
        {{20, 5}, 33, 16, 40},  {{24, 26}, 556, 0, 75},
        {{2, 1}, 20, 0, 700}, // more rows than the memory of converted x has
        {{17, 1}, 2070, 0, 9}, // a depth of several slices, the last of one chunk
        {{18, 2}, 256, 0, 6},
    };
    static const uint32_t groups[] = {16, 32, 48, 64, 128, 0};
    for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
            if (groups[g] == 0 && shapes[i].first_col == 48) continue;
            struct matrix_form form = {
                .code = code, .group = groups[g], .has_offsets = (g + i) % 2 == 1};
            check_shape(isa, &shapes[i], form, 10 * i + g);
        }
    }
}

// The same with units and multiples in place of floats, as K-quants have: several groups of one
// line of multiples, a record that is not full, and columns that begin within a unit.
static void test_units(void **state) {
    static const struct shape shapes[] = {
        {{17, 24}, 544, 0, 3},
        {{20, 5}, 300, 128, 5},
        {{33, 3}, 256, 32, 9},
        {{2, 1}, 1100, 0, 40},
    };
    static const enum weight_code codes[] = {WEIGHT_CODE_INT4, WEIGHT_CODE_INT8, WEIGHT_CODE_IQ4};
    static const uint32_t groups[] = {16, 32, 64};
    for (size_t c = 0; c < ARRAY_LEN(codes); c++) {
        for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
            for (size_t i = 0; i < 2 * ARRAY_LEN(shapes); i++) {
                struct matrix_form form = {.code = codes[c],
                                           .group = groups[g],
                                           .has_offsets = i % 2 == 1,
                                           .unit = 256,
                                           .shift = i % 2 == 1 && c == 0 ? 8 : 0};
                assert_true(weight_format_packed(form, shapes[i / 2].first_col).unit != 0);
                check_shape(*state, &shapes[i / 2], form, 300 + 10 * i + g);
            }
        }
    }
}

// A row with NaN or infinity gives nothing that is finite, and its neighbours do not change.
static void test_nonfinite_rows(void **state) {
    enum { ROWS = 6, IN = 300, OUT = 20, NUM_NUMBERS = ROWS * IN, NUM_RESULTS = ROWS * OUT };
    static const struct shape shape = {{OUT - 1, 1}, IN, 0, ROWS};
    const uint32_t groups[] = {32, 64, 128};
    struct ops_rng rng = ops_rng_of(11);
    float *x = ops_guard_alloc(NUM_NUMBERS), *bias = ops_guard_alloc(OUT);
    float *before = ops_guard_alloc(NUM_RESULTS), *out = ops_guard_alloc(NUM_RESULTS);
    ops_rng_fill(&rng, bias, OUT);
    for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
        const struct matrix_form form = {
            .code = WEIGHT_CODE_INT4, .group = groups[g], .has_offsets = g % 2 == 1};
        struct coded parts[2];
        for (uint32_t i = 0; i < 2; i++) parts[i] = coded_make(g + i, shape.out[i] + 1, IN, form);
        struct linear *linear =
            linear_of(backend, parts, &shape, bias, weight_format_packed(form, 0));
        ops_rng_fill(&rng, x, NUM_NUMBERS);
        run(backend, linear, x, before, ROWS);
        x[1 * IN + 7] = NAN;
        x[3 * IN + 290] = INFINITY;
        run(backend, linear, x, out, ROWS);
        for (uint32_t i = 0; i < NUM_RESULTS; i++) {
            bool is_finite = i / OUT != 1 && i / OUT != 3;
            if (is_finite && out[i] != before[i]) fail_msg("result %u has changed", i);
            if (!is_finite && isfinite(out[i])) fail_msg("result %u is finite", i);
        }
        backend->ops->linear_destroy(backend, linear);
        for (uint32_t i = 0; i < 2; i++) coded_free(&parts[i]);
        backend_destroy(backend);
    }
    ops_guard_free(out, NUM_RESULTS);
    ops_guard_free(before, NUM_RESULTS);
    ops_guard_free(bias, OUT);
    ops_guard_free(x, NUM_NUMBERS);
}

// x of a row, where its parts are converted one by one: whole spans, the last one may be shorter.
static void test_parts_of_a_row(void **state) {
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
    const struct cpu_kernels *kernels = &cpu_backend_of(backend)->kernels;
    enum { IN = 550, CHUNKS = 18, STRIDE = 3 * CHUNK_BYTES, LINES = 24 };
    const uint32_t groups[] = {64, 128, 0};
    float *x = ops_guard_alloc(IN);
    struct ops_rng rng = ops_rng_of(7);
    ops_rng_fill(&rng, x, IN);
    for (size_t i = 0; i < ARRAY_LEN(groups) && kernels->narrow_spans; i++) {
        const struct matrix_form form = {.code = WEIGHT_CODE_INT4, .group = groups[i]};
        const struct packed_shape shape = packed_shape_of(weight_format_packed(form, 0));
        unsigned char whole[LINES * STRIDE] = {0}, parts[LINES * STRIDE] = {0};
        uint32_t span = spans_chunks(&shape) * PACKED_CHUNK;
        assert_true(spans_all_lines(&shape, CHUNKS) <= LINES);
        kernels->narrow_spans(x, IN, &(struct span_row){&shape, whole, STRIDE, CHUNKS, 0});
        for (uint32_t col = 0; col < IN; col += span) {
            const struct span_row row = {&shape, parts, STRIDE, CHUNKS, col / PACKED_CHUNK};
            kernels->narrow_spans(x + col, IN - col < span ? IN - col : span, &row);
        }
        assert_memory_equal(whole, parts, sizeof whole);
        struct span_head head;
        const float broken[2] = {NAN, -INFINITY}; // a total of these is no integer
        kernels->narrow_spans(broken, 2, &(struct span_row){&shape, whole, STRIDE, CHUNKS, 0});
        memcpy(&head, whole + span_head_at(CHUNKS, 0, STRIDE), sizeof head);
        assert_true(isnan(head.scale));
        assert_int_equal(head.total_exact, 0);
    }
    ops_guard_free(x, IN);
    backend_destroy(backend);
}

static void test_int4(void **state) {
    check_code(*state, WEIGHT_CODE_INT4);
}

static void test_e2m1(void **state) {
    check_code(*state, WEIGHT_CODE_E2M1);
}

static void test_iq4(void **state) {
    check_code(*state, WEIGHT_CODE_IQ4);
}

static void test_iq3(void **state) {
    check_code(*state, WEIGHT_CODE_IQ3);
}

static void test_iq2(void **state) {
    check_code(*state, WEIGHT_CODE_IQ2);
}

static void test_odd(void **state) {
    check_code(*state, WEIGHT_CODE_ODD);
}

static void test_int8(void **state) {
    check_code(*state, WEIGHT_CODE_INT8);
}

static void test_e4m3(void **state) {
    check_code(*state, WEIGHT_CODE_E4M3);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"int4", test_int4, ISA_FLOAT_WEIGHTS},
        {"e2m1", test_e2m1, ISA_FLOAT_WEIGHTS},
        {"iq4", test_iq4, ISA_FLOAT_WEIGHTS},
        {"iq3", test_iq3, ISA_FLOAT_WEIGHTS},
        {"iq2", test_iq2, ISA_FLOAT_WEIGHTS},
        {"odd", test_odd, ISA_FLOAT_WEIGHTS},
        {"int8", test_int8, ISA_FLOAT_WEIGHTS},
        {"e4m3", test_e4m3, ISA_FLOAT_WEIGHTS},
        {"units", test_units, ISA_FLOAT_WEIGHTS},
        {"parts", test_parts_of_a_row, ISA_FLOAT_WEIGHTS},
        {"non-finite rows", test_nonfinite_rows, ISA_FLOAT_WEIGHTS},
    };
    return ops_run("packed", cases, ARRAY_LEN(cases));
}
