/* The choice of a pattern's engine, and the walk over its matches. */
#include "text/tokenizer/tokenizer_pattern.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode/unicode.h"

// Published spellings of GPT-2's pattern and of the one that cl100k, Llama 3 and Qwen use. The
// spellings of the latter match alike: possessive repetition finds the same optional character
// before letters, and "\s*[\r\n]" reaches the last line end of the white space with and without a
// final "+".
static const struct {
    const char *regex;
    enum pattern_kind kind;
    size_t max_digits;
} known_patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     PATTERN_GPT2, 0},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     PATTERN_CL100K, 1},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     PATTERN_CL100K, 3},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     PATTERN_CL100K, 3},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
     "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     PATTERN_CL100K, 3},
};

// A published pattern is recognised by its exact text. Any other spelling gives the same result,
// but runs slower.
enum status pattern_init_regex(struct pattern *pattern, const uint8_t *flags, const char *regex,
                               const char *what, struct err *err) {
    *pattern = (struct pattern){.kind = PATTERN_REGEX, .flags = flags};
    for (size_t i = 0; i < ARRAY_LEN(known_patterns); i++) {
        if (strcmp(regex, known_patterns[i].regex) == 0) {
            pattern->kind = known_patterns[i].kind;
            pattern->max_digits = known_patterns[i].max_digits;
            return OK;
        }
    }
    return regex_compile(&pattern->regex, regex, what, err);
}

void pattern_init_flagged(struct pattern *pattern, const uint8_t *flags, unsigned wanted) {
    *pattern = (struct pattern){.kind = PATTERN_FLAGGED, .flags = flags, .wanted = wanted};
}

void pattern_init_word(struct pattern *pattern, const uint8_t *flags) {
    *pattern = (struct pattern){.kind = PATTERN_WORD, .flags = flags};
}

void pattern_init_gpt2(struct pattern *pattern, const uint8_t *flags) {
    *pattern = (struct pattern){.kind = PATTERN_GPT2, .flags = flags};
}

enum status pattern_init_literal(struct pattern *pattern, const char *literal, struct err *err) {
    *pattern = (struct pattern){.kind = PATTERN_LITERAL, .literal_len = strlen(literal)};
    pattern->literal = strdup(literal);
    return pattern->literal ? OK : err_nomem(err, "pattern");
}

void pattern_fini(struct pattern *pattern) {
    free(pattern->literal);
    regex_destroy(pattern->regex);
    *pattern = (struct pattern){0};
}

void pattern_scratch_fini(struct pattern_scratch *scratch) {
    regex_scratch_fini(&scratch->regex);
    *scratch = (struct pattern_scratch){0};
}

// The next character that has one of the flags.
static bool find_flagged(const struct pattern *pattern, struct pattern_cursor *cursor) {
    const unsigned char *text = (const unsigned char *)cursor->text;
    for (size_t i = cursor->from, size; i < cursor->len; i += size) {
        if (!(pattern->flags[utf8_decode(text + i, &size)] & pattern->wanted)) continue;
        cursor->start = i;
        cursor->end = i + size;
        return true;
    }
    return false;
}

// \w+|[^\w\s]+: the next row of word characters, or of characters that are neither word nor space.
static bool find_word(const struct pattern *pattern, struct pattern_cursor *cursor) {
    const unsigned char *text = (const unsigned char *)cursor->text;
    size_t i = cursor->from, size;
    while (i < cursor->len && pattern->flags[utf8_decode(text + i, &size)] & UNICODE_SPACE) {
        i += size;
    }
    if (i == cursor->len) return false;
    cursor->start = i;
    unsigned kind = pattern->flags[utf8_decode(text + i, &size)] & UNICODE_WORD;
    for (; i < cursor->len; i += size) {
        unsigned flags = pattern->flags[utf8_decode(text + i, &size)];
        if (flags & UNICODE_SPACE || (flags & UNICODE_WORD) != kind) break;
    }
    cursor->end = i;
    return true;
}

// Finds empty matches too, but none right at the end of the match before.
static enum status find_regex(const struct pattern *pattern, struct pattern_cursor *cursor,
                              struct pattern_scratch *scratch, bool *found, struct err *err) {
    while (cursor->from <= cursor->len) {
        struct regex_match match;
        enum status status = regex_search(pattern->regex, cursor->text, cursor->len, cursor->from,
                                          &scratch->regex, scratch->effort, &match, err);
        *found = !status && match.found;
        if (!*found) return status;
        cursor->start = match.start;
        cursor->end = match.end;
        if (match.start != match.end || match.end != cursor->last_end) return OK;
        size_t size = 1;
        if (cursor->from < cursor->len) {
            utf8_decode((const unsigned char *)cursor->text + cursor->from, &size);
        }
        cursor->from += size;
    }
    *found = false;
    return OK;
}

enum status pattern_next(const struct pattern *pattern, struct pattern_cursor *cursor,
                         struct pattern_scratch *scratch, bool *found, struct err *err) {
    *found = false;
    if (pattern_is_scanned(pattern)) {
        if (cursor->from >= cursor->len) return OK;
        const unsigned char *text = (const unsigned char *)cursor->text;
        cursor->start = cursor->from;
        cursor->end = cursor->from + pattern_scan(pattern, text + cursor->from, text + cursor->len);
        *found = true;
    } else if (pattern->kind == PATTERN_LITERAL) {
        // A byte search suffices: in valid UTF-8 it finds whole characters only.
        const char *hit = memmem(cursor->text + cursor->from, cursor->len - cursor->from,
                                 pattern->literal, pattern->literal_len);
        if (!hit) return OK;
        cursor->start = (size_t)(hit - cursor->text);
        cursor->end = cursor->start + pattern->literal_len;
        *found = true;
    } else if (pattern->kind == PATTERN_FLAGGED || pattern->kind == PATTERN_WORD) {
        *found = pattern->kind == PATTERN_WORD ? find_word(pattern, cursor)
                                               : find_flagged(pattern, cursor);
        if (!*found) return OK;
    } else {
        enum status status = find_regex(pattern, cursor, scratch, found, err);
        if (status || !*found) return status;
    }
    cursor->from = cursor->end;
    cursor->last_end = cursor->end;
    return OK;
}
