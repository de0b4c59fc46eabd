// Each allocation of a chat's messages, entries and history fails in turn: an error, no leak, and
// the conversation stays as it was.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/chat/command.h"
#include "cmd/chat/editor.h"
#include "cmd/chat/messages.h"
#include "cmd/chat/session.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static void sweep(alloc_sweep_fn work, void *context) {
    const struct alloc_sweep all = {.work = work, .context = context};
    assert_true(alloc_sweep_run(&all) > 0);
}

static void temp_path(char *path, size_t size, const char *name) {
    snprintf(path, size, "%s/test_chat_faults.%ld.%s", P_tmpdir, (long)getpid(), name);
}

static enum status talk(void *context, struct err *err) {
    (void)context;
    struct chat_messages messages = {0};
    enum status status = chat_messages_init(&messages, err);
    if (!status) status = chat_messages_add(&messages, "user", "a question", 10, err);
    if (!status) {
        // 8 is jansson's first size of a list: the later ones make it grow.
        for (int i = 0; i < 20 && !status; i++) {
            size_t before = chat_messages_count(&messages);
            status = chat_messages_add(&messages, "assistant", "an answer", 9, err);
            assert_int_equal(chat_messages_count(&messages), before + !status);
        }
    }
    if (!status) status = chat_messages_set_system(&messages, "be brief", 8, err);
    if (!status) assert_string_equal(chat_messages_system(&messages), "be brief");
    struct buf text = {0};
    if (!status) status = chat_messages_text(&messages, &text, err);
    if (!status) assert_non_null(strstr(text.data, "{\"role\":\"system\",\"content\":\"be"));
    buf_fini(&text);
    chat_messages_fini(&messages);
    return status;
}

// Template variables, then one more.
static enum status set_variables(void *context, struct err *err) {
    json_t *const *kwargs = context;
    struct chat_messages messages = {0};
    struct buf text = {0};
    enum status status = chat_messages_init(&messages, err);
    if (!status) status = chat_messages_set_kwargs(&messages, kwargs[0], err);
    if (!status) status = chat_messages_set_kwargs(&messages, kwargs[1], err);
    if (!status) status = chat_messages_text(&messages, &text, err);
    if (!status) {
        assert_non_null(strstr(text.data, "{\"first\":1,\"second\":2,\"third\":true}"));
    }
    buf_fini(&text);
    chat_messages_fini(&messages);
    return status;
}

static enum status load(void *context, struct err *err) {
    const char *path = context;
    struct chat_messages messages = {0};
    enum status status = chat_messages_load(&messages, path, err);
    if (!status) assert_int_equal(chat_messages_count(&messages), 1);
    if (!status) status = chat_messages_save(&messages, path, true, err);
    chat_messages_fini(&messages);
    return status;
}

static enum status enter(void *context, struct err *err) {
    (void)context;
    struct chat_entry entry = {0};
    enum status status = chat_entry_add(&entry, "a line\xff\\", 8, err);
    if (!status) status = chat_entry_add(&entry, "another", 7, err);
    if (!status) assert_int_equal(entry.text.len, 17);
    chat_entry_fini(&entry);
    return status;
}

static enum status count_entry(void *user_data, const char *entry, size_t len, struct err *err) {
    (void)entry, (void)len, (void)err;
    ++*(int *)user_data;
    return OK;
}

static enum status remember(void *context, struct err *err) {
    const char *path = context;
    unlink(path);
    int count = 0;
    enum status status = chat_history_append(path, "one\\\ntwo", 8, err);
    if (!status) status = chat_history_load(path, count_entry, &count, err);
    if (!status) assert_int_equal(count, 1);
    return status;
}

static enum status print(void *context, struct err *err) {
    (void)context;
    struct chat_output output = {.color = true, .terminal = true};
    chat_output_begin(&output);
    enum status status = chat_output_piece(&output, "a\033b", 3, true, err);
    if (!status) status = chat_output_piece(&output, "said", 4, false, err);
    if (!status) {
        assert_string_equal(output.text.data, "\033[2ma\xef\xbf\xbd"
                                              "b\033[0msaid");
    }
    buf_fini(&output.text);
    return status;
}

static void test_messages(void **state) {
    (void)state;
    sweep(talk, NULL);
    sweep(enter, NULL);
    sweep(print, NULL);
}

static void test_variables(void **state) {
    (void)state;
    json_t *kwargs[2] = {json_pack("{s:i s:i}", "first", 1, "second", 2),
                         json_pack("{s:b}", "third", 1)};
    assert_true(kwargs[0] && kwargs[1]);
    sweep(set_variables, kwargs);
    json_decref(kwargs[0]);
    json_decref(kwargs[1]);
}

static void test_files(void **state) {
    (void)state;
    char path[256];
    temp_path(path, sizeof path, "json");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("[{\"role\": \"user\", \"content\": \"a\"}]", file);
    fclose(file);
    sweep(load, path);
    unlink(path);
    temp_path(path, sizeof path, "history");
    sweep(remember, path);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
