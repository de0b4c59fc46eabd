// Regular expressions match as in Oniguruma, use one version of Unicode, refuse unsupported
// constructs by name, and keep to their budget.
#include <stdlib.h>
#include <string.h>

#include "base/text/buf.h"
#include "support/cmocka_all.h"
#include "support/tokenizer_fixture.h"
#include "text/regex/regex.h"

static struct regex *compile(const char *source) {
    struct regex *regex;
    struct err err = {0};
    if (regex_compile(&regex, source, "test", &err)) fail_msg("%s", err.message);
    return regex;
}

// `expected` has the matches, separated by '|'. An empty one right after a match does not count.
static void check(const char *source, const char *text, const char *expected) {
    struct regex *regex = compile(source);
    struct regex_scratch scratch = {0};
    struct effort effort;
    struct buf found = {0};
    struct err err = {0};
    size_t len = strlen(text), from = 0, last_end = SIZE_MAX;
    effort_begin(&effort, len, NULL);
    assert_int_equal(buf_append_str(&found, "", NULL), OK);
    for (size_t n = 0; from <= len;) {
        struct regex_match match;
        if (regex_search(regex, text, len, from, &scratch, &effort, &match, &err)) {
            fail_msg("%s", err.message);
        }
        if (!match.found) break;
        if (match.start == match.end && match.end == last_end) {
            from++;
            continue;
        }
        if (n++) assert_int_equal(buf_append_str(&found, "|", NULL), OK);
        assert_int_equal(buf_append(&found, text + match.start, match.end - match.start, NULL), OK);
        from = last_end = match.end;
    }
    if (strcmp(found.data, expected) != 0) {
        fail_msg("%s in \"%s\" finds %s, want %s", source, text, found.data, expected);
    }
    buf_fini(&found);
    regex_scratch_fini(&scratch);
    regex_destroy(regex);
}

// Puts "_X_" in the place of each match; an empty one right after a match does not count.
static void replace(const struct regex *regex, const char *text, struct buf *out) {
    struct regex_scratch scratch = {0};
    struct effort effort;
    size_t len = strlen(text), from = 0, done = 0, last_end = SIZE_MAX;
    effort_begin(&effort, len, NULL);
    buf_clear(out);
    while (from <= len) {
        struct regex_match match;
        assert_int_equal(regex_search(regex, text, len, from, &scratch, &effort, &match, NULL), OK);
        if (!match.found) break;
        if (match.start == match.end && match.end == last_end) {
            do {
                from++;
            } while (((unsigned char)text[from < len ? from : len] & 0xc0) == 0x80);
            continue;
        }
        assert_int_equal(buf_append(out, text + done, match.start - done, NULL), OK);
        assert_int_equal(buf_append_str(out, "_X_", NULL), OK);
        from = done = last_end = match.end;
    }
    assert_int_equal(buf_append(out, text + done, len - done, NULL), OK);
    regex_scratch_fini(&scratch);
}

static void test_random_expressions_as_recorded(void **state) {
    (void)state;
    json_t *lines = fixture_json("tests/reference/data/regex.json"), *line, *pair;
    struct buf out = {0};
    size_t i, k;
    assert_true(json_array_size(lines) >= 400);
    json_array_foreach(lines, i, line) {
        const char *source = json_string_value(json_object_get(line, "regex"));
        struct regex *regex = compile(source);
        json_array_foreach(json_object_get(line, "cases"), k, pair) {
            const char *text = json_string_value(json_array_get(pair, 0));
            const char *want = json_string_value(json_array_get(pair, 1));
            replace(regex, text, &out);
            if (strcmp(out.data, want) != 0) {
                fail_msg("%s in \"%s\" gives %s, want %s", source, text, out.data, want);
            }
        }
        regex_destroy(regex);
    }
    buf_fini(&out);
    json_decref(lines);
}

static void test_characters(void **state) {
    (void)state;
    check("a|\\[\\-\\]", "a[-]", "a|[-]");
    check("\\u0041|\\x42|\\x{43}", "ABCD", "A|B|C");
    check("\\t\\n\\r\\f\\v\\a\\e", "x\t\n\r\f\v\a\x1b", "\t\n\r\f\v\a\x1b");
    check("\u4e2d.", "a\u4e2d\u6587", "\u4e2d\u6587");
    check(".", "\n\r\u2028", "\r|\u2028"); // all but the line feed
    check("(?m:a.b)", "a\nb", "a\nb"); // m: all
    check("(?m:.)-.", "\n-\n--", "\n--"); // inside of its group alone
    check("a{", "a{", "a{");
    check("a{,}", "a{,}", "a{,}");
    check("]}", "]}", "]}");
}

static void test_escapes_of_sets(void **state) {
    (void)state;
    check("\\h+", "xyz09afG", "09af"); // hexadecimal digits, no spaces
    check("\\H", "a-", "-");
    check("\\d+\\D", "12\u0663x", "12\u0663x");
    check("\\s", "a\u180e\u3000b\xc2\x85", "\u3000|\xc2\x85");
    check("\\S+", "a\u180e b", "a\u180e|b"); // U+180E is no space
    check("\\w+", "e\u0301_1\u00b2-x\u200d", "e\u0301_1\u00b2|x");
    check("\\W", "a-b", "-");
    check("\\p{Greek}+", "a\u03b1\u03b2", "\u03b1\u03b2");
    check("\\p{^L}|\\P{^Nd}", "a1", "1");
    check("\\p{Lu}\\p{ll}", "aAa", "Aa");
    check("\\p{LC}+", "aA\u01c5\u02b0", "aA\u01c5");
    check("\\p{hani}\\p{Canadian Aboriginal}", "\u4e2d\u1401", "\u4e2d\u1401");
    check("\\p{C}\\p{Cn}\\P{Cn}", "\x01\U000e0000a",
          "\x01\U000e0000"
          "a");
}

// Characters that Unicode 15 and 16 added, and one that 17 did.
static void test_one_unicode(void **state) {
    (void)state;
    check("\\p{S}", "\U0001fa77", "\U0001fa77"); // pink heart, 15
    check("\\p{L}", "\U00010d4a", "\U00010d4a"); // Garay, 16
    check("\\p{Garay}", "\U00010d4a", "\U00010d4a");
    check("[\\p{Nd}]", "\U00010d40", "\U00010d40");
    check("\\p{Cn}", "\U00011de0", "\U00011de0"); // a digit of 17
}

static void test_classes(void **state) {
    (void)state;
    check("[a-c-e]", "abcde-", "a|b|c|e|-");
    check("[a-]", "a-b", "a|-");
    check("[-a]", "a-b", "a|-");
    check("[\\w-]+", "a-b c", "a-b|c");
    check("[^\\W1]", "a-1", "a");
    check("[\\u0041-\\x43]+", "xABCD", "ABC");
    check("[\\b]", "\b", "\b");
    check("[\\n\\]\\\\^]+", "\n]\\^a", "\n]\\^");
    check("[\u4e00-\u9fa5]+", "a\u4e2d\u6587", "\u4e2d\u6587");
    check("[[a]b]+", "abc", "ab");
    check("[a[^b]]+", "abc", "a|c");
    check("[a-z&&[^aeiou]]+", "abec", "b|c");
    check("[^a-z&&b]", "abc1", "a|c|1"); // not (a-z and b)
    check("[a-z&&b-y&&c-x]+", "abcxyz", "cx");
    check("[a&b]+", "a&bc", "a&b");
    check("[&&a]", "a&", "");
    check("[^a]", "\u017fa", "\u017f"); // from its first byte
    check("[\\p{L}&&[^\\p{Han}]]+", "ab\u4e2dc", "ab|c");
}

static void test_repetition(void **state) {
    (void)state;
    check("a*", "baa", "|aa");
    check("a+?", "aa", "a|a");
    check("a??b", "ab", "ab");
    check("a{2}", "aaaaa", "aa|aa");
    check("a{2,}", "aaaaa", "aaaaa");
    check("a{,2}b", "aaab", "aab");
    check("a{1,2}?", "aa", "a|a");
    check("a{0}b", "ab", "b");
    check("(?:ab){2,3}", "abababab", "ababab");
    check("(?:ab){2,3}?", "abababab", "abab|abab");
    check("(?:ab)*c", "ababc", "ababc");
    check("(?:a|b)*?c", "abcc", "abc|c");
    check("a++a", "aaa", "");
    check("(?:a|ab)++c", "abc", ""); // the first alternative stays
    check("(?>a|ab)c", "abc", "");
    check("a+ab", "aaab", "aaab"); // gives one back
    check("\u4e2d*\u4e2d", "\u4e2d\u4e2d", "\u4e2d\u4e2d");
    check("(?:a?)*b", "aab", "aab"); // a turn without text is the last
    check("(?:a*?)*", "aab", "|||");
    check("(a*)+", "aa", "aa");
    check("(?:|a)+", "aa", "||");
}

static void test_order_of_alternatives(void **state) {
    (void)state;
    check("(?:a|ab)(?:c|bcd)", "abcd", "abcd");
    check("|a", "ab", "||");
    check("a|", "ab", "a|");
    check("a(?:b|bc|)d", "abcd ad abd", "abcd|ad|abd");
    check("x(?i:AB)|(?<name>c)", "xaBc", "xaB|c");
}

static void test_places(void **state) {
    (void)state;
    check("^.", "ab\ncd", "a|c"); // always by line
    check("^", "a\nb\n", "|"); // not after the last line end
    check(".$", "ab\ncd\n", "b|d");
    check("\\A.", "a\nb", "a");
    check("b\\z", "b\nb", "b");
    check("\\n\\z|b\\Z", "a\nb\n", "b|\n");
    check("x\\b", "x xe x\u0301", "x");
    check("x\\B", "x xe", "x");
    check("\\bx|\\B-", "ax x --", "x|-|-");
}

static void test_looking_around(void **state) {
    (void)state;
    check("\\s+(?!\\S)|\\s+", "a   b ", "  | | ");
    check("a(?=b)", "abac", "a");
    check("a(?!b).", "abac", "ac");
    check("(?<=ab|c)d", "abd cd d", "d|d");
    check("(?<!a|bc)d.?", "ad bcd d-", "d-");
    check("(?<=\u4e2d.)d", "\u4e2d\u6587d", "d");
    check("(?<=^|,)a", "a,ab a", "a|a");
    check("(?=(a+))\\1b", "aab", "aab"); // a group in a lookaround keeps its match
    check("(?!(a))\\1|b", "ab", "b");
    check("(a|b)\\1", "abba", "bb");
    check("(?:(a)|b)*\\1", "aba", "aba"); // backtracking a turn restores its group
    check("a\\Kb", "ab", "b");
}

static void test_ignoring_case(void **state) {
    (void)state;
    check("(?i:AB)c", "abc aBC", "abc");
    check("(?i)ab", "AB", "AB");
    check("(?i)k[r-t]", "\u212a\u017f Kr", "\u212a\u017f|Kr");
    check("(?i:'s|\u2019s)", "'S\u2019\u017f", "'S|\u2019\u017f");
    check("(?i:a(?-i:b))", "Ab aB", "Ab");
    check("(?i)[^a]\\p{Lu}", "AbBc", "bB");
}

// ERR_UNSUPPORTED, and the sentence names the file and the place.
static void test_refusals(void **state) {
    (void)state;
    static const char *const sources[][2] = {
        {"[[:alpha:]]", "[:alpha:]"},
        {"[]a]", "[]"},
        {"\\R", "\\R"},
        {"\\X", "\\X"},
        {"\\G", "\\G"},
        {"\\N", "\\N"},
        {"\\O", "\\O"},
        {"\\y", "\\y"},
        {"\\cA", "\\c"},
        {"\\M-a", "\\M"},
        {"\\Q", "\\Q"},
        {"\\0", "\\0"},
        {"\\C", "\\C"},
        {"\\k<a>", "\\k"},
        {"\\g<1>", "\\g"},
        {"[\\R]", "\\R"},
        {"\\x80", "x80"},
        {"\\p", "p"},
        {"\\pL", "p"},
        {"\\p{Klingon}", "p{Klingon}"},
        {"\\p{Alphabetic}", "p{Alphabetic}"},
        {"a{2}+", "{2}+"},
        {"a{2}?", "{2}?"},
        {"a{3,2}", "{3,2}"},
        {"a{100001}", "{100001}"},
        {"a**", "**"},
        {"a+?+", "?+"},
        {"(?=a)*", "*"},
        {"(*ACCEPT)", "(*"},
        {"(?|a|b)", "(?|"},
        {"(?~ab)", "(?~"},
        {"(?#a)", "(?#"},
        {"(?x: a)", "(?x"},
        {"a(?i)b|c", "(?i"},
        {"(?=\\Ka)", "\\K in a lookaround"},
        {"(?i:\u00e9)", "beyond ASCII under (?i)"},
        {"(?i:[\\p{L}])", "beyond ASCII under (?i)"},
        {"(?i:ss)", "ss"},
        {"(?i:(a)\\1)", "\\1"},
        {"(?<n>a)\\1", "\\1 beside (?<name>"},
        {"(a)\\10", "\\10"},
        {"(?<=a+)b", "no fixed length"},
        {"(?:(?:ab){1000}){1000}", "more than 32768 instructions"},
        {"(?:(?:(?:){100000}){100000}){100000}", "more than 32768 instructions"},
        {"a\\", "\\"},
    };
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        struct err err = {0};
        struct regex *regex;
        enum status status = regex_compile(&regex, sources[i][0], "t.json", &err);
        if (status != ERR_UNSUPPORTED) {
            fail_msg("%s gives %s", sources[i][0], status_name(status));
        }
        assert_null(regex);
        if (!strstr(err.message, "t.json") || !strstr(err.message, sources[i][1])) {
            fail_msg("%s says: %s", sources[i][0], err.message);
        }
    }
}

static void test_faults(void **state) {
    (void)state;
    static const char *const sources[] = {
        "(", ")",   "(?:a",  "[a",   "[a[b]", "[z-a]",     "[a-\\d]",    "[\\w-a]",
        "*", "a|+", "\\p{L", "(?<n", "\\1",   "\\x{d800}", "\\x{110000}"};
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        struct err err = {0};
        struct regex *regex;
        enum status status = regex_compile(&regex, sources[i], "t.json", &err);
        if (status != ERR_FORMAT) fail_msg("%s gives %s", sources[i], status_name(status));
        assert_null(regex);
        assert_non_null(strstr(err.message, "t.json"));
        assert_non_null(strstr(err.message, "is not valid"));
    }
}

static void test_deep_and_long_expressions_are_refused(void **state) {
    (void)state;
    char source[REGEX_SOURCE_MAX + 2];
    static const char opening[] = "([(";
    for (size_t i = 0; i < ARRAY_LEN(opening); i++) {
        memset(source, opening[i] ? opening[i] : 'a', sizeof source - 1);
        source[sizeof source - 1] = '\0';
        struct regex *regex;
        if (opening[i]) source[1000] = '\0';
        assert_int_equal(regex_compile(&regex, source, "t.json", NULL), ERR_UNSUPPORTED);
    }
}

// All matches in a text of `len` bytes: the status of the last search.
static enum status find_all(const char *source, const char *text, size_t len,
                            const struct interrupt *interrupt, struct err *err) {
    struct regex *regex = compile(source);
    struct regex_scratch scratch = {0};
    struct effort effort;
    effort_begin(&effort, len, interrupt);
    effort.pattern_left = 64 * (uint64_t)len; // less than the real budget, for a quick test
    enum status status = OK;
    for (size_t from = 0; from < len && !status;) {
        struct regex_match match;
        status = regex_search(regex, text, len, from, &scratch, &effort, &match, err);
        if (status || !match.found) break;
        from = match.end;
    }
    regex_scratch_fini(&scratch);
    regex_destroy(regex);
    return status;
}

static char *row_of(char c, size_t len) {
    char *text = malloc(len);
    assert_non_null(text);
    memset(text, c, len);
    return text;
}

// Each search is short or takes linear time, but all together, or their stacks, exceed the budget.
static void test_the_budget_is_one_for_all_searches(void **state) {
    (void)state;
    static const char *const sources[] = {
        "(?:x+x+)+y|x", ".*?z|.",        "[^z]*z|.",       "(?:(?=[^z]*z)x)*z|.",
        "x*x*z|.",      "(?:x?){30}y|.", "(?=(x*))\\1z|.", "(?<=x{10000})xz|x",
    };
    enum { LEN = 40000 };
    char *text = row_of('x', LEN);
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        struct err err = {0};
        enum status status = find_all(sources[i], text, LEN, NULL, &err);
        if (status != ERR_INVALID) fail_msg("%s gives %s", sources[i], status_name(status));
        assert_non_null(strstr(err.message, "gave up on this text"));
    }
    free(text);
}

static void test_long_matches_are_in_the_budget(void **state) {
    (void)state;
    static const char *const sources[] = {
        "\\p{L}+", "(?:x|y)+", "(?:xx?|y)*+", "(?:(?!yy).)+", "x", ".*?$", "(?:x{1,3})+?\\z",
    };
    size_t len = getenv("NANOVLLM_TEST_ALL") ? 4 << 20 : 1 << 19;
    char *text = row_of('x', len);
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        struct err err = {0};
        if (find_all(sources[i], text, len, NULL, &err)) fail_msg("%s", err.message);
    }
    free(text);
}

static int yes(void *user_data) {
    ++*(int *)user_data;
    return 1;
}

static void test_an_interrupt_ends_a_search(void **state) {
    (void)state;
    enum { LEN = 100000 };
    char *text = row_of('x', LEN);
    int asked = 0;
    const struct interrupt interrupt = {.is_wanted = yes, .user_data = &asked};
    assert_int_equal(find_all("(?:x+x+)+y", text, LEN, &interrupt, NULL), ERR_INTERRUPTED);
    assert_int_equal(asked, 1);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_expressions_as_recorded),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_escapes_of_sets),
        cmocka_unit_test(test_one_unicode),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_repetition),
        cmocka_unit_test(test_order_of_alternatives),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_looking_around),
        cmocka_unit_test(test_ignoring_case),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_deep_and_long_expressions_are_refused),
        cmocka_unit_test(test_the_budget_is_one_for_all_searches),
        cmocka_unit_test(test_long_matches_are_in_the_budget),
        cmocka_unit_test(test_an_interrupt_ends_a_search),
    };
    return cmocka_run_group_tests_name("regex", tests, NULL, NULL);
}
