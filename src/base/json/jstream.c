#include "base/json/jstream.h"

#include <string.h>

#include "base/text/blank.h"
#include "base/text/c_locale.h"

_Static_assert(JREAD_DEPTH_MAX <= 64, "`objects` has a bit for each level");

enum {
    BEFORE_ROOT,
    BEFORE_FIRST_KEY, // or the end of the object
    BEFORE_KEY,
    BEFORE_COLON,
    BEFORE_FIRST_VALUE, // or the end of the list
    BEFORE_VALUE,
    AFTER_VALUE,
    AFTER_ROOT,
    IN_STRING,
    IN_ESCAPE,
    IN_HEX,
    IN_LITERAL,
    AFTER_MINUS,
    AFTER_ZERO,
    IN_INTEGER,
    AFTER_POINT,
    IN_FRACTION,
    AFTER_E,
    AFTER_EXPONENT_SIGN,
    IN_EXPONENT,
};

static enum jstream_event to(struct jstream *json, uint8_t state, enum jstream_event event) {
    json->state = state;
    return event;
}

static enum jstream_event open_level(struct jstream *json, bool is_object) {
    if (json->depth == JREAD_DEPTH_MAX) return JSTREAM_BAD;
    uint64_t bit = (uint64_t)1 << json->depth++;
    json->objects = is_object ? json->objects | bit : json->objects & ~bit;
    return to(json, is_object ? BEFORE_FIRST_KEY : BEFORE_FIRST_VALUE, JSTREAM_OPEN);
}

static bool in_object(const struct jstream *json) {
    return json->objects >> (json->depth - 1) & 1;
}

static enum jstream_event close_level(struct jstream *json, char byte) {
    if (byte != (in_object(json) ? '}' : ']')) return JSTREAM_BAD;
    return to(json, --json->depth ? AFTER_VALUE : AFTER_ROOT, JSTREAM_CLOSE);
}

static enum jstream_event begin_string(struct jstream *json, bool is_key) {
    json->is_key = is_key;
    return to(json, IN_STRING, is_key ? JSTREAM_KEY_BEGIN : JSTREAM_STRING_BEGIN);
}

static enum jstream_event begin_literal(struct jstream *json, const char *literal) {
    json->literal_rest = literal + 1;
    return to(json, IN_LITERAL, JSTREAM_SCALAR_BEGIN);
}

static enum jstream_event begin_value(struct jstream *json, char byte) {
    switch (byte) {
    case '{':
        return open_level(json, true);
    case '[':
        return open_level(json, false);
    case '"':
        return begin_string(json, false);
    case 't':
        return begin_literal(json, "true");
    case 'f':
        return begin_literal(json, "false");
    case 'n':
        return begin_literal(json, "null");
    case '-':
        return to(json, AFTER_MINUS, JSTREAM_SCALAR_BEGIN);
    case '0':
        return to(json, AFTER_ZERO, JSTREAM_SCALAR_BEGIN);
    default:
        break;
    }
    return c_locale_is_digit(byte) ? to(json, IN_INTEGER, JSTREAM_SCALAR_BEGIN) : JSTREAM_BAD;
}

static enum jstream_event push_string(struct jstream *json, char byte) {
    if (json->state == IN_HEX) {
        if (c_locale_hex_value(byte) < 0) return JSTREAM_BAD;
        return to(json, --json->hex_left ? IN_HEX : IN_STRING, JSTREAM_MORE);
    }
    if (json->state == IN_ESCAPE) {
        if (byte == '\0' || !strchr("\"\\/bfnrtu", byte)) return JSTREAM_BAD;
        json->hex_left = 4;
        return to(json, byte == 'u' ? IN_HEX : IN_STRING, JSTREAM_MORE);
    }
    if (byte == '\\') return to(json, IN_ESCAPE, JSTREAM_MORE);
    if (byte == '"') {
        return json->is_key ? to(json, BEFORE_COLON, JSTREAM_KEY_END)
                            : to(json, AFTER_VALUE, JSTREAM_STRING_END);
    }
    if ((unsigned char)byte < 0x20) json->raw_control = true;
    return JSTREAM_MORE;
}

static enum jstream_event push_literal(struct jstream *json, char byte) {
    if (byte != *json->literal_rest) return JSTREAM_BAD;
    json->literal_rest++;
    return to(json, *json->literal_rest ? IN_LITERAL : AFTER_VALUE, JSTREAM_MORE);
}

// Between the parts. White space is already passed over.
static enum jstream_event push_between(struct jstream *json, char byte) {
    switch (json->state) {
    case BEFORE_ROOT:
        return byte == '{' ? open_level(json, true) : JSTREAM_BAD;
    case BEFORE_FIRST_KEY:
        if (byte == '}') return close_level(json, byte);
        return byte == '"' ? begin_string(json, true) : JSTREAM_BAD;
    case BEFORE_KEY:
        return byte == '"' ? begin_string(json, true) : JSTREAM_BAD;
    case BEFORE_COLON:
        return byte == ':' ? to(json, BEFORE_VALUE, JSTREAM_MORE) : JSTREAM_BAD;
    case BEFORE_FIRST_VALUE:
        return byte == ']' ? close_level(json, byte) : begin_value(json, byte);
    case BEFORE_VALUE:
        return begin_value(json, byte);
    case AFTER_VALUE:
        if (byte != ',') return close_level(json, byte);
        return to(json, in_object(json) ? BEFORE_KEY : BEFORE_VALUE, JSTREAM_MORE);
    default:
        return JSTREAM_BAD; // AFTER_ROOT
    }
}

// A number may end before any byte, which then belongs to what follows it.
static enum jstream_event end_number(struct jstream *json, char byte) {
    json->state = AFTER_VALUE;
    return is_blank(byte) ? JSTREAM_MORE : push_between(json, byte);
}

static enum jstream_event push_number(struct jstream *json, char byte) {
    bool digit = c_locale_is_digit(byte);
    switch (json->state) {
    case AFTER_MINUS:
        if (byte == '0') return to(json, AFTER_ZERO, JSTREAM_MORE);
        return digit ? to(json, IN_INTEGER, JSTREAM_MORE) : JSTREAM_BAD;
    case AFTER_POINT:
        return digit ? to(json, IN_FRACTION, JSTREAM_MORE) : JSTREAM_BAD;
    case AFTER_E:
        if (byte == '+' || byte == '-') return to(json, AFTER_EXPONENT_SIGN, JSTREAM_MORE);
        return digit ? to(json, IN_EXPONENT, JSTREAM_MORE) : JSTREAM_BAD;
    case AFTER_EXPONENT_SIGN:
        return digit ? to(json, IN_EXPONENT, JSTREAM_MORE) : JSTREAM_BAD;
    default:
        break;
    }
    if (digit && json->state != AFTER_ZERO) return JSTREAM_MORE;
    bool in_integer = json->state == AFTER_ZERO || json->state == IN_INTEGER;
    if (byte == '.' && in_integer) return to(json, AFTER_POINT, JSTREAM_MORE);
    if ((byte == 'e' || byte == 'E') && json->state != IN_EXPONENT) {
        return to(json, AFTER_E, JSTREAM_MORE);
    }
    return end_number(json, byte);
}

enum jstream_event jstream_push(struct jstream *json, char byte) {
    switch (json->state) {
    case IN_STRING:
    case IN_ESCAPE:
    case IN_HEX:
        return push_string(json, byte);
    case IN_LITERAL:
        return push_literal(json, byte);
    case AFTER_MINUS:
    case AFTER_ZERO:
    case IN_INTEGER:
    case AFTER_POINT:
    case IN_FRACTION:
    case AFTER_E:
    case AFTER_EXPONENT_SIGN:
    case IN_EXPONENT:
        return push_number(json, byte);
    default:
        break;
    }
    if (is_blank(byte) && json->state != AFTER_ROOT) return JSTREAM_MORE;
    return push_between(json, byte);
}
