/* Outside of tags: the text between them, and how much white space each tag removes. A minus
 * removes all of it on its side. Without a sign, {% and {# remove the blanks before them if nothing
 * else is on their line before them, and %} and #} remove the newline behind them. */
#include "jinja/src/parse/lexer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "base/text/utf8.h"
#include "jinja/src/value/chars.h"

enum status jinja_lexer_fail(const struct jinja_lexer *lexer, uint32_t line, const char *format,
                             ...) {
    char sentence[400];
    va_list args;
    va_start(args, format);
    c_locale_vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return err_set(lexer->err, ERR_FORMAT, "%s: line %u: %s", lexer->what, line, sentence);
}

enum status jinja_lexer_init(struct jinja_lexer *lexer, struct arena *arena, const char *source,
                             size_t len, const char *what, struct err *err) {
    *lexer = (struct jinja_lexer){.arena = arena, .line = 1, .what = what, .err = err};
    char *copy = arena_alloc(arena, len);
    if (!copy) return err_nomem(err, "a template's source");
    size_t used = 0;
    for (size_t i = 0; i < len; ++i) {
        copy[used++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') ++i;
    }
    // The newline at the end of a file is not part of the template.
    if (used > 0 && copy[used - 1] == '\n') --used;
    lexer->source = copy;
    lexer->len = used;
    return OK;
}

uint32_t jinja_lexer_line(struct jinja_lexer *lexer, size_t pos) {
    while (lexer->line_pos < pos) {
        const char *from = lexer->source + lexer->line_pos;
        const char *newline = memchr(from, '\n', pos - lexer->line_pos);
        lexer->line_pos = newline ? (size_t)(newline - lexer->source) + 1 : pos;
        lexer->line += newline != NULL;
    }
    return lexer->line;
}

bool jinja_lexer_has(const struct jinja_lexer *lexer, size_t pos, const char *text) {
    size_t len = strlen(text);
    return pos <= lexer->len && lexer->len - pos >= len &&
           memcmp(lexer->source + pos, text, len) == 0;
}

size_t jinja_lexer_skip_space(const struct jinja_lexer *lexer, size_t pos) {
    while (pos < lexer->len) {
        size_t size;
        uint32_t c = utf8_decode((const unsigned char *)lexer->source + pos, &size);
        if (!jinja_char_is_space(c)) break;
        pos += size;
    }
    return pos;
}

// The end of source[start, end) without the white space at its end.
static size_t trim_end(const struct jinja_lexer *lexer, size_t start, size_t end) {
    while (end > start) {
        size_t last = end - 1, size;
        while ((lexer->source[last] & 0xc0) == 0x80) --last;
        if (!jinja_char_is_space(utf8_decode((const unsigned char *)lexer->source + last, &size)))
            break;
        end = last;
    }
    return end;
}

// The text before a {% or {# without a sign, less what the tag removes.
static size_t trim_blanks_of_line(const struct jinja_lexer *lexer, size_t start, size_t end) {
    size_t line = end;
    while (line > start && lexer->source[line - 1] != '\n') --line;
    if (line == start && start > 0 && lexer->source[start - 1] != '\n') return end;
    return jinja_lexer_skip_space(lexer, line) >= end ? line : end;
}

// The end of the text [start, tag) before the tag at `tag`, whose sign is '-', '+' or another byte.
static size_t text_end(const struct jinja_lexer *lexer, size_t start, size_t tag) {
    char sign = tag + 2 < lexer->len ? lexer->source[tag + 2] : '\0';
    if (sign == '-') return trim_end(lexer, start, tag);
    if (sign == '+' || lexer->source[tag + 1] == '{') return tag;
    return trim_blanks_of_line(lexer, start, tag);
}

// The place behind the two bytes of the tag and its sign.
static size_t behind_sign(const struct jinja_lexer *lexer, size_t tag) {
    size_t pos = tag + 2;
    return jinja_lexer_has(lexer, pos, "-") || jinja_lexer_has(lexer, pos, "+") ? pos + 1 : pos;
}

static size_t find_tag(const struct jinja_lexer *lexer, size_t pos) {
    while (pos + 1 < lexer->len) {
        const char *brace = memchr(lexer->source + pos, '{', lexer->len - pos - 1);
        if (!brace) break;
        pos = (size_t)(brace - lexer->source);
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#') return pos;
        ++pos;
    }
    return lexer->len;
}

// Moves past the newline behind the end of a block or comment, which belongs to it.
static size_t skip_newline(const struct jinja_lexer *lexer, size_t pos) {
    return jinja_lexer_has(lexer, pos, "\n") ? pos + 1 : pos;
}

bool jinja_lexer_match_block_end(const struct jinja_lexer *lexer, size_t pos, size_t *end) {
    if (jinja_lexer_has(lexer, pos, "%}")) {
        *end = skip_newline(lexer, pos + 2);
    } else if (jinja_lexer_has(lexer, pos, "-%}")) {
        *end = jinja_lexer_skip_space(lexer, pos + 3);
    } else if (jinja_lexer_has(lexer, pos, "+%}")) {
        *end = pos + 3;
    } else {
        return false;
    }
    return true;
}

static enum status skip_comment(struct jinja_lexer *lexer, size_t tag) {
    size_t start = behind_sign(lexer, tag);
    const char *found = memmem(lexer->source + start, lexer->len - start, "#}", 2);
    if (!found) {
        // Jinja lets a source end with an opened but empty comment.
        if (start < lexer->len)
            return jinja_lexer_fail(lexer, jinja_lexer_line(lexer, tag),
                                    "this comment has no end, want '#}'");
        lexer->pos = lexer->len;
        return OK;
    }
    size_t end = (size_t)(found - lexer->source);
    char sign = end > start ? found[-1] : '\0';
    lexer->pos = end + 2;
    if (sign == '-') lexer->pos = jinja_lexer_skip_space(lexer, lexer->pos);
    if (sign != '-' && sign != '+') lexer->pos = skip_newline(lexer, lexer->pos);
    return OK;
}

static void set_token(struct jinja_lexer *lexer, struct jinja_token *out,
                      enum jinja_token_type type, size_t start, size_t end) {
    *out = (struct jinja_token){.type = type,
                                .line = jinja_lexer_line(lexer, start),
                                .text = lexer->source + start,
                                .len = end - start};
}

// Whether `word` stands behind the sign of the tag at `tag`, white space around it allowed; *end
// is where the end of the tag would be.
static bool match_word(const struct jinja_lexer *lexer, size_t tag, const char *word, size_t *end) {
    size_t pos = jinja_lexer_skip_space(lexer, behind_sign(lexer, tag));
    if (!jinja_lexer_has(lexer, pos, word)) return false;
    *end = jinja_lexer_skip_space(lexer, pos + strlen(word));
    return true;
}

// {% raw %} at `tag`: *body is where its text starts. Unlike others it leaves the newline.
static bool match_raw(const struct jinja_lexer *lexer, size_t tag, size_t *body) {
    size_t pos;
    if (lexer->source[tag + 1] != '%' || !match_word(lexer, tag, "raw", &pos)) return false;
    if (jinja_lexer_has(lexer, pos, "%}")) {
        *body = pos + 2;
    } else if (jinja_lexer_has(lexer, pos, "-%}")) {
        *body = jinja_lexer_skip_space(lexer, pos + 3);
    } else {
        return false;
    }
    return true;
}

// The text of a raw block from `body` to its end.
static enum status raw_token(struct jinja_lexer *lexer, size_t tag, size_t body,
                             struct jinja_token *out) {
    for (size_t pos = body; pos + 1 < lexer->len; ++pos) {
        const char *brace = memchr(lexer->source + pos, '{', lexer->len - pos - 1);
        if (!brace) break;
        pos = (size_t)(brace - lexer->source);
        size_t end;
        if (brace[1] != '%' || !match_word(lexer, pos, "endraw", &end) ||
            !jinja_lexer_match_block_end(lexer, end, &end))
            continue;
        set_token(lexer, out, JINJA_TOKEN_TEXT, body, text_end(lexer, body, pos));
        lexer->pos = end;
        return OK;
    }
    if (body < lexer->len)
        return jinja_lexer_fail(
            lexer, jinja_lexer_line(lexer, tag),
            "unexpected end of template, want 'endraw' for the 'raw' of this line");
    set_token(lexer, out, JINJA_TOKEN_TEXT, body, body);
    lexer->pos = body;
    return OK;
}

// The next text or beginning of a tag. Comments and raw blocks are passed on the way.
static enum status text_token(struct jinja_lexer *lexer, struct jinja_token *out) {
    for (;;) {
        size_t start = lexer->pos, tag = find_tag(lexer, start);
        if (tag == lexer->len) {
            lexer->pos = lexer->len;
            set_token(lexer, out, start < tag ? JINJA_TOKEN_TEXT : JINJA_TOKEN_EOF, start, tag);
            return OK;
        }
        size_t end = text_end(lexer, start, tag);
        if (end > start) {
            set_token(lexer, out, JINJA_TOKEN_TEXT, start, end);
            lexer->pos = tag;
            return OK;
        }
        size_t body;
        if (lexer->source[tag + 1] == '#') {
            enum status status = skip_comment(lexer, tag);
            if (status) return status;
        } else if (match_raw(lexer, tag, &body)) {
            enum status status = raw_token(lexer, tag, body, out);
            if (status || out->len > 0) return status;
        } else {
            bool is_print = lexer->source[tag + 1] == '{';
            lexer->state = is_print ? JINJA_LEXER_PRINT : JINJA_LEXER_BLOCK;
            set_token(lexer, out, is_print ? JINJA_TOKEN_PRINT_BEGIN : JINJA_TOKEN_BLOCK_BEGIN, tag,
                      tag + 2);
            lexer->pos = behind_sign(lexer, tag);
            return OK;
        }
    }
}

enum status jinja_lexer_next(struct jinja_lexer *lexer, struct jinja_token *out) {
    return lexer->state == JINJA_LEXER_TEXT ? text_token(lexer, out)
                                            : jinja_lexer_tag_token(lexer, out);
}
