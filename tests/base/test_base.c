// The base module: errors, buffers, arena and hash maps against simple models. Numbers and JSON are
// in test_base_values.c, failing allocations in test_base_faults.c.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/os/clock.h"
#include "base/os/file.h"
#include "base/os/map.h"
#include "base/os/pages.h"
#include "base/text/buf.h"
#include "base/thread/interrupt.h"
#include "base/thread/thread_start.h"
#include "support/cmocka_all.h"

static uint64_t random_state;

static uint32_t random_below(uint32_t bound) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % bound);
}

static void test_err_writes_the_sentence(void **state) {
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, ERR_FORMAT, "tensor %s is %d", "a", 5), ERR_FORMAT);
    assert_int_equal(err.status, ERR_FORMAT);
    assert_string_equal(err.message, "tensor a is 5");
    assert_int_equal(err_prefix(&err, ERR_IO, "file %s", "x"), ERR_IO);
    assert_int_equal(err.status, ERR_IO);
    assert_string_equal(err.message, "file x: tensor a is 5");
    assert_int_equal(err_nomem(&err, "weights"), ERR_NOMEM);
    assert_string_equal(err.message, "out of memory: weights");
    assert_int_equal(err_set(NULL, ERR_IO, "%s", "nobody listens"), ERR_IO);
    assert_int_equal(err_prefix(NULL, ERR_IO, "%s", "nobody listens"), ERR_IO);
}

static void test_err_cuts_long_messages(void **state) {
    (void)state;
    char text[600];
    memset(text, 'a', sizeof text - 1);
    text[599] = '\0';
    struct {
        struct err err;
        char guard[16];
    } guarded;
    memset(&guarded, 0x5a, sizeof guarded);
    struct err *err = &guarded.err;
    err_set(err, ERR_IO, "%s", text);
    assert_int_equal(strlen(err->message), sizeof err->message - 1);
    for (size_t len = 480; len <= 599; len++) { // a prefix that nearly fills it, or overfills it
        err_set(err, ERR_IO, "%s", "tail of the message");
        err_prefix(err, ERR_IO, "%s", text + 599 - len);
        assert_true(strlen(err->message) < sizeof err->message);
        assert_memory_equal(err->message, text, 480);
    }
    err_set(err, ERR_IO, "%s", text);
    err_prefix(err, ERR_IO, "%s", "front");
    assert_memory_equal(err->message, "front: aaa", 10);
    assert_int_equal(strlen(err->message), sizeof err->message - 1);
    for (size_t i = 0; i < sizeof guarded.guard; i++) assert_int_equal(guarded.guard[i], 0x5a);
}

static void test_status_names_are_distinct(void **state) {
    (void)state;
    for (int i = OK; i <= ERR_INTERRUPTED; i++) {
        assert_string_not_equal(status_name((enum status)i), "unknown");
        for (int j = OK; j < i; j++) {
            assert_string_not_equal(status_name((enum status)i), status_name((enum status)j));
        }
    }
}

static int read_flag(void *user_data) {
    return *(const int *)user_data;
}

static void test_interrupt_asks_its_caller(void **state) {
    (void)state;
    int wanted = 0;
    const struct interrupt interrupt = {.is_wanted = read_flag, .user_data = &wanted};
    struct err err = {0};
    assert_int_equal(interrupt_check(NULL, &err), OK);
    assert_int_equal(interrupt_check(&(struct interrupt){0}, &err), OK);
    assert_int_equal(interrupt_check(&interrupt, &err), OK);
    wanted = 1;
    assert_int_equal(interrupt_check(&interrupt, &err), ERR_INTERRUPTED);
    assert_string_equal(err.message, "interrupted by the caller");
}

static void test_buf_grows_and_stays_terminated(void **state) {
    (void)state;
    struct buf buf = {0};
    char model[4000] = "";
    size_t model_len = 0;
    random_state = 1;
    buf_clear(&buf); // an empty one
    while (model_len < 3900) {
        char piece[64];
        size_t len = random_below(60);
        for (size_t i = 0; i < len; i++) piece[i] = (char)random_below(256);
        assert_int_equal(buf_append(&buf, piece, len, NULL), OK);
        memcpy(model + model_len, piece, len);
        model_len += len;
        assert_int_equal(buf.len, model_len);
        assert_true(buf.len < buf.capacity);
        assert_int_equal(buf.data[buf.len], 0);
    }
    assert_memory_equal(buf.data, model, model_len);
    char *data = buf.data;
    buf_clear(&buf);
    assert_int_equal(buf.len, 0);
    assert_string_equal(buf.data, "");
    assert_ptr_equal(buf.data, data); // keeps the allocation
    buf_fini(&buf);
    assert_null(buf.data);
    buf_fini(&buf);
    buf_fini(NULL);
}

static void test_buf_formats(void **state) {
    (void)state;
    struct buf buf = {0};
    assert_int_equal(buf_append_str(&buf, "a=", NULL), OK);
    assert_int_equal(buf_appendf(&buf, NULL, "%d, %s", 5,
                                 "and more than sixty-four bytes "
                                 "so that it has to grow on the way"),
                     OK);
    assert_string_equal(buf.data,
                        "a=5, and more than sixty-four bytes so that it has to grow on the way");
    assert_int_equal(buf.len, strlen(buf.data));
    buf_fini(&buf);
}

static void test_buf_reserve_promises_capacity(void **state) {
    (void)state;
    struct buf buf = {0};
    assert_int_equal(buf_reserve(&buf, 1000, NULL), OK);
    assert_string_equal(buf.data, "");
    char *data = buf.data;
    for (int i = 0; i < 1000; i++) assert_int_equal(buf_append(&buf, "x", 1, NULL), OK);
    assert_ptr_equal(buf.data, data);
    struct err err = {0};
    assert_int_equal(buf_reserve(&buf, SIZE_MAX, &err), ERR_NOMEM);
    assert_int_equal(buf_reserve(&buf, SIZE_MAX / 2, &err), ERR_NOMEM);
    assert_int_equal(buf.len, 1000);
    buf_fini(&buf);
}

static void test_arena_pieces_do_not_overlap(void **state) {
    (void)state;
    enum { PIECES = 400 };
    struct arena arena = {0};
    unsigned char *pieces[PIECES];
    size_t sizes[PIECES];
    random_state = 2;
    for (int i = 0; i < PIECES; i++) {
        sizes[i] = i % 50 == 7 ? 70000 + random_below(70000) : random_below(3000);
        pieces[i] = arena_alloc(&arena, sizes[i]);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], i, sizes[i]);
    }
    for (int i = 0; i < PIECES; i++) {
        for (size_t j = 0; j < sizes[i]; j++) assert_int_equal(pieces[i][j], (unsigned char)i);
    }
    assert_string_equal(arena_strndup(&arena, "hello world", 5), "hello");
    assert_non_null(arena_alloc(&arena, 0));
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_null(arena_alloc(&arena, SIZE_MAX - 8)); // rounding up must not wrap around
    arena_fini(&arena);
    assert_null(arena.chunks);
    arena_fini(&arena);
    arena_fini(NULL);
}

static void test_strmap_finds_what_was_put(void **state) {
    (void)state;
    enum { KEYS = 5000 };
    static char keys[KEYS][12];
    struct strmap map = {0};
    uint32_t value = 0;
    bool existed = true;
    assert_false(strmap_get(&map, "x", 1, &value));
    for (uint32_t i = 0; i < KEYS; i++) {
        int len = snprintf(keys[i], sizeof keys[i], "key %u", i);
        assert_int_equal(strmap_put(&map, keys[i], (size_t)len, i, &existed, NULL), OK);
        assert_false(existed);
    }
    assert_int_equal(map.count, KEYS);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(strmap_get(&map, keys[i], strlen(keys[i]), &value));
        assert_int_equal(value, i);
    }
    assert_false(strmap_get(&map, "key 5000", 8, &value));
    assert_false(strmap_get(&map, "key 1", 4, &value)); // a prefix is another key
    assert_int_equal(strmap_put(&map, "key 17", 6, 99, &existed, NULL), OK);
    assert_true(existed);
    assert_int_equal(map.count, KEYS);
    assert_true(strmap_get(&map, "key 17", 6, &value));
    assert_int_equal(value, 99);
    strmap_fini(&map);
}

static void test_strmap_keys_are_bytes(void **state) {
    (void)state;
    struct strmap map = {0};
    uint32_t value = 0;
    assert_int_equal(strmap_put(&map, "", 0, 1, NULL, NULL), OK);
    assert_int_equal(strmap_put(&map, "a\0b", 3, 2, NULL, NULL), OK);
    assert_int_equal(strmap_put(&map, "a\0c", 3, 3, NULL, NULL), OK);
    assert_int_equal(map.count, 3);
    assert_true(strmap_get(&map, "", 0, &value) && value == 1);
    assert_true(strmap_get(&map, "a\0b", 3, &value) && value == 2);
    assert_true(strmap_get(&map, "a\0c", 3, &value) && value == 3);
    assert_false(strmap_get(&map, "a", 1, &value));
    assert_int_equal(strmap_reserve(&map, SIZE_MAX, NULL), ERR_NOMEM);
    strmap_fini(&map);
}

// Random operations, compared with a plain array. Keys fall into few homes, some at the table's
// end, so that runs of collisions are long and wrap around.
static void stress_u64map(uint32_t num_keys, uint32_t num_homes, uint64_t seed) {
    enum { KEYS_MAX = 1000, OPERATIONS = 60000 };
    struct u64map map;
    assert_int_equal(u64map_init(&map, num_keys, NULL), OK);
    uint64_t keys[KEYS_MAX];
    uint32_t values[KEYS_MAX];
    bool present[KEYS_MAX] = {false};
    size_t count = 0;
    random_state = seed;
    for (uint32_t i = 0; i < num_keys; i++) {
        uint32_t home = (uint32_t)map.capacity - num_homes / 2 + random_below(num_homes);
        keys[i] = (uint64_t)i << 32 | home; // distinct
    }
    for (int operation = 0; operation < OPERATIONS; operation++) {
        uint32_t i = random_below(num_keys);
        if (random_below(2)) {
            values[i] = (uint32_t)operation;
            u64map_put(&map, keys[i], values[i]);
            count += !present[i];
            present[i] = true;
        } else {
            assert_int_equal(u64map_remove(&map, keys[i]), present[i]);
            count -= present[i];
            present[i] = false;
        }
        assert_int_equal(map.count, count);
        uint32_t probe = random_below(num_keys), value = 0;
        assert_int_equal(u64map_get(&map, keys[probe], &value), present[probe]);
        if (present[probe]) assert_int_equal(value, values[probe]);
        if (operation % 1000) continue;
        for (uint32_t k = 0; k < num_keys; k++) {
            assert_int_equal(u64map_get(&map, keys[k], &value), present[k]);
            if (present[k]) assert_int_equal(value, values[k]);
        }
    }
    u64map_fini(&map);
}

static void test_u64map_follows_a_model(void **state) {
    (void)state;
    stress_u64map(12, 1, 1); // one home: a single run
    stress_u64map(12, 4, 2);
    stress_u64map(100, 10, 3);
    stress_u64map(1000, 64, 4);
    stress_u64map(1000, 100000, 5); // spread
}

static void test_u64map_empty_and_full(void **state) {
    (void)state;
    struct u64map map = {0};
    uint32_t value = 0;
    assert_false(u64map_get(&map, 0, &value));
    assert_false(u64map_remove(&map, 0));
    u64map_fini(&map);
    assert_int_equal(u64map_init(&map, SIZE_MAX, NULL), ERR_NOMEM);
    assert_int_equal(u64map_init(&map, 0, NULL), OK);
    u64map_fini(&map);
    for (uint32_t size = 1; size < 200; size += 13) { // the promised capacity is there
        assert_int_equal(u64map_init(&map, size, NULL), OK);
        for (uint32_t i = 0; i < size; i++) u64map_put(&map, i * 0x9e3779b97f4a7c15u, i);
        assert_int_equal(map.count, size);
        assert_true(u64map_get(&map, 0, &value) && value == 0);
        u64map_fini(&map);
    }
}

static void test_files(void **state) {
    (void)state;
    struct err err = {0};
    struct file file;
    assert_int_equal(file_open(&file, "models/tiny-qwen3/config.json", &err), OK);
    char first[2];
    assert_true(file.size > 100);
    assert_int_equal(file_read_at(&file, 0, first, 2, &err), OK);
    assert_memory_equal(first, "{\n", 2);
    assert_int_equal(file_read_at(&file, file.size - 1, first, 2, &err), ERR_IO);
    assert_string_equal(err.message,
                        "models/tiny-qwen3/config.json became shorter while it was read");
    file_close(&file);
    file_close(&file);
    assert_int_equal(file_open(&file, "no/such/file", &err), ERR_IO);
    assert_string_equal(err.message, "cannot open no/such/file: No such file or directory");
    assert_int_equal(file_open(&file, "models", &err), ERR_IO);
    assert_string_equal(err.message, "models is not a regular file");
    assert_int_equal(file_open(&file, "/dev/null", &err), ERR_IO);
    file_close(&file);
    assert_true(file_exists("CMakeLists.txt") && !file_exists("models") && !file_exists("nowhere"));
    assert_true(file_is_folder("models") && !file_is_folder("CMakeLists.txt"));
    char path[12];
    assert_int_equal(file_join(path, sizeof path, "folder", "name", &err), OK); // just fits
    assert_string_equal(path, "folder/name");
    assert_int_equal(file_join(path, sizeof path, "folder", "names", &err), ERR_INVALID);
}

static void test_folders_that_are_made(void **state) {
    (void)state;
    struct err err;
    char path[64], folder[] = "/tmp/nanovllm-folders-XXXXXX";
    static char endless[2 * FILE_PATH_MAX];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a/b/name", folder);
    assert_int_equal(file_make_folders(path, &err), OK);
    assert_int_equal(file_make_folders(path, &err), OK); // they are there
    *strrchr(path, '/') = '\0';
    assert_true(file_is_folder(path));
    assert_int_equal(rmdir(path), 0);
    FILE *file = fopen(path, "we"); // a file is in the way
    assert_non_null(file);
    fclose(file);
    snprintf(path, sizeof path, "%s/a/b/c/name", folder);
    assert_int_equal(file_make_folders(path, &err), ERR_IO);
    assert_non_null(strstr(err.message, "/a/b/c: Not a directory"));
    snprintf(path, sizeof path, "%s/a/b", folder);
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(file_make_folders("", &err), ERR_INVALID);
    memset(endless, 'x', sizeof endless - 1);
    assert_int_equal(file_make_folders(endless, &err), ERR_INVALID);
}

// Only a name that does not exist is absent. Anything else unreadable is an error with its reason.
static void test_presence_of_files(void **state) {
    (void)state;
    char link[] = "/tmp/nanovllm-link-XXXXXX";
    int fd = mkstemp(link);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("/no/such/target", link), 0);
    const struct {
        const char *path;
        enum status status;
        bool present;
        const char *says;
    } cases[] = {
        {"CMakeLists.txt", OK, true, ""},
        {"nowhere", OK, false, ""},
        {"models", ERR_IO, true, "models is not a regular file but a folder"},
        {"/dev/null", ERR_IO, true, "/dev/null is not a regular file"},
        {"CMakeLists.txt/x", ERR_IO, false, "cannot stat CMakeLists.txt/x: Not a directory"},
        {link, ERR_IO, true, " is a dangling link"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        bool present = false;
        assert_int_equal(file_is_present(cases[i].path, &present, &err), cases[i].status);
        assert_int_equal(present, cases[i].present);
        if (!strstr(err.message, cases[i].says)) fail_msg("%s", err.message);
    }
    struct file file;
    struct err err = {0};
    assert_int_equal(file_open(&file, link, &err), ERR_IO);
    assert_non_null(strstr(err.message, " is a dangling link"));
    unlink(link);
}

static void test_times_in_the_systems_form(void **state) {
    (void)state;
    struct timespec time = clock_timespec(0.25);
    assert_int_equal(time.tv_sec, 0);
    assert_int_equal(time.tv_nsec, 250000000);
    time = clock_timespec(86400.75);
    assert_int_equal(time.tv_sec, 86400);
    assert_int_equal(time.tv_nsec, 750000000);
    time = clock_timespec(clock_seconds());
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    assert_in_range(time.tv_nsec, 0, 999999999);
    assert_in_range(time.tv_sec, now.tv_sec - 600, now.tv_sec); // the same clock
}

static void *read_mask(void *mask) {
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return NULL;
}

static void test_threads_take_no_signals(void **state) {
    (void)state;
    pthread_t thread;
    sigset_t before, inside, after;
    read_mask(&before);
    assert_int_equal(thread_start(&thread, NULL, read_mask, &inside), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    read_mask(&after);
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE};
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        assert_int_equal(sigismember(&inside, signals[i]), 1);
        assert_int_equal(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
    }
    assert_int_equal(sigismember(&after, SIGINT), 0);
}

static void test_pages_begin_at_a_huge_page(void **state) {
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t sizes[] = {page, 2 << 20, (4 << 20) + (64 << 10)}, fronts[] = {0, page, 2 << 20};
    char *memory[3];
    for (size_t i = 0; i < 3; i++) {
        memory[i] = pages_map(fronts[i], sizes[i]);
        assert_non_null(memory[i]);
        memset(memory[i] - fronts[i], 1, fronts[i]);
        assert_int_equal((uintptr_t)memory[i] % (2 << 20), 0);
        pages_populate(memory[i], sizes[i]);
        assert_int_equal(memory[i][0], 0);
        assert_int_equal(memory[i][sizes[i] - 1], 0);
        memset(memory[i], 1, sizes[i]);
    }
    for (size_t i = 0; i < 3; i++) pages_unmap(memory[i] - fronts[i], fronts[i] + sizes[i]);
    assert_null(pages_map(0, SIZE_MAX / 2));
    pages_unmap(NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_writes_the_sentence),
        cmocka_unit_test(test_err_cuts_long_messages),
        cmocka_unit_test(test_status_names_are_distinct),
        cmocka_unit_test(test_interrupt_asks_its_caller),
        cmocka_unit_test(test_buf_grows_and_stays_terminated),
        cmocka_unit_test(test_buf_formats),
        cmocka_unit_test(test_buf_reserve_promises_capacity),
        cmocka_unit_test(test_arena_pieces_do_not_overlap),
        cmocka_unit_test(test_strmap_finds_what_was_put),
        cmocka_unit_test(test_strmap_keys_are_bytes),
        cmocka_unit_test(test_u64map_follows_a_model),
        cmocka_unit_test(test_u64map_empty_and_full),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_folders_that_are_made),
        cmocka_unit_test(test_presence_of_files),
        cmocka_unit_test(test_times_in_the_systems_form),
        cmocka_unit_test(test_threads_take_no_signals),
        cmocka_unit_test(test_pages_begin_at_a_huge_page),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
