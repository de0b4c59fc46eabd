/* Inside of tags: names, literals and operators. The end of a tag counts only where no bracket is
 * open, so that {{ {'a': {}} }} is read as meant.
 *
 * Numbers and strings are Python's. One thing is not: characters named \N{...}. */
#include <string.h>

#include "base/text/utf8.h"
#include "jinja/src/parse/lexer.h"
#include "jinja/src/value/chars.h"

static const struct {
    char text[3];
    enum jinja_token_type type;
} operators[] = {
    {"**", JINJA_TOKEN_POW},     {"//", JINJA_TOKEN_FLOORDIV}, {"==", JINJA_TOKEN_EQ},
    {"!=", JINJA_TOKEN_NE},      {">=", JINJA_TOKEN_GE},       {"<=", JINJA_TOKEN_LE},
    {"+", JINJA_TOKEN_ADD},      {"-", JINJA_TOKEN_SUB},       {"/", JINJA_TOKEN_DIV},
    {"*", JINJA_TOKEN_MUL},      {"%", JINJA_TOKEN_MOD},       {"~", JINJA_TOKEN_TILDE},
    {"[", JINJA_TOKEN_LBRACKET}, {"]", JINJA_TOKEN_RBRACKET},  {"(", JINJA_TOKEN_LPAREN},
    {")", JINJA_TOKEN_RPAREN},   {"{", JINJA_TOKEN_LBRACE},    {"}", JINJA_TOKEN_RBRACE},
    {">", JINJA_TOKEN_GT},       {"<", JINJA_TOKEN_LT},        {"=", JINJA_TOKEN_ASSIGN},
    {".", JINJA_TOKEN_DOT},      {":", JINJA_TOKEN_COLON},     {"|", JINJA_TOKEN_PIPE},
    {",", JINJA_TOKEN_COMMA},    {";", JINJA_TOKEN_SEMICOLON},
};

static char at(const struct jinja_lexer *lexer, size_t pos) {
    return pos < lexer->len ? lexer->source[pos] : '\0';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// The value of a digit of a base up to 16; 16 for what is none.
static unsigned digit_value(char c) {
    if (is_digit(c)) return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f') return (unsigned)(c - 'a') + 10;
    if (c >= 'A' && c <= 'F') return (unsigned)(c - 'A') + 10;
    return 16;
}

// ---- numbers ----

// The end of digits of the base, single underscores between them. A leading one needs `may_lead`.
static size_t skip_digits(const struct jinja_lexer *lexer, size_t pos, unsigned base,
                          bool may_lead) {
    size_t start = pos;
    for (;;) {
        size_t digit = at(lexer, pos) == '_' && (may_lead || pos > start) ? pos + 1 : pos;
        if (digit_value(at(lexer, digit)) >= base) return pos;
        pos = digit + 1;
    }
}

// The end of a float that starts at `pos`; `pos` if there is none.
static size_t float_end(const struct jinja_lexer *lexer, size_t pos) {
    if (pos > 0 && lexer->source[pos - 1] == '.') return pos; // x.0.1 is two items
    size_t whole = skip_digits(lexer, pos, 10, false), end = whole;
    if (at(lexer, whole) == '.') {
        size_t fraction = skip_digits(lexer, whole + 1, 10, false);
        if (fraction > whole + 1) end = fraction;
    }
    if (at(lexer, end) == 'e' || at(lexer, end) == 'E') {
        size_t digits = end + 1;
        if (at(lexer, digits) == '+' || at(lexer, digits) == '-') ++digits;
        size_t exponent = skip_digits(lexer, digits, 10, false);
        if (exponent > digits) return exponent;
    }
    return end > whole ? end : pos;
}

// The base that a prefix like 0x gives the integer at `pos`; 10 without one.
static unsigned integer_base(const struct jinja_lexer *lexer, size_t pos) {
    if (at(lexer, pos) != '0') return 10;
    char letter = (char)(at(lexer, pos + 1) | 0x20);
    unsigned base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 10;
    return base != 10 && skip_digits(lexer, pos + 2, base, true) > pos + 2 ? base : 10;
}

static enum status integer_token(struct jinja_lexer *lexer, struct jinja_token *out) {
    size_t start = lexer->pos;
    unsigned base = integer_base(lexer, start);
    size_t pos = base == 10 ? start : start + 2;
    // Only zero begins with a zero: 007 is the two tokens 00 and 7, which is a fault.
    unsigned digits = base == 10 && at(lexer, start) == '0' ? 1 : base;
    size_t end = skip_digits(lexer, pos, digits, base != 10);
    for (; pos < end; ++pos) {
        if (lexer->source[pos] == '_') continue;
        int64_t digit = digit_value(lexer->source[pos]);
        if (__builtin_mul_overflow(out->integer, (int64_t)base, &out->integer) ||
            __builtin_add_overflow(out->integer, digit, &out->integer))
            return jinja_lexer_fail(lexer, out->line, "the integer %.*s%s has more than 64 bits",
                                    (int)(end - start < 40 ? end - start : 40),
                                    lexer->source + start, end - start < 40 ? "" : "...");
    }
    out->type = JINJA_TOKEN_INTEGER;
    out->len = end - start;
    lexer->pos = end;
    return OK;
}

static enum status number_token(struct jinja_lexer *lexer, struct jinja_token *out) {
    size_t end = float_end(lexer, lexer->pos);
    if (end == lexer->pos) return integer_token(lexer, out);
    out->type = JINJA_TOKEN_FLOAT;
    out->len = end - lexer->pos;
    struct jinja_string text = jinja_string_of(out->text, out->len);
    if (!jinja_number_parse_float(&text, &out->number))
        return jinja_lexer_fail(lexer, out->line, "not a number");
    lexer->pos = end;
    return OK;
}

// ---- names ----

static uint32_t char_at(const struct jinja_lexer *lexer, size_t pos, size_t *size) {
    return utf8_decode((const unsigned char *)lexer->source + pos, size);
}

static size_t name_end(const struct jinja_lexer *lexer, size_t pos, bool *is_valid) {
    size_t start = pos, size;
    *is_valid = true;
    for (; pos < lexer->len; pos += size) {
        uint32_t c = char_at(lexer, pos, &size);
        bool fits = jinja_char_is_identifier(c, pos == start);
        if (!fits && !jinja_char_is_alnum(c) && !jinja_char_is_identifier(c, false)) break;
        *is_valid = *is_valid && fits;
    }
    return pos;
}

// ---- strings ----

// A string being read: what is left of the source, and the value so far.
struct unescape {
    const char *pos, *end;
    char *out;
};

static void put_char(struct unescape *text, uint32_t c) {
    text->out += utf8_write(c, text->out);
}

// Reads up to `max` digits of a base of at most 16. Returns how many there were.
static int read_digits(struct unescape *text, unsigned base, int max, uint32_t *out) {
    int count = 0;
    for (*out = 0; count < max && text->pos < text->end; ++count, ++text->pos) {
        unsigned digit = digit_value(*text->pos);
        if (digit >= base) break;
        *out = *out * base + digit;
    }
    return count;
}

// Reads \xNN, \uNNNN or \UNNNNNNNN behind its letter. Returns NULL, or what is wrong with it.
static const char *put_hex(struct unescape *text, char letter) {
    int want = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    uint32_t c;
    if (read_digits(text, 16, want, &c) < want) return "a \\x, \\u or \\U with too few digits";
    if (c > 0x10ffff) return "a \\U beyond U+10FFFF";
    if (c >= 0xd800 && c < 0xe000) return "half of a surrogate pair, which is no character";
    put_char(text, c);
    return NULL;
}

// A backslash before a character beyond ASCII. Jinja has spelled the character as an escape before
// Python reads the string, so the backslash escapes that spelling's own backslash.
static void put_spelled_out(struct unescape *text) {
    static const char hex[] = "0123456789abcdef";
    size_t size;
    uint32_t c = utf8_decode((const unsigned char *)text->pos, &size);
    int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    text->pos += size;
    *text->out++ = '\\';
    *text->out++ = digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
    while (digits-- > 0) *text->out++ = hex[c >> (4 * digits) & 0xf];
}

// Reads the escape behind a backslash. Returns NULL, or what is wrong with it.
static const char *put_escape(struct unescape *text) {
    static const char letters[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    char letter = *text->pos;
    if ((unsigned char)letter >= 0x80) {
        put_spelled_out(text);
        return NULL;
    }
    uint32_t c;
    if (read_digits(text, 8, 3, &c) > 0) {
        put_char(text, c);
        return NULL;
    }
    ++text->pos;
    if (letter == 'x' || letter == 'u' || letter == 'U') return put_hex(text, letter);
    if (letter == 'N') return "\\N, a character by its name, which is not supported";
    const char *found = letter ? strchr(letters, letter) : NULL;
    if (found) {
        *text->out++ = values[found - letters];
    } else if (letter != '\n') {
        *text->out++ = '\\';
        *text->out++ = letter;
    }
    return NULL;
}

static enum status unescape(struct jinja_lexer *lexer, struct jinja_token *token) {
    // \ and a character of four bytes becomes ten bytes.
    char *value = arena_alloc(lexer->arena, 2 * token->len);
    if (!value) return err_nomem(lexer->err, "a string of a template");
    struct unescape text = {token->text, token->text + token->len, value};
    while (text.pos < text.end) {
        if (*text.pos != '\\') {
            *text.out++ = *text.pos++;
            continue;
        }
        ++text.pos;
        const char *fault = put_escape(&text);
        if (fault) return jinja_lexer_fail(lexer, token->line, "a string holds %s", fault);
    }
    token->text = value;
    token->len = (size_t)(text.out - value);
    return OK;
}

static enum status string_token(struct jinja_lexer *lexer, struct jinja_token *out) {
    char quote = lexer->source[lexer->pos];
    size_t start = lexer->pos + 1, end = start;
    bool has_escapes = false;
    for (; end < lexer->len && lexer->source[end] != quote; ++end) {
        if (lexer->source[end] != '\\') continue;
        has_escapes = true;
        ++end;
    }
    if (end >= lexer->len)
        return jinja_lexer_fail(lexer, out->line, "this string has no end, want %c", quote);
    lexer->pos = end + 1;
    out->type = JINJA_TOKEN_STRING;
    out->text = lexer->source + start;
    out->len = end - start;
    return has_escapes ? unescape(lexer, out) : OK;
}

// ---- operators ----

static enum status track_bracket(struct jinja_lexer *lexer, const struct jinja_token *token) {
    char bracket = token->text[0];
    if (bracket == '(' || bracket == '[' || bracket == '{') {
        if (lexer->num_closers == JINJA_AST_DEPTH_MAX)
            return jinja_lexer_fail(lexer, token->line, "brackets nested deeper than %d",
                                    JINJA_AST_DEPTH_MAX);
        lexer->closers[lexer->num_closers++] = bracket == '(' ? ')' : bracket == '[' ? ']' : '}';
    } else if (bracket == ')' || bracket == ']' || bracket == '}') {
        if (lexer->num_closers == 0)
            return jinja_lexer_fail(lexer, token->line, "unexpected '%c'", bracket);
        char want = lexer->closers[--lexer->num_closers];
        if (bracket != want)
            return jinja_lexer_fail(lexer, token->line, "unexpected '%c', want '%c'", bracket,
                                    want);
    }
    return OK;
}

static enum status operator_token(struct jinja_lexer *lexer, struct jinja_token *out) {
    for (size_t i = 0; i < ARRAY_LEN(operators); ++i) {
        if (!jinja_lexer_has(lexer, lexer->pos, operators[i].text)) continue;
        out->type = operators[i].type;
        out->len = strlen(operators[i].text);
        lexer->pos += out->len;
        return out->len == 1 ? track_bracket(lexer, out) : OK;
    }
    size_t size;
    uint32_t c = char_at(lexer, lexer->pos, &size);
    if (jinja_char_is_printable(c))
        return jinja_lexer_fail(lexer, out->line, "unexpected character '%.*s'", (int)size,
                                out->text);
    return jinja_lexer_fail(lexer, out->line, "unexpected character U+%04X", c);
}

// ---- all of them ----

// The end of the tag, white space before it skipped. False: the tag goes on at lexer->pos.
static bool match_end(struct jinja_lexer *lexer, struct jinja_token *out) {
    for (bool is_skipped = false;; is_skipped = true) {
        size_t pos = lexer->pos, end = 0;
        if (lexer->num_closers > 0) {
            // inside brackets nothing ends the tag
        } else if (lexer->state == JINJA_LEXER_BLOCK) {
            jinja_lexer_match_block_end(lexer, pos, &end);
        } else if (jinja_lexer_has(lexer, pos, "}}")) {
            end = pos + 2;
        } else if (jinja_lexer_has(lexer, pos, "-}}")) {
            end = jinja_lexer_skip_space(lexer, pos + 3);
        }
        if (end > 0) {
            out->type =
                lexer->state == JINJA_LEXER_BLOCK ? JINJA_TOKEN_BLOCK_END : JINJA_TOKEN_PRINT_END;
            out->line = jinja_lexer_line(lexer, pos);
            lexer->pos = end;
            lexer->state = JINJA_LEXER_TEXT;
            return true;
        }
        if (is_skipped) return false;
        lexer->pos = jinja_lexer_skip_space(lexer, pos);
    }
}

enum status jinja_lexer_tag_token(struct jinja_lexer *lexer, struct jinja_token *out) {
    *out = (struct jinja_token){0};
    bool is_end = match_end(lexer, out);
    if (is_end) return OK;
    size_t start = lexer->pos;
    out->line = jinja_lexer_line(lexer, start);
    out->text = lexer->source + start;
    if (start == lexer->len) {
        out->type = JINJA_TOKEN_EOF;
        return OK;
    }
    char c = lexer->source[start];
    if (is_digit(c)) return number_token(lexer, out);
    if (c == '\'' || c == '"') return string_token(lexer, out);
    bool is_valid;
    size_t end = name_end(lexer, start, &is_valid);
    if (end == start) return operator_token(lexer, out);
    out->type = JINJA_TOKEN_NAME;
    out->len = end - start;
    lexer->pos = end;
    if (!is_valid) return jinja_lexer_fail(lexer, out->line, "a name holds an invalid character");
    return OK;
}
