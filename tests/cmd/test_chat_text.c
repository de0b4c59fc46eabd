// A chat's handling of text: thinking is found however tokens split its tags, and messages are
// built from lines.
#include <string.h>

#include "cmd/chat/entry.h"
#include "cmd/chat/think.h"
#include "support/cmocka_all.h"

// The pieces as one text, with thinking between braces.
struct record {
    struct buf text;
    bool thinking;
};

static enum status take_piece(void *user_data, const char *text, size_t len, bool thinking,
                              struct err *err) {
    struct record *record = user_data;
    assert_true(len > 0);
    enum status status = OK;
    if (thinking != record->thinking) status = buf_append_str(&record->text, "|", err);
    record->thinking = thinking;
    return status ? status : buf_append(&record->text, text, len, err);
}

// Feeds `answer` in pieces of `size` bytes.
static void split(struct record *record, const char *prompt, const char *answer, size_t size) {
    struct chat_think think;
    struct err err = {0};
    *record = (struct record){0};
    assert_int_equal(buf_reserve(&record->text, 0, &err), OK);
    chat_think_begin(&think, prompt, strlen(prompt));
    for (size_t at = 0, len = strlen(answer); at < len; at += size) {
        size_t piece = len - at < size ? len - at : size;
        assert_int_equal(chat_think_feed(&think, answer + at, piece, take_piece, record, &err), OK);
    }
    assert_int_equal(chat_think_end(&think, take_piece, record, &err), OK);
}

static void expect_split(const char *prompt, const char *answer, const char *wanted) {
    for (size_t size = 1; size <= strlen(answer); size++) {
        struct record record;
        split(&record, prompt, answer, size);
        assert_string_equal(record.text.data, wanted);
        buf_fini(&record.text);
    }
}

static void test_thinking_is_told_apart(void **state) {
    (void)state;
    expect_split("", "<think>\na < b\n</think>\n\nYes.", "|<think>\na < b\n</think>|\n\nYes.");
    expect_split("", "\n <reasoning>x</reasoning>y", "\n |<reasoning>x</reasoning>|y");
    expect_split("", "[THINK]x[/THINK]y", "|[THINK]x[/THINK]|y");
    expect_split("", "<seed:think>x</seed:think>y", "|<seed:think>x</seed:think>|y");
}

static void test_prompt_that_ends_in_the_opening_tag(void **state) {
    (void)state;
    expect_split("<|im_start|>assistant\n<think>\n", "x</think>y", "|x</think>|y");
    expect_split("<think>\n\n</think>\n\n", "x</think>y", "x</think>y");
}

static void test_tags_count_at_the_start_alone(void **state) {
    (void)state;
    expect_split("", "The tag <think> is no thinking </think>.",
                 "The tag <think> is no thinking </think>.");
    expect_split("", "<think>a</think>b<think>c</think>", "|<think>a</think>|b<think>c</think>");
}

static void test_other_tags_do_not_end_it(void **state) {
    (void)state;
    expect_split("", "<think>a</reasoning></thinking></</think>b",
                 "|<think>a</reasoning></thinking></</think>|b");
}

static void test_unfinished_tags_are_not_lost(void **state) {
    (void)state;
    expect_split("", "<thi", "<thi");
    expect_split("", "<think>x</thi", "|<think>x</thi");
    expect_split("", "<thunk>x", "<thunk>x");
    expect_split("", " \n", " \n");
}

static void test_tags_without_text(void **state) {
    (void)state;
    struct chat_think think = {0};
    struct record record = {0};
    struct err err = {0};
    const struct chat_think_tag *tag = chat_think_tag(0);
    assert_int_equal(chat_think_mark(&think, tag, false, take_piece, &record, &err), OK);
    assert_int_equal(chat_think_mark(&think, tag, true, take_piece, &record, &err), OK);
    assert_int_equal(chat_think_feed(&think, "a<", 2, take_piece, &record, &err), OK);
    assert_int_equal(chat_think_mark(&think, tag, false, take_piece, &record, &err), OK);
    assert_int_equal(chat_think_feed(&think, "b", 1, take_piece, &record, &err), OK);
    assert_string_equal(record.text.data, "|a<|b");
    buf_fini(&record.text);
}

static void test_every_tag_fits(void **state) {
    (void)state;
    const struct chat_think_tag *tag;
    for (size_t i = 0; (tag = chat_think_tag(i)); i++) {
        assert_true(strlen(tag->open) <= CHAT_THINK_TAG_LEN_MAX);
        assert_true(strlen(tag->close) <= CHAT_THINK_TAG_LEN_MAX);
    }
}

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
        cmocka_unit_test(test_thinking_is_told_apart),
        cmocka_unit_test(test_prompt_that_ends_in_the_opening_tag),
        cmocka_unit_test(test_tags_count_at_the_start_alone),
        cmocka_unit_test(test_other_tags_do_not_end_it),
        cmocka_unit_test(test_unfinished_tags_are_not_lost),
        cmocka_unit_test(test_tags_without_text),
        cmocka_unit_test(test_every_tag_fits),
        cmocka_unit_test(test_messages_from_lines),
        cmocka_unit_test(test_slashes),
        cmocka_unit_test(test_text_that_is_not_utf8_is_replaced),
        cmocka_unit_test(test_entry_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
