/* UTF-8 one character at a time, for text that may be anything. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

// Bytes of the character that `text` [len] begins with; 0 where it begins with none: a stray or
// missing continuation byte, an over-long form, a surrogate, beyond U+10FFFF, or len 0.
size_t utf8_char_bytes(const char *text, size_t len);

#endif
