// Case mappings of whole strings, with the final sigma of SpecialCasing.txt as CPython has it.
#include "jinja/src/value/chars.h"
#include "jinja/src/value/str_ops.h"

enum { CAPITAL_SIGMA = 0x3a3, SMALL_SIGMA = 0x3c3, FINAL_SIGMA = 0x3c2 };

// A sigma that ends a word: a cased letter before it and none after it, ignorable ones skipped.
// Each run of ignorable characters is walked by the sigmas at its two ends only.
static uint32_t lower_sigma(const struct jinja_string *string, size_t start, size_t end) {
    bool is_final = false;
    for (size_t at = start; at > 0;) {
        uint32_t c = jinja_str_previous(string, &at);
        if (jinja_char_is_case_ignorable(c)) continue;
        is_final = jinja_char_is_cased(c);
        break;
    }
    for (size_t at = end; is_final && at < string->len;) {
        uint32_t c = jinja_str_next(string, &at);
        if (jinja_char_is_case_ignorable(c)) continue;
        is_final = !jinja_char_is_cased(c);
        break;
    }
    return is_final ? FINAL_SIGMA : SMALL_SIGMA;
}

static size_t to_lower(const struct jinja_string *string, size_t start, size_t end, uint32_t c,
                       uint32_t out[JINJA_CHAR_CASE_MAX]) {
    if (c != CAPITAL_SIGMA) return jinja_char_to_lower(c, out);
    out[0] = lower_sigma(string, start, end);
    return 1;
}

static bool is_ascii_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_ascii_upper(char c) {
    return c >= 'A' && c <= 'Z';
}

// The same for ASCII, which most texts are, without decoding.
static enum status append_ascii(struct jinja_run *run, struct jinja_text *text,
                                const struct jinja_string *string, enum jinja_str_case mapping) {
    char block[256];
    enum status status = OK;
    bool previous_is_cased = false;
    for (size_t start = 0; start < string->len && !status; start += sizeof block) {
        size_t left = string->len - start, len = left < sizeof block ? left : sizeof block;
        for (size_t i = 0; i < len; i++) {
            char c = string->data[start + i];
            bool is_lower = is_ascii_lower(c), is_upper = is_ascii_upper(c);
            bool to_upper = mapping == JINJA_STR_UPPER || mapping == JINJA_STR_SWAP ||
                            (mapping == JINJA_STR_TITLE && !previous_is_cased) ||
                            (mapping == JINJA_STR_CAPITALIZE && start + i == 0);
            bool to_lower = mapping == JINJA_STR_SWAP || !to_upper;
            previous_is_cased = is_lower || is_upper;
            if ((is_lower && to_upper) || (is_upper && to_lower)) c ^= 0x20;
            block[i] = c;
        }
        status = jinja_text_append(run, text, block, len);
    }
    return status;
}

enum status jinja_str_append_case(struct jinja_run *run, struct jinja_text *text,
                                  const struct jinja_string *string, enum jinja_str_case mapping) {
    enum status status = jinja_str_pay_chars(run, string->len);
    if (status) return status;
    if (string->len == string->num_chars) return append_ascii(run, text, string, mapping);
    status = jinja_str_pay_chars(run, string->len);
    bool previous_is_cased = false;
    for (size_t at = 0; at < string->len && !status;) {
        size_t start = at;
        uint32_t c = jinja_str_next(string, &at);
        enum jinja_str_case now = mapping;
        if (mapping == JINJA_STR_CAPITALIZE) {
            now = start == 0 ? JINJA_STR_TITLE : JINJA_STR_LOWER;
        } else if (mapping == JINJA_STR_TITLE) {
            now = previous_is_cased ? JINJA_STR_LOWER : JINJA_STR_TITLE;
            previous_is_cased = jinja_char_is_cased(c);
        } else if (mapping == JINJA_STR_SWAP) {
            if (!jinja_char_is_upper(c) && !jinja_char_is_lower(c)) {
                status = jinja_text_append(run, text, string->data + start, at - start);
                continue;
            }
            now = jinja_char_is_upper(c) ? JINJA_STR_LOWER : JINJA_STR_UPPER;
        }
        uint32_t mapped[JINJA_CHAR_CASE_MAX];
        size_t len;
        if (now == JINJA_STR_LOWER)
            len = to_lower(string, start, at, c, mapped);
        else if (now == JINJA_STR_UPPER)
            len = jinja_char_to_upper(c, mapped);
        else if (now == JINJA_STR_TITLE)
            len = jinja_char_to_title(c, mapped);
        else
            len = jinja_char_to_folded(c, mapped);
        for (size_t i = 0; i < len && !status; i++)
            status = jinja_str_append_char(run, text, mapped[i]);
    }
    return status;
}

enum status jinja_str_case_map(struct jinja_run *run, const struct jinja_string *string,
                               enum jinja_str_case mapping, struct jinja_value *out) {
    struct jinja_text text = {0};
    enum status status = jinja_str_append_case(run, &text, string, mapping);
    if (status) return status;
    return jinja_str_finish(run, &text, string->is_markup, out);
}
