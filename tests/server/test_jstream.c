// The byte-wise JSON reader takes what jansson takes, and says where parts begin and end.
#include <stdio.h>
#include <string.h>

#include "base/json/jstream.h"
#include "base/text/buf.h"
#include "support/cmocka_all.h"

// How many bytes are JSON; *complete: the root ends with the last of them.
static size_t read_prefix(const char *text, size_t len, bool *complete) {
    struct jstream json = {0};
    *complete = false;
    for (size_t i = 0; i < len; i++) {
        enum jstream_event event = jstream_push(&json, text[i]);
        if (event == JSTREAM_BAD) return i;
        *complete = event == JSTREAM_CLOSE && json.depth == 0;
    }
    return len;
}

static void test_good_texts(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{}",
        " {\n}",
        "{\"a\":{}, \"b\" : [ ] }",
        "{\"a\":[[],{},[1,2],{\"b\":null}]}",
        "{\"a\":0,\"b\":-0,\"c\":10,\"d\":-1.50,\"e\":1e5,\"f\":0E-7,\"g\":2.5e+10}",
        "{\"a\":[0,-1.5 ,1e5\n,0]}",
        "{\"a\":true,\"b\":false,\"c\":null}",
        "{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uABcd\":\"\\\\\",\"b\":\"}\\\"]{,:\"}",
        "{\"\xc3\xa9\":\"\xe2\x82\xac\"}",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        bool complete;
        size_t len = strlen(texts[i]);
        json_t *json = NULL;
        assert_int_equal(jread_text(&json, texts[i], len, "the text", NULL), OK);
        json_decref(json);
        assert_int_equal(read_prefix(texts[i], len, &complete), len);
        assert_true(complete);
        // No beginning of it is complete.
        for (size_t cut = 0; cut < len; cut++) {
            assert_int_equal(read_prefix(texts[i], cut, &complete), cut);
            assert_false(complete);
        }
        // Nothing may follow, not even a space.
        char longer[160];
        int longer_len = snprintf(longer, sizeof longer, "%s ", texts[i]);
        assert_int_equal(read_prefix(longer, (size_t)longer_len, &complete), len);
    }
}

static void test_bad_texts(void **state) {
    (void)state;
    // '!' follows the first byte that cannot be.
    static const char *const texts[] = {
        "{,!",           "{]!",          "{a!",           "{\"a\",!",
        "{\"a\"}!",      "{\"a\":}!",    "{\"a\":]!",     "{\"a\":,!",
        "{\"a\":1,}!",   "{\"a\":1]!",   "{\"a\":[1}!",   "{\"a\":[,!",
        "{\"a\":[1,]!",  "{\"a\":01!",   "{\"a\":-}!",    "{\"a\":-a!",
        "{\"a\":1.}!",   "{\"a\":.!",    "{\"a\":1e}!",   "{\"a\":1e+}!",
        "{\"a\":1.5.!",  "{\"a\":1e5.!", "{\"a\":1e5e!",  "{\"a\":+!",
        "{\"a\":tru}!",  "{\"a\":nulL!", "{\"a\":fals1!", "{\"a\":x!",
        "{\"a\":truee!", "{\"a\\x!",     "{\"\\u12g!",    "{\"\\u12@!",
        "{\"a\":1 2!",   "{\"a\" \"!",   "{\"a\":'!",     "{\"a\":\"\"\"!",
        "{\"a\":--!",    "{\"a\":-01!",  "{\"\\u123\"!",  "{\"\\u123x!",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        bool complete;
        size_t len = strlen(texts[i]) - 1;
        size_t good = read_prefix(texts[i], len, &complete);
        if (good != len - 1) fail_msg("%s: %zu bytes are taken", texts[i], good);
        json_t *json = NULL;
        assert_int_equal(jread_text(&json, texts[i], len, "the text", NULL), ERR_FORMAT);
    }
    // A root of another kind, and a NUL behind a backslash.
    bool complete;
    assert_int_equal(read_prefix("[", 1, &complete), 0);
    assert_int_equal(read_prefix("\"", 1, &complete), 0);
    assert_int_equal(read_prefix("1", 1, &complete), 0);
    assert_int_equal(read_prefix("{\"\\\0", 4, &complete), 3);
}

static void test_depth(void **state) {
    (void)state;
    char text[256];
    bool complete;
    int len = snprintf(text, sizeof text, "{\"a\":%.63s%.63s}",
                       "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                       "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
    assert_int_equal(len, 5 + 2 * 63 + 1);
    assert_int_equal(read_prefix(text, (size_t)len, &complete), len);
    assert_true(complete);
    memset(text + 5, '[', 64);
    assert_int_equal(read_prefix(text, 5 + 64, &complete), 5 + 63);
}

static void test_events(void **state) {
    (void)state;
    static const char text[] = "{\"k\\\"\": \"v\", \"n\":-1,\"l\":[true,{}]}";
    // A letter under each byte; '.': inside something.
    static const char want[] = "{k...K..s.S..k.K.#..k.K.[#....{}]}";
    static const char letters[] = "!.kKsS#{}";
    struct jstream json = {0};
    char got[sizeof text] = {0};
    for (size_t i = 0; text[i]; i++) {
        enum jstream_event event = jstream_push(&json, text[i]);
        got[i] = event == JSTREAM_OPEN || event == JSTREAM_CLOSE ? text[i] : letters[event];
    }
    assert_string_equal(got, want);
    assert_int_equal(json.depth, 0);
}

static void test_control_characters_are_noted(void **state) {
    (void)state;
    struct jstream json = {0};
    for (const char *c = "{\n\"a\"\t:\"\xc3\xa9\x7f"; *c; c++) jstream_push(&json, *c);
    assert_false(json.raw_control);
    assert_int_equal(jstream_push(&json, '\n'), JSTREAM_MORE);
    assert_true(json.raw_control);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_texts),
        cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_control_characters_are_noted),
    };
    return cmocka_run_group_tests_name("jstream", tests, NULL, NULL);
}
