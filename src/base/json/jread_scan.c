#include "base/json/jread_scan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/blank.h"
#include "base/text/c_locale.h"

// What jansson 2.14 allocates on a 64-bit machine, glibc's headers and rounding included.
static const size_t object_bytes = 224; // with 8 buckets
static const size_t array_bytes = 128; // with 8 places
static const size_t string_bytes = 80; // without the length of its text
static const size_t number_bytes = 32;
static const size_t member_bytes = 48; // on top of a string as long as its key
static const size_t place_bytes = 24; // a growing list doubles: its old and its new copy

// Ends a token that is not a string.
static bool is_delimiter(char c) {
    return c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}' || c == '"' ||
           is_blank(c);
}

static void count_token(struct jread_scan *scan, size_t len) {
    if (len > scan->longest_token) scan->longest_token = len;
}

// Whether the token is a JSON integer that does not fit 64 bits.
static bool is_big(const char *token, size_t len) {
    static const char max[] = "9223372036854775807", min[] = "9223372036854775808";
    enum { LIMIT_DIGITS = sizeof max - 1 };
    bool is_negative = len && token[0] == '-';
    const char *digits = token + is_negative;
    size_t num_digits = len - is_negative;
    if (num_digits < LIMIT_DIGITS || digits[0] == '0') return false;
    for (size_t i = 0; i < num_digits; i++) {
        if (!c_locale_is_digit(digits[i])) return false;
    }
    if (num_digits > LIMIT_DIGITS) return true;
    return memcmp(digits, is_negative ? min : max, LIMIT_DIGITS) > 0;
}

static enum status add_big(struct jread_scan *scan, size_t start, size_t len, const char *what,
                           struct err *err) {
    if (scan->num_bigs == scan->bigs_capacity) {
        size_t capacity = scan->bigs_capacity ? 2 * scan->bigs_capacity : 8;
        struct jread_big *bigs = realloc(scan->bigs, capacity * sizeof *bigs);
        if (!bigs) return err_nomem(err, what);
        scan->bigs = bigs;
        scan->bigs_capacity = capacity;
    }
    scan->bigs[scan->num_bigs++] =
        (struct jread_big){.start = start, .len = len, .index = scan->num_strings++};
    scan->tree_bytes += object_bytes + member_bytes + string_bytes + string_bytes + len;
    return OK;
}

// Bytes of the string that `text` begins with, both quotes included.
static size_t string_len(const char *text, size_t len) {
    size_t i = 1;
    while (i < len && text[i] != '"') i += text[i] == '\\' ? 2u : 1u;
    return i < len ? i + 1 : len;
}

static size_t token_len(const char *text, size_t len) {
    size_t i = 1;
    while (i < len && !is_delimiter(text[i])) i++;
    return i;
}

enum status jread_scan_run(struct jread_scan *scan, const char *text, size_t len, const char *what,
                           struct err *err) {
    *scan = (struct jread_scan){0};
    enum status status = OK;
    size_t depth = 0;
    for (size_t i = 0, step; i < len && !status; i += step) {
        char c = text[i];
        step = 1;
        if (c == '"') {
            step = string_len(text + i, len - i);
            count_token(scan, step);
            scan->num_strings++;
            scan->tree_bytes += string_bytes + place_bytes + step;
        } else if (c == '{' || c == '[') {
            if (++depth > scan->depth_max) scan->depth_max = depth;
            scan->tree_bytes += place_bytes + (c == '{' ? object_bytes : array_bytes);
        } else if (c == '}' || c == ']') {
            depth -= depth > 0;
        } else if (c == ':') {
            scan->tree_bytes += member_bytes;
        } else if (!is_delimiter(c)) {
            step = token_len(text + i, len - i);
            count_token(scan, step);
            scan->tree_bytes += place_bytes + number_bytes;
            if (is_big(text + i, step)) status = add_big(scan, i, step, what, err);
        }
    }
    return status;
}

void jread_scan_fini(struct jread_scan *scan) {
    free(scan->bigs);
    *scan = (struct jread_scan){0};
}
