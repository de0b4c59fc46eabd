// A chat's handling of text: messages are built from lines.
#include <string.h>

#include "cmd/chat/command.h"
#include "support/cmocka_all.h"

// Adds lines that are separated by '|' and end the entry with the last one.
static void enter(struct chat_entry *entry, const char *lines) {
    *entry = (struct chat_entry){0};
    struct err err = {0};
    for (bool more = true; more;) {
        size_t len = strcspn(lines, "|");
        assert_int_equal(chat_entry_add(entry, lines, len, &err), OK);
        more = lines[len] == '|';
        assert_int_equal(entry->open, more);
        lines += len + more;
    }
}

static void expect_message(const char *lines, const char *wanted) {
    struct chat_entry entry;
    enter(&entry, lines);
    size_t len;
    const char *message = chat_entry_message(&entry, &len);
    assert_false(chat_entry_is_command(&entry));
    assert_int_equal(len, strlen(wanted));
    assert_memory_equal(message, wanted, len);
    chat_entry_fini(&entry);
}

static void test_messages_from_lines(void **state) {
    (void)state;
    expect_message("Hello", "Hello");
    expect_message("", "");
    expect_message("one\\|two\\|three", "one\ntwo\nthree");
    expect_message("one\\|", "one\n");
    expect_message("\"\"\"one|two\"\"\"", "one\ntwo");
    expect_message("\"\"\"|one||two|\"\"\"", "one\n\ntwo");
    expect_message("\"\"\"one\"\"\"", "one");
    expect_message("\"\"\"\"\"\"", "");
    expect_message("\"\"\"|a\\|\"\"\"", "a\\");
    expect_message("say \"\"\"", "say \"\"\"");
}

static void test_slashes(void **state) {
    (void)state;
    expect_message("//help", "/help");
    expect_message("//", "/");
    expect_message("\"\"\"/help\"\"\"", "/help");
    expect_message("\"\"\"//help\"\"\"", "//help");
    expect_message(" /help", " /help");
    struct chat_entry entry;
    enter(&entry, "/system one\\|two");
    assert_true(chat_entry_is_command(&entry));
    assert_string_equal(entry.text.data, "/system one\ntwo");
    chat_entry_fini(&entry);
}

static void test_text_that_is_not_utf8_is_replaced(void **state) {
    (void)state;
    expect_message("a\xff"
                   "b\xc3",
                   "a\xef\xbf\xbd"
                   "b\xef\xbf\xbd");
}

static void test_entry_too_long_is_refused(void **state) {
    (void)state;
    struct chat_entry entry = {0};
    struct err err = {0};
    static char line[CHAT_ENTRY_BYTES_MAX / 2];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\\';
    assert_int_equal(chat_entry_add(&entry, line, sizeof line, &err), OK);
    assert_int_equal(chat_entry_add(&entry, line, sizeof line, &err), OK);
    assert_int_equal(chat_entry_add(&entry, line, sizeof line, &err), ERR_INVALID);
    assert_string_equal(err.message, "a message is longer than 16 MiB");
    chat_entry_fini(&entry);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_from_lines),
        cmocka_unit_test(test_slashes),
        cmocka_unit_test(test_text_that_is_not_utf8_is_replaced),
        cmocka_unit_test(test_entry_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
