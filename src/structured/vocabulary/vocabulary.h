/* The tokens of a vocabulary as a tree of bytes, prepared for masks. Made once for a tokenizer,
 * then read-only, so that threads share it.
 *
 * The tree is an array in depth-first order, 8 bytes a node, so walking it is going forward through
 * memory, and skipping a branch is an addition.
 *
 * Plain tokens are those that may stand anywhere inside a JSON string: whole characters of UTF-8,
 * none of them a quote, a backslash or a control character (DEL included). Most tokens are plain
 * (97 % of Qwen3's). Where a state allows every plain character, its mask is copied from a set made
 * here, and only a small tree of the other tokens is walked. */
#ifndef STRUCTURED_VOCABULARY_H
#define STRUCTURED_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct vocabulary_token {
    const char *bytes; // what the token adds to the text; borrowed for the call
    uint32_t len; // 0: the token has no text, and no constraint allows it; nor one with a byte FF
    bool special; // only expr_special_token(its bytes) matches it
    bool named; // that matches it too, besides its bytes
};

struct vocabulary_node {
    uint32_t byte : 8, token : 24; // VOCABULARY_NO_TOKEN: no token ends here
    uint32_t size : 22, depth : 10; // nodes of this branch, itself included; depth from 0
};
enum {
    VOCABULARY_NO_TOKEN = 0xffffff,
    VOCABULARY_NODES_MAX = (1 << 22) - 1,
    VOCABULARY_TOKEN_BYTES_MAX = 1023, // a longer token is never allowed
    VOCABULARY_SLICES = 32,
};
static const uint32_t VOCABULARY_NO_ROOT = UINT32_MAX;

// Kinds of plain characters, as patterns tell them apart.
enum {
    VOCABULARY_LOWER,
    VOCABULARY_UPPER,
    VOCABULARY_DIGIT,
    VOCABULARY_BLANK,
    VOCABULARY_UNDERSCORE,
    VOCABULARY_HYPHEN,
    VOCABULARY_DOT,
    VOCABULARY_SIGN, // the other ASCII characters
    VOCABULARY_BEYOND_ASCII,
    VOCABULARY_KINDS,
    VOCABULARY_NOT_PLAIN = 1 << VOCABULARY_KINDS, // in kinds_below
};
static inline uint32_t vocabulary_kind(unsigned char byte) { // the character's first byte
    if (byte >= 0x80) return VOCABULARY_BEYOND_ASCII;
    if (byte >= 'a' && byte <= 'z') return VOCABULARY_LOWER;
    if (byte >= 'A' && byte <= 'Z') return VOCABULARY_UPPER;
    if (byte >= '0' && byte <= '9') return VOCABULARY_DIGIT;
    if (byte == ' ') return VOCABULARY_BLANK;
    if (byte == '_') return VOCABULARY_UNDERSCORE;
    if (byte == '-') return VOCABULARY_HYPHEN;
    return byte == '.' ? VOCABULARY_DOT : VOCABULARY_SIGN;
}

struct vocabulary_tree {
    struct vocabulary_node *nodes; // [num_nodes]
    uint32_t num_nodes;
};

struct vocabulary {
    uint32_t num_tokens, num_words; // words of a mask: (num_tokens + 31) / 32
    bool strips_blank; // whoever reads a text gets it without one blank at its start
    uint32_t token_bytes_max; // of the longest token
    struct vocabulary_tree all, rest; // rest: the tokens that are not plain
    uint32_t rest_chars_max; // in a JSON string a token of `rest` takes no more characters
    uint32_t roots[256]; // nodes of `all` of a token's first byte, or VOCABULARY_NO_ROOT
    uint16_t *kinds_below; // [all.num_nodes] kinds (bits) of characters of the branch's tokens
    bool *quotes_below; // [rest.num_nodes] some token of the branch has a quote or a backslash
    uint32_t *lists; // [num_lists] tokens with a comma behind their first byte
    uint32_t num_lists;
    // Tokens with the bytes of another one: the first has a node, the second is allowed with it.
    // Ascending by `first`. The sets of plain tokens have both.
    struct vocabulary_pair {
        uint32_t first, second;
    } * twins; // [num_twins]
    uint32_t num_twins;
    // slices[k - 1] has the plain tokens of at most k characters.
    uint32_t *slices[VOCABULARY_SLICES]; // [num_words] each
    uint32_t *plain; // [num_words] all plain tokens
    uint32_t *having[VOCABULARY_KINDS]; // [num_words] each: those with a character of the kind
    // The plain tokens of more than VOCABULARY_SLICES characters.
    struct vocabulary_long {
        uint32_t token, chars;
    } * longs; // [num_longs], longest first
    uint32_t num_longs;
    int32_t *ending; // [num_ending] tokens that end the text
    uint32_t num_ending;
    // For turning forced text into tokens and tokens into text.
    uint32_t *offsets, *lens; // [num_tokens] in `bytes`
    char *bytes;
    bool *named; // [num_tokens]: behind its bytes stands its name
    uint32_t num_named;
};

// `ending` [num_ending] are the tokens that end the text (EOS); they need no text. They are copied.
MUST_USE enum status vocabulary_create(struct vocabulary **out,
                                       const struct vocabulary_token *tokens, uint32_t num_tokens,
                                       const int32_t *ending, uint32_t num_ending, struct err *err);
void vocabulary_destroy(struct vocabulary *vocabulary); // NULL is fine

// Sets `mask` [num_words] to the plain tokens of at most `chars` characters (UINT32_MAX: any
// number) that have only characters of `kinds` (bits).
void vocabulary_write_plain(const struct vocabulary *vocabulary, uint32_t chars, uint32_t kinds,
                            uint32_t *mask);
// Whether there is such a token.
bool vocabulary_has_plain(const struct vocabulary *vocabulary, uint32_t chars, uint32_t kinds);
static inline bool vocabulary_has_all_kinds(uint32_t kinds) {
    return kinds == (1u << VOCABULARY_KINDS) - 1;
}
// The pairs whose first token is `first`.
const struct vocabulary_pair *vocabulary_twins(const struct vocabulary *vocabulary, uint32_t first,
                                               uint32_t *num_twins);
// What the token adds to the text, of a special one its name; *len is 0 where it has none.
const char *vocabulary_text(const struct vocabulary *vocabulary, uint32_t token, uint32_t *len);
// The name of a token that has bytes too; *len is 0 where it has none.
const char *vocabulary_name(const struct vocabulary *vocabulary, uint32_t token, uint32_t *len);
// The nodes [*first, *end) of `all` below the bytes: tokens that begin with them and are longer.
void vocabulary_find_longer(const struct vocabulary *vocabulary, const char *bytes, size_t len,
                            uint32_t *first, uint32_t *end);
// Whether expr_special_token of this name matches a token.
bool vocabulary_has_name(const struct vocabulary *vocabulary, const char *name, size_t len);
bool vocabulary_is_ending(const struct vocabulary *vocabulary, int32_t token);

#endif
