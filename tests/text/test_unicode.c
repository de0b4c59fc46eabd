// UTF-8, NFC and the character table.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "text/unicode/unicode.h"

#define FFFD "\xef\xbf\xbd"

static const struct {
    const char *bytes, *repaired;
} broken[] = {
    {"", ""},
    {"plain", "plain"},
    {"\x80", FFFD},
    {"\xff\xfe", FFFD FFFD},
    {"a\xc3", "a" FFFD},
    {"\xc3(", FFFD "("},
    {"\xc0\xaf", FFFD FFFD}, // overlong
    {"\xe0\x80\xaf", FFFD FFFD FFFD}, // overlong: E0 80 begins nothing
    {"\xe2\x82", FFFD}, // one for the longest beginning
    {"\xe2\x82(", FFFD "("},
    {"\xe2\x28\xa1", FFFD "(" FFFD},
    {"\xed\xa0\x80", FFFD FFFD FFFD}, // a surrogate
    {"\xed\x9f\xbf", "\xed\x9f\xbf"},
    {"\xf0\x9f\x99", FFFD},
    {"\xf0\x9f\x99\xf0\x9f\x99\x82", FFFD "\xf0\x9f\x99\x82"},
    {"\xf0\x8f\xbf\xbf", FFFD FFFD FFFD FFFD},
    {"\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD}, // past U+10FFFF
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    {"\xf5\x80", FFFD FFFD},
    {"\xe4\xb8\xe4\xb8\xad", FFFD "\xe4\xb8\xad"},
    {"12345678\xc3\xa9"
     "12345678\xa9",
     "12345678\xc3\xa9"
     "12345678" FFFD},
};

static void test_repair(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        size_t len = strlen(broken[i].bytes);
        // Wherever a text is cut, its two parts give the same as the whole.
        for (size_t cut = 0; cut <= len; cut++) {
            struct utf8_partial partial = {0};
            struct buf out = {0};
            assert_int_equal(utf8_append_lossy(&partial, broken[i].bytes, cut, &out, NULL), OK);
            if (out.len) assert_int_equal(utf8_valid_prefix(out.data, out.len), out.len);
            assert_int_equal(
                utf8_append_lossy(&partial, broken[i].bytes + cut, len - cut, &out, NULL), OK);
            assert_int_equal(utf8_append_end(&partial, &out, NULL), OK);
            assert_int_equal(out.len, strlen(broken[i].repaired));
            if (out.len) assert_string_equal(out.data, broken[i].repaired);
            buf_fini(&out);
        }
    }
}

static void test_valid_prefix(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        size_t len = strlen(broken[i].bytes), same = 0;
        bool valid = strcmp(broken[i].bytes, broken[i].repaired) == 0;
        while (same < len && broken[i].bytes[same] == broken[i].repaired[same]) same++;
        size_t prefix = utf8_valid_prefix(broken[i].bytes, len);
        if (valid) {
            assert_int_equal(prefix, len);
        } else {
            assert_true(prefix <= same && prefix < len);
        }
    }
}

static void test_every_character_there_and_back(void **state) {
    (void)state;
    for (uint32_t c = 0; c < UNICODE_END; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        char bytes[4];
        size_t size, len = utf8_write(c, bytes);
        if (utf8_valid_prefix(bytes, len) != len) fail_msg("U+%04X is not valid", c);
        if (utf8_decode((unsigned char *)bytes, &size) != c || size != len) {
            fail_msg("U+%04X is read differently", c);
        }
    }
}

static void test_flags(void **state) {
    (void)state;
    static const struct {
        uint32_t c;
        unsigned flags;
    } cases[] = {
        {'a', UNICODE_LETTER | UNICODE_WORD},
        {'7', UNICODE_NUMBER | UNICODE_WORD},
        {'_', UNICODE_WORD},
        {'-', 0},
        {' ', UNICODE_SPACE},
        {0x0b, UNICODE_SPACE},
        {0x1c, 0},
        {0x85, UNICODE_SPACE},
        {0x180e, 0},
        {0x200b, 0},
        {0x3000, UNICODE_SPACE},
        {0xbd, UNICODE_NUMBER},
        {0x301, UNICODE_WORD},
        {0x4e2d, UNICODE_LETTER | UNICODE_WORD},
        {0x2167, UNICODE_NUMBER | UNICODE_WORD},
        {0x24d0, UNICODE_WORD},
        {0x1f642, 0},
        {0x31350, UNICODE_LETTER | UNICODE_WORD},
        {0x1c89, UNICODE_LETTER | UNICODE_WORD}, // of Unicode 16
        {0x10ffff, 0},
    };
    uint8_t *flags;
    assert_int_equal(unicode_flags_create(&flags, NULL), OK);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        unsigned mask = UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE | UNICODE_WORD;
        if ((flags[cases[i].c] & mask) != cases[i].flags) {
            fail_msg("U+%04X has flags %u", cases[i].c, flags[cases[i].c] & mask);
        }
    }
    free(flags);
}

static const struct {
    const char *text, *normal;
} nfc_cases[] = {
    {"", ""},
    {"plain ASCII, long enough for words", "plain ASCII, long enough for words"},
    {"\xc3\xa9", "\xc3\xa9"},
    {"e\xcc\x81", "\xc3\xa9"},
    {"xe\xcc\x81x", "x\xc3\xa9x"},
    {"\xcc\x81", "\xcc\x81"}, // a mark alone
    {"\xe2\x84\xab", "\xc3\x85"}, // Angstrom sign
    {"\xe1\xba\x9b\xcc\xa3", "\xe1\xba\x9b\xcc\xa3"}, // long s with two dots
    {"a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81"}, // reordered, then composed
    {"\xc3\xa9\xcc\xa8", "\xc4\x99\xcc\x81"}, // a mark goes between its parts
    {"\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"}, // Hangul
    {"\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81"},
    {"\xe0\xa4\x95\xe0\xa4\xbc", "\xe0\xa4\x95\xe0\xa4\xbc"}, // excluded from composition
    {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"},
    {"e\xcc\x81 e\xcc\x81", "\xc3\xa9 \xc3\xa9"}, // two runs
    {"\xef\xa4\x80\xf0\xaf\xa0\x80", "\xe8\xb1\x88\xe4\xb8\xbd"}, // compatibility ideographs
};

static void test_nfc(void **state) {
    (void)state;
    uint8_t *flags;
    struct unicode_nfc_scratch scratch = {0};
    struct buf out = {0};
    assert_int_equal(unicode_flags_create(&flags, NULL), OK);
    for (size_t i = 0; i < ARRAY_LEN(nfc_cases); i++) {
        const char *text = nfc_cases[i].text, *normal = nfc_cases[i].normal;
        bool changed;
        assert_int_equal(unicode_normalize(UNICODE_NFC, flags, text, strlen(text), &scratch, &out,
                                           &changed, NULL),
                         OK);
        assert_int_equal(changed, strcmp(text, normal) != 0);
        if (changed) assert_string_equal(out.data, normal);
    }
    buf_fini(&out);
    unicode_nfc_scratch_fini(&scratch);
    free(flags);
}

static const struct {
    const char *text, *normal;
} nfkc_cases[] = {
    {"plain ASCII, long enough for words", "plain ASCII, long enough for words"},
    {"\u00e9\u0391", "\u00e9\u0391"},
    {"a\u00a0b", "a b"}, // below U+0300
    {"\ufb01\u0301", "f\u00ed"}, // a ligature, whose second part takes the mark
    {"\uff21\u0301x", "\u00c1x"},
    {"\u304b\uff9e", "\u304c"}, // the normal form of the mark joins the character before
    {"\u3131\u314f", "\uac00"},
    {"\u1e9b\u0323", "\u1e69"},
    {"\u2460\u00bd \u3392", "11\u20442 MHz"},
    {"\ufdfa", "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 \u0639\u0644\u064a\u0647 "
               "\u0648\u0633\u0644\u0645"},
    {"\u32ff", "\u32ff"}, // of Unicode 12.1: Hugging Face leaves it
};

static void test_nfkc(void **state) {
    (void)state;
    uint8_t *flags;
    struct unicode_nfc_scratch scratch = {0};
    struct buf out = {0};
    assert_int_equal(unicode_flags_create(&flags, NULL), OK);
    for (size_t i = 0; i < ARRAY_LEN(nfkc_cases); i++) {
        const char *text = nfkc_cases[i].text, *normal = nfkc_cases[i].normal;
        bool changed;
        assert_int_equal(unicode_normalize(UNICODE_NFKC, flags, text, strlen(text), &scratch, &out,
                                           &changed, NULL),
                         OK);
        assert_int_equal(changed, strcmp(text, normal) != 0);
        if (changed) assert_string_equal(out.data, normal);
    }
    buf_fini(&out);
    unicode_nfc_scratch_fini(&scratch);
    free(flags);
}

// Marks in the wrong order, very many of them: sorting by exchange would take hours.
static void test_nfc_of_a_million_marks(void **state) {
    (void)state;
    enum { PAIRS = 500000 };
    uint8_t *flags;
    struct unicode_nfc_scratch scratch = {0};
    struct buf text = {0}, out = {0};
    bool changed;
    assert_int_equal(unicode_flags_create(&flags, NULL), OK);
    for (int i = 0; i < PAIRS; i++) {
        assert_int_equal(buf_append(&text, "\xcc\x81\xcc\xa3", 4, NULL), OK); // above, below
    }
    assert_int_equal(
        unicode_normalize(UNICODE_NFC, flags, text.data, text.len, &scratch, &out, &changed, NULL),
        OK);
    assert_true(changed);
    assert_int_equal(out.len, text.len);
    for (size_t i = 0; i < 2 * PAIRS; i++) {
        const char *mark = i < PAIRS ? "\xcc\xa3" : "\xcc\x81"; // the lower class first
        if (memcmp(out.data + 2 * i, mark, 2) != 0) fail_msg("mark %zu is out of order", i);
    }
    buf_fini(&text);
    buf_fini(&out);
    unicode_nfc_scratch_fini(&scratch);
    free(flags);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair),
        cmocka_unit_test(test_valid_prefix),
        cmocka_unit_test(test_every_character_there_and_back),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_nfkc),
        cmocka_unit_test(test_nfc_of_a_million_marks),
    };
    return cmocka_run_group_tests_name("unicode", tests, NULL, NULL);
}
