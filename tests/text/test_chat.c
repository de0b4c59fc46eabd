// Chats: where a checkpoint's template and special tokens are found, the variables that templates
// see, continue_final_message, the time, and every refusal with its message.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "support/chat_fixture.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

// Prints the template's variables, in a form that shows types.
static const char show_messages[] =
    "{% for m in messages %}{{ m.role }}={{ m.content | tojson }};{% endfor %}"
    "{{ 'add' if add_generation_prompt else 'end' }}";
// Takes strings only, as most templates do.
static const char chatml[] = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] + '' }}</>\n"
                             "{% if m.fail %}{{ none + 1 }}{% endif %}{% endfor %}"
                             "{% if add_generation_prompt %}<assistant>{% endif %}";

static void expect_raw(const struct chat_template *chat_template, const char *variables,
                       const char *want) {
    struct buf out = {0};
    struct err err = {0};
    if (chat_template_render_raw(chat_template, variables, strlen(variables), NULL, &out, &err)) {
        fail_msg("%s: %s", variables, err.message);
    }
    assert_string_equal(out.len ? out.data : "", want);
    buf_fini(&out);
}

static const char hi[] = "[{\"role\": \"user\", \"content\": \"hi\"}]";
static const char hi_without_tools[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": null}";
static const char hi_with_no_tools[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": []}";
static const char hi_with_tools[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": [{}]}";

static void folder_gives(struct temp_folder *folder, const char *chat, const char *want) {
    struct chat_template *chat_template = open_folder(folder);
    expect(chat_template, chat, want);
    chat_template_close(chat_template);
}

static void test_template_of_tokenizer_config(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    // model_max_length has the value that transformers writes for tokenizers without a maximum.
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"model_max_length\": 1000000000000000019884624838656,"
                           " \"chat_template\": \"config {{ messages[0].content }}\"}");
    folder_gives(&folder, hi, "config hi");
    temp_folder_write_text(&folder, "chat_template.json", "{\"chat_template\": \"processor\"}");
    folder_gives(&folder, hi, "config hi");
    temp_folder_write_text(&folder, "chat_template.jinja", "file {{ messages[0].content }}\n");
    folder_gives(&folder, hi, "file hi");
    temp_folder_remove(&folder);
}

static void test_a_template_may_print_nothing(void **state) {
    (void)state;
    render_once("", hi, "");
    struct chat_template *chat_template = open_source("{# nothing #}");
    refused(chat_template,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], "
            "\"continue_final_message\": true}",
            "the template leaves out some of the last message");
    chat_template_close(chat_template);
}

static void test_template_of_a_processor(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": null, \"eos_token\": \"<e>\"}");
    temp_folder_write_text(&folder, "chat_template.json",
                           "{\"chat_template\": \"processor {{ eos_token }}\"}");
    folder_gives(&folder, hi, "processor <e>");
    temp_folder_remove(&folder);
}

static void test_named_templates(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"},"
                           " {\"name\": \"rag\", \"template\": \"{{ broken\"},"
                           " {\"name\": \"tool_use\", \"template\": \"tools{{ tools }}\"}]}");
    folder_gives(&folder, hi, "plain");
    folder_gives(&folder, hi_with_tools, "tools[{}]");
    folder_gives(&folder, hi_without_tools, "plain");
    folder_gives(&folder, hi_with_no_tools, "tools[]"); // as transformers
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": [{\"name\": \"default\", \"template\": "
                           "\"one{{ tools }}\"}]}");
    folder_gives(&folder, hi_with_tools, "one[{}]");
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}, "
                           "{\"name\": \"tool_use\", \"template\": \"tools{{ tools }}\"}]}");
    struct chat_template *chat_template = open_folder(&folder);
    expect(chat_template, hi_with_tools, "tools[{}]");
    refused(chat_template, hi, "none is \"default\": rag, tool_use");
    chat_template_close(chat_template);
    temp_folder_remove(&folder);
}

// As transformers: the fault is that of the chats that need the template.
static void test_a_broken_template_is_refused_where_it_is_chosen(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"},"
                           " {\"name\": \"tool_use\", \"template\": \"a\\n{% endif %}\"}]}");
    struct chat_template *chat_template = open_folder(&folder);
    expect(chat_template, hi, "plain");
    refused(chat_template, hi_with_tools, "chat_template \"tool_use\": line 2: unexpected 'endif'");
    chat_template_close(chat_template);
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ a b\"},"
                           " {\"name\": \"tool_use\", \"template\": \"tools{{ tools }}\"}]}");
    chat_template = open_folder(&folder);
    expect(chat_template, hi_with_tools, "tools[{}]");
    refused(chat_template, hi, "chat_template \"default\": line 1: unexpected 'b'");
    chat_template_close(chat_template);
    temp_folder_remove(&folder);
}

static void expect_source(const struct chat_template *chat_template, bool has_tools,
                          const char *want) {
    size_t len = 0;
    const char *source = chat_template_source(chat_template, has_tools, &len);
    if (!want) {
        assert_null(source);
        return;
    }
    assert_string_equal(source, want);
    assert_int_equal(len, strlen(want));
}

static void test_source_is_that_of_the_chosen_template(void **state) {
    (void)state;
    struct chat_template *chat_template = open_source("a\n{{ 1 }}");
    expect_source(chat_template, false, "a\n{{ 1 }}");
    expect_source(chat_template, true, "a\n{{ 1 }}");
    chat_template_close(chat_template);
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"},"
                           " {\"name\": \"default\", \"template\": \"x\"},"
                           " {\"name\": \"default\", \"template\": \"d\"}]}");
    chat_template = open_folder(&folder);
    expect_source(chat_template, false, "d"); // the last of a name counts
    expect_source(chat_template, true, "t");
    chat_template_close(chat_template);
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}]}");
    chat_template = open_folder(&folder);
    expect_source(chat_template, false, NULL);
    chat_template_close(chat_template);
    temp_folder_remove(&folder);
}

static void test_additional_template_files(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    char sub[256], file[300], other[300];
    snprintf(sub, sizeof sub, "%s/additional_chat_templates", folder.path);
    snprintf(file, sizeof file, "%s/tool_use.jinja", sub);
    snprintf(other, sizeof other, "%s/README.md", sub);
    assert_int_equal(mkdir(sub, 0700), 0);
    temp_folder_write_text(&folder, "additional_chat_templates/tool_use.jinja", "tools{{ tools }}");
    temp_folder_write_text(&folder, "additional_chat_templates/README.md", "{{ no template");
    temp_folder_write_text(&folder, "chat_template.jinja", "plain");
    folder_gives(&folder, hi, "plain");
    folder_gives(&folder, hi_with_tools, "tools[{}]");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(rmdir(sub), 0);
    temp_folder_remove(&folder);
}

static void not_opened(const char *model, const char *path, const char *sentence) {
    struct chat_template *chat_template = NULL;
    struct err err = {0};
    assert_int_not_equal(open_template(&chat_template, model, path, &err), OK);
    assert_null(chat_template);
    if (!strstr(err.message, sentence)) fail_msg("%s: not %s", err.message, sentence);
}

static void test_templates_that_cannot_be_opened(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    not_opened(NULL, NULL, "no model and no chat template given");
    not_opened("/nonexistent", NULL, "/nonexistent is not a folder");
    not_opened(NULL, "/nonexistent.jinja", "cannot open /nonexistent.jinja");
    not_opened(folder.path, NULL, "has no chat template: no chat_template.jinja");
    static const struct {
        const char *config, *sentence;
    } bad[] = {
        {"{\"bos_token\": \"x\"}", "has no chat template"},
        {"[]", "tokenizer_config.json is a list, want an object"},
        {"{", "tokenizer_config.json is not valid JSON"},
        {"{\"chat_template\": 7}", "\"chat_template\" is a real number, want a string or a list"},
        {"{\"chat_template\": [\"x\"]}", "an entry of \"chat_template\" is not an object"},
        {"{\"chat_template\": [{\"name\": \"default\"}]}", "an entry of \"chat_template\""},
        {"{\"chat_template\": \"a\\n{% if %}\"}", "tokenizer_config.json: chat_template: line 2"},
        {"{\"chat_template\": [{\"name\": \"default\", \"template\": \"{% x %}\"}]}",
         "chat_template \"default\": line 1"},
        {"{\"chat_template\": \"\", \"bos_token\": 1}",
         "a token of \"bos_token\" is a real number"},
        {"{\"chat_template\": \"\", \"eos_token\": {}}", "a token of \"eos_token\" is an object"},
        {"{\"chat_template\": \"\", \"additional_special_tokens\": \"x\"}", "want a list"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        temp_folder_write_text(&folder, "tokenizer_config.json", bad[i].config);
        not_opened(folder.path, NULL, bad[i].sentence);
    }
    temp_folder_write_text(&folder, "tokenizer_config.json", "{}");
    temp_folder_write(&folder, "chat_template.jinja", "ab\xff", 3);
    not_opened(folder.path, NULL, "chat_template.jinja is not UTF-8 text: byte 2");
    temp_folder_write_text(&folder, "chat_template.jinja",
                           "version https://git-lfs.github.com/spec/v1\n");
    not_opened(folder.path, NULL, "Git LFS pointer");
    temp_folder_remove(&folder);
}

static void test_special_tokens(void **state) {
    (void)state;
    static const char source[] =
        "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ unk_token is defined }}"
        "{{ additional_special_tokens }}{{ image_token }}";
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "chat_template.jinja", source);
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"bos_token\": {\"__type\": \"AddedToken\", \"content\": \"<s>\"},"
                           " \"eos_token\": \"</s>\", \"pad_token\": null, \"unk_token\": \"\","
                           " \"additional_special_tokens\": [\"<a>\", {\"content\": \"<b>\"}],"
                           " \"extra_special_tokens\": {\"image_token\": \"<i>\"}}");
    folder_gives(&folder, hi, "<s></s>FalseFalse['<a>', '<b>']<i>");
    // The old form: the map overrides the configuration.
    temp_folder_write_text(&folder, "special_tokens_map.json",
                           "{\"eos_token\": \"<map>\", \"pad_token\": {\"content\": \"<p>\"}}");
    folder_gives(&folder, hi, "<s><map>TrueFalse['<a>', '<b>']<i>");
    temp_folder_write_text(&folder, "special_tokens_map.json",
                           "{\"eos_token\": \"<map>\", \"additional_special_tokens\": [\"<b>\", "
                           "\"<c>\"], \"pad_token\": {\"content\": \"<p>\"}}");
    folder_gives(&folder, hi, "<s><map>TrueFalse['<a>', '<b>', '<c>']<i>");
    // The new form: the map only adds missing tokens.
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"added_tokens_decoder\": {}, \"eos_token\": \"</s>\"}");
    folder_gives(&folder, hi, "</s>TrueFalse['<b>', '<c>']");
    // Variables of the chat win over tokens.
    folder_gives(&folder,
                 "{\"messages\": [{\"role\": \"assistant\"}], \"chat_template_kwargs\": "
                 "{\"eos_token\": 1, \"bos_token\": "
                 "\"x\"}}",
                 "x1TrueFalse['<b>', '<c>']");
    temp_folder_remove(&folder);
}

static void test_a_file_replaces_the_template_and_keeps_the_tokens(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "chat_template.jinja", "{{ broken");
    temp_folder_write_text(&folder, "tokenizer_config.json",
                           "{\"chat_template\": 7, \"eos_token\": \"</s>\"}");
    temp_folder_write_text(&folder, "mine.jinja", "mine {{ eos_token }}");
    char path[256];
    snprintf(path, sizeof path, "%s/mine.jinja", folder.path);
    struct chat_template *chat_template = NULL;
    assert_int_equal(open_template(&chat_template, folder.path, path, NULL), OK);
    expect(chat_template, hi, "mine </s>");
    chat_template_close(chat_template);
    assert_int_equal(open_template(&chat_template, NULL, path, NULL), OK);
    expect(chat_template, hi, "mine ");
    chat_template_close(chat_template);
    temp_folder_remove(&folder);
}

static void test_variables(void **state) {
    (void)state;
    static const char source[] = "{{ messages | length }} {{ tools }} {{ documents }} "
                                 "{{ add_generation_prompt }} {{ x is defined }}";
    struct chat_template *chat_template = open_source(source);
    expect(chat_template, hi, "1 None None True False");
    expect(
        chat_template,
        "{\"messages\": [{\"role\": \"assistant\"}], \"tools\": [{\"a\": 1}], \"documents\": [{}], "
        "\"add_generation_prompt\": false, \"chat_template_kwargs\": {\"x\": null}}",
        "1 [{'a': 1}] [{}] False True");
    expect(chat_template,
           "{\"messages\": [{\"role\": \"assistant\"}], \"tools\": null, \"documents\": null, "
           "\"add_generation_prompt\": "
           "null, \"continue_final_message\": null, \"chat_template_kwargs\": null, \"now\": null}",
           "1 None None True False");
    chat_template_close(chat_template);
}

static void test_text_parts(void **state) {
    (void)state;
    static const char chat[] =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
        "\"text\", \"text\": \"b\", \"cache_control\": {}}]}, {\"role\": \"user\", \"content\": "
        "\"c\"}, {\"role\": \"user\", \"content\": []}]";
    render_once(chatml, chat, "<user>a\nb</>\n<user>c</>\n<user></>\n<assistant>");
    // A template that prints Python's or JSON's form of a list does not take lists.
    render_once(show_messages, chat, "user=\"a\\nb\";user=\"c\";user=\"\";add");
    render_once("{% for m in messages %}{{ m.content }}|{% endfor %}", chat, "a\nb|c||");
    render_once("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}|{% endfor %}",
                chat, "[a][b]|c||");
    // Nor does one that raises for lists.
    render_once("{% if messages[0].content is not string %}{{ raise_exception('no') }}{% endif %}"
                "{{ messages[0].content }}",
                chat, "a\nb");
}

static void test_text_stays_as_it_is(void **state) {
    (void)state;
    struct chat_template *chat_template = open_source("{{ messages[0].content }}|");
    struct buf out = {0};
    static const char chat[] = "[{\"role\": \"user\", \"content\": \"a\\u0000\\ud83d\\ude00 \"}]";
    assert_int_equal(chat_template_render(chat_template, chat, sizeof chat - 1, NULL, &out, NULL),
                     OK);
    assert_int_equal(out.len, 8);
    assert_memory_equal(out.data, "a\0\xf0\x9f\x98\x80 |", 9);
    buf_fini(&out);
    chat_template_close(chat_template);
}

static void test_refused_chats(void **state) {
    (void)state;
    struct chat_template *chat_template = open_source(chatml);
    static const struct {
        const char *chat, *sentence;
    } bad[] = {
        {"", "the chat is not valid JSON"},
        {"{", "the chat is not valid JSON"},
        {"7", "the chat is an integer, want a list of messages or an object"},
        {"{}", "\"messages\" is missing, want a list"},
        {"{\"messages\": {}}", "\"messages\" is an object, want a list"},
        {"{\"messages\": [], \"messages\": []}", "duplicate"},
        {"[]", "\"messages\" is empty, want at least one message"},
        {"{\"messages\": []}", "\"messages\" is empty, want at least one message"},
        {"{\"mesages\": []}", "a chat has no \"mesages\"; did you mean \"messages\"?"},
        {"{\"messages\": [], \"enable_xyz\": 1}", "given in \"chat_template_kwargs\""},
        {"[1]", "messages[0] is an integer, want an object"},
        {"[{\"content\": \"x\"}]", "messages[0].role is missing, want a string"},
        {"[{\"role\": 1, \"content\": \"x\"}]", "messages[0].role is an integer, want a string"},
        {"[{\"role\": \"user\"}]", "messages[0].content is missing, want a string or a list"},
        {"[{\"role\": \"user\", \"content\": null}]", "messages[0].content is null, want"},
        {"[{\"role\": \"assistant\", \"content\": {}}]", "messages[0].content is an object, want"},
        {"[{\"role\": \"user\", \"content\": [\"x\"]}]",
         "messages[0].content[0] is a string, want an object"},
        {"[{\"role\": \"user\", \"content\": [{}]}]", "messages[0].content[0] is without a type"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]",
         "messages[0].content[0].text is missing, want a string"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"\"}, {\"type\": "
         "\"image_url\"}]}]",
         "messages[0].content[1] is of type \"image_url\"; this engine reads text only"},
        {"[{\"role\": \"assistant\", \"tool_calls\": {}}]",
         "messages[0].tool_calls is an object, want a list"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [1]}]",
         "messages[0].tool_calls[0] is an integer, want an object"},
        {"{\"messages\": [], \"tools\": {}}", "\"tools\" is an object, want a list"},
        {"{\"messages\": [], \"tools\": [1]}", "tools[0] is an integer, want an object"},
        {"{\"messages\": [], \"documents\": [\"x\"]}", "documents[0] is a string, want an object"},
        {"{\"messages\": [], \"add_generation_prompt\": 1}",
         "\"add_generation_prompt\" is an integer, want true or false"},
        {"{\"messages\": [], \"chat_template_kwargs\": []}",
         "\"chat_template_kwargs\" is a list, want an object"},
        {"{\"messages\": [], \"chat_template_kwargs\": {\"tools\": []}}",
         "\"chat_template_kwargs\" has \"tools\", which is a member of the chat itself"},
        {"{\"messages\": [], \"now\": 7}", "\"now\" is an integer, want a time"},
        {"[{\"role\": \"user\", \"content\": \"x\", \"fail\": 1}]",
         "chat_template.jinja: line 2"}, // the template's own
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        refused(chat_template, bad[i].chat, bad[i].sentence);
    chat_template_close(chat_template);
}

static void test_continue_final_message(void **state) {
    (void)state;
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
        "\"assistant\", \"content\": \"The \"}], "
        "\"continue_final_message\": true}";
    render_once(chatml, chat, "<user>q</>\n<assistant>The ");
    // Where the template trims texts, the last message's own end is trimmed too.
    render_once("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}", chat,
                "<user>q</><assistant>The");
    // A list of parts: the last one.
    render_once("{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}"
                "{% endfor %}{{ add_generation_prompt }}",
                "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", "
                "\"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\\u3000\"}]}], "
                "\"continue_final_message\": true}",
                "[a][b\xe3\x80\x80");
    struct chat_template *chat_template = open_source("{{ messages[0].content }}");
    refused(chat_template, chat, "the template leaves out some of the last message");
    refused(chat_template, "{\"messages\": [], \"continue_final_message\": true}", "is empty");
    refused(chat_template,
            "{\"messages\": [{\"role\": \"assistant\"}], \"continue_final_message\": true}",
            "messages[0] has no text");
    refused(chat_template,
            "{\"messages\": [], \"continue_final_message\": true, \"add_generation_prompt\": true}",
            "want one of them");
    chat_template_close(chat_template);
}

static void test_now(void **state) {
    (void)state;
    struct chat_template *chat_template =
        open_source("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f %a %j %z %Z') }}");
    static const struct {
        const char *now, *want;
    } cases[] = {
        {"2026-01-02T03:04:05", "2026-01-02 03:04:05.000000 Fri 002  "},
        {"2024-02-29 23:59:59.1234567", "2024-02-29 23:59:59.123456 Thu 060  "},
        {"2024-12-31", "2024-12-31 00:00:00.000000 Tue 366  "},
        {"2026-01-02T03:04", "2026-01-02 03:04:00.000000 Fri 002  "},
        {"2026-01-02T03:04:05Z", "2026-01-02 03:04:05.000000 Fri 002 +0000 UTC"},
        {"2026-01-02T03:04:05.5-03:30", "2026-01-02 03:04:05.500000 Fri 002 -0330 UTC-03:30"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char chat[200];
        snprintf(chat, sizeof chat, "{\"messages\": [{\"role\": \"assistant\"}], \"now\": \"%s\"}",
                 cases[i].now);
        expect(chat_template, chat, cases[i].want);
        expect_raw(chat_template, chat, cases[i].want);
    }
    static const char *const bad[] = {"",
                                      "now",
                                      "2026",
                                      "2026-13-01",
                                      "2025-02-29",
                                      "2026-01-02T",
                                      "2026-01-02T24:00",
                                      "2026-01-02T03:04:05.",
                                      "2026-01-02T03:04:05+1",
                                      "2026-01-02T03:04:05 x"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char chat[200];
        snprintf(chat, sizeof chat, "{\"messages\": [{\"role\": \"assistant\"}], \"now\": \"%s\"}",
                 bad[i]);
        refused(chat_template, chat, "want a time such as 2026-01-02T03:04:05");
    }
    chat_template_close(chat_template);
}

static void test_the_clock_without_now(void **state) {
    (void)state;
    struct chat_template *chat_template = open_source("{{ strftime_now('%Y') | int > 2000 }}");
    expect(chat_template, hi, "True");
    chat_template_close(chat_template);
}

static void test_raw_variables_are_as_they_are(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "chat_template.jinja",
                           "{{ messages is defined }}{{ tools is defined }}{{ bos_token is defined "
                           "}}{{ now is defined }}{{ x }}");
    temp_folder_write_text(&folder, "tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    struct chat_template *chat_template = open_folder(&folder);
    expect_raw(chat_template, "{}", "FalseFalseFalseFalse");
    expect_raw(chat_template, "{\"now\": \"2026-01-02\", \"x\": [\"\\u00e9\"], \"messages\": 1}",
               "TrueFalseFalseFalse['\xc3\xa9']");
    struct buf out = {0};
    struct err err = {0};
    assert_int_equal(chat_template_render_raw(chat_template, "[]", 2, NULL, &out, &err),
                     ERR_FORMAT);
    assert_string_equal(err.message, "the variables are a list, want an object");
    buf_fini(&out);
    chat_template_close(chat_template);
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_template_of_tokenizer_config),
        cmocka_unit_test(test_a_template_may_print_nothing),
        cmocka_unit_test(test_template_of_a_processor),
        cmocka_unit_test(test_named_templates),
        cmocka_unit_test(test_a_broken_template_is_refused_where_it_is_chosen),
        cmocka_unit_test(test_source_is_that_of_the_chosen_template),
        cmocka_unit_test(test_additional_template_files),
        cmocka_unit_test(test_templates_that_cannot_be_opened),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_a_file_replaces_the_template_and_keeps_the_tokens),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_text_parts),
        cmocka_unit_test(test_text_stays_as_it_is),
        cmocka_unit_test(test_refused_chats),
        cmocka_unit_test(test_continue_final_message),
        cmocka_unit_test(test_now),
        cmocka_unit_test(test_the_clock_without_now),
        cmocka_unit_test(test_raw_variables_are_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
