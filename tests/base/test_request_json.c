// JSON that comes with a request: what is refused before anything is allocated for it, and integers
// beyond 64 bits, which are kept as they were written.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "support/cmocka_all.h"

static json_t *parse(const char *text) {
    json_t *root = NULL;
    struct err err = {0};
    if (jread_request(&root, text, strlen(text), "it", &err)) fail_msg("%s: %s", text, err.message);
    return root;
}

static void refused(const char *text, size_t len, enum status want, const char *sentence) {
    json_t *root = NULL;
    struct err err = {0};
    assert_int_equal(jread_request(&root, text, len, "it", &err), want);
    assert_null(root);
    if (!strstr(err.message, sentence)) fail_msg("\"%s\", want \"%s\"", err.message, sentence);
}

// `unit` again and again behind `before`, in all `len` bytes; the caller frees.
static char *repeated(const char *before, const char *unit, size_t len) {
    char *text = malloc(len + 1);
    assert_non_null(text);
    size_t at = strlen(before);
    memcpy(text, before, at + 1);
    for (size_t i = 0; at < len; at++, i++) text[at] = unit[i % strlen(unit)];
    text[len] = '\0';
    return text;
}

static void test_integers_of_any_size_are_written_as_they_were(void **state) {
    (void)state;
    static const char *const texts[] = {
        "18446744073709551615",
        "-9223372036854775809",
        "[9223372036854775807,9223372036854775808,-9223372036854775808]",
        "{\"a\":\"x\",\"b\":[1,{\"c\":99999999999999999999},\"y\"],\"d\":88888888888888888888}",
        ("[\"99999999999999999999\",99999999999999999999,\"\\u0000integer\",\"{"
         "\\\"\\\\u0000integer\\\":\"]"),
        "{\"99999999999999999999\":99999999999999999999}",
        "[12345678901234567890123456789012345678901234567890]",
    };
    static const size_t flags[] = {JSON_COMPACT, 0, JSON_INDENT(2)};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        for (size_t k = 0; k < ARRAY_LEN(flags); k++) { // written, read and written again
            json_t *root = parse(texts[i]);
            struct buf text = {0}, again = {0};
            assert_int_equal(jwrite(&text, root, flags[k] | JSON_ENCODE_ANY, "it", NULL), OK);
            json_decref(root);
            root = parse(text.data);
            assert_int_equal(jwrite(&again, root, JSON_COMPACT | JSON_ENCODE_ANY, "it", NULL), OK);
            assert_string_equal(again.data, texts[i]);
            buf_fini(&text);
            buf_fini(&again);
            json_decref(root);
        }
    }
}

static void test_an_integer_of_any_size_is_no_object(void **state) {
    (void)state;
    json_t *root = parse("{\"big\": -18446744073709551615, \"small\": 9223372036854775807}");
    json_t *big = json_object_get(root, "big");
    assert_string_equal(jread_big_integer(big), "-18446744073709551615");
    assert_false(jread_is_object(big));
    assert_string_equal(jread_type_name(big), "an integer beyond 64 bits");
    assert_true(json_is_integer(json_object_get(root, "small")));
    assert_true(jread_is_object(root));
    int64_t integer = 0;
    struct err err = {0};
    assert_int_equal(jread_int(root, "big", 0, 9, &integer, "it", &err), ERR_FORMAT);
    assert_string_equal(err.message, "it: \"big\" is an integer beyond 64 bits, want an integer");
    json_decref(root);
}

static void test_what_is_no_json_stays_so(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {"{99999999999999999999: 1}", "a key is a number"},
        {"{\"a\": 99999999999999999999, 99999999999999999999: 1}", "a key is a number"},
        {"[99999999999999999999x]", "it is not valid JSON: "},
        {"[x99999999999999999999]", "it is not valid JSON: "},
        {"[099999999999999999999]", "it is not valid JSON: "},
        {"[\"a\"99999999999999999999]", "it is not valid JSON: "},
        {"[99999999999999999999\"a\"]", "it is not valid JSON: "},
        {"[99999999999999999999\n, 1 2]", "near '2' at line 2, column 5"},
        {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
        {"[NaN]", "it is not valid JSON: "},
        {"[-Infinity]", "it is not valid JSON: "},
        {"[1e999]", "real number overflow"},
        {"{\"\\u0000integer\": \"1\"}", "it is not valid JSON: NUL byte in object key"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        refused(bad[i].text, strlen(bad[i].text), ERR_FORMAT, bad[i].sentence);
    }
    char *digits = repeated("[1", "2", 4303);
    digits[4302] = ']'; // 4301 digits
    refused(digits, 4303, ERR_UNSUPPORTED, "an integer of 4301 digits, want at most 4300");
    digits[4301] = ']';
    json_t *root = NULL;
    assert_int_equal(jread_request(&root, digits, 4302, "it", NULL), OK);
    json_decref(root);
    free(digits);
}

static void test_nesting_is_bounded(void **state) {
    (void)state;
    enum { MAX = JREAD_DEPTH_MAX };
    char text[2 * MAX + 3];
    memset(text, '[', MAX + 1);
    memset(text + MAX + 1, ']', MAX + 1);
    refused(text, sizeof text - 1, ERR_UNSUPPORTED, "it is nested deeper than 64 levels");
    text[sizeof text - 2] = '\0';
    json_decref(parse(text + 1));
}

// Bytes that malloc has given away; under a sanitizer, which has its own, 0.
static size_t allocated(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// What jansson takes for a tree stays below the bound that the text was let in by.
static void test_memory_is_bounded_by_the_length(void **state) {
    (void)state;
    static const struct {
        const char *unit;
        bool is_ordinary; // such a text is never refused
    } units[] = {
        {"{},", false},
        {"[],", false},
        {"\"\",", false},
        {"{\"a\":1},", false},
        {"[[[[[[]]]]]],", false},
        {"1,", true},
        {"1.5,", true},
        {"true,", true},
        {"99999999999999999999,", true},
        {"{\"type\":\"string\"},", true},
        {"\"a text\",", true},
    };
    size_t bytes_max = (size_t)1 << (getenv("NANOVLLM_TEST_ALL") ? 21 : 19);
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t unit_len = strlen(units[i].unit), num_admitted = 0, num_refused = 0;
        for (size_t bytes = (size_t)1 << 17; bytes <= bytes_max; bytes *= 4) {
            size_t len = bytes / unit_len * unit_len + 1;
            char *text = repeated("[", units[i].unit, len);
            text[len - 1] = ']'; // in place of the last comma
            json_t *root = NULL;
            struct err err = {0};
            size_t before = allocated();
            enum status status = jread_request(&root, text, len, "it", &err);
            size_t after = allocated();
            if (status) {
                assert_int_equal(status, ERR_UNSUPPORTED);
                assert_non_null(strstr(err.message, "it has too many small values"));
                assert_true(after <= before);
                num_refused++;
            } else {
                assert_true(after - before <= jread_request_memory(len));
                num_admitted++;
            }
            json_decref(root);
            free(text);
        }
        if (num_admitted == 0) fail_msg("%s: refused always", units[i].unit);
        if (i == 0) assert_true(num_refused > 0);
        if (units[i].is_ordinary) assert_int_equal(num_refused, 0);
    }
}

static void test_texts_inside_share_the_memory(void **state) {
    (void)state;
    size_t left = 100000;
    json_t *root = NULL;
    struct err err = {0};
    assert_int_equal(jread_request_part(&root, "[{}, {}]", 8, &left, "it", &err), OK);
    json_decref(root);
    assert_in_range(left, 98000, 99500);
    char *text = repeated("[", "{},", 3001);
    text[3000] = ']';
    assert_int_equal(jread_request_part(&root, text, 3001, &left, "it", &err), ERR_UNSUPPORTED);
    assert_null(root);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_of_any_size_are_written_as_they_were),
        cmocka_unit_test(test_an_integer_of_any_size_is_no_object),
        cmocka_unit_test(test_what_is_no_json_stays_so),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_memory_is_bounded_by_the_length),
        cmocka_unit_test(test_texts_inside_share_the_memory),
    };
    cmocka_set_skip_filter(getenv("NANOVLLM_TEST_SKIP"));
    return cmocka_run_group_tests_name("request_json", tests, NULL, NULL);
}
