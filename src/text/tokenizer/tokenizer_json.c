#include "text/tokenizer/tokenizer_json.h"

#include <string.h>

#include "base/compiler.h"
#include "base/text/c_locale.h"
#include "base/text/utf8.h"

// Finds the big values. Where a key comes twice, only the first value is cut out, so that jansson
// sees the duplicate.
static void find_spans(struct tokenizer_document *document, const char *text, size_t len) {
    const char *p = text, *end = text + len;
    struct json_span key;
    bool in_model = false;
    while (p && json_next_key(&p, end, &key)) {
        if (!in_model && json_span_is(key, "model") && *p == '{') {
            in_model = true; // next come the model's keys; the rest of the file is not needed
            continue;
        }
        const char *value = p;
        p = json_skip_value(p, end);
        if (!in_model || !p) continue;
        struct json_span span = {.text = value, .len = (size_t)(p - value)};
        if (!document->vocab.text && json_span_is(key, "vocab") && *value == '{')
            document->vocab = span;
        if (!document->merges.text && json_span_is(key, "merges") && *value == '[') {
            document->merges = span;
        }
    }
}

enum status tokenizer_document_read(struct tokenizer_document *out, const char *text, size_t len,
                                    const char *what, struct err *err) {
    *out = (struct tokenizer_document){0};
    find_spans(out, text, len);
    const struct json_span spans[] = {out->vocab, out->merges};
    return json_span_read_rest(&out->root, (struct json_span){text, len}, spans, ARRAY_LEN(spans),
                               jread_text, what, err);
}

void tokenizer_document_fini(struct tokenizer_document *document) {
    json_decref(document->root);
    *document = (struct tokenizer_document){0};
}

void json_reader_init(struct json_reader *reader, struct json_span span, const char *what,
                      const char *name) {
    *reader = (struct json_reader){.text = span.text,
                                   .p = span.text,
                                   .end = span.text ? span.text + span.len : NULL,
                                   .what = what,
                                   .name = name};
}

void json_reader_fini(struct json_reader *reader) {
    buf_fini(&reader->first);
    buf_fini(&reader->second);
}

// An error at the reader's place, which is counted from the value's first byte.
static enum status wrong(const struct json_reader *reader, const char *want, struct err *err) {
    return err_set(err, ERR_FORMAT, "%s: %s: want %s at byte %zu of this value", reader->what,
                   reader->name, want, (size_t)(reader->p - reader->text));
}

// Every reading function leaves `p` after white space.
static void skip(struct json_reader *reader) {
    reader->p = json_skip_spaces(reader->p, reader->end);
}

static bool at(const struct json_reader *reader, char c) {
    return reader->p < reader->end && *reader->p == c;
}

static bool take(struct json_reader *reader, char c) {
    skip(reader);
    if (!at(reader, c)) return false;
    reader->p++;
    skip(reader);
    return true;
}

// Four hexadecimal digits at `p`; false when they are not.
static bool hex4(const char *p, const char *end, uint32_t *value) {
    if (end - p < 4) return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = c_locale_hex_value(p[i]);
        if (digit < 0) return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

// Reads the four hex digits after \u; of a surrogate pair also its second half.
static enum status read_unicode_escape(struct json_reader *reader, struct buf *out,
                                       struct err *err) {
    uint32_t c, low;
    if (!hex4(reader->p, reader->end, &c)) return wrong(reader, "four hexadecimal digits", err);
    reader->p += 4;
    if (c >= 0xd800 && c < 0xdc00) {
        if (reader->end - reader->p < 6 || reader->p[0] != '\\' || reader->p[1] != 'u' ||
            !hex4(reader->p + 2, reader->end, &low) || low < 0xdc00 || low > 0xdfff) {
            return wrong(reader, "the second half of a surrogate pair", err);
        }
        reader->p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c < 0xe000) {
        return wrong(reader, "no lone surrogate", err);
    }
    if (c == 0) return wrong(reader, "no NUL character", err);
    char bytes[4];
    return buf_append(out, bytes, utf8_write(c, bytes), err);
}

// Reads an escape; `p` is after the backslash.
static enum status read_escape(struct json_reader *reader, struct buf *out, struct err *err) {
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (reader->p == reader->end) return wrong(reader, "an escape", err);
    char c = *reader->p++;
    if (c == 'u') return read_unicode_escape(reader, out, err);
    const char *letter = c ? strchr(letters, c) : NULL;
    if (!letter) return wrong(reader, "a JSON escape", err);
    return buf_append(out, &values[letter - letters], 1, err);
}

// Reads the string at `p` into `out`. Control characters in it are errors, as in jansson.
static enum status read_string(struct json_reader *reader, struct buf *out, struct err *err) {
    buf_clear(out);
    if (!at(reader, '"')) return wrong(reader, "a string", err);
    reader->p++;
    for (;;) {
        const char *p = reader->p;
        while (p < reader->end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) p++;
        enum status status = buf_append(out, reader->p, (size_t)(p - reader->p), err);
        if (status) return status;
        reader->p = p;
        if (at(reader, '"')) {
            reader->p++;
            return OK;
        }
        if (!at(reader, '\\')) return wrong(reader, "the end of a string", err);
        reader->p++;
        status = read_escape(reader, out, err);
        if (status) return status;
    }
}

// Reads the opening bracket or comma before an element. *found = false at the closing bracket.
static enum status next_element(struct json_reader *reader, char open, char close, bool *found,
                                struct err *err) {
    *found = false;
    if (!reader->text) return OK;
    bool first = !reader->started;
    reader->started = true;
    if (first && !take(reader, open)) return wrong(reader, "a bracket", err);
    skip(reader);
    if (at(reader, close)) return OK;
    if (!first && !take(reader, ',')) return wrong(reader, "a comma", err);
    *found = true;
    return OK;
}

// Ten digits are enough to see that an id is too large.
enum status json_reader_next_entry(struct json_reader *reader, int64_t *number, bool *found,
                                   struct err *err) {
    enum status status = next_element(reader, '{', '}', found, err);
    if (status || !*found) return status;
    status = read_string(reader, &reader->first, err);
    if (status) return status;
    if (!take(reader, ':')) return wrong(reader, "a colon", err);
    const char *digits = reader->p;
    *number = 0;
    while (reader->p < reader->end && *reader->p >= '0' && *reader->p <= '9' &&
           reader->p - digits < 10) {
        *number = *number * 10 + (*reader->p++ - '0');
    }
    if (reader->p == digits || (*digits == '0' && reader->p - digits > 1)) {
        reader->p = digits;
        return wrong(reader, "a whole number", err);
    }
    return OK;
}

// "a b" may have one space only: with two it is not clear which token has the other.
enum status json_reader_next_pair(struct json_reader *reader, bool *found, struct err *err) {
    enum status status = next_element(reader, '[', ']', found, err);
    if (status || !*found) return status;
    if (take(reader, '[')) {
        status = read_string(reader, &reader->first, err);
        if (status) return status;
        if (!take(reader, ',')) return wrong(reader, "a comma", err);
        status = read_string(reader, &reader->second, err);
        if (status) return status;
        return take(reader, ']') ? OK : wrong(reader, "the end of a pair", err);
    }
    status = read_string(reader, &reader->first, err);
    if (status) return status;
    buf_clear(&reader->second);
    struct buf *pair = &reader->first;
    char *space = pair->data ? memchr(pair->data, ' ', pair->len) : NULL;
    size_t left = space ? (size_t)(space - pair->data) : 0;
    if (!space || memchr(space + 1, ' ', pair->len - left - 1)) {
        return wrong(reader, "two tokens with one space between them", err);
    }
    status = buf_append(&reader->second, space + 1, pair->len - left - 1, err);
    if (status) return status;
    pair->len = left;
    pair->data[left] = '\0';
    return OK;
}
