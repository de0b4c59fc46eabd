/* Arbitrary text as tokenizer.json. What is accepted must encode and decode without breaking a
 * promise: known ids only, valid UTF-8, and streaming that agrees with decoding at once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const texts[] = {
    "",
    "abc ab  cab\n\n1234 I'll <s>ab<t> a",
    "e\xcc\x81\xcc\xa3 \xe4\xb8\xad \xe3\x80\x80\xf0\x9f\x99\x82\xff\xc3 end   ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabababab",
};

// Bytes that are not UTF-8 between tokens with byte fallback are the one place where a stream may
// differ.
static void check_decoding(const struct tokenizer *tokenizer, const struct token_list *ids,
                           bool skip_special, bool byte_fallback) {
    struct buf whole = {0}, pieces = {0};
    struct detokenizer detokenizer = {0};
    enum status status =
        tokenizer_decode(tokenizer, ids->ids, ids->len, skip_special, &whole, NULL);
    CHECK(status == OK, "%s", status_name(status));
    for (size_t i = 0; i < ids->len; i++) {
        status =
            detokenizer_push(&detokenizer, tokenizer, ids->ids[i], skip_special, &pieces, NULL);
        CHECK(status == OK, "%s", status_name(status));
    }
    status = detokenizer_flush(&detokenizer, &pieces, NULL);
    CHECK(status == OK, "%s", status_name(status));
    if (whole.len) {
        CHECK(utf8_valid_prefix(whole.data, whole.len) == whole.len, "%s", "not UTF-8");
    }
    if (pieces.len) {
        CHECK(utf8_valid_prefix(pieces.data, pieces.len) == pieces.len, "%s", "not UTF-8");
    }
    bool replaced = whole.len && memmem(whole.data, whole.len, "\xef\xbf\xbd", 3);
    if (!byte_fallback || !replaced) {
        CHECK(whole.len == pieces.len, "%zu %zu", whole.len, pieces.len);
        CHECK(!whole.len || memcmp(whole.data, pieces.data, whole.len) == 0, "%s",
              "streaming differs");
    }
    buf_fini(&whole);
    buf_fini(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_parse(&tokenizer, (const char *)data, size, "tokenizer.json", &err)) {
        CHECK(tokenizer == NULL && err.message[0], "%s", "no message");
        return 0;
    }
    bool byte_fallback = memmem(data, size, "ByteFallback", strlen("ByteFallback")) != NULL;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct token_list ids = {0};
        enum status status =
            tokenizer_encode(tokenizer, texts[i], strlen(texts[i]), i % 2, NULL, &ids, &err);
        // A pattern may give up; nothing else may fail.
        CHECK(status == OK || status == ERR_INVALID || status == ERR_UNSUPPORTED, "%s",
              err.message);
        check_decoding(tokenizer, &ids, false, byte_fallback);
        check_decoding(tokenizer, &ids, true, byte_fallback);
        token_list_fini(&ids);
    }
    tokenizer_close(tokenizer);
    return 0;
}
