// Schemas that people wrote, with texts that fit and texts that do not: a sample of MaskBench (its
// licence is beside it). Each text is tried as Python's json.dumps writes it, and without blanks.
// By hand, all of MaskBench:
//
//   test_maskbench FILE.jsonl     (a line as in maskbench/sample.jsonl)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/os/file.h"
#include "cmd/schema_order.h"
#include "structured/schema_fixture.h"
#include "support/cmocka_all.h"

static const char sample[] = "tests/structured/maskbench/sample.jsonl";
static const char *path = sample;
static struct vocabulary *vocabulary;

// Of the sample: what does not come out as the file says, and why. Answers have their keys in the
// order of the schema.
static const struct exception {
    const char *name, *reason; // "order", or the sentence that refuses the schema
} exceptions[] = {
    {"Github_hard/o71528", "order"},
    {"Github_hard/o76745", "order"},
    {"Github_medium/o64882", "order"},
    {"Glaiveai2K/calculate_area_f5e0f7db", "order"},
    {"Glaiveai2K/calculate_area_f8e04f89", "no text fits the constraint"},
    {"Glaiveai2K/calculate_volume_82c6c066", "order"},
    {"JsonSchemaStore/github-funding", "order"},
};

struct counts {
    size_t schemas, right, ordered, refused;
    size_t valid_rejected, invalid_accepted, unexpected;
};

static const char *expected_of(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(exceptions); i++) {
        if (strcmp(exceptions[i].name, name) == 0) return exceptions[i].reason;
    }
    return NULL;
}

// `text` with a blank behind each comma and colon that is not in a string.
static char *with_blanks(const char *text) {
    char *out = malloc(2 * strlen(text) + 1), *end = out;
    bool in_string = false;
    assert_non_null(out);
    for (; *text; text++) {
        *end++ = *text;
        if (*text == '"') in_string = !in_string;
        if (*text == '\\') *end++ = *++text; // in a string
        if (!in_string && (*text == ',' || *text == ':')) *end++ = ' ';
    }
    *end = '\0';
    return out;
}

static bool fits(struct automaton *automaton, const char *text) {
    bool can_end;
    char *blanks = with_blanks(text);
    bool lives = fixture_lives(automaton, text, &can_end) && can_end;
    bool lives_with_blanks = fixture_lives(automaton, blanks, &can_end) && can_end;
    free(blanks);
    assert_int_equal(lives, lives_with_blanks);
    return lives;
}

static bool fits_in_order(struct automaton *automaton, const char *text) {
    struct buf ordered = {0};
    bool found = false;
    assert_int_equal(schema_order_text(automaton, text, strlen(text), &ordered, &found, NULL), OK);
    buf_fini(&ordered);
    return found;
}

// Returns what is expected of such a file: NULL, or an exception's reason.
static const char *check_texts(struct automaton *automaton, const json_t *line, const char *name,
                               struct counts *counts) {
    const char *found = NULL;
    bool any_wrong = false;
    size_t i;
    json_t *text;
    json_array_foreach(json_object_get(line, "invalid"), i, text) {
        if (!fits(automaton, json_string_value(text))) continue;
        print_error("%s: an invalid text fits: %s\n", name, json_string_value(text));
        counts->invalid_accepted++;
        any_wrong = true;
    }
    json_array_foreach(json_object_get(line, "valid"), i, text) {
        if (fits(automaton, json_string_value(text))) continue;
        if (fits_in_order(automaton, json_string_value(text))) {
            found = "order";
            continue;
        }
        print_error("%s: a valid text does not fit: %s\n", name, json_string_value(text));
        counts->valid_rejected++;
        any_wrong = true;
    }
    counts->right += !any_wrong && !found;
    counts->ordered += !any_wrong && found;
    return found;
}

static void run_line(const json_t *line, const struct schema_options *options,
                     struct counts *counts) {
    struct err err = {0};
    const char *name = json_string_value(json_object_get(line, "name")), *found = err.message;
    struct automaton *automaton =
        schema_compile(json_object_get(line, "schema"), options, vocabulary, &err);
    counts->schemas++;
    counts->refused += !automaton;
    if (automaton) found = check_texts(automaton, line, name, counts);
    automaton_release(automaton);
    const char *expected = expected_of(name);
    bool is_ordered = expected && strcmp(expected, "order") == 0;
    if (options && is_ordered) expected = NULL;
    bool is_expected = found && expected ? strcmp(found, expected) == 0 : found == expected;
    if (is_expected) return;
    counts->unexpected++;
    print_error("%s: %s, expected %s\n", name, found ? found : "right",
                expected ? expected : "right");
}

static void run_file(const struct schema_options *options) {
    struct buf text = {0};
    struct counts counts = {0};
    struct err err = {0};
    if (file_read(&text, path, &err)) fail_msg("%s", err.message);
    for (size_t at = 0; at < text.len;) {
        const char *end = memchr(text.data + at, '\n', text.len - at);
        size_t len = end ? (size_t)(end - text.data) - at : text.len - at;
        json_t *line;
        if (jread_request(&line, text.data + at, len, path, &err)) fail_msg("%s", err.message);
        run_line(line, options, &counts);
        json_decref(line);
        at += len + 1;
    }
    buf_fini(&text);
    print_message("%zu schemas: %zu right, %zu only with keys in another order, %zu refused\n",
                  counts.schemas, counts.right, counts.ordered, counts.refused);
    print_message("texts: %zu valid rejected, %zu invalid accepted\n", counts.valid_rejected,
                  counts.invalid_accepted);
    assert_int_equal(counts.invalid_accepted, 0);
    if (path != sample) return;
    assert_int_equal(counts.valid_rejected, 0);
    assert_int_equal(counts.unexpected, 0);
}

static void in_order(void **state) {
    (void)state;
    run_file(NULL);
}

static void in_any_order(void **state) {
    (void)state;
    const struct schema_options options = {.any_key_order = true};
    run_file(&options);
}

int main(int argc, char **argv) {
    if (argc > 1) path = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_order), cmocka_unit_test(in_any_order)};
    vocabulary = fixture_json_vocabulary();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocabulary_destroy(vocabulary);
    return failed;
}
