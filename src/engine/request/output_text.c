/* `held` is reserved once, for the longest text that is held back plus the longest text of one
 * token. So nothing in the step loop allocates, and a failed append is a broken invariant. */
#include "engine/request/output_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct output_stop {
    char *text; // [len]
    uint32_t *border; // [len]: longest proper prefix of text[0..i] that is also its suffix
    size_t len;
    size_t state; // how many bytes of `text` the output ends with; < len
};

static enum status stop_init(struct output_stop *stop, const char *text, struct err *err) {
    size_t len = strlen(text);
    if (len == 0) return err_set(err, ERR_INVALID, "a stop string is empty");
    if (len > UINT32_MAX) return err_set(err, ERR_INVALID, "a stop string is over 4 GiB long");
    stop->len = len;
    stop->text = malloc(len);
    stop->border = malloc(len * sizeof *stop->border);
    if (!stop->text || !stop->border) return err_nomem(err, "stop strings");
    memcpy(stop->text, text, len);
    stop->border[0] = 0;
    for (size_t i = 1; i < len; i++) {
        uint32_t k = stop->border[i - 1];
        while (k && text[k] != text[i]) k = stop->border[k - 1];
        stop->border[i] = k + (text[k] == text[i]);
    }
    return OK;
}

// Feeds one byte; true when it completes the stop string.
static bool stop_feed(struct output_stop *stop, char byte) {
    size_t k = stop->state;
    while (k && stop->text[k] != byte) k = stop->border[k - 1];
    if (stop->text[k] == byte) k++;
    bool complete = k == stop->len;
    stop->state = complete ? stop->border[k - 1] : k;
    return complete;
}

// Bytes that one token can add, by detokenizer.h.
static size_t token_bytes_max(const struct tokenizer *tokenizer) {
    return tokenizer ? 3 * (tokenizer_max_token_bytes(tokenizer) + 4) : 0;
}

size_t output_text_max_bytes(const struct output_text *text, const struct tokenizer *tokenizer,
                             uint32_t num_tokens) {
    size_t longest = 0;
    for (size_t i = 0; i < text->num_stops; i++) {
        if (text->stops[i].len > longest) longest = text->stops[i].len;
    }
    return longest + num_tokens * token_bytes_max(tokenizer);
}

enum status output_text_init(struct output_text *text, const struct tokenizer *tokenizer,
                             const struct output_text_options *options, struct err *err) {
    *text = (struct output_text){.min_tokens = options->min_tokens,
                                 .skip_special = options->skip_special,
                                 .include_stop = options->include_stop};
    enum status status = OK;
    size_t num_stops = options->num_stops;
    if (num_stops && !tokenizer) {
        return err_set(err, ERR_INVALID, "stop strings need a tokenizer, and there is none");
    }
    if (num_stops) {
        text->stops = calloc(num_stops, sizeof *text->stops);
        if (!text->stops) return err_nomem(err, "stop strings");
    }
    for (size_t i = 0; i < num_stops; i++) {
        text->num_stops = i + 1;
        status = stop_init(&text->stops[i], options->stops[i], err);
        if (status) goto fail;
    }
    status = buf_reserve(&text->held, output_text_max_bytes(text, tokenizer, 1), err);
    if (status) goto fail;
    return OK;

fail:
    output_text_fini(text);
    return status;
}

void output_text_fini(struct output_text *text) {
    if (!text) return;
    for (size_t i = 0; i < text->num_stops; i++) {
        free(text->stops[i].text);
        free(text->stops[i].border);
    }
    free(text->stops);
    buf_fini(&text->held);
    *text = (struct output_text){0};
}

// Moves the first `len` held bytes to `out` and forgets all but the last `keep` of the rest.
static void hand_out(struct output_text *text, size_t len, size_t keep, struct buf *out) {
    struct buf *held = &text->held;
    CHECK(out->len + len < out->capacity || len == 0, "len=%zu capacity=%zu", out->len + len,
          out->capacity);
    enum status status = buf_append(out, held->data, len, NULL);
    CHECK(status == OK, "status=%d", (int)status);
    memmove(held->data, held->data + held->len - keep, keep);
    held->len = keep;
    held->data[keep] = '\0';
}

int output_text_push(struct output_text *text, const struct tokenizer *tokenizer, int32_t token_id,
                     struct buf *out) {
    if (!tokenizer) return -1;
    struct buf *held = &text->held;
    size_t start = held->len; // of the new bytes
    enum status status =
        detokenizer_push(&text->detokenizer, tokenizer, token_id, text->skip_special, held, NULL);
    CHECK(status == OK, "status=%d", (int)status);
    int found = -1;
    size_t found_end = 0, keep = 0;
    ptrdiff_t found_at = 0; // below 0: its start was handed out before
    bool may_stop = ++text->num_tokens > text->min_tokens;
    for (size_t i = 0; i < text->num_stops; i++) {
        struct output_stop *stop = &text->stops[i];
        for (size_t at = start; at < held->len; at++) {
            if (!stop_feed(stop, held->data[at]) || !may_stop) continue;
            ptrdiff_t begin = (ptrdiff_t)(at + 1) - (ptrdiff_t)stop->len;
            if (found < 0 || begin < found_at ||
                (begin == found_at && stop->len > text->stops[found].len)) {
                found = (int)i;
                found_at = begin;
                found_end = at + 1;
            }
            break; // a later match of the same string begins later
        }
        if (!text->include_stop && stop->state > keep) keep = stop->state;
    }
    if (found >= 0) {
        hand_out(text, text->include_stop ? found_end : (size_t)found_at, 0, out);
    } else {
        hand_out(text, held->len - keep, keep, out);
    }
    return found;
}

void output_text_finish(struct output_text *text, struct buf *out) {
    if (!text->held.data) return;
    enum status status = detokenizer_flush(&text->detokenizer, &text->held, NULL);
    CHECK(status == OK, "status=%d", (int)status);
    hand_out(text, text->held.len, 0, out);
}
