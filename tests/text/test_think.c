// Thinking told apart from the answer, however its tags are cut into tokens.
#include <string.h>

#include "base/text/buf.h"
#include "support/cmocka_all.h"
#include "text/chat/think.h"

// The pieces as text, thinking between braces.
struct record {
    struct buf text;
    bool thinking;
};

static enum status take_piece(void *user_data, const char *text, size_t len, enum think_part part,
                              struct err *err) {
    struct record *record = user_data;
    bool thinking = part != THINK_ANSWER;
    assert_true(len > 0);
    enum status status = OK;
    if (thinking != record->thinking) status = buf_append_str(&record->text, "|", err);
    record->thinking = thinking;
    return status ? status : buf_append(&record->text, text, len, err);
}

// Only the tags.
static enum status take_tags(void *user_data, const char *text, size_t len, enum think_part part,
                             struct err *err) {
    struct record *record = user_data;
    if (part != THINK_TAG) return OK;
    return buf_appendf(&record->text, err, "[%.*s]", (int)len, text);
}

// Feeds `answer` in pieces of `size` bytes.
static void split(struct record *record, const char *prompt, const char *answer, size_t size) {
    struct think think;
    struct err err = {0};
    *record = (struct record){0};
    assert_int_equal(buf_reserve(&record->text, 0, &err), OK);
    think_begin(&think, prompt, strlen(prompt));
    for (size_t at = 0, len = strlen(answer); at < len; at += size) {
        size_t piece = len - at < size ? len - at : size;
        assert_int_equal(think_feed(&think, answer + at, piece, take_piece, record, &err), OK);
    }
    assert_int_equal(think_end(&think, take_piece, record, &err), OK);
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
    expect_split("", "<|channel>thought\nx<channel|>y", "|<|channel>thought\nx<channel|>|y");
}

static void test_prompt_that_ends_in_the_opening_tag(void **state) {
    (void)state;
    expect_split("<|im_start|>assistant\n<think>\n", "x</think>y", "|x</think>|y");
    expect_split("<|turn>model\n<|channel>thought\n", "x<channel|>y", "|x<channel|>|y");
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

static void test_a_repeated_opening_tag_is_a_tag(void **state) {
    (void)state;
    struct think think;
    struct record record = {0};
    think_begin(&think, "<think>\n", 8);
    for (const char *c = "\n<think>\nx<think></think>y"; *c; c++) {
        assert_int_equal(think_feed(&think, c, 1, take_tags, &record, NULL), OK);
    }
    assert_string_equal(record.text.data, "[<think>][</think>]");
    buf_fini(&record.text);
    // Only where the prompt has opened the thinking.
    think_begin(&think, "", 0);
    assert_int_equal(think_feed(&think, "<think><think></think>", 22, take_tags, &record, NULL),
                     OK);
    assert_string_equal(record.text.data, "[<think>][</think>]");
    buf_fini(&record.text);
}

static void test_tags_without_text(void **state) {
    (void)state;
    struct think think = {0};
    struct record record = {0};
    struct err err = {0};
    const struct think_tag *tag = think_tag(0);
    assert_int_equal(think_mark(&think, tag, false, take_piece, &record, &err), OK);
    assert_int_equal(think_mark(&think, tag, true, take_piece, &record, &err), OK);
    assert_int_equal(think_feed(&think, "a<", 2, take_piece, &record, &err), OK);
    assert_int_equal(think_mark(&think, tag, false, take_piece, &record, &err), OK);
    assert_int_equal(think_feed(&think, "b", 1, take_piece, &record, &err), OK);
    assert_string_equal(record.text.data, "|a<|b");
    buf_fini(&record.text);
}

// Gemma 4's tag is a token without text, then a word and a line's end.
static void test_text_behind_an_opening_token_belongs_to_the_tag(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"thought\na", "|a|b"}, {"thoughts", "|thoughts|b"}, {"thou", "|thou|b"}, {"", "b"}};
    const struct think_tag *tag;
    size_t index = 0;
    while ((tag = think_tag(index)) && !tag->token) index++;
    assert_non_null(tag);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct think think = {0};
        struct record record = {0};
        assert_int_equal(think_mark(&think, tag, true, take_piece, &record, NULL), OK);
        for (const char *c = cases[i].text; *c; c++) {
            assert_int_equal(think_feed(&think, c, 1, take_piece, &record, NULL), OK);
        }
        assert_int_equal(think_mark(&think, tag, false, take_piece, &record, NULL), OK);
        assert_int_equal(think_feed(&think, "b", 1, take_piece, &record, NULL), OK);
        assert_string_equal(record.text.data, cases[i].want);
        buf_fini(&record.text);
    }
}

static void test_every_tag_fits(void **state) {
    (void)state;
    const struct think_tag *tag;
    for (size_t i = 0; (tag = think_tag(i)); i++) {
        assert_true(strlen(tag->open) <= THINK_TAG_LEN_MAX);
        assert_true(strlen(tag->close) <= THINK_TAG_LEN_MAX);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thinking_is_told_apart),
        cmocka_unit_test(test_prompt_that_ends_in_the_opening_tag),
        cmocka_unit_test(test_tags_count_at_the_start_alone),
        cmocka_unit_test(test_other_tags_do_not_end_it),
        cmocka_unit_test(test_unfinished_tags_are_not_lost),
        cmocka_unit_test(test_a_repeated_opening_tag_is_a_tag),
        cmocka_unit_test(test_tags_without_text),
        cmocka_unit_test(test_text_behind_an_opening_token_belongs_to_the_tag),
        cmocka_unit_test(test_every_tag_fits),
    };
    return cmocka_run_group_tests_name("think", tests, NULL, NULL);
}
