// A chat's answer divided into reasoning, content and calls: the same whole and cut anywhere.
#include <stdio.h>
#include <string.h>

#include "server/chat/chat_split.h"
#include "support/cmocka_all.h"
#include "support/cuts.h"

enum { LINE_MAX_BYTES = 512 };

struct answer {
    struct chat_split_options options;
    const char *prompt, *begun; // NULL begun: the answer begins by itself
    const char *text, *wanted; // "R(...) C(...) f(...)": reasoning, content, a call by its name
};

static void take(struct chat_split *split, struct chat_blocks *blocks, const char *text,
                 size_t len) {
    assert_int_equal(chat_split_push(split, text, len, chat_blocks_add, blocks, NULL), OK);
}

static void write_line(const struct chat_blocks *blocks, char line[LINE_MAX_BYTES]) {
    size_t at = 0;
    line[0] = '\0';
    for (size_t i = 0; i < blocks->count; i++) {
        const struct chat_block *block = &blocks->items[i];
        const char *name = block->part == CHAT_REASONING ? "R"
                           : block->part == CHAT_CONTENT ? "C"
                                                         : block->name;
        at += (size_t)snprintf(line + at, LINE_MAX_BYTES - at, "%s%s(%s)", i ? " " : "", name,
                               block->text.data ? block->text.data : "");
    }
}

// The answer in three pieces, cut at these places.
static void run(const struct answer *answer, size_t first, size_t second) {
    size_t len = strlen(answer->text);
    struct chat_split *split =
        chat_split_create(&answer->options, answer->prompt, strlen(answer->prompt));
    assert_non_null(split);
    if (answer->begun) {
        assert_int_equal(chat_split_begin(split, answer->begun, strlen(answer->begun), NULL), OK);
    }
    struct chat_blocks blocks = {0};
    take(split, &blocks, answer->text, first);
    take(split, &blocks, answer->text + first, second - first);
    take(split, &blocks, answer->text + second, len - second);
    assert_int_equal(chat_split_finish(split, chat_blocks_add, &blocks, NULL), OK);
    char line[LINE_MAX_BYTES];
    write_line(&blocks, line);
    assert_string_equal(line, answer->wanted);
    bool has_call = false;
    for (size_t i = 0; i < blocks.count; i++) has_call |= blocks.items[i].part == CHAT_CALL;
    assert_int_equal(chat_split_has_call(split), has_call);
    chat_blocks_fini(&blocks);
    chat_split_destroy(split);
}

static void expect(struct answer answer, const char *format) {
    size_t len = strlen(answer.text);
    answer.options.format = format ? tool_format_find(format) : NULL;
    for (size_t first = 0; first <= len; first++) {
        for (size_t second = first; second <= len; second = cuts_next(first, second, len)) {
            run(&answer, first, second);
        }
    }
}

#define CALL(name, arguments)                                                                      \
    "<tool_call>{\"name\": \"" name "\", \"arguments\": " arguments "}</tool_call>"

static void test_parts(void **state) {
    (void)state;
    expect((struct answer){.options = {.splits_reasoning = true},
                           .prompt = "",
                           .text = "<think>a <tool_call> b</think>\nHi\n" CALL("f", "{\"a\": 1}"),
                           .wanted = "R(a <tool_call> b) C(Hi) f({\"a\": 1})"},
           "hermes");
    expect((struct answer){.prompt = "",
                           .text = "<think>a</think>b",
                           .wanted = "C(<think>a</think>b)"},
           "hermes");
    expect((struct answer){.prompt = "",
                           .text = "Hi " CALL("f", "{}"),
                           .wanted = "C(Hi " CALL("f", "{}") ")"},
           NULL);
    expect((struct answer){.prompt = "", .text = "", .wanted = ""}, "hermes");
}

static void test_options(void **state) {
    (void)state;
    expect((struct answer){.options = {.splits_reasoning = true, .drops_reasoning = true},
                           .prompt = "x<think>",
                           .text = "a</think>b",
                           .wanted = "C(b)"},
           NULL);
    expect((struct answer){.options = {.one_call = true},
                           .prompt = "",
                           .text = CALL("f", "{}") CALL("g", "{\"a\": 2}") "x" CALL("h", "{}"),
                           .wanted = "f({}) C(x)"},
           "hermes");
}

// What the prompt's end has of the answer is not handed out again.
static void test_begun(void **state) {
    (void)state;
    expect((struct answer){.options = {.splits_reasoning = true},
                           .prompt = "x",
                           .begun = "<think>I th",
                           .text = "ink</think>so",
                           .wanted = "R(ink) C(so)"},
           "hermes");
    expect((struct answer){.options = {.splits_reasoning = true},
                           .prompt = "x",
                           .begun = "The answer",
                           .text = " is <think>",
                           .wanted = "C( is <think>)"},
           "hermes");
}

#define START "<|start|>assistant"
#define ANALYSIS(text) "<|channel|>analysis<|message|>" text
#define FINAL(text) "<|channel|>final<|message|>" text
#define TO_FUNCTION(name, arguments)                                                               \
    "<|channel|>commentary to=functions." name " <|constrain|>json<|message|>" arguments

// The channels of gpt-oss. <|call|> and <|return|> end answers, so they are no text of it.
static void expect_channels(const char *text, const char *wanted) {
    expect((struct answer){.options = {.has_channels = true, .splits_reasoning = true},
                           .prompt = "<|start|>user<|message|>q<|end|>" START,
                           .text = text,
                           .wanted = wanted},
           "harmony");
}

static void test_channels(void **state) {
    (void)state;
    expect_channels(ANALYSIS("I <|think| it <") "<|end|>" START FINAL("Hi <b>"),
                    "R(I <|think| it <) C(Hi <b>)");
    expect_channels(FINAL("Hi"), "C(Hi)");
    expect_channels(ANALYSIS("cut"), "R(cut)");
    expect_channels(ANALYSIS("a") "<|end|>" START "<|chan", "R(a)");
    expect_channels(FINAL("a") "<|return|>", "C(a)");
    expect_channels("plain <|x|> text", "C(plain <|x|> text)");
    expect_channels("<p> never a header", "C(<p> never a header)");
    expect_channels("", "");
}

static void test_calls_in_channels(void **state) {
    (void)state;
    expect_channels(ANALYSIS("a") "<|end|>" START TO_FUNCTION("f", "{\"x\": {}}"),
                    "R(a) f({\"x\": {}})");
    // As templates write earlier calls, and two of them.
    expect_channels(
        " to=functions.f<|channel|>commentary json<|message|>{}<|call|>" START TO_FUNCTION(
            "g.h", "{\"a\": 1} "),
        "f({}) g.h({\"a\": 1})");
    expect_channels(TO_FUNCTION("f", "{\"a\": "), "f({\"a\": )");
    expect_channels(TO_FUNCTION("f", "no <json>") "<|end|>" START FINAL("b"), "f(no <json>) C(b)");
    expect_channels(
        "<|channel|>commentary<|message|>Let me look.<|end|>" START TO_FUNCTION("f", "{}"),
        "C(Let me look.) f({})");
    expect_channels("<|channel|>analysis to=python code<|message|>1 + 1", "R(1 + 1)");
    expect((struct answer){.options = {.has_channels = true, .splits_reasoning = true},
                           .prompt = START,
                           .text = TO_FUNCTION("f", "{}"),
                           .wanted = "R({})"},
           NULL);
}

static void test_options_of_channels(void **state) {
    (void)state;
    expect((struct answer){.options = {.has_channels = true,
                                       .splits_reasoning = true,
                                       .drops_reasoning = true,
                                       .one_call = true},
                           .prompt = START,
                           .text = ANALYSIS("a") "<|end|>" START TO_FUNCTION(
                               "f", "{}") "<|call|>" START TO_FUNCTION("g", "{}"),
                           .wanted = "f({})"},
           "harmony");
    expect((struct answer){.options = {.has_channels = true},
                           .prompt = START,
                           .text = ANALYSIS("a") "<|end|>" START FINAL("b"),
                           .wanted = "C(ab)"},
           "harmony");
    expect((struct answer){.options = {.has_channels = true, .splits_reasoning = true},
                           .prompt = START FINAL(""),
                           .begun = "The",
                           .text = " answer",
                           .wanted = "C( answer)"},
           "harmony");
}

// A call is whole by its last brace, and not where the answer ends in it.
static void test_ended_calls_in_channels(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool has_ended;
    } cases[] = {{TO_FUNCTION("f", "{\"a\": {}}"), true}, {TO_FUNCTION("f", "{\"a\": {}"), false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct chat_split_options options = {.has_channels = true,
                                                   .format = tool_format_find("harmony")};
        struct chat_split *split = chat_split_create(&options, START, strlen(START));
        struct chat_blocks blocks = {0};
        take(split, &blocks, cases[i].text, strlen(cases[i].text));
        assert_int_equal(chat_split_has_ended_call(split), cases[i].has_ended);
        assert_int_equal(chat_split_finish(split, chat_blocks_add, &blocks, NULL), OK);
        assert_int_equal(blocks.items[0].is_unfinished, !cases[i].has_ended);
        chat_blocks_fini(&blocks);
        chat_split_destroy(split);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_begun),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_calls_in_channels),
        cmocka_unit_test(test_options_of_channels),
        cmocka_unit_test(test_ended_calls_in_channels),
    };
    return cmocka_run_group_tests_name("chat_split", tests, NULL, NULL);
}
