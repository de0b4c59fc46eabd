// The file of timed ways: what is read back and what is rejected; which row counts share a way.
// Needs no GPU.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <xxhash.h>

#include "backend/cuda/gemm/gemm_cache.h"
#include "backend/cuda/gemm/gemm_trial.h"
#include "support/temp_folder.h"

enum { PATH_BYTES = 256, LINE_BYTES = 512 };

static const struct gemm_key first = {.rows = 48, .out = 4096, .in = 1024};
static const struct gemm_key second = {.rows = 64, .out = 6144, .in = 1024, .is_gated = 1};

static struct gemm_cache *open_cache(const char *path, const char *device) {
    struct err err = {0};
    struct gemm_cache *cache = NULL;
    if (gemm_cache_open(&cache, path, device, 130100, &err)) fail_msg("%s", err.message);
    return cache;
}

// Writes a file with two ways, `name` in the folder.
static void write_two(const struct temp_folder *folder, const char *name, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/%s", folder->path, name);
    struct gemm_cache *cache = open_cache(path, "GPU");
    struct gemm_way way = {.kind = KERNEL_CUBLAS, .has_algo = 1};
    memset(&way.algo, 0xa5, sizeof way.algo);
    gemm_cache_put(cache, &first, &way);
    gemm_cache_put(cache, &second, &(struct gemm_way){.kind = KERNEL_BATCH, .split = 4});
    gemm_cache_close(cache);
}

static void test_ways_come_back(void **state) {
    (void)state;
    struct temp_folder folder;
    char path[PATH_BYTES];
    temp_folder_create(&folder);
    write_two(&folder, "gemm.txt", path);
    struct gemm_cache *cache = open_cache(path, "GPU");
    struct gemm_way way, want = {.kind = KERNEL_CUBLAS, .has_algo = 1};
    memset(&want.algo, 0xa5, sizeof want.algo);
    assert_true(gemm_cache_get(cache, &first, &way));
    assert_int_equal(way.kind, KERNEL_CUBLAS);
    assert_memory_equal(&way.algo, &want.algo, sizeof way.algo);
    assert_true(gemm_cache_get(cache, &second, &way));
    assert_int_equal(way.kind, KERNEL_BATCH);
    assert_int_equal(way.split, 4);
    const struct gemm_key plain = {.rows = 64, .out = 6144, .in = 1024};
    assert_false(gemm_cache_get(cache, &plain, &way));
    struct gemm_key key;
    assert_true(gemm_cache_at(cache, 1, &key, &way));
    assert_memory_equal(&key, &second, sizeof key);
    assert_int_equal(way.kind, KERNEL_BATCH);
    assert_false(gemm_cache_at(cache, 2, &key, &way));
    gemm_cache_close(cache);
    temp_folder_remove(&folder);
}

static void test_folders_above_the_file_are_made(void **state) {
    (void)state;
    struct temp_folder folder;
    char path[PATH_BYTES];
    struct stat info;
    temp_folder_create(&folder);
    write_two(&folder, "a/b/gemm.txt", path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(rmdir(path), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    temp_folder_remove(&folder);
}

static void test_another_device_is_measured_anew(void **state) {
    (void)state;
    struct temp_folder folder;
    char path[PATH_BYTES];
    temp_folder_create(&folder);
    write_two(&folder, "gemm.txt", path);
    struct gemm_cache *cache = open_cache(path, "another GPU");
    struct gemm_way way;
    assert_false(gemm_cache_get(cache, &first, &way));
    gemm_cache_close(cache);
    temp_folder_remove(&folder);
}

// Version 5 knew the heuristic's proposals alone, so its choices are measured anew.
static void test_an_earlier_version_is_measured_anew(void **state) {
    (void)state;
    struct temp_folder folder;
    char path[PATH_BYTES], text[4096];
    temp_folder_create(&folder);
    write_two(&folder, "gemm.txt", path);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    char *version = strstr(text, "gemm ");
    assert_non_null(version);
    version[strlen("gemm ")] = '5';
    temp_folder_write_text(&folder, "gemm.txt", text);
    struct gemm_cache *cache = open_cache(path, "GPU");
    struct gemm_way way;
    assert_false(gemm_cache_get(cache, &first, &way));
    gemm_cache_close(cache);
    temp_folder_remove(&folder);
}

// Puts another line in place of a file's two. Returns whether its way of `second` is accepted.
static bool is_believed(const char *line) {
    struct temp_folder folder;
    char path[PATH_BYTES], text[4096];
    temp_folder_create(&folder);
    write_two(&folder, "gemm.txt", path);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file)); // the title
    fclose(file);
    size_t len = strlen(text);
    snprintf(text + len, sizeof text - len, "%s", line);
    temp_folder_write_text(&folder, "gemm.txt", text);
    struct gemm_cache *cache = open_cache(path, "GPU");
    struct gemm_way way;
    bool found = gemm_cache_get(cache, &second, &way);
    gemm_cache_close(cache);
    temp_folder_remove(&folder);
    return found;
}

// "rows out in float bias gated kind split has_algo algorithm hash": nine numbers, then hex.
static void make_line(char line[LINE_BYTES], const char *numbers) {
    int len = snprintf(line, LINE_BYTES, "64 6144 1024 0 0 1 %s ", numbers);
    for (size_t i = 0; i < sizeof(cublasLtMatmulAlgo_t); i++, len += 2) strcpy(line + len, "a5");
    unsigned long long hash = XXH3_64bits(line, (size_t)len);
    snprintf(line + len, LINE_BYTES - (size_t)len, " %016llx\n", hash);
}

static void test_what_was_never_chosen_is_not_believed(void **state) {
    (void)state;
    static const char *const good[] = {"0 0 1", "1 1 0", "1 8 0", "2 0 0"};
    static const char *const bad[] = {"1 0 0",  "1 9 0",          "3 0 0", "0 0 0",
                                      "1 -1 0", "1 4294967297 0", "x 0 0", "1 4"};
    char line[LINE_BYTES];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        make_line(line, good[i]);
        assert_true(is_believed(line));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        make_line(line, bad[i]);
        if (is_believed(line)) fail_msg("'%s' is believed", bad[i]);
    }
}

// cuBLASLt would crash on a damaged algorithm.
static void test_damaged_lines_are_not_believed(void **state) {
    (void)state;
    char line[LINE_BYTES];
    make_line(line, "0 0 1");
    for (size_t i = 0, len = strlen(line); i < len; i += 5) {
        char was = line[i];
        line[i] = was == '1' ? '2' : '1';
        if (is_believed(line)) fail_msg("'%s' is believed", line);
        line[i] = '\0'; // a file that ends here
        if (is_believed(line)) fail_msg("'%s' is believed", line);
        line[i] = was;
    }
    assert_true(is_believed(line));
}

// A bucket's name is its largest row count, which is timed for the whole bucket.
static void test_a_bucket_is_its_largest_row_count(void **state) {
    (void)state;
    uint32_t before = 0;
    for (uint32_t rows = 1; rows <= 65536; rows++) {
        uint32_t bucket = gemm_bucket(rows);
        assert_true(bucket >= rows);
        assert_int_equal(gemm_bucket(bucket), bucket);
        assert_true(bucket >= before);
        before = bucket;
    }
}

// The engine pads a step of decodes to 1, 2, 4, 8, 16 and then to multiples of 16 sequences. Steps
// padded to the same size use the same way, so that they have the same bits.
static void test_padding_goes_the_same_way(void **state) {
    (void)state;
    uint32_t rows = 1;
    for (uint32_t padded = 1; padded <= 2048; padded += padded < 16 ? padded : 16) {
        for (; rows <= padded; rows++) assert_int_equal(gemm_bucket(rows), gemm_bucket(padded));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways_come_back),
        cmocka_unit_test(test_folders_above_the_file_are_made),
        cmocka_unit_test(test_another_device_is_measured_anew),
        cmocka_unit_test(test_an_earlier_version_is_measured_anew),
        cmocka_unit_test(test_what_was_never_chosen_is_not_believed),
        cmocka_unit_test(test_damaged_lines_are_not_believed),
        cmocka_unit_test(test_a_bucket_is_its_largest_row_count),
        cmocka_unit_test(test_padding_goes_the_same_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
