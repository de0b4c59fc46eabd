/* The reader of GGUF files: what it hands out, and each way in which a file can be wrong. */
#include <stdlib.h>
#include <string.h>

#include "base/os/file.h"
#include "checkpoint/gguf/file/gguf_files.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "support/cmocka_all.h"
#include "support/gguf_builder.h"
#include "support/temp_folder.h"

enum { F32_TYPE = 0, Q4_K_TYPE = 12, Q8_1_TYPE = 9, IQ1_M_TYPE = 29, NVFP4_TYPE = 40 };

static const uint64_t matrix[] = {256, 2};

// Ends the file in `bytes`, and frees it.
static void refuse(struct buf *bytes, enum status status, const char *sentence) {
    struct gguf *gguf = NULL;
    struct err err = {0};
    enum status got = gguf_parse(&gguf, bytes->data, bytes->len, "m.gguf", &err);
    if (got != status || !strstr(err.message, sentence)) {
        fail_msg("status %d, \"%s\", want %d and \"%s\"", got, err.message, status, sentence);
    }
    assert_null(gguf);
    buf_fini(bytes);
}

// A good file: values, a plain vector, a matrix in blocks.
static void put_good(struct buf *out) {
    static const uint64_t three[] = {3};
    put_start(out, 2, 5);
    put_string_value(out, "name", "a name");
    put_u32_value(out, "number", 7);
    put_f32_value(out, "real", 0.5f);
    put_bool_value(out, "flag", true);
    put_array(out, "list", GGUF_STRING, 2);
    put_string(out, "one");
    put_string(out, "two");
    put_tensor(out, "vector", 1, three, F32_TYPE, 0);
    put_tensor(out, "matrix", 2, matrix, Q4_K_TYPE, 32);
    put_data(out, 32, 32 + 2 * 144);
}

static void test_values_and_tensors(void **state) {
    (void)state;
    struct buf bytes = {0};
    struct gguf *gguf = NULL;
    struct err err = {0};
    put_good(&bytes);
    if (gguf_parse(&gguf, bytes.data, bytes.len, "m.gguf", &err)) fail_msg("%s", err.message);
    struct gguf_string name = {"", 0};
    struct gguf_value list;
    int64_t number = 0;
    double real = 0;
    bool flag = false, found = false;
    assert_int_equal(gguf_read_string(gguf, "name", &name, &err), OK);
    assert_true(gguf_string_is(name, "a name"));
    assert_int_equal(gguf_read_int(gguf, "number", 0, 7, &number, &err), OK);
    assert_int_equal(number, 7);
    assert_int_equal(gguf_read_real(gguf, "real", &real, &err), OK);
    assert_true(real == 0.5);
    assert_int_equal(gguf_read_bool(gguf, "flag", &flag, &err), OK);
    assert_true(flag);
    assert_int_equal(gguf_read_array(gguf, "list", GGUF_STRING, &list, &found, &err), OK);
    assert_true(found && list.count == 2);
    assert_true(gguf_string_is(gguf_next_string(&list.data), "one"));
    assert_true(gguf_string_is(gguf_next_string(&list.data), "two"));
    const struct gguf_tensor *tensor = gguf_find_tensor(gguf, "matrix");
    assert_non_null(tensor);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->shape[0], 2); // the outermost size first
    assert_int_equal(tensor->shape[1], 256);
    assert_int_equal(tensor->size_bytes, 2 * 144);
    assert_ptr_equal(tensor->source.data, bytes.data + bytes.len - 2 * 144);
    assert_null(gguf_find_tensor(gguf, "other"));
    gguf_close(gguf);
    buf_fini(&bytes);
}

static void test_values_of_another_type(void **state) {
    (void)state;
    struct buf bytes = {0};
    struct gguf *gguf = NULL;
    struct err err = {0};
    put_good(&bytes);
    assert_int_equal(gguf_parse(&gguf, bytes.data, bytes.len, "m.gguf", &err), OK);
    int64_t number = 3;
    assert_int_equal(gguf_read_int(gguf, "name", 0, 9, &number, &err), ERR_FORMAT);
    assert_string_equal(err.message, "m.gguf: \"name\" is string, want an integer");
    assert_int_equal(gguf_read_int(gguf, "number", 8, 9, &number, &err), ERR_FORMAT);
    assert_string_equal(err.message, "m.gguf: \"number\" is 7, want 8 to 9");
    assert_int_equal(gguf_read_int(gguf, "missing", 8, 9, &number, &err), OK);
    assert_int_equal(number, 3);
    gguf_close(gguf);
    buf_fini(&bytes);
}

// Every prefix of a good file is refused, whatever it ends in.
static void test_truncated_files(void **state) {
    (void)state;
    struct buf bytes = {0};
    put_good(&bytes);
    for (size_t len = 0; len < bytes.len; len++) {
        struct gguf *gguf = NULL;
        char *copy = malloc(len + 1); // so that sanitizers see what lies beyond
        assert_non_null(copy);
        memcpy(copy, bytes.data, len);
        enum status status = gguf_parse(&gguf, copy, len, "m.gguf", NULL);
        if (status != ERR_FORMAT) fail_msg("%zu bytes: status %d", len, status);
        free(copy);
    }
    buf_fini(&bytes);
}

static void test_the_start(void **state) {
    (void)state;
    struct buf bytes = {0};
    put_bytes(&bytes, "GGML\3\0\0\0", 8);
    refuse(&bytes, ERR_FORMAT, "m.gguf is not a GGUF file");
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\n";
    put_bytes(&bytes, lfs, sizeof lfs);
    refuse(&bytes, ERR_FORMAT, "is a Git LFS pointer");
    static const struct {
        uint32_t version;
        const char *sentence;
    } versions[] = {{0, "of version 0, want version 3"},
                    {1, "of version 1, want version 3"},
                    {2, "of version 2, want"},
                    {4, "of version 4, want"},
                    {3u << 24, "is a big-endian GGUF"}};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        put_bytes(&bytes, "GGUF", 4);
        put_u32(&bytes, versions[i].version);
        refuse(&bytes, ERR_UNSUPPORTED, versions[i].sentence);
    }
}

// No memory is taken for counts and lengths that the file does not back.
static void test_counts_beyond_the_file(void **state) {
    (void)state;
    struct buf bytes = {0};
    put_start(&bytes, UINT64_MAX / 16, 0);
    refuse(&bytes, ERR_FORMAT, "want at most 65536 and 65536");
    put_start(&bytes, 0, UINT64_MAX / 16);
    refuse(&bytes, ERR_FORMAT, "want at most 65536 and 65536");
    put_start(&bytes, 0, 1);
    put_u64(&bytes, UINT64_MAX); // the key's length
    refuse(&bytes, ERR_FORMAT, "a key has 18446744073709551615 bytes");
    put_start(&bytes, 0, 1);
    put_array(&bytes, "list", GGUF_U64, UINT64_MAX / 8 + 2); // 8 times that overflows
    refuse(&bytes, ERR_FORMAT, "m.gguf is truncated");
    put_start(&bytes, 0, 1);
    put_array(&bytes, "list", GGUF_STRING, 1000);
    put_data(&bytes, 1, 400);
    refuse(&bytes, ERR_FORMAT, "m.gguf is truncated");
    put_start(&bytes, 0, 1);
    put_string(&bytes, "text");
    put_u32(&bytes, GGUF_STRING);
    put_u64(&bytes, 1 << 20);
    refuse(&bytes, ERR_FORMAT, "m.gguf is truncated");
}

static void test_keys(void **state) {
    (void)state;
    struct buf bytes = {0};
    put_start(&bytes, 0, 2);
    put_u32_value(&bytes, "key", 1);
    put_u32_value(&bytes, "key", 2);
    refuse(&bytes, ERR_FORMAT, "has the key \"key\" twice");
    put_start(&bytes, 0, 1);
    put_u32_value(&bytes, "", 1);
    refuse(&bytes, ERR_FORMAT, "has an empty key");
    put_start(&bytes, 0, 1);
    put_u32_value(&bytes, "k\xff", 1);
    refuse(&bytes, ERR_FORMAT, "is not UTF-8 text");
    put_start(&bytes, 0, 1);
    put_string(&bytes, "key");
    put_u32(&bytes, NUM_GGUF_TYPES);
    put_data(&bytes, 1, 64);
    refuse(&bytes, ERR_FORMAT, "\"key\" has the unknown type 13");
    put_start(&bytes, 0, 1);
    put_array(&bytes, "key", GGUF_ARRAY, 1);
    put_data(&bytes, 1, 64);
    refuse(&bytes, ERR_UNSUPPORTED, "\"key\" is an array of arrays");
}

static void test_alignments(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 3, 24, 1u << 31};
    struct buf bytes = {0};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        put_start(&bytes, 0, 1);
        put_u32_value(&bytes, "general.alignment", bad[i]);
        refuse(&bytes, ERR_FORMAT, "\"general.alignment\" is not a power of two");
    }
    put_start(&bytes, 0, 1);
    put_f32_value(&bytes, "general.alignment", 32);
    refuse(&bytes, ERR_FORMAT, "\"general.alignment\" is not a power of two");
    static const uint64_t one[] = {1};
    struct gguf *gguf = NULL;
    put_start(&bytes, 2, 1);
    put_u32_value(&bytes, "general.alignment", 64);
    put_tensor(&bytes, "a", 1, one, F32_TYPE, 0);
    put_tensor(&bytes, "b", 1, one, F32_TYPE, 64);
    put_data(&bytes, 64, 68);
    assert_int_equal(gguf_parse(&gguf, bytes.data, bytes.len, "m.gguf", NULL), OK);
    assert_ptr_equal(gguf_tensor(gguf, 1)->source.data, bytes.data + bytes.len - 4);
    gguf_close(gguf);
    buf_fini(&bytes);
}

// A file of one tensor that is wrong.
static void refuse_tensor(const char *name, uint32_t rank, const uint64_t *sizes, uint32_t type,
                          uint64_t offset, enum status status, const char *sentence) {
    struct buf bytes = {0};
    put_start(&bytes, 1, 0);
    put_tensor(&bytes, name, rank, sizes, type, offset);
    put_data(&bytes, 32, 4096);
    refuse(&bytes, status, sentence);
}

static void test_tensors(void **state) {
    (void)state;
    static const uint64_t five[] = {1, 1, 1, 1, 1}, zero[] = {0, 2}, rest[] = {250, 2};
    static const uint64_t huge[] = {1ull << 40, 1ull << 40}, negative[] = {UINT64_MAX};
    static const uint64_t large[] = {1ull << 61, 1};
    refuse_tensor("t", 0, five, F32_TYPE, 0, ERR_FORMAT, "\"t\" does not have 1 to 4 dimensions");
    refuse_tensor("t", 5, five, F32_TYPE, 0, ERR_FORMAT, "\"t\" does not have 1 to 4 dimensions");
    refuse_tensor("t", 2, zero, F32_TYPE, 0, ERR_FORMAT, "a dimension that is not positive");
    refuse_tensor("t", 1, negative, F32_TYPE, 0, ERR_FORMAT, "a dimension that is not positive");
    refuse_tensor("t", 2, huge, F32_TYPE, 0, ERR_FORMAT, "size in bytes overflows");
    refuse_tensor("t", 2, large, F32_TYPE, 0, ERR_FORMAT, "size in bytes overflows");
    refuse_tensor("t", 2, rest, Q4_K_TYPE, 0, ERR_FORMAT,
                  "rows of 250 elements, but its type Q4_K");
    refuse_tensor("t", 2, rest, NVFP4_TYPE, 0, ERR_FORMAT,
                  "rows of 250 elements, but its type NVFP4 has blocks of 64");
    refuse_tensor("t", 2, huge, IQ1_M_TYPE, 0, ERR_FORMAT, "size in bytes overflows");
    refuse_tensor("t", 2, matrix, Q8_1_TYPE, 0, ERR_UNSUPPORTED, "type 9 (Q8_1), which");
    refuse_tensor("t", 2, matrix, 4, 0, ERR_UNSUPPORTED, "type 4 (unknown), which");
    refuse_tensor("t", 2, matrix, Q4_K_TYPE, 32, ERR_FORMAT, "at byte 32 of the data, want 0");
    refuse_tensor("t", 2, matrix, Q4_K_TYPE, UINT64_MAX, ERR_FORMAT, "of the data, want 0");
    char name[300];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    refuse_tensor(name, 1, five, F32_TYPE, 0, ERR_FORMAT, "a tensor's name has 299 bytes");
}

static void test_tensors_that_overlap(void **state) {
    (void)state;
    static const uint64_t many[] = {1024}, more[] = {1025};
    struct buf bytes = {0};
    put_start(&bytes, 2, 0);
    put_tensor(&bytes, "a", 1, many, F32_TYPE, 0);
    put_tensor(&bytes, "b", 1, many, F32_TYPE, 32);
    put_data(&bytes, 32, 8192);
    refuse(&bytes, ERR_FORMAT, "\"b\" is at byte 32 of the data, want 4096");
    put_start(&bytes, 2, 0);
    put_tensor(&bytes, "a", 1, many, F32_TYPE, 0);
    put_tensor(&bytes, "a", 1, many, F32_TYPE, 4096);
    put_data(&bytes, 32, 8192);
    refuse(&bytes, ERR_FORMAT, "\"a\" appears twice");
    put_start(&bytes, 2, 0);
    put_tensor(&bytes, "a", 1, many, F32_TYPE, 0);
    put_tensor(&bytes, "b", 1, more, F32_TYPE, 4096);
    put_data(&bytes, 32, 8192);
    refuse(&bytes, ERR_FORMAT, "is truncated: tensor \"b\" ends beyond");
}

static void test_files(void **state) {
    (void)state;
    struct temp_folder folder;
    struct buf bytes = {0};
    struct gguf_files files;
    struct err err = {0};
    char path[256];
    temp_folder_create(&folder);
    put_good(&bytes);
    temp_folder_write(&folder, "sha256-00", bytes.data, bytes.len);
    assert_int_equal(file_join(path, sizeof path, folder.path, "sha256-00", NULL), OK);
    assert_true(gguf_is_file(path));
    assert_false(gguf_is_file(folder.path));
    if (gguf_files_open(&files, path, &err)) fail_msg("%s", err.message);
    assert_int_equal(files.num_files, 1);
    const struct gguf_tensor *tensor = gguf_files_find(&files, "vector");
    float got[3];
    assert_non_null(tensor);
    assert_non_null(byte_source_get(&tensor->source, 0, sizeof got, got, &err));
    assert_int_equal(gguf_check_unchanged(files.files[0], &err), OK);
    gguf_files_close(&files);
    temp_folder_write_text(&folder, "text", "GGU");
    assert_int_equal(file_join(path, sizeof path, folder.path, "text", NULL), OK);
    assert_false(gguf_is_file(path));
    buf_fini(&bytes);
    temp_folder_remove(&folder);
}

static void test_names_of_parts(void **state) {
    (void)state;
    char path[64];
    assert_true(gguf_part_path("d/m-00001-of-00012.gguf", 9, 12, path, sizeof path));
    assert_string_equal(path, "d/m-00010-of-00012.gguf");
    assert_false(gguf_part_path("d/m-00001-of-00012.gguf", 9, 13, path, sizeof path));
    assert_false(gguf_part_path("d/m.gguf", 1, 2, path, sizeof path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_tensors),
        cmocka_unit_test(test_values_of_another_type),
        cmocka_unit_test(test_truncated_files),
        cmocka_unit_test(test_the_start),
        cmocka_unit_test(test_counts_beyond_the_file),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_tensors_that_overlap),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_names_of_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
