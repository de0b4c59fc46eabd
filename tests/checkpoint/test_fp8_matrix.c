// Matrices in 8-bit floating point: every code, blocks at every edge, and what is refused.
#include "checkpoint/quantized/quantized_module.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/os/file.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

static struct tensor tensor_of(const char *name, enum dtype dtype, uint64_t rows, uint64_t cols,
                               const void *data) {
    return (struct tensor){
        .name = name,
        .path = "file",
        .dtype = dtype,
        .rank = 2,
        .shape = {rows, cols},
        .size_bytes = (size_t)(rows * cols) * dtype_size(dtype),
        .source = {.data = data},
    };
}

static enum status open_with(struct matrix_reader **out, const struct tensor *elements,
                             const struct tensor *scales, uint32_t block_rows, uint32_t block_cols,
                             struct err *err) {
    const struct quantization_config config = {
        .method = QUANTIZED_FP8, .bits = 8, .block_rows = block_rows, .block_cols = block_cols};
    struct quantized_module module = {
        .name = "m", .out = elements->shape[0], .in = elements->shape[1]};
    module.parts[PART_WEIGHT] = elements;
    module.parts[PART_WEIGHT_SCALE_INV] = scales;
    return quantized_module_open(out, &module, &config, err);
}

// By the definition: (-1)^s * 2^(e - 7) * (1 + m / 8), or 2^-6 * m / 8 where e is 0.
static float value_of(unsigned code) {
    int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    float value =
        exponent ? ldexpf(1 + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa / 8, -6);
    return code & 128 ? -value : value;
}

static void test_every_code(void **state) {
    (void)state;
    uint8_t codes[2][127];
    const float one = 1;
    for (unsigned i = 0; i < 127; i++) {
        codes[0][i] = (uint8_t)i;
        codes[1][i] = (uint8_t)(128 + i);
    }
    struct tensor elements = tensor_of("w", DTYPE_F8_E4M3, 2, 127, codes);
    struct tensor scales = tensor_of("s", DTYPE_F32, 1, 1, &one);
    struct matrix_reader *reader = NULL;
    assert_int_equal(open_with(&reader, &elements, &scales, 0, 0, NULL), OK);
    for (unsigned sign = 0; sign < 2; sign++) {
        float out[127];
        assert_int_equal(reader->read(reader, sign, 0, 127, out, NULL), OK);
        for (unsigned i = 0; i < 127; i++) {
            float want = value_of(sign * 128 + i);
            assert_memory_equal(&out[i], &want, sizeof want);
        }
    }
    reader->close(reader);
}

static void test_nan_is_refused(void **state) {
    (void)state;
    for (int sign = 0; sign < 2; sign++) {
        uint8_t codes[3] = {1, sign ? 0xff : 0x7f, 2};
        const float one = 1;
        float out[3];
        struct tensor elements = tensor_of("w", DTYPE_F8_E4M3, 1, 3, codes);
        struct tensor scales = tensor_of("s", DTYPE_F32, 1, 1, &one);
        struct matrix_reader *reader = NULL;
        struct err err = {0};
        assert_int_equal(open_with(&reader, &elements, &scales, 0, 0, NULL), OK);
        assert_int_equal(reader->read(reader, 0, 0, 3, out, &err), ERR_FORMAT);
        assert_non_null(strstr(err.message, "NaN"));
        assert_int_equal(reader->read(reader, 0, 2, 1, out, NULL), OK); // not of what is not read
        reader->close(reader);
    }
}

// Every piece of every row of a 5 x 7 matrix with blocks of 2 x 3 has the scales of its blocks.
static void test_blocks(void **state) {
    (void)state;
    enum { ROWS = 5, COLS = 7 };
    uint8_t codes[ROWS][COLS];
    float factors[3][3];
    memset(codes, 0x38, sizeof codes); // 1.0
    for (int i = 0; i < 9; i++) factors[i / 3][i % 3] = (float)(i + 1);
    struct tensor elements = tensor_of("w", DTYPE_F8_E4M3, ROWS, COLS, codes);
    struct tensor scales = tensor_of("s", DTYPE_F32, 3, 3, factors);
    struct matrix_reader *reader = NULL;
    assert_int_equal(open_with(&reader, &elements, &scales, 2, 3, NULL), OK);
    for (uint64_t row = 0; row < ROWS; row++) {
        for (uint64_t col = 0; col < COLS; col++) {
            float out[COLS];
            size_t count = COLS - (size_t)col;
            assert_int_equal(reader->read(reader, row, col, count, out, NULL), OK);
            for (size_t i = 0; i < count; i++) {
                assert_true(out[i] == factors[row / 2][(col + i) / 3]);
            }
        }
    }
    reader->close(reader);
}

static void test_types_of_scales(void **state) {
    (void)state;
    const uint8_t code = 0x40; // 2.0
    const uint16_t bf16 = f32_to_bf16(0.5f), f16 = 0x3800;
    const uint8_t power = 126;
    const struct {
        enum dtype dtype;
        const void *data;
    } cases[] = {{DTYPE_BF16, &bf16}, {DTYPE_F16, &f16}, {DTYPE_F8_E8M0, &power}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor elements = tensor_of("w", DTYPE_F8_E4M3, 1, 1, &code);
        struct tensor scales = tensor_of("s", cases[i].dtype, 1, 1, cases[i].data);
        struct matrix_reader *reader = NULL;
        float out;
        assert_int_equal(open_with(&reader, &elements, &scales, 128, 128, NULL), OK);
        assert_int_equal(reader->read(reader, 0, 0, 1, &out, NULL), OK);
        assert_true(out == 1);
        reader->close(reader);
    }
}

static void test_refused_scales(void **state) {
    (void)state;
    const uint8_t codes[4] = {0};
    const float values[4] = {1, 1, NAN, INFINITY};
    struct tensor elements = tensor_of("w", DTYPE_F8_E4M3, 2, 2, codes);
    const struct {
        struct tensor scales;
        uint32_t block;
        enum status status;
    } cases[] = {
        {tensor_of("s", DTYPE_F32, 1, 1, values), 1, ERR_FORMAT}, // too few
        {tensor_of("s", DTYPE_F32, 1, 2, values), 0, ERR_FORMAT}, // more than one
        {tensor_of("s", DTYPE_I8, 1, 1, values), 2, ERR_UNSUPPORTED},
        {tensor_of("s", DTYPE_F32, 1, 1, values + 2), 2, ERR_FORMAT},
        {tensor_of("s", DTYPE_F32, 1, 1, values + 3), 2, ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct matrix_reader *reader = NULL;
        struct err err = {0};
        assert_int_equal(
            open_with(&reader, &elements, &cases[i].scales, cases[i].block, cases[i].block, &err),
            cases[i].status);
        assert_null(reader);
        assert_non_null(strstr(err.message, "\"s\""));
    }
}

// How often this process has read from files. -1: the kernel does not say.
static long num_reads(void) {
    FILE *file = fopen("/proc/self/io", "re");
    if (!file) return -1;
    char line[64];
    long count = -1;
    while (count < 0 && fgets(line, sizeof line, file)) sscanf(line, "syscr: %ld", &count);
    fclose(file);
    return count;
}

// Blocks of columns are narrow: a read for each of them would make loading several times slower.
static void test_a_row_of_a_file_is_read_at_once(void **state) {
    (void)state;
    enum { ROWS = 64, COLS = 4096, BLOCK = 16 };
    static uint8_t codes[ROWS][COLS];
    static float factors[ROWS / BLOCK][COLS / BLOCK];
    for (int i = 0; i < ROWS * COLS; i++) codes[i / COLS][i % COLS] = (uint8_t)(i % 127);
    for (int i = 0; i < COLS / BLOCK; i++) factors[0][i] = (float)(i + 1);
    struct temp_folder folder;
    struct file file;
    char path[256];
    temp_folder_create(&folder);
    temp_folder_write(&folder, "codes", codes, sizeof codes);
    snprintf(path, sizeof path, "%s/codes", folder.path);
    assert_int_equal(file_open(&file, path, NULL), OK);
    struct tensor elements = tensor_of("w", DTYPE_F8_E4M3, ROWS, COLS, NULL);
    elements.source.file = &file;
    struct tensor scales = tensor_of("s", DTYPE_F32, ROWS / BLOCK, COLS / BLOCK, factors);
    struct matrix_reader *reader = NULL;
    assert_int_equal(open_with(&reader, &elements, &scales, BLOCK, BLOCK, NULL), OK);
    long before = num_reads();
    for (uint64_t row = 0; row < ROWS; row++) {
        static float out[COLS];
        assert_int_equal(reader->read(reader, row, 0, COLS, out, NULL), OK);
        for (int i = 0; i < COLS && row < BLOCK; i++) {
            assert_true(out[i] == value_of(codes[row][i]) * factors[0][i / BLOCK]);
        }
    }
    long after = num_reads();
    reader->close(reader);
    file_close(&file);
    temp_folder_remove(&folder);
    if (before < 0) skip();
    assert_in_range(after - before, 1, 4 * ROWS); // some are of the counter, and of valgrind
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_nan_is_refused),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_types_of_scales),
        cmocka_unit_test(test_refused_scales),
        cmocka_unit_test(test_a_row_of_a_file_is_read_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
