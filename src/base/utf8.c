#include "base/utf8.h"

size_t utf8_char_bytes(const char *text, size_t len) {
    const unsigned char *bytes = (const unsigned char *)text;
    if (len == 0) return 0;
    unsigned char c = bytes[0];
    if (c < 0x80) return 1;
    size_t need = c >= 0xc2 && c < 0xe0   ? 2
                  : c >= 0xe0 && c < 0xf0 ? 3
                  : c >= 0xf0 && c < 0xf5 ? 4
                                          : 0;
    if (!need || need > len) return 0;
    for (size_t i = 1; i < need; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return 0;
    }
    if ((c == 0xe0 && bytes[1] < 0xa0) || (c == 0xed && bytes[1] >= 0xa0)) return 0;
    if ((c == 0xf0 && bytes[1] < 0x90) || (c == 0xf4 && bytes[1] >= 0x90)) return 0;
    return need;
}
