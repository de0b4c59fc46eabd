/* Blocks of every element type of GGUF against the values that the package gguf decodes, to the
 * bit. tests/reference/make_gguf_cases.py wrote them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/gguf/weights/gguf_grids.h"
#include "checkpoint/gguf/weights/gguf_matrix.h"
#include "checkpoint/safetensors.h"
#include "support/cmocka_all.h"

enum { BLOCKS = 4 };

static const uint32_t numbers[] = {2,  3,  6,  7,  8,  10, 11, 12, 13, 14, 15, 16, 17,
                                   18, 19, 20, 21, 22, 23, 29, 34, 35, 39, 40, 41, 42};

static struct safetensors *cases;

static int open_cases(void **state) {
    (void)state;
    struct err err = {0};
    return safetensors_open(&cases, "tests/reference/data/gguf_blocks.safetensors", &err) != OK;
}

static int close_cases(void **state) {
    (void)state;
    safetensors_close(cases);
    return 0;
}

// The bytes of "TYPE.part", which the caller frees.
static void *load(const struct block_type *type, const char *part, size_t size) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", type->name, part);
    const struct tensor *tensor = safetensors_find(cases, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->size_bytes, size);
    char *out = malloc(size);
    assert_non_null(out);
    assert_ptr_equal(byte_source_get(&tensor->source, 0, size, out, NULL), out);
    return out;
}

// Exact, but 0 is -0: codes of E2M1 have a negative zero, and ggml's table does not.
static void check(const struct block_type *type, const float *got, const float *want,
                  size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (got[i] == want[i]) continue;
        fail_msg("%s: element %zu is %.9g, want %.9g", type->name, i, (double)got[i],
                 (double)want[i]);
    }
}

static void test_blocks(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const struct block_type *type = block_type_of(numbers[i]);
        assert_non_null(type);
        size_t count = (size_t)BLOCKS * type->elements;
        uint8_t *blocks = load(type, "blocks", (size_t)BLOCKS * type->bytes);
        float *want = load(type, "want", count * sizeof *want);
        float *got = calloc(count, sizeof *got);
        block_decode(type, blocks, BLOCKS, got);
        check(type, got, want, count);
        free(blocks);
        free(want);
        free(got);
    }
}

static void test_grids(void **state) {
    (void)state;
    const struct {
        uint32_t number; // of a type
        const uint16_t *grid;
        size_t size;
    } grids[] = {
        {19, gguf_grid_iq1, sizeof gguf_grid_iq1},
        {16, gguf_grid_iq2_xxs, sizeof gguf_grid_iq2_xxs},
        {17, gguf_grid_iq2_xs, sizeof gguf_grid_iq2_xs},
        {22, gguf_grid_iq2_s, sizeof gguf_grid_iq2_s},
        {18, gguf_grid_iq3_xxs, sizeof gguf_grid_iq3_xxs},
        {21, gguf_grid_iq3_s, sizeof gguf_grid_iq3_s},
    };
    for (size_t i = 0; i < ARRAY_LEN(grids); i++) {
        void *want = load(block_type_of(grids[i].number), "grid", grids[i].size);
        assert_memory_equal(grids[i].grid, want, grids[i].size);
        free(want);
    }
}

// A matrix of two rows of two blocks: every part of a row gives the same elements.
static void test_parts_of_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const struct block_type *type = block_type_of(numbers[i]);
        size_t count = (size_t)BLOCKS * type->elements, cols = count / 2;
        uint8_t *blocks = load(type, "blocks", (size_t)BLOCKS * type->bytes);
        float *want = load(type, "want", count * sizeof *want);
        struct gguf_matrix matrix = {.type = type, .source = {.data = blocks}, .cols = cols};
        gguf_matrix_init(&matrix);
        for (size_t first = 0; first < cols; first += 7) {
            float got[2 * BLOCK_ELEMENTS_MAX];
            size_t len = (first * 5) % (cols - first) + 1;
            assert_int_equal(matrix.base.read(&matrix.base, 1, first, len, got, NULL), OK);
            check(type, got, want + cols + first, len);
        }
        free(blocks);
        free(want);
    }
}

static float value_of(enum weight_code code, uint8_t bits) {
    const float *values = weight_code_values(code);
    return values ? values[bits] : (float)(int8_t)bits;
}

// Units and their multiples, of 256 columns and of fewer, give the scales and offsets of `want`, to
// the bit, beside the same codes.
static void check_units(const struct gguf_matrix *matrix, uint64_t row, uint64_t first,
                        size_t count, uint32_t group, const struct matrix_codes *want) {
    const struct matrix_form *form = &matrix->base.form;
    for (uint32_t unit = form->unit; unit >= 32 && unit >= group; unit /= 2) {
        uint8_t bits[BLOCKS * BLOCK_ELEMENTS_MAX];
        float scales[64], offsets[64];
        int8_t multiples[64], offset_multiples[64];
        const struct matrix_codes codes = {.codes = bits,
                                           .scales = scales,
                                           .offsets = form->has_offsets ? offsets : NULL,
                                           .scale_multiples = multiples,
                                           .offset_multiples =
                                               form->has_offsets ? offset_multiples : NULL,
                                           .unit = unit};
        if (first % unit) continue;
        assert_int_equal(
            matrix->base.read_codes(&matrix->base, row, first, count, group, &codes, NULL), OK);
        assert_memory_equal(bits, want->codes, count);
        for (size_t i = 0; i < count / group; i++) {
            float scale = scales[i * group / unit] * multiples[i];
            assert_memory_equal(&scale, &want->scales[i], sizeof scale);
            if (!form->has_offsets) continue;
            float offset = offsets[i * group / unit] * offset_multiples[i];
            if (form->shift) offset += (float)form->shift * scale;
            assert_memory_equal(&offset, &want->offsets[i], sizeof offset);
        }
    }
}

// Codes, scales and offsets of columns [first, first + count) give the decoded elements. An offset
// that had to be rounded may change the last bit of its own size.
static void check_codes(const struct gguf_matrix *matrix, uint64_t row, uint64_t first,
                        size_t count, uint32_t group, const float *want) {
    const struct matrix_form *form = &matrix->base.form;
    uint8_t bits[BLOCKS * BLOCK_ELEMENTS_MAX];
    float scales[64], offsets[64];
    const struct matrix_codes codes = {
        .codes = bits, .scales = scales, .offsets = form->has_offsets ? offsets : NULL};
    assert_int_equal(matrix->base.read_codes(&matrix->base, row, first, count, group, &codes, NULL),
                     OK);
    check_units(matrix, row, first, count, group, &codes);
    for (size_t i = 0; i < count; i++) {
        float offset = form->has_offsets ? offsets[i / group] : -0.0f;
        float got = fmaf(value_of(form->code, bits[i]), scales[i / group], offset);
        if (got == want[i] || fabsf(got - want[i]) <= 0x1p-23f * fabsf(offset)) continue;
        fail_msg("%s: element %zu is %.9g, want %.9g", matrix->type->name, (size_t)first + i,
                 (double)got, (double)want[i]);
    }
}

// The codes of every part of a row that begins with a group.
static void test_codes(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const struct block_type *type = block_type_of(numbers[i]);
        size_t total = (size_t)BLOCKS * type->elements, cols = total / 2;
        uint8_t *blocks = load(type, "blocks", (size_t)BLOCKS * type->bytes);
        float *want = load(type, "want", total * sizeof *want);
        struct gguf_matrix matrix = {.type = type, .source = {.data = blocks}, .cols = cols};
        gguf_matrix_init(&matrix);
        assert_non_null(matrix.base.read_codes);
        uint32_t group = matrix.base.form.group;
        bool is_k = numbers[i] >= 10 && numbers[i] <= 14;
        assert_int_equal(matrix.base.form.unit, is_k || numbers[i] == 23 ? 256 : 0);
        if (group == 256) group = 128; // the largest that is asked for
        for (; group >= 16; group /= 2) {
            for (size_t first = 0; first < cols; first += group) {
                check_codes(&matrix, 1, first, cols - first, group, want + cols + first);
                check_codes(&matrix, 1, first, group, group, want + cols + first);
            }
        }
        free(blocks);
        free(want);
    }
}

enum { ROWS = 5, ROW_BLOCKS = 160, GROUP = 32 };

// Columns from `first` on of all rows at once have the codes, scales and offsets that each row has
// alone. Two of these rows are read together at most.
static void check_rows(const struct gguf_matrix *matrix, size_t first) {
    static uint8_t bits[ROWS][ROW_BLOCKS * BLOCK_ELEMENTS_MAX], want_bits[sizeof bits[0]];
    static float numbers_of[ROWS][2][sizeof bits[0] / GROUP], want[2][sizeof bits[0] / GROUP];
    struct matrix_codes out[ROWS];
    const struct matrix_codes want_out = {
        .codes = want_bits, .scales = want[0], .offsets = want[1]};
    const struct matrix_reader *reader = &matrix->base;
    size_t count = sizeof bits[0] - first;
    memset(bits, 0xff, sizeof bits);
    memset(numbers_of, 0, sizeof numbers_of);
    memset(want, 0, sizeof want);
    for (size_t i = 0; i < ROWS; i++) {
        out[i] = (struct matrix_codes){
            .codes = bits[i], .scales = numbers_of[i][0], .offsets = numbers_of[i][1]};
    }
    assert_int_equal(reader->read_code_rows(reader, 1, ROWS, first, count, GROUP, out, NULL), OK);
    for (size_t i = 0; i < ROWS; i++) {
        assert_int_equal(reader->read_codes(reader, 1 + i, first, count, GROUP, &want_out, NULL),
                         OK);
        assert_memory_equal(bits[i], want_bits, count);
        assert_memory_equal(numbers_of[i], want, sizeof want);
    }
}

static void test_rows_of_codes(void **state) {
    (void)state;
    enum { Q4_K = 12, STORED = 8 };
    const struct block_type *type = block_type_of(Q4_K);
    uint8_t *blocks = load(type, "blocks", (size_t)BLOCKS * type->bytes);
    uint8_t *rows = malloc((size_t)STORED * ROW_BLOCKS * type->bytes);
    assert_non_null(rows);
    for (size_t i = 0; i < (size_t)STORED * ROW_BLOCKS; i++) {
        const uint8_t *block = blocks + (i * 7 / 3 + i / ROW_BLOCKS) % BLOCKS * type->bytes;
        memcpy(rows + i * type->bytes, block, type->bytes);
    }
    for (int i = 0; i < 3; i++) {
        struct gguf_matrix matrix = {
            .type = type, .source = {.data = rows}, .cols = (uint64_t)ROW_BLOCKS * type->elements};
        if (i == 1) matrix.row_order = (struct gguf_order){0, 2, 2, STORED / 4};
        if (i == 2) matrix.col_order = (struct gguf_order){0, 2, 2, 4 * GROUP};
        gguf_matrix_init(&matrix);
        check_rows(&matrix, 0);
        check_rows(&matrix, GROUP);
    }
    free(blocks);
    free(rows);
}

static void test_types_without_codes(void **state) {
    (void)state;
    struct gguf_matrix matrix = {.type = block_type_of(1), .cols = 1};
    gguf_matrix_init(&matrix);
    assert_int_equal(matrix.base.form.code, WEIGHT_CODE_NONE);
    assert_null(matrix.base.read_codes);
}

static void test_plain_types(void **state) {
    (void)state;
    static const float want[] = {1.5f, -0.25f, 65504.0f, 0.0f};
    static const uint16_t f16[] = {0x3e00, 0xb400, 0x7bff, 0}, bf16[] = {0x3fc0, 0xbe80};
    float got[4];
    block_type_of(0)->decode((const uint8_t *)want, 4, got);
    check(block_type_of(0), got, want, 4);
    block_type_of(1)->decode((const uint8_t *)f16, 4, got);
    check(block_type_of(1), got, want, 4);
    block_type_of(30)->decode((const uint8_t *)bf16, 2, got);
    check(block_type_of(30), got, want, 2);
}

// Rows of two pairs of heads of two rows, stored as the first of each pair and then the second.
static void test_tiled_rows(void **state) {
    (void)state;
    static const float rows[] = {0, 1, 20, 21, 10, 11, 30, 31};
    static const float want[] = {0, 1, 10, 11, 20, 21, 30, 31};
    struct gguf_matrix matrix = {.type = block_type_of(0), .source = {.data = rows}, .cols = 1};
    matrix.row_order = (struct gguf_order){0, 2, 2, 2};
    gguf_matrix_init(&matrix);
    for (size_t row = 0; row < ARRAY_LEN(want); row++) {
        float got = -1;
        assert_int_equal(matrix.base.read(&matrix.base, row, 0, 1, &got, NULL), OK);
        assert_true(got == want[row]);
    }
}

// Columns of pairs of heads, stored as the first of each pair and then the second: the order of
// Hugging Face comes back, as floats and as codes, also where a head ends inside a block.
static void test_tiled_columns(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const struct block_type *type = block_type_of(numbers[i]);
        size_t cols = (size_t)BLOCKS * type->elements,
               run = type->elements < 128 ? type->elements : 128;
        size_t keys = cols / run / 2;
        uint8_t *blocks = load(type, "blocks", (size_t)BLOCKS * type->bytes);
        float *stored = load(type, "want", cols * sizeof *stored);
        float got[BLOCKS * BLOCK_ELEMENTS_MAX], want[BLOCKS * BLOCK_ELEMENTS_MAX];
        for (size_t head = 0; head < 2 * keys; head++) {
            size_t from = (head % 2 * keys + head / 2) * run;
            memcpy(want + head * run, stored + from, run * sizeof *want);
        }
        struct gguf_matrix matrix = {.type = type, .source = {.data = blocks}, .cols = cols};
        matrix.col_order = (struct gguf_order){0, keys, 2, run};
        gguf_matrix_init(&matrix);
        assert_int_equal(matrix.base.read(&matrix.base, 0, 5, cols - 5, got, NULL), OK);
        check(type, got, want + 5, cols - 5);
        uint32_t group = matrix.base.form.group;
        assert_int_equal(group != 0, block_codes_of(numbers[i])->form.group <= run);
        assert_int_equal(matrix.base.form.unit, 0); // heads are shorter than a unit
        for (size_t first = 0; group && first < cols; first += group) {
            check_codes(&matrix, 0, first, cols - first, group, want + first);
        }
        free(blocks);
        free(stored);
    }
}

// What is in front of the heads stays: elements 0 to 2, then pairs of heads of one element.
static void test_order_behind_others(void **state) {
    (void)state;
    static const uint64_t want[] = {0, 1, 2, 3, 6, 4, 7, 5, 8};
    struct gguf_order order = {3, 3, 2, 1};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_int_equal(gguf_stored_at(&order, i), want[i]);
    }
}

static void test_types_that_are_not_supported(void **state) {
    (void)state;
    assert_null(block_type_of(4)); // removed from the format
    assert_null(block_type_of(1000));
    assert_false(block_type_is_read(block_type_of(9))); // Q8_1: known by its name alone
    assert_true(block_type_is_read(block_type_of(16)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_parts_of_rows),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_rows_of_codes),
        cmocka_unit_test(test_types_without_codes),
        cmocka_unit_test(test_plain_types),
        cmocka_unit_test(test_tiled_rows),
        cmocka_unit_test(test_tiled_columns),
        cmocka_unit_test(test_order_behind_others),
        cmocka_unit_test(test_types_that_are_not_supported),
    };
    return cmocka_run_group_tests(tests, open_cases, close_cases);
}
