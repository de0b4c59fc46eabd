/* Reads the arguments of a call as Python writes them, byte by byte, and writes them as JSON:
 *
 *   key="text", other={'inner': [1, True, None]})
 *
 * It begins behind the '(' and ends with its ')'. Values are Python's literals: strings with either
 * quote, one or three of it, numbers, True, False, None, lists and dicts with strings as keys. The
 * words of JSON are read too, and so are its escapes where Python has none (\/). Anything else,
 * such as an expression, is broken. */
#ifndef SERVER_PYTHON_NOTATION_H
#define SERVER_PYTHON_NOTATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/chat/call_notation.h"

enum {
    PYTHON_WORD_MAX = 256, // bytes of a key, a number or a word
    // What one byte writes at most: a word, or an escaped byte with what was held before it.
    PYTHON_OUT_MAX = PYTHON_WORD_MAX + 64,
};

// One call's arguments. Its members are python_notation.c's.
struct python_notation {
    uint8_t state;
    char quote; // of the string under way
    bool is_triple;
    uint8_t num_quotes; // in a string of three quotes: those that may end it
    uint8_t digits_left; // of an escape
    uint32_t code; // that it has so far
    bool is_key; // the string under way, or the next value, is a key of a dict
    uint8_t depth; // of lists and dicts around, 1: none
    uint64_t are_lists, have_items; // a bit for each depth
    size_t word_len;
    char word[PYTHON_WORD_MAX]; // [word_len] not written yet
};

struct python_out {
    size_t len;
    char text[PYTHON_OUT_MAX];
};

// Whether the text can be an argument's name.
bool python_notation_is_key(const char *text);
void python_notation_begin(struct python_notation *notation);
// Sets `out` to JSON, without the braces of the whole. BROKEN: `out` is what was held, as the model
// wrote it, and the byte was not taken. After DONE or BROKEN nothing may be fed.
enum notation_end python_notation_feed(struct python_notation *notation, char byte,
                                       struct python_out *out);

#endif
