// The form of answers with tool calls: which texts each format has, and that what the form allows
// is found as calls. \1 stands for the edges of a token's name.
#include <stdio.h>
#include <string.h>

#include "base/json/jwrite.h"
#include "server/chat/chat_split.h"
#include "server/chat/tool_calls.h"
#include "server/chat/tool_form.h"
#include "structured/read/outputs.h"
#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

enum way { AUTO, ONE, DEMANDED, DEMANDED_ONE, TEXT };

static struct automaton *run_form(const char *format, enum way way,
                                  const struct vocabulary *vocabulary) {
    json_t *schema = json_pack("{s:s, s:{s:{s:i}}, s:[s], s:b}", "type", "object", "properties",
                               "a", "const", 5, "required", "a", "additionalProperties", 0);
    const struct tool_form_function functions[] = {
        {.name = "f", .parameters = schema, .is_strict = true}, {.name = "get"}};
    json_t *text = json_pack("{s:s, s:s}", "type", "const_string", "value", "yes");
    const struct tool_form_options options = {
        .format = tool_format_find(format),
        .functions = functions,
        .num_functions = 2,
        .mark_is_token = true,
        .end_mark_is_token = true,
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

static const struct {
    const char *format;
    enum way way;
    const char *text;
    uint32_t num_calls; // that are found in it
    bool fits;
} cases[] = {
    {"hermes", AUTO, "", 0, true},
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
    {"mistral_args", AUTO, "Hm" ARGS ARGS, 2, true},
    {"mistral_args", AUTO, "\1[TOOL_CALLS]\1f[ARGS]", 0, false},
    {"mistral_args", DEMANDED, ARGS, 1, true},
    {"mistral_args", DEMANDED_ONE, ARGS ARGS, 0, false},
    {"mistral_args", TEXT, ARGS, 1, true},
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

static enum status count_call(void *user_data, const struct tool_event *event, struct err *err) {
    (void)err;
    if (event->kind != TOOL_EVENT_END) return OK;
    assert_int_equal(event->end, TOOL_END_COMPLETE);
    ++*(uint32_t *)user_data;
    return OK;
}

static enum status count_ended(void *user_data, const struct chat_event *event, struct err *err) {
    (void)err;
    assert_false(event->is_unfinished);
    *(uint32_t *)user_data += event->part == CHAT_CALL_END;
    return OK;
}

static uint32_t find_calls_in_channels(const struct tool_format *format, const char *text) {
    uint32_t count = 0;
    const struct chat_split_options options = {.format = format, .has_channels = true};
    struct chat_split *split = chat_split_create(&options, "<|start|>assistant", 18);
    for (const char *c = text; *c; c++) {
        if (*c == '\1') continue;
        assert_int_equal(chat_split_push(split, c, 1, count_ended, &count, NULL), OK);
    }
    assert_int_equal(chat_split_finish(split, count_ended, &count, NULL), OK);
    chat_split_destroy(split);
    return count;
}

static uint32_t find_calls(const char *format, const char *text) {
    uint32_t count = 0;
    const struct tool_format *known = tool_format_find(format);
    if (known->has_channels) return find_calls_in_channels(known, text);
    struct tool_calls calls;
    tool_calls_init(&calls,
                    &(struct tool_calls_options){tool_format_find(format), 1, count_call, &count});
    for (const char *c = text; *c; c++) {
        if (*c != '\1') assert_int_equal(tool_calls_push(&calls, c, 1, NULL), OK);
    }
    assert_int_equal(tool_calls_finish(&calls, NULL), OK);
    tool_calls_fini(&calls);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests_name("tool_form", tests, NULL, NULL);
}
