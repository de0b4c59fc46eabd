/* Normalizers: NFC, NFKC, Prepend and Replace. They run one after the other on each piece of text
 * between added tokens. Two buffers take turns, and NFC or NFKC that changes nothing copies
 * nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "text/tokenizer/tokenizer_parts.h"

enum { GROWTH_MAX = 256 }; // a file that makes texts longer than that is broken or hostile

void tokenizer_normalizer_fini(struct normalizer *normalizer) {
    pattern_fini(&normalizer->pattern);
    free(normalizer->text);
    *normalizer = (struct normalizer){0};
}

enum status tokenizer_load_pattern(struct pattern *pattern, const uint8_t *flags,
                                   const json_t *component, const char *role, const char *what,
                                   struct err *err) {
    const json_t *value = json_object_get(component, "pattern");
    const char *regex = NULL, *literal = NULL;
    enum status status = jread_string(value, "Regex", &regex, what, err);
    if (!status) status = jread_string(value, "String", &literal, what, err);
    if (status) return status;
    if (regex) return pattern_init_regex(pattern, flags, regex, what, err);
    if (!literal) {
        return err_set(err, ERR_FORMAT,
                       "%s: %s: the pattern is neither {\"Regex\": ...} nor {\"String\": ...}",
                       what, role);
    }
    if (!*literal) {
        return err_set(err, ERR_UNSUPPORTED, "%s: %s: an empty pattern is not supported", what,
                       role);
    }
    return pattern_init_literal(pattern, literal, err);
}

enum status tokenizer_load_replace(struct normalizer *out, const uint8_t *flags,
                                   const json_t *component, const char *role, const char *what,
                                   struct err *err) {
    out->kind = NORMALIZER_REPLACE;
    const char *content = NULL;
    enum status status = jread_string(component, "content", &content, what, err);
    if (status) return status;
    if (!content) return err_set(err, ERR_FORMAT, "%s: %s: Replace has no content", what, role);
    status = tokenizer_load_pattern(&out->pattern, flags, component, role, what, err);
    if (status) return status;
    out->text = strdup(content);
    out->len = strlen(content);
    return out->text ? OK : err_nomem(err, role);
}

static enum status load_prepend(struct normalizer *out, const json_t *component, const char *what,
                                struct err *err) {
    out->kind = NORMALIZER_PREPEND;
    const char *prepended = NULL;
    enum status status = jread_string(component, "prepend", &prepended, what, err);
    if (status) return status;
    if (!prepended) {
        return err_set(err, ERR_FORMAT, "%s: normalizer: Prepend has no \"prepend\"", what);
    }
    out->text = strdup(prepended);
    out->len = strlen(prepended);
    return out->text ? OK : err_nomem(err, "normalizer");
}

// How many times longer a text can become. A regular expression may match the empty text, which
// inserts the content between any two bytes.
static size_t growth(const struct normalizer *normalizer) {
    size_t len = normalizer->len;
    if (normalizer->kind == NORMALIZER_NFC) return 3;
    if (normalizer->kind == NORMALIZER_NFKC) return 11; // U+FDFA
    if (normalizer->kind == NORMALIZER_PREPEND || normalizer->pattern.kind != PATTERN_LITERAL) {
        return len + 1;
    }
    size_t pattern = normalizer->pattern.literal_len;
    return len > pattern ? (len + pattern - 1) / pattern : 1;
}

enum status normalizer_check_growth(const struct normalizer *normalizer, const char *role,
                                    size_t *total, const char *what, struct err *err) {
    size_t factor = growth(normalizer);
    *total = factor > GROWTH_MAX ? GROWTH_MAX + 1 : *total * factor;
    if (*total <= GROWTH_MAX) return OK;
    return err_set(err, ERR_UNSUPPORTED, "%s: %s can make a text more than %d times as long", what,
                   role, GROWTH_MAX);
}

enum status tokenizer_load_normalizer(struct tokenizer *tokenizer, const json_t *root,
                                      const char *what, struct err *err) {
    struct component_list list;
    enum status status = component_list_read(root, "normalizer", "normalizers", &list, what, err);
    size_t total = 1;
    for (size_t i = 0; i < list.len && !status; i++) {
        struct normalizer *normalizer = &tokenizer->normalizers[tokenizer->num_normalizers++];
        const json_t *item = list.items[i];
        if (strcmp(list.types[i], "NFC") == 0) {
            normalizer->kind = NORMALIZER_NFC;
        } else if (strcmp(list.types[i], "NFKC") == 0) {
            normalizer->kind = NORMALIZER_NFKC;
        } else if (strcmp(list.types[i], "Prepend") == 0) {
            status = load_prepend(normalizer, item, what, err);
        } else if (strcmp(list.types[i], "Replace") == 0) {
            status =
                tokenizer_load_replace(normalizer, tokenizer->flags, item, "normalizer", what, err);
        } else {
            return component_unsupported("normalizer", list.types[i], what, err);
        }
        if (!status) status = normalizer_check_growth(normalizer, "normalizer", &total, what, err);
    }
    return status;
}

static size_t count_byte(const char *text, size_t len, char byte) {
    size_t count = 0;
    for (size_t i = 0; i < len; i++) count += text[i] == byte;
    return count;
}

// The bytes are counted first, so that copying needs no checks of the capacity.
enum status text_replace_byte(const char *text, size_t len, char byte, const char *content,
                              size_t content_len, size_t before, struct buf *out, struct err *err) {
    buf_clear(out);
    size_t replaced = count_byte(text, len, byte) * content_len;
    enum status status = buf_reserve(out, before + len + replaced, err);
    if (status) return status;
    char *to = out->data + before;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == byte) {
            for (size_t k = 0; k < content_len; k++) *to++ = content[k];
        } else {
            *to++ = text[i];
        }
    }
    *to = '\0';
    out->len = (size_t)(to - out->data);
    return OK;
}

// Replaces each match, empty ones too, by the content.
static enum status replace_matches(const struct normalizer *normalizer,
                                   struct pattern_scratch *scratch, const char *text, size_t len,
                                   struct buf *out, struct err *err) {
    struct pattern_cursor cursor = {.text = text, .len = len, .last_end = SIZE_MAX};
    size_t done = 0;
    buf_clear(out);
    for (;;) {
        bool found;
        enum status status = pattern_next(&normalizer->pattern, &cursor, scratch, &found, err);
        if (!status) {
            size_t end = found ? cursor.end : done, start = found ? cursor.start : done;
            size_t so_far = out->len + (start - done) + (found ? normalizer->len : 0);
            status = effort_check_normalized(scratch->effort, so_far + (len - end), err);
        }
        if (status) return status;
        if (!found) return buf_append(out, text + done, len - done, err);
        status = buf_append(out, text + done, cursor.start - done, err);
        if (!status) status = buf_append(out, normalizer->text, normalizer->len, err);
        if (status) return status;
        done = cursor.end;
    }
}

enum status text_replace(const struct normalizer *normalizer, struct pattern_scratch *scratch,
                         const char *text, size_t len, struct buf *out, struct err *err) {
    const struct pattern *pattern = &normalizer->pattern;
    if (pattern->kind == PATTERN_LITERAL && pattern->literal_len == 1) {
        size_t count = count_byte(text, len, pattern->literal[0]);
        enum status status =
            effort_check_normalized(scratch->effort, len - count + count * normalizer->len, err);
        if (status) return status;
        return text_replace_byte(text, len, pattern->literal[0], normalizer->text, normalizer->len,
                                 0, out, err);
    }
    return replace_matches(normalizer, scratch, text, len, out, err);
}

// Writes one normalizer's result to `out`, unless *changed is false.
static enum status run(const struct tokenizer *tokenizer, const struct normalizer *normalizer,
                       struct tokenizer_scratch *scratch, const char *text, size_t len,
                       struct buf *out, bool *changed, struct err *err) {
    *changed = true;
    enum normalizer_kind kind = normalizer->kind;
    if (kind == NORMALIZER_NFC || kind == NORMALIZER_NFKC) {
        enum status status =
            unicode_normalize(kind == NORMALIZER_NFKC ? UNICODE_NFKC : UNICODE_NFC,
                              tokenizer->flags, text, len, &scratch->nfc, out, changed, err);
        return status ? status : effort_check_normalized(&scratch->effort, out->len, err);
    }
    if (kind == NORMALIZER_REPLACE) {
        return text_replace(normalizer, &scratch->pattern, text, len, out, err);
    }
    *changed = len > 0; // an empty text gets no prefix
    buf_clear(out);
    enum status status = effort_check_normalized(&scratch->effort, normalizer->len + len, err);
    if (!status) status = buf_append(out, normalizer->text, normalizer->len, err);
    return status ? status : buf_append(out, text, len, err);
}

enum status tokenizer_normalize(const struct tokenizer *tokenizer,
                                struct tokenizer_scratch *scratch, const char **text, size_t *len,
                                struct err *err) {
    bool any_changed = false;
    for (size_t i = 0; i < tokenizer->num_normalizers; i++) {
        bool busy = *text == scratch->normalized.data; // the input is in this buffer
        struct buf *out = busy ? &scratch->normalizing : &scratch->normalized;
        bool changed;
        enum status status =
            run(tokenizer, &tokenizer->normalizers[i], scratch, *text, *len, out, &changed, err);
        if (status) return status;
        if (!changed) continue;
        any_changed = true;
        *text = out->data;
        *len = out->len;
    }
    // Only the last result counts: the others share two buffers, but it becomes words and ids.
    if (any_changed) scratch->effort.normalized_left -= *len;
    return OK;
}
