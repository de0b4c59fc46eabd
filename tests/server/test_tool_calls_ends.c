// Calls that end badly: unfinished, broken, too long; and answers made of random pieces.
#include <stdlib.h>
#include <string.h>

#include "server/tool_trace.h"
#include "support/cmocka_all.h"

static void test_answers_that_end_before_the_call_is_decided(void **state) {
    (void)state;
    static const struct {
        const char *format, *answer;
    } cases[] = {
        {"hermes", "a \n<tool_ca"},
        {"hermes", "a \n<tool_call>\n"},
        {"hermes", "a <tool_call>{\"name\": \"f\", \"argum"},
        {"hermes", "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f"},
        {"llama3_json", "{\"name\": \"f\", \"parameters\": "},
        {"mistral", "[TOOL_CALLS][{\"name\": \"f\""},
        {"mistral", "[TOOL_CALLS]f[ARGS]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf wanted = {0};
        assert_int_equal(buf_appendf(&wanted, NULL, "T(%s)", cases[i].answer), OK);
        tool_trace_expect(cases[i].format, cases[i].answer, wanted.data);
        buf_fini(&wanted);
    }
}

static void test_answers_that_end_in_the_arguments(void **state) {
    (void)state;
    tool_trace_expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</to",
                      "B(f) A({\"a\": \"</to) E(unfinished)");
    tool_trace_expect("llama3_json", "{\"name\": \"f\", \"parameters\": {",
                      "B(f) A({) E(unfinished)");
    tool_trace_expect("mistral", "[TOOL_CALLS]f[ARGS]{\"a\": [", "B(f) A({\"a\": [) E(unfinished)");
}

// The call is complete, only what should follow it is not there.
static void test_ends_of_a_call_that_are_missing(void **state) {
    (void)state;
    static const char *const ends[] = {
        "", "}", "}\n", "}\n</tool_cal", "\n</tool_call>", "}}}</tool_call>"};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct buf answer = {0};
        assert_int_equal(
            buf_appendf(&answer, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {}%s", ends[i]),
            OK);
        tool_trace_expect("hermes", answer.data, "B(f) A({}) E(complete)");
        buf_fini(&answer);
    }
    tool_trace_expect("hermes",
                      "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n"
                      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</to</tool_call>",
                      "B(f) A({}) E(complete) B(g) A({}) E(complete) T(</to</tool_call>)");
    tool_trace_expect("mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}",
                      "B(f) A({}) E(complete)");
    tool_trace_expect("mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, ",
                      "B(f) A({}) E(complete) T( )");
}

static void test_broken_arguments_go_on_to_the_mark(void **state) {
    (void)state;
    tool_trace_expect("hermes",
                      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 'x' <</tool_calls>}}"
                      "</tool_call> b <tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
                      "B(f) A({\"a\": 'x' <</tool_calls>}}) E(broken) T(b) B(g) A({}) E(complete)");
    tool_trace_expect("mistral", "[TOOL_CALLS]f[ARGS]{a[TOOL_CALLS]g[ARGS]{}",
                      "B(f) A({a) E(broken) B(g) A({}) E(complete)");
    tool_trace_expect("llama3_json",
                      "{\"name\": \"f\", \"parameters\": {a}} <|py <|python_tag|>{\"name\": \"g\"}",
                      "B(f) A({a}} <|py ) E(broken) B(g) A({}) E(complete)");
    tool_trace_expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {a </tool_ca",
                      "B(f) A({a </tool_ca) E(broken)");
}

// Models write newlines into strings: no JSON, but where the arguments end is clear.
static void test_control_characters_in_strings(void **state) {
    (void)state;
    tool_trace_expect("hermes",
                      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b\nc\"}}</tool_call>d",
                      "B(f) A({\"a\": \"b\nc\"}) E(broken) T(d)");
}

static void test_nesting_too_deep_is_broken(void **state) {
    (void)state;
    struct tool_trace trace;
    tool_trace_begin(&trace, "mistral");
    tool_trace_push(&trace, "[TOOL_CALLS]f[ARGS]{\"a\":", 24);
    for (int i = 0; i < JREAD_DEPTH_MAX; i++) tool_trace_push(&trace, "[", 1);
    for (int i = 0; i < JREAD_DEPTH_MAX; i++) tool_trace_push(&trace, "]", 1);
    tool_trace_push(&trace, "}", 1);
    assert_non_null(strstr(tool_trace_finish(&trace), "]]}) E(broken)"));
    tool_trace_fini(&trace);
}

static void push_many(struct tool_trace *trace, char byte, size_t count) {
    char piece[1000];
    memset(piece, byte, sizeof piece);
    for (; count; count -= count < sizeof piece ? count : sizeof piece) {
        tool_trace_push(trace, piece, count < sizeof piece ? count : sizeof piece);
    }
}

// Arguments of `num_bytes` bytes.
static void expect_long_arguments(size_t num_bytes, size_t handed_out, const char *end) {
    struct tool_trace trace;
    tool_trace_begin(&trace, "hermes");
    static const char before[] = "<tool_call>{\"name\": \"f\", \"arguments\": ";
    tool_trace_push(&trace, before, sizeof before - 1);
    tool_trace_push(&trace, "{\"a\":\"", 6);
    push_many(&trace, 'x', num_bytes - 8);
    tool_trace_push(&trace, "\"}}</tool_call>more", 19);
    const char *line = tool_trace_finish(&trace);
    assert_memory_equal(line, "B(f) A({", 8);
    assert_int_equal(strcspn(line + 7, ")"), handed_out);
    assert_string_equal(line + 7 + handed_out, end);
    assert_true(trace.calls.held.capacity <= TOOL_CALL_HELD_MAX);
    assert_true(trace.calls.pending.capacity <= TOOL_CALL_HELD_MAX);
    tool_trace_fini(&trace);
}

static void test_long_arguments(void **state) {
    (void)state;
    const size_t most = TOOL_CALL_ARGUMENTS_MAX;
    expect_long_arguments(most, most, ") E(complete) T(more)");
    expect_long_arguments(most + 1, most, ") E(too long) T(more)");
    expect_long_arguments(3 * most, most, ") E(too long) T(more)");
}

// The limit is each call's own.
static void test_calls_after_long_ones(void **state) {
    (void)state;
    const size_t lengths[] = {TOOL_CALL_ARGUMENTS_MAX, 5, TOOL_CALL_ARGUMENTS_MAX + 1, 5};
    static const char *const ends[] = {"complete", "complete", "too long", "complete"};
    struct tool_trace trace;
    tool_trace_begin(&trace, "mistral");
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        tool_trace_push(&trace, "[TOOL_CALLS]f[ARGS]{", 20);
        push_many(&trace, ' ', lengths[i] - 2);
        tool_trace_push(&trace, "}", 1);
        assert_non_null(strstr(tool_trace_line(&trace), ends[i]));
        buf_clear(&trace.line);
    }
    tool_trace_fini(&trace);
}

static void test_long_broken_arguments(void **state) {
    (void)state;
    struct tool_trace trace;
    tool_trace_begin(&trace, "mistral");
    tool_trace_push(&trace, "[TOOL_CALLS]f[ARGS]{", 20);
    push_many(&trace, 'x', 2 * TOOL_CALL_ARGUMENTS_MAX);
    const char *line = tool_trace_finish(&trace);
    assert_int_equal(strcspn(line + 7, ")"), TOOL_CALL_ARGUMENTS_MAX);
    assert_non_null(strstr(line, ") E(too long)"));
    tool_trace_fini(&trace);
}

// A call that stays undecided is text in the end, and is not held for ever.
static void test_long_undecided_calls_are_text(void **state) {
    (void)state;
    static const char *const begins[] = {"<tool_call>", "<tool_call>{\"",
                                         "<tool_call>{\"arguments\":{\""};
    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        struct tool_trace trace;
        size_t len = strlen(begins[i]);
        tool_trace_begin(&trace, "hermes");
        tool_trace_push(&trace, begins[i], len);
        push_many(&trace, ' ', TOOL_CALL_HELD_MAX - len);
        assert_string_equal(tool_trace_line(&trace), "");
        tool_trace_push(&trace, " ", 1);
        assert_true(trace.line.len >= TOOL_CALL_HELD_MAX);
        push_many(&trace, ' ', TOOL_CALL_HELD_MAX);
        assert_true(trace.calls.held.capacity <= 2 * TOOL_CALL_HELD_MAX);
        assert_true(trace.calls.pending.capacity <= 2 * (TOOL_CALL_HELD_MAX + 1000 + 3));
        tool_trace_finish(&trace);
        assert_int_equal(trace.num_begun, 0);
        tool_trace_fini(&trace);
    }
}

static void test_names_have_a_length(void **state) {
    (void)state;
    static const struct {
        const char *format, *before, *after;
    } ways[] = {
        {"hermes", "<tool_call>{\"name\": \"", "\", \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"arguments\": {}, \"name\": \"", "\"}</tool_call>"},
        {"mistral", "[TOOL_CALLS]", "[ARGS]{}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        for (size_t len = TOOL_CALL_NAME_MAX; len <= TOOL_CALL_NAME_MAX + 1; len++) {
            struct tool_trace trace;
            tool_trace_begin(&trace, ways[i].format);
            tool_trace_push(&trace, ways[i].before, strlen(ways[i].before));
            push_many(&trace, 'x', len);
            tool_trace_push(&trace, ways[i].after, strlen(ways[i].after));
            tool_trace_finish(&trace);
            assert_int_equal(trace.num_begun, len == TOOL_CALL_NAME_MAX);
            if (trace.num_begun) assert_int_equal(strlen(trace.calls.name), len);
            tool_trace_fini(&trace);
        }
    }
}

static void test_long_white_space(void **state) {
    (void)state;
    struct tool_trace trace;
    tool_trace_begin(&trace, "hermes");
    push_many(&trace, '\n', 150);
    assert_int_equal(trace.line.len, 2 + 128); // handed out in parts of 64
    static const char call[] = "<tool_call>{\"name\": \"f\"}</tool_call>";
    tool_trace_push(&trace, call, sizeof call - 1);
    push_many(&trace, '\n', 150); // behind a call none is kept
    tool_trace_push(&trace, "x", 1);
    const char *line = tool_trace_finish(&trace);
    assert_string_equal(line + 2 + 128, ") B(f) A({}) E(complete) T(x)");
    tool_trace_fini(&trace);
}

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

// Answers of random parts: in one piece and in random pieces they make the same line.
static void test_random_answers(void **state) {
    (void)state;
    static const char *const parts[] = {
        "<tool_call>{\"name\": \"f\", \"arguments\": {",
        "[TOOL_CALLS]f[ARGS]{\"a\":",
        "<|python_tag|>{\"name\": \"f\", \"parameters\": {}",
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "<|python_tag|>",
        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
        "{\"name\": \"g\"",
        "\"parameters\": ",
        "{",
        "}",
        "[",
        "]",
        "\"",
        ",",
        ":",
        "\\",
        " ",
        "\n",
        ";",
        "name",
        "1",
        "true",
        "<",
        "x",
    };
    uint64_t random = 1;
    uint32_t num_calls = 0;
    for (int round = 0; round < 4000; round++) {
        const char *format = tool_format_name((size_t)round % 4);
        struct buf answer = {0};
        for (uint64_t left = 1 + next_random(&random) % 12; left; left--) {
            const char *part = parts[next_random(&random) % ARRAY_LEN(parts)];
            assert_int_equal(buf_append_str(&answer, part, NULL), OK);
        }
        struct tool_trace whole, cut;
        tool_trace_begin(&whole, format);
        tool_trace_begin(&cut, format);
        tool_trace_push(&whole, answer.data, answer.len);
        for (size_t at = 0; at < answer.len;) {
            size_t len = 1 + next_random(&random) % 5;
            if (len > answer.len - at) len = answer.len - at;
            tool_trace_push(&cut, answer.data + at, len);
            at += len;
        }
        assert_string_equal(tool_trace_finish(&cut), tool_trace_finish(&whole));
        assert_string_equal(cut.last_id, whole.last_id);
        if (!whole.num_begun) {
            assert_int_equal(whole.line.len, answer.len + 3);
            assert_memory_equal(whole.line.data + 2, answer.data, answer.len);
        }
        num_calls += whole.num_begun;
        tool_trace_fini(&whole);
        tool_trace_fini(&cut);
        buf_fini(&answer);
    }
    assert_true(num_calls > 500); // or these answers would show little
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_that_end_before_the_call_is_decided),
        cmocka_unit_test(test_answers_that_end_in_the_arguments),
        cmocka_unit_test(test_ends_of_a_call_that_are_missing),
        cmocka_unit_test(test_broken_arguments_go_on_to_the_mark),
        cmocka_unit_test(test_control_characters_in_strings),
        cmocka_unit_test(test_nesting_too_deep_is_broken),
        cmocka_unit_test(test_long_arguments),
        cmocka_unit_test(test_calls_after_long_ones),
        cmocka_unit_test(test_long_broken_arguments),
        cmocka_unit_test(test_long_undecided_calls_are_text),
        cmocka_unit_test(test_names_have_a_length),
        cmocka_unit_test(test_long_white_space),
        cmocka_unit_test(test_random_answers),
    };
    return cmocka_run_group_tests_name("tool_calls_ends", tests, NULL, NULL);
}
