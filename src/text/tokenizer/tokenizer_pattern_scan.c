/* Scanners for the published patterns. Each function tries the alternatives in the pattern's order,
 * as a backtracking engine would. It reads a run of white space at most twice, so that the time is
 * linear for any text. */
#include <string.h>

#include "text/tokenizer/tokenizer_pattern.h"
#include "text/unicode/unicode.h"

enum { NOT_OTHER = UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE };

// The end of the run of characters that have one of the flags.
static inline const unsigned char *skip_flagged(const uint8_t *flags, const unsigned char *p,
                                                const unsigned char *end, unsigned wanted) {
    while (p < end) {
        if (*p < 0x80) {
            if (!(flags[*p] & wanted)) break;
            p++;
        } else {
            size_t size;
            if (!(flags[utf8_decode(p, &size)] & wanted)) break;
            p += size;
        }
    }
    return p;
}

// The end of the run of characters that are neither letters, numbers nor white space.
static const unsigned char *skip_other(const uint8_t *flags, const unsigned char *p,
                                       const unsigned char *end) {
    while (p < end) {
        size_t size;
        if (flags[utf8_decode(p, &size)] & NOT_OTHER) break;
        p += size;
    }
    return p;
}

static unsigned flags_at(const uint8_t *flags, const unsigned char *p, const unsigned char *end,
                         size_t *size) {
    *size = 0;
    return p < end ? flags[utf8_decode(p, size)] : 0;
}

// \s+(?!\S)|\s+ at white space: a run leaves its last character to the word that follows it.
static size_t scan_space(const uint8_t *flags, const unsigned char *text,
                         const unsigned char *end) {
    const unsigned char *stop = skip_flagged(flags, text, end, UNICODE_SPACE);
    if (stop == end) return (size_t)(stop - text);
    const unsigned char *last = stop - 1;
    while (last > text && (*last & 0xc0) == 0x80) last--;
    return (size_t)((last > text ? last : stop) - text);
}

// Length of a contraction ('s 't 're 've 'm 'll 'd) after its apostrophe; 0: there is none. With
// ignore_case also the long s (U+017F), which is a case of s.
static size_t scan_contraction(const unsigned char *p, const unsigned char *end, bool ignore_case) {
    size_t left = (size_t)(end - p);
    if (left == 0) return 0;
    if (ignore_case && left >= 2 && p[0] == 0xc5 && p[1] == 0xbf) return 2;
    unsigned fold = ignore_case ? 0x20 : 0;
    // Only ASCII letters may fold: with bit 5 set, other characters could look like one.
    unsigned a = p[0] | (p[0] >= 'A' && p[0] <= 'Z' ? fold : 0);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 1;
    if (left < 2) return 0;
    unsigned b = p[1] | (p[1] >= 'A' && p[1] <= 'Z' ? fold : 0);
    bool two = ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l');
    return two ? 2 : 0;
}

// The alternatives: contractions in lower case; letters, numbers or others, each with an optional
// space before; white space.
static size_t scan_gpt2(const uint8_t *flags, const unsigned char *text, const unsigned char *end) {
    if (*text == '\'') {
        size_t contraction = scan_contraction(text + 1, end, false);
        if (contraction) return 1 + contraction;
    }
    const unsigned char *p = *text == ' ' ? text + 1 : text;
    size_t size;
    unsigned next = flags_at(flags, p, end, &size);
    if (p < end && !(next & UNICODE_SPACE)) {
        if (next & UNICODE_LETTER) {
            p = skip_flagged(flags, p + size, end, UNICODE_LETTER);
        } else if (next & UNICODE_NUMBER) {
            p = skip_flagged(flags, p + size, end, UNICODE_NUMBER);
        } else {
            p = skip_other(flags, p + size, end);
        }
        return (size_t)(p - text);
    }
    return scan_space(flags, text, end);
}

// \s*[\r\n]+ at white space: the length up to the run's last line end; 0 when it has none.
static size_t scan_lines(const uint8_t *flags, const unsigned char *text,
                         const unsigned char *end) {
    const unsigned char *stop = skip_flagged(flags, text, end, UNICODE_SPACE);
    while (stop > text && stop[-1] != '\n' && stop[-1] != '\r') stop--;
    return (size_t)(stop - text);
}

// Letters may have one character before them that is no line end, letter or number. Other
// characters take along the line ends that follow them.
static size_t scan_cl100k(const uint8_t *flags, size_t max_digits, const unsigned char *text,
                          const unsigned char *end) {
    if (*text == '\'') {
        size_t contraction = scan_contraction(text + 1, end, true);
        if (contraction) return 1 + contraction;
    }
    size_t size, next_size;
    unsigned first = flags_at(flags, text, end, &size);
    const unsigned char *p = text + size;
    if (first & UNICODE_LETTER) {
        return (size_t)(skip_flagged(flags, p, end, UNICODE_LETTER) - text);
    }
    if (first & UNICODE_NUMBER) {
        for (size_t digits = 1; digits < max_digits; digits++) {
            if (!(flags_at(flags, p, end, &next_size) & UNICODE_NUMBER)) break;
            p += next_size;
        }
        return (size_t)(p - text);
    }
    unsigned next = flags_at(flags, p, end, &next_size);
    if (*text != '\r' && *text != '\n' && next & UNICODE_LETTER) {
        return (size_t)(skip_flagged(flags, p + next_size, end, UNICODE_LETTER) - text);
    }
    // Here the text begins with white space, a mark or a sign.
    bool other = !(first & UNICODE_SPACE);
    if (*text == ' ' && p < end) other = !(next & NOT_OTHER);
    if (other) {
        p = skip_other(flags, p, end);
        while (p < end && (*p == '\r' || *p == '\n')) p++;
        return (size_t)(p - text);
    }
    size_t lines = scan_lines(flags, text, end);
    return lines ? lines : scan_space(flags, text, end);
}

size_t pattern_scan(const struct pattern *pattern, const unsigned char *text,
                    const unsigned char *end) {
    if (pattern->kind == PATTERN_GPT2) return scan_gpt2(pattern->flags, text, end);
    return scan_cl100k(pattern->flags, pattern->max_digits, text, end);
}
