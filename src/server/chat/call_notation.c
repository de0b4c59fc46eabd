#include "server/chat/call_notation.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/text/blank.h"

enum {
    KEY, // before a key, or the object's end
    BARE_KEY,
    COLON, // behind a quoted key
    ITEM, // before a value or, in a list, its end
    OPENING, // in the mark before a string
    MARKED_STRING, // between two marks
    QUOTED,
    BARE,
    AFTER, // behind a value
};

int call_notation_escape(char byte, char out[8]) {
    if (byte == '"' || byte == '\\') return snprintf(out, 8, "\\%c", byte);
    if (byte == '\n') return snprintf(out, 8, "\\n");
    if ((unsigned char)byte < 0x20) return snprintf(out, 8, "\\u%04x", (unsigned char)byte);
    out[0] = byte;
    return 1;
}

const char *call_notation_python(const char *text, size_t len) {
    static const struct {
        const char *word, *json;
    } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strlen(words[i].word) == len && memcmp(words[i].word, text, len) == 0) {
            return words[i].json;
        }
    }
    return NULL;
}

void call_notation_begin(struct call_notation *n) {
    buf_clear(&n->word);
    *n = (struct call_notation){.state = KEY, .depth = 1, .word = n->word};
}

void call_notation_fini(struct call_notation *n) {
    buf_fini(&n->word);
}

static uint64_t bit_of(const struct call_notation *n) {
    return (uint64_t)1 << (n->depth - 1);
}

static bool in_list(const struct call_notation *n) {
    return (n->are_lists & bit_of(n)) != 0;
}

// The comma before a key or before an item of a list.
static enum status separate(struct call_notation *n, struct buf *out, struct err *err) {
    bool has_items = (n->have_items & bit_of(n)) != 0;
    n->have_items |= bit_of(n);
    return has_items ? buf_append(out, ", ", 2, err) : OK;
}

static enum status append_escaped(struct buf *out, const char *text, size_t len, struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < len && !status; i++) {
        char escaped[8];
        int size = call_notation_escape(text[i], escaped);
        status = buf_append(out, escaped, (size_t)size, err);
    }
    return status;
}

static enum status begin_string(struct call_notation *n, uint8_t state, struct buf *out,
                                struct err *err) {
    enum status status = n->is_key || in_list(n) ? separate(n, out, err) : OK;
    n->state = state;
    n->quote_len = 0;
    n->is_escaped = false;
    n->hex_left = 0;
    return status ? status : buf_append(out, "\"", 1, err);
}

static enum status end_string(struct call_notation *n, struct buf *out, struct err *err) {
    n->state = n->is_key ? COLON : AFTER;
    return buf_append(out, "\"", 1, err);
}

// Writes a bare key or value.
static enum status end_word(struct call_notation *n, struct buf *out, struct err *err) {
    const char *text = n->word.data;
    size_t len = n->word.len;
    for (; len && is_blank(text[len - 1]); len--) continue;
    json_t *value = n->is_key || !len ? NULL : json_loadb(text, len, JSON_DECODE_ANY, NULL);
    const char *python = n->is_key || value ? NULL : call_notation_python(text, len);
    bool is_string = !value && !python;
    json_decref(value);
    enum status status = n->is_key || in_list(n) ? separate(n, out, err) : OK;
    if (!status && is_string) status = buf_append(out, "\"", 1, err);
    if (!status && is_string) status = append_escaped(out, text, len, err);
    if (!status && is_string) status = buf_append(out, "\"", 1, err);
    if (!status && python) status = buf_append(out, python, strlen(python), err);
    if (!status && !is_string && !python) status = buf_append(out, text, len, err);
    buf_clear(&n->word);
    return status;
}

static enum status open_group(struct call_notation *n, char byte, struct buf *out,
                              enum notation_end *end, struct err *err) {
    enum status status = in_list(n) ? separate(n, out, err) : OK;
    if (status) return status;
    if (n->depth == NOTATION_DEPTH_MAX) {
        *end = NOTATION_BROKEN;
        return OK;
    }
    n->depth++;
    n->have_items &= ~bit_of(n);
    n->are_lists &= ~bit_of(n);
    if (byte == '[') n->are_lists |= bit_of(n);
    n->state = byte == '[' ? ITEM : KEY;
    return buf_append(out, &byte, 1, err);
}

static enum status close_group(struct call_notation *n, char byte, struct buf *out,
                               enum notation_end *end, struct err *err) {
    if ((byte == ']') != in_list(n)) *end = NOTATION_BROKEN;
    if (*end == NOTATION_GOES_ON && n->depth == 1) *end = NOTATION_DONE;
    if (*end != NOTATION_GOES_ON) return OK;
    n->depth--;
    n->state = AFTER;
    return buf_append(out, &byte, 1, err);
}

static enum status take_word(struct call_notation *n, char byte, enum notation_end *end,
                             struct err *err) {
    if (n->word.len == NOTATION_WORD_MAX) *end = NOTATION_BROKEN;
    return *end == NOTATION_BROKEN ? OK : buf_append(&n->word, &byte, 1, err);
}

// Before a key or a value.
static enum status feed_start(struct call_notation *n, char byte, struct buf *out,
                              enum notation_end *end, struct err *err) {
    n->is_key = n->state == KEY;
    if (is_blank(byte)) return OK;
    if (byte == NOTATION_QUOTE[0]) {
        n->state = OPENING;
        n->quote_len = 1;
        return OK;
    }
    if (byte == '"') return begin_string(n, QUOTED, out, err);
    if (byte == '}' || byte == ']') {
        bool may_end = n->is_key ? byte == '}' : in_list(n);
        if (may_end) return close_group(n, byte, out, end, err);
    }
    bool opens = byte == '{' || byte == '[';
    if (opens && !n->is_key) return open_group(n, byte, out, end, err);
    if (strchr("{}[],:", byte)) {
        *end = NOTATION_BROKEN;
        return OK;
    }
    n->state = n->is_key ? BARE_KEY : BARE;
    return take_word(n, byte, end, err);
}

static enum status feed_string(struct call_notation *n, char byte, struct buf *out,
                               struct err *err) {
    enum status status = OK;
    if (byte == NOTATION_QUOTE[n->quote_len]) {
        n->quote_len++;
        return NOTATION_QUOTE[n->quote_len] ? OK : end_string(n, out, err);
    }
    if (n->quote_len) status = append_escaped(out, NOTATION_QUOTE, n->quote_len, err);
    n->quote_len = byte == NOTATION_QUOTE[0];
    return status || n->quote_len ? status : append_escaped(out, &byte, 1, err);
}

// As the model wrote it; a byte that cannot be there is escaped.
static enum status feed_quoted(struct call_notation *n, char byte, struct buf *out,
                               enum notation_end *end, struct err *err) {
    static const char escapes[] = "\"\\/bfnrtu";
    if (n->hex_left) {
        n->hex_left--;
        if (!byte || !strchr("0123456789abcdefABCDEF", byte)) *end = NOTATION_BROKEN;
        return *end ? OK : buf_append(out, &byte, 1, err);
    }
    if (n->is_escaped) {
        n->is_escaped = false;
        if (byte == 'u') n->hex_left = 4;
        bool is_known = byte && strchr(escapes, byte);
        enum status status = buf_append(out, is_known ? "\\" : "\\\\", is_known ? 1 : 2, err);
        if (status) return status;
        return is_known ? buf_append(out, &byte, 1, err) : append_escaped(out, &byte, 1, err);
    }
    n->is_escaped = byte == '\\';
    if (n->is_escaped) return OK;
    return byte == '"' ? end_string(n, out, err) : append_escaped(out, &byte, 1, err);
}

static enum status feed_after(struct call_notation *n, char byte, struct buf *out,
                              enum notation_end *end, struct err *err) {
    if (is_blank(byte)) return OK;
    if (byte == '}' || byte == ']') return close_group(n, byte, out, end, err);
    if (byte != ',') *end = NOTATION_BROKEN;
    n->state = in_list(n) ? ITEM : KEY;
    return OK;
}

static enum status feed_colon(struct call_notation *n, char byte, struct buf *out,
                              enum notation_end *end, struct err *err) {
    if (is_blank(byte)) return OK;
    if (byte != ':') *end = NOTATION_BROKEN;
    n->state = ITEM;
    n->is_key = false;
    return byte == ':' ? buf_append(out, ": ", 2, err) : OK;
}

enum status call_notation_feed(struct call_notation *n, char byte, struct buf *out,
                               enum notation_end *end, struct err *err) {
    enum status status = OK;
    *end = NOTATION_GOES_ON;
    switch (n->state) {
    case KEY:
    case ITEM:
        return feed_start(n, byte, out, end, err);
    case OPENING:
        if (byte != NOTATION_QUOTE[n->quote_len]) *end = NOTATION_BROKEN;
        n->quote_len++;
        return *end || NOTATION_QUOTE[n->quote_len] ? OK : begin_string(n, MARKED_STRING, out, err);
    case BARE_KEY:
        if (byte != ':') return take_word(n, byte, end, err);
        status = end_word(n, out, err);
        return status ? status : feed_colon(n, byte, out, end, err);
    case COLON:
        return feed_colon(n, byte, out, end, err);
    case MARKED_STRING:
        return feed_string(n, byte, out, err);
    case QUOTED:
        return feed_quoted(n, byte, out, end, err);
    case BARE:
        if (byte != ',' && byte != '}' && byte != ']') return take_word(n, byte, end, err);
        status = end_word(n, out, err);
        return status ? status : feed_after(n, byte, out, end, err);
    default:
        return feed_after(n, byte, out, end, err);
    }
}
