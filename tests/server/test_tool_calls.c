// Tool calls of every format, the same however the answer is cut; what only looks like one is text.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/tool_trace.h"
#include "support/cmocka_all.h"

static void hermes(const char *answer, const char *wanted) {
    tool_trace_expect("hermes", answer, wanted);
}

static void llama3(const char *answer, const char *wanted) {
    tool_trace_expect("llama3_json", answer, wanted);
}

static void mistral(const char *answer, const char *wanted) {
    tool_trace_expect("mistral", answer, wanted);
    tool_trace_expect("mistral_args", answer, wanted);
}

static void test_hermes_calls(void **state) {
    (void)state;
    hermes(
        "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"zone\": \"CET\"}}\n</tool_call>",
        "B(get_time) A({\"zone\": \"CET\"}) E(complete)");
    hermes("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "B(f) A({}) E(complete)");
    hermes("Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
           "<tool_call>\n{\"name\": \"g\", \"parameters\": {\"a\": [1]}}\n</tool_call>\nDone.\n",
           "T(Let me see.) B(f) A({}) E(complete) B(g) A({\"a\": [1]}) E(complete) T(Done.\n)");
    hermes("a <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> b "
           "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call> c d",
           "T(a) B(f) A({}) E(complete) T(b) B(g) A({}) E(complete) T(c d)");
}

static void test_arguments_are_as_written(void **state) {
    (void)state;
    hermes(
        "<tool_call>\n{\"name\": \"f\", \"arguments\":  { \"a\" : {\"b\": [ {}, [[1.50e+3]] ]},\n"
        "\t\"c\": \"}</tool_call>{\\\"\\\\\", \"\\u00e9\": \"\xc3\xa9\" } }\n</tool_call>",
        "B(f) A({ \"a\" : {\"b\": [ {}, [[1.50e+3]] ]},\n"
        "\t\"c\": \"}</tool_call>{\\\"\\\\\", \"\\u00e9\": \"\xc3\xa9\" }) E(complete)");
}

static void test_other_members(void **state) {
    (void)state;
    hermes(
        "<tool_call>{\"type\": \"function\", \"id\": 7, \"x\": [{\"name\": 1}], \"name\": \"f\", "
        "\"arguments\": {\"name\": \"g\"}, \"y\": {\"arguments\": {}}, \"name\": "
        "\"h\"}</tool_call>",
        "B(f) A({\"name\": \"g\"}) E(complete)");
    llama3("{\"type\": \"function\", \"id\": null, \"name\": \"f\", \"parameters\": {}}",
           "B(f) A({}) E(complete)");
}

static void test_arguments_before_the_name(void **state) {
    (void)state;
    hermes("<tool_call>{\"arguments\": {\"a\": \"}\"} , \"name\": \"f\"}</tool_call>x",
           "B(f) A({\"a\": \"}\"}) E(complete) T(x)");
    hermes("<tool_call>{\"arguments\": {\"a\": 1}, \"id\": \"x\", \"y\": [], \"name\": \"f\"}",
           "B(f) A({\"a\": 1}) E(complete)");
    llama3("{\"parameters\": {}, \"name\": \"f\"}", "B(f) A({}) E(complete)");
    mistral("[TOOL_CALLS][{\"arguments\": {}, \"name\": \"f\", \"id\": \"x\"}, "
            "{\"arguments\": {\"a\": 1}, \"name\": \"g\"}]",
            "B(f) A({}) E(complete) B(g) A({\"a\": 1}) E(complete)");
}

static void test_no_arguments(void **state) {
    (void)state;
    hermes("<tool_call>{\"name\": \"f\"}</tool_call>x", "B(f) A({}) E(complete) T(x)");
    mistral("[TOOL_CALLS] [{\"name\": \"f\"},{\"name\": \"g\"}]",
            "B(f) A({}) E(complete) B(g) A({}) E(complete)");
    llama3("<|python_tag|>{\"name\": \"f\"}", "B(f) A({}) E(complete)");
    llama3("{\"name\": \"f\"}", "T({\"name\": \"f\"})"); // a record of a person?
}

static void test_llama_calls(void **state) {
    (void)state;
    llama3("{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}",
           "B(f) A({\"a\": \"b\"}) E(complete)");
    llama3("\n\n{\"name\": \"f\", \"arguments\": {}}\n", "B(f) A({}) E(complete)");
    llama3("<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": "
           "{}}",
           "B(f) A({}) E(complete) B(g) A({}) E(complete)");
    llama3("{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"g\", \"parameters\": {}} ;x; {",
           "B(f) A({}) E(complete) B(g) A({}) E(complete) T(x; {)");
    llama3("text <|python_tag|>{\"name\": \"f\", \"parameters\": {}}",
           "T(text) B(f) A({}) E(complete)");
}

static void test_mistral_calls(void **state) {
    (void)state;
    mistral("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}]",
            "B(f) A({\"a\": [1, 2]}) E(complete)");
    mistral("text [TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"} ,\n"
            "{\"name\": \"g\", \"arguments\": {}}]\nmore",
            "T(text) B(f) A({}) E(complete) B(g) A({}) E(complete) T(more)");
    mistral("[TOOL_CALLS]get-time.v2[ARGS]{\"a\": {\"b\": \"]\"}}[TOOL_CALLS]g[ARGS] {}",
            "B(get-time.v2) A({\"a\": {\"b\": \"]\"}}) E(complete) B(g) A({}) E(complete)");
    mistral("[TOOL_CALLS]f{\"a\":1} [TOOL_CALLS] g {}",
            "B(f) A({\"a\":1}) E(complete) B(g) A({}) E(complete)");
    mistral("[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}text", "B(f) A({}) E(complete) T(text)");
}

static void hunyuan(const char *answer, const char *wanted) {
    tool_trace_expect("hunyuan_a13b", answer, wanted);
}

// A list of calls, and one end mark behind it.
static void test_hunyuan_calls(void **state) {
    (void)state;
    hunyuan("<tool_calls>[{\"name\": \"f\", \"arguments\": {\"a\": [1]}}]</tool_calls>",
            "B(f) A({\"a\": [1]}) E(complete)");
    hunyuan("Hm\n<tool_calls>\n[{\"name\": \"f\", \"arguments\": {}},\n{\"name\": \"g\", "
            "\"arguments\": {}}]\n</tool_calls>",
            "T(Hm) B(f) A({}) E(complete) B(g) A({}) E(complete)");
    hunyuan("<tool_calls>[{\"name\": \"f\", \"arguments\": {}}] more",
            "B(f) A({}) E(complete) T(more)");
    hunyuan("<tool_calls>[]</tool_calls>", "T(<tool_calls>[]</tool_calls>)");
}

static void test_nemotron_calls(void **state) {
    (void)state;
    tool_trace_expect("nemotron_json",
                      "Hm\n\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": "
                      "\"g\", \"arguments\": {}}]</TOOLCALL>",
                      "T(Hm) B(f) A({\"a\": 1}) E(complete) B(g) A({}) E(complete)");
}

static void pythonic(const char *answer, const char *wanted) {
    tool_trace_expect("pythonic", answer, wanted);
}

// A value, and the JSON that it becomes.
static void python_value(const char *value, const char *json) {
    char answer[256], wanted[256];
    snprintf(answer, sizeof answer, "[f(a=%s)]", value);
    snprintf(wanted, sizeof wanted, "B(f) A({\"a\": %s}) E(complete)", json);
    pythonic(answer, wanted);
}

static void test_pythonic_calls(void **state) {
    (void)state;
    pythonic("[f(a=1, b=\"x\"), g()]",
             "B(f) A({\"a\": 1, \"b\": \"x\"}) E(complete) B(g) A({}) E(complete)");
    pythonic(" [ get_time( zone = 'CET' , ) , ] ",
             "B(get_time) A({\"zone\": \"CET\"}) E(complete)");
    pythonic("<|python_tag|>[a.b(c=[1])]", "B(a.b) A({\"c\": [1]}) E(complete)");
    pythonic("[_a1(Zone9=1, aA=2, é=3, _=4, z=5)]",
             "B(_a1) A({\"Zone9\": 1, \"aA\": 2, \"é\": 3, \"_\": 4, \"z\": 5}) E(complete)");
    // Objects in JSON are calls behind a mark alone.
    pythonic("<|python_tag|>[f()] [{\"name\": \"g\"}]",
             "B(f) A({}) E(complete) T([{\"name\": \"g\"}])");
    pythonic("text <|python_tag|>[f()]\n[g()] end",
             "T(text) B(f) A({}) E(complete) B(g) A({}) E(complete) T(end)");
    tool_trace_expect("llama4_pythonic", "<|python_start|>[f(a=True)]<|python_end|>",
                      "B(f) A({\"a\": true}) E(complete)");
    tool_trace_expect("llama4_pythonic", "[f(a=True)] so",
                      "B(f) A({\"a\": true}) E(complete) T(so)");
    tool_trace_expect("lfm2", "Hm. <|tool_call_start|>[f(a=1), g()]<|tool_call_end|>Done.",
                      "T(Hm.) B(f) A({\"a\": 1}) E(complete) B(g) A({}) E(complete) T(Done.)");
    tool_trace_expect("lfm2", "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {}}]",
                      "B(f) A({}) E(complete)");
    tool_trace_expect("lfm2", "[f(a=1)]", "T([f(a=1)])");
}

#define ONES_16 "1111111111111111"
#define ONES_64 ONES_16 ONES_16 ONES_16 ONES_16

static void test_pythonic_values(void **state) {
    (void)state;
    python_value("True", "true");
    python_value("None", "null");
    python_value("[true, false, null]", "[true, false, null]");
    python_value("[1, True, [], {}, {'k': None, \"l\": [2,]},]",
                 "[1, true, [], {}, {\"k\": null, \"l\": [2]}]");
    python_value("[[1 , 2 ], ['a', [3]]] ", "[[1, 2], [\"a\", [3]]]");
    python_value("{'k' : {'l': 1}, 'm': 2}", "{\"k\": {\"l\": 1}, \"m\": 2}");
    python_value("-1_000", "-1000");
    python_value("+.5", "0.5");
    python_value("5.", "5.0");
    python_value("01.50e+3", "1.50e+3");
    python_value("1e5", "1e5");
    python_value("9E-5", "9e-5");
    python_value("000", "0");
    python_value("0x1F", "31");
    python_value("0xff", "255");
    python_value("-0b1_01", "-5");
    python_value("0x00Fedcba9876543210", "18364758544493064720");
    python_value("0o0777777777777777777777", "9223372036854775807");
    python_value("0b" ONES_64, "18446744073709551615");
    python_value("'it\\'s \"so\"'", "\"it's \\\"so\\\"\"");
    python_value("\"it's\\n\\t\\\\ \\/\"", "\"it's\\n\\t\\\\ /\"");
    python_value("'\\x41\\101\\0\\a\\u00e9\\U0001F600\\d'",
                 "\"\\u0041\\u0041\\u0000\\u0007\\u00e9\\ud83d\\ude00\\\\d\"");
    python_value("'\\1011\\7\\377\\xAF\\U00010000\\U0010ffff'",
                 "\"\\u00411\\u0007\\u00ff\\u00af\\ud800\\udc00\\udbff\\udfff\"");
    python_value("'a\nb\\\nc'", "\"a\\nbc\"");
    python_value("''", "\"\"");
    python_value("'''a ''b' '''", "\"a ''b' \"");
    python_value("\"\"\"\"\"\"", "\"\"");
    python_value("[']', ')', ',']", "[\"]\", \")\", \",\"]");
}

// What is as deep, or as long, as it may be is a call; one more is none, or a broken one.
static void test_pythonic_limits(void **state) {
    (void)state;
    enum { DEPTH = NOTATION_DEPTH_MAX - 1, LEN = 512 };
    static const struct {
        const char *before, *behind, *end;
        size_t most;
        char filler;
    } cases[] = {{"[f(a=", ")]", "E(broken)", DEPTH, '['},
                 {"[f(", "=1)]", "T([f(", PYTHON_WORD_MAX, 'k'},
                 {"[f(a=", ")]", "E(broken)", PYTHON_WORD_MAX, '1'},
                 {"[", "()]", "T([", TOOL_CALL_NAME_MAX, 'f'}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t more = 0; more < 2; more++) {
            char filler[LEN];
            struct tool_trace trace;
            memset(filler, cases[i].filler, LEN);
            tool_trace_begin(&trace, "pythonic");
            tool_trace_push(&trace, cases[i].before, strlen(cases[i].before));
            tool_trace_push(&trace, filler, cases[i].most + more);
            memset(filler, ']', LEN);
            if (cases[i].filler == '[') tool_trace_push(&trace, filler, cases[i].most);
            tool_trace_push(&trace, cases[i].behind, strlen(cases[i].behind));
            const char *line = tool_trace_finish(&trace);
            const char *wanted = more ? cases[i].end : "E(complete)";
            if (!strstr(line, wanted)) fail_msg("case %zu, %zu more: %s", i, more, line);
            tool_trace_fini(&trace);
        }
    }
}

static void test_python_keys(void **state) {
    (void)state;
    static const char *const keys[] = {"a", "_a1", "Z9z", "é"};
    static const char *const others[] = {"", "1a", "a b"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) assert_true(python_notation_is_key(keys[i]));
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_false(python_notation_is_key(others[i]));
    }
    char longest[PYTHON_WORD_MAX + 2] = {0};
    memset(longest, 'k', PYTHON_WORD_MAX + 1);
    assert_false(python_notation_is_key(longest));
    assert_true(python_notation_is_key(longest + 1));
}

static void test_no_pythonic_calls(void **state) {
    (void)state;
    static const char *const texts[] = {"[a link](https://x)",
                                        "[1, 2]",
                                        "[f(1)]",
                                        "[f(a b=1)]",
                                        "[]",
                                        "[f",
                                        "[f(",
                                        "[f(a",
                                        "f(a=1)",
                                        "see [f(a=1)]",
                                        "[{\"name\": 1}]",
                                        "[f (a=1)]"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "T(%s)", texts[i]);
        pythonic(texts[i], wanted);
    }
}

static void test_broken_pythonic_calls(void **state) {
    (void)state;
    pythonic("[f(a=1+2, b=3)]", "B(f) A({\"a\": 1+2, b=3)]) E(broken)");
    pythonic("[f(a=x)<|python_tag|>[g()]", "B(f) A({\"a\": x)) E(broken) B(g) A({}) E(complete)");
    static const char *const broken[] = {"007",
                                         "1__0",
                                         "0x",
                                         "1e",
                                         ".",
                                         "'a' 'b'",
                                         "(1,)",
                                         "{1: 2}",
                                         "{'k'}",
                                         "[1}",
                                         "'\\xg'",
                                         "f()",
                                         "{'k': }",
                                         "{'k': 1]",
                                         "[1 2]",
                                         "0xg",
                                         "0b2",
                                         "0x-1",
                                         "0x10000000000000000",
                                         "0b1" ONES_64,
                                         "0o1777777777777777777777",
                                         "'\\U00110000'"};
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        struct tool_trace trace;
        tool_trace_begin(&trace, "pythonic");
        tool_trace_push(&trace, "[f(a=", 5);
        tool_trace_push(&trace, broken[i], strlen(broken[i]));
        tool_trace_push(&trace, ")]", 2);
        const char *line = tool_trace_finish(&trace);
        if (!strstr(line, "E(broken)")) fail_msg("%s", line);
        tool_trace_fini(&trace);
    }
    pythonic("[f(a='x', b=[1", "B(f) A({\"a\": \"x\", \"b\": [) E(unfinished)");
    tool_trace_expect("lfm2", "<|tool_call_start|>[f(a=)]<|tool_call_end|>.",
                      "B(f) A({\"a\": )]) E(broken) T(.)");
}

static void test_hostile_pythonic_calls(void **state) {
    (void)state;
    enum { LEN = 100 << 10 };
    static const struct {
        const char *start;
        char filler;
    } cases[] = {{"[", '['},       {"[f(", 'x'},   {"[f(a=", '['},      {"[f(a=1", '1'},
                 {"[f(a='", '\\'}, {"[f(a=", '"'}, {"[f(a=['", '\x01'}, {"[f(", ' '}};
    char *filler = malloc(LEN);
    assert_non_null(filler);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tool_trace trace;
        memset(filler, cases[i].filler, LEN);
        tool_trace_begin(&trace, "pythonic");
        tool_trace_push(&trace, cases[i].start, strlen(cases[i].start));
        tool_trace_push(&trace, filler, LEN);
        assert_non_null(tool_trace_finish(&trace));
        tool_trace_fini(&trace);
    }
    free(filler);
}

static void test_cohere_calls(void **state) {
    (void)state;
    static const char *const names[] = {"cohere_command3", "cohere_command4"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        tool_trace_expect(names[i],
                          "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
                          "\"parameters\": {\"a\": 1}},\n    {\"tool_name\": \"g\"}\n]"
                          "<|END_ACTION|>",
                          "B(f) A({\"a\": 1}) E(complete) B(g) A({}) E(complete)");
    }
    tool_trace_expect("cohere_command3",
                      " <|START_RESPONSE|>Hi <|START_TEXT|> there<|END_RESPONSE|>",
                      "T( Hi <|START_TEXT|> there)");
    tool_trace_expect("cohere_command4", "<|START_TEXT|>Hi<|END_TEXT|", "T(Hi<|END_TEXT|)");
}

// What one call leaves behind does not change how the next is read.
static void test_calls_of_different_kinds(void **state) {
    (void)state;
    mistral("[TOOL_CALLS][{\"name\": \"f\"}][TOOL_CALLS]g[ARGS]{}, x",
            "B(f) A({}) E(complete) B(g) A({}) E(complete) T(, x)");
    mistral("[TOOL_CALLS][1[TOOL_CALLS]g[ARGS]{}] x",
            "T([TOOL_CALLS][1) B(g) A({}) E(complete) T(] x)");
    mistral("[TOOL_CALLS]f[CALL_ID]a[ARGS]{}[TOOL_CALLS]g[CALL_ID]b[ARGS]{}} x",
            "B(f) A({}) E(complete) B(g) A({}) E(complete) T(} x)");
    llama3("<|python_tag|>{\"name\": \"f\"} {\"name\": \"g\"}",
           "B(f) A({}) E(complete) T({\"name\": \"g\"})");
    hermes("<tool_call>{\"name\": \"f\"}</tool_call>; x", "B(f) A({}) E(complete) T(; x)");
}

static void test_text_without_calls_keeps_every_byte(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "\n\n a \n",
        "a\n<b> < <tool_call <tool_cal\nl> </tool_call>",
        "[1, [TOOL_CALLS [",
        "<|python_tag| {\"name\": \"f\", \"parameters\": {}}",
        ";;",
        "}{",
        "<|",
        "\xc3\xa9 <\xc3\xa9",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct buf wanted = {0};
        assert_int_equal(buf_appendf(&wanted, NULL, *texts[i] ? "T(%s)" : "%s", texts[i]), OK);
        hermes(texts[i], wanted.data);
        llama3(texts[i], wanted.data);
        mistral(texts[i], wanted.data);
        buf_fini(&wanted);
    }
}

// Each is text from its first to its last byte.
static void test_look_alikes(void **state) {
    (void)state;
    static const struct {
        const char *format, *answer;
    } cases[] = {
        {"hermes", "Put it between <tool_call> and </tool_call>, please"},
        {"hermes", "<tool_call>\n</tool_call>\n"},
        {"hermes", "<tool_call>\n[{\"name\": \"f\", \"arguments\": {}}]</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"get\\_time\", \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"a\\u0062\", \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"a\nb\", \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": {\"a\": 1}, \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": {}, \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>"},
        {"hermes", "<tool_call>{\"arguments\": {\"a\": 1}, \"parameters\": {}, \"name\": \"f\"}"},
        {"hermes", "<tool_call>{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}"},
        {"hermes", "<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>"},
        {"hermes", "<tool_call>{'name': 'f', 'arguments': {}}</tool_call>"},
        {"hermes",
         "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"},
        {"llama3_json", "{\"name\": \"Ann\", \"age\": 7}"},
        {"llama3_json", "{\"age\": 7, \"name\": \"f\", \"parameters\": {}}"},
        {"llama3_json", "{\"person\": {\"name\": \"f\", \"parameters\": {}}}"},
        {"llama3_json", "[{\"name\": \"f\", \"parameters\": {}}]"},
        {"llama3_json", "Like so: {\"name\": \"f\", \"parameters\": {}}"},
        {"llama3_json", "{} {\"name\": \"f\", \"parameters\": {}}"},
        {"llama3_json", "<|python_tag|>search.call(query=\"a\")"},
        {"mistral", "Mistral writes [TOOL_CALLS] before a call"},
        {"mistral", "[TOOL_CALLS][1, 2]"},
        {"mistral", "[TOOL_CALLS][]"},
        {"mistral", "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}"},
        {"mistral", "[TOOL_CALLS]f[ARG]{}"},
        {"mistral", "[TOOL_CALLS]f[CALL_ID]a[CALL_ID]b[ARGS]{}"},
        {"mistral", "[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}"},
        {"mistral", "[TOOL_CALLS]f[ARGS]1"},
        {"mistral", "[TOOL_CALLS]f,{}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf wanted = {0};
        assert_int_equal(buf_appendf(&wanted, NULL, "T(%s)", cases[i].answer), OK);
        tool_trace_expect(cases[i].format, cases[i].answer, wanted.data);
        buf_fini(&wanted);
    }
}

static void test_calls_behind_look_alikes(void **state) {
    (void)state;
    hermes(
        "<tool_call> a\n<tool_call><tool_call>\n{\"name\": \"f\", \"arguments\": {}}</tool_call>",
        "T(<tool_call> a\n<tool_call>) B(f) A({}) E(complete)");
    hermes("<tool_call>{\"x\": <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
           "T(<tool_call>{\"x\": ) B(f) A({}) E(complete)");
    mistral("[TOOL_CALLS]f[TOOL_CALLS]g[ARGS]{}", "T([TOOL_CALLS]f[TOOL_CALLS]g[ARGS]{})");
    mistral("[TOOL_CALLS] [[TOOL_CALLS]g[ARGS]{}", "T([TOOL_CALLS] [) B(g) A({}) E(complete)");
    llama3("<|python_tag|>a <|python_tag|>{\"name\": \"f\", \"parameters\": {}}",
           "T(<|python_tag|>a) B(f) A({}) E(complete)");
    mistral("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, 1]",
            "B(f) A({}) E(complete) T( 1])");
}

// After each push all that is certain was handed out.
static void test_nothing_is_held_longer_than_needed(void **state) {
    (void)state;
    static const struct {
        const char *piece, *line;
    } steps[] = {
        {"Hm", "T(Hm) "},           {" <", ""},
        {"b>", "T( <b>) "},         {" <tool_call>\n{\"name\": \"f\"", ""},
        {", \"arguments\": ", ""},  {"{", "B(f) A({) "},
        {"\"a\"", "A(\"a\") "},     {":1", "A(:1) "},
        {"}", "A(}) E(complete) "}, {"}\n</tool", ""},
        {"_call>\nx", "T(x) "},
    };
    struct tool_trace trace;
    tool_trace_begin(&trace, "hermes");
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        tool_trace_push(&trace, steps[i].piece, strlen(steps[i].piece));
        assert_string_equal(tool_trace_line(&trace), steps[i].line);
        buf_clear(&trace.line);
        trace.line.data[0] = '\0';
    }
    tool_trace_fini(&trace);
}

static void expect_ids(const char *format, const char *answer, const char *prefix, size_t len) {
    struct tool_trace a, b;
    tool_trace_begin(&a, format);
    tool_trace_begin(&b, format);
    tool_trace_push(&a, answer, strlen(answer));
    for (const char *c = answer; *c; c++) tool_trace_push(&b, c, 1);
    assert_string_equal(a.last_id, b.last_id);
    assert_int_equal(strlen(a.last_id), len);
    assert_memory_equal(a.last_id, prefix, strlen(prefix));
    for (const char *c = a.last_id + strlen(prefix); *c; c++) {
        assert_true(tool_format_is_name_byte(*c) && *c != '_' && *c != '-' && *c != '.');
    }
    // The next call's id is another, and so is that of another seed.
    tool_trace_push(&a, answer, strlen(answer));
    assert_int_equal(a.num_begun, 2);
    assert_string_not_equal(a.last_id, b.last_id);
    struct tool_trace c;
    tool_trace_begin(&c, format);
    c.calls.options.seed = 8;
    tool_trace_push(&c, answer, strlen(answer));
    assert_string_not_equal(c.last_id, b.last_id);
    tool_trace_fini(&a);
    tool_trace_fini(&b);
    tool_trace_fini(&c);
}

static void test_ids(void **state) {
    (void)state;
    expect_ids("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "call_",
               29);
    expect_ids("llama3_json", "{\"name\": \"f\", \"parameters\": {}}", "call_", 29);
    expect_ids("mistral", "[TOOL_CALLS]f[ARGS]{}", "", 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes_calls),
        cmocka_unit_test(test_arguments_are_as_written),
        cmocka_unit_test(test_other_members),
        cmocka_unit_test(test_arguments_before_the_name),
        cmocka_unit_test(test_no_arguments),
        cmocka_unit_test(test_llama_calls),
        cmocka_unit_test(test_mistral_calls),
        cmocka_unit_test(test_hunyuan_calls),
        cmocka_unit_test(test_nemotron_calls),
        cmocka_unit_test(test_pythonic_calls),
        cmocka_unit_test(test_pythonic_values),
        cmocka_unit_test(test_pythonic_limits),
        cmocka_unit_test(test_python_keys),
        cmocka_unit_test(test_no_pythonic_calls),
        cmocka_unit_test(test_broken_pythonic_calls),
        cmocka_unit_test(test_hostile_pythonic_calls),
        cmocka_unit_test(test_cohere_calls),
        cmocka_unit_test(test_calls_of_different_kinds),
        cmocka_unit_test(test_text_without_calls_keeps_every_byte),
        cmocka_unit_test(test_look_alikes),
        cmocka_unit_test(test_calls_behind_look_alikes),
        cmocka_unit_test(test_nothing_is_held_longer_than_needed),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests_name("tool_calls", tests, NULL, NULL);
}
