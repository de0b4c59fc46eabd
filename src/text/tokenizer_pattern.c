/* Which engine runs a pattern, and the walk over its matches. */
#include "text/tokenizer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"

// The published spellings of the pattern that cl100k, Llama 3 and Qwen use. They match alike: an
// optional character that is no letter before letters is found the same with and without "+", and
// "\s*[\r\n]" reaches the last line end of the white space either way.
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

static enum status compile(struct pattern *pattern, const char *regex, const char *what,
                           struct err *err) {
    struct buf translated = {0};
    enum status status = pattern_translate(regex, what, &translated, err);
    if (status) goto done;
    int code = 0;
    PCRE2_SIZE offset = 0;
    // MULTILINE: Oniguruma's ^ and $ always mean lines.
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C;
    const char *text = translated.data ? translated.data : "";
    pattern->code = pcre2_compile((PCRE2_SPTR)text, translated.len, options, &code, &offset, NULL);
    if (!pattern->code) {
        PCRE2_UCHAR reason[128] = {0};
        pcre2_get_error_message(code, reason, sizeof reason);
        status = code == PCRE2_ERROR_HEAP_FAILED
                     ? err_nomem(err, "regular expression")
                     : err_set(err, ERR_FORMAT, "%s: the pattern %.160s is not valid: %s", what,
                               regex, (const char *)reason);
        goto done;
    }
    // Where the system forbids writing code, PCRE2 interprets: slower, nothing else.
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
done:
    buf_fini(&translated);
    return status;
}

// A known pattern is known by its text: rewriting it in any way only makes it slower.
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
    return compile(pattern, regex, what, err);
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
    pcre2_code_free(pattern->code);
    *pattern = (struct pattern){0};
}

void pattern_scratch_fini(struct pattern_scratch *scratch) {
    pcre2_match_data_free(scratch->match_data);
    pcre2_match_context_free(scratch->match_context);
    *scratch = (struct pattern_scratch){0};
}

// Made on first use: most tokenizers have no pattern for PCRE2.
static enum status prepare(struct pattern_scratch *scratch, struct err *err) {
    if (!scratch->match_data) scratch->match_data = pcre2_match_data_create(1, NULL);
    if (!scratch->match_context) {
        scratch->match_context = pcre2_match_context_create(NULL);
        if (scratch->match_context) {
            enum { HEAP_LIMIT_KIB = 1 << 20 };
            pcre2_set_heap_limit(scratch->match_context, HEAP_LIMIT_KIB);
        }
    }
    return scratch->match_data && scratch->match_context ? OK : err_nomem(err, "pattern match");
}

// The first match at or after `from`.
static enum status regex_search(const struct pattern *pattern, const struct pattern_cursor *cursor,
                                size_t from, struct pattern_scratch *scratch, size_t *start,
                                size_t *end, bool *found, struct err *err) {
    enum status status = prepare(scratch, err);
    if (status) return status;
    // Backtracking that grows with the text is a pattern's right; exploding is not.
    uint64_t limit = 10000000 + 16 * (uint64_t)cursor->len;
    pcre2_set_match_limit(scratch->match_context,
                          limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    const PCRE2_SPTR text = (PCRE2_SPTR)cursor->text;
    int rc = pcre2_match(pattern->code, text, cursor->len, from, PCRE2_NO_UTF_CHECK,
                         scratch->match_data, scratch->match_context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) { // the interpreter keeps its stack on the heap
        rc = pcre2_match(pattern->code, text, cursor->len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         scratch->match_data, scratch->match_context);
    }
    *found = rc >= 0;
    if (rc == PCRE2_ERROR_NOMATCH) return OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return err_nomem(err, "pattern match");
    if (rc < 0) {
        PCRE2_UCHAR reason[128] = {0};
        pcre2_get_error_message(rc, reason, sizeof reason);
        return err_set(err, ERR_INVALID, "the tokenizer's pattern gave up on this text: %s",
                       (const char *)reason);
    }
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(scratch->match_data);
    *start = offsets[0];
    *end = offsets[1];
    // \K in a lookbehind can report a match that ends before it starts or before the search began.
    if (*start > *end || *start < from) {
        return err_set(err, ERR_UNSUPPORTED, "the tokenizer's pattern uses \\K in a lookaround");
    }
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
        // Whole characters in valid UTF-8 are only found at characters.
        const char *hit = memmem(cursor->text + cursor->from, cursor->len - cursor->from,
                                 pattern->literal, pattern->literal_len);
        if (!hit) return OK;
        cursor->start = (size_t)(hit - cursor->text);
        cursor->end = cursor->start + pattern->literal_len;
        *found = true;
    } else {
        for (;;) {
            if (cursor->from > cursor->len) return OK;
            enum status status = regex_search(pattern, cursor, cursor->from, scratch,
                                              &cursor->start, &cursor->end, found, err);
            if (status || !*found) return status;
            // An empty match right after the last match is skipped: go on one character later.
            if (cursor->start != cursor->end || cursor->end != cursor->last_end) break;
            size_t size = 1;
            if (cursor->from < cursor->len) {
                utf8_decode((const unsigned char *)cursor->text + cursor->from, &size);
            }
            cursor->from += size;
            *found = false;
        }
    }
    cursor->from = cursor->end;
    cursor->last_end = cursor->end;
    return OK;
}
