// Reasoning and content told apart, the same however the answer is cut into pieces.
#include <stdlib.h>
#include <string.h>

#include "server/chat/reasoning.h"
#include "support/cmocka_all.h"
#include "support/cuts.h"

static const char no_prompt[] = "<|im_start|>assistant\n";
static const char opening_prompt[] = "<|im_start|>assistant\n<think>\n";
static const char closed_prompt[] = "<|im_start|>assistant\n<think>\n\n</think>\n\n";

static void push(struct reasoning *reasoning, const char *text, size_t len,
                 const struct reasoning_delta *out) {
    struct err err = {0};
    char *copy = malloc(len + 1); // exactly sized: a sanitizer sees a read beyond it
    assert_non_null(copy);
    memcpy(copy, text, len);
    assert_int_equal(reasoning_push(reasoning, copy, len, out, &err), OK);
    free(copy);
}

// Feeds `answer` [len] cut at two places.
static void expect_cut(bool enabled, const char *prompt, const char *answer, const size_t cuts[2],
                       const char *reasoning_wanted, const char *content_wanted) {
    size_t len = strlen(answer);
    struct buf thought = {0}, content = {0};
    const struct reasoning_delta out = {&thought, &content};
    struct reasoning reasoning;
    reasoning_begin(&reasoning, enabled, prompt, strlen(prompt));
    push(&reasoning, answer, cuts[0], &out);
    push(&reasoning, answer + cuts[0], cuts[1] - cuts[0], &out);
    push(&reasoning, answer + cuts[1], len - cuts[1], &out);
    assert_int_equal(reasoning_finish(&reasoning, &out, NULL), OK);
    if (strcmp(thought.data ? thought.data : "", reasoning_wanted) != 0 ||
        strcmp(content.data ? content.data : "", content_wanted) != 0) {
        fail_msg("\"%s\" cut at %zu and %zu: reasoning \"%s\", content \"%s\"", answer, cuts[0],
                 cuts[1], thought.data ? thought.data : "", content.data ? content.data : "");
    }
    buf_fini(&thought);
    buf_fini(&content);
}

static void expect(const char *prompt, const char *answer, const char *reasoning_wanted,
                   const char *content_wanted) {
    size_t len = strlen(answer);
    for (size_t first = 0; first <= len; first++) {
        for (size_t second = first; second <= len; second = cuts_next(first, second, len)) {
            expect_cut(true, prompt, answer, (size_t[]){first, second}, reasoning_wanted,
                       content_wanted);
        }
    }
}

static void test_tags_in_the_answer(void **state) {
    (void)state;
    expect(no_prompt, "<think>\na < b, </th > and </thin\n</think>\n\nYes.\n",
           "a < b, </th > and </thin", "Yes.\n");
    expect(no_prompt, "\n <think>x</think>y", "x", "y");
    expect(no_prompt, "<|START_THINKING|>x<|END_THINKING|>y", "x", "y");
    expect(no_prompt, "[THINK]x[/THINK]y", "x", "y");
    expect(no_prompt, "<think>x y\n\nz</think> y  z", "x y\n\nz", "y  z");
}

static void test_tag_in_the_prompt(void **state) {
    (void)state;
    expect(opening_prompt, "\nx</think>\n\ny", "x", "y");
    expect(opening_prompt, "<think>\nx</think>y", "x", "y"); // repeated
    expect(opening_prompt, "<think><think>x</think>y", "<think>x", "y"); // once
    expect(opening_prompt, "x<think>y</think>z", "x<think>y", "z");
    expect(opening_prompt, "</think>y", "", "y");
}

static void test_answers_without_reasoning_keep_every_byte(void **state) {
    (void)state;
    expect(no_prompt, "\n\n  y \n", "", "\n\n  y \n");
    expect(no_prompt, " \n", "", " \n");
    expect(no_prompt, "\n<thin y", "", "\n<thin y");
    expect(no_prompt, "a <think>b</think>", "", "a <think>b</think>");
    expect(no_prompt, "a</think>b", "", "a</think>b");
    expect(closed_prompt, "  y</think> ", "", "  y</think> ");
}

static void test_later_tags_are_content(void **state) {
    (void)state;
    expect(no_prompt, "<think>a</think>b <think>c</think> d", "a", "b <think>c</think> d");
    expect(no_prompt, "<think>a</think> </think> b", "a", "</think> b");
}

static void test_answers_that_end_early(void **state) {
    (void)state;
    expect(no_prompt, "<thi", "", "<thi");
    expect(no_prompt, "\n<think>", "", "");
    expect(no_prompt, "<think>\nx \n", "x", "");
    expect(no_prompt, "<think>x\n</thi", "x\n</thi", "");
    expect(opening_prompt, "x", "x", "");
    expect(no_prompt, "<think>x</think>\n\n", "x", "");
}

static void test_disabled(void **state) {
    (void)state;
    const char *answer = "<think>\nx</think>\n\ny";
    for (size_t cut = 0; cut <= strlen(answer); cut++) {
        expect_cut(false, opening_prompt, answer, (size_t[]){cut, cut}, "", answer);
    }
}

// After each push all that can be certain was handed out.
static void test_nothing_is_held_longer_than_needed(void **state) {
    (void)state;
    static const struct {
        const char *piece, *reasoning, *content; // so far
    } steps[] = {
        {"<think>", "", ""},
        {"\n", "", ""},
        {"a", "a", ""},
        {" ", "a", ""},
        {"b<", "a b", ""},
        {"/", "a b", ""},
        {"x", "a b</x", ""},
        {"\n</think", "a b</x", ""},
        {">", "a b</x", ""},
        {"\n\n", "a b</x", ""},
        {"c ", "a b</x", "c "},
        {" <think", "a b</x", "c  <think"},
        {"\n", "a b</x", "c  <think\n"},
    };
    struct buf thought = {0}, content = {0};
    const struct reasoning_delta out = {&thought, &content};
    struct reasoning reasoning;
    reasoning_begin(&reasoning, true, "", 0);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        push(&reasoning, steps[i].piece, strlen(steps[i].piece), &out);
        assert_string_equal(thought.data, steps[i].reasoning);
        assert_string_equal(content.data, steps[i].content);
    }
    buf_fini(&thought);
    buf_fini(&content);
}

static void test_beginning_of_an_answer_that_the_prompt_contains(void **state) {
    (void)state;
    struct buf thought = {0}, content = {0};
    const struct reasoning_delta out = {&thought, &content};
    struct reasoning reasoning;
    reasoning_begin(&reasoning, true, "", 0);
    push(&reasoning, "<think>\nSo,", 11, &out);
    buf_clear(&thought);
    push(&reasoning, " yes</think>\n\nYes", 17, &out);
    assert_string_equal(thought.data, " yes");
    assert_string_equal(content.data, "Yes");
    buf_fini(&thought);
    buf_fini(&content);
}

// A run of blanks that is longer than what is held: handed out, but not twice.
static void test_long_white_space(void **state) {
    (void)state;
    enum { NUM_BLANKS = 3 * REASONING_BLANKS_MAX + 5 };
    char answer[NUM_BLANKS + 64], wanted[NUM_BLANKS + 3];
    memset(wanted, '\n', sizeof wanted);
    wanted[0] = 'a';
    wanted[NUM_BLANKS + 1] = 'b';
    wanted[NUM_BLANKS + 2] = '\0';
    size_t len = 0;
    memcpy(answer, "<think>", 7);
    memcpy(answer + 7, wanted, NUM_BLANKS + 2);
    len = 7 + NUM_BLANKS + 2;
    memcpy(answer + len, "</think>c", 10);
    for (size_t cut = 0; cut <= len; cut++) {
        expect_cut(true, "", answer, (size_t[]){cut, cut}, wanted, "c");
    }
    // At the end: the last 64 at most are left out.
    memmove(answer + 7 + NUM_BLANKS + 1, "</think>c", 10);
    wanted[1 + 3 * REASONING_BLANKS_MAX] = '\0';
    for (size_t cut = 0; cut <= len; cut++) {
        expect_cut(true, "", answer, (size_t[]){cut, cut}, wanted, "c");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags_in_the_answer),
        cmocka_unit_test(test_tag_in_the_prompt),
        cmocka_unit_test(test_answers_without_reasoning_keep_every_byte),
        cmocka_unit_test(test_later_tags_are_content),
        cmocka_unit_test(test_answers_that_end_early),
        cmocka_unit_test(test_disabled),
        cmocka_unit_test(test_nothing_is_held_longer_than_needed),
        cmocka_unit_test(test_beginning_of_an_answer_that_the_prompt_contains),
        cmocka_unit_test(test_long_white_space),
    };
    return cmocka_run_group_tests_name("reasoning", tests, NULL, NULL);
}
