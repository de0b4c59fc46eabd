/* Any answer in any pieces: the first byte says how many bytes each piece has and, by its top bit,
 * whether the prompt has opened the reasoning. The fields are those of the answer in one piece, and
 * an answer without a closing or opening tag loses nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/chat/reasoning.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void split(const char *text, size_t len, size_t piece, bool opened, struct buf *thought,
                  struct buf *content) {
    const struct reasoning_delta out = {thought, content};
    struct reasoning reasoning;
    reasoning_begin(&reasoning, true, "<think>", opened ? 7 : 0);
    for (size_t at = 0; at < len; at += piece) {
        size_t bytes = len - at < piece ? len - at : piece;
        CHECK(reasoning_push(&reasoning, text + at, bytes, &out, NULL) == OK, "at=%zu", at);
    }
    CHECK(reasoning_finish(&reasoning, &out, NULL) == OK, "len=%zu", len);
}

static bool same(const struct buf *a, const struct buf *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    size_t piece = 1 + data[0] % 127;
    bool opened = data[0] & 0x80;
    const char *text = (const char *)data + 1;
    size_t len = size - 1;
    struct buf thought = {0}, content = {0}, thought_whole = {0}, content_whole = {0};
    split(text, len, piece, opened, &thought, &content);
    split(text, len, len + 1, opened, &thought_whole, &content_whole);
    CHECK(same(&thought, &thought_whole) && same(&content, &content_whole), "piece=%zu", piece);
    CHECK(thought.len + content.len <= len, "len=%zu", len);
    if (!opened && !memchr(text, '<', len) && !memchr(text, '[', len)) {
        CHECK(content.len == len && (len == 0 || memcmp(content.data, text, len) == 0), "len=%zu",
              len);
    }
    buf_fini(&thought);
    buf_fini(&content);
    buf_fini(&thought_whole);
    buf_fini(&content_whole);
    return 0;
}
