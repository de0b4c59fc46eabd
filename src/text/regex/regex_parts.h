/* The tree and the instructions: shared by the regular expressions' parser, compiler and
 * matcher. */
#ifndef TEXT_REGEX_PARTS_H
#define TEXT_REGEX_PARTS_H

#include "base/arena.h"
#include "text/regex/regex.h"
#include "text/regex/regex_set.h"

enum {
    REGEX_SETS_MAX = 256,
    REGEX_DEPTH_MAX = 64, // nested groups, and nested classes
    REGEX_REPEAT_MAX = 100000, // Oniguruma's limit
    REGEX_GROUPS_MAX = 9, // in an expression with backward references, which are one digit
};
static const uint32_t REGEX_FOREVER = UINT32_MAX; // of a repetition without an end

enum regex_node_kind {
    NODE_CHAR, // code_point
    NODE_SET, // one character of set
    NODE_LIST, // the children one after the other; none: the empty text
    NODE_CHOICE, // the first child that leads to a match
    NODE_REPEAT, // the child, min to max times
    NODE_GROUP, // the child, captured as group
    NODE_ATOMIC, // the child, but only its first way to match
    NODE_LOOK, // the child, without taking text
    NODE_ASSERTION,
    NODE_BACKREF, // the text that group has matched
    NODE_KEEP, // \K: the match begins here
};

enum regex_repeat { REPEAT_GREEDY, REPEAT_LAZY, REPEAT_POSSESSIVE };

enum regex_assertion {
    ASSERT_LINE_START,
    ASSERT_LINE_END,
    ASSERT_TEXT_START,
    ASSERT_TEXT_END,
    ASSERT_TEXT_END_OR_LINE, // also before a line end that is the last character
    ASSERT_WORD_EDGE,
    ASSERT_NO_WORD_EDGE,
};

struct regex_node {
    enum regex_node_kind kind;
    struct regex_node *child, *next; // the first child; the next of the same parent
    uint32_t code_point;
    uint32_t set; // index into tree.sets
    uint32_t min, max;
    enum regex_repeat repeat;
    uint32_t group; // from 1
    enum regex_assertion assertion;
    bool behind, negative; // of NODE_LOOK
};

// The parser's result.
struct regex_tree {
    struct arena arena; // holds the nodes
    struct regex_node *root;
    struct regex_ranges sets[REGEX_SETS_MAX]; // [num_sets], settled
    size_t num_sets;
    uint32_t num_groups;
    bool has_backref;
    int32_t word_set; // of \b and \B; -1: there is none
};
MUST_USE enum status regex_parse(struct regex_tree *tree, const char *source, const char *what,
                                 struct err *err);
void regex_tree_fini(struct regex_tree *tree);

// The parser's state, shared by regex_parse.c and regex_class.c.
struct regex_parser {
    struct regex_tree *tree;
    const char *source; // the whole expression, for errors
    const char *p; // the next byte to read
    const char *what; // the file, for errors
    size_t depth;
    bool ignore_case, dot_is_all; // (?i) and (?m)
    bool has_named, in_look;
    struct err *err;
};
// Parses a class, "[...]", at its bracket; leaves `p` after the closing one.
MUST_USE enum status regex_parse_class(struct regex_parser *parser, struct regex_ranges *out);
// Parses, after the backslash, an escape that stands for a set: \d, \p{...}. *is_set = false: it is
// none, and `p` has not moved.
MUST_USE enum status regex_parse_set_escape(struct regex_parser *parser, struct regex_ranges *out,
                                            bool *is_set);
// Parses, after the backslash, an escape that stands for one character: \n, \x41, \-.
MUST_USE enum status regex_parse_char_escape(struct regex_parser *parser, uint32_t *c);
// Returns ERR_UNSUPPORTED; the message names `detail` [len], a part of the expression.
MUST_USE enum status regex_refuse(const struct regex_parser *parser, const char *detail,
                                  size_t len);
// Returns ERR_FORMAT: `why` it is no regular expression.
MUST_USE enum status regex_wrong(const struct regex_parser *parser, const char *why);
// For (?i): adds the other cases of the ASCII letters in `ranges`. ERR_UNSUPPORTED for other
// letters.
MUST_USE enum status regex_fold(const struct regex_parser *parser, struct regex_ranges *ranges);

enum regex_op {
    OP_CHAR, // bytes [len]
    OP_SET,
    OP_REPEAT, // a set, min to max times, as `mode` (enum regex_repeat) says
    OP_JUMP, // goes to `to`
    OP_SPLIT, // tries the next instruction first, then `to`
    OP_SPLIT_LATER, // tries `to` first, then the next instruction
    OP_BRANCH, // OP_SPLIT where the next byte is one of firsts[reg]; else goes to `to`
    OP_SAVE, // saves the position in register `reg`
    OP_ADVANCED, // goes to `to` where the position differs from register `reg`
    OP_ATOMIC, // matches the instructions up to OP_END, then goes to `to`
    OP_LOOK, // the same, without taking text
    OP_BACK, // goes `min` characters back
    OP_ASSERT,
    OP_BACKREF, // matches the text between registers `reg` and `reg` + 1
    OP_END, // ends the whole expression, OP_ATOMIC or OP_LOOK
};

struct regex_instruction {
    uint8_t op; // enum regex_op
    uint8_t mode; // enum regex_repeat, enum regex_assertion, or the bytes of OP_CHAR
    bool behind, negative; // of OP_LOOK
    uint32_t set; // index into sets
    uint32_t min, max;
    uint32_t to; // index of an instruction
    uint32_t reg; // index of a register, or of `firsts`
    char bytes[4];
};

// The bytes that a match of a part of the expression can begin with.
struct regex_first {
    uint64_t bytes[4]; // bit b
    bool may_be_empty; // no byte is needed
};

// Registers: 0 is where \K set the match's start; 2g and 2g + 1 are start and end of group g; then
// come those of loops.
struct regex {
    struct regex_instruction *program; // [num_instructions]
    size_t num_instructions;
    struct regex_set *sets; // [num_sets]
    size_t num_sets;
    struct regex_first *firsts; // [num_firsts], of alternatives
    size_t num_firsts;
    struct regex_first first; // of the whole expression
    size_t num_registers;
    int32_t word_set; // index into sets; -1: none is needed
};

static inline bool regex_first_has(const struct regex_first *first, unsigned char byte) {
    return first->bytes[byte >> 6] >> (byte & 63) & 1;
}

#endif
