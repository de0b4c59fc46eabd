// Numbers and JSON of the base module: every f16 and bf16 value, rounding to bf16, types by name,
// and each getter's result for values that are missing, of the wrong type or out of range.
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/json/jread.h"
#include "support/cmocka_all.h"

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void test_every_f16_value(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        int exponent = (int)(bits >> 10 & 31);
        int mantissa = (int)(bits & 1023);
        float got = f16_to_f32((uint16_t)bits);
        assert_int_equal(bits_of(got) >> 31, bits >> 15);
        if (exponent == 31 && mantissa) {
            assert_true(got != got);
            continue;
        }
        double want = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
        if (exponent == 31) want = (double)INFINITY;
        assert_true((double)fabsf(got) == want);
    }
}

static void test_every_bf16_value(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        float value = bf16_to_f32((uint16_t)bits);
        assert_int_equal(bits_of(value), bits << 16);
        uint16_t back = f32_to_bf16(value);
        if (value != value) { // NaN stays NaN, of the same sign
            float again = bf16_to_f32(back);
            assert_true(again != again);
            assert_int_equal(back >> 15, bits >> 15);
        } else {
            assert_int_equal(back, bits);
        }
    }
}

// Between each bf16 value and the next: the middle goes to the even one, the rest to the nearer.
static void test_bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0xff80; bits++) {
        if ((bits & 0x7fff) >= 0x7f80) continue; // infinity and NaN
        uint32_t wide = bits << 16;
        uint32_t next = bits + 1; // away from zero; past the largest: infinity
        assert_int_equal(f32_to_bf16(float_of(wide | 0x0001)), bits);
        assert_int_equal(f32_to_bf16(float_of(wide | 0x7fff)), bits);
        assert_int_equal(f32_to_bf16(float_of(wide | 0x8000)), bits & 1 ? next : bits);
        assert_int_equal(f32_to_bf16(float_of(wide | 0x8001)), next);
        assert_int_equal(f32_to_bf16(float_of(wide | 0xffff)), next);
    }
    // A NaN whose payload is in the lower half only must not become infinity.
    float nan_low = float_of(0x7f800001);
    assert_true(bf16_to_f32(f32_to_bf16(nan_low)) != 0 && (f32_to_bf16(nan_low) & 0x7fff) > 0x7f80);
}

static void test_dtypes_by_name(void **state) {
    (void)state;
    for (int i = DTYPE_NONE + 1; i <= DTYPE_C64; i++) {
        enum dtype dtype = (enum dtype)i;
        assert_int_equal(dtype_from_name(dtype_name(dtype)), dtype);
        assert_in_range(dtype_size(dtype), 1, 8);
    }
    assert_int_equal(dtype_from_name("bf16"), DTYPE_NONE);
    assert_int_equal(dtype_from_name("none"), DTYPE_NONE);
    assert_int_equal(dtype_from_name(""), DTYPE_NONE);
    assert_int_equal(dtype_size(DTYPE_NONE), 0);
    assert_int_equal(dtype_size(DTYPE_BF16), 2);
    assert_int_equal(dtype_size(DTYPE_F32), 4);
    assert_int_equal(dtype_size(DTYPE_C64), 8);
}

static json_t *parse(const char *text) {
    json_t *root = NULL;
    struct err err = {0};
    if (jread_text(&root, text, strlen(text), "it", &err) != OK) fail_msg("%s", err.message);
    return root;
}

static void parse_refused_as(const char *text, enum status want, const char *sentence) {
    json_t *root = NULL;
    struct err err = {0};
    assert_int_equal(jread_text(&root, text, strlen(text), "it", &err), want);
    assert_null(root);
    if (strncmp(err.message, sentence, strlen(sentence)) != 0) {
        fail_msg("\"%s\", want \"%s...\"", err.message, sentence);
    }
}

static void parse_refused(const char *text, const char *sentence) {
    parse_refused_as(text, ERR_FORMAT, sentence);
}

static void test_json_documents(void **state) {
    (void)state;
    static const char *const good[] = {"{}",   "[]",           "5", "\"text\"", "true",
                                       "null", " {\"a\": 1}\n"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) json_decref(parse(good[i]));
    parse_refused("", "it is not valid JSON: ");
    parse_refused("{", "it is not valid JSON: ");
    parse_refused("{} {}", "it is not valid JSON: end of file expected");
    parse_refused("1, 2", "it is not valid JSON: end of file expected");
    parse_refused("1], [2", "it is not valid JSON: end of file expected");
    parse_refused("{\"a\": 1, \"a\": 2}", "it is not valid JSON: duplicate object key");
    parse_refused("{\"a\": 1\n,\n\"b\" 5}",
                  "it is not valid JSON: ':' expected near '5' at line 3");
    parse_refused("\"\\ud800\"", "it is not valid JSON: ");
    parse_refused("\"\xff\"", "it is not valid JSON: ");
    parse_refused("[\n\"\\u0000\"]", "it: \\u0000 in a string is not supported (line 2, column ");
    parse_refused("\xef\xbb\xbf{}", "it starts with a byte order mark");
    parse_refused("version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
                  "it is a Git LFS pointer, not the file itself (git lfs pull fetches it)");
    parse_refused("NaN", "it is not valid JSON: ");
    parse_refused("99999999999999999999", "it is not valid JSON: too big integer");
    parse_refused("1e999", "it is not valid JSON: real number overflow");
    char deep[6001];
    memset(deep, '[', sizeof deep - 1);
    deep[6000] = '\0';
    parse_refused_as(deep, ERR_UNSUPPORTED, "it is nested deeper than 64 levels");
    deep[64] = '\0';
    parse_refused(deep, "it is not valid JSON: ");
}

static void test_json_files_are_named(void **state) {
    (void)state;
    json_t *root = NULL;
    struct err err = {0};
    assert_int_equal(jread_file(&root, "models/tiny-qwen3/config.json", &err), OK);
    assert_true(json_is_object(root));
    json_decref(root);
    assert_int_equal(jread_file(&root, "CMakeLists.txt", &err), ERR_FORMAT);
    assert_memory_equal(err.message, "CMakeLists.txt is not valid JSON: ", 34);
    assert_null(root);
    assert_int_equal(jread_file(&root, "nowhere.json", &err), ERR_IO);
}

static const char *const document =
    "{\"i\": 7, \"big\": 9223372036854775807, \"r\": 1.5, \"s\": \"text\", \"t\": true,"
    " \"nothing\": null, \"list\": [], \"map\": {}}";

static void test_missing_and_null_keep_the_default(void **state) {
    (void)state;
    json_t *root = parse(document);
    static const char *const keys[] = {"missing", "nothing"};
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        int64_t integer = 42;
        double number = 42;
        bool flag = true;
        const char *text = "default";
        assert_int_equal(jread_int(root, keys[k], 0, 1, &integer, "it", NULL), OK);
        assert_int_equal(jread_number(root, keys[k], &number, "it", NULL), OK);
        assert_int_equal(jread_bool(root, keys[k], &flag, "it", NULL), OK);
        assert_int_equal(jread_string(root, keys[k], &text, "it", NULL), OK);
        assert_true(integer == 42 && number == 42 && flag);
        assert_string_equal(text, "default");
        assert_null(jread_get(root, keys[k]));
    }
    json_decref(root);
}

static void test_values_of_the_right_type(void **state) {
    (void)state;
    json_t *root = parse(document);
    int64_t integer = 0;
    double number = 0;
    bool flag = false;
    const char *text = NULL;
    assert_int_equal(jread_int(root, "i", 7, 7, &integer, "it", NULL), OK);
    assert_int_equal(integer, 7);
    assert_int_equal(jread_int(root, "big", INT64_MIN, INT64_MAX, &integer, "it", NULL), OK);
    assert_true(integer == INT64_MAX);
    assert_int_equal(jread_number(root, "r", &number, "it", NULL), OK);
    assert_true(number == 1.5);
    assert_int_equal(jread_number(root, "i", &number, "it", NULL), OK); // an integer is a number
    assert_true(number == 7);
    assert_int_equal(jread_bool(root, "t", &flag, "it", NULL), OK);
    assert_true(flag);
    assert_int_equal(jread_string(root, "s", &text, "it", NULL), OK);
    assert_string_equal(text, "text");
    json_decref(root);
}

static void test_values_of_the_wrong_type(void **state) {
    (void)state;
    json_t *root = parse(document);
    struct err err = {0};
    int64_t integer = 42;
    double number = 42;
    bool flag = false;
    const char *text = NULL;
    assert_int_equal(jread_int(root, "r", 0, 9, &integer, "it", &err), ERR_FORMAT);
    assert_string_equal(err.message, "it: \"r\" is a real number, want an integer");
    assert_int_equal(jread_int(root, "i", 0, 6, &integer, "it", &err), ERR_FORMAT);
    assert_string_equal(err.message, "it: \"i\" is 7, want 0 to 6");
    assert_int_equal(jread_int(root, "i", 8, 9, &integer, "it", &err), ERR_FORMAT);
    assert_int_equal(jread_int(root, "s", 0, 9, &integer, "it", &err), ERR_FORMAT);
    assert_string_equal(err.message, "it: \"s\" is a string, want an integer");
    assert_int_equal(jread_number(root, "t", &number, "it", &err), ERR_FORMAT);
    assert_string_equal(err.message, "it: \"t\" is a boolean, want a number");
    assert_int_equal(jread_bool(root, "i", &flag, "it", &err), ERR_FORMAT);
    assert_string_equal(err.message, "it: \"i\" is an integer, want true or false");
    assert_int_equal(jread_string(root, "list", &text, "it", &err), ERR_FORMAT);
    assert_string_equal(err.message, "it: \"list\" is a list, want a string");
    assert_int_equal(jread_string(root, "map", &text, "it", &err), ERR_FORMAT);
    assert_string_equal(err.message, "it: \"map\" is an object, want a string");
    assert_true(integer == 42 && number == 42 && !flag && !text); // untouched
    assert_string_equal(jread_type_name(NULL), "missing");
    assert_string_equal(jread_type_name(json_null()), "null");
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_f16_value),
        cmocka_unit_test(test_every_bf16_value),
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_dtypes_by_name),
        cmocka_unit_test(test_json_documents),
        cmocka_unit_test(test_json_files_are_named),
        cmocka_unit_test(test_missing_and_null_keep_the_default),
        cmocka_unit_test(test_values_of_the_right_type),
        cmocka_unit_test(test_values_of_the_wrong_type),
    };
    return cmocka_run_group_tests_name("base_values", tests, NULL, NULL);
}
