/* JSON's white space, which is also what counts as blank around texts, tags and lines. */
#ifndef BASE_BLANK_H
#define BASE_BLANK_H

#include <stdbool.h>

static inline bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

#endif
