// Rules of "tokenizer.ggml.pre": the words they cut a text into are those of Hugging Face's
// tokenizers with the same expressions (tokenizers 0.23, pre_tokenizers.Split, "isolated").
#include <string.h>

#include "base/compiler.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/tokens/gguf_tokens.h"
#include "support/cmocka_all.h"
#include "text/effort.h"
#include "text/regex/regex.h"

enum { WORDS_MAX = 64 };

struct words {
    size_t count;
    const char *start[WORDS_MAX];
    size_t len[WORDS_MAX];
};

static void add(struct words *words, const char *start, size_t len) {
    if (!len) return;
    assert_true(words->count < WORDS_MAX);
    words->start[words->count] = start;
    words->len[words->count++] = len;
}

// Cuts each word at the matches of an expression, which are words too.
static void cut(struct words *words, const char *pattern) {
    struct words out = {0};
    struct regex *regex;
    struct regex_scratch scratch = {0};
    struct err err = {0};
    if (regex_compile(&regex, pattern, "a rule", &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < words->count; i++) {
        const char *text = words->start[i];
        size_t len = words->len[i], from = 0;
        while (from < len) {
            struct regex_match match = {0};
            struct effort effort;
            effort_begin(&effort, len, NULL);
            assert_int_equal(regex_search(regex, text, len, from, &scratch, &effort, &match, &err),
                             OK);
            if (!match.found) break;
            assert_true(match.end > from);
            add(&out, text + from, match.start - from);
            add(&out, text + match.start, match.end - match.start);
            from = match.end;
        }
        add(&out, text + from, len - from);
    }
    regex_scratch_fini(&scratch);
    regex_destroy(regex);
    *words = out;
}

// `want`: the words with bars between them.
static void check_rule(const char *name, const char *text, const char *want) {
    struct gguf_split_rule rule;
    struct words words = {0};
    char got[512] = "";
    if (!gguf_find_split_rule((struct gguf_string){name, strlen(name)}, &rule)) {
        fail_msg("%s is not known", name);
    }
    add(&words, text, strlen(text));
    for (size_t i = 0; rule.patterns[i]; i++) cut(&words, rule.patterns[i]);
    for (size_t i = 0, at = 0; i < words.count; i++) {
        assert_true(at + words.len[i] + 2 < sizeof got);
        if (i) got[at++] = '|';
        memcpy(got + at, words.start[i], words.len[i]);
        at += words.len[i];
        got[at] = '\0';
    }
    assert_string_equal(got, want);
}

static void test_words(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *want;
    } cases[] = {
        // The class of punctuation has the letters of ASCII too (:-~), so an accent ends a word.
        {"deepseek-llm", "H\u00e9llo wor12345 \u4e2d\u6587x, \u03b1\u05d0!  \n z  ",
         "H|\u00e9|llo| wor|12345| |\u4e2d\u6587|x|,| \u03b1|\u05d0|!|  |\n| z|  "},
        {"kimi-k2", "HTTPServer's \u4e2d\u6587ab 12345!  x",
         "HTTPServer's| |\u4e2d\u6587|ab| |123|45|!| | x"},
        {"tiny_aya", "it's 1234567 ab12 XMLHttp", "it's| |1|234|567| ab|12| XMLHttp"},
        {"minicpm5", "a  1234567 it's", "a|  |123|456|7| it|'s"},
        {"f2llmv2", "a  1234 it's", "a| | |1|2|3|4| it|'s"},
        {"llama-bpe", "a  1234 it's", "a| | |123|4| it|'s"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_rule(cases[i].name, cases[i].text, cases[i].want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests_name("gguf_split_rules", tests, NULL, NULL);
}
