// attention_prepare and attention of every instruction set. Results are compared with double
// precision and with the scalar kernels. They must have the same bits for any chunk size, batch,
// block size and thread count.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/attention_util.h"
#include "backend/cpu/ops.h"

// Bounds for a float32 cache; for a bf16, int8 or e4m3 cache, whose keys double precision may round
// the other way; and for kernels that also round queries and exponentials to bf16.
#define ATTENTION_NMSE 1e-11
#define ATTENTION_NMSE_INT8 1e-7
#define ATTENTION_NMSE_E4M3 1e-5
#define ATTENTION_NMSE_BF16 1e-7
#define ATTENTION_NMSE_ALL_BF16 3e-5

// The bound for an ISA's kernels.
static double bound_of(const struct attend_inputs *in, const char *isa) {
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        if (strcmp(table[i].name, isa) || !table[i].is_here) continue;
        const struct attention_kernels *kernels =
            attention_kernels_of(&table[i].kernels, in->dtype);
        if (kernels->queries != QUERIES_F32) return ATTENTION_NMSE_ALL_BF16;
    }
    if (in->dtype == DTYPE_F32) return ATTENTION_NMSE;
    if (in->dtype == DTYPE_I8) return ATTENTION_NMSE_INT8;
    return in->dtype == DTYPE_F8_E4M3 ? ATTENTION_NMSE_E4M3 : ATTENTION_NMSE_BF16;
}

static const struct attend_shape shapes[] = {
    {1, 1, 16, 16, true, 1, .len = {1}},
    {2, 1, 64, 16, true, 3, .len = {65, 3, 17}},
    {4, 1, 128, 32, true, 2, .len = {70, 130}, .skip = {40, 100}},
    {7, 1, 96, 16, false, 2, .len = {40, 64}},
    {8, 1, 64, 256, true, 2, .len = {128, 33}, .skip = {90}},
    {16, 2, 80, 48, false, 3, .len = {15, 100, 1}, .skip = {0, 80}},
    {6, 6, 256, 16, true, 2, .len = {67, 5}, .skip = {40}},
    {60, 1, 48, 16, false, 1, .len = {9}},
    {2, 1, 32, 32, true, 3, .len = {1040, 30, 530}, .skip = {1000, 0, 490}}, // three parts
    {4, 2, 64, 16, true, 3, .len = {150, 7, 64}, .window = 33},
    {6, 3, 32, 16, false, 2, .len = {97, 30}, .softcap = 1.5f},
    {8, 2, 48, 32, true, 2, .len = {70, 5}, .has_sinks = true},
    // Rows of an item begin in different parts.
    {2, 1, 16, 16, false, 2, .len = {1100, 600}, .window = 530, .softcap = 4, .has_sinks = true,
     .skip = {1020, 490}},
    {1, 1, 32, 16, true, 2, .len = {80, 200}, .window = 1, .has_sinks = true},
    {5, 1, 32, 16, true, 2, .len = {90, 13}, .softcap = 2, .has_sinks = true},
    {4, 2, 64, 16, true, 2, .len = {70, 9}, .has_norm_after_rope = true},
    {10, 1, 16, 48, false, 2, .len = {130, 21}, .window = 64, .softcap = 3},
};

// What every instruction set must come near to. Computed once for each shape and dtype, and kept:
// the oracle takes longer than the kernels.
struct wanted {
    double *exact;
    float *scalar;
};

static const struct wanted *wanted_of(size_t shape, const struct attend_inputs *in) {
    static struct wanted wanted[ARRAY_LEN(shapes)][DTYPE_F32 + 1];
    struct wanted *w = &wanted[shape][in->dtype];
    if (!w->exact) {
        w->exact = attend_oracle(in);
        w->scalar = attend_run("scalar", in, &(struct attend_schedule){11, false, 1});
    }
    return w;
}

static void check_matches(const char *isa, enum dtype dtype) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct attend_inputs in = attend_inputs_make(&shapes[i], dtype);
        double bound = bound_of(&in, isa);
        size_t count = in.num_tokens * in.out_floats;
        const struct wanted *want = wanted_of(i, &in);
        if (strcmp(isa, "scalar") == 0) {
            assert_nmse(want->scalar, want->exact, count, bound);
        } else {
            float *got = attend_run(isa, &in, &(struct attend_schedule){0, false, 2});
            assert_nmse(got, want->exact, count, bound);
            assert_true(ops_nmse_f32(got, want->scalar, count) <= bound);
            free(got);
        }
        attend_inputs_free(&in);
    }
}

static void test_matches_f32(void **state) {
    check_matches(*state, DTYPE_F32);
}

static void test_matches_bf16(void **state) {
    check_matches(*state, DTYPE_BF16);
}

static void test_matches_int8(void **state) {
    check_matches(*state, DTYPE_I8);
}

static void test_matches_e4m3(void **state) {
    check_matches(*state, DTYPE_F8_E4M3);
}

// A sequence's rows have the same bits however it is cut into steps, and whatever runs beside it.
static void check_same_bits(const char *isa, enum dtype dtype) {
    static const struct attend_shape same_bits_shapes[] = {
        {4, 2, 64, 16, true, 4, .len = {150, 7, 64, 33}},
        {7, 1, 48, 32, false, 3, .len = {97, 30, 80}},
        {3, 1, 128, 16, true, 3, .len = {65, 129, 16}},
        {2, 1, 32, 16, false, 2, .len = {1040, 20}, .skip = {980}}, // more than one part
        {4, 2, 64, 16, true, 4, .len = {150, 7, 64, 33}, .window = 19, .has_sinks = true},
        {2, 1, 32, 16, false, 2, .len = {1100, 20}, .window = 530, .softcap = 3, .skip = {1020}},
    };
    static const struct attend_schedule schedules[] = {
        {0, true, 1},  {16, false, 2}, {1, false, 1},  {1, true, 3},
        {7, false, 3}, {40, true, 2},  {64, false, 2}, {520, false, 4},
    };
    for (size_t i = 0; i < ARRAY_LEN(same_bits_shapes); i++) {
        struct attend_inputs in = attend_inputs_make(&same_bits_shapes[i], dtype);
        float *want = attend_run(isa, &in, &(struct attend_schedule){0, false, 1});
        for (size_t s = 0; s < ARRAY_LEN(schedules); s++) {
            float *got = attend_run(isa, &in, &schedules[s]);
            ops_assert_same_bits(got, want, in.num_tokens, in.out_floats, "another schedule");
            free(got);
        }
        const uint32_t block_sizes[] = {16, 32, 48, 64, 256};
        for (size_t b = 0; b < ARRAY_LEN(block_sizes); b++) {
            in.shape.block_size = block_sizes[b];
            float *got = attend_run(isa, &in, &(struct attend_schedule){30, false, 2});
            ops_assert_same_bits(got, want, in.num_tokens, in.out_floats, "another block size");
            free(got);
        }
        free(want);
        attend_inputs_free(&in);
    }
}

static void test_same_bits_f32(void **state) {
    check_same_bits(*state, DTYPE_F32);
}

static void test_same_bits_bf16(void **state) {
    check_same_bits(*state, DTYPE_BF16);
}

static void test_same_bits_int8(void **state) {
    check_same_bits(*state, DTYPE_I8);
}

static void test_same_bits_e4m3(void **state) {
    check_same_bits(*state, DTYPE_F8_E4M3);
}

// Tokens of NaN or inf do not change the tokens before them, and those that see them are NaN.
static void check_nonfinite_tokens(const char *isa, enum dtype dtype) {
    const struct attend_shape shape = {4, 2, 64, 16, false, 1, .len = {40}};
    struct attend_inputs in = attend_inputs_make(&shape, dtype);
    float *clean = attend_run(isa, &in, &(struct attend_schedule){0, false, 2});
    for (size_t i = 0; i < in.row_floats; i++) {
        in.qkv[25 * in.row_floats + i] = i % 2 ? INFINITY : NAN;
        in.qkv[33 * in.row_floats + i] = -INFINITY;
    }
    float *got = attend_run(isa, &in, &(struct attend_schedule){0, false, 2});
    ops_assert_same_bits(got, clean, 25, in.out_floats, "before the bad token");
    // Tokens 25 to 39 see it.
    for (size_t i = 25 * in.out_floats; i < 40 * in.out_floats; i++) assert_true(isnan(got[i]));
    free(clean);
    free(got);
    attend_inputs_free(&in);
}

// A value that is inf in one dimension leaves the other dimensions alone, in all rows.
static void check_infinite_value(const char *isa, enum dtype dtype) {
    enum { TOKENS = 560, DIM = 32 };
    const struct attend_shape shape = {4, 2, DIM, 16, false, 1, .len = {TOKENS}, .skip = {490}};
    struct attend_inputs in = attend_inputs_make(&shape, dtype);
    float *clean = attend_run(isa, &in, &(struct attend_schedule){0, false, 1});
    const size_t bad[] = {25, 200, 530}; // in several spans and parts
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        in.qkv[bad[i] * in.row_floats + (size_t)6 * DIM] = INFINITY; // dimension 0 of kv head 0
    }
    float *got = attend_run(isa, &in, &(struct attend_schedule){0, false, 1});
    float *chunked = attend_run(isa, &in, &(struct attend_schedule){40, false, 2});
    ops_assert_same_bits(chunked, got, TOKENS, in.out_floats, "chunks of 40");
    for (size_t token = in.shape.skip[0]; token < TOKENS; token++) {
        for (size_t head = 0; head < 4; head++) {
            size_t skipped = head < 2 ? 1 : 0, at = (token * 4 + head) * DIM + skipped;
            ops_assert_same_bits(got + at, clean + at, 1, DIM - skipped, "other dimensions");
            if (skipped) assert_true(isfinite(got[at - 1]) == (token < 25));
        }
    }
    free(chunked);
    free(clean);
    free(got);
    attend_inputs_free(&in);
}

// Tokens do not change those whose window begins after them, in chunks of many rows or few.
static void check_nonfinite_before_window(const char *isa, enum dtype dtype, uint32_t chunk) {
    enum { TOKENS = 300, WINDOW = 21 };
    const struct attend_shape shape = {4, 2, 64, 16, false, 1, .len = {TOKENS}, .window = WINDOW};
    struct attend_inputs in = attend_inputs_make(&shape, dtype);
    float *clean = attend_run(isa, &in, &(struct attend_schedule){chunk, false, 2});
    const size_t bad[] = {25, 64, 130, 199};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        float *row = in.qkv + bad[i] * in.row_floats;
        for (size_t d = 0; d < in.row_floats; d++) row[d] = d % 2 ? INFINITY : NAN;
    }
    float *got = attend_run(isa, &in, &(struct attend_schedule){chunk, false, 2});
    for (size_t token = 0; token < TOKENS; token++) {
        bool sees_bad = false;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            sees_bad = sees_bad || (token >= bad[i] && token < bad[i] + WINDOW);
        }
        const float *row = got + token * in.out_floats;
        if (!sees_bad) {
            ops_assert_same_bits(row, clean + token * in.out_floats, 1, in.out_floats,
                                 "bad tokens outside the window");
        }
        for (size_t d = 0; d < in.out_floats && sees_bad; d++) assert_true(isnan(row[d]));
    }
    free(clean);
    free(got);
    attend_inputs_free(&in);
}

// NaN that one kv head leaves in a thread's memory does not reach the next one, whose last rows do
// not see the first part that their item walks.
static void check_nonfinite_head(const char *isa, enum dtype dtype) {
    enum { TOKENS = 1100, DIM = 16 };
    const struct attend_shape shape = {
        2, 2, DIM, 16, false, 1, .len = {TOKENS}, .window = 530, .skip = {1020}};
    struct attend_inputs in = attend_inputs_make(&shape, dtype);
    float *clean = attend_run(isa, &in, &(struct attend_schedule){0, false, 1});
    for (size_t token = 0; token < TOKENS; token++) {
        float *values = in.qkv + token * in.row_floats + (size_t)5 * DIM; // of kv head 1
        for (size_t d = 0; d < DIM; d++) values[d] = NAN;
    }
    float *got = attend_run(isa, &in, &(struct attend_schedule){0, false, 1});
    for (size_t token = in.shape.skip[0]; token < TOKENS; token++) {
        size_t at = token * in.out_floats;
        ops_assert_same_bits(got + at, clean + at, 1, DIM, "head 0");
        assert_true(isnan(got[at + DIM]));
    }
    free(clean);
    free(got);
    attend_inputs_free(&in);
}

static void test_nonfinite_tokens(void **state) {
    check_infinite_value(*state, DTYPE_F32);
    check_infinite_value(*state, DTYPE_BF16);
    check_nonfinite_tokens(*state, DTYPE_F32);
    check_nonfinite_tokens(*state, DTYPE_BF16);
    check_nonfinite_tokens(*state, DTYPE_I8);
    check_nonfinite_before_window(*state, DTYPE_F32, 0);
    check_nonfinite_before_window(*state, DTYPE_BF16, 0);
    check_nonfinite_before_window(*state, DTYPE_BF16, 3);
    check_nonfinite_before_window(*state, DTYPE_I8, 0);
    check_nonfinite_before_window(*state, DTYPE_I8, 3);
    check_nonfinite_head(*state, DTYPE_BF16);
    check_nonfinite_head(*state, DTYPE_I8);
}

// Queries and keys times `factor`. The running maximum keeps exp in range and rises often.
static void check_large_scores(const char *isa, enum dtype dtype, float factor, double bound) {
    const struct attend_shape shape = {2, 1, 64, 16, false, 1, .len = {540}, .skip = {480}};
    struct attend_inputs in = attend_inputs_make(&shape, dtype);
    for (size_t i = 0; i < in.num_tokens * in.row_floats; i++) {
        if (i % in.row_floats < 192) in.qkv[i] *= factor;
    }
    double *want = attend_oracle(&in);
    float *got = attend_run(isa, &in, &(struct attend_schedule){0, false, 2});
    assert_nmse(got, want, in.num_tokens * in.out_floats, bound);
    free(want);
    free(got);
    attend_inputs_free(&in);
}

static void test_large_scores(void **state) {
    // Scores around 400 have an absolute error near 1e-4. The exponential makes it a relative one.
    check_large_scores(*state, DTYPE_F32, 10.0f, 1e-7);
    // Queries rounded to bf16 change a score of 40 by 0.1.
    check_large_scores(*state, DTYPE_BF16, 3.0f, 1e-2);
}

// The weights of values add up to 1 as they were rounded: a row that sees one position gives its
// value, also where queries and exponentials are rounded to bf16.
static void check_single_position(const char *isa, enum dtype dtype) {
    const struct attend_shape shape = {4, 2, 64, 16, true, 2, .len = {40, 5}, .window = 1};
    struct attend_inputs in = attend_inputs_make(&shape, dtype);
    double *want = attend_oracle(&in);
    const uint32_t chunks[] = {0, 1}; // many rows, and few
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        float *got = attend_run(isa, &in, &(struct attend_schedule){chunks[i], false, 1});
        assert_nmse(got, want, in.num_tokens * in.out_floats, ATTENTION_NMSE_INT8);
        free(got);
    }
    free(want);
    attend_inputs_free(&in);
}

static void test_single_position(void **state) {
    check_single_position(*state, DTYPE_BF16);
    check_single_position(*state, DTYPE_I8);
}

// Slot -1 writes nothing: the cache still holds what was written before.
static void test_skipped_slot(void **state) {
    const struct attend_shape shape = {2, 1, 32, 16, false, 1, .len = {20}};
    struct attend_inputs in = attend_inputs_make(&shape, DTYPE_F32);
    struct attend_runner runner = {.backend = ops_backend(*state, 1, DTYPE_BF16), .in = &in};
    struct backend *backend = runner.backend;
    runner.out = malloc(in.num_tokens * in.out_floats * sizeof(float));
    attend_runner_start(&runner);
    attend_runner_step(&runner, (uint32_t[ATTEND_SEQS_MAX]){19});
    float *row = malloc(in.row_floats * sizeof *row);
    memset(row, 0xff, in.row_floats * sizeof *row);
    int32_t position = 3, slot = -1;
    const struct step step = {.num_tokens = 1, .positions = &position, .slot_mapping = &slot};
    const struct attention_args args = {.step = &step,
                                        .cache = runner.cache,
                                        .layer = ATTEND_LAYER,
                                        .num_heads = 2,
                                        .num_kv_heads = 1,
                                        .head_dim = 32,
                                        .qkv = row,
                                        .rope = in.rope,
                                        .eps = 1e-6f};
    backend->ops->attention_prepare(backend, &args);
    attend_runner_step(&runner, (uint32_t[ATTEND_SEQS_MAX]){1});
    double *want = attend_oracle(&in);
    assert_nmse(runner.out, want, in.num_tokens * in.out_floats, ATTENTION_NMSE);
    backend->ops->kv_cache_destroy(backend, runner.cache);
    backend_destroy(backend);
    free(row);
    free(want);
    free(runner.out);
    free(runner.tables);
    attend_inputs_free(&in);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"matches double precision and scalar, float32 cache", test_matches_f32, ISA_ATTENTION},
        {"matches double precision and scalar, bf16 cache", test_matches_bf16, ISA_ATTENTION},
        {"matches double precision and scalar, int8 cache", test_matches_int8, ISA_ATTENTION},
        {"matches double precision and scalar, e4m3 cache", test_matches_e4m3, ISA_ATTENTION},
        {"same bits for any schedule and block size, float32 cache", test_same_bits_f32,
         ISA_ATTENTION},
        {"same bits for any schedule and block size, bf16 cache", test_same_bits_bf16,
         ISA_ATTENTION},
        {"same bits for any schedule and block size, int8 cache", test_same_bits_int8,
         ISA_ATTENTION},
        {"same bits for any schedule and block size, e4m3 cache", test_same_bits_e4m3,
         ISA_ATTENTION},
        {"non-finite tokens leave earlier ones alone", test_nonfinite_tokens, ISA_ATTENTION},
        {"large scores", test_large_scores, ISA_ATTENTION},
        {"one position gives its value", test_single_position, ISA_ATTENTION},
        {"slot -1 writes nothing", test_skipped_slot, ISA_ATTENTION},
    };
    return ops_run("attention", cases, ARRAY_LEN(cases));
}
