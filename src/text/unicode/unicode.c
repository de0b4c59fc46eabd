/* NFC works on short runs: only runs of characters that NFC may touch, with the character before
 * each run, are decomposed, ordered and composed. Two runs cannot affect each other. */
#include "text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/unicode/unicode_table.h"

static const char replacement[3] = {(char)0xef, (char)0xbf, (char)0xbd};

enum status unicode_flags_create(uint8_t **out, struct err *err) {
    // calloc: pages of planes without letters are never touched.
    *out = calloc(UNICODE_END, 1);
    if (!*out) return err_nomem(err, "character table");
    for (size_t i = 0; i < unicode_num_ranges; i++) {
        const struct unicode_range *range = &unicode_ranges[i];
        memset(*out + range->first, range->flags, range->last - range->first + 1);
    }
    return OK;
}

// Adds one byte to `partial`. True: it was added, and *complete tells whether the character is
// whole now. False: no character has this byte here.
static bool partial_take(struct utf8_partial *partial, unsigned char byte, bool *complete) {
    unsigned char low, high;
    if (partial->len == 0) {
        unsigned size = utf8_sequence_bytes(byte, &low, &high);
        if (size == 0) return false;
        partial->bytes[partial->len++] = byte;
        *complete = size == 1;
        return true;
    }
    unsigned size = utf8_sequence_bytes(partial->bytes[0], &low, &high);
    if (partial->len > 1) {
        low = 0x80;
        high = 0xbf;
    }
    if (byte < low || byte > high) return false;
    partial->bytes[partial->len++] = byte;
    *complete = partial->len == size;
    return true;
}

enum status utf8_append_end(struct utf8_partial *partial, struct buf *out, struct err *err) {
    if (partial->len == 0) return OK;
    partial->len = 0;
    return buf_append(out, replacement, sizeof replacement, err);
}

enum status utf8_append_lossy(struct utf8_partial *partial, const char *bytes, size_t len,
                              struct buf *out, struct err *err) {
    enum status status = OK;
    size_t i = 0;
    while (i < len && !status) {
        if (partial->len == 0) {
            size_t valid = utf8_valid_prefix(bytes + i, len - i);
            status = buf_append(out, bytes + i, valid, err);
            i += valid;
            if (i == len || status) break;
        }
        bool complete = false;
        if (partial_take(partial, (unsigned char)bytes[i], &complete)) {
            i++;
            if (!complete) continue;
            status = buf_append(out, partial->bytes, partial->len, err);
            partial->len = 0;
        } else if (partial->len) {
            status = utf8_append_end(partial, out, err); // this byte may begin the next character
        } else {
            status = buf_append(out, replacement, sizeof replacement, err);
            i++;
        }
    }
    return status;
}

enum status utf8_append_replacements(size_t count, struct buf *out, struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < count && !status; i++) {
        status = buf_append(out, replacement, sizeof replacement, err);
    }
    return status;
}

enum status utf8_append_byte(struct utf8_partial *partial, unsigned char byte, bool *broken,
                             struct buf *out, struct err *err) {
    bool complete = false;
    if (*broken || !partial_take(partial, byte, &complete)) {
        size_t count = partial->len + 1;
        partial->len = 0;
        *broken = true;
        return utf8_append_replacements(count, out, err);
    }
    if (!complete) return OK;
    size_t len = partial->len;
    partial->len = 0;
    return buf_append(out, partial->bytes, len, err);
}

// Capacity for `extra` more.
static enum status points_reserve(struct unicode_points *points, size_t extra, struct err *err) {
    if (points->capacity - points->len >= extra) return OK;
    size_t capacity = points->capacity ? points->capacity : 64;
    while (capacity - points->len < extra) capacity *= 2;
    int32_t *data = realloc(points->data, capacity * sizeof *data);
    if (!data) return err_nomem(err, "NFC");
    points->data = data;
    points->capacity = capacity;
    return OK;
}

void unicode_nfc_scratch_fini(struct unicode_nfc_scratch *scratch) {
    free(scratch->points.data);
    free(scratch->sorted.data);
    buf_fini(&scratch->piece);
    *scratch = (struct unicode_nfc_scratch){0};
}

static unsigned combining_class(int32_t code_point) {
    return (unsigned)utf8proc_get_property(code_point)->combining_class & 0xff;
}

// Orders the marks [first, last) by combining class and keeps the order within a class. A counting
// sort: a text may be one long row of marks, and utf8proc's own sort is quadratic.
static enum status order_marks(struct unicode_nfc_scratch *scratch, size_t first, size_t last,
                               struct err *err) {
    scratch->sorted.len = 0;
    enum status status = points_reserve(&scratch->sorted, last - first, err);
    if (status) return status;
    size_t offsets[257] = {0};
    int32_t *marks = scratch->points.data + first;
    for (size_t i = 0; i < last - first; i++) offsets[combining_class(marks[i]) + 1]++;
    for (size_t c = 1; c < 257; c++) offsets[c] += offsets[c - 1];
    for (size_t i = 0; i < last - first; i++) {
        scratch->sorted.data[offsets[combining_class(marks[i])]++] = marks[i];
    }
    memcpy(marks, scratch->sorted.data, (last - first) * sizeof *marks);
    return OK;
}

// Brings each row of marks into canonical order, by class. Nearly all rows are in order already.
static enum status order_all_marks(struct unicode_nfc_scratch *scratch, struct err *err) {
    const struct unicode_points *points = &scratch->points;
    size_t i = 0;
    while (i < points->len) {
        size_t first = i;
        bool ordered = true;
        unsigned previous = 0;
        for (; i < points->len; i++) {
            unsigned class = combining_class(points->data[i]);
            if (class == 0) break;
            if (class < previous) ordered = false;
            previous = class;
        }
        if (!ordered) {
            enum status status = order_marks(scratch, first, i, err);
            if (status) return status;
        }
        if (i == first) i++;
    }
    return OK;
}

// Writes the normal form of one run of characters to scratch->piece.
static enum status normalize_run(enum unicode_form form, const unsigned char *text, size_t len,
                                 struct unicode_nfc_scratch *scratch, struct err *err) {
    struct unicode_points *points = &scratch->points;
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    const utf8proc_option_t decompose =
        UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (form == UNICODE_NFKC ? UTF8PROC_COMPAT : 0);
    points->len = 0;
    buf_clear(&scratch->piece);
    for (size_t i = 0; i < len;) {
        size_t size;
        uint32_t c = utf8_decode(text + i, &size);
        i += size;
        enum { DECOMPOSED_MAX = 32 }; // canonical decompositions have at most 4, compatible ones 18
        enum status status = points_reserve(points, DECOMPOSED_MAX, err);
        if (status) return status;
        // One character at a time: given a whole text, utf8proc would order the marks itself.
        int boundary = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(
            (utf8proc_int32_t)c, points->data + points->len, DECOMPOSED_MAX, decompose, &boundary);
        if (n < 0 || n > DECOMPOSED_MAX)
            return err_set(err, ERR_INVALID, "normalizing U+%04X failed", c);
        points->len += (size_t)n;
    }
    enum status status = order_all_marks(scratch, err);
    if (status) return status;
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(points->data, (utf8proc_ssize_t)points->len, options);
    if (n < 0) return err_set(err, ERR_INVALID, "normalizing failed: %s", utf8proc_errmsg(n));
    status = buf_reserve(&scratch->piece, (size_t)n * 4, err);
    if (status) return status;
    for (size_t i = 0; i < (size_t)n; i++) {
        struct buf *piece = &scratch->piece;
        piece->len += utf8_write((uint32_t)points->data[i], piece->data + piece->len);
    }
    if (scratch->piece.data) scratch->piece.data[scratch->piece.len] = '\0';
    return OK;
}

// The next character at or after `i` with one of the flags `checked`; len when there is none. No
// such character has a first byte below `lead`.
static size_t find_checked(const uint8_t *flags, unsigned checked, unsigned lead,
                           const unsigned char *text, size_t len, size_t i) {
    while (i < len) {
        if (len - i >= 8 && utf8_is_ascii8((const char *)text + i)) {
            i += 8;
        } else if (text[i] < lead) {
            i++; // ASCII, or a byte of a character without the flags
        } else {
            size_t size;
            if (flags[utf8_decode(text + i, &size)] & checked) return i;
            i += size;
        }
    }
    return len;
}

// Where the run begins whose first flagged character is at `i`: one character earlier when that one
// may be composed with it. The run begins at `from` at the earliest.
static size_t run_start(const uint8_t *flags, const unsigned char *text, size_t from, size_t i) {
    if (i == from) return i;
    size_t previous = i - 1;
    while (previous > from && (text[previous] & 0xc0) == 0x80) previous--;
    size_t size;
    return flags[utf8_decode(text + previous, &size)] & UNICODE_NFC_FIRST ? previous : i;
}

enum status unicode_normalize(enum unicode_form form, const uint8_t *flags, const char *text,
                              size_t len, struct unicode_nfc_scratch *scratch, struct buf *out,
                              bool *changed, struct err *err) {
    const unsigned char *bytes = (const unsigned char *)text;
    // NFC touches no character below U+0300, NFKC none of ASCII.
    unsigned checked = UNICODE_NFC_CHECK, lead = 0xcc;
    if (form == UNICODE_NFKC) {
        checked |= UNICODE_NFKC_CHECK;
        lead = 0xc2;
    }
    *changed = false;
    buf_clear(out);
    size_t copied = 0; // text[0, copied) has its normal form in `out`
    size_t from = 0;
    for (;;) {
        size_t first = find_checked(flags, checked, lead, bytes, len, from);
        if (first == len) break;
        size_t start = run_start(flags, bytes, from, first);
        size_t end = first;
        while (end < len) {
            size_t size;
            if (!(flags[utf8_decode(bytes + end, &size)] & checked)) break;
            end += size;
        }
        from = end;
        enum status status = normalize_run(form, bytes + start, end - start, scratch, err);
        if (status) return status;
        const struct buf *piece = &scratch->piece;
        if (piece->len == end - start && memcmp(piece->data, bytes + start, piece->len) == 0) {
            continue;
        }
        status = buf_append(out, text + copied, start - copied, err);
        if (!status) status = buf_append(out, piece->data, piece->len, err);
        if (status) return status;
        copied = end;
        *changed = true;
    }
    return *changed ? buf_append(out, text + copied, len - copied, err) : OK;
}
