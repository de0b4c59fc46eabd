// Forms of messages: content that is null or left out, tool calls and their arguments, and integers
// beyond 64 bits.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/chat_fixture.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

// Prints the names of calls, so that the template reads them, but nothing of the name f.
#define CALLS "{% for c in m.tool_calls %}{{ c.function.name | replace('f', '') }}{% endfor %}"

// Null stays null for a template that can read it; others get an empty text.
static void test_content_that_is_null(void **state) {
    (void)state;
    static const char chat[] =
        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": null, \"tool_calls\": [{\"type\": \"function\", "
        "\"function\": {\"name\": \"f\"}}]}]";
    render_once("{% for m in messages %}{{ '<' + m.content + '>' }}" CALLS "{% endfor %}", chat,
                "<q><>");
    render_once("{% for m in messages %}<{{ m.content }}>" CALLS "{% endfor %}", chat, "<q><>");
    render_once("{% for m in messages %}{% if m.content is none %}null{% endif %}" CALLS
                "{% endfor %}",
                chat, "null");
    render_once("{% for m in messages %}{{ 'None' if m.content is none }}None" CALLS "{% endfor %}",
                chat, "NoneNoneNone");
}

// OpenAI's API lets an assistant leave out the content. As in transformers, a template that can
// read such a message sees it unchanged; others see null or an empty text.
static void test_content_that_is_left_out(void **state) {
    (void)state;
    static const char calls[] =
        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"tool_calls\": "
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}]";
    static const char thought[] = "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
                                  "\"assistant\", \"reasoning_content\": \"r\"}]";
    static const char *const chats[] = {calls, thought};
    for (size_t i = 0; i < ARRAY_LEN(chats); i++) {
        render_once("{% for m in messages %}{{ '<' + m['content'] + '>' }}" CALLS "{% endfor %}",
                    chats[i], "<q><>");
        render_once("{% for m in messages %}{{ m.content | trim }};" CALLS "{% endfor %}", chats[i],
                    "q;;");
        render_once("{% for m in messages %}{{ m.get('content') }};" CALLS "{% endfor %}", chats[i],
                    "q;;");
        render_once("{% for m in messages %}{% if m.content is defined %}{{ m.content }}"
                    "{% else %}none{% endif %}" CALLS "{% endfor %}",
                    chats[i], "qnone");
        render_once("{% for m in messages %}{% if m.content is none %}null{% else %}"
                    "{{ m.content + '' }}{% endif %}" CALLS "{% endfor %}",
                    chats[i], "qnull");
    }
    // Messages with and without tool calls are probed separately.
    static const char source[] =
        "{% for m in messages %}{% if not m.tool_calls %}{{ '<' + m.content + '>' }}{% else %}"
        "{{ m.content is defined }}{% endif %}" CALLS "{% endfor %}";
    render_once(source, calls, "<q>False");
    render_once(source, thought, "<q><>");
    // A template that fails without tools is probed with a tool.
    render_once(
        "{% for t in tools %}{{ t.x or t.function.name }}{% endfor %}{% for m in messages %}"
        "{{ '<' + m.content + '>' }}{% endfor %}",
        "{\"messages\": [{\"role\": \"assistant\"}], \"tools\": [{\"x\": 1}]}", "1<>");
    // A message that a template refuses with any content stays refused.
    struct chat_template *chat_template =
        open_source("{% if messages|length > 1 %}{{ raise_exception('one message') }}{% endif %}");
    refused(chat_template, calls, "one message");
    chat_template_close(chat_template);
}

// A template that appends them to a text gets text, others an object.
static void test_arguments_that_are_text(void **state) {
    (void)state;
    static const char source[] =
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
        "{{ '<' + c.function.arguments + '>' }}{% endfor %}" CALLS "{% endfor %}";
    static const char *const cases[][2] = {
        {"\"arguments\": \"{\\\"a\\\":  1}\"", "<{\"a\":  1}>"},
        {"\"arguments\": {\"a\": [1]}", "<{\"a\": [1]}>"},
        {"\"arguments\": \"\"", "<{}>"},
        {"\"name\": \"f\"", "<{}>"},
        {"\"arguments\": \"no JSON\"", "<no JSON>"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char chat[200];
        snprintf(chat, sizeof chat,
                 "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {%s}}]}]",
                 cases[i][0]);
        render_once(source, chat, cases[i][1]);
    }
}

static void test_integers_of_any_size(void **state) {
    (void)state;
    static const char source[] =
        "{{ tools | tojson }}{% for m in messages %}{% for c in m.tool_calls %}"
        "{{ c.function.arguments | tojson }}{{ c.function.arguments.n is "
        "number }}{% endfor %}" CALLS "{% endfor %}";
    render_once(source,
                "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": "
                "{\"arguments\": \"{\\\"n\\\": -99999999999999999999}\"}}]}], \"tools\": "
                "[{\"maximum\": 18446744073709551615, \"step\": 0.1}]}",
                "[{\"maximum\": 18446744073709551615, \"step\": 0.1}]"
                "{\"n\": -99999999999999999999}True");
    struct chat_template *chat_template = open_source("{{ messages[0].x + 1 }}");
    refused(chat_template, "[{\"role\": \"user\", \"content\": \"\", \"x\": 99999999999999999999}]",
            "an integer beyond 64 bits can only be printed and compared");
    static const struct {
        const char *chat, *sentence;
    } bad[] = {
        {"99999999999999999999", "the chat is an integer beyond 64 bits"},
        {"[99999999999999999999]", "messages[0] is an integer beyond 64 bits, want an object"},
        {"[{\"role\": \"user\", \"content\": 99999999999999999999}]",
         "messages[0].content is an integer beyond 64 bits"},
        {"{\"messages\": [], \"tools\": [99999999999999999999]}",
         "tools[0] is an integer beyond 64 bits"},
        {"{\"messages\": [], \"chat_template_kwargs\": 99999999999999999999}",
         "\"chat_template_kwargs\" is an integer beyond 64 bits"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        refused(chat_template, bad[i].chat, bad[i].sentence);
    }
    chat_template_close(chat_template);
}

// `count` times `unit` between two texts; the caller frees the result.
static char *repeated(const char *before, const char *unit, size_t count, const char *after) {
    struct buf text = {0};
    assert_int_equal(buf_append_str(&text, before, NULL), OK);
    for (size_t i = 0; i < count; i++) assert_int_equal(buf_append_str(&text, unit, NULL), OK);
    assert_int_equal(buf_append_str(&text, after, NULL), OK);
    return text.data;
}

static void test_bounds_of_a_chat(void **state) {
    (void)state;
    static const char user[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [";
    static const char call[] = "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": "
                               "{\"arguments\": \"{\\\"a\\\": [";
    struct chat_template *chat_template = open_source("{{ messages }}");
    static const struct {
        const char *before, *unit;
        size_t count;
        const char *after, *sentence;
    } cases[] = {
        {user, "{\"a\":", 2040, "", "the chat is nested deeper than 64 levels"},
        {user, "{},", 1000000, "{}]}", "the chat has too many small values"},
        {call, "[", 70, "\"}}]}]", "the text of a tool call's arguments is nested deeper than 64"},
        {call, "{},", 1000000, "{}]}\"}}]}]", "tool call's arguments has too many small values"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *chat = repeated(cases[i].before, cases[i].unit, cases[i].count, cases[i].after);
        refused(chat_template, chat, cases[i].sentence);
        free(chat);
    }
    chat_template_close(chat_template);
}

static void test_tool_calls(void **state) {
    (void)state;
    static const char source[] =
        "{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}"
        "{{ c.function.arguments }};{% endfor %}{% else %}none;{% endif %}" CALLS "{% endfor %}";
    struct chat_template *chat_template = open_source(source);
    static const char call[] = "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
                               "[{\"type\": \"function\", \"function\": {\"name\": \"f\"%s}}]}";
    static const struct {
        const char *arguments, *want;
    } cases[] = {
        {", \"arguments\": \"{\\\"a\\\": [1, 2.5]}\"", "{'a': [1, 2.5]};"},
        {", \"arguments\": {\"a\": 1}", "{'a': 1};"},
        {", \"arguments\": \"\"", "{};"},
        {", \"arguments\": null", "{};"},
        {"", "{};"},
        {", \"arguments\": \"[1]\"", "[1];"},
        {", \"arguments\": \"{oops\"", "{oops;"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char message[400], chat[500];
        snprintf(message, sizeof message, call, cases[i].arguments);
        snprintf(chat, sizeof chat, "[%s]", message);
        expect(chat_template, chat, cases[i].want);
    }
    expect(chat_template,
           "[{\"role\": \"assistant\", \"tool_calls\": []}, {\"role\": \"assistant\", "
           "\"content\": \"x\", \"tool_calls\": null}]",
           "none;none;");
    chat_template_close(chat_template);
}

// Prints messages of users and assistants, and of the system; as Qwen's template nothing else.
static const char qwen_like[] =
    "{% for m in messages %}{% if m.role in ['user', 'assistant', 'system'] %}"
    "{{ m.role[0] + '<' + m.content + '>' }}{% endif %}{% endfor %}";

// What OpenAI's API calls developer is the system to a template that does not know the word.
static void test_role_developer(void **state) {
    (void)state;
    static const char chat[] = "[{\"role\": \"developer\", \"content\": \"Be brief.\"}, "
                               "{\"role\": \"user\", \"content\": \"q\"}]";
    render_once(qwen_like, chat, "s<Be brief.>u<q>");
    render_once("{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}", chat,
                "dBe brief.;uq;");
    render_once("{% for m in messages %}{% if m.role == 'developer' %}{{ raise_exception('no') }}"
                "{% endif %}{{ m.role[0] }}{{ m.content }};{% endfor %}",
                chat, "sBe brief.;uq;");
}

// No message is lost in silence.
static void test_messages_that_are_left_out(void **state) {
    (void)state;
    struct chat_template *chat_template = open_source(qwen_like);
    static const char foreign[] = "[{\"role\": \"user\", \"content\": \"q\"}, "
                                  "{\"role\": \"critic\", \"content\": \"Too long.\"}]";
    refused(chat_template, foreign,
            "the chat template leaves out messages[1], whose role is \"critic\"");
    refused(chat_template,
            "[{\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": "
            "\"5\"}]}, {\"role\": \"user\", \"content\": \"q\"}]",
            "leaves out messages[0], whose role is \"tool\"");
    // Nothing is lost of a message without a text.
    expect(chat_template,
           "[{\"role\": \"user\", \"content\": \"q\"}, "
           "{\"role\": \"critic\", \"content\": \" \"}]",
           "u<q>");
    chat_template_close(chat_template);
    // Only a system message in the first place, as gpt-oss' template.
    chat_template = open_source("{% for m in messages %}{% if m.role == 'user' or loop.first %}"
                                "{{ m.content }};{% endif %}{% endfor %}");
    static const char system[] = "{\"role\": \"system\", \"content\": \"s\"}";
    static const char user[] = "{\"role\": \"user\", \"content\": \"q\"}";
    char chat[200];
    snprintf(chat, sizeof chat, "[%s, %s]", system, user);
    expect(chat_template, chat, "s;q;");
    snprintf(chat, sizeof chat, "[%s, %s]", user, system);
    refused(chat_template, chat, "leaves out messages[1], whose role is \"system\"");
    chat_template_close(chat_template);
}

// Codex sends its instructions and a developer's message. gpt-oss' template prints the first
// message, Qwen3.5's refuses a second one, DeepSeek-R1's distilled ones print the last.
static void test_several_messages_of_the_system(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{{ messages[0].content }};{% for m in messages[1:] %}{% if m.role == 'user' %}"
        "{{ m.content }};{% endif %}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('not the first') }}{% endif %}{{ m.content }};{% endfor %}",
        "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}"
        "{% set ns.s = m.content %}{% endif %}{% endfor %}{{ ns.s }};"
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }};{% endif %}{% endfor %}"};
    static const char chat[] = "[{\"role\": \"system\", \"content\": \"a\"}, "
                               "{\"role\": \"developer\", \"content\": \"b\"}, "
                               "{\"role\": \"user\", \"content\": \"q\"}]";
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) render_once(sources[i], chat, "a\n\nb;q;");
    // As they are for a template that prints all.
    render_once(qwen_like, chat, "s<a>s<b>u<q>");
    // Places are those of the caller's chat.
    struct chat_template *chat_template = open_source(sources[0]);
    refused(chat_template,
            "[{\"role\": \"system\", \"content\": \"a\"}, "
            "{\"role\": \"system\", \"content\": \"b\"}, "
            "{\"role\": \"user\", \"content\": \"q\"}, "
            "{\"role\": \"system\", \"content\": \"c\"}]",
            "leaves out messages[3], whose role is \"system\"");
    chat_template_close(chat_template);
}

// Mistral's templates show the system's message in turns that end with a user's.
static void test_system_that_is_shown_in_some_turns(void **state) {
    (void)state;
    struct chat_template *chat_template =
        open_source("{% for m in messages[1:] %}{% if m.role == 'user' and loop.last %}"
                    "{{ messages[0].content }};{% endif %}{{ m.content }};{% endfor %}");
    expect(chat_template,
           "[{\"role\": \"system\", \"content\": \"s\"}, "
           "{\"role\": \"user\", \"content\": \"q\"}]",
           "s;q;");
    expect(chat_template,
           "[{\"role\": \"system\", \"content\": \"s\"}, "
           "{\"role\": \"user\", \"content\": \"q\"}, "
           "{\"role\": \"assistant\", \"content\": \"a\"}, "
           "{\"role\": \"tool\", \"tool_call_id\": \"abcdefghi\", \"content\": \"r\"}]",
           "q;a;r;");
    chat_template_close(chat_template);
}

static void test_lists_that_are_not_read(void **state) {
    (void)state;
    struct chat_template *chat_template = open_source("{{ messages[0].content }}");
    static const char *const names[] = {"tools", "documents"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char chat[200], sentence[100];
        snprintf(sentence, sizeof sentence, "\"%s\" is a list that the chat template does not read",
                 names[i]);
        static const char format[] =
            "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"%s\": [%s]}";
        snprintf(chat, sizeof chat, format, names[i], "{}");
        refused(chat_template, chat, sentence);
        snprintf(chat, sizeof chat, format, names[i], "");
        expect(chat_template, chat, "q");
    }
    chat_template_close(chat_template);
}

// What counts is whether the prompt shows them, not that the template has the word.
static void test_tools_that_are_named_but_not_shown(void **state) {
    (void)state;
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": "
        "[{\"function\": {\"name\": \"f\"}}]}";
    static const char sentence[] = "\"tools\" is a list that the chat template does not read";
    static const char *const left_out[] = {
        "{% if xml_tools %}{{ xml_tools }}{% endif %}{{ messages[0].content }}",
        "{{ messages[0].content }}{{ messages[0].tools }}",
        "{% if tools %}{{ 'You have tools.' }}{% endif %}",
    };
    for (size_t i = 0; i < ARRAY_LEN(left_out); i++) {
        struct chat_template *chat_template = open_source(left_out[i]);
        refused(chat_template, chat, sentence);
        assert_false(chat_template_reads_tools(chat_template));
        chat_template_close(chat_template);
    }
    // SmolLM3's own variable, which takes the list. Others show tools behind a system's message.
    render_once("{% if tools %}{% set xml_tools = tools %}{% endif %}{% for t in xml_tools %}"
                "{{ t.function.name }}{% endfor %}",
                chat, "f");
    render_once(
        "{% if messages[0].role == 'system' %}{{ tools }}{% endif %}{{ messages[0].content }}",
        chat, "q");
    // One that refuses tools says why in its own words.
    struct chat_template *chat_template =
        open_source("{% if tools %}{{ raise_exception('no tools, please') }}{% endif %}q");
    refused(chat_template, chat, "no tools, please");
    chat_template_close(chat_template);
}

static void test_calls_that_are_left_out(void **state) {
    (void)state;
    static const char chat[] =
        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\", "
        "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
        "\"{}\"}}]}]";
    static const char empty[] =
        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"a\", \"tool_calls\": []}]";
    struct chat_template *chat_template =
        open_source("{% for m in messages %}{{ m.content }};{% endfor %}");
    refused(chat_template, chat,
            "the chat template leaves out the tool_calls of messages[1]: the model would not see "
            "them");
    expect(chat_template, empty, "q;a;");
    chat_template_close(chat_template);
    // Shown beside some contents is shown.
    render_once("{% for m in messages %}{% if m.content is none %}{{ m.tool_calls }}{% else %}"
                "{{ m.content }};{% endif %}{% endfor %}",
                chat, "q;a;");
}

// Texts that a template prints in another form, or in another order, are there.
static void test_texts_in_another_form(void **state) {
    (void)state;
    static const char chat[] = "[{\"role\": \"user\", \"content\": \"q\"}, "
                               "{\"role\": \"tool\", \"content\": \" a\\nb \"}, "
                               "{\"role\": \"system\", \"content\": \"s\"}]";
    render_once("{% for m in messages %}{{ m.content | tojson }}{% endfor %}", chat,
                "\"q\"\" a\\nb \"\"s\"");
    render_once("{% for m in messages | reverse %}{{ m.content | trim }};{% endfor %}", chat,
                "s;a\nb;q;");
    // A template that refuses the marks says nothing of the messages.
    render_once("{% for m in messages %}{% if 'nanovllm' in m.content %}{{ raise_exception('n') }}"
                "{% endif %}{{ m.content | tojson }}{% endfor %}",
                chat, "\"q\"\" a\\nb \"\"s\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_role_developer),
        cmocka_unit_test(test_messages_that_are_left_out),
        cmocka_unit_test(test_several_messages_of_the_system),
        cmocka_unit_test(test_system_that_is_shown_in_some_turns),
        cmocka_unit_test(test_lists_that_are_not_read),
        cmocka_unit_test(test_tools_that_are_named_but_not_shown),
        cmocka_unit_test(test_calls_that_are_left_out),
        cmocka_unit_test(test_texts_in_another_form),
        cmocka_unit_test(test_content_that_is_null),
        cmocka_unit_test(test_content_that_is_left_out),
        cmocka_unit_test(test_arguments_that_are_text),
        cmocka_unit_test(test_integers_of_any_size),
        cmocka_unit_test(test_bounds_of_a_chat),
        cmocka_unit_test(test_tool_calls),
    };
    return cmocka_run_group_tests_name("chat_forms", tests, NULL, NULL);
}
