/* Characters: repair of broken UTF-8, the properties that patterns ask for, NFC and NFKC.
 *
 * Properties are of Unicode 16.0, from tables of ours instead of a library's, so that a text has the
 * same tokens on every machine: letters, numbers, white space, word characters, general categories,
 * scripts. That is what the regular expressions in Hugging Face tokenizers 0.23 know. Three things
 * there are of another version. NFC, NFKC and Punctuation know characters up to Unicode 9, and so do
 * the flags here that say what they touch. Digits knows 13 characters of Unicode 17, U+11DE0 to
 * U+11DE9 and U+16FF4 to U+16FF6, which are no numbers here. How a character is decomposed and
 * composed is utf8proc's knowledge; for the characters that are touched, no version changes that. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/utf8.h"

enum {
    UNICODE_LETTER = 1, // \p{L}
    UNICODE_NUMBER = 2, // \p{N}
    UNICODE_SPACE = 4, // \s: White_Space
    UNICODE_WORD = 8, // \w
    UNICODE_NFC_CHECK = 16, // NFC may change it, reorder it or join it to what stands before
    UNICODE_NFC_FIRST = 32, // what follows may be joined to it
    UNICODE_PUNCTUATION = 64, // Hugging Face's Punctuation, of Unicode 9
    UNICODE_NFKC_CHECK = 128, // NFKC changes it; with UNICODE_NFC_CHECK all that NFKC may touch
    UNICODE_END = 0x110000,
};

// One byte of flags per code point: *out is [UNICODE_END], the caller frees it.
MUST_USE enum status unicode_flags_create(uint8_t **out, struct err *err);

// The start of a character whose end has not come yet. All-zero is empty.
struct utf8_pending {
    unsigned char bytes[4];
    uint32_t len;
};

// Appends `bytes` to `out`, each longest part that begins no character replaced by one U+FFFD (what
// Rust's from_utf8_lossy does). An unfinished character at the end stays in `pending`.
MUST_USE enum status utf8_append_lossy(struct utf8_pending *pending, const char *bytes, size_t len,
                                       struct buf *out, struct err *err);
// The end of the text: an unfinished character becomes U+FFFD.
MUST_USE enum status utf8_append_end(struct utf8_pending *pending, struct buf *out,
                                     struct err *err);

// Appends one byte of a text in which each byte that is part of no character, and each one from the
// first fault on, becomes a U+FFFD of its own. *broken tells of that fault.
MUST_USE enum status utf8_append_byte(struct utf8_pending *pending, unsigned char byte,
                                      bool *broken, struct buf *out, struct err *err);
MUST_USE enum status utf8_append_replacements(size_t count, struct buf *out, struct err *err);

struct unicode_points {
    int32_t *data; // [len]
    size_t len, capacity;
};

enum unicode_form { UNICODE_NFC, UNICODE_NFKC };

// What unicode_normalize works with; all-zero is empty, reusable.
struct unicode_nfc_scratch {
    struct unicode_points points, sorted;
    struct buf piece;
};
void unicode_nfc_scratch_fini(struct unicode_nfc_scratch *scratch);

// The normal form of valid UTF-8. When that is another text, *changed is true and `out` (cleared
// first) holds it; otherwise nothing is copied. Linear time.
MUST_USE enum status unicode_normalize(enum unicode_form form, const uint8_t *flags,
                                       const char *text, size_t len,
                                       struct unicode_nfc_scratch *scratch, struct buf *out,
                                       bool *changed, struct err *err);

#endif
