// The scanners written by hand find what PCRE2 finds with the same pattern, and Oniguruma's syntax
// is translated or refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/tokenizer_fixture.h"
#include "text/tokenizer_pattern.h"
#include "text/unicode.h"

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

// The match at the beginning of each word of the text must end where PCRE2 says.
static void compare(const struct pattern *scanned, const struct pattern *regex, const char *text,
                    size_t len, struct pattern_scratch *scratch) {
    struct pattern_cursor a = {.text = text, .len = len, .last_end = SIZE_MAX}, b = a;
    for (;;) {
        bool found = next(scanned, &a, scratch);
        if (next(regex, &b, scratch) != found) fail_msg("\"%s\": one ends at %zu", text, a.end);
        if (!found) return;
        if (a.start != b.start || a.end != b.end) {
            fail_msg("\"%s\": %zu to %zu, PCRE2 %zu to %zu", text, a.start, a.end, b.start, b.end);
        }
    }
}

static void test_scanners_equal_pcre2(void **state) {
    (void)state;
    uint8_t *flags = make_flags();
    struct buf text = {0};
    struct pattern_scratch scratch = {0};
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
            compare(&scanned, &regex, len ? text.data : "", len, &scratch);
        }
        pattern_fini(&regex);
        pattern_fini(&scanned);
    }
    pattern_scratch_fini(&scratch);
    buf_fini(&text);
    free(flags);
}

// `expected` has the matches, separated by '|'.
static void check_matches(const char *regex, const char *text, const char *expected) {
    uint8_t *flags = make_flags();
    struct pattern pattern;
    struct pattern_scratch scratch = {0};
    struct buf found = {0};
    init(&pattern, flags, regex);
    struct pattern_cursor cursor = {.text = text, .len = strlen(text), .last_end = SIZE_MAX};
    assert_int_equal(buf_append_str(&found, "", NULL), OK);
    for (size_t n = 0; next(&pattern, &cursor, &scratch); n++) {
        if (n) assert_int_equal(buf_append_str(&found, "|", NULL), OK);
        assert_int_equal(buf_append(&found, text + cursor.start, cursor.end - cursor.start, NULL),
                         OK);
    }
    if (strcmp(found.data, expected) != 0) {
        fail_msg("%s in \"%s\" finds %s, want %s", regex, text, found.data, expected);
    }
    buf_fini(&found);
    pattern_scratch_fini(&scratch);
    pattern_fini(&pattern);
    free(flags);
}

static void test_translations_match_as_meant(void **state) {
    (void)state;
    check_matches("\\h+", "xyz09afG", "09af"); // hexadecimal digits, no spaces
    check_matches("\\H", "a-", "-");
    check_matches("\\u0041|\\x42|\\x{43}", "ABCD", "A|B|C");
    check_matches("[\\u0041-\\x43]+", "xABCD", "ABC");
    check_matches("\\s",
                  "a\xe1\xa0\x8e"
                  "b\xe3\x80\x80"
                  "c\xc2\x85",
                  "\xe3\x80\x80|\xc2\x85");
    check_matches("\\S+", "a\xe1\xa0\x8e b", "a\xe1\xa0\x8e|b"); // U+180E is no space
    check_matches("\\w+", "e\xcc\x81_1\xc2\xb2-x", "e\xcc\x81_1\xc2\xb2|x");
    check_matches("\\W", "a-b", "-");
    check_matches("[\\w-]+", "a-b c", "a-b|c");
    check_matches("x\\b", "x xe x\xcc\x81", "x");
    check_matches("x\\B", "x xe", "x");
    check_matches("^.", "ab\ncd", "a|c"); // always by line
    check_matches("(?m:a.b)", "a\nb", "a\nb"); // m: "." takes line ends
    check_matches("a{,2}b", "aaab", "aab");
    check_matches("a{1,2}", "aaa", "aa|a");
    check_matches("a{1,2}?", "aaa", "a|a|a");
    check_matches("a{", "a{", "a{");
    check_matches("\\p{Greek}+", "a\xce\xb1\xce\xb2", "\xce\xb1\xce\xb2");
    check_matches("\\p{^L}", "a1", "1");
    check_matches("\\P{^L}", "a1", "a");
    check_matches("(?i:AB)|(?<name>c)\\1", "abcc", "ab|cc");
    check_matches("(?i)ab", "AB", "AB");
    check_matches("a|\\[\\-\\]", "a[-]", "a|[-]");
    check_matches("x*", "axx", "|xx"); // empty matches: not right after a match
    check_matches("[\xe4\xb8\x80-\xe9\xbe\xa5]+", "a\xe4\xb8\xad\xe6\x96\x87",
                  "\xe4\xb8\xad\xe6\x96\x87");
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const regexes[] = {"[a-z&&[^aeiou]]",
                                          "[[:alpha:]]",
                                          "[]a]",
                                          "[\\W]",
                                          "[\\H]",
                                          "\\R",
                                          "\\X",
                                          "\\G",
                                          "\\N",
                                          "\\O",
                                          "\\y",
                                          "\\cA",
                                          "\\M-a",
                                          "\\Q",
                                          "\\x80",
                                          "\\p",
                                          "\\pL",
                                          "a{2}+",
                                          "a{2}?",
                                          "(*ACCEPT)",
                                          "(?|a|b)",
                                          "(?~ab)",
                                          "(?x: a)",
                                          "a(?i)b|c",
                                          "\\0",
                                          "\\C",
                                          "a\\"};
    for (size_t i = 0; i < ARRAY_LEN(regexes); i++) {
        struct err err = {0};
        struct buf out = {0};
        enum status status = pattern_translate(regexes[i], "t.json", &out, &err);
        if (status != ERR_UNSUPPORTED) fail_msg("%s gives %s", regexes[i], status_name(status));
        assert_non_null(strstr(err.message, "t.json"));
        buf_fini(&out);
    }
}

// A pattern that backtracks without end is given up with a sentence.
static void test_exploding_pattern(void **state) {
    (void)state;
    enum { LEN = 64 };
    uint8_t *flags = make_flags();
    struct pattern pattern;
    struct pattern_scratch scratch = {0};
    struct err err = {0};
    char text[LEN];
    bool found;
    init(&pattern, flags, "(?:x+x+)+y");
    memset(text, 'x', LEN);
    memcpy(text + LEN - 2, "-y", 2); // there is a y, or PCRE2 would not even try
    struct pattern_cursor cursor = {.text = text, .len = LEN, .last_end = SIZE_MAX};
    assert_int_equal(pattern_next(&pattern, &cursor, &scratch, &found, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "gave up"));
    pattern_scratch_fini(&scratch);
    pattern_fini(&pattern);
    free(flags);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scanners_equal_pcre2),
        cmocka_unit_test(test_translations_match_as_meant),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_exploding_pattern),
    };
    return cmocka_run_group_tests_name("tokenizer_pattern", tests, NULL, NULL);
}
