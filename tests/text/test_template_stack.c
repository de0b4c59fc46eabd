/* NVLLM_CHAT_STACK_BYTES of stack suffice for chats, however deep JSON and templates are nested.
 * The deepest work of each kind is measured on a large stack, then done on a thread with exactly
 * that much. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "base/text/buf.h"
#include "nanovllm.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

enum { LARGE_STACK_BYTES = 4 << 20, PAINT = 0xa5 };

struct work {
    const char *path; // of the template
    const char *chat;
    char *text; // the prompt, or the error
};

static void *run(void *context) {
    struct work *work = context;
    struct nvllm_chat_template *chat_template = NULL;
    struct nvllm_error error = {0};
    size_t len = 0;
    enum nvllm_status status = nvllm_chat_template_open(&chat_template, NULL, work->path, &error);
    if (!status) {
        status = nvllm_chat_template_render(chat_template, work->chat, strlen(work->chat), NULL,
                                            &work->text, &len, &error);
    }
    nvllm_chat_template_close(chat_template);
    if (status) work->text = strdup(error.message);
    return NULL;
}

// Runs the work on a stack of `stack_bytes`; returns how many of them it touched.
static size_t run_on(struct work *work, size_t stack_bytes) {
    unsigned char *stack = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    assert_true(stack != MAP_FAILED);
    memset(stack, PAINT, stack_bytes);
    pthread_attr_t attributes;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, stack_bytes), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run, work), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    size_t untouched = 0;
    while (untouched < stack_bytes && stack[untouched] == PAINT) untouched++;
    munmap(stack, stack_bytes);
    return stack_bytes - untouched;
}

static void check(const char *source, const char *chat) {
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "t.jinja", source);
    char path[300];
    snprintf(path, sizeof path, "%s/t.jinja", folder.path);
    struct work large = {path, chat, NULL}, exact = {path, chat, NULL};
    size_t used = run_on(&large, LARGE_STACK_BYTES);
    if (used > NVLLM_CHAT_STACK_BYTES) {
        fail_msg("%.80s takes %zu bytes of stack, want at most %d", source, used,
                 NVLLM_CHAT_STACK_BYTES);
    }
    run_on(&exact, NVLLM_CHAT_STACK_BYTES);
    assert_string_equal(exact.text, large.text);
    free(large.text);
    free(exact.text);
    temp_folder_remove(&folder);
}

// parts[0], `count` times parts[1], parts[2], `count` times parts[3], parts[4]. "#" in parts[1] is
// the number of its turn. The caller frees the result.
static char *nested(const char *const parts[5], int count) {
    struct buf text = {0};
    assert_int_equal(buf_append_str(&text, parts[0], NULL), OK);
    for (int i = 0; i < count; i++) {
        size_t len = strcspn(parts[1], "#");
        assert_int_equal(buf_append(&text, parts[1], len, NULL), OK);
        if (!parts[1][len]) continue;
        assert_int_equal(buf_appendf(&text, NULL, "%d%s", i, parts[1] + len + 1), OK);
    }
    assert_int_equal(buf_append_str(&text, parts[2], NULL), OK);
    for (int i = 0; i < count; i++) assert_int_equal(buf_append_str(&text, parts[3], NULL), OK);
    assert_int_equal(buf_append_str(&text, parts[4], NULL), OK);
    return text.data;
}

static const char hi[] = "[{\"role\": \"user\", \"content\": \"x\"}]";

// The deepest templates that parse have 195 levels or a few less; deeper ones are refused.
static void test_sources_that_are_nested_deep(void **state) {
    (void)state;
    static const char *const kinds[][5] = {
        {"{{ ", "(", "1", ")", " }}"},
        {"{{ ", "{1: ", "1", "}", " }}"},
        {"{{ ", "not ", "1", "", " }}"},
        {"{{ ", "1 if ", "1", " else 2", " }}"},
        {"{{ ", "dict(a=", "1", ")", " }}"},
        {"{{ ", "[1][", "0", "]", " }}"},
        {"{{ ", "(1 ~ ", "0", ")", " }}"},
        {"{{ ", "(1 is eq ", "0", ")", " }}"},
        {"{{ ", "('a'|replace(", "'a'", ", 'b'))", " }}"},
        {"{{ ", "(2.5|round(", "1", "|int))", " }}"},
        {"{{ ", "'%.500f'|format(", "1", "|float)|float", " }}"},
        {"{{ ", "([1]|map('int', ", "1", ")|list|length)", " }}"},
        {"{{ 1", "|abs", "", "", " }}"},
        {"", "{% if 1 %}", "x", "{% endif %}", ""},
        {"", "{% for x in [1] %}", "x", "{% endfor %}", ""},
        {"", "{% filter upper %}", "x", "{% endfilter %}", ""},
        {"", "{% block b# %}", "x", "{% endblock %}", ""},
        {"", "{% macro m() %}", "x", "{% endmacro %}{{ m() }}", ""},
        {"{% macro m() %}{{ caller() }}{% endmacro %}", "{% call m() %}", "x", "{% endcall %}", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        for (int count = 95; count <= 1000; count += count < 195 ? 25 : 805) {
            char *source = nested(kinds[i], count);
            check(source, hi);
            free(source);
        }
    }
}

static void test_renders_that_go_deep(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% call m() %}{{ m() }}{% endcall %}{% endmacro %}{{ m() }}",
        "{% macro m(x=m()) %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ 'a'.replace('a', [m(), 1][m()]) }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ (([m()])|map('upper')|list)|join }}{% endmacro %}{{ m() }}",
        "{% macro m(f) %}{% filter upper %}{{ f(f)|center(9) }}{% endfilter %}{% endmacro %}"
        "{{ m(m) }}",
        "{% macro m() %}{{ m() ~ ','.join([m()]) }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ ('%s' % m()) ~ '{}'.format(m()) }}{% endmacro %}{{ m() }}",
        "{% block a %}{% set x %}{{ self.a() }}{% endset %}{% endblock %}",
        "{% for x in [[[]]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    };
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) check(sources[i], hi);
}

static void test_values_that_are_nested_deep(void **state) {
    (void)state;
    static const char make[] =
        "{% set ns = namespace(x=[], y=[]) %}{% for i in range(2000) %}{% set ns.x = {'a': [ns.x]} "
        "%}{% set ns.y = {'a': [ns.y]} %}{% endfor %}";
    static const char *const uses[] = {
        "{{ ns.x }}",         "{{ ns.x|tojson }}",    "{{ ns.x|string }}",
        "{{ ns.x == ns.y }}", "{{ ns.x in [ns.y] }}", "{{ [[ns.x], [ns.y]]|sort }}",
        "{{ ns }}",           "{{ '%r' % ns }}",      "{{ '{!r:{}}'.format(ns.x, 9) }}"};
    for (size_t i = 0; i < ARRAY_LEN(uses); i++) {
        char source[400];
        snprintf(source, sizeof source, "%s%s", make, uses[i]);
        check(source, hi);
    }
}

static void test_json_that_is_nested_deep(void **state) {
    (void)state;
    static const char *const kinds[][5] = {
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"a\": ",
         "{\"a\": [", "99999999999999999999", "]}", "}]}"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"arguments\": "
         "\"{\\\"a\\\": ",
         "[", "99999999999999999999", "]", "}\"}}]}]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        for (int count = 30; count <= 2040; count = count == 30 ? 60 : 2 * count) {
            char *chat = nested(kinds[i], count);
            check("{{ tools|tojson }}{{ tools|string }}{{ messages }}", chat);
            free(chat);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources_that_are_nested_deep),
        cmocka_unit_test(test_renders_that_go_deep),
        cmocka_unit_test(test_values_that_are_nested_deep),
        cmocka_unit_test(test_json_that_is_nested_deep),
    };
    return cmocka_run_group_tests_name("template_stack", tests, NULL, NULL);
}
