// The JSON-Schema-Test-Suite, which people who write validators share: no invalid text is accepted.
// Debian's package json-schema-test-suite has its drafts 4, 6 and 7. By hand, its newest version:
//
//   test_schema_suite FOLDER      (which holds draft7, draft2020-12, ...)
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/os/file.h"
#include "structured/schema_fixture.h"
#include "support/cmocka_all.h"

static const char debian_folder[] = "/usr/share/json-schema-test-suite/tests";
enum { SKIPPED = 77 };

static const char *folder = debian_folder;
static struct vocabulary *vocabulary;
static struct schema_options options;

struct counts {
    size_t schemas, accepted;
    size_t right, refused, valid_rejected, invalid_accepted;
};

static bool fits(struct automaton *automaton, const json_t *data) {
    struct buf text = {0};
    bool can_end;
    const size_t flags =
        JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15); // 0.0075 as it is
    assert_int_equal(jwrite(&text, data, flags, "data", NULL), OK);
    bool lives = fixture_lives(automaton, text.data, &can_end);
    buf_fini(&text);
    return lives && can_end;
}

static void run_group(json_t *group, const char *draft, const char *name, struct counts *counts) {
    json_t *schema = json_object_get(group, "schema");
    if (json_is_object(schema) && !json_object_get(schema, "$schema")) {
        char uri[64];
        snprintf(uri, sizeof uri, "http://json-schema.org/draft-0%s/schema#",
                 draft + strlen("draft"));
        assert_int_equal(json_object_set_new(schema, "$schema", json_string(uri)), 0);
    }
    struct automaton *automaton = schema_compile(schema, &options, vocabulary, NULL);
    counts->schemas++;
    counts->accepted += automaton != NULL;
    size_t i;
    json_t *test;
    json_array_foreach(json_object_get(group, "tests"), i, test) {
        bool valid = json_is_true(json_object_get(test, "valid"));
        if (!automaton) {
            counts->refused++;
        } else if (fits(automaton, json_object_get(test, "data")) == valid) {
            counts->right++;
        } else if (valid) {
            counts->valid_rejected++;
        } else {
            counts->invalid_accepted++;
            print_error("%s: %s: %s\n", name,
                        json_string_value(json_object_get(group, "description")),
                        json_string_value(json_object_get(test, "description")));
        }
    }
    automaton_release(automaton);
}

static void run_file(const char *path, const char *draft, struct counts *counts) {
    struct buf text = {0};
    json_t *groups;
    struct err err = {0};
    if (file_read(&text, path, &err) || jread_request(&groups, text.data, text.len, path, &err)) {
        fail_msg("%s", err.message);
    }
    size_t i;
    json_t *group;
    json_array_foreach(groups, i, group) run_group(group, draft, path, counts);
    json_decref(groups);
    buf_fini(&text);
}

static void run_folder(const char *path, const char *draft, struct counts *counts) {
    DIR *dir = opendir(path);
    assert_non_null(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        char inner[1024];
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".json") == 0) {
            run_file(inner, draft, counts);
        } else if (!strchr(entry->d_name, '.')) {
            run_folder(inner, draft, counts);
        }
    }
    closedir(dir);
}

static void run_suite(void) {
    static const char *const drafts[] = {"draft4", "draft6", "draft7", "draft2019-09",
                                         "draft2020-12"};
    struct counts counts = {0};
    for (size_t i = 0; i < ARRAY_LEN(drafts); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder, drafts[i]);
        DIR *dir = opendir(path);
        if (!dir) continue;
        closedir(dir);
        run_folder(path, drafts[i], &counts);
    }
    print_message("%zu of %zu schemas accepted (%.1f %%)\n", counts.accepted, counts.schemas,
                  100.0 * (double)counts.accepted / (double)counts.schemas);
    print_message("texts: %zu right, %zu refused, %zu valid rejected, %zu invalid accepted\n",
                  counts.right, counts.refused, counts.valid_rejected, counts.invalid_accepted);
    assert_int_equal(counts.invalid_accepted, 0);
    size_t all = counts.right + counts.refused + counts.valid_rejected;
    assert_true(counts.right * 10 > all * 7);
    assert_true(counts.valid_rejected * 100 < all * 2);
}

static void in_order(void **state) {
    (void)state;
    options = (struct schema_options){0};
    run_suite();
}

static void in_any_order(void **state) {
    (void)state;
    options = (struct schema_options){.any_key_order = true};
    run_suite();
}

int main(int argc, char **argv) {
    if (argc > 1) folder = argv[1];
    DIR *dir = opendir(folder);
    if (!dir) {
        printf("no %s: install json-schema-test-suite\n", folder);
        return SKIPPED;
    }
    closedir(dir);
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_order), cmocka_unit_test(in_any_order)};
    vocabulary = fixture_json_vocabulary();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocabulary_destroy(vocabulary);
    return failed;
}
