/* The decoder component. Stages that work on one token alone (Replace, Metaspace, the value of a
 * byte token) are applied here, once to every token. Stages that look across tokens (ByteFallback,
 * Strip) are left to decoding. Only published orders of stages are accepted, for which this gives
 * the same text. */
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/c_locale.h"
#include "text/tokenizer/tokenizer_parts.h"

struct loading {
    struct tokenizer *tokenizer;
    const char *what;
    struct err *err;
    struct effort effort; // one budget for the texts of all tokens
    struct pattern_scratch pattern;
    struct buf decoded; // the current token's text after the current stage
    size_t growth; // how many times longer than in the vocabulary a token can be by now
};

// Makes `loading->decoded` the token's bytes, unless they are that already.
static enum status set_bytes(struct loading *loading, size_t id) {
    struct vocab *vocab = &loading->tokenizer->bpe.vocab;
    struct vocab_token *token = &vocab->tokens[id];
    const struct buf *decoded = &loading->decoded;
    if (decoded->len == token->bytes_len &&
        memcmp(decoded->data, vocab->data.data + token->bytes, decoded->len) == 0) {
        return OK;
    }
    token->bytes_len = (uint32_t)decoded->len;
    return vocab_store(vocab, decoded->data, decoded->len, &token->bytes, loading->err);
}

static enum status load_replace(struct loading *loading, const json_t *component) {
    struct tokenizer *tokenizer = loading->tokenizer;
    struct vocab *vocab = &tokenizer->bpe.vocab;
    struct normalizer replace = {0};
    enum status status = tokenizer_load_replace(&replace, tokenizer->flags, component, "decoder",
                                                loading->what, loading->err);
    if (!status) {
        status = normalizer_check_growth(&replace, "decoder", &loading->growth, loading->what,
                                         loading->err);
    }
    for (size_t id = 0; id < vocab->num_ids && !status; id++) {
        if (!vocab->tokens[id].flags) continue;
        status =
            text_replace(&replace, &loading->pattern, vocab->data.data + vocab->tokens[id].bytes,
                         vocab->tokens[id].bytes_len, &loading->decoded, loading->err);
        if (!status) status = set_bytes(loading, id);
    }
    tokenizer_normalizer_fini(&replace);
    return status;
}

// The token with its visible spaces replaced as `space` says: by spaces, or by nothing.
static enum status show_spaces(struct loading *loading, const struct normalizer *space, size_t id) {
    struct vocab *vocab = &loading->tokenizer->bpe.vocab;
    const struct vocab_token *token = &vocab->tokens[id];
    return text_replace(space, &loading->pattern, vocab->data.data + token->bytes, token->bytes_len,
                        &loading->decoded, loading->err);
}

static enum status load_metaspace(struct loading *loading, const json_t *component) {
    struct tokenizer *tokenizer = loading->tokenizer;
    struct vocab *vocab = &tokenizer->bpe.vocab;
    struct metaspace metaspace;
    enum status status =
        tokenizer_read_metaspace(component, "decoder", &metaspace, loading->what, loading->err);
    if (status) return status;
    char character[5] = {0};
    memcpy(character, metaspace.character, metaspace.len);
    char blank[] = " ", nothing[] = "";
    struct normalizer shown = {.kind = NORMALIZER_REPLACE, .text = blank, .len = 1};
    struct normalizer dropped = {.kind = NORMALIZER_REPLACE, .text = nothing};
    status = pattern_init_literal(&shown.pattern, character, loading->err);
    if (status) return status;
    dropped.pattern = shown.pattern;
    struct decoding *decoding = &tokenizer->decoding;
    if (metaspace.scheme != METASPACE_NEVER) {
        decoding->first = calloc(vocab->num_ids + 1, sizeof *decoding->first);
        if (!decoding->first) status = err_nomem(loading->err, "decoder");
    }
    for (size_t id = 0; id < vocab->num_ids && !status; id++) {
        if (!vocab->tokens[id].flags) continue;
        if (decoding->first) {
            status = show_spaces(loading, &dropped, id);
            if (status) break;
            decoding->first[id].len = (uint32_t)loading->decoded.len;
            status = vocab_store(vocab, loading->decoded.data, loading->decoded.len,
                                 &decoding->first[id].at, loading->err);
        }
        if (!status) status = show_spaces(loading, &shown, id);
        if (!status) status = set_bytes(loading, id);
    }
    pattern_fini(&shown.pattern);
    return status;
}

// The value of a byte token's text, <0x41>; -1: it is none. As in Hugging Face the first digit may
// be a plus sign, which counts as 0.
static int byte_value(const char *text, size_t len) {
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = text[3] == '+' ? 0 : c_locale_hex_value(text[3]), low = c_locale_hex_value(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static enum status load_byte_fallback(struct loading *loading) {
    struct tokenizer *tokenizer = loading->tokenizer;
    struct vocab *vocab = &tokenizer->bpe.vocab;
    tokenizer->decoding.byte_fallback = true;
    for (size_t id = 0; id < vocab->num_ids; id++) {
        struct vocab_token *token = &vocab->tokens[id];
        if (!token->flags) continue;
        int byte = byte_value(vocab->data.data + token->bytes, token->bytes_len);
        if (byte < 0) continue;
        char one = (char)byte;
        token->flags |= TOKEN_BYTE;
        token->bytes_len = 1;
        enum status status = vocab_store(vocab, &one, 1, &token->bytes, loading->err);
        if (status) return status;
        if (tokenizer->decoding.first) {
            tokenizer->decoding.first[id].at = token->bytes;
            tokenizer->decoding.first[id].len = 1;
        }
    }
    return OK;
}

static enum status load_strip(struct loading *loading, const json_t *component) {
    struct decoding *decoding = &loading->tokenizer->decoding;
    const char *content = NULL, *what = loading->what;
    int64_t start = -1, stop = -1;
    enum status status = jread_string(component, "content", &content, what, loading->err);
    if (!status) status = jread_int(component, "start", 0, 1 << 20, &start, what, loading->err);
    if (!status) status = jread_int(component, "stop", 0, 1 << 20, &stop, what, loading->err);
    if (status) return status;
    size_t len = 0;
    if (content && *content) (void)utf8_decode((const unsigned char *)content, &len);
    if (!len || strlen(content) != len || start < 0 || stop < 0) {
        return err_set(loading->err, ERR_FORMAT,
                       "%s: decoder: Strip wants one character as \"content\", and numbers "
                       "\"start\" and \"stop\"",
                       what);
    }
    // The end of a text is not known while it streams. U+FFFD comes from decoding, not from tokens.
    if (stop > 0 || strcmp(content, "\xef\xbf\xbd") == 0) {
        return err_set(loading->err, ERR_UNSUPPORTED,
                       "%s: decoder: Strip at the end of a text or of U+FFFD is not supported",
                       what);
    }
    memcpy(decoding->strip, content, len);
    decoding->strip_len = (uint32_t)len;
    decoding->strip_max = (uint32_t)start;
    return OK;
}

// Stages must stand in this order. Only Replace may come several times.
enum stage { STAGE_REPLACE, STAGE_METASPACE, STAGE_BYTE_FALLBACK, STAGE_FUSE, STAGE_STRIP };
static const char *const stage_names[] = {"Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"};

static enum status load_stage(struct loading *loading, size_t stage, const json_t *component) {
    switch ((enum stage)stage) {
    case STAGE_REPLACE:
        return load_replace(loading, component);
    case STAGE_METASPACE:
        return load_metaspace(loading, component);
    case STAGE_BYTE_FALLBACK:
        return load_byte_fallback(loading);
    case STAGE_FUSE:
        return OK; // decoding joins all tokens anyway
    case STAGE_STRIP:
        return load_strip(loading, component);
    }
    return OK;
}

static enum status load_stages(struct loading *loading, const struct component_list *list) {
    enum status status = OK;
    size_t next = 0; // the first stage that may still come
    bool fused = false;
    for (size_t i = 0; i < list->len && !status; i++) {
        size_t stage = 0;
        while (stage < ARRAY_LEN(stage_names) && strcmp(list->types[i], stage_names[stage]) != 0) {
            stage++;
        }
        if (stage == ARRAY_LEN(stage_names)) {
            return component_unsupported("decoder", list->types[i], loading->what, loading->err);
        }
        // Strip without Fuse would strip the start of every token.
        if (stage < next || (stage == STAGE_STRIP && !fused)) {
            return err_set(loading->err, ERR_UNSUPPORTED,
                           "%s: decoder: %s in this place is not supported, want the order "
                           "Replace, Metaspace, ByteFallback, Fuse, Strip",
                           loading->what, stage_names[stage]);
        }
        fused = fused || stage == STAGE_FUSE;
        next = stage + (stage != STAGE_REPLACE);
        status = load_stage(loading, stage, list->items[i]);
    }
    return status;
}

static enum status load_byte_level(const struct component_list *list, const char *what,
                                   struct err *err) {
    for (size_t i = 0; i < list->len; i++) {
        // ByteLevel gives one piece, so Fuse after it does nothing.
        if (strcmp(list->types[i], i == 0 ? "ByteLevel" : "Fuse") != 0) {
            return component_unsupported("decoder", list->types[i], what, err);
        }
    }
    bool unused;
    return tokenizer_read_byte_level(list->items[0], &unused, &unused, what, err);
}

enum status tokenizer_load_decoder(struct tokenizer *tokenizer, const json_t *root,
                                   const char *what, struct err *err) {
    struct component_list list;
    enum status status = component_list_read(root, "decoder", "decoders", &list, what, err);
    if (status) return status;
    struct vocab *vocab = &tokenizer->bpe.vocab;
    tokenizer->decoding.byte_level = vocab->byte_level;
    if (list.len == 0) {
        return err_set(err, ERR_UNSUPPORTED, "%s: decoder is missing, want %s", what,
                       vocab->byte_level ? "ByteLevel" : "Replace, ByteFallback and Fuse");
    }
    if (vocab->byte_level) return load_byte_level(&list, what, err);
    if (strcmp(list.types[0], "ByteLevel") == 0) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: decoder is ByteLevel, but the last pre_tokenizer is not", what);
    }
    struct loading loading = {.tokenizer = tokenizer, .what = what, .err = err, .growth = 1};
    effort_begin(&loading.effort, vocab->data.len, NULL);
    loading.pattern.effort = &loading.effort;
    status = load_stages(&loading, &list);
    pattern_scratch_fini(&loading.pattern);
    buf_fini(&loading.decoded);
    for (size_t id = 0; id < vocab->num_ids; id++) {
        size_t len = vocab->tokens[id].bytes_len;
        if (len > vocab->max_token_bytes) vocab->max_token_bytes = len;
    }
    return status;
}
