// The scanners written by hand find the same words as the regular expressions that they replace.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/tokenizer_fixture.h"
#include "text/tokenizer/tokenizer_pattern.h"
#include "text/unicode/unicode.h"

#define CL100K(contractions, digits, lines)                                                        \
    contractions "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" lines \
                 "|\\s+(?!\\S)|\\s+"
#define CASELESS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

static const char *const published[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    CL100K(CASELESS, "\\p{N}", "\\s*[\\r\\n]+"),
    CL100K(CASELESS, "\\p{N}{1,3}", "\\s*[\\r\\n]+"),
    CL100K(CASELESS, "\\p{N}{1,3}", "\\s*[\\r\\n]"),
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
};

static uint8_t *make_flags(void) {
    uint8_t *flags;
    assert_int_equal(unicode_flags_create(&flags, NULL), OK);
    return flags;
}

static void init(struct pattern *pattern, const uint8_t *flags, const char *regex) {
    struct err err = {0};
    if (pattern_init_regex(pattern, flags, regex, "test", &err)) fail_msg("%s", err.message);
}

static bool next(const struct pattern *pattern, struct pattern_cursor *cursor,
                 struct pattern_scratch *scratch) {
    bool found;
    struct err err = {0};
    if (pattern_next(pattern, cursor, scratch, &found, &err)) fail_msg("%s", err.message);
    return found;
}

// The match at the beginning of each word of the text must end where the expression says.
static void compare(const struct pattern *scanned, const struct pattern *regex, const char *text,
                    size_t len, struct pattern_scratch *scratch) {
    struct pattern_cursor a = {.text = text, .len = len, .last_end = SIZE_MAX}, b = a;
    for (;;) {
        bool found = next(scanned, &a, scratch);
        if (next(regex, &b, scratch) != found) fail_msg("\"%s\": one ends at %zu", text, a.end);
        if (!found) return;
        if (a.start != b.start || a.end != b.end) {
            fail_msg("\"%s\": %zu to %zu, expression %zu to %zu", text, a.start, a.end, b.start,
                     b.end);
        }
    }
}

static void test_scanners_equal_their_expressions(void **state) {
    (void)state;
    uint8_t *flags = make_flags();
    struct buf text = {0};
    struct effort effort;
    struct pattern_scratch scratch = {.effort = &effort};
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        struct pattern scanned, regex;
        char wrapped[512];
        init(&scanned, flags, published[i]);
        assert_true(pattern_is_scanned(&scanned));
        snprintf(wrapped, sizeof wrapped, "(?:%s)", published[i]); // not known by this spelling
        init(&regex, flags, wrapped);
        assert_int_equal(regex.kind, PATTERN_REGEX);
        uint64_t random = 11 + i;
        for (int round = 0; round < 2000; round++) {
            size_t len = fixture_random_text(&random, 12, &text);
            effort_begin(&effort, len, NULL);
            compare(&scanned, &regex, len ? text.data : "", len, &scratch);
        }
        pattern_fini(&regex);
        pattern_fini(&scanned);
    }
    pattern_scratch_fini(&scratch);
    buf_fini(&text);
    free(flags);
}

// The words of `text`, separated by '|'.
static void check_found(const struct pattern *pattern, const char *text, const char *expected) {
    struct pattern_cursor cursor = {.text = text, .len = strlen(text), .last_end = SIZE_MAX};
    struct pattern_scratch scratch = {0};
    struct buf found = {0};
    assert_int_equal(buf_append_str(&found, "", NULL), OK);
    while (next(pattern, &cursor, &scratch)) {
        assert_int_equal(buf_append(&found, text + cursor.start, cursor.end - cursor.start, NULL),
                         OK);
        assert_int_equal(buf_append_str(&found, "|", NULL), OK);
    }
    assert_string_equal(found.data, expected);
    buf_fini(&found);
}

static void test_characters_with_a_property(void **state) {
    (void)state;
    uint8_t *flags = make_flags();
    struct pattern pattern;
    pattern_init_flagged(&pattern, flags, UNICODE_NUMBER);
    check_found(&pattern, "a12 \u0663\u2163b", "1|2|\u0663|\u2163|");
    pattern_init_flagged(&pattern, flags, UNICODE_PUNCTUATION);
    check_found(&pattern, "a.$\u3002\u20ac-", ".|$|\u3002|-|"); // ASCII's signs too, not the others
    pattern_init_word(&pattern, flags);
    check_found(&pattern, " it's \u4e2d\u3002\n1_a! ", "it|'|s|\u4e2d|\u3002|1_a|!|");
    check_found(&pattern, " ", "");
    free(flags);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scanners_equal_their_expressions),
        cmocka_unit_test(test_characters_with_a_property),
    };
    return cmocka_run_group_tests_name("tokenizer_pattern", tests, NULL, NULL);
}
