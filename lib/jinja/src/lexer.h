/* Template source to tokens, as Jinja's lexer does it under trim_blocks and lstrip_blocks: text
 * comes with the white space removed that tags ask for, comments vanish, raw blocks are text.
 *
 * Tokens are made one at a time, so that of several faults in a source the first is reported. All
 * text points into a copy of the source (or, where escapes changed it, beside it) in the arena. */
#ifndef JINJA_LEXER_H
#define JINJA_LEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "jinja/src/ast.h"

enum token_type {
    TOKEN_BROKEN, // the lexer failed; no grammar accepts it
    TOKEN_EOF,
    TOKEN_TEXT, // text
    TOKEN_BLOCK_BEGIN, // {%
    TOKEN_BLOCK_END,
    TOKEN_PRINT_BEGIN, // {{
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING, // text: its value
    TOKEN_INTEGER, // integer
    TOKEN_FLOAT, // number
    TOKEN_ADD,
    TOKEN_SUB,
    TOKEN_MUL,
    TOKEN_DIV,
    TOKEN_FLOORDIV,
    TOKEN_MOD,
    TOKEN_POW,
    TOKEN_TILDE,
    TOKEN_EQ,
    TOKEN_NE,
    TOKEN_LT,
    TOKEN_LE,
    TOKEN_GT,
    TOKEN_GE,
    TOKEN_ASSIGN,
    TOKEN_DOT,
    TOKEN_COLON,
    TOKEN_COMMA,
    TOKEN_SEMICOLON,
    TOKEN_PIPE,
    TOKEN_LPAREN,
    TOKEN_RPAREN,
    TOKEN_LBRACKET,
    TOKEN_RBRACKET,
    TOKEN_LBRACE,
    TOKEN_RBRACE,
};

struct token {
    enum token_type type;
    uint32_t line; // from 1
    const char *text; // [len], of a string its value
    size_t len;
    union {
        int64_t integer;
        double number;
    };
};

enum lexer_state { LEXER_TEXT, LEXER_BLOCK, LEXER_PRINT };

struct lexer {
    struct arena *arena;
    const char *source; // [len] UTF-8, every line end a \n
    size_t len;
    size_t pos; // of the next token
    enum lexer_state state;
    uint32_t line; // at line_pos
    size_t line_pos;
    size_t num_closers;
    char closers[AST_DEPTH_MAX]; // the brackets that are open, as what closes them
    const char *what;
    struct err *err;
};

// Copies `source`, which must be UTF-8; `what` is borrowed. ERR_NOMEM.
MUST_USE enum status lexer_init(struct lexer *lexer, struct arena *arena, const char *source,
                                size_t len, const char *what, struct err *err);
// At the end TOKEN_EOF, again and again. Nothing may be asked after an error.
MUST_USE enum status lexer_next(struct lexer *lexer, struct token *out);
// "<what>: line <n>: <sentence>", ERR_FORMAT.
enum status lexer_fail(const struct lexer *lexer, uint32_t line, const char *format, ...)
    PRINTF_LIKE(3, 4);

// ---- between lexer.c and lexer_tag.c ----

// The first position from `pos` on that holds no white space (Python's \s).
size_t lexer_skip_space(const struct lexer *lexer, size_t pos);
bool lexer_has(const struct lexer *lexer, size_t pos, const char *text);
// The line of `pos`; positions are asked in rising order.
uint32_t lexer_line(struct lexer *lexer, size_t pos);
// Whether %} stands at `pos`, with its sign and what it swallows: *end is behind all that.
bool lexer_match_block_end(const struct lexer *lexer, size_t pos, size_t *end);
// The next token inside {% %} or {{ }}.
MUST_USE enum status lexer_tag_token(struct lexer *lexer, struct token *out);

#endif
