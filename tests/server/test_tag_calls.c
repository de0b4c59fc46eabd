// Tool calls in tags: what each format's answers are divided into, whole and byte by byte.
#include <stdio.h>
#include <string.h>

#include "server/chat/tag_calls.h"
#include "support/cmocka_all.h"

static const char tools[] =
    "[{\"function\": {\"name\": \"add\", \"parameters\": {\"properties\": {\"a\": {\"type\": "
    "\"integer\"}, \"s\": {\"type\": \"string\"}, \"zip\": {\"anyOf\": [{\"type\": \"string\"}, "
    "{\"type\": \"null\"}]}, \"n\": {\"type\": [\"string\", \"number\"]}, \"e\": {\"enum\": "
    "[\"1\", 2]}, \"b\": {\"type\": [\"boolean\", \"null\"]}}}}}]";

static enum status write_event(void *user_data, const struct tool_event *event, struct err *err) {
    static const char *const ends[] = {[TOOL_END_COMPLETE] = ")",
                                       [TOOL_END_BROKEN] = ")broken",
                                       [TOOL_END_UNFINISHED] = "...",
                                       [TOOL_END_TOO_LONG] = ")long"};
    struct buf *out = user_data;
    switch (event->kind) {
    case TOOL_EVENT_BEGIN:
        return buf_appendf(out, err, "[%u %s(", event->index, event->name);
    case TOOL_EVENT_END:
        return buf_appendf(out, err, "%s]", ends[event->end]);
    default:
        return buf_append(out, event->text, event->len, err);
    }
}

// `step` bytes at a time.
static void divide(const char *format, const char *answer, size_t step, struct buf *out) {
    json_t *list = json_loads(tools, 0, NULL);
    struct tag_calls calls;
    tag_calls_init(&calls, &(struct tag_calls_options){.format = tool_format_find(format),
                                                       .tools = list,
                                                       .emit = write_event,
                                                       .user_data = out});
    for (size_t at = 0, len = strlen(answer); at < len; at += step) {
        size_t left = len - at;
        assert_int_equal(tag_calls_push(&calls, answer + at, left < step ? left : step, NULL), OK);
    }
    assert_int_equal(tag_calls_finish(&calls, NULL), OK);
    tag_calls_fini(&calls);
    json_decref(list);
}

static void check(const char *format, const char *answer, const char *want) {
    for (size_t step = 1; step < 1000; step *= 3) {
        struct buf out = {0};
        divide(format, answer, step, &out);
        assert_int_equal(buf_append(&out, "", 1, NULL), OK);
        assert_string_equal(out.data, want);
        buf_fini(&out);
    }
}

static void test_glm45(void **state) {
    (void)state;
    check("glm45",
          "I add.\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>37</arg_value>\n<arg_key>s"
          "</arg_key>\n<arg_value>x\n\"<b></arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
          "I add.[0 add({\"a\": 37, \"s\": \"x\\n\\\"<b>\"})][1 now({})]");
    // GLM-4.7 writes no newlines. A string that looks like a number stays one.
    check("glm45",
          "<tool_call>add<arg_key>s</arg_key><arg_value>37</arg_value><arg_key>o</arg_key>"
          "<arg_value>{\"k\": [1]}</arg_value></tool_call> Done.",
          "[0 add({\"s\": \"37\", \"o\": {\"k\": [1]}})]Done.");
}

static void test_minimax_m2(void **state) {
    (void)state;
    check("minimax_m2",
          "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"a\">1</parameter>\n"
          "<parameter name=\"s\"> \t</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n"
          "</minimax:tool_call>\nOk",
          "[0 add({\"a\": 1, \"s\": \" \\u0009\"})][1 now({})]Ok");
}

static void test_qwen3_xml(void **state) {
    (void)state;
    check("qwen3_xml",
          "<tool_call>\n<function=add>\n<parameter=a>\nfive\n</parameter>\n<parameter=s>\n\nx\n\n"
          "</parameter>\n</function>\n</tool_call>",
          "[0 add({\"a\": \"five\", \"s\": \"\\nx\\n\"})]");
}

#define GEMMA4(inside) "<|tool_call>call:add{" inside "}<tool_call|>"

static void test_gemma4(void **state) {
    (void)state;
    static const struct {
        const char *answer, *want;
    } cases[] = {
        {"I add. " GEMMA4("a:37,s:<|\"|>x\n\"<|<b>\\<|\"|>") GEMMA4(""),
         "I add.[0 add({\"a\": 37, \"s\": \"x\\n\\\"<|<b>\\\\\"})][1 add({})]"},
        {GEMMA4("o:{k:[1,<|\"|>b<|\"|>,{}],<|\"|>l<|\"|>:{m:null}},b:true") " Done.",
         "[0 add({\"o\": {\"k\": [1, \"b\", {}], \"l\": {\"m\": null}}, \"b\": true})]Done."},
        // As other models write: JSON, Python's words, a bare text, a comma too much.
        {GEMMA4(" \"s\": \"a\\n\\u00e9\\q\", b : None, t: two words ,"),
         "[0 add({\"s\": \"a\\n\\u00e9\\\\q\", \"b\": null, \"t\": \"two words\"})]"},
        {"<|tool_call>call:add{a:1", "[0 add({\"a\": ...]"},
        {"<|tool_call>call:add{a:1]", "[0 add({\"a\": 1})broken]]"},
        {"<|tool_call>call:add{:", "[0 add({})broken]:"},
        {"<|tool_call>add{}<tool_call|>", "<|tool_call>add{}<tool_call|>"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) check("gemma4", cases[i].answer, cases[i].want);
    char deep[200] = "<|tool_call>call:add{a:";
    memset(deep + strlen(deep), '[', NOTATION_DEPTH_MAX);
    struct buf out = {0};
    divide("gemma4", deep, 1, &out);
    assert_memory_equal(out.data + out.len - 10, "})broken][", 10);
    buf_fini(&out);
}

#define CALLS "<｜tool▁calls▁begin｜>"
#define CALLS_END "<｜tool▁calls▁end｜>"
#define CALL_BEGIN "<｜tool▁call▁begin｜>"
#define CALL_END "<｜tool▁call▁end｜>"
#define SEP "<｜tool▁sep｜>"
#define V31(name, arguments) CALL_BEGIN name SEP arguments CALL_END
#define V3(name, arguments) CALL_BEGIN "function" SEP name "\n```json\n" arguments "\n```" CALL_END
#define DEEPSEEK(calls) CALLS calls CALLS_END
#define KIMI(id, arguments)                                                                        \
    "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"
#define KIMI_SECTION(calls) "<|tool_calls_section_begin|>" calls "<|tool_calls_section_end|>"

static void test_deepseek(void **state) {
    (void)state;
    static const struct {
        const char *format, *answer, *want;
    } cases[] = {
        {"deepseek_v31",
         "I add.\n" DEEPSEEK(V31("add", "{\"a\": [37, {}],  \"s\": \"" CALL_END "}\"}")
                                 V31("now", "{}")) "\nDone.",
         "I add.[0 add({\"a\": [37, {}],  \"s\": \"" CALL_END "}\"})][1 now({})]Done."},
        {"deepseek_v3", DEEPSEEK(V3("add", "{\"s\": \"```\"}") "\n" V3("now", "{}")),
         "[0 add({\"s\": \"```\"})][1 now({})]"},
        // Calls without arguments, and without the marks behind them.
        {"deepseek_v31", DEEPSEEK(CALL_BEGIN "now" CALL_END V31("now", "")),
         "[0 now({})][1 now({})]"},
        {"deepseek_v31", CALLS CALL_BEGIN "now" SEP " {} So", "[0 now({})]So"},
        {"deepseek_v31", DEEPSEEK(CALL_BEGIN "now" SEP "{}" V31("now", "{}")),
         "[0 now({})][1 now({})]"},
        {"deepseek_v3", DEEPSEEK(V3("now", "")) "So", "[0 now({})]So"},
        // Arguments that are no JSON, or have no end.
        {"deepseek_v31", DEEPSEEK(V31("add", "{\"a\": <b>}") V31("now", "{}")),
         "[0 add({\"a\": <b>})broken][1 now({})]"},
        {"deepseek_v31", DEEPSEEK(V31("add", "{\"a\": \"\n\"}")), "[0 add({\"a\": \"\n\"})broken]"},
        {"deepseek_v31", DEEPSEEK(V31("add", "[1]")), "[0 add([1])broken]"},
        {"deepseek_v31", CALLS CALL_BEGIN "add" SEP "{\"a\": 3", "[0 add({\"a\": 3...]"},
        {"deepseek_v31", CALLS CALL_BEGIN "add" SEP "a <｜tool", "[0 add(a <｜tool)broken]"},
        {"deepseek_v3", DEEPSEEK(CALL_BEGIN "function" SEP "now\n{}"),
         "[0 now({})broken]\n{}" CALLS_END},
        {"deepseek_v31", DEEPSEEK("add"), DEEPSEEK("add")},
        {"deepseek_v3", DEEPSEEK(V31("add", "{}")), DEEPSEEK(V31("add", "{}"))},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check(cases[i].format, cases[i].answer, cases[i].want);
    }
}

static enum status write_id(void *user_data, const struct tool_event *event, struct err *err) {
    if (event->kind != TOOL_EVENT_BEGIN) return OK;
    return buf_appendf(user_data, err, "%s %s;", event->id, event->name);
}

// The template writes the ids of earlier calls as they are, so they are those of the model.
static void test_kimi_k2(void **state) {
    (void)state;
    static const char answer[] = "I add. " KIMI_SECTION(KIMI("functions.add:0", "{\"a\": 1}")
                                                            KIMI("functions.a.b-c:12", "{}"))
        KIMI_SECTION(KIMI("now:3", "{}") KIMI("functions.now", "{}") KIMI("now:", "{}"));
    check("kimi_k2", answer,
          "I add.[0 add({\"a\": 1})][1 a.b-c({})][2 now({})][3 now({})][4 now:({})]");
    check("kimi_k2", KIMI_SECTION(KIMI("a b:0", "{}")), KIMI_SECTION(KIMI("a b:0", "{}")));
    struct buf out = {0};
    struct tag_calls calls;
    tag_calls_init(&calls, &(struct tag_calls_options){.format = tool_format_find("kimi_k2"),
                                                       .emit = write_id,
                                                       .user_data = &out});
    assert_int_equal(tag_calls_push(&calls, answer, strlen(answer), NULL), OK);
    tag_calls_fini(&calls);
    assert_int_equal(buf_append(&out, "", 1, NULL), OK);
    assert_string_equal(out.data, "functions.add:0 add;functions.a.b-c:12 a.b-c;now:3 now;"
                                  "functions.now:3 now;functions.now::4 now:;");
    buf_fini(&out);
}

// What can be read as JSON is a string where the parameters allow only that.
static void test_values_by_their_schema(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *want;
    } cases[] = {
        {"zip", "01", "\"01\""},     {"zip", "10115", "\"10115\""}, {"zip", "true", "\"true\""},
        {"zip", "null", "null"},     {"zip", "\"a\"", "\"a\""},     {"n", "5", "5"},
        {"n", "[5]", "\"[5]\""},     {"e", "1", "\"1\""},           {"e", "2", "2"},
        {"a", "1.5", "1.5"},         {"o", "10115", "10115"},       {"b", "True", "true"},
        {"b", "None", "null"},       {"b", "Tru", "\"Tru\""},       {"a", "None", "\"None\""},
        {"zip", "None", "\"None\""}, {"o", "False", "\"False\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char answer[200], want[200];
        snprintf(answer, sizeof answer,
                 "<tool_call>add<arg_key>%s</arg_key><arg_value>%s</arg_value></tool_call>",
                 cases[i].key, cases[i].value);
        snprintf(want, sizeof want, "[0 add({\"%s\": %s})]", cases[i].key, cases[i].want);
        check("glm45", answer, want);
    }
}

static void test_no_calls(void **state) {
    (void)state;
    static const char *const texts[] = {"a < b <tool_cal> \n ", "<tool_call>\n<function", "",
                                        "<tool_call>{\"name\": \"add\"}</tool_call>",
                                        "<tool_call><function=a b>"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) check("qwen3_xml", texts[i], texts[i]);
    check("glm45", "<tool_call> {}", "<tool_call> {}");
}

static void test_broken_calls(void **state) {
    (void)state;
    check("qwen3_xml", "<tool_call><function=add> stop", "[0 add({})broken]stop");
    check("qwen3_xml", "<tool_call><function=add><parameter=s>\nab", "[0 add({\"s\": \"ab...]");
    check("qwen3_xml", "<tool_call><function=add></function>", "[0 add({})]");
    check("qwen3_xml", "<tool_call><function=add></function> and <b>", "[0 add({})]and <b>");
    check("glm45", "<tool_call>add\n<arg_key>a</arg_key>1", "[0 add({})broken]1");
    check("minimax_m2", "<minimax:tool_call><invoke name=\"add\"></invoke><invoke name=\"a b\">",
          "[0 add({})]<invoke name=\"a b\">");
}

// A value that is held too long is a string, and arguments end at their limit.
static void test_limits(void **state) {
    (void)state;
    static char answer[TOOL_CALL_ARGUMENTS_MAX + (1 << 16)];
    struct buf out = {0};
    size_t digits = TAG_VALUE_HELD_MAX + 1;
    size_t begin =
        (size_t)snprintf(answer, sizeof answer, "<tool_call><function=add><parameter=a>");
    memset(answer + begin, '1', digits);
    snprintf(answer + begin + digits, sizeof answer - begin - digits,
             "</parameter></function></tool_call>");
    divide("qwen3_xml", answer, 1000, &out);
    assert_int_equal(out.len, strlen("[0 add({\"a\": \"\"})]") + digits);
    buf_clear(&out);
    memset(answer + begin, '1', sizeof answer - begin - 1);
    divide("qwen3_xml", answer, 4096, &out);
    assert_memory_equal(out.data + out.len - 6, ")long]", 6);
    assert_true(out.len <= TOOL_CALL_ARGUMENTS_MAX + 20);
    buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glm45),     cmocka_unit_test(test_minimax_m2),
        cmocka_unit_test(test_qwen3_xml), cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_no_calls),  cmocka_unit_test(test_broken_calls),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_values_by_their_schema),
        cmocka_unit_test(test_deepseek),  cmocka_unit_test(test_kimi_k2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
