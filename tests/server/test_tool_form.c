// The form of answers with tool calls: which texts each format has, and that what the form allows
// is found as calls. \1 stands for the edges of a token's name.
#include <stdio.h>
#include <string.h>

#include "base/json/jwrite.h"
#include "server/chat/chat_split.h"
#include "server/chat/tool_form.h"
#include "structured/read/outputs.h"
#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

enum way { AUTO, ONE, DEMANDED, DEMANDED_ONE, TEXT };

static struct automaton *run_form(const char *format, enum way way,
                                  const struct vocabulary *vocabulary) {
    json_t *schema = json_pack("{s:s, s:{s:{s:i}}, s:[s], s:b}", "type", "object", "properties",
                               "a", "const", 5, "required", "a", "additionalProperties", 0);
    json_t *strings =
        json_pack("{s:s, s:{s:{s:s}, s:{s:s, s:[s,s]}}, s:[s]}", "type", "object", "properties",
                  "s", "type", "string", "t", "type", "string", "enum", "x", "y", "required", "t");
    const struct tool_form_function functions[] = {
        {.name = "f", .parameters = schema, .is_strict = true},
        {.name = "get"},
        {.name = "say", .parameters = strings}};
    json_t *text = json_pack("{s:s, s:s}", "type", "const_string", "value", "yes");
    const struct tool_form_options options = {
        .format = tool_format_find(format),
        .functions = functions,
        .num_functions = 3,
        .mark_is_token = strcmp(format, "minimax_m2") != 0,
        .end_mark_is_token = strcmp(format, "minimax_m2") != 0,
        .after_name_is_token = strcmp(format, "mistral_args") == 0,
        .demands_call = way == DEMANDED || way == DEMANDED_ONE,
        .one_call = way == ONE || way == DEMANDED_ONE,
        .text = way == TEXT ? text : NULL,
    };
    json_t *form = tool_form_make(&options);
    json_t *root = json_pack("{s:{s:o}}", "structural_tag", "format", form);
    struct buf json = {0};
    assert_int_equal(jwrite(&json, root, 0, "form", NULL), OK);
    struct grammar *grammar;
    struct err err = {0};
    if (outputs_read(&grammar, json.data, json.len, NULL, &err)) fail_msg("%s", err.message);
    buf_fini(&json);
    json_decref(root);
    json_decref(text);
    json_decref(schema);
    json_decref(strings);
    return fixture_run(grammar, vocabulary);
}

#define CALL "\1<tool_call>\1\n{\"name\": \"f\", \"arguments\": {\"a\": 5}}\n\1</tool_call>\1"
#define GET "\1<tool_call>\1{\"name\": \"get\", \"arguments\":{}}\1</tool_call>\1"
#define LLAMA "{\"name\": \"f\", \"parameters\": {\"a\": 5}}"
#define MISTRAL "{\"name\": \"f\", \"arguments\": {\"a\": 5}}"
#define ARGS "\1[TOOL_CALLS]\1f\1[ARGS]\1{\"a\":5}"

#define THOUGHT "\1<|channel|>\1analysis\1<|message|>\1Hm <b> \1<|end|>\1\1<|start|>\1assistant"
#define FINAL "\1<|channel|>\1final\1<|message|>\1"
#define TO_FUNCTION(name)                                                                          \
    "\1<|channel|>\1commentary to=functions." name " \1<|constrain|>\1json\1<|message|>\1"
#define CHANNEL_CALL TO_FUNCTION("f") "{\"a\": 5}"

#define QWEN(inside) "\1<tool_call>\1\n<function=" inside "</function>\n\1</tool_call>\1"
#define GLM(inside) "\1<tool_call>\1" inside "\1</tool_call>\1"
#define GLM_ARGUMENT(key, value) "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
#define MINIMAX(inside)                                                                            \
    "<minimax:tool_call>\n<invoke name=\"" inside "</invoke>\n</minimax:tool_call>"

#define LISTED(inside) "\1<tool_calls>\1[" inside "]\1</tool_calls>\1"

#define NOTED(inside) "\1<|tool_call>\1call:" inside "}\1<tool_call|>\1"
#define NOTED_TEXT(text) "\1<|\"|>\1" text "\1<|\"|>\1"

#define CALLS "\1<｜tool▁calls▁begin｜>\1"
#define CALLS_END "\1<｜tool▁calls▁end｜>\1"
#define CALL_BEGIN "\1<｜tool▁call▁begin｜>\1"
#define CALL_END "\1<｜tool▁call▁end｜>\1"
#define SEP "\1<｜tool▁sep｜>\1"
#define V31(inside) CALLS inside CALLS_END
#define V31_CALL(name, arguments) CALL_BEGIN name SEP arguments CALL_END
#define V3_CALL(name, arguments)                                                                   \
    CALL_BEGIN "function" SEP name "\n```json\n" arguments "\n```" CALL_END
#define KIMI(inside) "\1<|tool_calls_section_begin|>\1" inside "\1<|tool_calls_section_end|>\1"
#define KIMI_CALL(id, arguments)                                                                   \
    "\1<|tool_call_begin|>\1" id "\1<|tool_call_argument_begin|>\1" arguments                      \
    "\1<|tool_call_end|>\1"
#define TOOLCALL(inside) "\1<TOOLCALL>\1[" inside "]\1</TOOLCALL>\1"
#define LFM2(inside) "\1<|tool_call_start|>\1[" inside "]\1<|tool_call_end|>\1"
#define COHERE(inside) "\1<|START_ACTION|>\1[\n    " inside "\n]\1<|END_ACTION|>\1"
#define COHERE_CALL(id, name, arguments)                                                           \
    "{\"tool_call_id\": \"" id "\", \"tool_name\": \"" name "\", \"parameters\": " arguments "}"

static const struct {
    const char *format;
    enum way way;
    const char *text;
    uint32_t num_calls; // that are found in it
    bool fits;
} cases[] = {
    {"hermes", AUTO, "", 0, true},
    {"gemma4", AUTO, "So. " NOTED("f{a:5") NOTED("get{") " Done.", 2, true},
    {"gemma4", DEMANDED, NOTED("say{s:" NOTED_TEXT("a \"{,") ",t:" NOTED_TEXT("y")), 1, true},
    {"gemma4", DEMANDED_ONE, NOTED("say{t:" NOTED_TEXT("x")), 1, true},
    {"gemma4", DEMANDED_ONE, NOTED("say{t:" NOTED_TEXT("z")), 0, false},
    {"gemma4", DEMANDED_ONE, NOTED("say{s:" NOTED_TEXT("a")), 0, false},
    {"gemma4", DEMANDED, NOTED("f{a:6"), 0, false},
    {"gemma4", TEXT, "yes", 0, true},
    {"hermes", AUTO, "So. " CALL "\n" GET " Done.", 2, true},
    {"hermes", AUTO, "<tool_call>", 0, false}, // spelled, where the model has the token
    {"hermes", AUTO, "\1<tool_call>\1{\"name\": \"g", 0, false},
    {"hermes", AUTO, "\1<tool_call>\1\n{\"name\": \"f\", \"arguments\": {\"a\": 6", 0, false},
    {"hermes", AUTO, "\1<tool_call>\1\n{\"name\": \"get\", \"arguments\": {\"a\": 6}}", 0, false},
    {"hermes", ONE, "So. " CALL, 1, true},
    {"hermes", ONE, CALL "\n", 0, false},
    {"hermes", DEMANDED, CALL, 1, true},
    {"hermes", DEMANDED, CALL "\n" GET, 2, true},
    {"hermes", DEMANDED, "", 0, false},
    {"hermes", DEMANDED, "So. " CALL, 0, false},
    {"hermes", DEMANDED_ONE, CALL, 1, true},
    {"hermes", DEMANDED_ONE, CALL "\n" GET, 0, false},
    {"hermes", TEXT, "yes", 0, true},
    {"hermes", TEXT, CALL "\n" CALL, 2, true},
    {"hermes", TEXT, "", 0, false},
    {"hermes", TEXT, "yes" CALL, 0, false},
    {"llama3_json", AUTO, "Hm {\"name\"", 0, true},
    {"llama3_json", AUTO, LLAMA "; " LLAMA, 2, true},
    {"llama3_json", AUTO, "\1<|python_tag|>\1" LLAMA, 1, true},
    {"llama3_json", AUTO, " {\"x\"", 0, false},
    {"llama3_json", AUTO, "a <|python_tag|>", 0, false},
    {"llama3_json", ONE, LLAMA ";", 0, false},
    {"llama3_json", DEMANDED, LLAMA "; " LLAMA, 2, true},
    {"llama3_json", DEMANDED, "Hm", 0, false},
    {"llama3_json", TEXT, "yes", 0, true},
    {"llama3_json", TEXT, LLAMA, 1, true},
    {"mistral", AUTO, "Hm [{", 0, true},
    {"mistral", AUTO, "\1[TOOL_CALLS]\1 [" MISTRAL "]", 1, true},
    {"mistral", AUTO, "\1[TOOL_CALLS]\1[]", 0, false},
    {"mistral", DEMANDED, "\1[TOOL_CALLS]\1[" MISTRAL ", " MISTRAL "]", 2, true},
    {"mistral", DEMANDED, "[", 0, false},
    {"mistral", DEMANDED_ONE, "\1[TOOL_CALLS]\1[" MISTRAL ",", 0, false},
    {"mistral", TEXT, "yes", 0, true},
    {"hunyuan_a13b", AUTO, "Hm " LISTED(MISTRAL), 1, true},
    {"hunyuan_a13b", AUTO, LISTED(""), 0, false},
    {"hunyuan_a13b", DEMANDED, LISTED(MISTRAL ", " MISTRAL), 2, true},
    {"hunyuan_a13b", DEMANDED, "\1<tool_calls>\1[" MISTRAL "]", 0, false},
    {"hunyuan_a13b", DEMANDED_ONE, LISTED(MISTRAL ", " MISTRAL), 0, false},
    {"nemotron_json", DEMANDED, TOOLCALL(MISTRAL ", " MISTRAL), 2, true},
    {"deepseek_v31", AUTO, "Hm " V31(V31_CALL("f", "{\"a\": 5}") V31_CALL("get", "{}")), 2, true},
    {"deepseek_v31", AUTO, V31(""), 0, false},
    {"deepseek_v31", AUTO, "<｜tool▁calls▁begin｜>", 0, false}, // spelled
    {"deepseek_v31", AUTO, CALLS "<｜tool", 0, false},
    {"deepseek_v31", DEMANDED, V31(V31_CALL("f", "{\"a\": 5}")), 1, true},
    {"deepseek_v31", DEMANDED, V31(V31_CALL("f", "{\"a\": 6}")), 0, false},
    {"deepseek_v31", DEMANDED, V31(V31_CALL("g", "{}")), 0, false},
    {"deepseek_v31", DEMANDED, "Hm", 0, false},
    {"deepseek_v31", DEMANDED_ONE, V31(V31_CALL("get", "{}") V31_CALL("get", "{}")), 0, false},
    {"deepseek_v31", TEXT, V31(V31_CALL("say", "{\"s\": \"<\", \"t\": \"x\"}")), 1, true},
    {"deepseek_v3", AUTO, "Hm " V31(V3_CALL("f", "{\"a\": 5}") "\n" V3_CALL("get", "{}")), 2, true},
    {"deepseek_v3", DEMANDED_ONE, V31(V3_CALL("get", "{}")), 1, true},
    {"deepseek_v3", DEMANDED, V31(V31_CALL("get", "{}")), 0, false},
    {"kimi_k2", DEMANDED,
     KIMI(KIMI_CALL("functions.f:0", "{\"a\": 5}") KIMI_CALL("functions.get:17", "{}")), 2, true},
    {"kimi_k2", DEMANDED, KIMI(KIMI_CALL("f:0", "{\"a\": 5}")), 0, false},
    {"kimi_k2", DEMANDED, KIMI(KIMI_CALL("functions.get:", "{}")), 0, false},
    {"kimi_k2", DEMANDED_ONE, KIMI(KIMI_CALL("functions.get:0", "{}")), 1, true},
    {"mistral_args", AUTO, "Hm" ARGS ARGS, 2, true},
    {"mistral_args", AUTO, "\1[TOOL_CALLS]\1f[ARGS]", 0, false},
    {"mistral_args", DEMANDED, ARGS, 1, true},
    {"mistral_args", DEMANDED_ONE, ARGS ARGS, 0, false},
    {"mistral_args", TEXT, ARGS, 1, true},
    {"qwen3_xml", AUTO, "So. " QWEN("f>\n<parameter=a>\n5\n</parameter>\n"), 1, true},
    {"qwen3_xml", AUTO, "\1<tool_call>\1\n<function=f>\n<parameter=a>\n6", 0, false},
    {"qwen3_xml", AUTO, "\1<tool_call>\1\n<function=f>\n</function>", 0, false},
    {"qwen3_xml", DEMANDED, QWEN("get>\n") "\n" QWEN("get>\n"), 2, true},
    {"qwen3_xml", DEMANDED_ONE,
     QWEN("say>\n<parameter=s>\n</p\n</parameter>\n<parameter=t>\nx\n</parameter>\n"), 1, true},
    {"qwen3_xml", DEMANDED_ONE, QWEN("say>\n<parameter=t>\ny\n</parameter>\n"), 1, true},
    {"qwen3_xml", DEMANDED_ONE, "\1<tool_call>\1\n<function=say>\n<parameter=t>\nz", 0, false},
    {"glm45", TEXT, GLM("f\n" GLM_ARGUMENT("a", "5")), 1, true},
    {"glm45", DEMANDED, GLM("say\n" GLM_ARGUMENT("s", "5") GLM_ARGUMENT("t", "x")), 1, true},
    {"glm45", DEMANDED, GLM("f\n" GLM_ARGUMENT("a", "\"5\"")), 0, false},
    {"minimax_m2", DEMANDED, MINIMAX("f\">\n<parameter name=\"a\">5</parameter>\n"), 1, true},
    {"minimax_m2", DEMANDED, MINIMAX("say\">\n"), 0, false},
    {"pythonic", AUTO, "Hm [f(", 0, true},
    {"pythonic", AUTO, "[f(a=5), get()]", 2, true},
    {"pythonic", AUTO, "\1<|python_tag|>\1[f(a=5)]", 1, true},
    {"pythonic", AUTO, " [x", 0, false},
    {"pythonic", AUTO, "[f(a=6", 0, false},
    {"pythonic", ONE, "[get(), ", 0, false},
    {"pythonic", DEMANDED, "[say(s=\"a\\\"b\", t=\"x\"), say(t=\"y\")]", 2, true},
    {"pythonic", DEMANDED, "[say(t=\"z", 0, false},
    {"pythonic", DEMANDED, "[say(s=\"a\")", 0, false},
    {"pythonic", DEMANDED_ONE, "[get()]", 1, true},
    {"pythonic", TEXT, "yes", 0, true},
    {"pythonic", TEXT, "[get()]", 1, true},
    {"llama4_pythonic", DEMANDED, "[f(a=5)]", 1, true},
    {"lfm2", AUTO, "Hm [" LFM2("f(a=5), get()"), 2, true},
    {"lfm2", AUTO, "\1<|tool_call_start|>\1[]", 0, false},
    {"lfm2", DEMANDED, LFM2("f(a=5)"), 1, true},
    {"lfm2", DEMANDED, "[f(a=5)]", 0, false},
    {"cohere_command3", AUTO, "Hm " COHERE(COHERE_CALL("0", "f", "{\"a\": 5}")), 1, true},
    {"cohere_command4", DEMANDED,
     COHERE(COHERE_CALL("0", "f", "{\"a\": 5}") ",\n    " COHERE_CALL("1", "get", "{}")), 2, true},
    {"cohere_command3", DEMANDED, COHERE(COHERE_CALL("", "get", "{}")), 0, false},
    {"cohere_command3", DEMANDED, COHERE(COHERE_CALL("0", "f", "{\"a\": 6}")), 0, false},
    {"harmony", AUTO, THOUGHT FINAL "So.", 0, true},
    {"harmony", AUTO, FINAL "So.", 0, true},
    {"harmony", AUTO, THOUGHT CHANNEL_CALL, 1, true},
    {"harmony", AUTO, "So.", 0, false},
    {"harmony", AUTO, THOUGHT TO_FUNCTION("f") "{\"a\": 6", 0, false},
    {"harmony", AUTO, THOUGHT TO_FUNCTION("e"), 0, false},
    {"harmony", DEMANDED, CHANNEL_CALL, 1, true},
    {"harmony", DEMANDED, THOUGHT THOUGHT, 0, false},
    {"harmony", DEMANDED, THOUGHT FINAL, 0, false},
    {"harmony", DEMANDED_ONE, THOUGHT TO_FUNCTION("get") "{}", 1, true},
    {"harmony", TEXT, THOUGHT FINAL "yes", 0, true},
    {"harmony", TEXT, FINAL "no", 0, false},
    {"harmony", TEXT, CHANNEL_CALL, 1, true},
};

static enum status count_ended(void *user_data, const struct chat_event *event, struct err *err) {
    (void)err;
    assert_false(event->is_unfinished);
    *(uint32_t *)user_data += event->part == CHAT_CALL_END;
    return OK;
}

static uint32_t find_calls(const char *name, const char *text) {
    uint32_t count = 0;
    const struct tool_format *format = tool_format_find(name);
    const struct chat_split_options options = {.format = format,
                                               .has_channels = format->has_channels};
    const char *prompt = format->has_channels ? "<|start|>assistant" : "";
    struct chat_split *split = chat_split_create(&options, prompt, strlen(prompt));
    for (const char *c = text; *c; c++) {
        if (*c == '\1') continue;
        assert_int_equal(chat_split_push(split, c, 1, count_ended, &count, NULL), OK);
    }
    assert_int_equal(chat_split_finish(split, count_ended, &count, NULL), OK);
    chat_split_destroy(split);
    return count;
}

static void test_texts(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[512];
        snprintf(text, sizeof text, "%s", cases[i].text);
        for (char *c = text; *c; c++) {
            if (*c == '\1') *c = '\xff';
        }
        print_message("%s %d %s\n", cases[i].format, (int)cases[i].way, cases[i].text);
        struct automaton *automaton = run_form(cases[i].format, cases[i].way, vocabulary);
        fixture_check(automaton, text, cases[i].fits);
        automaton_release(automaton);
        if (!cases[i].fits) continue;
        assert_int_equal(find_calls(cases[i].format, cases[i].text), cases[i].num_calls);
    }
    vocabulary_destroy(vocabulary);
}

// What the form of a call in tags leaves out of the parameters.
static void test_loose(void **state) {
    (void)state;
    static const struct {
        const char *parameters, *keyword, *property;
    } loose[] = {
        {"{}", NULL, NULL},
        {"{'properties': {'s': {'type': 'string', 'enum': ['a']}, 'n': {'minimum': 1}}, "
         "'required': ['s']}",
         NULL, NULL},
        {"{'$ref': '#/$defs/A'}", "$ref", NULL},
        {"{'properties': {'s': {}}, 'anyOf': [{'required': ['s']}]}", "anyOf", NULL},
        {"{'minProperties': 1}", "minProperties", NULL},
        {"{'properties': {'s': {}}, 'required': ['s', 't']}", "required", "t"},
        {"{'properties': {'s': {'type': 'string', 'maxLength': 3}}}", "maxLength", "s"},
        {"{'properties': {'s': {'type': 'string', 'not': {'const': ''}}}}", "not", "s"},
        {"{'properties': {'s': {'type': 'string', 'const': 1}}}", "const", "s"},
        {"{'properties': {'s': {'type': 'string', 'enum': [1]}}}", "enum", "s"},
        {"{'properties': {'s': {'type': 'string', 'enum': ['</parameter>']}}}", "enum", "s"},
        {"{'properties': {'s>': {}}}", "properties", "s>"},
    };
    for (size_t i = 0; i < ARRAY_LEN(loose); i++) {
        char text[200];
        snprintf(text, sizeof text, "%s", loose[i].parameters);
        for (char *c = text; *c; c++) *c = *c == '\'' ? '"' : *c;
        json_t *parameters = json_loads(text, 0, NULL);
        const struct tool_form_function function = {.name = "f", .parameters = parameters};
        const struct tool_form_loose found =
            tool_form_find_loose(tool_format_find("qwen3_xml"), &function);
        assert_true(parameters && !found.keyword == !loose[i].keyword);
        assert_true(!found.property == !loose[i].property);
        if (found.keyword) assert_string_equal(found.keyword, loose[i].keyword);
        if (found.property) assert_string_equal(found.property, loose[i].property);
        json_decref(parameters);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_loose)};
    return cmocka_run_group_tests_name("tool_form", tests, NULL, NULL);
}
