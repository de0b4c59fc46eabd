/* Reads JSON that arrives in pieces: one byte at a time, told apart into the parts of RFC 8259,
 * with nothing kept. The root is an object. Nesting is limited as jread.h limits it. Bytes above
 * 0x7f may stand in strings as they are: that they are UTF-8 is the caller's business. */
#ifndef SERVER_JSTREAM_H
#define SERVER_JSTREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/jread.h"

// What a byte means.
enum jstream_event {
    JSTREAM_BAD, // no JSON: the byte was not taken, and nothing may be pushed after it
    JSTREAM_MORE, // the inside of something
    JSTREAM_KEY_BEGIN, // the quote before a key
    JSTREAM_KEY_END, // and behind it
    JSTREAM_STRING_BEGIN, // the quote before a string that is a value
    JSTREAM_STRING_END, // and behind it
    JSTREAM_SCALAR_BEGIN, // first byte of a number, true, false or null
    JSTREAM_OPEN, // '{' or '['
    JSTREAM_CLOSE, // '}' or ']'; at depth 0 the root is complete, and any further byte is BAD
};

// All-zero is a reader before the root.
struct jstream {
    uint32_t depth; // lists and objects that are open
    bool raw_control; // a string contains a control character, which JSON wants escaped
    uint8_t state;
    bool is_key; // of the string under way
    uint8_t hex_left; // digits of \u
    const char *literal_rest; // of true, false, null
    uint64_t objects; // bit d: what is open at depth d + 1 is an object
};

enum jstream_event jstream_push(struct jstream *json, char byte);

#endif
