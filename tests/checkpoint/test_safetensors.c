// The safetensors reader: files that follow the format are read, and others are refused with a
// message that names the file and the tensor.
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/temp_folder.h"

struct bytes {
    unsigned char *data; // exactly [size], so that sanitizers see a read past the end
    size_t size;
};

// A file with this header and `data_bytes` bytes of data that count up from 0.
static struct bytes make_file(const char *header, size_t data_bytes) {
    size_t header_bytes = strlen(header);
    struct bytes file = {.size = 8 + header_bytes + data_bytes};
    file.data = malloc(file.size);
    assert_non_null(file.data);
    for (int i = 0; i < 8; i++) {
        file.data[i] = (unsigned char)((unsigned long long)header_bytes >> (8 * i));
    }
    memcpy(file.data + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++) file.data[8 + header_bytes + i] = (unsigned char)i;
    return file;
}

static struct safetensors *parse_ok(const struct bytes *bytes) {
    struct safetensors *file = NULL;
    struct err err = {0};
    if (safetensors_parse(&file, bytes->data, bytes->size, "x.st", &err) != OK) {
        fail_msg("%s", err.message);
    }
    return file;
}

// Parsing must fail with `status` and a message that has each of the '|'-separated words.
static void parse_refused(const void *data, size_t size, enum status status, const char *words) {
    struct safetensors *file = NULL;
    struct err err = {0};
    enum status found = safetensors_parse(&file, data, size, "x.st", &err);
    if (found != status) fail_msg("%s: status %s: %s", words, status_name(found), err.message);
    assert_null(file);
    char copy[512];
    snprintf(copy, sizeof copy, "x.st|%s", words);
    for (char *save, *word = strtok_r(copy, "|", &save); word; word = strtok_r(NULL, "|", &save)) {
        if (!strstr(err.message, word)) fail_msg("no \"%s\" in: %s", word, err.message);
    }
    struct safetensors *again = NULL; // errors are optional
    assert_int_equal(safetensors_parse(&again, data, size, "x.st", NULL), status);
}

static void test_two_tensors(void **state) {
    (void)state;
    struct bytes bytes =
        make_file("{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                  "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
                  28);
    struct safetensors *file = parse_ok(&bytes);
    assert_int_equal(safetensors_count(file), 2);
    assert_string_equal(safetensors_path(file), "x.st");
    const struct tensor *a = safetensors_at(file, 0); // by position, not by header
    assert_string_equal(a->name, "a");
    assert_int_equal(a->dtype, DTYPE_BF16);
    assert_int_equal(a->rank, 1);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->size_bytes, 4);
    const struct tensor *b = safetensors_find(file, "b");
    assert_ptr_equal(b, safetensors_at(file, 1));
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_ptr_equal(b->source.data, bytes.data + bytes.size - 24);
    assert_int_equal(*(const unsigned char *)b->source.data, 4);
    assert_null(safetensors_find(file, "c"));
    assert_null(safetensors_find(file, "__metadata__"));
    safetensors_close(file);
    free(bytes.data);
}

static void test_legal_oddities(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes, count;
    } cases[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"__metadata__\":null}", 0, 0},
        {"{}          ", 0, 0}, // padded
        {"{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, 1}, // a scalar
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, 1},
        // empty ones share a position with a full one, in any order
        {"{\"f\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
         "\"e\":{\"dtype\":\"F32\",\"shape\":[4,0,2],\"data_offsets\":[0,0]},"
         "\"g\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[3,3]}}",
         3, 3},
        // F32 at an odd position
        {"{\"o\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"u\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}",
         5, 2},
        {"{\"\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1},
        {"{\"n\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":[{}]}}", 1, 1},
        {"{\"d\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2,
         1},
        {"{\"\\u00e9\\n\":{\"dtype\":\"U16\",\"shape\":[1],\"data_offsets\":[0,2]}}", 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes bytes = make_file(cases[i].header, cases[i].data_bytes);
        struct safetensors *file = parse_ok(&bytes);
        assert_int_equal(safetensors_count(file), cases[i].count);
        for (size_t k = 0; k < cases[i].count; k++) {
            const struct tensor *tensor = safetensors_at(file, k);
            assert_ptr_equal(safetensors_find(file, tensor->name), tensor);
        }
        safetensors_close(file);
        free(bytes.data);
    }
}

#define ONE(entry) "{\"t\":" entry "}"

static const struct {
    const char *header;
    size_t data_bytes;
    enum status status;
    const char *words;
} bad_headers[] = {
    {"", 0, ERR_FORMAT, "does not begin with '{'"},
    {" {}", 0, ERR_FORMAT, "does not begin with '{'"},
    {"[]", 0, ERR_FORMAT, "does not begin with '{'"},
    {"{", 0, ERR_FORMAT, "not valid JSON"},
    {"{}}", 0, ERR_FORMAT, "not valid JSON"},
    {"{\"a\":}", 0, ERR_FORMAT, "not valid JSON"},
    {"{\"a\\u0000b\":1}", 0, ERR_FORMAT, "not valid JSON"},
    {"{\"\xff\":1}", 0, ERR_FORMAT, "not valid JSON"},
    // names once
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, ERR_FORMAT, "duplicate"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, ERR_FORMAT, "duplicate"},
    // metadata
    {"{\"__metadata__\":[]}", 0, ERR_FORMAT, "__metadata__|a list"},
    {"{\"__metadata__\":{\"format\":1}}", 0, ERR_FORMAT, "__metadata__|format|an integer"},
    {"{\"__metadata__\":{\"a\":\"b\",\"c\":{}}}", 0, ERR_FORMAT, "__metadata__|\"c\"|an object"},
    // entries
    {ONE("1"), 0, ERR_FORMAT, "\"t\"|an integer"},
    {ONE("null"), 0, ERR_FORMAT, "\"t\"|null"},
    {ONE("{}"), 0, ERR_FORMAT, "\"t\"|dtype|missing"},
    {ONE("{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}"), 1, ERR_FORMAT, "\"t\"|dtype"},
    {ONE("{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}"), 1, ERR_FORMAT,
     "\"t\"|unknown dtype|F4"},
    {ONE("{\"dtype\":\"bf16\",\"shape\":[1],\"data_offsets\":[0,2]}"), 2, ERR_FORMAT,
     "unknown dtype"},
    {ONE("{\"dtype\":\"none\",\"shape\":[0],\"data_offsets\":[0,0]}"), 0, ERR_FORMAT,
     "unknown dtype"},
    // shapes
    {ONE("{\"dtype\":\"U8\",\"data_offsets\":[0,1]}"), 1, ERR_FORMAT, "shape|missing"},
    {ONE("{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}"), 1, ERR_FORMAT, "shape|list"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}"), 1, ERR_FORMAT,
     "integers >= 0"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}"), 1, ERR_FORMAT,
     "integers >= 0"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}"), 1, ERR_FORMAT,
     "integers >= 0"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}"), 1,
     ERR_UNSUPPORTED, "\"t\"|9 dimensions"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}"), 0,
     ERR_FORMAT, "\"t\"|product overflows"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[9223372036854775807,3,0],\"data_offsets\":[0,0]}"), 0,
     ERR_FORMAT, "product overflows"},
    {ONE("{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}"), 0,
     ERR_FORMAT, "size in bytes overflows"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]}"), 0,
     ERR_FORMAT, "not valid JSON"},
    // offsets
    {ONE("{\"dtype\":\"U8\",\"shape\":[1]}"), 1, ERR_FORMAT, "\"t\"|data_offsets"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}"), 1, ERR_FORMAT, "two integers"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}"), 1, ERR_FORMAT,
     "two integers"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.5]}"), 1, ERR_FORMAT,
     "two integers"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":1}}"), 1, ERR_FORMAT,
     "two integers"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}"), 1, ERR_FORMAT,
     "[1, 0]|begin <= end"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}"), 1, ERR_FORMAT, "[-1, 0]"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}"), 1, ERR_FORMAT,
     "truncated|\"t\"|byte 2"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}"), 1,
     ERR_FORMAT, "truncated"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}"), 4, ERR_FORMAT,
     "\"t\"|4 bytes|need 8"},
    // the tensors tile the data
    {"{}", 1, ERR_FORMAT, "last 1 bytes"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}"), 3, ERR_FORMAT, "last 2 bytes"},
    {ONE("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}"), 2, ERR_FORMAT,
     "1 bytes before|\"t\""},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
     3, ERR_FORMAT, "1 bytes before|\"b\""},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, ERR_FORMAT, "\"a\" and \"b\" overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
     2, ERR_FORMAT, "overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
     2, ERR_FORMAT, "overlap"},
};

static void test_bad_headers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        struct bytes bytes = make_file(bad_headers[i].header, bad_headers[i].data_bytes);
        parse_refused(bytes.data, bytes.size, bad_headers[i].status, bad_headers[i].words);
        free(bytes.data);
    }
}

static void test_bad_lengths(void **state) {
    (void)state;
    parse_refused("", 0, ERR_FORMAT, "0 bytes");
    parse_refused("\2\0\0\0\0\0\0", 7, ERR_FORMAT, "7 bytes");
    parse_refused("\0\0\0\0\0\0\0\0", 8, ERR_FORMAT, "does not begin with '{'");
    parse_refused("\3\0\0\0\0\0\0\0{}", 10, ERR_FORMAT, "truncated|header has 3 bytes");
    parse_refused("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, ERR_FORMAT,
                  "not a safetensors file|18446744073709551615");
    parse_refused("\1\xe1\xf5\5\0\0\0\0{}", 10, ERR_FORMAT, "100000001|allows 100000000");
    parse_refused("\0\xe1\xf5\5\0\0\0\0{}", 10, ERR_FORMAT, "truncated|100000000"); // at the limit
}

static void test_every_truncation(void **state) {
    (void)state;
    struct bytes bytes =
        make_file("{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}  ", 8);
    for (size_t size = 0; size < bytes.size; size++) {
        unsigned char *cut = malloc(size ? size : 1);
        assert_non_null(cut);
        memcpy(cut, bytes.data, size);
        parse_refused(cut, size, ERR_FORMAT, "");
        free(cut);
    }
    free(bytes.data);
}

static void test_lfs_pointer(void **state) {
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:0123456789abcdef\nsize 1503300328\n";
    parse_refused(pointer, sizeof pointer - 1, ERR_FORMAT, "Git LFS pointer|git lfs pull");
}

// A long tensor name is cut in messages, not in the table.
static void test_long_names(void **state) {
    (void)state;
    char name[3000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    char header[4000];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    struct bytes bytes = make_file(header, 1);
    struct safetensors *file = parse_ok(&bytes);
    assert_non_null(safetensors_find(file, name));
    safetensors_close(file);
    parse_refused(bytes.data, bytes.size - 1, ERR_FORMAT, "truncated|nnnnn\" ends at byte 1");
    free(bytes.data);
}

static void test_many_tensors(void **state) {
    (void)state;
    enum { COUNT = 50000 };
    char *header = malloc(COUNT * 90 + 10);
    assert_non_null(header);
    size_t used = 0;
    header[used++] = '{';
    for (int i = COUNT - 1; i >= 0; i--) { // last data first: the table has to be sorted
        used += (size_t)sprintf(header + used,
                                "\"layer.%d.weight\":{\"dtype\":\"U8\",\"shape\":[1],"
                                "\"data_offsets\":[%d,%d]}%s",
                                i, i, i + 1, i ? "," : "}");
    }
    struct bytes bytes = make_file(header, COUNT);
    struct safetensors *file = parse_ok(&bytes);
    assert_int_equal(safetensors_count(file), COUNT);
    for (int i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer.%d.weight", i);
        const struct tensor *tensor = safetensors_find(file, name);
        assert_non_null(tensor);
        assert_ptr_equal(tensor, safetensors_at(file, (size_t)i));
        assert_int_equal(*(const unsigned char *)tensor->source.data, i & 0xff);
    }
    safetensors_close(file);
    free(bytes.data);
    free(header);
}

static void test_deep_nesting(void **state) {
    (void)state;
    char header[20001];
    memset(header, '[', sizeof header - 1);
    memcpy(header, "{\"a\":", 5);
    header[sizeof header - 1] = '\0';
    struct bytes bytes = make_file(header, 0);
    parse_refused(bytes.data, bytes.size, ERR_UNSUPPORTED, "nested deeper than 64 levels");
    free(bytes.data);
}

static void test_files(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    struct bytes bytes =
        make_file("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
    temp_folder_write(&folder, "good.safetensors", bytes.data, bytes.size);
    temp_folder_write(&folder, "empty.safetensors", "", 0);
    free(bytes.data);
    struct safetensors *file = NULL;
    struct err err = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/good.safetensors", folder.path);
    assert_int_equal(safetensors_open(&file, path, &err), OK);
    assert_string_equal(safetensors_path(file), path);
    const struct tensor *a = safetensors_find(file, "a");
    assert_non_null(a);
    char bytes_read[3];
    assert_ptr_equal(byte_source_get(&a->source, 0, 3, bytes_read, &err), bytes_read);
    assert_memory_equal(bytes_read, "\0\1\2", 3);
    safetensors_close(file);
    snprintf(path, sizeof path, "%s/empty.safetensors", folder.path);
    assert_int_equal(safetensors_open(&file, path, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, path));
    snprintf(path, sizeof path, "%s/none.safetensors", folder.path);
    assert_int_equal(safetensors_open(&file, path, &err), ERR_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(safetensors_open(&file, folder.path, &err), ERR_IO);
    assert_null(file);
    safetensors_close(NULL);
    temp_folder_remove(&folder);
}

// Files that another implementation wrote.
static void test_reference_file(void **state) {
    (void)state;
    struct safetensors *file = NULL;
    struct err err = {0};
    const char *path = "tests/reference/data/qwen3/model.safetensors";
    if (safetensors_open(&file, path, &err) != OK) fail_msg("%s", err.message);
    const struct tensor *tensor = safetensors_find(file, "model.layers.0.mlp.down_proj.weight");
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, DTYPE_BF16);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->shape[0], 128);
    assert_int_equal(tensor->shape[1], 320);
    safetensors_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_tensors),      cmocka_unit_test(test_legal_oddities),
        cmocka_unit_test(test_bad_headers),      cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_every_truncation), cmocka_unit_test(test_lfs_pointer),
        cmocka_unit_test(test_long_names),       cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_deep_nesting),     cmocka_unit_test(test_files),
        cmocka_unit_test(test_reference_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
