// Error messages and logs are one printable line, cut between characters, whatever strings they
// name.
#include "base/text/sentence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "support/cmocka_all.h"

static void expect_copy(const char *text, const char *want) {
    char out[200];
    assert_int_equal(sentence_copy(out, sizeof out, text, strlen(text)), strlen(want));
    assert_string_equal(out, want);
    assert_int_equal(sentence_copy(out, sizeof out, want, strlen(want)), strlen(want));
    assert_string_equal(out, want); // a safe text passes unchanged
}

static void test_text_passes(void **state) {
    (void)state;
    expect_copy("", "");
    expect_copy("tensor \"a\" \\ ~", "tensor \"a\" \\ ~");
    expect_copy("\xc2\xa0 \xc3\xa9 \xe2\x82\xac \xe4\xb8\xad \xf0\x9f\x98\x80",
                "\xc2\xa0 \xc3\xa9 \xe2\x82\xac \xe4\xb8\xad \xf0\x9f\x98\x80");
    expect_copy("\xd7\xa9\xd9\x84", "\xd7\xa9\xd9\x84"); // Hebrew and Arabic letters
    expect_copy("\\u001 \\x1 \\q \\", "\\u001 \\x1 \\q \\");
}

static void test_controls_are_escaped(void **state) {
    (void)state;
    expect_copy("a\nb\rc\td", "a\\nb\\rc\\td");
    expect_copy("\033]0;pwned\007", "\\u001b]0;pwned\\u0007");
    expect_copy("\001\037\177", "\\u0001\\u001f\\u007f");
    expect_copy("\xc2\x80\xc2\x9b\xc2\x9f", "\\u0080\\u009b\\u009f"); // C1
    char out[20];
    assert_int_equal(sentence_copy(out, sizeof out, "a\0b", 3), 8);
    assert_string_equal(out, "a\\u0000b");
}

static void test_lines_and_directions_are_escaped(void **state) {
    (void)state;
    expect_copy("\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029");
    expect_copy("\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f", "\\u061c\\u200e\\u200f");
    expect_copy("\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9", "\\u202a\\u202e\\u2066\\u2069");
    expect_copy("\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa", // their neighbours
                "\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa");
}

static void test_what_is_no_utf8_is_escaped(void **state) {
    (void)state;
    expect_copy("a\xff", "a\\xff");
    expect_copy("\x9b\x31", "\\x9b1"); // a C1 control in Latin-1
    expect_copy("\xc0\x80", "\\xc0\\x80"); // over-long
    expect_copy("\xe0\x9f\xbf\xf0\x8f\xbf\xbf", "\\xe0\\x9f\\xbf\\xf0\\x8f\\xbf\\xbf");
    expect_copy("\xed\xa0\x80", "\\xed\\xa0\\x80"); // a surrogate
    expect_copy("\xf4\x90\x80\x80\xf5", "\\xf4\\x90\\x80\\x80\\xf5"); // beyond U+10FFFF
    expect_copy("\xe2\x82", "\\xe2\\x82"); // cut off
    expect_copy("\xe2\x82z", "\\xe2\\x82z");
}

// At every size: a prefix of the whole, of whole characters and escapes.
static void test_cuts_are_between_characters(void **state) {
    (void)state;
    const char *pieces[] = {"a",       "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                            "\\u001b", "\\n",      "\\xff"};
    const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\033\n\xff";
    for (size_t size = 1; size < 40; size++) {
        char want[40] = "", out[48];
        for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
            if (strlen(want) + strlen(pieces[i]) >= size) break;
            strcat(want, pieces[i]);
        }
        memset(out, 'g', sizeof out);
        sentence_copy(out, size, text, strlen(text));
        assert_string_equal(out, want);
        assert_int_equal(out[size], 'g');
        sentence_copy(out, size, want, strlen(want)); // escapes are copied, not escaped again
        assert_string_equal(out, want);
    }
}

static void test_errors_are_safe_and_cut_whole(void **state) {
    (void)state;
    struct err err = {0};
    err_set(&err, ERR_FORMAT, "\"hidden_act\" is \"%s\"", "\033]0;x\007\nnanovllm: all is well");
    assert_string_equal(err.message,
                        "\"hidden_act\" is \"\\u001b]0;x\\u0007\\nnanovllm: all is well\"");
    err_prefix(&err, ERR_FORMAT, "%s", "a\rb");
    assert_memory_equal(err.message, "a\\rb: \"hidden_act\" is \"\\u001b]", 28);
    err_set(&err, ERR_FORMAT, "%s", err.message); // its own message as an argument
    assert_memory_equal(err.message, "a\\rb: \"hidden_act\" is \"\\u001b]", 28);
    char text[1000];
    for (size_t shift = 0; shift < 8; shift++) {
        memset(text, 'x', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xf0\x9f\x98\x80", 5);
        err_set(&err, ERR_FORMAT, "%s", text);
        assert_int_equal(strlen(err.message), 495 - (495 - shift) % 4);
        memset(text + shift, '\033', sizeof text - 1 - shift);
        text[sizeof text - 1] = '\0';
        err_set(&err, ERR_FORMAT, "%s", text);
        assert_int_equal(strlen(err.message), 495 - (495 - shift) % 6);
        struct err again = {0};
        err_set(&again, ERR_FORMAT, "again %s", err.message); // cuts a message with escapes in it
        assert_int_equal(strlen(again.message), 495 - (495 - shift - 6) % 6);
        err_prefix(&err, ERR_FORMAT, "prefix");
        assert_int_equal(strlen(err.message), 495 - (495 - shift - 8) % 6);
    }
}

static void test_log_lines_are_safe(void **state) {
    (void)state;
    char path[] = "/tmp/nanovllm-log-XXXXXX", text[100] = "";
    int fd = mkstemp(path), kept = dup(STDERR_FILENO);
    assert_true(fd >= 0 && kept >= 0);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    log_warning("a name is %s", "a\033[2J\nb");
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, "nanovllm: warning: a name is a\\u001b[2J\\nb\n");
    close(fd);
    close(kept);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_passes),
        cmocka_unit_test(test_controls_are_escaped),
        cmocka_unit_test(test_lines_and_directions_are_escaped),
        cmocka_unit_test(test_what_is_no_utf8_is_escaped),
        cmocka_unit_test(test_cuts_are_between_characters),
        cmocka_unit_test(test_errors_are_safe_and_cut_whole),
        cmocka_unit_test(test_log_lines_are_safe),
    };
    return cmocka_run_group_tests_name("sentence", tests, NULL, NULL);
}
