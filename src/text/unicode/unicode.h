/* Characters: repair of broken UTF-8; the properties that patterns use; NFC and NFKC.
 *
 * Letters, numbers, white space, word characters, general categories and scripts are those of
 * Unicode 16.0, as in the regular expressions of Hugging Face tokenizers 0.23. They come from our
 * own tables, so that a text has the same tokens on every machine. Three parts of Hugging Face use
 * other versions. NFC, NFKC and Punctuation know characters up to Unicode 9, and so do their flags
 * here. Digits knows 13 characters of Unicode 17 (U+11DE0 to U+11DE9, U+16FF4 to U+16FF6), which
 * are no numbers here. utf8proc decomposes and composes characters; for those that the flags name,
 * all its versions do the same. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "base/text/utf8.h"

enum {
    UNICODE_LETTER = 1, // \p{L}
    UNICODE_NUMBER = 2, // \p{N}
    UNICODE_SPACE = 4, // \s: White_Space
    UNICODE_WORD = 8, // \w
    UNICODE_NFC_CHECK = 16, // NFC may change it, reorder it or join it to the character before
    UNICODE_NFC_FIRST = 32, // NFC may join the character after to it
    UNICODE_PUNCTUATION = 64, // Hugging Face's Punctuation, of Unicode 9
    UNICODE_NFKC_CHECK = 128, // NFKC changes it; NFKC may also touch those with NFC_CHECK
    UNICODE_END = 0x110000,
};

// One byte of flags per code point: *out is [UNICODE_END], the caller frees it.
MUST_USE enum status unicode_flags_create(uint8_t **out, struct err *err);

// The first bytes of a character whose other bytes have not come yet. All-zero is empty.
struct utf8_partial {
    unsigned char bytes[4];
    uint32_t len;
};

// Appends `bytes` to `out` with invalid parts replaced by U+FFFD, as Rust's from_utf8_lossy does:
// one for each longest beginning of a character. An unfinished character at the end stays in
// `partial`.
MUST_USE enum status utf8_append_lossy(struct utf8_partial *partial, const char *bytes, size_t len,
                                       struct buf *out, struct err *err);
// The end of the text: an unfinished character becomes U+FFFD.
MUST_USE enum status utf8_append_end(struct utf8_partial *partial, struct buf *out,
                                     struct err *err);

// Appends one byte of a text. After the first fault *broken is set, and each byte from then on
// becomes a U+FFFD of its own, the unfinished character's bytes included.
MUST_USE enum status utf8_append_byte(struct utf8_partial *partial, unsigned char byte,
                                      bool *broken, struct buf *out, struct err *err);
MUST_USE enum status utf8_append_replacements(size_t count, struct buf *out, struct err *err);

struct unicode_points {
    int32_t *data; // [len]
    size_t len, capacity;
};

enum unicode_form { UNICODE_NFC, UNICODE_NFKC };

// Memory of unicode_normalize, reusable by the next call. All-zero is empty.
struct unicode_nfc_scratch {
    struct unicode_points points, sorted;
    struct buf piece;
};
void unicode_nfc_scratch_fini(struct unicode_nfc_scratch *scratch);

// The normal form of valid UTF-8. When it differs from `text`, *changed is true and `out`, which is
// cleared first, has it; otherwise nothing is copied. Takes linear time.
MUST_USE enum status unicode_normalize(enum unicode_form form, const uint8_t *flags,
                                       const char *text, size_t len,
                                       struct unicode_nfc_scratch *scratch, struct buf *out,
                                       bool *changed, struct err *err);

#endif
