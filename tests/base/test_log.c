// What is logged at which level, and the line of something that takes seconds.
#include "base/log.h"

#include <string.h>

#include "support/captured.h"
#include "support/cmocka_all.h"

static void test_levels(void **state) {
    (void)state;
    struct captured c;
    captured_begin(&c, false);
    log_warning("a");
    log_info("b");
    log_set_level(LOG_INFO);
    log_info("c");
    log_set_level(LOG_QUIET);
    log_warning("d");
    log_set_level(LOG_NOTICE);
    captured_end(&c);
    assert_string_equal(c.text, "nanovllm: warning: a\nnanovllm: info: c\n");
}

static void run_progress(uint32_t first, uint32_t total) {
    struct log_progress progress = {0};
    for (uint32_t done = first; done <= total; done++) {
        log_progress(&progress, done, total, "timing %s", "x\033");
    }
    log_progress_end(&progress);
}

static void test_progress_is_one_line_in_a_file(void **state) {
    (void)state;
    struct captured c;
    captured_begin(&c, false);
    run_progress(3, 40);
    captured_end(&c);
    assert_string_equal(c.text, "nanovllm: timing x\\u001b\n");
}

// The first and the last are always drawn.
static void test_progress_is_drawn_on_a_terminal(void **state) {
    (void)state;
    static const char first[] = "\rnanovllm: timing x\\u001b: 7 %\033[K\r";
    static const char last[] = "\rnanovllm: timing x\\u001b: 100 %\033[K\r\n";
    struct captured c;
    captured_begin(&c, true);
    run_progress(3, 40);
    captured_end(&c);
    size_t length = strlen(c.text);
    assert_memory_equal(c.text, first, sizeof first - 1);
    assert_true(length > sizeof last);
    assert_string_equal(c.text + length - (sizeof last - 1), last);
}

static void test_progress_that_nobody_began_or_wants(void **state) {
    (void)state;
    struct captured c;
    captured_begin(&c, true);
    struct log_progress progress = {0};
    log_progress_end(&progress);
    log_set_level(LOG_WARNING);
    run_progress(1, 2);
    log_set_level(LOG_NOTICE);
    captured_end(&c);
    assert_string_equal(c.text, "");
}

static void append_line(const char *sentence, void *user_data) {
    char *lines = user_data;
    strcat(lines, sentence);
    strcat(lines, "|");
}

static void test_a_writer_gets_the_lines(void **state) {
    (void)state;
    char lines[200] = "";
    const struct log_writer writer = {.write = append_line, .user_data = lines};
    struct captured c;
    captured_begin(&c, true);
    log_set_writer(&writer);
    log_warning("a");
    log_info("silent");
    run_progress(3, 40);
    log_set_writer(NULL);
    log_warning("b");
    captured_end(&c);
    assert_string_equal(lines, "warning: a|timing x\\u001b|");
    assert_string_equal(c.text, "nanovllm: warning: b\r\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_progress_is_one_line_in_a_file),
        cmocka_unit_test(test_progress_is_drawn_on_a_terminal),
        cmocka_unit_test(test_a_writer_gets_the_lines),
        cmocka_unit_test(test_progress_that_nobody_began_or_wants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
