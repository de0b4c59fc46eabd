/* The byte-level alphabet of GPT-2, in which tokens are written: each byte is one printable
 * character. Printable Latin-1 characters stand for their byte; the other bytes get U+0100 and up,
 * in order. */
#ifndef BASE_BYTE_LEVEL_H
#define BASE_BYTE_LEVEL_H

#include <stdint.h>

enum { BYTE_LEVEL_END = 0x144 }; // all characters are below

static inline uint32_t byte_level_char(unsigned char byte) {
    if (byte < 0x21) return 0x100u + byte;
    if (byte < 0x7f) return byte;
    if (byte < 0xa1) return 0x121u + (byte - 0x7fu);
    return byte == 0xad ? 0x143u : byte;
}

#endif
