/* Which items an array with uniqueItems has so far: what a grammar cannot remember.
 *
 * Beside the automaton runs a reader of JSON. It begins where the automaton says that an item of
 * such an array begins, and ends with that array. It knows each finished item by a hash of its
 * value: 1.0 is 1, "\u0061" is "a", and the order of an object's keys does not count. An item that
 * the array has is not taken. Nor is a key that its object has, so that a value is what any reader
 * makes of it. An object alone can be watched for its keys: it stands in an array of its own then.
 *
 *     position   where the text stands: what is open, what is half read. A plain value.
 *     log        what positions refer to; it only grows, and is cut to an earlier position's size
 *
 * So taking text back is cutting the log, and trying a text is reading it and taking it back. */
#ifndef STRUCTURED_UNIQUE_H
#define STRUCTURED_UNIQUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct unique_hash {
    uint64_t a, b;
};

enum unique_expects {
    UNIQUE_FIRST, // the first item or key, or the end
    UNIQUE_VALUE,
    UNIQUE_KEY,
    UNIQUE_COLON,
    UNIQUE_COMMA, // or the end
};

// An open array or object.
struct unique_frame {
    uint32_t parent; // log->frames[parent] is what it stands in; also the number of its own set
    bool is_object, is_unique;
    uint8_t expects;
    bool has_any; // items, or keys
    struct unique_hash sum; // of what it has so far
    struct unique_hash key; // of an object: the member at hand
};

enum unique_mode {
    UNIQUE_OUTSIDE, // no such array or object is open
    UNIQUE_BETWEEN, // strings, numbers and words
    UNIQUE_STRING,
    UNIQUE_ESCAPE, // behind a backslash
    UNIQUE_HEX,
    UNIQUE_NUMBER,
    UNIQUE_WORD,
};

// All-zero: outside.
struct unique_position {
    uint8_t mode;
    struct unique_frame top; // the innermost open one
    uint32_t depth; // of open ones around it; 0: it is the outermost array, maybe one of its own
    uint32_t num_frames, num_values, num_nodes; // of the log
    uint32_t first_value; // of the outermost array
    uint32_t num_items; // of it, complete
    struct unique_hash hash; // of the string, number or word at hand
    struct unique_hash read; // of all values and keys so far
    // Strings.
    uint32_t node; // of the log: what was read
    bool is_new; // no string in the log begins so
    uint8_t origin; // enum unique_origin
    uint8_t hex_left;
    uint32_t code, high; // of an escape; `high` of a pair
    // Numbers: 0.DIGITS * 10^exponent.
    bool is_negative, in_fraction, in_exponent, exponent_is_negative, has_digits;
    uint32_t zeros; // behind the last other digit
    int64_t exponent, written_exponent;
    uint8_t letters_left; // of a word
};

// Strings that were read, as a tree of their bytes, decoded. Node 0 is the root.
struct unique_node {
    uint32_t child, next; // the first below it; the next of its parent's; 0: none
    uint32_t parent;
    uint8_t byte;
};

// Of a string while somebody watches.
enum unique_origin {
    UNIQUE_INSIDE, // it began behind the position
    UNIQUE_OPEN, // it was open there
    UNIQUE_OPEN_NEW, // and no string before began so
};

enum { UNIQUE_ABSENT_MAX = 8 };

// Watches whether steps look at what was read before some position. All-zero: it does not watch.
struct unique_watch {
    uint32_t first_set, first_frame; // those that are younger than the position
    uint32_t set; // of the innermost array or object there
    bool depends; // older ones were looked at
    // Keys that were looked for in `set` and not found. `depends` leaves them out.
    uint32_t num_absent;
    struct unique_hash absent[UNIQUE_ABSENT_MAX];
};

// All-zero is empty.
struct unique_log {
    struct unique_frame *frames; // [num_frames]
    struct unique_value {
        struct unique_hash hash;
        uint32_t set;
    } * values; // [num_values]
    struct unique_node *nodes; // [num_nodes]
    uint32_t num_frames, num_values, num_nodes;
    uint32_t frames_capacity, values_capacity, nodes_capacity;
    uint32_t *table; // [table_len] values by hash, + 1
    uint32_t table_len;
    struct unique_watch watch;
    uint64_t search_steps; // of the searches for new items (automaton_unique.c)
    struct err err; // the first error; then nothing is known any more
};

void unique_log_fini(struct unique_log *log);
MUST_USE enum status unique_log_copy(struct unique_log *out, const struct unique_log *from,
                                     struct err *err);
// Forgets what was read behind the position.
void unique_undo(struct unique_log *log, const struct unique_position *position);

// What is watched in a value that begins at a place: bits.
enum unique_begins {
    UNIQUE_ITEM = 1, // it is an item of an array with unique items
    UNIQUE_KEYS = 2, // if it is an object: its keys
};

// Reads one byte. `begins`: bits of enum unique_begins, for a value that begins with it. False:
// with this byte, something is there for the second time.
bool unique_step(struct unique_log *log, struct unique_position *position, unsigned char byte,
                 unsigned begins);

// Whether no item of the outermost array is begun or must follow.
static inline bool unique_is_idle(const struct unique_position *position) {
    return position->mode == UNIQUE_OUTSIDE ||
           (position->mode == UNIQUE_BETWEEN && position->depth == 0 &&
            position->top.expects == UNIQUE_COMMA);
}
bool unique_has(const struct unique_log *log, uint32_t set, const struct unique_hash *hash);
// The keys were looked for in the set, which has none of them.
void unique_note_absent(struct unique_log *log, uint32_t set, const struct unique_hash *keys,
                        uint32_t num_keys);
// The node below `node` for the byte; 0: none.
uint32_t unique_child(const struct unique_log *log, uint32_t node, unsigned char byte);

#endif
