// The command line's reading and writing: lines in bounded memory, results to files and full disks,
// JSON text, and the progress line.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/json/json_text.h"
#include "base/os/output_file.h"
#include "base/os/write_whole.h"
#include "cmd/terminal/line_reader.h"
#include "cmd/terminal/progress.h"
#include "support/cmocka_all.h"

// A pipe with `text` in it, closed for writing. Texts must fit the 64 KiB of a pipe.
static int pipe_with(const char *text, size_t len) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], text, len), (ssize_t)len);
    close(fds[1]);
    return fds[0];
}

static int temp_file(char *path, size_t size) {
    int len = snprintf(path, size, "%s/test_cmd_io.", P_tmpdir);
    memset(path + len, 'X', 6); // mkstemp's placeholder
    path[len + 6] = '\0';
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    return fd;
}

static enum line_state next(struct line_reader *reader) {
    enum line_state state = LINE_WAIT;
    struct err err = {0};
    while (state == LINE_WAIT) {
        if (line_reader_next(reader, true, &state, &err)) fail_msg("%s", err.message);
    }
    return state;
}

static void expect_line(struct line_reader *reader, const char *text, uint64_t number) {
    assert_int_equal(next(reader), LINE_READY);
    assert_int_equal(reader->len, strlen(text));
    assert_memory_equal(reader->text, text, reader->len);
    assert_int_equal(reader->line_number, number);
}

static void test_lines(void **state) {
    (void)state;
    const char text[] = "one\n\n three \r\nlast";
    struct line_reader reader;
    line_reader_init(&reader, pipe_with(text, strlen(text)), "a pipe", 100);
    expect_line(&reader, "one", 1);
    expect_line(&reader, "", 2);
    expect_line(&reader, " three \r", 3);
    expect_line(&reader, "last", 4);
    assert_int_equal(next(&reader), LINE_END);
    assert_int_equal(next(&reader), LINE_END);
    close(reader.fd);
    line_reader_fini(&reader);
}

static void test_last_newline_makes_no_line(void **state) {
    (void)state;
    struct line_reader reader;
    line_reader_init(&reader, pipe_with("a\n", 2), "a pipe", 100);
    expect_line(&reader, "a", 1);
    assert_int_equal(next(&reader), LINE_END);
    close(reader.fd);
    line_reader_fini(&reader);
    line_reader_init(&reader, pipe_with("", 0), "a pipe", 100);
    assert_int_equal(next(&reader), LINE_END);
    close(reader.fd);
    line_reader_fini(&reader);
}

static void test_line_at_and_over_the_limit(void **state) {
    (void)state;
    const char text[] = "12345678\n123456789\nok\n123456789";
    struct line_reader reader;
    line_reader_init(&reader, pipe_with(text, strlen(text)), "a pipe", 8);
    expect_line(&reader, "12345678", 1);
    assert_int_equal(next(&reader), LINE_TOO_LONG);
    assert_int_equal(reader.line_number, 2);
    expect_line(&reader, "ok", 3);
    assert_int_equal(next(&reader), LINE_TOO_LONG);
    assert_int_equal(next(&reader), LINE_END);
    close(reader.fd);
    line_reader_fini(&reader);
}

static void test_endless_line_takes_no_memory(void **state) {
    (void)state;
    char path[64];
    int fd = temp_file(path, sizeof path);
    unlink(path);
    char block[4096];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 1024; i++) assert_int_equal(write(fd, block, sizeof block), sizeof block);
    assert_int_equal(write(fd, "\nend", 4), 4);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    struct line_reader reader;
    line_reader_init(&reader, fd, "a file", 1000);
    assert_int_equal(next(&reader), LINE_TOO_LONG);
    expect_line(&reader, "end", 2);
    assert_true(reader.buf.capacity <= 512 * 1024); // of a line of 4 MiB
    close(fd);
    line_reader_fini(&reader);
}

// Between its parts a caller can see that it was asked to stop.
static void test_endless_line_is_left_between_reads(void **state) {
    (void)state;
    struct line_reader reader;
    int fd = open("/dev/zero", O_RDONLY);
    assert_true(fd >= 0);
    line_reader_init(&reader, fd, "zeros", 1000);
    for (int i = 0; i < 3; i++) {
        enum line_state line = LINE_READY;
        assert_int_equal(line_reader_next(&reader, true, &line, NULL), OK);
        assert_int_equal(line, LINE_WAIT);
    }
    close(fd);
    line_reader_fini(&reader);
}

static void test_waiting_input_is_not_waited_for(void **state) {
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct line_reader reader;
    line_reader_init(&reader, fds[0], "a pipe", 100);
    enum line_state line = LINE_READY;
    assert_int_equal(line_reader_next(&reader, false, &line, NULL), OK);
    assert_int_equal(line, LINE_WAIT);
    assert_int_equal(write(fds[1], "ab", 2), 2);
    assert_int_equal(line_reader_next(&reader, false, &line, NULL), OK);
    assert_int_equal(line, LINE_WAIT);
    assert_int_equal(write(fds[1], "c\n", 2), 2);
    expect_line(&reader, "abc", 1);
    close(fds[1]);
    assert_int_equal(line_reader_next(&reader, false, &line, NULL), OK);
    assert_int_equal(line, LINE_END);
    close(fds[0]);
    line_reader_fini(&reader);
}

static void expect_json(const char *text, size_t len, const char *want) {
    struct buf out = {0};
    assert_int_equal(json_text_string(&out, text, len, NULL), OK);
    assert_string_equal(out.data, want);
    buf_fini(&out);
}

static void test_json_strings(void **state) {
    (void)state;
    expect_json("", 0, "\"\"");
    expect_json("a\"b\\c\n\r\t", 8, "\"a\\\"b\\\\c\\n\\r\\t\"");
    expect_json("\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"");
    expect_json("gr\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80", 11,
                "\"gr\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

static void test_json_strings_replace_what_is_not_utf8(void **state) {
    (void)state;
    const char *const bad[] = {"\xff", "\x80", "\xc0", "\xf5"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) expect_json(bad[i], 1, "\"\xef\xbf\xbd\"");
    expect_json("a\xe2\x82", 3, "\"a\xef\xbf\xbd\xef\xbf\xbd\""); // cut off
    expect_json("\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); // a surrogate
    expect_json("\xe0\x80\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); // over-long
}

static void test_json_numbers(void **state) {
    (void)state;
    struct buf out = {0};
    const int32_t ids[] = {0, 7, INT32_MAX};
    assert_int_equal(json_text_ids(&out, ids, 3, NULL), OK);
    assert_string_equal(out.data, "[0,7,2147483647]");
    buf_clear(&out);
    assert_int_equal(json_text_ids(&out, NULL, 0, NULL), OK);
    assert_string_equal(out.data, "[]");
    const float values[] = {0.1f, -1.5f, 1e-30f, 16777217.0f, -0.3333333432674408f};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        buf_clear(&out);
        assert_int_equal(json_text_float(&out, values[i], NULL), OK);
        assert_true(strtof(out.data, NULL) == values[i]);
    }
    buf_clear(&out);
    assert_int_equal(json_text_float(&out, 0.1f, NULL), OK);
    assert_int_equal(json_text_float(&out, -INFINITY, NULL), OK);
    assert_int_equal(json_text_double(&out, (double)NAN, NULL), OK);
    assert_string_equal(out.data, "0.1nullnull");
    buf_fini(&out);
}

static void expect_progress(const char *want, uint64_t num_done, uint64_t total, double elapsed) {
    char line[200];
    progress_format(line, sizeof line, "Generating", num_done, total, elapsed, 5012.4, 1434.1);
    assert_string_equal(line, want);
}

static void test_progress_line(void **state) {
    (void)state;
    expect_progress("Generating:  42%|####      | 108/256 [00:12<00:16, Prefill=5012tok/s, "
                    "Decode=1434tok/s]",
                    108, 256, 12.2);
    expect_progress(
        "Generating:   0%|          | 0/2 [00:00<?, Prefill=5012tok/s, Decode=1434tok/s]", 0, 2,
        0.5);
    expect_progress("Generating: 100%|##########| 2/2 [1:01:01<00:00, Prefill=5012tok/s, "
                    "Decode=1434tok/s]",
                    2, 2, 3661);
    expect_progress("Generating: 7 [00:03, Prefill=5012tok/s, Decode=1434tok/s]", 7, 0, 3.9);
}

static void test_share_line(void **state) {
    (void)state;
    char line[200];
    progress_format_share(line, sizeof line, "Loading Qwen3-0.6B", 300, 600, 4.2);
    assert_string_equal(line, "Loading Qwen3-0.6B:  50%|#####     | [00:04<00:04]");
    progress_format_share(line, sizeof line, "Loading x", 0, 600, 0);
    assert_string_equal(line, "Loading x:   0%|          | [00:00<?]");
    progress_format_bytes(line, sizeof line, "Downloading x", 630000000, 1500000000, 30000000, 12);
    assert_string_equal(line,
                        "Downloading x:  42%|####      | 0.63/1.50 GB [00:12<00:17, 50.0 MB/s]");
    progress_format_bytes(line, sizeof line, "Downloading x", 0, 1500000, 0, 0);
    assert_string_equal(line, "Downloading x:   0%|          | 0.0/1.5 MB [00:00<?, 0.0 MB/s]");
    progress_format_share(line, sizeof line, "Loading x", 600, 600, 61);
    assert_string_equal(line, "Loading x: 100%|##########| [01:01<00:00]");
}

static void test_full_disk_is_reported_once(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("skipped: no /dev/full here\n");
        skip();
    }
    struct output_file file;
    struct err err = {0};
    assert_int_equal(output_file_open(&file, "/dev/full", &err), OK);
    assert_int_equal(output_file_write(&file, "x", 1, &err), ERR_IO);
    assert_string_equal(err.message, "cannot write /dev/full: No space left on device");
    assert_int_equal(output_file_write(&file, "x", 1, &err), ERR_IO);
    assert_int_equal(output_file_close(&file, &err), OK); // it was reported
}

static void write_text(int fd, const char *text) {
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static off_t file_size(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void test_old_results_live_until_the_first_new_one(void **state) {
    (void)state;
    char path[64];
    int fd = temp_file(path, sizeof path);
    write_text(fd, "old results");
    struct output_file file;
    struct err err = {0};
    assert_int_equal(output_file_open(&file, path, &err), OK);
    output_file_abandon(&file); // the model did not load
    assert_int_equal(file_size(path), 11);
    assert_int_equal(output_file_open(&file, path, &err), OK);
    assert_int_equal(output_file_write(&file, "new", 3, &err), OK);
    assert_int_equal(file_size(path), 3);
    assert_int_equal(output_file_write(&file, "er", 2, &err), OK);
    assert_int_equal(output_file_close(&file, &err), OK);
    assert_int_equal(file_size(path), 5);
    assert_int_equal(output_file_open(&file, path, &err), OK);
    assert_int_equal(output_file_close(&file, &err), OK); // a run without results
    assert_int_equal(file_size(path), 0);
    close(fd);
    unlink(path);
}

static void test_output_that_cannot_be_opened(void **state) {
    (void)state;
    struct output_file file;
    struct err err = {0};
    assert_int_equal(output_file_open(&file, "/nonexistent/file", &err), ERR_IO);
    assert_string_equal(err.message, "cannot open /nonexistent/file: No such file or directory");
}

// Reads a pipe more slowly than it is written.
static void *read_slowly(void *arg) {
    const int *fd = arg;
    static char block[4096];
    size_t total = 0;
    for (ssize_t n; (n = read(*fd, block, sizeof block)) > 0;) {
        total += (size_t)n;
        usleep(100);
    }
    return (void *)(uintptr_t)total;
}

static void test_slow_reader_of_a_nonblocking_pipe_is_waited_for(void **state) {
    (void)state;
    enum { LEN = 1 << 20 }; // of which a pipe holds 64 KiB
    int fds[2];
    pthread_t reader;
    void *total;
    char *bytes = calloc(1, LEN);
    assert_non_null(bytes);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_slowly, &fds[0]), 0);
    assert_true(write_whole(fds[1], bytes, LEN));
    close(fds[1]);
    assert_int_equal(pthread_join(reader, &total), 0);
    assert_int_equal((uintptr_t)total, LEN);
    close(fds[0]);
    free(bytes);
}

static void test_reader_that_goes_away_ends_the_wait(void **state) {
    (void)state;
    int fds[2];
    char block[4096] = {0};
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
    while (write(fds[1], block, sizeof block) > 0) continue; // full
    close(fds[0]);
    signal(SIGPIPE, SIG_IGN);
    assert_false(write_whole(fds[1], block, sizeof block));
    assert_int_equal(errno, EPIPE);
    signal(SIGPIPE, SIG_DFL);
    close(fds[1]);
}

// Limits files of this process to `bytes`. A write beyond fails with EFBIG after the part that
// fits, as a full disk fails with ENOSPC.
static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void expect_file(const char *path, const char *text) {
    char found[64] = "";
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && read(fd, found, sizeof found - 1) >= 0);
    close(fd);
    assert_string_equal(found, text);
}

static void test_half_a_line_is_cut_off_again(void **state) {
    (void)state;
    char path[64];
    int fd = temp_file(path, sizeof path);
    struct output_file file;
    struct err err = {0};
    assert_int_equal(output_file_open(&file, path, &err), OK);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(16);
    assert_int_equal(output_file_write(&file, "first line\n", 11, &err), OK);
    assert_int_equal(output_file_write(&file, "second line\n", 12, &err), ERR_IO);
    limit_files(RLIM_INFINITY);
    signal(SIGXFSZ, SIG_DFL);
    assert_non_null(strstr(err.message, "cannot write /"));
    assert_non_null(strstr(err.message, ": File too large"));
    expect_file(path, "first line\n");
    assert_int_equal(lseek(file.fd, 0, SEEK_CUR), 11); // the next write leaves no hole
    assert_int_equal(output_file_close(&file, &err), OK);
    close(fd);
    unlink(path);
}

// Several programs append to a log: text after our half line must not be cut.
static void test_lines_of_others_are_not_cut(void **state) {
    (void)state;
    char path[64];
    int fd = temp_file(path, sizeof path);
    write_text(fd, "0123456789abcdef");
    assert_int_equal(lseek(fd, 8, SEEK_SET), 8);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(12);
    assert_false(write_whole(fd, "XXXXXXXX", 8));
    assert_int_equal(errno, EFBIG);
    limit_files(RLIM_INFINITY);
    signal(SIGXFSZ, SIG_DFL);
    expect_file(path, "01234567XXXXcdef");
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_last_newline_makes_no_line),
        cmocka_unit_test(test_line_at_and_over_the_limit),
        cmocka_unit_test(test_endless_line_takes_no_memory),
        cmocka_unit_test(test_endless_line_is_left_between_reads),
        cmocka_unit_test(test_waiting_input_is_not_waited_for),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_strings_replace_what_is_not_utf8),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_progress_line),
        cmocka_unit_test(test_share_line),
        cmocka_unit_test(test_full_disk_is_reported_once),
        cmocka_unit_test(test_old_results_live_until_the_first_new_one),
        cmocka_unit_test(test_output_that_cannot_be_opened),
        cmocka_unit_test(test_slow_reader_of_a_nonblocking_pipe_is_waited_for),
        cmocka_unit_test(test_reader_that_goes_away_ends_the_wait),
        cmocka_unit_test(test_half_a_line_is_cut_off_again),
        cmocka_unit_test(test_lines_of_others_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
