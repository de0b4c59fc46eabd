// Copies of weights to a GPU, tested without one: stubs of the runtime's functions copy in host
// memory. Sources have every type and stride, in memory and in a file; some files end too early.
#include "backend/cuda/staging.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda_backend.h"
#include "base/os/file.h"
#include "support/cmocka_all.h"

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    (void)flags;
    *stream = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    *event = NULL;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event, (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

// The pinned memory. Only it may be copied from, unless nothing can be pinned.
static char *pinned;
static size_t pinned_bytes;
static bool is_refused; // as where a process may pin no more memory
static cudaError_t last_error;

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) {
    (void)flags;
    if (is_refused) return last_error = cudaErrorMemoryAllocation;
    pinned = p;
    pinned_bytes = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p) {
    if (p != pinned) return cudaErrorInvalidValue;
    pinned = NULL;
    return cudaSuccess;
}

static atomic_uint num_copies;

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind, (void)stream;
    const char *begin = from;
    bool is_in = begin >= pinned && begin + bytes <= pinned + pinned_bytes;
    if (!is_refused && !is_in) return cudaErrorInvalidValue;
    num_copies++;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

enum status cuda_error(struct err *err, cudaError_t error, const char *what) {
    return err_set(err, ERR_DEVICE, "%s: error %d", what, (int)error);
}

// Rows of F32 larger than SCRATCH_BYTES, and more rows than fit in a buffer.
enum { ROWS = 37, COLS = 70000, WIDE = COLS + 5, OFFSET = 3 };
enum { BYTES_MAX = OFFSET + ROWS * WIDE * 4 };

struct source {
    char path[64];
    unsigned char *bytes; // [BYTES_MAX]
    struct cuda_staging *staging;
};

static int setup(void **state) {
    static struct source source = {.path = "/tmp/nanovllm-staging-XXXXXX"};
    int fd = mkstemp(source.path);
    source.bytes = malloc(BYTES_MAX);
    if (fd < 0 || !source.bytes) return -1;
    uint32_t random = 1;
    for (size_t i = 0; i < BYTES_MAX; i++) {
        random = random * 1664525u + 1013904223u;
        source.bytes[i] = (unsigned char)(random >> 26); // small exponents: no NaN
    }
    if (write(fd, source.bytes, BYTES_MAX) != BYTES_MAX) return -1;
    close(fd);
    *state = &source;
    return cuda_staging_create(&source.staging, 2, NULL);
}

static int teardown(void **state) {
    struct source *source = *state;
    cuda_staging_destroy(source->staging);
    if (pinned) return -1;
    free(source->bytes);
    return unlink(source->path);
}

static uint16_t element(const unsigned char *at, enum dtype dtype) {
    uint16_t half;
    float value;
    memcpy(&half, at, sizeof half);
    if (dtype == DTYPE_BF16) return half;
    if (dtype == DTYPE_F16) return f32_to_bf16(f16_to_f32(half));
    memcpy(&value, at, sizeof value);
    return f32_to_bf16(value);
}

static void test_every_type_and_stride(void **state) {
    const struct source *source = *state;
    const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    const uint32_t strides[] = {COLS, WIDE};
    struct err err = {0};
    struct file file;
    uint16_t *dev = malloc((size_t)ROWS * COLS * sizeof *dev);
    assert_non_null(dev);
    assert_int_equal(file_open(&file, source->path, &err), OK);
    for (size_t i = 0; i < 12; i++) {
        enum dtype dtype = types[i % 3];
        uint32_t stride = strides[i / 3 % 2];
        struct byte_source whole = {.data = i < 6 ? source->bytes : NULL, .file = &file};
        const struct matrix_slice slice = {.source = byte_source_skip(whole, OFFSET),
                                           .dtype = dtype,
                                           .rows = ROWS,
                                           .cols = COLS,
                                           .row_stride = stride};
        memset(dev, 0, (size_t)ROWS * COLS * sizeof *dev);
        if (cuda_staging_copy(source->staging, dev, &slice, &err)) fail_msg("%s", err.message);
        for (size_t r = 0; r < ROWS; r++) {
            for (size_t c = 0; c < COLS; c++) {
                size_t at = OFFSET + (r * stride + c) * dtype_size(dtype);
                if (dev[r * COLS + c] == element(source->bytes + at, dtype)) continue;
                fail_msg("case %zu: element [%zu][%zu] differs", i, r, c);
            }
        }
    }
    file_close(&file);
    free(dev);
}

// A matrix of 1 MiB is copied by both threads, one of a few rows by one, and so is a bias.
static void test_parts_of_small_matrices(void **state) {
    const struct source *source = *state;
    const uint32_t sizes[][3] = {{512, 1024, 2}, {1024, 1024, 2}, {16, 1024, 1}, {1, 4096, 1}};
    struct err err = {0};
    char *dev = malloc(2 << 20);
    assert_non_null(dev);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct matrix_slice slice = {.source = {.data = source->bytes},
                                           .dtype = DTYPE_BF16,
                                           .rows = sizes[i][0],
                                           .cols = sizes[i][1],
                                           .row_stride = sizes[i][1]};
        num_copies = 0;
        if (cuda_staging_copy(source->staging, dev, &slice, &err)) fail_msg("%s", err.message);
        assert_int_equal(num_copies, sizes[i][2]);
        assert_memory_equal(dev, source->bytes, (size_t)sizes[i][0] * sizes[i][1] * 2);
    }
    free(dev);
}

// Copies are slower then, and no error is left for a later call.
static void test_memory_that_cannot_be_pinned(void **state) {
    const struct source *source = *state;
    const struct matrix_slice slice = {.source = {.data = source->bytes},
                                       .dtype = DTYPE_BF16,
                                       .rows = 512,
                                       .cols = 1024,
                                       .row_stride = 1024};
    char *before = pinned, *dev = calloc(512, 2048);
    struct cuda_staging *staging = NULL;
    struct err err = {0};
    assert_non_null(dev);
    is_refused = true;
    if (cuda_staging_create(&staging, 2, &err)) fail_msg("%s", err.message);
    assert_int_equal(last_error, cudaSuccess);
    if (cuda_staging_copy(staging, dev, &slice, &err)) fail_msg("%s", err.message);
    assert_memory_equal(dev, source->bytes, 512 * 2048);
    cuda_staging_destroy(staging);
    is_refused = false;
    assert_ptr_equal(pinned, before);
    free(dev);
}

// Element [r][c] of the whole matrix is 2 r - c; row BROKEN of it cannot be read.
enum { FIRST_ROW = 3, FIRST_COL = 5, BROKEN = FIRST_ROW + 2 * ROWS };

static enum status read_numbers(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                                size_t count, float *out, struct err *err) {
    (void)reader;
    if (row == BROKEN) return err_set(err, ERR_FORMAT, "row %d is broken", BROKEN);
    for (size_t i = 0; i < count; i++) out[i] = (float)(2 * row) - (float)(col + i);
    return OK;
}

static void test_a_format_that_is_decoded(void **state) {
    const struct source *source = *state;
    const struct matrix_reader reader = {.read = read_numbers};
    struct matrix_slice slice = {.rows = ROWS,
                                 .cols = COLS,
                                 .dtype = DTYPE_F32,
                                 .reader = &reader,
                                 .first_row = FIRST_ROW,
                                 .first_col = FIRST_COL,
                                 .skipped_rows = 1};
    struct err err = {0};
    uint16_t *dev = malloc((size_t)(ROWS + 1) * COLS * sizeof *dev);
    assert_non_null(dev);
    if (cuda_staging_copy(source->staging, dev, &slice, &err)) fail_msg("%s", err.message);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < COLS; c++) {
            float want = (float)(2 * (2 * r + FIRST_ROW)) - (float)(c + FIRST_COL);
            if (dev[r * COLS + c] != f32_to_bf16(want)) fail_msg("element [%zu][%zu]", r, c);
        }
    }
    slice.rows++;
    assert_int_equal(cuda_staging_copy(source->staging, dev, &slice, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "is broken"));
    free(dev);
}

static void test_shorter_file_is_an_error(void **state) {
    const struct source *source = *state;
    const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    struct err err = {0};
    struct file file;
    uint16_t *dev = malloc((size_t)ROWS * COLS * sizeof *dev);
    assert_non_null(dev);
    assert_int_equal(file_open(&file, source->path, &err), OK);
    const off_t sizes[] = {OFFSET + (off_t)ROWS * COLS * 2 - 1, 1 << 20, 0};
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(truncate(source->path, sizes[i / 3]), 0);
        const struct matrix_slice slice = {.source = {.file = &file, .offset = OFFSET},
                                           .dtype = types[i % 3],
                                           .rows = ROWS,
                                           .cols = COLS,
                                           .row_stride = COLS};
        assert_int_equal(cuda_staging_copy(source->staging, dev, &slice, &err), ERR_IO);
        assert_non_null(strstr(err.message, source->path));
        assert_int_equal(cuda_staging_copy(source->staging, dev, &slice, NULL), ERR_IO);
    }
    file_close(&file);
    free(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_stride),
        cmocka_unit_test(test_parts_of_small_matrices),
        cmocka_unit_test(test_memory_that_cannot_be_pinned),
        cmocka_unit_test(test_a_format_that_is_decoded),
        cmocka_unit_test(test_shorter_file_is_an_error),
    };
    return cmocka_run_group_tests_name("cuda_staging", tests, setup, teardown);
}
