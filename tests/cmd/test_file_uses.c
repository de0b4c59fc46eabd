// Two names of one file are found before either is opened for writing: paths, links, and names of
// files that are not there yet.
#include "cmd/model/file_uses.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

static struct temp_folder folder;

static int enter_folder(void **state) {
    (void)state;
    temp_folder_create(&folder);
    temp_folder_write(&folder, "file", "text", 4);
    return chdir(folder.path);
}

static int leave_folder(void **state) {
    (void)state;
    int failed = chdir("/");
    temp_folder_remove(&folder);
    return failed;
}

static enum status check(const char *first, bool first_written, const char *second) {
    const struct file_use uses[] = {
        {"--first", first, first_written}, {"--unused", NULL, true}, {"--second", second, true}};
    struct err err = {0};
    enum status status = file_uses_check(uses, ARRAY_LEN(uses), &err);
    if (status) {
        char want[256];
        snprintf(want, sizeof want, "--first %s and --second %s are the same file", first, second);
        assert_string_equal(err.message, want);
    }
    return status;
}

static void test_names_of_a_file_that_is_there(void **state) {
    (void)state;
    assert_int_equal(symlink("file", "link"), 0);
    assert_int_equal(link("file", "hard"), 0);
    assert_int_equal(mkdir("folder", 0700), 0);
    const char *const names[] = {"file", "./file", "folder/../file", "link", "hard"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_int_equal(check("file", true, names[i]), ERR_INVALID);
        assert_int_equal(check("file", false, names[i]), ERR_INVALID);
        assert_int_equal(check(names[i], true, "file"), ERR_INVALID);
        assert_int_equal(check(names[i], true, "other"), OK);
    }
    unlink("link");
    unlink("hard");
    rmdir("folder");
}

static void test_names_of_a_file_to_be(void **state) {
    (void)state;
    assert_int_equal(symlink("new", "link"), 0);
    assert_int_equal(symlink("./link", "chain"), 0);
    assert_int_equal(symlink("loop", "loop"), 0);
    char absolute[sizeof folder.path + 8];
    snprintf(absolute, sizeof absolute, "%s/new", folder.path);
    const char *const names[] = {"new", "./new", "link", "chain", absolute};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_int_equal(check("new", true, names[i]), ERR_INVALID);
        assert_int_equal(check(names[i], true, "news"), OK);
    }
    assert_int_equal(access("new", F_OK), -1); // the check made no file
    assert_int_equal(check("loop", true, "loop"), OK); // opening it fails with a reason
    assert_int_equal(check("nowhere/new", true, "nowhere/new"), OK);
    unlink("link");
    unlink("chain");
    unlink("loop");
}

static void test_what_may_be_named_twice(void **state) {
    (void)state;
    assert_int_equal(check("/dev/null", true, "/dev/null"), OK); // nothing is lost
    assert_int_equal(check(".", true, "."), OK);
    assert_int_equal(check("-", true, "-"), OK);
    const struct file_use inputs[] = {{"--a", "file", false}, {"--b", "file", false}};
    assert_int_equal(file_uses_check(inputs, 2, NULL), OK);
}

// What > FILE makes of standard output.
static void test_redirected_standard_output(void **state) {
    (void)state;
    int kept = dup(STDOUT_FILENO), fd = open("file", O_WRONLY);
    fflush(stdout);
    assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    struct err err = {0};
    const struct file_use uses[] = {{"--output", "-", true}, {"--stats", "./file", true}};
    enum status status = file_uses_check(uses, 2, &err);
    enum status twice = check("-", true, "-");
    assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
    assert_int_equal(status, ERR_INVALID);
    assert_string_equal(err.message,
                        "--output (standard output) and --stats ./file are the same file");
    assert_int_equal(twice, OK);
    close(fd);
    close(kept);
}

static void test_files_of_a_model(void **state) {
    (void)state;
    assert_int_equal(mkdir("model", 0700), 0);
    assert_int_equal(mkdir("model/additional_chat_templates", 0700), 0);
    assert_int_equal(link("file", "model/additional_chat_templates/a.jinja"), 0);
    struct err err = {0};
    assert_int_equal(file_uses_spare_model("file", "model", &err), ERR_INVALID);
    assert_string_equal(err.message, "file is a file of the model: results would replace it");
    unlink("model/additional_chat_templates/a.jinja");
    assert_int_equal(file_uses_spare_model("file", "model", &err), OK);
    assert_int_equal(link("file", "model/config.json"), 0);
    assert_int_equal(file_uses_spare_model("./file", "model", &err), ERR_INVALID);
    unlink("model/config.json");
    assert_int_equal(link("file", "model/notes.txt"), 0);
    assert_int_equal(file_uses_spare_model("model/notes.txt", "model", &err), OK);
    assert_int_equal(file_uses_spare_model("model/new.json", "model", &err), OK);
    assert_int_equal(file_uses_spare_model("file", "nowhere", &err), OK);
    unlink("model/notes.txt");
    rmdir("model/additional_chat_templates");
    rmdir("model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_a_file_that_is_there),
        cmocka_unit_test(test_names_of_a_file_to_be),
        cmocka_unit_test(test_what_may_be_named_twice),
        cmocka_unit_test(test_redirected_standard_output),
        cmocka_unit_test(test_files_of_a_model),
    };
    return cmocka_run_group_tests_name("file_uses", tests, enter_folder, leave_folder);
}
