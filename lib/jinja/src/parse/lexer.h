/* Makes tokens of a template's source, as Jinja's lexer does with trim_blocks and lstrip_blocks.
 * Text comes without the white space that tags remove, comments are left out, and raw blocks are
 * text.
 *
 * Tokens are made one at a time, so that the first of several faults is reported. All text points
 * into a copy of the source in the arena. A string with escapes has its value beside the copy. */
#ifndef JINJA_LEXER_H
#define JINJA_LEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "jinja/src/parse/ast.h"

enum jinja_token_type {
    JINJA_TOKEN_BROKEN, // the lexer failed; no grammar accepts it
    JINJA_TOKEN_EOF,
    JINJA_TOKEN_TEXT, // text
    JINJA_TOKEN_BLOCK_BEGIN, // {%
    JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_PRINT_BEGIN, // {{
    JINJA_TOKEN_PRINT_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_STRING, // text: its value
    JINJA_TOKEN_INTEGER, // integer
    JINJA_TOKEN_FLOAT, // number
    JINJA_TOKEN_ADD,
    JINJA_TOKEN_SUB,
    JINJA_TOKEN_MUL,
    JINJA_TOKEN_DIV,
    JINJA_TOKEN_FLOORDIV,
    JINJA_TOKEN_MOD,
    JINJA_TOKEN_POW,
    JINJA_TOKEN_TILDE,
    JINJA_TOKEN_EQ,
    JINJA_TOKEN_NE,
    JINJA_TOKEN_LT,
    JINJA_TOKEN_LE,
    JINJA_TOKEN_GT,
    JINJA_TOKEN_GE,
    JINJA_TOKEN_ASSIGN,
    JINJA_TOKEN_DOT,
    JINJA_TOKEN_COLON,
    JINJA_TOKEN_COMMA,
    JINJA_TOKEN_SEMICOLON,
    JINJA_TOKEN_PIPE,
    JINJA_TOKEN_LPAREN,
    JINJA_TOKEN_RPAREN,
    JINJA_TOKEN_LBRACKET,
    JINJA_TOKEN_RBRACKET,
    JINJA_TOKEN_LBRACE,
    JINJA_TOKEN_RBRACE,
};

struct jinja_token {
    enum jinja_token_type type;
    uint32_t line; // from 1
    const char *text; // [len], of a string its value
    size_t len;
    union {
        int64_t integer;
        double number;
    };
};

enum jinja_lexer_state { JINJA_LEXER_TEXT, JINJA_LEXER_BLOCK, JINJA_LEXER_PRINT };

struct jinja_lexer {
    struct arena *arena;
    const char *source; // [len] UTF-8, every line end a \n
    size_t len;
    size_t pos; // of the next token
    enum jinja_lexer_state state;
    uint32_t line; // at line_pos
    size_t line_pos;
    size_t num_closers;
    char closers[JINJA_AST_DEPTH_MAX]; // the brackets that are open, as what closes them
    const char *what;
    struct err *err;
};

// Copies `source`, which must be UTF-8; `what` is borrowed. ERR_NOMEM.
MUST_USE enum status jinja_lexer_init(struct jinja_lexer *lexer, struct arena *arena,
                                      const char *source, size_t len, const char *what,
                                      struct err *err);
// At the end JINJA_TOKEN_EOF, again and again. Nothing may be asked after an error.
MUST_USE enum status jinja_lexer_next(struct jinja_lexer *lexer, struct jinja_token *out);
// "<what>: line <n>: <sentence>", ERR_FORMAT.
enum status jinja_lexer_fail(const struct jinja_lexer *lexer, uint32_t line, const char *format,
                             ...) PRINTF_LIKE(3, 4);

// ---- between lexer.c and lexer_tag.c ----

// The first position from `pos` on that holds no white space (Python's \s).
size_t jinja_lexer_skip_space(const struct jinja_lexer *lexer, size_t pos);
bool jinja_lexer_has(const struct jinja_lexer *lexer, size_t pos, const char *text);
// The line of `pos`; positions are asked in rising order.
uint32_t jinja_lexer_line(struct jinja_lexer *lexer, size_t pos);
// Whether %} stands at `pos`, with its sign and what it swallows: *end is behind all that.
bool jinja_lexer_match_block_end(const struct jinja_lexer *lexer, size_t pos, size_t *end);
// The next token inside {% %} or {{ }}.
MUST_USE enum status jinja_lexer_tag_token(struct jinja_lexer *lexer, struct jinja_token *out);

#endif
