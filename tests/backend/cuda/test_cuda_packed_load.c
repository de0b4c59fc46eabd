// Loading packed weights (linear/packed_load.c): codes and scales in the device's order stand for
// the values that the readers give. The runtime here is in host memory, and the packing keeps the
// codes as they are.
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/linear/packed.h"
#include "backend/cuda/linear/packed_load.h"
#include "backend/cuda/staging.h"
#include "base/compiler.h"
#include "base/thread/thread_pool.h"
#include "support/cmocka_all.h"

static uint8_t *packed; // [out][in] what was packed since the last release
static size_t num_packed;

cudaError_t cudaMalloc(void **out, size_t bytes) {
    *out = malloc(bytes ? bytes : 1);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *dev) {
    free(dev);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

enum status cuda_error(struct err *err, cudaError_t error, const char *call) {
    return err_set(err, ERR_DEVICE, "%s: %d", call, (int)error);
}

// Three threads, which the first error must stop.
void cuda_staging_for(struct cuda_staging *staging, uint32_t num_items,
                      void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg) {
    struct thread_pool *pool;
    (void)staging;
    assert_int_equal(thread_pool_create(&pool, 3, NULL), OK);
    thread_pool_for(pool, num_items, fn, arg);
    thread_pool_destroy(pool);
}

void cuda_packed_pack_launch(void *codes, const uint8_t *raw, uint32_t out, uint32_t in,
                             enum weight_code code, cudaStream_t stream) {
    (void)codes, (void)code, (void)stream;
    packed = realloc(packed, num_packed + (size_t)out * in);
    assert_non_null(packed);
    memcpy(packed + num_packed, raw, (size_t)out * in);
    num_packed += (size_t)out * in;
}

enum status cuda_copy_codes(struct cuda_backend *cuda, void *dev, const struct matrix_slice *slice,
                            const struct cuda_code_rows *rows, struct err *err) {
    (void)cuda;
    for (uint32_t r = 0; r < slice->rows; r++) {
        size_t at = (size_t)r * rows->num_groups;
        uint8_t *codes = (uint8_t *)dev + (size_t)r * rows->row_codes;
        memset(codes + slice->cols, 0, rows->row_codes - slice->cols);
        const struct matrix_codes to = {.codes = codes,
                                        .scales = rows->scales + at,
                                        .offsets = rows->offsets ? rows->offsets + at : NULL};
        enum status status =
            slice->reader->read_codes(slice->reader, slice->first_row + r, slice->first_col,
                                      slice->cols, rows->group, &to, err);
        if (status) return status;
    }
    return OK;
}

// A matrix whose numbers follow from row and column. Zeros are from 0 to 15.
struct made {
    struct matrix_reader reader;
    uint32_t seed, shared_rows; // rows that have the same scales
    float extra; // of offsets: they are no multiple of the scale
    float factor; // of scales, which are rounded, as offsets are
};

static const struct made *made_of(const struct matrix_reader *reader) {
    return (const struct made *)reader;
}

static uint32_t number(const struct made *m, uint64_t a, uint64_t b) {
    uint32_t n = (uint32_t)(a * 2654435761u + b * 40503u + m->seed * 97u);
    return (n ^ n >> 15) * 2246822519u >> 16;
}

static uint8_t code_of(const struct made *m, uint64_t row, uint64_t col) {
    uint32_t limit = weight_code_bits(m->reader.form.code) == 4 ? 16 : 0x7f;
    return (uint8_t)(number(m, row, col) % limit);
}

static uint64_t group_of(const struct made *m, uint64_t col) {
    return m->reader.form.group ? col / m->reader.form.group : 0;
}

static bool is_mxfp4(const struct made *m) {
    return m->reader.form.code == WEIGHT_CODE_E2M1 && m->reader.form.group == 32;
}

// Of 11 bits and either sign, or a power of 2.
static float scale_of(const struct made *m, uint64_t row, uint64_t col) {
    uint32_t n = number(m, row / m->shared_rows + 7, group_of(m, col));
    if (is_mxfp4(m)) return ldexpf(m->factor, (int)(n % 255) - 127);
    return m->factor * ldexpf((float)(1024 + n % 1024), -18) * (n & 2048 ? -1.0f : 1.0f);
}

static float zero_of(const struct made *m, uint64_t row, uint64_t col) {
    return (float)(number(m, row + 3, group_of(m, col)) % 16);
}

static float offset_of(const struct made *m, uint64_t row, uint64_t col) {
    struct made stored = *m;
    stored.factor = 1;
    return (8 - zero_of(m, row, col) + m->extra) * scale_of(&stored, row, col) * m->factor;
}

static enum status read_codes(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    (void)err;
    const struct made *m = made_of(reader);
    for (size_t i = 0; i < count; i++) out->codes[i] = code_of(m, row, col + i);
    for (size_t i = 0, at = 0; at < count; i++, at = group ? i * group : count) {
        out->scales[i] = scale_of(m, row, col + at);
        if (out->offsets) out->offsets[i] = offset_of(m, row, col + at);
    }
    return OK;
}

static float want_of(const struct made *m, uint64_t row, uint64_t col) {
    uint8_t q = code_of(m, row, col);
    float scale = scale_of(m, row, col);
    if (m->reader.form.code == WEIGHT_CODE_ODD) return (2 * (float)q - 15) * scale;
    if (m->reader.form.code != WEIGHT_CODE_INT4) { // the code stands for its value
        float offset = m->reader.form.has_offsets ? offset_of(m, row, col) : 0;
        return (float)q * scale + offset;
    }
    if (m->extra) return ((float)q - 8) * scale + offset_of(m, row, col);
    return ((float)q - (m->reader.form.has_offsets ? zero_of(m, row, col) : 8)) * scale;
}

// As linear/packed.h lays scales out.
static float got_of(const struct linear *linear, uint32_t row, uint32_t col) {
    const struct weight_format f = linear->format;
    uint32_t step = f.bits == 8 ? 64 : 128, span = f.group > step ? f.group : step;
    size_t number = (size_t)(row / 8) * (linear->in / span) + col / span;
    float code = packed[(size_t)row * linear->in + col], scale, offset = 0;
    const float *floats = linear->scales;
    const uint8_t *exponents = linear->scales;
    const uint32_t *words = linear->scales;
    if (!f.group) return code * floats[row];
    if (linear->shares_scales) return code * floats[number];
    size_t group = (number * 8 + row % 8) * (span / f.group) + col % span / f.group;
    if (f.code == WEIGHT_CODE_E2M1 && f.group == 32) return ldexpf(code, exponents[group] - 127);
    if (f.code == WEIGHT_CODE_INT4 && !(f.has_offsets && f.group <= 32)) {
        uint32_t bits = words[group] & 0xffffff00u;
        memcpy(&scale, &bits, sizeof scale);
        return (code - (float)(words[group] & 255)) * scale;
    }
    if (f.has_offsets) offset = floats[group * 2 + 1];
    scale = floats[f.has_offsets ? group * 2 : group];
    return (f.code == WEIGHT_CODE_INT4 ? code - 8 : code) * scale + offset;
}

enum { OUT0 = 24, OUT1 = 40, IN = 384, FIRST_ROW = 3, FIRST_COL = 128 };

static enum status load(struct cuda_backend *cuda, struct made parts[2], uint32_t cols,
                        struct weight_format format, struct linear *linear, struct err *err) {
    struct matrix_slice slices[2] = {0};
    for (uint32_t i = 0; i < 2; i++) {
        slices[i] = (struct matrix_slice){.rows = i ? OUT1 : OUT0,
                                          .cols = cols,
                                          .reader = &parts[i].reader,
                                          .first_row = FIRST_ROW,
                                          .first_col = FIRST_COL};
    }
    const struct linear_spec spec = {.parts = slices, .num_parts = 2, .format = format};
    uint32_t kept_in = (cols + 127) / 128 * 128;
    *linear = (struct linear){.out = OUT0 + OUT1,
                              .in = kept_in,
                              .format = cuda_packed_kept(format, OUT0 + OUT1, kept_in)};
    enum status status = cuda_packed_load(cuda, &spec, linear, err);
    return status ? status : cuda_packed_grow_unpacked(cuda, linear, err);
}

static void release(struct linear *linear) {
    cudaFree(linear->weight);
    cudaFree(linear->scales);
    cudaFree(linear->block_scales);
    free(packed);
    packed = NULL;
    num_packed = 0;
}

// Codes of columns beyond the checkpoint's `cols` are 0.
static void check_cols(struct matrix_form form, uint32_t cols, uint32_t group, uint32_t shared_rows,
                       bool is_shared, float extra) {
    struct cuda_backend cuda = {0};
    struct made parts[2];
    struct err err = {0};
    struct linear linear;
    for (uint32_t i = 0; i < 2; i++) {
        parts[i] =
            (struct made){{.read_codes = read_codes, .form = form}, i, shared_rows, extra, 1};
    }
    const struct weight_format format = {.bits = weight_code_bits(form.code),
                                         .group = group,
                                         .code = form.code,
                                         .has_offsets = form.has_offsets,
                                         .rounds_inputs = form.rounds_inputs};
    if (load(&cuda, parts, cols, format, &linear, &err)) fail_msg("%s", err.message);
    assert_int_equal(linear.shares_scales, is_shared);
    assert_int_equal(cuda.unpacked_bytes, (OUT0 + OUT1) * linear.in * sizeof(uint16_t));
    for (uint32_t row = 0; row < OUT0 + OUT1; row++) {
        const struct made *m = &parts[row >= OUT0];
        uint32_t own = FIRST_ROW + (row < OUT0 ? row : row - OUT0);
        for (uint32_t col = 0; col < linear.in; col++) {
            if (col >= cols) assert_int_equal(packed[(size_t)row * linear.in + col], 0);
            if (col >= cols) continue;
            float got = got_of(&linear, row, col), want = want_of(m, own, FIRST_COL + col);
            if (got != want) fail_msg("[%u][%u]: %g, want %g", row, col, (double)got, (double)want);
        }
    }
    release(&linear);
    free(cuda.unpacked);
}

static void check_with(struct matrix_form form, uint32_t group, uint32_t shared_rows,
                       bool is_shared, float extra) {
    check_cols(form, IN, group, shared_rows, is_shared, extra);
}

static void check(struct matrix_form form, uint32_t group, uint32_t shared_rows, bool is_shared) {
    check_with(form, group, shared_rows, is_shared, 0);
}

static void test_e4m3(void **state) {
    (void)state;
    check((struct matrix_form){.code = WEIGHT_CODE_E4M3}, 0, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_E4M3, .group = 128}, 128, 1, false);
    // The rows of a tile begin at 3, so blocks of 16 rows end within one.
    check((struct matrix_form){.code = WEIGHT_CODE_E4M3, .group = 128}, 128, 16, false);
    check((struct matrix_form){.code = WEIGHT_CODE_E4M3, .group = 128}, 128, 1000, true);
}

// Loads a linear whose two parts have the scales of these seeds, one for all rows.
static struct linear load_e4m3(bool rounds_inputs, uint32_t first_seed, uint32_t second_seed) {
    struct cuda_backend cuda = {0};
    const struct matrix_form form = {
        .code = WEIGHT_CODE_E4M3, .group = 128, .rounds_inputs = rounds_inputs};
    struct made parts[2] = {{{.read_codes = read_codes, .form = form}, first_seed, 1000, 0, 1},
                            {{.read_codes = read_codes, .form = form}, second_seed, 1000, 0, 1}};
    const struct weight_format format = {
        .bits = 8, .group = 128, .code = WEIGHT_CODE_E4M3, .rounds_inputs = rounds_inputs};
    struct linear linear;
    struct err err = {0};
    if (load(&cuda, parts, IN, format, &linear, &err)) fail_msg("%s", err.message);
    free(cuda.unpacked);
    return linear;
}

// Blocks of 128 rows that share their scales have them once more, if products of 8-bit floats may
// need them.
static void test_scales_of_blocks(void **state) {
    (void)state;
    struct linear shared = load_e4m3(true, 5, 5), apart = load_e4m3(true, 5, 6);
    struct linear unrounded = load_e4m3(false, 5, 5);
    const float *of_tiles = shared.scales, *of_blocks = shared.block_scales;
    assert_non_null(of_blocks);
    for (uint32_t g = 0; g < IN / 128; g++) assert_true(of_blocks[g] == of_tiles[g]);
    assert_null(apart.block_scales);
    assert_null(unrounded.block_scales);
    release(&shared);
    release(&apart);
    release(&unrounded);
}

static void test_int4(void **state) {
    (void)state;
    for (uint32_t group = 16; group <= 128; group *= 2) {
        check((struct matrix_form){.code = WEIGHT_CODE_INT4, .group = group}, group, 1, false);
        check((struct matrix_form){.code = WEIGHT_CODE_INT4, .group = group, .has_offsets = true},
              group, 1, false);
    }
    // A group of the linear is a part of the checkpoint's, or the checkpoint has one for a row.
    check((struct matrix_form){.code = WEIGHT_CODE_INT4, .group = 128, .has_offsets = true}, 32, 1,
          false);
    check((struct matrix_form){.code = WEIGHT_CODE_INT4, .has_offsets = true}, 0, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_INT4, .has_offsets = true}, 64, 1, false);
}

// Offsets of small groups are floats.
static void test_minima(void **state) {
    (void)state;
    check_with((struct matrix_form){.code = WEIGHT_CODE_INT4, .group = 32, .has_offsets = true}, 32,
               1, false, 0.5f);
    check_with((struct matrix_form){.code = WEIGHT_CODE_INT4, .group = 16, .has_offsets = true}, 16,
               1, false, 0.25f);
    check_with((struct matrix_form){.code = WEIGHT_CODE_INT8, .group = 32, .has_offsets = true}, 32,
               1, false, 0.25f);
    check_with((struct matrix_form){.code = WEIGHT_CODE_INT8, .group = 16, .has_offsets = true}, 16,
               1, false, 0.25f);
    // Each group is kept as groups of 32.
    check_with((struct matrix_form){.code = WEIGHT_CODE_INT8, .group = 128, .has_offsets = true},
               128, 1, false, 0.25f);
    check_with((struct matrix_form){.code = WEIGHT_CODE_INT8, .has_offsets = true}, 0, 1, false,
               0.25f);
}

static void test_int8_and_e2m1(void **state) {
    (void)state;
    check((struct matrix_form){.code = WEIGHT_CODE_INT8}, 0, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_INT8, .group = 128}, 128, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_INT8, .group = 64}, 64, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_INT8, .group = 32}, 32, 1000, false);
    check((struct matrix_form){.code = WEIGHT_CODE_INT8, .group = 16}, 16, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_E2M1, .group = 32}, 32, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_E2M1, .group = 16}, 16, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_INT4, .group = 16}, 16, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_ODD, .group = 32}, 32, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_ODD, .group = 16}, 16, 1, false);
    check((struct matrix_form){.code = WEIGHT_CODE_ODD, .group = 128}, 128, 1, false);
}

static void test_offsets_between_codes(void **state) {
    (void)state;
    struct cuda_backend cuda = {0};
    const struct matrix_form form = {.code = WEIGHT_CODE_INT4, .group = 128, .has_offsets = true};
    struct made parts[2] = {{{.read_codes = read_codes, .form = form}, 1, 1, 0, 1},
                            {{.read_codes = read_codes, .form = form}, 2, 1, 0.5f, 1}};
    struct linear linear;
    struct err err = {0};
    const struct weight_format format = {
        .bits = 4, .group = 128, .code = WEIGHT_CODE_INT4, .has_offsets = true};
    assert_int_equal(load(&cuda, parts, IN, format, &linear, &err), ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "device cuda: an offset of 4-bit weights is no multiple of its scale");
    release(&linear);
    free(cuda.unpacked);
}

// As of Falcon-H1, whose factors are a part of the weights: offsets are multiples of the scales but
// for rounding.
static void test_offsets_and_scales_that_were_rounded(void **state) {
    (void)state;
    struct cuda_backend cuda = {0};
    const struct matrix_form form = {.code = WEIGHT_CODE_INT4, .group = 128, .has_offsets = true};
    struct made parts[2] = {{{.read_codes = read_codes, .form = form}, 1, 1, 0, 0.88388348f},
                            {{.read_codes = read_codes, .form = form}, 2, 1, 0, 1.1f}};
    struct linear linear;
    struct err err = {0};
    const struct weight_format format = {
        .bits = 4, .group = 128, .code = WEIGHT_CODE_INT4, .has_offsets = true};
    if (load(&cuda, parts, IN, format, &linear, &err)) fail_msg("%s", err.message);
    for (uint32_t row = 0; row < OUT0 + OUT1; row++) {
        const struct made *m = &parts[row >= OUT0];
        uint32_t own = FIRST_ROW + (row < OUT0 ? row : row - OUT0);
        for (uint32_t col = 0; col < IN; col++) {
            float got = got_of(&linear, row, col), want = want_of(m, own, FIRST_COL + col);
            float scale = scale_of(m, own, FIRST_COL + col);
            assert_true(fabsf(got - want) <= fabsf(scale) * 16 * 0x1p-16f);
        }
    }
    release(&linear);
    free(cuda.unpacked);
}

// Experts have them.
static void test_columns_that_are_missing(void **state) {
    (void)state;
    check_cols((struct matrix_form){.code = WEIGHT_CODE_E2M1, .group = 32}, 352, 32, 1, false, 0);
    check_cols((struct matrix_form){.code = WEIGHT_CODE_INT4, .group = 128, .has_offsets = true},
               264, 128, 1, false, 0);
    check_cols((struct matrix_form){.code = WEIGHT_CODE_E4M3, .group = 128}, 200, 128, 1000, true,
               0);
    check_cols((struct matrix_form){.code = WEIGHT_CODE_E4M3, .group = 128}, 200, 128, 1, false, 0);
    check_cols((struct matrix_form){.code = WEIGHT_CODE_INT8}, 200, 0, 1, false, 0);
}

static void test_scales_that_are_no_powers(void **state) {
    (void)state;
    const float factors[] = {1.5f, -1, 0};
    const struct matrix_form form = {.code = WEIGHT_CODE_E2M1, .group = 32};
    const struct weight_format format = {.bits = 4, .group = 32, .code = WEIGHT_CODE_E2M1};
    for (size_t i = 0; i < ARRAY_LEN(factors); i++) {
        struct cuda_backend cuda = {0};
        struct made parts[2] = {{{.read_codes = read_codes, .form = form}, 1, 1, 0, 1},
                                {{.read_codes = read_codes, .form = form}, 2, 1, 0, factors[i]}};
        struct linear linear;
        struct err err = {0};
        assert_int_equal(load(&cuda, parts, IN, format, &linear, &err), ERR_UNSUPPORTED);
        assert_string_equal(
            err.message, "device cuda: a scale of E2M1 weights in groups of 32 is no power of 2");
        release(&linear);
    }
}

static void test_shapes_that_are_not_packed(void **state) {
    (void)state;
    const struct weight_format format = {.bits = 4, .code = WEIGHT_CODE_INT4};
    assert_int_equal(cuda_packed_kept(format, 64, 128).group, 128);
    assert_int_equal(cuda_packed_kept(format, 60, 128).code, WEIGHT_CODE_NONE);
    assert_int_equal(cuda_packed_kept(format, 64, 96).code, WEIGHT_CODE_NONE);
    assert_int_equal(cuda_packed_scratch_bytes(64, 128, format), 64 * 128 * 2);
    assert_int_equal(cuda_packed_scratch_bytes(60, 128, format), 0);
    assert_int_equal(cuda_packed_scratch_bytes(64, 128, WEIGHTS_NATIVE), 0);
    assert_int_equal(cuda_packed_bytes(format, 64, 256), 64 * 256 / 2 + 64 * 4);
    const struct weight_format minima = {
        .bits = 4, .group = 32, .code = WEIGHT_CODE_INT4, .has_offsets = true};
    assert_int_equal(cuda_packed_bytes(minima, 64, 256), 64 * 256 / 2 + 64 * 8 * 8);
    const struct weight_format levels = {.bits = 4, .group = 32, .code = WEIGHT_CODE_IQ4};
    assert_int_equal(cuda_packed_kept(levels, 64, 128).code, WEIGHT_CODE_INT8);
    assert_int_equal(cuda_packed_kept(levels, 64, 128).bits, 8);
    const struct weight_format odd = {.bits = 4, .group = 16, .code = WEIGHT_CODE_ODD};
    assert_int_equal(cuda_packed_kept(odd, 64, 128).code, WEIGHT_CODE_INT4);
    assert_int_equal(cuda_packed_kept(odd, 64, 128).group, 16);
    assert_true(cuda_packed_kept(odd, 64, 128).has_offsets);
    const struct weight_format mxfp4 = {.bits = 4, .group = 32, .code = WEIGHT_CODE_E2M1};
    assert_int_equal(cuda_packed_bytes(mxfp4, 64, 256), 64 * 256 / 32 * 17);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e4m3),
        cmocka_unit_test(test_scales_of_blocks),
        cmocka_unit_test(test_int4),
        cmocka_unit_test(test_int8_and_e2m1),
        cmocka_unit_test(test_minima),
        cmocka_unit_test(test_offsets_between_codes),
        cmocka_unit_test(test_offsets_and_scales_that_were_rounded),
        cmocka_unit_test(test_columns_that_are_missing),
        cmocka_unit_test(test_scales_that_are_no_powers),
        cmocka_unit_test(test_shapes_that_are_not_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
