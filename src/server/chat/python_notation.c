#include "server/chat/python_notation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text/blank.h"
#include "base/text/c_locale.h"

enum {
    KEYWORD, // before or in an argument's name, or the call's end
    EQUALS, // behind a name and white space
    VALUE, // before a value, a dict's key, or the end of its list or dict
    WORD,
    OPENING, // behind a string's first quote
    EMPTY, // behind two quotes: an empty string, or two of three
    STRING,
    ESCAPE, // behind a backslash
    HEX, // in its digits
    OCTAL,
    COLON, // behind a dict's key
    AFTER, // behind a value
};

void python_notation_begin(struct python_notation *n) {
    *n = (struct python_notation){.state = KEYWORD, .depth = 1};
}

static void write_bytes(struct python_out *out, const char *text, size_t len) {
    CHECK(out->len + len <= sizeof out->text, "len=%zu", len);
    if (len) memcpy(out->text + out->len, text, len);
    out->len += len;
}

static void write_text(struct python_out *out, const char *text) {
    write_bytes(out, text, strlen(text));
}

static void write_escaped(struct python_out *out, char byte) {
    char escaped[8];
    int len = call_notation_escape(byte, escaped);
    write_bytes(out, escaped, (size_t)len);
}

static uint64_t bit_of(const struct python_notation *n) {
    return (uint64_t)1 << (n->depth - 1);
}

static bool in_list(const struct python_notation *n) {
    return (n->are_lists & bit_of(n)) != 0;
}

// The comma before a key or before an item of a list.
static void separate(struct python_notation *n, struct python_out *out) {
    if (n->have_items & bit_of(n)) write_text(out, ", ");
    n->have_items |= bit_of(n);
}

static enum notation_end take_word(struct python_notation *n, char byte) {
    if (n->word_len == PYTHON_WORD_MAX) return NOTATION_BROKEN;
    n->word[n->word_len++] = byte;
    return NOTATION_GOES_ON;
}

// ---- names, numbers and words ----

static bool is_letter(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
           (unsigned char)byte >= 0x80;
}

bool python_notation_is_key(const char *text) {
    size_t len = 0;
    while (is_letter(text[len]) || (len && c_locale_is_digit(text[len]))) len++;
    return len && len <= PYTHON_WORD_MAX && !text[len];
}

static void end_keyword(struct python_notation *n, struct python_out *out) {
    separate(n, out);
    write_text(out, "\"");
    write_bytes(out, n->word, n->word_len);
    write_text(out, "\": ");
    n->word_len = 0;
    n->state = VALUE;
}

static enum notation_end feed_keyword(struct python_notation *n, char byte,
                                      struct python_out *out) {
    if (n->state == KEYWORD && (is_letter(byte) || (n->word_len && c_locale_is_digit(byte)))) {
        return take_word(n, byte);
    }
    if (byte == '=' && n->word_len) {
        end_keyword(n, out);
    } else if (byte == ')' && !n->word_len) {
        return NOTATION_DONE;
    } else if (!is_blank(byte)) {
        return NOTATION_BROKEN;
    } else if (n->word_len) {
        n->state = EQUALS;
    }
    return NOTATION_GOES_ON;
}

// Moves *at behind digits and single underscores between them, and writes the digits. Returns how
// many there are.
static size_t copy_digits(const char *word, size_t *at, struct python_out *out) {
    size_t count = 0;
    for (; c_locale_is_digit(word[*at]) ||
           (word[*at] == '_' && count && c_locale_is_digit(word[*at + 1]));
         ++*at) {
        if (word[*at] == '_') continue;
        write_bytes(out, word + *at, 1);
        count++;
    }
    return count;
}

// 0x.., 0o.. or 0b.., as a decimal number of at most 64 bits.
static bool write_based(const char *word, struct python_out *out) {
    int base = strchr("xX", word[1]) ? 16 : strchr("oO", word[1]) ? 8 : 2;
    char digits[PYTHON_WORD_MAX + 1], decimal[24], *end;
    size_t len = 0;
    for (const char *c = word + 2; *c; c++) {
        if (*c != '_') digits[len++] = *c;
    }
    digits[len] = '\0';
    bool is_bare = len && (c_locale_is_digit(digits[0]) || (base == 16 && is_letter(digits[0])));
    if (!is_bare || strspn(digits, "0") + 64 < len) return false;
    unsigned long long value = strtoull(digits, &end, base);
    if (*end || (base == 16 && len > strspn(digits, "0") + 16)) return false;
    if (base == 8 && len > strspn(digits, "0") + 21) return false;
    snprintf(decimal, sizeof decimal, "%llu", value);
    write_text(out, decimal);
    return true;
}

// The word is a number of Python, which JSON may write otherwise: 1_000, .5, 5., +1, 0x1f.
static bool write_number(const char *word, struct python_out *out) {
    struct python_out whole = {0};
    size_t at = 0;
    if (*word == '-') write_text(out, "-");
    if (*word == '-' || *word == '+') word++;
    if (*word == '0' && word[1] && strchr("xXoObB", word[1])) return write_based(word, out);
    size_t count = copy_digits(word, &at, &whole);
    bool is_real = word[at] == '.' || word[at] == 'e' || word[at] == 'E';
    size_t zeros = 0;
    while (zeros + 1 < count && whole.text[zeros] == '0') zeros++;
    // 007 is no number, 000 and 00.5 are.
    if (zeros && !is_real && whole.text[zeros] != '0') return false;
    if (count) write_bytes(out, whole.text + zeros, count - zeros);
    if (!count) write_text(out, "0");
    if (word[at] == '.') {
        at++;
        write_text(out, ".");
        size_t behind = copy_digits(word, &at, out);
        if (!behind && !count) return false;
        if (!behind) write_text(out, "0");
    } else if (!count) {
        return false;
    }
    if (word[at] == 'e' || word[at] == 'E') {
        at++;
        write_text(out, "e");
        if (word[at] == '-' || word[at] == '+') write_bytes(out, word + at++, 1);
        if (!copy_digits(word, &at, out)) return false;
    }
    return !word[at];
}

static enum notation_end end_word(struct python_notation *n, struct python_out *out) {
    static const char *const json_words[] = {"true", "false", "null"};
    char word[PYTHON_WORD_MAX + 1];
    memcpy(word, n->word, n->word_len);
    word[n->word_len] = '\0';
    const char *json = call_notation_python(word, n->word_len);
    for (size_t i = 0; i < ARRAY_LEN(json_words); i++) {
        if (strcmp(word, json_words[i]) == 0) json = json_words[i];
    }
    struct python_out number = {0};
    if (!json && !write_number(word, &number)) return NOTATION_BROKEN;
    if (in_list(n)) separate(n, out);
    if (json) write_text(out, json);
    write_bytes(out, number.text, number.len);
    n->word_len = 0;
    n->state = AFTER;
    return NOTATION_GOES_ON;
}

// ---- strings ----

static void begin_string(struct python_notation *n, bool is_triple, struct python_out *out) {
    if (n->is_key || in_list(n)) separate(n, out);
    write_text(out, "\"");
    n->state = STRING;
    n->is_triple = is_triple;
    n->num_quotes = 0;
}

static void end_string(struct python_notation *n, struct python_out *out) {
    write_text(out, "\"");
    n->state = n->is_key ? COLON : AFTER;
}

static void take_string_byte(struct python_notation *n, char byte, struct python_out *out) {
    if (byte == n->quote) {
        n->num_quotes++;
        if (n->num_quotes == (n->is_triple ? 3 : 1)) end_string(n, out);
        return;
    }
    for (; n->num_quotes; n->num_quotes--) write_escaped(out, n->quote);
    if (byte == '\\') {
        n->state = ESCAPE;
    } else {
        write_escaped(out, byte);
    }
}

// A character by its code, as JSON escapes it.
static enum notation_end write_code(struct python_notation *n, struct python_out *out) {
    char escaped[16];
    if (n->code > 0x10ffff) return NOTATION_BROKEN;
    if (n->code < 0x10000) {
        snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)n->code);
    } else {
        unsigned rest = (unsigned)n->code - 0x10000;
        snprintf(escaped, sizeof escaped, "\\u%04x\\u%04x", 0xd800 + (rest >> 10),
                 0xdc00 + (rest & 0x3ff));
    }
    write_text(out, escaped);
    n->state = STRING;
    return NOTATION_GOES_ON;
}

static void begin_code(struct python_notation *n, uint8_t state, uint8_t digits) {
    n->state = state;
    n->digits_left = digits;
    n->code = 0;
}

static void feed_escape(struct python_notation *n, char byte, struct python_out *out) {
    static const char same[] = "\\\"nrtbf"; // JSON's too
    n->state = STRING;
    if (byte >= '0' && byte <= '7') {
        begin_code(n, OCTAL, 2);
        n->code = (uint32_t)(byte - '0');
    } else if (byte == 'x' || byte == 'u' || byte == 'U') {
        begin_code(n, HEX, byte == 'x' ? 2 : byte == 'u' ? 4 : 8);
    } else if (byte && strchr(same, byte)) {
        write_text(out, "\\");
        write_bytes(out, &byte, 1);
    } else if (byte == '\'' || byte == '/') {
        write_bytes(out, &byte, 1);
    } else if (byte == 'a' || byte == 'v') {
        write_text(out, byte == 'a' ? "\\u0007" : "\\u000b");
    } else if (byte != '\n') { // else the line goes on
        write_text(out, "\\\\");
        write_escaped(out, byte);
    }
}

static enum notation_end feed_hex(struct python_notation *n, char byte, struct python_out *out) {
    static const char digits[] = "0123456789abcdef";
    char lower = byte >= 'A' && byte <= 'F' ? (char)(byte - 'A' + 'a') : byte;
    const char *digit = lower ? strchr(digits, lower) : NULL;
    if (!digit) return NOTATION_BROKEN;
    n->code = n->code << 4 | (uint32_t)(digit - digits);
    return --n->digits_left ? NOTATION_GOES_ON : write_code(n, out);
}

static enum notation_end feed_octal(struct python_notation *n, char byte, struct python_out *out) {
    bool is_digit_too = byte >= '0' && byte <= '7';
    if (is_digit_too) {
        n->code = n->code << 3 | (uint32_t)(byte - '0');
        n->digits_left--;
        if (n->digits_left) return NOTATION_GOES_ON;
    }
    enum notation_end end = write_code(n, out);
    if (!is_digit_too) take_string_byte(n, byte, out);
    return end;
}

// ---- lists and dicts ----

static enum notation_end open_group(struct python_notation *n, char byte, struct python_out *out) {
    if (n->depth == NOTATION_DEPTH_MAX) return NOTATION_BROKEN;
    if (in_list(n)) separate(n, out);
    n->depth++;
    n->have_items &= ~bit_of(n);
    n->are_lists &= ~bit_of(n);
    if (byte == '[') n->are_lists |= bit_of(n);
    n->is_key = byte == '{';
    n->state = VALUE;
    write_bytes(out, &byte, 1);
    return NOTATION_GOES_ON;
}

static enum notation_end close_group(struct python_notation *n, char byte, struct python_out *out) {
    char closes = n->depth == 1 ? ')' : in_list(n) ? ']' : '}';
    if (byte != closes) return NOTATION_BROKEN;
    if (n->depth == 1) return NOTATION_DONE;
    n->depth--;
    n->is_key = false;
    n->state = AFTER;
    write_bytes(out, &byte, 1);
    return NOTATION_GOES_ON;
}

static enum notation_end feed_value(struct python_notation *n, char byte, struct python_out *out) {
    if (is_blank(byte)) return NOTATION_GOES_ON;
    if (byte == '"' || byte == '\'') {
        n->quote = byte;
        n->state = OPENING;
        return NOTATION_GOES_ON;
    }
    if ((byte == ']' && in_list(n)) || (byte == '}' && n->is_key)) {
        return close_group(n, byte, out);
    }
    if (n->is_key) return NOTATION_BROKEN;
    if (byte == '[' || byte == '{') return open_group(n, byte, out);
    bool is_word =
        is_letter(byte) || c_locale_is_digit(byte) || byte == '-' || byte == '+' || byte == '.';
    if (!is_word) return NOTATION_BROKEN;
    n->state = WORD;
    return take_word(n, byte);
}

static enum notation_end feed_after(struct python_notation *n, char byte, struct python_out *out) {
    if (is_blank(byte)) return NOTATION_GOES_ON;
    if (byte != ',') return close_group(n, byte, out);
    n->state = n->depth == 1 ? KEYWORD : VALUE;
    n->is_key = n->depth > 1 && !in_list(n);
    return NOTATION_GOES_ON;
}

static enum notation_end feed_colon(struct python_notation *n, char byte, struct python_out *out) {
    if (is_blank(byte)) return NOTATION_GOES_ON;
    if (byte != ':') return NOTATION_BROKEN;
    n->is_key = false;
    n->state = VALUE;
    write_text(out, ": ");
    return NOTATION_GOES_ON;
}

static enum notation_end feed_word(struct python_notation *n, char byte, struct python_out *out) {
    if (!is_blank(byte) && !(byte && strchr(",)]}", byte))) return take_word(n, byte);
    enum notation_end end = end_word(n, out);
    return end ? end : feed_after(n, byte, out);
}

static enum notation_end feed_quotes(struct python_notation *n, char byte, struct python_out *out) {
    if (n->state == OPENING && byte == n->quote) {
        n->state = EMPTY;
        return NOTATION_GOES_ON;
    }
    bool is_empty = n->state == EMPTY && byte != n->quote;
    bool is_triple = n->state == EMPTY && byte == n->quote;
    begin_string(n, is_triple, out);
    if (is_empty) {
        end_string(n, out);
        return n->state == COLON ? feed_colon(n, byte, out) : feed_after(n, byte, out);
    }
    if (!is_triple) take_string_byte(n, byte, out);
    return NOTATION_GOES_ON;
}

static enum notation_end feed(struct python_notation *n, char byte, struct python_out *out) {
    switch (n->state) {
    case KEYWORD:
    case EQUALS:
        return feed_keyword(n, byte, out);
    case VALUE:
        return feed_value(n, byte, out);
    case WORD:
        return feed_word(n, byte, out);
    case OPENING:
    case EMPTY:
        return feed_quotes(n, byte, out);
    case STRING:
        take_string_byte(n, byte, out);
        return NOTATION_GOES_ON;
    case ESCAPE:
        feed_escape(n, byte, out);
        return NOTATION_GOES_ON;
    case HEX:
        return feed_hex(n, byte, out);
    case OCTAL:
        return feed_octal(n, byte, out);
    case COLON:
        return feed_colon(n, byte, out);
    default:
        return feed_after(n, byte, out);
    }
}

enum notation_end python_notation_feed(struct python_notation *n, char byte,
                                       struct python_out *out) {
    out->len = 0;
    enum notation_end end = feed(n, byte, out);
    if (end == NOTATION_BROKEN) write_bytes(out, n->word, n->word_len);
    return end;
}
