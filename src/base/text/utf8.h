/* UTF-8: checking untrusted text, decoding checked text, and writing. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Bytes of the character that `text` [len] begins with. 0: none is valid there (a stray or missing
// continuation byte, an over-long form, a surrogate, beyond U+10FFFF, or len 0).
size_t utf8_char_bytes(const char *text, size_t len);

// The number of bytes of a character with this first byte; 0: no character begins so. The second
// byte must be in [*low, *high], which excludes overlong forms, surrogates and code points past
// U+10FFFF.
unsigned utf8_sequence_bytes(unsigned char lead, unsigned char *low, unsigned char *high);

// Whether the next eight bytes are all ASCII.
static inline bool utf8_is_ascii8(const char *text) {
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return (word & 0x8080808080808080u) == 0;
}

// The number of bytes before the first fault of UTF-8; len when there is none.
size_t utf8_valid_prefix(const char *text, size_t len);

// The code point at `text`, which must be valid UTF-8; *size is its bytes.
static inline uint32_t utf8_decode(const unsigned char *text, size_t *size) {
    uint32_t lead = text[0];
    if (lead < 0x80) {
        *size = 1;
        return lead;
    }
    if (lead < 0xe0) {
        *size = 2;
        return (lead & 0x1f) << 6 | (text[1] & 0x3fu);
    }
    if (lead < 0xf0) {
        *size = 3;
        return (lead & 0x0f) << 12 | (text[1] & 0x3fu) << 6 | (text[2] & 0x3fu);
    }
    *size = 4;
    return (lead & 0x07) << 18 | (text[1] & 0x3fu) << 12 | (text[2] & 0x3fu) << 6 |
           (text[3] & 0x3fu);
}

// Writes a code point up to U+10FFFF that is not a surrogate; returns its bytes.
size_t utf8_write(uint32_t code_point, char out[4]);

#endif
