// Every allocation of finding a chat template and rendering a chat failing in turn: ERR_NOMEM,
// nothing leaked.
#include <string.h>

#include "base/json/jread.h"
#include "support/alloc_hook.h"
#include "support/chat_fixture.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "text/chat/chat.h"

static const char config[] =
    "{\"model_max_length\": 1000000000000000019884624838656, \"bos_token\": {\"content\": "
    "\"<s>\"}, \"additional_special_tokens\": [\"<a>\", {\"content\": \"<b>\"}], "
    "\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ bos_token }}{% for m in "
    "messages %}{{ m.content + '' }}{% endfor %}{% if documents %}{% endif %}\"}, {\"name\": "
    "\"tool_use\", \"template\": "
    "\"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}{% for c in "
    "m.tool_calls or [] %}{{ c.function.arguments | tojson }}{{ c.function.name }}{% endfor %}{% "
    "endfor %}{% for t in "
    "tools %}{{ t.function.name if t is mapping }}{% endfor %}\"}]}";

static const char chat[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
    "{\"type\": \"text\", \"text\": \"b\"}]}, {\"role\": \"assistant\", \"content\": \"c\"}], "
    "\"chat_template_kwargs\": {\"x\": 1}, \"documents\": [{}], \"continue_final_message\": true, "
    "\"now\": \"2026-01-02T03:04:05Z\"}";

static const char tool_chat[] =
    "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"arguments\": "
    "\"{\\\"a\\\": [1, 2]}\"}}, {\"function\": {}}]}, {\"role\": \"user\", \"content\": \"x\"}], "
    "\"tools\": [{\"function\": {}}]}";

static const char variables[] = "{\"messages\": [{\"content\": \"x\"}], \"tools\": [1]}";

static enum status render(const struct chat_template *chat_template, const char *text,
                          const char *want, struct err *err) {
    struct buf out = {0};
    enum status status = chat_template_render(chat_template, text, strlen(text), NULL, &out, err);
    if (!status) assert_string_equal(out.data, want);
    buf_fini(&out);
    return status;
}

static enum status render_parsed(const struct chat_template *chat_template, const char *text,
                                 const char *want, struct err *err) {
    struct buf out = {0};
    json_t *tree = NULL;
    enum status status = jread_request(&tree, text, strlen(text), "the chat", err);
    if (!status) {
        status = chat_template_render_json(chat_template, tree, 1 << 20, NULL, &out, err);
    }
    if (!status) assert_string_equal(out.data, want);
    json_decref(tree);
    buf_fini(&out);
    return status;
}

static enum status open_and_render(void *context, struct err *err) {
    const struct temp_folder *folder = context;
    struct chat_template *chat_template = NULL;
    enum status status = open_template(&chat_template, folder->path, NULL, err);
    if (!status) status = render(chat_template, chat, "<s>a\nbc", err);
    if (!status) status = render(chat_template, tool_chat, "{\"a\": [1, 2]}{}x", err);
    if (!status) status = render_parsed(chat_template, chat, "<s>a\nbc", err);
    if (!status) status = render_parsed(chat_template, tool_chat, "{\"a\": [1, 2]}{}x", err);
    if (!status) {
        struct buf out = {0};
        status = chat_template_render_raw(chat_template, variables, sizeof variables - 1, NULL,
                                          &out, err);
        buf_fini(&out);
    }
    chat_template_close(chat_template);
    return status;
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "tokenizer_config.json", config);
    temp_folder_write_text(&folder, "special_tokens_map.json", "{\"eos_token\": \"</s>\"}");
    const struct alloc_sweep sweep = {.work = open_and_render, .context = &folder};
    assert_true(alloc_sweep_run(&sweep) > 100);
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
    return cmocka_run_group_tests_name("chat_template_faults", tests, NULL, NULL);
}
