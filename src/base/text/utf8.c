#include "base/text/utf8.h"

unsigned utf8_sequence_bytes(unsigned char lead, unsigned char *low, unsigned char *high) {
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) {
        if (lead == 0xe0) *low = 0xa0;
        if (lead == 0xed) *high = 0x9f;
        return 3;
    }
    if (lead > 0xf4) return 0;
    if (lead == 0xf0) *low = 0x90;
    if (lead == 0xf4) *high = 0x8f;
    return 4;
}

size_t utf8_char_bytes(const char *text, size_t len) {
    const unsigned char *bytes = (const unsigned char *)text;
    if (len == 0) return 0;
    unsigned char low, high;
    size_t size = utf8_sequence_bytes(bytes[0], &low, &high);
    if (size < 2) return size;
    if (size > len || bytes[1] < low || bytes[1] > high) return 0;
    for (size_t i = 2; i < size; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return 0;
    }
    return size;
}

size_t utf8_valid_prefix(const char *text, size_t len) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t i = 0;
    while (i < len) {
        if (bytes[i] < 0x80) {
            while (len - i >= 8 && utf8_is_ascii8(text + i)) i += 8;
            while (i < len && bytes[i] < 0x80) i++;
            continue;
        }
        size_t size = utf8_char_bytes(text + i, len - i);
        if (size == 0) return i;
        i += size;
    }
    return len;
}

size_t utf8_write(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}
