/* JSON's white space, which is also what counts as blank around texts, tags and lines. */
#ifndef BASE_BLANK_H
#define BASE_BLANK_H

#include <stdbool.h>
#include <stddef.h>

static inline bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Whether all of `text` [len] is blank; the empty text is.
static inline bool is_all_blank(const char *text, size_t len) {
    while (len && is_blank(text[len - 1])) len--;
    return len == 0;
}

#endif
