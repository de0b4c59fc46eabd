/* Reads the arguments of a call in Gemma 4's notation, byte by byte, and writes them as JSON:
 *
 *   key:<|"|>text<|"|>,other:{inner:[1,true,null]}}
 *
 * It begins behind the '{' and ends with its '}'. Keys may be bare or quoted, strings are between
 * two marks, where nothing is escaped, or are as in JSON. Any other value goes to the next ',', '}'
 * or ']': it is JSON or one of Python's words, else a string. */
#ifndef SERVER_CALL_NOTATION_H
#define SERVER_CALL_NOTATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text/buf.h"

#define NOTATION_QUOTE "<|\"|>"

enum { NOTATION_DEPTH_MAX = 64, NOTATION_WORD_MAX = 64 << 10 };

// One call's arguments. Its members are call_notation.c's.
struct call_notation {
    uint8_t state;
    uint8_t quote_len; // bytes of the mark that are there
    bool is_escaped; // in a string of JSON: behind a backslash
    uint8_t hex_left; // of the four digits behind a backslash and u
    bool is_key; // of the string under way
    uint8_t depth; // of objects and lists around, from 1 on
    uint64_t are_lists, have_items; // a bit for each depth
    struct buf word; // a bare key or value
};

enum notation_end { NOTATION_GOES_ON, NOTATION_DONE, NOTATION_BROKEN };

void call_notation_begin(struct call_notation *notation);
void call_notation_fini(struct call_notation *notation); // all-zero is fine
// Appends JSON, without the braces of the whole. After DONE or BROKEN nothing may be fed.
MUST_USE enum status call_notation_feed(struct call_notation *notation, char byte, struct buf *out,
                                        enum notation_end *end, struct err *err);
// A byte as it is inside of a JSON string. Returns its length.
int call_notation_escape(char byte, char out[8]);
// Python's True, False and None as JSON; NULL: it is none of them.
const char *call_notation_python(const char *text, size_t len);

#endif
