// Which format a template teaches, and which functions it can call.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "base/os/file.h"
#include "server/chat/tool_calls.h"
#include "server/chat/tool_format.h"
#include "support/cmocka_all.h"

static void expect_format(const char *source, const char *name) {
    const struct tool_format *format = tool_format_of_template(source, strlen(source));
    assert_string_equal(format ? format->name : "none", name);
}

static void test_templates(void **state) {
    (void)state;
    expect_format("", "none");
    expect_format("{{ message.content }}", "none");
    expect_format("within <tool_call></tool_call> XML tags", "hermes");
    expect_format("<tool_call>\n<function=example>", "qwen3_xml"); // Qwen3-Coder, Qwen3.5
    expect_format("<tool_call>{function-name}\n<arg_key>", "glm45");
    expect_format("<minimax:tool_call>\n<invoke name=\"tool\">", "minimax_m2");
    expect_format("<|tool_call|>[{", "none"); // Granite, Phi-4-mini
    expect_format("'<|tool_call>call:' + name + '{' <|\"|>", "gemma4");
    expect_format("{{- \"<|python_tag|>\" }}", "llama3_json");
    // Llama 3.2 has no built-in tools, and so no <|python_tag|>.
    expect_format("Respond in the format {\"name\": function name, \"parameters\": dictionary of",
                  "llama3_json");
    expect_format("<|start|>assistant<|channel|>final<|message|>", "harmony");
    expect_format("{{ \"[TOOL_CALLS][\" }}", "mistral");
    expect_format("{{ '[TOOL_CALLS]' + name + '[ARGS]' }}", "mistral_args");
    expect_format("{{- '<tool_calls>[' }}", "hunyuan_a13b");
    expect_format("{{- '<TOOLCALL>[' }}", "nemotron_json");
    expect_format("'<｜tool▁calls▁begin｜>' + name + '<｜tool▁sep｜>'", "deepseek_v31");
    expect_format("'<｜tool▁calls▁begin｜>' + type + '<｜tool▁sep｜>' + name + '```json'",
                  "deepseek_v3");
    expect_format("'<|START_ACTION|>[' <|START_RESPONSE|>", "cohere_command3");
    expect_format("'<|START_ACTION|>[' <|START_TEXT|>", "cohere_command4");
    expect_format("'<|tool_call_start|>['", "lfm2");
    expect_format("List of tools: <|tool_list_start|>[", "lfm2");
    expect_format("+ \"List of tools: [\" -%}", "lfm2"); // LFM2.5
    expect_format("List of tools: [ <tool_call>", "hermes");
    expect_format("List of tools: {{ tools }}", "none");
    expect_format("the format of [func_name1(params_name1=params_value1)]", "pythonic");
    expect_format("<|header_start|> [func_name1(params_name1=params_value1)]", "llama4_pythonic");
    expect_format("<|tool_calls_section_begin|> {{ id }}<|tool_call_argument_begin|>", "kimi_k2");
}

static void test_source_is_read_to_its_length(void **state) {
    (void)state;
    assert_null(tool_format_of_template("<tool_call>", 10));
    assert_non_null(tool_format_of_template("<tool_call>", 11));
}

// Those of tests/reference/data/chat-templates, which are in the tree.
static void test_our_templates_of_published_kinds(void **state) {
    (void)state;
    static const struct {
        const char *file, *format;
    } cases[] = {
        {"chatml-tools", "hermes"}, {"llama-headers", "llama3_json"}, {"mistral-inst", "mistral"},
        {"documents", "none"},      {"strict-turns", "none"},         {"marked-lines", "none"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[160];
        snprintf(path, sizeof path, "tests/reference/data/chat-templates/%s.jinja", cases[i].file);
        struct buf source = {0};
        assert_int_equal(file_read(&source, path, NULL), OK);
        expect_format(source.data, cases[i].format);
        buf_fini(&source);
    }
}

static void test_published_templates(void **state) {
    (void)state;
    static const struct {
        const char *file, *format;
    } cases[] = {
        {"HuggingFaceTB-SmolLM3-3B", "none"},
        {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
        {"Qwen-QwQ-32B", "hermes"},
        {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
        {"Qwen-Qwen3-0.6B", "hermes"},
        {"Qwen3-Coder", "qwen3_xml"},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3"},
        {"google-gemma-2-2b-it", "none"},
        {"ibm-granite-granite-3.3-2B-Instruct", "none"},
        {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
        {"microsoft-Phi-3.5-mini-instruct", "none"},
        {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
    };
    if (access("../shared/reference/chat-templates", F_OK) != 0) {
        print_message("skipped: there is no ../shared/reference/chat-templates\n");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[160];
        snprintf(path, sizeof path, "../shared/reference/chat-templates/%s.json", cases[i].file);
        json_t *json = NULL;
        struct err err = {0};
        if (jread_file(&json, path, &err)) fail_msg("%s", err.message);
        const char *source = NULL;
        assert_int_equal(jread_string(json, "template", &source, path, &err), OK);
        print_message("%s\n", cases[i].file);
        expect_format(source, cases[i].format);
        json_decref(json);
    }
}

static void test_names(void **state) {
    (void)state;
    size_t i = 0;
    for (const char *name; (name = tool_format_name(i)); i++) {
        assert_string_equal(tool_format_find(name)->name, name);
    }
    assert_int_equal(i, 19);
    assert_null(tool_format_find("none"));
}

// What tool_calls needs of a format's marks.
static void test_marks(void **state) {
    (void)state;
    for (size_t i = 0; tool_format_name(i); i++) {
        const struct tool_format *format = tool_format_find(tool_format_name(i));
        assert_null(strchr(format->mark + 1, format->mark[0]));
        assert_true(strlen(format->mark) < 32);
        if (!format->end_mark) continue;
        assert_null(strchr(format->end_mark + 1, format->end_mark[0]));
        assert_true(strlen(format->end_mark) < 32);
    }
}

static void test_names_of_functions(void **state) {
    (void)state;
    static const char *const bad[] = {"", "a\"b", "a\\b", "a\nb"};
    for (size_t i = 0; tool_format_name(i); i++) {
        const struct tool_format *format = tool_format_find(tool_format_name(i));
        for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
            assert_false(tool_format_fits_name(format, bad[k]));
        }
        assert_true(tool_format_fits_name(format, "get_time-2.a"));
        bool in_json = format->before_name[0] != '\0';
        assert_int_equal(tool_format_fits_name(format, "caf\xc3\xa9"), in_json);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_source_is_read_to_its_length),
        cmocka_unit_test(test_our_templates_of_published_kinds),
        cmocka_unit_test(test_published_templates),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_names_of_functions),
    };
    return cmocka_run_group_tests_name("tool_format", tests, NULL, NULL);
}
