#include "base/text/sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/text/c_locale.h"
#include "base/text/utf8.h"

enum { ESCAPE_BYTES = sizeof "\\u001b" }; // no character takes more

// The code point of one valid character.
static uint32_t decode(const char *text, size_t bytes) {
    static const unsigned char lead_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code_point = (unsigned char)text[0] & lead_bits[bytes];
    for (size_t i = 1; i < bytes; i++) {
        code_point = code_point << 6 | ((unsigned char)text[i] & 0x3fu);
    }
    return code_point;
}

static bool is_printable(uint32_t c) {
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
    if (c < 0x061c) return true;
    return c != 0x061c && c != 0x200e && c != 0x200f && !(c >= 0x2028 && c <= 0x202e) &&
           !(c >= 0x2066 && c <= 0x2069);
}

// Length of the escape that `text` begins with; 0: it begins with none.
static size_t escape_len(const char *text, size_t len) {
    if (len < 2 || text[0] != '\\') return 0;
    char kind = text[1];
    if (kind == 'n' || kind == 'r' || kind == 't') return 2;
    size_t want = kind == 'u' ? 6 : kind == 'x' ? 4 : 0;
    if (want == 0 || len < want) return 0;
    for (size_t i = 2; i < want; i++) {
        if (!memchr("0123456789abcdef", text[i], 16)) return 0;
    }
    return want;
}

// Writes the escape of the character at `text`, or with `bytes` 0 of its first byte.
static void escape(char out[ESCAPE_BYTES], const char *text, size_t bytes) {
    unsigned char byte = (unsigned char)text[0];
    const char *control = bytes == 1 && byte ? strchr("\nn\rr\tt", byte) : NULL;
    if (control) {
        snprintf(out, ESCAPE_BYTES, "\\%c", control[1]);
    } else if (bytes) {
        snprintf(out, ESCAPE_BYTES, "\\u%04x", decode(text, bytes) & 0xffff);
    } else {
        snprintf(out, ESCAPE_BYTES, "\\x%02x", byte);
    }
}

size_t sentence_copy(char *out, size_t size, const char *text, size_t len) {
    size_t used = 0;
    for (size_t i = 0; i < len;) {
        char escaped[ESCAPE_BYTES];
        size_t bytes = utf8_char_bytes(text + i, len - i);
        size_t whole = escape_len(text + i, len - i);
        const char *piece = text + i;
        size_t piece_len = whole ? whole : bytes;
        i += piece_len ? piece_len : 1;
        if (!whole && (!bytes || !is_printable(decode(piece, bytes)))) {
            escape(escaped, piece, bytes);
            piece = escaped;
            piece_len = strlen(escaped);
        }
        if (piece_len >= size - used) break;
        memcpy(out + used, piece, piece_len);
        used += piece_len;
    }
    out[used] = '\0';
    return used;
}

size_t sentence_format(char *out, size_t size, const char *format, va_list args) {
    // Longer than `out` by an escape: a character that vsnprintf cuts in half lies beyond the part
    // that is copied.
    char text[SENTENCE_BYTES_MAX + ESCAPE_BYTES];
    CHECK(size <= SENTENCE_BYTES_MAX, "size=%zu", size);
    int len = c_locale_vsnprintf(text, size + ESCAPE_BYTES, format, args);
    if (len < 0) text[0] = '\0';
    return sentence_copy(out, size, text, strlen(text));
}
