/* Encoding. Each piece of the text goes through all stages, down to the ids of its words, before
 * the next piece begins: nothing is collected between the stages. */
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/tokenizer_parts.h"

enum {
    SCRATCH_BYTES_KEPT = 1 << 20, // larger buffers of an idle scratch are freed
    TEXT_BYTES_MAX = INT32_MAX, // positions in a word are 32 bits
};

void tokenizer_scratch_begin(struct tokenizer_scratch *scratch, size_t len,
                             const struct interrupt *interrupt) {
    effort_begin(&scratch->effort, len, interrupt);
    scratch->bpe.effort = scratch->pattern.effort = &scratch->effort;
}

void tokenizer_scratch_fini(struct tokenizer_scratch *scratch) {
    bpe_scratch_fini(&scratch->bpe);
    pattern_scratch_fini(&scratch->pattern);
    unicode_nfc_scratch_fini(&scratch->nfc);
    buf_fini(&scratch->repaired);
    buf_fini(&scratch->normalized);
    buf_fini(&scratch->normalizing);
    buf_fini(&scratch->prefixed);
}

static void scratch_destroy(struct tokenizer_scratch *scratch) {
    if (!scratch) return;
    tokenizer_scratch_fini(scratch);
    free(scratch);
}

void tokenizer_close(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    while (tokenizer->idle) {
        struct tokenizer_scratch *next = tokenizer->idle->next;
        scratch_destroy(tokenizer->idle);
        tokenizer->idle = next;
    }
    for (size_t i = 0; i < tokenizer->num_normalizers; i++) {
        tokenizer_normalizer_fini(&tokenizer->normalizers[i]);
    }
    free(tokenizer->decoding.first);
    for (size_t i = 0; i < tokenizer->num_splits; i++) pattern_fini(&tokenizer->splits[i].pattern);
    added_set_fini(&tokenizer->raw);
    added_set_fini(&tokenizer->normalized);
    bpe_fini(&tokenizer->bpe);
    free(tokenizer->flags);
    pthread_mutex_destroy(&tokenizer->lock);
    free(tokenizer);
}

// The pool changes also inside a const tokenizer; its lock guards it.
static struct tokenizer *pool_of(const struct tokenizer *tokenizer) {
    return (struct tokenizer *)(uintptr_t)tokenizer;
}

// An idle scratch, or a new one when all are in use; NULL when memory is out. The last one given
// back is taken first: its cache is the warmest.
static struct tokenizer_scratch *scratch_take(const struct tokenizer *tokenizer, struct err *err) {
    struct tokenizer *pool = pool_of(tokenizer);
    pthread_mutex_lock(&pool->lock);
    struct tokenizer_scratch *scratch = pool->idle;
    if (scratch) {
        pool->idle = scratch->next;
        pool->num_idle--;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!scratch) scratch = calloc(1, sizeof *scratch);
    if (!scratch) (void)err_nomem(err, "tokenizer");
    return scratch;
}

static void shrink(struct buf *buf) {
    if (buf->capacity > SCRATCH_BYTES_KEPT) buf_fini(buf);
}

// Gives a scratch back to the pool, without buffers that a huge text made large. The pool keeps
// SCRATCHES_KEPT; more of them, after many threads at once, are freed.
static void scratch_give(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch) {
    shrink(&scratch->repaired);
    shrink(&scratch->normalized);
    shrink(&scratch->normalizing);
    shrink(&scratch->prefixed);
    if (scratch->nfc.points.capacity * sizeof(int32_t) > SCRATCH_BYTES_KEPT) {
        unicode_nfc_scratch_fini(&scratch->nfc);
    }
    struct tokenizer *pool = pool_of(tokenizer);
    pthread_mutex_lock(&pool->lock);
    bool kept = pool->num_idle < SCRATCHES_KEPT;
    if (kept) {
        scratch->next = pool->idle;
        pool->idle = scratch;
        pool->num_idle++;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!kept) scratch_destroy(scratch);
}

// What all stages of one tokenizer_encode share.
struct encoding {
    const struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    struct token_list *out;
    struct err *err;
    const char *beginning; // the text's first piece, normalised, while it is encoded; else NULL
};

static enum status encode_piece(struct encoding *encoding, size_t stage, const char *text,
                                size_t len);

// The published patterns match everything: each match is a word.
static enum status encode_scanned(struct encoding *encoding, const struct split *split,
                                  size_t stage, const char *text, size_t len) {
    const unsigned char *p = (const unsigned char *)text, *end = p + len;
    const struct tokenizer *tokenizer = encoding->tokenizer;
    bool last = stage + 1 == tokenizer->num_splits && tokenizer->bpe.vocab.byte_level;
    while (p < end) {
        size_t word = pattern_scan(&split->pattern, p, end);
        enum status status =
            last ? bpe_encode_word(&tokenizer->bpe, &encoding->scratch->bpe, p, word,
                                   (size_t)(end - p), encoding->out, encoding->err)
                 : encode_piece(encoding, stage + 1, (const char *)p, word);
        if (status) return status;
        p += word;
    }
    return OK;
}

// Joins parts and delimiters as the behavior says. A delimiter may be empty; empty parts are
// dropped.
struct splitter {
    const struct split *split;
    size_t start, end; // the held part, not yet handed on
    bool holds; // there is a held part
    bool was_delimiter; // the last part taken was a delimiter
};

// Sends the held part to the next stage.
static enum status hand_on(struct encoding *encoding, struct splitter *splitter, size_t stage,
                           const char *text) {
    if (!splitter->holds || splitter->start == splitter->end) return OK;
    return encode_piece(encoding, stage + 1, text + splitter->start,
                        splitter->end - splitter->start);
}

// Takes the next part of the text, a match or not. It is joined to the held part or replaces it. A
// part is held because it can still grow: only its successor shows that it is complete.
static enum status take_part(struct encoding *encoding, struct splitter *splitter, size_t stage,
                             const char *text, size_t start, size_t end, bool is_match) {
    bool delimiter = is_match != splitter->split->invert;
    bool was = splitter->was_delimiter;
    splitter->was_delimiter = delimiter;
    bool join = false;
    switch (splitter->split->behavior) {
    case SPLIT_ISOLATED:
        break;
    case SPLIT_REMOVED:
        if (delimiter) return OK;
        break;
    case SPLIT_CONTIGUOUS:
        join = delimiter == was;
        break;
    case SPLIT_MERGED_WITH_PREVIOUS:
        join = delimiter && !was;
        break;
    case SPLIT_MERGED_WITH_NEXT:
        join = !delimiter && was;
        break;
    }
    if (join && splitter->holds) {
        splitter->end = end;
        return OK;
    }
    enum status status = hand_on(encoding, splitter, stage, text);
    splitter->start = start;
    splitter->end = end;
    splitter->holds = true;
    return status;
}

// The general way: matches and the text between them both go through the splitter.
static enum status encode_split(struct encoding *encoding, const struct split *split, size_t stage,
                                const char *text, size_t len) {
    struct pattern_cursor cursor = {.text = text, .len = len, .last_end = SIZE_MAX};
    struct splitter splitter = {.split = split};
    size_t done = 0;
    for (;;) {
        bool found;
        enum status status = pattern_next(&split->pattern, &cursor, &encoding->scratch->pattern,
                                          &found, encoding->err);
        if (status) return status;
        if (!found) break;
        if (cursor.start > done) {
            status = take_part(encoding, &splitter, stage, text, done, cursor.start, false);
        }
        done = cursor.end;
        if (!status) {
            status = take_part(encoding, &splitter, stage, text, cursor.start, cursor.end, true);
        }
        if (status) return status;
    }
    if (done < len) {
        enum status status = take_part(encoding, &splitter, stage, text, done, len, false);
        if (status) return status;
    }
    return hand_on(encoding, &splitter, stage, text);
}

// As in Hugging Face every piece gets the space, not only the text's first.
static enum status encode_prefixed(struct encoding *encoding, size_t stage, const char *text,
                                   size_t len) {
    if (text[0] == ' ') return encode_piece(encoding, stage + 1, text, len);
    struct buf *prefixed = &encoding->scratch->prefixed;
    buf_clear(prefixed);
    enum status status = buf_append(prefixed, " ", 1, encoding->err);
    if (!status) status = buf_append(prefixed, text, len, encoding->err);
    return status ? status : encode_piece(encoding, stage + 1, prefixed->data, prefixed->len);
}

// Cuts words at visible spaces, if the metaspace splits. `text` is in scratch->prefixed.
static enum status encode_metaspaced(struct encoding *encoding, const struct metaspace *metaspace,
                                     size_t stage, const char *text, size_t len) {
    while (metaspace->split && len > metaspace->len) {
        const char *next = memmem(text + metaspace->len, len - metaspace->len, metaspace->character,
                                  metaspace->len);
        if (!next) break;
        enum status status = encode_piece(encoding, stage + 1, text, (size_t)(next - text));
        if (status) return status;
        len -= (size_t)(next - text);
        text = next;
    }
    return encode_piece(encoding, stage + 1, text, len);
}

// Replaces spaces by visible ones. By scheme, each piece that does not begin with one gets one, or
// only the text's first piece does.
static enum status encode_metaspace(struct encoding *encoding, const struct metaspace *metaspace,
                                    size_t stage, const char *text, size_t len) {
    const char *character = metaspace->character;
    bool prefix = metaspace->scheme == METASPACE_ALWAYS ||
                  (metaspace->scheme == METASPACE_FIRST && text == encoding->beginning);
    if (text[0] == ' ' || (len >= metaspace->len && memcmp(text, character, metaspace->len) == 0)) {
        prefix = false;
    }
    struct buf *spaced = &encoding->scratch->prefixed;
    enum status status = text_replace_byte(text, len, ' ', character, metaspace->len,
                                           prefix ? metaspace->len : 0, spaced, encoding->err);
    if (status) return status;
    if (prefix) memcpy(spaced->data, character, metaspace->len);
    return encode_metaspaced(encoding, metaspace, stage, spaced->data, spaced->len);
}

// Encodes one piece, not empty, from stage `stage` of the pre-tokenizer on. The recursion is as
// deep as the number of stages.
static enum status encode_piece(struct encoding *encoding, size_t stage, const char *text,
                                size_t len) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    if (stage == tokenizer->num_splits) {
        if (!tokenizer->bpe.vocab.byte_level) {
            return bpe_encode_text(&tokenizer->bpe, &encoding->scratch->bpe, text, len,
                                   encoding->out, encoding->err);
        }
        return bpe_encode_word(&tokenizer->bpe, &encoding->scratch->bpe,
                               (const unsigned char *)text, len, len, encoding->out, encoding->err);
    }
    const struct split *split = &tokenizer->splits[stage];
    if (split->kind == SPLIT_PREFIX_SPACE) return encode_prefixed(encoding, stage, text, len);
    if (split->kind == SPLIT_METASPACE) {
        return encode_metaspace(encoding, &split->metaspace, stage, text, len);
    }
    // Where all matches are kept as they are, no part needs to be joined or dropped.
    bool whole =
        (split->behavior == SPLIT_ISOLATED) || (split->behavior == SPLIT_REMOVED && split->invert);
    if (whole && pattern_is_scanned(&split->pattern)) {
        return encode_scanned(encoding, split, stage, text, len);
    }
    return encode_split(encoding, split, stage, text, len);
}

static enum status append_id(struct encoding *encoding, int32_t id) {
    enum status status = token_list_reserve(encoding->out, 1, encoding->err);
    if (status) return status;
    encoding->out->ids[encoding->out->len++] = id;
    return OK;
}

// Encodes a piece between two added tokens of the first set: normalises it, then cuts it at added
// tokens of the second set.
static enum status encode_raw_piece(struct encoding *encoding, const char *text, size_t len,
                                    bool first) {
    enum status status =
        tokenizer_normalize(encoding->tokenizer, encoding->scratch, &text, &len, encoding->err);
    encoding->beginning = first ? text : NULL;
    struct added_cursor cursor = {
        .text = text, .len = len, .effort = &encoding->scratch->effort, .err = encoding->err};
    while (!status && added_next(&encoding->tokenizer->normalized, &cursor)) {
        if (cursor.id >= 0) {
            status = append_id(encoding, cursor.id);
        } else if (cursor.end > cursor.start) {
            status = encode_piece(encoding, 0, text + cursor.start, cursor.end - cursor.start);
        }
    }
    return status ? status : cursor.status;
}

// Encodes a valid text. Added tokens that are matched as written are cut out first, because
// normalisation must not change them.
static enum status encode_text(struct encoding *encoding, const char *text, size_t len) {
    struct added_cursor cursor = {
        .text = text, .len = len, .effort = &encoding->scratch->effort, .err = encoding->err};
    enum status status = OK;
    while (!status && added_next(&encoding->tokenizer->raw, &cursor)) {
        if (cursor.id >= 0) {
            status = append_id(encoding, cursor.id);
        } else if (cursor.end > cursor.start) {
            status = encode_raw_piece(encoding, text + cursor.start, cursor.end - cursor.start,
                                      cursor.start == 0);
        }
    }
    return status ? status : cursor.status;
}

// The same, with the special tokens of the post-processor before and after it.
static enum status encode_valid(struct encoding *encoding, const char *text, size_t len,
                                bool add_special_tokens) {
    const struct tokenizer *tokenizer = encoding->tokenizer;
    enum status status = OK;
    size_t num_prefix = add_special_tokens ? tokenizer->num_prefix : 0;
    size_t num_suffix = add_special_tokens ? tokenizer->num_suffix : 0;
    for (size_t i = 0; i < num_prefix && !status; i++) {
        status = append_id(encoding, tokenizer->prefix[i]);
    }
    if (!status) status = encode_text(encoding, text, len);
    for (size_t i = 0; i < num_suffix && !status; i++) {
        status = append_id(encoding, tokenizer->suffix[i]);
    }
    return status;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len,
                             bool add_special_tokens, const struct interrupt *interrupt,
                             struct token_list *out, struct err *err) {
    if (len > TEXT_BYTES_MAX / 3) { // a repaired text is up to three times as long
        return err_set(err, ERR_INVALID, "the text has %zu bytes, at most %d can be encoded", len,
                       TEXT_BYTES_MAX / 3);
    }
    struct tokenizer_scratch *scratch = scratch_take(tokenizer, err);
    if (!scratch) return ERR_NOMEM;
    tokenizer_scratch_begin(scratch, len, interrupt);
    struct encoding encoding = {.tokenizer = tokenizer, .scratch = scratch, .out = out, .err = err};
    size_t first = out->len;
    enum status status = OK;
    if (utf8_valid_prefix(text, len) != len) {
        struct utf8_partial partial = {0};
        buf_clear(&scratch->repaired);
        status = utf8_append_lossy(&partial, text, len, &scratch->repaired, err);
        if (!status) status = utf8_append_end(&partial, &scratch->repaired, err);
        text = scratch->repaired.data;
        len = scratch->repaired.len;
    }
    if (!status) status = encode_valid(&encoding, text, len, add_special_tokens);
    // All or nothing: after an error the caller's list is as it was.
    if (status) out->len = first;
    scratch_give(tokenizer, scratch);
    return status;
}

uint32_t tokenizer_num_tokens(const struct tokenizer *tokenizer) {
    return (uint32_t)tokenizer->bpe.vocab.num_ids;
}

bool tokenizer_strips_blank(const struct tokenizer *tokenizer) {
    const struct decoding *decoding = &tokenizer->decoding;
    return decoding->strip_len == 1 && decoding->strip[0] == ' ' && decoding->strip_max == 1;
}

const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *len) {
    const struct vocab_token *token = vocab_token(&tokenizer->bpe.vocab, id);
    *len = token ? token->bytes_len : 0;
    return token ? tokenizer->bpe.vocab.data.data + token->bytes : NULL;
}

const char *tokenizer_token_text(const struct tokenizer *tokenizer, int32_t id, size_t *len) {
    const struct vocab_token *token = vocab_token(&tokenizer->bpe.vocab, id);
    *len = token ? token->text_len : 0;
    return token ? tokenizer->bpe.vocab.data.data + token->text : NULL;
}

bool tokenizer_token_is_special(const struct tokenizer *tokenizer, int32_t id) {
    const struct vocab_token *token = vocab_token(&tokenizer->bpe.vocab, id);
    return token && token->flags & TOKEN_SPECIAL;
}

bool tokenizer_token_is_added(const struct tokenizer *tokenizer, int32_t id) {
    const struct vocab_token *token = vocab_token(&tokenizer->bpe.vocab, id);
    return token && token->flags & TOKEN_ADDED;
}

bool tokenizer_find(const struct tokenizer *tokenizer, const char *content, size_t len,
                    int32_t *id) {
    uint32_t found;
    if (!vocab_find(&tokenizer->bpe.vocab, content, len, &found)) return false;
    *id = (int32_t)found;
    return true;
}

size_t tokenizer_max_token_bytes(const struct tokenizer *tokenizer) {
    return tokenizer->bpe.vocab.max_token_bytes;
}
