// A chat's messages and its files: what is saved is loaded, nothing is overwritten unasked, and the
// history keeps its newest entries.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/file.h"
#include "cmd/chat/editor.h"
#include "cmd/chat/messages.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

struct fixture {
    struct temp_folder folder;
    char path[256]; // of a file in it that does not exist yet
};

static int create_folder(void **state) {
    static struct fixture fixture;
    temp_folder_create(&fixture.folder);
    snprintf(fixture.path, sizeof fixture.path, "%s/chat.json", fixture.folder.path);
    *state = &fixture;
    return 0;
}

static int remove_folder(void **state) {
    struct fixture *fixture = *state;
    temp_folder_remove(&fixture->folder);
    return 0;
}

static void add(struct chat_messages *messages, const char *role, const char *text) {
    struct err err = {0};
    assert_int_equal(chat_messages_add(messages, role, text, strlen(text), &err), OK);
}

static void expect_text(const struct chat_messages *messages, const char *wanted) {
    struct buf text = {0};
    struct err err = {0};
    assert_int_equal(chat_messages_text(messages, &text, &err), OK);
    assert_string_equal(text.data, wanted);
    buf_fini(&text);
}

static void expect_content(const char *path, const char *wanted) {
    struct buf text = {0};
    struct err err = {0};
    assert_int_equal(file_read(&text, path, &err), OK);
    assert_string_equal(text.data, wanted);
    buf_fini(&text);
}

static void test_system_prompt_is_the_first_message(void **state) {
    (void)state;
    struct chat_messages messages;
    struct err err = {0};
    assert_int_equal(chat_messages_init(&messages, &err), OK);
    assert_null(chat_messages_system(&messages));
    add(&messages, "user", "a");
    assert_int_equal(chat_messages_set_system(&messages, "one", 3, &err), OK);
    assert_int_equal(chat_messages_set_system(&messages, "two", 3, &err), OK);
    assert_string_equal(chat_messages_system(&messages), "two");
    expect_text(&messages, "{\"messages\":[{\"role\":\"system\",\"content\":\"two\"},"
                           "{\"role\":\"user\",\"content\":\"a\"}]}");
    chat_messages_clear(&messages);
    expect_text(&messages, "{\"messages\":[{\"role\":\"system\",\"content\":\"two\"}]}");
    assert_int_equal(chat_messages_set_system(&messages, NULL, 0, &err), OK);
    assert_int_equal(chat_messages_set_system(&messages, NULL, 0, &err), OK);
    expect_text(&messages, "{\"messages\":[]}");
    chat_messages_fini(&messages);
}

static void test_saved_messages_are_loaded(void **state) {
    const struct fixture *fixture = *state;
    struct chat_messages messages, loaded = {0};
    struct err err = {0};
    assert_int_equal(chat_messages_init(&messages, &err), OK);
    assert_int_equal(chat_messages_add(&messages, "user", "a\0\"\xc3\xa4\n", 6, &err), OK);
    json_t *kwargs = json_pack("{s:b}", "enable_thinking", 0);
    assert_int_equal(chat_messages_set_kwargs(&messages, kwargs, &err), OK);
    assert_int_equal(chat_messages_save(&messages, fixture->path, false, &err), OK);
    assert_int_equal(chat_messages_load(&loaded, fixture->path, &err), OK);
    assert_true(json_equal(loaded.root, messages.root));
    json_decref(kwargs);
    chat_messages_fini(&messages);
    chat_messages_fini(&loaded);
}

static void test_template_variables_of_the_command_line_win(void **state) {
    const struct fixture *fixture = *state;
    temp_folder_write_text(&fixture->folder, "chat.json",
                           "{\"messages\": [], \"add_generation_prompt\": true,"
                           " \"chat_template_kwargs\": {\"a\": 1, \"b\": 2}}");
    struct chat_messages messages = {0};
    struct err err = {0};
    assert_int_equal(chat_messages_load(&messages, fixture->path, &err), OK);
    json_t *kwargs = json_pack("{s:i}", "b", 3);
    assert_int_equal(chat_messages_set_kwargs(&messages, kwargs, &err), OK);
    expect_text(&messages, "{\"messages\":[],\"chat_template_kwargs\":{\"a\":1,\"b\":3}}");
    json_decref(kwargs);
    chat_messages_fini(&messages);
}

static void expect_load_fault(const struct fixture *fixture, const char *text, const char *fault) {
    temp_folder_write_text(&fixture->folder, "chat.json", text);
    struct chat_messages messages;
    struct err err = {0};
    assert_int_equal(chat_messages_init(&messages, &err), OK);
    add(&messages, "user", "kept");
    assert_int_equal(chat_messages_load(&messages, fixture->path, &err), ERR_FORMAT);
    if (!strstr(err.message, fault)) fail_msg("%s, want: %s", err.message, fault);
    assert_int_equal(chat_messages_count(&messages), 1);
    chat_messages_fini(&messages);
}

static void test_load_faults_are_named_and_change_nothing(void **state) {
    const struct fixture *fixture = *state;
    expect_load_fault(fixture, "{", "chat.json");
    expect_load_fault(fixture, "3", "holds no conversation");
    expect_load_fault(fixture, "{}", "holds no conversation");
    expect_load_fault(fixture, "{\"messages\": {}}", "holds no conversation");
    expect_load_fault(fixture, "[7]", "message 0 is an integer, want an object");
    expect_load_fault(fixture, "[{\"role\": \"user\"}, {\"role\": 1}]",
                      "message 1 has no \"role\" that is a string");
}

static void test_list_of_messages_is_loaded(void **state) {
    const struct fixture *fixture = *state;
    temp_folder_write_text(&fixture->folder, "chat.json",
                           "[{\"role\": \"user\", \"content\": \"a\"}]");
    struct chat_messages messages = {0};
    struct err err = {0};
    assert_int_equal(chat_messages_load(&messages, fixture->path, &err), OK);
    assert_string_equal(chat_messages_last_role(&messages), "user");
    add(&messages, "assistant", "b");
    assert_string_equal(chat_messages_last_role(&messages), "assistant");
    chat_messages_fini(&messages);
}

static void test_files_are_replaced_only_when_asked(void **state) {
    const struct fixture *fixture = *state;
    const char *path = fixture->path;
    struct err err = {0};
    assert_int_equal(chat_file_write(path, "one", 3, false, &err), OK);
    assert_int_equal(chat_file_write(path, "two", 3, false, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "chat.json exists"));
    expect_content(path, "one");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(chat_file_write(path, "three", 5, true, &err), OK);
    expect_content(path, "three");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

static void test_links_are_followed(void **state) {
    const struct fixture *fixture = *state;
    char link[256];
    snprintf(link, sizeof link, "%s/link", fixture->folder.path);
    temp_folder_write_text(&fixture->folder, "chat.json", "one");
    assert_int_equal(symlink("chat.json", link), 0);
    struct err err = {0};
    assert_int_equal(chat_file_write(link, "two", 3, true, &err), OK);
    expect_content(fixture->path, "two");
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

static void test_no_file_is_left_where_writing_fails(void **state) {
    const struct fixture *fixture = *state;
    struct err err = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/none/chat.json", fixture->folder.path);
    assert_int_equal(chat_file_write(path, "x", 1, false, &err), ERR_IO);
    assert_int_equal(chat_file_write("/dev/null", "x", 1, true, &err), ERR_INVALID);
    assert_string_equal(err.message, "/dev/null is not a regular file");
}

struct entries {
    size_t count;
    char first[64], last[64];
};

static enum status take_entry(void *user_data, const char *entry, size_t len, struct err *err) {
    (void)err;
    struct entries *entries = user_data;
    assert_int_equal(strlen(entry), len);
    char *copy = entries->count++ ? entries->last : entries->first;
    snprintf(copy, sizeof entries->first, "%s", entry);
    return OK;
}

static struct entries load_history(const char *path) {
    struct entries entries = {0};
    struct err err = {0};
    assert_int_equal(chat_history_load(path, take_entry, &entries, &err), OK);
    return entries;
}

static void append(const char *path, const char *entry) {
    struct err err = {0};
    assert_int_equal(chat_history_append(path, entry, strlen(entry), &err), OK);
}

static void test_history_keeps_entries_as_they_are(void **state) {
    const struct fixture *fixture = *state;
    assert_int_equal(load_history(fixture->path).count, 0);
    append(fixture->path, "two\nlines \\n and \\");
    append(fixture->path, "\xe4\xbd\xa0\xe5\xa5\xbd");
    struct entries entries = load_history(fixture->path);
    assert_int_equal(entries.count, 2);
    assert_string_equal(entries.first, "two\nlines \\n and \\");
    assert_string_equal(entries.last, "\xe4\xbd\xa0\xe5\xa5\xbd");
    struct stat info;
    assert_int_equal(stat(fixture->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void test_history_is_bounded(void **state) {
    const struct fixture *fixture = *state;
    char entry[32];
    for (int i = 0; i < CHAT_HISTORY_ENTRIES_MAX + 5; i++) {
        snprintf(entry, sizeof entry, "entry %d", i);
        append(fixture->path, entry);
    }
    for (int i = 0; i < 2; i++) { // the second round reads the shortened file
        struct entries entries = load_history(fixture->path);
        assert_int_equal(entries.count, CHAT_HISTORY_ENTRIES_MAX);
        assert_string_equal(entries.first, "entry 5");
        assert_string_equal(entries.last, "entry 1004");
    }
    static char large[CHAT_HISTORY_ENTRY_BYTES_MAX + 2];
    memset(large, 'x', sizeof large - 1);
    append(fixture->path, large);
    assert_string_equal(load_history(fixture->path).last, "entry 1004");
}

static void test_history_that_was_damaged_is_read_past(void **state) {
    const struct fixture *fixture = *state;
    temp_folder_write(&fixture->folder, "chat.json", "a\n\n\xff\xfe\n\0\0\nb", 10);
    struct entries entries = load_history(fixture->path);
    assert_int_equal(entries.count, 2);
    assert_string_equal(entries.last, "b");
}

static void expect_history_path(const char *state_home, const char *home, const char *wanted) {
    char path[FILE_PATH_MAX];
    struct err err = {0};
    assert_int_equal(chat_history_path(path, sizeof path, state_home, home, &err), OK);
    assert_string_equal(path, wanted);
}

static void test_history_path(void **state) {
    const struct fixture *fixture = *state;
    const char *base = fixture->folder.path;
    char in_state[256], in_home[256], folder[256];
    snprintf(in_state, sizeof in_state, "%s/nanovllm/chat_history", base);
    snprintf(in_home, sizeof in_home, "%s/.local/state/nanovllm/chat_history", base);
    expect_history_path(base, "/nowhere", in_state);
    expect_history_path(NULL, base, in_home);
    expect_history_path("", base, in_home);
    expect_history_path("relative", base, in_home);
    expect_history_path(NULL, NULL, "");
    append(in_home, "the folder is there");
    unlink(in_home);
    const char *made[] = {"nanovllm", ".local/state/nanovllm", ".local/state", ".local"};
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        snprintf(folder, sizeof folder, "%s/%s", base, made[i]);
        assert_int_equal(rmdir(folder), 0);
    }
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, create_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_system_prompt_is_the_first_message),
        IN_FOLDER(test_saved_messages_are_loaded),
        IN_FOLDER(test_template_variables_of_the_command_line_win),
        IN_FOLDER(test_load_faults_are_named_and_change_nothing),
        IN_FOLDER(test_list_of_messages_is_loaded),
        IN_FOLDER(test_files_are_replaced_only_when_asked),
        IN_FOLDER(test_links_are_followed),
        IN_FOLDER(test_no_file_is_left_where_writing_fails),
        IN_FOLDER(test_history_keeps_entries_as_they_are),
        IN_FOLDER(test_history_is_bounded),
        IN_FOLDER(test_history_that_was_damaged_is_read_past),
        IN_FOLDER(test_history_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
