// Weights in a file are packed to the same bits as weights in memory, whatever their types and
// strides. A file that becomes shorter is an error that names it.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/ops_util.h"
#include "base/os/file.h"

// Three parts: F16 in one run, F32 and BF16 as columns [2, 2 + IN) of wider rows; then biases.
enum { IN = 66, WIDE = 71, PARTS = 3, OUT = 21 + 3 + 40, OFFSET = 13, FILE_BYTES = 9451 };
static const uint32_t part_rows[PARTS] = {21, 3, 40};
static const enum dtype part_types[PARTS] = {DTYPE_F16, DTYPE_F32, DTYPE_BF16};

static unsigned char bytes[FILE_BYTES];

static int make_file(void **state) {
    static char path[] = "/tmp/nanovllm-weights-XXXXXX";
    struct ops_rng rng = ops_rng_of(5);
    for (size_t i = 0; i < FILE_BYTES; i++) bytes[i] = (unsigned char)ops_rng_below(&rng, 64);
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, bytes, FILE_BYTES) != FILE_BYTES) return -1;
    close(fd);
    *state = path;
    return 0;
}

static const char *file_path;

// Part i is in the file if bit i of `in_file` is set, else in memory.
static enum status create(struct backend *backend, struct weight_format format,
                          const struct file *file, unsigned in_file, struct linear **out,
                          struct err *err) {
    struct matrix_slice parts[PARTS], biases[PARTS];
    size_t at = OFFSET; // no alignment
    for (uint32_t i = 0; i < PARTS; i++) {
        struct byte_source source = {.data = in_file >> i & 1 ? NULL : bytes, .file = file};
        size_t element = dtype_size(part_types[i]), stride = i ? WIDE : IN, skipped = i ? 2 : 0;
        parts[i] = (struct matrix_slice){
            .source = byte_source_skip(source, at + skipped * element),
            .dtype = part_types[i],
            .rows = part_rows[i],
            .cols = IN,
            .row_stride = stride,
        };
        at += part_rows[i] * stride * element;
    }
    for (uint32_t i = 0; i < PARTS; i++) {
        struct byte_source source = {.data = in_file >> i & 1 ? NULL : bytes, .file = file};
        biases[i] = (struct matrix_slice){
            .source = byte_source_skip(source, at),
            .dtype = part_types[i],
            .rows = 1,
            .cols = part_rows[i],
            .row_stride = part_rows[i],
        };
        at += part_rows[i] * dtype_size(part_types[i]);
    }
    const struct linear_spec spec = {parts, biases, PARTS, format};
    return backend->ops->linear_create(backend, &spec, out, err);
}

enum { ALL = (1 << PARTS) - 1 };

// Destroys the backend.
static void check_same(struct backend *backend, struct weight_format format,
                       unsigned parts_in_file) {
    enum { ROWS = 3 };
    struct err err = {0};
    struct file file;
    struct linear *in_memory = NULL, *in_file = NULL;
    assert_int_equal(file_open(&file, file_path, &err), OK);
    assert_int_equal(create(backend, format, NULL, 0, &in_memory, &err), OK);
    if (create(backend, format, &file, parts_in_file, &in_file, &err)) fail_msg("%s", err.message);
    file_close(&file);
    float *x = ops_guard_alloc(ROWS * IN);
    float *want = ops_guard_alloc(ROWS * OUT), *got = ops_guard_alloc(ROWS * OUT);
    struct ops_rng rng = ops_rng_of(6);
    ops_rng_fill(&rng, x, ROWS * IN);
    const struct linear_args memory_args = {in_memory, x, want, ROWS, false};
    const struct linear_args file_args = {in_file, x, got, ROWS, false};
    backend->ops->linear(backend, &memory_args);
    backend->ops->linear(backend, &file_args);
    ops_assert_same_bits(got, want, ROWS, OUT, "weights of a file");
    ops_guard_free(x, ROWS * IN);
    ops_guard_free(want, ROWS * OUT);
    ops_guard_free(got, ROWS * OUT);
    backend->ops->linear_destroy(backend, in_memory);
    backend->ops->linear_destroy(backend, in_file);
    backend_destroy(backend);
}

static void test_same_bits(void **state) {
    const struct weight_format formats[] = {WEIGHTS_NATIVE, WEIGHTS_INT8, WEIGHTS_INT4};
    for (unsigned parts_in_file = 1; parts_in_file <= ALL; parts_in_file++) {
        int threads = parts_in_file == ALL ? 2 : 1;
        check_same(ops_backend(*state, threads, DTYPE_F32), WEIGHTS_NATIVE, parts_in_file);
        for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
            check_same(ops_backend(*state, threads, DTYPE_BF16), formats[i], parts_in_file);
        }
    }
}

// Destroys the backend.
static void check_shorter(struct backend *backend, struct weight_format format) {
    const off_t sizes[] = {0, 100, 5000, 9400}; // the last in the biases
    struct file file;
    struct err err = {0};
    assert_int_equal(file_open(&file, file_path, &err), OK);
    for (size_t i = ARRAY_LEN(sizes); i-- > 0;) {
        struct linear *linear = NULL;
        assert_int_equal(truncate(file_path, sizes[i]), 0);
        err.message[0] = '\0';
        assert_int_equal(create(backend, format, &file, ALL, &linear, &err), ERR_IO);
        assert_null(linear);
        assert_non_null(strstr(err.message, file_path));
        assert_non_null(strstr(err.message, " became shorter while it was read"));
        assert_int_equal(create(backend, format, &file, ALL, &linear, NULL), ERR_IO);
    }
    file_close(&file);
    backend_destroy(backend);
    int fd = open(file_path, O_WRONLY);
    assert_int_equal(write(fd, bytes, FILE_BYTES), FILE_BYTES);
    close(fd);
}

static void test_shorter_file_is_an_error(void **state) {
    check_shorter(ops_backend(*state, 2, DTYPE_BF16), WEIGHTS_NATIVE);
    check_shorter(ops_backend(*state, 2, DTYPE_BF16), WEIGHTS_INT8);
    check_shorter(ops_backend(*state, 2, DTYPE_BF16), WEIGHTS_INT4);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"weights of a file are those of memory", test_same_bits,
         ISA_FLOAT_WEIGHTS | ISA_BYTE_WEIGHTS},
        {"a file that becomes shorter is an error", test_shorter_file_is_an_error,
         ISA_FLOAT_WEIGHTS | ISA_BYTE_WEIGHTS},
    };
    void *path = NULL;
    if (make_file(&path)) return 1;
    file_path = path;
    int failed = ops_run("files", cases, ARRAY_LEN(cases));
    unlink(file_path);
    return failed;
}
